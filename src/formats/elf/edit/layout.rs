//! The layout of an edited object: the ELF header, the sections in their old order, each at its
//! alignment, then the section headers.

use super::Numbers;
use crate::error::Malformed;
use crate::formats::compose::{Part, PartList};
use crate::formats::elf::file::{Object, Section};
use crate::formats::elf::raw::{Class, FileHeader, Record, SectionHeader};
use object::elf;
use std::borrow::Cow;

/// The largest alignment of a section in the file, whatever its alignment in memory.
const MAX_FILE_ALIGN: u64 = 4096;

/// A section of the new file.
pub(in crate::formats) struct Edited<'a> {
    pub header: SectionHeader,
    pub body: Cow<'a, [u8]>,
}

impl<'a> Edited<'a> {
    pub(crate) fn unchanged(section: &Section<'a>) -> Self {
        Edited {
            header: section.header,
            body: Cow::Borrowed(section.body),
        }
    }
}

/// Lays out the remaining sections and renumbers them.
pub(super) fn lay_out(
    object: &Object<'_>,
    numbers: &Numbers,
    edited: Vec<Edited<'_>>,
) -> Result<Vec<Part>, Malformed> {
    let mut kept: Vec<(usize, Edited<'_>)> = edited
        .into_iter()
        .enumerate()
        .filter(|(index, _)| numbers.of(*index).is_some())
        .collect();
    for (_, section) in &mut kept {
        renumber(&mut section.header, numbers)?;
    }
    kept.sort_by_key(|(index, section)| (section.header.offset, *index));
    // The file header is added last: it has the offset of the section headers.
    let mut out = PartList {
        size: FileHeader::size(object.class) as u64,
        ..PartList::default()
    };
    for (index, section) in &mut kept {
        if *index == 0 {
            continue;
        }
        if section.header.kind == elf::SHT_NOBITS {
            section.header.offset = out.size;
            continue;
        }
        let start = out.size.next_multiple_of(file_align(section.header.align));
        let (old, size) = (section.header.offset, section.body.len() as u64);
        out.pad_to(start);
        match std::mem::take(&mut section.body) {
            Cow::Borrowed(_) => out.old(old..old + size),
            Cow::Owned(body) => out.bytes(body),
        }
        section.header.offset = start;
        section.header.size = size;
    }
    kept.sort_by_key(|(index, _)| *index);
    let table_at = out.size.next_multiple_of(8);
    if !object.class.is_64 && table_at > u64::from(u32::MAX) {
        return Err(Malformed::new("too large for a 32-bit object", 0));
    }
    let headers: Vec<SectionHeader> = kept.iter().map(|(_, section)| section.header).collect();
    let names = numbers.of(object.names).unwrap_or(0);
    let (head, table) = tables(object.class, object.head, headers, names, table_at);
    out.pad_to(table_at);
    out.bytes(table);
    out.parts.insert(0, Part::Bytes(head));
    Ok(out.parts)
}

/// The alignment in a file of a section with this alignment.
pub(in crate::formats) fn file_align(align: u64) -> u64 {
    if align.is_power_of_two() {
        align.min(MAX_FILE_ALIGN)
    } else {
        1
    }
}

/// Updates a section's link and info to the new numbers of sections.
pub(in crate::formats) fn renumber(
    header: &mut SectionHeader,
    numbers: &Numbers,
) -> Result<(), Malformed> {
    let fault = Malformed::new(
        "cannot remove a section that another section refers to",
        header.offset,
    );
    if header.kind == elf::SHT_NULL {
        return Ok(());
    }
    header.link = numbers.of(header.link as usize).ok_or(fault)?;
    if header.info_is_section() {
        header.info = numbers.of(header.info as usize).ok_or(fault)?;
    }
    Ok(())
}

/// The file header and the section headers, as bytes. Numbers that do not fit into the file header
/// are in that of the null section.
pub(in crate::formats) fn tables(
    class: Class,
    mut head: FileHeader,
    mut headers: Vec<SectionHeader>,
    names: u32,
    table_at: u64,
) -> (Vec<u8>, Vec<u8>) {
    let count = u16::try_from(headers.len())
        .ok()
        .filter(|count| *count < elf::SHN_LORESERVE);
    let short_names = u16::try_from(names)
        .ok()
        .filter(|names| *names < elf::SHN_LORESERVE);
    let length = headers.len() as u64;
    if let Some(null) = headers.first_mut() {
        null.size = if count.is_none() { length } else { 0 };
        null.link = if short_names.is_none() { names } else { 0 };
    }
    head.shoff = table_at;
    head.shnum = count.unwrap_or(0);
    head.shstrndx = short_names.map_or(elf::SHN_XINDEX, elf::SymbolSection);
    let mut table = Vec::with_capacity(headers.len() * SectionHeader::size(class));
    headers
        .iter()
        .for_each(|header| header.append(class, &mut table));
    (head.to_bytes(class), table)
}
