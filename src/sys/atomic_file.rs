//! Files that appear whole or not at all: each is written beside its place, under a name of its own, and takes its place when it is
//! complete. Everything that offld leaves for its user is written this way, except for what other programs write. (The cache has the
//! same need but other means: it moves hard links, and its files never replace one another's contents.)

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempPath;

/// What the names of unfinished files begin with. A process that is killed by SIGKILL leaves such a file behind.
const PREFIX: &str = ".offld-";

/// The mode of new files, from which the umask takes away.
const NEW_FILE: u32 = 0o666;

/// A file that is not in its place yet. Dropped without a commit, it is removed, and what was in its place stays.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    beside: TempPath,
    place: PathBuf,
}

impl AtomicFile {
    /// Begins a new version of the file at `path`, or of the file that `path` is a symlink to; returns the empty file to write as well.
    /// It has the mode of the file that it will replace, else 0666 without what the umask takes away.
    ///
    /// # Errors
    /// The folder is missing or cannot be written to; or there is something at `path` that this process may not write (a folder, a file
    /// without write permission): a file that could not be written in place is not replaced either.
    pub(crate) fn create(path: &Path) -> io::Result<(File, AtomicFile)> {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let replaced = fs::metadata(&place).ok();
        if replaced.is_some() {
            OpenOptions::new().write(true).open(&place)?;
        }
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = replaced.as_ref().map_or(NEW_FILE, |meta| meta.permissions().mode());
        let (file, beside) = make(folder, mode)?;
        if let Some(replaced) = replaced {
            // When the file was made, the umask was taken away from its mode, which is meant for files that are new.
            file.set_permissions(replaced.permissions())?;
        }
        Ok((file, AtomicFile { beside, place }))
    }

    /// Begins a file in `folder` whose name is known only when it is written: see [`AtomicFile::commit_as`].
    pub(crate) fn create_in(folder: &Path) -> io::Result<(File, AtomicFile)> {
        let (file, beside) = make(folder, NEW_FILE)?;
        Ok((file, AtomicFile { beside, place: folder.to_owned() }))
    }

    /// Puts the file in its place, over what is there.
    pub(crate) fn commit(self) -> io::Result<()> {
        let AtomicFile { beside, place } = self;
        put(beside, &place)
    }

    /// Puts the file at `place`, which must be in the same folder, whatever place it was created for.
    pub(crate) fn commit_as(self, place: &Path) -> io::Result<()> {
        put(self.beside, place)
    }
}

fn make(folder: &Path, mode: u32) -> io::Result<(File, TempPath)> {
    let made = tempfile::Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(mode)).tempfile_in(folder);
    Ok(made?.into_parts())
}

/// Puts the file `beside` in its place. Where there is a file already, the two are exchanged and the old one is then removed, because
/// ext4 begins to write a file to the disk as soon as it is renamed over another one, and whoever renames waits for that.
fn put(beside: TempPath, place: &Path) -> io::Result<()> {
    let is_file = fs::symlink_metadata(place).is_ok_and(|meta| meta.is_file());
    if is_file && renameat_with(CWD, &*beside, CWD, place, RenameFlags::EXCHANGE).is_ok() {
        return beside.close();
    }
    beside.persist(place).map_err(|error| error.error)
}

/// Whether there is something at `path` that must be written into and cannot be replaced: a device, a pipe, a socket.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Has `write` write the file at `path`, which appears whole or not at all. A device or a pipe is opened and written into instead.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    if is_special(path) {
        return write(&mut OpenOptions::new().write(true).open(path)?);
    }
    let (mut file, pending) = AtomicFile::create(path)?;
    write(&mut file)?;
    drop(file);
    Ok(pending.commit()?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_failed_write_changes_nothing_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let fails = |out: &mut File| {
            out.write_all(b"half")?;
            anyhow::bail!("no more")
        };
        assert!(replace(&path, fails).is_err());
        assert_eq!(names(), 0);
        replace(&path, |out| Ok(out.write_all(b"first")?)).unwrap();
        assert!(replace(&path, fails).is_err());
        assert_eq!((fs::read(&path).unwrap(), names()), (b"first".to_vec(), 1));
        replace(&path, |out| Ok(out.write_all(b"second")?)).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names()), (b"second".to_vec(), 1));
    }

    #[test]
    fn symlinks_and_modes_are_kept_and_devices_are_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o711)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, |out| Ok(out.write_all(b"new")?)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read(&file).unwrap(), mode), (b"new".to_vec(), 0o711));
        replace(Path::new("/dev/null"), |out| Ok(out.write_all(b"gone")?)).unwrap();
        assert!(is_special(Path::new("/dev/null")) && replace(folder.path(), |_| Ok(())).is_err());
    }

    #[test]
    fn a_name_may_be_chosen_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, pending) = AtomicFile::create_in(folder.path()).unwrap();
        file.write_all(b"text").unwrap();
        pending.commit_as(&folder.path().join("late")).unwrap();
        assert_eq!(fs::read(folder.path().join("late")).unwrap(), b"text");
    }
}
