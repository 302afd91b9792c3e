//! Adds and removes sections of ELF objects, with the layout of llvm-objcopy. Old sections stay in
//! their order, each at its alignment, then follow the new ones and the section headers. String
//! tables are rebuilt.
//!
//! In linked files, which have segments, everything up to the end of the last segment keeps its
//! offset.

use std::borrow::Cow;
use std::ops::Range;

use super::strings::Strings;
use super::{NewSection, section_name};
use crate::error::Malformed;
use crate::formats::compose::{Part, PartList};
use crate::formats::elf::edit::{Changed, Edit, Edited, Numbers, change, renumber, tables};
use crate::formats::elf::file::Object;
use crate::formats::elf::raw::{
    Class, FileHeader, ProgramHeader, Record, SectionHeader, Symbol, string,
};
use crate::formats::slice;
use object::elf;

/// A section of the new file.
struct OutputSection<'a> {
    header: SectionHeader,
    name: Cow<'a, [u8]>,
    body: Body,
    /// The offset in the old file. For new sections, larger than any other.
    old_offset: u64,
    /// Whether the section keeps its offset, because it is part of a segment.
    fixed: bool,
}

enum Body {
    /// This many bytes at the old offset in the old file.
    Lent(u64),
    Made(Vec<u8>),
    New(usize),
}

/// Returns the object `data` without the sections for which `remove` is true, and with `new` as its
/// last sections.
pub(super) fn rewrite(
    data: &[u8],
    remove: &dyn Fn(&[u8]) -> bool,
    new: &[NewSection<'_>],
) -> Result<Vec<Part>, Malformed> {
    let object = Object::parse_any(data)?;
    object.check_overlap()?;
    let edit = Edit {
        remove: &|section| remove(section.name),
        ..Edit::default()
    };
    let Changed {
        object,
        numbers,
        edited,
        ..
    } = change(object, &edit)?;
    let from_file: u64 = object
        .sections
        .iter()
        .map(|section| section.body.len() as u64)
        .sum();
    if from_file > data.len() as u64 {
        // Bytes shared by several sections would be written once for each, so that a small file
        // could need terabytes of output.
        return Err(Malformed::new("sections overlap", 0));
    }
    let mut sections = remaining(data, &object, &numbers, edited)?;
    sections.extend(
        new.iter()
            .enumerate()
            .map(|(index, section)| added(index, section)),
    );
    let names = numbers.of(object.names).unwrap_or_default() as usize;
    let symbols = object
        .symbols
        .and_then(|index| numbers.of(index))
        .map(|index| index as usize);
    let old_strings = object.symbols.and_then(|index| {
        object
            .sections
            .get(object.sections.get(index)?.header.link as usize)
    });
    rebuild_strings(
        object.class,
        &mut sections,
        names,
        symbols,
        old_strings.map_or(&[], |section| section.body),
    )?;
    lay_out(data, &object, sections, names)
}

/// The remaining sections, in the order of their new numbers, starting with the null section.
fn remaining<'a>(
    data: &[u8],
    object: &Object<'a>,
    numbers: &Numbers,
    edited: Vec<Edited<'a>>,
) -> Result<Vec<OutputSection<'a>>, Malformed> {
    let segments = segments(data, object)?;
    let mut sections = Vec::with_capacity(edited.len());
    for (index, Edited { mut header, body }) in edited.into_iter().enumerate() {
        if numbers.of(index).is_none() {
            continue;
        }
        renumber(&mut header, numbers)?;
        let (old_offset, size) = (header.offset, body.len() as u64);
        let body = match body {
            Cow::Borrowed(_) => Body::Lent(size),
            Cow::Owned(bytes) => Body::Made(bytes),
        };
        let end = old_offset.saturating_add(size.max(1));
        let fixed = segments
            .iter()
            .any(|segment| segment.start <= old_offset && end <= segment.end)
            || in_memory_only(object, &header);
        if !header.is_empty_in_file() {
            header.size = size;
        }
        align_table(object.class, &mut header);
        let name = object
            .sections
            .get(index)
            .map_or(&[][..], |section| section.name);
        sections.push(OutputSection {
            header,
            name: Cow::Borrowed(name),
            body,
            old_offset,
            fixed,
        });
    }
    Ok(sections)
}

/// Whether the section belongs to a linked file and has no bytes in it, so that its offset does not
/// matter.
fn in_memory_only(object: &Object<'_>, header: &SectionHeader) -> bool {
    object.head.phnum > 0 && header.kind == elf::SHT_NOBITS && header.is_allocated()
}

/// llvm-objcopy aligns tables of records to their largest field, whatever the old alignment was.
fn align_table(class: Class, header: &mut SectionHeader) {
    let relocations = matches!(header.kind, elf::SHT_REL | elf::SHT_RELA) && !header.is_allocated();
    if header.kind == elf::SHT_SYMTAB || relocations {
        header.align = class.address_size() as u64;
    }
}

fn added(index: usize, section: &NewSection<'_>) -> OutputSection<'static> {
    let header = SectionHeader {
        kind: elf::SHT_PROGBITS,
        // Linkers omit the section.
        flags: elf::SHF_EXCLUDE,
        size: section.size,
        align: 1,
        ..SectionHeader::default()
    };
    OutputSection {
        header,
        name: Cow::Owned(section_name(section.id)),
        body: Body::New(index),
        old_offset: u64::MAX,
        fixed: false,
    }
}

/// The ranges of the file header, the program headers and the segments in the file.
fn segments(data: &[u8], object: &Object<'_>) -> Result<Vec<Range<u64>>, Malformed> {
    let (class, head) = (object.class, &object.head);
    if head.phnum == 0 {
        return Ok(Vec::new());
    }
    let (at, size) = (head.phoff, usize::from(head.phentsize));
    if size < ProgramHeader::size(class) {
        return Err(Malformed::new("program headers of an unknown size", at));
    }
    let table_size = u64::from(head.phnum) * size as u64;
    let table = slice(data, at, table_size, "program headers past the end", at)?;
    let mut found = vec![0..FileHeader::size(class) as u64, at..at + table_size];
    for ProgramHeader { offset, filesz, .. } in table
        .chunks_exact(size)
        .filter_map(|record| ProgramHeader::of(class, record))
    {
        slice(data, offset, filesz, "segment past the end", at)?;
        found.push(offset..offset + filesz);
    }
    Ok(found)
}

/// Rebuilds the string tables and stores the new offsets in section headers and symbols.
fn rebuild_strings(
    class: Class,
    sections: &mut [OutputSection<'_>],
    names: usize,
    symbols: Option<usize>,
    old_strings: &[u8],
) -> Result<(), Malformed> {
    let symbol_names = symbols
        .and_then(|index| sections.get(index))
        .map(|table| table.header.link as usize);
    let rebuilt = |index: usize| {
        let header = sections.get(index).map(|section| section.header);
        header.is_some_and(|header| header.kind == elf::SHT_STRTAB && !header.is_allocated())
    };
    if !rebuilt(names) {
        return Err(Malformed::new(
            "section names that are part of the program",
            0,
        ));
    }
    let symbol_names = symbol_names.filter(|index| rebuilt(*index));
    let owned: Vec<Vec<u8>> = sections
        .iter()
        .map(|section| section.name.to_vec())
        .collect();
    let mut all: Vec<Symbol> = match symbols
        .filter(|_| symbol_names.is_some())
        .and_then(|index| sections.get(index))
    {
        Some(OutputSection {
            body: Body::Made(records),
            ..
        }) => records
            .chunks_exact(Symbol::size(class))
            .filter_map(|record| Symbol::of(class, record))
            .collect(),
        _ => Vec::new(),
    };
    let mut each_name = Vec::with_capacity(all.len());
    for symbol in &all {
        each_name.push(string(old_strings, symbol.name, 0)?);
    }
    let mut section_table = Strings::new(1);
    let mut symbol_table = Strings::new(1);
    let shared = symbol_names == Some(names);
    let section_names = owned.iter().map(Vec::as_slice);
    if shared {
        section_table.add(section_names.chain(each_name.iter().copied()));
    } else {
        section_table.add(section_names);
        symbol_table.add(each_name.iter().copied());
    }
    let symbol_strings = if shared {
        &section_table
    } else {
        &symbol_table
    };
    let mut records = Vec::with_capacity(all.len() * Symbol::size(class));
    for (symbol, name) in all.iter_mut().zip(&each_name) {
        symbol.name = symbol_strings.offset(name) as u32;
        symbol.append(class, &mut records);
    }
    for (section, name) in sections.iter_mut().zip(&owned) {
        section.header.name = section_table.offset(name) as u32;
    }
    let mut put = |index: usize, bytes: Vec<u8>| {
        if let Some(section) = sections.get_mut(index) {
            section.header.size = bytes.len() as u64;
            section.body = Body::Made(bytes);
        }
    };
    put(names, section_table.bytes(&[0]));
    if let (Some(table), false) = (symbol_names, shared) {
        put(table, symbol_table.bytes(&[0]));
    }
    if let Some(symbols) = symbols.filter(|_| symbol_names.is_some()) {
        put(symbols, records);
    }
    Ok(())
}

/// Assigns an offset to every section and lists the parts to write.
fn lay_out(
    data: &[u8],
    object: &Object<'_>,
    mut sections: Vec<OutputSection<'_>>,
    names: usize,
) -> Result<Vec<Part>, Malformed> {
    let class = object.class;
    let mut end = segments(data, object)?
        .iter()
        .map(|segment| segment.end)
        .max()
        .unwrap_or(FileHeader::size(class) as u64);
    let linked = end;
    let moving = sections
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, section)| !section.fixed);
    let mut order: Vec<(u64, usize)> = moving
        .map(|(index, section)| (section.old_offset, index))
        .collect();
    order.sort_unstable();
    let mut gaps = 0;
    for (_, index) in &order {
        let Some(OutputSection { header, .. }) = sections.get_mut(*index) else {
            continue;
        };
        let fault = Malformed::new("a section's alignment is too large", header.offset);
        let start = end
            .checked_next_multiple_of(header.align.max(1))
            .ok_or(fault)?;
        gaps += start - end;
        // Without a limit, a small file could need any number of zeros.
        if gaps > (data.len() as u64).saturating_mul(2) + (64 << 20) {
            return Err(fault);
        }
        header.offset = start;
        end = if header.is_empty_in_file() {
            start
        } else {
            start + header.size
        };
    }
    let table_at = end.next_multiple_of(class.address_size() as u64);
    if !class.is_64 && table_at > u64::from(u32::MAX) {
        return Err(Malformed::new("too large for a 32-bit object", 0));
    }
    let headers: Vec<SectionHeader> = sections.iter().map(|section| section.header).collect();
    let (head, table) = own_tables(object, headers, names, table_at);
    let mut out = PartList::default();
    out.bytes(head);
    out.old(out.size..linked);
    for (_, index) in order {
        let Some(section) = sections.get_mut(index) else {
            continue;
        };
        match &mut section.body {
            Body::Lent(0) => continue,
            Body::Lent(size) => {
                out.pad_to(section.header.offset);
                out.old(section.old_offset..section.old_offset + *size);
            }
            Body::Made(bytes) => {
                out.pad_to(section.header.offset);
                out.bytes(std::mem::take(bytes));
            }
            Body::New(new) => {
                out.pad_to(section.header.offset);
                out.contents(*new, section.header.size);
            }
        }
    }
    out.pad_to(table_at);
    out.bytes(table);
    Ok(out.parts)
}

/// The file header and the section headers, with the values of llvm-objcopy.
fn own_tables(
    object: &Object<'_>,
    mut headers: Vec<SectionHeader>,
    names: usize,
    table_at: u64,
) -> (Vec<u8>, Vec<u8>) {
    if let Some(null) = headers.first_mut() {
        *null = SectionHeader::default();
    }
    let mut head = object.head;
    // The bytes after the ABI version are reserved.
    head.ident.padding = [0; 7];
    if head.phnum == 0 {
        head.phoff = 0;
        head.phentsize = 0;
    }
    head.ehsize = FileHeader::size(object.class) as u16;
    tables(object.class, head, headers, names as u32, table_at)
}
