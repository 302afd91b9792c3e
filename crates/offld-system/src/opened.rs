//! Detects which files of a directory other programs open. offld learns this way which files of a
//! cache are still in use.

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Buffer for some hundred events, in bytes. The system stores further events until they are read.
const BUFFER: usize = 16 << 10;

/// Watches one directory, without its subdirectories.
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

    use super::*;

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
