//! Layout of a rewritten file: the file header, the sections in their old order, and the section
//! headers. `Policy` selects the alignment of sections and the location of the section headers.

use super::Numbers;
use crate::compose::{Part, PartList};
use crate::elf::file::{PatchedBytes, Section};
use crate::elf::raw::{Class, FileHeader, Record, SectionHeader};
use crate::error::Malformed;
use object::elf;
use std::borrow::Cow;

/// Largest alignment of a section in the file, whatever its alignment in memory.
const MAX_FILE_ALIGN: u64 = 4096;

/// A section of the old file with its edits, not yet laid out in the new file.
pub(crate) struct Edited<'a> {
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

/// Layout rules of a rewritten file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The section headers are last. Alignments are limited to a page.
    HeadersLast,
    /// The section headers keep their position among the sections. Alignments are limited to a
    /// page, and empty sections are not aligned.
    HeadersInPlace,
    /// Layout of llvm-objcopy: the section headers are last, and every section has its full
    /// alignment.
    Objcopy,
}

impl Policy {
    fn align(self, section: &OutputSection) -> u64 {
        match self {
            Policy::Objcopy => section.header.align.max(1),
            Policy::HeadersLast if section.header.kind == elf::SHT_NOBITS => 1,
            Policy::HeadersInPlace if section.size() == 0 => 1,
            _ => file_align(section.header.align),
        }
    }

    fn table_align(self, class: Class) -> u64 {
        match self {
            Policy::HeadersLast => 8,
            Policy::HeadersInPlace | Policy::Objcopy => class.address_size() as u64,
        }
    }
}

/// A section of the new file.
pub(crate) struct OutputSection {
    /// Header of the section. Before the layout, it contains the offset in the old file, or
    /// `u64::MAX` for an added section.
    pub header: SectionHeader,
    pub contents: Contents,
    /// Whether the section keeps its offset because it is part of a segment.
    pub fixed: bool,
}

/// Bytes of a section in the new file.
pub(crate) enum Contents {
    /// This many bytes at the section's offset in the old file.
    Old(u64),
    /// Bytes that the edit created.
    Made(Vec<u8>),
    /// Contents that the caller provides.
    New {
        /// Index in the caller's list.
        index: usize,
        /// Size in bytes.
        size: u64,
    },
}

impl OutputSection {
    /// Size in the file, in bytes.
    pub(crate) fn size(&self) -> u64 {
        match &self.contents {
            Contents::Old(size) | Contents::New { size, .. } => *size,
            Contents::Made(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the section had bytes in the old file.
    fn had_bytes(&self) -> bool {
        match &self.contents {
            Contents::New { .. } => self.header.size > 0,
            _ => self.size() > 0,
        }
    }
}

impl From<Edited<'_>> for OutputSection {
    fn from(edited: Edited<'_>) -> Self {
        OutputSection {
            header: edited.header,
            contents: match edited.body {
                Cow::Borrowed(body) => Contents::Old(body.len() as u64),
                Cow::Owned(body) => Contents::Made(body),
            },
            fixed: false,
        }
    }
}

/// Returns the remaining sections by their new numbers. Links in their headers use the new numbers.
pub(crate) fn kept(
    numbers: &Numbers,
    edited: Vec<Edited<'_>>,
) -> Result<Vec<OutputSection>, Malformed> {
    let mut sections = Vec::with_capacity(edited.len());
    for (index, edited) in edited.into_iter().enumerate() {
        if numbers.of(index).is_some() {
            let mut section = OutputSection::from(edited);
            renumber(&mut section.header, numbers)?;
            sections.push(section);
        }
    }
    Ok(sections)
}

/// A file to lay out.
pub(crate) struct OutputFile<'a> {
    /// The old file with patches.
    pub bytes: PatchedBytes<'a>,
    pub class: Class,
    pub head: FileHeader,
    /// The sections by their new numbers, starting with the null section.
    pub sections: Vec<OutputSection>,
    /// New number of the section with the section names.
    pub names: u32,
    /// End of the bytes that keep their offsets: those of the file header and of segments. All
    /// sections that move are placed after them.
    pub start: u64,
}

impl OutputFile<'_> {
    /// Returns the parts of the new file.
    pub(crate) fn lay_out(mut self, policy: Policy) -> Result<Vec<Part>, Malformed> {
        let head_size = FileHeader::size(self.class) as u64;
        let table_size = (self.sections.len() * SectionHeader::size(self.class)) as u64;
        // The file header is added last, because it contains the offset of the section headers.
        let mut out = PartList {
            size: head_size,
            ..PartList::default()
        };
        out.old(head_size..self.start);
        let (mut table_at, mut table_part) = (0, 0);
        // Without a limit, a small file could require any number of zeros.
        let mut gaps_left = (self.bytes.old().len() as u64).saturating_mul(2) + (64 << 20);
        for index in self.order(policy) {
            let Some(section) = self.sections.get_mut(index) else {
                continue;
            };
            if index == 0 {
                table_at = out.size.next_multiple_of(policy.table_align(self.class));
                out.pad_to(table_at);
                // Filled in when all offsets are known.
                table_part = out.parts.len();
                out.bytes(Vec::new());
                out.size += table_size;
                continue;
            }
            let old = section.header.offset;
            let fault = Malformed::new("a section's alignment is too large", old);
            let start = out
                .size
                .checked_next_multiple_of(policy.align(section))
                .ok_or(fault)?;
            if policy == Policy::Objcopy {
                gaps_left = gaps_left.checked_sub(start - out.size).ok_or(fault)?;
            }
            out.pad_to(start);
            section.header.offset = start;
            match std::mem::replace(&mut section.contents, Contents::Old(0)) {
                Contents::Old(size) => {
                    self.bytes
                        .emit(old..old.saturating_add(size), &mut out.parts);
                    out.size += size;
                }
                Contents::Made(bytes) => out.bytes(bytes),
                Contents::New { index, size } => {
                    let fault = Malformed::new("new contents are too large", old);
                    start.checked_add(size).ok_or(fault)?;
                    section.header.size = size;
                    out.contents(index, size);
                }
            }
        }
        let last = match policy {
            Policy::HeadersInPlace => out.size,
            Policy::HeadersLast | Policy::Objcopy => table_at,
        };
        if !self.class.is_64 && last > u64::from(u32::MAX) {
            return Err(Malformed::new("too large for a 32-bit object", 0));
        }
        let headers = self.sections.iter().map(|section| section.header).collect();
        let (head, table) = tables(self.class, self.head, headers, self.names, table_at);
        if let Some(part) = out.parts.get_mut(table_part) {
            *part = Part::Bytes(table);
        }
        out.parts.insert(0, Part::Bytes(head));
        Ok(out.parts)
    }

    /// Returns the numbers of the sections that move, in file order. Number 0 represents the
    /// section headers.
    fn order(&self, policy: Policy) -> Vec<usize> {
        let in_place = policy == Policy::HeadersInPlace;
        let table = if in_place { self.head.shoff } else { u64::MAX };
        let moving = self.sections.iter().enumerate().skip(1);
        let moving = moving.filter(|(_, section)| !section.fixed);
        // If the section headers stay in position, empty sections come before other bytes at the
        // same offset.
        let mut order: Vec<(u64, bool, usize)> = moving
            .map(|(index, section)| {
                let is_behind = in_place && section.had_bytes();
                (section.header.offset, is_behind, index)
            })
            .collect();
        order.push((table, true, 0));
        order.sort_unstable();
        order.into_iter().map(|(.., index)| index).collect()
    }
}

/// Returns the alignment in the file for a section with alignment `align` in memory.
pub(crate) fn file_align(align: u64) -> u64 {
    if align.is_power_of_two() {
        align.min(MAX_FILE_ALIGN)
    } else {
        1
    }
}

/// Updates the section's link and info to the new section numbers.
pub(crate) fn renumber(header: &mut SectionHeader, numbers: &Numbers) -> Result<(), Malformed> {
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

/// Returns the file header and the section headers as bytes. Numbers that do not fit into the file
/// header are stored in the null section's header.
pub(crate) fn tables(
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
