//! The store on disk. Many processes use it at once, and each may be killed at any moment, so a file is never written in its place: it is
//! made in a folder for temporary files and then renamed. What is fetched is checked against its digest after it was read or linked, so
//! that a damaged file, or one that another process just evicts, counts as missing and never gives wrong bytes.

mod contents;
mod gc;
mod layout;
mod record;
mod stats;
#[cfg(test)]
mod tests;

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, linkat};
use tempfile::TempPath;

pub(crate) use gc::Collected;
pub use stats::Event;
pub(crate) use stats::{EVENTS, Stats};

use super::digest::{Digest, copy};
use crate::sys::clock::{Clock, SystemClock};
use layout::Layout;
use stats::StatsFile;

/// The time of the last use is updated at most this often, because each update makes the file system write.
const TOUCH_AFTER: Duration = Duration::from_secs(5 * 60);
/// Larger blobs are not synced to the disk, which would take longer than the link; neither are records, because it takes milliseconds for
/// each. Correctness does not depend on it: a file that a power cut has damaged has the wrong digest.
const SYNC_UP_TO: u64 = 64 << 20;
/// The mode of files in the store: read-only, because outputs may be hard links to them.
const SEALED: u32 = 0o444;
/// The unit in which file systems give room to files.
const BLOCK: u64 = 4096;

/// A store below a folder. Opening it costs nothing: folders are made when something is put, and nothing is read before it is needed.
///
/// Errors of `put_…` are shown by `--wrapper-verbose` and never make a link fail.
pub struct Store {
    layout: Layout,
    limit: u64,
    stats: StatsFile,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("root", &self.root()).field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl Store {
    /// The store below the folder `root`, which need not exist yet, with at most `limit` bytes.
    ///
    /// # Errors
    /// `root` is empty.
    pub fn open(root: &Path, limit: u64) -> Result<Store> {
        Store::with_clock(root, limit, Arc::new(SystemClock))
    }

    /// The same, where the time is what `clock` says.
    pub(crate) fn with_clock(root: &Path, limit: u64, clock: Arc<dyn Clock>) -> Result<Store> {
        let root = std::path::absolute(root).with_context(|| format!("`{}` cannot be a cache folder", root.display()))?;
        let layout = Layout::new(root);
        let stats = StatsFile::new(layout.stats(), Arc::clone(&clock));
        Ok(Store { layout, limit, stats, clock })
    }

    /// The folder of the store.
    pub fn root(&self) -> &Path {
        &self.layout.root
    }

    /// What tells the time here.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// How many bytes it may hold.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes of a record; `None` where there is no such record. A damaged one is removed and counts as missing.
    pub fn record(&self, key: Digest) -> Option<Vec<u8>> {
        let path = self.layout.record(key);
        let file = File::open(&path).ok()?;
        match record::read(&file, key) {
            Some(bytes) => {
                touch(&file, self.clock.now());
                Some(bytes)
            }
            None => {
                self.damaged(&path);
                None
            }
        }
    }

    /// Keeps `bytes` under `key`, and replaces what is there.
    ///
    /// # Errors
    /// There are more bytes than a record or the store may have, or the folder cannot be written.
    pub fn put_record(&self, key: Digest, bytes: &[u8]) -> Result<()> {
        let whole = record::write(key, bytes)?;
        let size = on_disk(whole.len() as u64);
        if size > self.limit {
            bail!("a record of {size} bytes is larger than the cache may be ({})", self.limit);
        }
        let made = self.aside(|path| File::create_new(path))?;
        let (mut file, aside) = made.into_parts();
        let written = file.write_all(&whole).and_then(|()| seal(&file, self.clock.now()));
        written.with_context(|| format!("cannot write `{}`", aside.display()))?;
        self.place(aside, &self.layout.record(key), size)
    }

    /// Removes the record under `key`, if there is one.
    pub fn forget(&self, key: Digest) {
        let _ = fs::remove_file(self.layout.record(key));
    }

    /// Puts the blob `name` at `to`, in place of what is there, and returns whether that worked: as a hard link where possible, else as a
    /// copy. Writing to such a hard link would damage the store; its mode forbids it. The contents are checked when they are in place. A
    /// damaged blob is removed and counts as missing; then there is no file at `to`.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn fetch_blob(&self, name: Digest, to: &Path) -> Result<bool> {
        let path = self.layout.blob(name);
        let linked = match fs::hard_link(&path, to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Removed and not overwritten: it may be a hard link to a blob.
                fs::remove_file(to).with_context(|| format!("cannot replace `{}`", to.display()))?;
                fs::hard_link(&path, to)
            }
            linked => linked,
        };
        let digest = match linked {
            Ok(()) => File::open(to).and_then(|mut file| {
                touch(&file, self.clock.now());
                copy(&mut file, &mut io::sink()).map(|(digest, _)| digest)
            }),
            // It is another file system, or one without hard links, or the blob has too many; or there is no such blob.
            Err(_) => {
                let Ok(file) = File::open(&path) else { return Ok(false) };
                touch(&file, self.clock.now());
                copied(file, to)?
            }
        };
        if digest.is_ok_and(|digest| digest == name) {
            return Ok(true);
        }
        let _ = fs::remove_file(to);
        self.damaged(&path);
        Ok(false)
    }

    /// Whether there is a blob `name`. It may be damaged, which is noticed when it is fetched.
    pub fn has_blob(&self, name: Digest) -> bool {
        self.layout.blob(name).is_file()
    }

    /// Keeps the contents of `file` as a blob; returns its name. Callers that know the digest of the contents pass it as `name`: then the
    /// contents need not be read where the file system has hard links. Afterwards `file` may be a hard link to the blob and is read-only;
    /// nobody may change it.
    ///
    /// # Errors
    /// The file is larger than the store may be, or was copied and has not the digest `name`, or the folder cannot be written. Then
    /// nothing is kept.
    pub fn put_blob(&self, file: &Path, name: Option<Digest>) -> Result<Digest> {
        let context = || format!("cannot read `{}`", file.display());
        let mut from = File::open(file).with_context(context)?;
        let size = on_disk(from.metadata().with_context(context)?.len());
        if size > self.limit {
            bail!("`{}` ({size} bytes) is larger than the cache may be ({})", file.display(), self.limit);
        }
        if let Some(name) = name.filter(|name| self.holds(*name, size)) {
            return Ok(name);
        }
        let (aside, name) = match self.aside(|path| Ok(linkat(CWD, file, CWD, path, AtFlags::SYMLINK_FOLLOW)?)) {
            Ok(made) => {
                let name = match name {
                    Some(name) => name,
                    None => copy(&mut from, &mut io::sink()).with_context(context)?.0,
                };
                seal(&from, self.clock.now())
                    .and_then(|()| sync(&from))
                    .with_context(|| format!("cannot keep `{}`", file.display()))?;
                (made.into_parts().1, name)
            }
            Err(_) => self.copied_aside(file, &mut from, name)?,
        };
        if !self.holds(name, size) {
            self.place(aside, &self.layout.blob(name), size)?;
        }
        Ok(name)
    }

    /// Counts `event` in the statistics, where they can be written.
    pub fn count(&self, event: Event) {
        let _ = self.changed(|stats| stats.add(event, 1));
    }

    /// The statistics of all processes so far.
    pub fn stats(&self) -> Stats {
        self.stats.read()
    }

    /// A temporary copy of `from`, and its digest, which must be `name` if that is given.
    fn copied_aside(&self, file: &Path, from: &mut File, name: Option<Digest>) -> Result<(TempPath, Digest)> {
        let (mut to, aside) = self.aside(|path| File::create_new(path))?.into_parts();
        let (digest, _) = copy(from, &mut to)
            .and_then(|copied| seal(&to, self.clock.now()).and_then(|()| sync(&to)).map(|()| copied))
            .with_context(|| format!("cannot copy `{}` to `{}`", file.display(), aside.display()))?;
        if name.is_some_and(|name| name != digest) {
            bail!("`{}` has changed while it was put into the cache", file.display());
        }
        Ok((aside, digest))
    }

    /// Whether there is a blob `name` of this size, which then counts as used. Whether its contents are right is not checked.
    fn holds(&self, name: Digest, size: u64) -> bool {
        let Ok(file) = File::open(self.layout.blob(name)) else { return false };
        let there = file.metadata().is_ok_and(|meta| on_disk(meta.len()) == size);
        if there {
            touch(&file, self.clock.now());
        }
        there
    }

    /// Makes something under a unique name in the folder for temporary files. It is removed unless it is placed. (`sys::atomic_file` has
    /// no part in this: what is made here may be a hard link, and nothing of the file that it replaces is kept.)
    fn aside<T>(&self, mut make: impl FnMut(&Path) -> io::Result<T>) -> Result<tempfile::NamedTempFile<T>> {
        let folder = self.layout.tmp();
        let mut named = tempfile::Builder::new();
        named.prefix("").rand_bytes(16);
        let made = match named.make_in(&folder, &mut make) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.layout.make()?;
                named.make_in(&folder, &mut make)
            }
            made => made,
        };
        made.with_context(|| format!("cannot write to the cache folder `{}`", folder.display()))
    }

    /// Renames a temporary file to its place, and evicts others where the store becomes too large.
    fn place(&self, aside: TempPath, place: &Path, size: u64) -> Result<()> {
        let context = || format!("cannot keep `{}`", place.display());
        // Counted before the rename: a crash between the two only over-counts the size, and the next collection corrects it.
        let stats = self.changed(|stats| stats.stored(size)).with_context(context)?;
        let renamed = match fs::rename(&aside, place) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                layout::make_folder(place.parent().unwrap_or(&self.layout.root))?;
                fs::rename(&aside, place)
            }
            renamed => renamed,
        };
        renamed.with_context(context)?;
        // Renaming a hard link over another link to the same file does nothing (POSIX): then `aside` is still there.
        drop(aside);
        if stats.size > self.limit || stats.collection_is_due(self.clock.now()) {
            self.trim()?;
        }
        Ok(())
    }

    /// Applies `change` to the statistics and returns them. The folder is made if it is not there.
    fn changed(&self, change: impl Fn(&mut Stats)) -> Result<Stats> {
        let changed = match self.stats.change(&change) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.layout.make()?;
                self.stats.change(&change)
            }
            changed => changed,
        };
        changed.with_context(|| format!("cannot change `{}`", self.layout.stats().display()))
    }

    /// Removes a file of the store that turned out to be damaged.
    fn damaged(&self, path: &Path) {
        let removed = fs::remove_file(path);
        if removed.is_ok() {
            self.count(Event::Damaged);
        }
    }
}

/// The room that a file of `len` bytes takes on the disk.
fn on_disk(len: u64) -> u64 {
    len.max(1).next_multiple_of(BLOCK)
}

/// Makes a file read-only, and sets the time of its last use to now.
fn seal(file: &File, now: SystemTime) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(SEALED))?;
    file.set_modified(now)
}

/// Syncs a file to the disk unless it is large.
fn sync(file: &File) -> io::Result<()> {
    if file.metadata()?.len() <= SYNC_UP_TO { file.sync_data() } else { Ok(()) }
}

/// Sets the time of a file's last use to now, unless it is recent. A time in the future is replaced: a clock was wrong.
fn touch(file: &File, now: SystemTime) {
    let used = file.metadata().and_then(|meta| meta.modified());
    let recent = used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age < TOUCH_AFTER));
    if !recent {
        // Errors do not matter: where the store is read-only, nothing is evicted by these times.
        let _ = file.set_modified(now);
    }
}

/// Copies `from` to `to` and returns the digest. The outer error is one of writing, the inner one of reading.
fn copied(mut from: File, to: &Path) -> Result<io::Result<Digest>> {
    let context = || format!("cannot write `{}`", to.display());
    let mut out = ErrorKeeper { file: File::create_new(to).with_context(context)?, failed: None };
    let copied = copy(&mut from, &mut out).map(|(digest, _)| digest);
    match out.failed {
        Some(error) => {
            let _ = fs::remove_file(to);
            Err(error).with_context(context)
        }
        None => Ok(copied),
    }
}

/// A file that is written, which keeps its errors, so that they can be told from those of reading.
struct ErrorKeeper {
    file: File,
    failed: Option<io::Error>,
}

impl Write for ErrorKeeper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| {
            let kind = error.kind();
            if kind != ErrorKind::Interrupted {
                self.failed = Some(error);
            }
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
