//! The symbols of a rewritten COFF object: removes those of removed sections, and updates all
//! symbol indices and section numbers.

use std::collections::BTreeSet;

use super::{Body, Object, Relocations, Symbol, is_long};
use crate::bundled_object::Strings;
use crate::bytes::{little_endian, overwrite, slice, u16_at};
use crate::coff::RELOCATION_SIZE;
use crate::error::Malformed;

/// The size of the contents of an auxiliary record, also in big objects.
const AUX_SIZE: usize = 18;
/// Storage classes.
const STATIC: u8 = 3;
const FILE: u8 = 103;
const WEAK_EXTERNAL: u8 = 105;
const EXTERNAL: u8 = 2;
/// The COMDAT selection of a section that is linked only if its associated section is.
const ASSOCIATIVE: u8 = 5;
/// Sections whose contents are lists of symbol indices.
const INDEX_SECTIONS: [&[u8]; 4] = [b".gljmp$y", b".giats$y", b".gfids$y", b".gehcont$y"];

/// The new symbol table.
pub(super) struct Table {
    pub bytes: Vec<u8>,
    /// The number of records.
    pub count: u32,
}

impl Symbol<'_> {
    fn aux_count(&self, size: usize) -> usize {
        self.aux.len() / size
    }

    /// For a section symbol: the number of the associated section, and the COMDAT selection.
    fn section_definition(&self, big: bool) -> Option<(u32, u8)> {
        // Section symbols are static. Other symbols with such a record are functions.
        let defines = self.class == STATIC && !self.aux.is_empty() && self.section > 0;
        let half = |at: usize| u32::from(u16_at(self.aux, at));
        let high = if big { half(16) } else { 0 };
        let selection = *self.aux.get(14).filter(|_| defines)?;
        Some((high << 16 | half(12), selection))
    }

    /// Whether the auxiliary record has the index of a fallback symbol for an undefined one.
    fn is_weak(&self) -> bool {
        self.class == WEAK_EXTERNAL
            || self.class == EXTERNAL && self.section == 0 && self.value == 0
    }
}

/// Removes the sections for which `remove` is true, their associated sections, and the symbols of
/// both.
pub(super) fn remove_sections(
    object: &mut Object<'_>,
    remove: &dyn Fn(&[u8]) -> bool,
) -> Result<(), Malformed> {
    let big = object.big;
    let mut removed: BTreeSet<u32> = BTreeSet::new();
    let mut next: BTreeSet<u32> = (1..)
        .zip(&object.sections)
        .filter(|(_, section)| remove(section.name))
        .map(|(number, _)| number)
        .collect();
    if next.is_empty() {
        return Ok(());
    }
    while !next.is_empty() {
        removed.append(&mut next);
        for symbol in &object.symbols {
            if let Some((with, ASSOCIATIVE)) = symbol.section_definition(big)
                && removed.contains(&with)
                && !removed.contains(&(symbol.section as u32))
            {
                next.insert(symbol.section as u32);
            }
        }
    }
    let mut numbers = 1..;
    object
        .numbers
        .iter_mut()
        .zip(1..)
        .for_each(|(new, number)| {
            *new = if removed.contains(&number) {
                None
            } else {
                numbers.next()
            }
        });
    let mut number = 0;
    object.sections.retain(|_| {
        number += 1;
        !removed.contains(&number)
    });
    let size = object.symbol_size();
    let mut indices = Vec::new();
    let mut index = 0;
    for symbol in &object.symbols {
        let records = 1 + symbol.aux_count(size) as u32;
        let stays = symbol.section <= 0 || !removed.contains(&(symbol.section as u32));
        for record in 0..records {
            indices.push(stays.then_some(index + record));
        }
        index += if stays { records } else { 0 };
    }
    object
        .symbols
        .retain(|symbol| symbol.section <= 0 || !removed.contains(&(symbol.section as u32)));
    if indices.contains(&None) {
        renumber_lists(object, &indices)?;
        object.indices = Some(indices);
    }
    Ok(())
}

/// Updates the indices in sections that list symbols.
fn renumber_lists(object: &mut Object<'_>, indices: &[Option<u32>]) -> Result<(), Malformed> {
    for section in object
        .sections
        .iter_mut()
        .filter(|section| INDEX_SECTIONS.contains(&section.name))
    {
        let Body::Lent(at) = section.body else {
            continue;
        };
        let mut bytes = slice(
            object.data,
            at,
            section.raw_size.into(),
            "section past the end",
            at,
        )?
        .to_vec();
        for (place, field) in bytes.chunks_exact_mut(4).enumerate() {
            put_index(indices, field, at + 4 * place as u64)?;
        }
        section.checksum = Some(checksum(&bytes));
        section.body = Body::Made(bytes);
    }
    Ok(())
}

/// The checksum in a section symbol: a CRC-32 without the inversions at its start and end.
fn checksum(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let bit = |sum: u32| {
        if sum & 1 == 0 {
            sum >> 1
        } else {
            sum >> 1 ^ POLYNOMIAL
        }
    };
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| bit(sum))
    })
}

/// Replaces an index into the symbol table by the new one.
fn put_index(indices: &[Option<u32>], field: &mut [u8], at: u64) -> Result<(), Malformed> {
    let new = indices
        .get(little_endian(field) as usize)
        .ok_or(Malformed::new("an index past the symbols", at))?;
    let new = new.ok_or(Malformed::new(
        "a symbol of a removed section is still used",
        at,
    ))?;
    field
        .iter_mut()
        .zip(new.to_le_bytes())
        .for_each(|(to, from)| *to = from);
    Ok(())
}

/// The relocations of a section with new symbol indices, or `None` if no index has changed.
pub(super) fn relocations(
    object: &Object<'_>,
    relocations: &Relocations,
) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(indices) = object.indices.as_ref().filter(|_| relocations.count > 0) else {
        return Ok(None);
    };
    let size = RELOCATION_SIZE * u64::from(relocations.count);
    let mut bytes = slice(
        object.data,
        relocations.at,
        size,
        "relocations past the end",
        relocations.at,
    )?
    .to_vec();
    for (index, record) in bytes.chunks_exact_mut(RELOCATION_SIZE as usize).enumerate() {
        let at = relocations.at + RELOCATION_SIZE * index as u64;
        let symbol = record
            .get_mut(4..8)
            .ok_or(Malformed::new("relocations past the end", at))?;
        put_index(indices, symbol, at)?;
    }
    Ok(Some(bytes))
}

/// The symbol table of the new object. `big`: whether the new object is a big object; the old one
/// may be of either format.
pub(super) fn table(
    object: &Object<'_>,
    strings: &Strings<'_>,
    big: bool,
) -> Result<Table, Malformed> {
    let old_size = object.symbol_size();
    let size = if big { 20 } else { 18 };
    let mut bytes = Vec::new();
    for symbol in &object.symbols {
        let section = match u32::try_from(symbol.section).unwrap_or(0) {
            0 => symbol.section as u32,
            number => new_section(object, number)?,
        };
        if is_long(symbol.name) {
            let offset =
                u32::try_from(strings.offset(symbol.name)).map_err(|_| super::TOO_LARGE)?;
            bytes.extend([0; 4]);
            bytes.extend(offset.to_le_bytes());
        } else {
            bytes.extend(symbol.name);
            bytes.resize(bytes.len() + 8 - symbol.name.len(), 0);
        }
        bytes.extend(symbol.value.to_le_bytes());
        bytes.extend(section.to_le_bytes().iter().take(if big { 4 } else { 2 }));
        bytes.extend(symbol.kind.to_le_bytes());
        bytes.push(symbol.class);
        let aux = aux(object, symbol, section, old_size, size)?;
        bytes.push((aux.len() / size) as u8);
        bytes.extend(aux);
    }
    let count = u32::try_from(bytes.len() / size).map_err(|_| super::TOO_LARGE)?;
    Ok(Table { bytes, count })
}

fn new_section(object: &Object<'_>, number: u32) -> Result<u32, Malformed> {
    let new = object.numbers.get(number as usize - 1).copied().flatten();
    new.ok_or(Malformed::new("a removed section is still used", 0))
}

/// The auxiliary records of a symbol, padded to `size` bytes each.
fn aux(
    object: &Object<'_>,
    symbol: &Symbol<'_>,
    section: u32,
    old_size: usize,
    size: usize,
) -> Result<Vec<u8>, Malformed> {
    if symbol.class == FILE {
        // The records together hold one long text.
        let text = symbol
            .aux
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let mut records = symbol.aux.get(..text).unwrap_or_default().to_vec();
        let len = if text == 0 {
            symbol.aux_count(old_size) * size
        } else {
            text.next_multiple_of(size)
        };
        records.resize(len, 0);
        return Ok(records);
    }
    let mut records: Vec<u8> = Vec::new();
    for record in symbol.aux.chunks_exact(old_size) {
        let start = records.len();
        records.extend_from_slice(record.get(..AUX_SIZE).unwrap_or_default());
        records.resize(start + size, 0);
    }
    let one = symbol.aux_count(old_size) == 1;
    if one && symbol.class == STATIC && symbol.section > 0 {
        // The section that a COMDAT is associated with, or the symbol's own.
        let with = match symbol.section_definition(object.big) {
            Some((with, ASSOCIATIVE)) if with > 0 => new_section(object, with)?,
            _ => section,
        };
        let [low, high] = [with as u16, (with >> 16) as u16];
        let changed = section
            .checked_sub(1)
            .and_then(|index| object.sections.get(index as usize)?.checksum);
        let changed = changed.filter(|_| symbol.value == 0).map(u32::to_le_bytes);
        for (at, bytes) in [
            (12, &low.to_le_bytes()[..]),
            (16, &high.to_le_bytes()),
            (8, changed.as_ref().map_or(&[], |sum| sum)),
        ] {
            overwrite(&mut records, at, bytes);
        }
    }
    if let Some(indices) = object.indices.as_ref().filter(|_| one && symbol.is_weak()) {
        let field = records
            .get_mut(..4)
            .ok_or(Malformed::new("a symbol's record is cut short", 0))?;
        put_index(indices, field, 0)?;
    }
    Ok(records)
}
