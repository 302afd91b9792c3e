//! Entry tables with the names of kernels and variables.

use anyhow::{Context, Result};

use super::address_space::{AddressSpace, Pointer};
use super::{Entry, Table};
use crate::error::Malformed;
use crate::formats::c_string;
use crate::formats::offload_entries::{self, EntryTable};
use crate::formats::offload_sections;
use crate::model::{Generation, OffloadKind, OffloadKinds};
use crate::registration::entries::{Field, NARROW_ENTRY, WIDE_ENTRY};
use crate::registration::fatbin::{EntryField, NARROW_READS, Read, WIDE_READS};

/// Returns the tables of the file `data`, by the names of their sections.
pub(super) fn sections(data: &[u8]) -> Result<Vec<EntryTable>> {
    offload_entries::tables(data).context("cannot read the entry tables")
}

/// Reads the entries of `tables`.
pub(super) fn read(space: &AddressSpace<'_>, tables: Vec<EntryTable>) -> Result<Vec<Table>> {
    let mut all = Vec::new();
    // Entries may share their names. But compilers never write names whose total length exceeds the
    // file's.
    let mut left = space.size().saturating_mul(4);
    for table in tables {
        for section in space
            .sections
            .iter()
            .filter(|section| section.name == table.section)
        {
            let mut found = Table {
                section: table.section.clone(),
                offset: section.offset,
                size: section.size,
                entry_size: table.entry_size(),
                entries: Vec::new(),
            };
            if let Some((generation, size)) = table.generation.zip(found.entry_size) {
                let layout = Layout::of(generation, &table.section, space.word);
                let count = section.size / size;
                for entry in (0..count).filter_map(|index| {
                    layout
                        .entry(space, section.address + index * size)
                        .transpose()
                }) {
                    let entry = entry.with_context(|| table.section.clone())?;
                    left = left
                        .checked_sub(entry.name.as_ref().map_or(0, |name| name.len() as u64))
                        .with_context(|| {
                            format!(
                                "{}: the entry names are longer than the file",
                                table.section
                            )
                        })?;
                    found.entries.push(entry);
                }
            }
            all.push(found);
        }
    }
    Ok(all)
}

/// The offsets of an entry's fields.
struct Layout {
    fields: &'static [Field],
    reads: &'static [Read],
    word: u64,
    /// The kinds that the section's name gives its entries; none if each entry has its own.
    kinds: Option<OffloadKinds>,
}

impl Layout {
    fn of(generation: Generation, section: &str, word: u64) -> Layout {
        let (fields, reads) = if generation.wide_entries() {
            (WIDE_ENTRY, WIDE_READS)
        } else {
            (NARROW_ENTRY, NARROW_READS)
        };
        let kinds = offload_sections::known(section.as_bytes(), false)
            .and_then(|known| known.kind)
            .map(|kind| OffloadKinds::default().with(kind));
        Layout {
            fields,
            reads,
            word,
            kinds,
        }
    }

    /// Returns the offset and the type of a field in an entry.
    fn at(&self, wanted: EntryField) -> Option<(u64, Field)> {
        let index = self.reads.iter().find(|read| read.field == wanted)?.index as usize;
        let offset = self
            .fields
            .get(..index)?
            .iter()
            .map(|field| self.size(*field))
            .sum();
        Some((offset, *self.fields.get(index)?))
    }

    /// Returns the size of a field in bytes. Entries are packed: their layout has no gaps on any
    /// host.
    fn size(&self, field: Field) -> u64 {
        match field {
            Field::U8 => 1,
            Field::U16 => 2,
            Field::U32 => 4,
            Field::U64 => 8,
            Field::Size | Field::Pointer => self.word,
        }
    }

    fn number(&self, space: &AddressSpace<'_>, entry: u64, field: EntryField) -> Option<u64> {
        let (offset, kind) = self.at(field)?;
        space.number(entry + offset, self.size(kind))
    }

    /// Reads the entry at an address. Returns none if it is all zeros, which is padding.
    fn entry(&self, space: &AddressSpace<'_>, address: u64) -> Result<Option<Entry>> {
        let offset = space.offset(address).unwrap_or_default();
        let damaged = || Malformed::new("an entry past the end of its section", offset);
        let number = |field| self.number(space, address, field);
        let (name_at, _) = self.at(EntryField::Name).ok_or_else(damaged)?;
        let pointer = space.pointer(address + name_at);
        let size = number(EntryField::Size).ok_or_else(damaged)?;
        let raw_kind = number(EntryField::Kind).unwrap_or_default();
        if pointer == Pointer::Null && size == 0 && raw_kind == 0 {
            return Ok(None);
        }
        let kinds = self
            .kinds
            .unwrap_or_else(|| OffloadKinds::from_stored(raw_kind as u16, ""));
        let target = match pointer {
            Pointer::To(target) => Some(target),
            _ => None,
        };
        Ok(Some(Entry {
            offset,
            kinds: kinds.iter().map(OffloadKind::name).collect(),
            name: target.and_then(|target| name(space, target)),
            name_offset: target.and_then(|target| space.offset(target)),
            name_pointer: space.slot(address + name_at).and_then(|slot| slot.value),
            size,
            flags: number(EntryField::Flags).unwrap_or_default() as u32,
            data: number(EntryField::Data).unwrap_or_default(),
        }))
    }
}

/// Reads the string at an address, up to the zero that ends it.
fn name(space: &AddressSpace<'_>, address: u64) -> Option<String> {
    /// Limit on the length of a name in bytes, so that a name without an end is not searched to the
    /// end of a large section.
    const LONGEST: usize = 1 << 16;
    let bytes = space.from(address)?;
    let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
    std::str::from_utf8(c_string(bytes)?)
        .ok()
        .map(str::to_owned)
}
