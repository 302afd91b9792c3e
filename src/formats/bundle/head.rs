//! Headers of binary bundles, read from a stream. The header lists the code objects, so that they
//! need not be read.

use std::io::{self, ErrorKind, Read};

use super::{ENTRY_SIZE, HEADER_SIZE, MAGIC};
use crate::error::Malformed;

/// The header of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The code objects, in order.
    pub slots: Vec<Slot>,
    /// The size of the bundle, up to the end of the last code object in the file.
    pub size: u64,
}

/// The location of a code object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// The ID, as stored.
    pub id: String,
    /// The offset in the bundle. It has no meaning for an empty object.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// The offset of the object's entry in the header.
    pub at: u64,
}

/// Reads the header of the bundle at the start of `input`. A bundle that needs more than
/// `available` bytes is an error. `Malformed::of` extracts format errors.
pub fn read_head(mut input: impl Read, available: u64) -> io::Result<Head> {
    let mut magic = [0; MAGIC.len()];
    fill(&mut input, &mut magic, "not an offload bundle", 0)?;
    if magic != MAGIC {
        return Err(Malformed::new("not an offload bundle", 0).into());
    }
    let count = number(&mut input, "header past the end", MAGIC.len() as u64)?;
    let mut slots = Vec::new();
    let mut next = HEADER_SIZE;
    // An entry takes 24 bytes, so a count that is too large reaches the end of the data.
    for _ in 0..count {
        let mut field = || number(&mut input, "bundle entry past the end", next);
        let (offset, size, id_len) = (field()?, field()?, field()?);
        let id = text(&mut input, id_len, next)?;
        slots.push(Slot {
            id,
            offset,
            size,
            at: next,
        });
        next = next.saturating_add(ENTRY_SIZE).saturating_add(id_len);
    }
    let mut size = next;
    for slot in slots.iter().filter(|slot| slot.size > 0) {
        let end = slot
            .offset
            .checked_add(slot.size)
            .filter(|end| *end <= available);
        size = size.max(end.ok_or(Malformed::new("code object past the end", slot.at))?);
        if slot.offset < next {
            return Err(Malformed::new("code object inside the header", slot.at).into());
        }
    }
    Ok(Head { slots, size })
}

fn number(input: &mut impl Read, what: &'static str, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill(input, &mut bytes, what, at)?;
    Ok(u64::from_le_bytes(bytes))
}

fn fill(input: &mut impl Read, bytes: &mut [u8], what: &'static str, at: u64) -> io::Result<()> {
    let to_malformed = |error: io::Error| {
        if error.kind() == ErrorKind::UnexpectedEof {
            Malformed::new(what, at).into()
        } else {
            error
        }
    };
    input.read_exact(bytes).map_err(to_malformed)
}

/// Reads `len` bytes of text. The length may be wrong, so memory is allocated as data arrives.
fn text(input: &mut impl Read, len: u64, at: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    input.take(len).read_to_end(&mut bytes)?;
    if (bytes.len() as u64) < len {
        return Err(Malformed::new("bundle id past the end", at).into());
    }
    String::from_utf8(bytes).map_err(|_| Malformed::new("bundle id is not text", at).into())
}
