//! Where what stays of an ELF file stands when sections that are not loaded have gone: what was in
//! front of the first of them stays where it was, and what was behind moves up, as far as its
//! alignment lets it.

use std::ops::Range;

use object::elf;

use crate::error::Malformed;
use crate::formats::compose::{Part, push_old, push_zeros};
use crate::formats::elf::edit::tables;
use crate::formats::elf::file::Object;
use crate::formats::elf::raw::{FileHeader, ProgramHeader, Record, SectionHeader};
use crate::formats::{overlap, range, slice};

/// The alignment of the tables of sections and segments, and of bytes of which nothing is known.
const TABLE_ALIGN: u64 = 8;

/// Bytes that stay together, as they are.
#[derive(Debug, Clone)]
struct Run {
    old: Range<u64>,
    /// New and old offset are the same modulo this, a power of two.
    align: u64,
    /// The new offset, at most the old one.
    new: u64,
}

/// The places of what stays.
pub(super) struct Layout {
    /// In the order of the file; they do not overlap. The first one is everything in front of the
    /// first section that goes.
    runs: Vec<Run>,
    segments: Vec<ProgramHeader>,
    /// Where the table of sections was.
    table: Range<u64>,
}

impl Layout {
    /// The layout of the file `data` without the sections that are `gone`, of which there is one at
    /// least.
    pub(super) fn of(data: &[u8], object: &Object<'_>, gone: &[bool]) -> Result<Layout, Malformed> {
        let head = &object.head;
        if head.phnum == elf::PN_XNUM {
            return Err(Malformed::new("too many segments", 0));
        }
        let segments = ProgramHeader::table(
            object.class,
            data,
            head.phoff,
            head.phnum.into(),
            "segments past the end",
        )?;
        let segments_size = (segments.len() * ProgramHeader::size(object.class)) as u64;
        let table_size = (object.sections.len() * SectionHeader::size(object.class)) as u64;
        let table = range(head.shoff, table_size)?;
        let tables = [
            range(0, FileHeader::size(object.class) as u64)?,
            range(head.phoff, segments_size)?,
            table.clone(),
        ];
        if tables
            .iter()
            .enumerate()
            .any(|(at, one)| tables.iter().skip(at + 1).any(|other| overlap(one, other)))
        {
            return Err(Malformed::new(
                "the headers of the file overlap",
                head.shoff,
            ));
        }
        let mut stay: Vec<(Range<u64>, u64)> = tables
            .into_iter()
            .map(|table| (table, TABLE_ALIGN))
            .collect();
        for segment in segments.iter().filter(|segment| segment.filesz > 0) {
            stay.push((range(segment.offset, segment.filesz)?, segment.align));
        }
        let mut go = Vec::new();
        for (section, gone) in object.sections.iter().zip(gone).skip(1) {
            let header = section.header;
            match gone {
                _ if header.is_empty_for(object.head.machine) => {}
                true => go.push(range(header.offset, header.size)?),
                false => stay.push((range(header.offset, header.size)?, header.align)),
            }
        }
        let first = go
            .iter()
            .map(|range| range.start)
            .min()
            .unwrap_or(data.len() as u64);
        stay.push((0..first, 1));
        stay.extend(unknown(data, &stay, &go)?);
        Ok(Layout {
            runs: runs(stay),
            segments,
            table,
        })
    }

    /// For each section whether it is `gone`, but has bytes that stay.
    pub(super) fn in_use(&self, object: &Object<'_>, gone: &[bool]) -> Vec<bool> {
        let overlaps = |header: &SectionHeader| {
            let next = self
                .runs
                .partition_point(|run| run.old.end <= header.offset);
            self.runs
                .get(next)
                .is_some_and(|run| run.old.start < header.offset.saturating_add(header.size))
        };
        object
            .sections
            .iter()
            .zip(gone)
            .map(|(section, gone)| *gone && overlaps(&section.header))
            .collect()
    }

    /// The new offset of what was at `old`; of what has gone, the end of what is in front of it.
    fn moved(&self, old: u64) -> u64 {
        let behind = self.runs.partition_point(|run| run.old.start <= old);
        let run = behind.checked_sub(1).and_then(|at| self.runs.get(at));
        run.map_or(old, |run| {
            run.new
                .saturating_add(old.min(run.old.end).saturating_sub(run.old.start))
        })
    }

    /// The parts of the new file, which has these sections, with their old offsets still, and the
    /// names of them in number `names`.
    pub(super) fn parts(
        self,
        object: &Object<'_>,
        mut headers: Vec<SectionHeader>,
        names: u32,
    ) -> Vec<Part> {
        let class = object.class;
        headers
            .iter_mut()
            .skip(1)
            .for_each(|header| header.offset = self.moved(header.offset));
        let mut head = object.head;
        if head.phnum > 0 {
            head.phoff = self.moved(head.phoff);
        }
        let mut segments = Vec::new();
        for segment in &self.segments {
            ProgramHeader {
                offset: self.moved(segment.offset),
                ..*segment
            }
            .append(class, &mut segments);
        }
        let (head, table) = tables(class, head, headers, names, self.moved(self.table.start));
        let mut changes = [
            (0, head),
            (object.head.phoff, segments),
            (self.table.start, table),
        ];
        changes.sort_by_key(|(at, _)| *at);
        let (mut parts, mut end) = (Vec::new(), 0);
        for run in &self.runs {
            push_zeros(&mut parts, run.new.saturating_sub(end));
            let mut at = run.old.start;
            for (start, bytes) in changes
                .iter()
                .filter(|(start, bytes)| run.old.contains(start) && !bytes.is_empty())
            {
                push_old(&mut parts, at..*start);
                parts.push(Part::Bytes(bytes.clone()));
                at = start.saturating_add(bytes.len() as u64);
            }
            // The table of sections may have become smaller; what was behind it in a run of its own
            // is not missed.
            let rest = if run.old == self.table {
                at..at
            } else {
                at..run.old.end
            };
            end = run
                .new
                .saturating_add(rest.end.saturating_sub(run.old.start));
            push_old(&mut parts, rest);
        }
        parts
    }
}

/// The runs of these ranges, each with an alignment, at their new places.
fn runs(mut ranges: Vec<(Range<u64>, u64)>) -> Vec<Run> {
    ranges.retain(|(range, _)| range.start < range.end);
    ranges.sort_by_key(|(range, _)| range.start);
    let mut runs: Vec<Run> = Vec::new();
    for (old, align) in ranges {
        let align = if align.is_power_of_two() { align } else { 1 };
        match runs.last_mut().filter(|last| old.start < last.old.end) {
            Some(last) => {
                last.old.end = last.old.end.max(old.end);
                last.align = last.align.max(align);
            }
            None => runs.push(Run {
                new: old.start,
                old,
                align,
            }),
        }
    }
    let mut end = 0u64;
    for run in &mut runs {
        // Not above the old place, which is aligned, and not below the end.
        run.new = end.saturating_add(run.old.start.wrapping_sub(end) & (run.align - 1));
        end = run.new.saturating_add(run.old.end - run.old.start);
    }
    runs
}

/// What neither stays nor goes by the tables of the file, and is not zero: it stays.
fn unknown(
    data: &[u8],
    stay: &[(Range<u64>, u64)],
    go: &[Range<u64>],
) -> Result<Vec<(Range<u64>, u64)>, Malformed> {
    let mut known: Vec<&Range<u64>> = stay
        .iter()
        .map(|(range, _)| range)
        .chain(go)
        .filter(|range| range.start < range.end)
        .collect();
    known.sort_by_key(|range| range.start);
    let size = data.len() as u64;
    let mut found = Vec::new();
    let mut look = |from: u64, to: u64| -> Result<(), Malformed> {
        let gap = slice(
            data,
            from,
            to.saturating_sub(from),
            "a segment past the end",
            from,
        )?;
        let filled = |byte: &u8| *byte != 0;
        if let (Some(first), Some(last)) =
            (gap.iter().position(filled), gap.iter().rposition(filled))
        {
            found.push((from + first as u64..from + last as u64 + 1, TABLE_ALIGN));
        }
        Ok(())
    };
    let mut end = 0;
    for range in known {
        if range.start > end {
            look(end, range.start)?;
        }
        end = end.max(range.end);
    }
    if end > size {
        return Err(Malformed::new("a segment past the end", size));
    }
    look(end, size)?;
    Ok(found)
}
