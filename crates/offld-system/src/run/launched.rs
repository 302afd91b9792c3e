//! Starts the launcher of a job, and the guardian of that job. The guardian is a small shell that
//! ends the job and removes the temporary files if offld was killed before it could do so.

#![expect(
    clippy::disallowed_types,
    reason = "a part of `run`, which starts processes"
)]

use std::ffi::OsString;
use std::io::{self, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Result;

use crate::signals::Signals;
use crate::threads;

/// Script of the guardian.
const GUARDIAN: &str = include_str!("../launcher/guardian.sh");

/// A running launcher, in a process group of its own.
pub(crate) struct LauncherProcess {
    pub(crate) child: Child,
    /// Output of the launcher, both streams together.
    pub(crate) output: PipeReader,
}

/// Starts the program `words`, found through `PATH`. The outer error is a signal, the inner error a
/// program that cannot be started.
pub(crate) fn start(words: &[OsString], signals: &Signals) -> Result<io::Result<LauncherProcess>> {
    let Some((program, args)) = words.split_first() else {
        return Ok(Err(io::ErrorKind::NotFound.into()));
    };
    threads::retry(signals, || {
        let (output, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&output, true)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        Ok(LauncherProcess {
            child: command.spawn()?,
            output,
        })
    })
}

/// The guardian of one job. Dropping it ends it without any action.
#[derive(Debug)]
pub(crate) struct Guardian(Option<Child>);

impl Guardian {
    /// Starts the guardian of the job with this lease. `folder`: the temporary files, if they are
    /// to be removed. If no guardian can be started, the job ends as soon as its lease is no longer
    /// renewed.
    pub(crate) fn start(lease: &Path, folder: Option<&Path>) -> Guardian {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", GUARDIAN, "sh"])
            .arg(lease)
            .args(folder)
            .current_dir("/")
            .process_group(0);
        Guardian(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .ok(),
        )
    }

    /// Sets the process group that the guardian ends.
    pub(crate) fn guards(&mut self, group: u32) {
        self.send(&format!("group {group}\n"));
    }

    fn send(&mut self, line: &str) {
        if let Some(stdin) = self.0.as_mut().and_then(|child| child.stdin.as_mut()) {
            // Without the guardian, the job still has its lease.
            let _ = stdin.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.send("well\n");
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
