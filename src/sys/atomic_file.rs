//! Atomic writes: a file is written under a temporary name in the same folder and renamed into place once it is complete, so that
//! readers see all of it or nothing. Every output that offld itself writes is written this way. (The cache is the exception: it
//! moves hard links, and its files are never replaced by other contents.)

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempPath;

/// Prefix of the names of unfinished files. A process killed by SIGKILL leaves such a file behind.
const PREFIX: &str = ".offld-";

/// The mode of new files before the umask is applied.
const NEW_FILE: u32 = 0o666;

/// A file that has not been renamed into place yet. Dropped without a commit, it is removed and the old file stays.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    beside: TempPath,
    place: PathBuf,
}

impl AtomicFile {
    /// Starts a new version of the file at `path`, or of the file that `path` is a symlink to, and returns the empty file to write
    /// to. It gets the mode of the file that it will replace, otherwise 0666 less the umask.
    ///
    /// # Errors
    /// The folder is missing or cannot be written to; or there is something at `path` that this process may not write (a folder, a
    /// file without write permission): a file that could not be written in place is not replaced either.
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
            // Creating the file applied the umask, which must not change the mode of a file that existed before.
            file.set_permissions(replaced.permissions())?;
        }
        Ok((file, AtomicFile { beside, place }))
    }

    /// Starts a file in `folder` whose final name is chosen after it is written: see [`AtomicFile::commit_as`].
    pub(crate) fn create_in(folder: &Path) -> io::Result<(File, AtomicFile)> {
        let (file, beside) = make(folder, NEW_FILE)?;
        Ok((file, AtomicFile { beside, place: folder.to_owned() }))
    }

    /// Renames the file into place, replacing what is there.
    pub(crate) fn commit(self) -> io::Result<()> {
        let AtomicFile { beside, place } = self;
        put(beside, &place)
    }

    /// Renames the file to `place`, which must be in the same folder, instead of the path it was created for.
    pub(crate) fn commit_as(self, place: &Path) -> io::Result<()> {
        put(self.beside, place)
    }
}

fn make(folder: &Path, mode: u32) -> io::Result<(File, TempPath)> {
    let made = tempfile::Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(mode)).tempfile_in(folder);
    Ok(made?.into_parts())
}

/// Renames the file `beside` to `place`. If a file is there already, the two are exchanged and the old one is then removed, because
/// ext4 flushes a file to disk when it is renamed over another one, and the rename waits for that.
fn put(beside: TempPath, place: &Path) -> io::Result<()> {
    let is_file = fs::symlink_metadata(place).is_ok_and(|meta| meta.is_file());
    if is_file && renameat_with(CWD, &*beside, CWD, place, RenameFlags::EXCHANGE).is_ok() {
        return beside.close();
    }
    beside.persist(place).map_err(|error| error.error)
}

/// Whether `path` is something that can be written to but not replaced: a device, a pipe, a socket.
pub(crate) fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Lets `write` write the file at `path`, atomically. A device or a pipe is opened and written to directly.
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
