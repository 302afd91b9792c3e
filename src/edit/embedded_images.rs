//! Images that stand in a section among other data, as `clang-offload-wrapper` of LLVM 15 and
//! earlier puts them there. OpenMP's rows say which bytes they are. Where one changes, they get a
//! section of their own, and are edited as those that always had one.

use std::ops::Range;

use anyhow::{Context, Result};

use super::blocks::Block;
use super::rewriter::{Location, Rewriter};
use crate::contents::objects::{DeviceSection, device_sections};
use crate::formats::offload_sections;
use crate::io::file_slice::FileSlice;
use crate::io::resize::divide;
use crate::registration::read;

/// No linker aligns images to more than this: zeros that are fewer belong to what stands on both
/// sides of them.
const LARGEST_GAP: u64 = 4096;

/// A program whose images have sections of their own.
pub(super) struct Divided {
    pub(super) piece: FileSlice,
    /// Its sections of device code.
    pub(super) sections: Vec<DeviceSection>,
    /// Those that it did not have, by their offsets, and what becomes of the images in them.
    pub(super) new: Vec<(u64, Vec<Block>)>,
}

impl Rewriter<'_> {
    /// What becomes of the images of the program at `location` that stand among other data; none
    /// where they all stay.
    pub(super) fn amid_other_data(&mut self, location: &Location) -> Result<Option<Divided>> {
        const WHAT: &str = "a section with other data";
        let base = location.piece.file_offset(0);
        let within = |offset: Option<u64>| {
            offset?
                .checked_sub(base?)
                .filter(|at| *at < location.piece.size())
        };
        let here = self
            .images
            .get(self.next..)
            .unwrap_or_default()
            .iter()
            .take_while(|image| !image.in_data);
        let here: Vec<Range<u64>> = here
            .map_while(|image| within(image.offset).map(|at| at..at.saturating_add(image.size)))
            .collect();
        if self.all_stay(here.len()) && self.places.is_none() {
            return self.pinned(location, WHAT).map(|_| None);
        }
        let registered =
            read::read(location.piece.bytes()).with_context(|| location.place.clone())?;
        let rows = || {
            registered
                .descriptors
                .iter()
                .flat_map(|descriptor| &descriptor.images)
        };
        let is_row =
            |range: &Range<u64>| rows().any(|row| row.start == range.start && row.end == range.end);
        if !registered.linked || !here.iter().all(is_row) {
            return self.pinned(location, WHAT).map(|_| None);
        }
        let mut blocks = Vec::new();
        for range in here {
            let piece = location.piece.slice(range.start, range.end - range.start);
            let piece =
                piece.with_context(|| format!("{}: an image past the end", location.place))?;
            blocks.push(Block {
                outcome: self.enter(&location.inside(piece, location.place.clone()))?,
                old: range,
            });
        }
        if blocks.iter().all(Block::is_same) {
            return Ok(None);
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
}

/// The bytes that a group of images has.
fn range_of(blocks: &[Block]) -> Range<u64> {
    let start = blocks.first().map_or(0, |block| block.old.start);
    start..blocks.last().map_or(start, |block| block.old.end)
}

/// The images, those together that have nothing but zeros between them.
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
