//! The store on disk. Many processes use it at once, and each may be killed at any moment. So a
//! file is never written in place: it is created in a directory for temporary files and then
//! renamed. Fetched data is checked against its digest after it was read or linked. So a damaged
//! file, or one that another process just evicts, counts as missing and never yields wrong bytes.

mod layout;
mod stats;
#[cfg(test)]
mod tests;

pub use stats::{EVENTS, Event, Stats};

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::digest::{BlobName, Key, Naming, copy};
use super::settings::Setting;
use crate::clock::{Clock, SystemClock};
use crate::folder::Folder;
use layout::{Aside, Contents, EARLIER, LOCK, Layout, Place, STATS, StoreEntry, TMP, entries};
use stats::{StatsFile, seconds};

/// Minimum age of the time of last use before it is updated: each update makes the file system
/// write.
const TOUCH_AFTER: Duration = Duration::from_secs(5 * 60);
/// Blobs up to this size, in bytes, are synced to the disk. Syncing larger ones would take longer
/// than the link, and records are never synced, because each would take milliseconds. Correctness
/// does not depend on it: a file damaged by a power cut has the wrong digest.
const SYNC_UP_TO: u64 = 64 << 20;
/// Mode of files in the store: read-only, because outputs may be hard links to them.
const SEALED: u32 = 0o444;
/// Unit in which file systems allocate space, in bytes.
const BLOCK: u64 = 4096;

/// A store below a directory. Opening it costs nothing: directories are created by the first put,
/// and files are read when they are needed.
///
/// Errors of `put_…` are shown by `--wrapper-verbose` and never make a link fail.
pub struct Store {
    layout: Arc<Layout>,
    limit: u64,
    naming: Naming,
    stats: StatsFile,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("root", &self.root())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store below the directory `root`, which need not exist yet, for at most `limit`
    /// bytes.
    ///
    /// # Errors
    /// `root` is empty.
    pub fn open(root: &Path, limit: u64) -> Result<Store> {
        Store::with_clock(root, limit, Arc::new(SystemClock))
    }

    /// Opens the store that `setting` selects below its directory `root`.
    pub fn of(setting: &Setting, root: &Path) -> Result<Store> {
        Store::with_layout(
            root,
            setting.is_default,
            setting.limit,
            Arc::new(SystemClock),
        )
    }

    /// Like [`Store::open`], with the time from `clock`.
    pub fn with_clock(root: &Path, limit: u64, clock: Arc<dyn Clock>) -> Result<Store> {
        Store::with_layout(root, false, limit, clock)
    }

    fn with_layout(
        root: &Path,
        is_default: bool,
        limit: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Store> {
        let root = std::path::absolute(root)
            .with_context(|| format!("cannot use `{}` as the cache directory", root.display()))?;
        let layout = Arc::new(if is_default {
            Layout::of_user(root)
        } else {
            Layout::new(root)
        });
        let stats = StatsFile::new(Arc::clone(&layout), Arc::clone(&clock));
        Ok(Store {
            layout,
            limit,
            naming: Naming::Quick,
            stats,
            clock,
        })
    }

    /// Names new blobs by `naming`. Existing blobs are found by either kind of name.
    #[must_use]
    pub fn with_naming(self, naming: Naming) -> Store {
        Store { naming, ..self }
    }

    pub(crate) fn naming(&self) -> Naming {
        self.naming
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        &self.layout.root
    }

    /// The clock that decides about ages.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Size limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes of a record, or `None` if there is no such record. A damaged record is
    /// removed and counts as missing.
    pub fn record(&self, key: Key) -> Option<Vec<u8>> {
        let place = Layout::record(key);
        let folder = self.layout.folder(&place.folder).ok()?;
        let file = self.open_existing(&folder, &place)?;
        match layout::read_record(&file, key) {
            Some(bytes) => {
                touch(&file, self.clock.now());
                Some(bytes)
            }
            None => {
                self.remove_damaged(&folder, &place);
                None
            }
        }
    }

    /// Stores `bytes` under `key`, and replaces an existing record.
    ///
    /// # Errors
    /// The bytes exceed the limit of a record or of the store, or the directory cannot be written.
    pub fn put_record(&self, key: Key, bytes: &[u8]) -> Result<()> {
        let whole = layout::record_file(key, bytes)?;
        let size = on_disk(whole.len() as u64);
        if size > self.limit {
            bail!(
                "a record of {size} bytes is larger than the cache limit ({})",
                self.limit
            );
        }
        let (aside, mut file) = self.aside(|folder, name| folder.create(name))?;
        let written = file
            .write_all(&whole)
            .and_then(|()| seal(&file, self.clock.now()));
        written.with_context(|| format!("cannot write `{}`", self.temporary_path(&aside)))?;
        self.place(&aside, &Layout::record(key), size)
    }

    /// Removes the record under `key`, if there is one.
    pub fn forget(&self, key: Key) {
        let place = Layout::record(key);
        let _ = self
            .layout
            .folder(&place.folder)
            .and_then(|folder| folder.remove(OsStr::new(&place.name)));
    }

    /// Writes the blob `name` to `to`, replacing an existing file, and returns whether that worked.
    /// The result is a hard link if possible, else a copy. Writing to such a hard link would damage
    /// the store; its mode forbids that. The contents are checked after the file is in place. A
    /// damaged blob is removed and counts as missing, and there is no file at `to`.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn fetch_blob(&self, name: BlobName, to: &Path) -> Result<bool> {
        let place = Layout::blob(name);
        let Ok(folder) = self.layout.folder(&place.folder) else {
            return Ok(false);
        };
        let Some(mut file) = self.open_existing(&folder, &place) else {
            return Ok(false);
        };
        touch(&file, self.clock.now());
        let found = if linked_out(&folder, &place, &file, to)? {
            copy(&mut file, &mut io::sink(), name.naming())
        } else {
            // The target is on another file system, or one without hard links, or the blob has too
            // many links, or another owner.
            layout::copy_to_new_file(file, to, name.naming())?
        };
        if found.is_ok_and(|found| found == name) {
            return Ok(true);
        }
        let _ = fs::remove_file(to);
        self.remove_damaged(&folder, &place);
        Ok(false)
    }

    /// Whether there is a blob `name`. It may be damaged, which is detected when it is fetched.
    pub fn has_blob(&self, name: BlobName) -> bool {
        let place = Layout::blob(name);
        self.layout
            .folder(&place.folder)
            .is_ok_and(|folder| folder.open(&place.name).is_ok())
    }

    /// Stores the contents of `file` as a blob, and returns its name. Callers that know the name
    /// pass it: then the contents need not be read if the file system has hard links. Afterwards
    /// `file` may be a hard link to the blob. It is read-only then, and must not be changed.
    ///
    /// # Errors
    /// The file is larger than the store may be, or was copied and does not have the name `name`,
    /// or the directory cannot be written. Then nothing is stored.
    pub fn put_blob(&self, file: &Path, name: Option<BlobName>) -> Result<BlobName> {
        let context = || format!("cannot read `{}`", file.display());
        let mut from = File::open(file).with_context(context)?;
        let size = on_disk(from.metadata().with_context(context)?.len());
        if size > self.limit {
            bail!(
                "`{}` ({size} bytes) is larger than the cache limit ({})",
                file.display(),
                self.limit
            );
        }
        if let Some(name) = name.filter(|name| self.holds(*name, size)) {
            return Ok(name);
        }
        let linked = self.aside(|folder, name| {
            if folder.is_foreign() {
                Err(not_ours())
            } else {
                folder.link_in(file, name)
            }
        });
        let (aside, name) = match linked {
            Ok((aside, ())) => {
                let name = match name {
                    Some(name) => name,
                    None => copy(&mut from, &mut io::sink(), self.naming).with_context(context)?,
                };
                seal(&from, self.clock.now())
                    .and_then(|()| sync(&from))
                    .with_context(|| format!("cannot store `{}`", file.display()))?;
                (aside, name)
            }
            Err(_) => self.copied_aside(file, &mut from, name)?,
        };
        if !self.holds(name, size) {
            self.place(&aside, &Layout::blob(name), size)?;
        }
        Ok(name)
    }

    /// Counts `event` in the statistics, if they can be written.
    pub fn count(&self, event: Event) {
        let _ = self.changed(|stats| stats.add(event, 1));
    }

    /// The statistics of all processes so far.
    pub fn stats(&self) -> Stats {
        self.stats.read()
    }

    /// Makes a temporary copy of `from`. Returns it with its name, which must be `name` if that is
    /// given.
    fn copied_aside(
        &self,
        file: &Path,
        from: &mut File,
        name: Option<BlobName>,
    ) -> Result<(Aside, BlobName)> {
        let (aside, mut to) = self.aside(|folder, name| folder.create(name))?;
        let found = copy(
            from,
            &mut to,
            name.map_or(self.naming, |name| name.naming()),
        )
        .and_then(|copied| {
            seal(&to, self.clock.now())
                .and_then(|()| sync(&to))
                .map(|()| copied)
        })
        .with_context(|| {
            format!(
                "cannot copy `{}` to `{}`",
                file.display(),
                self.temporary_path(&aside)
            )
        })?;
        if name.is_some_and(|name| name != found) {
            bail!("`{}` changed while being cached", file.display());
        }
        Ok((aside, found))
    }

    /// Whether there is a blob `name` of this size, which then counts as used. The contents are not
    /// checked.
    fn holds(&self, name: BlobName, size: u64) -> bool {
        let place = Layout::blob(name);
        let Ok(file) = self
            .layout
            .folder(&place.folder)
            .and_then(|folder| folder.open(&place.name))
        else {
            return false;
        };
        let exists = file
            .metadata()
            .is_ok_and(|meta| on_disk(meta.len()) == size);
        if exists {
            touch(&file, self.clock.now());
        }
        exists
    }

    /// Creates a file under a unique name in the directory for temporary files. It is removed
    /// unless it is placed. `crate::atomic_file` does not fit: the file may be a hard link, and
    /// must not inherit attributes of the file that it replaces.
    fn aside<T>(&self, make: impl Fn(&Folder, &str) -> io::Result<T>) -> Result<(Aside, T)> {
        let open = || Aside::make(self.layout.folder(layout::TMP)?, &make);
        let made = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.layout.make()?;
                open()
            }
            made => made,
        };
        made.with_context(|| {
            format!(
                "cannot write to the cache directory `{}`",
                self.layout.shown(layout::TMP)
            )
        })
    }

    /// Renames a temporary file to its final place, and evicts others if the store becomes too
    /// large.
    fn place(&self, aside: &Aside, place: &Place, size: u64) -> Result<()> {
        let context = || format!("cannot store `{}`", self.layout.shown_place(place));
        // Counted before the rename: after a crash between the two, the counted size is too large,
        // and the next collection corrects it.
        let stats = self
            .changed(|stats| stats.stored(size))
            .with_context(context)?;
        let folder = match self.layout.folder(&place.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => self
                .layout
                .version()
                .and_then(|version| version.make_sub(&place.folder)),
            opened => opened,
        };
        folder
            .and_then(|folder| aside.rename(&folder, &place.name))
            .with_context(context)?;
        if stats.size > self.limit || stats.collection_is_due(self.clock.now()) {
            self.trim()?;
        }
        Ok(())
    }

    /// Path of a temporary file, for messages.
    fn temporary_path(&self, aside: &Aside) -> String {
        self.layout
            .shown(&format!("{}/{}", layout::TMP, aside.name()))
    }

    /// Opens an existing blob or record. A symbolic link or a pipe in its place is removed.
    fn open_existing(&self, folder: &Folder, place: &Place) -> Option<File> {
        let opened = folder.open(&place.name);
        let no_file = || {
            folder
                .entry(OsStr::new(&place.name))
                .is_ok_and(|entry| !entry.is_file && !entry.is_folder)
        };
        if opened.is_err() && no_file() {
            self.remove_damaged(folder, place);
        }
        opened.ok()
    }

    /// Applies `change` to the statistics and returns them. Creates the directory if it is missing.
    fn changed(&self, change: impl Fn(&mut Stats)) -> Result<Stats> {
        let changed = match self.stats.change(&change) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.layout.make()?;
                self.stats.change(&change)
            }
            changed => changed,
        };
        changed.with_context(|| format!("cannot update `{}`", self.layout.shown(layout::STATS)))
    }

    /// Removes a damaged file from the store.
    fn remove_damaged(&self, folder: &Folder, place: &Place) {
        if folder.remove(OsStr::new(&place.name)).is_ok() {
            self.count(Event::Damaged);
        }
    }
}

/// Makes `to` a hard link to the blob `file`, replacing an existing file, and returns whether that
/// worked. Blobs of other users are not linked: those users could change them afterwards.
fn linked_out(folder: &Folder, place: &Place, file: &File, to: &Path) -> Result<bool> {
    let Some(blob) = file
        .metadata()
        .ok()
        .filter(|blob| blob.uid() == rustix::process::geteuid().as_raw())
    else {
        return Ok(false);
    };
    let linked = match folder.link_out(&place.name, to) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // Removed and not overwritten: it may be a hard link to a blob.
            fs::remove_file(to).with_context(|| format!("cannot replace `{}`", to.display()))?;
            folder.link_out(&place.name, to)
        }
        linked => linked,
    };
    if linked.is_err() {
        return Ok(false);
    }
    // Another process may have replaced the blob meanwhile.
    let same = fs::symlink_metadata(to)
        .is_ok_and(|meta| (meta.dev(), meta.ino()) == (blob.dev(), blob.ino()));
    if !same {
        fs::remove_file(to).with_context(|| format!("cannot replace `{}`", to.display()))?;
    }
    Ok(same)
}

/// Error for hard links into a cache that belongs to another user.
fn not_ours() -> io::Error {
    io::Error::other("the cache belongs to another user")
}

/// Disk space that a file of `len` bytes takes, in bytes.
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
    if file.metadata()?.len() <= SYNC_UP_TO {
        file.sync_data()
    } else {
        Ok(())
    }
}

/// Sets the time of a file's last use to now, unless it is recent. A time in the future is
/// replaced: a clock was wrong.
fn touch(file: &File, now: SystemTime) {
    let used = file.metadata().and_then(|meta| meta.modified());
    let recent = used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age < TOUCH_AFTER));
    if !recent {
        // Errors do not matter: in a read-only store, these times evict nothing.
        let _ = file.set_modified(now);
    }
}

// Eviction: removes the least recently used blobs and records, of any release, until the rest fits.
// A link that fetches an entry during its removal either has its own hard link already, or misses.

/// Age from which a temporary file counts as a leftover of a killed process: files that are still
/// being written are younger.
const LEFTOVER_AFTER: Duration = Duration::from_secs(60 * 60);
/// Time without use after which the store of an earlier release is removed: a month.
const ABANDONED_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Maximum depth of the directories of an earlier release; they have two levels.
const DEEPEST: usize = 8;
/// Tolerated difference between the clocks of machines that share a directory. Times further in the
/// future are wrong.
const SKEW: Duration = Duration::from_secs(60 * 60);

/// Result of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// Number of removed blobs and records.
    pub removed: u64,
    /// Their disk space, in bytes.
    pub freed: u64,
    /// Totals of the remaining entries.
    pub left: Contents,
}

/// The locked file of an eviction. One process at a time evicts entries, and the others do not wait
/// for it. The file is unlocked before it is closed: a child process has a copy of the open file
/// until it executes its program, and the copy would keep the lock.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Store {
    /// Totals of the store and of earlier releases, counted by reading the directories.
    pub fn contents(&self) -> Contents {
        Contents::of(&entries(&self.layout))
    }

    /// Removes the least recently used entries until at most `limit` bytes are left, and temporary
    /// files of killed processes. Returns `None` if another process is collecting.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn gc(&self, limit: u64) -> Result<Option<Collected>> {
        self.collect(limit, limit)
    }

    /// Removes all blobs and records, and resets the counts. Returns `None` if another process is
    /// collecting.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn clear(&self) -> Result<Option<Collected>> {
        let cleared = self.collect(0, 0)?;
        if cleared.is_some() {
            self.remove_earlier(Duration::ZERO);
        }
        if cleared.is_some()
            && self
                .layout
                .version()
                .is_ok_and(|folder| folder.entry(OsStr::new(STATS)).is_ok())
        {
            self.changed(Stats::forget_counts)?;
        }
        Ok(cleared)
    }

    /// After a put: shrinks a store that is too large to nine tenths of its limit, so that not
    /// every link has to do this.
    pub(super) fn trim(&self) -> Result<()> {
        self.collect(self.limit, self.limit - self.limit / 10)
            .map(drop)
    }

    /// If there are more than `limit` bytes, removes entries until `target` bytes are left.
    fn collect(&self, limit: u64, target: u64) -> Result<Option<Collected>> {
        let Some(_lock) = self.collector()? else {
            return Ok(None);
        };
        // The order matters. A file is created as a temporary file, then counted, then renamed.
        // Reading the counter first, then the temporary files, then the directories, finds each
        // counted file at least once. Some are found twice, which only over-counts.
        let before = self.stats();
        let aside = self.remove_leftovers();
        self.remove_earlier(ABANDONED_AFTER);
        let mut all = entries(&self.layout);
        let mut left = Contents::of(&all);
        let mut done = Collected::default();
        if left.size.saturating_add(aside) > limit {
            let now = self.clock.now();
            all.sort_by(|a, b| {
                (age_key(a.used, now), a.version, &a.place).cmp(&(
                    age_key(b.used, now),
                    b.version,
                    &b.place,
                ))
            });
            for (at, entry) in all.iter().enumerate() {
                let size = left.size.saturating_add(aside);
                // The last entry was just put. It may stay even if it alone is larger than
                // `target`.
                let room = if at + 1 == all.len() { limit } else { target };
                if size <= room {
                    break;
                }
                if self.remove_unused(entry) {
                    done.removed += 1;
                    done.freed += entry.size;
                    left = left.without(entry);
                }
            }
        }
        done.left = left;
        // Entries that were put while this ran may or may not have been seen. Adding them may
        // over-count, but never under-counts.
        self.changed(|stats| {
            let meanwhile = stats.size.saturating_sub(before.size);
            stats.size = left.size.saturating_add(aside).saturating_add(meanwhile);
            stats.collected = seconds(self.clock.now());
            stats.add(Event::Evicted, done.removed);
        })?;
        Ok(Some(done))
    }

    /// The lock for collecting, or `None` if another process holds it.
    fn collector(&self) -> Result<Option<Lock>> {
        let open = || self.layout.version()?.open_to_change(LOCK);
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.layout.make()?;
                open()
            }
            opened => opened,
        };
        let file = file.with_context(|| format!("cannot open `{}`", self.layout.shown(LOCK)))?;
        Ok(file.try_lock().is_ok().then_some(Lock(file)))
    }

    /// Removes stores with an earlier layout below the same directory that no release has used for
    /// `unused`. Those releases write their statistics at each use, so the time of that file is the
    /// time of the last use.
    fn remove_earlier(&self, unused: Duration) {
        let now = SystemTime::now();
        let Ok(root) = self.layout.opened_root() else {
            return;
        };
        for name in EARLIER {
            let Ok(folder) = root.sub(name) else { continue };
            let used = folder
                .entry(OsStr::new(STATS))
                .map(|entry| entry.modified)
                .or_else(|_| folder.modified());
            if used.is_ok_and(|used| distance(used, now) >= unused) {
                // If this fails, the next collection tries again.
                root.remove_folder(name, DEEPEST);
            }
        }
    }

    /// Removes temporary files of killed processes. Returns the disk space of those that are still
    /// in use, in bytes.
    fn remove_leftovers(&self) -> u64 {
        let now = self.clock.now();
        let mut left = 0u64;
        let Ok(folder) = self.layout.folder(TMP) else {
            return left;
        };
        for file in folder.entries() {
            let old = distance(file.modified, now) > LEFTOVER_AFTER;
            if !old || folder.remove(&file.name).is_err() {
                left = left.saturating_add(on_disk(file.size));
            }
        }
        left
    }

    /// Removes an entry unless it was used since it was listed. Returns whether it is gone.
    fn remove_unused(&self, entry: &StoreEntry) -> bool {
        let Ok(folder) = self.layout.folder_of(entry.version, &entry.place.folder) else {
            return false;
        };
        let name = OsStr::new(&entry.place.name);
        match folder.entry(name) {
            Ok(found) if found.modified != entry.used => false,
            Ok(_) => folder.remove(name).is_ok(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

/// Order of eviction: the smallest key goes first. A time too far in the future was set by a wrong
/// clock. A use after the clock was corrected would have corrected the time, so such an entry goes
/// before all others.
fn age_key(used: SystemTime, now: SystemTime) -> (bool, SystemTime) {
    (
        used.duration_since(now).is_err() || distance(used, now) <= SKEW,
        used,
    )
}

fn distance(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|error| error.duration())
}
