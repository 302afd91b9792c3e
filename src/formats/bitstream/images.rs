//! Inserts images into the bitcode of a module that LLVM made without them, because LLVM needs eleven times the memory of an image.
//! In the module each image is an array of zeros whose length is a mark: no other type is that long. Here the types get the true
//! lengths, the zeros become strings whose bytes are holes, and offsets in the file are corrected.
//!
//! The strings are arrays of 8-bit fields, as LLVM writes them, but made to start at whole bytes. (Blobs would do that by
//! themselves, but LLVM 22 takes none of 512 MiB and more.)

use super::*;
use crate::error::Malformed;

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

/// The mark of the first image; the others have the numbers after it. No real array is that long.
pub const FIRST_MARK: u64 = 1 << 48;

/// Replaces the marks in `bitcode` by images of these sizes. The mark of image k is `FIRST_MARK + k`. In the result, the image's
/// bytes are a hole with the index k.
pub fn insert(bitcode: &[u8], sizes: &[u64]) -> Result<Vec<StreamPiece>, Malformed> {
    let mut stream = read(bitcode)?;
    for item in &mut stream.items {
        if let Item::Block(module) = item
            && module.id == MODULE
        {
            insert_into(module, sizes)?;
        }
    }
    // A corrected offset may be longer than before, which moves what follows it.
    let mut written = write(&stream)?;
    for _ in 0..4 {
        let mut corrected = stream.clone();
        correct_offsets(&mut corrected, &written.placed)?;
        let again = write(&corrected)?;
        if again.placed == written.placed {
            return Ok(again.pieces);
        }
        written = again;
    }
    Err(Malformed::new("the offsets of the module do not settle", 0))
}

fn insert_into(module: &mut Block, sizes: &[u64]) -> Result<(), Malformed> {
    let fault = |what| Malformed::new(what, module.was_at / 8);
    let (mut types, mut found) = (Vec::new(), vec![false; sizes.len()]);
    for item in &mut module.items {
        let Item::Block(block) = item else { continue };
        match block.id {
            TYPES => types = measure(block, sizes)?,
            CONSTANTS => fill(block, sizes, &types, &mut found)?,
            _ => {}
        }
    }
    if found.iter().zip(sizes).any(|(found, size)| !found && *size > 0) {
        return Err(fault("an image that the module has no place for"));
    }
    Ok(())
}

/// Gives the marked types their lengths. Returns for each type, in their order, the image that its values are, if any.
fn measure(block: &mut Block, sizes: &[u64]) -> Result<Vec<Option<usize>>, Malformed> {
    let mut types = Vec::new();
    for item in &mut block.items {
        let Item::Record(record) = item else { continue };
        let mut image = None;
        match &mut record.values[..] {
            [TYPE_COUNT | TYPE_STRUCT_NAME, ..] => continue,
            [TYPE_ARRAY, length, ..] if *length >= FIRST_MARK => {
                let index = usize::try_from(*length - FIRST_MARK).ok();
                let asked = index.and_then(|index| Some((index, *sizes.get(index)?)));
                let (index, size) = asked.ok_or(Malformed::new("an array of a length nobody asked for", block.was_at / 8))?;
                *length = size;
                image = Some(index);
            }
            _ => {}
        }
        types.push(image);
    }
    Ok(types)
}

/// Turns the zeros that stand for images into strings with holes.
fn fill(block: &mut Block, sizes: &[u64], types: &[Option<usize>], found: &mut [bool]) -> Result<(), Malformed> {
    let at = block.was_at / 8;
    let own = block.items.iter().take_while(|item| matches!(item, Item::Abbreviation(_))).count();
    if block.items.iter().skip(own).any(|item| matches!(item, Item::Abbreviation(_))) {
        return Err(Malformed::new("abbreviations among the constants", at));
    }
    let id = FIRST_OWN + block.inherited + own as u32;
    let strings = Abbreviation::around_hole().map(Arc::new);
    let mut current = None;
    for item in &mut block.items {
        let Item::Record(record) = item else { continue };
        match (&record.values[..], current) {
            ([CST_SETTYPE, of], _) => current = usize::try_from(*of).ok().and_then(|of| types.get(of).copied().flatten()),
            ([CST_NULL], Some(index)) => {
                found.iter_mut().skip(index).take(1).for_each(|found| *found = true);
                let size = sizes.get(index).copied().unwrap_or_default();
                let size = u32::try_from(size).map_err(|_| Malformed::new("bitcode has no room for 4 GiB in one image", at))?;
                // LLVM accepts no empty string, so an empty image stays an array of no zeros.
                if size > 0 {
                    let abbreviation = Some((id, Arc::clone(&strings[0])));
                    *record = Record { abbreviation, values: vec![CST_STRING], tail: Tail::Hole { index, size } };
                }
            }
            (_, Some(_)) => return Err(Malformed::new("an image that is no array of zeros", at)),
            _ => {}
        }
    }
    let last = id + strings.len() as u32 - 1;
    block.width = block.width.max(u32::BITS - last.leading_zeros());
    block.items.splice(own..own, strings.map(Item::Abbreviation));
    Ok(())
}

/// Corrects the offsets in the module: that of its table of symbols, and those of functions in that table, which are the words at
/// which their blocks are entered.
fn correct_offsets(stream: &mut Stream, placed: &[Placed]) -> Result<(), Malformed> {
    let correct = |offset: &mut u64, at: u64| {
        let block = placed.iter().find(|placed| placed.was_at / 32 == *offset);
        *offset = block.ok_or(Malformed::new("an offset at which no block is", at / 8))?.is_at / 32;
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
