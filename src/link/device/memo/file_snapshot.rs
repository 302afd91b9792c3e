//! Detects whether a file has changed: by its size, times and inode number ([`FileStat`]), and where those cannot tell, by the
//! digest of its contents.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::mounts;
use crate::store::Digest;

/// Larger files are not read because of what a record says alone.
const LARGEST_COMPARED: u64 = 1 << 30;

/// Size, inode number, mtime, ctime and device number of a file, in that order, and its mount where that matters
/// ([`mounts::identity`]). If two are equal, the first is believed ([`FileStat::believed`]) and the file was settled when it was
/// taken ([`FileStat::settled`]), then the contents are the same: only the kernel sets the ctime, whenever the contents change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct FileStat(u64, u64, i64, i64, i64, i64, u64, u64);

impl FileStat {
    /// The stat of the file or folder at `path`; symlinks are followed.
    pub(super) fn of(path: &Path) -> io::Result<FileStat> {
        let asked = StatxFlags::BASIC_STATS | mounts::UNIQUE_MOUNT;
        match rustix::fs::statx(CWD, path, AtFlags::empty(), asked) {
            Ok(found) => {
                let unique = (found.stx_mask & mounts::UNIQUE_MOUNT.bits() != 0).then_some(found.stx_mnt_id);
                let (modified, changed) = (found.stx_mtime, found.stx_ctime);
                Ok(FileStat(
                    found.stx_size,
                    found.stx_ino,
                    modified.tv_sec,
                    modified.tv_nsec.into(),
                    changed.tv_sec,
                    changed.tv_nsec.into(),
                    rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
                    mounts::identity(path, unique),
                ))
            }
            // Some containers forbid the newer system call.
            Err(Errno::NOSYS | Errno::PERM) => {
                let meta = std::fs::metadata(path)?;
                let mount = mounts::identity(path, None);
                let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
                Ok(FileStat(meta.len(), meta.ino(), times[0], times[1], times[2], times[3], meta.dev(), mount))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.0
    }

    /// Whether everything but the numbers of device and mount is the same as in `other`. A file system may have others each time it
    /// is mounted.
    pub(super) fn differs_only_in_device(&self, other: &FileStat) -> bool {
        FileStat(self.0, self.1, self.2, self.3, self.4, self.5, other.6, other.7) == *other
    }

    /// The time of the last modification (mtime), for cache keys.
    pub(super) fn modified(&self) -> [u8; 16] {
        ((i128::from(self.2) << 32) + i128::from(self.3)).to_le_bytes()
    }

    /// What tells a folder from what it was before: modification time, inode number and mount.
    pub(super) fn identity(&self) -> [u8; 32] {
        let mut all = [0; 32];
        let parts = [self.2.to_le_bytes(), self.3.to_le_bytes(), self.1.to_le_bytes(), self.7.to_le_bytes()];
        all.chunks_exact_mut(8).zip(parts).for_each(|(place, part)| place.copy_from_slice(&part));
        all
    }

    /// Whether an equal stat at another time is one of the same contents. It is not on a read-only mount that cannot be told from
    /// another.
    pub(super) fn believed(&self) -> bool {
        self.7 != mounts::UNKNOWN
    }

    /// Whether the last change was long enough before `moment` that any change after it has another ctime. File timestamps advance
    /// in steps of some milliseconds, and two changes within one step have the same ctime. Where there are no nanoseconds, the file
    /// system most probably counts whole seconds, or every second one.
    pub(super) fn settled(&self, moment: SystemTime) -> bool {
        const STEP: Duration = Duration::from_millis(20);
        const WHOLE_SECONDS: Duration = Duration::from_millis(2020);
        self.at_rest(moment, if self.5 == 0 { WHOLE_SECONDS } else { STEP })
    }

    /// Whether the last change was more than `rest` before `moment`.
    pub(super) fn at_rest(&self, moment: SystemTime, rest: Duration) -> bool {
        let Ok(now) = moment.duration_since(SystemTime::UNIX_EPOCH) else { return false };
        let Some(now) = now.checked_sub(rest) else { return false };
        // A ctime in the future means that the clock was set back; such a file does not count as settled.
        (self.4, self.5) < (i64::try_from(now.as_secs()).unwrap_or(0), i64::from(now.subsec_nanos()))
    }
}

/// The digest of a file's contents; an error unless it is a regular file.
pub(in crate::link::device) fn digest(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        // Reading a pipe would take the contents away from the tool that is to read it.
        return Err(io::Error::other("not a file"));
    }
    Digest::of_stream(&mut file)
}

/// The state of a file at one moment: path, stat, and digest of the contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSnapshot {
    /// The path, as the tool that read the file named it.
    pub(super) path: String,
    /// Its stat. None if it was not settled, is not believed, or comes from another machine: then only the contents are compared.
    pub(super) stat: Option<FileStat>,
    /// The digest of its contents, in hexadecimal digits.
    pub(super) digest: String,
}

impl FileSnapshot {
    /// Takes a snapshot of the file at `path`. `before`: when the tool that read it was started; a file that may have changed since
    /// is an error, because it is not known which contents the tool has read. `known`: the digests of files that were read just now.
    pub(super) fn take(path: &str, before: SystemTime, known: &HashMap<FileStat, String>) -> Result<FileSnapshot, String> {
        let io_error = |error: io::Error| format!("{path}: {error}");
        let stat = FileStat::of(Path::new(path)).map_err(io_error)?;
        if !stat.settled(before) {
            return Err(format!("{path} has only just been written"));
        }
        if let Some(digest) = known.get(&stat) {
            return Ok(FileSnapshot { path: path.to_owned(), stat: Some(stat), digest: digest.clone() });
        }
        let digest = digest(Path::new(path)).map_err(io_error)?.to_string();
        if FileStat::of(Path::new(path)).map_err(io_error)? != stat {
            return Err(format!("{path} has changed while it was read"));
        }
        Ok(FileSnapshot { path: path.to_owned(), stat: Some(stat).filter(FileStat::believed), digest })
    }

    /// Checks that the file still has these contents; otherwise an error that says why not. Returns whether the stat was updated.
    /// `now`: a moment before this call.
    pub(super) fn revalidate(&mut self, now: SystemTime) -> Result<bool, String> {
        let path = Path::new(&self.path);
        let Ok(stat) = FileStat::of(path) else { return Err(format!("{} is gone", self.path)) };
        if self.stat == Some(stat) {
            return Ok(false);
        }
        // A record of another machine may name any file here.
        if self.stat.is_none() && stat.size() > LARGEST_COMPARED {
            return Err(format!("{} is too large to be compared", self.path));
        }
        let same_size = self.stat.is_none_or(|old| old.size() == stat.size());
        if !same_size || digest(path).map(|digest| digest.to_string()).ok().as_ref() != Some(&self.digest) {
            return Err(format!("{} has changed", self.path));
        }
        let known = std::mem::replace(&mut self.stat, Some(stat).filter(|stat| stat.believed() && stat.settled(now)));
        Ok(self.stat != known)
    }
}

/// Writes a file until its ctime differs from before: file timestamps advance in steps, and two changes within one step look the
/// same.
#[cfg(test)]
pub(super) fn write_anew(path: &Path, bytes: &[u8]) {
    let before = FileStat::of(path).ok();
    loop {
        std::fs::write(path, bytes).unwrap();
        let after = FileStat::of(path).unwrap();
        if before.is_none_or(|before| (before.4, before.5) != (after.4, after.5)) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_contents_are_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libx.a");
        let begun = SystemTime::now();
        std::fs::write(&file, "one").unwrap();
        let path = file.to_str().unwrap();
        assert!(FileSnapshot::take(path, begun, &HashMap::new()).unwrap_err().contains("only just"));
        let later = begun + Duration::from_secs(3600);
        let mut seen = FileSnapshot::take(path, later, &HashMap::new()).unwrap();
        assert_eq!(seen.revalidate(later), Ok(false));
        // The same again, written anew; then other contents of the same size and with the same time of modification.
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        write_anew(&file, b"one");
        assert_eq!(seen.revalidate(later), Ok(true));
        write_anew(&file, b"two");
        File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
        assert!(seen.revalidate(later).unwrap_err().contains("has changed"));
        std::fs::remove_file(&file).unwrap();
        assert!(seen.revalidate(later).unwrap_err().contains("is gone"));
    }

    #[test]
    fn a_file_that_was_read_by_another_path_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
        std::fs::write(&paths[0], "contents").unwrap();
        std::fs::hard_link(&paths[0], &paths[1]).unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        let first = FileSnapshot::take(&paths[0], later, &HashMap::new()).unwrap();
        let known: HashMap<FileStat, String> = first.stat.into_iter().map(|stat| (stat, "said".to_owned())).collect();
        let digest_of = |path| FileSnapshot::take(path, later, &known).unwrap().digest;
        assert_eq!(digest_of(&paths[1]), if first.stat.is_some() { "said".to_owned() } else { first.digest.clone() });
        write_anew(Path::new(&paths[1]), b"CONTENTS");
        assert!(![first.digest.as_str(), "said"].contains(&digest_of(&paths[1]).as_str()));
    }

    #[test]
    fn a_file_from_the_future_is_never_at_rest() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "x").unwrap();
        let stat = FileStat::of(&file).unwrap();
        assert!(!stat.settled(SystemTime::now() - Duration::from_secs(3600)));
        assert!(stat.settled(SystemTime::now() + Duration::from_secs(3600)));
        assert!(!stat.settled(SystemTime::UNIX_EPOCH));
    }
}
