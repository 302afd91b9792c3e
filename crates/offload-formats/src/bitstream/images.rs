//! Inserts images into the bitcode of a module that LLVM wrote without them, because LLVM needs
//! eleven times the memory of an image.
//!
//! In the module, each image is an array of zeros with a reserved length as its mark, which no
//! other type has. This code gives the types their real lengths, replaces the zeros by strings with
//! holes as contents, and corrects offsets in the file.
//!
//! The strings are arrays of 8-bit fields, as LLVM writes them, but aligned to whole bytes. (Blobs
//! are always aligned, but LLVM 22 rejects blobs of 512 MiB and more.)

use super::*;
use crate::compose::Part;
use crate::error::Malformed;
use std::collections::HashMap;

const CONSTANTS: u32 = 11;
const MODULE: u32 = 8;
const TYPES: u32 = 17;
const VALUE_SYMBOLS: u32 = 14;

const MODULE_VST_OFFSET: u64 = 13;
const VST_FUNCTION: u64 = 3;
const TYPE_COUNT: u64 = 1;
const TYPE_ARRAY: u64 = 11;
const TYPE_STRUCT_NAME: u64 = 19;
const CST_SETTYPE: u64 = 1;
const CST_NULL: u64 = 2;
const CST_STRING: u64 = 8;

/// The mark of the first image. The other marks follow. No real array is that long.
pub const FIRST_MARK: u64 = 1 << 48;

/// Replaces the marks in `bitcode` by images of these sizes. The mark of image k is
/// `FIRST_MARK + k`, and its contents become a hole with the index k.
pub fn insert(bitcode: &[u8], sizes: &[u64]) -> Result<Vec<Part>, Malformed> {
    let mut stream = read(bitcode)?;
    for item in &mut stream.items {
        if let Item::Block(module) = item
            && module.id == MODULE
        {
            insert_into(module, sizes)?;
        }
    }
    write_module(&stream)
}

/// Writes `stream`, which was read from bitcode and changed, with correct offsets in the module.
pub(crate) fn write_module(stream: &Stream) -> Result<Vec<Part>, Malformed> {
    // A corrected offset may take more bits, which moves the data after it.
    let mut written = write(stream)?;
    for _ in 0..4 {
        let mut corrected = stream.clone();
        correct_offsets(&mut corrected, &written.placed)?;
        let again = write(&corrected)?;
        if again.placed == written.placed {
            return Ok(again.parts);
        }
        written = again;
    }
    Err(Malformed::new(
        "the offsets of the module do not converge",
        0,
    ))
}

fn insert_into(module: &mut Block, sizes: &[u64]) -> Result<(), Malformed> {
    let fault = |what| Malformed::new(what, module.was_at / 8);
    let (mut types, mut found) = (Vec::new(), vec![false; sizes.len()]);
    for item in &mut module.items {
        let Item::Block(block) = item else { continue };
        match block.id {
            TYPES => types = set_lengths(block, sizes)?,
            CONSTANTS => replace_zeros(block, sizes, &types, &mut found)?,
            _ => {}
        }
    }
    if found
        .iter()
        .zip(sizes)
        .any(|(found, size)| !found && *size > 0)
    {
        return Err(fault("the module lacks the array of an image"));
    }
    Ok(())
}

/// Gives the marked types their lengths. Returns the image index of each type, in their order, or
/// `None` for other types.
fn set_lengths(block: &mut Block, sizes: &[u64]) -> Result<Vec<Option<usize>>, Malformed> {
    let mut types = Vec::new();
    for item in &mut block.items {
        let Item::Record(record) = item else { continue };
        let mut image = None;
        match &mut record.values[..] {
            [TYPE_COUNT | TYPE_STRUCT_NAME, ..] => continue,
            [TYPE_ARRAY, length, ..] if *length >= FIRST_MARK => {
                let index = usize::try_from(*length - FIRST_MARK).ok();
                let marked = index.and_then(|index| Some((index, *sizes.get(index)?)));
                let (index, size) = marked.ok_or(Malformed::new(
                    "an array of an unexpected length",
                    block.was_at / 8,
                ))?;
                *length = size;
                image = Some(index);
            }
            _ => {}
        }
        types.push(image);
    }
    Ok(types)
}

/// Replaces the zeros of images by strings with holes.
fn replace_zeros(
    block: &mut Block,
    sizes: &[u64],
    types: &[Option<usize>],
    found: &mut [bool],
) -> Result<(), Malformed> {
    let at = block.was_at / 8;
    let own = block
        .items
        .iter()
        .take_while(|item| matches!(item, Item::Abbreviation(_)))
        .count();
    if block
        .items
        .iter()
        .skip(own)
        .any(|item| matches!(item, Item::Abbreviation(_)))
    {
        return Err(Malformed::new("abbreviations among the constants", at));
    }
    let id = FIRST_OWN + block.inherited + own as u32;
    let strings = Abbreviation::around_hole().map(Arc::new);
    let mut current = None;
    for item in &mut block.items {
        let Item::Record(record) = item else { continue };
        match (&record.values[..], current) {
            ([CST_SETTYPE, number], _) => {
                current = usize::try_from(*number)
                    .ok()
                    .and_then(|number| types.get(number).copied().flatten())
            }
            ([CST_NULL], Some(index)) => {
                found
                    .iter_mut()
                    .skip(index)
                    .take(1)
                    .for_each(|found| *found = true);
                let size = sizes.get(index).copied().unwrap_or_default();
                let size = u32::try_from(size).map_err(|_| {
                    Malformed::new("an image of 4 GiB or more does not fit into bitcode", at)
                })?;
                // LLVM rejects empty strings, so an empty image stays an array of no zeros.
                if size > 0 {
                    let abbreviation = Some((id, Arc::clone(&strings[0])));
                    *record = Record {
                        abbreviation,
                        values: vec![CST_STRING],
                        tail: Tail::Hole { index, size },
                    };
                }
            }
            (_, Some(_)) => {
                return Err(Malformed::new("an image that is not an array of zeros", at));
            }
            _ => {}
        }
    }
    let last = id + strings.len() as u32 - 1;
    block.width = block.width.max(u32::BITS - last.leading_zeros());
    block
        .items
        .splice(own..own, strings.map(Item::Abbreviation));
    Ok(())
}

/// Corrects the offsets in the module: that of its symbol table, and those of functions in that
/// table. An offset is the number of the word at which a block is entered.
fn correct_offsets(stream: &mut Stream, placed: &[Placed]) -> Result<(), Malformed> {
    let blocks: HashMap<u64, u64> = placed
        .iter()
        .map(|placed| (placed.was_at / 32, placed.is_at / 32))
        .collect();
    let correct = |offset: &mut u64, at: u64| {
        let block = blocks.get(offset);
        *offset = *block.ok_or(Malformed::new("an offset without a block", at / 8))?;
        Ok(())
    };
    for item in &mut stream.items {
        let Item::Block(module) = item else { continue };
        for item in module.items.iter_mut().filter(|_| module.id == MODULE) {
            match item {
                Item::Record(record) => {
                    if let [MODULE_VST_OFFSET, offset] = &mut record.values[..] {
                        correct(offset, module.was_at)?;
                    }
                }
                Item::Block(symbols) if symbols.id == VALUE_SYMBOLS => {
                    for item in &mut symbols.items {
                        let Item::Record(record) = item else { continue };
                        if let [VST_FUNCTION, _, offset, ..] = &mut record.values[..] {
                            correct(offset, symbols.was_at)?;
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}
