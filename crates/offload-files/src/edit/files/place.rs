//! Destinations of new files: in place of the old ones, at a given path, or below a directory.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::Options;
use crate::contents::bytes_of::sha256;
use crate::contents::folders;
use offld_system::atomic_file;
use offld_system::io::file_slice::FileSlice;
use offld_system::io::output_directory::OutputDirectory;
use offld_system::io::outputs::Output;
use offld_system::session::Session;

/// The destination of new files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// The paths of the old files.
    InPlace,
    /// This path, for a single file. `-` is stdout.
    File(PathBuf),
    /// Below this directory, with the old names. Directories are copied with all files, changed or
    /// not.
    Folder(PathBuf),
}

/// A file to be edited.
pub(super) struct Subject {
    pub(super) path: PathBuf,
    /// The path of the new file, if it differs.
    pub(super) to: Option<PathBuf>,
    /// Whether the file was given by name; otherwise it was found in a directory.
    pub(super) named: bool,
}

impl Subject {
    /// Checks that a file to be replaced has only one hard link.
    ///
    /// # Errors
    /// It has several; the others would keep the old contents.
    pub(super) fn check_links(&self) -> Result<()> {
        let links = fs::metadata(&self.path).map_or(1, |meta| meta.nlink());
        if self.to.is_none() && links > 1 {
            let path = self.path.display();
            bail!(
                "{path}: the file has {links} hard links, and the others would not change; pass --force to change only this one"
            );
        }
        Ok(())
    }

    /// Copies the attributes of the old file to the new one.
    pub(super) fn keep_attributes(&self, output: &Output) -> Result<()> {
        if self.path == Path::new("-") || self.to.as_deref() == Some(Path::new("-")) {
            return Ok(());
        }
        let from = File::open(&self.path).with_context(|| self.path.display().to_string())?;
        if from.metadata()?.is_file() {
            atomic_file::copy_attributes(&from, output.file())?;
        }
        Ok(())
    }
}

/// The SHA-256 of the bytes written to `output`.
pub(super) fn digest(output: &Output) -> Result<String> {
    Ok(sha256(&written(output)?)?)
}

/// The bytes written to `output`.
pub(super) fn written(output: &Output) -> Result<FileSlice> {
    Ok(FileSlice::try_open(&PathBuf::from(format!(
        "/proc/self/fd/{}",
        output.file().as_raw_fd()
    )))?)
}

/// The files to edit, and the destination directory, if there is one, with its subdirectories and
/// symlinks.
pub(super) fn subjects(
    files: &[PathBuf],
    options: &Options,
    session: &Session,
) -> Result<(Vec<Subject>, Option<OutputDirectory>)> {
    match &options.to {
        To::File(to) => {
            let [path] = files else {
                bail!("-o takes a single input file: for several, pass -d DIR or --in-place")
            };
            if path.is_dir() {
                bail!(
                    "{}: -o takes a file, not a directory: for directories, pass -d DIR",
                    path.display()
                );
            }
            let subject = Subject {
                path: path.clone(),
                to: Some(to.clone()),
                named: true,
            };
            Ok((vec![subject], None))
        }
        To::InPlace => Ok((in_place(files, session)?, None)),
        To::Folder(folder) => {
            let (mut subjects, mut trees) = (Vec::new(), Tree::default());
            for path in files {
                if path.is_dir() {
                    let tree = Tree::list(path, folder)?;
                    let found = tree.files.iter().map(|(path, place)| Subject {
                        path: path.clone(),
                        to: Some(place.clone()),
                        named: false,
                    });
                    subjects.extend(found);
                    trees.extend(tree);
                } else {
                    let name = path.file_name().with_context(|| {
                        format!("{}: the path has no file name for -d", path.display())
                    })?;
                    subjects.push(Subject {
                        path: path.clone(),
                        to: Some(folder.join(name)),
                        named: true,
                    });
                }
            }
            check_once(&subjects)?;
            if options.dry_run {
                return Ok((subjects, None));
            }
            let directory = OutputDirectory::new(folder, session)?;
            trees.make(&directory)?;
            Ok((subjects, Some(directory)))
        }
    }
}

fn in_place(files: &[PathBuf], session: &Session) -> Result<Vec<Subject>> {
    if files.iter().any(|path| path == Path::new("-")) {
        bail!("cannot change stdin in place: pass -o OUT");
    }
    let (found, faults) = folders::expand(files, session);
    if let Some((path, error)) = faults.into_iter().next() {
        return Err(error.context(path.display().to_string()));
    }
    Ok(found
        .into_iter()
        .map(|found| Subject {
            path: found.path,
            to: None,
            named: found.named,
        })
        .collect())
}

/// Checks that no two files have the same destination.
fn check_once(subjects: &[Subject]) -> Result<()> {
    let mut places = std::collections::HashMap::new();
    for subject in subjects {
        if let Some(other) = places.insert(&subject.to, &subject.path) {
            bail!(
                "{} and {} have the same name, so -d cannot write both",
                other.display(),
                subject.path.display()
            );
        }
    }
    Ok(())
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Folder,
    /// A regular file.
    File,
    /// A symlink, with its target.
    Link(PathBuf),
}

/// All entries below the directory `from`, with their relative paths, sorted by name; a directory
/// precedes its entries. Sockets, pipes and devices are left out.
///
/// # Errors
/// A directory or symlink cannot be read.
pub fn entries(from: &Path) -> Result<Vec<(PathBuf, Entry)>> {
    let mut found = Vec::new();
    entries_below(from, Path::new(""), &mut found)?;
    Ok(found)
}

fn entries_below(from: &Path, within: &Path, found: &mut Vec<(PathBuf, Entry)>) -> Result<()> {
    let folder = from.join(within);
    let read = fs::read_dir(&folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let mut entries = read.with_context(|| folder.display().to_string())?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, within) = (entry.path(), within.join(entry.file_name()));
        let kind = entry
            .file_type()
            .with_context(|| path.display().to_string())?;
        if kind.is_dir() {
            found.push((within.clone(), Entry::Folder));
            entries_below(from, &within, found)?;
        } else if kind.is_symlink() {
            found.push((
                within,
                Entry::Link(fs::read_link(&path).with_context(|| path.display().to_string())?),
            ));
        } else if kind.is_file() {
            found.push((within, Entry::File));
        }
    }
    Ok(())
}

/// The contents of a directory, with their places in another one.
#[derive(Debug, Default)]
pub struct Tree {
    /// The new directories and symlinks. A directory precedes its entries.
    pub made: Vec<(PathBuf, Made)>,
    /// The regular files, each with its new path, sorted by name.
    pub files: Vec<(PathBuf, PathBuf)>,
}

/// A directory or a symlink of a new tree.
#[derive(Debug)]
pub enum Made {
    /// A directory with the mode of this one.
    DirectoryLike(PathBuf),
    /// A symlink to this target.
    Link(PathBuf),
}

impl Tree {
    /// Lists the contents of the directory `from`, with their places below `to`.
    ///
    /// # Errors
    /// A directory or symlink cannot be read.
    pub fn list(from: &Path, to: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        let top = Made::DirectoryLike(from.to_owned());
        tree.made.push((to.to_owned(), top));
        for (within, entry) in entries(from)? {
            let (path, place) = (from.join(&within), to.join(&within));
            match entry {
                Entry::File => tree.files.push((path, place)),
                Entry::Folder => tree.made.push((place, Made::DirectoryLike(path))),
                Entry::Link(target) => tree.made.push((place, Made::Link(target))),
            }
        }
        Ok(tree)
    }

    /// Adds the contents of another directory.
    pub fn extend(&mut self, other: Tree) {
        self.made.extend(other.made);
        self.files.extend(other.files);
    }

    /// Creates the directories, with the modes of the old ones, and the symlinks.
    ///
    /// # Errors
    /// A directory or a symlink cannot be created.
    pub fn make(&self, directory: &OutputDirectory) -> Result<()> {
        for (place, made) in &self.made {
            let current = directory.current(place);
            match made {
                Made::DirectoryLike(from) => {
                    directory.create_dir_all(place)?;
                    let mode = fs::metadata(from).map(|meta| meta.permissions());
                    mode.and_then(|mode| fs::set_permissions(current, mode))
                        .with_context(|| from.display().to_string())?;
                }
                Made::Link(target) => {
                    let _ = fs::remove_file(&current);
                    std::os::unix::fs::symlink(target, &current)
                        .with_context(|| place.display().to_string())?;
                }
            }
        }
        Ok(())
    }
}
