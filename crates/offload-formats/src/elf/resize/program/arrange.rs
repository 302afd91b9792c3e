//! Loaded segments of the new file. Old segments become shorter, or are split where bytes are
//! removed from the file. Contents that do not fit into their old range, and added sections, are
//! appended after everything that is loaded: to the last segment if it has the same permissions,
//! otherwise in a new segment for each set of permissions.

use std::ops::Range;

use object::elf;

use super::header_space::LARGEST_ALIGN;
use super::pointers::Added;
use super::segments::{Linked, Location};
use super::{Change, Donor, FILLER, Relocated};
use crate::compose::Part;
use crate::elf::file::PatchedBytes;
use crate::elf::raw::{ProgramHeader, SectionHeader};
use crate::error::Malformed;

/// The most zeros that are written to the file to join two segments.
const LARGEST_GAP: u64 = 1 << 18;

/// A loaded segment of the new file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// The old segment that contained its last byte. `None` for a new segment.
    segment: Option<usize>,
    offset: Offset,
    /// Address of its first byte; the ends of its bytes in the file and of its memory, as
    /// addresses.
    pub start: u64,
    pub file_end: u64,
    pub end: u64,
    pub flags: elf::ProgramFlags,
    pub align: u64,
    /// Distance from the address in memory to the physical address, modulo 2^64.
    pub to_physical: u64,
}

/// Offset in the old or the new file.
#[derive(Debug, Clone, Copy)]
enum Offset {
    Old(u64),
    New(u64),
}

impl Load {
    fn new(segment: usize, header: &ProgramHeader) -> Self {
        Load {
            segment: Some(segment),
            offset: Offset::Old(header.offset),
            start: header.vaddr,
            file_end: header.vaddr + header.filesz,
            end: header.vaddr + header.memsz,
            flags: header.flags,
            align: header.align,
            to_physical: header.paddr.wrapping_sub(header.vaddr),
        }
    }

    /// Returns the offset in the new file.
    pub(super) fn offset(&self, edits: &Edits) -> u64 {
        match self.offset {
            Offset::Old(old) => edits.before(old),
            Offset::New(new) => new,
        }
    }

    pub(super) fn header(&self, edits: &Edits) -> ProgramHeader {
        ProgramHeader {
            kind: elf::PT_LOAD,
            flags: self.flags,
            offset: self.offset(edits),
            vaddr: self.start,
            paddr: self.start.wrapping_add(self.to_physical),
            filesz: self.file_end - self.start,
            memsz: self.end - self.start,
            align: self.align,
        }
    }
}

/// Requirements in addition to the changes.
pub(super) struct Wanted<'a> {
    /// Sections to add to the file.
    pub added: &'a [Added],
    /// The section after which blocks of the header space move.
    pub donor: Option<&'a Donor>,
    /// Maximum number of pairs of segments to join.
    pub joined: usize,
}

/// Locations of all loaded contents.
#[derive(Default)]
pub(super) struct Arranged {
    pub loads: Vec<Load>,
    pub edits: Edits,
    /// Location of the contents of each change, if they are appended.
    pub appended: Vec<Option<Location>>,
    /// Locations of the added sections.
    pub added: Vec<Location>,
}

impl Arranged {
    /// Returns the location of the contents of change `number` at their old address.
    pub(super) fn location_in_place(&self, number: usize, change: &Change) -> Location {
        let offset = self.edits.start_of(number).unwrap_or(change.old.start);
        Location {
            addr: change.header.addr,
            offset,
        }
    }

    /// Returns the offset in the new file of the byte at address `addr`. `None` if it is not in the
    /// file.
    pub(super) fn offset_of(&self, addr: u64) -> Option<u64> {
        let load = self
            .loads
            .iter()
            .find(|load| (load.start..load.file_end).contains(&addr))?;
        Some(load.offset(&self.edits) + (addr - load.start))
    }
}

/// Arranges the loaded segments, and the changes outside of them.
pub(super) fn arrange(
    linked: &Linked<'_>,
    changes: &[Change],
    wanted: Wanted<'_>,
) -> Result<Arranged, Malformed> {
    let mut arranging = Arranging {
        linked,
        changes,
        added: wanted.added,
        donor: wanted.donor,
        done: Arranged::default(),
    };
    for (segment, header) in linked.loads() {
        arranging.split(segment, header)?;
    }
    for (number, change) in changes
        .iter()
        .enumerate()
        .filter(|(_, change)| change.load.is_none() && !change.is_appended)
    {
        arranging.put_short(number, change)?;
    }
    for _ in 0..wanted.joined {
        arranging.join()?;
    }
    arranging.append()?;
    Ok(arranging.done)
}

struct Arranging<'a> {
    linked: &'a Linked<'a>,
    changes: &'a [Change],
    added: &'a [Added],
    donor: Option<&'a Donor>,
    done: Arranged,
}

impl Arranging<'_> {
    /// Returns the number of bytes that are needed in the old range of change `number`.
    fn kept(&self, number: usize, change: &Change) -> u64 {
        self.relocated_to(number, false)
            .last()
            .map_or(change.stays(), Relocated::end)
    }

    /// Returns the blocks that move after the contents of change `number`: the appended contents or
    /// those in the old range.
    fn relocated_to(&self, number: usize, is_appended: bool) -> &[Relocated] {
        let donor = self
            .donor
            .filter(|donor| donor.change == number && donor.is_appended == is_appended);
        donor.map_or(&[], |donor| &donor.blocks)
    }

    /// Replaces the old bytes of a section up to `end` by the needed bytes, with zeros up to
    /// `size`.
    fn put(
        &mut self,
        number: usize,
        change: &Change,
        end: u64,
        size: u64,
    ) -> Result<(), Malformed> {
        let mut parts = Vec::new();
        let mut at = change.stays();
        if !change.is_appended {
            parts.push(Part::New(change.place));
        }
        for block in self.relocated_to(number, false) {
            parts.extend([
                Part::Zeros(block.offset.saturating_sub(at)),
                Part::Old(block.old.clone()),
            ]);
            at = block.end();
        }
        parts.push(Part::Zeros(size.saturating_sub(at)));
        parts.retain(|part| *part != Part::Zeros(0));
        self.done
            .edits
            .replace(change.old.start..end, parts, size, Some(number))
    }

    /// Replaces the old bytes of a section by the needed bytes. The new size is the smallest that
    /// the alignment of the following bytes permits.
    fn put_short(&mut self, number: usize, change: &Change) -> Result<(), Malformed> {
        let size = shortest(
            self.kept(number, change),
            change.old_size(),
            self.linked.unit_behind(change.old.end),
        );
        self.put(number, change, change.old.end, size)
    }

    /// Splits an old segment into the parts that remain. Parts without code are not executable.
    fn split(&mut self, segment: usize, header: &ProgramHeader) -> Result<(), Malformed> {
        let mut load = Load::new(segment, header);
        let first = self.done.loads.len();
        for (number, change) in self
            .changes
            .iter()
            .enumerate()
            .filter(|(_, change)| change.load == Some(segment))
        {
            let kept = self.kept(number, change);
            let (start, old_end) = (
                header.vaddr + (change.old.start - header.offset),
                change.old.end,
            );
            let end = start + change.old_size();
            let is_last = end == load.file_end;
            if is_last && load.end == load.file_end {
                // Leave some bytes so that a section without contents is still in a segment.
                let kept = if start == load.start && !change.is_appended {
                    kept.max(FILLER)
                } else {
                    kept
                };
                let size = shortest(kept, change.old_size(), self.linked.unit_behind(old_end));
                self.put(number, change, old_end, size)?;
                load.file_end = start
                    .checked_add(kept)
                    .ok_or(Malformed::new("new contents are too large", old_end))?;
                load.end = load.file_end;
                continue;
            }
            if kept > change.old_size() {
                return Err(Malformed::new(
                    "new contents do not fit into their space",
                    change.old.start,
                ));
            }
            // If memory follows, its segment needs at least some bytes in the file.
            let rest = if is_last {
                (change.old_size() - kept).min(FILLER)
            } else {
                0
            };
            let size = match change.keeps_room {
                true => change.old_size() - rest,
                false => shortest(
                    kept,
                    change.old_size() - rest,
                    self.linked.unit_behind(old_end - rest),
                ),
            };
            if size == change.old_size() - rest {
                // No whole page is free.
                self.put(number, change, old_end, change.old_size())?;
                continue;
            }
            self.put(number, change, old_end - rest, size)?;
            if rest > 0 {
                self.done.edits.replace(
                    old_end - rest..old_end,
                    vec![Part::Zeros(rest)],
                    rest,
                    None,
                )?;
            }
            let skipped = self.padding_behind(change, header);
            let upper = Load {
                offset: Offset::Old(old_end - rest + skipped),
                start: end - rest + skipped,
                ..load
            };
            load.file_end = start + kept;
            load.end = load.file_end;
            if load.end > load.start {
                self.done.loads.push(load);
            }
            load = upper;
        }
        if load.end > load.start || header.memsz == 0 {
            self.done.loads.push(load);
        }
        let parts = self.done.loads.get_mut(first..).unwrap_or_default();
        if parts.len() > 1 {
            for part in parts.iter_mut().filter(|part| !has_code(self.linked, part)) {
                part.flags = elf::ProgramFlags(part.flags.0 & !elf::PF_X.0);
            }
        }
        Ok(())
    }

    /// Returns the size of the padding between a section and the next one of the same segment.
    fn padding_behind(&self, change: &Change, load: &ProgramHeader) -> u64 {
        let end = change.old.end;
        let next = self.linked.next_section(end, change.section);
        let next = next
            .filter(|next| next.offset < load.offset + load.filesz)
            .map(|next| (next.offset - end, next.align));
        next.filter(|(gap, align)| gap < align)
            .map_or(0, |(gap, _)| gap)
    }

    /// Joins two adjacent segments with the same permissions, with zeros between them in the file.
    fn join(&mut self) -> Result<(), Malformed> {
        let pairs = self.done.loads.windows(2).enumerate();
        let found = pairs.filter_map(|(at, pair)| match pair {
            [one, other] => self.gap(one, other).map(|gap| (at, gap)),
            _ => None,
        });
        let Some((at, (range, gap))) = found.min_by_key(|(at, _)| std::cmp::Reverse(*at)) else {
            return Ok(());
        };
        self.done
            .edits
            .replace(range, vec![Part::Zeros(gap)], gap, None)?;
        let upper = self.done.loads.remove(at + 1);
        if let Some(lower) = self.done.loads.get_mut(at) {
            (lower.file_end, lower.end, lower.segment) = (upper.file_end, upper.end, upper.segment);
            lower.align = lower.align.max(upper.align);
        }
        Ok(())
    }

    /// Returns the range of the old file between two segments that can be joined, and its new size.
    fn gap(&self, one: &Load, other: &Load) -> Option<(Range<u64>, u64)> {
        let (Offset::Old(_), Offset::Old(start), Some(segment)) =
            (one.offset, other.offset, one.segment)
        else {
            return None;
        };
        let old = self.linked.segments.get(segment)?;
        // Parts of one segment were split on purpose and stay apart.
        if one.flags != other.flags
            || one.segment == other.segment
            || one.file_end != old.vaddr + old.filesz
        {
            return None;
        }
        let range = old.offset + old.filesz..start;
        let gap = other
            .start
            .checked_sub(one.file_end)
            .filter(|gap| *gap <= LARGEST_GAP)?;
        let old_gap = range.end.checked_sub(range.start)?;
        let is_used = self
            .linked
            .next_section(range.start, 0)
            .is_some_and(|next| next.offset < range.end);
        let head = &self.linked.object.head;
        let is_table = head.shoff >= range.start && head.shoff < range.end;
        let fits = gap
            .abs_diff(old_gap)
            .is_multiple_of(self.linked.unit_behind(range.end));
        (!is_used && !is_table && fits).then_some((range, gap))
    }
}

/// Contents to append.
#[derive(Clone, Copy)]
enum Appended {
    /// The contents of the change with this number.
    Change(usize),
    /// The contents of the added section with this number.
    Added(usize),
}

#[derive(Clone, Copy)]
pub(super) struct Item {
    which: Appended,
    /// Index in the caller's list of contents.
    place: usize,
    size: u64,
    align: u64,
    flags: elf::ProgramFlags,
}

impl Arranging<'_> {
    fn append(&mut self) -> Result<(), Malformed> {
        self.done.appended = vec![None; self.changes.len()];
        self.done.added = vec![Location::default(); self.added.len()];
        let mut by_flags: Vec<(elf::ProgramFlags, Vec<Item>)> = Vec::new();
        for item in self.items() {
            match by_flags.iter_mut().find(|(of, _)| *of == item.flags) {
                Some((_, items)) => items.push(item),
                None => by_flags.push((item.flags, vec![item])),
            }
        }
        for (flags, items) in by_flags {
            self.append_segment(flags, &items)?;
        }
        Ok(())
    }

    /// Returns the contents to append, in order. Contents that can grow in place later are last. If
    /// sections are added, all contents except code are in their writable segment, because there is
    /// seldom room for the headers of two segments.
    fn items(&self) -> Vec<Item> {
        let with_added = |flags: elf::ProgramFlags| {
            let is_data = !self.added.is_empty() && !flags.contains(elf::PF_X);
            if is_data { flags | elf::PF_W } else { flags }
        };
        let item = |which, place, size, header: &SectionHeader| Item {
            which,
            place,
            size,
            align: align(header),
            flags: with_added(flags(header)),
        };
        let mut all: Vec<Item> = Vec::new();
        for (number, added) in self.added.iter().enumerate() {
            all.push(item(
                Appended::Added(number),
                added.place,
                added.header.size,
                &added.header,
            ));
        }
        let mut changes: Vec<_> = self
            .changes
            .iter()
            .enumerate()
            .filter(|(_, change)| change.is_appended)
            .collect();
        changes.sort_by_key(|(_, change)| !change.keeps_room);
        for (number, change) in changes {
            all.push(item(
                Appended::Change(number),
                change.place,
                change.size,
                &change.header,
            ));
        }
        all
    }

    fn append_segment(
        &mut self,
        flags: elf::ProgramFlags,
        items: &[Item],
    ) -> Result<(), Malformed> {
        let end = self.linked.loaded_end();
        let fault = Malformed::new("no room for new contents after the last address", end);
        let largest = items.iter().map(|item| item.align).max().unwrap_or(1);
        let page = self.linked.new_align(largest)?;
        let at = self.done.edits.after(end);
        let last = self.done.loads.last().copied();
        let extended = last.filter(|last| {
            last.flags == flags && largest <= last.align.max(1) && self.is_at_end(last, end)
        });
        let top = last.map_or(0, |last| last.end);
        let (mut parts, mut cursor) = (Vec::new(), at);
        // Distance from an offset to its address.
        let distance = match extended {
            Some(last) => last.start.wrapping_sub(last.offset(&self.done.edits)),
            None => {
                let start = top.checked_next_multiple_of(page).ok_or(fault)?;
                cursor = at.checked_next_multiple_of(page).ok_or(fault)?;
                start.wrapping_sub(cursor)
            }
        };
        let (first, mut end_address) = (cursor, 0);
        parts.push(Part::Zeros(cursor - at));
        for item in items {
            let start = cursor
                .wrapping_add(distance)
                .checked_next_multiple_of(item.align)
                .ok_or(fault)?;
            let offset = start.wrapping_sub(distance);
            parts.extend([Part::Zeros(offset - cursor), Part::New(item.place)]);
            let size = self.put_relocated(item, &mut parts);
            cursor = offset.checked_add(size).ok_or(fault)?;
            end_address = start.checked_add(size).ok_or(fault)?;
            let location = Location {
                addr: start,
                offset,
            };
            match item.which {
                Appended::Change(number) => {
                    if let Some(to) = self.done.appended.get_mut(number) {
                        *to = Some(location);
                    }
                }
                Appended::Added(number) => {
                    if let Some(to) = self.done.added.get_mut(number) {
                        *to = location;
                    }
                }
            }
        }
        if !self.linked.object.class.is_64 && end_address > 1 << 32 {
            return Err(fault);
        }
        match self.done.loads.last_mut().filter(|_| extended.is_some()) {
            Some(last) => (last.file_end, last.end) = (end_address, end_address),
            None => self.done.loads.push(Load {
                segment: None,
                offset: Offset::New(first),
                start: first.wrapping_add(distance),
                file_end: end_address,
                end: end_address,
                flags,
                align: page,
                to_physical: 0,
            }),
        }
        let unit = self.linked.unit_behind(end);
        let size = (cursor - at).checked_next_multiple_of(unit).ok_or(fault)?;
        parts.push(Part::Zeros(size - (cursor - at)));
        parts.retain(|part| *part != Part::Zeros(0));
        self.done.edits.replace(end..end, parts, size, None)
    }

    /// Adds the blocks that move after these contents. Returns the size of both.
    fn put_relocated(&self, item: &Item, parts: &mut Vec<Part>) -> u64 {
        let mut size = item.size;
        if let Appended::Change(number) = item.which {
            for block in self.relocated_to(number, true) {
                parts.extend([
                    Part::Zeros(block.offset.saturating_sub(size)),
                    Part::Old(block.old.clone()),
                ]);
                size = block.end();
            }
        }
        size
    }

    /// Whether the segment's bytes are the last loaded bytes of the file, and no memory follows
    /// them.
    fn is_at_end(&self, load: &Load, end: u64) -> bool {
        let old = load
            .segment
            .and_then(|segment| self.linked.segments.get(segment));
        load.end == load.file_end
            && old.is_none_or(|old| old.offset.saturating_add(old.filesz) == end)
    }
}

/// Whether this segment contains a section with code.
fn has_code(linked: &Linked<'_>, load: &Load) -> bool {
    let mut sections = linked.object.headers();
    let is_code = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
    sections.any(|header| {
        header.flags.contains(is_code) && (load.start..load.end).contains(&header.addr)
    })
}

/// Returns the smallest size of at least `kept` that differs from `old` by a multiple of `unit`.
fn shortest(kept: u64, old: u64, unit: u64) -> u64 {
    match kept.checked_sub(old) {
        None => kept + (old - kept) % unit,
        Some(more) => more
            .checked_next_multiple_of(unit)
            .and_then(|more| old.checked_add(more))
            .unwrap_or(u64::MAX),
    }
}

/// Returns the alignment of appended contents, which is at least that of blocks that move after
/// them.
fn align(header: &SectionHeader) -> u64 {
    if header.align.is_power_of_two() {
        header.align.max(LARGEST_ALIGN)
    } else {
        LARGEST_ALIGN
    }
}

/// Returns the permissions of a segment for this section.
fn flags(header: &SectionHeader) -> elf::ProgramFlags {
    let mut flags = elf::PF_R;
    if header.flags.contains(elf::SHF_WRITE) {
        flags |= elf::PF_W;
    }
    if header.flags.contains(elf::SHF_EXECINSTR) {
        flags |= elf::PF_X;
    }
    flags
}

/// A range of the old file, and its replacement in the new one.
struct Edit {
    range: Range<u64>,
    parts: Vec<Part>,
    /// Size of the parts in bytes.
    size: u64,
    /// Number of the change that this edit implements, if any.
    change: Option<usize>,
}

/// All edits in file order. They do not overlap.
#[derive(Default)]
pub(super) struct Edits(Vec<Edit>);

impl Edits {
    /// Replaces `range` by `parts`, which have `size` bytes in total. Insertions at the same offset
    /// keep the order of the calls.
    pub(super) fn replace(
        &mut self,
        range: Range<u64>,
        parts: Vec<Part>,
        size: u64,
        change: Option<usize>,
    ) -> Result<(), Malformed> {
        if size > i64::MAX as u64 {
            return Err(Malformed::new("new contents are too large", range.start));
        }
        let place = self
            .0
            .partition_point(|edit| (edit.range.start, edit.range.end) <= (range.start, range.end));
        let before = place.checked_sub(1).and_then(|before| self.0.get(before));
        let behind = self.0.get(place);
        if before.is_some_and(|edit| edit.range.end > range.start)
            || behind.is_some_and(|edit| edit.range.start < range.end)
        {
            return Err(Malformed::new("two changes of the same bytes", range.start));
        }
        self.0.insert(
            place,
            Edit {
                range,
                parts,
                size,
                change,
            },
        );
        Ok(())
    }

    /// Returns the new offset of the byte at `old`, before any bytes inserted there.
    pub(super) fn before(&self, old: u64) -> u64 {
        self.locate(old, false)
    }

    /// Returns the new offset of the byte at `old`, after any bytes inserted there.
    pub(super) fn after(&self, old: u64) -> u64 {
        self.locate(old, true)
    }

    fn locate(&self, old: u64, behind_inserted: bool) -> u64 {
        let (mut from, mut to) = (0, 0u64);
        for edit in &self.0 {
            let Range { start, end } = edit.range;
            if end > old || (start == old && !behind_inserted) {
                if start < old {
                    return to + (start - from) + (old - start).min(edit.size);
                }
                break;
            }
            to = to.saturating_add(start - from).saturating_add(edit.size);
            from = end;
        }
        to.saturating_add(old - from)
    }

    /// Returns the new offset of the edit for this change.
    pub(super) fn start_of(&self, change: usize) -> Option<u64> {
        let (mut from, mut to) = (0, 0u64);
        for edit in &self.0 {
            to = to.saturating_add(edit.range.start - from);
            if edit.change == Some(change) {
                return Some(to);
            }
            to = to.saturating_add(edit.size);
            from = edit.range.end;
        }
        None
    }

    /// Copies the bytes that move, before their old range is overwritten.
    pub(super) fn read_moved(&mut self, bytes: &PatchedBytes<'_>) -> Result<(), Malformed> {
        for part in self.0.iter_mut().flat_map(|edit| &mut edit.parts) {
            if let Part::Old(range) = part {
                *part = Part::Bytes(bytes.get(range.start, range.end - range.start)?);
            }
        }
        Ok(())
    }

    /// Returns the parts of the new file. `size` is the size of the old one.
    pub(super) fn apply(self, bytes: &PatchedBytes<'_>, size: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut at = 0;
        for edit in self.0 {
            bytes.emit(at..edit.range.start, &mut parts);
            parts.extend(edit.parts);
            at = edit.range.end;
        }
        bytes.emit(at..size, &mut parts);
        parts
    }
}
