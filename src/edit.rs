//! Device images inside a file get another fate: they go, or others take their places, and the file
//! around them stays what it was.
//!
//! [`contents`](crate::contents) reports the images of a file and the tree of its parts; a caller
//! decides what becomes of each image ([`Verdict`]); [`edit`] rebuilds the tree bottom up and
//! returns the new file as a rope, of which the system copies the unchanged bytes. `rewriter`
//! rebuilds files and archives, `containers` containers, `objects` objects and finished programs,
//! whose pointers `pointers` updates.

pub(crate) mod backpatch;
mod compress;
mod containers;
pub(crate) mod files;
pub(crate) mod image_ranges;
pub(crate) mod merge;
mod objects;
mod pointers;
mod rewriter;
pub(crate) mod split_manifest;
pub(crate) mod trial;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::contents::report::FileReport;
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::rope::Rope;
use crate::model::OffloadKind;
use rewriter::{Location, Rewriter};

/// What becomes of an image.
#[derive(Debug, Clone, Default)]
pub(crate) enum Verdict {
    /// It stays as it is.
    #[default]
    Keep,
    /// It goes.
    Drop,
    /// These bytes take its place. What its container says of it stays.
    Replace(FileSlice),
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
    /// What has lost all of its images: registrations, and members of archives. Each with its
    /// place.
    pub emptied: Vec<String>,
    /// Whether nothing is left of the file: it was an image, or a container, by itself.
    pub is_gone: bool,
    /// The counts of recompressed containers.
    pub recompressed: Recompressed,
}

/// Images that cannot be changed where they are.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    /// The file, and the member that has them.
    pub place: String,
    /// The programming models that they are for.
    pub kinds: Vec<String>,
    /// Why they cannot be changed: `they are in …`.
    pub why: String,
}

impl Fixed {
    /// Their name in messages: `SYCL images`.
    pub(crate) fn images(&self) -> String {
        let known = |name: &str| {
            OffloadKind::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
        };
        let title = |name: &String| {
            known(name).map_or_else(|| name.clone(), |kind| kind.title().to_owned())
        };
        let titles: Vec<String> = self.kinds.iter().map(title).collect();
        if titles.is_empty() {
            "images".to_owned()
        } else {
            format!("{} images", titles.join(" and "))
        }
    }
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot change {} in {}: {}",
            self.images(),
            self.place,
            self.why
        )
    }
}

impl std::error::Error for Fixed {}

/// Counts of containers that were compressed anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Recompressed {
    /// How many compressed containers, and compressed entries of fatbinaries, are smaller now.
    pub smaller: u64,
    /// How many there are.
    pub all: u64,
    /// How many of them are LZ4, which is kept.
    pub lz4: u64,
}

impl Recompressed {
    pub(crate) fn add(&mut self, other: Recompressed) {
        self.smaller += other.smaller;
        self.all += other.all;
        self.lz4 += other.lz4;
    }
}

/// How to compress anew what was compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    /// The level of zstd for containers that are compressed as a whole; none for that of the
    /// compiler, 3.
    pub level: Option<i32>,
    /// Which containers are compressed anew although none of their images changes.
    pub repack: Repack,
    /// Whether only what becomes smaller is compressed anew.
    pub only_smaller: bool,
    /// Whether images that are alike are put next to each other in what is compressed as a whole,
    /// where none of them changes.
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

/// The file `piece`, which was opened at `path` and which `report` describes, with `verdicts` for
/// its images, one for each.
///
/// # Errors
/// The file is damaged, or an image that is to change is where none can be changed; the error says
/// why.
pub(crate) fn edit(
    (path, piece): (&Path, &FileSlice),
    report: &FileReport,
    verdicts: &[Verdict],
    levels: Levels,
    spool: &mut Spool,
) -> Result<Edited> {
    let mut rewriter = Rewriter::new(report, verdicts, levels, spool)?;
    let outcome = match &report.tree {
        Some(tree) => rewriter.rebuild(tree, &Location::of(path, piece))?,
        None => Outcome::Same,
    };
    let is_gone = matches!(outcome, Outcome::Gone);
    let bytes = match outcome {
        Outcome::Same => None,
        Outcome::New(changed) => Some(changed.bytes),
        Outcome::Gone => Some(Rope::default()),
    };
    Ok(Edited {
        bytes,
        emptied: rewriter.emptied,
        is_gone,
        recompressed: rewriter.recompressed,
    })
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

impl From<Rope> for Outcome {
    fn from(bytes: Rope) -> Self {
        Outcome::New(Changed {
            bytes,
            moved: Vec::new(),
        })
    }
}

/// Where a part of something was, and where it is in what has become of that.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Moved {
    old: Range<u64>,
    new: Range<u64>,
}

impl Moved {
    /// The same in the file, where what it was a part of was at `old` and is at `new`.
    fn within(self, old: u64, new: u64) -> Moved {
        Moved {
            old: old + self.old.start..old + self.old.end,
            new: new + self.new.start..new + self.new.end,
        }
    }
}
