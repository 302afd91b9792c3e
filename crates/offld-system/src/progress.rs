//! Progress on a terminal: one line for each running device link, after the link has taken two
//! seconds; a bar with the number of bytes done, after reading files has taken a second.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::threads::lock;
use offload_formats::model::printable;

/// Time before the first lines appear.
const SHOW_AFTER: Duration = Duration::from_secs(2);
/// Interval of updates.
const TICK: Duration = Duration::from_millis(120);

/// Progress lines of one link. Dropping it clears them.
pub struct Progress {
    shown: Option<(Arc<Bars>, Option<JoinHandle<()>>)>,
}

#[derive(Default)]
struct Bars {
    state: Mutex<State>,
    ended: Condvar,
    bars: MultiProgress,
}

#[derive(Default)]
struct State {
    running: BTreeMap<usize, (String, Option<ProgressBar>)>,
    visible: bool,
    ended: bool,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress").finish_non_exhaustive()
    }
}

impl Progress {
    /// Progress on stderr if that is a terminal (`visible`), else none.
    pub fn new(visible: bool) -> Self {
        if !visible {
            return Progress { shown: None };
        }
        let bars = Arc::new(Bars::default());
        let watched = Arc::clone(&bars);
        // Without a thread, there is no progress.
        let watcher = std::thread::Builder::new()
            .spawn(move || watched.show())
            .ok();
        Progress {
            shown: watcher.map(|watcher| (bars, Some(watcher))),
        }
    }

    /// Starts job `index`, or changes its line to `what`.
    pub fn begin(&self, index: usize, what: &str) {
        if let Some((bars, _)) = &self.shown {
            let mut state = lock(&bars.state);
            let bar = state.visible.then(|| bars.bar(what));
            let before = state.running.insert(index, (what.to_owned(), bar));
            bars.clear(before);
        }
    }

    /// Removes the line of the job `index`.
    pub fn end(&self, index: usize) {
        if let Some((bars, _)) = &self.shown {
            let ended = lock(&bars.state).running.remove(&index);
            bars.clear(ended);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((bars, watcher)) = &mut self.shown {
            lock(&bars.state).ended = true;
            bars.ended.notify_all();
            // The watcher does nothing that can fail.
            let _ = watcher.take().map(JoinHandle::join);
            let _ = bars.bars.clear();
        }
    }
}

impl Bars {
    /// Waits for [`SHOW_AFTER`], then shows the running jobs until the link has ended.
    fn show(&self) {
        let mut state = self.wait(lock(&self.state), SHOW_AFTER);
        if state.ended {
            return;
        }
        state.visible = true;
        for (what, bar) in state.running.values_mut() {
            *bar = Some(self.bar(what));
        }
        // The bars could tick on threads of their own, but indicatif panics if it cannot start
        // those.
        while !state.ended {
            state
                .running
                .values()
                .filter_map(|(_, bar)| bar.as_ref())
                .for_each(ProgressBar::tick);
            state = self.wait(state, TICK);
        }
    }

    /// Waits for `time`, or for the end of the link.
    fn wait<'s>(&'s self, state: MutexGuard<'s, State>, time: Duration) -> MutexGuard<'s, State> {
        let waited = self
            .ended
            .wait_timeout_while(state, time, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn clear(&self, job: Option<(String, Option<ProgressBar>)>) {
        if let Some((_, Some(bar))) = job {
            bar.finish_and_clear();
            self.bars.remove(&bar);
        }
    }

    fn bar(&self, what: &str) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(if crate::terminal::is_ascii() {
                style.tick_chars(r"|/-\ ")
            } else {
                style
            });
        }
        bar.set_message(what.to_owned());
        bar
    }
}

/// Time before the bar appears.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// The progress bar, which is cleared when this is dropped.
pub struct Meter {
    done: Arc<AtomicU64>,
    /// Name of the current file or member.
    at: Arc<Mutex<String>>,
    shown: Option<(Arc<Ended>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Ended {
    ended: Mutex<bool>,
    changed: Condvar,
}

/// Progress within one file. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Reached {
    /// Bytes done in all files, which the bar shows.
    done: Arc<AtomicU64>,
    /// The part of `done` that belongs to this file, in bytes.
    mark: Arc<AtomicU64>,
    /// Name of the current file or member, for the bar.
    at: Arc<Mutex<String>>,
}

/// The progress of one edit within its file, for the bar. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Share {
    reached: Reached,
    /// The bytes that the whole edit advances the bar.
    bytes: u64,
    /// The amount of work of the whole edit, an estimate.
    work: u64,
    done: Arc<AtomicU64>,
}

/// A file whose written bytes count as work.
#[derive(Debug)]
pub struct Counted<'a, W> {
    out: W,
    share: &'a Share,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Meter {
    /// A bar for files of `total` bytes, on stderr. If stderr is not a terminal (`visible`),
    /// nothing appears.
    pub fn new(visible: bool, total: u64) -> Self {
        let (done, at) = (Arc::new(AtomicU64::new(0)), Arc::<Mutex<String>>::default());
        if !visible {
            return Meter {
                done,
                at,
                shown: None,
            };
        }
        let (ended, counted, name) = (Arc::<Ended>::default(), Arc::clone(&done), Arc::clone(&at));
        let watched = Arc::clone(&ended);
        // Without a thread, there is no bar.
        let watcher = std::thread::Builder::new()
            .spawn(move || watched.show(&counted, &name, total))
            .ok();
        Meter {
            done,
            at,
            shown: watcher.map(|watcher| (ended, watcher)),
        }
    }

    /// Progress within one of the files.
    pub fn file(&self) -> Reached {
        Reached {
            done: Arc::clone(&self.done),
            mark: Arc::default(),
            at: Arc::clone(&self.at),
        }
    }
}

impl Reached {
    /// Marks all bytes before the offset `at` of the file as done.
    pub fn up_to(&self, at: u64) {
        let before = self.mark.fetch_max(at, Ordering::Relaxed);
        self.done
            .fetch_add(at.saturating_sub(before), Ordering::Relaxed);
    }

    /// Marks `bytes` more bytes of the file as done.
    pub fn more(&self, bytes: u64) {
        self.mark.fetch_add(bytes, Ordering::Relaxed);
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The progress of an edit that advances the bar by `bytes` in total. `work` is the amount of
    /// work, in any unit.
    pub fn share(&self, bytes: u64, work: u64) -> Share {
        Share {
            reached: self.clone(),
            bytes,
            work,
            done: Arc::default(),
        }
    }

    /// Sets the name in the bar: a file, or a member of one. A path is cut to its last component,
    /// because a line is short.
    pub fn now_at(&self, name: &str) {
        let name = name
            .rsplit('/')
            .find(|part| !part.is_empty())
            .unwrap_or(name);
        *lock(&self.at) = printable(name).into_owned();
    }
}

impl Share {
    /// Marks `work` more of the work as done. Work beyond the estimate does not count.
    pub fn more(&self, work: u64) {
        let before = self.done.fetch_add(work, Ordering::Relaxed);
        let after = self.bytes_at(before.saturating_add(work));
        self.reached.more(after - self.bytes_at(before));
    }

    /// Marks all of the edit as done.
    pub fn finish(&self) {
        let before = self.done.fetch_max(self.work, Ordering::Relaxed);
        self.reached.more(self.bytes - self.bytes_at(before));
    }

    fn bytes_at(&self, done: u64) -> u64 {
        if done >= self.work {
            return self.bytes;
        }
        let bytes = u128::from(self.bytes) * u128::from(done) / u128::from(self.work);
        u64::try_from(bytes).unwrap_or(self.bytes)
    }

    /// Writes to `out`. Each byte counts as one unit of work.
    pub fn counted<W: Write>(&self, out: W) -> Counted<'_, W> {
        Counted { out, share: self }
    }
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.share.more(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Seek> Seek for Counted<'_, W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some((ended, watcher)) = self.shown.take() {
            *lock(&ended.ended) = true;
            ended.changed.notify_all();
            // The watcher does nothing that can fail.
            let _ = watcher.join();
        }
    }
}

impl Ended {
    /// Waits for [`BAR_AFTER`], then shows the bar until the work has ended.
    fn show(&self, done: &AtomicU64, at: &Mutex<String>, total: u64) {
        if self.wait(BAR_AFTER) {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
            .with_elapsed(BAR_AFTER);
        if let Ok(style) = ProgressStyle::with_template(
            "{bar:20} {binary_bytes} of {binary_total_bytes} ({elapsed}) {wide_msg}",
        ) {
            bar.set_style(if crate::terminal::is_ascii() {
                style.progress_chars("#>-")
            } else {
                style
            });
        }
        loop {
            bar.set_position(done.load(Ordering::Relaxed).min(total));
            bar.set_message(lock(at).clone());
            bar.tick();
            if self.wait(TICK) {
                return bar.finish_and_clear();
            }
        }
    }

    /// Waits for `time`, or for the end. Returns whether the work has ended.
    fn wait(&self, time: Duration) -> bool {
        let ended = lock(&self.ended);
        let waited = self
            .changed
            .wait_timeout_while(ended, time, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_link_shows_nothing_and_ends_at_once() {
        let started = std::time::Instant::now();
        let progress = Progress::new(true);
        progress.begin(0, "device link for amdgcn-amd-amdhsa (gfx90a)");
        let bars = progress.shown.as_ref().map(|(bars, _)| {
            lock(&bars.state)
                .running
                .values()
                .filter(|(_, bar)| bar.is_some())
                .count()
        });
        assert_eq!(bars, Some(0));
        progress.begin(0, "the same, later");
        let texts = progress.shown.as_ref().map(|(bars, _)| {
            lock(&bars.state)
                .running
                .values()
                .map(|(text, _)| text.clone())
                .collect()
        });
        assert_eq!(texts, Some(vec!["the same, later".to_owned()]));
        progress.end(0);
        drop(progress);
        assert!(started.elapsed() < BAR_AFTER);
    }

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
    fn more_and_up_to_together_count_each_byte_once() {
        let meter = Meter::new(false, 100);
        let file = meter.file();
        file.more(20);
        file.more(30);
        assert_eq!(meter.done.load(Ordering::Relaxed), 50);
        file.up_to(100);
        assert_eq!(meter.done.load(Ordering::Relaxed), 100);
        file.now_at("a/lib\u{1b}.so");
        assert_eq!(*meter.at.lock().unwrap(), "lib\\u{1b}.so");
    }

    #[test]
    fn an_edit_advances_the_bar_by_its_share() {
        let meter = Meter::new(false, 100);
        let file = meter.file();
        let done = || meter.done.load(Ordering::Relaxed);
        let share = file.share(40, 1000);
        let mut out = share.counted(Vec::new());
        out.write_all(&[7; 250]).unwrap();
        assert_eq!(done(), 10);
        out.write_all(&[7; 250]).unwrap();
        assert_eq!((done(), out.out.len()), (20, 500));
        share.more(250);
        assert_eq!(done(), 30);
        share.more(900);
        share.more(900);
        share.finish();
        assert_eq!(done(), 40);
        file.share(60, 1000).finish();
        file.share(0, 0).finish();
        assert_eq!(done(), 100);
    }

    #[test]
    fn short_work_shows_nothing_and_ends_at_once() {
        let started = std::time::Instant::now();
        drop(Meter::new(true, 100));
        assert!(started.elapsed() < BAR_AFTER);
    }
}
