//! Makes the device code in files smaller: removes the images that patterns do not keep, or strips
//! debug information from AMD and NVIDIA images and from images for CPUs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

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
use offload_formats::model::OffloadKinds;
use offload_formats::target::{Selector, Target};

/// The patterns of the images to keep and drop. Usually one of the lists is empty; an image stays
/// if a `keep` pattern selects it and no `drop` pattern does.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    /// If not empty, only images that one of these patterns selects stay.
    pub keep: Vec<Selector>,
    /// Images that one of these patterns selects are removed.
    pub drop: Vec<Selector>,
}

/// The result of a prune.
#[derive(Debug)]
pub struct Pruned {
    /// The files.
    pub changes: Vec<Change>,
    /// The patterns that selected no image in any file.
    pub unused: Vec<String>,
}

/// Extends an error about images that cannot be removed by a way to prune the rest of the file.
fn add_remedy(change: &mut Change, patterns: &Patterns) {
    let Some(fixed) = &change.fixed else { return };
    let kinds: Vec<String> = fixed.kinds.iter().map(|kind| format!("{kind}:*")).collect();
    let remedy = match kinds.join(",") {
        kinds if !patterns.keep.is_empty() && patterns.drop.is_empty() && !kinds.is_empty() => {
            format!("add {kinds} to --keep")
        }
        _ => "pass --exclude with the name of the file or member".to_owned(),
    };
    let (images, place, why) = (fixed.images(), &fixed.place, &fixed.why);
    change.error = Some(format!(
        "cannot remove {images} from {place}: {why}; to leave them in, {remedy}"
    ));
}

/// Keeps the images of fatbinaries that would lose all of them, if none has code: a fatbinary needs
/// an image, and code for no device is missing without them.
fn keep_void(images: &[Image], verdicts: &mut [Verdict]) {
    let mut used: HashSet<&[Step]> = HashSet::new();
    for (image, verdict) in images.iter().zip(&*verdicts) {
        if verdict.is_keep() || !image.is_void {
            used.insert(&image.path);
        }
    }
    for (image, verdict) in images.iter().zip(verdicts) {
        if image.is_void && !used.contains(image.path.as_slice()) {
            *verdict = Verdict::Keep;
        }
    }
}

/// Removes the images from `files` that `patterns` do not keep. An error in a file is in its
/// change.
///
/// # Errors
/// The destinations are invalid, or a signal arrives.
pub fn prune(
    files: &[PathBuf],
    patterns: &Patterns,
    options: &Options,
    session: &Session,
) -> Result<Pruned> {
    let all: Vec<&Selector> = patterns.keep.iter().chain(&patterns.drop).collect();
    let used: Vec<AtomicBool> = all.iter().map(|_| AtomicBool::new(false)).collect();
    let selects = |first: usize, selectors: &[Selector], image: &Image| {
        let kinds = OffloadKinds::from_names(image.kinds.iter().map(String::as_str));
        // PTX for 9.0 is also selected by `compute_90`, its name in reports.
        let names = [image.target.clone(), image.arch()];
        let targets = names.map(|name| Target::new(&image.triple, &name));
        let mut any = false;
        for (selector, used) in selectors.iter().zip(used.iter().skip(first)) {
            let selects = |target| selector.selects(kinds, target);
            if targets.iter().any(selects) {
                used.store(true, Ordering::Relaxed);
                any = true;
            }
        }
        any
    };
    let verdict = |image: &Image| {
        let kept = selects(0, &patterns.keep, image) || patterns.keep.is_empty();
        let dropped = selects(patterns.keep.len(), &patterns.drop, image);
        // Host code, and entries without bytes or a name, are not device images. A bitcode library
        // is an input of compilers, and only the program itself uses images in its data.
        let is_library =
            image.format == "bitcode" && image.container.is_none() && image.section.is_none();
        let stays = !image.is_device()
            || (image.triple.is_empty() && image.target.is_empty())
            || is_library
            || image.in_data;
        if (kept && !dropped) || stays {
            Verdict::Keep
        } else {
            Verdict::Drop
        }
    };
    let decide = |_: &Path, images: &[Image]| {
        let mut verdicts: Vec<Verdict> = images.iter().map(verdict).collect();
        keep_void(images, &mut verdicts);
        Ok(verdicts)
    };
    let mut changes = change(files, options, session, &decide)?;
    changes
        .iter_mut()
        .for_each(|change| add_remedy(change, patterns));
    let unused = all
        .iter()
        .zip(&used)
        .filter(|(_, used)| !used.load(Ordering::Relaxed));
    Ok(Pruned {
        changes,
        unused: unused.map(|(selector, _)| selector.to_string()).collect(),
    })
}

// Debug information.

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
