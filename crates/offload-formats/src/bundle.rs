//! clang-offload-bundler's binary bundle (`__CLANG_OFFLOAD_BUNDLE__`), which the HIP runtime reads:
//! code objects with IDs of the form `kind-triple-targetid` (docs/spec/containers.md 2.4, 2.9).
//!
//! The reader checks every bound. The writer streams the same bytes as clang-offload-bundler, and
//! [`compose`] edits bundles. All leave IDs unchanged; [`Id`] parses them. Text bundles are in
//! [`text`]. Bundles in object sections and in archives have other readers.
//!
//! ```
//! use offload_formats::bundle::{Source, read_all, write};
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
mod id;
#[cfg(test)]
mod tests;
pub mod text;

/// The first bytes of a bundle.
pub use super::magic::numbers::BUNDLE as MAGIC;
pub use compat::{Objects, Verdict, compatibility, compatible_triples};
pub(crate) use id::standard as standard_triple;
pub use id::{Id, IdFault, bundle_id, check, is_known_arch};

use std::io::{self, ErrorKind, Read, Write, copy, repeat};

use crate::bytes::{slice, zeros};
use crate::compose::{Item, Part, PartList, check_kept, is_same};
use crate::error::{Error, Malformed};

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
    let to_malformed = |error: io::Error| {
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

// Headers of binary bundles, read from a stream. The header lists the code objects, so that they
// need not be read.

/// The header of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The code objects, in order.
    pub slots: Vec<Slot>,
    /// The size of the bundle, up to the end of the last code object in the file.
    pub size: u64,
}

/// The location of a code object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// The ID, as stored.
    pub id: String,
    /// The offset in the bundle. It has no meaning for an empty object.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// The offset of the object's entry in the header.
    pub at: u64,
}

/// Reads the header of the bundle at the start of `input`. A bundle that needs more than
/// `available` bytes is an error. `Malformed::of` extracts format errors.
pub fn read_head(mut input: impl Read, available: u64) -> io::Result<Head> {
    let mut magic = [0; MAGIC.len()];
    fill(&mut input, &mut magic, "not an offload bundle", 0)?;
    if magic != MAGIC {
        return Err(Malformed::new("not an offload bundle", 0).into());
    }
    let count = number(&mut input, "header past the end", MAGIC.len() as u64)?;
    let mut slots = Vec::new();
    let mut next = HEADER_SIZE;
    // An entry takes 24 bytes, so a count that is too large reaches the end of the data.
    for _ in 0..count {
        let mut field = || number(&mut input, "bundle entry past the end", next);
        let (offset, size, id_len) = (field()?, field()?, field()?);
        let id = id_text(&mut input, id_len, next)?;
        slots.push(Slot {
            id,
            offset,
            size,
            at: next,
        });
        next = next.saturating_add(ENTRY_SIZE).saturating_add(id_len);
    }
    let mut size = next;
    for slot in slots.iter().filter(|slot| slot.size > 0) {
        let end = slot
            .offset
            .checked_add(slot.size)
            .filter(|end| *end <= available);
        size = size.max(end.ok_or(Malformed::new("code object past the end", slot.at))?);
        if slot.offset < next {
            return Err(Malformed::new("code object inside the header", slot.at).into());
        }
    }
    Ok(Head { slots, size })
}

fn number(input: &mut impl Read, what: &'static str, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill(input, &mut bytes, what, at)?;
    Ok(u64::from_le_bytes(bytes))
}

fn fill(input: &mut impl Read, bytes: &mut [u8], what: &'static str, at: u64) -> io::Result<()> {
    let to_malformed = |error: io::Error| {
        if error.kind() == ErrorKind::UnexpectedEof {
            Malformed::new(what, at).into()
        } else {
            error
        }
    };
    input.read_exact(bytes).map_err(to_malformed)
}

/// Reads `len` bytes of text. The length may be wrong, so memory is allocated as data arrives.
fn id_text(input: &mut impl Read, len: u64, at: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    input.take(len).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < len {
        return Err(Malformed::new("bundle id past the end", at).into());
    }
    String::from_utf8(bytes).map_err(|_| Malformed::new("bundle id is not text", at).into())
}

// Writes bundles as a stream. The header is known before the code objects are read, so none of them
// has to be in memory.

/// A bundle without its code objects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The header.
    pub head: Vec<u8>,
    /// The offset of each code object, in the order of the list.
    pub offsets: Vec<u64>,
    /// The end of the last code object, which is the size of the bundle.
    pub total_size: u64,
}

/// Returns the frame of a bundle of code objects with these IDs and sizes, each at a multiple of
/// `align` (any number but zero). IDs are stored unchanged. The caller fills gaps with zeros;
/// nothing follows the last object.
pub fn frame(objects: &[(&str, u64)], align: u64) -> Result<Frame, Error> {
    if align == 0 {
        return Err(Error::usage(
            "the alignment of a bundle's code objects cannot be 0",
        ));
    }
    let too_large = || Error::other("too large for a bundle");
    let ids: u64 = objects
        .iter()
        .map(|(id, _)| ENTRY_SIZE + id.len() as u64)
        .sum();
    let mut end = HEADER_SIZE + ids;
    let mut head = MAGIC.to_vec();
    head.extend((objects.len() as u64).to_le_bytes());
    let mut offsets = Vec::with_capacity(objects.len());
    for (id, size) in objects {
        let offset = end.checked_next_multiple_of(align).ok_or_else(too_large)?;
        [offset, *size, id.len() as u64]
            .iter()
            .for_each(|field| head.extend(field.to_le_bytes()));
        head.extend(id.as_bytes());
        offsets.push(offset);
        end = offset.checked_add(*size).ok_or_else(too_large)?;
    }
    Ok(Frame {
        head,
        offsets,
        total_size: end,
    })
}

/// A code object to write.
#[derive(Debug)]
pub struct Source<'a, R> {
    /// The ID, which is stored unchanged.
    pub id: &'a str,
    /// The size in bytes.
    pub size: u64,
    /// The reader of the contents.
    pub bytes: R,
}

/// Writes a bundle of `sources`, each at a multiple of `align`. A source whose length differs from
/// its `size` is an error.
pub fn write<R: Read>(
    sources: Vec<Source<'_, R>>,
    align: u64,
    out: &mut impl Write,
) -> Result<(), Error> {
    let objects: Vec<(&str, u64)> = sources
        .iter()
        .map(|source| (source.id, source.size))
        .collect();
    let frame = frame(&objects, align)?;
    out.write_all(&frame.head)?;
    let mut at = frame.head.len() as u64;
    for (source, offset) in sources.into_iter().zip(frame.offsets) {
        // Empty objects are padded too.
        copy(&mut repeat(0).take(offset - at), out)?;
        at = offset + source.size;
        // Reads one byte more than expected, to detect a source that is too long.
        let copied = copy(&mut source.bytes.take(source.size.saturating_add(1)), out)?;
        if copied != source.size {
            return Err(Error::other(format!(
                "the code object for `{}` changed its size during bundling",
                source.id
            )));
        }
    }
    Ok(())
}

// Edits of binary bundles.

/// The largest alignment that [`alignment`] tries. By default, no writer uses more than the 4096
/// bytes of HIP.
const LARGEST_ALIGN: u64 = 1 << 20;

/// A code object to add to a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewObject<'a> {
    /// The ID, which is stored unchanged.
    pub id: &'a str,
    /// The size in bytes.
    pub size: u64,
}

/// Returns the parts of the bundle at the start of `data` with the code objects of `items`, in
/// their order, equal to the output of [`write`] for the same objects with the alignment of the old
/// bundle. `Part::New` has the index of an item. IDs stay as stored, and objects start at
/// multiples of the bundle's [`alignment`]. Data after the bundle is not part of the result.
///
/// Every bundle has an entry for the host, usually the first one, which is empty. `items` must list
/// it too. A bundle without entries has 32 bytes.
///
/// # Errors
/// The bundle is damaged, an item names a missing entry, or kept entries overlap.
pub fn compose(data: &[u8], items: &[Item<NewObject<'_>>]) -> Result<Vec<Part>, Malformed> {
    let bundle = read_at(data, 0)?;
    if is_same(items, bundle.entries.len()) {
        return Ok(vec![Part::Old(0..bundle.size)]);
    }
    let entry = |place: usize| {
        bundle
            .entries
            .get(place)
            .ok_or(Malformed::new("the bundle has no such code object", 0))
    };
    let mut objects = Vec::with_capacity(items.len());
    for item in items {
        objects.push(match item {
            Item::Old(place) => entry(*place).map(|entry| (entry.id, entry.object.len() as u64))?,
            Item::Changed { entry: place, size } => (entry(*place)?.id, *size),
            Item::New(new) => (new.id, new.size),
        });
    }
    let kept = items
        .iter()
        .zip(&objects)
        .filter(|(item, _)| matches!(item, Item::Old(_)));
    check_kept(kept.map(|(_, (_, size))| *size), bundle.size, 0)?;
    let frame = frame(&objects, alignment(&bundle))
        .map_err(|_| Malformed::new("too large for a bundle", 0))?;
    let mut out = PartList::default();
    out.bytes(frame.head);
    for (place, ((item, (_, size)), offset)) in
        items.iter().zip(&objects).zip(frame.offsets).enumerate()
    {
        out.pad_to(offset);
        match item.old().map(entry).transpose()? {
            Some(old) if matches!(item, Item::Old(_)) => {
                out.old(old.at..old.at.saturating_add(*size))
            }
            _ if *size > 0 => out.contents(place, *size),
            _ => {}
        }
    }
    Ok(out.parts)
}

/// The alignment that reproduces the offsets of the code objects of `bundle` when they are written
/// again.
///
/// If several alignments do, the result is 1, which is the bundler's default, or else the largest.
/// If none does (another writer, an edited bundle), the result is the largest power of two up to
/// 4096 that divides all offsets. A bundle whose objects are all empty gives 1.
pub fn alignment(bundle: &Bundle<'_>) -> u64 {
    let objects: Vec<(&str, u64)> = bundle
        .entries
        .iter()
        .map(|entry| (entry.id, entry.object.len() as u64))
        .collect();
    let filled = |entry: &&Entry<'_>| !entry.object.is_empty();
    let offsets: Vec<u64> = bundle
        .entries
        .iter()
        .filter(filled)
        .map(|entry| entry.at.saturating_sub(bundle.at))
        .collect();
    if offsets.is_empty() {
        return 1;
    }
    let reproduces = |align: &u64| {
        let frame = frame(&objects, *align).ok();
        frame.is_some_and(|frame| {
            let starts = bundle
                .entries
                .iter()
                .zip(frame.offsets)
                .filter(|(entry, _)| filled(entry));
            starts.map(|(_, start)| start).eq(offsets.iter().copied())
        })
    };
    if reproduces(&1) {
        return 1;
    }
    let powers =
        || std::iter::successors(Some(LARGEST_ALIGN), |align| (*align > 1).then(|| align / 2));
    let of_all = |align: &u64| {
        *align <= HIP_ALIGN && offsets.iter().all(|offset| offset.is_multiple_of(*align))
    };
    // An alignment that is not a power of two divides all offsets, so it is at most their common
    // divisor.
    let common = offsets.iter().fold(0, |all, offset| gcd(all, *offset));
    powers()
        .find(reproduces)
        .or(Some(common).filter(reproduces))
        .or_else(|| powers().find(of_all))
        .unwrap_or(1)
}

/// The greatest common divisor. If one number is 0, the result is the other one.
fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        gcd(other, one.checked_rem(other).unwrap_or(0))
    }
}
