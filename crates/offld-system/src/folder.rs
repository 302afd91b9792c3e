//! Directories that several processes use, accessed through open descriptors: the cache and the job
//! table. No symbolic link is followed. Otherwise, a user with write access to the cache directory
//! could make other users of the cache, root included, read, write or remove files elsewhere.
//! [`OpenedFiles`] detects which files of a directory other programs open.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

/// Mode of new directories. Others can never write to them, whatever the umask is: cached files
/// become part of programs.
const FOLDER_MODE: u32 = 0o775;
/// Mode of files that are written in place (the counters, the lock), and of new files until they
/// are complete.
const FILE_MODE: u32 = 0o666;

/// An open directory. Paths in it follow no symbolic links.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    /// Owner for new files, if they change hands: the owner of the cache directory, if that is
    /// another user and we are root.
    owner: Option<(Uid, Gid)>,
}

/// Type, size and time of a directory entry.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) is_file: bool,
    pub(crate) is_folder: bool,
    pub(crate) size: u64,
    pub(crate) modified: SystemTime,
}

impl Folder {
    /// Opens the directory at `path`. The user has chosen this path, so it may be a symbolic link.
    pub(crate) fn root(path: &Path) -> io::Result<Folder> {
        let fd = rustix::fs::openat(CWD, path, folder_flags(), Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let other_owner = rustix::process::geteuid().is_root() && stat.st_uid != 0;
        let owner = other_owner.then(|| (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
        Ok(Folder { fd, owner })
    }

    /// Opens the private directory `name` in the directory `parent`, and creates it if it is
    /// missing. No other user has access.
    ///
    /// # Errors
    /// The directory cannot be created or opened, is a symbolic link, belongs to another user, or
    /// is open to others.
    pub(crate) fn private(parent: &Path, name: &str) -> io::Result<Folder> {
        let parent = rustix::fs::openat(CWD, parent, folder_flags(), Mode::empty())?;
        let flags = folder_flags() | OFlags::NOFOLLOW;
        let open = || rustix::fs::openat(&parent, name, flags, Mode::empty());
        // A process without a free descriptor fails here, and creates no directory.
        let fd = match open() {
            Err(Errno::NOENT) => match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => open()?,
                Err(error) => return Err(error.into()),
            },
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(io::Error::other("not a directory"));
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("belongs to another user"));
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(io::Error::other("accessible to other users"));
        }
        Ok(Folder { fd, owner: None })
    }

    /// Another descriptor of this directory.
    pub(crate) fn spare(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Opens the directory `names` below this one: `b/a0`.
    pub(crate) fn sub(&self, names: &str) -> io::Result<Folder> {
        let flags = folder_flags() | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = match rustix::fs::openat2(&self.fd, names, flags, Mode::empty(), resolve) {
            // Linux before 5.6 and some containers lack openat2: open one name after the other.
            Err(Errno::NOSYS | Errno::PERM) => {
                let mut at = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
                for name in names.split('/') {
                    at = rustix::fs::openat(&at, name, flags, Mode::empty())?;
                }
                at
            }
            opened => opened?,
        };
        Ok(Folder {
            fd,
            owner: self.owner,
        })
    }

    /// Like [`Folder::sub`], and creates missing directories.
    pub(crate) fn make_sub(&self, names: &str) -> io::Result<Folder> {
        let mut at: Option<Folder> = None;
        for name in names.split('/') {
            let above = at.as_ref().unwrap_or(self);
            match rustix::fs::mkdirat(&above.fd, name, Mode::from_raw_mode(FOLDER_MODE)) {
                Ok(()) => above.give_folder(name)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            at = Some(above.sub(name)?);
        }
        at.ok_or_else(|| ErrorKind::InvalidInput.into())
    }

    /// Opens the regular file `name` for reading.
    pub(crate) fn open(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlags::RDONLY)
    }

    /// Opens the regular file `name` for changes in place, and creates it if it is missing.
    pub(crate) fn open_to_change(&self, name: &str) -> io::Result<File> {
        match self.file(name, OFlags::RDWR) {
            Err(error) if error.kind() == ErrorKind::NotFound => match self.create(name) {
                // Another process has created it first.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.file(name, OFlags::RDWR)
                }
                made => made,
            },
            opened => opened,
        }
    }

    /// Creates the file `name`, which must not exist.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(
            &self.fd,
            name,
            flags,
            Mode::from_raw_mode(FILE_MODE),
        )?);
        if let Some((user, group)) = self.owner {
            rustix::fs::fchown(&file, Some(user), Some(group))?;
        }
        Ok(file)
    }

    /// Whether new files here are given to another user, who may change them at any time. Then no
    /// file here may be a hard link to a file of ours.
    pub(crate) fn is_foreign(&self) -> bool {
        self.owner.is_some()
    }

    /// Creates the hard link `name` to the file at `path`.
    pub(crate) fn link_in(&self, path: &Path, name: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(
            CWD,
            path,
            &self.fd,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )?)
    }

    /// Creates the hard link `path` to the file `name`.
    pub(crate) fn link_out(&self, name: &str, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::linkat(
            &self.fd,
            name,
            CWD,
            path,
            AtFlags::empty(),
        )?)
    }

    /// Moves `name` to `to` in `folder`, replacing the file there.
    pub(crate) fn rename(&self, name: &str, folder: &Folder, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, name, &folder.fd, to)?)
    }

    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Removes the directory `name` with its contents. Directories nested deeper than `depth` stay.
    pub(crate) fn remove_folder(&self, name: &str, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        let Ok(folder) = self.sub(name) else { return };
        for entry in folder.entries() {
            match entry.name.to_str().filter(|_| entry.is_folder) {
                Some(name) => folder.remove_folder(name, depth),
                None => drop(folder.remove(&entry.name)),
            }
        }
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR);
    }

    /// State of the entry `name`, without following symbolic links.
    pub(crate) fn entry(&self, name: &OsStr) -> io::Result<Entry> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Entry::new(name.to_owned(), &stat))
    }

    /// Modification time of the directory itself.
    pub(crate) fn modified(&self) -> io::Result<SystemTime> {
        Ok(modified(&rustix::fs::fstat(&self.fd)?))
    }

    /// All entries, in no particular order. Empty if the directory cannot be read.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        // `fd` was opened with O_PATH and cannot be read.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let read = rustix::fs::openat(&self.fd, ".", flags, Mode::empty()).and_then(Dir::new);
        let names = read
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
        names
            .filter(|name| name != "." && name != "..")
            .filter_map(|name| self.entry(&name).ok())
            .collect()
    }

    fn file(&self, name: &str, access: OFlags) -> io::Result<File> {
        // Without O_NONBLOCK, opening a pipe that another user has put there would block.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::other("not a regular file"))
        }
    }

    /// Gives a new directory to the owner of the cache.
    fn give_folder(&self, name: &str) -> io::Result<()> {
        let Some((user, group)) = self.owner else {
            return Ok(());
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        Ok(rustix::fs::fchown(made, Some(user), Some(group))?)
    }
}

impl Entry {
    fn new(name: OsString, stat: &Stat) -> Entry {
        let kind = FileType::from_raw_mode(stat.st_mode);
        Entry {
            name,
            is_file: kind == FileType::RegularFile,
            is_folder: kind == FileType::Directory,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: modified(stat),
        }
    }
}

fn modified(stat: &Stat) -> SystemTime {
    let (seconds, nanoseconds) = (
        stat.st_mtime,
        u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    );
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let whole = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    whole
        .and_then(|whole| whole.checked_add(Duration::new(0, nanoseconds)))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn folder_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Buffer for some hundred events, in bytes. The system stores further events until they are read.
const BUFFER: usize = 16 << 10;

/// Detects which files of a directory other programs open, without its subdirectories. offld learns
/// this way which files of a cache are still in use.
#[derive(Debug)]
pub struct OpenedFiles {
    inotify: OwnedFd,
}

impl OpenedFiles {
    /// Starts to watch `folder`. Returns `None` if the system has no watches left.
    pub fn of(folder: &Path) -> Option<OpenedFiles> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        inotify::add_watch(&inotify, folder, WatchFlags::OPEN).ok()?;
        Some(OpenedFiles { inotify })
    }

    /// Names of the files that were opened so far. Returns `None` if too many events made the
    /// system drop some.
    pub fn names(self) -> Option<BTreeSet<OsString>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut events = Reader::new(self.inotify, &mut buffer);
        let mut names = BTreeSet::new();
        loop {
            match events.next() {
                Err(Errno::AGAIN) => return Some(names),
                Err(Errno::INTR) => {}
                Err(_) => return None,
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => return None,
                Ok(event) => {
                    names.extend(
                        event
                            .file_name()
                            .map(CStr::to_bytes)
                            .map(OsStr::from_bytes)
                            .map(OsStr::to_owned),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_symbolic_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir_all(outside.join("a0")).unwrap();
        fs::write(outside.join("a0/file"), "theirs").unwrap();
        let inside = dir.path().join("inside");
        fs::create_dir_all(inside.join("real/a0")).unwrap();
        symlink(&outside, inside.join("b")).unwrap();
        symlink(outside.join("a0"), inside.join("real/a1")).unwrap();
        symlink(outside.join("a0/file"), inside.join("file")).unwrap();
        let root = Folder::root(&inside).unwrap();
        assert!(root.sub("real/a0").is_ok());
        for names in ["b", "b/a0", "real/a1", "..", "real/../.."] {
            assert!(root.sub(names).is_err(), "{names}");
        }
        assert!(root.make_sub("b/a0").is_err() && root.make_sub("real/a1").is_err());
        assert!(
            root.open("file").is_err()
                && root.open_to_change("file").is_err()
                && root.create("file").is_err()
        );
        let all = root.entries();
        assert_eq!(all.iter().filter(|entry| entry.is_file).count(), 0);
        assert_eq!(all.iter().filter(|entry| entry.is_folder).count(), 1);
        root.remove_folder("b", 8);
        root.remove_folder("real", 8);
        assert!(!inside.join("real").exists() && inside.join("b").exists());
        assert_eq!(fs::read(outside.join("a0/file")).unwrap(), b"theirs");
        assert!(
            Folder::root(&inside.join("b")).is_ok(),
            "what was named may be a link"
        );
    }

    #[test]
    fn a_private_directory_belongs_to_the_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        assert!(
            Folder::private(dir.path(), "own").is_ok()
                && Folder::private(dir.path(), "own").is_ok()
        );
        assert_eq!(
            fs::metadata(dir.path().join("own"))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o700
        );
        symlink(dir.path().join("own"), dir.path().join("link")).unwrap();
        assert!(Folder::private(dir.path(), "link").is_err());
        fs::set_permissions(dir.path().join("own"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            Folder::private(dir.path(), "own").unwrap_err().to_string(),
            "accessible to other users"
        );
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(
            Folder::private(dir.path(), "file").is_err()
                && Folder::private(&dir.path().join("none"), "own").is_err()
        );
        if rustix::process::geteuid().is_root() {
            fs::create_dir(dir.path().join("theirs")).unwrap();
            std::os::unix::fs::chown(dir.path().join("theirs"), Some(12345), None).unwrap();
            assert_eq!(
                Folder::private(dir.path(), "theirs")
                    .unwrap_err()
                    .to_string(),
                "belongs to another user"
            );
        }
    }

    #[test]
    fn opening_a_pipe_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(
            CWD,
            dir.path().join("pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(Folder::root(dir.path()).unwrap().open("pipe").is_err());
    }

    #[test]
    fn names_opened_files_only() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["before", "read", "left"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let Some(opened) = OpenedFiles::of(folder.path()) else {
            return;
        };
        fs::read(folder.path().join("read")).unwrap();
        assert!(fs::read(folder.path().join("missing")).is_err());
        fs::metadata(folder.path().join("left")).unwrap();
        fs::write(folder.path().join("new"), "").unwrap();
        assert_eq!(
            opened.names().unwrap(),
            ["new", "read"].map(OsString::from).into()
        );
    }

    #[test]
    fn reads_more_events_than_fit_into_the_buffer() {
        let folder = tempfile::tempdir().unwrap();
        let Some(opened) = OpenedFiles::of(folder.path()) else {
            return;
        };
        let names: BTreeSet<OsString> = (0..2000)
            .map(|at| format!("llvmcache-{at:040}").into())
            .collect();
        for name in &names {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(opened.names().unwrap(), names);
        assert!(OpenedFiles::of(&folder.path().join("missing")).is_none());
    }
}
