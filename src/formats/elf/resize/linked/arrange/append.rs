//! Contents that do not fit where they were, and sections that the file did not have, behind
//! everything that is loaded: in the last segment where that has the same rights, else in a new one
//! for each set of rights.

use object::elf;

use super::super::blocks::LARGEST_ALIGN;
use super::{Arranging, Load, Offset};
use crate::error::Malformed;
use crate::formats::elf::raw::SectionHeader;
use crate::formats::elf::resize::Part;

/// What is appended.
#[derive(Clone, Copy)]
enum Which {
    /// The contents of the change with this number.
    Change(usize),
    /// The added section with this number.
    Added(usize),
}

#[derive(Clone, Copy)]
struct Item {
    which: Which,
    /// The place of its contents in the caller's list.
    place: usize,
    size: u64,
    align: u64,
    flags: elf::ProgramFlags,
}

impl Arranging<'_> {
    pub(super) fn append(&mut self) -> Result<(), Malformed> {
        self.done.appended = vec![None; self.changes.len()];
        self.done.added = vec![(0, 0); self.added.len()];
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

    /// What is appended, in order: what may grow in place later comes last. Beside sections that
    /// are added, all that is not code is in their writable segment: there is seldom room for the
    /// headers of two segments.
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
                Which::Added(number),
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
                Which::Change(number),
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
        // From an offset to an address.
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
            let size = self.put_guests(item, &mut parts);
            cursor = offset.checked_add(size).ok_or(fault)?;
            end_address = start.checked_add(size).ok_or(fault)?;
            let place = match item.which {
                Which::Change(number) => self
                    .done
                    .appended
                    .get_mut(number)
                    .map(|place| place.insert((start, offset))),
                Which::Added(number) => self.done.added.get_mut(number),
            };
            place.into_iter().for_each(|place| *place = (start, offset));
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

    /// Puts what moves to behind these contents there. The size of both.
    fn put_guests(&self, item: &Item, parts: &mut Vec<Part>) -> u64 {
        let mut size = item.size;
        if let Which::Change(number) = item.which {
            for guest in self.guests_of(number, true) {
                parts.extend([
                    Part::Zeros(guest.offset.saturating_sub(size)),
                    Part::Old(guest.old.clone()),
                ]);
                size = guest.end();
            }
        }
        size
    }

    /// Whether the segment's bytes are the last that are loaded, and no memory follows them.
    fn is_at_end(&self, load: &Load, end: u64) -> bool {
        let old = load
            .segment
            .and_then(|segment| self.linked.segments.get(segment));
        load.end == load.file_end
            && old.is_none_or(|old| old.offset.saturating_add(old.filesz) == end)
    }
}

/// What appended contents are aligned to: at least as blocks are that move to behind them.
fn align(header: &SectionHeader) -> u64 {
    if header.align.is_power_of_two() {
        header.align.max(LARGEST_ALIGN)
    } else {
        LARGEST_ALIGN
    }
}

/// The rights of a segment for this section.
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
