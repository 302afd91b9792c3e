//! Symbol table of an edited object: removes the symbols of removed sections, and renumbers and
//! renames the others. Also renames sections, and renumbers symbols where other sections refer to
//! them.

use super::Edited;
use super::{Edit, Numbers, SectionView, SymbolView};
use crate::elf::SHT_LLVM_ADDRSIG;
use crate::elf::file::{Object, Section};
use crate::elf::raw::{Record, Symbol, extended_indices, section_of_symbol, string};
use crate::error::Malformed;
use object::Endianness;
use object::elf::{self, Rel32, Rel64, Rela32, Rela64};
use object::pod::{self, Pod};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

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

// New names of sections and symbols. They are appended to the string tables of the old names.

/// Prefixes of relocation section names; the name of the relocated section follows.
const RELOCATION_PREFIXES: [&[u8]; 3] = [b".rela", b".rel", b".crel"];

/// Strings to append, by the section index of their string table.
#[derive(Default)]
pub(super) struct Names(BTreeMap<usize, Tail>);

#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    /// The offset of each name, which is stored once.
    offsets: HashMap<Vec<u8>, u32>,
}

impl Names {
    /// Adds `name` to string table `table`, which has `len` bytes of its own, and returns its
    /// offset. `at` is the location of the old name, for errors.
    fn add(
        &mut self,
        table: usize,
        len: usize,
        mut name: Vec<u8>,
        at: u64,
    ) -> Result<u32, Malformed> {
        let tail = self.0.entry(table).or_default();
        if let Some(offset) = tail.offsets.get(&name) {
            return Ok(*offset);
        }
        let offset = u32::try_from(len + tail.bytes.len())
            .map_err(|_| Malformed::new("more names than a string table can hold", at))?;
        tail.offsets.insert(name.clone(), offset);
        name.push(0);
        tail.bytes.append(&mut name);
        Ok(offset)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn append_to(self, edited: &mut [Edited<'_>]) -> Result<(), Malformed> {
        for (table, tail) in self.0 {
            let Some(table) = edited.get_mut(table) else {
                continue;
            };
            // Without a final zero, the last old name would continue with the first new one.
            if table.body.last().is_some_and(|byte| *byte != 0) {
                return Err(Malformed::new(
                    "string table without a terminating zero",
                    table.header.offset,
                ));
            }
            table.body.to_mut().extend(tail.bytes);
        }
        Ok(())
    }
}

impl Section<'_> {
    pub(super) fn view(&self, index: usize) -> SectionView<'_> {
        SectionView {
            index,
            name: self.name,
            kind: self.header.kind,
            flags: self.header.flags,
        }
    }
}

/// Renames the remaining sections, and the relocation sections of renamed sections.
pub(super) fn rename_sections(
    object: &Object<'_>,
    numbers: &Numbers,
    edit: &Edit<'_>,
    names: &mut Names,
    edited: &mut [Edited<'_>],
) -> Result<(), Malformed> {
    let sections = &object.sections;
    let new_name = |index: usize, section: &Section<'_>| (edit.rename_section)(section.view(index));
    let table_size = sections
        .get(object.names)
        .map_or(0, |table| table.body.len());
    let kept = sections
        .iter()
        .zip(edited)
        .enumerate()
        .skip(1)
        .filter(|(index, _)| numbers.of(*index).is_some());
    for (index, (section, edited)) in kept {
        let along = || {
            let target_index = section.header.info as usize;
            let target = sections
                .get(target_index)
                .filter(|_| section.header.is_relocations())?;
            let prefix = section
                .name
                .strip_suffix(target.name)
                .filter(|prefix| RELOCATION_PREFIXES.contains(prefix))?;
            Some([prefix, &new_name(target_index, target)?].concat())
        };
        if let Some(name) = new_name(index, section).or_else(along) {
            edited.header.name =
                names.add(object.names, table_size, name, section.header.offset)?;
        }
    }
    Ok(())
}

// Renumbers symbols after the removal of others: in relocations, in group signatures, and in the
// list of symbols with significant addresses.

/// Replaces old symbol numbers by new ones in all remaining sections.
pub(super) fn renumber(
    object: &Object<'_>,
    sections: &Numbers,
    symbols: &Numbers,
    edited: &mut [Edited<'_>],
) -> Result<(), Malformed> {
    for (index, (section, edited)) in object.sections.iter().zip(edited).enumerate() {
        if sections.of(index).is_none() || Some(section.header.link as usize) != object.symbols {
            continue;
        }
        let body = match section.header.kind {
            elf::SHT_REL | elf::SHT_RELA => relocations(object, section, symbols)?,
            elf::SHT_CREL => crel(section, symbols)?,
            SHT_LLVM_ADDRSIG => addresses(section, symbols)?,
            elf::SHT_GROUP => {
                let fault = Malformed::new(
                    "a group's signature is a symbol of a removed section",
                    section.header.offset,
                );
                edited.header.info = symbols.of(section.header.info as usize).ok_or(fault)?;
                continue;
            }
            _ => continue,
        };
        edited.body = Cow::Owned(body);
    }
    Ok(())
}

/// Returns the new number of the symbol that a relocation refers to. `at` is the relocation's
/// offset.
fn target(symbols: &Numbers, old: u32, at: u64) -> Result<u32, Malformed> {
    symbols.of(old as usize).ok_or(Malformed::new(
        "a relocation refers to a removed section",
        at,
    ))
}

fn relocations(
    object: &Object<'_>,
    section: &Section<'_>,
    symbols: &Numbers,
) -> Result<Vec<u8>, Malformed> {
    match (object.class.is_64, section.header.kind) {
        (true, elf::SHT_RELA) => each::<Rela64<Endianness>>(object, section, symbols),
        (true, _) => each::<Rel64<Endianness>>(object, section, symbols),
        (false, elf::SHT_RELA) => each::<Rela32<Endianness>>(object, section, symbols),
        (false, _) => each::<Rel32<Endianness>>(object, section, symbols),
    }
}

fn each<R: Relocation>(
    object: &Object<'_>,
    section: &Section<'_>,
    symbols: &Numbers,
) -> Result<Vec<u8>, Malformed> {
    let (endian, split_info) = (object.class.endian, object.split_info);
    let mut body = section.body.to_vec();
    let fault = Malformed::new("relocations of an unknown size", section.header.offset);
    let all = pod::slice_from_all_bytes_mut::<R>(&mut body).map_err(|()| fault)?;
    for (index, relocation) in all.iter_mut().enumerate() {
        let at = section
            .header
            .offset
            .saturating_add((index * size_of::<R>()) as u64);
        let new = target(symbols, relocation.symbol(endian, split_info), at)?;
        relocation.set_symbol(endian, split_info, new);
    }
    Ok(body)
}

/// Relocation of any class, with or without an addend. Only its symbol changes.
trait Relocation: Pod {
    /// Number of the symbol. `split`: the relocation stores it apart from the type, as in
    /// little-endian MIPS64.
    fn symbol(&self, endian: Endianness, split: bool) -> u32;
    fn set_symbol(&mut self, endian: Endianness, split: bool, symbol: u32);
}

impl Relocation for Rel32<Endianness> {
    fn symbol(&self, endian: Endianness, _split: bool) -> u32 {
        self.r_sym(endian)
    }

    fn set_symbol(&mut self, endian: Endianness, _split: bool, symbol: u32) {
        self.set_r_info(endian, symbol, self.r_type(endian));
    }
}

impl Relocation for Rela32<Endianness> {
    fn symbol(&self, endian: Endianness, _split: bool) -> u32 {
        self.r_sym(endian)
    }

    fn set_symbol(&mut self, endian: Endianness, _split: bool, symbol: u32) {
        self.set_r_info(endian, symbol, self.r_type(endian));
    }
}

impl Relocation for Rel64<Endianness> {
    fn symbol(&self, endian: Endianness, split: bool) -> u32 {
        Rela64::from(*self).r_sym(endian, split)
    }

    fn set_symbol(&mut self, endian: Endianness, split: bool, symbol: u32) {
        let mut with_addend = Rela64::from(*self);
        with_addend.set_symbol(endian, split, symbol);
        self.r_info = with_addend.r_info;
    }
}

impl Relocation for Rela64<Endianness> {
    fn symbol(&self, endian: Endianness, split: bool) -> u32 {
        self.r_sym(endian, split)
    }

    fn set_symbol(&mut self, endian: Endianness, split: bool, symbol: u32) {
        self.set_r_info(endian, split, symbol, self.r_type(endian, split));
    }
}

/// Renumbers packed relocations (CREL). Each stores the difference between its symbol number and
/// the previous one.
fn crel(section: &Section<'_>, symbols: &Numbers) -> Result<Vec<u8>, Malformed> {
    let mut bytes = Bytes { section, at: 0 };
    let head = bytes.leb128()?.0;
    let (count, with_addend) = (head >> 3, head & 4 != 0);
    let mut body = bytes.since(0).to_vec();
    let (mut old, mut last) = (0u32, 0u32);
    for _ in 0..count {
        let start = bytes.at;
        let flags = bytes.byte()?;
        if flags & 0x80 != 0 {
            bytes.leb128()?;
        }
        let offset = bytes.since(start + 1);
        if flags & 1 != 0 {
            old = old.wrapping_add(bytes.leb128()?.1 as u32);
        }
        let rest = bytes.at;
        // The type and the addend, if present.
        for present in [flags & 2 != 0, with_addend && flags & 4 != 0] {
            if present {
                bytes.leb128()?;
            }
        }
        let new = target(symbols, old, section.header.offset + start as u64)?;
        let difference = new.wrapping_sub(last) as i32;
        last = new;
        body.push(flags & !1 | u8::from(difference != 0));
        body.extend(offset);
        if difference != 0 {
            sleb128(&mut body, difference);
        }
        body.extend(bytes.since(rest));
    }
    Ok(body)
}

/// Returns the list of symbols with significant addresses, without removed symbols.
fn addresses(section: &Section<'_>, symbols: &Numbers) -> Result<Vec<u8>, Malformed> {
    let mut bytes = Bytes { section, at: 0 };
    let mut body = Vec::new();
    while bytes.at < section.body.len() {
        let old = usize::try_from(bytes.leb128()?.0).unwrap_or(usize::MAX);
        if let Some(new) = symbols.of(old) {
            uleb128(&mut body, new);
        }
    }
    Ok(body)
}

/// Reader of a section from its start.
struct Bytes<'a> {
    section: &'a Section<'a>,
    at: usize,
}

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let fault = Malformed::new(
            "packed numbers past the end",
            self.section.header.offset.saturating_add(self.at as u64),
        );
        let byte = *self.section.body.get(self.at).ok_or(fault)?;
        self.at += 1;
        Ok(byte)
    }

    fn since(&self, start: usize) -> &'a [u8] {
        self.section.body.get(start..self.at).unwrap_or_default()
    }

    /// Reads a LEB128 number. Returns its unsigned and its signed value. Bits past the 64th are
    /// dropped.
    fn leb128(&mut self) -> Result<(u64, i64), Malformed> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                let negative = byte & 0x40 != 0;
                let sign = if negative {
                    u64::MAX.checked_shl(shift).unwrap_or(0)
                } else {
                    0
                };
                return Ok((value, (value | sign) as i64));
            }
        }
    }
}

fn uleb128(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn sleb128(out: &mut Vec<u8>, mut value: i32) {
    while !(-0x40..0x40).contains(&value) {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8 & 0x7f);
}
