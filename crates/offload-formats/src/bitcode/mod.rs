//! Reads LLVM bitcode without LLVM: its producer, the device images that it embeds, and the symbols
//! of its object file.
//!
//! All data comes from the records of the module, not from the symbol table (irsymtab) that may
//! follow it. That table lacks entry tables and their layout. Tools other than compilers do not
//! write it. It must be ignored if its producer is a different LLVM version, because its layout
//! changes.
//!
//! The records of LLVM 3.0 to 22 are known. Later records, blocks and additional operands are
//! skipped. Function bodies are skipped by their length.
//!
//! The functions here locate the modules in a file. `module` reads the records and types of a
//! module, and `images` its constants and metadata.
//!
//! Sources: LLVM's `BitCodeFormat` document and, for record codes, `llvm/Bitcode/LLVMBitCodes.h`.
//!
//! ```
//! use offload_formats::bitcode::producer;
//! use offload_formats::bitstream::{Block, Item, Record, Stream, Tail, write};
//! use offload_formats::compose::Part;
//!
//! // A module with only the identification block: block 13, record 1.
//! let values = [1].into_iter().chain(b"LLVM22.1.8".iter().map(|byte| u64::from(*byte))).collect();
//! let record = Item::Record(Record { abbreviation: None, values, tail: Tail::None });
//! let block = Block { id: 13, width: 5, items: vec![record], inherited: 0, was_at: 0 };
//! let written = write(&Stream { items: vec![Item::Block(block)] })?;
//! let [Part::Bytes(bitcode)] = &written.parts[..] else { return Err("not bytes".into()) };
//! assert_eq!(producer(bitcode).as_deref(), Some("LLVM22.1.8"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod images;
mod module;
mod offload_info;
mod rename;
mod symbols;
#[cfg(test)]
mod tests;

pub use images::{Embedded, embedded_images};
pub use rename::{names_with_ids, rename};
pub use symbols::{ModuleSymbols, Symbol, symbols};

use crate::bitstream::cursor::{Cursor, Scope, StreamEntry};
use crate::bytes::{number, slice, u32_at, zeros};
use crate::error::Malformed;
use crate::magic::numbers::{BITCODE, BITCODE_WRAPPER};

// The top level of a bitcode file: the wrapper header, the modules, and their string tables.

const MODULE_BLOCK: u32 = 8;
const STRTAB_BLOCK: u32 = 23;
const STRTAB_BLOB: u64 = 1;
/// The limit on padding after the last block, in bytes. Every module is larger.
const PADDING: u64 = 8;

/// A module that has been located but not read.
struct Found<'a> {
    /// The file's stream, positioned at the module's first entry.
    pub cursor: Cursor<'a>,
    /// The module's block.
    pub scope: Scope,
    /// The string table with the names of symbols. Modules before LLVM 5 have none.
    pub strtab: Option<&'a [u8]>,
}

/// Splits `data` into bitcode files. If a linker joined sections, several follow each other. Other
/// data is one part.
pub fn split(data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let size = size_of_stream(rest).unwrap_or(rest.len());
        let (part, others) = rest.split_at(size.min(rest.len()));
        parts.push(part);
        // Linkers may align the next part.
        rest = others.get(zeros(others)..).unwrap_or_default();
    }
    parts
}

/// Returns the size of the bitcode at the start of `data`, if other bitcode follows it.
fn size_of_stream(data: &[u8]) -> Option<usize> {
    /// The first word of a block at the top level: the abbreviation ENTER_SUBBLOCK in two bits.
    const ENTER: u32 = 1;
    if !data.starts_with(&BITCODE) {
        return None;
    }
    let word = |at: usize| data.get(at..at + 4).map(|_| u32_at(data, at));
    let mut at = BITCODE.len();
    while word(at)? & 3 == ENTER {
        // The block's number and the width of its abbreviations are in the same word.
        at = at.checked_add(8)?.checked_add(4 * word(at + 4)? as usize)?;
    }
    let next = data.get(at..)?;
    next.get(zeros(next)..)?.starts_with(&BITCODE).then_some(at)
}

/// Returns the stream in `data`, which follows the wrapper header if there is one, and its offset.
fn unwrapped(data: &[u8]) -> Result<(&[u8], u64), Malformed> {
    if !data.starts_with(&BITCODE_WRAPPER) {
        return Ok((data, 0));
    }
    // Magic, version, offset, size, CPU type.
    let field = |at| number(data, at, 4, "the bitcode wrapper's header is cut short");
    let (offset, size) = (field(8)?, field(12)?);
    Ok((
        slice(
            data,
            offset,
            size,
            "the bitcode in the wrapper is past the end",
            8,
        )?,
        offset,
    ))
}

/// Locates the modules in `stream`: one, or several with `-fsplit-lto-unit` and in concatenated
/// files. Fails if there is none.
fn modules(stream: &[u8]) -> Result<Vec<Found<'_>>, Malformed> {
    let mut cursor = Cursor::new(stream)?;
    let start = cursor.clone();
    let mut found: Vec<Found<'_>> = Vec::new();
    while found.is_empty() || cursor.left() > PADDING {
        let scope = cursor.top()?;
        match scope.id {
            MODULE_BLOCK => {
                let mut inside = start.clone();
                inside.again(&scope);
                cursor.skip(scope.clone())?;
                found.push(Found {
                    cursor: inside,
                    scope,
                    strtab: None,
                });
            }
            STRTAB_BLOCK => {
                let table = string_table(&mut cursor, scope)?;
                // A string table belongs to all modules after the previous table.
                found
                    .iter_mut()
                    .rev()
                    .take_while(|module| module.strtab.is_none())
                    .for_each(|module| module.strtab = table);
            }
            _ => cursor.skip(scope)?,
        }
    }
    Ok(found)
}

fn string_table<'a>(
    cursor: &mut Cursor<'a>,
    mut scope: Scope,
) -> Result<Option<&'a [u8]>, Malformed> {
    let (mut table, mut values) = (None, Vec::new());
    while let Some(open) = cursor.next_record(&mut scope)? {
        if let (STRTAB_BLOB, Some(blob)) = (open.code, cursor.values(open, 1, &mut values)?) {
            table = Some(blob);
        }
    }
    Ok(table)
}

// The producer of a bitcode file, from its IDENTIFICATION_BLOCK (`LLVM19.1.7`). Nothing after that
// block is read.

const IDENTIFICATION_BLOCK: u32 = 13;
const IDENTIFICATION_STRING: u64 = 1;

/// The major version of the LLVM that wrote `bitcode`. `None` if the file does not contain it
/// (before LLVM 3.8) or is not bitcode.
pub fn producer_major(bitcode: &[u8]) -> Option<u32> {
    crate::model::llvm_major(&producer(bitcode)?)
}

/// The producer's name, as stored: `LLVM19.1.7`, or a vendor's, such as `APPLE_1_1500.3.9.4_0`.
pub fn producer(bitcode: &[u8]) -> Option<String> {
    let (stream, _) = unwrapped(bitcode).ok()?;
    let mut cursor = Cursor::new(stream).ok()?;
    // The identification block usually comes first. Blocks before it are skipped.
    loop {
        let scope = cursor.top().ok()?;
        if scope.id == IDENTIFICATION_BLOCK {
            return identification(&mut cursor, scope);
        }
        cursor.skip(scope).ok()?;
    }
}

fn identification(cursor: &mut Cursor<'_>, mut scope: Scope) -> Option<String> {
    while let Some(open) = cursor.next_record(&mut scope).ok()? {
        if open.code == IDENTIFICATION_STRING {
            return String::from_utf8(cursor.bytes(open).ok()?.into_owned()).ok();
        }
        cursor.pass(open).ok()?;
    }
    None
}

// The type of link-time optimization of a bitcode file. Linkers decide this for each module: one
// with a ThinLTO summary is optimized and compiled separately, all others are merged into one.

/// The block with a module's ThinLTO summary. The summary of `-flto` is in another block.
const GLOBALVAL_SUMMARY_BLOCK: u32 = 20;

/// Whether linkers treat a module of `bitcode` as a ThinLTO module. Fails if `bitcode` is damaged
/// or not bitcode.
pub fn is_thin(bitcode: &[u8]) -> Result<bool, Malformed> {
    let (stream, base) = unwrapped(bitcode)?;
    let read = || {
        for found in modules(stream)? {
            if has_summary(found)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    read().map_err(|fault: Malformed| fault.shifted(base))
}

fn has_summary(found: Found<'_>) -> Result<bool, Malformed> {
    let Found {
        mut cursor,
        mut scope,
        ..
    } = found;
    loop {
        match cursor.next(&mut scope)? {
            StreamEntry::End => return Ok(false),
            StreamEntry::Block(inner) if inner.id == GLOBALVAL_SUMMARY_BLOCK => return Ok(true),
            StreamEntry::Block(inner) => cursor.skip(inner)?,
            StreamEntry::Abbreviation(_) => {}
            StreamEntry::Record(id) => {
                let open = cursor.open(&scope, id)?;
                cursor.pass(open)?;
            }
        }
    }
}
