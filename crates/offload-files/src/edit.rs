//! Edits the device images in a file: removes them or replaces their bytes. The rest of the file
//! stays the same.
//!
//! [`contents`](crate::contents) reports the images of a file and the tree of its parts; a caller
//! decides about each image ([`Verdict`]); `edit` rebuilds the tree bottom up and returns the new
//! file as a rope, so that the system can copy the unchanged bytes. `rewriter` rebuilds files and
//! archives, `containers` rebuilds containers, and `objects` rebuilds objects and finished
//! programs. `pointers` updates the pointers of these programs. [`trial`] checks an edit.

pub mod backpatch;
pub(crate) mod compress;
mod containers;
pub mod files;
pub(crate) mod kpack_host;
pub(crate) mod merge;
mod objects;
mod pointers;
mod rewriter;
pub mod split_manifest;
pub mod trial;

use std::fmt;
use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::contents::report::FileReport;
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offload_formats::model::OffloadKind;
use rewriter::{Location, Rewriter};

/// The decision about an image.
#[derive(Debug, Clone, Default)]
pub enum Verdict {
    /// The image stays as it is.
    #[default]
    Keep,
    /// The image is removed.
    Drop,
    /// These bytes replace the image. The metadata in its container stays.
    Replace(FileSlice),
}

impl Verdict {
    pub(crate) fn is_keep(&self) -> bool {
        matches!(self, Verdict::Keep)
    }
}

/// The result of an edit.
#[derive(Debug)]
pub(crate) struct Edited {
    /// The new file; `None` if it equals the old one.
    pub bytes: Option<Rope>,
    /// Registrations and archive members that have lost all of their images, with their locations.
    pub emptied: Vec<String>,
    /// Whether the whole file is removed: it was a single image or container.
    pub is_gone: bool,
    /// The counts of recompressed containers.
    pub recompressed: Recompressed,
}

/// Images that cannot be changed at their location.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    /// The file, with the archive member that contains the images.
    pub place: String,
    /// The programming models of the images.
    pub kinds: Vec<String>,
    /// The reason: `they are in …`.
    pub why: String,
}

impl Fixed {
    /// The images as messages call them: `SYCL images`.
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

/// Counts of recompressed containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Recompressed {
    /// Number of compressed containers, and compressed entries of fatbinaries, that became smaller.
    pub smaller: u64,
    /// Number of all compressed containers, and compressed entries of fatbinaries.
    pub all: u64,
    /// Number of LZ4 entries, which stay as they are.
    pub lz4: u64,
}

impl Recompressed {
    pub(crate) fn add(&mut self, other: Recompressed) {
        self.smaller += other.smaller;
        self.all += other.all;
        self.lz4 += other.lz4;
    }
}

/// Settings for recompression.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Levels {
    /// The zstd level of containers that are compressed as a whole; `None` for the compiler's
    /// default, 3.
    pub level: Option<i32>,
    /// Which containers are recompressed although none of their images changes.
    pub repack: Repack,
    /// Whether data is recompressed only if it becomes smaller.
    pub only_smaller: bool,
    /// Whether to place similar images next to each other, in containers that are compressed as a
    /// whole and in which no image changes.
    pub sort: bool,
}

/// The unchanged containers to recompress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Repack {
    /// None.
    #[default]
    No,
    /// Containers with images for several devices.
    Shared,
    /// All.
    All,
}

/// Edits the file `piece`, which was opened at `path` and which `report` describes. `verdicts` has
/// one element for each image.
///
/// # Errors
/// The file is damaged, or an image that must change is at a location that offld cannot change; the
/// error states the reason.
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

/// The new state of a part of a file.
enum Outcome {
    Same,
    /// Nothing of the part remains.
    Gone,
    New(Changed),
}

/// New bytes that replace old ones.
#[derive(Default)]
struct Changed {
    bytes: Rope,
    /// The old and new ranges of the parts to which pointers may refer, such as images and
    /// containers.
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

/// The old and new range of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Moved {
    old: Range<u64>,
    new: Range<u64>,
}

impl Moved {
    /// The same ranges in the file, if the outer part was at `old` and is now at `new`.
    fn within(self, old: u64, new: u64) -> Moved {
        Moved {
            old: old + self.old.start..old + self.old.end,
            new: new + self.new.start..new + self.new.end,
        }
    }
}
