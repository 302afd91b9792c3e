//! Making room: the least recently used goes first, until the rest fits. One process at a time does it; the others go on with their
//! work. A link that is just fetching what goes has it already, or finds that it is not there.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::contents::{Contents, Entry, entries, files};
use super::stats::{Stats, seconds};
use super::{Event, Store, on_disk};

/// Whatever is still being written is younger.
const LEFTOVER_AFTER: Duration = Duration::from_secs(60 * 60);
/// After a month without use, the store of an earlier release is taken for abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How far clocks of machines that share a folder may differ. What was used later than that in the future was not.
const SKEW: Duration = Duration::from_secs(60 * 60);

/// What a collection did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many blobs and records went.
    pub removed: u64,
    /// How many bytes they took.
    pub freed: u64,
    /// What is left.
    pub left: Contents,
}

impl Store {
    /// What is in the store, counted by going through it.
    pub fn contents(&self) -> Contents {
        Contents::of(&entries(&self.layout))
    }

    /// Removes what was not used for longest, until at most `limit` bytes are left, and what killed processes left behind. None where
    /// somebody else is at it.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn gc(&self, limit: u64) -> Result<Option<Collected>> {
        self.collect(limit, limit)
    }

    /// Removes everything that was put into the store, and the counts. None where somebody else collects.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn clear(&self) -> Result<Option<Collected>> {
        let cleared = self.collect(0, 0)?;
        if cleared.is_some() {
            self.remove_earlier(Duration::ZERO);
        }
        if cleared.is_some() && self.layout.stats().exists() {
            self.changed(Stats::forget_counts)?;
        }
        Ok(cleared)
    }

    /// After a put: if there is too much, a tenth more than that goes, so that not every link has to do this.
    pub(super) fn trim(&self) -> Result<()> {
        self.collect(self.limit, self.limit - self.limit / 10).map(drop)
    }

    /// With more than `limit` bytes, removes down to `target`.
    fn collect(&self, limit: u64, target: u64) -> Result<Option<Collected>> {
        let Some(_lock) = self.collector()? else { return Ok(None) };
        // In this order: whatever was counted before and is not in its place yet is aside, and if it is neither of these when it is
        // looked for, it has come to its place in between and is found there. Twice is possible, never is not.
        let before = self.stats();
        let aside = self.remove_leftovers();
        self.remove_earlier(ABANDONED_AFTER);
        let mut all = entries(&self.layout);
        let mut left = Contents::of(&all);
        let mut done = Collected::default();
        if left.size.saturating_add(aside) > limit {
            let now = SystemTime::now();
            all.sort_by(|a, b| (age_key(a.used, now), &a.path).cmp(&(age_key(b.used, now), &b.path)));
            for (at, entry) in all.iter().enumerate() {
                let size = left.size.saturating_add(aside);
                // What was put last may stay where there is room for nothing else.
                let room = if at + 1 == all.len() { limit } else { target };
                if size <= room {
                    break;
                }
                if remove_unused(entry) {
                    done.removed += 1;
                    done.freed += entry.size;
                    left = without(left, entry);
                }
            }
        }
        done.left = left;
        // What was put there meanwhile may have been seen or not, too: it is counted on top.
        self.changed(|stats| {
            let meanwhile = stats.size.saturating_sub(before.size);
            stats.size = left.size.saturating_add(aside).saturating_add(meanwhile);
            stats.collected = seconds(SystemTime::now());
            stats.add(Event::Evicted, done.removed);
        })?;
        Ok(Some(done))
    }

    /// The lock of whoever collects; none if another has it.
    fn collector(&self) -> Result<Option<File>> {
        let path = self.layout.lock();
        let open = || OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = match open() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.layout.make()?;
                open()
            }
            opened => opened,
        };
        let file = file.with_context(|| format!("cannot open `{}`", path.display()))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    /// Removes what releases with an earlier form of store have put below the same folder, if none has used it for `unused`. Each of
    /// them writes its counters at every use.
    fn remove_earlier(&self, unused: Duration) {
        let now = SystemTime::now();
        for folder in self.layout.earlier() {
            let used = fs::metadata(folder.join("stats")).or_else(|_| fs::metadata(&folder)).and_then(|meta| meta.modified());
            if used.is_ok_and(|used| distance(used, now) >= unused) {
                // What cannot be removed is met again by the next collection.
                let _ = fs::remove_dir_all(&folder);
            }
        }
    }

    /// Removes what killed processes have not finished; the size of what is left aside.
    fn remove_leftovers(&self) -> u64 {
        let now = SystemTime::now();
        let mut left = 0u64;
        for file in files(&self.layout.tmp()) {
            let Ok(meta) = file.metadata() else { continue };
            let old = meta.modified().is_ok_and(|made| distance(made, now) > LEFTOVER_AFTER);
            if !old || fs::remove_file(file.path()).is_err() {
                left = left.saturating_add(on_disk(meta.len()));
            }
        }
        left
    }
}

/// What goes first is smallest. A date too far in the future says nothing of when that was used but that it was not since the clock
/// is right again (a use would have corrected it): it goes before all others, and if all are such, in their order.
fn age_key(used: SystemTime, now: SystemTime) -> (bool, SystemTime) {
    (used.duration_since(now).is_err() || distance(used, now) <= SKEW, used)
}

fn distance(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|error| error.duration())
}

/// Removes an entry unless it was used since it was looked at; whether it is gone.
fn remove_unused(entry: &Entry) -> bool {
    let used = |path: &Path| fs::symlink_metadata(path).and_then(|meta| meta.modified());
    match used(&entry.path) {
        Ok(used) if used != entry.used => false,
        Ok(_) => fs::remove_file(&entry.path).is_ok(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

fn without(left: Contents, entry: &Entry) -> Contents {
    let blob = u64::from(entry.is_blob);
    Contents { blobs: left.blobs - blob, records: left.records - (1 - blob), size: left.size - entry.size }
}
