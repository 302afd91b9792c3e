//! ELF and COFF objects, programs and shared libraries: sections of device code are rewritten. In
//! finished files, what points to images and containers is made right (`pointers`), and the bytes
//! that are no longer needed are taken out ([`crate::io::resize`]).

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context, Result, bail};
use object::elf;

use super::blocks::{Block, lay_out};
use super::embedded_images::Divided;
use super::pointers::{self, NewSection};
use super::rewriter::{Location, Rewriter};
use super::{Changed, Fixed, Outcome};
use crate::contents::objects::{DeviceSection, Holds, device_sections};
use crate::contents::report::Step;
use crate::formats::containers::Kind;
use crate::formats::elf::edit;
use crate::formats::elf::edit::{Edit, SectionView};
use crate::formats::elf::raw::FileHeader;
use crate::io::file_slice::FileSlice;
use crate::io::resize::{Patch, Replacement, resize, resize_coff, resize_with};
use crate::io::rope::Rope;
use crate::registration::read::{self, Registered};

/// A section whose containers have changed.
struct ChangedSection {
    section: DeviceSection,
    blocks: Vec<Block>,
}

/// What has changed in an object.
#[derive(Default)]
struct Changes {
    sections: Vec<ChangedSection>,
    /// Sections that are one image each: with other contents, or none where they go.
    whole: Vec<(DeviceSection, Option<Rope>)>,
    /// Whether anything is left of all that was there.
    any_left: bool,
}

impl Changes {
    /// The same changes of a program that has sections more, and what becomes of these.
    fn divided(mut self, divided: Divided) -> Result<Changes> {
        let number = |old: &DeviceSection| {
            let is_it = |new: &&DeviceSection| new.offset == old.offset && new.size == old.size;
            divided
                .sections
                .iter()
                .find(is_it)
                .map(|new| new.index)
                .context("an image section is missing")
        };
        for section in self.sections.iter_mut().map(|changed| &mut changed.section) {
            section.index = number(section)?;
        }
        for section in self.whole.iter_mut().map(|(section, _)| section) {
            section.index = number(section)?;
        }
        let mut sections = divided.sections;
        for (offset, blocks) in divided.new {
            let at = sections
                .iter()
                .position(|section| section.offset == offset && section.size > 0);
            let section = sections.swap_remove(at.context("a new section is missing")?);
            self.sections.push(ChangedSection { section, blocks });
        }
        Ok(self)
    }
}

impl Rewriter<'_> {
    /// What becomes of an ELF file or COFF object for the host.
    pub(super) fn host_file(&mut self, location: &Location) -> Result<Outcome> {
        let data = location.piece.bytes();
        let mut changes = Changes::default();
        for section in device_sections(data, &location.place)? {
            let place = format!("{}: {}", location.place, section.name);
            let piece = location.piece.slice(section.offset, section.size);
            let inner = location.inside(
                piece.with_context(|| format!("{place}: past the end of the file"))?,
                place,
            );
            if inner.piece.size() > 0 {
                self.section(location, &inner, section, &mut changes)?;
            }
        }
        // Old wrappers put images into variables of other sections.
        if let Some(divided) = self.amid_other_data(location)? {
            let file = Location {
                piece: divided.piece.clone(),
                ..location.clone()
            };
            return self.program(
                &file,
                changes
                    .divided(divided)
                    .with_context(|| location.place.clone())?,
            );
        }
        if changes.sections.is_empty() && changes.whole.is_empty() {
            return Ok(Outcome::Same);
        }
        if !data.starts_with(&elf::ELFMAG) {
            return self.object(location, changes);
        }
        let (_, header) = FileHeader::read(data).with_context(|| location.place.clone())?;
        if header.kind == elf::ET_REL {
            self.object(location, changes)
        } else {
            self.program(location, changes)
        }
    }

    /// Takes up what becomes of the section at `location` of the file at `host`.
    fn section(
        &mut self,
        host: &Location,
        location: &Location,
        section: DeviceSection,
        changes: &mut Changes,
    ) -> Result<()> {
        if matches!(section.holds, Holds::Entry(_) | Holds::Image(_)) {
            match self.enter(location)? {
                Outcome::Same => changes.any_left = true,
                Outcome::Gone => changes.whole.push((section, None)),
                Outcome::New(new) => {
                    changes.any_left = true;
                    changes.whole.push((section, Some(new.bytes)));
                }
            }
            return Ok(());
        }
        if matches!(section.holds, Holds::Images(_)) && Kind::of(location.piece.bytes()).is_none() {
            changes.any_left = true;
            match self.bare(host, location, &section)? {
                Some(blocks) if blocks.iter().all(Block::is_same) => {}
                Some(blocks) => changes.sections.push(ChangedSection { section, blocks }),
                None => drop(self.pinned(location, "a section without containers")?),
            }
            return Ok(());
        }
        let blocks = self.blocks(location)?;
        changes.any_left |= blocks
            .iter()
            .any(|block| !matches!(block.outcome, Outcome::Gone));
        if !blocks.iter().all(Block::is_same) {
            changes.sections.push(ChangedSection { section, blocks });
        }
        Ok(())
    }

    /// The programming models of the images in a section.
    fn kinds_in(&self, location: &Location, section: &DeviceSection) -> Vec<String> {
        let is_it = |step: &Step| matches!(step, Step::Section { offset, .. } if *offset == location.piece.file_offset(section.offset));
        let here = self
            .images
            .iter()
            .filter(|image| image.path.iter().any(is_it));
        let kinds: BTreeSet<&String> = here.flat_map(|image| &image.kinds).collect();
        kinds.into_iter().cloned().collect()
    }

    /// The images of a section without containers, as OpenMP's and SYCL's descriptors of a program
    /// know them; none where they do not.
    fn bare(
        &mut self,
        host: &Location,
        location: &Location,
        section: &DeviceSection,
    ) -> Result<Option<Vec<Block>>> {
        let rest = self.images.get(self.next..).unwrap_or_default();
        let base = location.piece.file_offset(0);
        let within =
            |offset: Option<u64>| offset.zip(base).and_then(|(at, base)| at.checked_sub(base));
        let here = rest
            .iter()
            .map_while(|image| within(image.offset).filter(|at| *at < section.size));
        let starts: Vec<u64> = here.collect();
        if self.all_stay(starts.len()) && self.places.is_none() {
            return Ok(None);
        }
        let registered = read::read(host.piece.bytes()).with_context(|| host.place.clone())?;
        let ranges = rows_within(&registered, section);
        if !registered.linked || !ranges.iter().map(|range| range.start).eq(starts) {
            return Ok(None);
        }
        let mut blocks = Vec::new();
        for old in ranges {
            let piece = location
                .piece
                .slice(old.start, old.end - old.start)
                .with_context(|| location.place.clone())?;
            blocks.push(Block {
                outcome: self.enter(&location.inside(piece, location.place.clone()))?,
                old,
            });
        }
        Ok(Some(blocks))
    }

    /// An object that is linked later. Linkers take its images by their section; those that it
    /// registers itself have symbols, so they stay where they are.
    fn object(&mut self, location: &Location, changes: Changes) -> Result<Outcome> {
        if !changes.any_left {
            self.emptied.push(location.place.clone());
        }
        let mut replacements = Vec::new();
        for ChangedSection { section, blocks } in changes.sections {
            let piece = section_piece(location, &section)?;
            let is_linked = section.is_allocated;
            if is_linked
                && blocks
                    .iter()
                    .any(|block| matches!(block.outcome, Outcome::Gone))
            {
                bail!(
                    "{}: {}: cannot remove an image from an object that registers its images itself: link the object first",
                    location.place,
                    section.name
                );
            }
            let laid = lay_out(&piece, blocks, section.align, |_| is_linked);
            let laid = laid.with_context(|| format!("{}: {}", location.place, section.name))?;
            replacements.push(Replacement {
                section: section.index,
                contents: laid.bytes,
            });
        }
        let mut gone = Vec::new();
        for (section, new) in changes.whole {
            match new {
                Some(contents) => replacements.push(Replacement {
                    section: section.index,
                    contents,
                }),
                None => gone.push(section),
            }
        }
        let place = || location.place.clone();
        let mut bytes = Rope::from(location.piece.clone());
        if !location.piece.bytes().starts_with(&elf::ELFMAG) {
            if let Some(section) = gone.first() {
                bail!(
                    "{}: {}: cannot remove a section from a COFF object",
                    location.place,
                    section.name
                );
            }
            bytes = resize_coff(&location.piece, replacements).with_context(place)?;
        } else if !replacements.is_empty() {
            bytes = resize(&location.piece, replacements, Vec::new()).with_context(place)?;
        }
        if !gone.is_empty() {
            let piece = bytes.into_piece(self.spool)?;
            bytes = without(&piece, &gone).with_context(place)?;
        }
        Ok(bytes.into())
    }

    /// A program or shared library.
    fn program(&mut self, location: &Location, changes: Changes) -> Result<Outcome> {
        let place = || location.place.clone();
        let data = location.piece.bytes();
        let registered = read::read(data).with_context(place)?;
        let targets = targets(&registered);
        let (mut new, mut movable) = (Vec::new(), Vec::new());
        for (section, contents) in changes.whole {
            // LLVM 14's compiler has put it there for linkers. No code knows it, so it can go.
            let Holds::Image(_) = section.holds else {
                let kinds = self.kinds_in(location, &section);
                let why = format!(
                    "they are in the section {} of a finished program",
                    section.name
                );
                return Err(Fixed {
                    place: location.file.clone(),
                    kinds,
                    why,
                }
                .into());
            };
            if contents.is_some() {
                bail!(
                    "{}: {}: cannot replace images in this section of a finished program: only linkers read them",
                    location.place,
                    section.name
                );
            }
            new.push(NewSection::of(&section, Changed::default()));
        }
        for ChangedSection { section, blocks } in changes.sections {
            let piece = section_piece(location, &section)?;
            // What nothing known points to may be pointed to by something unknown.
            let is_fixed = |block: &Range<u64>| {
                let (start, end) = (section.offset + block.start, section.offset + block.end);
                section.is_allocated && !targets.iter().any(|target| (start..end).contains(target))
            };
            if let Some(block) = blocks
                .iter()
                .find(|block| matches!(block.outcome, Outcome::Gone) && is_fixed(&block.old))
            {
                let at = section.offset + block.old.start;
                bail!(
                    "{}: {}: cannot remove the container at {at:#x}: no known code registers it",
                    location.place,
                    section.name
                );
            }
            let fixed = blocks
                .iter()
                .find(|block| is_fixed(&block.old))
                .map(|block| section.offset + block.old.start);
            if fixed.is_none() {
                movable.push(section.index);
            }
            let laid = lay_out(&piece, blocks, section.align, is_fixed);
            let laid = laid.with_context(|| format!("{}: {}", location.place, section.name))?;
            if let Some(at) = fixed.filter(|_| laid.bytes.size() > section.size) {
                let place = format!("{}: {}", location.place, section.name);
                bail!(
                    "{place}: cannot move the section, which becomes larger: no known code registers the container at {at:#x}"
                );
            }
            new.push(NewSection::of(&section, laid));
        }
        let placed = pointers::place(&location.piece, &mut new, 0, &movable, self.spool)
            .with_context(place)?;
        let (file, registered) = match placed.piece {
            Some(larger) => (
                larger.clone(),
                read::read(larger.bytes()).with_context(place)?,
            ),
            None => (location.piece.clone(), registered),
        };
        let patches: Vec<Patch> = pointers::patches(file.bytes(), &registered, &new, &mut |what| {
            self.emptied.push(format!("{}: {what}", location.place));
        })
        .with_context(place)?;
        let new = new.into_iter().map(Replacement::from).collect();
        let bytes = resize_with(&file, new, patches, &[], &movable).with_context(place)?;
        Ok(bytes.into())
    }
}

/// Where in a section the images are that the descriptors of OpenMP and SYCL name, in order.
fn rows_within(registered: &Registered, section: &DeviceSection) -> Vec<Range<u64>> {
    let openmp = registered
        .descriptors
        .iter()
        .flat_map(|descriptor| descriptor.images.iter().map(|row| row.start..row.end));
    let sycl = registered
        .sycl
        .iter()
        .flat_map(|descriptor| descriptor.images.iter().map(|row| row.start..row.end));
    let within = |row: Range<u64>| {
        Some(row.start.checked_sub(section.offset)?..row.end.checked_sub(section.offset)?)
    };
    let mut ranges: Vec<Range<u64>> = openmp
        .chain(sycl)
        .filter_map(within)
        .filter(|range| range.end <= section.size)
        .collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    // Two descriptors may have one image.
    ranges.dedup();
    ranges
}

fn section_piece(location: &Location, section: &DeviceSection) -> Result<FileSlice> {
    location
        .piece
        .slice(section.offset, section.size)
        .with_context(|| format!("{}: {}", location.place, section.name))
}

/// The offsets in the file to which what registers images points.
pub(super) fn targets(registered: &Registered) -> Vec<u64> {
    let rows = registered
        .descriptors
        .iter()
        .flat_map(|descriptor| descriptor.images.iter().map(|row| row.start));
    let sycl = registered
        .sycl
        .iter()
        .flat_map(|descriptor| descriptor.images.iter().map(|row| row.start));
    rows.chain(sycl)
        .chain(
            registered
                .wrappers
                .iter()
                .filter_map(|wrapper| wrapper.container),
        )
        .collect()
}

/// The object `piece` without these sections.
fn without(piece: &FileSlice, gone: &[DeviceSection]) -> Result<Rope> {
    let is_gone = |view: SectionView<'_>| gone.iter().any(|section| section.index == view.index);
    let edit = Edit {
        remove: &is_gone,
        ..Edit::default()
    };
    Ok(Rope::of_parts(
        piece,
        edit::plan(piece.bytes(), &edit)?,
        [],
    )?)
}
