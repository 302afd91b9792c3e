//! Rebuilds objects, programs and shared libraries (ELF and COFF): sections of device code get new
//! contents. In finished files, pointers to images and containers are updated (`pointers`), and
//! bytes that are no longer needed are removed ([`offld_system::io::rope`]).

use std::ops::Range;

use anyhow::{Context, Result, bail};
use object::elf;

use super::containers::{Block, lay_out};
use super::pointers::{self, NewSection};
use super::rewriter::{Location, Rewriter};
use super::{Changed, Fixed, Outcome};
use crate::contents::objects::device_sections;
use crate::contents::tree::{DeviceSection, Holds, Node, NodeKind, SectionForm};
use offld_system::io::file_slice::FileSlice;
use offld_system::io::rope::{Patch, Replacement, Rope, divide, resize, resize_coff, resize_with};
use offload_formats::elf::edit::{self, Edit, SectionView};
use offload_formats::elf::raw::FileHeader;
use offload_formats::offload_sections;
use offload_formats::registration::read::{self, Registered};

/// No linker aligns images to more than this. A longer run of zeros belongs to other data.
const LARGEST_GAP: u64 = 4096;

/// A section with changed containers.
struct ChangedSection {
    section: DeviceSection,
    blocks: Vec<Block>,
}

/// A section that consists of one changed image.
struct WholeSection {
    section: DeviceSection,
    /// The programming models of the image.
    kinds: Vec<String>,
    /// The new contents; `None` if the section is removed.
    contents: Option<Rope>,
}

/// The changes in an object.
#[derive(Default)]
struct Changes {
    sections: Vec<ChangedSection>,
    /// Sections that consist of one image each.
    whole: Vec<WholeSection>,
    /// Whether any image remains in the object.
    any_left: bool,
}

impl Changes {
    /// Updates the changes of a program whose images got sections of their own, and adds these
    /// sections.
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
        for section in self.whole.iter_mut().map(|whole| &mut whole.section) {
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

/// A program whose images have sections of their own.
pub(super) struct Divided {
    pub(super) piece: FileSlice,
    /// Its sections of device code.
    pub(super) sections: Vec<DeviceSection>,
    /// The new sections, by offset, with the outcomes of the images in them.
    pub(super) new: Vec<(u64, Vec<Block>)>,
}

impl Rewriter<'_> {
    /// Rebuilds an ELF file or COFF object for the host.
    pub(super) fn host_file(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let outcome = self.with_sections(node, location)?;
        for data in &node.children {
            if let NodeKind::Data = data.kind {
                self.in_data(data, location)?;
            }
        }
        Ok(outcome)
    }

    fn with_sections(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let mut changes = Changes::default();
        for child in &node.children {
            if let NodeKind::Section(section) = &child.kind {
                self.section(location, child, section, &mut changes)?;
            }
        }
        if let Some(divided) = self.images_among_data(node, location)? {
            let file = location.decompressed(divided.piece.clone());
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
        let data = location.piece.bytes();
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

    /// Rebuilds the section `node` of the file at `host`, and adds the result to `changes`.
    fn section(
        &mut self,
        host: &Location,
        node: &Node,
        section: &DeviceSection,
        changes: &mut Changes,
    ) -> Result<()> {
        let location = host.entry(node)?;
        let blocks = match section.form(location.piece.bytes()) {
            SectionForm::OneImage => {
                let Some(image) = node.children.first() else {
                    changes.any_left = true;
                    return Ok(());
                };
                let contents = match self.rebuild(image, &location)? {
                    Outcome::Same => {
                        changes.any_left = true;
                        return Ok(());
                    }
                    Outcome::Gone => None,
                    Outcome::New(new) => Some(new.bytes),
                };
                changes.any_left |= contents.is_some();
                changes.whole.push(WholeSection {
                    section: section.clone(),
                    kinds: self.kinds(node),
                    contents,
                });
                return Ok(());
            }
            SectionForm::BareImages => {
                changes.any_left = true;
                if self.all_stay(node) {
                    return Ok(());
                }
                if !are_registered(host, section, node)? {
                    self.fixed(node, &location, "a section without containers")?;
                    return Ok(());
                }
                self.blocks(node, &location)?
            }
            SectionForm::Containers => {
                let blocks = self.blocks(node, &location)?;
                changes.any_left |= !blocks.iter().all(Block::is_gone);
                blocks
            }
        };
        if !blocks.iter().all(Block::is_same) {
            changes.sections.push(ChangedSection {
                section: section.clone(),
                blocks,
            });
        }
        Ok(())
    }

    /// Rebuilds images that share a section with other data, as `clang-offload-wrapper` of LLVM 15
    /// and earlier places them. OpenMP's descriptors hold their ranges. If an image changes, the
    /// images get sections of their own. Returns `None` if all images stay.
    fn images_among_data(&mut self, node: &Node, location: &Location) -> Result<Option<Divided>> {
        let images: Vec<&Node> = node
            .children
            .iter()
            .filter(|child| !matches!(child.kind, NodeKind::Section(_) | NodeKind::Data))
            .collect();
        if images.iter().all(|image| self.all_stay(image)) {
            return Ok(None);
        }
        if !are_rows(location, &images)? {
            for image in images {
                self.fixed(image, location, "a section with other data")?;
            }
            return Ok(None);
        }
        let mut blocks = Vec::new();
        for image in images {
            let inner = location.entry(image)?;
            blocks.push(Block {
                old: image.range.clone(),
                outcome: self.rebuild(image, &inner)?,
            });
        }
        blocks.sort_by_key(|block| block.old.start);
        let groups = groups(&location.piece, blocks);
        let ranges: Vec<Range<u64>> = groups.iter().map(|group| range_of(group)).collect();
        let rope = divide(&location.piece, &ranges, offload_sections::NAME)
            .with_context(|| location.place.clone())?;
        let piece = rope.into_piece(self.spool)?;
        let sections = device_sections(piece.bytes(), &location.place)?;
        let new = groups.into_iter().zip(ranges).map(|(mut blocks, range)| {
            for block in &mut blocks {
                block.old = block.old.start - range.start..block.old.end - range.start;
            }
            (range.start, blocks)
        });
        Ok(Some(Divided {
            sections,
            new: new.collect(),
            piece,
        }))
    }

    /// Rebuilds an object that is linked later. Linkers find its images by their section. Images
    /// that the object registers itself have symbols, so they keep their offsets.
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
        for whole in changes.whole {
            match whole.contents {
                Some(contents) => replacements.push(Replacement {
                    section: whole.section.index,
                    contents,
                }),
                None => gone.push(whole.section),
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

    /// Rebuilds a program or shared library.
    fn program(&mut self, location: &Location, changes: Changes) -> Result<Outcome> {
        let place = || location.place.clone();
        let data = location.piece.bytes();
        let registered = read::read(data).with_context(place)?;
        let targets = targets(&registered);
        let (mut new, mut movable) = (Vec::new(), Vec::new());
        for WholeSection {
            section,
            kinds,
            contents,
        } in changes.whole
        {
            // LLVM 14's compiler adds this section for linkers only. No code refers to it, so it
            // can be removed.
            let Holds::Image(_) = section.holds else {
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
            // Unknown code may point to a container that has no known pointer.
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
        let patches: Vec<Patch> =
            pointers::registration_patches(file.bytes(), &registered, &new, &mut |what| {
                self.emptied.push(format!("{}: {what}", location.place));
            })
            .with_context(place)?;
        let new = new.into_iter().map(Replacement::from).collect();
        let bytes = resize_with(&file, new, patches, &[], &movable).with_context(place)?;
        Ok(bytes.into())
    }
}

/// Whether the descriptors of the program at `host` list exactly the images in `section`.
pub(super) fn are_registered(
    host: &Location,
    section: &DeviceSection,
    node: &Node,
) -> Result<bool> {
    let registered = read::read(host.piece.bytes()).with_context(|| host.place.clone())?;
    let images = node.children.iter().map(|image| image.range.clone());
    Ok(registered.linked && rows_within(&registered, section).into_iter().eq(images))
}

/// Whether OpenMP's descriptors of the program at `host` list these images, its children.
pub(super) fn are_rows(host: &Location, images: &[&Node]) -> Result<bool> {
    let registered = read::read(host.piece.bytes()).with_context(|| host.place.clone())?;
    let rows: Vec<Range<u64>> = registered
        .descriptors
        .iter()
        .flat_map(|descriptor| &descriptor.images)
        .map(|row| row.start..row.end)
        .collect();
    Ok(registered.linked && images.iter().all(|image| rows.contains(&image.range)))
}

/// The ranges, in a section, of the images that the descriptors of OpenMP and SYCL list, in order.
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
    // Two descriptors may list the same image.
    ranges.dedup();
    ranges
}

fn section_piece(location: &Location, section: &DeviceSection) -> Result<FileSlice> {
    location
        .piece
        .slice(section.offset, section.size)
        .with_context(|| format!("{}: {}", location.place, section.name))
}

/// The offsets in the file to which the registrations point.
pub(in crate::edit) fn targets(registered: &Registered) -> Vec<u64> {
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

/// The range of a group of images.
fn range_of(blocks: &[Block]) -> Range<u64> {
    let start = blocks.first().map_or(0, |block| block.old.start);
    start..blocks.last().map_or(start, |block| block.old.end)
}

/// Groups the images: those with only zeros between them belong together.
fn groups(piece: &FileSlice, blocks: Vec<Block>) -> Vec<Vec<Block>> {
    let mut groups: Vec<Vec<Block>> = Vec::new();
    for block in blocks {
        let end = groups
            .last()
            .and_then(|group| group.last())
            .map(|last| last.old.end);
        let gap = end
            .and_then(|end| Some((end, block.old.start.checked_sub(end)?)))
            .filter(|(_, size)| *size < LARGEST_GAP);
        let is_free = gap
            .and_then(|(end, size)| piece.slice(end, size))
            .is_some_and(|gap| gap.bytes().iter().all(|byte| *byte == 0));
        match groups.last_mut().filter(|_| is_free) {
            Some(group) => group.push(block),
            None => groups.push(vec![block]),
        }
    }
    groups
}
