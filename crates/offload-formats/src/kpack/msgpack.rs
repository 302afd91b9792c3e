//! MessagePack, value by value: a value that is not needed is skipped, and keeps its bytes.

use rmp::Marker;
use rmp::decode::{self, RmpRead};
use rmp::encode;

use crate::error::Malformed;

const DAMAGED: &str = "damaged MessagePack";

/// A position in the bytes of values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a> {
    rest: &'a [u8],
    size: usize,
    /// The offset of the first value, for errors.
    base: u64,
}

impl<'a> Values<'a> {
    /// The values in `bytes`, which are at offset `base`.
    pub(super) fn new(bytes: &'a [u8], base: u64) -> Self {
        Values {
            rest: bytes,
            size: bytes.len(),
            base,
        }
    }

    /// The offset of the next value.
    pub(super) fn at(&self) -> u64 {
        self.base + (self.size - self.rest.len()) as u64
    }

    fn fault(&self, what: &'static str) -> Malformed {
        Malformed::new(what, self.at())
    }

    /// Reads the number of fields of a map. A key and a value follow for each.
    pub(super) fn map(&mut self, what: &'static str) -> Result<u32, Malformed> {
        let fault = self.fault(what);
        decode::read_map_len(&mut self.rest).map_err(|_| fault)
    }

    /// Reads the number of elements of a list, which follow.
    pub(super) fn list(&mut self, what: &'static str) -> Result<u32, Malformed> {
        let fault = self.fault(what);
        decode::read_array_len(&mut self.rest).map_err(|_| fault)
    }

    /// Reads a text.
    pub(super) fn text(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let fault = self.fault(what);
        let (text, rest) = decode::read_str_from_slice(self.rest).map_err(|_| fault)?;
        self.rest = rest;
        Ok(text)
    }

    /// Reads a number that is not negative.
    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let fault = self.fault(what);
        decode::read_int(&mut self.rest).map_err(|_| fault)
    }

    /// Skips a value, with everything in it, and returns its bytes.
    pub(super) fn skip(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.rest;
        let mut left = 1u64;
        while left > 0 {
            left -= 1;
            let fault = self.fault(DAMAGED);
            let marker = decode::read_marker(&mut self.rest).map_err(|_| fault)?;
            let (bytes, values) = match marker {
                Marker::FixPos(_)
                | Marker::FixNeg(_)
                | Marker::Null
                | Marker::True
                | Marker::False => (0, 0),
                Marker::U8 | Marker::I8 => (1, 0),
                Marker::U16 | Marker::I16 => (2, 0),
                Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
                Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
                Marker::FixStr(size) => (size.into(), 0),
                Marker::Str8 | Marker::Bin8 => (self.length(1)?, 0),
                Marker::Str16 | Marker::Bin16 => (self.length(2)?, 0),
                Marker::Str32 | Marker::Bin32 => (self.length(4)?, 0),
                Marker::FixArray(count) => (0, count.into()),
                Marker::Array16 => (0, self.length(2)?),
                Marker::Array32 => (0, self.length(4)?),
                Marker::FixMap(count) => (0, 2 * u64::from(count)),
                Marker::Map16 => (0, 2 * self.length(2)?),
                Marker::Map32 => (0, 2 * self.length(4)?),
                // A type, then the bytes.
                Marker::FixExt1 => (2, 0),
                Marker::FixExt2 => (3, 0),
                Marker::FixExt4 => (5, 0),
                Marker::FixExt8 => (9, 0),
                Marker::FixExt16 => (17, 0),
                Marker::Ext8 => (1 + self.length(1)?, 0),
                Marker::Ext16 => (1 + self.length(2)?, 0),
                Marker::Ext32 => (1 + self.length(4)?, 0),
                Marker::Reserved => return Err(fault),
            };
            let bytes = usize::try_from(bytes).map_err(|_| fault)?;
            self.rest = self.rest.get(bytes..).ok_or(fault)?;
            left += values;
        }
        let size = start.len() - self.rest.len();
        start.get(..size).ok_or(self.fault(DAMAGED))
    }

    /// A length of `size` bytes, big-endian.
    fn length(&mut self, size: usize) -> Result<u64, Malformed> {
        let fault = self.fault(DAMAGED);
        let mut bytes = [0; 8];
        let low = bytes.get_mut(8 - size..).ok_or(fault)?;
        self.rest.read_exact_buf(low).map_err(|_| fault)?;
        Ok(u64::from_be_bytes(bytes))
    }
}

/// Values that are written.
#[derive(Debug, Default)]
pub(super) struct Written(pub(super) Vec<u8>);

// Writing to memory does not fail.
impl Written {
    pub(super) fn map(&mut self, fields: usize) {
        let _ = encode::write_map_len(&mut self.0, fields as u32);
    }

    pub(super) fn list(&mut self, elements: usize) {
        let _ = encode::write_array_len(&mut self.0, elements as u32);
    }

    pub(super) fn text(&mut self, text: &str) {
        let _ = encode::write_str(&mut self.0, text);
    }

    pub(super) fn number(&mut self, number: u64) {
        let _ = encode::write_uint(&mut self.0, number);
    }

    /// Adds a value that was read.
    pub(super) fn raw(&mut self, value: &[u8]) {
        self.0.extend(value);
    }
}
