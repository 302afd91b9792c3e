//! Reads a bitstream into a tree. What is allocated is bounded by the data's own size: each value takes a bit at least.

use super::*;
use crate::error::Malformed;
use std::collections::BTreeMap;

/// Blocks are not nested deeper. LLVM's are three deep.
const DEEPEST: u32 = 16;

/// The stream in `data`, which starts with the magic and is all stream.
pub fn read(data: &[u8]) -> Result<Stream, Malformed> {
    if !data.starts_with(&MAGIC) {
        return Err(Malformed::new("not a bitstream", 0));
    }
    let mut reader = Reader { bits: Bits { data, at: 32 }, given: BTreeMap::new() };
    let mut items = Vec::new();
    while reader.bits.at < data.len() as u64 * 8 {
        match u32::try_from(reader.bits.fixed(TOP_WIDTH)?) {
            Ok(ENTER_SUBBLOCK) => items.push(Item::Block(reader.block(TOP_WIDTH, 0)?)),
            _ => return Err(reader.bits.fault("something else than a block outside of all blocks")),
        }
    }
    Ok(Stream { items })
}

struct Reader<'a> {
    bits: Bits<'a>,
    /// The abbreviations that BLOCKINFO gives blocks, by the id of those.
    given: BTreeMap<u32, Vec<Arc<Abbreviation>>>,
}

impl Reader<'_> {
    /// A block; the id that enters it has been read.
    fn block(&mut self, outer_width: u32, depth: u32) -> Result<Block, Malformed> {
        let was_at = self.bits.at - u64::from(outer_width);
        if depth >= DEEPEST {
            return Err(self.bits.fault("blocks nested too deeply"));
        }
        let (id, width) = (self.bits.vbr(8)?, self.bits.vbr(4)?);
        let (Ok(id), Some(width)) = (u32::try_from(id), u32::try_from(width).ok().filter(|width| (2..=32).contains(width)))
        else {
            return Err(self.bits.fault("a block that cannot be entered"));
        };
        self.bits.align()?;
        let words = self.bits.fixed(32)?;
        let end = self.bits.at + words * 32;
        let mut known = self.given.get(&id).cloned().unwrap_or_default();
        let mut block = Block { id, width, items: Vec::new(), inherited: known.len() as u32, was_at };
        let mut target = None;
        loop {
            match self.bits.fixed(width)? as u32 {
                END_BLOCK => break,
                ENTER_SUBBLOCK => block.items.push(Item::Block(self.block(width, depth + 1)?)),
                DEFINE_ABBREV => {
                    let made = Arc::new(self.bits.abbreviation()?);
                    match (id, target) {
                        (BLOCKINFO, Some(target)) => self.given.entry(target).or_default().push(Arc::clone(&made)),
                        (BLOCKINFO, None) => return Err(self.bits.fault("an abbreviation for no block")),
                        _ => known.push(Arc::clone(&made)),
                    }
                    block.items.push(Item::Abbreviation(made));
                }
                own => {
                    let record = self.bits.record(own, &known)?;
                    if let (BLOCKINFO, [SETBID, of]) = (id, &record.values[..]) {
                        target = Some(u32::try_from(*of).map_err(|_| self.bits.fault("a block id too large"))?);
                    }
                    block.items.push(Item::Record(record));
                }
            }
        }
        self.bits.align()?;
        if self.bits.at != end {
            return Err(self.bits.fault("a block that is not as long as it says"));
        }
        Ok(block)
    }
}

/// Bits, lowest first.
struct Bits<'a> {
    data: &'a [u8],
    at: u64,
}

impl Bits<'_> {
    fn fault(&self, what: &'static str) -> Malformed {
        Malformed::new(what, self.at / 8)
    }

    fn fixed(&mut self, width: u32) -> Result<u64, Malformed> {
        let mut value = 0;
        let mut got = 0;
        while got < width {
            let byte = usize::try_from(self.at / 8).ok().and_then(|at| self.data.get(at)).copied();
            let byte = byte.ok_or(Malformed::new("the bitstream is cut short", self.data.len() as u64))?;
            let skip = (self.at % 8) as u32;
            let take = (8 - skip).min(width - got);
            value |= (u64::from(byte) >> skip & ((1 << take) - 1)) << got;
            got += take;
            self.at += u64::from(take);
        }
        Ok(value)
    }

    fn vbr(&mut self, width: u32) -> Result<u64, Malformed> {
        let more = 1u64 << (width - 1);
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let chunk = self.fixed(width)?;
            let part = chunk & (more - 1);
            if shift >= 64 || (part << shift) >> shift != part {
                return Err(self.fault("a number of more than 64 bits"));
            }
            value |= part << shift;
            if chunk & more == 0 {
                return Ok(value);
            }
            shift += width - 1;
        }
    }

    fn align(&mut self) -> Result<(), Malformed> {
        while !self.at.is_multiple_of(32) {
            if self.fixed(1)? != 0 {
                return Err(self.fault("something in the space before a word"));
            }
        }
        Ok(())
    }

    fn abbreviation(&mut self) -> Result<Abbreviation, Malformed> {
        let count = self.vbr(5)?;
        let mut operands = Vec::new();
        for _ in 0..count {
            if self.fixed(1)? == 1 {
                operands.push(Operand::Literal(self.vbr(8)?));
                continue;
            }
            operands.push(match self.fixed(3)? {
                FIXED => Operand::Fixed(self.width(0)?),
                VBR => Operand::Vbr(self.width(2)?),
                ARRAY => Operand::Array,
                CHAR6 => Operand::Char6,
                BLOB => Operand::Blob,
                _ => return Err(self.fault("an encoding nobody knows")),
            });
        }
        let sound = match &operands[..] {
            [before @ .., Operand::Array, of] if !before.is_empty() => {
                before.iter().all(|operand| operand.is_scalar())
                    && !matches!(of, Operand::Literal(_) | Operand::Fixed(0) | Operand::Array | Operand::Blob)
            }
            [before @ .., _] => before.iter().all(|operand| operand.is_scalar()) && operands.last() != Some(&Operand::Array),
            [] => false,
        };
        // The first value is the code: an array or bytes cannot be.
        if !sound || operands.first().is_some_and(|first| !first.is_scalar()) {
            return Err(self.fault("an abbreviation that no record can have"));
        }
        Ok(Abbreviation { operands })
    }

    fn width(&mut self, least: u64) -> Result<u32, Malformed> {
        let width = self.vbr(5)?;
        if !(least..=64).contains(&width) {
            return Err(self.fault("a width that no number can have"));
        }
        Ok(width as u32)
    }

    fn record(&mut self, id: u32, known: &[Arc<Abbreviation>]) -> Result<Record, Malformed> {
        if id == UNABBREV_RECORD {
            let mut values = vec![self.vbr(6)?];
            for _ in 0..self.vbr(6)? {
                values.push(self.vbr(6)?);
            }
            return Ok(Record { abbreviation: None, values, tail: Tail::None });
        }
        let index = id.wrapping_sub(FIRST_OWN) as usize;
        let of = known.get(index).cloned().ok_or_else(|| self.fault("an abbreviation that was not defined"))?;
        let (mut values, mut tail) = (Vec::new(), Tail::None);
        let mut operands = of.operands.iter();
        while let Some(operand) = operands.next() {
            match operand {
                Operand::Array => {
                    let each = operands.next().copied().unwrap_or(Operand::Literal(0));
                    for _ in 0..self.vbr(6)? {
                        values.push(self.scalar(each)?);
                    }
                }
                Operand::Blob => tail = Tail::Blob(self.blob()?),
                scalar => values.push(self.scalar(*scalar)?),
            }
        }
        Ok(Record { abbreviation: Some((id, of)), values, tail })
    }

    fn scalar(&mut self, operand: Operand) -> Result<u64, Malformed> {
        match operand {
            Operand::Literal(value) => Ok(value),
            Operand::Fixed(width) => self.fixed(width),
            Operand::Vbr(width) => self.vbr(width),
            Operand::Char6 => {
                let index = self.fixed(6)? as usize;
                CHAR6_CHARS.get(index).copied().map(u64::from).ok_or_else(|| self.fault("a character that is none"))
            }
            Operand::Array | Operand::Blob => Err(self.fault("an abbreviation that no record can have")),
        }
    }

    fn blob(&mut self) -> Result<Vec<u8>, Malformed> {
        let size = self.vbr(6)?;
        self.align()?;
        let bytes = crate::formats::slice(self.data, self.at / 8, size, "bytes past the end", self.at / 8)?.to_vec();
        self.at += size * 8;
        self.align()?;
        Ok(bytes)
    }
}

impl Operand {
    /// Whether it is one value.
    fn is_scalar(self) -> bool {
        !matches!(self, Operand::Array | Operand::Blob)
    }
}
