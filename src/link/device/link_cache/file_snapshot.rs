//! Detects changed files by size, timestamps and inode number ([`FileStat`]), or by a digest of the
//! contents if those are not conclusive.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::mounts::{self, Mount};
use crate::store::Digest;

/// Size limit in bytes for comparing contents if the record has no stat. Larger files count as
/// changed.
const LARGEST_COMPARED: u64 = 1 << 30;

/// Size, inode number, mtime, ctime and device number of a file, in that order, and the number of
/// its mount ([`Mount`]).
///
/// Equal stats mean equal contents if the first one is trusted ([`FileStat::believed`]) and the
/// file was settled at that time ([`FileStat::settled`]). The reason is that only the kernel sets
/// the ctime, on every change of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct FileStat(u64, u64, i64, i64, i64, i64, u64, u64);

impl FileStat {
    /// Reads the stat of the file or directory at `path`, following symlinks.
    pub(super) fn of(path: &Path) -> io::Result<FileStat> {
        let asked = StatxFlags::BASIC_STATS | mounts::UNIQUE_MOUNT;
        // `FORCE_SYNC` asks the server of a network file system again, as an `open` by the linker
        // does.
        match rustix::fs::statx(CWD, path, AtFlags::STATX_FORCE_SYNC, asked) {
            Ok(found) => {
                let unique =
                    (found.stx_mask & mounts::UNIQUE_MOUNT.bits() != 0).then_some(found.stx_mnt_id);
                let (modified, changed) = (found.stx_mtime, found.stx_ctime);
                Ok(FileStat(
                    found.stx_size,
                    found.stx_ino,
                    modified.tv_sec,
                    modified.tv_nsec.into(),
                    changed.tv_sec,
                    changed.tv_nsec.into(),
                    rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
                    Mount::of(path, found.stx_dev_major, unique).number(),
                ))
            }
            // Some containers forbid the newer system call.
            Err(Errno::NOSYS | Errno::PERM) => {
                let meta = std::fs::metadata(path)?;
                let mount = Mount::of(path, rustix::fs::major(meta.dev()), None).number();
                let times = [
                    meta.mtime(),
                    meta.mtime_nsec(),
                    meta.ctime(),
                    meta.ctime_nsec(),
                ];
                Ok(FileStat(
                    meta.len(),
                    meta.ino(),
                    times[0],
                    times[1],
                    times[2],
                    times[3],
                    meta.dev(),
                    mount,
                ))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.0
    }

    /// Whether `other` is the same file on a local disk that was mounted again. The device number
    /// can change with each mount.
    pub(super) fn is_mounted_anew(&self, other: &FileStat) -> bool {
        let same = FileStat(
            self.0, self.1, self.2, self.3, self.4, self.5, other.6, other.7,
        ) == *other;
        same && self.is_on_disk() && other.is_on_disk()
    }

    /// Whether the file is on a local disk, as opposed to a file system image, whose timestamps its
    /// creator chose.
    pub(super) fn is_on_disk(&self) -> bool {
        Mount::of_number(self.7).is_disk()
    }

    /// The mtime, for cache keys.
    pub(super) fn modified(&self) -> [u8; 16] {
        ((i128::from(self.2) << 32) + i128::from(self.3)).to_le_bytes()
    }

    /// All fields, for local cache keys that must change with a directory. Archivers such as `tar`
    /// set mtimes, so the ctime is included.
    pub(super) fn identity(&self) -> [u8; 64] {
        let FileStat(size, inode, modified, modified_ns, changed, changed_ns, device, mount) =
            *self;
        let times = [modified, modified_ns, changed, changed_ns].map(i64::to_le_bytes);
        let parts = [size, inode, device, mount]
            .map(u64::to_le_bytes)
            .into_iter()
            .chain(times);
        let mut all = [0; 64];
        all.chunks_exact_mut(8)
            .zip(parts)
            .for_each(|(place, part)| place.copy_from_slice(&part));
        all
    }

    /// Whether an equal stat at another time means equal contents. False if anything but the kernel
    /// may have set the timestamps.
    pub(super) fn believed(&self) -> bool {
        Mount::of_number(self.7).is_believed()
    }

    /// Whether the last change is long enough before `moment` that any later change gets another
    /// ctime.
    ///
    /// Timestamps advance in steps of some milliseconds, and two changes within one step have the
    /// same ctime. Without nanoseconds, the file system most probably counts in steps of one or two
    /// seconds.
    pub(super) fn settled(&self, moment: SystemTime) -> bool {
        const STEP: Duration = Duration::from_millis(20);
        const WHOLE_SECONDS: Duration = Duration::from_millis(2020);
        self.at_rest(moment, if self.5 == 0 { WHOLE_SECONDS } else { STEP })
    }

    /// Whether the last change is more than `rest` before `moment`.
    pub(super) fn at_rest(&self, moment: SystemTime, rest: Duration) -> bool {
        let Ok(now) = moment.duration_since(SystemTime::UNIX_EPOCH) else {
            return false;
        };
        let Some(now) = now.checked_sub(rest) else {
            return false;
        };
        // A ctime in the future means that the clock was set back. Such a file never counts as
        // settled.
        (self.4, self.5)
            < (
                i64::try_from(now.as_secs()).unwrap_or(0),
                i64::from(now.subsec_nanos()),
            )
    }
}

/// Computes the digest of a file's contents. Fails unless it is a regular file.
pub(in crate::link::device) fn digest(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        // Reading a pipe would take its contents from the tool that needs them.
        return Err(io::Error::other("not a regular file"));
    }
    Digest::of_stream(&mut file)
}

/// The state of a file at one time: path, stat, and digest of the contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSnapshot {
    /// The path, as the tool that read the file named it.
    pub(super) path: String,
    /// The stat. `None` if it was not settled, is not trusted, or comes from another machine. Then
    /// only the contents are compared.
    pub(super) stat: Option<FileStat>,
    /// The digest of the contents, in hexadecimal.
    pub(super) digest: String,
}

impl FileSnapshot {
    /// Takes a snapshot of the file at `path`.
    ///
    /// `before`: the start time of the tool that read the file. A later change is an error, because
    /// the tool may have read either contents. `known`: digests of files that were read just now.
    pub(super) fn take(
        path: &str,
        before: SystemTime,
        known: &HashMap<FileStat, String>,
    ) -> Result<FileSnapshot, String> {
        let io_error = |error: io::Error| format!("{path}: {error}");
        let stat = FileStat::of(Path::new(path)).map_err(io_error)?;
        if !stat.settled(before) {
            return Err(format!(
                "{path} was modified too recently to detect a later change"
            ));
        }
        if let Some(digest) = known.get(&stat) {
            return Ok(FileSnapshot {
                path: path.to_owned(),
                stat: Some(stat),
                digest: digest.clone(),
            });
        }
        let digest = digest(Path::new(path)).map_err(io_error)?.to_string();
        if FileStat::of(Path::new(path)).map_err(io_error)? != stat {
            return Err(format!("{path} has changed while offld read the file"));
        }
        Ok(FileSnapshot {
            path: path.to_owned(),
            stat: Some(stat).filter(FileStat::believed),
            digest,
        })
    }

    /// Fails, with the reason, unless the file still has the same contents. Returns whether the
    /// stat was updated. `now`: a time before this call.
    pub(super) fn revalidate(&mut self, now: SystemTime) -> Result<bool, String> {
        let path = Path::new(&self.path);
        let Ok(stat) = FileStat::of(path) else {
            return Err(format!("{} was removed", self.path));
        };
        if self.stat == Some(stat) {
            return Ok(false);
        }
        // A record from another machine can name any file here, so the work is bounded.
        if self.stat.is_none() && stat.size() > LARGEST_COMPARED {
            return Err(format!("{} is too large to compare", self.path));
        }
        let same_size = self.stat.is_none_or(|old| old.size() == stat.size());
        if !same_size
            || digest(path).map(|digest| digest.to_string()).ok().as_ref() != Some(&self.digest)
        {
            return Err(format!("{} has changed", self.path));
        }
        let known = std::mem::replace(
            &mut self.stat,
            Some(stat).filter(|stat| stat.believed() && stat.settled(now)),
        );
        Ok(self.stat != known)
    }
}

/// Writes a file until its ctime differs from before, because two changes within one timestamp step
/// look the same.
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
        assert!(
            FileSnapshot::take(path, begun, &HashMap::new())
                .unwrap_err()
                .contains("too recently")
        );
        let later = begun + Duration::from_secs(3600);
        let mut seen = FileSnapshot::take(path, later, &HashMap::new()).unwrap();
        assert_eq!(seen.revalidate(later), Ok(false));
        // First the same contents again, then other contents of the same size with the same mtime.
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        write_anew(&file, b"one");
        assert_eq!(seen.revalidate(later), Ok(true));
        write_anew(&file, b"two");
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        assert!(seen.revalidate(later).unwrap_err().contains("has changed"));
        std::fs::remove_file(&file).unwrap();
        assert!(seen.revalidate(later).unwrap_err().contains("was removed"));
    }

    #[test]
    fn a_file_that_was_read_by_another_path_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
        std::fs::write(&paths[0], "contents").unwrap();
        std::fs::hard_link(&paths[0], &paths[1]).unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        let first = FileSnapshot::take(&paths[0], later, &HashMap::new()).unwrap();
        let known: HashMap<FileStat, String> = first
            .stat
            .into_iter()
            .map(|stat| (stat, "said".to_owned()))
            .collect();
        let digest_of = |path| FileSnapshot::take(path, later, &known).unwrap().digest;
        assert_eq!(
            digest_of(&paths[1]),
            if first.stat.is_some() {
                "said".to_owned()
            } else {
                first.digest.clone()
            }
        );
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
