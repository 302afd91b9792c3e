//! Folders that are inspected: every regular file below them, in the order of their names. A file
//! is one file under all its names: symbolic links are followed, and what was met by another name,
//! also by a hard link, is not met again. A file is called by a name that is no symbolic link, if
//! there is one, and has the others beside it. A link to a folder that is around an inspected one
//! is not followed: everything would be in it (`z:` of Wine is a link to `/`).

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::{DirEntry, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use rayon::prelude::*;

use super::report::FileReport;
use super::selection::{Choice, Selection};
use crate::sys::session::Session;
use crate::sys::threads;

/// A file to be inspected.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    /// Whether it was named; else it was found in a folder, and is of interest only if there is
    /// something in it.
    pub(crate) named: bool,
    /// The other names that it has in inspected folders.
    pub(crate) also: Vec<PathBuf>,
    /// Its size in bytes; 0 where that is known only when it is opened.
    pub(crate) size: u64,
}

impl Found {
    /// Whether `report`, which is on this file, belongs into the whole one.
    pub(crate) fn is_wanted(&self, report: &FileReport) -> bool {
        (self.named && !report.left_out)
            || !report.images.is_empty()
            || !report.registrations.is_empty()
            || !report.errors.is_empty()
    }
}

/// The files among `paths` and in the folders among them, and the folders that cannot be read.
/// After a signal these are not all.
pub(crate) fn expand(paths: &[PathBuf], session: &Session) -> (Vec<Found>, Vec<(PathBuf, Error)>) {
    let mut search = Search {
        groups: paths.iter().map(|_| Vec::new()).collect(),
        ..Search::default()
    };
    let mut folders = Vec::new();
    for (group, path) in paths.iter().enumerate() {
        let meta = std::fs::metadata(path)
            .ok()
            .filter(|_| path != Path::new("-"));
        match meta {
            Some(meta) if meta.is_dir() => folders.push(Folder {
                group,
                path: path.clone(),
                identity: identity(&meta),
            }),
            meta => search.groups[group].push(Name {
                path: path.clone(),
                how: How::Named,
                file: meta.as_ref().map(file_of),
            }),
        }
    }
    threads::in_parallel(|| {
        while !folders.is_empty() && session.signals.check().is_ok() {
            search.through(std::mem::take(&mut folders), session);
            folders = search.links();
        }
    });
    for group in &mut search.groups {
        group.sort_by(|one, other| one.path.cmp(&other.path));
    }
    (
        once(search.groups.into_iter().flatten().collect()),
        search.faults,
    )
}

/// The same, without the files that `selection` excludes: these are not even opened.
pub(crate) fn selected(
    paths: &[PathBuf],
    selection: &Selection,
    session: &Session,
) -> (Vec<Found>, Vec<(PathBuf, Error)>) {
    let (mut found, faults) = expand(paths, session);
    found.retain(|found| {
        found.path == Path::new("-") || selection.of(&found.path, None) != Choice::Excluded
    });
    (found, faults)
}

/// What tells a file or folder from every other: its device, and its number there.
type Identity = (u64, u64);

fn identity(meta: &Metadata) -> Identity {
    (meta.dev(), meta.ino())
}

/// What tells a file from others, and its size.
fn file_of(meta: &Metadata) -> (Identity, u64) {
    (identity(meta), if meta.is_file() { meta.len() } else { 0 })
}

/// A name of a file.
struct Name {
    path: PathBuf,
    how: How,
    /// None where there is no such file, and for stdin.
    file: Option<(Identity, u64)>,
}

/// How a name was met: the first of these is the one that a file is called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Named,
    InFolder,
    ByLink,
}

/// Each file once, by the best of its names; those that were named, as often as they were.
fn once(names: Vec<Name>) -> Vec<Found> {
    let mut best: HashMap<Identity, usize> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        if let Some((identity, _)) = name.file {
            let place = best.entry(identity).or_insert(at);
            if name.how < names[*place].how {
                *place = at;
            }
        }
    }
    let mut also: HashMap<usize, Vec<PathBuf>> = HashMap::new();
    let mut found = Vec::new();
    for (at, Name { path, how, file }) in names.into_iter().enumerate() {
        let owner = file
            .and_then(|(identity, _)| best.get(&identity).copied())
            .unwrap_or(at);
        if owner == at || how == How::Named {
            let size = file.map_or(0, |(_, size)| size);
            found.push((
                at,
                Found {
                    path,
                    named: how == How::Named,
                    also: Vec::new(),
                    size,
                },
            ));
        } else {
            also.entry(owner).or_default().push(path);
        }
    }
    let with_names = |(at, file)| Found {
        also: also.remove(&at).unwrap_or_default(),
        ..file
    };
    found.into_iter().map(with_names).collect()
}

/// A folder to read.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Folder {
    /// The group that its files belong to.
    group: usize,
    path: PathBuf,
    identity: Identity,
}

#[derive(Default)]
struct Search {
    /// What was found for each path that was named.
    groups: Vec<Vec<Name>>,
    /// Folders that have been read.
    seen: HashSet<Identity>,
    /// Folders around those.
    around: HashSet<Identity>,
    /// Links to folders that have been met: these come when all is read that is no link.
    linked: Vec<Folder>,
    faults: Vec<(PathBuf, Error)>,
}

/// What is in a folder.
enum Entry {
    File(Name),
    Folder(PathBuf, Identity),
    Link(PathBuf, Identity),
}

impl Search {
    /// Reads these folders and those in them, level by level: each level on all threads.
    fn through(&mut self, mut folders: Vec<Folder>, session: &Session) {
        for Folder { path, .. } in &folders {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            let outer = real
                .ancestors()
                .skip(1)
                .filter_map(|folder| std::fs::metadata(folder).ok());
            self.around.extend(outer.map(|meta| identity(&meta)));
        }
        while !folders.is_empty() && session.signals.check().is_ok() {
            folders.retain(|folder| self.seen.insert(folder.identity));
            let read: Vec<(Folder, Result<Vec<Entry>>)> = folders
                .into_par_iter()
                .map(|folder| {
                    let read = entries(&folder.path);
                    (folder, read)
                })
                .collect();
            folders = Vec::new();
            for (Folder { group, path, .. }, read) in read {
                let inner = |path, identity| Folder {
                    group,
                    path,
                    identity,
                };
                match read {
                    Ok(entries) => entries.into_iter().for_each(|entry| match entry {
                        Entry::File(name) => self.groups[group].push(name),
                        Entry::Folder(path, identity) => folders.push(inner(path, identity)),
                        Entry::Link(path, identity) => self.linked.push(inner(path, identity)),
                    }),
                    Err(error) => self.faults.push((path, error)),
                }
            }
        }
    }

    /// The folders that were met by links alone, and are not around others.
    fn links(&mut self) -> Vec<Folder> {
        let mut linked = std::mem::take(&mut self.linked);
        linked.retain(|Folder { identity, .. }| {
            !self.seen.contains(identity) && !self.around.contains(identity)
        });
        linked.sort();
        linked
    }
}

/// The regular files and folders in `folder`, and the links to such.
fn entries(folder: &Path) -> Result<Vec<Entry>> {
    let context = || folder.display().to_string();
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(context)? {
        entries.extend(looked_at(&entry.with_context(context)?).with_context(context)?);
    }
    Ok(entries)
}

fn looked_at(entry: &DirEntry) -> Result<Option<Entry>> {
    let path = entry.path();
    let is_link = entry.file_type()?.is_symlink();
    // What is gone meanwhile, and what a link does not lead to, is nothing to look at.
    let meta = if is_link {
        std::fs::metadata(&path)
    } else {
        entry.metadata()
    };
    let Ok(meta) = meta else { return Ok(None) };
    let how = if is_link { How::ByLink } else { How::InFolder };
    Ok(if meta.is_file() {
        Some(Entry::File(Name {
            path,
            how,
            file: Some(file_of(&meta)),
        }))
    } else if !meta.is_dir() {
        None
    } else if is_link {
        Some(Entry::Link(path, identity(&meta)))
    } else {
        Some(Entry::Folder(path, identity(&meta)))
    })
}
