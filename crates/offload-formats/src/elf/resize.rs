//! Gives sections of an ELF file new contents of any size. The result is a list of parts, most of
//! them ranges of the old file, so that no large contents are read or copied.
//!
//! * In a relocatable object, the bytes after the section move in the file, each section at its
//!   alignment.
//! * In a program or shared library, addresses stay. If contents become shorter, whole pages that
//!   are no longer needed are removed from the file. Contents that do not fit into their old range
//!   move after everything that is loaded.

mod program;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use object::elf;

use super::edit::{Contents, OutputFile, OutputSection, Policy};
use super::file::{Object, PatchedBytes, Section};
use super::raw::{FileHeader, Record, SectionHeader, Symbol, extended_indices, section_of_symbol};
use crate::bytes::{overlap, range};
use crate::compose::Part;
use crate::error::Malformed;
pub use program::{divide, with_front_page};

const NO_POINTERS: &str = "cannot add pointers to an object";

/// Error for a program without room for the program headers that it needs. `with_front_page` can
/// make room.
pub const NO_ROOM: &str = "no room for another program header";

/// New size of a section.
#[derive(Debug, Clone, Copy)]
pub struct NewSize {
    /// Index in the section table.
    pub section: usize,
    /// Size in bytes.
    pub size: u64,
    /// Whether contents of a program may start later within their old range if they fit, because
    /// the caller updates all pointers to them. The layout uses this to leave room for the program
    /// headers that other tools add.
    pub may_move: bool,
}

/// Bytes that overwrite those at an offset of the old file. They must be outside of sections with
/// new contents, the file header, the section headers and the program headers.
#[derive(Debug, Clone)]
pub struct Patch {
    /// Offset of the first byte in the old file.
    pub offset: u64,
    /// The new bytes, as many as they replace.
    pub bytes: Vec<u8>,
}

/// Returns the parts, in order, of the ELF file `data` with new section sizes and `patches`. A
/// program or shared library also gets an array of `pointers`: addresses in the file, none of them
/// null, which the loader relocates. `addresses` returns the address of the array.
///
/// Symbols after the new end of a section get its start and size 0, because their addresses have
/// lost their meaning, and other tools warn about symbols outside of their section. Patched symbols
/// stay as they are. Relocations do not change.
///
/// # Errors
/// The file is damaged, or files of its type cannot be changed. A section has no bytes in the file,
/// is listed twice, or shares its bytes with another one or with an indivisible segment. A patch
/// covers bytes that are replaced or rewritten. There is no room for another program header, or for
/// the relocations of pointers.
pub fn plan(
    data: &[u8],
    sizes: &[NewSize],
    patches: &[Patch],
    pointers: &[u64],
) -> Result<Vec<Part>, Malformed> {
    let object = Object::parse_any(data)?;
    let sizes = Sizes::of(&object, sizes)?;
    let mut bytes = PatchedBytes::new(data);
    for patch in patches {
        sizes.check_patch(&object, patch)?;
        bytes.set(patch.offset, &patch.bytes)?;
    }
    match object.head.kind {
        elf::ET_REL if !pointers.is_empty() => Err(Malformed::new(NO_POINTERS, 16)),
        elf::ET_REL => lay_out_object(&object, &sizes, bytes),
        _ => program::lay_out(&object, &sizes, bytes, pointers),
    }
}

/// Returns the parts of a relocatable object with new section sizes.
fn lay_out_object(
    object: &Object<'_>,
    sizes: &Sizes,
    mut bytes: PatchedBytes<'_>,
) -> Result<Vec<Part>, Malformed> {
    correct_symbols(object, sizes, &Renumbered::default(), &mut bytes)?;
    check_apart(object)?;
    let section = |(index, section): (usize, &Section<'_>)| OutputSection {
        header: section.header,
        contents: match sizes.by_index.get(&index) {
            Some(new) => Contents::New {
                index: new.place,
                size: new.size,
            },
            None => Contents::Old(section.body.len() as u64),
        },
        fixed: false,
    };
    let file = OutputFile {
        bytes,
        class: object.class,
        head: object.head,
        sections: object.sections.iter().enumerate().map(section).collect(),
        names: object.names as u32,
        start: FileHeader::size(object.class) as u64,
    };
    file.lay_out(Policy::HeadersInPlace)
}

/// Checks that the file header, the sections and the section headers of an object share no bytes.
fn check_apart(object: &Object<'_>) -> Result<(), Malformed> {
    let table = object.sections.len() * SectionHeader::size(object.class);
    let mut ranges = vec![range(object.head.shoff, table as u64)?];
    for section in object.sections.iter().skip(1) {
        if !section.body.is_empty() {
            ranges.push(range(section.header.offset, section.body.len() as u64)?);
        }
    }
    ranges.sort_by_key(|range| range.start);
    let mut end = FileHeader::size(object.class) as u64;
    for range in ranges {
        if range.start < end {
            return Err(Malformed::new("sections overlap", range.start));
        }
        end = range.end;
    }
    Ok(())
}

/// Returns the addresses of the contents in `sizes`, and of an array of `pointers` pointers (0 if
/// there are none). The addresses equal those in the output of `plan` for the same sizes and number
/// of pointers. Contents that do not fit into their old range move after everything that is loaded.
/// All others stay, or start later if they may move. For relocatable objects and sections that are
/// not loaded, the results have no meaning.
///
/// # Errors
/// Those of `plan`.
pub fn addresses(
    data: &[u8],
    sizes: &[NewSize],
    pointers: usize,
) -> Result<(Vec<u64>, u64), Malformed> {
    let object = Object::parse_any(data)?;
    if object.head.kind != elf::ET_REL {
        return program::addresses(&object, data, sizes, pointers);
    }
    if pointers > 0 {
        return Err(Malformed::new(NO_POINTERS, 16));
    }
    Sizes::of(&object, sizes)?;
    let of = |new: &NewSize| {
        object
            .sections
            .get(new.section)
            .map_or(0, |section| section.header.addr)
    };
    Ok((sizes.iter().map(of).collect(), 0))
}

/// New contents of a section.
#[derive(Debug, Clone, Copy)]
struct NewContents {
    /// Index in the caller's list.
    place: usize,
    /// Size in bytes.
    size: u64,
}

/// The sections that get new contents.
#[derive(Clone, Default)]
struct Sizes {
    /// New contents by section index.
    by_index: BTreeMap<usize, NewContents>,
    /// The sections whose contents may start at a later address.
    movable: BTreeSet<usize>,
}

impl Sizes {
    fn of(object: &Object<'_>, sizes: &[NewSize]) -> Result<Sizes, Malformed> {
        let table = object.head.shoff;
        let mut all = Sizes::default();
        for (place, new) in sizes.iter().enumerate() {
            let section = object
                .sections
                .get(new.section)
                .ok_or(Malformed::new("no such section", table))?;
            if new.section == 0 || section.header.is_empty_in_file() {
                return Err(Malformed::new(
                    "cannot add contents to a section without bytes in the file",
                    section.header.offset,
                ));
            }
            let contents = NewContents {
                place,
                size: new.size,
            };
            if all.by_index.insert(new.section, contents).is_some() {
                return Err(Malformed::new(
                    "new contents for the same section twice",
                    section.header.offset,
                ));
            }
            if new.may_move {
                all.movable.insert(new.section);
            }
        }
        Ok(all)
    }

    fn of_section(&self, index: usize) -> Option<u64> {
        self.by_index.get(&index).map(|new| new.size)
    }

    /// Checks that a patch changes no bytes that are replaced or rewritten.
    fn check_patch(&self, object: &Object<'_>, patch: &Patch) -> Result<(), Malformed> {
        let fault = |what| Err(Malformed::new(what, patch.offset));
        let patched = range(patch.offset, patch.bytes.len() as u64)?;
        for index in self.by_index.keys() {
            let of_section = object.sections.get(*index).map(|section| section.header);
            if let Some(header) = of_section
                && overlap(&patched, &range(header.offset, header.size)?)
            {
                return fault("patched bytes are in a section with new contents");
            }
        }
        let head = &object.head;
        let sections = (object.sections.len() as u64).saturating_mul(head.shentsize.into());
        let segments = u64::from(head.phnum) * u64::from(head.phentsize);
        for (at, size) in [
            (0, head.ehsize.into()),
            (head.shoff, sections),
            (head.phoff, segments),
        ] {
            if overlap(&patched, &range(at, size)?) {
                return fault("patched bytes are in the headers of the file");
            }
        }
        Ok(())
    }
}

// Updates the symbols of a file whose sections become shorter, move, or get new numbers.

/// New numbers and addresses of sections.
#[derive(Debug, Default)]
struct Renumbered {
    /// New number of each section. Empty if all numbers stay.
    pub numbers: Vec<u32>,
    /// Distance by which each section moves in memory, modulo 2^64.
    pub moved: BTreeMap<usize, u64>,
}

impl Renumbered {
    /// Returns the new number of section `old`.
    fn number(&self, old: u32) -> u32 {
        self.numbers.get(old as usize).copied().unwrap_or(old)
    }
}

/// Updates both symbol tables: the one for linkers and debuggers, and the one for the loader.
fn correct_symbols(
    object: &Object<'_>,
    sizes: &Sizes,
    renumbered: &Renumbered,
    bytes: &mut PatchedBytes<'_>,
) -> Result<(), Malformed> {
    for (index, table) in object.sections.iter().enumerate() {
        if matches!(table.header.kind, elf::SHT_SYMTAB | elf::SHT_DYNSYM)
            && sizes.of_section(index).is_none()
        {
            correct_symbol_table(object, index, table, sizes, renumbered, bytes)?;
        }
    }
    Ok(())
}

fn correct_symbol_table(
    object: &Object<'_>,
    index: usize,
    table: &Section<'_>,
    sizes: &Sizes,
    renumbered: &Renumbered,
    bytes: &mut PatchedBytes<'_>,
) -> Result<(), Malformed> {
    let class = object.class;
    let size = Symbol::size(class);
    let extended =
        extended_indices(object.headers(), index).and_then(|index| object.sections.get(index));
    for (number, record) in table.body.chunks_exact(size).enumerate() {
        let Some(symbol) = Symbol::of(class, record) else {
            continue;
        };
        let Some(section) = section_of_symbol(
            class,
            number,
            symbol.shndx,
            extended.map(|section| section.body),
        ) else {
            continue;
        };
        let at = table.header.offset + (number * size) as u64;
        let new_number = renumbered.number(section);
        let is_patched = bytes.is_changed(at..at + size as u64);
        let new = if is_patched {
            None
        } else {
            corrected_symbol(object, sizes, renumbered, &symbol, section)
        };
        if new_number != section && symbol.shndx == elf::SHN_XINDEX {
            let indices = extended.ok_or(Malformed::new("a symbol without a section", at))?;
            bytes.set(
                indices.header.offset + number as u64 * 4,
                &class.word_bytes(new_number),
            )?;
        }
        let new_short = u16::try_from(new_number)
            .ok()
            .filter(|_| new_number != section && symbol.shndx != elf::SHN_XINDEX);
        if new.is_none() && new_short.is_none() {
            continue;
        }
        let current = bytes.get(at, size as u64)?;
        let current =
            Symbol::of(class, &current).ok_or(Malformed::new("a symbol past the end", at))?;
        let (value, length) = new.unwrap_or((current.value, current.size));
        let shndx = new_short.map_or(current.shndx, elf::SymbolSection);
        bytes.set(
            at,
            &Symbol {
                value,
                size: length,
                shndx,
                ..current
            }
            .to_bytes(class),
        )?;
    }
    Ok(())
}

/// Returns the new value and size of a symbol of `section`. `None` if both stay.
fn corrected_symbol(
    object: &Object<'_>,
    sizes: &Sizes,
    renumbered: &Renumbered,
    symbol: &Symbol,
    section: u32,
) -> Option<(u64, u64)> {
    let index = section as usize;
    let distance = renumbered.moved.get(&index).copied();
    let moved = |value: u64| value.wrapping_add(distance.unwrap_or_default());
    let as_it_is = distance.map(|_| (moved(symbol.value), symbol.size));
    let header = object.sections.get(index)?.header;
    let start = if object.head.kind == elf::ET_REL {
        0
    } else {
        header.addr
    };
    let (Some(new_size), Some(within)) = (sizes.of_section(index), symbol.value.checked_sub(start))
    else {
        return as_it_is;
    };
    if within > header.size || within.saturating_add(symbol.size) <= new_size {
        return as_it_is;
    }
    // The bytes of the symbol have been removed. Other tools treat a symbol of size 0 at the start
    // of a section as a label.
    Some(if within >= new_size {
        (moved(start), 0)
    } else {
        (moved(symbol.value), new_size - within)
    })
}
