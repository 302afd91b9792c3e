//! Images of some devices leave a file: which ones stay is told by patterns.

use std::sync::atomic::{AtomicBool, Ordering};

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::contents::report::Image;
use crate::edit::Verdict;
use crate::edit::files::{Change, Options, change};
use crate::model::OffloadKinds;
use crate::sys::session::Session;
use crate::target::{Selector, Target};

/// Which images stay. One of both lists is empty, as a rule; an image must be kept by one pattern
/// and dropped by none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patterns {
    /// With any of these, only what one of them selects stays.
    pub keep: Vec<Selector>,
    /// What one of these selects goes.
    pub drop: Vec<Selector>,
}

/// What was done.
#[derive(Debug)]
pub(crate) struct Pruned {
    /// The files.
    pub changes: Vec<Change>,
    /// The patterns that have selected no image of any file.
    pub unused: Vec<String>,
}

/// Says of images that cannot be removed how the rest of the file can be pruned.
fn way_out(change: &mut Change, patterns: &Patterns) {
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

/// Takes the images out of the files that `patterns` leave out.
///
/// # Errors
/// The places of the new files cannot be, or a signal. What is wrong with one file is in its
/// change.
pub(crate) fn prune(
    files: &[PathBuf],
    patterns: &Patterns,
    options: &Options,
    session: &Session,
) -> Result<Pruned> {
    let all: Vec<&Selector> = patterns.keep.iter().chain(&patterns.drop).collect();
    let used: Vec<AtomicBool> = all.iter().map(|_| AtomicBool::new(false)).collect();
    let selects = |first: usize, selectors: &[Selector], image: &Image| {
        let kinds = OffloadKinds::from_names(image.kinds.iter().map(String::as_str));
        let target = Target::new(&image.triple, &image.target);
        let mut any = false;
        for (selector, used) in selectors.iter().zip(used.iter().skip(first)) {
            if selector.selects(kinds, &target) {
                used.store(true, Ordering::Relaxed);
                any = true;
            }
        }
        any
    };
    let verdict = |image: &Image| {
        let kept = selects(0, &patterns.keep, image) || patterns.keep.is_empty();
        let dropped = selects(patterns.keep.len(), &patterns.drop, image);
        // What belongs to the host, and an entry without bytes or a name, is no image of a device.
        // A library in bitcode is for compilers, and what is in plain data is for nobody but the
        // program.
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
    let decide = |_: &Path, images: &[Image]| Ok(images.iter().map(verdict).collect());
    let mut changes = change(files, options, session, &decide)?;
    changes
        .iter_mut()
        .for_each(|change| way_out(change, patterns));
    let unused = all
        .iter()
        .zip(&used)
        .filter(|(_, used)| !used.load(Ordering::Relaxed));
    Ok(Pruned {
        changes,
        unused: unused.map(|(selector, _)| selector.to_string()).collect(),
    })
}
