//! Merges files: a host half with the parts that `split` wrote for one file (`parts`), or whole
//! builds that were compiled for different devices, as single files (`builds`), wheels (`wheels`)
//! or directories (here).

pub mod builds;
pub mod parts;
mod wheels;

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rayon::prelude::*;

use crate::edit::files::{Entry, Tree, copy_checked, copy_with_attributes, entries};
use builds::{Merged, Outcome};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::output_directory::OutputDirectory;
use offld_system::progress::Meter;
use offld_system::session::Session;
use offld_system::threads;
use offload_formats::error;
use offload_formats::model::{printable, printable_name};

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
    builds::merge(&files, &mut Spool::new(session), session).map(Some)
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
