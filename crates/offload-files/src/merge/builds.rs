//! Merges whole builds of one source, each compiled for different devices, into one file: the first
//! build with the images of all. Verifies before the merge that the builds match, and after writing
//! that the file has the selected images.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::wheels;
use crate::contents::report::{FileReport, Image};
use crate::contents::units::{self, target};
use crate::contents::{Options, Reader};
use crate::edit::merge::{Build, MergedUnit, check_images, differences, join, name_kinds};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offld_system::threads;
use offload_formats::error;
use offload_formats::model::OffloadKind;
use offload_formats::zip::is_zip;

/// The result of a merge.
#[derive(Debug)]
pub enum Outcome {
    /// The builds are one file now.
    Merged(Merged),
    /// The builds do not match, or cannot be one file: the reasons.
    Refused(Vec<String>),
}

/// A file merged of several builds.
#[derive(Debug)]
pub struct Merged {
    /// The contents.
    pub bytes: Rope,
    /// Whether the contents differ from those of the first build.
    pub is_changed: bool,
    /// Number of images.
    pub count: usize,
    /// The devices of the images, without duplicates.
    pub devices: Vec<String>,
    pub(super) holds: Holds,
}

/// The expected contents of a merged file.
#[derive(Debug)]
pub(super) enum Holds {
    /// These images.
    Units(Vec<Expected>),
    /// A zip file: these members, by name, are merged files.
    Members(Vec<(Vec<u8>, Merged)>),
}

/// The expected images of one unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expected {
    members: Vec<String>,
    kind: OffloadKind,
    images: Vec<Seen>,
    /// Whether another build has contributed an image. Otherwise the images keep the order they
    /// had.
    is_ordered: bool,
}

/// The part of an image that its header shows: its device, and its size unless it is compressed.
type Seen = (String, Option<u64>);

/// Merges files, which were opened at their paths. Newly composed data is in `spool`.
///
/// # Errors
/// A file is damaged or has a format that cannot be merged, or a signal arrived.
pub fn merge(
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
    if let Some(build) = builds
        .iter()
        .find(|build| !build.report.external.is_empty())
    {
        bail!(
            "`{}`: its images are in files, which its other builds do not name: link it for all architectures at once",
            build.path.display()
        );
    }
    let found = differences(&builds)?;
    // Names that depend on a path make kernels look missing. Then report only the differences,
    // which have the remedy.
    if found.iter().any(|difference| difference.has_remedy) {
        return Ok(Outcome::Refused(
            found
                .into_iter()
                .map(|difference| difference.text)
                .collect(),
        ));
    }
    let units = match check_images(&reports) {
        Ok(units) if found.is_empty() => units,
        Ok(_) => {
            return Ok(Outcome::Refused(
                found
                    .into_iter()
                    .map(|difference| difference.text)
                    .collect(),
            ));
        }
        Err(error) => {
            let first = error::chain(&error);
            return Ok(Outcome::Refused(
                std::iter::once(first)
                    .chain(found.into_iter().map(|difference| difference.text))
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

/// Adds the device of an image to `devices`, if its container names one.
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
    /// Checks that the file, which was written to `piece` for the path `place`, has the selected
    /// images in their order.
    ///
    /// # Errors
    /// It has other images: a bug in this program.
    pub fn check(&self, place: &Path, piece: &FileSlice, session: &Session) -> Result<()> {
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
    /// Whether `other` has the same images.
    fn has(&self, other: &Expected) -> bool {
        let (mut own, mut theirs) = (self.images.clone(), other.images.clone());
        if !self.is_ordered {
            own.sort();
            theirs.sort();
        }
        // A merge may compress an image or store it uncompressed, so the size may be missing on
        // either side.
        let is_same = |((device, size), (other, theirs)): (&Seen, &Seen)| {
            device == other && (size.is_none() || theirs.is_none() || size == theirs)
        };
        own.len() == theirs.len() && own.iter().zip(&theirs).all(is_same)
    }
}
