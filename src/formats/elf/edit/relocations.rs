//! Renumbers symbols after the removal of others: in relocations, in group signatures, and in the
//! list of symbols with significant addresses.

use super::Numbers;
use super::layout::Edited;
use crate::error::Malformed;
use crate::formats::elf::SHT_LLVM_ADDRSIG;
use crate::formats::elf::file::{Object, Section};
use object::Endianness;
use object::elf::{self, Rel32, Rel64, Rela32, Rela64};
use object::pod::{self, Pod};
use std::borrow::Cow;

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
