//! Matches the layouts of two programs by stretches: bytes that are contiguous in both, so that all
//! of their addresses have moved by one distance. A section is one stretch, or several if it
//! contains device code. Then compares the tables that depend on the layout.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use anyhow::{Context, Result, bail};
use object::elf;

use super::super::host_file::{self, HostFile, Key, Section, Symbol};
use super::super::{Differences, ParsedHost, is_left_out};
use offload_formats::model::{printable, printable_name};

/// Addresses up to this far outside of a stretch may belong to it: compilers address an element of
/// an array relative to a point before or after the array, and linkers define symbols for the ends
/// of segments.
const SLACK: u64 = 4096;
/// Upper limit on alignment gaps.
const LARGEST_GAP: u64 = 4096;

/// The contents of a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Code,
    Data,
    /// Unwind tables, whose fields need not be aligned.
    Frames,
    /// Tables that are compared by meaning: symbols, relocations, the dynamic section.
    Table,
    /// Memory without bytes in the file.
    Empty,
    /// Device code.
    Device,
}

/// Bytes that are contiguous in both programs.
#[derive(Debug)]
pub(super) struct Stretch<'d> {
    /// Index of the section in the first program, and its name.
    pub(super) section: usize,
    pub(super) name: &'d [u8],
    pub(super) kind: Kind,
    /// Its addresses in both programs.
    pub(super) one: u64,
    pub(super) other: u64,
    pub(super) len: u64,
    /// Its bytes in both programs.
    pub(super) bytes: [&'d [u8]; 2],
}

impl Stretch<'_> {
    /// The distance it has moved, modulo 2^64.
    fn shift(&self) -> u64 {
        self.other.wrapping_sub(self.one)
    }
}

/// All stretches of two programs.
#[derive(Debug, Default)]
pub(super) struct Moves<'d> {
    pub(super) stretches: Vec<Stretch<'d>>,
    /// The indices of the non-empty stretches.
    full: Vec<usize>,
    /// The address ranges of stretches that have moved by the same distance, sorted.
    by_shift: HashMap<u64, Vec<Range<u64>>>,
    /// The addresses of device code in each program.
    device: [Vec<Range<u64>>; 2],
}

impl<'d> Moves<'d> {
    /// The stretches of two programs. Adds a difference for sections that only one of them has, or
    /// whose sizes differ.
    pub(super) fn of(
        one: &ParsedHost<'d>,
        other: &ParsedHost<'d>,
        found: &mut Differences,
    ) -> Moves<'d> {
        let mut moves = Moves {
            device: [device_addresses(one), device_addresses(other)],
            ..Moves::default()
        };
        let (first, second) = (sections(one), sections(other));
        for (name, missing, there) in [(other.name, &first, &second), (one.name, &second, &first)] {
            for section in missing
                .iter()
                .filter(|(key, _)| !there.contains_key(*key))
                .map(|(_, (_, section))| section)
            {
                if !host_file::is_device(section) {
                    found.in_section(
                        section.printable_name(),
                        format!("is not in {}", printable(name)),
                    );
                }
            }
        }
        for (key, (index, own)) in &first {
            if let Some((_, theirs)) = second.get(key) {
                moves.add_section((one, own, *index), (other, theirs), found);
            }
        }
        if let (Some(first), Some(second)) = (one.file.base, other.file.base) {
            moves.stretches.push(Stretch {
                section: 0,
                name: b"",
                kind: Kind::Table,
                one: first,
                other: second,
                len: 1,
                bytes: [&[]; 2],
            });
        }
        moves.settled()
    }

    /// Sorts the stretches and fills the lookup tables.
    fn settled(mut self) -> Self {
        // Sections without bytes share their address with the next section.
        self.stretches
            .sort_by_key(|stretch| (stretch.one, stretch.len));
        for (index, stretch) in self.stretches.iter().enumerate() {
            let range = stretch.one..stretch.one.saturating_add(stretch.len);
            self.by_shift
                .entry(stretch.shift())
                .or_default()
                .push(range);
            if stretch.len > 0 {
                self.full.push(index);
            }
        }
        self
    }

    fn add_section(
        &mut self,
        (one, own, index): (&ParsedHost<'d>, &Section<'d>, usize),
        (other, theirs): (&ParsedHost<'d>, &Section<'d>),
        found: &mut Differences,
    ) {
        let (first, second) = (&own.header, &theirs.header);
        if (first.kind, first.flags, first.entsize) != (second.kind, second.flags, second.entsize) {
            found.in_section(
                own.printable_name(),
                "the type, flags or entry sizes differ".to_owned(),
            );
            return;
        }
        let kind = kind(own);
        let stretch = |kind, [start, other_start]: [u64; 2], len, bytes| Stretch {
            section: index,
            name: own.key.name,
            kind,
            one: first.addr.wrapping_add(start),
            other: second.addr.wrapping_add(other_start),
            len,
            bytes,
        };
        if matches!(kind, Kind::Table | Kind::Device) {
            self.stretches
                .push(stretch(kind, [0, 0], first.size.min(second.size), [&[]; 2]));
            return;
        }
        let (parts, other_parts) = (
            split(&one.device_parts(own), first.size),
            split(&other.device_parts(theirs), second.size),
        );
        if parts.len() != other_parts.len() {
            found.in_section(
                own.printable_name(),
                "device code is at different offsets".to_owned(),
            );
            return;
        }
        for ((part, is_device), (theirs_part, _)) in parts.into_iter().zip(other_parts) {
            let starts = [part.start, theirs_part.start];
            if is_device {
                let len = (part.end - part.start).min(theirs_part.end - theirs_part.start);
                self.stretches
                    .push(stretch(Kind::Device, starts, len, [&[]; 2]));
                continue;
            }
            let bytes = |section: &Section<'d>, part: &Range<u64>| -> &'d [u8] {
                section
                    .body
                    .get(part.start as usize..part.end as usize)
                    .unwrap_or_default()
            };
            let (first_bytes, second_bytes) = (bytes(own, &part), bytes(theirs, &theirs_part));
            let Some((starts, len, bytes)) =
                aligned([&part, &theirs_part], [first_bytes, second_bytes])
            else {
                let size = |part: &Range<u64>| part.end - part.start;
                let what = format!(
                    "size is {:#x} bytes in {}, but {:#x} in {}",
                    size(&part),
                    printable(one.name),
                    size(&theirs_part),
                    printable(other.name)
                );
                found.in_section(own.printable_name(), what);
                continue;
            };
            // Thread-local memory without bytes shares its addresses with another section.
            if kind != Kind::Empty || !first.flags.contains(elf::SHF_TLS) {
                self.stretches.push(stretch(kind, starts, len, bytes));
            }
        }
    }

    /// Whether an address of the first program and one of the other refer to the same object: in a
    /// stretch, or as far outside of one as code and linkers reach.
    pub(super) fn is_same(&self, one: u64, other: u64) -> bool {
        self.reaches(
            one.saturating_sub(SLACK),
            one.saturating_add(SLACK),
            other.wrapping_sub(one),
        )
    }

    /// Whether an object between two addresses of the first program has moved by `shift`.
    pub(super) fn reaches(&self, lowest: u64, highest: u64, shift: u64) -> bool {
        let Some(ranges) = self.by_shift.get(&shift) else {
            return false;
        };
        let after = ranges.partition_point(|range| range.start <= highest);
        ranges
            .iter()
            .take(after)
            .next_back()
            .is_some_and(|range| range.end >= lowest)
    }

    /// The address in the other program that corresponds to an address of the first.
    pub(super) fn moved(&self, one: u64) -> Option<u64> {
        let start = |index: &usize| {
            self.stretches
                .get(*index)
                .map_or(u64::MAX, |stretch| stretch.one)
        };
        let after = self.full.partition_point(|index| start(index) <= one);
        let own = self.stretches.get(*self.full.get(after.checked_sub(1)?)?)?;
        if one - own.one >= own.len {
            return None;
        }
        Some(one.wrapping_add(own.shift()))
    }

    /// Whether an address of a program, the first (0) or the other (1), belongs to device code.
    fn is_device(&self, program: usize, address: u64) -> bool {
        let Some(all) = self.device.get(program) else {
            return false;
        };
        let after = all.partition_point(|range| range.start <= address);
        all.iter()
            .take(after)
            .next_back()
            .is_some_and(|range| address < range.end)
    }
}

/// Starts of two parts in their sections, their length, and their bytes.
type Aligned<'d> = ([u64; 2], u64, [&'d [u8]; 2]);

/// Matches two parts of one section: as a whole, or without the zeros before one of them that align
/// it after device code.
fn aligned<'d>(parts: [&Range<u64>; 2], bytes: [&'d [u8]; 2]) -> Option<Aligned<'d>> {
    let ([one, other], [first, second]) = (parts, bytes);
    let (len, other_len) = (one.end - one.start, other.end - other.start);
    if len == other_len {
        return Some(([one.start, other.start], len, bytes));
    }
    let is_gap = |gap: &[u8]| gap.len() as u64 <= LARGEST_GAP && gap.iter().all(|byte| *byte == 0);
    if one.start == 0 || other.start == 0 {
        return None;
    }
    if len > other_len {
        let (gap, rest) = first.split_at_checked((len - other_len) as usize)?;
        is_gap(gap).then_some((
            [one.start + (len - other_len), other.start],
            other_len,
            [rest, second],
        ))
    } else {
        let (gap, rest) = second.split_at_checked((other_len - len) as usize)?;
        is_gap(gap).then_some((
            [one.start, other.start + (other_len - len)],
            len,
            [first, rest],
        ))
    }
}

/// Divides a section into parts that are device code (`true`) and parts that are not. The first and
/// the last part may be empty.
fn split(device: &[Range<u64>], size: u64) -> Vec<(Range<u64>, bool)> {
    let mut at = 0;
    let mut found = Vec::new();
    for part in device {
        found.push((at..part.start.min(size), false));
        found.push((part.start.min(size)..part.end.min(size), true));
        at = part.end.min(size);
    }
    found.push((at..size, false));
    found
}

fn kind(section: &Section<'_>) -> Kind {
    let named = |names: &[&[u8]]| names.iter().any(|name| section.key.name.starts_with(name));
    if host_file::is_device(section) {
        return Kind::Device;
    }
    match section.header.kind {
        elf::SHT_RELA
        | elf::SHT_REL
        | elf::SHT_RELR
        | elf::SHT_CREL
        | elf::SHT_DYNAMIC
        | elf::SHT_DYNSYM => Kind::Table,
        elf::SHT_NOBITS => Kind::Empty,
        _ if section.header.flags.contains(elf::SHF_EXECINSTR) => Kind::Code,
        _ if named(&[b".eh_frame", b".gcc_except_table"]) => Kind::Frames,
        _ => Kind::Data,
    }
}

/// The compared sections, by key.
fn sections<'h, 'd>(half: &'h ParsedHost<'d>) -> BTreeMap<Key<'d>, (usize, &'h Section<'d>)> {
    let all = half.file.sections.iter().enumerate();
    all.filter(|(_, section)| !is_left_out(section, false))
        .map(|(index, section)| (section.key, (index, section)))
        .collect()
}

fn device_addresses(half: &ParsedHost<'_>) -> Vec<Range<u64>> {
    let sections = half
        .file
        .sections
        .iter()
        .filter(|section| section.header.is_allocated());
    let each = |section: &Section<'_>| -> Vec<Range<u64>> {
        let start = section.header.addr;
        let parts = half.device_parts(section).into_iter();
        parts
            .map(|part| start.saturating_add(part.start)..start.saturating_add(part.end))
            .collect()
    };
    host_file::joined(sections.flat_map(each).collect())
}

/// The name of a stretch's section, for messages.
pub(super) fn section_name(stretch: &Stretch<'_>) -> String {
    printable_name(stretch.name)
}

// Compares the tables of a program that the dynamic loader and linkers read, by their meaning:
// relocations, the dynamic section, symbols.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_sections_share_the_address_of_the_next() {
        let stretch = |one, len| {
            let (name, bytes): (&[u8], _) = (b"", [&[][..]; 2]);
            Stretch {
                section: 0,
                name,
                kind: Kind::Data,
                one,
                other: one + 0x1000,
                len,
                bytes,
            }
        };
        let stretches = vec![
            stretch(0x110, 0),
            stretch(0x100, 16),
            stretch(0x100, 0),
            stretch(0x108, 0),
            stretch(0x120, 8),
        ];
        let moves = Moves {
            stretches,
            ..Moves::default()
        }
        .settled();
        for (one, other) in [
            (0xff, None),
            (0x100, Some(0x1100)),
            (0x10f, Some(0x110f)),
            (0x110, None),
            (0x127, Some(0x1127)),
        ] {
            assert_eq!(moves.moved(one), other, "{one:#x}");
        }
        assert!(
            moves.is_same(0x110, 0x1110)
                && !moves.is_same(0x110, 0x1111)
                && !moves.is_same(0x9000, 0xa000)
        );
    }
}
