//! The layout of a program or shared library whose sections have other sizes. Addresses stay, since
//! code refers to them in ways that no table lists: whole pages are taken out of the middle of a
//! segment, which is split there, and contents that do not fit where they were are appended behind
//! everything that is loaded.

mod arrange;
mod blocks;
mod changes;
mod edits;
mod headers;
mod pointers;
mod segments;

use object::elf;

use super::{NO_ROOM, NewSize, Part, Sizes};
use crate::error::Malformed;
use crate::formats::elf::file::{Object, PatchedBytes};
use arrange::{Guests, Relocated, Wanted, arrange};
use blocks::{Block, HeaderRegion, blocks, front};
use changes::{Change, changes};
use headers::Layout;
use pointers::{Pointers, filled};
pub(super) use segments::{Linked, PAGE};

/// The parts of the new file, with an array of `pointers`.
pub(super) fn lay_out(
    object: &Object<'_>,
    sizes: &Sizes,
    mut bytes: PatchedBytes<'_>,
    pointers: &[u64],
) -> Result<Vec<Part>, Malformed> {
    let linked = Linked::read(object, bytes.old())?;
    let array = Pointers::of(&linked, sizes, pointers.len())?;
    let layout = lay_out_linked(&linked, &array)?;
    let contents = array.contents(&linked, &layout, pointers, &mut bytes)?;
    Ok(filled(layout.write(&linked, &array, bytes)?, contents))
}

/// The addresses that the contents in `sizes` will have, and that of an array of `pointers`
/// pointers.
pub(super) fn addresses(
    object: &Object<'_>,
    data: &[u8],
    wanted: &[NewSize],
    pointers: usize,
) -> Result<(Vec<u64>, u64), Malformed> {
    let linked = Linked::read(object, data)?;
    let layout = lay_out_linked(
        &linked,
        &Pointers::of(&linked, &Sizes::of(object, wanted)?, pointers)?,
    )?;
    let mut addresses = vec![0; wanted.len()];
    for (number, change) in layout.changes.iter().enumerate() {
        if let (Some(to), Some((address, _))) =
            (addresses.get_mut(change.place), layout.place(number))
        {
            *to = address;
        }
    }
    Ok((addresses, Pointers::address(&layout)))
}

/// What is done when there is no room for the segments that are needed, the least harmful first.
#[derive(Debug, Clone, Copy)]
struct LayoutStrategy {
    /// Program headers go that nobody needs.
    is_sparing: bool,
    /// So many pairs of segments with the same rights become one.
    joined: usize,
    /// Tables of the loader move.
    moves_tables: bool,
}

impl LayoutStrategy {
    const fn new(is_sparing: bool, joined: usize, moves_tables: bool) -> Self {
        LayoutStrategy {
            is_sparing,
            joined,
            moves_tables,
        }
    }
}

const ECONOMIES: [LayoutStrategy; 8] = [
    LayoutStrategy::new(false, 0, false),
    LayoutStrategy::new(true, 0, false),
    LayoutStrategy::new(false, 1, false),
    LayoutStrategy::new(true, 1, false),
    LayoutStrategy::new(true, 2, false),
    LayoutStrategy::new(false, 0, true),
    LayoutStrategy::new(true, 1, true),
    LayoutStrategy::new(true, 2, true),
];

/// What moves into bytes that are no longer needed can split a segment once more, so that it takes
/// this many more headers at most.
const MOST_MORE: usize = 2;

fn lay_out_linked(linked: &Linked<'_>, array: &Pointers) -> Result<Layout, Malformed> {
    for (is_sparing, economy) in [false, true]
        .into_iter()
        .flat_map(|is_sparing| ECONOMIES.map(|economy| (is_sparing, economy)))
    {
        let mut changes = changes(linked, &array.sizes)?;
        array.mark(&mut changes, is_sparing);
        let wanted = |guests| Wanted {
            added: &array.added,
            guests,
            joined: economy.joined,
        };
        let arranged = arrange(linked, &changes, wanted(None))?;
        let kept = kept_segments(linked, economy.is_sparing);
        let blocks = blocks(linked, economy.moves_tables);
        let mut layout = Layout {
            changes,
            blocks,
            moved: Vec::new(),
            front: HeaderRegion::default(),
            arranged,
            kept,
        };
        let count = layout.kept.len() + layout.arranged.loads.len();
        for more in 0..=MOST_MORE {
            let Some(front) = front(linked, &layout.blocks, &layout.changes, count + more) else {
                break;
            };
            let Some(host) = host(&layout.blocks, &layout.changes, &front) else {
                break;
            };
            layout.front = front;
            if host.places.is_empty() {
                return Ok(finish(layout, &host));
            }
            layout.arranged = arrange(
                linked,
                &layout.changes,
                wanted(Some(host.guests(&layout.blocks))),
            )?;
            if layout.kept.len() + layout.arranged.loads.len() <= count + more {
                return Ok(finish(layout, &host));
            }
        }
    }
    Err(Malformed::new(NO_ROOM, linked.object.head.phoff))
}

/// Fills in where blocks are.
fn finish(mut layout: Layout, host: &Donor) -> Layout {
    let edits = &layout.arranged.edits;
    let mut moved: Vec<(u64, u64)> = layout
        .blocks
        .iter()
        .map(|block| (block.addr, edits.before(block.old.start)))
        .collect();
    for (index, at) in &layout.front.stay {
        if let (Some(to), Some(block)) = (moved.get_mut(*index), layout.blocks.get(*index)) {
            *to = (
                block.addr.wrapping_add(at.wrapping_sub(block.old.start)),
                *at,
            );
        }
    }
    let change = layout.changes.get(host.number);
    let old = change.map(|change| {
        (
            change.header.addr,
            edits.start_of(host.number).unwrap_or(change.old.start),
        )
    });
    let new = layout.arranged.appended.get(host.number).copied().flatten();
    for (index, within) in &host.places {
        if let (Some(to), Some((addr, offset))) = (
            moved.get_mut(*index),
            if host.is_appended { new } else { old },
        ) {
            *to = (addr + within, offset + within);
        }
    }
    layout.moved = moved;
    layout
}

/// The section behind whose contents blocks go that must leave the front.
#[derive(Default)]
struct Donor {
    /// The number of its change.
    number: usize,
    /// Whether they go behind its appended contents, and not where it has been.
    is_appended: bool,
    /// The blocks, and how far behind the start of the section each is.
    places: Vec<(usize, u64)>,
}

impl Donor {
    fn guests(&self, blocks: &[Block]) -> Guests {
        let place = |(block, offset): &(usize, u64)| {
            Some(Relocated {
                offset: *offset,
                old: blocks.get(*block)?.old.clone(),
            })
        };
        Guests {
            host: self.number,
            is_appended: self.is_appended,
            all: self.places.iter().filter_map(place).collect(),
        }
    }
}

/// The change whose section leaves most room, or else contents that are appended; none where there
/// is no room.
fn host(blocks: &[Block], changes: &[Change], front: &HeaderRegion) -> Option<Donor> {
    if front.leave.is_empty() {
        return Some(Donor::default());
    }
    let free = |change: &Change| change.old_size().saturating_sub(change.stays());
    let among = changes
        .iter()
        .enumerate()
        .filter(|(_, change)| change.load.is_some());
    // Notes should not become writable.
    let best = among.max_by_key(|(_, change)| {
        (
            !change.header.flags.contains(elf::SHF_WRITE) && free(change) > 0,
            free(change),
        )
    });
    let here = best.and_then(|(number, change)| {
        let places = places(
            blocks,
            front,
            change.header.addr,
            change.stays(),
            change.old_size(),
        )?;
        Some(Donor {
            number,
            is_appended: false,
            places,
        })
    });
    here.or_else(|| {
        let appended = changes.iter().enumerate();
        let mut appended = appended.filter(|(_, change)| {
            change.is_appended && !change.header.flags.contains(elf::SHF_WRITE)
        });
        let (number, change) = appended.next()?;
        // The address is a multiple of every alignment of blocks.
        Some(Donor {
            number,
            is_appended: true,
            places: places(blocks, front, 0, change.size, u64::MAX)?,
        })
    })
}

/// Where the blocks go that must leave the front, from the start of a section at `addr`: from
/// `from` to `to` bytes behind it; none where they do not fit.
fn places(
    blocks: &[Block],
    front: &HeaderRegion,
    addr: u64,
    from: u64,
    to: u64,
) -> Option<Vec<(usize, u64)>> {
    let mut end = addr.checked_add(from)?;
    let mut places = Vec::new();
    for index in &front.leave {
        let block = blocks.get(*index)?;
        let start = end.checked_next_multiple_of(block.align.max(1))?;
        places.push((*index, start - addr));
        end = start.checked_add(block.old.end - block.old.start)?;
    }
    (end - addr <= to).then_some(places)
}

/// The segments that are kept besides those that are loaded.
fn kept_segments(linked: &Linked<'_>, is_sparing: bool) -> Vec<usize> {
    let unneeded = |kind| {
        is_sparing && (kind == elf::PT_NULL || (kind == elf::PT_PHDR && !linked.needs_own_header()))
    };
    let segments = linked.segments.iter().enumerate();
    segments
        .filter(|(_, segment)| segment.kind != elf::PT_LOAD && !unneeded(segment.kind))
        .map(|(index, _)| index)
        .collect()
}
