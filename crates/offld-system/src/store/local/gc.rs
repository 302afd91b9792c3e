//! Eviction: removes the least recently used blobs and records, of any release, until the rest
//! fits. One process at a time does this, and the others do not wait for it. A link that fetches an
//! entry during its removal either has its own hard link already, or misses.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::layout::{Contents, EARLIER, LOCK, STATS, StoreEntry, TMP, entries};
use super::stats::{Stats, seconds};
use super::{Event, Store, on_disk};

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

/// A locked file. It is unlocked before it is closed: a child process has a copy of the open file
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
