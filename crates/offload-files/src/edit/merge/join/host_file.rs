//! Merges objects, programs and shared libraries: the first build's file gets the device code of
//! all. In programs and libraries, the pointers to images are updated, and OpenMP's image table
//! gets a row for each image.

use std::ops::Range;

use anyhow::{Context, Result, bail};
use object::elf;

use super::super::lockstep::{Location, Locations};
use super::{Joiner, LaidOut, Outcome, Placed, Row};
use crate::contents::tree::{DeviceSection, Holds, Node, NodeKind};
use crate::edit::objects::targets;
use crate::edit::pointers::{self, NewSection};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::{Patch, Replacement, Rope, resize, resize_coff, resize_with};
use offload_formats::containers::Kind;
use offload_formats::elf::raw::FileHeader;
use offload_formats::error::Malformed;
use offload_formats::registration::read::{self, Descriptor, Registered};

/// A section of device code, with its tree.
#[derive(Clone, Copy)]
struct Section<'b> {
    section: &'b DeviceSection,
    node: &'b Node,
}

/// The section in each build; `None` for builds without a section of this name.
type Sections<'b> = Vec<Option<Section<'b>>>;

/// A section of the first build that gets more images.
struct Growing<'b> {
    sections: Sections<'b>,
    row: Row,
}

/// A merged section.
struct Grown<'b> {
    sections: Sections<'b>,
    placed: Vec<Placed>,
}

impl Joiner<'_> {
    pub(super) fn host_file(&mut self, locations: &Locations<'_>) -> Result<Outcome> {
        let base = locations.base()?;
        let mut growing = Vec::new();
        for sections in same_sections(locations)? {
            if let Some(row) = self.section(locations, &sections)? {
                growing.push(Growing { sections, row });
            }
        }
        if growing.is_empty() {
            return Ok(Outcome::Same);
        }
        if !base.piece.bytes().starts_with(&elf::ELFMAG) {
            return object(base, growing, |replacements| {
                resize_coff(&base.piece, replacements)
            });
        }
        let (_, header) =
            FileHeader::read(base.piece.bytes()).with_context(|| base.place.clone())?;
        match header.kind {
            elf::ET_REL => object(base, growing, |replacements| {
                resize(&base.piece, replacements, Vec::new())
            }),
            _ => program(locations, growing, self.spool),
        }
    }

    /// Merges a section. Returns `None` if it stays as it is.
    fn section(
        &mut self,
        locations: &Locations<'_>,
        sections: &[Option<Section<'_>>],
    ) -> Result<Option<Row>> {
        let first = of_base(sections)?;
        let inner = locations
            .all
            .iter()
            .zip(sections)
            .map(|(location, section)| {
                let place = format!("{}: {}", location.place, first.name);
                let piece = match section {
                    Some(Section { section, .. }) => {
                        location.piece.slice(section.offset, section.size)
                    }
                    None => Some(FileSlice::owned(Vec::new())),
                };
                Ok(Location {
                    piece: piece.with_context(|| format!("{place}: past the end of the file"))?,
                    place,
                    node: section.map(|section| section.node),
                })
            });
        let inner = inner.collect::<Result<Vec<Location<'_>>>>()?;
        let is_row = match first.holds {
            Holds::Containers(_) => true,
            Holds::Images(_) => inner.iter().all(|location| {
                location.piece.size() == 0 || Kind::of(location.piece.bytes()).is_some()
            }),
            Holds::Entry(_) | Holds::Image(_) => false,
        };
        if !is_row {
            let differs = inner.iter().find(|location| {
                inner
                    .first()
                    .is_some_and(|base| base.piece.bytes() != location.piece.bytes())
            });
            return match differs {
                Some(other) => bail!(
                    "{}: images outside of containers cannot be merged",
                    other.place
                ),
                None => Ok(None),
            };
        }
        let row = self.row(&inner)?;
        Ok(Some(row).filter(|row| !matches!(row, Row::Same)))
    }
}

/// The device code sections of the first build, each with the sections of the same name in the
/// others, paired in order.
///
/// # Errors
/// Another build has more sections of a name.
fn same_sections<'b>(locations: &Locations<'b>) -> Result<Vec<Sections<'b>>> {
    let base = locations.base()?;
    let mut rows: Vec<Sections<'b>> = Vec::new();
    for (build, location) in locations.all.iter().enumerate() {
        for section in sections_of(location) {
            if build == 0 {
                rows.push(vec![Some(section)]);
                continue;
            }
            let name = &section.section.name;
            let is_it = |row: &&mut Sections<'b>| {
                row.len() == build && of_base(row).is_ok_and(|first| first.name == *name)
            };
            let Some(row) = rows.iter_mut().find(is_it) else {
                bail!(
                    "{}: the file has a device code section {name}, but {} has none",
                    location.place,
                    base.place
                );
            };
            row.push(Some(section));
        }
        for row in &mut rows {
            row.resize(build + 1, None);
        }
    }
    Ok(rows)
}

/// The non-empty device code sections of the file at `location`.
fn sections_of<'b>(location: &Location<'b>) -> impl Iterator<Item = Section<'b>> {
    let parts = location.node.map_or(&[][..], |file| &file.children);
    parts.iter().filter_map(|node| match &node.kind {
        NodeKind::Section(section) => Some(Section { section, node }),
        _ => None,
    })
}

/// The section of the first build.
fn of_base<'b>(sections: &[Option<Section<'b>>]) -> Result<&'b DeviceSection> {
    let first = sections.first().copied().flatten();
    Ok(first
        .context("the first build has no such section")?
        .section)
}

/// Merges an object that is linked later. `resize` replaces the contents of its sections.
fn object(
    base: &Location<'_>,
    growing: Vec<Growing<'_>>,
    resize: impl FnOnce(Vec<Replacement>) -> Result<Rope, Malformed>,
) -> Result<Outcome> {
    let mut replacements = Vec::new();
    for Growing { sections, row } in growing {
        let section = of_base(&sections)?;
        let place = || format!("{}: {}", base.place, section.name);
        if section.is_allocated && matches!(row, Row::More(_)) {
            bail!(
                "{}: cannot add images to an object that registers its images itself: merge the objects it was linked from",
                place()
            );
        }
        let piece = base
            .piece
            .slice(section.offset, section.size)
            .with_context(place)?;
        let laid = row
            .lay_out(&piece, section.align, |_| section.is_allocated)
            .with_context(place)?;
        if let LaidOut::New { changed, .. } = laid {
            replacements.push(Replacement {
                section: section.index,
                contents: changed.bytes,
            });
        }
    }
    let bytes = resize(replacements).with_context(|| base.place.clone())?;
    Ok(bytes.into())
}

/// Merges a program or shared library.
fn program(
    locations: &Locations<'_>,
    growing: Vec<Growing<'_>>,
    spool: &mut Spool,
) -> Result<Outcome> {
    let base = locations.base()?;
    let place = || base.place.clone();
    let registered = locations
        .all
        .iter()
        .map(|location| read::read(location.piece.bytes()).with_context(|| location.place.clone()));
    let registered = registered.collect::<Result<Vec<Registered>>>()?;
    let first = registered.first().context("no builds to merge")?;
    let targets = targets(first);
    let (mut new, mut grown) = (Vec::new(), Vec::new());
    for Growing { sections, row } in growing {
        let section = of_base(&sections)?;
        let place = || format!("{}: {}", base.place, section.name);
        let piece = base
            .piece
            .slice(section.offset, section.size)
            .with_context(place)?;
        // Unknown code may point to a container that has no known pointer.
        let is_fixed = |old: &Range<u64>| {
            let (start, end) = (section.offset + old.start, section.offset + old.end);
            section.is_allocated && !targets.iter().any(|target| (start..end).contains(target))
        };
        let LaidOut::New { changed, placed } = row
            .lay_out(&piece, section.align, is_fixed)
            .with_context(place)?
        else {
            continue;
        };
        new.push(NewSection::of(section, changed));
        grown.push(Grown { sections, placed });
    }
    let tables = tables(&registered, &grown).with_context(place)?;
    let words = tables
        .iter()
        .filter(|table| table.is_new(first))
        .map(|table| 4 * table.rows.len())
        .sum();
    let placed = pointers::place(&base.piece, &mut new, words, &[], spool).with_context(place)?;
    let bytes = match placed.piece {
        Some(larger) => {
            let first = read::read(larger.bytes()).with_context(place)?;
            with_pointers(&larger, &first, new, &tables, placed.array)
        }
        None => with_pointers(&base.piece, first, new, &tables, placed.array),
    };
    let bytes = bytes.with_context(place)?;
    Ok(bytes.into())
}

/// The program `base` with new sections and updated pointers to them. Tables without room for all
/// of their rows are moved to the address `array`.
fn with_pointers(
    base: &FileSlice,
    first: &Registered,
    new: Vec<NewSection>,
    tables: &[Table],
    array: u64,
) -> Result<Rope> {
    let data = base.bytes();
    let word = FileHeader::read(data)?.0.address_size() as u64;
    let (mut patches, mut words): (Vec<Patch>, Vec<u64>) = (Vec::new(), Vec::new());
    for table in tables {
        let ends = table
            .rows
            .iter()
            .map(|row| row.ends(&new))
            .collect::<Option<Vec<_>>>()
            .context("a row without a section")?;
        let descriptor = table
            .descriptor(first)
            .context("a table without a descriptor")?;
        if table.is_new(first) {
            let at = array.wrapping_add(word * words.len() as u64);
            let (own, rows) = pointers::new_table_patches(data, descriptor, &ends, at)?;
            patches.extend(own);
            words.extend(rows);
        } else {
            patches.extend(pointers::table_patches(data, descriptor, &ends)?);
        }
    }
    let is_done = |number: usize| tables.iter().any(|table| table.number == number);
    let others = first
        .descriptors
        .iter()
        .enumerate()
        .filter(|(number, _)| !is_done(*number));
    let others = others.map(|(_, descriptor)| descriptor.clone()).collect();
    let others = Registered {
        descriptors: others,
        ..first.clone()
    };
    patches.extend(pointers::registration_patches(
        data,
        &others,
        &new,
        &mut |_| {},
    )?);
    Ok(resize_with(
        base,
        new.into_iter().map(Replacement::from).collect(),
        patches,
        &words,
        &[],
    )?)
}

/// An OpenMP image table that gets more rows.
struct Table {
    /// The index of its descriptor in the program.
    number: usize,
    rows: Vec<TableRow>,
}

/// A row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TableRow {
    /// The index of the new section that contains its image.
    section: usize,
    /// Start and end of the image in that section.
    ends: [u64; 2],
    build: usize,
}

impl TableRow {
    /// Its bounds in memory.
    fn ends(&self, new: &[NewSection]) -> Option<[u64; 2]> {
        let section = new.get(self.section)?;
        Some(self.ends.map(|end| section.address.wrapping_add(end)))
    }
}

impl Table {
    /// Its descriptor among the registered ones.
    fn descriptor<'r>(&self, registered: &'r Registered) -> Option<&'r Descriptor> {
        registered.descriptors.get(self.number)
    }

    /// Whether the rows do not fit into the existing table.
    fn is_new(&self, registered: &Registered) -> bool {
        self.rows.len() > self.descriptor(registered).map_or(0, pointers::capacity)
    }
}

/// The tables that get rows for images of other builds.
fn tables(registered: &[Registered], grown: &[Grown<'_>]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for (number, descriptor) in registered
        .first()
        .map_or(&[][..], |first| &first.descriptors)
        .iter()
        .enumerate()
    {
        let of_builds = registered
            .iter()
            .map(|found| found.descriptors.get(number))
            .collect::<Option<Vec<_>>>();
        let of_builds =
            of_builds.context("the builds have different numbers of OpenMP descriptors")?;
        let rows = rows(&of_builds, grown)?;
        let own = rows.iter().filter(|row| row.build == 0).count();
        if own == rows.len() {
            continue;
        }
        if own != descriptor.images.len() {
            bail!(
                "the OpenMP descriptor at {:#x} has images in several sections, which cannot be merged",
                descriptor.offset
            );
        }
        tables.push(Table { number, rows });
    }
    Ok(tables)
}

/// The rows that a descriptor needs, in the memory order of their images. Images outside of growing
/// sections are left out.
fn rows(of_builds: &[&Descriptor], grown: &[Grown<'_>]) -> Result<Vec<TableRow>> {
    let mut rows = Vec::new();
    for (build, descriptor) in of_builds.iter().enumerate() {
        for row in &descriptor.images {
            let found = grown.iter().enumerate().find_map(|(number, grown)| {
                let section = grown.sections.get(build)?.as_ref()?.section;
                let within = row
                    .start
                    .checked_sub(section.offset)
                    .filter(|within| *within < section.size)?;
                let is_it =
                    |placed: &&Placed| placed.build == build && placed.old.contains(&within);
                Some((number, section.offset, grown.placed.iter().find(is_it)?))
            });
            let Some((section, offset, container)) = found else {
                continue;
            };
            let is_inside = row
                .end
                .checked_sub(offset)
                .is_some_and(|end| end <= container.old.end);
            if !is_inside || !container.is_whole {
                bail!(
                    "the image of the row at {:#x} shares its container with others",
                    row.offset
                );
            }
            let new_offset = |at: u64| container.new + (at - offset - container.old.start);
            rows.push(TableRow {
                section,
                ends: [new_offset(row.start), new_offset(row.end)],
                build,
            });
        }
    }
    rows.sort();
    Ok(rows)
}
