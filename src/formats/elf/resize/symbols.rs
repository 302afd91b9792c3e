//! Updates the symbols of a file whose sections become shorter, move, or get new numbers.

use std::collections::BTreeMap;

use object::elf;

use super::Sizes;
use crate::error::Malformed;
use crate::formats::elf::file::{Object, PatchedBytes, Section};
use crate::formats::elf::raw::{Record, Symbol, extended_indices, section_of_symbol};

/// New numbers and addresses of sections.
#[derive(Debug, Default)]
pub(super) struct Renumbered {
    /// New number of each section. Empty if all numbers stay.
    pub numbers: Vec<u32>,
    /// Distance by which each section moves in memory, modulo 2^64.
    pub moved: BTreeMap<usize, u64>,
}

impl Renumbered {
    /// Returns the new number of section `old`.
    pub(super) fn number(&self, old: u32) -> u32 {
        self.numbers.get(old as usize).copied().unwrap_or(old)
    }
}

/// Updates both symbol tables: the one for linkers and debuggers, and the one for the loader.
pub(super) fn correct(
    object: &Object<'_>,
    sizes: &Sizes,
    renumbered: &Renumbered,
    bytes: &mut PatchedBytes<'_>,
) -> Result<(), Malformed> {
    for (index, table) in object.sections.iter().enumerate() {
        if matches!(table.header.kind, elf::SHT_SYMTAB | elf::SHT_DYNSYM)
            && sizes.of_section(index).is_none()
        {
            correct_table(object, index, table, sizes, renumbered, bytes)?;
        }
    }
    Ok(())
}

fn correct_table(
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
            corrected(object, sizes, renumbered, &symbol, section)
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
fn corrected(
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
