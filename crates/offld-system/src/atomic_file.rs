//! Atomic writes: readers see a complete file or none. A file is written under a temporary name in
//! the same directory, and renamed into place when it is complete. Every output that offld itself
//! writes is written this way, except in the cache. The cache moves hard links, and never replaces
//! a file by other contents.
//!
//! This file also tracks the temporary files and directories to remove when the process is ended
//! early, and copies the attributes of an old file to its new version.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::fs::{
    CWD, Gid, RenameFlags, Uid, XattrFlags, fchown, fgetxattr, flistxattr, fsetxattr, renameat_with,
};
use rustix::io::Errno;
use tempfile::{TempDir, TempPath};

use crate::threads::lock;

/// Prefix of the names of unfinished files. A process killed by SIGKILL leaves such a file behind.
pub(crate) const PREFIX: &str = ".offld-";

/// Mode of new files before the umask is applied.
const NEW_FILE: u32 = 0o666;

/// A file that has not been renamed into place yet. If it is dropped without a commit, it is
/// removed and the old file stays.
#[derive(Debug)]
pub struct AtomicFile {
    temporary: TempPath,
    target: PathBuf,
    // Dropped after the file has been removed or renamed.
    unfinished: Unfinished,
}

impl AtomicFile {
    /// Starts a new version of the file at `path`, or of its target if `path` is a symlink. Returns
    /// the empty file to write to. The new file gets the mode of the file that it replaces, or else
    /// 0666 less the umask.
    ///
    /// # Errors
    /// The directory is missing or not writable, or this process may not write the existing file at
    /// `path` (a directory, a file without write permission). A file that could not be written in
    /// place is not replaced either.
    pub fn create(path: &Path) -> io::Result<(File, AtomicFile)> {
        let is_symlink = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
        let target = if is_symlink {
            target_of(path)?
        } else {
            path.to_owned()
        };
        let replaced = fs::metadata(&target).ok();
        if replaced.is_some() {
            match OpenOptions::new().write(true).open(&target) {
                // A running program cannot be written to, but it can be replaced.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {}
                opened => drop(opened?),
            }
        }
        let folder = folder_of(&target);
        let mode = replaced
            .as_ref()
            .map_or(NEW_FILE, |meta| meta.permissions().mode());
        let (file, temporary, unfinished) = make(folder, mode)?;
        if let Some(replaced) = replaced {
            // Creating the file applied the umask, which must not change the mode of an existing
            // file.
            file.set_permissions(replaced.permissions())?;
        }
        Ok((
            file,
            AtomicFile {
                temporary,
                target,
                unfinished,
            },
        ))
    }

    /// Starts a new file at `path` that replaces the file or the symlink there. Its mode is 0666
    /// less the umask.
    pub(crate) fn create_anew(path: &Path) -> io::Result<(File, AtomicFile)> {
        let (file, temporary, unfinished) = make(folder_of(path), NEW_FILE)?;
        Ok((
            file,
            AtomicFile {
                temporary,
                target: path.to_owned(),
                unfinished,
            },
        ))
    }

    /// Starts a file in `folder` whose final name is chosen after it is written: see
    /// [`AtomicFile::commit_as`].
    pub fn create_in(folder: &Path) -> io::Result<(File, AtomicFile)> {
        let (file, temporary, unfinished) = make(folder, NEW_FILE)?;
        Ok((
            file,
            AtomicFile {
                temporary,
                target: folder.to_owned(),
                unfinished,
            },
        ))
    }

    /// Renames the file into place, replacing the old file.
    pub fn commit(self) -> io::Result<()> {
        let AtomicFile {
            temporary,
            target,
            unfinished,
        } = self;
        let done = put(temporary, &target);
        drop(unfinished);
        done
    }

    /// Renames the file to `target`, which must be in the same directory, instead of the path it
    /// was created for.
    pub fn commit_as(self, target: &Path) -> io::Result<()> {
        let AtomicFile {
            temporary,
            unfinished,
            ..
        } = self;
        let done = put(temporary, target);
        drop(unfinished);
        done
    }
}

/// Returns the file that the symlink `link` points to. The file need not exist.
///
/// # Errors
/// Its directory does not exist, or the symlinks form a loop.
pub fn target_of(link: &Path) -> io::Result<PathBuf> {
    let mut at = link.to_path_buf();
    loop {
        match fs::canonicalize(&at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        match fs::read_link(&at) {
            Ok(next) => at = folder_of(&at).join(next),
            Err(error) => {
                let name = at.file_name().ok_or(error)?;
                return Ok(fs::canonicalize(folder_of(&at))?.join(name));
            }
        }
    }
}

/// The directory of a file; `.` for a name without one.
pub fn folder_of(file: &Path) -> &Path {
    file.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn make(folder: &Path, mode: u32) -> io::Result<(File, TempPath, Unfinished)> {
    let permissions = Permissions::from_mode(mode);
    let (made, unfinished) = make_registered(
        || {
            tempfile::Builder::new()
                .prefix(PREFIX)
                .permissions(permissions)
                .tempfile_in(folder)
        },
        |made| made.path().to_owned(),
    )
    .map_err(without_path)?;
    let (file, temporary) = made.into_parts();
    Ok((file, temporary, unfinished))
}

/// Extracts the system's error from an error of `tempfile`, which names the temporary file: callers
/// name the target instead.
pub(crate) fn without_path(error: io::Error) -> io::Error {
    // The error contains the number only in its text, before the path.
    let text = error.to_string();
    let number = text
        .split_once("(os error ")
        .and_then(|(_, rest)| rest.split_once(')'))
        .and_then(|(number, _)| number.parse().ok());
    number.map_or(error, io::Error::from_raw_os_error)
}

/// Renames the file `temporary` to `target`. If a file exists there, the two are exchanged and the
/// old one is then removed. A plain rename over another file would be slow: ext4 flushes the new
/// file to disk first.
fn put(temporary: TempPath, target: &Path) -> io::Result<()> {
    let is_file = fs::symlink_metadata(target).is_ok_and(|meta| meta.is_file());
    if is_file && renameat_with(CWD, &*temporary, CWD, target, RenameFlags::EXCHANGE).is_ok() {
        return temporary.close();
    }
    temporary.persist(target).map_err(|error| error.error)
}

/// Whether `path` can be written to but not replaced: a device, a pipe, a socket.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Lets `write` write the file at `path`, atomically. A device or a pipe is opened and written to
/// directly.
pub fn replace(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    if is_special(path) {
        return write(&mut OpenOptions::new().write(true).open(path)?);
    }
    let (mut file, pending) = AtomicFile::create(path)?;
    write(&mut file)?;
    drop(file);
    Ok(pending.commit()?)
}

// Temporary files and directories to remove when the process is ended early. Their owners may be
// unable to remove them, because their thread waits for a pipe without a reader, or computes for
// long.

/// Paths of all temporary files and directories of this process.
static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Number of tries to remove a directory in which another thread still creates files.
const TRIES: u32 = 10;
/// Time between two of these tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Registration of a temporary file or directory. It is dropped after the file or directory was
/// removed, or is no longer temporary.
#[derive(Debug)]
pub(super) struct Unfinished(PathBuf);

/// A temporary directory, which is removed when this is dropped.
#[derive(Debug)]
pub struct Directory {
    directory: TempDir,
    // Dropped after the directory.
    _unfinished: Unfinished,
}

/// Creates and registers a temporary file or directory. After [`remove_unfinished`], this blocks:
/// the process is about to end.
fn make_registered<T>(
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
pub(super) fn remove_unfinished() {
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
                // Removed, by this process or another, or not removable.
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
    pub fn new_in(parent: &Path, builder: &tempfile::Builder<'_, '_>) -> io::Result<Directory> {
        let (directory, unfinished) =
            make_registered(|| builder.tempdir_in(parent), |made| made.path().to_owned())?;
        Ok(Directory {
            directory,
            _unfinished: unfinished,
        })
    }

    /// Renames the directory to `target`, where nothing or an empty directory is. It is no longer
    /// temporary.
    ///
    /// # Errors
    /// The directory cannot be renamed. The error has the directory, too.
    pub(crate) fn commit_as(self, target: &Path) -> Result<(), (Directory, io::Error)> {
        if let Err(error) = fs::rename(self.directory.path(), target) {
            return Err((self, error));
        }
        // Its old path no longer exists, so there is nothing to remove.
        let _ = self.directory.keep();
        Ok(())
    }
}

impl Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.directory.path()
    }
}

// File attributes other than the contents: owner, mode, and extended attributes with capabilities
// and access lists. A new version of a file gets those of the old one.

/// Extended attributes in which the kernel's integrity subsystem stores signatures. They are valid
/// for the old contents only.
const SIGNATURES: [&str; 2] = ["security.ima", "security.evm"];
/// Linux's limit for the value of an attribute, and for the list of names, in bytes.
const LONGEST_ATTRIBUTE: usize = 64 << 10;
/// Mode bits that make a program run as another user or group.
const SET_ID: u32 = 0o6000;

fn attribute_names(file: &File) -> io::Result<Vec<String>> {
    let mut list = Vec::with_capacity(LONGEST_ATTRIBUTE);
    match flistxattr(file, spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

/// Returns the attribute that contains a signature of `file`, if there is one.
///
/// # Errors
/// The attributes cannot be read.
pub fn signature(file: &File) -> io::Result<Option<String>> {
    Ok(attribute_names(file)?
        .into_iter()
        .find(|name| SIGNATURES.contains(&name.as_str())))
}

/// Copies owner, mode and extended attributes from `from` to `to`, without signatures. If this
/// process may not change the owner, the new file keeps its owner, and loses the set-id bits.
///
/// # Errors
/// An attribute cannot be read or set: none is omitted silently.
pub fn copy_attributes(from: &File, to: &File) -> io::Result<()> {
    let meta: Metadata = from.metadata()?;
    let own = to.metadata()?;
    let mut mode = meta.permissions().mode();
    if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
        let owner = (
            Some(Uid::from_raw(meta.uid())),
            Some(Gid::from_raw(meta.gid())),
        );
        match fchown(to, owner.0, owner.1) {
            Ok(()) => {}
            Err(Errno::PERM) => mode &= !SET_ID,
            Err(error) => return Err(error.into()),
        }
    }
    // Changing the owner clears the set-id bits and the capabilities, so the mode follows, and the
    // extended attributes come last.
    to.set_permissions(std::fs::Permissions::from_mode(mode))?;
    for name in attribute_names(from)?
        .iter()
        .filter(|name| !SIGNATURES.contains(&name.as_str()))
    {
        let mut value: Vec<u8> = Vec::with_capacity(LONGEST_ATTRIBUTE);
        fgetxattr(from, name.as_str(), spare_capacity(&mut value))
            .map_err(|error| named(name, error))?;
        fsetxattr(to, name.as_str(), &value, XattrFlags::empty())
            .map_err(|error| named(name, error))?;
    }
    Ok(())
}

fn named(name: &str, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(
        error.kind(),
        format!("the extended attribute `{name}`: {error}"),
    )
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
    fn preserves_symlinks_and_modes_and_writes_into_devices() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o711)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, |out| Ok(out.write_all(b"new")?)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read(&file).unwrap(), mode), (b"new".to_vec(), 0o711));
        let (broken, made) = (folder.path().join("broken"), folder.path().join("made"));
        std::os::unix::fs::symlink("broken", folder.path().join("chain")).unwrap();
        std::os::unix::fs::symlink("made", &broken).unwrap();
        replace(&folder.path().join("chain"), |out| {
            Ok(out.write_all(b"new")?)
        })
        .unwrap();
        assert_eq!(fs::read(&made).unwrap(), b"new");
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        assert!(replace(&folder.path().join("loop"), |_| Ok(())).is_err());
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

    #[test]
    fn copies_mode_and_attributes_without_signatures() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let from = File::create(&one).unwrap();
        from.set_permissions(std::fs::Permissions::from_mode(0o4751))
            .unwrap();
        let has = fsetxattr(&from, "user.note", b"text", XattrFlags::empty()).is_ok();
        let to = File::create(&other).unwrap();
        copy_attributes(&from, &to).unwrap();
        assert_eq!(to.metadata().unwrap().permissions().mode() & 0o7777, 0o4751);
        assert_eq!(
            attribute_names(&to)
                .unwrap()
                .contains(&"user.note".to_owned()),
            has
        );
        assert_eq!(signature(&to).unwrap(), None);
    }
}
