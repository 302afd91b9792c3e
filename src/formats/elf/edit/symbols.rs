//! Symbol table of an edited object: removes the symbols of removed sections, and renumbers and
//! renames the others.

use super::layout::Edited;
use super::names::Names;
use super::{Edit, Numbers, SymbolView};
use crate::error::Malformed;
use crate::formats::elf::file::{Object, Section};
use crate::formats::elf::raw::{Record, Symbol, extended_indices, section_of_symbol, string};
use object::elf;
use std::borrow::Cow;

/// Rewrites the symbol table. Returns the new numbers of the symbols if any were removed.
pub(super) fn edit(
    object: &Object<'_>,
    sections: &Numbers,
    edit: &Edit<'_>,
    names: &mut Names,
    edited: &mut [Edited<'_>],
) -> Result<Option<Numbers>, Malformed> {
    let Some(table) = Table::of(object)? else {
        return Ok(None);
    };
    let mut removed = Vec::with_capacity(table.count());
    let mut records = Vec::with_capacity(table.records.len());
    let mut indices = Vec::new();
    let class = object.class;
    let read = table
        .records
        .chunks_exact(Symbol::size(class))
        .filter_map(|record| Symbol::of(class, record));
    for (number, mut symbol) in read.enumerate() {
        let short = symbol.shndx;
        let home = table.section_of(number, short);
        let new_home = match home {
            None => 0,
            Some(home) if home as usize >= object.sections.len() => {
                return Err(Malformed::new(
                    "a symbol names a missing section",
                    table.at(number),
                ));
            }
            Some(home) => match sections.of(home as usize) {
                Some(new_home) => new_home,
                None => {
                    removed.push(true);
                    continue;
                }
            },
        };
        removed.push(false);
        if home.is_some() && short != elf::SHN_XINDEX {
            // The new section number is at most the old one, so it fits into the same field.
            symbol.shndx = elf::SymbolSection(new_home as u16);
        }
        indices.extend(class.word_bytes(if short == elf::SHN_XINDEX {
            new_home
        } else {
            0
        }));
        let name = string(table.strings, symbol.name, table.at(number))?;
        let local = symbol.info.st_bind() == elf::STB_LOCAL;
        let view = SymbolView {
            name,
            local,
            undefined: short == elf::SHN_UNDEF,
        };
        if let Some(new) = (edit.rename_symbol)(view).filter(|_| number > 0 && !name.is_empty()) {
            symbol.name = names.add(
                table.strings_index,
                table.strings.len(),
                new,
                table.at(number),
            )?;
        }
        symbol.append(class, &mut records);
    }
    let kept = Numbers::without(&removed);
    if let Some(edited) = edited.get_mut(table.index) {
        edited.header.info = kept.kept_before(table.section.header.info as usize);
        edited.body = Cow::Owned(records);
    }
    if let Some((index, _)) = table.extended
        && let Some(edited) = edited.get_mut(index)
    {
        edited.body = Cow::Owned(indices);
    }
    Ok(Some(kept).filter(|kept| !kept.all_stay()))
}

/// Symbol table with its names and extended section indices.
struct Table<'a> {
    object: &'a Object<'a>,
    index: usize,
    section: &'a Section<'a>,
    records: &'a [u8],
    /// The names, and the index of their section.
    strings: &'a [u8],
    strings_index: usize,
    /// The index and contents of the section with the section indices that do not fit into a
    /// symbol.
    extended: Option<(usize, &'a [u8])>,
}

impl<'a> Table<'a> {
    fn of(object: &'a Object<'a>) -> Result<Option<Self>, Malformed> {
        let Some(index) = object.symbols else {
            return Ok(None);
        };
        let Some(section) = object.sections.get(index) else {
            return Ok(None);
        };
        let fault = |what| Malformed::new(what, section.header.offset);
        let size = Symbol::size(object.class);
        if section.header.entsize != size as u64 || !section.body.len().is_multiple_of(size) {
            return Err(fault("symbols of an unknown size"));
        }
        let extended = extended_indices(object.headers(), index)
            .and_then(|index| Some((index, object.sections.get(index)?.body)));
        if extended.is_some_and(|(_, body)| body.len() / 4 != section.body.len() / size) {
            return Err(fault(
                "the numbers of symbols and of their section indices differ",
            ));
        }
        let strings_index = section.header.link as usize;
        // Only sections of this type have bytes in every file.
        let strings = object
            .sections
            .get(strings_index)
            .filter(|strings| strings.header.kind == elf::SHT_STRTAB);
        let strings = strings
            .ok_or(fault("no string table for the names of symbols"))?
            .body;
        Ok(Some(Table {
            object,
            index,
            section,
            records: section.body,
            strings,
            strings_index,
            extended,
        }))
    }

    fn count(&self) -> usize {
        self.records.len() / Symbol::size(self.object.class)
    }

    /// Returns the file offset of symbol `number`.
    fn at(&self, number: usize) -> u64 {
        self.section
            .header
            .offset
            .saturating_add((number * Symbol::size(self.object.class)) as u64)
    }

    /// Returns the section that defines symbol `number`. `None` if it is undefined, common or
    /// absolute, for example.
    fn section_of(&self, number: usize, short: elf::SymbolSection) -> Option<u32> {
        section_of_symbol(
            self.object.class,
            number,
            short,
            self.extended.map(|(_, indices)| indices),
        )
    }
}
