//! The counters, in one small file that is changed in place under a lock: exact, however many processes count. It is text of a constant
//! length with a digest at its end. What is none of ours counts as zeros, and the next change writes it anew.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Digest;

/// How long the lock is waited for. It is held for some microseconds, but whoever holds it may have been stopped: then nothing is
/// counted, and no link waits a second time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Leftovers go and sizes are counted anew at least this often.
const COLLECT_EVERY: u64 = 24 * 60 * 60;
const HEAD: &str = "offld cache 1\n";
/// More than the file ever has.
const LARGEST: u64 = 16 << 10;

/// What can happen to a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A result was found.
    Hit,
    /// None was found.
    Miss,
    /// A link that cannot be kept: something of what it reads is not known.
    Uncached,
    /// A blob or record was put into the store.
    Stored,
    /// So many bytes were.
    StoredBytes,
    /// A blob or record was removed for lack of room.
    Evicted,
    /// A blob or record was damaged, and is gone.
    Damaged,
    /// The other machines' cache had a result that this one's had not.
    RemoteHit,
    /// It had not either.
    RemoteMiss,
    /// It did not answer, or not in time, or not what was asked for.
    RemoteFault,
    /// A registration object was found.
    RegistrationHit,
    /// None was found, and one was made.
    RegistrationMiss,
}

/// Every event, with its name in the file and in reports.
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

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    counts: [u64; EVENTS.len()],
    /// About how many bytes are in the store: never less than there are, as long as nobody else puts files there.
    pub size: u64,
    /// When somebody collected last, in seconds since 1970.
    pub collected: u64,
}

impl Stats {
    /// How often `event` happened.
    pub fn get(&self, event: Event) -> u64 {
        self.counts.get(event as usize).copied().unwrap_or_default()
    }

    /// `event` happened `times` times.
    pub(super) fn add(&mut self, event: Event, times: u64) {
        if let Some(count) = self.counts.get_mut(event as usize) {
            *count = count.saturating_add(times);
        }
    }

    /// Something of `size` bytes goes into the store.
    pub(super) fn stored(&mut self, size: u64) {
        self.add(Event::Stored, 1);
        self.add(Event::StoredBytes, size);
        self.size = self.size.saturating_add(size);
    }

    /// Forgets what was counted, not what there is.
    pub(super) fn forget_counts(&mut self) {
        self.counts = Default::default();
    }

    /// Whether nobody has collected for a day. A last time in the future is none: some clock was wrong.
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
                // Of a later release that counts more.
                None => {}
            }
        }
        Some(stats)
    }
}

/// Seconds since 1970; 0 before.
pub(super) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The file.
pub(super) struct StatsFile {
    path: PathBuf,
    /// Whether the lock was waited for in vain.
    stuck: AtomicBool,
}

impl StatsFile {
    pub fn new(path: PathBuf) -> StatsFile {
        StatsFile { path, stuck: AtomicBool::new(false) }
    }

    /// What is in it; zeros where it is not there or damaged.
    pub fn read(&self) -> Stats {
        let Ok(file) = File::open(&self.path) else { return Stats::default() };
        // Unlocked, what is read may be half of a change; locked by somebody who was stopped, it is not.
        let _ = self.locked(|| file.try_lock_shared());
        contents(&file)
    }

    /// Changes it; what is in it then. Other processes wait meanwhile, so `change` must not take long.
    pub fn change(&self, change: impl Fn(&mut Stats)) -> io::Result<Stats> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        self.locked(|| file.try_lock())?;
        let mut stats = contents(&file);
        change(&mut stats);
        let text = stats.text();
        file.write_all_at(text.as_bytes(), 0)?;
        if file.metadata()?.len() != text.len() as u64 {
            file.set_len(text.len() as u64)?;
        }
        // Unlocked when it is closed.
        Ok(stats)
    }

    /// Tries to lock until it works, for as long as [`PATIENCE`] lasts.
    fn locked(&self, lock: impl Fn() -> Result<(), TryLockError>) -> io::Result<()> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            match lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {
                    if self.stuck.load(Ordering::Relaxed) || start.elapsed() > PATIENCE {
                        self.stuck.store(true, Ordering::Relaxed);
                        return Err(io::Error::new(ErrorKind::TimedOut, "the counters of the cache are locked"));
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(5));
                }
            }
        }
    }
}

fn contents(file: &File) -> Stats {
    let mut text = String::new();
    let read = file.take(LARGEST).read_to_string(&mut text);
    read.ok().and_then(|_| Stats::parse(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        let mut stats = Stats { size: 7, collected: u64::MAX, ..Stats::default() };
        stats.stored(4096);
        stats.add(Event::RemoteFault, 3);
        assert_eq!(Stats::parse(&stats.text()), Some(stats.clone()));
        assert_eq!(stats.text().len(), Stats::default().text().len());
        assert_eq!((stats.get(Event::Stored), stats.get(Event::StoredBytes), stats.size), (1, 4096, 4103));
    }

    #[test]
    fn what_is_damaged_is_none() {
        let text = Stats { size: 7, ..Stats::default() }.text();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_eq!(String::from_utf8(bytes).ok().and_then(|text| Stats::parse(&text)), None, "{at}");
            assert_eq!(Stats::parse(&text[..at]), None, "{at}");
        }
    }

    #[test]
    fn every_event_has_its_place() {
        assert!(EVENTS.iter().enumerate().all(|(at, (event, _))| *event as usize == at));
    }

    #[test]
    fn a_lock_that_is_never_given_back_holds_nobody_up_twice() {
        let dir = tempfile::tempdir().unwrap();
        let file = StatsFile::new(dir.path().join("stats"));
        file.change(|stats| stats.size = 5).unwrap();
        let held = File::open(dir.path().join("stats")).unwrap();
        held.lock().unwrap();
        let start = Instant::now();
        assert!(file.change(|stats| stats.size = 6).is_err());
        assert!(file.change(|stats| stats.size = 6).is_err());
        assert!(start.elapsed() < PATIENCE + PATIENCE / 2);
        drop(held);
        assert_eq!(file.change(|stats| stats.size += 1).unwrap().size, 6);
    }
}
