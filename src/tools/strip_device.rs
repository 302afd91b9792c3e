//! Debug information of device code leaves a file: that of AMD's and NVIDIA's images, and of those
//! for CPUs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rayon::prelude::*;

use crate::contents::report::{Image, Step};
use crate::edit::Verdict;
use crate::edit::files::{Change, Options, change};
use crate::formats::compose::Part;
use crate::formats::elf::strip::strip_debug;
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::rope::Rope;
use crate::sys::session::Session;

/// Into how many parts the images of a file are put, which are gone through at the same time.
const PARTS: usize = 16;

/// Takes debug information out of the ELF images of the files. Images of other formats stay as they
/// are, and so do those that are in other images.
///
/// # Errors
/// The places of the new files cannot be, or a signal. What is wrong with one file is in its
/// change.
pub(crate) fn strip_device(
    files: &[PathBuf],
    options: &Options,
    session: &Session,
) -> Result<Vec<Change>> {
    let options = Options {
        image_bytes: true,
        ..options.clone()
    };
    let decide = |_: &Path, images: &[Image]| {
        // A wheel has all of its images here. Each part has a temporary file, of which there must
        // not be too many.
        let size = images.len().div_ceil(PARTS).max(1);
        let strip = |(image, is_embedded): (&Image, bool), spool: &mut Spool| {
            session.signals.check()?;
            let stripped = if is_embedded {
                None
            } else {
                stripped(image, spool)?
            };
            Ok(stripped.map_or(Verdict::Keep, Verdict::Replace))
        };
        let embedded = embedded(images);
        let parts =
            images
                .par_chunks(size)
                .zip(embedded.par_chunks(size))
                .map(|(images, embedded)| {
                    let mut spool = Spool::new(session);
                    images
                        .iter()
                        .zip(embedded.iter().copied())
                        .map(|each| strip(each, &mut spool))
                        .collect()
                });
        let parts: Vec<Vec<Verdict>> = parts.collect::<Result<_>>()?;
        Ok(parts.into_iter().flatten().collect())
    };
    change(files, &options, session, &decide)
}

/// Of each image, whether it is in the one before it that is in none.
fn embedded(images: &[Image]) -> Vec<bool> {
    let mut outer: Option<&Image> = None;
    let mut all = Vec::with_capacity(images.len());
    for image in images {
        let is_in = |outer: &&Image| {
            outer.members == image.members
                && image.path.len() > outer.path.len()
                && image.path.starts_with(&outer.path)
        };
        let is_embedded = outer.as_ref().is_some_and(is_in);
        outer = if is_embedded { outer } else { Some(image) };
        all.push(is_embedded);
    }
    all
}

/// The image without debug information; none where it has none, or is no ELF file, or is a
/// compressed file of its own, which its runtime has to find as it is.
fn stripped(image: &Image, spool: &mut Spool) -> Result<Option<FileSlice>> {
    let is_frame = image
        .path
        .iter()
        .any(|step| matches!(step, Step::Container { name: "zstd", .. }));
    if !image.is_device() || is_frame || !matches!(image.format, "elf" | "cubin") {
        return Ok(None);
    }
    let Some(piece) = &image.piece else {
        return Ok(None);
    };
    let parts = strip_debug(piece.bytes()).with_context(|| format!("image {}", image.index))?;
    piece.release();
    if let [Part::Old(range)] = parts.as_slice()
        && *range == (0..piece.size())
    {
        return Ok(None);
    }
    let rope =
        Rope::of_parts(piece, parts, []).with_context(|| format!("image {}", image.index))?;
    Ok(Some(rope.into_piece(spool)?))
}
