//! Determines the outcome of a job from the exit status of its launcher and the reports of the
//! other machine.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::job::{self, Files, Job, Status};
use super::waiting::Ended;
use crate::sys::posix_shell;
use crate::sys::run::{
    CapturedOutput, Cmd, OutOfMemory, ended_for_memory, failure_report, how_it_ended,
};
use crate::sys::session::Session;
use crate::sys::trace::Usage;

/// Time until files of the other machine must be visible here: after success, and after a failure.
const VISIBLE_WITHIN: Duration = Duration::from_secs(5);
const VISIBLE_WITHIN_AFTER_FAILURE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// Messages of launchers about a job with too little memory, in lower case.
const TOO_LITTLE_MEMORY: [&str; 5] = [
    "out of memory",
    "out-of-memory",
    "oom-kill",
    "oom_kill",
    "memory limit",
];
/// The signals that cancel jobs: SIGHUP, SIGINT and SIGTERM.
const CANCELLED: [i32; 3] = [1, 2, 15];

/// A command that ran on another machine and succeeded.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Resources used. The memory is 0 if unknown.
    pub(crate) usage: Usage,
    /// Output of the command, which has been forwarded.
    pub(crate) said: CapturedOutput,
    /// Name of the node that the command ran on.
    pub(crate) node: String,
    /// Time that the job waited before it started.
    pub(crate) queued: Duration,
    files: Files,
}

impl Ran {
    /// Returns the first of `paths` that differs between this machine and the node, or exists on
    /// one of them only. The job reports the files that it had to compare and those in its
    /// dependency file. Any other existing file counts as different.
    pub(crate) fn differing<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p Path>,
    ) -> Option<&'p Path> {
        self.files.differing(paths)
    }
}

/// Determines the outcome of the job. The inner error is the reason why the launcher did not run
/// it.
pub(super) fn of(
    cmd: &Cmd,
    job: &Job,
    ended: io::Result<Ended>,
    session: &Session,
) -> Result<std::result::Result<Ran, String>> {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return Ok(Err(format!("cannot wait for the launcher: {error}"))),
    };
    if let Some(why) = ended.stopped {
        return Ok(Err(why));
    }
    let status = wait_for(
        if ended.status.success() {
            VISIBLE_WITHIN
        } else {
            VISIBLE_WITHIN_AFTER_FAILURE
        },
        || job.status(),
        session,
    )?;
    let text = String::from_utf8_lossy(&ended.text).to_lowercase();
    let says_memory = TOO_LITTLE_MEMORY.iter().any(|phrase| text.contains(phrase));
    let Some(status) = status else {
        let node = ended.node.clone().or_else(|| job.node());
        job.end_and_wait();
        return match node {
            Some(node) if says_memory => Err(no_memory(cmd, 137, &node, job.alive().1).into()),
            node => Ok(Err(unfinished(job, &ended, node.as_deref()))),
        };
    };
    if let Some(why) = &status.refused {
        return Ok(Err(format!("on {}: {why}", status.node)));
    }
    let cancelled = status.told || CANCELLED.iter().any(|signal| status.status == 128 + signal);
    if cancelled && says_memory {
        return Err(no_memory(cmd, 137, &status.node, status.peak_memory).into());
    }
    if cancelled {
        return Ok(Err(format!(
            "something other than offld ended the job on {}. Was the job cancelled?",
            status.node
        )));
    }
    ran(cmd, job, status, ended.queued, says_memory, session).map(Ok)
}

/// Evaluates a command that ran to its end.
fn ran(
    cmd: &Cmd,
    job: &Job,
    status: Status,
    queued: Duration,
    says_memory: bool,
    session: &Session,
) -> Result<Ran> {
    let (stdout, stderr) = job.said();
    session.shell.bytes(&stderr);
    if !stdout.is_empty() {
        // If stdout is closed, nothing reads the output.
        let _ = io::stdout().lock().write_all(&stdout);
    }
    let Status {
        node,
        peak_memory,
        cpu,
        status,
        ..
    } = status;
    if status != 0 {
        // As if the process had run on this machine.
        let exit = ExitStatus::from_raw(if status > 128 {
            status - 128
        } else {
            status << 8
        });
        let failed = failure_report(cmd, exit, Some(&node));
        let how = ended_for_memory(exit, &stderr, says_memory);
        return Err(match how {
            Some(how) => OutOfMemory {
                failed,
                how,
                peak_memory,
            }
            .into(),
            None => failed.into(),
        });
    }
    let files = job.files();
    if let Some(output) = &cmd.output {
        let expected = files.size(output).filter(|size| *size > 0);
        let size = || {
            job::refresh(output.parent().unwrap_or(Path::new(".")));
            std::fs::metadata(output).ok().map(|meta| meta.len())
        };
        let is_whole =
            || size().filter(|size| *size > 0 && expected.is_none_or(|expected| *size == expected));
        let whole = if expected.is_some() {
            wait_for(VISIBLE_WITHIN, is_whole, session)?
        } else {
            is_whole()
        };
        if whole.is_none() {
            bail!(
                "{} failed: `{}` succeeded on {node}, but this machine does not see its output\n  inputs: {}\n  command: {}",
                cmd.step,
                cmd.program.display(),
                cmd.inputs.join(", "),
                posix_shell::command_line(&cmd.program, &cmd.args)
            );
        }
    }
    let said = CapturedOutput {
        stderr,
        printed: !stdout.is_empty(),
    };
    Ok(Ran {
        usage: Usage { peak_memory, cpu },
        said,
        node,
        queued,
        files,
    })
}

/// Explains why a job has no status.
fn unfinished(job: &Job, ended: &Ended, node: Option<&str>) -> String {
    let how = if ended.status.success() {
        "succeeded".to_owned()
    } else {
        how_it_ended(ended.status).0
    };
    match node {
        Some(node) => {
            format!(
                "the launcher {how}, but the job on {node} did not report its end. Was the job cancelled, or the node lost?"
            )
        }
        None => format!(
            "the launcher {how}, but the job did not start. Do its machines see `{}`? If not, set OFFLD_SHARED_TMP to a shared directory",
            job.folder().parent().unwrap_or(job.folder()).display()
        ),
    }
}

/// Error of a command that the launcher ended because of missing memory.
fn no_memory(cmd: &Cmd, status: i32, node: &str, peak_memory: u64) -> OutOfMemory {
    let failed = failure_report(cmd, ExitStatus::from_raw(status - 128), Some(node));
    OutOfMemory {
        failed,
        how: "had too little memory",
        peak_memory,
    }
}

/// Calls `look` until it returns a value, for at most `limit`.
fn wait_for<T>(
    limit: Duration,
    look: impl Fn() -> Option<T>,
    session: &Session,
) -> Result<Option<T>> {
    let until = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Ok(Some(found));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        session.signals.pause(PAUSE)?;
    }
}
