//! Whether a file is still what it was: its stamp by the system, and the digest of its contents where the stamp does not tell.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::store::Digest;

/// What the system says of a file. Two that are equal are the same contents, if the file was at rest when the first was taken: the
/// time of change (ctime) is set by the kernel whenever contents change, and by nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp(u64, u64, i64, i64, i64, i64, u64);

impl Stamp {
    /// Of the file at `path`, links followed.
    pub(super) fn of(path: &Path) -> io::Result<Stamp> {
        let meta = std::fs::metadata(path)?;
        Ok(Stamp(meta.len(), meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec(), meta.dev()))
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.0
    }

    /// Whether it is of the same file as `other`, but for the file system it is on: that has another number each time it is mounted, and
    /// images of read-only ones may have everything else in common.
    pub(super) fn is_elsewhere(&self, other: &Stamp) -> bool {
        Stamp(self.0, self.1, self.2, self.3, self.4, self.5, other.6) == *other
    }

    /// The time of the last modification.
    pub(super) fn modified(&self) -> [u8; 16] {
        ((i128::from(self.2) << 32) + i128::from(self.3)).to_le_bytes()
    }

    /// Whether the file was at rest at `moment`: a change after it would have given another stamp. The clock of a file advances in steps,
    /// within which a second change does not show.
    pub(super) fn at_rest(&self, moment: SystemTime) -> bool {
        const STEP: Duration = Duration::from_millis(20);
        let Ok(now) = moment.duration_since(SystemTime::UNIX_EPOCH) else { return false };
        let Some(now) = now.checked_sub(STEP) else { return false };
        // A time in the future is a clock that was set back: nothing is known.
        (self.4, self.5) < (i64::try_from(now.as_secs()).unwrap_or(0), i64::from(now.subsec_nanos()))
    }
}

/// The digest of a file's contents.
pub(super) fn digest(path: &Path) -> io::Result<Digest> {
    use xxhash_rust::xxh3::Xxh3;
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        // A pipe gives its contents to one reader.
        return Err(io::Error::other("not a file"));
    }
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Digest(hash.digest128())),
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file as it was: where, its stamp, and what was in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileSnapshot {
    /// The path, as the tool that read it named it.
    pub(super) path: String,
    /// Its stamp then. None when it may have changed within the clock's step: then only its contents tell.
    pub(super) stamp: Option<Stamp>,
    /// The digest of its contents, in hexadecimal digits.
    pub(super) digest: String,
}

impl FileSnapshot {
    /// The file at `path` as it is now. `before`: when the tool that read it began to; a file that changed after that is an error, since
    /// what the tool read may be neither the one nor the other.
    pub(super) fn now(path: &str, before: SystemTime) -> Result<FileSnapshot, String> {
        let wrong = |error: io::Error| format!("{path}: {error}");
        let stamp = Stamp::of(Path::new(path)).map_err(wrong)?;
        if !stamp.at_rest(before) {
            return Err(format!("{path} has only just been written"));
        }
        let digest = digest(Path::new(path)).map_err(wrong)?.to_string();
        if Stamp::of(Path::new(path)).map_err(wrong)? != stamp {
            return Err(format!("{path} changes at the moment"));
        }
        Ok(FileSnapshot { path: path.to_owned(), stamp: Some(stamp), digest })
    }

    /// Whether the file has still these contents; else what is the matter. `true` in the first place: the stamp had to be taken anew.
    /// `now`: a moment before this call.
    pub(super) fn holds(&mut self, now: SystemTime) -> Result<bool, String> {
        let path = Path::new(&self.path);
        let Ok(stamp) = Stamp::of(path) else { return Err(format!("{} is gone", self.path)) };
        if self.stamp == Some(stamp) {
            return Ok(false);
        }
        let same_size = self.stamp.is_none_or(|old| old.size() == stamp.size());
        if !same_size || digest(path).map(|digest| digest.to_string()).ok().as_ref() != Some(&self.digest) {
            return Err(format!("{} has changed", self.path));
        }
        self.stamp = Some(stamp).filter(|stamp| stamp.at_rest(now));
        Ok(true)
    }
}

/// Writes a file so that the system stamps it otherwise than before: the clock of a file system advances in steps, and two changes
/// within one look the same.
#[cfg(test)]
pub(super) fn write_anew(path: &Path, bytes: &[u8]) {
    let before = Stamp::of(path).ok();
    loop {
        std::fs::write(path, bytes).unwrap();
        let after = Stamp::of(path).unwrap();
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
        assert!(FileSnapshot::now(path, begun).unwrap_err().contains("only just"));
        let later = begun + Duration::from_secs(3600);
        let mut seen = FileSnapshot::now(path, later).unwrap();
        assert_eq!(seen.holds(later), Ok(false));
        // The same again, written anew; then other contents of the same size and with the same time of modification.
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        write_anew(&file, b"one");
        assert_eq!(seen.holds(later), Ok(true));
        write_anew(&file, b"two");
        File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
        assert!(seen.holds(later).unwrap_err().contains("has changed"));
        std::fs::remove_file(&file).unwrap();
        assert!(seen.holds(later).unwrap_err().contains("is gone"));
    }

    #[test]
    fn a_file_from_the_future_is_never_at_rest() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "x").unwrap();
        let stamp = Stamp::of(&file).unwrap();
        assert!(!stamp.at_rest(SystemTime::now() - Duration::from_secs(3600)));
        assert!(stamp.at_rest(SystemTime::now() + Duration::from_secs(3600)));
        assert!(!stamp.at_rest(SystemTime::UNIX_EPOCH));
    }
}
