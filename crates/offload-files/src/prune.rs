//! Removes the device images from files that patterns do not keep.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::contents::report::{Image, Step};
use crate::edit::Verdict;
use crate::edit::files::{Change, Options, change};
use offld_system::session::Session;
use offload_formats::model::OffloadKinds;
use offload_formats::target::{Selector, Target};

/// The patterns of the images to keep and drop. An image stays if a `keep` pattern selects it, or
/// there is none, and no `drop` pattern selects it. Host entries, bitcode libraries and images in
/// data sections always stay. So do cubins without code if their fatbinary would lose all of its
/// images.
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

/// If images of the file cannot be removed, adds a hint to the error: how to keep these images and
/// prune the rest of the file.
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
