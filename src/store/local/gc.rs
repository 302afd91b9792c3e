//! Eviction: removes the least recently used blobs and records until the rest fits, whichever release has put them there. One process at a time does this, and the others
//! do not wait for it. A link that fetches what is just being removed either has its own link to the file already, or misses.

use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::contents::{Contents, StoreEntry, entries};
use super::layout::{EARLIER, LOCK, STATS, TMP};
use super::stats::{Stats, seconds};
use super::{Event, Store, on_disk};

/// The age from which a temporary file is taken for one that a killed process left: whatever is still being written is younger.
const LEFTOVER_AFTER: Duration = Duration::from_secs(60 * 60);
/// The time without use after which the store of an earlier release is removed: a month.
const ABANDONED_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How deep the folders of an earlier release may be; there are two levels in them.
const DEEPEST: usize = 8;
/// How far the clocks of machines that share a folder may differ. Times that are later than that are wrong.
const SKEW: Duration = Duration::from_secs(60 * 60);

/// What a collection has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many blobs and records were removed.
    pub removed: u64,
    /// How many bytes they took.
    pub freed: u64,
    /// What is left.
    pub left: Contents,
}

impl Store {
    /// What is in the store and beside it, counted by reading the folders.
    pub fn contents(&self) -> Contents {
        Contents::of(&entries(&self.layout))
    }

    /// Removes the least recently used entries until at most `limit` bytes are left, and temporary files that killed processes
    /// left. `None` where another process is collecting.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn gc(&self, limit: u64) -> Result<Option<Collected>> {
        self.collect(limit, limit)
    }

    /// Removes all blobs and records, and resets the counts. `None` where another process is collecting.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn clear(&self) -> Result<Option<Collected>> {
        let cleared = self.collect(0, 0)?;
        if cleared.is_some() {
            self.remove_earlier(Duration::ZERO);
        }
        if cleared.is_some() && self.layout.version().is_ok_and(|folder| folder.entry(OsStr::new(STATS)).is_ok()) {
            self.changed(Stats::forget_counts)?;
        }
        Ok(cleared)
    }

    /// After a put: where the store is too large, it is brought to nine tenths of its limit, so that not every link has to do this.
    pub(super) fn trim(&self) -> Result<()> {
        self.collect(self.limit, self.limit - self.limit / 10).map(drop)
    }

    /// With more than `limit` bytes, removes down to `target`.
    fn collect(&self, limit: u64, target: u64) -> Result<Option<Collected>> {
        let Some(_lock) = self.collector()? else { return Ok(None) };
        // The order matters. A file is made as a temporary file, then counted, then renamed. Reading the counter first, then the
        // temporary files, then the folders, finds each file that was counted at least once; some are found twice, which only
        // over-counts.
        let before = self.stats();
        let aside = self.remove_leftovers();
        self.remove_earlier(ABANDONED_AFTER);
        let mut all = entries(&self.layout);
        let mut left = Contents::of(&all);
        let mut done = Collected::default();
        if left.size.saturating_add(aside) > limit {
            let now = self.clock.now();
            all.sort_by(|a, b| (age_key(a.used, now), a.version, &a.place).cmp(&(age_key(b.used, now), b.version, &b.place)));
            for (at, entry) in all.iter().enumerate() {
                let size = left.size.saturating_add(aside);
                // The last entry, which was just put, may stay even if it alone is larger than `target`.
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
        // What was put while this ran may have been seen or not; adding it may over-count, and never under-counts.
        self.changed(|stats| {
            let meanwhile = stats.size.saturating_sub(before.size);
            stats.size = left.size.saturating_add(aside).saturating_add(meanwhile);
            stats.collected = seconds(self.clock.now());
            stats.add(Event::Evicted, done.removed);
        })?;
        Ok(Some(done))
    }

    /// The lock for collecting; `None` if another process has it.
    fn collector(&self) -> Result<Option<File>> {
        let open = || self.layout.version()?.open_to_change(LOCK);
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.layout.make()?;
                open()
            }
            opened => opened,
        };
        let file = file.with_context(|| format!("cannot open `{}`", self.layout.shown(LOCK)))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    /// Removes what releases with an earlier layout have put below the same folder, if none of them has used it for `unused`. They
    /// write their statistics at each use, so the time of that file is the time of the last use.
    fn remove_earlier(&self, unused: Duration) {
        let now = SystemTime::now();
        let Ok(root) = self.layout.opened_root() else { return };
        for name in EARLIER {
            let Ok(folder) = root.sub(name) else { continue };
            let used = folder.entry(OsStr::new(STATS)).map(|entry| entry.modified).or_else(|_| folder.modified());
            if used.is_ok_and(|used| distance(used, now) >= unused) {
                // The next collection tries again to remove what cannot be removed now.
                root.remove_folder(name, DEEPEST);
            }
        }
    }

    /// Removes temporary files that killed processes left; returns the size of those that are still in use.
    fn remove_leftovers(&self) -> u64 {
        let now = self.clock.now();
        let mut left = 0u64;
        let Ok(folder) = self.layout.folder(TMP) else { return left };
        for file in folder.entries() {
            let old = distance(file.modified, now) > LEFTOVER_AFTER;
            if !old || folder.remove(&file.name).is_err() {
                left = left.saturating_add(on_disk(file.size));
            }
        }
        left
    }

    /// Removes an entry unless it was used since it was listed; returns whether it is gone.
    fn remove_unused(&self, entry: &StoreEntry) -> bool {
        let Ok(folder) = self.layout.folder_of(entry.version, &entry.place.folder) else { return false };
        let name = OsStr::new(&entry.place.name);
        match folder.entry(name) {
            Ok(found) if found.modified != entry.used => false,
            Ok(_) => folder.remove(name).is_ok(),
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }
}

/// The order of eviction: the smallest key goes first. A time too far in the future was set by a wrong clock, and the entry was not
/// used since the clock is right again (that would have corrected the time), so it goes before all others.
fn age_key(used: SystemTime, now: SystemTime) -> (bool, SystemTime) {
    (used.duration_since(now).is_err() || distance(used, now) <= SKEW, used)
}

fn distance(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|error| error.duration())
}
