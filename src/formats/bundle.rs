//! clang-offload-bundler's binary bundle (`__CLANG_OFFLOAD_BUNDLE__`), which the HIP runtime reads:
//! code objects with IDs of the form `kind-triple-targetid` (docs/spec/containers.md 2.4, 2.9).
//!
//! The reader checks every bound. The writer streams the same bytes as clang-offload-bundler. Both
//! leave IDs unchanged; [`Id`] parses them. Text bundles are in [`text`]. Bundles in object
//! sections and in archives have other readers.
//!
//! ```
//! use offld::formats::bundle::{Source, read_all, write};
//!
//! let sources = vec![
//!     Source { id: "host-x86_64-unknown-linux-gnu", size: 0, bytes: &b""[..] },
//!     Source { id: "hip-amdgcn-amd-amdhsa--gfx90a", size: 4, bytes: &b"code"[..] },
//! ];
//! let mut file = Vec::new();
//! write(sources, 4096, &mut file)?;
//! let bundles = read_all(&file)?;
//! let entry = &bundles[0].entries[1];
//! assert_eq!((entry.id, entry.object), ("hip-amdgcn-amd-amdhsa--gfx90a", &b"code"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compat;
mod compose;
mod enumerated;
mod head;
mod id;
pub mod text;
mod triple;
mod write;

#[cfg(test)]
mod tests;

pub use compat::{Objects, Verdict, compatibility};
pub use compose::{NewObject, alignment, compose};
pub use enumerated::compatible_triples;
pub use head::{Head, Slot, read_head};
pub use id::{Id, IdFault, bundle_id, check};
pub use triple::is_known_arch;
pub(crate) use triple::standard as standard_triple;
pub use write::{Frame, Source, frame, write};

use super::{slice, zeros};
use crate::error::Malformed;

/// The first bytes of a bundle.
pub use super::magic::BUNDLE as MAGIC;
/// The alignment of code objects that the HIP runtime requires.
pub const HIP_ALIGN: u64 = 4096;

const HEADER_SIZE: u64 = 32;
const ENTRY_SIZE: u64 = 24;

/// A code object of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The ID, as stored.
    pub id: &'a str,
    /// The contents. Usually empty for the host.
    pub object: &'a [u8],
    /// The offset of the contents in the reader's data.
    pub at: u64,
}

/// A bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bundle<'a> {
    /// The code objects, in the order of the header.
    pub entries: Vec<Entry<'a>>,
    /// The offset of the bundle in the reader's data.
    pub at: u64,
    /// The size, up to the end of the last code object in the file.
    pub size: u64,
}

/// Whether `data` starts with a bundle.
pub fn is_bundle(data: &[u8]) -> bool {
    data.starts_with(MAGIC)
}

/// Reads the bundles in `data`, in order. Linkers merge several into one section, with only zeros
/// between them.
pub fn read_all(data: &[u8]) -> Result<Vec<Bundle<'_>>, Malformed> {
    let mut bundles = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let bundle = read_at(data, at as u64)?;
        at += bundle.size as usize;
        at += zeros(data.get(at..).unwrap_or_default());
        bundles.push(bundle);
    }
    Ok(bundles)
}

/// Reads the bundle at offset `at` of `data`. Any data may follow it.
pub fn read_at(data: &[u8], at: u64) -> Result<Bundle<'_>, Malformed> {
    let rest = slice(
        data,
        at,
        (data.len() as u64).saturating_sub(at),
        "offload bundle past the end",
        at,
    )?;
    if !is_bundle(rest) {
        return Err(Malformed::new("not an offload bundle", at));
    }
    let mut bundle = read(rest).map_err(|fault| fault.shifted(at))?;
    bundle.at = at;
    bundle.entries.iter_mut().for_each(|entry| entry.at += at);
    Ok(bundle)
}

fn read(data: &[u8]) -> Result<Bundle<'_>, Malformed> {
    let to_malformed = |error: std::io::Error| {
        Malformed::of(&error).unwrap_or(Malformed::new("bundle past the end", 0))
    };
    let head = read_head(data, data.len() as u64).map_err(to_malformed)?;
    let mut entries = Vec::with_capacity(head.slots.len());
    for slot in head.slots {
        let id = slice(
            data,
            slot.at + ENTRY_SIZE,
            slot.id.len() as u64,
            "bundle id past the end",
            slot.at,
        )?;
        let id = std::str::from_utf8(id)
            .map_err(|_| Malformed::new("bundle id is not text", slot.at))?;
        // The offset of an empty object has no meaning.
        let object = if slot.size == 0 {
            &[]
        } else {
            slice(
                data,
                slot.offset,
                slot.size,
                "code object past the end",
                slot.at,
            )?
        };
        entries.push(Entry {
            id,
            object,
            at: slot.offset.min(data.len() as u64),
        });
    }
    Ok(Bundle {
        entries,
        at: 0,
        size: head.size,
    })
}
