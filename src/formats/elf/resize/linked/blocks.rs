//! Room for more program headers. The table stays at its place and grows there, since tools write
//! it back to where linkers put it. What stands right behind it moves if only program headers and
//! section headers refer to it: the interpreter's name and notes. Where that is not enough, tables
//! of the loader move, too, to each of which one entry of the dynamic section refers.

use std::ops::Range;

use object::elf;

use super::changes::Change;
use super::segments::{Linked, has_bytes};
use crate::formats::elf::raw::{ProgramHeader, Record};
use crate::formats::{overlap, range};

/// The largest alignment of what moves.
pub(super) const LARGEST_ALIGN: u64 = 64;
/// More than this many bytes are not moved.
const LARGEST_BLOCK: u64 = 1 << 22;
/// More than this many blocks behind the table are not chosen among.
const MOST_BLOCKS: usize = 8;

/// Bytes that can move, with the segments and sections that they are. Their order and distances
/// must stay.
#[derive(Debug)]
pub(super) struct Block {
    pub old: Range<u64>,
    /// The address of its first byte.
    pub addr: u64,
    pub align: u64,
    pub segments: Vec<usize>,
    pub sections: Vec<usize>,
    /// Where the file has the entry of the dynamic section whose value is the address, if there is
    /// one.
    pub entry: Option<u64>,
    /// Whether the build id is in it. Tools look for that in the first page of a program in memory.
    has_build_id: bool,
}

/// All bytes of the file that can move, the tables of the loader only `with_tables`.
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
        found.extend(tables(linked));
    }
    found.retain_mut(|block| is_whole(linked, block));
    found.sort_by_key(|block| block.old.start);
    found
}

/// The tables of the loader that nothing but the dynamic section leads to, and that can be
/// anywhere.
fn tables(linked: &Linked<'_>) -> impl Iterator<Item = Block> {
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

/// The entry of the dynamic section that leads to a section of this type.
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

/// Fills in the sections of a block. Whether it has all bytes of them, and no others.
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

/// What becomes of blocks when the table of segments grows.
#[derive(Debug, Default)]
pub(super) struct HeaderRegion {
    /// The blocks that stay behind the table, and where.
    pub stay: Vec<(usize, u64)>,
    /// The blocks that must move elsewhere.
    pub leave: Vec<usize>,
    /// Where the first byte is that cannot move.
    pub fixed: u64,
}

/// What must move for a table of `count` segments; none where something else is in the way.
pub(super) fn front(
    linked: &Linked<'_>,
    blocks: &[Block],
    changes: &[Change],
    count: usize,
) -> Option<HeaderRegion> {
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
        return Some(HeaderRegion {
            fixed,
            ..HeaderRegion::default()
        });
    }
    if count >= usize::from(elf::PN_XNUM) || end > fixed || among.len() > MOST_BLOCKS {
        return None;
    }
    let choices = (0..1u32 << among.len()).filter_map(|choice| {
        let mut front = HeaderRegion {
            fixed,
            ..HeaderRegion::default()
        };
        let (mut at, mut score) = (end, (false, 0, 0));
        for (bit, index) in among.iter().enumerate() {
            let block = blocks.get(*index)?;
            if choice & (1 << bit) == 0 {
                front.leave.push(*index);
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
            front.stay.push((*index, start));
        }
        Some((score, front))
    });
    choices
        .max_by_key(|(score, _)| *score)
        .map(|(_, front)| front)
}

/// The first byte behind the table of segments that cannot move.
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
