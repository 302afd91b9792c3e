//! The symbol table of an edited object: symbols of removed sections go, the others are renumbered and renamed.

use super::layout::Edited;
use super::names::Names;
use super::read::{Object, SHN_LORESERVE, SHN_XINDEX, SHT_STRTAB, SHT_SYMTAB_SHNDX, ST_INFO, ST_NAME, ST_SHNDX, string};
use super::{Edit, Numbers, SymbolView};
use crate::error::Malformed;
use std::borrow::Cow;

/// Rewrites the symbol table; says which symbols stay, if some do not.
pub(super) fn edit(
    object: &Object<'_>,
    sections: &Numbers,
    edit: &Edit<'_>,
    names: &mut Names,
    edited: &mut [Edited<'_>],
) -> Result<Option<Numbers>, Malformed> {
    let Some(table) = Table::of(object)? else { return Ok(None) };
    let mut removed = Vec::with_capacity(table.count());
    let mut records = Vec::with_capacity(table.records.len());
    let mut indices = Vec::new();
    for (number, record) in table.records.chunks_exact(table.size()).enumerate() {
        let class = object.class;
        let short = class.get(record, &ST_SHNDX);
        let home = table.section_of(number, short);
        let new_home = match home {
            None => 0,
            Some(home) if home as usize >= object.sections.len() => {
                return Err(Malformed::new("a symbol's section leads past the sections", table.at(number)));
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
        let mut record = record.to_vec();
        if home.is_some() && short != SHN_XINDEX {
            class.set(&mut record, &ST_SHNDX, new_home.into());
        }
        indices.extend(class.word(if short == SHN_XINDEX { new_home } else { 0 }));
        let name = string(table.strings, class.get32(&record, &ST_NAME), table.at(number))?;
        let view = SymbolView { name, local: class.get(&record, &ST_INFO) >> 4 == 0, undefined: short == 0 };
        if let Some(new) = (edit.rename_symbol)(view).filter(|_| number > 0 && !name.is_empty()) {
            let offset = names.add(table.strings_index, table.strings.len(), new, table.at(number))?;
            class.set(&mut record, &ST_NAME, offset.into());
        }
        records.extend(record);
    }
    let kept = Numbers::without(&removed);
    edited[table.index].header.info = kept.kept_before(object.sections[table.index].header.info as usize);
    edited[table.index].body = Cow::Owned(records);
    if let Some((index, _)) = table.extended {
        edited[index].body = Cow::Owned(indices);
    }
    Ok(Some(kept).filter(|kept| !kept.all_stay()))
}

/// A symbol table and what belongs to it.
struct Table<'a> {
    object: &'a Object<'a>,
    index: usize,
    records: &'a [u8],
    /// The names and the section that holds them.
    strings: &'a [u8],
    strings_index: usize,
    /// The section indices too large for a symbol, and the section that holds them.
    extended: Option<(usize, &'a [u8])>,
}

impl<'a> Table<'a> {
    fn of(object: &'a Object<'a>) -> Result<Option<Self>, Malformed> {
        let Some(index) = object.symbols else { return Ok(None) };
        let section = &object.sections[index];
        let fault = |what| Malformed::new(what, section.header.offset);
        let size = object.class.symbol_size();
        if section.header.entsize != size as u64 || !section.body.len().is_multiple_of(size) {
            return Err(fault("symbols of an unknown size"));
        }
        let of_ours = |header: &super::read::Header| header.kind == SHT_SYMTAB_SHNDX && header.link as usize == index;
        let extended = object.sections.iter().position(|section| of_ours(&section.header));
        let extended = extended.map(|index| (index, object.sections[index].body));
        if extended.is_some_and(|(_, body)| body.len() / 4 != section.body.len() / size) {
            return Err(fault("as many section indices as symbols are expected"));
        }
        let strings_index = section.header.link as usize;
        // Only string tables keep their bytes.
        if object.sections[strings_index].header.kind != SHT_STRTAB {
            return Err(fault("the names of symbols are in no string table"));
        }
        let strings = object.sections[strings_index].body;
        Ok(Some(Table { object, index, records: section.body, strings, strings_index, extended }))
    }

    fn size(&self) -> usize {
        self.object.class.symbol_size()
    }

    fn count(&self) -> usize {
        self.records.len() / self.size()
    }

    /// Where symbol `number` stands in the file.
    fn at(&self, number: usize) -> u64 {
        self.object.sections[self.index].header.offset.saturating_add((number * self.size()) as u64)
    }

    /// The section that symbol `number` is defined in: none if it is undefined, common, absolute or the like.
    fn section_of(&self, number: usize, short: u64) -> Option<u32> {
        match (short, self.extended) {
            (SHN_XINDEX, Some((_, indices))) => Some(self.object.class.number(indices, number * 4, 4) as u32),
            (0, _) | (SHN_LORESERVE.., _) => None,
            (short, _) => Some(short as u32),
        }
    }
}
