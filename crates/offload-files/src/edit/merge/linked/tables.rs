//! Compares the tables of a program that the dynamic loader and linkers read, by their meaning:
//! relocations, the dynamic section, symbols.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Context, Result, bail};
use object::elf;

use super::super::host_file::{self, HostFile, Key, Symbol};
use super::super::{Differences, ParsedHost, is_left_out};
use super::moves::Moves;
use offload_formats::model::{printable, printable_name};

/// Limit on reported differences of one table.
const MOST: usize = 8;

/// A relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fixup<'d> {
    place: u64,
    kind: u32,
    symbol: &'d [u8],
    addend: Option<i64>,
}

/// Compares the relocations, without those of device code. Returns the addresses in the first
/// program that the loader fills in.
///
/// # Errors
/// The relocations are damaged.
pub(super) fn relocations(
    moves: &Moves<'_>,
    one: &ParsedHost<'_>,
    other: &ParsedHost<'_>,
    found: &mut Differences,
) -> Result<HashSet<u64>> {
    let mut filled = HashSet::new();
    let (first, second) = (tables(&one.file), tables(&other.file));
    let relative = relative_kinds(one.file.header.machine);
    for key in first.keys().chain(second.keys()).collect::<BTreeSet<_>>() {
        let mut own = fixups(moves, 0, one, first.get(key).copied())?;
        filled.extend(own.iter().map(|fixup| fixup.place));
        let mut theirs = fixups(moves, 1, other, second.get(key).copied())?;
        // Convert the locations to those in the other program.
        own.iter_mut()
            .for_each(|fixup| fixup.place = moves.moved(fixup.place).unwrap_or(u64::MAX));
        own.sort();
        theirs.sort();
        let section = printable_name(key.name);
        if own.len() != theirs.len() {
            let (name, other_name) = (printable(one.name), printable(other.name));
            let what = format!(
                "{} host relocations in {name}, but {} in {other_name}",
                own.len(),
                theirs.len()
            );
            found.in_section(section, what);
            continue;
        }
        let is_same = |one: &Fixup<'_>, other: &Fixup<'_>| {
            let is_address = one.symbol.is_empty() && relative.contains(&one.kind);
            let addends = match (one.addend, other.addend) {
                (Some(one), Some(other)) if is_address => moves.is_same(one as u64, other as u64),
                (one, other) => one == other,
            };
            (one.place, one.kind, one.symbol) == (other.place, other.kind, other.symbol) && addends
        };
        for (fixup, _) in own
            .iter()
            .zip(&theirs)
            .filter(|(one, other)| !is_same(one, other))
            .take(MOST)
        {
            let what = format!(
                "the relocations of {:#x} in {} differ",
                fixup.place,
                printable(other.name)
            );
            found.in_section(section.clone(), what);
        }
    }
    Ok(filled)
}

/// The relocation sections that the loader reads.
fn tables<'d>(file: &HostFile<'d>) -> BTreeMap<Key<'d>, usize> {
    let is_table = |header: &offload_formats::elf::raw::SectionHeader| {
        header.is_allocated() && (header.is_relocations() || header.kind == elf::SHT_RELR)
    };
    let all = file
        .sections
        .iter()
        .enumerate()
        .filter(|(_, section)| is_table(&section.header));
    all.map(|(index, section)| (section.key, index)).collect()
}

/// The relocations of a table, without those in device code.
fn fixups<'d>(
    moves: &Moves<'_>,
    program: usize,
    half: &ParsedHost<'d>,
    table: Option<usize>,
) -> Result<Vec<Fixup<'d>>> {
    let Some(table) = table else {
        return Ok(Vec::new());
    };
    let read = half
        .file
        .relocations(table)
        .with_context(|| printable(half.name).into_owned())?;
    let mut found = Vec::with_capacity(read.len());
    for one in read
        .iter()
        .filter(|one| !moves.is_device(program, one.place))
    {
        let symbol = match half.file.dynamic_symbols.get(one.symbol) {
            Some(symbol) => symbol.name,
            None if one.symbol == 0 => &[][..],
            None => bail!(
                "{}: a relocation against a symbol that does not exist",
                printable(half.name)
            ),
        };
        found.push(Fixup {
            place: one.place,
            kind: one.kind,
            symbol,
            addend: one.addend,
        });
    }
    Ok(found)
}

/// The types of relocations whose addend is an address in this file: relative ones, and indirect
/// functions (psABI documents).
fn relative_kinds(machine: elf::Machine) -> [u32; 2] {
    match machine {
        elf::EM_X86_64 => [8, 37],
        elf::EM_AARCH64 => [1027, 1032],
        elf::EM_PPC64 => [22, 248],
        elf::EM_S390 => [12, 61],
        elf::EM_RISCV => [3, 58],
        elf::EM_LOONGARCH => [3, 12],
        _ => [u32::MAX; 2],
    }
}

/// Compares the dynamic sections, entry by entry.
pub(super) fn dynamic(
    moves: &Moves<'_>,
    one: &ParsedHost<'_>,
    other: &ParsedHost<'_>,
    found: &mut Differences,
) {
    let (first, second) = (entries(&one.file), entries(&other.file));
    let tags = |all: &[(u64, u64)]| all.iter().map(|(tag, _)| *tag).collect::<Vec<_>>();
    let section = || ".dynamic".to_owned();
    if tags(&first) != tags(&second) {
        found.in_section(section(), "the tags differ".to_owned());
        return;
    }
    for ((tag, one), (_, other)) in first.into_iter().zip(second) {
        let is_same = match tag {
            // The number of relocations depends on the number of images. Host relocations have
            // already been compared.
            _ if COUNTS.iter().any(|count| count.0 as u64 == tag) => true,
            _ if ADDRESSES.iter().any(|address| address.0 as u64 == tag) => {
                one == other && one == 0 || moves.is_same(one, other)
            }
            _ => one == other,
        };
        if !is_same {
            found.in_section(
                section(),
                format!("the values {one:#x} and {other:#x} of tag {tag:#x} differ"),
            );
        }
    }
}

const COUNTS: [elf::DynamicTag; 5] = [
    elf::DT_RELASZ,
    elf::DT_RELACOUNT,
    elf::DT_RELSZ,
    elf::DT_RELCOUNT,
    elf::DT_RELRSZ,
];
const ADDRESSES: [elf::DynamicTag; 19] = [
    elf::DT_PLTGOT,
    elf::DT_HASH,
    elf::DT_STRTAB,
    elf::DT_SYMTAB,
    elf::DT_RELA,
    elf::DT_REL,
    elf::DT_RELR,
    elf::DT_JMPREL,
    elf::DT_INIT,
    elf::DT_FINI,
    elf::DT_INIT_ARRAY,
    elf::DT_FINI_ARRAY,
    elf::DT_PREINIT_ARRAY,
    elf::DT_GNU_HASH,
    elf::DT_VERSYM,
    elf::DT_VERDEF,
    elf::DT_VERNEED,
    elf::DT_TLSDESC_PLT,
    elf::DT_TLSDESC_GOT,
];

/// The tags and values of the dynamic section, without the entry that ends it.
fn entries(file: &HostFile<'_>) -> Vec<(u64, u64)> {
    let Some(section) = file
        .sections
        .iter()
        .find(|section| section.header.kind == elf::SHT_DYNAMIC)
    else {
        return Vec::new();
    };
    let (class, word) = (file.class, file.class.address_size());
    let pairs = section.body.chunks_exact(2 * word);
    let pairs = pairs.filter_map(|pair| {
        let (tag, value) = pair.split_at(word);
        Some((class.address(tag)?, class.address(value)?))
    });
    pairs.take_while(|(tag, _)| *tag != 0).collect()
}

/// The attributes that distinguish a symbol from others of its name, in an order that does not
/// depend on the program.
type SymbolKey<'d> = (&'d [u8], u8, u8, u64, Option<Key<'d>>, u16, u64);

/// Compares the dynamic symbols, and all other symbols if both programs still have them.
pub(super) fn symbols(
    moves: &Moves<'_>,
    one: &ParsedHost<'_>,
    other: &ParsedHost<'_>,
    found: &mut Differences,
) {
    let dynamic_keys = [(one, 0), (other, 1)]
        .map(|(half, program)| symbol_keys(moves, &half.file, program, &half.file.dynamic_symbols));
    tables_of_symbols(moves, dynamic_keys, one, other, found);
    if !one.file.symbols.is_empty() && !other.file.symbols.is_empty() {
        let all = [(one, 0), (other, 1)]
            .map(|(half, program)| symbol_keys(moves, &half.file, program, &half.file.symbols));
        tables_of_symbols(moves, all, one, other, found);
    }
}

fn tables_of_symbols(
    moves: &Moves<'_>,
    [first, second]: [Vec<SymbolKey<'_>>; 2],
    one: &ParsedHost<'_>,
    other: &ParsedHost<'_>,
    found: &mut Differences,
) {
    let section =
        |key: Option<Key<'_>>| key.map_or_else(String::new, |key| printable_name(key.name));
    let head = |symbol: &SymbolKey<'_>| (symbol.0.to_vec(), symbol.1, symbol.2, symbol.3);
    if first.len() == second.len()
        && first
            .iter()
            .zip(&second)
            .all(|(one, other)| head(one) == head(other))
    {
        let moved = first
            .iter()
            .zip(&second)
            .filter(|(one, other)| !is_same_place(moves, one, other));
        for (symbol, _) in moved.take(MOST) {
            found.of_symbol(
                section(symbol.4),
                symbol.0,
                "the symbol has different addresses".to_owned(),
                None,
            );
        }
        return;
    }
    let sets = [&first, &second].map(|all| all.iter().map(head).collect::<BTreeSet<_>>());
    let [own, theirs] = &sets;
    for (all, missing, name) in [(&first, theirs, other.name), (&second, own, one.name)] {
        for symbol in all
            .iter()
            .filter(|symbol| !missing.contains(&head(symbol)))
            .take(MOST)
        {
            let is_there = missing.iter().any(|(known, ..)| known == symbol.0);
            let how = if is_there {
                "has another type, binding, visibility or size in"
            } else {
                "is not in"
            };
            found.of_symbol(
                section(symbol.4),
                symbol.0,
                format!("{how} {}", printable(name)),
                None,
            );
        }
    }
    if own == theirs {
        found.in_section(
            String::new(),
            format!("{} and {} symbols", first.len(), second.len()),
        );
    }
}

fn is_same_place(moves: &Moves<'_>, one: &SymbolKey<'_>, other: &SymbolKey<'_>) -> bool {
    let is_tls = elf::SymbolInfo(one.1).st_type() == elf::STT_TLS;
    match (one.4, other.4) {
        (first, second) if first != second => false,
        // A symbol that a linker defines for a missing object has no location.
        _ if (one.6, other.6) == (0, 0) => true,
        (Some(_), _) if !is_tls => moves.is_same(one.6, other.6),
        _ => {
            (one.5, one.6) == (other.5, other.6)
                || one.5 == elf::SHN_ABS.0 && one.5 == other.5 && moves.is_same(one.6, other.6)
        }
    }
}

/// The symbols of a program, without those of device code, of sections and of source files.
fn symbol_keys<'d>(
    moves: &Moves<'_>,
    file: &HostFile<'d>,
    program: usize,
    symbols: &[Symbol<'d>],
) -> Vec<SymbolKey<'d>> {
    let section = |symbol: &Symbol<'_>| symbol.section.and_then(|index| file.sections.get(index));
    let is_host = |symbol: &&Symbol<'_>| {
        let in_device = section(symbol).is_some_and(|own| host_file::is_device(own))
            || moves.is_device(program, symbol.value);
        let is_tls = symbol.kind() == elf::STT_TLS;
        let is_compared = section(symbol).is_none_or(|own| !is_left_out(own, false));
        let is_other = matches!(symbol.kind(), elf::STT_FILE | elf::STT_SECTION);
        !is_other && is_compared && (is_tls || symbol.section.is_none() || !in_device)
    };
    let each = |symbol: &Symbol<'d>| {
        let key = section(symbol).map(|own| own.key);
        (
            symbol.name,
            symbol.info.0,
            symbol.other,
            symbol.size,
            key,
            symbol.special,
            symbol.value,
        )
    };
    let mut all: Vec<_> = symbols.iter().filter(is_host).map(each).collect();
    all.sort();
    all
}
