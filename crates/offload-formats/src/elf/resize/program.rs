//! Layout of a program or shared library with new section sizes. Addresses stay, because code
//! refers to them in ways that no table lists. Whole pages are removed from the middle of a
//! segment, which splits it. Contents that do not fit into their old range move after everything
//! that is loaded. Both operations need more program headers. The layout is therefore a search: the
//! first of `STRATEGIES` with room for its program headers is used.

mod arrange;
mod header_space;
mod pointers;
mod segments;
mod write;

use std::ops::Range;

use object::elf;

use super::{NO_ROOM, NewContents, NewSize, Sizes};
use crate::bytes::range;
use crate::compose::Part;
use crate::elf::file::{Object, PatchedBytes};
use crate::elf::raw::{ProgramHeader, SectionHeader};
use crate::error::Malformed;
use arrange::{Arranged, Wanted, arrange};
use header_space::{Block, HeaderSpace, LARGEST_ALIGN, blocks, header_space};
use pointers::{Pointers, filled};
use segments::{Linked, Location, has_bytes};

pub use header_space::with_front_page;

/// Returns the parts of the new file, with an array of `pointers`.
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

/// Returns the addresses of the contents in `sizes`, and the address of an array of `pointers`
/// pointers.
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

/// A way to find room for the necessary program headers.
#[derive(Debug, Clone, Copy)]
struct LayoutStrategy {
    /// Whether unneeded program headers are removed.
    drops_headers: bool,
    /// Number of pairs of segments to join. Both segments of a pair have the same permissions.
    joined: usize,
    /// Whether tables of the loader move away from the program headers.
    moves_tables: bool,
    /// Whether the old range of a grown relocation table stays in the file, so that no segment is
    /// split there.
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
    // Moves notes and the interpreter's name, because only headers refer to them.
    PLAIN,
    // Replaces an unused header (`PT_NULL`), or one that only position-independent programs read
    // (`PT_PHDR`), and changes nothing else.
    PLAIN.drop_headers(),
    // For files without such a header, or that need it. The joined pair costs zeros in the file.
    PLAIN.join(1),
    // For files that lack two or more headers.
    PLAIN.drop_headers().join(1),
    // For files that lack a third one. Two pairs cost twice the zeros.
    PLAIN.drop_headers().join(2),
    // For files whose segments cannot be joined. Changes entries of the dynamic section.
    PLAIN.move_tables(),
    // For files in which moved tables alone do not suffice.
    PLAIN.drop_headers().join(1).move_tables(),
    // Makes the most room without a gap in the file.
    PLAIN.drop_headers().join(2).move_tables(),
    // The same strategies with one split less. Each costs the size of the old relocation table.
    PLAIN.keep_gap(),
    PLAIN.keep_gap().drop_headers(),
    PLAIN.keep_gap().join(1),
    PLAIN.keep_gap().drop_headers().join(1),
    PLAIN.keep_gap().drop_headers().join(2),
    PLAIN.keep_gap().move_tables(),
    PLAIN.keep_gap().drop_headers().join(1).move_tables(),
    PLAIN.keep_gap().drop_headers().join(2).move_tables(),
];

/// The most program headers needed in addition if blocks move into the free bytes of a segment,
/// because that can split the segment once more.
const MOST_MORE: usize = 2;

/// Locations of all contents in the new file.
struct Layout {
    changes: Vec<Change>,
    blocks: Vec<Block>,
    /// The new location of each block.
    moved: Vec<Location>,
    space: HeaderSpace,
    arranged: Arranged,
    /// Indices of the remaining segments that are not `PT_LOAD`.
    kept: Vec<usize>,
}

impl Layout {
    /// Returns the new location of the section of change `number`.
    fn location(&self, number: usize) -> Option<Location> {
        let change = self.changes.get(number)?;
        let appended = self.arranged.appended.get(number).copied().flatten();
        Some(appended.unwrap_or_else(|| self.arranged.location_in_place(number, change)))
    }
}

/// Returns the layout of the first strategy with room for its program headers.
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

/// Sets the locations of blocks.
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

/// A block that moves to after the contents of a section.
struct Relocated {
    block: usize,
    /// Distance from the start of the section.
    offset: u64,
    /// Range of the block in the old file.
    old: Range<u64>,
}

impl Relocated {
    fn end(&self) -> u64 {
        self.offset + (self.old.end - self.old.start)
    }
}

/// A section that provides space for blocks after its contents, to make room for program headers.
#[derive(Default)]
struct Donor {
    /// Number of the section's change.
    change: usize,
    /// Whether the blocks follow its appended contents instead of those at its old location.
    is_appended: bool,
    /// The blocks, in order.
    blocks: Vec<Relocated>,
}

/// Selects the section with the most free bytes, or else appended contents. `None` if there is no
/// room.
fn donor(blocks: &[Block], changes: &[Change], space: &HeaderSpace) -> Option<Donor> {
    if space.leave.is_empty() {
        return Some(Donor::default());
    }
    let free = |change: &Change| change.old_size().saturating_sub(change.stays());
    let among = changes
        .iter()
        .enumerate()
        .filter(|(_, change)| change.load.is_some());
    // Prefer sections that are not writable, so that notes do not become writable.
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
        // The section's address is a multiple of the alignment of every block, so distances
        // suffice.
        Some(Donor {
            change: number,
            is_appended: true,
            blocks: relocated(blocks, space, 0, change.size..u64::MAX)?,
        })
    })
}

/// Assigns the blocks that must leave the header space to distances `within` from the start of a
/// section at `addr`. `None` if they do not fit.
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

/// Returns the indices of the remaining segments that are not `PT_LOAD`.
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

/// The most bytes of a segment that belong to no section, such as the bytes that stay for a section
/// without contents.
const FILLER: u64 = 16;

/// Number of program headers for which to leave room, because other tools may add them: patchelf
/// adds one in each run, and one for each note.
const HEADERS_OF_TOOLS: u64 = 16;

/// Whether other tools move everything before the loader's strings into pages that they add at the
/// start of the file. They do so for programs at fixed addresses.
fn is_moved_with_others(linked: &Linked<'_>) -> bool {
    linked.object.head.kind == elf::ET_EXEC
}

/// A section that gets new contents.
#[derive(Debug)]
struct Change {
    /// Index in the section table.
    pub section: usize,
    /// Index of the contents in the caller's list.
    pub place: usize,
    /// The old header, for the part after the first `front` bytes.
    pub header: SectionHeader,
    /// The old bytes without the first `front`, and the filler of the segment after them.
    pub old: Range<u64>,
    /// Number of free bytes before the new contents.
    pub front: u64,
    /// New size in bytes.
    pub size: u64,
    /// The segment that contains the section's bytes. `None` if the section is not loaded, or has
    /// no bytes and is outside of all segments.
    pub load: Option<usize>,
    /// Whether the new contents do not fit and are appended after everything that is loaded.
    pub is_appended: bool,
    /// Whether the old range keeps its size in the file, so that no segment is split there.
    pub keeps_room: bool,
}

impl Change {
    /// Returns the number of bytes that are needed in the old range.
    fn stays(&self) -> u64 {
        if self.is_appended { 0 } else { self.size }
    }

    fn old_size(&self) -> u64 {
        self.old.end - self.old.start
    }

    /// Lets contents right after the program headers start later, if they fit. When other tools add
    /// program headers, they move every section that is in the way, but do not update pointers to
    /// it. If the contents are appended, program headers can grow into their old range. GNU ld 2.41
    /// and later places images right after the notes.
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

/// Returns all changes, in file order of the sections.
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

/// Returns the old bytes of a section, and the filler of its segment after them.
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
    // Memory without bytes in the file would block the growth, and so would another section at a
    // higher address, even one without bytes in the file.
    let is_free = load.memsz == load.filesz && end == linked.loaded_end();
    let above = linked.object.headers();
    let mut above =
        above.filter(|other| other.is_allocated() && other.kind != elf::SHT_NULL && other.size > 0);
    let is_top = !above.any(|other| other.addr > change.header.addr);
    change.load == Some(last) && change.old.end == end && is_free && is_top
}
