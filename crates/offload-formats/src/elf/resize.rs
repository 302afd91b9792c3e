//! Gives sections of an ELF file new contents of any size. The result is a list of parts, most of
//! them ranges of the old file, so that no large contents are read or copied.
//!
//! * In a relocatable object, the bytes after the section move in the file, each section at its
//!   alignment.
//! * In a program or shared library, addresses stay. If contents become shorter, whole pages that
//!   are no longer needed are removed from the file. Contents that do not fit into their old range
//!   move after everything that is loaded.
//!
//! [`divide`] makes ranges of a program's sections separate sections that can get new contents.

mod program;
#[cfg(test)]
mod tests;

pub use program::with_front_page;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use object::elf;

use super::edit::{Contents, OutputFile, OutputSection, Policy, tables};
use super::file::{Object, PatchedBytes, Section};
use super::raw::{FileHeader, Record, SectionHeader, Symbol, extended_indices, section_of_symbol};
use crate::bytes::{overlap, range};
use crate::compose::Part;
use crate::error::Malformed;

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
        let headers = object.header_ranges()?;
        if headers.iter().any(|header| overlap(&patched, header)) {
            return fault("patched bytes are in the headers of the file");
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

// Divides sections of a program. Only the section names and the section headers move.

/// Alignment of the section headers.
const TABLE_ALIGN: u64 = 8;

/// A section of the new file: an old section, or a part of one.
struct Piece {
    /// Old index of the section.
    old: usize,
    header: SectionHeader,
}

/// Returns the parts, in order, of the program or shared library `data`, in which each of the file
/// ranges `ranges` is a section with the name `name`. The ranges must be in order and must not
/// overlap, and each must be within one loaded section.
///
/// # Errors
/// The file is damaged or a relocatable object, a range is not within one loaded section, or the
/// section names are loaded.
pub fn divide(data: &[u8], ranges: &[Range<u64>], name: &[u8]) -> Result<Vec<Part>, Malformed> {
    let object = Object::parse_any(data)?;
    let strings = object
        .sections
        .get(object.names)
        .ok_or(Malformed::new("no section names", object.head.shoff))?;
    if !matches!(object.head.kind, elf::ET_EXEC | elf::ET_DYN) || strings.header.is_allocated() {
        return Err(Malformed::new("cannot divide sections of this file", 0));
    }
    let mut names = strings.body.to_vec();
    let name_at =
        u32::try_from(names.len()).map_err(|_| Malformed::new("section names are too long", 0))?;
    names.extend(name.iter().chain(&[0]));
    let mut pieces = pieces(&object, ranges, name_at)?;
    let number = |old: u32| first_of(&pieces, old) as u32;
    let linked: Vec<(u32, u32)> = pieces
        .iter()
        .map(|Piece { header, .. }| {
            (
                number(header.link),
                if header.info_is_section() {
                    number(header.info)
                } else {
                    header.info
                },
            )
        })
        .collect();
    let names_index = number(object.names as u32);
    let mut bytes = PatchedBytes::new(data);
    symbols(&object, &pieces, &mut bytes)?;
    // Section names and section headers at the end of the file are replaced.
    let table = object.head.shoff
        ..object.head.shoff + (object.sections.len() * SectionHeader::size(object.class)) as u64;
    let behind = strings.header.offset + strings.header.size;
    let is_end = table.end == object.size && (behind..behind + TABLE_ALIGN).contains(&table.start);
    let end = if is_end {
        strings.header.offset
    } else {
        object.size
    };
    let table_at = (end + names.len() as u64).next_multiple_of(TABLE_ALIGN);
    for (piece, (link, info)) in pieces.iter_mut().zip(linked) {
        (piece.header.link, piece.header.info) = (link, info);
        if piece.old == object.names {
            (piece.header.offset, piece.header.size) = (end, names.len() as u64);
        }
    }
    names.resize((table_at - end) as usize, 0);
    let headers = pieces.iter().map(|piece| piece.header).collect();
    let (head, table) = tables(object.class, object.head, headers, names_index, table_at);
    bytes.set(0, &head)?;
    let mut parts = Vec::new();
    bytes.emit(0..end, &mut parts);
    parts.extend([Part::Bytes(names), Part::Bytes(table)]);
    Ok(parts)
}

/// Returns the new index of the first part of the section with the index `old`.
fn first_of(pieces: &[Piece], old: u32) -> usize {
    pieces.partition_point(|piece| piece.old < old as usize)
}

/// Returns the sections of the new file, in order.
fn pieces(object: &Object<'_>, ranges: &[Range<u64>], name: u32) -> Result<Vec<Piece>, Malformed> {
    let mut all = Vec::new();
    let mut found = 0;
    for (old, section) in object.sections.iter().enumerate() {
        let header = section.header;
        let end = header.offset.saturating_add(section.body.len() as u64);
        let mut at = header.offset;
        let is_loaded = header.is_allocated() && header.kind == elf::SHT_PROGBITS;
        let inside = ranges
            .iter()
            .filter(|range| is_loaded && overlap(range, &(header.offset..end)));
        let part = |range: Range<u64>| {
            let addr = header.addr.wrapping_add(range.start - header.offset);
            let align = header.align.min(1 << addr.trailing_zeros().min(62));
            SectionHeader {
                addr,
                offset: range.start,
                size: range.end - range.start,
                align,
                ..header
            }
        };
        for range in inside {
            if range.start < at || range.end > end {
                return Err(Malformed::new(
                    "a range that is not within one section",
                    range.start,
                ));
            }
            if range.start > at {
                all.push(Piece {
                    old,
                    header: part(at..range.start),
                });
            }
            let own = part(range.clone());
            all.push(Piece {
                old,
                header: SectionHeader {
                    name,
                    flags: elf::SHF_ALLOC,
                    entsize: 0,
                    ..own
                },
            });
            (at, found) = (range.end, found + 1);
        }
        if at == header.offset {
            all.push(Piece { old, header });
        } else if at < end {
            all.push(Piece {
                old,
                header: part(at..end),
            });
        }
    }
    match ranges.get(found) {
        None => Ok(all),
        Some(range) => Err(Malformed::new(
            "a range outside of all sections",
            range.start,
        )),
    }
}

/// Updates the section numbers of symbols.
fn symbols(
    object: &Object<'_>,
    pieces: &[Piece],
    bytes: &mut PatchedBytes<'_>,
) -> Result<(), Malformed> {
    let class = object.class;
    for table in object
        .sections
        .iter()
        .filter(|table| matches!(table.header.kind, elf::SHT_SYMTAB | elf::SHT_DYNSYM))
    {
        for (number, record) in table.body.chunks_exact(Symbol::size(class)).enumerate() {
            let Some(symbol) = Symbol::of(class, record) else {
                continue;
            };
            let at = table.header.offset + (number * record.len()) as u64;
            let Some(old) = section_of_symbol(class, number, symbol.shndx, None) else {
                if symbol.shndx == elf::SHN_XINDEX {
                    return Err(Malformed::new(
                        "too many sections for the indices of symbols",
                        at,
                    ));
                }
                continue;
            };
            let (from, to) = (
                first_of(pieces, old),
                first_of(pieces, old.saturating_add(1)),
            );
            let is_in =
                |piece: &Piece| symbol.value.wrapping_sub(piece.header.addr) < piece.header.size;
            // A symbol at the end of the section belongs to the section's last part.
            let new = pieces
                .get(from..to)
                .and_then(|parts| parts.iter().position(is_in))
                .map_or(to.wrapping_sub(1), |at| from + at);
            let new = u16::try_from(new)
                .ok()
                .filter(|new| from < to && *new < elf::SHN_LORESERVE);
            let new = new.ok_or(Malformed::new("a symbol without a section", at))?;
            if u32::from(new) != old {
                bytes.set(
                    at,
                    &Symbol {
                        shndx: elf::SymbolSection(new),
                        ..symbol
                    }
                    .to_bytes(class),
                )?;
            }
        }
    }
    Ok(())
}
