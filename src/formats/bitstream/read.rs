//! Reads a bitstream into a tree.

use super::cursor::{Cursor, Scope, StreamEntry};
use super::*;
use crate::error::Malformed;

/// The limit on the nesting of blocks. LLVM nests them three deep.
const MAX_DEPTH: u32 = 16;

/// Reads `data`, a complete stream including its magic.
pub fn read(data: &[u8]) -> Result<Stream, Malformed> {
    let mut cursor = Cursor::new(data)?;
    let mut items = Vec::new();
    while cursor.left() > 0 {
        let scope = cursor.top()?;
        items.push(Item::Block(block(&mut cursor, scope, 0)?));
    }
    Ok(Stream { items })
}

fn block(cursor: &mut Cursor<'_>, mut scope: Scope, depth: u32) -> Result<Block, Malformed> {
    if depth >= MAX_DEPTH {
        return Err(cursor.fault("blocks nested too deeply"));
    }
    let mut items = Vec::new();
    loop {
        items.push(match cursor.next(&mut scope)? {
            StreamEntry::End => break,
            StreamEntry::Block(inner) => Item::Block(block(cursor, inner, depth + 1)?),
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
