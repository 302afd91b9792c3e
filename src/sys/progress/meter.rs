//! Progress of going through files: on a terminal, once it has taken a second, a bar of how many of their bytes have been gone
//! through; else nothing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::TICK;

/// How long it may take before anything is shown.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// The bar; dropping it clears it.
pub(crate) struct Meter {
    done: Arc<AtomicU64>,
    shown: Option<(Arc<Ended>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Ended {
    ended: Mutex<bool>,
    changed: Condvar,
}

/// How far one file has been gone through; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reached {
    /// What the bar shows, of all files.
    done: Arc<AtomicU64>,
    /// How many bytes of this file are in it.
    mark: Arc<AtomicU64>,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Meter {
    /// For files of `total` bytes, on stderr; when that is no terminal (`visible`), nothing is shown.
    pub(crate) fn new(visible: bool, total: u64) -> Self {
        let done = Arc::new(AtomicU64::new(0));
        if !visible {
            return Meter { done, shown: None };
        }
        let (ended, counted) = (Arc::<Ended>::default(), Arc::clone(&done));
        let watched = Arc::clone(&ended);
        // Without a thread nothing is shown.
        let watcher = std::thread::Builder::new().spawn(move || watched.show(&counted, total)).ok();
        Meter { done, shown: watcher.map(|watcher| (ended, watcher)) }
    }

    /// For one of the files.
    pub(crate) fn file(&self) -> Reached {
        Reached { done: Arc::clone(&self.done), mark: Arc::default() }
    }
}

impl Reached {
    /// All before the byte `at` of the file has been gone through.
    pub(crate) fn up_to(&self, at: u64) {
        let before = self.mark.fetch_max(at, Ordering::Relaxed);
        self.done.fetch_add(at.saturating_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some((ended, watcher)) = self.shown.take() {
            *ended.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
            ended.changed.notify_all();
            // The watcher does nothing that can fail.
            let _ = watcher.join();
        }
    }
}

impl Ended {
    /// Waits for [`SHOW_AFTER`], then shows the bar until all has ended.
    fn show(&self, done: &AtomicU64, total: u64) {
        if self.wait(SHOW_AFTER) {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_elapsed(SHOW_AFTER);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {binary_bytes} of {binary_total_bytes} ({elapsed})") {
            bar.set_style(style);
        }
        loop {
            bar.set_position(done.load(Ordering::Relaxed).min(total));
            bar.tick();
            if self.wait(TICK) {
                return bar.finish_and_clear();
            }
        }
    }

    /// Waits for `time`, or for the end; whether that has come.
    fn wait(&self, time: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(ended, time, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_each_file_counts_once() {
        let meter = Meter::new(false, 100);
        let (one, other) = (meter.file(), meter.file());
        for at in [10, 5, 30, 30] {
            one.clone().up_to(at);
            other.up_to(at / 2);
        }
        assert_eq!(meter.done.load(Ordering::Relaxed), 30 + 15);
    }

    #[test]
    fn what_is_short_shows_nothing_and_ends_at_once() {
        let started = std::time::Instant::now();
        drop(Meter::new(true, 100));
        assert!(started.elapsed() < SHOW_AFTER);
    }
}
