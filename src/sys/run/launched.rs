//! Starts the launcher of a job, and the guardian of what was launched: a small shell that ends it and removes the temporary files when
//! offld was killed and could not.

#![expect(clippy::disallowed_types, reason = "a part of the file that starts processes")]

use std::ffi::OsString;
use std::io::{self, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Result;

use crate::sys::signals::Signals;
use crate::sys::threads;

/// What the guardian's shell does.
const GUARDIAN: &str = include_str!("../launcher/guardian.sh");

/// A launcher that runs, in a process group of its own.
pub(in crate::sys) struct LauncherProcess {
    /// It.
    pub(in crate::sys) child: Child,
    /// What it says, on both streams.
    pub(in crate::sys) output: PipeReader,
}

/// Starts the program `words`, which is looked up on `PATH`. The outer error is a signal, the inner one that it cannot be started.
pub(in crate::sys) fn start(words: &[OsString], signals: &Signals) -> Result<io::Result<LauncherProcess>> {
    let Some((program, args)) = words.split_first() else { return Ok(Err(io::ErrorKind::NotFound.into())) };
    threads::retry(signals, || {
        let (output, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&output, true)?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
        Ok(LauncherProcess { child: command.spawn()?, output })
    })
}

/// The guardian of one job. Dropping it tells it that all is well.
pub(in crate::sys) struct Guardian(Option<Child>);

impl Guardian {
    /// For a job with this lease. `folder`: the temporary files, if they are to be removed. Where no guardian can be started, the job
    /// ends when its lease is not renewed any longer.
    pub(in crate::sys) fn start(lease: &Path, folder: Option<&Path>) -> Guardian {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GUARDIAN, "sh"]).arg(lease).args(folder).current_dir("/").process_group(0);
        Guardian(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok())
    }

    /// The process group that it has to end.
    pub(in crate::sys) fn guards(&mut self, group: u32) {
        self.say(&format!("group {group}\n"));
    }

    fn say(&mut self, line: &str) {
        if let Some(stdin) = self.0.as_mut().and_then(|child| child.stdin.as_mut()) {
            // Without it, the job still has its lease.
            let _ = stdin.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.say("well\n");
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
