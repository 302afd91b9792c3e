//! Folders that are inspected: every regular file below them, in the order of their names. Links are not followed, so nothing is
//! seen twice and nothing outside.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};

use super::report::FileReport;

/// A file to be inspected.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    /// Whether it was named; else it was found in a folder, and is of interest only if there is something in it.
    pub(crate) named: bool,
}

impl Found {
    /// Whether `report`, which is on this file, belongs into the whole one.
    pub(crate) fn is_wanted(&self, report: &FileReport) -> bool {
        self.named || !report.images.is_empty() || !report.registrations.is_empty() || !report.errors.is_empty()
    }
}

/// The files among `paths` and in the folders among them, and the folders that cannot be read.
pub(crate) fn expand(paths: &[PathBuf]) -> (Vec<Found>, Vec<(PathBuf, Error)>) {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for path in paths {
        if path != Path::new("-") && path.is_dir() {
            add_folder(path, &mut found, &mut faults);
        } else {
            found.push(Found { path: path.clone(), named: true });
        }
    }
    (found, faults)
}

fn add_folder(folder: &Path, found: &mut Vec<Found>, faults: &mut Vec<(PathBuf, Error)>) {
    // Not by recursion: folders may be nested deeper than the stack.
    let mut waiting = vec![(folder.to_owned(), true)];
    while let Some((path, is_folder)) = waiting.pop() {
        if !is_folder {
            found.push(Found { path, named: false });
            continue;
        }
        match entries(&path) {
            Ok(entries) => waiting.extend(entries.into_iter().rev()),
            Err(error) => faults.push((path, error)),
        }
    }
}

/// The regular files and folders in `folder`, by name, each with whether it is a folder.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let context = || folder.display().to_string();
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        let kind = entry.file_type().with_context(context)?;
        if kind.is_dir() || kind.is_file() {
            entries.push((entry.path(), kind.is_dir()));
        }
    }
    entries.sort();
    Ok(entries)
}
