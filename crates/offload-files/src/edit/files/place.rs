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

/// The files to edit. For a destination directory, creates its subdirectories and copies symlinks.
pub(super) fn subjects(
    files: &[PathBuf],
    options: &Options,
    session: &Session,
) -> Result<Vec<Subject>> {
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
            Ok(vec![Subject {
                path: path.clone(),
                to: Some(to.clone()),
                named: true,
            }])
        }
        To::InPlace => in_place(files, session),
        To::Folder(folder) => {
            let mut subjects = Vec::new();
            for path in files {
                if path.is_dir() {
                    let mut files = Vec::new();
                    tree(path, folder, !options.dry_run, &mut files)?;
                    let found = files.into_iter().map(|(path, place)| Subject {
                        path,
                        to: Some(place),
                        named: false,
                    });
                    subjects.extend(found);
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
            if !options.dry_run {
                fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            }
            Ok(subjects)
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

/// Lists the files below the directory `from`, sorted by name, each with its destination below
/// `to`. With `make`, creates the directories there with the modes of the old ones, and the
/// symlinks.
///
/// # Errors
/// A directory cannot be read, or its destination cannot be created.
pub fn tree(from: &Path, to: &Path, make: bool, files: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
    let entries = entries(from)?;
    let folder = |from: &Path, to: &Path| {
        let context = || from.display().to_string();
        fs::create_dir_all(to).with_context(|| to.display().to_string())?;
        fs::set_permissions(to, fs::metadata(from).with_context(context)?.permissions())
            .with_context(context)
    };
    if make {
        folder(from, to)?;
    }
    for (within, entry) in entries {
        let (path, place) = (from.join(&within), to.join(&within));
        match entry {
            Entry::File => files.push((path, place)),
            Entry::Folder if make => folder(&path, &place)?,
            Entry::Link(target) if make => {
                let _ = fs::remove_file(&place);
                std::os::unix::fs::symlink(target, &place)
                    .with_context(|| place.display().to_string())?;
            }
            Entry::Folder | Entry::Link(_) => {}
        }
    }
    Ok(())
}
