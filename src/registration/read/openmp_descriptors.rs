//! OpenMP's descriptors, by their form: a number of images, a pointer to as many rows, and the bounds of a table of entries, which
//! each of the rows repeats after the bounds of an image. Nothing else in a program looks like that, so no symbol is needed, and
//! programs of every release are read alike.

use super::address_space::{AddressSpace, Pointer};
use super::{Bounds, Descriptor, ImageRow};

/// No program has more images.
const MOST_IMAGES: u32 = 4096;

/// The descriptors of a file, in the order of their addresses.
pub(super) fn find(space: &AddressSpace<'_>) -> Vec<Descriptor> {
    let mut found: Vec<(u64, Descriptor)> = space
        .pointers()
        .filter_map(|(address, rows)| {
            let start = address.checked_sub(space.word)?;
            Some((start, descriptor(space, start, rows)?))
        })
        .collect();
    found.sort_by_key(|(start, _)| *start);
    found.into_iter().map(|(_, descriptor)| descriptor).collect()
}

/// The descriptor at `start`, if there is one: its second word points to `rows`.
fn descriptor(space: &AddressSpace<'_>, start: u64, rows: u64) -> Option<Descriptor> {
    let word = space.word;
    let count = space.u32(start).filter(|count| (1..=MOST_IMAGES).contains(count))?;
    // The number has 32 bits; what follows up to the pointer is padding.
    if word == 8 && space.u32(start + 4) != Some(0) {
        return None;
    }
    let table = [space.pointer(start + 2 * word), space.pointer(start + 3 * word)];
    let entries = bounds(space, table)?;
    let mut images = Vec::new();
    for row in (0..u64::from(count)).map(|index| rows + index * 4 * word) {
        if [space.pointer(row + 2 * word), space.pointer(row + 3 * word)] != table {
            return None;
        }
        let (Pointer::To(first), Pointer::To(last)) = (space.pointer(row), space.pointer(row + word)) else { return None };
        let (start, end) = (space.offset(first)?, space.end_offset(last)?);
        if start >= end {
            return None;
        }
        images.push(ImageRow { offset: space.offset(row)?, start, end, pointers: [space.slot(row)?, space.slot(row + word)?] });
    }
    Some(Descriptor {
        offset: space.offset(start)?,
        rows_pointer: space.slot(start + word)?,
        rows: space.offset(rows)?,
        entries,
        images,
    })
}

/// The bounds of a table, if both pointers can be that.
fn bounds(space: &AddressSpace<'_>, table: [Pointer<'_>; 2]) -> Option<Bounds> {
    match table {
        [Pointer::To(first), Pointer::To(last)] if first <= last => {
            let start = space.end_offset(first)?;
            Some(Bounds::Place { start, end: start.checked_add(last - first)? })
        }
        [Pointer::Symbol(start), Pointer::Symbol(end)] if start.starts_with("__start_") && end.starts_with("__stop_") => {
            Some(Bounds::Symbols { start: start.to_owned(), end: end.to_owned() })
        }
        _ => None,
    }
}
