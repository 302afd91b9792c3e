//! Matches the layouts of two programs by stretches: bytes that are contiguous in both, so that all
//! of their addresses have moved by one distance. A section is one stretch, or several if it
//! contains device code.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use object::elf;

use super::super::host_file::{self, Key, Section};
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
    pub(super) fn is_device(&self, program: usize, address: u64) -> bool {
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
