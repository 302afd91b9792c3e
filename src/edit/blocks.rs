//! Containers in a row, as sections and files have them: each is rewritten by itself, and they are
//! put together again.

use std::ops::Range;

use anyhow::{Context, Result, bail};

use super::containers::containers;
use super::rewriter::{Location, Rewriter};
use super::{Changed, Moved, Outcome};
use crate::io::file_slice::FileSlice;
use crate::io::rope::Rope;

/// A container of a row, or an image of a container.
pub(super) struct Block {
    /// Where it is.
    pub(super) old: Range<u64>,
    /// What became of it.
    pub(super) outcome: Outcome,
}

impl Block {
    /// Whether it is what it was.
    pub(super) fn is_same(&self) -> bool {
        matches!(self.outcome, Outcome::Same)
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.outcome, Outcome::Gone)
    }
}

impl Rewriter<'_> {
    /// What becomes of a row of containers.
    pub(super) fn containers(&mut self, location: &Location) -> Result<Outcome> {
        let blocks = self.blocks(location)?;
        if blocks.iter().all(Block::is_same) {
            return Ok(Outcome::Same);
        }
        if blocks.iter().all(Block::is_gone) {
            return Ok(Outcome::Gone);
        }
        Ok(Outcome::New(
            lay_out(&location.piece, blocks, CONTAINER, |_| false)
                .with_context(|| location.place.clone())?,
        ))
    }

    /// The containers of a row, each with what became of it. There may be zeros between them, but
    /// nothing else.
    pub(super) fn blocks(&mut self, location: &Location) -> Result<Vec<Block>> {
        containers(&location.piece, &location.place)
            .map(|container| {
                let container = container?;
                Ok(Block {
                    old: container.old.clone(),
                    outcome: self.container(location, container)?,
                })
            })
            .collect()
    }
}

/// The alignment of containers in a file of their own.
pub(super) const CONTAINER: u64 = 8;

/// Puts the containers of `piece` together, each at its alignment, which is at most `align`. Those
/// at which `is_fixed` points stay where they are.
///
/// # Errors
/// One that has to stay where it is has no room there.
pub(super) fn lay_out(
    piece: &FileSlice,
    blocks: Vec<Block>,
    align: u64,
    is_fixed: impl Fn(&Range<u64>) -> bool,
) -> Result<Changed> {
    let mut bytes = Rope::default();
    let mut moved = Vec::new();
    let old_end = blocks.last().map_or(0, |block| block.old.end);
    let old_size = piece.size();
    for Block { old, outcome } in blocks {
        let (new, inner) = match outcome {
            Outcome::Gone => continue,
            Outcome::Same => (
                piece
                    .slice(old.start, old.end - old.start)
                    .map(Rope::from)
                    .unwrap_or_default(),
                Vec::new(),
            ),
            Outcome::New(Changed { bytes, moved }) => (bytes, moved),
        };
        let own = if old.start == 0 {
            align
        } else {
            1 << old.start.trailing_zeros().min(62)
        };
        let start = if is_fixed(&old) {
            old.start
        } else {
            bytes.size().next_multiple_of(own.min(align).max(1))
        };
        if start < bytes.size() {
            bail!(
                "the container at {:#x} cannot move, but the containers before it have become larger",
                old.start
            );
        }
        bytes.pad_to(start);
        let size = new.size();
        bytes.append(new);
        moved.extend(
            inner
                .into_iter()
                .map(|moved| moved.within(old.start, start)),
        );
        moved.push(Moved {
            new: start..start + size,
            old,
        });
    }
    // Linkers end such sections at a multiple of the containers' alignment; what was there behind
    // the last one stays.
    if old_size > old_end && bytes.size() > 0 {
        let padded = bytes.size().saturating_add(old_size - old_end);
        bytes.pad_to(padded.min(bytes.size().next_multiple_of(align.max(1))));
    }
    Ok(Changed { bytes, moved })
}
