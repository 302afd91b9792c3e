//! A directory of outputs. If nothing exists at its path, the directory appears when it is complete:
//! until then, its files are in a temporary directory beside it. In a directory that exists already,
//! new files replace old ones one by one.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::atomic_file::{self, Directory, PREFIX};
use crate::io::outputs::Outputs;
use crate::session::Session;
use crate::signals::Signals;

/// Mode of new directories before the umask is applied.
const NEW_DIRECTORY: u32 = 0o777;

/// A directory of outputs. If it is dropped without a commit, a new directory never appears.
#[derive(Debug)]
pub struct OutputDirectory {
    signals: Arc<Signals>,
    /// `None` if the directory existed before.
    new: Option<NewDirectory>,
}

/// The first missing directory of a path, and the temporary directory that becomes it.
#[derive(Debug)]
struct NewDirectory {
    place: PathBuf,
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

    /// Returns the present place of `path`, which is below the directory or elsewhere.
    pub fn current(&self, path: &Path) -> PathBuf {
        match &self.new {
            Some(new) => new.current(path).unwrap_or_else(|| path.to_owned()),
            None => path.to_owned(),
        }
    }

    /// Creates the directory `path` with its parents.
    ///
    /// # Errors
    /// The directory cannot be created. The error names `path`.
    pub fn create_dir_all(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(self.current(path)).with_context(|| path.display().to_string())
    }

    /// Starts outputs, which may be below the directory.
    pub fn outputs(&self, session: &Session) -> Outputs {
        let outputs = Outputs::new(session);
        match &self.new {
            Some(new) => outputs.moved(&new.place, &new.temporary),
            None => outputs,
        }
    }

    /// Renames a new directory into place.
    ///
    /// # Errors
    /// A signal arrived, or another process created the directory meanwhile.
    pub fn commit(self) -> Result<()> {
        self.signals.check()?;
        let Some(NewDirectory { place, temporary }) = self.new else {
            return Ok(());
        };
        let moved = temporary.commit_as(&place);
        moved.with_context(|| format!("cannot create `{}`", place.display()))
    }
}

impl NewDirectory {
    fn current(&self, path: &Path) -> Option<PathBuf> {
        moved(path, &self.place, &self.temporary)
    }
}

/// Returns the place of `path` after its directory `from` was moved to `to`.
pub(super) fn moved(path: &Path, from: &Path, to: &Path) -> Option<PathBuf> {
    let within = path.strip_prefix(from).ok()?;
    Some(if within.as_os_str().is_empty() {
        to.to_owned()
    } else {
        to.join(within)
    })
}

/// Creates the temporary directory, and the directories below it that lead to `place`. If `place`
/// exists, returns `None`.
fn start(place: &Path) -> io::Result<Option<NewDirectory>> {
    let is_missing =
        |path: &&Path| !path.as_os_str().is_empty() && fs::symlink_metadata(path).is_err();
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
    let new = NewDirectory {
        place: first.to_owned(),
        temporary,
    };
    if let Some(current) = new.current(place) {
        fs::create_dir_all(current)?;
    }
    Ok(Some(new))
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
        Session::of(&Arc::new(Shell::default()))
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
    fn a_directory_that_appeared_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let session = session();
        let place = folder.path().join("new");
        let directory = OutputDirectory::new(&place, &session).unwrap();
        write(&directory, &place.join("file"), &session);
        fs::create_dir(&place).unwrap();
        fs::write(place.join("other"), "other").unwrap();
        assert!(directory.commit().is_err());
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
