//! Reads the section table of an ELF file, and its sections with names and bytes, for any class and
//! byte order. `PatchedBytes` are the bytes of a file with changes that need no new layout.
//! `append_section` adds a section.

use super::raw::{Class, FileHeader, ProgramHeader, Record, SectionHeader, string};
use crate::bytes::{range, slice};
use crate::compose::{Part, push_old, push_zeros};
use crate::error::Malformed;
use object::{Endianness, elf};
use std::collections::BTreeMap;
use std::ops::Range;

/// Section table of an ELF file.
#[derive(Debug, Default)]
pub struct SectionTable {
    /// Headers by index. Index 0 is the null section.
    pub headers: Vec<SectionHeader>,
    /// Index of the section with the section names. It may be past the last section.
    pub names: usize,
    /// Offset of the table.
    offset: u64,
}

impl SectionTable {
    /// Reads the section table of the ELF file `data`. A file without one has an empty table. The
    /// entries must have the size of the file's class.
    pub fn read(data: &[u8], class: Class, head: &FileHeader) -> Result<Self, Malformed> {
        if head.shoff != 0 && usize::from(head.shentsize) != SectionHeader::size(class) {
            return Err(Malformed::new("section headers of an unknown size", 0));
        }
        SectionTable::read_any_size(data, class, head)
    }

    /// Like `read`, but ignores the entry size in the file header.
    pub fn read_any_size(data: &[u8], class: Class, head: &FileHeader) -> Result<Self, Malformed> {
        const CUT: &str = "section headers past the end";
        if head.shoff == 0 {
            return Ok(SectionTable::default());
        }
        // The null section contains the numbers that do not fit into the file header.
        let null = SectionHeader::at(class, data, head.shoff, CUT)?;
        let count = match head.shnum {
            0 => null.size,
            count => count.into(),
        };
        let names = match head.shstrndx {
            elf::SHN_XINDEX => null.link as usize,
            index => index.0.into(),
        };
        Ok(SectionTable {
            headers: SectionHeader::table(class, data, head.shoff, count, CUT)?,
            names,
            offset: head.shoff,
        })
    }

    /// Returns the header of the section names.
    pub fn names_header(&self) -> Result<&SectionHeader, Malformed> {
        self.headers
            .get(self.names)
            .filter(|header| header.kind == elf::SHT_STRTAB)
            .ok_or(Malformed::new("no section names", self.offset))
    }
}

/// A section with its header, name and bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    pub header: SectionHeader,
    pub name: &'a [u8],
    /// Empty for a section without bytes in the file.
    pub body: &'a [u8],
}

/// An ELF file whose links between sections are valid: each refers to an existing section.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    pub class: Class,
    /// Little-endian MIPS64: relocations store the symbol index apart from the type.
    pub split_info: bool,
    pub head: FileHeader,
    /// Index 0 is the null section.
    pub sections: Vec<Section<'a>>,
    /// Index of the section with the section names.
    pub names: usize,
    /// Index of the symbol table.
    pub symbols: Option<usize>,
    /// Size of the file in bytes.
    pub size: u64,
}

impl<'a> Object<'a> {
    /// Reads a relocatable object.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let (_, head) = FileHeader::read(data)?;
        if head.kind != elf::ET_REL {
            return Err(Malformed::new("not a relocatable object", 16));
        }
        if head.phnum != 0 {
            return Err(Malformed::new(
                "a relocatable object with program headers",
                0,
            ));
        }
        Object::parse_any(data)
    }

    /// Reads an object, a library or a program.
    pub(crate) fn parse_any(data: &'a [u8]) -> Result<Self, Malformed> {
        let (class, head) = FileHeader::read(data)?;
        let at = head.shoff;
        let table = SectionTable::read(data, class, &head)?;
        let headers = &table.headers;
        let null = headers.first().ok_or(Malformed::new("no sections", 0))?;
        if null.kind != elf::SHT_NULL {
            return Err(Malformed::new(
                "the first section is not the null section",
                at,
            ));
        }
        let strings = body(data, table.names_header()?, at, head.machine)?;
        let mut sections = Vec::with_capacity(headers.len());
        let mut symbols = None;
        for (index, header) in headers.iter().enumerate() {
            let at = at + (index * SectionHeader::size(class)) as u64;
            check_links(header, headers.len(), at)?;
            if header.kind == elf::SHT_SYMTAB && symbols.replace(index).is_some() {
                return Err(Malformed::new("more than one symbol table", at));
            }
            // The size of the null section may be the number of sections instead of a number of
            // bytes.
            let body = if index == 0 {
                &[][..]
            } else {
                body(data, header, at, head.machine)?
            };
            if index != 0 && head.kind == elf::ET_REL && is_unused_with_bytes(data, header) {
                return Err(Malformed::new("a section of type NULL has bytes", at));
            }
            sections.push(Section {
                header: *header,
                name: string(strings, header.name, at)?,
                body,
            });
        }
        let split_info =
            class.is_64 && class.endian == Endianness::Little && head.machine == elf::EM_MIPS;
        Ok(Object {
            class,
            split_info,
            head,
            sections,
            names: table.names,
            symbols,
            size: data.len() as u64,
        })
    }

    /// Returns the headers of all sections.
    pub(crate) fn headers(&self) -> impl Iterator<Item = SectionHeader> {
        self.sections.iter().map(|section| section.header)
    }

    /// Returns the ranges of the file header, the section headers and the program headers.
    pub(crate) fn header_ranges(&self) -> Result<[Range<u64>; 3], Malformed> {
        let table = |count, size| (count as u64).saturating_mul(size as u64);
        let sections = table(self.sections.len(), SectionHeader::size(self.class));
        let segments = table(self.head.phnum.into(), ProgramHeader::size(self.class));
        Ok([
            range(0, FileHeader::size(self.class) as u64)?,
            range(self.head.shoff, sections)?,
            range(self.head.phoff, segments)?,
        ])
    }

    /// Checks that no two sections share bytes. Shared bytes would be written once for each
    /// section, so that a small file could need terabytes of output.
    pub(crate) fn check_overlap(&self) -> Result<(), Malformed> {
        let lent: u64 = self
            .sections
            .iter()
            .map(|section| section.body.len() as u64)
            .sum();
        if lent > self.size {
            return Err(Malformed::new("sections overlap", self.head.shoff));
        }
        Ok(())
    }
}

/// Checks that the links of a section refer to existing sections. Links of an unused section header
/// have no meaning.
fn check_links(header: &SectionHeader, count: usize, at: u64) -> Result<(), Malformed> {
    if header.kind == elf::SHT_NULL {
        return Ok(());
    }
    if header.link as usize >= count {
        return Err(Malformed::new(
            "a section's link names a missing section",
            at,
        ));
    }
    if header.info_is_section() && header.info as usize >= count {
        return Err(Malformed::new(
            "a section's info names a missing section",
            at,
        ));
    }
    Ok(())
}

/// Whether an unused section header refers to bytes of the file. Its fields have no meaning and may
/// have any value. However, some readers treat the bytes as a section, and the new file would lack
/// them.
fn is_unused_with_bytes(data: &[u8], header: &SectionHeader) -> bool {
    let end = header.offset.checked_add(header.size);
    header.kind == elf::SHT_NULL
        && header.size > 0
        && end.is_some_and(|end| end <= data.len() as u64)
}

fn body<'a>(
    data: &'a [u8],
    header: &SectionHeader,
    at: u64,
    machine: elf::Machine,
) -> Result<&'a [u8], Malformed> {
    if header.is_empty_for(machine) {
        return Ok(&[]);
    }
    header.bytes(data, at)
}

const PAST_THE_END: &str = "patched bytes are past the end";

/// Bytes of a file with patches. All offsets are offsets in the old file.
pub(crate) struct PatchedBytes<'a> {
    old: &'a [u8],
    /// The new bytes by offset. They do not overlap.
    changed: BTreeMap<u64, Vec<u8>>,
}

impl<'a> PatchedBytes<'a> {
    pub(crate) fn new(old: &'a [u8]) -> Self {
        PatchedBytes {
            old,
            changed: BTreeMap::new(),
        }
    }

    /// The file without patches.
    pub(crate) fn old(&self) -> &'a [u8] {
        self.old
    }

    /// Replaces the bytes from `offset` on by `bytes`.
    pub(crate) fn set(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Malformed> {
        slice(self.old, offset, bytes.len() as u64, PAST_THE_END, offset)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset + bytes.len() as u64;
        let mut merged = bytes.to_vec();
        let mut start = offset;
        for at in self.keys_within(offset..end) {
            let Some(before) = self.changed.remove(&at) else {
                continue;
            };
            // Earlier patches before and after the new bytes stay.
            if let Some(lead) = start.checked_sub(at) {
                merged.splice(..0, before.iter().copied().take(lead as usize));
                start = at;
            }
            let reaches = start + merged.len() as u64;
            merged.extend(before.iter().skip(reaches.saturating_sub(at) as usize));
        }
        self.changed.insert(start, merged);
        Ok(())
    }

    /// Returns the bytes with all patches.
    pub(crate) fn get(&self, offset: u64, size: u64) -> Result<Vec<u8>, Malformed> {
        let mut all = slice(self.old, offset, size, "a range past the end", offset)?.to_vec();
        for at in self.keys_within(offset..offset + size) {
            let bytes = self.changed.get(&at).map_or(&[][..], Vec::as_slice);
            let skipped = offset.saturating_sub(at) as usize;
            let to = all.iter_mut().skip(at.saturating_sub(offset) as usize);
            to.zip(bytes.iter().skip(skipped))
                .for_each(|(to, byte)| *to = *byte);
        }
        Ok(all)
    }

    /// Whether a patch covers any byte of `range`.
    pub(crate) fn is_changed(&self, range: Range<u64>) -> bool {
        !self.keys_within(range).is_empty()
    }

    /// Returns the offsets of the patches that overlap `range`.
    fn keys_within(&self, range: Range<u64>) -> Vec<u64> {
        let before = self
            .changed
            .range(..range.start)
            .next_back()
            .filter(|(at, bytes)| *at + bytes.len() as u64 > range.start);
        let mut keys: Vec<u64> = before.map(|(at, _)| *at).into_iter().collect();
        if range.start < range.end {
            keys.extend(self.changed.range(range).map(|(at, _)| *at));
        }
        keys
    }

    /// Appends the bytes of `range`, with patches, to `parts`.
    pub(crate) fn emit(&self, range: Range<u64>, parts: &mut Vec<Part>) {
        let mut at = range.start;
        for start in self.keys_within(range.clone()) {
            let bytes = self.changed.get(&start).map_or(&[][..], Vec::as_slice);
            let end = (start + bytes.len() as u64).min(range.end);
            push_old(parts, at..start);
            let from = at.max(start);
            let part = bytes
                .iter()
                .skip((from - start) as usize)
                .take((end - from) as usize);
            parts.push(Part::Bytes(part.copied().collect()));
            at = end;
        }
        push_old(parts, at..range.end);
    }
}

// Adds a section to an ELF file of any type, even to one without sections. Appends the contents,
// the section names and the section headers, and updates the file header.
//
// This is not a policy of `edit::OutputFile`, because here every old byte keeps its offset,
// including those of the old section names and section headers.

/// Returns the parts of the ELF file `data` with one more section at the end of the section table.
/// `header` provides its type, flags and alignment, which is at most 8.
pub(crate) fn append_section(
    data: &[u8],
    name: &str,
    header: SectionHeader,
    contents: &[u8],
) -> Result<Vec<Part>, Malformed> {
    let (class, mut head) = FileHeader::read(data)?;
    let names_index = usize::from(head.shstrndx.0);
    let no_sections = head.shnum == 0;
    if no_sections != (head.shoff == 0)
        || head.shnum >= elf::SHN_LORESERVE - 2
        || names_index >= usize::from(head.shnum).max(1)
    {
        return Err(Malformed::new(
            "a section table that cannot be extended",
            head.shoff,
        ));
    }
    let mut headers = SectionTable::read_any_size(data, class, &head)?.headers;
    let mut names = match headers.get(names_index) {
        Some(names) => slice(
            data,
            names.offset,
            names.size,
            "section names past the end",
            head.shoff,
        )?
        .to_vec(),
        None => vec![0],
    };
    let mut tail = contents.to_vec();
    let tail_at = (data.len() as u64).next_multiple_of(8);
    let added = SectionHeader {
        name: names.len() as u32,
        offset: tail_at,
        size: tail.len() as u64,
        ..header
    };
    names.extend(name.bytes().chain([0]));
    let mut names_index = names_index;
    if no_sections {
        names_index = 1;
        let name = names.len() as u32;
        names.extend(b".shstrtab\0");
        headers.push(SectionHeader::default());
        headers.push(SectionHeader {
            name,
            kind: elf::SHT_STRTAB,
            align: 1,
            ..SectionHeader::default()
        });
    }
    if let Some(own) = headers.get_mut(names_index) {
        own.offset = tail_at + tail.len() as u64;
        own.size = names.len() as u64;
    }
    tail.extend(&names);
    headers.push(added);
    tail.resize(tail.len().next_multiple_of(8), 0);
    head.shoff = tail_at + tail.len() as u64;
    headers
        .iter()
        .for_each(|header| header.append(class, &mut tail));
    if !class.is_64 && tail_at + tail.len() as u64 > u32::MAX.into() {
        return Err(Malformed::new(
            "no room for another section within 4 GiB",
            tail_at,
        ));
    }
    head.shentsize = SectionHeader::size(class) as u16;
    // The check above keeps the count below the numbers with a special meaning.
    head.shnum = headers.len() as u16;
    head.shstrndx = elf::SymbolSection(names_index as u16);
    let head = head.to_bytes(class);
    let end = data.len() as u64;
    let rest = Part::Old(head.len() as u64..end);
    let mut parts = vec![Part::Bytes(head), rest];
    push_zeros(&mut parts, tail_at - end);
    parts.push(Part::Bytes(tail));
    Ok(parts)
}
