//! Containers of device code in a row, as sections and files hold them: OffloadBinaries, bundles,
//! compressed bundles and fatbinaries, in any mixture, with zeros before and between them.
//!
//! Only headers are read, except for version 1 compressed bundles, which do not store their size.
//!
//! ```
//! use offload_formats::containers::{Kind, row};
//! use offload_formats::offload_binary::write;
//! use offload_formats::model::ImageKind;
//!
//! let binary = write(ImageKind::Object, 1, 0, &[], b"code");
//! let data = [&[0; 8], &binary[..], &[0; 8], b"text"].concat();
//! let [Ok(first), Err(other)] = &row(&data).collect::<Vec<_>>()[..] else { panic!() };
//! assert_eq!((first.kind, first.range.start), (Kind::OffloadBinary, 8));
//! assert_eq!((other.kind, other.at), (None, data.len() as u64 - 4));
//! ```

use std::fmt::Display;
use std::ops::Range;

use super::offload_binary::{self, Head};
use super::{bundle, compressed, fatbin};
use crate::bytes::{slice, zeros};
use crate::error::Malformed;

/// The limit on the nesting of archives and containers. No build comes near it, but thin archives
/// may refer to each other endlessly.
pub const MAX_NESTING: usize = 16;

/// Fails if the data at `place` is nested deeper than [`MAX_NESTING`].
pub fn check_nesting(depth: usize, place: impl Display) -> anyhow::Result<()> {
    anyhow::ensure!(
        depth <= MAX_NESTING,
        "{place}: nested more than {MAX_NESTING} deep"
    );
    Ok(())
}

/// A container format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// LLVM's OffloadBinary, compressed or not.
    OffloadBinary,
    /// A binary bundle of clang-offload-bundler.
    Bundle,
    /// A compressed bundle of clang-offload-bundler.
    CompressedBundle,
    /// NVIDIA's fatbinary.
    Fatbinary,
}

impl Kind {
    /// The format of the container at the start of `data`.
    pub fn of(data: &[u8]) -> Option<Kind> {
        if offload_binary::is_offload_binary(data) {
            Some(Kind::OffloadBinary)
        } else if bundle::is_bundle(data) {
            Some(Kind::Bundle)
        } else if compressed::is_compressed(data) {
            Some(Kind::CompressedBundle)
        } else if fatbin::is_fatbin(data) {
            Some(Kind::Fatbinary)
        } else {
            None
        }
    }

    /// The name in reports and messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OffloadBinary => "offload-binary",
            Kind::Bundle => "bundle",
            Kind::CompressedBundle => "compressed-bundle",
            Kind::Fatbinary => "fatbinary",
        }
    }

    /// The size of the container of this format at the start of `data`.
    fn size(self, data: &[u8]) -> Result<u64, Malformed> {
        match self {
            Kind::OffloadBinary => Ok(Head::read(data, 0)?.size),
            Kind::Bundle => Ok(bundle::read_at(data, 0)?.size),
            Kind::CompressedBundle => match compressed::Header::read(data, 0)?.total {
                Some(total) => {
                    slice(data, 0, total, "size field past the end", 0)?;
                    Ok(total)
                }
                None => Ok(compressed::read_at(data, 0)?.size),
            },
            Kind::Fatbinary => fatbin::size(data),
        }
    }
}

/// A whole container in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The format.
    pub kind: Kind,
    /// The range in the row's data.
    pub range: Range<u64>,
}

/// Data in a row where a container should start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The format of the damaged container, or `None` for other data.
    pub kind: Option<Kind>,
    /// The offset of the data.
    pub at: u64,
    /// The reason. Its offset counts from the start of the row, too.
    pub reason: Malformed,
}

/// Returns the containers in `data`, in order. A fault ends the row, because it hides the start of
/// the next container.
pub fn row(data: &[u8]) -> Row<'_> {
    Row { data, at: 0 }
}

/// The iterator of [`row`].
#[derive(Debug, Clone)]
pub struct Row<'a> {
    data: &'a [u8],
    at: usize,
}

impl Iterator for Row<'_> {
    type Item = Result<Item, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at + zeros(self.data.get(self.at..)?);
        let rest = self.data.get(start..).filter(|rest| !rest.is_empty())?;
        self.at = self.data.len();
        let at = start as u64;
        let fault = |kind, reason: Malformed| Fault {
            kind,
            at,
            reason: reason.shifted(at),
        };
        let Some(kind) = Kind::of(rest) else {
            let reason = Malformed::new("not a container of device code", 0);
            return Some(Err(fault(None, reason)));
        };
        let item = kind.size(rest).map(|size| Item {
            kind,
            range: at..at.saturating_add(size),
        });
        if let Ok(item) = &item {
            self.at = usize::try_from(item.range.end).unwrap_or(self.at);
        }
        Some(item.map_err(|reason| fault(Some(kind), reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{Source, write};
    use crate::compressed::{Options, compress};
    use crate::model::ImageKind;

    fn containers() -> [(Kind, Vec<u8>); 4] {
        let entry = Source {
            id: "host-x86_64-unknown-linux-gnu-",
            size: 4,
            bytes: &b"code"[..],
        };
        let mut bundle = Vec::new();
        write(vec![entry], 1, &mut bundle).unwrap();
        let fatbinary = [
            &fatbin::MAGIC[..],
            &1u16.to_le_bytes(),
            &16u16.to_le_bytes(),
            &8u64.to_le_bytes(),
            b"8 bytes.",
        ];
        [
            (
                Kind::OffloadBinary,
                offload_binary::write(ImageKind::Object, 1, 0, &[], b"code"),
            ),
            (Kind::Bundle, bundle.clone()),
            (
                Kind::CompressedBundle,
                compress(&bundle, Options::default()).unwrap(),
            ),
            (Kind::Fatbinary, fatbinary.concat()),
        ]
    }

    #[test]
    fn all_formats_with_zeros_between_them() {
        for padding in [0, 1, 8] {
            let mut data = vec![0; padding];
            let mut expected = Vec::new();
            for (kind, bytes) in containers() {
                let start = data.len() as u64;
                data.extend(&bytes);
                expected.push(Ok(Item {
                    kind,
                    range: start..data.len() as u64,
                }));
                data.resize(data.len() + padding, 0);
            }
            assert_eq!(row(&data).collect::<Vec<_>>(), expected, "{padding}");
        }
        assert_eq!(row(b"").next(), None);
        assert_eq!(row(&[0; 64]).next(), None);
    }

    #[test]
    fn a_truncated_container_ends_the_row_with_its_offset() {
        for (kind, bytes) in containers() {
            for len in 4..bytes.len() {
                let short = bytes.get(..len).unwrap();
                let data = [&containers()[0].1[..], &[0; 3], short].concat();
                let at = (data.len() - len) as u64;
                let [Ok(_), Err(fault)] = row(&data).collect::<Vec<_>>()[..] else {
                    panic!("{kind:?} {len}")
                };
                let is_known = Kind::of(short).is_some();
                assert_eq!((fault.kind, fault.at), (is_known.then_some(kind), at));
                assert!(fault.reason.at >= at);
            }
        }
    }

    #[test]
    fn other_data_is_a_fault() {
        let fault = row(b"\0\0text").next().unwrap().unwrap_err();
        assert_eq!(
            fault.reason,
            Malformed::new("not a container of device code", 2)
        );
        assert!(check_nesting(MAX_NESTING, "a").is_ok());
        assert_eq!(
            check_nesting(MAX_NESTING + 1, "a").unwrap_err().to_string(),
            "a: nested more than 16 deep"
        );
    }
}
