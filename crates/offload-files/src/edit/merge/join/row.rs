//! Merges rows of containers in sections and files. An OffloadBinary usually holds one image, so
//! those of the other builds are added to the row. Bundles and fatbinaries are passed to a runtime
//! one by one, so each gets the entries of its counterparts.

use std::ops::Range;

use anyhow::{Context, Result, bail};

use super::super::lockstep::Location;
use super::{Fate, Joiner};
use crate::contents::tree::{Node, NodeKind};
use crate::edit::containers::{Block, lay_out};
use crate::edit::{Changed, Moved, Outcome};
use offld_system::io::file_slice::FileSlice;
use offld_system::io::rope::Rope;
use offload_formats::compose::Item;
use offload_formats::containers::Kind;
use offload_formats::offload_binary::{self, Entry, Head};

/// A container of a build.
pub(super) struct BuildContainer<'b> {
    pub(super) build: usize,
    pub(super) node: &'b Node,
    pub(super) kind: Kind,
    /// Its range in its row.
    old: Range<u64>,
    pub(super) piece: FileSlice,
    /// The location, for messages.
    pub(super) place: String,
}

/// The merged row.
pub(super) enum Row {
    Same,
    /// Each container stays, with more entries.
    Each(Vec<Block>),
    /// The row has more containers.
    More(Vec<Listed>),
}

/// A container in a row that has become longer.
pub(super) struct Listed {
    build: usize,
    /// Its range in its build's row.
    old: Range<u64>,
    bytes: Rope,
    /// Whether the container has all of its images; otherwise duplicates were removed.
    is_whole: bool,
}

/// A container in the new row.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) build: usize,
    /// Its range in its build's row.
    pub(super) old: Range<u64>,
    /// Its offset in the new row.
    pub(super) new: u64,
    pub(super) is_whole: bool,
}

/// The layout of a row.
pub(super) enum LaidOut {
    Same,
    New {
        changed: Changed,
        /// The containers, if the row has more than before.
        placed: Vec<Placed>,
    },
}

impl LaidOut {
    /// The outcome for a row that is the whole file.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            LaidOut::Same => Outcome::Same,
            LaidOut::New { changed, .. } => Outcome::New(changed),
        }
    }
}

impl Row {
    /// Lays out the row in place of `piece`, the first build's. Containers keep their alignment, up
    /// to `align`, and keep their offset if `is_fixed` returns true.
    ///
    /// # Errors
    /// A container must keep its offset and cannot.
    pub(super) fn lay_out(
        self,
        piece: &FileSlice,
        align: u64,
        is_fixed: impl Fn(&Range<u64>) -> bool,
    ) -> Result<LaidOut> {
        match self {
            Row::Same => Ok(LaidOut::Same),
            Row::Each(blocks) => Ok(LaidOut::New {
                changed: lay_out(piece, blocks, align, is_fixed)?,
                placed: Vec::new(),
            }),
            Row::More(listed) => {
                if let Some(fixed) = listed
                    .iter()
                    .find(|one| one.build == 0 && is_fixed(&one.old))
                {
                    bail!(
                        "the container at {:#x} cannot move to make room for others",
                        fixed.old.start
                    );
                }
                Ok(side_by_side(piece, listed, align))
            }
        }
    }
}

/// Places containers one after another.
fn side_by_side(piece: &FileSlice, listed: Vec<Listed>, align: u64) -> LaidOut {
    let mut changed = Changed::default();
    let mut placed = Vec::new();
    for Listed {
        build,
        old,
        bytes,
        is_whole,
    } in listed
    {
        let own = if old.start == 0 {
            align
        } else {
            1 << old.start.trailing_zeros().min(62)
        };
        let start = changed.bytes.size().next_multiple_of(own.min(align).max(1));
        changed.bytes.pad_to(start);
        if build == 0 {
            changed.moved.push(Moved {
                old: old.clone(),
                new: start..start + bytes.size(),
            });
        }
        changed.bytes.append(bytes);
        placed.push(Placed {
            build,
            old,
            new: start,
            is_whole,
        });
    }
    // Linkers pad sections of containers to a multiple of the containers' alignment.
    if piece.size().is_multiple_of(align.max(1)) {
        changed
            .bytes
            .pad_to(changed.bytes.size().next_multiple_of(align.max(1)));
    }
    LaidOut::New { changed, placed }
}

impl Joiner<'_> {
    /// Merges the rows at these locations, one for each build. Some of them may be empty.
    pub(super) fn row(&mut self, locations: &[Location<'_>]) -> Result<Row> {
        let all = locations
            .iter()
            .enumerate()
            .map(|(build, location)| containers_of(build, location))
            .collect::<Result<Vec<_>>>()?;
        let place = locations
            .first()
            .map(|location| location.place.as_str())
            .unwrap_or_default();
        let is_list = |found: &BuildContainer<'_>| found.kind == Kind::OffloadBinary;
        if all.iter().flatten().all(is_list) {
            return self.merge_list(all);
        }
        if all.iter().flatten().any(is_list) {
            bail!("{place}: cannot match OffloadBinaries that are next to other containers");
        }
        let count = all.first().map_or(0, Vec::len);
        if let Some((location, others)) = locations
            .iter()
            .zip(&all)
            .find(|(_, others)| others.len() != count)
        {
            bail!(
                "{place} has {count} containers, but {} has {}",
                location.place,
                others.len()
            );
        }
        let mut rows: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
        let mut blocks = Vec::new();
        for _ in 0..count {
            let column: Vec<BuildContainer<'_>> =
                rows.iter_mut().filter_map(Iterator::next).collect();
            let base = column.first().context("no builds to merge")?;
            blocks.push(Block {
                old: base.old.clone(),
                outcome: self.entries(&column)?,
            });
        }
        Ok(if blocks.iter().all(Block::is_same) {
            Row::Same
        } else {
            Row::Each(blocks)
        })
    }

    /// Merges OffloadBinaries: those of all builds, in the order of their images.
    fn merge_list(&mut self, all: Vec<Vec<BuildContainer<'_>>>) -> Result<Row> {
        let mut listed: Vec<(Option<usize>, Listed)> = Vec::new();
        for found in all.into_iter().flatten() {
            let images = found.node.images.clone();
            let fates: Vec<Option<Fate>> =
                images.map(|image| self.fate(found.build, image)).collect();
            let ranks = fates.iter().filter_map(|fate| match fate {
                Some(Fate::Taken(rank)) => Some(*rank),
                _ => None,
            });
            let rank = ranks.min();
            if found.build > 0 && rank.is_none() {
                if !fates.is_empty() && fates.iter().all(Option::is_none) {
                    bail!("{}: unknown runtime of its images", found.place);
                }
                continue;
            }
            let is_whole = !fates.contains(&Some(Fate::Also));
            let bytes = if is_whole {
                found.piece.clone().into()
            } else {
                self.without_duplicates(&found)?
            };
            self.record_placed(found.build, found.node);
            listed.push((
                rank,
                Listed {
                    build: found.build,
                    old: found.old,
                    bytes,
                    is_whole,
                },
            ));
        }
        if listed.iter().all(|(_, one)| one.build == 0) {
            return Ok(Row::Same);
        }
        listed.sort_by_key(|(rank, _)| *rank);
        Ok(Row::More(listed.into_iter().map(|(_, one)| one).collect()))
    }

    /// An OffloadBinary without its duplicate images.
    fn without_duplicates(&self, found: &BuildContainer<'_>) -> Result<Rope> {
        let place = || found.place.clone();
        let data = found.piece.bytes();
        if Head::read(data, 0).with_context(place)?.packed.is_some() {
            bail!(
                "{}: cannot merge a compressed container that shares images with another build",
                found.place
            );
        }
        let fates = self.entry_fates(found)?;
        let stays = |(entry, fate): (usize, &Option<Fate>)| {
            (*fate != Some(Fate::Also)).then_some(Item::Old(entry))
        };
        let items: Vec<Item<Entry<'_>>> = fates.iter().enumerate().filter_map(stays).collect();
        let parts = offload_binary::compose(data, &items).with_context(place)?;
        Rope::of_parts(&found.piece, parts, []).with_context(place)
    }

    /// The fates of the entries of a container, in order. Embedded images share the fate of their
    /// entry.
    ///
    /// # Errors
    /// An entry is itself a container.
    pub(super) fn entry_fates(&self, found: &BuildContainer<'_>) -> Result<Vec<Option<Fate>>> {
        let entries = match (found.kind, found.node.children.as_slice()) {
            (Kind::CompressedBundle, [row]) => row
                .children
                .first()
                .map_or(&[][..], |bundle| &bundle.children),
            (_, entries) => entries,
        };
        let fate = |entry: &Node| match entry.image() {
            Some(image) => Ok(self.fate(found.build, image)),
            None => bail!("{}: nested containers cannot be merged", found.place),
        };
        entries.iter().map(fate).collect()
    }
}

/// The containers of the row at `location`.
fn containers_of<'b>(build: usize, location: &Location<'b>) -> Result<Vec<BuildContainer<'b>>> {
    let containers = location.node.map_or(&[][..], |row| &row.children);
    let found = |node: &'b Node| {
        let NodeKind::Container(kind) = node.kind else {
            bail!("{}: not a row of containers", location.place);
        };
        let old = node.range.clone();
        let place = format!("{}: {} at {:#x}", location.place, kind.name(), old.start);
        let piece = location.piece.slice(old.start, old.end - old.start);
        Ok(BuildContainer {
            build,
            node,
            kind,
            piece: piece.with_context(|| format!("{place}: past the end"))?,
            old,
            place,
        })
    };
    containers.iter().map(found).collect()
}
