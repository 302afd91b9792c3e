//! Images of a file get other contents: what another compiler, or a tool that works on device code, has made.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::contents::report::Image;
use crate::contents::{self, Reader};
use crate::edit::Verdict;
use crate::edit::files::{Change, Options, To, change};
use crate::io::piece::Piece;
use crate::sys::session::Session;
use crate::target::Target;

/// A new image.
#[derive(Debug, Clone)]
pub(crate) struct NewImage {
    /// Which file of a folder the image that it replaces is in: its path, or its path below the folder.
    pub file: Option<PathBuf>,
    /// The number of the image that it replaces, as `inspect` has it for the file.
    pub index: usize,
    /// The file with its bytes.
    pub path: PathBuf,
}

/// A new image that has been opened.
struct Opened<'i> {
    new: &'i NewImage,
    piece: Piece,
    /// The file that it goes into.
    file: PathBuf,
}

/// Puts the images into the file `path`, or into files of the folder `path`.
///
/// # Errors
/// An image cannot be read, is given twice, or belongs to a file that is not there. What is wrong with a file, such as that it has no
/// image of a number, is in its change.
pub(crate) fn replace(path: &Path, images: &[NewImage], options: &Options, session: &Session) -> Result<Vec<Change>> {
    let is_folder = path.is_dir();
    let mut opened: Vec<Opened<'_>> = Vec::new();
    for new in images {
        let file = if is_folder { file_below(path, new, options)? } else { file_itself(path, new)? };
        if opened.iter().any(|other| other.new.index == new.index && other.file == file) {
            let of = new.file.as_ref().map(|file| format!("{}:", file.display())).unwrap_or_default();
            bail!("--image {of}{} is given twice", new.index);
        }
        let piece = Piece::try_open(&new.path).with_context(|| new.path.display().to_string())?;
        opened.push(Opened { new, piece, file });
    }
    let decide = |file: &Path, images: &[Image]| {
        let real = if is_folder { real(file)? } else { path.to_owned() };
        let mut verdicts = vec![Verdict::Keep; images.len()];
        for Opened { new, piece, .. } in opened.iter().filter(|one| one.file == real) {
            let count = images.len();
            let old = images.get(new.index).zip(verdicts.get_mut(new.index));
            let (old, verdict) =
                old.with_context(|| format!("{}: there is no image {}: it has {count}", file.display(), new.index))?;
            if !options.force {
                check(old, new, piece, session)?;
            }
            *verdict = Verdict::Replace(piece.clone());
        }
        Ok(verdicts)
    };
    // In place, no other file of a folder is of interest.
    let mut files = vec![path.to_owned()];
    if is_folder && options.to == To::InPlace {
        files = opened.iter().map(|one| one.file.clone()).collect();
        files.sort();
        files.dedup();
    }
    change(&files, options, session, &decide)
}

/// The file of the folder that a new image goes into.
fn file_below(folder: &Path, new: &NewImage, options: &Options) -> Result<PathBuf> {
    let place = folder.display();
    let number = new.index;
    let named = new.file.as_ref().with_context(|| {
        format!(
            "{place}: is a folder, and image {number} may be one of any file in it: --image FILE:{number}=IMAGE says of which"
        )
    })?;
    let found = [folder.join(named), named.clone()].into_iter().find(|file| file.is_file());
    let file = real(&found.with_context(|| format!("{}: there is no such file in {place}", named.display()))?)?;
    // Of a folder that is copied, links are links again.
    if options.to != To::InPlace && !file.starts_with(real(folder)?) {
        bail!("{}: is not in {place}, so that it does not go to the folder of -d", named.display());
    }
    Ok(file)
}

/// The file that is given, which a new image may name once more.
fn file_itself(path: &Path, new: &NewImage) -> Result<PathBuf> {
    let is_other = |file: &PathBuf| !matches!((real(file), real(path)), (Ok(one), Ok(other)) if one == other);
    if let Some(file) = new.file.as_ref().filter(|file| is_other(file)) {
        let path = path.display();
        bail!("{}: is not {path}: number the images of that as `offld inspect {path}` does", file.display());
    }
    Ok(path.to_owned())
}

/// The path without links.
fn real(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| path.display().to_string())
}

/// That an image may be in the place of another one: it is of the same format and, where its bytes tell, for the same device.
fn check(old: &Image, new: &NewImage, piece: &Piece, session: &Session) -> Result<()> {
    let reading = contents::Options { headers_only: true, ..contents::Options::default() };
    let report = Reader::new(reading, session).opened(&new.path, piece.clone());
    let place = new.path.display();
    let Some(found) = report.images.first().filter(|_| report.images.len() == 1 && report.errors.is_empty()) else {
        // Host objects and code without a header of its own say nothing of a device.
        return if old.format == "unread" || report.kind.starts_with("elf") || report.kind == "unknown" {
            Ok(())
        } else {
            bail!("{place}: is no single image but {} (--force takes it all the same)", report.kind)
        };
    };
    let same_format = found.format == old.format || old.format == "unread" || old.format == "empty";
    if !same_format {
        bail!("{place}: is {}, and image {} is {} (--force takes it all the same)", found.format, old.index, old.format);
    }
    let (is, was) = (Target::new(&found.triple, &found.target), Target::new(&old.triple, &old.target));
    let known = !found.target.is_empty() && !old.target.is_empty();
    if known && !is.serves(&was) && !was.serves(&is) {
        bail!("{place}: is for {}, and image {} is for {} (--force takes it all the same)", found.target, old.index, old.target);
    }
    Ok(())
}
