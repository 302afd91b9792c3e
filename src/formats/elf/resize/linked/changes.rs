//! What becomes of each section that gets other contents: whether it stays where it is, or moves to
//! the end.

use std::ops::Range;

use object::elf;

use super::blocks::LARGEST_ALIGN;
use super::segments::{Linked, has_bytes};
use crate::error::Malformed;
use crate::formats::elf::raw::{ProgramHeader, SectionHeader};
use crate::formats::elf::resize::Sizes;
use crate::formats::range;

/// How many bytes a segment keeps, at most, of which no section has any: those of a section without
/// contents.
pub(super) const FILLER: u64 = 16;

/// So many program headers more may tools need: patchelf one each time that it is called, and one
/// for each note.
const HEADERS_OF_TOOLS: u64 = 16;

/// Whether tools move all that stands in front of the strings of the loader, and put it into pages
/// that they add in front of the file: so they do with programs at fixed addresses.
pub(super) fn is_moved_with_others(linked: &Linked<'_>) -> bool {
    linked.object.head.kind == elf::ET_EXEC
}

/// A section that gets other contents.
#[derive(Debug)]
pub(super) struct Change {
    /// Its index in the section table.
    pub section: usize,
    /// Its place in the caller's list of contents.
    pub place: usize,
    /// Its old header, from `front` bytes behind its start on.
    pub header: SectionHeader,
    /// Its bytes in the old file, from there on, and what only fills its segment behind them.
    pub old: Range<u64>,
    /// How many bytes in front of the new contents are free.
    pub front: u64,
    /// Its new size.
    pub size: u64,
    /// The segment that has its bytes; none where it is not loaded, or has no bytes and stands
    /// outside of all segments.
    pub load: Option<usize>,
    /// Whether its new contents are appended behind everything that is loaded, since they do not
    /// fit where it is.
    pub is_appended: bool,
    /// Whether no bytes are taken out of the middle of a segment where it was, so that the segment
    /// is not split.
    pub keeps_room: bool,
}

impl Change {
    /// How many bytes it needs where it has been.
    pub(super) fn stays(&self) -> u64 {
        if self.is_appended { 0 } else { self.size }
    }

    pub(super) fn old_size(&self) -> u64 {
        self.old.end - self.old.start
    }

    /// Lets contents that would stand right behind the table of segments begin later, where they
    /// fit: tools put more segments into the table, and then move every section that is in the way,
    /// but not what points to it. Where contents are appended, the table may grow into their old
    /// place: GNU ld 2.41 and later puts images right behind the notes.
    fn leave_room(&mut self, linked: &Linked<'_>) {
        let head = &linked.object.head;
        let count = linked.segments.len() as u64 + HEADERS_OF_TOOLS;
        let end = head.phoff.saturating_add(count * u64::from(head.phentsize));
        let align = if self.header.align.is_power_of_two() {
            self.header.align.max(LARGEST_ALIGN)
        } else {
            return;
        };
        let is_near = self.old.start > head.phoff && self.old.start < end;
        let is_near = is_near && (self.is_appended || !is_moved_with_others(linked));
        let is_aligned = self.header.addr.is_multiple_of(self.header.align);
        let front = end.saturating_sub(self.old.start).next_multiple_of(align);
        if !is_near || !is_aligned || self.load.is_none() || self.size == 0 {
            return;
        }
        if front
            .checked_add(self.stays())
            .is_some_and(|needed| needed <= self.header.size)
        {
            self.front = front;
            self.old.start += front;
            self.header.addr += front;
            self.header.offset += front;
            self.header.size -= front;
        }
    }
}

/// All changes, in the order of the sections in the file.
pub(super) fn changes(linked: &Linked<'_>, sizes: &Sizes) -> Result<Vec<Change>, Malformed> {
    let mut all = Vec::new();
    for (index, (place, size)) in &sizes.by_index {
        let Some(section) = linked.object.sections.get(*index) else {
            continue;
        };
        let header = section.header;
        let load = if header.is_allocated() {
            linked.load_of(&header)
        } else {
            None
        };
        if header.is_allocated() && has_bytes(&header) && load.is_none() {
            return Err(Malformed::new(
                "the section to resize is in no segment",
                header.offset,
            ));
        }
        if *size != header.size {
            linked.check_alone(*index, load.is_some())?;
        }
        let mut change = Change {
            section: *index,
            place: *place,
            header,
            old: old_range(linked, *index, &header, load.map(|(_, load)| load))?,
            front: 0,
            size: *size,
            load: load.map(|(segment, _)| segment),
            is_appended: false,
            keeps_room: false,
        };
        change.is_appended =
            header.is_allocated() && *size > header.size && !ends_what_is_loaded(linked, &change);
        if sizes.movable.contains(index) || change.is_appended {
            change.leave_room(linked);
        }
        all.push(change);
    }
    all.sort_by_key(|change| (change.old.start, change.old.end));
    Ok(all)
}

/// The old bytes of a section, with those behind it that only fill its segment.
fn old_range(
    linked: &Linked<'_>,
    index: usize,
    header: &SectionHeader,
    load: Option<&ProgramHeader>,
) -> Result<Range<u64>, Malformed> {
    let own = range(header.offset, header.size)?;
    let Some(load) = load.filter(|load| load.memsz == load.filesz) else {
        return Ok(own);
    };
    let end = load.offset.saturating_add(load.filesz);
    let is_alone = linked
        .next_section(own.end, index)
        .is_none_or(|next| next.offset >= end);
    let is_filled = is_alone && end.checked_sub(own.end).is_some_and(|more| more <= FILLER);
    Ok(if is_filled { own.start..end } else { own })
}

/// Whether the section is the last of the last segment, so that it can grow where it is.
fn ends_what_is_loaded(linked: &Linked<'_>, change: &Change) -> bool {
    let Some((last, load)) = linked.loads().last() else {
        return false;
    };
    let end = load.offset.saturating_add(load.filesz);
    // Memory behind the bytes of the file would be in the way, and so would another section without
    // bytes.
    let is_free = load.memsz == load.filesz && end == linked.loaded_end();
    let above = linked.object.headers();
    let mut above =
        above.filter(|other| other.is_allocated() && other.kind != elf::SHT_NULL && other.size > 0);
    let is_top = !above.any(|other| other.addr > change.header.addr);
    change.load == Some(last) && change.old.end == end && is_free && is_top
}
