//! Statistics of the cache, in one small file. Processes change the file in place under a lock, so
//! the counts are exact for any number of processes. The file is text of a constant length, and its
//! last line is a digest. All values of a damaged file are read as zero, and the next change
//! replaces the file.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::Digest;
use super::layout::{self, Layout};
use crate::clock::Clock;

/// Longest wait for the lock. Processes hold the lock for microseconds, unless a process was
/// stopped (SIGSTOP) while it held the lock. If the wait times out, the change is not counted, and
/// this process never waits for the lock again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between collections, in seconds. A collection removes leftover temporary files of
/// killed processes, and recounts the size of the store.
const COLLECT_EVERY: u64 = 24 * 60 * 60;
/// First line of the file.
const HEAD: &str = "offld cache 2\n";
/// Maximum number of bytes to read from the file. A valid file is far shorter.
const LARGEST: u64 = 16 << 10;

/// A counted event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A link found its result in the cache.
    Hit,
    /// A link did not find its result.
    Miss,
    /// A link was not cached, because offld cannot determine all inputs of the link.
    Uncached,
    /// A blob or record was put into the store.
    Stored,
    /// Number of bytes that were put into the store.
    StoredBytes,
    /// A blob or record was removed because the store was too large.
    Evicted,
    /// A blob or record was found damaged, and was removed.
    Damaged,
    /// The remote cache had an entry that the store lacked.
    RemoteHit,
    /// The remote cache lacked an entry that the store lacked.
    RemoteMiss,
    /// The remote cache did not answer in time, reported an error, or sent wrong data.
    RemoteFault,
    /// A registration object (host code that registers device images) was found in the cache.
    RegistrationHit,
    /// A registration object was not found in the cache, and was built.
    RegistrationMiss,
}

/// Every event, with the event's name in the file and in reports.
pub const EVENTS: [(Event, &str); 12] = [
    (Event::Hit, "hits"),
    (Event::Miss, "misses"),
    (Event::Uncached, "uncached"),
    (Event::Stored, "stored"),
    (Event::StoredBytes, "stored_bytes"),
    (Event::Evicted, "evicted"),
    (Event::Damaged, "damaged"),
    (Event::RemoteHit, "remote_hits"),
    (Event::RemoteMiss, "remote_misses"),
    (Event::RemoteFault, "remote_faults"),
    (Event::RegistrationHit, "registration_hits"),
    (Event::RegistrationMiss, "registration_misses"),
];

/// The statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    counts: [u64; EVENTS.len()],
    /// Approximate number of bytes in the store. This number is never too low, unless another
    /// program puts files into the store.
    pub size: u64,
    /// Time of the last removal of leftover temporary files, in seconds since 1970.
    pub collected: u64,
}

impl Stats {
    /// Returns the count of `event`.
    pub fn get(&self, event: Event) -> u64 {
        self.counts.get(event as usize).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, event: Event, times: u64) {
        if let Some(count) = self.counts.get_mut(event as usize) {
            *count = count.saturating_add(times);
        }
    }

    /// Counts an entry of `size` bytes that is put into the store.
    pub(super) fn stored(&mut self, size: u64) {
        self.add(Event::Stored, 1);
        self.add(Event::StoredBytes, size);
        self.size = self.size.saturating_add(size);
    }

    /// Resets the counts of all events. Keeps the size and the time of the last collection.
    pub(super) fn forget_counts(&mut self) {
        self.counts = Default::default();
    }

    /// Whether the last collection was more than [`COLLECT_EVERY`] ago. Also returns true if the
    /// time of the last collection is in the future because of a wrong clock.
    pub(super) fn collection_is_due(&self, now: SystemTime) -> bool {
        let now = seconds(now);
        self.collected > now || now - self.collected > COLLECT_EVERY
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        let named = EVENTS.iter().map(|(event, name)| (*name, self.get(*event)));
        for (name, value) in named.chain([("size", self.size), ("collected", self.collected)]) {
            let _ = writeln!(text, "{name} {value:020}");
        }
        let digest = Digest::of(text.as_bytes());
        let _ = writeln!(text, "{digest}");
        text
    }

    fn parse(text: &str) -> Option<Stats> {
        let text = text.strip_suffix('\n')?;
        let (lines, digest) = text.split_at_checked(text.rfind('\n')? + 1)?;
        if Digest::parse(digest)? != Digest::of(lines.as_bytes()) {
            return None;
        }
        let mut stats = Stats::default();
        for line in lines.strip_prefix(HEAD)?.lines() {
            let (name, value) = line.split_once(' ')?;
            let value = value.parse().ok()?;
            match EVENTS.iter().find(|(_, known)| *known == name) {
                Some((event, _)) => stats.add(*event, value),
                None if name == "size" => stats.size = value,
                None if name == "collected" => stats.collected = value,
                // Ignore a counter of a later release.
                None => {}
            }
        }
        Some(stats)
    }
}

/// Returns the number of seconds since 1970, or 0 for earlier times.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

pub(super) struct StatsFile {
    layout: Arc<Layout>,
    /// Whether waiting for the lock has timed out once.
    stuck: AtomicBool,
    clock: Arc<dyn Clock>,
}

impl StatsFile {
    pub(super) fn new(layout: Arc<Layout>, clock: Arc<dyn Clock>) -> StatsFile {
        StatsFile {
            layout,
            stuck: AtomicBool::new(false),
            clock,
        }
    }

    /// Returns the statistics, or zeros if the file is missing or damaged.
    pub(super) fn read(&self) -> Stats {
        let file = self
            .layout
            .version()
            .and_then(|folder| folder.open(layout::STATS));
        let Ok(file) = file else {
            return Stats::default();
        };
        // Read the file even if locking fails. A process that was stopped while it held the lock
        // does not change the file.
        let _ = self.locked(|| file.try_lock_shared());
        contents(&file)
    }

    /// Applies `change` and returns the new statistics. `change` must be quick, because other
    /// processes wait for the lock while `change` runs.
    pub(super) fn change(&self, change: impl Fn(&mut Stats)) -> io::Result<Stats> {
        let file = self.layout.version()?.open_to_change(layout::STATS)?;
        self.locked(|| file.try_lock())?;
        let mut stats = contents(&file);
        change(&mut stats);
        let text = stats.text();
        file.write_all_at(text.as_bytes(), 0)?;
        if file.metadata()?.len() != text.len() as u64 {
            file.set_len(text.len() as u64)?;
        }
        // Closing the file releases the lock.
        Ok(stats)
    }

    /// Calls `lock` until it succeeds, for at most [`PATIENCE`].
    fn locked(&self, lock: impl Fn() -> Result<(), TryLockError>) -> io::Result<()> {
        let start = self.clock.running();
        let mut pause = Duration::from_micros(50);
        loop {
            match lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {
                    if self.stuck.load(Ordering::Relaxed) || self.clock.running() - start > PATIENCE
                    {
                        self.stuck.store(true, Ordering::Relaxed);
                        return Err(io::Error::new(
                            ErrorKind::TimedOut,
                            "another process has locked the cache statistics",
                        ));
                    }
                    self.clock.sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(5));
                }
            }
        }
    }
}

fn contents(file: &File) -> Stats {
    let mut text = String::new();
    let read = file.take(LARGEST).read_to_string(&mut text);
    read.ok()
        .and_then(|_| Stats::parse(&text))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn the_text_form_can_be_parsed() {
        let mut stats = Stats {
            size: 7,
            collected: u64::MAX,
            ..Stats::default()
        };
        stats.stored(4096);
        stats.add(Event::RemoteFault, 3);
        assert_eq!(Stats::parse(&stats.text()), Some(stats.clone()));
        assert_eq!(stats.text().len(), Stats::default().text().len());
        assert_eq!(
            (
                stats.get(Event::Stored),
                stats.get(Event::StoredBytes),
                stats.size
            ),
            (1, 4096, 4103)
        );
    }

    #[test]
    fn rejects_any_damage() {
        let text = Stats {
            size: 7,
            ..Stats::default()
        }
        .text();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(
                String::from_utf8(bytes)
                    .ok()
                    .and_then(|text| Stats::parse(&text)),
                None,
                "{at}"
            );
            assert_eq!(Stats::parse(&text[..at]), None, "{at}");
        }
    }

    #[test]
    fn events_are_listed_in_the_order_of_their_values() {
        assert!(
            EVENTS
                .iter()
                .enumerate()
                .all(|(at, (event, _))| *event as usize == at)
        );
    }

    #[test]
    fn a_lock_that_is_never_released_blocks_a_process_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        let layout = Arc::new(Layout::new(dir.path().to_owned()));
        layout.make().unwrap();
        let file = StatsFile::new(Arc::clone(&layout), Arc::clone(&clock) as Arc<dyn Clock>);
        file.change(|stats| stats.size = 5).unwrap();
        let held = File::open(layout.below(layout::STATS)).unwrap();
        held.lock().unwrap();
        let start = clock.running();
        assert!(file.change(|stats| stats.size = 6).is_err());
        assert!(file.change(|stats| stats.size = 6).is_err());
        let waited = clock.running() - start;
        assert!(
            waited > PATIENCE && waited < PATIENCE + PATIENCE / 2,
            "{waited:?}"
        );
        drop(held);
        assert_eq!(file.change(|stats| stats.size += 1).unwrap().size, 6);
    }
}
