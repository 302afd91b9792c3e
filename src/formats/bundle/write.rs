//! Writes bundles as a stream. The header is known before the code objects are read, so none of
//! them has to be in memory.

use super::{ENTRY_SIZE, HEADER_SIZE, MAGIC};
use crate::error::Error;
use std::io::{Read, Write, copy, repeat};

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
