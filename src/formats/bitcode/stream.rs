//! The top level of a bitcode file: the wrapper header, the modules, and their string tables.

use crate::error::Malformed;
use crate::formats::bitstream::cursor::{Cursor, Scope};
use crate::formats::magic::BITCODE_WRAPPER;
use crate::formats::{number, slice};

const MODULE_BLOCK: u32 = 8;
const STRTAB_BLOCK: u32 = 23;
const STRTAB_BLOB: u64 = 1;
/// The limit on padding after the last block, in bytes. Every module is larger.
const PADDING: u64 = 8;

/// A module that has been located but not read.
pub(super) struct Found<'a> {
    /// The file's stream, positioned at the module's first entry.
    pub cursor: Cursor<'a>,
    /// The module's block.
    pub scope: Scope,
    /// The string table with the names of symbols. Modules before LLVM 5 have none.
    pub strtab: Option<&'a [u8]>,
}

/// Returns the stream in `data`, which follows the wrapper header if there is one, and its offset.
pub(super) fn unwrapped(data: &[u8]) -> Result<(&[u8], u64), Malformed> {
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
pub(super) fn modules(stream: &[u8]) -> Result<Vec<Found<'_>>, Malformed> {
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
