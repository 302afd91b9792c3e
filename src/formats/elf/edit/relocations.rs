//! Everything that counts symbols, once symbols have been removed: relocations, the signatures of groups, and the list of
//! symbols whose address matters.

use super::Numbers;
use super::layout::Edited;
use super::read::{Object, SHT_CREL, SHT_GROUP, SHT_LLVM_ADDRSIG, SHT_REL, SHT_RELA, Section};
use crate::error::Malformed;
use std::borrow::Cow;

/// Puts the new numbers of symbols wherever sections that stay have the old ones.
pub(super) fn renumber(
    object: &Object<'_>,
    sections: &Numbers,
    symbols: &Numbers,
    edited: &mut [Edited<'_>],
) -> Result<(), Malformed> {
    for (index, section) in object.sections.iter().enumerate() {
        if sections.of(index).is_none() || Some(section.header.link as usize) != object.symbols {
            continue;
        }
        let body = match section.header.kind {
            SHT_REL | SHT_RELA => relocations(object, section, symbols)?,
            SHT_CREL => crel(section, symbols)?,
            SHT_LLVM_ADDRSIG => addresses(section, symbols)?,
            SHT_GROUP => {
                let fault = Malformed::new("a group's signature is a symbol of a removed section", section.header.offset);
                edited[index].header.info = symbols.of(section.header.info as usize).ok_or(fault)?;
                continue;
            }
            _ => continue,
        };
        edited[index].body = Cow::Owned(body);
    }
    Ok(())
}

/// The new number of a symbol that a relocation at `at` refers to.
fn target(symbols: &Numbers, old: u32, at: u64) -> Result<u32, Malformed> {
    symbols.of(old as usize).ok_or(Malformed::new("a relocation refers to a removed section", at))
}

fn relocations(object: &Object<'_>, section: &Section<'_>, symbols: &Numbers) -> Result<Vec<u8>, Malformed> {
    let class = object.class;
    let size = match (class.is_64, section.header.kind) {
        (true, SHT_RELA) => 24,
        (true, _) => 16,
        (false, SHT_RELA) => 12,
        (false, _) => 8,
    };
    let mut body = section.body.to_vec();
    if !body.len().is_multiple_of(size) {
        return Err(Malformed::new("relocations of an unknown size", section.header.offset));
    }
    for (index, record) in body.chunks_exact_mut(size).enumerate() {
        let at = section.header.offset.saturating_add((index * size) as u64);
        if class.is_64 {
            // The symbol is the upper half of a number of 8 bytes, but the first 4 bytes where the two are apart.
            let place = if class.big || object.split_info { 8 } else { 12 };
            let new = target(symbols, class.number(record, place, 4) as u32, at)?;
            class.set_number(record, place, 4, new.into());
        } else {
            let info = class.number(record, 4, 4);
            let new = target(symbols, (info >> 8) as u32, at)?;
            class.set_number(record, 4, 4, u64::from(new) << 8 | info & 0xff);
        }
    }
    Ok(body)
}

/// Packed relocations: each gives the difference of its symbol's number to the one before it, if there is one.
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
        // The type, and the addend if there are any.
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

/// Symbols that are gone have no address that could matter.
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

/// Reads a section from its start.
struct Bytes<'a> {
    section: &'a Section<'a>,
    at: usize,
}

impl<'a> Bytes<'a> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let fault = Malformed::new("packed numbers past the end", self.section.header.offset.saturating_add(self.at as u64));
        let byte = *self.section.body.get(self.at).ok_or(fault)?;
        self.at += 1;
        Ok(byte)
    }

    fn since(&self, start: usize) -> &'a [u8] {
        self.section.body.get(start..self.at).unwrap_or_default()
    }

    /// A LEB128 number, without a sign and with one. Bits past the 64th are dropped.
    fn leb128(&mut self) -> Result<(u64, i64), Malformed> {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift = shift.saturating_add(7);
            if byte & 0x80 == 0 {
                let negative = byte & 0x40 != 0;
                let sign = if negative { u64::MAX.checked_shl(shift).unwrap_or(0) } else { 0 };
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
