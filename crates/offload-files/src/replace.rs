//! Replaces images of a file, for example by the output of another compiler or of a tool for device
//! code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::contents::report::{FileReport, Image};
use crate::contents::units::{self, listed, name};
use crate::contents::{self, Reader, kernel_names};
use crate::edit::Verdict;
use crate::edit::files::{Change, Options, To, change};
use offld_system::io::file_slice::FileSlice;
use offld_system::session::Session;
use offload_formats::kernels::shown_name;
use offload_formats::model::OffloadKind;
use offload_formats::target::Target;

/// A new image.
#[derive(Debug, Clone)]
pub struct NewImage {
    /// The file that contains the old image, if the target is a directory: its path, or its path
    /// relative to the directory.
    pub file: Option<PathBuf>,
    /// The number of the old image in the file, as in `inspect`.
    pub index: usize,
    /// The file with the new bytes.
    pub path: PathBuf,
}

/// A new image, opened.
struct Opened<'i> {
    new: &'i NewImage,
    piece: FileSlice,
    /// The file that it is inserted into.
    file: PathBuf,
}

/// Replaces images in the file `path`, or in files of the directory `path`. An error in a file,
/// such as a missing image number, is in its change.
///
/// # Errors
/// An image cannot be read, is given twice, or belongs to a missing file.
pub fn replace(
    path: &Path,
    images: &[NewImage],
    options: &Options,
    session: &Session,
) -> Result<Vec<Change>> {
    let is_folder = path.is_dir();
    let mut opened: Vec<Opened<'_>> = Vec::new();
    for new in images {
        let file = if is_folder {
            file_below(path, new, options)?
        } else {
            file_itself(path, new)?
        };
        if opened
            .iter()
            .any(|other| other.new.index == new.index && other.file == file)
        {
            let prefix = new
                .file
                .as_ref()
                .map(|file| format!("{}:", file.display()))
                .unwrap_or_default();
            bail!("--image {prefix}{} is given twice", new.index);
        }
        let piece =
            FileSlice::try_open(&new.path).with_context(|| new.path.display().to_string())?;
        opened.push(Opened { new, piece, file });
    }
    let decide = |file: &Path, images: &[Image]| {
        let real = if is_folder {
            real(file)?
        } else {
            path.to_owned()
        };
        let mut verdicts = vec![Verdict::Keep; images.len()];
        let mut report = None;
        for Opened { new, piece, .. } in opened.iter().filter(|one| one.file == real) {
            let count = images.len();
            let old = images.get(new.index).zip(verdicts.get_mut(new.index));
            let (old, verdict) = old.with_context(|| {
                format!(
                    "{}: no image {}; the file has {count}",
                    file.display(),
                    new.index
                )
            })?;
            if !options.force {
                check(old, new, piece, session)?;
                let report = match &report {
                    Some(report) => report,
                    None => report.insert(with_kernels(&real, session)?),
                };
                check_kernels(report, new, piece)?;
            }
            *verdict = Verdict::Replace(piece.clone());
        }
        Ok(verdicts)
    };
    // For an edit in place, the other files of a directory are not needed.
    let mut files = vec![path.to_owned()];
    if is_folder && options.to == To::InPlace {
        files = opened.iter().map(|one| one.file.clone()).collect();
        files.sort();
        files.dedup();
    }
    change(&files, options, session, &decide)
}

/// The file of the directory that a new image is inserted into.
fn file_below(folder: &Path, new: &NewImage, options: &Options) -> Result<PathBuf> {
    let place = folder.display();
    let number = new.index;
    let named = new
        .file
        .as_ref()
        .with_context(|| format!("{place}: a directory has no image {number} of its own: pass --image FILE:{number}=IMAGE"))?;
    let found = [folder.join(named), named.clone()]
        .into_iter()
        .find(|file| file.is_file());
    let file =
        real(&found.with_context(|| format!("{}: no such file in {place}", named.display()))?)?;
    // A copy of a directory keeps symlinks, so their targets outside of it would not be written.
    if options.to != To::InPlace && !file.starts_with(real(folder)?) {
        bail!(
            "{}: not in {place}, so -d would not write the file",
            named.display()
        );
    }
    Ok(file)
}

/// Returns `path`. The new image may name this file, but no other.
fn file_itself(path: &Path, new: &NewImage) -> Result<PathBuf> {
    let is_other =
        |file: &PathBuf| !matches!((real(file), real(path)), (Ok(one), Ok(other)) if one == other);
    if let Some(file) = new.file.as_ref().filter(|file| is_other(file)) {
        let path = path.display();
        bail!(
            "{}: not the file {path}: use the image numbers of `offld inspect {path}`",
            file.display()
        );
    }
    Ok(path.to_owned())
}

/// The path with all symlinks resolved.
fn real(path: &Path) -> Result<PathBuf> {
    path.canonicalize()
        .with_context(|| path.display().to_string())
}

/// Checks that an image can replace another one: it has the same format and, if its bytes name a
/// device, suits the same device.
fn check(old: &Image, new: &NewImage, piece: &FileSlice, session: &Session) -> Result<()> {
    let reading = contents::Options {
        headers_only: true,
        ..contents::Options::default()
    };
    let report = Reader::new(reading, session).opened(&new.path, piece.clone());
    let place = new.path.display();
    let Some(found) = report
        .images
        .first()
        .filter(|_| report.images.len() == 1 && report.errors.is_empty())
    else {
        // Host objects and code without a header do not name a device.
        return if old.format == "unread"
            || report.kind.starts_with("elf")
            || report.kind == "unknown"
        {
            Ok(())
        } else {
            bail!(
                "{place}: not a single image, but {}; pass --force to use the file anyway",
                report.kind
            )
        };
    };
    let same_format = found.format == old.format || old.format == "unread" || old.format == "empty";
    if !same_format {
        bail!(
            "{place}: the format is {}, but image {} is {}; pass --force to use the file anyway",
            found.format,
            old.index,
            old.format
        );
    }
    let (is, was) = (
        Target::new(&found.triple, &found.target),
        Target::new(&old.triple, &old.target),
    );
    let known = !found.target.is_empty() && !old.target.is_empty();
    if known && !is.serves(&was) && !was.serves(&is) {
        bail!(
            "{place}: an image for {}, but image {} is for {}; pass --force to use the file anyway",
            found.target,
            old.index,
            old.target
        );
    }
    Ok(())
}

/// The report on a file, with the kernels of its images and with its registrations.
fn with_kernels(file: &Path, session: &Session) -> Result<FileReport> {
    let reading = contents::Options {
        kernels: true,
        registered: true,
        ..contents::Options::default()
    };
    let piece = FileSlice::try_open(file).with_context(|| file.display().to_string())?;
    Ok(Reader::new(reading, session).opened(file, piece))
}

/// Checks that a new image has every kernel that the host code needs from the old one.
fn check_kernels(report: &FileReport, new: &NewImage, piece: &FileSlice) -> Result<()> {
    let needed = needed(report, new.index);
    let (Some(old), Some(first)) = (report.images.get(new.index), needed.first()) else {
        return Ok(());
    };
    let place = new.path.display();
    let names =
        kernel_names(piece.bytes()).with_context(|| format!("{place}: cannot read its kernels"))?;
    let Some(names) = names else {
        // If the kernels of the old image cannot be listed either, there is nothing to compare.
        if listed(old).is_none() {
            return Ok(());
        }
        let format = old.format;
        bail!(
            "{place}: cannot list its kernels, but image {} ({}, {format}) has {}; pass --force to use the file anyway",
            old.index,
            name(old),
            shown_name(first)
        );
    };
    let missing: Vec<&&str> = needed
        .iter()
        .filter(|kernel| !names.contains(**kernel))
        .collect();
    let Some(kernel) = missing.first() else {
        return Ok(());
    };
    let more = match missing.len() - 1 {
        0 => String::new(),
        1 => " and 1 more".to_owned(),
        more => format!(" and {more} more"),
    };
    bail!(
        "{place}: lacks kernel `{}`{more}, which the host code needs from image {} ({}); pass --force to use the file anyway",
        shown_name(kernel),
        old.index,
        name(old)
    )
}

/// The kernels that the host code needs from the image with this number: the registered ones or, if
/// code registers them or several containers share their table, those of the old image.
fn needed(report: &FileReport, index: usize) -> BTreeSet<&str> {
    let contents = units::contents(report);
    let mut all = contents.iter().flat_map(units::of);
    let Some(unit) = all.find(|unit| unit.images.iter().any(|image| image.index == index)) else {
        return BTreeSet::new();
    };
    let registered: Option<BTreeSet<&str>> = unit
        .kernels
        .as_ref()
        .map(|kernels| kernels.iter().flatten().copied().collect());
    let own = || {
        report
            .images
            .get(index)
            .and_then(listed)
            .unwrap_or_default()
    };
    match registered {
        Some(registered) if !unit.shares_entries && unit.kind != OffloadKind::Sycl => registered,
        Some(registered) => own().intersection(&registered).copied().collect(),
        None => own(),
    }
}
