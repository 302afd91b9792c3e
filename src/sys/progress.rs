//! Progress of device links: on a terminal, a line for each one that runs once the link has taken two seconds; nothing otherwise.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How long a link may take before anything is shown.
const PATIENCE: Duration = Duration::from_secs(2);

/// The lines of one link; gone when dropped.
pub(crate) struct Progress {
    shown: Option<(Arc<Lines>, Option<JoinHandle<()>>)>,
}

#[derive(Default)]
struct Lines {
    state: Mutex<State>,
    ended: Condvar,
    bars: MultiProgress,
}

#[derive(Default)]
struct State {
    running: BTreeMap<usize, (String, Option<ProgressBar>)>,
    patience_ended: bool,
    ended: bool,
}

impl Progress {
    /// Progress on stderr when it is a terminal (`visible`), else none.
    pub(crate) fn new(visible: bool) -> Self {
        if !visible {
            return Progress { shown: None };
        }
        let lines = Arc::new(Lines::default());
        let watched = Arc::clone(&lines);
        let watcher = std::thread::spawn(move || watched.wait());
        Progress { shown: Some((lines, Some(watcher))) }
    }

    /// Job `index` begins.
    pub(crate) fn begin(&self, index: usize, what: &str) {
        if let Some((lines, _)) = &self.shown {
            let mut state = lines.lock();
            let bar = state.patience_ended.then(|| lines.bar(what));
            state.running.insert(index, (what.to_owned(), bar));
        }
    }

    /// Job `index` ends.
    pub(crate) fn end(&self, index: usize) {
        if let Some((lines, _)) = &self.shown
            && let Some((_, Some(bar))) = lines.lock().running.remove(&index)
        {
            bar.finish_and_clear();
            lines.bars.remove(&bar);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((lines, watcher)) = &mut self.shown {
            lines.lock().ended = true;
            lines.ended.notify_all();
            // The watcher does nothing that can fail.
            let _ = watcher.take().map(JoinHandle::join);
            let _ = lines.bars.clear();
        }
    }
}

impl Lines {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows what runs when patience ends before the link does.
    fn wait(&self) {
        let waited = self.ended.wait_timeout_while(self.lock(), PATIENCE, |state| !state.ended);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return;
        }
        state.patience_ended = true;
        for (what, bar) in state.running.values_mut() {
            *bar = Some(self.bar(what));
        }
    }

    fn bar(&self, what: &str) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
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
        let bars =
            progress.shown.as_ref().map(|(lines, _)| lines.lock().running.values().filter(|(_, bar)| bar.is_some()).count());
        assert_eq!(bars, Some(0));
        progress.end(0);
        drop(progress);
        assert!(started.elapsed() < PATIENCE);
    }
}
