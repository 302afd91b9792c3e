//! The store on disk: what is asked of it and put into it. Many processes use it at once and may be killed at any moment, so nothing is
//! ever written where others read: a file is made aside, and appears under its name whole. What is read is checked against its
//! digest after it was read or linked, so that neither a torn file nor a race with eviction gives wrong bytes: it gives none.

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
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, linkat};
use tempfile::TempPath;

pub use contents::Contents;
pub use gc::Collected;
pub use stats::{EVENTS, Event, Stats};

use super::digest::{Digest, copy};
use layout::Layout;
use stats::StatsFile;

/// A use is written down at most this often: a touch costs a write of the file system's.
const TOUCH_AFTER: Duration = Duration::from_secs(5 * 60);
/// Larger blobs are not synced: that would cost more than the link. Neither are records: it takes some milliseconds for each, and they are
/// small. No answer depends on it: after a power cut, the digest tells what is left of a file.
const SYNC_UP_TO: u64 = 64 << 20;
/// Nobody writes to what is in the store, by whatever name.
const SEALED: u32 = 0o444;
/// What a file system gives a file in.
const BLOCK: u64 = 4096;

/// A store below a folder. Opening it costs nothing: folders are made when something is put, and nothing is read until it is asked for.
///
/// Errors of `put_…` are for those who want to know (`--wrapper-verbose`), never for a link: what cannot be written is not kept.
pub struct Store {
    layout: Layout,
    limit: u64,
    stats: StatsFile,
}

impl Store {
    /// The store below `root`, which need not be there, with at most `limit` bytes.
    ///
    /// # Errors
    /// A `root` that is no path at all.
    pub fn open(root: &Path, limit: u64) -> Result<Store> {
        let root = std::path::absolute(root).with_context(|| format!("`{}` cannot be a cache folder", root.display()))?;
        let layout = Layout::new(root);
        let stats = StatsFile::new(layout.stats());
        Ok(Store { layout, limit, stats })
    }

    /// The folder it is below.
    pub fn root(&self) -> &Path {
        &self.layout.root
    }

    /// How many bytes it may hold.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes of a record; none where there is no such record, or a damaged one, which then is gone.
    pub fn record(&self, key: Digest) -> Option<Vec<u8>> {
        let path = self.layout.record(key);
        let file = File::open(&path).ok()?;
        match record::read(&file, key) {
            Some(bytes) => {
                touch(&file);
                Some(bytes)
            }
            None => {
                self.damaged(&path);
                None
            }
        }
    }

    /// Keeps `bytes` under `key`, in place of what is there.
    ///
    /// # Errors
    /// More bytes than a record may have, and whatever the file system says.
    pub fn put_record(&self, key: Digest, bytes: &[u8]) -> Result<()> {
        let whole = record::write(key, bytes)?;
        let size = on_disk(whole.len() as u64);
        if size > self.limit {
            bail!("a record of {size} bytes is larger than the cache may be ({})", self.limit);
        }
        let made = self.aside(|path| File::create_new(path))?;
        let (mut file, aside) = made.into_parts();
        let written = file.write_all(&whole).and_then(|()| seal(&file));
        written.with_context(|| format!("cannot write `{}`", aside.display()))?;
        self.place(aside, &self.layout.record(key), size)
    }

    /// Removes a record, if it is there.
    pub fn forget(&self, key: Digest) {
        let _ = fs::remove_file(self.layout.record(key));
    }

    /// Puts the blob `name` at `to`, in place of what is there: as a hard link where it can, so whoever writes to that file damages the
    /// store (nobody may, its mode says), else as a copy. The contents are checked when they are in place: true only where they are
    /// right. False where there is no such blob, or a damaged one, which then is gone; there is no file at `to` then.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn fetch_blob(&self, name: Digest, to: &Path) -> Result<bool> {
        let path = self.layout.blob(name);
        let linked = match fs::hard_link(&path, to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Never written into: it may be another name of a blob.
                fs::remove_file(to).with_context(|| format!("cannot replace `{}`", to.display()))?;
                fs::hard_link(&path, to)
            }
            linked => linked,
        };
        let digest = match linked {
            Ok(()) => File::open(to).and_then(|mut file| {
                touch(&file);
                copy(&mut file, &mut io::sink()).map(|(digest, _)| digest)
            }),
            // Another file system, or one without links, or with too many: or there is no such blob.
            Err(_) => {
                let Ok(file) = File::open(&path) else { return Ok(false) };
                touch(&file);
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

    /// Whether there is a blob `name`; whether it is whole shows when it is fetched.
    pub fn has_blob(&self, name: Digest) -> bool {
        self.layout.blob(name).is_file()
    }

    /// Keeps the contents of `file` as a blob; the name it has then. Who knows the digest of the contents says it as `name`: then they
    /// need not be read where the file system has hard links. `file` itself is read-only after that, and must not be changed by those who
    /// may all the same.
    ///
    /// # Errors
    /// A file larger than the store may be, one that is not what `name` says as far as that showed, and whatever the file system says.
    /// Nothing of it is kept then.
    pub fn put_blob(&self, file: &Path, name: Option<Digest>) -> Result<Digest> {
        let told = || format!("cannot read `{}`", file.display());
        let mut from = File::open(file).with_context(told)?;
        let size = on_disk(from.metadata().with_context(told)?.len());
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
                    None => copy(&mut from, &mut io::sink()).with_context(told)?.0,
                };
                seal(&from).and_then(|()| sync(&from)).with_context(|| format!("cannot keep `{}`", file.display()))?;
                (made.into_parts().1, name)
            }
            Err(_) => self.copied_aside(file, &mut from, name)?,
        };
        if !self.holds(name, size) {
            self.place(aside, &self.layout.blob(name), size)?;
        }
        Ok(name)
    }

    /// Counts something. Where it cannot be written down, it is not counted.
    pub fn count(&self, event: Event) {
        let _ = self.changed(|stats| stats.add(event, 1));
    }

    /// What was counted so far, by all processes.
    pub fn stats(&self) -> Stats {
        self.stats.read()
    }

    /// A copy of `from` aside, and its digest, which has to be `name` if that is given.
    fn copied_aside(&self, file: &Path, from: &mut File, name: Option<Digest>) -> Result<(TempPath, Digest)> {
        let (mut to, aside) = self.aside(|path| File::create_new(path))?.into_parts();
        let (digest, _) = copy(from, &mut to)
            .and_then(|copied| seal(&to).and_then(|()| sync(&to)).map(|()| copied))
            .with_context(|| format!("cannot copy `{}` to `{}`", file.display(), aside.display()))?;
        if name.is_some_and(|name| name != digest) {
            bail!("`{}` has changed while it was put into the cache", file.display());
        }
        Ok((aside, digest))
    }

    /// Whether the blob `name` is there in its size, which then counts as a use. A damaged one of that size shows when it is fetched.
    fn holds(&self, name: Digest, size: u64) -> bool {
        let Ok(file) = File::open(self.layout.blob(name)) else { return false };
        let there = file.metadata().is_ok_and(|meta| on_disk(meta.len()) == size);
        if there {
            touch(&file);
        }
        there
    }

    /// Something with a name of its own in the folder for what is not done yet, which is removed unless it is placed.
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

    /// Puts what is aside in its place, and makes room where that is too much.
    fn place(&self, aside: TempPath, place: &Path, size: u64) -> Result<()> {
        let told = || format!("cannot keep `{}`", place.display());
        // Before it is there: whoever is killed in between has counted too much, and the next collection counts anew.
        let stats = self.changed(|stats| stats.stored(size)).with_context(told)?;
        let renamed = match fs::rename(&aside, place) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                layout::make_folder(place.parent().unwrap_or(&self.layout.root))?;
                fs::rename(&aside, place)
            }
            renamed => renamed,
        };
        renamed.with_context(told)?;
        // A file that is renamed to another name of itself stays: `aside` is removed here if it is there.
        drop(aside);
        if stats.size > self.limit || stats.collection_is_due(SystemTime::now()) {
            self.trim()?;
        }
        Ok(())
    }

    /// The counters after `change`; the folder is made if it is not there.
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

    /// A file of the store turned out to be none of its: away with it.
    fn damaged(&self, path: &Path) {
        let removed = fs::remove_file(path);
        if removed.is_ok() {
            self.count(Event::Damaged);
        }
    }
}

/// The room that `len` bytes take on a disk.
fn on_disk(len: u64) -> u64 {
    len.max(1).next_multiple_of(BLOCK)
}

/// Makes a file fit for the store: read-only, and used just now.
fn seal(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(SEALED))?;
    file.set_modified(SystemTime::now())
}

/// Brings a file to the disk, where that does not take long.
fn sync(file: &File) -> io::Result<()> {
    if file.metadata()?.len() <= SYNC_UP_TO { file.sync_data() } else { Ok(()) }
}

/// Writes down that a file is used, unless it was a moment ago. A date in the future is none: some clock was wrong.
fn touch(file: &File) {
    let now = SystemTime::now();
    let used = file.metadata().and_then(|meta| meta.modified());
    let recent = used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age < TOUCH_AFTER));
    if !recent {
        // In a store that cannot be written to, nobody evicts either.
        let _ = file.set_modified(now);
    }
}

/// A copy of `from` at `to`: the digest of what could be read; the inner error is one of reading.
fn copied(mut from: File, to: &Path) -> Result<io::Result<Digest>> {
    let told = || format!("cannot write `{}`", to.display());
    let mut out = Only { file: File::create_new(to).with_context(told)?, failed: None };
    let copied = copy(&mut from, &mut out).map(|(digest, _)| digest);
    match out.failed {
        Some(error) => {
            let _ = fs::remove_file(to);
            Err(error).with_context(told)
        }
        None => Ok(copied),
    }
}

/// A file that is written, and its own errors apart from those of what is read.
struct Only {
    file: File,
    failed: Option<io::Error>,
}

impl Write for Only {
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
