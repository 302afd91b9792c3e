//! Finds SYCL's descriptors for LLVM 22's runtime by their layout: a version, a number of images, a
//! pointer to as many rows, and no entry table. Each row has its version, the kind of SYCL, and the
//! bounds of an image.

use super::address_space::{AddressSpace, Pointer};
use super::{SyclDescriptor, SyclRow};
use crate::registration::sycl::{DESCRIPTOR_VERSION, DEVICE_IMAGE_VERSION, KIND};

/// Limit on the number of images of a descriptor.
const MOST_IMAGES: u64 = 4096;
/// The number of pointers in a row.
const POINTERS: u64 = 9;
/// The indices of the pointers that are the bounds of the image.
const BOUNDS: [u64; 2] = [3, 4];

/// Returns the descriptors of a file, in the order of their addresses.
pub(super) fn find(space: &AddressSpace<'_>) -> Vec<SyclDescriptor> {
    // A file cannot have more rows than fit into it.
    let size = space
        .sections()
        .iter()
        .fold(0, |sum: u64, section| sum.saturating_add(section.size));
    let mut left = MOST_IMAGES + size / (POINTERS * space.word);
    let found = space.pointers().filter_map(|(address, rows)| {
        let start = address.checked_sub(space.word)?;
        descriptor(space, start, rows, &mut left).map(|descriptor| (start, descriptor))
    });
    let mut found: Vec<(u64, SyclDescriptor)> = found.collect();
    found.sort_by_key(|(start, _)| *start);
    found
        .into_iter()
        .map(|(_, descriptor)| descriptor)
        .collect()
}

/// Reads the descriptor at `start`, if there is one: its second word points to `rows`. `left` is
/// the number of rows that may still be read.
fn descriptor(
    space: &AddressSpace<'_>,
    start: u64,
    rows: u64,
    left: &mut u64,
) -> Option<SyclDescriptor> {
    let word = space.word;
    let count = space
        .number(start.checked_add(2)?, 2)
        .filter(|count| (1..=MOST_IMAGES).contains(count))?;
    let is_padded = word == 4 || space.number(start.checked_add(4)?, 4) == Some(0);
    if space.number(start, 2)? != DESCRIPTOR_VERSION || !is_padded {
        return None;
    }
    if [2, 3].iter().any(|entries| {
        start
            .checked_add(entries * word)
            .is_none_or(|at| space.pointer(at) != Pointer::Null)
    }) {
        return None;
    }
    let row_size = (POINTERS + 1) * word;
    let mut images = Vec::new();
    for index in 0..count {
        *left = left.checked_sub(1)?;
        let row = rows.checked_add(index * row_size)?;
        let kind = space.number(row.checked_add(2)?, 1)?;
        if space.number(row, 2)? != DEVICE_IMAGE_VERSION || kind != KIND {
            return None;
        }
        let at = |number: u64| row.checked_add((1 + number) * word);
        let bounds = BOUNDS.map(|number| at(number).map(|at| space.pointer(at)));
        let [Some(Pointer::To(first)), Some(Pointer::To(last))] = bounds else {
            return None;
        };
        let (start, end) = (space.offset(first)?, space.end_offset(last)?);
        if start >= end {
            return None;
        }
        let slot = |number: u64| match space.pointer(at(number)?) {
            Pointer::Null => Some(None),
            _ => space.slot(at(number)?).map(Some),
        };
        let pointers = (0..POINTERS).map(slot).collect::<Option<Vec<_>>>()?;
        images.push(SyclRow {
            offset: space.offset(row)?,
            start,
            end,
            pointers,
        });
    }
    Some(SyclDescriptor {
        offset: space.offset(start)?,
        images,
    })
}
