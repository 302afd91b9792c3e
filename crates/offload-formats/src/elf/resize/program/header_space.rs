//! Space for more program headers. The program headers stay at their offset and grow there, because
//! other tools write them back to the offset that linkers use. Blocks after them move if only
//! program headers and section headers refer to the blocks: the interpreter's name and notes. If
//! that does not suffice, tables of the loader move as well; one entry of the dynamic section
//! refers to each.
//!
//! In a static program at fixed addresses, almost no blocks can move. For such programs,
//! `with_front_page` makes space: all contents keep their addresses, and their file offsets grow by
//! one page. This page contains the file header and the program headers. The first segment now
//! starts with it, below the segment's old address. Programs with a dynamic section do not get such
//! a page: their tables can move, and the programs crash if patchelf edits them after a page was
//! added.

use std::ops::Range;

use object::elf;

use super::Change;
use super::segments::{Linked, PAGE, has_bytes};
use crate::bytes::{overlap, range};
use crate::compose::Part;
use crate::elf::edit::tables;
use crate::elf::file::Object;
use crate::elf::raw::{ProgramHeader, Record, SectionHeader};
use crate::error::Malformed;

/// Largest alignment of blocks, in bytes.
pub(super) const LARGEST_ALIGN: u64 = 64;
/// Size of the largest block that moves, in bytes.
const LARGEST_BLOCK: u64 = 1 << 22;
/// The most blocks after the program headers for which all combinations are tried.
const MOST_BLOCKS: usize = 8;

/// Bytes that can move together, with their segments and sections.
#[derive(Debug)]
pub(super) struct Block {
    pub old: Range<u64>,
    /// Address of the first byte.
    pub addr: u64,
    pub align: u64,
    pub segments: Vec<usize>,
    pub sections: Vec<usize>,
    /// File offset of the dynamic section's value with this address, if there is one.
    pub entry: Option<u64>,
    /// Whether the block contains the build ID, which other tools expect in the first page in
    /// memory.
    has_build_id: bool,
}

/// Returns all blocks of the file. Includes those with tables of the loader only if `with_tables`.
pub(super) fn blocks(linked: &Linked<'_>, with_tables: bool) -> Vec<Block> {
    let movable = |kind| matches!(kind, elf::PT_INTERP | elf::PT_NOTE | elf::PT_GNU_PROPERTY);
    let mut found: Vec<Block> = Vec::new();
    let mut segments: Vec<(usize, &ProgramHeader)> = linked.segments.iter().enumerate().collect();
    segments.retain(|(_, segment)| movable(segment.kind) && segment.filesz > 0);
    segments.sort_by_key(|(_, segment)| (segment.offset, std::cmp::Reverse(segment.filesz)));
    for (index, segment) in segments {
        let Ok(old) = range(segment.offset, segment.filesz) else {
            continue;
        };
        let align = if segment.align.is_power_of_two() {
            segment.align.min(LARGEST_ALIGN)
        } else {
            1
        };
        match found.last_mut().filter(|last| old.start < last.old.end) {
            Some(last) => {
                last.old.end = last.old.end.max(old.end);
                last.align = last.align.max(align);
                last.segments.push(index);
            }
            None => found.push(Block {
                old,
                addr: segment.vaddr,
                align,
                segments: vec![index],
                sections: Vec::new(),
                entry: None,
                has_build_id: false,
            }),
        }
    }
    if with_tables {
        found.extend(loader_tables(linked));
    }
    found.retain_mut(|block| is_whole(linked, block));
    found.sort_by_key(|block| block.old.start);
    found
}

/// Returns the loader's tables to which only the dynamic section refers.
fn loader_tables(linked: &Linked<'_>) -> impl Iterator<Item = Block> {
    let sections = linked.object.headers();
    sections.filter(has_bytes).filter_map(|header| {
        let tag = tag_of_table(header.kind)?;
        let entry = linked
            .dynamic()
            .find(|entry| entry.tag == tag && entry.value == header.addr)?;
        let block = Block {
            old: range(header.offset, header.size).ok()?,
            addr: header.addr,
            align: if header.align.is_power_of_two() {
                header.align.clamp(8, LARGEST_ALIGN)
            } else {
                8
            },
            segments: Vec::new(),
            sections: Vec::new(),
            entry: Some(entry.value_at),
            has_build_id: false,
        };
        Some(block)
    })
}

/// Returns the tag of the dynamic section's entry for a section of this type.
fn tag_of_table(kind: elf::SectionType) -> Option<elf::DynamicTag> {
    Some(match kind {
        elf::SHT_GNU_HASH => elf::DT_GNU_HASH,
        elf::SHT_HASH => elf::DT_HASH,
        elf::SHT_DYNSYM => elf::DT_SYMTAB,
        elf::SHT_GNU_VERSYM => elf::DT_VERSYM,
        elf::SHT_GNU_VERNEED => elf::DT_VERNEED,
        _ => return None,
    })
}

/// Collects the sections of a block. Returns whether the block consists of whole sections that may
/// move.
fn is_whole(linked: &Linked<'_>, block: &mut Block) -> bool {
    let size = block.old.end - block.old.start;
    let load = linked.loads().find(|(_, load)| {
        overlap(
            &block.old,
            &(load.offset..load.offset.saturating_add(load.filesz)),
        )
    });
    let is_loaded = load.is_some_and(|(_, load)| {
        let within = block.old.start.checked_sub(load.offset);
        within.is_some_and(|within| {
            load.vaddr.checked_add(within) == Some(block.addr) && within + size <= load.filesz
        })
    });
    let mut is_alone = size <= LARGEST_BLOCK && is_loaded;
    for (index, section) in linked
        .object
        .sections
        .iter()
        .enumerate()
        .filter(|(_, section)| has_bytes(&section.header))
    {
        let header = section.header;
        let bytes = header.offset..header.offset.saturating_add(header.size);
        if overlap(&bytes, &block.old) {
            let is_kind = match block.entry {
                Some(_) => tag_of_table(header.kind).is_some(),
                None => header.kind == elf::SHT_NOTE || section.name == b".interp",
            };
            is_alone &= is_kind && bytes.start >= block.old.start && bytes.end <= block.old.end;
            block.sections.push(index);
            block.has_build_id |= section.name == b".note.gnu.build-id";
        }
    }
    is_alone
}

/// The space from the program headers to the first byte that cannot move.
#[derive(Debug, Default)]
pub(super) struct HeaderSpace {
    /// Blocks that stay after the program headers.
    pub stay: Vec<Staying>,
    /// Indices of the blocks that must move elsewhere.
    pub leave: Vec<usize>,
    /// Offset of the first byte that cannot move.
    pub fixed: u64,
}

/// A block that stays after the program headers.
#[derive(Debug)]
pub(super) struct Staying {
    /// Index of the block.
    pub block: usize,
    /// New offset of the block.
    pub offset: u64,
}

/// Selects the blocks that move to make space for `count` program headers. `None` if other bytes
/// are in the way.
pub(super) fn header_space(
    linked: &Linked<'_>,
    blocks: &[Block],
    changes: &[Change],
    count: usize,
) -> Option<HeaderSpace> {
    let head = &linked.object.head;
    let size = ProgramHeader::size(linked.object.class) as u64;
    let old_end = head
        .phoff
        .checked_add(linked.segments.len() as u64 * size)?;
    let end = head.phoff.checked_add((count as u64).checked_mul(size)?)?;
    let fixed = first_fixed(linked, blocks, changes, head.phoff, old_end);
    let among: Vec<usize> = (0..blocks.len())
        .filter(|at| {
            blocks
                .get(*at)
                .is_some_and(|block| (old_end..fixed).contains(&block.old.start))
        })
        .collect();
    if end <= old_end {
        return Some(HeaderSpace {
            fixed,
            ..HeaderSpace::default()
        });
    }
    if count >= usize::from(elf::PN_XNUM) || end > fixed || among.len() > MOST_BLOCKS {
        return None;
    }
    let choices = (0..1u32 << among.len()).filter_map(|choice| {
        let mut space = HeaderSpace {
            fixed,
            ..HeaderSpace::default()
        };
        let (mut at, mut score) = (end, (false, 0, 0));
        for (bit, index) in among.iter().enumerate() {
            let block = blocks.get(*index)?;
            if choice & (1 << bit) == 0 {
                space.leave.push(*index);
                continue;
            }
            let room = block.old.end - block.old.start;
            let start = at.max(block.old.start).next_multiple_of(block.align.max(1));
            at = start.checked_add(room).filter(|at| *at <= fixed)?;
            score = (
                score.0 || block.has_build_id,
                score.1 + usize::from(start == block.old.start),
                score.2 + room,
            );
            space.stay.push(Staying {
                block: *index,
                offset: start,
            });
        }
        Some((score, space))
    });
    choices
        .max_by_key(|(score, _)| *score)
        .map(|(_, space)| space)
}

/// Returns the offset of the first byte after the program headers that cannot move.
fn first_fixed(
    linked: &Linked<'_>,
    blocks: &[Block],
    changes: &[Change],
    table: u64,
    end: u64,
) -> u64 {
    let object = linked.object;
    let in_block = |start: u64| blocks.iter().any(|block| block.old.contains(&start));
    let is_changed = |index: usize| changes.iter().any(|change| change.section == index);
    let sections = object
        .sections
        .iter()
        .enumerate()
        .filter(|(index, _)| !is_changed(*index))
        .map(|(_, section)| section.header);
    let sections = sections.filter(has_bytes).map(|header| header.offset);
    let segments = linked
        .segments
        .iter()
        .filter(|segment| segment.filesz > 0 && segment.offset >= end);
    let changed = changes.iter().map(|change| change.old.start);
    let load = linked
        .loads()
        .find(|(_, load)| (load.offset..load.offset.saturating_add(load.filesz)).contains(&table));
    let all = sections
        .chain(segments.map(|segment| segment.offset))
        .filter(|start| !in_block(*start));
    let all = all
        .chain(changed)
        .chain([object.head.shoff, object.size])
        .filter(|start| *start >= end);
    let first = all.min().unwrap_or(end);
    load.map_or(first, |(_, load)| first.min(load.offset + load.filesz))
}

/// Largest segment alignment for which a page is added, in bytes. The page is as large as the
/// largest alignment of the file's segments.
const LARGEST_PAGE: u64 = 1 << 16;
/// Processes have no memory below this address (`vm.mmap_min_addr`).
const LOWEST_ADDRESS: u64 = 1 << 16;

/// Returns the parts of the program `data` with one more page at the start, and the size of that
/// page. `None` if the file is not a static program at fixed addresses, or if its first segment has
/// too low an address or does not start the file.
///
/// # Errors
/// The file is damaged.
pub fn with_front_page(data: &[u8]) -> Result<Option<(u64, Vec<Part>)>, Malformed> {
    let object = Object::parse_any(data)?;
    if object.head.kind != elf::ET_EXEC {
        return Ok(None);
    }
    let linked = Linked::read(&object, data)?;
    if linked
        .segments
        .iter()
        .any(|segment| matches!(segment.kind, elf::PT_DYNAMIC | elf::PT_INTERP))
    {
        return Ok(None);
    }
    let page = linked
        .loads()
        .map(|(_, load)| load.align.max(PAGE))
        .max()
        .unwrap_or(PAGE);
    let Some((first, load)) = linked.loads().next().map(|(first, load)| (first, *load)) else {
        return Ok(None);
    };
    let table_end = object
        .head
        .phoff
        .saturating_add(linked.segments.len() as u64 * u64::from(object.head.phentsize));
    let is_low = load.vaddr < page.saturating_add(LOWEST_ADDRESS);
    let is_usual = object.head.phoff >= u64::from(object.head.ehsize)
        && load.offset == 0
        && load.filesz >= table_end;
    if page > LARGEST_PAGE || table_end > page || !is_usual || is_low {
        return Ok(None);
    }
    let mut head = object.head;
    let mut segments = linked.segments.clone();
    for (index, segment) in segments.iter_mut().enumerate() {
        if index == first {
            (segment.filesz, segment.memsz) = (
                segment.filesz.saturating_add(page),
                segment.memsz.saturating_add(page),
            );
        }
        if index == first || segment.kind == elf::PT_PHDR && segment.offset == object.head.phoff {
            (segment.vaddr, segment.paddr) = (
                segment.vaddr.wrapping_sub(page),
                segment.paddr.wrapping_sub(page),
            );
        } else if segment.filesz > 0 || segment.offset > 0 {
            segment.offset = moved(segment.offset, page)?;
        }
    }
    let mut headers: Vec<SectionHeader> = object.headers().collect();
    for header in headers
        .iter_mut()
        .skip(1)
        .filter(|header| header.kind != elf::SHT_NULL)
    {
        header.offset = moved(header.offset, page)?;
    }
    let end = moved(object.size, page)?;
    if !object.class.is_64 && end > u64::from(u32::MAX) {
        return Ok(None);
    }
    let (at, count) = (head.shoff, headers.len() as u64);
    head.shoff = moved(at, page)?;
    let (mut front, table) = tables(object.class, head, headers, object.names as u32, head.shoff);
    front.resize(object.head.phoff as usize, 0);
    segments
        .iter()
        .for_each(|segment: &ProgramHeader| segment.append(object.class, &mut front));
    front.resize(page as usize, 0);
    let table_end =
        at.saturating_add(count.saturating_mul(SectionHeader::size(object.class) as u64));
    // Code that reads the headers at their old address still gets the old ones, which remain
    // correct.
    let mut parts = vec![
        Part::Bytes(front),
        Part::Old(0..at),
        Part::Bytes(table),
        Part::Old(table_end..object.size),
    ];
    parts.retain(|part| !matches!(part, Part::Old(range) if range.is_empty()));
    Ok(Some((page, parts)))
}

fn moved(offset: u64, page: u64) -> Result<u64, Malformed> {
    offset
        .checked_add(page)
        .ok_or(Malformed::new("a range past the largest offset", offset))
}
