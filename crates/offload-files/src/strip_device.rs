//! Strips debug information from the device code in files: from AMD and NVIDIA images, and from
//! images for CPUs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rayon::prelude::*;

use crate::contents::report::{Image, Step};
use crate::edit::Verdict;
use crate::edit::files::{Change, Options, change};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offload_formats::compose::Part;
use offload_formats::elf::strip::strip_debug;

/// Number of parts that the images of a file are divided into, for parallel work.
const PARTS: usize = 16;

/// Strips debug information from the ELF images of the files. Images of other formats and embedded
/// images stay as they are. An error in a file is in its change.
///
/// # Errors
/// The destinations are invalid, or a signal arrives.
pub fn strip_device(
    files: &[PathBuf],
    options: &Options,
    session: &Session,
) -> Result<Vec<Change>> {
    let options = Options {
        image_bytes: true,
        ..options.clone()
    };
    let decide = |_: &Path, images: &[Image]| {
        // `images` has all images of a wheel. Each part needs a temporary file, so the number of
        // parts is limited.
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

/// Marks images nested in the preceding top-level image.
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

/// The image without debug information; `None` if it has none, is not an ELF file, or is a zstd
/// frame, which its runtime expects unchanged.
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
