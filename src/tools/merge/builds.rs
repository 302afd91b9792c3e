//! Whole builds of one source, each compiled for other devices, become one file: the first of them,
//! with the images of all. That they belong together is proven before, and that the file has what
//! was planned is checked once it is written.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::wheels;
use crate::contents::report::{FileReport, Image};
use crate::contents::units::{self, target};
use crate::contents::{Options, Reader};
use crate::edit::merge::{Build, MergedUnit, check_images, differences, join, name_kinds};
use crate::error;
use crate::formats::zip::is_zip;
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::rope::Rope;
use crate::model::OffloadKind;
use crate::sys::session::Session;
use crate::sys::threads;

/// What became of builds that were to be merged.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// They are one file.
    Merged(Merged),
    /// They are not of one source, or could not be one file: why, each reason by itself.
    Refused(Vec<String>),
}

/// A file merged of several builds.
#[derive(Debug)]
pub(crate) struct Merged {
    /// Its contents.
    pub bytes: Rope,
    /// Whether they are others than those of the first build.
    pub is_changed: bool,
    /// How many images it has.
    pub count: usize,
    /// The devices that these are for, each once.
    pub devices: Vec<String>,
    pub(super) holds: Holds,
}

/// What is to be in a merged file.
#[derive(Debug)]
pub(super) enum Holds {
    /// These images.
    Units(Vec<Expected>),
    /// It is a zip file, in which these members, by their names, are merged files themselves.
    Members(Vec<(Vec<u8>, Merged)>),
}

/// What runtimes are to see in a merged file: the images of one unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expected {
    members: Vec<String>,
    kind: OffloadKind,
    images: Vec<Seen>,
    /// Whether another build has brought an image; otherwise they stand in the order that they had.
    is_ordered: bool,
}

/// An image as headers tell of it: its device, and its size where it is not compressed.
type Seen = (String, Option<u64>);

/// Merges files, which were opened at their paths. What had to be made for it is in `spool`.
///
/// # Errors
/// A file is damaged, or not of a kind that can be merged; a signal.
pub(crate) fn merge(
    files: &[(PathBuf, FileSlice)],
    spool: &mut Spool,
    session: &Session,
) -> Result<Outcome> {
    if files.iter().all(|(_, piece)| is_zip(piece.bytes())) {
        return wheels::merge(files, session);
    }
    let options = Options {
        kernels: true,
        registered: true,
        ..Options::default()
    };
    let reader = Reader::new(options, session);
    let mut reports: Vec<FileReport> = threads::in_parallel(|| {
        files
            .par_iter()
            .map(|(path, piece)| reader.opened(path, piece.clone()))
            .collect()
    });
    reports.iter_mut().for_each(name_kinds);
    session.signals.check()?;
    let together = files.iter().zip(&reports);
    let builds: Vec<Build<'_>> = together
        .map(|((path, piece), report)| Build {
            path,
            piece,
            report,
        })
        .collect();
    if let Some(error) = reports.iter().find_map(|report| report.errors.first()) {
        bail!("{error}");
    }
    let found = differences(&builds)?;
    // Names that tell a place make kernels seem to be missing: then the remedy is all there is to
    // say.
    if found.iter().any(|told| told.has_remedy) {
        return Ok(Outcome::Refused(
            found.into_iter().map(|told| told.text).collect(),
        ));
    }
    let units = match check_images(&reports) {
        Ok(units) if found.is_empty() => units,
        Ok(_) => {
            return Ok(Outcome::Refused(
                found.into_iter().map(|told| told.text).collect(),
            ));
        }
        Err(error) => {
            let first = error::chain(&error);
            return Ok(Outcome::Refused(
                std::iter::once(first)
                    .chain(found.into_iter().map(|told| told.text))
                    .collect(),
            ));
        }
    };
    let joined = join(&builds, &units, spool)?;
    let is_changed = joined.is_some();
    let first = files.first().context("no builds to merge")?;
    let bytes = joined.unwrap_or_else(|| first.1.clone().into());
    let expected: Vec<Expected> = units.iter().map(|unit| expected(unit, &reports)).collect();
    let mut devices = Vec::new();
    units
        .iter()
        .flat_map(|unit| images(unit, &reports))
        .for_each(|image| add_device(image, &mut devices));
    let count = expected.iter().map(|unit| unit.images.len()).sum();
    Ok(Outcome::Merged(Merged {
        bytes,
        is_changed,
        count,
        devices,
        holds: Holds::Units(expected),
    }))
}

/// Adds the device of an image to those that are known, if its container says it.
pub(super) fn add_device(image: &Image, devices: &mut Vec<String>) {
    let target = target(image);
    let device = if target.arch.is_empty() || target.arch == "generic" {
        target.triple
    } else {
        target.arch
    };
    if !device.is_empty() && !devices.contains(&device) {
        devices.push(device);
    }
}

/// The images of a unit.
fn images<'r>(unit: &'r MergedUnit, reports: &'r [FileReport]) -> impl Iterator<Item = &'r Image> {
    unit.images
        .iter()
        .filter_map(|taken| reports.get(taken.build)?.images.get(taken.image))
}

fn seen(image: &Image) -> Seen {
    (
        target(image).to_string(),
        Some(image.size).filter(|_| image.compressed_size.is_none()),
    )
}

fn expected(unit: &MergedUnit, reports: &[FileReport]) -> Expected {
    Expected {
        members: unit.members.clone(),
        kind: unit.kind,
        images: images(unit, reports).map(seen).collect(),
        is_ordered: unit.images.iter().any(|taken| taken.build > 0),
    }
}

impl Merged {
    /// That the file, which has been written as `piece` and belongs to `place`, has the images that
    /// were taken, in their order.
    ///
    /// # Errors
    /// It has others: that is a defect of this program.
    pub(crate) fn check(&self, place: &Path, piece: &FileSlice, session: &Session) -> Result<()> {
        let expected = match &self.holds {
            Holds::Units(expected) => expected,
            Holds::Members(members) => return wheels::check(members, place, piece, session),
        };
        let options = Options {
            headers_only: true,
            registered: true,
            ..Options::default()
        };
        let mut report = Reader::new(options, session).opened(place, piece.clone());
        name_kinds(&mut report);
        if let Some(error) = report.errors.first() {
            bail!("{error} (a bug in offld: the merged file cannot be read)");
        }
        let contents = units::contents(&report);
        let mut found: Vec<Expected> = Vec::new();
        for (content, unit) in contents.iter().flat_map(|content| {
            units::of(content)
                .into_iter()
                .map(move |unit| (content, unit))
        }) {
            let images = unit.images.iter().map(|image| seen(image)).collect();
            found.push(Expected {
                members: content.members.to_vec(),
                kind: unit.kind,
                images,
                is_ordered: true,
            });
        }
        for unit in expected {
            let is_it = |other: &Expected| {
                (&other.members, other.kind) == (&unit.members, unit.kind) && unit.has(other)
            };
            match found.iter().position(is_it) {
                Some(at) => drop(found.remove(at)),
                None => bail!(
                    "{}: a bug in offld: the merged file lacks {} images for {}",
                    place.display(),
                    unit.images.len(),
                    unit.kind.title()
                ),
            }
        }
        match found.iter().find(|unit| !unit.images.is_empty()) {
            Some(unit) => bail!(
                "{}: a bug in offld: the merged file has more images for {}",
                place.display(),
                unit.kind.title()
            ),
            None => Ok(()),
        }
    }
}

impl Expected {
    /// Whether the images are those of `other`.
    fn has(&self, other: &Expected) -> bool {
        let (mut own, mut theirs) = (self.images.clone(), other.images.clone());
        if !self.is_ordered {
            own.sort();
            theirs.sort();
        }
        // What was compressed may be it no longer, and the other way round.
        let is_same = |((device, size), (other, theirs)): (&Seen, &Seen)| {
            device == other && (size.is_none() || theirs.is_none() || size == theirs)
        };
        own.len() == theirs.len() && own.iter().zip(&theirs).all(is_same)
    }
}
