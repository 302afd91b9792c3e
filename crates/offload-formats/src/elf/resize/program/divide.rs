//! Divides sections of a program: ranges of them become separate sections that can get new
//! contents. Only the section names and the section headers move.

use std::ops::Range;

use object::elf;

use crate::bytes::overlap;
use crate::compose::Part;
use crate::elf::edit::tables;
use crate::elf::file::{Object, PatchedBytes};
use crate::elf::raw::{Record, SectionHeader, Symbol, section_of_symbol};
use crate::error::Malformed;

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
