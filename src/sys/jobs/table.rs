//! What the device links of all this user's offld processes run and use, so that a build with many of them takes no more than one:
//! a folder with a file for each process, which the process holds locked (flock). A file that nobody holds is that of a process that
//! has ended, however it has, and is removed.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::others::Other;
use crate::sys::folder::{Entry, Folder};
use crate::sys::session::{self, Session};

/// The version of the files; it is the first word in them, and part of all names.
const VERSION: &str = "1";
/// Locked while the files are read and written, which takes microseconds.
const LOCK: &str = "1.lock";
/// How long to wait for that lock: a process may have been stopped while it held it.
const PATIENCE: Duration = Duration::from_millis(200);

/// What one process has running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    /// Device links.
    pub(super) jobs: usize,
    /// The threads that they have, at least one for each.
    pub(super) threads: usize,
    /// The memory that they will have at most, in bytes.
    pub(super) memory: u64,
    /// How much of it they do not have yet.
    pub(super) to_come: u64,
    /// A link of this process runs alone, or waits for that.
    pub(super) alone: bool,
}

impl Share {
    /// Adds what else runs.
    pub(super) fn add(&mut self, other: Share) {
        self.jobs += other.jobs;
        self.threads += other.threads;
        self.memory = self.memory.saturating_add(other.memory);
        self.to_come = self.to_come.saturating_add(other.to_come);
        self.alone |= other.alone;
    }

    /// Takes away what has ended.
    pub(super) fn take_away(&mut self, other: Share) {
        self.jobs -= other.jobs;
        self.threads -= other.threads;
        self.memory = self.memory.saturating_sub(other.memory);
        self.alone &= !other.alone;
    }
}

/// The table, and this process's file in it.
#[derive(Debug)]
pub(super) struct Table {
    folder: Folder,
    lock: File,
    own: File,
    name: String,
    namespace: u64,
}

/// The table while nobody else reads or writes it.
pub(super) struct Locked<'t>(&'t Table);

/// The folder of the table: that of the user's session, else one below that for temporary files. Both are the user's own, closed to
/// everybody else, or not used: an error says why.
fn folder() -> io::Result<Folder> {
    let named = |folder: &Path, name: &str| {
        let private = Folder::private(folder, name);
        private.map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", folder.join(name).display())))
    };
    let session_folder = Session::env(session::XDG_RUNTIME_DIR).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let first = match session_folder.map(|folder| named(&folder, "offld")) {
        Some(Ok(folder)) => return Ok(folder),
        first => first,
    };
    let user = rustix::process::geteuid().as_raw();
    named(&session::temp_folder(), &format!("offld-{user}")).map_err(|error| match first {
        Some(Err(first)) => io::Error::other(format!("{first}; {error}")),
        _ => error,
    })
}

impl Table {
    /// This user's table, with a file of this process in it.
    pub(super) fn open() -> io::Result<Table> {
        Table::open_in(folder()?)
    }

    fn open_in(folder: Folder) -> io::Result<Table> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let lock = folder.open_to_change(LOCK)?;
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        // Processes of two containers may have the same number.
        let name = format!("{VERSION}.{namespace}.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        take(&lock)?;
        // One of this name is that of a process that had this number and was killed.
        let own = folder.create(&name).or_else(|_| {
            let old = folder.open_to_change(&name)?;
            old.try_lock()?;
            Ok::<File, io::Error>(old)
        });
        let own = own.and_then(|own| own.try_lock().map(|()| own).map_err(io::Error::from));
        // What the killed one had running is not ours.
        let own = own.and_then(|own| own.set_len(0).map(|()| own));
        let _ = lock.unlock();
        Ok(Table { own: own?, folder, lock, name, namespace })
    }

    /// Waits until nobody else reads or writes.
    pub(super) fn lock(&self) -> io::Result<Locked<'_>> {
        take(&self.lock)?;
        Ok(Locked(self))
    }

    /// What all other processes have running, by what they say.
    pub(super) fn others(&self) -> io::Result<Vec<Other>> {
        Ok(self.lock()?.others())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = self.folder.remove(OsStr::new(&self.name));
    }
}

impl Locked<'_> {
    /// The same, while the lock is held. Files of processes that have ended are removed.
    pub(super) fn others(&self) -> Vec<Other> {
        let prefix = format!("{VERSION}.");
        let is_other = |name: &str| name.starts_with(&prefix) && name != LOCK && name != self.0.name;
        let read = |entry: Entry| {
            let name = entry.name.to_str().filter(|name| is_other(name))?;
            let mut file = self.0.folder.open(name).ok()?;
            if file.try_lock_shared().is_ok() {
                let _ = self.0.folder.remove(&entry.name);
                return None;
            }
            let mut text = String::new();
            file.read_to_string(&mut text).ok()?;
            let (pid, namespace, share) = parse(&text)?;
            // The numbers of processes in another container mean others here.
            Some(Other { pid: Some(pid).filter(|_| namespace == self.0.namespace && namespace != 0), share })
        };
        self.0.folder.entries().into_iter().filter_map(read).collect()
    }

    /// Says what this process has running.
    pub(super) fn set_own(&self, share: &Share) -> io::Result<()> {
        let Share { jobs, threads, memory, alone, .. } = share;
        let (pid, namespace) = (std::process::id(), self.0.namespace);
        let text = format!("{VERSION} {pid} {namespace} {jobs} {threads} {memory} {}\n", u8::from(*alone));
        let mut own = &self.0.own;
        own.rewind()?;
        own.set_len(0)?;
        own.write_all(text.as_bytes())
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = self.0.lock.unlock();
    }
}

/// Locks `file`, unless that takes too long.
fn take(file: &File) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_micros(200)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The process, its namespace and its share. None for what is not of this form.
fn parse(text: &str) -> Option<(u32, u64, Share)> {
    let mut words = text.strip_suffix('\n')?.split(' ');
    if words.next()? != VERSION {
        return None;
    }
    let (pid, namespace) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (jobs, threads, memory) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let alone = words.next()? == "1";
    Some((pid, namespace, Share { jobs, threads, memory, to_come: memory, alone }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(table: &Table) -> Share {
        super::super::others::Processes::default().sum(&table.others().unwrap())
    }

    fn share(jobs: usize, memory: u64) -> Share {
        Share { jobs, threads: jobs, memory, to_come: 0, alone: false }
    }

    /// Two tables in one folder see each other as those of two processes do: a lock belongs to who has opened the file.
    #[test]
    fn processes_see_each_other_until_they_end() {
        let dir = tempfile::tempdir().unwrap();
        let table = || Table::open_in(Folder::private(dir.path(), "offld").unwrap()).unwrap();
        let (first, second, third) = (table(), table(), table());
        second.lock().unwrap().set_own(&share(2, 700)).unwrap();
        third.lock().unwrap().set_own(&Share { alone: true, ..share(1, 50) }).unwrap();
        let all = seen(&first);
        assert_eq!((all.jobs, all.threads, all.memory, all.to_come, all.alone), (3, 3, 750, 750, true));
        assert_eq!(seen(&second).jobs, 1);
        // Killed: the file stays, and its lock is gone.
        let left = dir.path().join("offld").join(&third.name);
        third.own.unlock().unwrap();
        std::mem::forget(third);
        let all = seen(&first);
        assert_eq!((all.jobs, all.alone), (2, false));
        assert!(!left.exists());
        second.lock().unwrap().set_own(&Share::default()).unwrap();
        assert_eq!(seen(&first), Share::default());
        drop((first, second));
        let names: Vec<_> =
            std::fs::read_dir(dir.path().join("offld")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [LOCK]);
    }

    /// A process that was killed leaves its file; a later one may have its number.
    #[test]
    fn what_a_killed_process_had_running_is_not_that_of_the_next_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let folder = || Folder::private(dir.path(), "offld").unwrap();
        let first = Table::open_in(folder()).unwrap();
        // The names are counted up.
        let (start, count) = first.name.rsplit_once('.').unwrap();
        let coming: Vec<String> = (1..100).map(|more| format!("{start}.{}", count.parse::<u64>().unwrap() + more)).collect();
        for name in &coming {
            std::fs::write(
                dir.path().join("offld").join(name),
                format!("1 {} {} 5 5 500 1\n", std::process::id(), first.namespace),
            )
            .unwrap();
        }
        let next = Table::open_in(folder()).unwrap();
        assert!(coming.contains(&next.name), "{}", next.name);
        assert_eq!(std::fs::read(dir.path().join("offld").join(&next.name)).unwrap(), b"");
        assert_eq!(seen(&first), Share::default());
    }

    #[test]
    fn what_is_not_of_the_form_is_nothing() {
        assert_eq!(parse("1 7 8 2 3 4 1\n").map(|(pid, namespace, share)| (pid, namespace, share.jobs)), Some((7, 8, 2)));
        for text in ["", "\n", "1 7 8 2 3 4 1", "2 7 8 2 3 4 1\n", "1 7 8 2 3\n", "1 7 8 -2 3 4 0\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
