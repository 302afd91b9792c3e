//! Finds the structs that runtimes get, by their layouts.
//!
//! * OpenMP's descriptors: a number of images, a pointer to as many rows, and the bounds of an
//!   entry table. Each row has the bounds of an image and repeats those of the table. No other data
//!   in a program looks like this. So the search needs no symbol, and works for programs of every
//!   release.
//! * SYCL's descriptors for LLVM 22's runtime: a version, a number of images, a pointer to as many
//!   rows, and no entry table. Each row has its version, the kind of SYCL, and the bounds of an
//!   image.
//! * The structs through which CUDA and HIP get a container, in sections of their own.

use anyhow::{Result, anyhow, bail};

use super::address_space::{AddressSpace, Pointer, Section};
use super::{Bounds, Descriptor, ImageRow, SyclDescriptor, SyclRow, Wrapper};
use crate::model::{Generation, OffloadKind};
use crate::offload_sections::{START_PREFIX, STOP_PREFIX};
use crate::registration::fatbin::{self, Contract};
use crate::registration::sycl::{DESCRIPTOR_VERSION, DEVICE_IMAGE_VERSION, KIND};

/// Limit on the number of images of a descriptor.
const MOST_IMAGES: u64 = 4096;

/// Returns the OpenMP descriptors of a file, in the order of their addresses.
///
/// # Errors
/// Descriptors share their rows, or rows share their images. With such descriptors, a small file
/// could lead to a large report.
pub(super) fn openmp(space: &AddressSpace<'_>) -> Result<Vec<Descriptor>> {
    // A file cannot have more rows than fit into it, and images are seldom registered twice.
    let size = space.size();
    let (mut rows_left, mut bytes_left) = (
        MOST_IMAGES + size / (4 * space.word),
        size.saturating_mul(4),
    );
    let mut found: Vec<(u64, Descriptor)> = Vec::new();
    for (address, rows) in space.pointers() {
        let Some(start) = address.checked_sub(space.word) else {
            continue;
        };
        let Some(descriptor) = openmp_descriptor(space, start, rows, &mut rows_left) else {
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

/// Reads the OpenMP descriptor at `start`, if there is one: its second word points to `rows`.
/// `left` is the number of rows that may still be read.
fn openmp_descriptor(
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
    let entries = table_bounds(space, table, table_words)?;
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
fn table_bounds(
    space: &AddressSpace<'_>,
    table: [Pointer<'_>; 2],
    words: [u64; 2],
) -> Option<Bounds> {
    match table {
        // An empty table in a program with fixed addresses, whose bounds are in no section.
        [Pointer::Unknown, Pointer::Unknown] if space.fixed => (words[0] == words[1]
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
            if start.starts_with(START_PREFIX) && end.starts_with(STOP_PREFIX) =>
        {
            Some(Bounds::Symbols {
                start: start.to_owned(),
                end: end.to_owned(),
            })
        }
        _ => None,
    }
}

/// Limit on the number of images of a SYCL descriptor.
const MOST_SYCL_IMAGES: u64 = 4096;
/// The number of pointers in a row of SYCL.
const SYCL_POINTERS: u64 = 9;
/// The indices of the pointers that are the bounds of the image.
const SYCL_BOUNDS: [u64; 2] = [3, 4];

/// Returns the SYCL descriptors of a file, in the order of their addresses.
pub(super) fn sycl(space: &AddressSpace<'_>) -> Vec<SyclDescriptor> {
    // A file cannot have more rows than fit into it.
    let size = space.size();
    let mut left = MOST_SYCL_IMAGES + size / (SYCL_POINTERS * space.word);
    let found = space.pointers().filter_map(|(address, rows)| {
        let start = address.checked_sub(space.word)?;
        sycl_descriptor(space, start, rows, &mut left).map(|descriptor| (start, descriptor))
    });
    let mut found: Vec<(u64, SyclDescriptor)> = found.collect();
    found.sort_by_key(|(start, _)| *start);
    found
        .into_iter()
        .map(|(_, descriptor)| descriptor)
        .collect()
}

/// Reads the SYCL descriptor at `start`, if there is one: its second word points to `rows`. `left`
/// is the number of rows that may still be read.
fn sycl_descriptor(
    space: &AddressSpace<'_>,
    start: u64,
    rows: u64,
    left: &mut u64,
) -> Option<SyclDescriptor> {
    let word = space.word;
    let count = space
        .number(start.checked_add(2)?, 2)
        .filter(|count| (1..=MOST_SYCL_IMAGES).contains(count))?;
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
    let row_size = (SYCL_POINTERS + 1) * word;
    let mut images = Vec::new();
    for index in 0..count {
        *left = left.checked_sub(1)?;
        let row = rows.checked_add(index * row_size)?;
        let kind = space.number(row.checked_add(2)?, 1)?;
        if space.number(row, 2)? != DEVICE_IMAGE_VERSION || kind != KIND {
            return None;
        }
        let at = |number: u64| row.checked_add((1 + number) * word);
        let bounds = SYCL_BOUNDS.map(|number| at(number).map(|at| space.pointer(at)));
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
        let pointers = (0..SYCL_POINTERS).map(slot).collect::<Option<Vec<_>>>()?;
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

/// Returns the contracts of both runtimes. The struct is the same in every generation.
fn contracts() -> [(OffloadKind, Contract); 2] {
    [
        (OffloadKind::Cuda, fatbin::cuda(Generation::Llvm21, false)),
        (OffloadKind::Hip, fatbin::hip(Generation::Llvm21, false)),
    ]
}

/// Returns the prefixes of the names of sections with such structs.
pub(super) fn wrapper_sections() -> [&'static str; 2] {
    contracts().map(|(_, contract)| contract.wrapper_section)
}

/// Reads the structs of both runtimes. A struct without a runtime's magic is skipped.
pub(super) fn wrappers(space: &AddressSpace<'_>) -> Vec<Wrapper> {
    let mut all = Vec::new();
    for (kind, contract) in &contracts() {
        let own = |section: &&Section<'_>| section.name.starts_with(contract.wrapper_section);
        for section in space.sections.iter().filter(own) {
            of_section(space, *kind, contract, section, &mut all);
        }
    }
    all
}

fn of_section(
    space: &AddressSpace<'_>,
    kind: OffloadKind,
    contract: &Contract,
    section: &Section<'_>,
    all: &mut Vec<Wrapper>,
) {
    // `{i32 magic, i32 version, ptr data, ptr unused}`.
    let size = 8 + 2 * space.word;
    let mut at = 0;
    while at + size <= section.size {
        let address = section.address + at;
        // Each struct is aligned to 8 bytes.
        if space.number(address, 4) != Some(contract.magic.into()) {
            at += 8;
            continue;
        }
        at += size;
        let (Some(version), Some(pointer)) =
            (space.number(address + 4, 4), space.slot(address + 8))
        else {
            continue;
        };
        let container = match space.pointer(address + 8) {
            Pointer::To(target) => space.offset(target),
            _ => None,
        };
        let (runtime, section, offset) = (
            kind.name(),
            section.name.to_owned(),
            section.offset + (address - section.address),
        );
        all.push(Wrapper {
            runtime,
            section,
            offset,
            version: version as u32,
            pointer,
            container,
        });
    }
}
