//! Edits the device images in a file: removes them or replaces their bytes. The rest of the file
//! stays the same.
//!
//! [`contents`] reports the images of a file and the tree of its parts; a caller
//! decides about each image ([`Verdict`]); `edit` rebuilds the tree bottom up and returns the new
//! file as a rope, so that the system can copy the unchanged bytes. `rewriter` rebuilds files and
//! archives, `containers` rebuilds containers, and `objects` rebuilds objects and finished programs.
//! `pointers` updates the pointers of these programs.

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

use std::fmt;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::contents::report::{FileReport, Image};
use crate::contents::{self, Reader};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;
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

// Edits a file and checks the result, for the fuzz target of `edit` and for tests.

/// The bytes that replace images.
const OTHER: &[u8; 8] = b"REPLACED";

/// Edits the file at `path`. `fates` has a byte for each image and repeats if there are more
/// images: modulo 4, 1 removes the image, 2 replaces it, and other values keep it. Returns the size
/// of the new file; `None` if the file is damaged or does not support the edit.
///
/// # Errors
/// The new file is damaged or has unexpected images: a bug in this library.
pub fn trial(path: &Path, fates: &[u8]) -> Result<Option<u64>> {
    let session = Session::new(
        Shell::from_write("offld", Box::new(std::io::sink())).into(),
        SessionOptions {
            embedded: true,
            ..SessionOptions::default()
        },
    );
    let headers = contents::Options {
        headers_only: true,
        ..contents::Options::default()
    };
    let listed = Reader::new(headers, &session).open(path)?;
    let old = read(path, FileSlice::open(path)?, &session);
    if !listed.errors.is_empty()
        || !old.errors.is_empty()
        || listed.images.len() != old.images.len()
    {
        return Ok(None);
    }
    let mut fates = fates.iter().cycle();
    let fate = |_| match fates.next().map(|fate| fate % 4) {
        Some(1) => Verdict::Drop,
        Some(2) => Verdict::Replace(FileSlice::owned(OTHER.to_vec())),
        _ => Verdict::Keep,
    };
    let verdicts: Vec<Verdict> = (0..listed.images.len()).map(fate).collect();
    let piece = FileSlice::open(path)?;
    let mut spool = Spool::new(&session);
    let Ok(edited) = edit(
        (path, &piece),
        &listed,
        &verdicts,
        Levels::default(),
        &mut spool,
    ) else {
        return Ok(None);
    };
    let bytes = edited.bytes.unwrap_or_else(|| Rope::from(piece.clone()));
    let (size, other) = (bytes.size(), digest(&FileSlice::owned(OTHER.to_vec()))?);
    let piece = bytes.into_piece(&mut spool)?;
    // If the file itself is an image, the new file consists of the replacement bytes, in which a
    // reader finds no image.
    if let ([image, ..], [Verdict::Replace(_), ..]) = (&old.images[..], &verdicts[..])
        && image.path.is_empty()
    {
        ensure!(
            digest(&piece)? == other,
            "the new file differs from the expected bytes"
        );
        return Ok(Some(size));
    }
    let new = read(path, piece, &session);
    if let Some(error) = new.errors.first() {
        bail!("the new file is damaged: {error}");
    }
    let (mut wanted, mut found) = (expected(&old.images, &verdicts, &other)?, Vec::new());
    for image in &new.images {
        found.push(image.sha256.clone().context("an image without a digest")?);
    }
    wanted.sort_unstable();
    found.sort_unstable();
    if wanted != found {
        bail!(
            "the new file has {} images, expected {}, or other ones",
            found.len(),
            wanted.len()
        );
    }
    Ok(Some(size))
}

fn read(path: &Path, piece: FileSlice, session: &Session) -> FileReport {
    Reader::new(contents::Options::default(), session).opened(path, piece)
}

fn digest(piece: &FileSlice) -> Result<String> {
    Ok(crate::contents::bytes_of::sha256(piece)?)
}

/// The digests of the images that the new file must contain. An embedded image shares the verdict
/// of the image around it.
fn expected(images: &[Image], verdicts: &[Verdict], other: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut outer: Option<(&Image, &Verdict)> = None;
    // A bundle in the same container as an image has a path that starts in the same way.
    let can_be_in = |image: &Image, outer: &Image| match (image.offset, outer.offset) {
        (Some(start), Some(outer_start)) => {
            (outer_start..=outer_start + outer.size).contains(&start)
        }
        _ => true,
    };
    for (image, verdict) in images.iter().zip(verdicts) {
        let within = outer.filter(|(outer, _)| {
            image.path.len() > outer.path.len()
                && image.path.starts_with(&outer.path)
                && can_be_in(image, outer)
        });
        let fate = within.map_or(verdict, |(_, fate)| fate);
        match fate {
            Verdict::Keep => all.push(image.sha256.clone().context("an image without a digest")?),
            Verdict::Replace(_) if within.is_none() => all.push(other.to_owned()),
            _ => {}
        }
        if within.is_none() {
            outer = Some((image, verdict));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corpus of the fuzz targets, with every verdict.
    #[test]
    fn the_fuzz_corpus_is_edited_correctly() -> Result<()> {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        let mut changed = 0;
        for target in std::fs::read_dir(&corpus).with_context(|| corpus.display().to_string())? {
            for seed in std::fs::read_dir(target?.path())? {
                let seed = seed?.path();
                let bytes = std::fs::read(&seed)?;
                // The seeds of some targets begin with one or eight bytes of parameters, or with a
                // command line.
                let line = bytes
                    .iter()
                    .position(|byte| *byte == 0xff)
                    .map_or(0, |at| at + 1);
                for start in [0, 1, 8, line] {
                    std::fs::write(&path, bytes.get(start..).unwrap_or_default())?;
                    for fates in [&[0][..], &[1], &[2], &[1, 0], &[0, 2, 1]] {
                        let done = trial(&path, fates)
                            .with_context(|| format!("{}: {start} {fates:?}", seed.display()))?;
                        changed += u32::from(done.is_some());
                    }
                }
            }
        }
        assert!(changed > 100, "only {changed} files could be changed");
        Ok(())
    }
}
