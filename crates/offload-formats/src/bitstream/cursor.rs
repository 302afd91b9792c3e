//! Reads a bitstream entry by entry: blocks, which can be entered or skipped, definitions of
//! abbreviations, and records. Only the requested values of a record are stored. Used by the tree
//! reader (`read`) and the readers of bitcode. `Bits` reads the numbers and bytes of an entry.
//!
//! Time and memory are bounded by the size of the data. Array elements must take at least one bit,
//! and values without bits (literals) must not outnumber the bits of the data.

use super::*;
use crate::error::Malformed;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The limit on abbreviations that BLOCKINFO defines for a block. LLVM's blocks have about ten.
const MAX_GIVEN: usize = 1024;

/// A position between two entries of a bitstream.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bits: Bits<'a>,
    /// The abbreviations from BLOCKINFO, by block ID.
    given: BTreeMap<u32, Arc<Vec<Arc<Abbreviation>>>>,
    /// The number of values without bits that are still allowed.
    literals_left: u64,
}

/// A block that the cursor is in, or is about to enter or skip.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// The ID of the block's type.
    pub id: u32,
    /// The width of abbreviation IDs in the block.
    pub width: u32,
    /// The number of the bit at which the block is entered.
    pub was_at: u64,
    /// The number of the bit of the first entry.
    start: u64,
    /// The number of the bit after the block, according to the length in its header.
    end: u64,
    inherited: Arc<Vec<Arc<Abbreviation>>>,
    own: Vec<Arc<Abbreviation>>,
    /// In BLOCKINFO: the block that the next abbreviations belong to.
    target: Option<u32>,
}

/// The next entry of a block.
#[derive(Debug)]
pub(crate) enum StreamEntry {
    /// The end of the block.
    End,
    /// A block, which can be entered or skipped.
    Block(Scope),
    /// The definition of an abbreviation, which the cursor has stored.
    Abbreviation(Arc<Abbreviation>),
    /// A record, encoded with the abbreviation of this ID or without one. `open` reads its code.
    Record(u32),
}

/// A record whose code has been read. The caller must read or skip its values next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open<'s> {
    pub code: u64,
    /// The abbreviation with which the record is encoded, if any.
    pub abbreviation: Option<&'s Arc<Abbreviation>>,
}

impl Scope {
    /// The number of the block's abbreviations from BLOCKINFO.
    pub(crate) fn inherited(&self) -> u32 {
        self.inherited.len() as u32
    }

    fn abbreviation(&self, id: u32) -> Option<&Arc<Abbreviation>> {
        let index = id.checked_sub(FIRST_OWN)? as usize;
        match index.checked_sub(self.inherited.len()) {
            None => self.inherited.get(index),
            Some(own) => self.own.get(own),
        }
    }
}

impl<'a> Cursor<'a> {
    /// A cursor at the first entry of the stream `data`, after its magic.
    pub(crate) fn new(data: &'a [u8]) -> Result<Self, Malformed> {
        if !data.starts_with(&MAGIC) {
            return Err(Malformed::new("not a bitstream", 0));
        }
        Ok(Cursor {
            bits: Bits::new(data, 32),
            given: BTreeMap::new(),
            literals_left: data.len() as u64 * 8,
        })
    }

    /// The error `what` at this position.
    pub(crate) fn fault(&self, what: &'static str) -> Malformed {
        self.bits.fault(what)
    }

    /// The number of bytes that are left in the stream.
    pub(crate) fn left(&self) -> u64 {
        self.bits.len().saturating_sub(self.bits.at()) / 8
    }

    /// Reads the header of the next top-level block.
    pub(crate) fn top(&mut self) -> Result<Scope, Malformed> {
        match u32::try_from(self.bits.fixed(TOP_WIDTH)?) {
            Ok(ENTER_SUBBLOCK) => self.head(TOP_WIDTH),
            _ => Err(self.fault("a top-level entry that is not a block")),
        }
    }

    /// Reads the header of a block, after ENTER_SUBBLOCK in a block with IDs of `outer` bits.
    fn head(&mut self, outer: u32) -> Result<Scope, Malformed> {
        let was_at = self.bits.at() - u64::from(outer);
        let (id, width) = (self.bits.vbr(8)?, self.bits.vbr(4)?);
        let (Ok(id), Some(width)) = (
            u32::try_from(id),
            u32::try_from(width)
                .ok()
                .filter(|width| (2..=32).contains(width)),
        ) else {
            return Err(self.fault("a block with an invalid header"));
        };
        self.bits.align()?;
        let words = self.bits.fixed(32)?;
        let start = self.bits.at();
        let end = start + words * 32;
        if end > self.bits.len() {
            return Err(self.fault("a block past the end"));
        }
        // Each module has its own BLOCKINFO, which replaces the previous module's.
        if id == BLOCKINFO {
            self.given.clear();
        }
        let inherited = self.given.get(&id).cloned().unwrap_or_default();
        Ok(Scope {
            id,
            width,
            was_at,
            start,
            end,
            inherited,
            own: Vec::new(),
            target: None,
        })
    }

    /// Reads the next entry of `scope`. After `End`, the cursor is behind the block.
    pub(crate) fn next(&mut self, scope: &mut Scope) -> Result<StreamEntry, Malformed> {
        match self.bits.fixed(scope.width)? as u32 {
            END_BLOCK => {
                self.bits.align()?;
                if self.bits.at() != scope.end {
                    return Err(self.fault("a block with a wrong length"));
                }
                Ok(StreamEntry::End)
            }
            ENTER_SUBBLOCK => Ok(StreamEntry::Block(self.head(scope.width)?)),
            DEFINE_ABBREV => {
                let made = Arc::new(self.abbreviation()?);
                self.define(scope, &made)?;
                Ok(StreamEntry::Abbreviation(made))
            }
            id => Ok(StreamEntry::Record(id)),
        }
    }

    /// Skips the block `scope`, which has not been entered. BLOCKINFO is read instead, because
    /// later blocks need it.
    pub(crate) fn skip(&mut self, mut scope: Scope) -> Result<(), Malformed> {
        if scope.id != BLOCKINFO {
            return self.bits.pass(scope.end.saturating_sub(self.bits.at()), 1);
        }
        let mut values = Vec::new();
        loop {
            match self.next(&mut scope)? {
                StreamEntry::End => return Ok(()),
                StreamEntry::Block(inner) => self
                    .bits
                    .pass(inner.end.saturating_sub(self.bits.at()), 1)?,
                StreamEntry::Abbreviation(_) => {}
                StreamEntry::Record(id) => {
                    let open = self.open(&scope, id)?;
                    self.values(open, 2, &mut values)?;
                    self.block_info(&mut scope, &values)?;
                }
            }
        }
    }

    /// The entries of the block `scope`, which has not been entered.
    pub(crate) fn body(&self, scope: &Scope) -> Result<&'a [u8], Malformed> {
        let mut bits = self.bits.clone();
        bits.bytes(scope.end.saturating_sub(bits.at()) / 8)
    }

    /// Opens the next record of the block `scope`, past inner blocks. Returns `None` at the end of
    /// the block. The caller must read the rest of the record next.
    pub(crate) fn next_record<'s>(
        &mut self,
        scope: &'s mut Scope,
    ) -> Result<Option<Open<'s>>, Malformed> {
        loop {
            match self.next(scope)? {
                StreamEntry::End => return Ok(None),
                StreamEntry::Block(inner) => self.skip(inner)?,
                StreamEntry::Abbreviation(_) => {}
                StreamEntry::Record(id) => return self.open(scope, id).map(Some),
            }
        }
    }

    /// Moves back to the first entry of a block that was skipped or read.
    pub(crate) fn again(&mut self, scope: &Scope) {
        self.bits = Bits::new(self.bits.data(), scope.start);
    }

    /// Handles a record of BLOCKINFO, which may select the block for the next abbreviations.
    pub(crate) fn block_info(&self, scope: &mut Scope, values: &[u64]) -> Result<(), Malformed> {
        if let (BLOCKINFO, [SETBID, block, ..]) = (scope.id, values) {
            scope.target =
                Some(u32::try_from(*block).map_err(|_| self.fault("a block id too large"))?);
        }
        Ok(())
    }

    fn define(&mut self, scope: &mut Scope, made: &Arc<Abbreviation>) -> Result<(), Malformed> {
        if scope.id != BLOCKINFO {
            scope.own.push(Arc::clone(made));
            return Ok(());
        }
        let target = scope
            .target
            .ok_or_else(|| self.fault("an abbreviation without a block"))?;
        let given = self.given.entry(target).or_default();
        if given.len() >= MAX_GIVEN {
            return Err(self.fault("too many abbreviations for one block"));
        }
        Arc::make_mut(given).push(Arc::clone(made));
        Ok(())
    }

    fn abbreviation(&mut self) -> Result<Abbreviation, Malformed> {
        let count = self.bits.vbr(5)?;
        let mut operands = Vec::new();
        for _ in 0..count {
            if self.bits.fixed(1)? == 1 {
                operands.push(Operand::Literal(self.bits.vbr(8)?));
                continue;
            }
            operands.push(match self.bits.fixed(3)? {
                FIXED => Operand::Fixed(self.width(0)?),
                VBR => Operand::Vbr(self.width(2)?),
                ARRAY => Operand::Array,
                CHAR6 => Operand::Char6,
                BLOB => Operand::Blob,
                _ => return Err(self.fault("an unknown encoding of an abbreviation")),
            });
        }
        let scalars = |operands: &[Operand]| operands.iter().all(|operand| operand.is_scalar());
        // The first value is the code, which cannot be an array or a blob. Only the last value can
        // be one.
        let valid = match &operands[..] {
            [code, before @ .., Operand::Array, element] => {
                code.is_scalar() && scalars(before) && element.is_scalar()
            }
            [code, before @ .., last] => {
                code.is_scalar() && scalars(before) && *last != Operand::Array
            }
            [code] => code.is_scalar(),
            [] => false,
        };
        if !valid {
            return Err(self.fault("an invalid abbreviation"));
        }
        Ok(Abbreviation { operands })
    }

    fn width(&mut self, least: u64) -> Result<u32, Malformed> {
        let width = self.bits.vbr(5)?;
        if !(least..=64).contains(&width) {
            return Err(self.fault("an invalid width of a number"));
        }
        Ok(width as u32)
    }

    /// Reads the code of a record of `scope` that is encoded with the abbreviation `id`. The caller
    /// must read the rest of the record next.
    pub(crate) fn open<'s>(&mut self, scope: &'s Scope, id: u32) -> Result<Open<'s>, Malformed> {
        if id == UNABBREV_RECORD {
            return Ok(Open {
                code: self.bits.vbr(6)?,
                abbreviation: None,
            });
        }
        let abbreviation = scope
            .abbreviation(id)
            .ok_or_else(|| self.fault("an undefined abbreviation"))?;
        let code = abbreviation
            .operands
            .first()
            .copied()
            .unwrap_or(Operand::Array);
        Ok(Open {
            code: self.scalar(code)?,
            abbreviation: Some(abbreviation),
        })
    }

    /// Reads `open` to its end. Stores its code and the values after it in `values`, at most `most`
    /// in total. Returns the bytes of its blob.
    pub(crate) fn values(
        &mut self,
        open: Open<'_>,
        most: usize,
        values: &mut Vec<u64>,
    ) -> Result<Option<&'a [u8]>, Malformed> {
        values.clear();
        values.push(open.code);
        let Some(abbreviation) = open.abbreviation else {
            for _ in 0..self.bits.vbr(6)? {
                let value = self.bits.vbr(6)?;
                if values.len() < most {
                    values.push(value);
                }
            }
            return Ok(None);
        };
        let mut operands = abbreviation.operands.iter().skip(1);
        while let Some(operand) = operands.next() {
            match operand {
                Operand::Array => self.array(operands.next().copied(), most, values)?,
                Operand::Blob => return self.blob().map(Some),
                scalar => {
                    let value = self.scalar(*scalar)?;
                    if values.len() < most {
                        values.push(value);
                    }
                }
            }
        }
        Ok(None)
    }

    fn array(
        &mut self,
        element: Option<Operand>,
        most: usize,
        values: &mut Vec<u64>,
    ) -> Result<(), Malformed> {
        let count = self.bits.vbr(6)?;
        let width = match element {
            Some(Operand::Fixed(width)) if width > 0 => Some(width),
            Some(Operand::Char6) => Some(6),
            Some(Operand::Vbr(_)) => None,
            // LLVM defines arrays of elements without bits in modules without types, but such
            // arrays are empty.
            _ if count == 0 => return Ok(()),
            _ => return Err(self.fault("an array with elements of zero bits")),
        };
        let stored = count.min(most.saturating_sub(values.len()) as u64);
        let read = if width.is_some() { stored } else { count };
        for index in 0..read {
            let value = self.scalar(element.unwrap_or(Operand::Literal(0)))?;
            if index < stored {
                values.push(value);
            }
        }
        self.bits.pass(count - read, width.unwrap_or(0))
    }

    /// Reads `open` to its end. Returns all values after its code and the bytes of its blob as one
    /// text.
    pub(crate) fn bytes(&mut self, open: Open<'_>) -> Result<Cow<'a, [u8]>, Malformed> {
        let mut bytes = Vec::new();
        let Some(abbreviation) = open.abbreviation else {
            for _ in 0..self.bits.vbr(6)? {
                let value = self.bits.vbr(6)?;
                bytes.push(self.byte(value)?);
            }
            return Ok(Cow::Owned(bytes));
        };
        let mut operands = abbreviation.operands.iter().skip(1);
        while let Some(operand) = operands.next() {
            match operand {
                Operand::Array => match operands.next() {
                    Some(Operand::Fixed(8)) => {
                        let count = self.bits.vbr(6)?;
                        if bytes.is_empty() && self.bits.at().is_multiple_of(8) {
                            return self.bits.bytes(count).map(Cow::Borrowed);
                        }
                        self.bits.shifted_bytes(count, &mut bytes)?;
                    }
                    element => self.array_bytes(element.copied(), &mut bytes)?,
                },
                Operand::Blob => {
                    let blob = self.blob()?;
                    if bytes.is_empty() {
                        return Ok(Cow::Borrowed(blob));
                    }
                    bytes.extend(blob);
                }
                scalar => {
                    let value = self.scalar(*scalar)?;
                    bytes.push(self.byte(value)?);
                }
            }
        }
        Ok(Cow::Owned(bytes))
    }

    fn array_bytes(
        &mut self,
        element: Option<Operand>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let count = self.bits.vbr(6)?;
        let element =
            element.filter(|element| !matches!(element, Operand::Literal(_) | Operand::Fixed(0)));
        for _ in 0..count {
            let value = self.scalar(
                element.ok_or_else(|| self.fault("an array with elements of zero bits"))?,
            )?;
            bytes.push(self.byte(value)?);
        }
        Ok(())
    }

    fn byte(&self, value: u64) -> Result<u8, Malformed> {
        u8::try_from(value).map_err(|_| self.fault("a character of more than 8 bits"))
    }

    /// Skips the rest of `open`.
    pub(crate) fn pass(&mut self, open: Open<'_>) -> Result<(), Malformed> {
        self.values(open, 1, &mut Vec::new()).map(|_| ())
    }

    fn scalar(&mut self, operand: Operand) -> Result<u64, Malformed> {
        match operand {
            Operand::Fixed(width) if width > 0 => self.bits.fixed(width),
            Operand::Vbr(width) => self.bits.vbr(width),
            Operand::Char6 => Ok(CHAR6_CHARS
                .get(self.bits.fixed(6)? as usize)
                .copied()
                .unwrap_or_default()
                .into()),
            Operand::Literal(_) | Operand::Fixed(_) => {
                let left = self.literals_left.checked_sub(1);
                self.literals_left =
                    left.ok_or_else(|| self.fault("too many values of zero bits"))?;
                Ok(if let Operand::Literal(value) = operand {
                    value
                } else {
                    0
                })
            }
            Operand::Array | Operand::Blob => Err(self.fault("an invalid abbreviation")),
        }
    }

    fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let size = self.bits.vbr(6)?;
        self.bits.align()?;
        let bytes = self.bits.bytes(size)?;
        self.bits.align()?;
        Ok(bytes)
    }
}

impl Operand {
    /// Whether the operand is a single value, not an array or a blob.
    fn is_scalar(self) -> bool {
        !matches!(self, Operand::Array | Operand::Blob)
    }
}

// The bits of a bitstream, lowest first: numbers of fixed width, numbers in chunks (VBR), words and
// bytes.

/// A position in a bitstream. Reading past the end is an error, which detects wrong lengths in the
/// data.
#[derive(Debug, Clone)]
pub(crate) struct Bits<'a> {
    data: &'a [u8],
    at: u64,
}

impl<'a> Bits<'a> {
    /// The bits of `data`, starting at bit number `at`.
    pub(crate) fn new(data: &'a [u8], at: u64) -> Self {
        Bits { data, at }
    }

    /// All data, including the part before the position.
    pub(crate) fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The number of the next bit.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The number of all bits, including those before the position.
    pub(crate) fn len(&self) -> u64 {
        self.data.len() as u64 * 8
    }

    /// The error `what` at this position.
    pub(crate) fn fault(&self, what: &'static str) -> Malformed {
        Malformed::new(what, self.at / 8)
    }

    /// Reads a number of `width` bits, at most 64.
    pub(crate) fn fixed(&mut self, width: u32) -> Result<u64, Malformed> {
        let skip = (self.at % 8) as u32;
        let start = usize::try_from(self.at / 8).unwrap_or(usize::MAX);
        // Fast path: the bits are within eight bytes of the data.
        if width + skip <= 64
            && let Some(word) = self.data.get(start..).and_then(|rest| rest.first_chunk())
        {
            let word = u64::from_le_bytes(*word);
            self.at += u64::from(width);
            return Ok(word.checked_shr(skip).unwrap_or(0) & mask(width));
        }
        self.slowly(width)
    }

    /// The same as `fixed`, but byte by byte, for the end of the data.
    fn slowly(&mut self, width: u32) -> Result<u64, Malformed> {
        let mut value = 0;
        let mut got = 0;
        while got < width {
            let byte = usize::try_from(self.at / 8)
                .ok()
                .and_then(|at| self.data.get(at))
                .copied();
            let byte = byte.ok_or(Malformed::new(
                "the bitstream is cut short",
                self.data.len() as u64,
            ))?;
            let skip = (self.at % 8) as u32;
            let take = (8 - skip).min(width - got);
            value |= (u64::from(byte) >> skip & mask(take)) << got;
            got += take;
            self.at += u64::from(take);
        }
        Ok(value)
    }

    /// Reads a number in chunks of `width` bits (2 to 64). The highest bit of a chunk marks that
    /// another chunk follows.
    pub(crate) fn vbr(&mut self, width: u32) -> Result<u64, Malformed> {
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

    /// Advances to the next 32-bit word. The skipped bits must be zeros, as LLVM writes them.
    pub(crate) fn align(&mut self) -> Result<(), Malformed> {
        let skipped = (32 - self.at % 32) % 32;
        if self.fixed(skipped as u32)? != 0 {
            return Err(self.fault("padding that is not zero"));
        }
        Ok(())
    }

    /// Skips `count` times `width` bits.
    pub(crate) fn pass(&mut self, count: u64, width: u32) -> Result<(), Malformed> {
        let end = count
            .checked_mul(width.into())
            .and_then(|bits| self.at.checked_add(bits))
            .filter(|end| *end <= self.len());
        self.at = end.ok_or_else(|| self.fault("a value past the end"))?;
        Ok(())
    }

    /// Returns the next `count` bytes. The position must be at the start of a byte.
    pub(crate) fn bytes(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let bytes = crate::bytes::slice(
            self.data,
            self.at / 8,
            count,
            "bytes past the end",
            self.at / 8,
        )?;
        self.at += count * 8;
        Ok(bytes)
    }

    /// Appends the next `count` bytes to `out`. The position may be within a byte.
    pub(crate) fn shifted_bytes(&mut self, count: u64, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let (at, skip) = (self.at / 8, (self.at % 8) as u32);
        self.pass(count, 8)?;
        let covered = count + u64::from(skip > 0 && count > 0);
        let bytes = crate::bytes::slice(self.data, at, covered, "bytes past the end", at)?;
        if skip == 0 {
            out.extend(bytes);
        } else {
            out.extend(bytes.windows(2).map(|pair| match pair {
                [low, high] => low >> skip | high << (8 - skip),
                _ => 0,
            }));
        }
        Ok(())
    }
}

/// The lowest `width` bits.
fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(64 - width.min(64)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_by_word_and_by_byte_agree() {
        let data: Vec<u8> = (0..40u32).map(|index| (index * 73 + 11) as u8).collect();
        for at in 0..100 {
            for width in 0..=64 {
                let (mut one, mut two) = (Bits::new(&data, at), Bits::new(&data, at));
                assert_eq!(one.fixed(width), two.slowly(width), "{at} {width}");
                assert_eq!(one.at(), two.at());
            }
        }
    }

    #[test]
    fn bytes_are_read_from_between_bytes() {
        let data: Vec<u8> = (0..40u32).map(|index| (index * 73 + 11) as u8).collect();
        for at in 0..20 {
            let (mut one, mut two, mut out) =
                (Bits::new(&data, at), Bits::new(&data, at), Vec::new());
            one.shifted_bytes(37, &mut out).unwrap();
            assert_eq!(
                out,
                (0..37)
                    .map(|_| two.fixed(8).unwrap() as u8)
                    .collect::<Vec<_>>()
            );
            assert_eq!(one.at(), two.at());
        }
        let mut bits = Bits::new(&data, 8 * 39 + 1);
        assert_eq!(bits.shifted_bytes(1, &mut Vec::new()).unwrap_err().at, 39);
        assert_eq!(
            bits.shifted_bytes(u64::MAX, &mut Vec::new())
                .unwrap_err()
                .at,
            39
        );
    }

    #[test]
    fn reading_past_the_end_is_an_error() {
        let mut bits = Bits::new(&[0xff; 9], 32);
        assert_eq!(bits.fixed(64).unwrap_err().at, 9);
        assert_eq!(
            Bits::new(&[0xff; 12], 0).vbr(6).unwrap_err().what,
            "a number of more than 64 bits"
        );
        assert_eq!(Bits::new(&[1; 4], 31).pass(2, 1).unwrap_err().at, 3);
    }
}
