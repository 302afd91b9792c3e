//! Progress of device links: on a terminal, one line for each running device link, after the link
//! has taken two seconds. `meter` has the progress of reading files.

mod meter;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::sys::threads::lock;

pub(crate) use meter::{Meter, Reached};

/// Time before the first lines appear.
const SHOW_AFTER: Duration = Duration::from_secs(2);
/// Interval of updates.
const TICK: Duration = Duration::from_millis(120);

/// Progress lines of one link. Dropping it clears them.
pub(crate) struct Progress {
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

impl Progress {
    /// Progress on stderr if that is a terminal (`visible`), else none.
    pub(crate) fn new(visible: bool) -> Self {
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
    pub(crate) fn begin(&self, index: usize, what: &str) {
        if let Some((bars, _)) = &self.shown {
            let mut state = lock(&bars.state);
            let bar = state.visible.then(|| bars.bar(what));
            let before = state.running.insert(index, (what.to_owned(), bar));
            bars.clear(before);
        }
    }

    pub(crate) fn end(&self, index: usize) {
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
            bar.set_style(if crate::sys::terminal::is_ascii() {
                style.tick_chars(r"|/-\ ")
            } else {
                style
            });
        }
        bar.set_message(what.to_owned());
        bar
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
        assert!(started.elapsed() < SHOW_AFTER);
    }
}
