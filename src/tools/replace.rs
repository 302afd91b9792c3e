//! Images of a file get other contents: what another compiler, or a tool that works on device code, has made.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::contents::report::{FileReport, Image};
use crate::contents::{self, Reader};
use crate::edit::Verdict;
use crate::edit::files::{Change, Options, change};
use crate::io::piece::Piece;
use crate::sys::session::Session;
use crate::target::Target;

/// A new image.
#[derive(Debug, Clone)]
pub(crate) struct NewImage {
    /// The number of the image that it replaces, as `inspect` has it.
    pub index: usize,
    /// The file with its bytes.
    pub path: PathBuf,
}

/// Puts the images into the file `path`.
///
/// # Errors
/// An image cannot be read, or there is no image of its number. What is wrong with the file is in its change.
pub(crate) fn replace(path: &Path, images: &[NewImage], options: &Options, session: &Session) -> Result<Vec<Change>> {
    let mut opened = Vec::new();
    for (number, image) in images.iter().enumerate() {
        if images.iter().take(number).any(|other| other.index == image.index) {
            bail!("--image {} is given twice", image.index);
        }
        let piece = Piece::try_open(&image.path).with_context(|| image.path.display().to_string())?;
        opened.push((image, piece));
    }
    let decide = |report: &FileReport| {
        let mut verdicts = vec![Verdict::Keep; report.images.len()];
        for (new, piece) in &opened {
            let count = report.images.len();
            let old = report.images.get(new.index).zip(verdicts.get_mut(new.index));
            let (old, verdict) =
                old.with_context(|| format!("{}: there is no image {}: it has {count}", path.display(), new.index))?;
            if !options.force {
                check(old, new, piece, session)?;
            }
            *verdict = Verdict::Replace(piece.clone());
        }
        Ok(verdicts)
    };
    change(std::slice::from_ref(&path.to_path_buf()), options, session, &decide)
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
