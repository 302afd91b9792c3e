//! Temporary files and directories to remove when the process is ended early. Their owners may be
//! unable to remove them, because their thread waits for a pipe without a reader, or computes for
//! long.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

use crate::sys::threads::lock;

/// Paths of all temporary files and directories of this process.
static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Number of tries to remove a directory in which another thread still creates files.
const TRIES: u32 = 10;
/// Time between two of these tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Registration of a temporary file or directory. It is dropped after that has been removed, or is
/// no longer temporary.
#[derive(Debug)]
pub(super) struct Unfinished(PathBuf);

/// A temporary directory, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Directory {
    directory: TempDir,
    // Dropped after the directory.
    _unfinished: Unfinished,
}

/// Creates and registers a temporary file or directory. After [`remove_all`], this blocks: the
/// process is about to end.
pub(super) fn make<T>(
    make: impl FnOnce() -> io::Result<T>,
    path: impl FnOnce(&T) -> PathBuf,
) -> io::Result<(T, Unfinished)> {
    let mut paths = lock(&PATHS);
    let made = make()?;
    let path = path(&made);
    paths.insert(path.clone());
    Ok((made, Unfinished(path)))
}

/// Removes all registered files and directories, just before the process ends. A thread that
/// creates or removes one blocks until that end.
pub(super) fn remove_all() {
    let paths = lock(&PATHS);
    for path in paths.iter() {
        for _ in 0..TRIES {
            let removed = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            match removed {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(PAUSE)
                }
                // Also if another process has removed it.
                _ => break,
            }
        }
    }
    std::mem::forget(paths);
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        lock(&PATHS).remove(&self.0);
    }
}

impl Directory {
    /// Creates a temporary directory in `parent` with `builder`.
    pub(crate) fn new_in(
        parent: &Path,
        builder: &tempfile::Builder<'_, '_>,
    ) -> io::Result<Directory> {
        let (directory, unfinished) =
            make(|| builder.tempdir_in(parent), |made| made.path().to_owned())?;
        Ok(Directory {
            directory,
            _unfinished: unfinished,
        })
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.directory.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_registered_as_long_as_it_exists() {
        let parent = tempfile::tempdir().unwrap();
        let directory =
            Directory::new_in(parent.path(), tempfile::Builder::new().prefix("x-")).unwrap();
        let path = directory.to_path_buf();
        assert!(path.is_dir() && lock(&PATHS).contains(&path));
        drop(directory);
        assert!(!path.exists() && !lock(&PATHS).contains(&path));
        let nowhere = parent.path().join("none");
        assert!(Directory::new_in(&nowhere, &tempfile::Builder::new()).is_err());
        assert!(
            !lock(&PATHS)
                .iter()
                .any(|path| path.starts_with(parent.path()))
        );
    }
}
