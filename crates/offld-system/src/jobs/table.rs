//! Table of the device links of all offld processes of this user, so that many processes together
//! stay within the limits of one. The table is a directory with one file per process, which the
//! process keeps locked (flock). An unlocked file belongs to a process that has ended, and is
//! removed. The last process removes the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::memory::Machine;
use crate::environment;
use crate::folder::{Entry, Folder};
use crate::scratch;

/// Format version. It is the first word of each file, and part of all file names.
const VERSION: &str = "1";
/// Name of the lock file. The lock is held while the files are read and written, which takes
/// microseconds.
const LOCK: &str = "1.lock";
/// Longest wait for the lock: a process may have been stopped while it held the lock.
const PATIENCE: Duration = Duration::from_millis(200);

/// Device links of one process, and their resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    pub(super) jobs: usize,
    /// Number of their threads, at least one for each link.
    pub(super) threads: usize,
    /// Their peak memory, in bytes.
    pub(super) memory: u64,
    /// The part of `memory` that they have not allocated yet, in bytes.
    pub(super) to_come: u64,
    /// Whether a link of this process runs alone, or waits until it can.
    pub(super) alone: bool,
}

impl Share {
    pub(super) fn add(&mut self, other: Share) {
        self.jobs += other.jobs;
        self.threads += other.threads;
        self.memory = self.memory.saturating_add(other.memory);
        self.to_come = self.to_come.saturating_add(other.to_come);
        self.alone |= other.alone;
    }

    /// Subtracts the share of links that have ended.
    pub(super) fn take_away(&mut self, other: Share) {
        self.jobs -= other.jobs;
        self.threads -= other.threads;
        self.memory = self.memory.saturating_sub(other.memory);
        self.alone &= !other.alone;
    }
}

/// The table, and the file of this process in it.
#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    folder: Folder,
    lock: File,
    /// `None` until it is created, and while the table is dropped.
    own: Option<File>,
    name: String,
    namespace: u64,
}

/// The locked table, which no other process reads or writes.
pub(super) struct Locked<'t>(&'t Table);

impl Table {
    /// Opens the table of this user and adds a file for this process. The table is in the runtime
    /// directory of the user's session, else in the directory for temporary files. It is private to
    /// the user.
    ///
    /// # Errors
    /// Neither directory can be used. The error contains the reasons.
    pub(super) fn open() -> io::Result<Table> {
        let open = |parent: &Path, name: &str| {
            let opened = Table::open_in(parent, name);
            opened.map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("`{}`: {error}", parent.join(name).display()),
                )
            })
        };
        let session_folder = environment::get(environment::XDG_RUNTIME_DIR)
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute());
        let first = match session_folder.map(|folder| open(&folder, "offld")) {
            Some(Ok(table)) => return Ok(table),
            first => first,
        };
        let user = rustix::process::geteuid().as_raw();
        open(&scratch::temp_folder(), &format!("offld-{user}")).map_err(|error| match first {
            Some(Err(first)) => io::Error::other(format!("{first}; {error}")),
            _ => error,
        })
    }

    fn open_in(parent: &Path, name: &str) -> io::Result<Table> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (folder, lock, spare) = locked_folder(parent, name)?;
        let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        // Processes of two containers may have the same id.
        let file = format!(
            "{VERSION}.{namespace}.{}.{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        // If the file cannot be created, the dropped table removes the unused directory.
        let mut table = Table {
            path: parent.join(name),
            folder,
            lock,
            own: None,
            name: file,
            namespace,
        };
        let own = table.create_own();
        drop(spare);
        let _ = table.lock.unlock();
        table.own = Some(own?);
        Ok(table)
    }

    fn create_own(&self) -> io::Result<File> {
        // An existing file of this name belongs to a killed process that had the same id.
        let own = self.folder.create(&self.name).or_else(|_| {
            let old = self.folder.open_to_change(&self.name)?;
            old.try_lock()?;
            Ok::<File, io::Error>(old)
        })?;
        own.try_lock()?;
        // The contents belong to the killed process.
        own.set_len(0)?;
        Ok(own)
    }

    /// Waits until no other process reads or writes the table.
    ///
    /// # Errors
    /// The lock is not released in time.
    pub(super) fn lock(&self) -> io::Result<Locked<'_>> {
        take(&self.lock)?;
        Ok(Locked(self))
    }

    /// Shares of all other processes, as they report them.
    pub(super) fn others(&self) -> io::Result<Vec<Other>> {
        Ok(self.lock()?.others())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // Its descriptor may be the only one with which the directory can be read.
        if self.own.take().is_some() {
            let _ = self.folder.remove(OsStr::new(&self.name));
        }
        // A process that opens the table meanwhile waits for the lock, and then notices that the
        // file is gone (`locked_folder`). This process notices it too: after another process has
        // removed the lock file, the directory may hold a new lock file, and files that are
        // protected by it.
        if let Ok(locked) = self.lock()
            && self.lock.metadata().is_ok_and(|lock| lock.nlink() > 0)
            && locked.others().is_empty()
            && matches!(&self.folder.entries()[..], [only] if only.name == LOCK)
        {
            let _ = self.folder.remove(OsStr::new(LOCK));
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

impl Locked<'_> {
    /// Like [`Table::others`], while the lock is held. Removes the files of processes that have
    /// ended.
    pub(super) fn others(&self) -> Vec<Other> {
        let prefix = format!("{VERSION}.");
        let is_other =
            |name: &str| name.starts_with(&prefix) && name != LOCK && name != self.0.name;
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
            // Process ids of another container name different processes here.
            Some(Other {
                pid: Some(pid).filter(|_| namespace == self.0.namespace && namespace != 0),
                share,
            })
        };
        self.0
            .folder
            .entries()
            .into_iter()
            .filter_map(read)
            .collect()
    }

    pub(super) fn set_own(&self, share: &Share) -> io::Result<()> {
        let Share {
            jobs,
            threads,
            memory,
            alone,
            ..
        } = share;
        let (pid, namespace) = (std::process::id(), self.0.namespace);
        let text = format!(
            "{VERSION} {pid} {namespace} {jobs} {threads} {memory} {}\n",
            u8::from(*alone)
        );
        let Some(mut own) = self.0.own.as_ref() else {
            return Ok(());
        };
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

/// Opens the directory `name` in `parent` and locks it. Another process may remove both before the
/// lock is held. The third result is a descriptor to close before the directory has to be read.
fn locked_folder(parent: &Path, name: &str) -> io::Result<(Folder, File, OwnedFd)> {
    let begun = Instant::now();
    loop {
        let opened = Folder::private(parent, name).and_then(|folder| {
            let files = folder
                .spare()
                .and_then(|spare| Ok((folder.open_to_change(LOCK)?, spare)));
            if let Err(error) = &files
                && error.kind() != io::ErrorKind::NotFound
            {
                // Fails if another process uses the directory.
                let _ = std::fs::remove_dir(parent.join(name));
            }
            files.map(|(lock, spare)| (folder, lock, spare))
        });
        match opened {
            Ok((folder, lock, spare)) => {
                take(&lock)?;
                if lock.metadata()?.nlink() > 0 {
                    return Ok((folder, lock, spare));
                }
            }
            Err(error)
                if error.kind() != io::ErrorKind::NotFound
                    || !parent.is_dir()
                    || begun.elapsed() > PATIENCE =>
            {
                return Err(error);
            }
            Err(_) => {}
        }
    }
}

/// Locks `file`, waiting for at most [`PATIENCE`].
fn take(file: &File) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_micros(200))
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Parses the process id, the namespace and the share. Returns `None` for any other format.
fn parse(text: &str) -> Option<(u32, u64, Share)> {
    let mut fields = text.strip_suffix('\n')?.split(' ');
    if fields.next()? != VERSION {
        return None;
    }
    let (pid, namespace) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let (jobs, threads, memory) = (
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    );
    let alone = fields.next()? == "1";
    Some((
        pid,
        namespace,
        Share {
            jobs,
            threads,
            memory,
            to_come: memory,
            alone,
        },
    ))
}

#[derive(Debug)]
pub(super) struct Other {
    /// Its process id. `None` if it runs in another container, where nothing more is known about
    /// it.
    pub(super) pid: Option<u32>,
    /// The share that it reports.
    pub(super) share: Share,
}

/// Figures of the system about processes in the table. They are read while the table is unlocked,
/// because that takes a while.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Ids of stopped processes.
    at_rest: BTreeSet<u32>,
    /// Memory in use by the device links of each process, in bytes.
    have: BTreeMap<u32, u64>,
}

impl Processes {
    pub(super) fn at_rest(others: &[Other], machine: &Machine) -> Processes {
        let run_something = others
            .iter()
            .filter(|other| other.share != Share::default())
            .filter_map(|other| other.pid);
        Processes {
            at_rest: run_something
                .filter(|pid| machine.is_at_rest(*pid))
                .collect(),
            have: BTreeMap::new(),
        }
    }

    /// Measures the memory of the processes that are not stopped.
    pub(super) fn look_at_memory(&mut self, others: &[Other], machine: &Machine) {
        let with_memory = others
            .iter()
            .filter(|other| other.share.memory > 0)
            .filter_map(|other| other.pid);
        let have = |pid| Some((pid, machine.of_children(pid)?));
        self.have = with_memory
            .filter(|pid| !self.at_rest.contains(pid))
            .filter_map(have)
            .collect();
    }

    /// Sums the shares of `others` that are not stopped. For a process that was not measured, all
    /// of its memory counts as still to come.
    pub(super) fn sum(&self, others: &[Other]) -> Share {
        let mut sum = Share::default();
        for Other { pid, share } in others {
            if pid.is_some_and(|pid| self.at_rest.contains(&pid)) {
                continue;
            }
            let has = pid
                .and_then(|pid| self.have.get(&pid))
                .copied()
                .unwrap_or(0);
            sum.add(Share {
                to_come: share.memory.saturating_sub(has),
                ..*share
            });
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(table: &Table) -> Share {
        Processes::default().sum(&table.others().unwrap())
    }

    fn share(jobs: usize, memory: u64) -> Share {
        Share {
            jobs,
            threads: jobs,
            memory,
            to_come: 0,
            alone: false,
        }
    }

    /// Two tables in one directory see each other like those of two processes: a lock belongs to
    /// the opened file, not to the process.
    #[test]
    fn processes_see_each_other_until_they_end() {
        let dir = tempfile::tempdir().unwrap();
        let table = || Table::open_in(dir.path(), "offld").unwrap();
        let (first, second, third) = (table(), table(), table());
        second.lock().unwrap().set_own(&share(2, 700)).unwrap();
        third
            .lock()
            .unwrap()
            .set_own(&Share {
                alone: true,
                ..share(1, 50)
            })
            .unwrap();
        let all = seen(&first);
        assert_eq!(
            (all.jobs, all.threads, all.memory, all.to_come, all.alone),
            (3, 3, 750, 750, true)
        );
        assert_eq!(seen(&second).jobs, 1);
        // As after a kill: the file remains, and its lock is gone.
        let left = dir.path().join("offld").join(&third.name);
        third.own.as_ref().unwrap().unlock().unwrap();
        std::mem::forget(third);
        let all = seen(&first);
        assert_eq!((all.jobs, all.alone), (2, false));
        assert!(!left.exists());
        second.lock().unwrap().set_own(&Share::default()).unwrap();
        assert_eq!(seen(&first), Share::default());
        drop((first, second));
        assert!(!dir.path().join("offld").exists());
    }

    /// Retries while the machine is so busy that a link would no longer wait for the table.
    fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> T {
        loop {
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done.unwrap(),
            }
        }
    }

    /// The last user of a table removes its directory while other threads open it.
    #[test]
    fn the_table_can_be_opened_while_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let table = patiently(|| Table::open_in(dir.path(), "offld"));
                        patiently(|| table.lock()).set_own(&share(1, 1)).unwrap();
                        let own =
                            std::fs::read(dir.path().join("offld").join(&table.name)).unwrap();
                        assert!(own.starts_with(VERSION.as_bytes()));
                    }
                });
            }
        });
        assert!(!dir.path().join("offld").exists());
    }

    /// Two tables end at the same time, and a third is opened between the removal of the lock file
    /// and that of the directory.
    #[test]
    fn a_table_whose_lock_file_was_removed_leaves_the_files_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let ending = Table::open_in(dir.path(), "offld").unwrap();
        ending.folder.remove(OsStr::new(&ending.name)).unwrap();
        ending.folder.remove(OsStr::new(LOCK)).unwrap();
        let new = Table::open_in(dir.path(), "offld").unwrap();
        // `open_in` creates the file before it locks it.
        new.own.as_ref().unwrap().unlock().unwrap();
        drop(ending);
        assert!(dir.path().join("offld").join(&new.name).exists());
        assert!(dir.path().join("offld").join(LOCK).exists());
    }

    /// A killed process leaves its file, and a later process may get its id.
    #[test]
    fn a_reused_process_id_does_not_inherit_the_share_of_a_killed_process() {
        let dir = tempfile::tempdir().unwrap();
        let first = Table::open_in(dir.path(), "offld").unwrap();
        // The names contain a counter.
        let (start, count) = first.name.rsplit_once('.').unwrap();
        let coming: Vec<String> = (1..100)
            .map(|more| format!("{start}.{}", count.parse::<u64>().unwrap() + more))
            .collect();
        for name in &coming {
            std::fs::write(
                dir.path().join("offld").join(name),
                format!("1 {} {} 5 5 500 1\n", std::process::id(), first.namespace),
            )
            .unwrap();
        }
        let next = Table::open_in(dir.path(), "offld").unwrap();
        assert!(coming.contains(&next.name), "{}", next.name);
        assert_eq!(
            std::fs::read(dir.path().join("offld").join(&next.name)).unwrap(),
            b""
        );
        assert_eq!(seen(&first), Share::default());
    }

    #[test]
    fn rejects_other_formats() {
        assert_eq!(
            parse("1 7 8 2 3 4 1\n").map(|(pid, namespace, share)| (pid, namespace, share.jobs)),
            Some((7, 8, 2))
        );
        for text in [
            "",
            "\n",
            "1 7 8 2 3 4 1",
            "2 7 8 2 3 4 1\n",
            "1 7 8 2 3\n",
            "1 7 8 -2 3 4 0\n",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
