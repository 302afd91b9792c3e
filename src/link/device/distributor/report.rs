//! What a distributor tells the device link that waits for it: how many units were found and compiled, what is to be said to the user, and
//! why it has failed, if it has.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::error;
use crate::sys::shell::Shell;
use crate::sys::trace::Usage;

/// The report of one distributor.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::link::device) struct Report {
    /// How many units were found in the cache.
    pub(in crate::link::device) found: usize,
    /// How many of these came from the shared cache.
    pub(in crate::link::device) shared: usize,
    /// How many were compiled.
    pub(in crate::link::device) compiled: usize,
    /// How many of these on this machine.
    pub(in crate::link::device) here: usize,
    /// About how much memory those that ran here at once took together, in bytes.
    pub(in crate::link::device) memory: u64,
    /// What is said to the user, each with its label: `warning`, `note`, or none for a line.
    pub(in crate::link::device) messages: Vec<(String, String)>,
    /// That of the messages which says that the launcher does not work.
    pub(in crate::link::device) given_up: Option<String>,
    /// Why what is made of the objects may not be kept.
    pub(in crate::link::device) not_kept: Option<String>,
    /// Why it has failed, and its exit status.
    pub(in crate::link::device) failed: Option<(String, u8)>,
}

impl Report {
    /// Reads the report at `path`; none where a distributor has left none.
    pub(in crate::link::device) fn read(path: &Path) -> Option<Report> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// The report as it comes into being.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<Report>);

impl Told {
    /// A shell called `name` whose messages go into the report: only what compilers say is printed.
    pub(super) fn shell(self: &Arc<Self>, name: &str) -> Shell {
        let told = Arc::clone(self);
        Shell::stderr(name).with_messages_to(move |label, text| told.report().messages.push((label.to_owned(), text.to_owned())))
    }

    /// Counts a unit that was found.
    pub(super) fn found(&self, shared: bool) {
        let mut report = self.report();
        report.found += 1;
        report.shared += usize::from(shared);
    }

    /// Counts a unit that was compiled, here or elsewhere.
    pub(super) fn compiled(&self, usage: Usage, here: bool) {
        let mut report = self.report();
        report.compiled += 1;
        report.here += usize::from(here);
        if here {
            report.memory = report.memory.max(usage.peak_memory);
        }
    }

    /// The launcher does not work, which was the last that was warned of.
    pub(super) fn given_up(&self) {
        let mut report = self.report();
        if report.given_up.is_none() {
            let warned = report.messages.iter().rev().find(|(label, _)| label == "warning").map(|(_, text)| text.clone());
            report.given_up = warned;
        }
    }

    /// An object was made by other files than this machine has.
    pub(super) fn not_kept(&self, why: &str) {
        self.report().not_kept.get_or_insert_with(|| why.to_owned());
    }

    /// All is done, with at most so many jobs at once here. Returns what is said of the units.
    pub(super) fn done(&self, at_once: usize) -> String {
        let mut report = self.report();
        report.memory = report.memory.saturating_mul(at_once.min(report.here) as u64);
        report.count()
    }

    /// Writes the report to `path`.
    pub(super) fn write(&self, path: &Path, failed: Option<&anyhow::Error>) -> Result<()> {
        let mut report = self.report().clone();
        report.failed = failed.map(|failed| (error::chain(failed), error::exit_status(failed)));
        let bytes = serde_json::to_vec(&report)?;
        std::fs::write(path, bytes).with_context(|| format!("cannot write the report `{}`", path.display()))
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    /// What is said of the units.
    pub(in crate::link::device) fn count(&self) -> String {
        let Report { found, shared, compiled, .. } = self;
        let of_others = if *shared > 0 { format!(" ({shared} of them in the shared one)") } else { String::new() };
        format!("ThinLTO: {found} units found in the cache{of_others}, {compiled} compiled")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        assert_eq!(Report::read(&path), None);
        let told = Arc::new(Told::default());
        let shell = told.shell("offld");
        told.found(true);
        told.found(false);
        for peak_memory in [10, 30, 20] {
            told.compiled(Usage { peak_memory, ..Usage::default() }, peak_memory < 30);
        }
        shell.note("n");
        shell.warn("w");
        shell.line("l");
        let said = told.done(2);
        assert_eq!(said, "ThinLTO: 2 units found in the cache (1 of them in the shared one), 3 compiled");
        let failed: anyhow::Error = error::StepFailed { report: "why".to_owned(), status: 7 }.into();
        told.write(&path, Some(&failed)).unwrap();
        let report = Report::read(&path).unwrap();
        assert_eq!((report.found, report.shared, report.compiled, report.memory), (2, 1, 3, 40));
        let messages = [("note", "n"), ("warning", "w"), ("", "l")].map(|(label, text)| (label.to_owned(), text.to_owned()));
        assert_eq!(report.messages, messages);
        assert_eq!(report.failed, Some(("why".to_owned(), 7)));
        assert!(told.write(&dir.path().join("none/report"), None).is_err());
    }
}
