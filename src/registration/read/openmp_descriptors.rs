//! Finds OpenMP's descriptors by their layout: a number of images, a pointer to as many rows, and
//! the bounds of an entry table. Each row has the bounds of an image and repeats those of the
//! table. No other data in a program looks like this. So the search needs no symbol, and works for
//! programs of every release.

use anyhow::{Result, anyhow, bail};

use super::address_space::{AddressSpace, Pointer};
use super::{Bounds, Descriptor, ImageRow};

/// Limit on the number of images of a descriptor.
const MOST_IMAGES: u64 = 4096;

/// Returns the descriptors of a file, in the order of their addresses.
///
/// # Errors
/// Descriptors share their rows, or rows share their images. With such descriptors, a small file
/// could lead to a large report.
pub(super) fn find(space: &AddressSpace<'_>) -> Result<Vec<Descriptor>> {
    // A file cannot have more rows than fit into it, and images are seldom registered twice.
    let size = space
        .sections()
        .iter()
        .fold(0, |sum: u64, section| sum.saturating_add(section.size));
    let (mut rows_left, mut bytes_left) = (
        MOST_IMAGES + size / (4 * space.word),
        size.saturating_mul(4),
    );
    let mut found: Vec<(u64, Descriptor)> = Vec::new();
    for (address, rows) in space.pointers() {
        let Some(start) = address.checked_sub(space.word) else {
            continue;
        };
        let Some(descriptor) = descriptor(space, start, rows, &mut rows_left) else {
            continue;
        };
        let bytes = descriptor
            .images
            .iter()
            .fold(0, |sum: u64, row| sum.saturating_add(row.end - row.start));
        bytes_left = bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| anyhow!("OpenMP descriptors share their images"))?;
        found.push((start, descriptor));
    }
    if rows_left == 0 {
        bail!("OpenMP descriptors share their rows");
    }
    found.sort_by_key(|(start, _)| *start);
    Ok(found
        .into_iter()
        .map(|(_, descriptor)| descriptor)
        .collect())
}

/// Reads the descriptor at `start`, if there is one: its second word points to `rows`. `left` is
/// the number of rows that may still be read.
fn descriptor(
    space: &AddressSpace<'_>,
    start: u64,
    rows: u64,
    left: &mut u64,
) -> Option<Descriptor> {
    let word = space.word;
    let count = space
        .number(start, 4)
        .filter(|count| (1..=MOST_IMAGES).contains(count))?;
    // The number has 32 bits; the bytes between it and the pointer are padding.
    if word == 8 && space.number(start.checked_add(4)?, 4) != Some(0) {
        return None;
    }
    let pair = |at: u64| Some([space.pointer(at), space.pointer(at.checked_add(word)?)]);
    let words = |at: u64| {
        Some([
            space.number(at, word)?,
            space.number(at.checked_add(word)?, word)?,
        ])
    };
    let table_at = start.checked_add(2 * word)?;
    let table = pair(table_at)?;
    let table_words = words(table_at)?;
    let entries = bounds(space, table, table_words)?;
    let is_unknown = table.contains(&Pointer::Unknown);
    let image_row = |index: u64| {
        let row = rows.checked_add(index.checked_mul(4 * word)?)?;
        let own_table = row.checked_add(2 * word)?;
        if pair(own_table)? != table || (is_unknown && words(own_table)? != table_words) {
            return None;
        }
        let [Pointer::To(first), Pointer::To(last)] = pair(row)? else {
            return None;
        };
        let is_empty = first == last;
        let start = if is_empty {
            space.end_offset(first)?
        } else {
            space.offset(first)?
        };
        let end = space.end_offset(last)?;
        let pointers = [space.slot(row)?, space.slot(row + word)?];
        Some((
            ImageRow {
                offset: space.offset(row)?,
                start,
                end,
                pointers,
            },
            is_empty,
        ))
    };
    let mut images = Vec::new();
    for index in 0..count {
        *left = left.checked_sub(1)?;
        let (row, _) = image_row(index)?;
        if row.start >= row.end {
            return None;
        }
        images.push(row);
    }
    let mut spare = Vec::new();
    while let Some((row, true)) = image_row(count + spare.len() as u64) {
        *left = left.checked_sub(1)?;
        spare.push(row);
    }
    Some(Descriptor {
        offset: space.offset(start)?,
        rows_pointer: space.slot(start + word)?,
        rows: space.offset(rows)?,
        entries,
        images,
        spare,
    })
}

/// Returns the bounds of a table, if both pointers can be bounds.
fn bounds(space: &AddressSpace<'_>, table: [Pointer<'_>; 2], words: [u64; 2]) -> Option<Bounds> {
    match table {
        // An empty table in a program with fixed addresses, whose bounds are in no section.
        [Pointer::Unknown, Pointer::Unknown] if space.is_fixed() => (words[0] == words[1]
            && space.is_near(words[0]))
        .then_some(Bounds::Nowhere { address: words[0] }),
        [Pointer::To(first), Pointer::To(last)] if first <= last => match space.end_offset(first) {
            Some(start) => Some(Bounds::Place {
                start,
                end: start.checked_add(last - first)?,
            }),
            // Linkers drop sections without bytes. Their bounds are then somewhere near.
            None => (first == last).then_some(Bounds::Nowhere { address: first }),
        },
        [Pointer::Symbol(start), Pointer::Symbol(end)]
            if start.starts_with("__start_") && end.starts_with("__stop_") =>
        {
            Some(Bounds::Symbols {
                start: start.to_owned(),
                end: end.to_owned(),
            })
        }
        _ => None,
    }
}
