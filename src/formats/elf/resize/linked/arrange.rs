//! The loaded segments of the new file: old ones become shorter or are split where bytes are taken
//! out of the file, and contents that do not fit where they were get a segment behind all others.

mod append;

use std::ops::Range;

use object::elf;

use super::changes::{Change, FILLER};
use super::edits::Edits;
use super::pointers::Added;
use super::segments::Linked;
use crate::error::Malformed;
use crate::formats::elf::raw::ProgramHeader;
use crate::formats::elf::resize::Part;

/// The most zeros written to the file to make one segment of two.
const LARGEST_GAP: u64 = 1 << 18;

/// A loaded segment of the new file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    /// The old segment that its last byte is of; none where it is new.
    segment: Option<usize>,
    offset: Offset,
    /// The addresses of its first byte, of the end of its bytes in the file, and of the end of its
    /// memory.
    pub start: u64,
    pub file_end: u64,
    pub end: u64,
    pub flags: elf::ProgramFlags,
    pub align: u64,
    /// From an address in memory to a physical one, modulo 2^64.
    pub to_physical: u64,
}

/// An offset of the old or the new file.
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

    /// Where it is in the new file.
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

/// Bytes that move to behind the new contents of a section.
pub(super) struct Relocated {
    /// How far behind the start of the section.
    pub offset: u64,
    /// Where they are in the old file.
    pub old: Range<u64>,
}

impl Relocated {
    fn end(&self) -> u64 {
        self.offset + (self.old.end - self.old.start)
    }
}

/// What moves to behind a section, in order.
pub(super) struct Guests {
    /// The number of the section's change.
    pub host: usize,
    /// Whether they stand behind the contents that are appended, and not where the section has
    /// been.
    pub is_appended: bool,
    pub all: Vec<Relocated>,
}

/// What the caller wants besides.
#[derive(Default)]
pub(super) struct Wanted<'a> {
    /// Sections that the file did not have.
    pub added: &'a [Added],
    pub guests: Option<Guests>,
    /// How many pairs of segments may become one.
    pub joined: usize,
}

/// Where everything that is loaded will be.
#[derive(Default)]
pub(super) struct Arranged {
    pub loads: Vec<Load>,
    pub edits: Edits,
    /// The new address and offset of the contents of each change that are appended.
    pub appended: Vec<Option<(u64, u64)>>,
    /// The addresses and offsets of the added sections.
    pub added: Vec<(u64, u64)>,
}

impl Arranged {
    /// Where the byte at this address is in the new file, if it is in the file.
    pub(super) fn offset_of(&self, addr: u64) -> Option<u64> {
        let load = self
            .loads
            .iter()
            .find(|load| (load.start..load.file_end).contains(&addr))?;
        Some(load.offset(&self.edits) + (addr - load.start))
    }
}

/// Arranges what is loaded, and what is not.
pub(super) fn arrange(
    linked: &Linked<'_>,
    changes: &[Change],
    wanted: Wanted<'_>,
) -> Result<Arranged, Malformed> {
    let mut arranging = Arranging {
        linked,
        changes,
        added: wanted.added,
        guests: wanted.guests,
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
    guests: Option<Guests>,
    done: Arranged,
}

impl Arranging<'_> {
    /// How many bytes are needed where this change's section has been.
    fn kept(&self, number: usize, change: &Change) -> u64 {
        self.guests_of(number, false)
            .last()
            .map_or(change.stays(), Relocated::end)
    }

    /// What moves to behind the appended or the old contents of this change.
    fn guests_of(&self, number: usize, is_appended: bool) -> &[Relocated] {
        let guests = self
            .guests
            .as_ref()
            .filter(|guests| guests.host == number && guests.is_appended == is_appended);
        guests.map_or(&[], |guests| &guests.all)
    }

    /// Puts what is needed of a section, and zeros up to `size`, in place of its old bytes up to
    /// `end`.
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
        for guest in self.guests_of(number, false) {
            parts.extend([
                Part::Zeros(guest.offset.saturating_sub(at)),
                Part::Old(guest.old.clone()),
            ]);
            at = guest.end();
        }
        parts.push(Part::Zeros(size.saturating_sub(at)));
        parts.retain(|part| *part != Part::Zeros(0));
        self.done
            .edits
            .replace(change.old.start..end, parts, size, Some(number))
    }

    /// Puts what is needed of a section in place of its old bytes, as short as what stands behind
    /// permits.
    fn put_short(&mut self, number: usize, change: &Change) -> Result<(), Malformed> {
        let size = shortest(
            self.kept(number, change),
            change.old_size(),
            self.linked.unit_behind(change.old.end),
        );
        self.put(number, change, change.old.end, size)
    }

    /// The parts of an old segment that remain. One without code is not executable, whatever the
    /// segment was.
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
                // A section without contents should still be in a segment.
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
            // Memory that follows needs a segment with bytes.
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

    /// How many bytes behind a section only align the next one of the same segment.
    fn padding_behind(&self, change: &Change, load: &ProgramHeader) -> u64 {
        let end = change.old.end;
        let next = self.linked.next_section(end, change.section);
        let next = next
            .filter(|next| next.offset < load.offset + load.filesz)
            .map(|next| (next.offset - end, next.align));
        next.filter(|(gap, align)| gap < align)
            .map_or(0, |(gap, _)| gap)
    }

    /// Makes one segment of two neighbours with the same rights, the first such pair, by writing
    /// zeros between them to the file.
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

    /// The bytes of the old file between two segments that can become one, and how many there must
    /// be.
    fn gap(&self, one: &Load, other: &Load) -> Option<(Range<u64>, u64)> {
        let (Offset::Old(_), Offset::Old(start), Some(segment)) =
            (one.offset, other.offset, one.segment)
        else {
            return None;
        };
        let old = self.linked.segments.get(segment)?;
        // Two parts of one segment have been split for a reason.
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

/// Whether a section with code is in this segment.
fn has_code(linked: &Linked<'_>, load: &Load) -> bool {
    let mut sections = linked.object.headers();
    let is_code = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
    sections.any(|header| {
        header.flags.contains(is_code) && (load.start..load.end).contains(&header.addr)
    })
}

/// The least size from `kept` on with which what stands behind `old` bytes moves by a multiple of
/// `unit`.
fn shortest(kept: u64, old: u64, unit: u64) -> u64 {
    match kept.checked_sub(old) {
        None => kept + (old - kept) % unit,
        Some(more) => more
            .checked_next_multiple_of(unit)
            .and_then(|more| old.checked_add(more))
            .unwrap_or(u64::MAX),
    }
}
