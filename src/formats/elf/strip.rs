//! Takes debug information out of device images: AMD's, NVIDIA's and those for CPUs. What a runtime
//! loads stays as it is, to the byte: segments, addresses, symbols, notes, and what NVIDIA's images
//! say of their kernels. The result is a list of parts, most of them ranges of the old file.
//!
//! Debug sections go with their headers where no number changes by that which something else refers
//! to. NVIDIA's images refer to sections and symbols by number from places that are documented
//! nowhere, so there the headers stay and the sections become empty.

mod layout;
#[cfg(test)]
mod tests;

use object::elf;

use super::edit::{Numbers, renumber};
use super::file::{Object, Section};
use super::raw::{Class, Record, SectionHeader, Symbol, section_of_symbol};
use crate::error::Malformed;
use crate::formats::compose::Part;
use layout::Layout;

/// The parts of the ELF file `data` without its debug sections and the relocations of these; one
/// part, all of it, where it has none.
///
/// In NVIDIA's images `.debug_frame` stays: their assembler writes it without being asked for debug
/// information, too. So do sections that are loaded, and those whose bytes are also bytes of
/// something that stays.
///
/// # Errors
/// The file is damaged.
///
/// ```
/// use object::write::Object;
/// use object::{Architecture, BinaryFormat, Endianness, File, Object as _, ObjectSection as _, SectionKind};
/// use offld::formats::compose::join;
/// use offld::formats::elf::strip::strip_debug;
///
/// let mut image = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
/// for (name, kind) in [(".text", SectionKind::Text), (".debug_info", SectionKind::Debug)] {
///     let section = image.add_section(Vec::new(), name.into(), kind);
///     image.set_section_data(section, vec![7; 1000], 1);
/// }
/// let image = image.write()?;
/// let stripped = join(&image, &strip_debug(&image)?, &[])?;
/// assert!(stripped.len() < image.len() - 900);
/// assert_eq!(File::parse(&*stripped)?.section_by_name(".text").map(|section| section.size()), Some(1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn strip_debug(data: &[u8]) -> Result<Vec<Part>, Malformed> {
    let object = Object::parse_any(data)?;
    let asked = debug_sections(&object);
    let Some((layout, gone)) = without(data, &object, asked)? else {
        return Ok(vec![Part::Old(0..data.len() as u64)]);
    };
    let headers: Vec<SectionHeader> = object.headers().collect();
    let removed = if keeps_numbers(&object, &gone) {
        remove(&headers, &gone)
    } else {
        None
    };
    let (headers, names) = match removed {
        Some((headers, numbers)) => (headers, numbers.of(object.names).unwrap_or(0)),
        None => (emptied(headers, &gone), object.names as u32),
    };
    Ok(layout.parts(&object, headers, names))
}

/// Which sections are debug information.
fn debug_sections(object: &Object<'_>) -> Vec<bool> {
    let nvidia = object.head.machine == elf::EM_CUDA;
    let debug = |section: &Section<'_>| {
        !section.header.is_empty_for(object.head.machine) && is_debug(section, nvidia)
    };
    let mut debug: Vec<bool> = object.sections.iter().map(debug).collect();
    for (index, section) in object.sections.iter().enumerate() {
        let of_debug = section.header.is_relocations()
            && !section.header.is_allocated()
            && debug.get(section.header.info as usize) == Some(&true);
        if let Some(debug) = debug.get_mut(index).filter(|_| of_debug) {
            *debug = true;
        }
    }
    debug
}

fn is_debug(section: &Section<'_>, nvidia: bool) -> bool {
    if section.header.is_allocated() || section.header.size == 0 {
        return false;
    }
    // NVIDIA has a second set of many sections, for its finalizer, with relocations of a type of
    // its own.
    let name = section
        .name
        .strip_prefix(b".nv.merc")
        .filter(|_| nvidia)
        .unwrap_or(section.name);
    let name = [&b".rela"[..], b".rel"]
        .into_iter()
        .find_map(|start| name.strip_prefix(start))
        .filter(|_| nvidia)
        .unwrap_or(name);
    if nvidia && name == b".debug_frame" {
        return false;
    }
    let starts = [&b".debug_"[..], b".zdebug_", b".nv_debug_"];
    starts.into_iter().any(|start| name.starts_with(start)) || name == b".gdb_index"
}

/// The layout of the file without the sections that are `asked` for, and which of these go. None
/// where none can.
fn without(
    data: &[u8],
    object: &Object<'_>,
    asked: Vec<bool>,
) -> Result<Option<(Layout, Vec<bool>)>, Malformed> {
    let mut gone = asked;
    // A section that has to stay may keep another one that has bytes in common with it.
    for _ in 0..3 {
        if !gone.contains(&true) {
            return Ok(None);
        }
        let layout = Layout::of(data, object, &gone)?;
        let stays = layout.in_use(object, &gone);
        if !stays.contains(&true) {
            return Ok(Some((layout, gone)));
        }
        gone.iter_mut()
            .zip(stays)
            .for_each(|(gone, stays)| *gone &= !stays);
    }
    Ok(None)
}

/// Whether the sections that are gone can leave without a change of any number that something other
/// than the table of sections holds.
fn keeps_numbers(object: &Object<'_>, gone: &[bool]) -> bool {
    let is_linked = matches!(object.head.kind, elf::ET_EXEC | elf::ET_DYN);
    let first = gone.iter().position(|gone| *gone).unwrap_or(gone.len());
    let behind = || object.sections.iter().skip(first);
    let in_table_only = behind()
        .all(|section| !section.header.is_allocated() && section.header.kind != elf::SHT_GROUP);
    let extended = object
        .sections
        .iter()
        .any(|section| section.header.kind == elf::SHT_SYMTAB_SHNDX);
    object.head.machine != elf::EM_CUDA
        && is_linked
        && in_table_only
        && !extended
        && object
            .sections
            .iter()
            .all(|section| !refers_behind(object.class, section, first))
}

/// Whether `section` is a symbol table with a symbol of a section from number `first` on.
fn refers_behind(class: Class, section: &Section<'_>, first: usize) -> bool {
    if !matches!(section.header.kind, elf::SHT_SYMTAB | elf::SHT_DYNSYM) {
        return false;
    }
    let symbols = section
        .body
        .chunks_exact(Symbol::size(class))
        .filter_map(|record| Symbol::of(class, record));
    let sections = symbols.filter_map(|symbol| section_of_symbol(class, 0, symbol.shndx, None));
    sections.into_iter().any(|number| number as usize >= first)
}

/// The headers of the sections that stay, and the new numbers. None where one of them needs one
/// that is gone.
fn remove(headers: &[SectionHeader], gone: &[bool]) -> Option<(Vec<SectionHeader>, Numbers)> {
    let numbers = Numbers::without(gone);
    let mut kept = Vec::new();
    for (header, _) in headers.iter().zip(gone).filter(|(_, gone)| !**gone) {
        let mut header = *header;
        renumber(&mut header, &numbers).ok()?;
        kept.push(header);
    }
    Some((kept, numbers))
}

/// The headers, with those of the sections that are gone empty.
fn emptied(mut headers: Vec<SectionHeader>, gone: &[bool]) -> Vec<SectionHeader> {
    for (header, _) in headers.iter_mut().zip(gone).filter(|(_, gone)| **gone) {
        header.size = 0;
    }
    headers
}
