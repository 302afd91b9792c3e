//! The bundler's binary bundle (`__CLANG_OFFLOAD_BUNDLE__`), which HIP's runtime reads: code objects under ids of the form
//! `kind-triple-targetid` (docs/spec/containers.md 2.4, 2.9). Read with every bound checked; written as a stream, byte for byte
//! as clang-offload-bundler does. Ids are kept as they stand; what they mean is in `Id`.
//!
//! Bundles of text are in `text`; bundles in object sections and archives of them are not read here.
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

pub use compat::{Verdict, best, compatibility};
pub use compose::{NewObject, alignment, compose};
pub use enumerated::compatible_triples;
pub use head::{Head, Slot, read_head};
pub use id::{Id, IdFault, bundle_id, check};
pub use triple::is_known_arch;
pub use write::{Frame, Source, frame, write};

use super::slice;
use crate::error::Malformed;

/// The first bytes of a bundle.
pub use super::magic::BUNDLE as MAGIC;
/// The alignment that HIP's runtime needs for code objects.
pub const HIP_ALIGN: u64 = 4096;

const HEADER_SIZE: u64 = 32;
const ENTRY_SIZE: u64 = 24;

/// A code object of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// Its id, as stored.
    pub id: &'a str,
    /// Its bytes; none for the host, as a rule.
    pub object: &'a [u8],
    /// Where its bytes start in the data the reader was given.
    pub at: u64,
}

/// A bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bundle<'a> {
    /// Its code objects, in the order of its header.
    pub entries: Vec<Entry<'a>>,
    /// Where it starts in the data the reader was given.
    pub at: u64,
    /// Its size: up to the end of the code object that ends last.
    pub size: u64,
}

/// Whether `data` starts as a bundle does.
pub fn is_bundle(data: &[u8]) -> bool {
    data.starts_with(MAGIC)
}

/// The bundles in `data`, in order. Linkers put several into one section, with nothing but zeros between them.
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

/// How many zeros `data` starts with.
pub(super) fn zeros(data: &[u8]) -> usize {
    data.iter().take_while(|byte| **byte == 0).count()
}

/// The bundle that starts `at` bytes into `data`, whatever follows it.
pub fn read_at(data: &[u8], at: u64) -> Result<Bundle<'_>, Malformed> {
    let rest = slice(data, at, (data.len() as u64).saturating_sub(at), "offload bundle past the end", at)?;
    if !is_bundle(rest) {
        return Err(Malformed::new("not an offload bundle", at));
    }
    let mut bundle = read(rest).map_err(|fault| fault.shifted(at))?;
    bundle.at = at;
    bundle.entries.iter_mut().for_each(|entry| entry.at += at);
    Ok(bundle)
}

fn read(data: &[u8]) -> Result<Bundle<'_>, Malformed> {
    let to_malformed = |error: std::io::Error| Malformed::of(&error).unwrap_or(Malformed::new("bundle past the end", 0));
    let head = read_head(data, data.len() as u64).map_err(to_malformed)?;
    let mut entries = Vec::with_capacity(head.slots.len());
    for slot in head.slots {
        let id = slice(data, slot.at + ENTRY_SIZE, slot.id.len() as u64, "bundle id past the end", slot.at)?;
        let id = std::str::from_utf8(id).map_err(|_| Malformed::new("bundle id is not text", slot.at))?;
        // The offset of an empty object has no meaning.
        let object = if slot.size == 0 { &[] } else { slice(data, slot.offset, slot.size, "code object past the end", slot.at)? };
        entries.push(Entry { id, object, at: slot.offset.min(data.len() as u64) });
    }
    Ok(Bundle { entries, at: 0, size: head.size })
}
