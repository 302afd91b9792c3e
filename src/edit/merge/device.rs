//! The ranges of device code in a host file: images and containers, the rows and counts of OpenMP's
//! descriptors, and pointers to containers. A merge changes these ranges, so they are not compared.

use std::ops::Range;

use anyhow::Result;
use object::elf;

use super::host_file::{HostFile, Section};
use crate::formats::bundle;
use crate::formats::elf::SHT_LLVM_OFFLOADING;
use crate::formats::elf::raw::Class;
use crate::formats::offload_sections::{self, SectionContents};
use crate::model::OffloadKind;
use crate::registration::read::{self, Registered};

/// Size of the image count in an OpenMP descriptor, in bytes.
const COUNT: u64 = 4;

/// The ranges of the ELF file or COFF object `data` that hold device code or describe its location,
/// sorted and disjoint.
///
/// # Errors
/// The file's headers or registrations are damaged.
pub(crate) fn ranges(data: &[u8]) -> Result<Vec<Range<u64>>> {
    let file = HostFile::read(data)?;
    let sections = file
        .sections
        .iter()
        .filter(|section| is_device(section) && !section.header.is_empty_in_file());
    let mut all: Vec<_> = sections
        .map(|section| section.header.offset..section.header.offset + section.body.len() as u64)
        .collect();
    all.extend(registered(&read::read(data)?, file.class));
    Ok(joined(all))
}

/// Whether a section holds device code and nothing else.
pub(super) fn is_device(section: &Section<'_>) -> bool {
    // SYCL's descriptors are compared, so the images that they point to are as well.
    let is_named = || {
        let name = &section.key.name;
        let known = offload_sections::known(name, false);
        name.starts_with(bundle::MAGIC)
            || known.is_some_and(|known| {
                matches!(
                    known.contents,
                    SectionContents::Images | SectionContents::Containers
                ) && known.kind != Some(OffloadKind::Sycl)
            })
    };
    section.header.kind == SHT_LLVM_OFFLOADING
        || section.header.kind == elf::SHT_PROGBITS && is_named()
}

fn registered(found: &Registered, class: Class) -> Vec<Range<u64>> {
    let word = class.address_size() as u64;
    let mut all = Vec::new();
    for descriptor in &found.descriptors {
        all.push(descriptor.offset..descriptor.offset.saturating_add(COUNT));
        let rows = descriptor.images.len() + descriptor.spare.len();
        let size = (rows as u64).saturating_mul(4 * word);
        all.push(descriptor.rows..descriptor.rows.saturating_add(size));
        all.extend(descriptor.images.iter().map(|image| image.start..image.end));
    }
    all.extend(
        found
            .wrappers
            .iter()
            .map(|wrapper| wrapper.pointer.offset..wrapper.pointer.offset.saturating_add(word)),
    );
    all
}

/// Sorts the ranges, and joins adjacent and overlapping ones.
pub(super) fn joined(mut all: Vec<Range<u64>>) -> Vec<Range<u64>> {
    all.retain(|range| range.start < range.end);
    all.sort_by_key(|range| (range.start, range.end));
    let mut apart: Vec<Range<u64>> = Vec::with_capacity(all.len());
    for range in all {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// The part of each range within the `size` bytes at `offset`, relative to `offset`.
pub(super) fn within(ranges: &[Range<u64>], offset: u64, size: u64) -> Vec<Range<u64>> {
    let end = offset.saturating_add(size);
    let first = ranges.partition_point(|range| range.end <= offset);
    let inside = ranges
        .iter()
        .skip(first)
        .take_while(|range| range.start < end);
    inside
        .map(|range| range.start.max(offset) - offset..range.end.min(end) - offset)
        .collect()
}
