//! LLVM's bitstream, the container that bitcode is in: blocks, records and abbreviations (source: LLVM's `BitCodeFormat` document).
//! `cursor` goes through a stream entry by entry, for who wants little of it (`formats::bitcode`); `read` makes a tree of it, which
//! `write` writes again. What is written as it was read is the same to the bit. Nothing here knows LLVM IR but for `images`, which
//! puts device images into a module that was made without them.
//!
//! An array of bytes may be a hole: it has a length and no bytes, and whoever writes the stream to a file fills it in.
//!
//! ```
//! use offld::formats::bitstream::{Block, Item, StreamPiece, Record, Stream, Tail, read, write};
//!
//! let record = Item::Record(Record { abbreviation: None, values: vec![7, 1, 2, 3], tail: Tail::None });
//! let block = Block { id: 8, width: 4, items: vec![record], inherited: 0, was_at: 0 };
//! let written = write(&Stream { items: vec![Item::Block(block)] })?;
//! let [StreamPiece::Bytes(bytes)] = &written.pieces[..] else { return Err("not bytes".into()) };
//! let again = read(bytes)?;
//! let Some(Item::Block(block)) = again.items.first() else { return Err("no block".into()) };
//! let Some(Item::Record(record)) = block.items.first() else { return Err("no record".into()) };
//! assert_eq!((block.id, &record.values[..]), (8, &[7, 1, 2, 3][..]));
//! // What is cut short is an error with an offset.
//! assert!(read(&bytes[..bytes.len() - 4]).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod bits;
pub(crate) mod cursor;
pub mod images;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use read::read;
pub use write::{Placed, StreamPiece, Written, write};

use std::sync::Arc;

/// The first four bytes of bitcode.
pub use super::magic::BITCODE as MAGIC;

/// The width of abbreviation ids outside of all blocks.
const TOP_WIDTH: u32 = 2;
/// Of abbreviation ids: these four are built in, and the stream's own follow.
const END_BLOCK: u32 = 0;
const ENTER_SUBBLOCK: u32 = 1;
const DEFINE_ABBREV: u32 = 2;
const UNABBREV_RECORD: u32 = 3;
const FIRST_OWN: u32 = 4;
/// The block that defines abbreviations for others, and its record that says for which.
const BLOCKINFO: u32 = 0;
const SETBID: u64 = 1;
/// Of an abbreviation's operands, as encoded.
const FIXED: u64 = 1;
const VBR: u64 = 2;
const ARRAY: u64 = 3;
const CHAR6: u64 = 4;
const BLOB: u64 = 5;
/// The characters that `char6` has, by value.
const CHAR6_CHARS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";

/// A stream: the items outside of all blocks, after the magic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// What it holds, in order.
    pub items: Vec<Item>,
}

/// What a block holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A block within it.
    Block(Block),
    /// A record.
    Record(Record),
    /// The definition of an abbreviation for the records that follow (in BLOCKINFO: for other blocks).
    Abbreviation(Arc<Abbreviation>),
}

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What kind of block it is.
    pub id: u32,
    /// The width of abbreviation ids in it.
    pub width: u32,
    /// What it holds, in order.
    pub items: Vec<Item>,
    /// How many abbreviations BLOCKINFO has given it: its own ids come after those.
    pub inherited: u32,
    /// Where it was in the stream that it was read from, as the number of the bit at which it is entered.
    pub was_at: u64,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// How it is encoded; none is the long form.
    pub abbreviation: Option<(u32, Arc<Abbreviation>)>,
    /// Its code, then its operands.
    pub values: Vec<u64>,
    /// The bytes at its end.
    pub tail: Tail,
}

/// The bytes at the end of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tail {
    /// It has none, or has them among its values.
    None,
    /// The bytes that a blob is.
    Blob(Vec<u8>),
    /// An array of as many bytes as `size`, which are not at hand: whoever writes the stream to a file has them, under this index.
    /// The record has no other value than its code, and its abbreviation is the first of `Abbreviation::around_hole`.
    Hole {
        /// Which hole it is.
        index: usize,
        /// How many bytes.
        size: u32,
    },
}

/// How a record is encoded, value by value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abbreviation {
    /// One for each value; `Array` stands for all that are left and is followed by what each of them is.
    pub operands: Vec<Operand>,
}

/// How a value is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// Not at all: it is always this.
    Literal(u64),
    /// In so many bits; with none it is 0.
    Fixed(u32),
    /// In chunks of so many bits.
    Vbr(u32),
    /// A number of values, each encoded as the operand after this one.
    Array,
    /// One of 64 characters.
    Char6,
    /// A number of bytes, aligned to words.
    Blob,
}

/// How many bits the code of a record with a hole takes at least.
const HOLE_CODE: u32 = 8;

impl Abbreviation {
    /// Eight ways to encode a record that is an array of bytes: they differ in the bits its code takes, so that with one of them
    /// the bytes start at a byte.
    pub fn around_hole() -> [Abbreviation; 8] {
        [0, 1, 2, 3, 4, 5, 6, 7]
            .map(|more| Abbreviation { operands: vec![Operand::Fixed(HOLE_CODE + more), Operand::Array, Operand::Fixed(8)] })
    }
}

impl Record {
    /// Its code.
    pub fn code(&self) -> Option<u64> {
        self.values.first().copied()
    }
}
