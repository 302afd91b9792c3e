//! The layout of an edited object: the ELF header, the sections in their old order, each at its
//! alignment, then the section headers.

use super::Numbers;
use super::read::{Object, Section};
use crate::error::Malformed;
use crate::formats::elf::raw::{Class, FileHeader, Record, SectionHeader};
use object::elf;
use std::borrow::Cow;
use std::io::{self, Write};

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

/// An edited object, ready to be written. It borrows the bytes that have not changed.
#[derive(Debug)]
pub struct Rewritten<'a> {
    /// The parts and their offsets, ascending; zeros fill the gaps.
    parts: Vec<(u64, Cow<'a, [u8]>)>,
}

impl<'a> Rewritten<'a> {
    pub(super) fn unchanged(data: &'a [u8]) -> Self {
        Rewritten {
            parts: vec![(0, Cow::Borrowed(data))],
        }
    }

    /// The size of the new file.
    pub fn size(&self) -> u64 {
        self.parts
            .last()
            .map_or(0, |(at, bytes)| at + bytes.len() as u64)
    }

    /// Writes the new file.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut at = 0;
        for (start, bytes) in &self.parts {
            // A gap is less than an alignment, and no part starts before the one in front of it
            // ends.
            let gap = start.saturating_sub(at).min(MAX_FILE_ALIGN) as usize;
            out.write_all([0; MAX_FILE_ALIGN as usize].get(..gap).unwrap_or_default())?;
            out.write_all(bytes)?;
            at = start + bytes.len() as u64;
        }
        Ok(())
    }

    /// The new file in memory.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut file = Vec::with_capacity(self.size() as usize);
        for (start, bytes) in &self.parts {
            file.resize(*start as usize, 0);
            file.extend_from_slice(bytes);
        }
        file
    }
}

/// Lays out the remaining sections and renumbers them.
pub(super) fn lay_out<'a>(
    object: &Object<'a>,
    numbers: &Numbers,
    edited: Vec<Edited<'a>>,
) -> Result<Rewritten<'a>, Malformed> {
    let mut kept: Vec<(usize, Edited<'a>)> = edited
        .into_iter()
        .enumerate()
        .filter(|(index, _)| numbers.of(*index).is_some())
        .collect();
    for (_, section) in &mut kept {
        renumber(&mut section.header, numbers)?;
    }
    kept.sort_by_key(|(index, section)| (section.header.offset, *index));
    let mut parts = Vec::new();
    let mut end = FileHeader::size(object.class) as u64;
    for (index, section) in &mut kept {
        if *index == 0 {
            continue;
        }
        if section.header.kind == elf::SHT_NOBITS {
            section.header.offset = end;
            continue;
        }
        let start = end.next_multiple_of(file_align(section.header.align));
        section.header.offset = start;
        section.header.size = section.body.len() as u64;
        end = start + section.header.size;
        parts.push((start, std::mem::take(&mut section.body)));
    }
    kept.sort_by_key(|(index, _)| *index);
    let table_at = end.next_multiple_of(8);
    if !object.class.is_64 && table_at > u64::from(u32::MAX) {
        return Err(Malformed::new("too large for a 32-bit object", 0));
    }
    let headers: Vec<SectionHeader> = kept.iter().map(|(_, section)| section.header).collect();
    let names = numbers.of(object.names).unwrap_or(0);
    let (head, table) = tables(object.class, object.head, headers, names, table_at);
    parts.insert(0, (0, Cow::Owned(head)));
    parts.push((table_at, Cow::Owned(table)));
    Ok(Rewritten { parts })
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
