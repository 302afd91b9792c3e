//! Search for the files to inspect in directories: every regular file below them, in the order of
//! their names. A file is listed once with all its names: symbolic links are followed, and a second
//! name, also a hard link, adds no second file. The main name of a file is not a symbolic link if
//! it has another name. A link to a directory that contains an inspected directory is not followed,
//! because it would include everything (`z:` of Wine is a link to `/`).

use std::collections::{HashMap, HashSet};
use std::fs::{DirEntry, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use rayon::prelude::*;

use super::report::{FileReport, Image};
use super::selection::{Choice, Selection};
use super::{external, packs};
use offld_system::session::Session;
use offld_system::threads;

/// A file to be inspected.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    /// Whether the caller named it. Otherwise it was found in a directory, and is reported only if
    /// the report has content.
    pub(crate) named: bool,
    /// Its other names in the inspected directories.
    pub(crate) also: Vec<PathBuf>,
    /// Its size in bytes; 0 if the size is known only after opening.
    pub(crate) size: u64,
}

impl Found {
    /// Whether `report`, the report on this file, is part of the output.
    pub(crate) fn is_wanted(&self, report: &FileReport) -> bool {
        (self.named && !report.left_out)
            || report.images.iter().any(Image::is_device)
            || !report.registrations.is_empty()
            || !report.kpack.is_empty()
            || !report.errors.is_empty()
    }
}

/// The files among `paths` and in the directories among them, and the unreadable directories.
/// Incomplete after a signal.
pub(crate) fn expand(paths: &[PathBuf], session: &Session) -> (Vec<Found>, Vec<(PathBuf, Error)>) {
    let mut search = Search {
        groups: paths.iter().map(|_| Vec::new()).collect(),
        ..Search::default()
    };
    let mut directories = Vec::new();
    for (group, path) in paths.iter().enumerate() {
        let meta = std::fs::metadata(path)
            .ok()
            .filter(|_| path != Path::new("-"));
        match meta {
            Some(meta) if meta.is_dir() => directories.push(Directory {
                group,
                path: path.clone(),
                identity: identity(&meta),
            }),
            meta => search.groups[group].push(Name {
                path: path.clone(),
                origin: Origin::Named,
                file: meta.as_ref().map(file_of),
            }),
        }
    }
    threads::in_parallel(|| {
        while !directories.is_empty() && session.signals.check().is_ok() {
            search.read_levels(std::mem::take(&mut directories), session);
            directories = search.links();
        }
    });
    for group in &mut search.groups {
        group.sort_by(|one, other| one.path.cmp(&other.path));
    }
    (
        merge_names(search.groups.into_iter().flatten().collect()),
        search.faults,
    )
}

/// The same as [`expand`], without the files that `selection` excludes: these are not even opened.
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

/// Adds the kpack archives and the external images of the named files, unless they are there already.
pub(crate) fn with_packs(found: &mut Vec<Found>) {
    let mut known: HashSet<PathBuf> = found
        .iter()
        .filter_map(|found| found.path.canonicalize().ok())
        .collect();
    let named = found
        .iter()
        .filter(|found| found.named && found.path != Path::new("-"));
    let packs: Vec<PathBuf> = named
        .flat_map(|found| {
            let archives = packs::archives_of(&found.path);
            archives.into_iter().chain(external::files_of(&found.path))
        })
        .collect();
    for path in packs {
        let is_new = path.canonicalize().is_ok_and(|real| known.insert(real));
        let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        if is_new {
            found.push(Found {
                path,
                named: true,
                also: Vec::new(),
                size,
            });
        }
    }
}

/// The identity of a file or directory: its device and inode number.
type Identity = (u64, u64);

fn identity(meta: &Metadata) -> Identity {
    (meta.dev(), meta.ino())
}

/// The identity and size of a file.
fn file_of(meta: &Metadata) -> (Identity, u64) {
    (identity(meta), if meta.is_file() { meta.len() } else { 0 })
}

/// A name of a file.
struct Name {
    path: PathBuf,
    origin: Origin,
    /// None if there is no such file, and for standard input.
    file: Option<(Identity, u64)>,
}

/// The origin of a name. A file's main name has the first of these origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Named,
    InDirectory,
    ByLink,
}

/// Each file once, by its best name. Files that the caller named are repeated as often as they were
/// named.
fn merge_names(names: Vec<Name>) -> Vec<Found> {
    let mut best: HashMap<Identity, usize> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        if let Some((identity, _)) = name.file {
            let place = best.entry(identity).or_insert(at);
            if name.origin < names[*place].origin {
                *place = at;
            }
        }
    }
    let mut also: HashMap<usize, Vec<PathBuf>> = HashMap::new();
    let mut found = Vec::new();
    for (at, Name { path, origin, file }) in names.into_iter().enumerate() {
        let owner = file
            .and_then(|(identity, _)| best.get(&identity).copied())
            .unwrap_or(at);
        if owner == at || origin == Origin::Named {
            let size = file.map_or(0, |(_, size)| size);
            found.push((
                at,
                Found {
                    path,
                    named: origin == Origin::Named,
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

/// A directory to read.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Directory {
    /// The group that its files belong to.
    group: usize,
    path: PathBuf,
    identity: Identity,
}

#[derive(Default)]
struct Search {
    /// The names for each path of the caller.
    groups: Vec<Vec<Name>>,
    /// Directories that have been read.
    seen: HashSet<Identity>,
    /// Directories that contain directories in `seen`.
    around: HashSet<Identity>,
    /// Links to directories. They are read after everything else.
    linked: Vec<Directory>,
    faults: Vec<(PathBuf, Error)>,
}

/// An entry of a directory.
enum Entry {
    File(Name),
    Directory(PathBuf, Identity),
    Link(PathBuf, Identity),
}

impl Search {
    /// Reads these directories and their subdirectories, level by level: each level on all threads.
    fn read_levels(&mut self, mut directories: Vec<Directory>, session: &Session) {
        for Directory { path, .. } in &directories {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            let outer = real
                .ancestors()
                .skip(1)
                .filter_map(|directory| std::fs::metadata(directory).ok());
            self.around.extend(outer.map(|meta| identity(&meta)));
        }
        while !directories.is_empty() && session.signals.check().is_ok() {
            directories.retain(|directory| self.seen.insert(directory.identity));
            let read: Vec<(Directory, Result<Vec<Entry>>)> = directories
                .into_par_iter()
                .map(|directory| {
                    let read = entries(&directory.path);
                    (directory, read)
                })
                .collect();
            directories = Vec::new();
            for (Directory { group, path, .. }, read) in read {
                let inner = |path, identity| Directory {
                    group,
                    path,
                    identity,
                };
                match read {
                    Ok(entries) => entries.into_iter().for_each(|entry| match entry {
                        Entry::File(name) => self.groups[group].push(name),
                        Entry::Directory(path, identity) => directories.push(inner(path, identity)),
                        Entry::Link(path, identity) => self.linked.push(inner(path, identity)),
                    }),
                    Err(error) => self.faults.push((path, error)),
                }
            }
        }
    }

    /// The directories that only links lead to and that do not contain a directory already read.
    fn links(&mut self) -> Vec<Directory> {
        let mut linked = std::mem::take(&mut self.linked);
        linked.retain(|Directory { identity, .. }| {
            !self.seen.contains(identity) && !self.around.contains(identity)
        });
        linked.sort();
        linked
    }
}

/// The regular files and directories in `directory`, including those that links lead to.
fn entries(directory: &Path) -> Result<Vec<Entry>> {
    let context = || directory.display().to_string();
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(context)? {
        entries.extend(entry_of(&entry.with_context(context)?).with_context(context)?);
    }
    Ok(entries)
}

fn entry_of(entry: &DirEntry) -> Result<Option<Entry>> {
    let path = entry.path();
    let is_link = entry.file_type()?.is_symlink();
    // Files that were removed meanwhile and dangling links are skipped.
    let meta = if is_link {
        std::fs::metadata(&path)
    } else {
        entry.metadata()
    };
    let Ok(meta) = meta else { return Ok(None) };
    let origin = if is_link {
        Origin::ByLink
    } else {
        Origin::InDirectory
    };
    Ok(if meta.is_file() {
        Some(Entry::File(Name {
            path,
            origin,
            file: Some(file_of(&meta)),
        }))
    } else if !meta.is_dir() {
        None
    } else if is_link {
        Some(Entry::Link(path, identity(&meta)))
    } else {
        Some(Entry::Directory(path, identity(&meta)))
    })
}

/// Tests with files and directories under several names, and with circular links.
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::*;
    use offld_system::session::SessionOptions;
    use offld_system::shell::Shell;

    /// The files of `paths` in `folder`, each with its other names.
    fn found(folder: &Path, paths: &[&str]) -> Vec<String> {
        let shell = Arc::new(Shell::from_write("test", Box::new(std::io::sink())));
        let session = Session::new(shell, SessionOptions::default());
        let paths: Vec<PathBuf> = paths.iter().map(|path| folder.join(path)).collect();
        let (found, faults) = expand(&paths, &session);
        assert!(faults.is_empty(), "{faults:?}");
        let name = |path: &Path| path.strip_prefix(folder).unwrap().display().to_string();
        let names = |file: &Found| {
            [&file.path]
                .into_iter()
                .chain(&file.also)
                .map(|path| name(path))
                .collect::<Vec<_>>()
        };
        found.iter().map(|file| names(file).join(" = ")).collect()
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            "top/a.txt",
            "top/a/file",
            "top/z/file",
            "out/lib/file",
            "out/other",
        ] {
            std::fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(path), path).unwrap();
        }
        folder
    }

    #[test]
    fn files_are_in_the_order_of_their_names_and_named_ones_as_often_as_they_are() {
        let folder = folder();
        assert_eq!(
            found(folder.path(), &["top"]),
            ["top/a/file", "top/a.txt", "top/z/file"]
        );
        assert_eq!(
            found(folder.path(), &["top/z", "top", "top"]),
            ["top/z/file", "top/a/file", "top/a.txt"]
        );
        assert_eq!(
            found(folder.path(), &["out/other", "out/other", "out"]),
            ["out/other = out/other", "out/other", "out/lib/file"]
        );
        assert_eq!(found(folder.path(), &["none"]), ["none"]);
    }

    #[test]
    fn a_file_is_one_file_under_all_its_names() {
        let folder = folder();
        let top = folder.path().join("top");
        symlink("z/file", top.join("0")).unwrap();
        symlink("../../out/other", top.join("a/link")).unwrap();
        symlink("link", top.join("a/chain")).unwrap();
        symlink("nowhere", top.join("a/dangling")).unwrap();
        std::fs::hard_link(top.join("a.txt"), top.join("z/hard")).unwrap();
        let expected = [
            "top/a/chain = top/a/link",
            "top/a/file",
            "top/a.txt = top/z/hard",
            "top/z/file = top/0",
        ];
        assert_eq!(found(folder.path(), &["top"]), expected);
        // A name without a link takes precedence.
        let all = found(folder.path(), &["top", "out"]);
        assert_eq!(
            all[3..],
            ["out/lib/file", "out/other = top/a/chain = top/a/link"]
        );
    }

    #[test]
    fn links_to_folders_are_followed_once_and_never_upwards() {
        let folder = folder();
        let top = folder.path().join("top");
        symlink("../out/lib", top.join("m")).unwrap();
        symlink("m", top.join("n")).unwrap();
        symlink("a", top.join("b")).unwrap();
        for (link, to) in [
            ("a/self", "."),
            ("a/up", ".."),
            ("a/around", "../.."),
            ("a/root", "/"),
            ("a/loop", "loop"),
        ] {
            symlink(to, top.join(link)).unwrap();
        }
        symlink("../../out", folder.path().join("out/lib/back")).unwrap();
        assert_eq!(
            found(folder.path(), &["top"]),
            ["top/a/file", "top/a.txt", "top/m/file", "top/z/file"]
        );
        // A link in the arguments is followed.
        assert_eq!(found(folder.path(), &["top/m"]), ["top/m/file"]);
    }
}
