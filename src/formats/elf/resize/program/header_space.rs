//! Space for more program headers. They stay at their offset and grow there, because other tools
//! write them back to where linkers put them. Blocks behind them move if only program headers and
//! section headers refer to them: the interpreter's name and notes. If that does not suffice, tables
//! of the loader move, too; one entry of the dynamic section refers to each.
//!
//! Almost nothing can move in a static program at fixed addresses. `with_front_page` makes space
//! there: everything stays at its address and moves back in the file by a page. The file header and
//! the program headers are in that page, with which the first segment now begins, below its old
//! address. Programs with a dynamic section do not get such a page: their tables can move, and they
//! crash if patchelf edits them after that.

use std::ops::Range;

use object::elf;

use super::Change;
use super::segments::{Linked, PAGE, has_bytes};
use crate::error::Malformed;
use crate::formats::compose::Part;
use crate::formats::elf::edit::tables;
use crate::formats::elf::file::Object;
use crate::formats::elf::raw::{ProgramHeader, Record, SectionHeader};
use crate::formats::{overlap, range};

/// The largest alignment of blocks.
pub(super) const LARGEST_ALIGN: u64 = 64;
/// The largest block that moves.
const LARGEST_BLOCK: u64 = 1 << 22;
/// The most blocks behind the program headers to choose from.
const MOST_BLOCKS: usize = 8;

/// Bytes that can move together, with their segments and sections.
#[derive(Debug)]
pub(super) struct Block {
    pub old: Range<u64>,
    /// The address of its first byte.
    pub addr: u64,
    pub align: u64,
    pub segments: Vec<usize>,
    pub sections: Vec<usize>,
    /// The offset of the dynamic section's value that is the address, if there is one.
    pub entry: Option<u64>,
    /// Whether the build ID is in it. Other tools look for that in the first page in memory.
    has_build_id: bool,
}

/// All blocks of the file, those of the loader's tables only `with_tables`.
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

/// The tables of the loader that only the dynamic section refers to.
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

/// The tag of the dynamic section's entry for a section of this type.
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

/// Fills in the sections of a block. Returns whether it consists of whole sections of its kind.
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

/// The bytes from the program headers to the first byte that cannot move.
#[derive(Debug, Default)]
pub(super) struct HeaderSpace {
    /// The blocks that stay behind the program headers.
    pub stay: Vec<Staying>,
    /// The indices of the blocks that must move elsewhere.
    pub leave: Vec<usize>,
    /// The offset of the first byte that cannot move.
    pub fixed: u64,
}

/// A block that stays behind the program headers.
#[derive(Debug)]
pub(super) struct Staying {
    /// The index of the block.
    pub block: usize,
    /// Its new offset.
    pub offset: u64,
}

/// The blocks that move for `count` program headers. `None` if other bytes are in the way.
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

/// The first byte behind the program headers that cannot move.
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

/// The largest alignment of a segment, because the page in front is that large.
const LARGEST_PAGE: u64 = 1 << 16;
/// Processes have no memory below this address (`vm.mmap_min_addr`).
const LOWEST_ADDRESS: u64 = 1 << 16;

/// The parts of the program `data` with one more page in front, and the size of that page. `None` if
/// the file is not a static program at fixed addresses, or if its first segment begins too low or is
/// not the start of the file.
///
/// # Errors
/// The file is damaged.
pub(crate) fn with_front_page(data: &[u8]) -> Result<Option<(u64, Vec<Part>)>, Malformed> {
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
    // Code that reads the headers at their old address finds the old ones, which are still true.
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
