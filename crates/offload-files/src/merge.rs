//! Merges files: a host half with the parts that `split` wrote for one file (`parts`), or whole
//! builds that were compiled for different devices, as directories or single files (here) or as
//! wheels (`wheels`).

pub mod parts;
mod wheels;

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayon::prelude::*;

use crate::contents::report::{FileReport, Image};
use crate::contents::units::{self, target};
use crate::contents::{Options, Reader};
use crate::edit::files::{Entry, Tree, copy_checked, copy_with_attributes, entries};
use crate::edit::merge::{Build, MergedUnit, check_images, differences, join, name_kinds};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::output_directory::OutputDirectory;
use offld_system::io::rope::Rope;
use offld_system::progress::Meter;
use offld_system::session::Session;
use offld_system::threads;
use offload_formats::error;
use offload_formats::model::{OffloadKind, printable, printable_name};
use offload_formats::zip::is_zip;

/// Limit on reported names.
const MOST: usize = 20;

/// The names that are not in every build, as messages that compare the first build with each other
/// one. A build has its name for messages, and a set of names; `what` is the kind of these names.
fn unmatched(builds: &[(String, BTreeSet<&[u8]>)], what: &str) -> Vec<String> {
    let Some(((first, names), others)) = builds.split_first() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (other, theirs) in others {
        for (has, lacks, name) in names
            .difference(theirs)
            .map(|name| (first, other, name))
            .chain(theirs.difference(names).map(|name| (other, first, name)))
        {
            let name = printable_name(name);
            found.push(format!(
                "{lacks}: no {what} {name}, which {has} has: every build must have the same"
            ));
        }
    }
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    if more > 0 {
        found.push(format!("and {more} more that are not in every build"));
    }
    found
}

// Merges directories of several builds, matching files by path. Validates all files before it
// writes any.

/// A directory merged from several builds.
#[derive(Debug)]
pub struct Folder {
    /// The first build's directory, the source of all files that are not merged.
    first: PathBuf,
    /// The files that get images of other builds, by path in the directory.
    merged: HashMap<PathBuf, Merged>,
}

/// A file of the new directory.
#[derive(Debug)]
pub struct Written {
    /// Its path.
    pub place: PathBuf,
    /// Its images and their devices, if it got images of other builds.
    pub merged: Option<Merged>,
}

/// Plans the merge of directories. Returns the reasons if they cannot be merged.
///
/// # Errors
/// A directory cannot be read, or a signal arrived.
pub fn merge_folders(
    folders: &[PathBuf],
    session: &Session,
) -> Result<Result<Folder, Vec<String>>> {
    let all = folders
        .iter()
        .map(|folder| entries(folder))
        .collect::<Result<Vec<_>>>()?;
    let reasons = differing_entries(folders, &all);
    if !reasons.is_empty() {
        return Ok(Err(reasons));
    }
    let entries = all.into_iter().next().context("no builds to merge")?;
    let files: Vec<PathBuf> = entries
        .into_iter()
        .filter(|(_, entry)| *entry == Entry::File)
        .map(|(path, _)| path)
        .collect();
    let size = |path: &PathBuf| {
        let sizes = folders
            .iter()
            .filter_map(|folder| std::fs::metadata(folder.join(path)).ok());
        sizes.fold(0, |sum: u64, meta| sum.saturating_add(meta.len()))
    };
    let meter = Meter::new(session.shell.is_terminal(), files.iter().map(size).sum());
    let each = |path: &PathBuf| {
        let reached = meter.file();
        let done = merge_file(folders, path, session);
        reached.up_to(size(path));
        done
    };
    let done: Vec<Result<Option<Outcome>>> =
        threads::in_parallel(|| files.par_iter().map(each).collect());
    drop(meter);
    session.signals.check()?;
    let (mut merged, mut reasons) = (HashMap::new(), Vec::new());
    for (path, done) in files.into_iter().zip(done) {
        match done {
            Ok(None) => {}
            Ok(Some(Outcome::Merged(file))) if file.is_changed => drop(merged.insert(path, file)),
            // The file already has all images.
            Ok(Some(Outcome::Merged(_))) => {}
            Ok(Some(Outcome::Refused(more))) => reasons.extend(more),
            Err(error) => reasons.push(error::chain(&error)),
        }
    }
    let first = folders.first().cloned().unwrap_or_default();
    Ok(if reasons.is_empty() {
        Ok(Folder { first, merged })
    } else {
        Err(reasons)
    })
}

/// The reasons if the directories do not have the same files and symlinks.
fn differing_entries(folders: &[PathBuf], all: &[Vec<(PathBuf, Entry)>]) -> Vec<String> {
    let printable_path = |folder: &Path| printable(&folder.display().to_string()).into_owned();
    let of_kind = |is_wanted: &dyn Fn(&Entry) -> bool| -> Vec<(String, BTreeSet<&[u8]>)> {
        let each = folders.iter().zip(all).map(|(folder, entries)| {
            let names = entries.iter().filter(|(_, entry)| is_wanted(entry));
            (
                printable_path(folder),
                names.map(|(path, _)| path.as_os_str().as_bytes()).collect(),
            )
        });
        each.collect()
    };
    // Directories themselves are not compared, only their entries.
    let mut reasons = unmatched(&of_kind(&|entry| *entry == Entry::File), "file");
    reasons.extend(unmatched(
        &of_kind(&|entry| matches!(entry, Entry::Link(_))),
        "link",
    ));
    if !reasons.is_empty() {
        return reasons;
    }
    let Some((first, entries)) = folders.first().zip(all.first()) else {
        return reasons;
    };
    let known: HashMap<&Path, &Entry> = entries
        .iter()
        .map(|(path, entry)| (path.as_path(), entry))
        .collect();
    for (folder, entries) in folders.iter().zip(all).skip(1) {
        for (path, entry) in entries {
            if let (Entry::Link(to), Some(Entry::Link(other))) = (entry, known.get(path.as_path()))
                && to != other
            {
                let [link, old, to, other] = [&folder.join(path), &first.join(path), to, other]
                    .map(|path| printable_path(path));
                reasons.push(format!("{link} is a link to {to}, but {old} to {other}: every build must have the same link"));
            }
        }
    }
    reasons
}

/// Merges the files at `path` of all directories. Returns `None` if they are equal.
fn merge_file(folders: &[PathBuf], path: &Path, session: &Session) -> Result<Option<Outcome>> {
    session.signals.check()?;
    let open = |folder: &PathBuf| {
        let path = folder.join(path);
        // The number of files may exceed the limit of open files.
        let piece =
            FileSlice::try_open_one_of_many(&path).with_context(|| path.display().to_string())?;
        Ok((path, piece))
    };
    let files = folders.iter().map(open).collect::<Result<Vec<_>>>()?;
    let (_, first) = files.first().context("no builds to merge")?;
    if files.iter().all(|(_, piece)| piece.has_bytes_of(first)) {
        return Ok(None);
    }
    merge(&files, &mut Spool::new(session), session).map(Some)
}

impl Folder {
    /// Writes the directory to `to`.
    ///
    /// # Errors
    /// A file cannot be written, or a signal arrived.
    pub fn write(mut self, to: &Path, session: &Session) -> Result<Vec<Written>> {
        let tree = Tree::list(&self.first, to)?;
        let directory = OutputDirectory::new(to, session)?;
        tree.make(&directory)?;
        let mut all = Vec::new();
        for (path, place) in tree.files {
            let merged = path
                .strip_prefix(&self.first)
                .ok()
                .and_then(|within| self.merged.remove(within));
            all.push((path, Written { place, merged }));
        }
        let each = |(path, written): &(PathBuf, Written)| {
            let outputs = directory.outputs(session);
            match &written.merged {
                Some(merged) => {
                    let check = |piece: &FileSlice| merged.check(&written.place, piece, session);
                    copy_checked(path, &merged.bytes, &written.place, outputs, &check)
                }
                None => {
                    let piece =
                        FileSlice::try_open(path).with_context(|| path.display().to_string())?;
                    copy_with_attributes(path, &piece.into(), &written.place, outputs)
                }
            }
        };
        threads::in_parallel(|| all.par_iter().try_for_each(each))?;
        directory.commit()?;
        Ok(all.into_iter().map(|(_, written)| written).collect())
    }
}

// Merges whole builds of one source, each compiled for different devices, into one file: the first
// build with the images of all. Verifies before the merge that the builds match, and after writing
// that the file has the selected images.

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
    holds: Holds,
}

/// The expected contents of a merged file.
#[derive(Debug)]
enum Holds {
    /// These images.
    Units(Vec<Expected>),
    /// A zip file: these members, by name, are merged files.
    Members(Vec<(Vec<u8>, Merged)>),
}

/// The expected images of one unit.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
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
fn add_device(image: &Image, devices: &mut Vec<String>) {
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
