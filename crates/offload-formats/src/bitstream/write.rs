//! Writes a bitstream as bytes with holes between them. Lengths and positions include the holes.

use super::*;
use crate::compose::Part;
use crate::error::Malformed;

/// A stream in the form to write to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The parts, in order. A hole is `Part::New` with the index of the hole.
    pub parts: Vec<Part>,
    /// The positions of the blocks, in the order of the stream.
    pub placed: Vec<Placed>,
}

/// The old and the new position of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placed {
    /// `Block::was_at`.
    pub was_at: u64,
    /// The number of the bit at which the block is entered in the output.
    pub is_at: u64,
}

/// Writes `stream`. Fails if a value does not fit the abbreviation of its record. The error has the
/// offset in the output.
pub fn write(stream: &Stream) -> Result<Written, Malformed> {
    let mut out = BitWriter::default();
    out.bytes.extend(MAGIC);
    out.items(&stream.items, TOP_WIDTH)?;
    out.align();
    let mut parts = Vec::new();
    let mut done = 0;
    for (at, index) in out.holes {
        parts.push(Part::Bytes(
            out.bytes.get(done..at).unwrap_or_default().to_vec(),
        ));
        parts.push(Part::New(index));
        done = at;
    }
    parts.push(Part::Bytes(
        out.bytes.get(done..).unwrap_or_default().to_vec(),
    ));
    Ok(Written {
        parts,
        placed: out.placed,
    })
}

#[derive(Default)]
pub(crate) struct BitWriter {
    pub(crate) bytes: Vec<u8>,
    /// The bits after the last whole byte, and their number.
    open: u8,
    open_bits: u32,
    /// The position in `bytes` and the index of each hole.
    holes: Vec<(usize, usize)>,
    /// The total size of the holes so far.
    hole_bytes: u64,
    placed: Vec<Placed>,
}

impl BitWriter {
    fn at(&self) -> u64 {
        (self.bytes.len() as u64 + self.hole_bytes) * 8 + u64::from(self.open_bits)
    }

    fn fault(&self, what: &'static str) -> Malformed {
        Malformed::new(what, self.at() / 8)
    }

    fn items(&mut self, items: &[Item], width: u32) -> Result<(), Malformed> {
        for item in items {
            match item {
                Item::Block(block) => self.block(block, width)?,
                Item::Unread(block) => self.unread(block, width)?,
                Item::Record(record) => self.record(record, width)?,
                Item::Abbreviation(abbreviation) => {
                    self.fixed(DEFINE_ABBREV.into(), width)?;
                    self.abbreviation(abbreviation)?;
                }
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &Block, outer_width: u32) -> Result<(), Malformed> {
        let length_at = self.head(block.id, block.width, block.was_at, outer_width)?;
        let start = self.at();
        self.items(&block.items, block.width)?;
        self.fixed(END_BLOCK.into(), block.width)?;
        self.align();
        self.set_length(length_at, start)
    }

    fn unread(&mut self, block: &UnreadBlock, outer_width: u32) -> Result<(), Malformed> {
        let length_at = self.head(block.id, block.width, block.was_at, outer_width)?;
        let start = self.at();
        self.bytes.extend_from_slice(&block.body);
        self.set_length(length_at, start)
    }

    /// Writes the header of a block. Returns the position of its length.
    fn head(
        &mut self,
        id: u32,
        width: u32,
        was_at: u64,
        outer_width: u32,
    ) -> Result<usize, Malformed> {
        self.placed.push(Placed {
            was_at,
            is_at: self.at(),
        });
        self.fixed(ENTER_SUBBLOCK.into(), outer_width)?;
        self.vbr(id.into(), 8)?;
        self.vbr(width.into(), 4)?;
        self.align();
        let length_at = self.bytes.len();
        self.fixed(0, 32)?;
        Ok(length_at)
    }

    /// Writes the length of the block whose entries begin at the bit `start`.
    fn set_length(&mut self, length_at: usize, start: u64) -> Result<(), Malformed> {
        let words = u32::try_from((self.at() - start) / 32)
            .map_err(|_| self.fault("a block of more than 16 GiB"))?;
        if let Some(length) = self.bytes.get_mut(length_at..length_at + 4) {
            length.copy_from_slice(&words.to_le_bytes());
        }
        Ok(())
    }

    fn abbreviation(&mut self, abbreviation: &Abbreviation) -> Result<(), Malformed> {
        self.vbr(abbreviation.operands.len() as u64, 5)?;
        for operand in &abbreviation.operands {
            let (encoding, data) = match operand {
                Operand::Literal(value) => {
                    self.fixed(1, 1)?;
                    self.vbr(*value, 8)?;
                    continue;
                }
                Operand::Fixed(width) => (FIXED, Some(*width)),
                Operand::Vbr(width) => (VBR, Some(*width)),
                Operand::Array => (ARRAY, None),
                Operand::Char6 => (CHAR6, None),
                Operand::Blob => (BLOB, None),
            };
            self.fixed(0, 1)?;
            self.fixed(encoding, 3)?;
            if let Some(width) = data {
                self.vbr(width.into(), 5)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record, width: u32) -> Result<(), Malformed> {
        let Some((id, abbreviation)) = &record.abbreviation else {
            let [code, operands @ ..] = &record.values[..] else {
                return Err(self.fault("a record without a code"));
            };
            self.fixed(UNABBREV_RECORD.into(), width)?;
            self.vbr(*code, 6)?;
            self.vbr(operands.len() as u64, 6)?;
            return operands.iter().try_for_each(|value| self.vbr(*value, 6));
        };
        if let Tail::Hole { index, size } = record.tail {
            let code = record.code().unwrap_or_default();
            return self.hole(*id, code, index, size, width);
        }
        self.fixed((*id).into(), width)?;
        let mut values = record.values.iter().copied();
        let mut operands = abbreviation.operands.iter();
        while let Some(operand) = operands.next() {
            match operand {
                Operand::Array => {
                    let each = operands.next().copied().unwrap_or(Operand::Literal(0));
                    self.vbr(values.len() as u64, 6)?;
                    values
                        .by_ref()
                        .try_for_each(|value| self.scalar(each, value))?;
                }
                Operand::Blob => self.blob(&record.tail)?,
                scalar => {
                    let value = values
                        .next()
                        .ok_or_else(|| self.fault("a record shorter than its abbreviation"))?;
                    self.scalar(*scalar, value)?;
                }
            }
        }
        match values.next() {
            Some(_) => Err(self.fault("a record longer than its abbreviation")),
            None => Ok(()),
        }
    }

    fn scalar(&mut self, operand: Operand, value: u64) -> Result<(), Malformed> {
        match operand {
            Operand::Literal(always) if always == value => Ok(()),
            Operand::Fixed(width) => self.fixed(value, width),
            Operand::Vbr(width) => self.vbr(value, width),
            Operand::Char6 => match CHAR6_CHARS
                .iter()
                .position(|char| u64::from(*char) == value)
            {
                Some(index) => self.fixed(index as u64, 6),
                None => Err(self.fault("a value too large for its abbreviation")),
            },
            _ => Err(self.fault("a value too large for its abbreviation")),
        }
    }

    fn blob(&mut self, tail: &Tail) -> Result<(), Malformed> {
        let Tail::Blob(bytes) = tail else {
            return Err(self.fault("a record without bytes"));
        };
        self.vbr(bytes.len() as u64, 6)?;
        self.align();
        self.bytes.extend(bytes);
        self.align();
        Ok(())
    }

    /// Writes a record with a hole. `id` is the first of eight abbreviations for it. Uses the one
    /// with which the hole starts at a whole byte.
    fn hole(
        &mut self,
        id: u32,
        code: u64,
        index: usize,
        size: u32,
        width: u32,
    ) -> Result<(), Malformed> {
        let chunks = (u32::BITS - size.leading_zeros()).div_ceil(5).max(1);
        let more = (8 - (self.open_bits + width + HOLE_CODE + 6 * chunks) % 8) % 8;
        self.fixed((id + more).into(), width)?;
        self.fixed(code, HOLE_CODE + more)?;
        self.vbr(size.into(), 6)?;
        if self.open_bits != 0 {
            return Err(self.fault("a placeholder that does not start at a whole byte"));
        }
        self.holes.push((self.bytes.len(), index));
        self.hole_bytes += u64::from(size);
        Ok(())
    }

    fn fixed(&mut self, value: u64, width: u32) -> Result<(), Malformed> {
        if width < 64 && value >> width != 0 {
            return Err(self.fault("a value too large for its abbreviation"));
        }
        let (mut value, mut left) = (value, width);
        while left > 0 {
            let take = left.min(8 - self.open_bits);
            // The shift drops the bits that do not fit into this byte.
            self.open |= (value as u8) << self.open_bits;
            self.open_bits += take;
            value >>= take;
            left -= take;
            if self.open_bits == 8 {
                self.bytes.push(std::mem::take(&mut self.open));
                self.open_bits = 0;
            }
        }
        Ok(())
    }

    pub(crate) fn vbr(&mut self, mut value: u64, width: u32) -> Result<(), Malformed> {
        let more = 1u64 << (width - 1);
        while value >= more {
            self.fixed(value & (more - 1) | more, width)?;
            value >>= width - 1;
        }
        self.fixed(value, width)
    }

    /// Pads with zeros to the next word.
    pub(crate) fn align(&mut self) {
        if self.open_bits > 0 {
            self.bytes.push(std::mem::take(&mut self.open));
            self.open_bits = 0;
        }
        while !self.at().is_multiple_of(32) {
            self.bytes.push(0);
        }
    }
}
