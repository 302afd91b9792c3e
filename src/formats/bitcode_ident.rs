//! Who wrote a bitcode file: the string of its IDENTIFICATION_BLOCK (`LLVM19.1.7`), read without LLVM, because the question is
//! which LLVM to ask. Reads as many bits as that takes and nothing after them.

use super::magic::{BITCODE as MAGIC, BITCODE_WRAPPER as WRAPPER_MAGIC};

const IDENTIFICATION_BLOCK: u64 = 13;
const IDENTIFICATION_STRING: u64 = 1;
const END_BLOCK: u64 = 0;
const ENTER_SUBBLOCK: u64 = 1;
const DEFINE_ABBREV: u64 = 2;
const UNABBREV_RECORD: u64 = 3;
/// No producer's name is longer; a length beyond it is not followed.
const MAX_STRING: u64 = 4096;

/// The major version of the LLVM that wrote `bitcode`; none if it does not say (before LLVM 3.8) or is no bitcode.
pub fn producer_major(bitcode: &[u8]) -> Option<u32> {
    crate::model::llvm_major(&producer(bitcode)?)
}

/// The producer's name, as stored: `LLVM19.1.7`, or a vendor's `APPLE_1_1500.3.9.4_0`.
pub fn producer(bitcode: &[u8]) -> Option<String> {
    let mut bits = Bits { data: unwrapped(bitcode)?.strip_prefix(&MAGIC)?, at: 0 };
    // The identification block comes first; what stands before it is skipped, what comes after it is never looked at.
    while bits.fixed(2)? == ENTER_SUBBLOCK {
        let (block, width, words) = bits.block_head()?;
        if block == IDENTIFICATION_BLOCK {
            return identification(&mut bits, width);
        }
        bits.at = bits.at.checked_add(usize::try_from(words).ok()?.checked_mul(32)?)?;
    }
    None
}

fn unwrapped(data: &[u8]) -> Option<&[u8]> {
    if !data.starts_with(&WRAPPER_MAGIC) {
        return Some(data);
    }
    let field = |at: usize| Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?) as usize);
    let (offset, size) = (field(8)?, field(12)?);
    data.get(offset..offset.checked_add(size)?)
}

/// The string among the records of an identification block whose abbreviation ids are `width` bits wide.
fn identification(bits: &mut Bits<'_>, width: u32) -> Option<String> {
    let mut abbreviations: Vec<Vec<Op>> = Vec::new();
    loop {
        let record = match bits.fixed(width)? {
            END_BLOCK | ENTER_SUBBLOCK => return None,
            DEFINE_ABBREV => {
                abbreviations.push(bits.abbreviation()?);
                continue;
            }
            UNABBREV_RECORD => bits.unabbreviated()?,
            id => bits.abbreviated(abbreviations.get(usize::try_from(id - 4).ok()?)?)?,
        };
        if let [IDENTIFICATION_STRING, chars @ ..] = &record[..] {
            let bytes = chars.iter().map(|c| u8::try_from(*c).ok()).collect::<Option<Vec<u8>>>()?;
            return String::from_utf8(bytes).ok();
        }
    }
}

/// One operand of an abbreviation.
#[derive(Clone, Copy)]
enum Op {
    Literal(u64),
    Fixed(u32),
    Vbr(u32),
    Array,
    Char6,
}

/// Bits, lowest first, from the start of the stream.
struct Bits<'a> {
    data: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn fixed(&mut self, width: u32) -> Option<u64> {
        let mut value = 0;
        for shift in 0..width.min(64) {
            let byte = *self.data.get(self.at / 8)?;
            value |= u64::from(byte >> (self.at % 8) & 1) << shift;
            self.at += 1;
        }
        Some(value)
    }

    fn vbr(&mut self, width: u32) -> Option<u64> {
        let payload = width.checked_sub(1)?;
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let chunk = self.fixed(width)?;
            value |= (chunk & !(1 << payload)).checked_shl(shift)?;
            if chunk >> payload == 0 {
                return Some(value);
            }
            shift += payload;
        }
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(32);
    }

    /// What follows ENTER_SUBBLOCK: the block's id, the width of abbreviation ids in it, and its length in words.
    fn block_head(&mut self) -> Option<(u64, u32, u64)> {
        let block = self.vbr(8)?;
        let width = u32::try_from(self.vbr(4)?).ok().filter(|width| (2..=32).contains(width))?;
        self.align();
        Some((block, width, self.fixed(32)?))
    }

    fn unabbreviated(&mut self) -> Option<Vec<u64>> {
        let code = self.vbr(6)?;
        let count = self.vbr(6)?;
        if count > MAX_STRING {
            return None;
        }
        let mut record = vec![code];
        for _ in 0..count {
            record.push(self.vbr(6)?);
        }
        Some(record)
    }

    fn abbreviation(&mut self) -> Option<Vec<Op>> {
        let count = self.vbr(5)?;
        let mut ops = Vec::new();
        for _ in 0..count.min(MAX_STRING) {
            let op = if self.fixed(1)? == 1 {
                Op::Literal(self.vbr(8)?)
            } else {
                match self.fixed(3)? {
                    1 => Op::Fixed(u32::try_from(self.vbr(5)?).ok().filter(|width| *width <= 64)?),
                    2 => Op::Vbr(u32::try_from(self.vbr(5)?).ok().filter(|width| (2..=32).contains(width))?),
                    3 => Op::Array,
                    4 => Op::Char6,
                    _ => return None,
                }
            };
            ops.push(op);
        }
        Some(ops)
    }

    fn abbreviated(&mut self, ops: &[Op]) -> Option<Vec<u64>> {
        let mut record = Vec::new();
        let mut rest = ops.iter().copied();
        while let Some(op) = rest.next() {
            if matches!(op, Op::Array) {
                // An array is the last of a record. Its elements may take no bits at all, so the data does not bound their number.
                let element = rest.next()?;
                let count = self.vbr(6)?;
                if count > MAX_STRING || rest.next().is_some() {
                    return None;
                }
                for _ in 0..count {
                    record.push(self.scalar(element)?);
                }
            } else {
                record.push(self.scalar(op)?);
            }
        }
        Some(record)
    }

    fn scalar(&mut self, op: Op) -> Option<u64> {
        match op {
            Op::Literal(value) => Some(value),
            Op::Fixed(width) => self.fixed(width),
            Op::Vbr(width) => self.vbr(width),
            Op::Char6 => {
                let code = self.fixed(6)?;
                let table = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
                table.get(usize::try_from(code).ok()?).map(|c| u64::from(*c))
            }
            Op::Array => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first 48 bytes of what clang 19.1.7 wrote: magic, the identification block, the start of the module.
    #[rustfmt::skip]
    const CLANG_19: &[u8] = &[
        0x42, 0x43, 0xc0, 0xde, 0x35, 0x14, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x62, 0x0c, 0x30, 0x24,
        0x4a, 0x59, 0xbe, 0x66, 0xdd, 0xfb, 0xb5, 0xbf, 0x0b, 0x51, 0x80, 0x4c, 0x01, 0x00, 0x00, 0x00,
        0x21, 0x0c, 0x00, 0x00, 0x99, 0x01, 0x00, 0x00, 0x0b, 0x02, 0x21, 0x00, 0x02, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn reads_the_producer() {
        assert_eq!(producer(CLANG_19).as_deref(), Some("LLVM19.1.7"));
        assert_eq!(producer_major(CLANG_19), Some(19));
    }

    #[test]
    fn reads_through_the_wrapper() {
        let mut wrapped = WRAPPER_MAGIC.to_vec();
        for field in [0, 20, CLANG_19.len() as u32, 7] {
            wrapped.extend(field.to_le_bytes());
        }
        wrapped.extend(CLANG_19);
        assert_eq!(producer_major(&wrapped), Some(19));
    }

    /// Bits as fields of a value and a width, after the magic.
    fn stream(fields: &[(u64, u32)]) -> Vec<u8> {
        let bits: Vec<bool> =
            fields.iter().flat_map(|(value, width)| (0..*width).map(move |bit| value >> bit & 1 == 1)).collect();
        let bytes = bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |value, bit| value << 1 | u8::from(*bit)));
        MAGIC.iter().copied().chain(bytes).collect()
    }

    #[test]
    fn arrays_that_take_no_bits_do_not_add_up() {
        // The block's head, then an abbreviation of arrays of one literal each, then a record of it with 1000 elements an array.
        let mut fields = vec![(1, 2), (13, 8), (3, 4), (0, 18), (100, 32), (2, 3), (4, 5)];
        fields.extend([[(0, 1), (3, 3)], [(1, 1), (65, 8)]].iter().flatten().cycle().take(8));
        fields.push((4, 3));
        fields.extend([(1000 & 31 | 32, 6), (1000 >> 5 & 31, 6)].iter().cycle().take(4));
        assert_eq!(producer(&stream(&fields)), None);
    }

    #[test]
    fn survives_every_prefix_and_every_flip() {
        for len in 0..CLANG_19.len() {
            producer(&CLANG_19[..len]);
        }
        for bit in 0..CLANG_19.len() * 8 {
            let mut bytes = CLANG_19.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            producer(&bytes);
        }
        assert_eq!(producer(b"\x7fELF"), None);
    }
}
