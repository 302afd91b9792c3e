//! The layout of a program or shared library whose sections have other sizes. Addresses stay,
//! because code refers to them in ways that no table lists. Whole pages are removed from the middle
//! of a segment, which is split there. Contents that do not fit into their old place move behind
//! everything that is loaded. Both need more program headers, so the layout is a search: the first
//! of `STRATEGIES` that has room for its program headers is used.

mod arrange;
mod divide;
mod header_space;
mod pointers;
mod segments;
mod write;

use std::ops::Range;

use object::elf;

use super::{NO_ROOM, NewContents, NewSize, Sizes};
use crate::error::Malformed;
use crate::formats::compose::Part;
use crate::formats::elf::file::{Object, PatchedBytes};
use crate::formats::elf::raw::{ProgramHeader, SectionHeader};
use crate::formats::range;
use arrange::{Arranged, Wanted, arrange};
use header_space::{Block, HeaderSpace, LARGEST_ALIGN, blocks, header_space};
use pointers::{Pointers, filled};
use segments::{Linked, Location, has_bytes};

pub(crate) use divide::divide;
pub(crate) use header_space::with_front_page;

/// The parts of the new file, with an array of `pointers`.
pub(super) fn lay_out(
    object: &Object<'_>,
    sizes: &Sizes,
    mut bytes: PatchedBytes<'_>,
    pointers: &[u64],
) -> Result<Vec<Part>, Malformed> {
    let linked = Linked::read(object, bytes.old())?;
    let array = Pointers::of(&linked, sizes, pointers.len())?;
    let layout = choose_layout(&linked, &array)?;
    let contents = array.contents(&linked, &layout, pointers, &mut bytes)?;
    Ok(filled(layout.write(&linked, &array, bytes)?, contents))
}

/// The addresses of the contents in `sizes`, and the address of an array of `pointers` pointers.
pub(super) fn addresses(
    object: &Object<'_>,
    data: &[u8],
    sizes: &[NewSize],
    pointers: usize,
) -> Result<(Vec<u64>, u64), Malformed> {
    let linked = Linked::read(object, data)?;
    let array = Pointers::of(&linked, &Sizes::of(object, sizes)?, pointers)?;
    let layout = choose_layout(&linked, &array)?;
    let mut addresses = vec![0; sizes.len()];
    for (number, change) in layout.changes.iter().enumerate() {
        if let (Some(to), Some(location)) =
            (addresses.get_mut(change.place), layout.location(number))
        {
            *to = location.addr;
        }
    }
    Ok((addresses, Pointers::address(&layout)))
}

/// A way to find room for the program headers that are needed.
#[derive(Debug, Clone, Copy)]
struct LayoutStrategy {
    /// Program headers that nobody needs are removed.
    drops_headers: bool,
    /// This many pairs of segments with the same rights become one.
    joined: usize,
    /// Tables of the loader move away from the program headers.
    moves_tables: bool,
    /// The old place of a relocation table that grew stays in the file, so that no segment is split
    /// there.
    keeps_gap: bool,
}

const PLAIN: LayoutStrategy = LayoutStrategy {
    drops_headers: false,
    joined: 0,
    moves_tables: false,
    keeps_gap: false,
};

impl LayoutStrategy {
    const fn drop_headers(mut self) -> Self {
        self.drops_headers = true;
        self
    }

    const fn join(mut self, pairs: usize) -> Self {
        self.joined = pairs;
        self
    }

    const fn move_tables(mut self) -> Self {
        self.moves_tables = true;
        self
    }

    const fn keep_gap(mut self) -> Self {
        self.keeps_gap = true;
        self
    }
}

/// The strategies, from the least to the most harmful.
const STRATEGIES: [LayoutStrategy; 16] = [
    // Notes and the interpreter's name move, to which only headers refer.
    PLAIN,
    // An unused header (`PT_NULL`) or one that only position-independent programs read
    // (`PT_PHDR`) is replaced, and nothing else changes.
    PLAIN.drop_headers(),
    // The file has no such header, or it is needed. The pair costs zeros in the file.
    PLAIN.join(1),
    // Two or more headers are missing.
    PLAIN.drop_headers().join(1),
    // A third one is missing. Two pairs cost twice the zeros.
    PLAIN.drop_headers().join(2),
    // The segments cannot be joined. Entries of the dynamic section change.
    PLAIN.move_tables(),
    // Moving tables alone does not suffice.
    PLAIN.drop_headers().join(1).move_tables(),
    // The most room without a gap in the file.
    PLAIN.drop_headers().join(2).move_tables(),
    // The same again, with one split less. Each costs the size of the old relocation table.
    PLAIN.keep_gap(),
    PLAIN.keep_gap().drop_headers(),
    PLAIN.keep_gap().join(1),
    PLAIN.keep_gap().drop_headers().join(1),
    PLAIN.keep_gap().drop_headers().join(2),
    PLAIN.keep_gap().move_tables(),
    PLAIN.keep_gap().drop_headers().join(1).move_tables(),
    PLAIN.keep_gap().drop_headers().join(2).move_tables(),
];

/// The most program headers that are needed in addition when blocks move into the free bytes of a
/// segment, because that can split the segment once more.
const MOST_MORE: usize = 2;

/// The locations of everything in the new file.
struct Layout {
    changes: Vec<Change>,
    blocks: Vec<Block>,
    /// The new location of each block.
    moved: Vec<Location>,
    space: HeaderSpace,
    arranged: Arranged,
    /// The indices of the segments, other than loaded ones, that are kept.
    kept: Vec<usize>,
}

impl Layout {
    /// The new location of the section of change `number`.
    fn location(&self, number: usize) -> Option<Location> {
        let change = self.changes.get(number)?;
        let appended = self.arranged.appended.get(number).copied().flatten();
        Some(appended.unwrap_or_else(|| self.arranged.location_in_place(number, change)))
    }
}

/// The layout by the first strategy that has room for its program headers.
fn choose_layout(linked: &Linked<'_>, array: &Pointers) -> Result<Layout, Malformed> {
    for strategy in STRATEGIES {
        let mut changes = changes(linked, &array.sizes)?;
        array.mark(&mut changes, strategy.keeps_gap);
        let (added, joined) = (array.added.as_slice(), strategy.joined);
        let wanted = Wanted {
            added,
            donor: None,
            joined,
        };
        let arranged = arrange(linked, &changes, wanted)?;
        let mut layout = Layout {
            changes,
            blocks: blocks(linked, strategy.moves_tables),
            moved: Vec::new(),
            space: HeaderSpace::default(),
            arranged,
            kept: kept_segments(linked, strategy.drops_headers),
        };
        let count = layout.kept.len() + layout.arranged.loads.len();
        for more in 0..=MOST_MORE {
            let Some(space) = header_space(linked, &layout.blocks, &layout.changes, count + more)
            else {
                break;
            };
            let Some(donor) = donor(&layout.blocks, &layout.changes, &space) else {
                break;
            };
            layout.space = space;
            if donor.blocks.is_empty() {
                return Ok(finish(layout, &donor));
            }
            let wanted = Wanted {
                added,
                donor: Some(&donor),
                joined,
            };
            layout.arranged = arrange(linked, &layout.changes, wanted)?;
            if layout.kept.len() + layout.arranged.loads.len() <= count + more {
                return Ok(finish(layout, &donor));
            }
        }
    }
    Err(Malformed::new(NO_ROOM, linked.object.head.phoff))
}

/// Fills in the locations of blocks.
fn finish(mut layout: Layout, donor: &Donor) -> Layout {
    let edits = &layout.arranged.edits;
    let mut moved: Vec<Location> = layout
        .blocks
        .iter()
        .map(|block| Location {
            addr: block.addr,
            offset: edits.before(block.old.start),
        })
        .collect();
    for staying in &layout.space.stay {
        if let (Some(to), Some(block)) = (
            moved.get_mut(staying.block),
            layout.blocks.get(staying.block),
        ) {
            *to = Location {
                addr: block
                    .addr
                    .wrapping_add(staying.offset.wrapping_sub(block.old.start)),
                offset: staying.offset,
            };
        }
    }
    let change = layout.changes.get(donor.change);
    let start = match donor.is_appended {
        true => layout
            .arranged
            .appended
            .get(donor.change)
            .copied()
            .flatten(),
        false => change.map(|change| layout.arranged.location_in_place(donor.change, change)),
    };
    for relocated in &donor.blocks {
        if let (Some(to), Some(start)) = (moved.get_mut(relocated.block), start) {
            *to = Location {
                addr: start.addr + relocated.offset,
                offset: start.offset + relocated.offset,
            };
        }
    }
    layout.moved = moved;
    layout
}

/// A block that moves behind the contents of a section.
struct Relocated {
    block: usize,
    /// The distance from the start of the section.
    offset: u64,
    /// The block in the old file.
    old: Range<u64>,
}

impl Relocated {
    fn end(&self) -> u64 {
        self.offset + (self.old.end - self.old.start)
    }
}

/// The section behind whose contents blocks move to make room for program headers.
#[derive(Default)]
struct Donor {
    /// The number of its change.
    change: usize,
    /// Whether they are behind its appended contents, and not at its old place.
    is_appended: bool,
    /// The blocks, in order.
    blocks: Vec<Relocated>,
}

/// The section with the most free bytes, or else appended contents. `None` if there is no room.
fn donor(blocks: &[Block], changes: &[Change], space: &HeaderSpace) -> Option<Donor> {
    if space.leave.is_empty() {
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
    let in_place = best.and_then(|(number, change)| {
        let within = change.stays()..change.old_size();
        Some(Donor {
            change: number,
            is_appended: false,
            blocks: relocated(blocks, space, change.header.addr, within)?,
        })
    });
    in_place.or_else(|| {
        let mut appended = changes.iter().enumerate().filter(|(_, change)| {
            change.is_appended && !change.header.flags.contains(elf::SHF_WRITE)
        });
        let (number, change) = appended.next()?;
        // The address is a multiple of every alignment of blocks.
        Some(Donor {
            change: number,
            is_appended: true,
            blocks: relocated(blocks, space, 0, change.size..u64::MAX)?,
        })
    })
}

/// The blocks that must leave the header space, at distances `within` from the start of a section
/// at `addr`. `None` if they do not fit.
fn relocated(
    blocks: &[Block],
    space: &HeaderSpace,
    addr: u64,
    within: Range<u64>,
) -> Option<Vec<Relocated>> {
    let mut end = addr.checked_add(within.start)?;
    let mut all = Vec::new();
    for index in &space.leave {
        let block = blocks.get(*index)?;
        let start = end.checked_next_multiple_of(block.align.max(1))?;
        all.push(Relocated {
            block: *index,
            offset: start - addr,
            old: block.old.clone(),
        });
        end = start.checked_add(block.old.end - block.old.start)?;
    }
    (end - addr <= within.end).then_some(all)
}

/// The indices of the segments that are kept, other than loaded ones.
fn kept_segments(linked: &Linked<'_>, drops_headers: bool) -> Vec<usize> {
    let unneeded = |kind| {
        let is_own = kind == elf::PT_PHDR && !linked.needs_own_header();
        drops_headers && (kind == elf::PT_NULL || is_own)
    };
    let segments = linked.segments.iter().enumerate();
    segments
        .filter(|(_, segment)| segment.kind != elf::PT_LOAD && !unneeded(segment.kind))
        .map(|(index, _)| index)
        .collect()
}

/// The most bytes of a segment that belong to no section: those of a section without contents.
const FILLER: u64 = 16;

/// The program headers that other tools may add later: patchelf adds one in each call, and one for
/// each note.
const HEADERS_OF_TOOLS: u64 = 16;

/// Whether other tools move everything in front of the loader's strings into pages that they add in
/// front of the file. They do so with programs at fixed addresses.
fn is_moved_with_others(linked: &Linked<'_>) -> bool {
    linked.object.head.kind == elf::ET_EXEC
}

/// A section that gets new contents.
#[derive(Debug)]
struct Change {
    /// Its index in the section table.
    pub section: usize,
    /// The index of the contents in the caller's list.
    pub place: usize,
    /// The old header, without the first `front` bytes.
    pub header: SectionHeader,
    /// The old bytes without the first `front`, and the filler of the segment behind them.
    pub old: Range<u64>,
    /// The number of free bytes in front of the new contents.
    pub front: u64,
    /// Its new size.
    pub size: u64,
    /// The segment with its bytes. `None` if it is not loaded, or has no bytes and is outside of all
    /// segments.
    pub load: Option<usize>,
    /// Whether the new contents do not fit and are appended behind everything that is loaded.
    pub is_appended: bool,
    /// Whether the old place keeps its size in the file, so that no segment is split there.
    pub keeps_room: bool,
}

impl Change {
    /// The number of bytes that are needed at the old place.
    fn stays(&self) -> u64 {
        if self.is_appended { 0 } else { self.size }
    }

    fn old_size(&self) -> u64 {
        self.old.end - self.old.start
    }

    /// Lets contents right behind the program headers begin later, if they fit. Other tools add
    /// program headers and then move every section in the way, but not the pointers to it. If the
    /// contents are appended, program headers can grow into their old place: GNU ld 2.41 and later
    /// puts images right behind the notes.
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
fn changes(linked: &Linked<'_>, sizes: &Sizes) -> Result<Vec<Change>, Malformed> {
    let mut all = Vec::new();
    for (index, NewContents { place, size }) in &sizes.by_index {
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

/// The old bytes of a section, and the filler of its segment behind them.
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

/// Whether the section is the last one of the last segment, so that it can grow in place.
fn ends_what_is_loaded(linked: &Linked<'_>, change: &Change) -> bool {
    let Some((last, load)) = linked.loads().last() else {
        return false;
    };
    let end = load.offset.saturating_add(load.filesz);
    // Memory without bytes in the file would be in the way, and so would another empty section.
    let is_free = load.memsz == load.filesz && end == linked.loaded_end();
    let above = linked.object.headers();
    let mut above =
        above.filter(|other| other.is_allocated() && other.kind != elf::SHT_NULL && other.size > 0);
    let is_top = !above.any(|other| other.addr > change.header.addr);
    change.load == Some(last) && change.old.end == end && is_free && is_top
}
