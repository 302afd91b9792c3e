//! LLVM's bitstream, the container format of bitcode: blocks, records and abbreviations (source:
//! LLVM's `BitCodeFormat` document).
//!
//! `cursor` reads a stream entry by entry, for callers that need a small part of it (`bitcode`).
//! `read` returns a tree, which `write` writes again: an unchanged stream is reproduced bit for
//! bit. Only `images`, which inserts device images into a module, knows LLVM IR.
//!
//! A byte array may be a hole: it has a length but no bytes, and the caller inserts them when it
//! writes the file.
//!
//! ```
//! use offload_formats::bitstream::{Block, Item, Record, Stream, Tail, read, write};
//! use offload_formats::compose::Part;
//!
//! let record = Item::Record(Record { abbreviation: None, values: vec![7, 1, 2, 3], tail: Tail::None });
//! let block = Block { id: 8, width: 4, items: vec![record], inherited: 0, was_at: 0 };
//! let written = write(&Stream { items: vec![Item::Block(block)] })?;
//! let [Part::Bytes(bytes)] = &written.parts[..] else { return Err("not bytes".into()) };
//! let again = read(bytes)?;
//! let Some(Item::Block(block)) = again.items.first() else { return Err("no block".into()) };
//! let Some(Item::Record(record)) = block.items.first() else { return Err("no record".into()) };
//! assert_eq!((block.id, &record.values[..]), (8, &[7, 1, 2, 3][..]));
//! // A truncated stream is an error with an offset.
//! assert!(read(&bytes[..bytes.len() - 4]).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod cursor;
pub mod images;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use write::BitWriter;
pub use write::{Placed, Written, write};

use std::sync::Arc;

use crate::error::Malformed;
use cursor::{Cursor, Scope, StreamEntry};

/// The first four bytes of bitcode.
pub use super::magic::numbers::BITCODE as MAGIC;

/// The width of abbreviation IDs outside of all blocks.
const TOP_WIDTH: u32 = 2;
/// The four built-in abbreviation IDs, and the first ID of the stream's own abbreviations.
const END_BLOCK: u32 = 0;
const ENTER_SUBBLOCK: u32 = 1;
const DEFINE_ABBREV: u32 = 2;
const UNABBREV_RECORD: u32 = 3;
const FIRST_OWN: u32 = 4;
/// The block that defines abbreviations for other blocks, and its record that selects the block.
const BLOCKINFO: u32 = 0;
const SETBID: u64 = 1;
/// The encodings of an abbreviation's operands.
const FIXED: u64 = 1;
const VBR: u64 = 2;
const ARRAY: u64 = 3;
const CHAR6: u64 = 4;
const BLOB: u64 = 5;
/// The characters of `char6`, by value.
const CHAR6_CHARS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";

/// A stream: the items outside of all blocks, after the magic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The items, in order.
    pub items: Vec<Item>,
}

/// An item of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A nested block.
    Block(Block),
    /// A record.
    Record(Record),
    /// The definition of an abbreviation for later records (in BLOCKINFO: for other blocks).
    Abbreviation(Arc<Abbreviation>),
    /// A nested block that was not read. `read` returns none.
    Unread(UnreadBlock),
}

/// A block as it is stored. It can be written at another offset, because the entries of a block
/// have no absolute positions, except for the module's symbol table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadBlock {
    /// The type of the block.
    pub id: u32,
    /// The width of abbreviation IDs in the block.
    pub width: u32,
    /// The entries, whole words.
    pub body: Vec<u8>,
    /// The number of the bit at which the block was entered in the input stream.
    pub was_at: u64,
}

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The type of the block.
    pub id: u32,
    /// The width of abbreviation IDs in the block.
    pub width: u32,
    /// The items, in order.
    pub items: Vec<Item>,
    /// The number of abbreviations from BLOCKINFO. The block's own IDs follow.
    pub inherited: u32,
    /// The number of the bit at which the block was entered in the input stream.
    pub was_at: u64,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The abbreviation with which the record is encoded, with its ID. `None` for an unabbreviated
    /// record.
    pub abbreviation: Option<(u32, Arc<Abbreviation>)>,
    /// The code, then the operands.
    pub values: Vec<u64>,
    /// The bytes at the end.
    pub tail: Tail,
}

/// The bytes at the end of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tail {
    /// None, or bytes that are part of the values.
    None,
    /// The contents of a blob.
    Blob(Vec<u8>),
    /// An array of `size` bytes that the caller inserts when it writes the file. The code is the
    /// record's only value, and the abbreviation is the first of `Abbreviation::around_hole`.
    Hole {
        /// The index of the hole.
        index: usize,
        /// The size in bytes.
        size: u32,
    },
}

/// The encoding of a record, value by value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abbreviation {
    /// One operand per value. `Array` stands for all remaining values, and the operand after it is
    /// their encoding.
    pub operands: Vec<Operand>,
}

/// The encoding of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A constant value without bits.
    Literal(u64),
    /// A number of this many bits. The value 0 if there are none.
    Fixed(u32),
    /// A number in chunks of this many bits.
    Vbr(u32),
    /// A number of values, each encoded with the next operand.
    Array,
    /// One of 64 characters.
    Char6,
    /// A number of bytes, aligned to words.
    Blob,
}

/// The least number of bits of the code of a record with a hole.
const HOLE_CODE: u32 = 8;

impl Abbreviation {
    /// Eight encodings of a byte array record. They differ in the number of bits of the code, so
    /// that with one of them the array starts at a whole byte.
    pub fn around_hole() -> [Abbreviation; 8] {
        [0, 1, 2, 3, 4, 5, 6, 7].map(|more| Abbreviation {
            operands: vec![
                Operand::Fixed(HOLE_CODE + more),
                Operand::Array,
                Operand::Fixed(8),
            ],
        })
    }
}

impl Record {
    /// The record's code.
    pub fn code(&self) -> Option<u64> {
        self.values.first().copied()
    }
}

// The reader of a whole stream, as a tree.

/// The limit on the nesting of blocks. LLVM nests them three deep.
const MAX_DEPTH: u32 = 16;

/// Reads `data`, a complete stream including its magic.
pub fn read(data: &[u8]) -> Result<Stream, Malformed> {
    read_without(data, &|_, _| false)
}

/// Reads `data` like `read`, but not the nested blocks for which `unread` is true. `unread` gets
/// the ID and the entries of a block.
pub(crate) fn read_without(
    data: &[u8],
    unread: &dyn Fn(u32, &[u8]) -> bool,
) -> Result<Stream, Malformed> {
    let mut cursor = Cursor::new(data)?;
    let mut items = Vec::new();
    while cursor.left() > 0 {
        let scope = cursor.top()?;
        items.push(Item::Block(block(&mut cursor, scope, unread, 0)?));
    }
    Ok(Stream { items })
}

fn block(
    cursor: &mut Cursor<'_>,
    mut scope: Scope,
    unread: &dyn Fn(u32, &[u8]) -> bool,
    depth: u32,
) -> Result<Block, Malformed> {
    if depth >= MAX_DEPTH {
        return Err(cursor.fault("blocks nested too deeply"));
    }
    let mut items = Vec::new();
    loop {
        items.push(match cursor.next(&mut scope)? {
            StreamEntry::End => break,
            StreamEntry::Block(inner) if unread(inner.id, cursor.body(&inner)?) => {
                let unread = UnreadBlock {
                    id: inner.id,
                    width: inner.width,
                    body: cursor.body(&inner)?.to_vec(),
                    was_at: inner.was_at,
                };
                cursor.skip(inner)?;
                Item::Unread(unread)
            }
            StreamEntry::Block(inner) => Item::Block(block(cursor, inner, unread, depth + 1)?),
            StreamEntry::Abbreviation(made) => Item::Abbreviation(made),
            StreamEntry::Record(id) => Item::Record(record(cursor, &mut scope, id)?),
        });
    }
    Ok(Block {
        id: scope.id,
        width: scope.width,
        items,
        inherited: scope.inherited(),
        was_at: scope.was_at,
    })
}

fn record(cursor: &mut Cursor<'_>, scope: &mut Scope, id: u32) -> Result<Record, Malformed> {
    let mut values = Vec::new();
    let open = cursor.open(scope, id)?;
    let abbreviation = open
        .abbreviation
        .map(|abbreviation| (id, Arc::clone(abbreviation)));
    let blob = cursor.values(open, usize::MAX, &mut values)?;
    cursor.block_info(scope, &values)?;
    Ok(Record {
        abbreviation,
        values,
        tail: blob.map_or(Tail::None, |bytes| Tail::Blob(bytes.to_vec())),
    })
}
