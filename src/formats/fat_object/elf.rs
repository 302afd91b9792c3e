//! ELF objects with sections added or taken away, laid out as llvm-objcopy does it: sections in the order they stood in the file,
//! each at its alignment, the new ones last; then the section headers. The tables of names are made anew.
//!
//! In linked files, which have segments, all up to the end of the last segment stays where it is.

use std::borrow::Cow;
use std::ops::Range;

use super::strings::Strings;
use super::{NewSection, Plan, Planner, section_name};
use crate::error::Malformed;
use crate::formats::elf::edit::read::{
    Class, E_EHSIZE, E_PHENTSIZE, E_PHNUM, E_PHOFF, Header, Object, P_FILESZ, P_OFFSET, SHF_ALLOC, SHT_NOBITS, SHT_PROGBITS,
    SHT_REL, SHT_RELA, SHT_STRTAB, SHT_SYMTAB, ST_NAME, string,
};
use crate::formats::elf::edit::{Changed, Edit, Edited, Numbers, change, renumber, tables};
use crate::formats::slice;

/// Left out of linked files.
const SHF_EXCLUDE: u64 = 0x8000_0000;

/// A section of the new file.
struct Out<'a> {
    header: Header,
    name: Cow<'a, [u8]>,
    body: Body,
    /// Where it stood in the old file; behind all others for a new one.
    stood: u64,
    /// Whether it stays there, because it is part of a segment.
    fixed: bool,
}

enum Body {
    /// So many bytes of the old file, from where it stood.
    Lent(u64),
    Made(Vec<u8>),
    New(usize),
}

/// The object `data` without the sections that `remove` names, and with `new` at its end.
pub(super) fn rewrite(data: &[u8], remove: &dyn Fn(&[u8]) -> bool, new: &[NewSection<'_>]) -> Result<Plan, Malformed> {
    let object = Object::parse_any(data)?;
    object.check_overlap()?;
    let edit = Edit { remove: &|section| remove(section.name), ..Edit::default() };
    let Changed { object, numbers, edited, .. } = change(object, &edit)?;
    let lent: u64 = object.sections.iter().map(|section| section.body.len() as u64).sum();
    if lent > data.len() as u64 {
        // Each would be written as often as it is lent; a small file could ask for terabytes.
        return Err(Malformed::new("sections overlap", 0));
    }
    let mut sections = kept(data, &object, &numbers, edited)?;
    sections.extend(new.iter().enumerate().map(|(index, section)| added(index, section)));
    let names = numbers.of(object.names).unwrap_or_default() as usize;
    let symbols = object.symbols.and_then(|index| numbers.of(index)).map(|index| index as usize);
    let old_strings = object.symbols.and_then(|index| object.sections.get(object.sections.get(index)?.header.link as usize));
    name_all(object.class, &mut sections, names, symbols, old_strings.map_or(&[], |section| section.body))?;
    lay_out(data, &object, sections, names)
}

/// The sections that stay, by their new numbers, the null section first.
fn kept<'a>(data: &[u8], object: &Object<'a>, numbers: &Numbers, edited: Vec<Edited<'a>>) -> Result<Vec<Out<'a>>, Malformed> {
    let segments = segments(data, object)?;
    let mut sections = Vec::with_capacity(edited.len());
    for (index, Edited { mut header, body }) in edited.into_iter().enumerate() {
        if numbers.of(index).is_none() {
            continue;
        }
        renumber(&mut header, numbers)?;
        let (stood, size) = (header.offset, body.len() as u64);
        let body = match body {
            Cow::Borrowed(_) => Body::Lent(size),
            Cow::Owned(bytes) => Body::Made(bytes),
        };
        let end = stood.saturating_add(size.max(1));
        let fixed =
            segments.iter().any(|segment| segment.start <= stood && end <= segment.end) || in_memory_only(object, &header);
        if header.kind != SHT_NOBITS && header.kind != 0 {
            header.size = size;
        }
        align_table(object.class, &mut header);
        let name = object.sections.get(index).map_or(&[][..], |section| section.name);
        sections.push(Out { header, name: Cow::Borrowed(name), body, stood, fixed });
    }
    Ok(sections)
}

/// A section without bytes in a linked file: its offset is only said.
fn in_memory_only(object: &Object<'_>, header: &Header) -> bool {
    object.class.get(object.head, &E_PHNUM) > 0 && header.kind == SHT_NOBITS && header.flags & SHF_ALLOC != 0
}

/// Tables of records are aligned to the largest of their fields, whatever they were.
fn align_table(class: Class, header: &mut Header) {
    let unloaded = header.flags & SHF_ALLOC == 0;
    let relocations = matches!(header.kind, SHT_REL | SHT_RELA) && unloaded;
    if header.kind == SHT_SYMTAB || relocations {
        header.align = if class.is_64 { 8 } else { 4 };
    }
}

fn added(index: usize, section: &NewSection<'_>) -> Out<'static> {
    let header = Header {
        name: 0,
        kind: SHT_PROGBITS,
        flags: SHF_EXCLUDE,
        addr: 0,
        offset: 0,
        size: section.size,
        link: 0,
        info: 0,
        align: 1,
        entsize: 0,
    };
    Out { header, name: Cow::Owned(section_name(section.id)), body: Body::New(index), stood: u64::MAX, fixed: false }
}

/// Where the segments stand in the file, and the table of them.
fn segments(data: &[u8], object: &Object<'_>) -> Result<Vec<Range<u64>>, Malformed> {
    let (class, head) = (object.class, object.head);
    let count = class.get(head, &E_PHNUM);
    if count == 0 {
        return Ok(Vec::new());
    }
    let (at, size) = (class.get(head, &E_PHOFF), class.get(head, &E_PHENTSIZE));
    let fault = "program headers past the end";
    if size < class.program_header_size() as u64 {
        return Err(Malformed::new("program headers of an unknown size", at));
    }
    let table = slice(data, at, count * size, fault, at)?;
    let mut found = vec![0..head.len() as u64, at..at + count * size];
    for record in table.chunks_exact(size as usize) {
        let (start, size) = (class.get(record, &P_OFFSET), class.get(record, &P_FILESZ));
        slice(data, start, size, "segment past the end", at)?;
        found.push(start..start + size);
    }
    Ok(found)
}

/// Makes the tables of names anew and puts the offsets into headers and symbols.
fn name_all(
    class: Class,
    sections: &mut [Out<'_>],
    names: usize,
    symbols: Option<usize>,
    old_strings: &[u8],
) -> Result<(), Malformed> {
    let symbol_names = symbols.and_then(|index| sections.get(index)).map(|table| table.header.link as usize);
    let rebuilt = |index: usize| {
        let header = sections.get(index).map(|section| section.header);
        header.is_some_and(|header| header.kind == SHT_STRTAB && header.flags & SHF_ALLOC == 0)
    };
    if !rebuilt(names) {
        return Err(Malformed::new("section names that are part of the program", 0));
    }
    let symbol_names = symbol_names.filter(|index| rebuilt(*index));
    let owned: Vec<Vec<u8>> = sections.iter().map(|section| section.name.to_vec()).collect();
    let mut records = match symbols.filter(|_| symbol_names.is_some()).and_then(|index| sections.get(index)) {
        Some(Out { body: Body::Made(records), .. }) => records.to_vec(),
        _ => Vec::new(),
    };
    let mut each_name = Vec::new();
    for record in records.chunks_exact(class.symbol_size()) {
        each_name.push(string(old_strings, class.get32(record, &ST_NAME), 0)?);
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
    let of_symbols = if shared { &section_table } else { &symbol_table };
    for (record, name) in records.chunks_exact_mut(class.symbol_size()).zip(&each_name) {
        class.set(record, &ST_NAME, of_symbols.offset(name));
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

/// Gives every section its place, and says what to write.
fn lay_out(data: &[u8], object: &Object<'_>, mut sections: Vec<Out<'_>>, names: usize) -> Result<Plan, Malformed> {
    let class = object.class;
    let mut end = segments(data, object)?.iter().map(|segment| segment.end).max().unwrap_or(object.head.len() as u64);
    let linked = end;
    let mut order: Vec<usize> = (1..sections.len()).filter(|index| !sections[*index].fixed).collect();
    order.sort_by_key(|index| sections[*index].stood);
    let mut gaps = 0;
    for index in &order {
        let header = &mut sections[*index].header;
        let fault = Malformed::new("a section's alignment is too large", header.offset);
        let start = end.checked_next_multiple_of(header.align.max(1)).ok_or(fault)?;
        gaps += start - end;
        // A small file could ask for any number of zeros.
        if gaps > (data.len() as u64).saturating_mul(2) + (64 << 20) {
            return Err(fault);
        }
        header.offset = start;
        end = if header.kind == SHT_NOBITS || header.kind == 0 { start } else { start + header.size };
    }
    let table_at = end.next_multiple_of(if class.is_64 { 8 } else { 4 });
    if !class.is_64 && table_at > u64::from(u32::MAX) {
        return Err(Malformed::new("too large for a 32-bit object", 0));
    }
    let headers: Vec<Header> = sections.iter().map(|section| section.header).collect();
    let (head, table) = own_tables(object, headers, names, table_at);
    let mut planner = Planner::default();
    planner.made(head);
    if linked > planner.end {
        planner.object(planner.end, linked - planner.end);
    }
    for index in order {
        let Some(section) = sections.get_mut(index) else { continue };
        match &mut section.body {
            Body::Lent(0) => continue,
            Body::Lent(size) => {
                planner.pad_to(section.header.offset);
                planner.object(section.stood, *size);
            }
            Body::Made(bytes) => {
                planner.pad_to(section.header.offset);
                planner.made(std::mem::take(bytes));
            }
            Body::New(new) => {
                planner.pad_to(section.header.offset);
                planner.section(*new, section.header.size);
            }
        }
    }
    planner.pad_to(table_at);
    planner.made(table);
    Ok(planner.plan)
}

/// The ELF header and the section headers, as llvm-objcopy has them.
fn own_tables(object: &Object<'_>, mut headers: Vec<Header>, names: usize, table_at: u64) -> (Vec<u8>, Vec<u8>) {
    let class = object.class;
    if let Some(null) = headers.first_mut() {
        *null = Header::default();
    }
    let mut head = object.head.to_vec();
    // What stands behind the ABI's version means nothing yet.
    head.iter_mut().take(16).skip(9).for_each(|byte| *byte = 0);
    if class.get(&head, &E_PHNUM) == 0 {
        class.set(&mut head, &E_PHOFF, 0);
        class.set(&mut head, &E_PHENTSIZE, 0);
    }
    class.set(&mut head, &E_EHSIZE, class.header_size() as u64);
    tables(class, head, headers, names as u64, table_at)
}
