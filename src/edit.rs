//! Device images inside a file get another fate: they go, or others take their places, and the file around them stays what it was.
//!
//! [`contents`](crate::contents) says which images a file has; a caller decides what becomes of each ([`Verdict`]); [`edit`] gives
//! the new file as a rope, of which what stays is copied by the system. The recursion here meets the images in the order of the
//! report. `rewriter` goes into files and archives, `containers` into containers, `objects` into objects and finished programs,
//! whose pointers `pointers` makes right.

mod amid;
mod archives;
mod blocks;
mod compress;
mod containers;
mod fatbinaries;
pub(crate) mod files;
pub(crate) mod fill;
pub(crate) mod merge;
mod objects;
mod order;
pub(crate) mod pack;
pub(crate) mod places;
mod pointers;
pub(crate) mod recipe;
mod rewriter;
mod room;
pub(crate) mod trial;

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, bail};

use crate::contents::report::FileReport;
use crate::io::piece::{Piece, Spool};
use crate::io::rope::Rope;
use rewriter::{Rewriter, Spot};

/// What becomes of an image.
#[derive(Debug, Clone, Default)]
pub(crate) enum Verdict {
    /// It stays as it is.
    #[default]
    Keep,
    /// It goes.
    Drop,
    /// These bytes take its place. What its container says of it stays.
    Replace(Piece),
}

impl Verdict {
    fn is_keep(&self) -> bool {
        matches!(self, Verdict::Keep)
    }
}

/// A file with other images.
#[derive(Debug)]
pub(crate) struct Edited {
    /// The new file; none where it is the old one.
    pub bytes: Option<Rope>,
    /// What has lost all of its images: registrations, and members of archives. Each with its place.
    pub emptied: Vec<String>,
}

/// How to compress anew what was compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    /// The level of zstd for containers that are compressed as a whole; none for that of the compiler, 3.
    pub level: Option<i32>,
    /// Which containers are compressed anew although none of their images changes.
    pub repack: Repack,
    /// Whether images that are alike are put next to each other in what is compressed as a whole, where none of them changes.
    pub sort: bool,
}

/// Which containers are compressed anew that could stay as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Repack {
    /// None.
    #[default]
    No,
    /// Those in which there are images for several devices.
    Shared,
    /// All.
    All,
}

/// The file `piece`, which was opened at `path` and which `report` describes, with `verdicts` for its images, one for each.
///
/// # Errors
/// The file is damaged, or an image that is to change is where none can be changed; the error says why.
pub(crate) fn edit(
    (path, piece): (&Path, &Piece),
    report: &FileReport,
    verdicts: &[Verdict],
    levels: Levels,
    spool: &mut Spool,
) -> Result<Edited> {
    if let Some(error) = report.errors.first() {
        bail!("{error}");
    }
    let mut rewriter = Rewriter { images: &report.images, verdicts, next: 0, levels, spool, emptied: Vec::new(), places: None };
    let spot = Spot { piece: piece.clone(), place: path.display().to_string(), inside: false, depth: 0 };
    let outcome = rewriter.enter(&spot)?;
    rewriter.check_all_met(&spot)?;
    let bytes = match outcome {
        Outcome::Same => None,
        Outcome::New(changed) => Some(changed.bytes),
        Outcome::Gone => {
            rewriter.emptied.push(spot.place.clone());
            Some(Rope::default())
        }
    };
    Ok(Edited { bytes, emptied: rewriter.emptied })
}

/// What became of something.
enum Outcome {
    Same,
    /// Nothing is left of it.
    Gone,
    New(Changed),
}

/// New bytes in the place of old ones.
#[derive(Default)]
struct Changed {
    bytes: Rope,
    /// Where images in it are now, of those to which something may point. What is not here is gone.
    moved: Vec<Moved>,
}

impl From<Rope> for Changed {
    fn from(bytes: Rope) -> Self {
        Changed { bytes, moved: Vec::new() }
    }
}

/// Where a part of something was, and where it is in what has become of that.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Moved {
    old: Range<u64>,
    new: Range<u64>,
}
