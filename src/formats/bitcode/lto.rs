//! The type of link-time optimization of a bitcode file. Linkers decide this for each module: one
//! with a ThinLTO summary is optimized and compiled separately, all others are merged into one.

use super::stream::{Found, modules, unwrapped};
use crate::error::Malformed;
use crate::formats::bitstream::cursor::StreamEntry;

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
