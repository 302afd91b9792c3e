//! Writes the new file: the file header, the program headers, the section headers, and the symbols,
//! which depend on the sections.

use std::collections::BTreeMap;
use std::ops::Range;

use object::elf;

use super::pointers::Pointers;
use super::segments::Linked;
use super::{Layout, Part};
use crate::elf::edit::tables;
use crate::elf::file::PatchedBytes;
use crate::elf::raw::{ProgramHeader, Record, SectionHeader};
use crate::elf::resize::{Renumbered, correct_symbols};
use crate::error::Malformed;

/// Alignment of the section headers.
const TABLE_ALIGN: u64 = 8;

impl Layout {
    /// Writes all headers and symbols. Returns the parts of the file.
    pub(super) fn write(
        mut self,
        linked: &Linked<'_>,
        array: &Pointers,
        mut bytes: PatchedBytes<'_>,
    ) -> Result<Vec<Part>, Malformed> {
        let object = linked.object;
        let mut headers = self.section_headers(linked);
        for (added, location) in array.added.iter().zip(&self.arranged.added) {
            headers.push(SectionHeader {
                addr: location.addr,
                offset: location.offset,
                ..added.header
            });
        }
        for (section, guard) in &array.guards {
            let offset = headers
                .get(*section)
                .map_or(guard.offset, |header| header.offset);
            headers.push(SectionHeader { offset, ..*guard });
        }
        let mut renumbered = Renumbered::default();
        for (index, (old, new)) in object.sections.iter().zip(&headers).enumerate() {
            if old.header.addr != new.addr {
                renumbered
                    .moved
                    .insert(index, new.addr.wrapping_sub(old.header.addr));
            }
        }
        renumbered
            .moved
            .extend((object.sections.len()..headers.len()).map(|added| (added, 0)));
        let mut order = self.order(linked, &headers, &renumbered.moved);
        for (number, (section, _)) in array.guards.iter().enumerate() {
            let guard = headers.len() - array.guards.len() + number;
            order.retain(|index| *index != guard);
            let at = order
                .iter()
                .position(|index| index == section)
                .unwrap_or(order.len());
            order.insert(at, guard);
        }
        renumbered.numbers = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            if let Some(number) = renumbered.numbers.get_mut(*old) {
                *number = new as u32;
            }
        }
        for header in headers
            .iter_mut()
            .filter(|header| header.kind != elf::SHT_NULL)
        {
            header.link = renumbered.number(header.link);
            if header.info_is_section() {
                header.info = renumbered.number(header.info);
            }
        }
        for change in self.changes.iter().filter(|change| change.front > 0) {
            bytes.set(
                change.old.start - change.front,
                &vec![0; change.front as usize],
            )?;
        }
        correct_symbols(object, &array.sizes, &renumbered, &mut bytes)?;
        for (block, new) in self.blocks.iter().zip(&self.moved) {
            if let Some(entry) = block.entry.filter(|_| new.addr != block.addr) {
                bytes.set(entry, &object.class.address_bytes(new.addr))?;
            }
        }
        let headers: Vec<SectionHeader> = order
            .iter()
            .filter_map(|old| headers.get(*old).copied())
            .collect();
        let table_at = self.offset_of_table(linked, headers.len());
        let segments = self.program_headers(linked);
        let mut head = object.head;
        head.phnum = segments.len() as u16;
        let (head, table) = tables(
            object.class,
            head,
            headers,
            renumbered.number(object.names as u32),
            table_at,
        );
        self.arranged.edits.read_moved(&bytes)?;
        self.write_header_space(linked, &segments, &mut bytes)?;
        bytes.set(0, &head)?;
        self.write_table(linked, table, table_at, &mut bytes)?;
        if !object.class.is_64 && self.arranged.edits.after(object.size) > u64::from(u32::MAX) {
            return Err(Malformed::new("too large for a 32-bit file", 0));
        }
        Ok(self.arranged.edits.apply(&bytes, object.size))
    }

    /// Returns the range of the old section headers.
    fn old_table(linked: &Linked<'_>) -> Range<u64> {
        let object = linked.object;
        object.head.shoff
            ..object.head.shoff + (object.sections.len() * SectionHeader::size(object.class)) as u64
    }

    /// Whether the section headers can grow in place, because they are at the end of the file and
    /// not loaded.
    fn grows_in_place(linked: &Linked<'_>) -> bool {
        let old = Self::old_table(linked);
        old.end == linked.object.size && old.start >= linked.loaded_end()
    }

    /// Returns the offset of the new section headers. They stay in place if their number does not
    /// grow, or if they can grow there. Otherwise they move to the end of the file.
    fn offset_of_table(&self, linked: &Linked<'_>, count: usize) -> u64 {
        let edits = &self.arranged.edits;
        if count <= linked.object.sections.len() || Self::grows_in_place(linked) {
            edits.after(linked.object.head.shoff)
        } else {
            edits
                .after(linked.object.size)
                .next_multiple_of(TABLE_ALIGN)
        }
    }

    fn write_table(
        &mut self,
        linked: &Linked<'_>,
        table: Vec<u8>,
        at: u64,
        bytes: &mut PatchedBytes<'_>,
    ) -> Result<(), Malformed> {
        let old = Self::old_table(linked);
        let size = table.len() as u64;
        if size <= old.end - old.start {
            return bytes.set(old.start, &table);
        }
        let edits = &mut self.arranged.edits;
        if Self::grows_in_place(linked) {
            return edits.replace(old, vec![Part::Bytes(table)], size, None);
        }
        let end = linked.object.size;
        let gap = at - edits.after(end);
        edits.replace(
            end..end,
            vec![Part::Zeros(gap), Part::Bytes(table)],
            gap + size,
            None,
        )
    }

    /// Writes the program headers, and the blocks that stay after them.
    fn write_header_space(
        &self,
        linked: &Linked<'_>,
        segments: &[ProgramHeader],
        bytes: &mut PatchedBytes<'_>,
    ) -> Result<(), Malformed> {
        let class = linked.object.class;
        let start = linked.object.head.phoff;
        let mut table = Vec::new();
        segments
            .iter()
            .for_each(|segment| segment.append(class, &mut table));
        // If there are fewer headers than before, zeros fill the rest.
        table.resize(
            table
                .len()
                .max(linked.segments.len() * ProgramHeader::size(class)),
            0,
        );
        let mut stay = Vec::new();
        for staying in &self.space.stay {
            let Some(block) = self.blocks.get(staying.block) else {
                continue;
            };
            stay.push((
                staying.offset,
                bytes.get(block.old.start, block.old.end - block.old.start)?,
            ));
        }
        if !(self.space.stay.is_empty() && self.space.leave.is_empty()) {
            table.resize(self.space.fixed.saturating_sub(start) as usize, 0);
        }
        bytes.set(start, &table)?;
        stay.iter()
            .try_for_each(|(at, block)| bytes.set(*at, block))
    }

    fn program_headers(&self, linked: &Linked<'_>) -> Vec<ProgramHeader> {
        let edits = &self.arranged.edits;
        let mut all = Vec::new();
        let mut loads = self
            .arranged
            .loads
            .iter()
            .map(|load| load.header(edits))
            .peekable();
        for (index, segment) in linked.segments.iter().enumerate() {
            if segment.kind == elf::PT_LOAD {
                all.extend(&mut loads);
            } else if self.kept.contains(&index) {
                let mut new = *segment;
                let by_address = if segment.filesz > 0 {
                    self.arranged.offset_of(segment.vaddr)
                } else {
                    None
                };
                new.offset = by_address.unwrap_or_else(|| edits.before(segment.offset));
                if let Some((block, location)) = self
                    .blocks
                    .iter()
                    .zip(&self.moved)
                    .find(|(block, _)| block.segments.contains(&index))
                {
                    let within = segment.offset - block.old.start;
                    let new_addr = location.addr.wrapping_add(within);
                    let distance = new_addr.wrapping_sub(segment.vaddr);
                    new.offset = location.offset + within;
                    new.vaddr = segment.vaddr.wrapping_add(distance);
                    new.paddr = segment.paddr.wrapping_add(distance);
                }
                all.push(new);
            }
        }
        let size = (all.len() * ProgramHeader::size(linked.object.class)) as u64;
        for own in all
            .iter_mut()
            .filter(|segment| segment.kind == elf::PT_PHDR)
        {
            (own.filesz, own.memsz) = (size, size);
        }
        all
    }

    /// Returns the offset of an allocated section without bytes in the file: the end of its
    /// segment's bytes.
    fn offset_without_bytes(&self, linked: &Linked<'_>, header: &SectionHeader) -> u64 {
        let edits = &self.arranged.edits;
        let mut loads = self.arranged.loads.iter().rev();
        match loads
            .find(|load| (load.file_end..load.end.max(load.file_end + 1)).contains(&header.addr))
        {
            Some(load) => load.offset(edits) + (load.file_end - load.start),
            None => edits.before(header.offset.min(linked.loaded_end())),
        }
    }

    fn section_headers(&self, linked: &Linked<'_>) -> Vec<SectionHeader> {
        let edits = &self.arranged.edits;
        let mut headers: Vec<SectionHeader> = linked.object.headers().collect();
        for header in headers
            .iter_mut()
            .skip(1)
            .filter(|header| header.kind != elf::SHT_NULL)
        {
            header.offset = match (header.is_allocated(), header.is_empty_in_file()) {
                (true, true) => self.offset_without_bytes(linked, header),
                (true, false) => self
                    .arranged
                    .offset_of(header.addr)
                    .unwrap_or_else(|| edits.before(header.offset)),
                (false, _) => edits.after(header.offset),
            };
        }
        for (number, change) in self.changes.iter().enumerate() {
            if let (Some(header), Some(location)) =
                (headers.get_mut(change.section), self.location(number))
            {
                header.addr = location.addr;
                header.offset = location.offset;
                header.size = change.size;
            }
        }
        for (block, location) in self.blocks.iter().zip(&self.moved) {
            for index in &block.sections {
                if let Some(header) = headers.get_mut(*index)
                    && let Some(within) = linked
                        .object
                        .sections
                        .get(*index)
                        .map(|old| old.header.offset - block.old.start)
                {
                    header.addr = location.addr + within;
                    header.offset = location.offset + within;
                }
            }
        }
        headers
    }

    /// Returns the old numbers of the sections in their new order. A section at a new address
    /// follows the last one at a lower address, because other tools expect sections in address
    /// order.
    fn order(
        &self,
        linked: &Linked<'_>,
        headers: &[SectionHeader],
        moved: &BTreeMap<usize, u64>,
    ) -> Vec<usize> {
        let mut order: Vec<usize> = (0..linked.object.sections.len())
            .filter(|index| !moved.contains_key(index))
            .collect();
        let mut again: Vec<(u64, usize)> = moved
            .keys()
            .filter_map(|index| Some((headers.get(*index)?.addr, *index)))
            .collect();
        again.sort_unstable();
        for (addr, index) in again {
            let is_below = |other: &usize| {
                headers
                    .get(*other)
                    .is_some_and(|header| header.is_allocated() && header.addr <= addr)
            };
            let at = order.iter().rposition(is_below).unwrap_or(0);
            order.insert(at + 1, index);
        }
        order
    }
}
