//! OffloadBinary (`10 FF 10 AD`), the container of a device image and its target
//! (docs/spec/containers.md 4.3, 4.5). Reads and writes versions 1 to 3. Several binaries may
//! follow each other, with zeros between them.
//!
//! Integers are little-endian, as on every host that offloads. Strings and images borrow from the
//! data, except those of a compressed version 3 binary.
//!
//! ```
//! use offld::formats::offload_binary::{read_all, write};
//! use offld::model::{ImageKind, OffloadKind};
//!
//! let strings = [("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90")];
//! let file = write(ImageKind::Cubin, OffloadKind::Cuda as u16, 0, &strings, b"code");
//! let images = read_all(&file)?;
//! assert_eq!((&*images[0].arch(), &*images[0].image), ("sm_90", &b"code"[..]));
//! // A file that is cut short is an error with an offset.
//! assert!(read_all(&file[..40]).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compose;
mod head;
mod nested;
mod packed;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub use compose::compose;
pub use head::{Head, PackedPart};
pub use nested::read_nested;
pub use packed::{Packed, pack};
pub use write::{
    Entry, Frame, SharedFrame, frame, frame_of, plain_frame, shared_frame, spaced_frame, write,
};

use super::{c_string, slice, u16_at, u32_at, u64_at, zeros};
use crate::error::Malformed;
use crate::model::ImageKind;
use std::borrow::Cow;

/// The first four bytes.
pub use super::magic::OFFLOAD_BINARY as MAGIC;

const HEADER_SIZE: u64 = 32;
/// The header size of version 3.
const LONG_HEADER_SIZE: u64 = 40;
const ENTRY_SIZE: u64 = 40;
/// A flag of an entry, since version 2: the entry describes an image but has no contents.
const FLAG_METADATA_ONLY: u32 = 1;

type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// An entry: an image and its strings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Image<'a> {
    /// The type of the image's bytes, as stored.
    pub image_kind: ImageKind,
    /// The bits of the programming models, as stored. `OffloadKinds::from_stored` decodes them.
    pub offload_kind: u16,
    /// The entry's flags.
    pub flags: u32,
    /// Pairs of key and value in stored order, unknown keys included.
    pub strings: Vec<Pair<'a>>,
    /// The image's bytes.
    pub image: Cow<'a, [u8]>,
    /// The offset of the image's bytes in the reader's data, or 0 for an image of a compressed
    /// binary.
    pub at: u64,
}

impl Image<'_> {
    /// The value of `key`. If a key occurs twice, the last value counts, as in LLVM.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.strings
            .iter()
            .rfind(|(name, _)| name.as_ref() == key.as_bytes())
            .map(|(_, value)| value.as_ref())
    }

    /// The target triple. Empty if there is none.
    pub fn triple(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.get("triple").unwrap_or_default())
    }

    /// The architecture or target ID. Empty if there is none.
    pub fn arch(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.get("arch").unwrap_or_default())
    }

    /// Whether the entry only describes an image that is stored elsewhere (since version 2).
    pub fn is_description(&self) -> bool {
        self.flags & FLAG_METADATA_ONLY != 0 && self.image.is_empty()
    }

    fn into_owned(self) -> Image<'static> {
        let own = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
        Image {
            image_kind: self.image_kind,
            offload_kind: self.offload_kind,
            flags: self.flags,
            strings: self
                .strings
                .into_iter()
                .map(|(key, value)| (own(key), own(value)))
                .collect(),
            image: own(self.image),
            at: 0,
        }
    }
}

/// Whether `data` starts with an OffloadBinary.
pub fn is_offload_binary(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// Reads the images of all binaries in `data`, in order. Empty data has none. Only zeros may follow
/// each binary.
pub fn read_all(data: &[u8]) -> Result<Vec<Image<'_>>, Malformed> {
    let mut images = Vec::new();
    let mut at = 0;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        let size = read_first(rest, &mut images, at as u64)?;
        at += size + zeros(rest.get(size..).unwrap_or_default());
    }
    Ok(images)
}

/// The end of the binaries at the start of `data`, including the zeros between them, for sections
/// with other data after them. Only the size fields are read.
pub fn extent(data: &[u8]) -> u64 {
    let (mut at, mut end) = (0, 0);
    while let Some(rest) = data.get(at..).filter(|rest| is_offload_binary(rest)) {
        let Ok(header) = slice(rest, 0, HEADER_SIZE, "", 0) else {
            break;
        };
        let Ok(whole) = slice(rest, 0, u64_at(header, 8).max(HEADER_SIZE), "", 0) else {
            break;
        };
        end = at + whole.len();
        at = end + zeros(rest.get(whole.len()..).unwrap_or_default());
    }
    end as u64
}

/// Appends the images of the binary at the start of `data` to `images` and returns the binary's
/// size. `base` is the offset of `data` in the caller's data, for offsets in the result.
pub fn read_first<'a>(
    data: &'a [u8],
    images: &mut Vec<Image<'a>>,
    base: u64,
) -> Result<usize, Malformed> {
    if !is_offload_binary(data) {
        return Err(Malformed::new("not an offload binary", base));
    }
    let header = slice(data, 0, HEADER_SIZE, "header past the end", base)?;
    let version = u32_at(header, 4);
    let layout = match version {
        1 => Layout {
            string_entry: 16,
            entries: 1,
            metadata_only: 0,
        },
        2 | 3 => Layout {
            string_entry: 24,
            entries: u64_at(header, 24),
            metadata_only: FLAG_METADATA_ONLY,
        },
        _ => return Err(Malformed::new("unsupported offload binary version", base)),
    };
    let size = u64_at(header, 8);
    let whole = slice(data, 0, size, "size field past the end", base)?;
    let entries_at = u64_at(header, 16);
    if size < HEADER_SIZE {
        return Err(Malformed::new("size field too small", base));
    }
    if let Some(packed) = Packed::of(whole).map_err(|fault| fault.shifted(base))? {
        let mut plain = Vec::new();
        packed
            .inflate(&mut plain)
            .map_err(|error| packed.fault(&error).shifted(base))?;
        // Offsets into decompressed data mean nothing to the caller, so such faults have the
        // binary's offset.
        for image in layout.read(&plain, entries_at, base) {
            images.push(
                image
                    .map_err(|fault| Malformed::new(fault.what, base))?
                    .into_owned(),
            );
        }
    } else {
        for image in layout.read(whole, entries_at, base) {
            images.push(image.map_err(|fault| fault.shifted(base))?);
        }
    }
    Ok(whole.len())
}

/// The differences between versions after decompression.
#[derive(Clone, Copy)]
struct Layout {
    string_entry: u64,
    entries: u64,
    metadata_only: u32,
}

impl Layout {
    /// The images of the uncompressed binary `data`, whose offset in the caller's data is `base`.
    /// Offsets of faults count from the start of `data`.
    fn read<'a>(
        self,
        data: &'a [u8],
        entries_at: u64,
        base: u64,
    ) -> impl Iterator<Item = Result<Image<'a>, Malformed>> {
        let table = self.entries.saturating_mul(ENTRY_SIZE);
        let (entries, fault) = match slice(data, entries_at, table, "entry past the end", 0) {
            Ok(entries) => (entries, None),
            Err(fault) => (&[][..], Some(Err(fault))),
        };
        let (entries, _) = entries.as_chunks::<{ ENTRY_SIZE as usize }>();
        let mut budget = Budget::of(data);
        let images = entries.iter().zip(0..).map(move |(entry, index)| {
            let at = entries_at + index * ENTRY_SIZE;
            self.image(data, entry, at, base, &mut budget)
        });
        images.chain(fault)
    }

    fn image<'a>(
        self,
        data: &'a [u8],
        entry: &[u8],
        at: u64,
        base: u64,
        budget: &mut Budget,
    ) -> Result<Image<'a>, Malformed> {
        let flags = u32_at(entry, 4);
        let strings = self.strings(data, u64_at(entry, 8), u64_at(entry, 16), at, budget)?;
        let (offset, size) = (u64_at(entry, 24), u64_at(entry, 32));
        let image = if flags & self.metadata_only != 0 {
            &[]
        } else {
            slice(data, offset, 0, "image offset past the end", at)?;
            slice(data, offset, size, "image size past the end", at)?
        };
        Ok(Image {
            image_kind: ImageKind::from_raw(u16_at(entry, 0)),
            offload_kind: u16_at(entry, 2),
            flags,
            strings,
            image: Cow::Borrowed(image),
            at: base.saturating_add(offset),
        })
    }

    fn strings<'a>(
        self,
        data: &'a [u8],
        offset: u64,
        count: u64,
        at: u64,
        budget: &mut Budget,
    ) -> Result<Vec<Pair<'a>>, Malformed> {
        slice(data, offset, 0, "string table past the end", at)?;
        let len = count.saturating_mul(self.string_entry);
        let table = slice(data, offset, len, "number of strings past the end", at)?;
        budget.take(count, 0, at)?;
        let pairs = table
            .chunks_exact(self.string_entry as usize)
            .zip(0..)
            .map(|(pair, index)| {
                let at = offset + index * self.string_entry;
                let key = string(data, u64_at(pair, 0), at)?;
                let value = match pair.len() {
                    24 => slice(
                        data,
                        u64_at(pair, 8),
                        u64_at(pair, 16),
                        "string past the end",
                        at,
                    )?,
                    _ => string(data, u64_at(pair, 8), at)?,
                };
                budget.take(0, (key.len() + value.len()) as u64, at)?;
                Ok((Cow::Borrowed(key), Cow::Borrowed(value)))
            });
        pairs.collect()
    }
}

/// The limit on the strings of one binary. Images may share strings, but each [`Image`] lists its
/// own, so that a small file could request the product of both. No writer comes near the limit.
struct Budget {
    pairs: u64,
    bytes: u64,
}

impl Budget {
    fn of(data: &[u8]) -> Self {
        let size = data.len() as u64;
        Budget {
            pairs: (64 << 10) + size / 8,
            bytes: (16 << 20) + size,
        }
    }

    fn take(&mut self, pairs: u64, bytes: u64, at: u64) -> Result<(), Malformed> {
        let fault = Malformed::new("more strings than the binary can hold", at);
        self.pairs = self.pairs.checked_sub(pairs).ok_or(fault)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(fault)?;
        Ok(())
    }
}

fn string(data: &[u8], offset: u64, at: u64) -> Result<&[u8], Malformed> {
    let fault = |what| Malformed::new(what, at);
    let start = usize::try_from(offset).map_err(|_| fault("string past the end"))?;
    let tail = data.get(start..).ok_or(fault("string past the end"))?;
    c_string(tail).ok_or(fault("string without a terminating zero"))
}
