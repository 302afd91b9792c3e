//! Adds and removes sections of ELF objects, with the layout of llvm-objcopy. Old sections stay in
//! their order, each at its alignment. New sections and the section headers follow. String tables
//! are rebuilt.
//!
//! In linked files, which have segments, everything up to the end of the last segment keeps its
//! offset.

use std::ops::Range;

use super::{NewSection, Strings, section_name};
use crate::bytes::slice;
use crate::compose::Part;
use crate::elf::edit::{Changed, Contents, Edit, OutputFile, OutputSection, Policy, change, kept};
use crate::elf::file::{Object, PatchedBytes};
use crate::elf::raw::{Class, FileHeader, ProgramHeader, Record, SectionHeader, Symbol, string};
use crate::error::Malformed;
use object::elf;

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
    let segments = segments(data, &object)?;
    let mut sections = kept(&numbers, edited)?;
    for section in &mut sections {
        complete(&object, &segments, section);
    }
    let old_names = object.sections.iter().enumerate();
    let mut section_names: Vec<Vec<u8>> = old_names
        .filter(|(index, _)| numbers.of(*index).is_some())
        .map(|(_, section)| section.name.to_vec())
        .collect();
    for (index, section) in new.iter().enumerate() {
        sections.push(added(index, section));
        section_names.push(section_name(section.id));
    }
    let names = numbers.of(object.names).unwrap_or_default();
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
        &section_names,
        names as usize,
        symbols,
        old_strings.map_or(&[], |section| section.body),
    )?;
    if let Some(null) = sections.first_mut() {
        null.header = SectionHeader::default();
    }
    let file = OutputFile {
        bytes: PatchedBytes::new(data),
        class: object.class,
        head: file_header(&object),
        sections,
        names,
        start: segments
            .iter()
            .map(|segment| segment.end)
            .max()
            .unwrap_or(FileHeader::size(object.class) as u64),
    };
    file.lay_out(Policy::Objcopy)
}

/// Sets the new size and alignment of a kept section. The section keeps its offset if it is part of
/// a segment.
fn complete(object: &Object<'_>, segments: &[Range<u64>], section: &mut OutputSection) {
    let (start, size) = (section.header.offset, section.size());
    let end = start.saturating_add(size.max(1));
    let is_in = |segment: &Range<u64>| segment.start <= start && end <= segment.end;
    section.fixed = segments.iter().any(is_in) || in_memory_only(object, &section.header);
    if !section.header.is_empty_in_file() {
        section.header.size = size;
    }
    align_table(object.class, &mut section.header);
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

fn added(index: usize, section: &NewSection<'_>) -> OutputSection {
    OutputSection {
        header: SectionHeader {
            kind: elf::SHT_PROGBITS,
            // Linkers omit the section.
            flags: elf::SHF_EXCLUDE,
            offset: u64::MAX,
            size: section.size,
            align: 1,
            ..SectionHeader::default()
        },
        contents: Contents::New {
            index,
            size: section.size,
        },
        fixed: false,
    }
}

/// The ranges of the file header, the program headers and the segments in the file.
fn segments(data: &[u8], object: &Object<'_>) -> Result<Vec<Range<u64>>, Malformed> {
    let (class, head) = (object.class, &object.head);
    if head.phnum == 0 {
        return Ok(Vec::new());
    }
    let [file, _, table] = object.header_ranges()?;
    let mut found = vec![file, table];
    for ProgramHeader { offset, filesz, .. } in head.program_headers(class, data)? {
        slice(data, offset, filesz, "segment past the end", head.phoff)?;
        found.push(offset..offset + filesz);
    }
    Ok(found)
}

/// Rebuilds the string tables and stores the new offsets in section headers and symbols.
fn rebuild_strings(
    class: Class,
    sections: &mut [OutputSection],
    section_names: &[Vec<u8>],
    names: usize,
    symbols: Option<usize>,
    old_strings: &[u8],
) -> Result<(), Malformed> {
    let symbol_names = symbols
        .and_then(|index| sections.get(index))
        .map(|table| table.header.link as usize);
    let rebuilt = |index: usize| {
        // Segments keep their bytes.
        sections.get(index).is_some_and(|section| {
            let header = &section.header;
            header.kind == elf::SHT_STRTAB && !header.is_allocated() && !section.fixed
        })
    };
    if !rebuilt(names) {
        return Err(Malformed::new(
            "section names that are part of the program",
            0,
        ));
    }
    let symbol_names = symbol_names.filter(|index| rebuilt(*index));
    let mut all: Vec<Symbol> = match symbols
        .filter(|_| symbol_names.is_some())
        .and_then(|index| sections.get(index))
    {
        Some(OutputSection {
            contents: Contents::Made(records),
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
    let all_sections = section_names.iter().map(Vec::as_slice);
    if shared {
        section_table.add(all_sections.chain(each_name.iter().copied()));
    } else {
        section_table.add(all_sections);
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
    for (section, name) in sections.iter_mut().zip(section_names) {
        section.header.name = section_table.offset(name) as u32;
    }
    let mut put = |index: usize, bytes: Vec<u8>| {
        if let Some(section) = sections.get_mut(index) {
            section.header.size = bytes.len() as u64;
            section.contents = Contents::Made(bytes);
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

/// The file header with the values of llvm-objcopy.
fn file_header(object: &Object<'_>) -> FileHeader {
    let mut head = object.head;
    // The bytes after the ABI version are reserved.
    head.ident.padding = [0; 7];
    if head.phnum == 0 {
        head.phoff = 0;
        head.phentsize = 0;
    }
    head.ehsize = FileHeader::size(object.class) as u16;
    head
}
