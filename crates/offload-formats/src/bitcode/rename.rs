//! Puts stable names into bitcode: in its string table, the symbol table of its object file, and
//! the strings of its metadata. File numbers that only `omp_offload.info` uses become 0.
//!
//! The modules of two checkouts of one source then have the same bytes, unless they contain paths.

use std::cell::Cell;
use std::collections::BTreeSet;

use md5::{Digest, Md5};

use super::module::{Kind, Module};
use super::offload_info::{
    ALIAS, FUNCTION, FUNCTION_BLOCK, GLOBAL_VARIABLE, IFUNC, INTEGER, METADATA_BLOCK, SET_TYPE,
    STRINGS, own_constants,
};
use super::{Found, MODULE_BLOCK, STRTAB_BLOB, STRTAB_BLOCK, modules};
use crate::bitstream::cursor::Bits;
use crate::bitstream::images::write_module;
use crate::bitstream::{BitWriter, Block, Item, Record, Stream, Tail, read_without};
use crate::bytes::u32_at;
use crate::compose::join;
use crate::error::Malformed;
use crate::stable_names::{Replaced, StableNames, has_file_id};

const SYMTAB_BLOCK: u32 = 25;
const SYMTAB_BLOB: u64 = 1;
const CONSTANTS_BLOCK: u32 = 11;
const SUMMARY_BLOCK: u32 = 20;
const FULL_LTO_SUMMARY_BLOCK: u32 = 24;

const ASM: u64 = 4;
const COMDAT: u64 = 12;
const HASH: u64 = 17;
/// A constant string with a zero at the end, which is not stored.
const C_STRING: u64 = 9;

/// Returns `bitcode` with the stable `names`; `None` if it has none of their IDs.
///
/// # Errors
/// The file is damaged, or its names are used in an unsupported way: in a string table where names
/// overlap, in assembly, or in a summary with hashes of names.
pub fn rename(bitcode: &[u8], names: &StableNames) -> Result<Option<Vec<u8>>, Malformed> {
    let found = modules(bitcode)?;
    let is_named = found.iter().any(|module| {
        let table = module.strtab.unwrap_or_default();
        names.is_in(table)
    });
    if !is_named {
        return Ok(None);
    }
    let facts: Vec<Facts> = found
        .into_iter()
        .map(|module| Facts::of(module, names))
        .collect::<Result<_, Malformed>>()?;
    // Function bodies have names only in metadata strings, which are whole bytes. Few bodies have
    // any.
    let mut stream = read_without(bitcode, &|id, entries| {
        id == FUNCTION_BLOCK && !has_file_id(entries)
    })?;
    let mut facts = facts.iter();
    let mut rest = &mut stream.items[..];
    // A string table belongs to the blocks before it.
    while let Some(end) = rest.iter().position(|item| is_block(item, STRTAB_BLOCK)) {
        let (group, after) = rest.split_at_mut(end + 1);
        rename_group(group, names, &mut facts)?;
        rest = after;
    }
    set_hashes(&mut stream)?;
    bytes_of(&stream).map(Some)
}

/// Calls `add` for each name of a global value of `bitcode`. Skips modules without the ID of a
/// source file.
pub fn names_with_ids(bitcode: &[u8], add: &mut dyn FnMut(&[u8])) -> Result<(), Malformed> {
    for found in modules(bitcode)? {
        let table = found.strtab.unwrap_or_default();
        if !has_file_id(table) {
            continue;
        }
        let module = Module::read(found)?;
        check_lengths(&module, table.len())?;
        module.values.iter().for_each(|value| add(&value.name));
    }
    Ok(())
}

fn is_block(item: &Item, id: u32) -> bool {
    matches!(item, Item::Block(block) if block.id == id)
}

/// The limit on bytes of names that are read, as a multiple of the string table. Each name is in
/// the module once, and in the symbol table twice: as in LLVM IR and as in the object.
const MOST_READ: usize = 16;

/// Facts about a module before it is changed.
struct Facts {
    /// The constants to set to 0.
    own_constants: BTreeSet<u64>,
    /// The old and the new hash in the names that LLVM gave to unnamed globals.
    hashes: Option<(String, String)>,
}

impl Facts {
    fn of(found: Found<'_>, names: &StableNames) -> Result<Facts, Malformed> {
        let own_constants = own_constants(&found)?;
        let table = found.strtab.unwrap_or_default().len();
        let module = Module::read(found)?;
        check_lengths(&module, table)?;
        let new_name = |name: &[u8]| names.replaced(name).map(|new| new.bytes);
        let old = name_hash(&module, &|_| None);
        let new = name_hash(&module, &new_name);
        Ok(Facts {
            own_constants,
            hashes: (old != new).then_some((old, new)),
        })
    }
}

/// Fails if the names of `module` are much longer together than its string table of `size` bytes.
/// In a damaged module, names may overlap, and reading them could take any time.
fn check_lengths(module: &Module<'_>, size: usize) -> Result<(), Malformed> {
    const MOST: usize = 4;
    let lengths = module.values.iter().map(|value| value.name.len());
    if lengths.sum::<usize>() / MOST > size {
        return Err(Malformed::new("names that overlap in the string table", 0));
    }
    Ok(())
}

/// The hash of the names that a module exports: of functions, then of variables. Before LLVM writes
/// a summary, it gives unnamed globals names with this hash (`NameAnonGlobals.cpp`).
fn name_hash(module: &Module<'_>, new_name: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> String {
    const INTERNAL: u64 = 3;
    const PRIVATE: u64 = 9;
    let mut hash = Md5::new();
    for kind in [Kind::Function, Kind::Variable] {
        let exported = module.values.iter().filter(|value| {
            value.kind == kind && value.defined && !matches!(value.linkage, INTERNAL | PRIVATE)
        });
        for value in exported {
            match new_name(&value.name) {
                Some(new) => hash.update(new),
                None => hash.update(&value.name),
            }
        }
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Renames in `group`, which ends with the string table of its modules.
fn rename_group(
    group: &mut [Item],
    names: &StableNames,
    facts: &mut std::slice::Iter<'_, Facts>,
) -> Result<(), Malformed> {
    let Some((Item::Block(table), before)) = group.split_last_mut() else {
        return Ok(());
    };
    let at = table.was_at / 8;
    let Some(old) = blob(table, STRTAB_BLOB) else {
        return Ok(());
    };
    let modules = before
        .iter()
        .filter(|item| is_block(item, MODULE_BLOCK))
        .count();
    let facts: Vec<&Facts> = facts.take(modules).collect();
    let Some(mut new) = names.replaced(old) else {
        return Ok(());
    };
    for (old, hash) in facts.iter().filter_map(|facts| facts.hashes.as_ref()) {
        new.replace_same_length(
            format!("anon.{old}.").as_bytes(),
            format!("anon.{hash}.").as_bytes(),
        );
    }
    let mut facts = facts.into_iter();
    let strings = Strings {
        old: std::mem::replace(old, new.bytes.clone()),
        left: Cell::new(MOST_READ * new.bytes.len()),
        new,
        names,
        at,
    };
    for item in before {
        let Item::Block(block) = item else { continue };
        match block.id {
            MODULE_BLOCK => {
                if let Some(facts) = facts.next() {
                    rename_module(block, &strings, &facts.own_constants)?;
                }
            }
            SYMTAB_BLOCK => {
                if let Some(symbols) = blob(block, SYMTAB_BLOB) {
                    rename_symbols(symbols, &strings)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The blob of the first record with this code.
fn blob(block: &mut Block, code: u64) -> Option<&mut Vec<u8>> {
    block.items.iter_mut().find_map(|item| match item {
        Item::Record(Record {
            values,
            tail: Tail::Blob(bytes),
            ..
        }) if values.first() == Some(&code) => Some(bytes),
        _ => None,
    })
}

/// The string table with stable names.
struct Strings<'n> {
    old: Vec<u8>,
    new: Replaced,
    names: &'n StableNames,
    /// The position of the table, for errors.
    at: u64,
    /// The bytes of names that may still be read. In a damaged module, names may overlap.
    left: Cell<usize>,
}

impl Strings<'_> {
    /// The new offset and size of the name with these old ones.
    fn moved(&self, offset: u64, size: u64) -> Result<(u64, u64), Malformed> {
        let range = || {
            let start = usize::try_from(offset).ok()?;
            let end = start.checked_add(usize::try_from(size).ok()?)?;
            let old = self.old.get(start..end)?;
            self.left.set(self.left.get().checked_sub(old.len())?);
            if old.is_empty() {
                return Some((self.new.position(start).unwrap_or(0), 0));
            }
            let (new_start, new_end) = (self.new.position(start)?, self.new.position(end)?);
            let new = self.new.bytes.get(new_start..new_end)?;
            // Adjacent names must not have been renamed as if they were one name.
            let expected = self.names.replaced(old);
            let expected = expected.as_ref().map_or(old, |expected| &expected.bytes);
            let is_expected = expected == new || expected.len() == new.len() && is_anonymous(new);
            is_expected.then_some((new_start, new_end - new_start))
        };
        let fault = || Malformed::new("a name that overlaps others in the string table", self.at);
        let (offset, size) = range().ok_or_else(fault)?;
        Ok((offset as u64, size as u64))
    }

    /// Moves the name whose offset and size are at `index`, if they are there.
    fn move_pair(&self, values: &mut [u64], index: usize) -> Result<(), Malformed> {
        if let Some([offset, size]) = values.get_mut(index..index + 2) {
            (*offset, *size) = self.moved(*offset, *size)?;
        }
        Ok(())
    }
}

/// Whether `name` is one that LLVM gave to an unnamed global.
fn is_anonymous(name: &[u8]) -> bool {
    memchr::memmem::find(name, b"anon.").is_some()
}

fn rename_module(
    module: &mut Block,
    strings: &Strings<'_>,
    own_constants: &BTreeSet<u64>,
) -> Result<(), Malformed> {
    let fault = |what| Malformed::new(what, module.was_at / 8);
    let mut values = 0;
    for item in &mut module.items {
        match item {
            Item::Record(record) => rename_global(record, strings, &mut values, &fault)?,
            Item::Block(block) => match block.id {
                CONSTANTS_BLOCK => {
                    rename_constants(block, strings.names, own_constants, &mut values);
                }
                METADATA_BLOCK => rename_metadata(block, strings.names)?,
                FUNCTION_BLOCK => {
                    let inner = block.items.iter_mut().filter_map(|item| match item {
                        Item::Block(inner) if inner.id == METADATA_BLOCK => Some(inner),
                        _ => None,
                    });
                    inner
                        .into_iter()
                        .try_for_each(|inner| rename_metadata(inner, strings.names))?;
                }
                SUMMARY_BLOCK | FULL_LTO_SUMMARY_BLOCK => check_summary(block)?,
                _ => {}
            },
            Item::Abbreviation(_) | Item::Unread(_) => {}
        }
    }
    Ok(())
}

/// Moves the names in a record of the module. `values`: the number of values so far.
fn rename_global(
    record: &mut Record,
    strings: &Strings<'_>,
    values: &mut u64,
    fault: &dyn Fn(&'static str) -> Malformed,
) -> Result<(), Malformed> {
    let operands = &mut record.values;
    // The index of the operand with the offset of the partition's name.
    let partition = match operands.first() {
        Some(&GLOBAL_VARIABLE) => 17,
        Some(&FUNCTION) => 20,
        Some(&ALIAS) => 12,
        Some(&IFUNC) => 9,
        Some(&COMDAT) => return strings.move_pair(operands, 1),
        Some(&ASM) => {
            let text: Vec<u8> = operands.iter().skip(1).map(|char| *char as u8).collect();
            return match strings.names.replaced(&text) {
                None => Ok(()),
                Some(_) => Err(fault("assembly with the ID of a source file")),
            };
        }
        _ => return Ok(()),
    };
    *values += 1;
    strings.move_pair(operands, 1)?;
    strings.move_pair(operands, partition)
}

/// Sets the constants with the IDs `own` to 0, and renames in source locations.
fn rename_constants(block: &mut Block, names: &StableNames, own: &BTreeSet<u64>, values: &mut u64) {
    for item in &mut block.items {
        let Item::Record(record) = item else { continue };
        match &mut record.values[..] {
            [SET_TYPE, ..] => continue,
            [INTEGER, number, ..] if own.contains(values) => *number = 0,
            [C_STRING, chars @ ..] if chars.first() == Some(&b';'.into()) => {
                let mut text: Vec<u8> = chars.iter().map(|char| *char as u8).collect();
                if names.replace_in_location(&mut text) {
                    chars
                        .iter_mut()
                        .zip(text)
                        .for_each(|(char, new)| *char = new.into());
                }
            }
            _ => {}
        }
        *values += 1;
    }
}

/// Renames in the strings of the metadata. Their record has a count, the offset of the characters
/// in the blob, and the blob, which begins with the length of each string.
fn rename_metadata(block: &mut Block, names: &StableNames) -> Result<(), Malformed> {
    let fault = |what| Malformed::new(what, block.was_at / 8);
    for item in &mut block.items {
        let Item::Record(record) = item else { continue };
        let Record { values, tail, .. } = record;
        let ([STRINGS, count, start], Tail::Blob(blob)) = (&mut values[..], tail) else {
            continue;
        };
        let split = usize::try_from(*start)
            .ok()
            .and_then(|start| blob.split_at_checked(start));
        let (lengths, mut chars) = split.ok_or_else(|| fault("metadata strings past the end"))?;
        if names.replaced(chars).is_none() {
            continue;
        }
        let mut lengths = Bits::new(lengths, 0);
        let (mut new_lengths, mut new_chars) = (BitWriter::default(), Vec::new());
        for _ in 0..*count {
            let length = usize::try_from(lengths.vbr(6)?).unwrap_or(usize::MAX);
            let split = chars.split_at_checked(length);
            let (text, rest) = split.ok_or_else(|| fault("a metadata string past the end"))?;
            chars = rest;
            let new = names.replaced(text);
            let text = new.as_ref().map_or(text, |new| &new.bytes);
            new_lengths.vbr(text.len() as u64, 6)?;
            new_chars.extend_from_slice(text);
        }
        new_lengths.align();
        *start = new_lengths.bytes.len() as u64;
        new_chars.extend_from_slice(chars);
        *blob = [new_lengths.bytes, new_chars].concat();
    }
    Ok(())
}

/// Fails if the summary has hashes of names, or names.
fn check_summary(block: &Block) -> Result<(), Malformed> {
    /// Hashes of functions that only a profile refers to, lists for control-flow integrity, and
    /// type IDs.
    const WITH_NAMES: [u64; 5] = [16, 17, 18, 21, 22];
    let mut items = block.items.iter();
    let has_names = items.any(|item| {
        matches!(item, Item::Record(record) if record.code().is_some_and(|code| WITH_NAMES.contains(&code)))
    });
    if has_names {
        return Err(Malformed::new(
            "a summary with hashes of names",
            block.was_at / 8,
        ));
    }
    Ok(())
}

/// Moves the names in the symbol table `table`: the header, and tables of modules, COMDATs,
/// symbols, details of symbols, and libraries, all in words. The layout is that of version 3 (LLVM
/// 13 and later). Linkers rebuild tables of other versions.
fn rename_symbols(table: &mut [u8], strings: &Strings<'_>) -> Result<(), Malformed> {
    const VERSION: u32 = 3;
    const HEADER: usize = 19;
    const LIBRARIES: usize = 17;
    /// For each table: the index of the header words with its offset and entry count, the number of
    /// words in an entry, and the indices of the names in an entry.
    const TABLES: [(usize, usize, &[usize]); 4] = [
        (5, 3, &[0]),
        (7, 6, &[0, 2]),
        (9, 6, &[2, 4]),
        (LIBRARIES, 2, &[0]),
    ];
    let fault = || Malformed::new("a symbol table past its end", strings.at);
    if table.len() < 4 * HEADER {
        return Err(fault());
    }
    if u32_at(table, 0) != VERSION {
        table.fill(0);
        return Ok(());
    }
    // The producer, the triple, the source file and the linker options.
    let mut names = vec![4, 4 * 11, 4 * 13, 4 * 15];
    for (place, words, pairs) in TABLES {
        let (start, count) = (u32_at(table, 4 * place), u32_at(table, 4 * place + 4));
        let (start, count) = (start as usize, count as usize);
        if count.saturating_mul(4 * words).saturating_add(start) > table.len() {
            return Err(fault());
        }
        for entry in 0..count {
            names.extend(pairs.iter().map(|pair| start + 4 * (entry * words + pair)));
        }
    }
    for at in names {
        let (offset, size) =
            strings.moved(u32_at(table, at).into(), u32_at(table, at + 4).into())?;
        let (offset, size) = (offset as u32, size as u32);
        let place = table.get_mut(at..at + 8).ok_or_else(fault)?;
        place.copy_from_slice(&[offset.to_le_bytes(), size.to_le_bytes()].concat());
    }
    Ok(())
}

/// Gives new hashes to the modules that have one. ThinLTO puts the hash into the names of promoted
/// functions and into its cache keys.
fn set_hashes(stream: &mut Stream) -> Result<(), Malformed> {
    fn hashes(stream: &mut Stream) -> impl Iterator<Item = &mut [u64]> {
        let modules = stream.items.iter_mut().filter_map(|item| match item {
            Item::Block(block) if block.id == MODULE_BLOCK => Some(&mut block.items),
            _ => None,
        });
        modules.flatten().filter_map(|item| match item {
            Item::Record(record) => match &mut record.values[..] {
                [HASH, words @ ..] => Some(words),
                _ => None,
            },
            _ => None,
        })
    }
    if hashes(stream).next().is_none() {
        return Ok(());
    }
    hashes(stream).for_each(|words| words.fill(0));
    let bytes = bytes_of(stream)?;
    for (index, words) in hashes(stream).enumerate() {
        for (at, word) in words.iter_mut().enumerate() {
            let digest = Md5::new()
                .chain_update((index as u64).to_le_bytes())
                .chain_update((at as u64).to_le_bytes())
                .chain_update(&bytes);
            *word = u32_at(&digest.finalize(), 0).into();
        }
    }
    Ok(())
}

fn bytes_of(stream: &Stream) -> Result<Vec<u8>, Malformed> {
    join(&[], &write_module(stream)?, &[])
}
