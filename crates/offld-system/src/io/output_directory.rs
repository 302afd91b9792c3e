//! A directory of outputs. If nothing exists at its path, the directory appears when it is complete:
//! until then, its files are in a temporary directory next to it. In a directory that exists, new
//! files replace old ones one by one.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};

use crate::atomic_file::{self, Directory, PREFIX};
use crate::io::outputs::{MovedDirectory, Outputs};
use crate::session::Session;
use crate::signals::Signals;

/// Mode of new directories before the umask is applied.
const NEW_DIRECTORY: u32 = 0o777;

/// A directory of outputs. If it is dropped without a commit, a new directory never appears.
#[derive(Debug)]
pub struct OutputDirectory {
    signals: Arc<Signals>,
    /// `None` if the directory existed before, or if the missing part of its path has `..`.
    new: Option<NewDirectory>,
}

/// The first missing directory of a path, and the temporary directory that becomes it.
#[derive(Debug)]
struct NewDirectory {
    moved: MovedDirectory,
    temporary: Directory,
}

impl OutputDirectory {
    /// Starts the directory at `place`, with its parents. From here on, signals are caught, so that
    /// an interrupted run removes the temporary directory.
    ///
    /// # Errors
    /// There is a file at `place`, or the directory cannot be created.
    pub fn new(place: &Path, session: &Session) -> Result<OutputDirectory> {
        session.signals.watch();
        let started = start(place).with_context(|| place.display().to_string())?;
        Ok(OutputDirectory {
            signals: Arc::clone(&session.signals),
            new: started,
        })
    }

    /// Returns the location of `path` before the commit. `path` may also be outside of the directory.
    pub fn current(&self, path: &Path) -> PathBuf {
        match &self.new {
            Some(new) => new.moved.current(path).unwrap_or_else(|| path.to_owned()),
            None => path.to_owned(),
        }
    }

    /// Creates the directory `path` with its parents.
    ///
    /// # Errors
    /// The directory cannot be created. The error names `path`.
    pub fn create_dir_all(&self, path: &Path) -> Result<()> {
        let done = fs::create_dir_all(self.current(path));
        let done = match &self.new {
            Some(new) => new.moved.noted(done),
            None => done,
        };
        done.with_context(|| path.display().to_string())
    }

    /// Creates outputs. Those below a new directory are written to the temporary directory.
    pub fn outputs(&self, session: &Session) -> Outputs {
        let outputs = Outputs::new(session);
        match &self.new {
            Some(new) => outputs.moved(&new.moved),
            None => outputs,
        }
    }

    /// Whether the directory appears at the commit.
    pub fn is_new(&self) -> bool {
        self.new.is_some()
    }

    /// Renames a new directory into place, and returns true. If an output could not be written,
    /// removes the temporary directory, and returns false. If another process has created the final
    /// directory meanwhile, or if the file system cannot rename directories, moves the files one by
    /// one.
    ///
    /// # Errors
    /// A signal arrived, or a file cannot be moved.
    pub fn commit(self) -> Result<bool> {
        self.signals.check()?;
        let Some(NewDirectory { moved, temporary }) = self.new else {
            return Ok(true);
        };
        if moved.has_failed.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let place = &moved.from;
        let done = match temporary.commit_as(place) {
            Ok(()) => Ok(()),
            Err((temporary, _)) => move_entries(&temporary, place),
        };
        done.with_context(|| format!("cannot create `{}`", place.display()))?;
        Ok(true)
    }
}

/// Creates the temporary directory, and the directories below it that lead to `place`. Returns `None`
/// if there is no temporary directory: `place` exists, or its missing part has `..`. In the second
/// case, the directory is created at once, and not by the commit.
fn start(place: &Path) -> io::Result<Option<NewDirectory>> {
    // Without slashes at the end, and without `.`.
    let place: &Path = &place.components().collect::<PathBuf>();
    let is_missing = |path: &&Path| {
        let found = fs::symlink_metadata(path);
        let is_missing = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        is_missing && !path.as_os_str().is_empty()
    };
    let first = place.ancestors().take_while(is_missing).last();
    let Some(first) = first.filter(|first| is_plain(place, first)) else {
        return fs::create_dir_all(place).map(|()| None);
    };
    let parent = atomic_file::folder_of(first);
    let mut builder = tempfile::Builder::new();
    builder
        .prefix(PREFIX)
        .permissions(Permissions::from_mode(NEW_DIRECTORY));
    let temporary = Directory::new_in(parent, &builder).map_err(atomic_file::without_path)?;
    let moved = MovedDirectory {
        from: first.to_owned(),
        to: temporary.to_path_buf(),
        has_failed: Arc::default(),
    };
    if let Some(current) = moved.current(place) {
        fs::create_dir_all(current)?;
    }
    Ok(Some(NewDirectory { moved, temporary }))
}

/// Moves everything in the directory `from` to `to`, which may exist.
fn move_entries(from: &Path, to: &Path) -> io::Result<()> {
    if !to.is_dir() {
        fs::create_dir(to)?;
        fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            move_entries(&old, &new)?;
        } else {
            fs::rename(&old, &new)?;
        }
    }
    Ok(())
}

/// Whether the path from `first`, inclusive, to `place` has only names, and no `..`.
fn is_plain(place: &Path, first: &Path) -> bool {
    let below = place.strip_prefix(first).unwrap_or(place);
    let name = first.components().next_back();
    name.into_iter()
        .chain(below.components())
        .all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::shell::Shell;

    fn session() -> Session {
        let shell = Shell::from_write("test", Box::new(io::sink()));
        Session::of(&Arc::new(shell))
    }

    fn write(directory: &OutputDirectory, path: &Path, session: &Session) {
        directory.create_dir_all(path.parent().unwrap()).unwrap();
        let mut outputs = directory.outputs(session);
        outputs.create(path).unwrap().write_all(b"new").unwrap();
        outputs.commit().unwrap();
    }

    #[test]
    fn a_new_directory_appears_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let session = session();
        let place = folder.path().join("a/b");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let directory = OutputDirectory::new(&place, &session).unwrap();
        write(&directory, &place.join("c/file"), &session);
        assert!(!folder.path().join("a").exists() && names() == 1);
        drop(directory);
        assert_eq!(names(), 0);
        let directory = OutputDirectory::new(&place, &session).unwrap();
        write(&directory, &place.join("c/file"), &session);
        directory.commit().unwrap();
        assert_eq!(fs::read(place.join("c/file")).unwrap(), b"new");
        assert_eq!(names(), 1);
        // The mode is that of any new directory.
        let plain = folder.path().join("plain");
        fs::create_dir(&plain).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&folder.path().join("a")), mode(&plain));
        assert_eq!(mode(&place), mode(&plain));
    }

    #[test]
    fn files_replace_those_of_a_directory_that_exists() {
        let folder = tempfile::tempdir().unwrap();
        let session = session();
        fs::write(folder.path().join("other"), "old").unwrap();
        for place in [folder.path().to_owned(), folder.path().join("x/../y")] {
            let directory = OutputDirectory::new(&place, &session).unwrap();
            write(&directory, &place.join("file"), &session);
            assert_eq!(fs::read(place.join("file")).unwrap(), b"new");
            directory.commit().unwrap();
        }
        assert_eq!(fs::read(folder.path().join("other")).unwrap(), b"old");
        assert!(OutputDirectory::new(&folder.path().join("file"), &session).is_err());
    }

    #[test]
    fn files_join_a_directory_that_appeared_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let session = session();
        let place = folder.path().join("new");
        let directory = OutputDirectory::new(&place, &session).unwrap();
        write(&directory, &place.join("a/file"), &session);
        write(&directory, &place.join("b/file"), &session);
        fs::create_dir_all(place.join("a")).unwrap();
        fs::write(place.join("a/other"), "other").unwrap();
        directory.commit().unwrap();
        assert_eq!(fs::read(place.join("a/file")).unwrap(), b"new");
        assert_eq!(fs::read(place.join("a/other")).unwrap(), b"other");
        assert_eq!(fs::read(place.join("b/file")).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // A file is in the way.
        let place = folder.path().join("file");
        let directory = OutputDirectory::new(&place, &session).unwrap();
        fs::write(&place, "other").unwrap();
        assert!(directory.commit().is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
