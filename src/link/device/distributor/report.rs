//! The report that a distributor writes for the waiting device link: unit counts, messages for the
//! user, and the error, if any.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::error;
use crate::sys::shell::Shell;
use crate::sys::threads::lock;
use crate::sys::trace::Usage;

/// The report of one distributor.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::link::device) struct Report {
    /// Number of units found in the cache.
    pub(in crate::link::device) found: usize,
    /// Number of those that came from the remote cache.
    pub(in crate::link::device) shared: usize,
    /// Number of units compiled.
    pub(in crate::link::device) compiled: usize,
    /// Number of those compiled on this machine.
    pub(in crate::link::device) here: usize,
    /// Estimated peak memory of all jobs on this machine together, in bytes.
    pub(in crate::link::device) memory: u64,
    /// Messages for the user, each with its label: `warning`, `note`, or empty for a plain line.
    pub(in crate::link::device) messages: Vec<(String, String)>,
    /// The message that reports a failed launcher.
    pub(in crate::link::device) given_up: Option<String>,
    /// Reason not to cache the resulting image.
    pub(in crate::link::device) not_kept: Option<String>,
    /// The error and the exit status.
    pub(in crate::link::device) failed: Option<(String, u8)>,
}

impl Report {
    /// Reads the report at `path`, or returns `None` if the distributor wrote none.
    pub(in crate::link::device) fn read(path: &Path) -> Option<Report> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

/// A report that is being collected.
#[derive(Debug, Default)]
pub(super) struct SharedReport(Mutex<Report>);

impl SharedReport {
    /// Creates a shell called `name` whose messages go to the report. Only the compilers' own
    /// output is printed.
    pub(super) fn shell(self: &Arc<Self>, name: &str) -> Shell {
        let told = Arc::clone(self);
        Shell::stderr(name).with_messages_to(move |label, text| {
            told.report()
                .messages
                .push((label.to_owned(), text.to_owned()))
        })
    }

    /// Counts a cache hit. `shared`: it came from the remote cache.
    pub(super) fn found(&self, shared: bool) {
        let mut report = self.report();
        report.found += 1;
        report.shared += usize::from(shared);
    }

    /// Counts a compiled unit. `here`: on this machine.
    pub(super) fn compiled(&self, usage: Usage, here: bool) {
        let mut report = self.report();
        report.compiled += 1;
        report.here += usize::from(here);
        if here {
            report.memory = report.memory.max(usage.peak_memory);
        }
    }

    /// Records that the launcher has failed. The last warning is the message about that.
    pub(super) fn given_up(&self) {
        let mut report = self.report();
        if report.given_up.is_none() {
            let warned = report
                .messages
                .iter()
                .rev()
                .find(|(label, _)| label == "warning")
                .map(|(_, text)| text.clone());
            report.given_up = warned;
        }
    }

    /// Records that an object was compiled with files that differ from those of this machine.
    pub(super) fn not_kept(&self, why: &str) {
        self.report().not_kept.get_or_insert_with(|| why.to_owned());
    }

    /// Completes the memory estimate for at most `at_once` parallel jobs. Returns the message with
    /// the counts.
    pub(super) fn done(&self, at_once: usize) -> String {
        let mut report = self.report();
        report.memory = report
            .memory
            .saturating_mul(at_once.min(report.here) as u64);
        report.count()
    }

    /// Writes the report to `path`.
    pub(super) fn write(&self, path: &Path, failed: Option<&anyhow::Error>) -> Result<()> {
        let mut report = self.report().clone();
        report.failed = failed.map(|failed| (error::chain(failed), error::exit_status(failed)));
        let bytes = serde_json::to_vec(&report)?;
        std::fs::write(path, bytes)
            .with_context(|| format!("cannot write the report `{}`", path.display()))
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        lock(&self.0)
    }
}

impl Report {
    /// The message with the counts.
    pub(in crate::link::device) fn count(&self) -> String {
        let Report {
            found,
            shared,
            compiled,
            ..
        } = self;
        let of_others = if *shared > 0 {
            format!(" ({shared} of them in the remote cache)")
        } else {
            String::new()
        };
        format!("ThinLTO: {found} units found in the cache{of_others}, {compiled} compiled")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        assert_eq!(Report::read(&path), None);
        let told = Arc::new(SharedReport::default());
        let shell = told.shell("offld");
        told.found(true);
        told.found(false);
        for peak_memory in [10, 30, 20] {
            told.compiled(
                Usage {
                    peak_memory,
                    ..Usage::default()
                },
                peak_memory < 30,
            );
        }
        shell.note("n");
        shell.warn("w");
        shell.line("l");
        let message = told.done(2);
        assert_eq!(
            message,
            "ThinLTO: 2 units found in the cache (1 of them in the remote cache), 3 compiled"
        );
        let failed = error::StepFailed::new("why", 7).into();
        told.write(&path, Some(&failed)).unwrap();
        let report = Report::read(&path).unwrap();
        assert_eq!(
            (report.found, report.shared, report.compiled, report.memory),
            (2, 1, 3, 40)
        );
        let messages = [("note", "n"), ("warning", "w"), ("", "l")]
            .map(|(label, text)| (label.to_owned(), text.to_owned()));
        assert_eq!(report.messages, messages);
        assert_eq!(report.failed, Some(("why".to_owned(), 7)));
        assert!(told.write(&dir.path().join("none/report"), None).is_err());
    }
}
