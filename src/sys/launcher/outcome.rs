//! What became of a job, by the end of its launcher and by what the other side has told.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::job::{self, Files, Job, Status};
use super::waiting::Ended;
use crate::sys::run::{Cmd, OutOfMemory, Said, ended_for_memory, failure_report, how_it_ended};
use crate::sys::session::Session;
use crate::sys::shell;
use crate::sys::trace::Usage;

/// How long files of the other side may take to be seen here: after a good end, and after another.
const SEEN: Duration = Duration::from_secs(5);
const SEEN_AFTER_FAILURE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);

/// What launchers say when a job had too little memory, in lower case.
const TOO_LITTLE_MEMORY: [&str; 5] = ["out of memory", "out-of-memory", "oom-kill", "oom_kill", "memory limit"];
/// The signals by which jobs are cancelled.
const CANCELLED: [i32; 3] = [1, 2, 15];

/// A command that was run on the other side, and has ended well.
#[derive(Debug)]
pub(crate) struct Ran {
    /// What it used. The memory is 0 where it is not known.
    pub(crate) usage: Usage,
    /// What it said, which has been forwarded.
    pub(crate) said: Said,
    /// Where it ran.
    pub(crate) node: String,
    /// How long the job waited before it began.
    pub(crate) queued: Duration,
    files: Files,
}

impl Ran {
    /// The first of `paths` that is not the same file here as on the node, or is only on one side, of those that the job was to compare or
    /// that its dependency file lists. Any other that is here is taken to differ.
    pub(crate) fn differing<'p>(&self, paths: impl IntoIterator<Item = &'p Path>) -> Option<&'p Path> {
        self.files.differing(paths)
    }
}

/// What became of the job; the inner error says why the launcher has not run it.
pub(super) fn of(cmd: &Cmd, job: &Job, ended: io::Result<Ended>, session: &Session) -> Result<std::result::Result<Ran, String>> {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return Ok(Err(format!("it cannot be waited for: {error}"))),
    };
    if let Some(why) = ended.stopped {
        return Ok(Err(why));
    }
    let status = wait_for(if ended.status.success() { SEEN } else { SEEN_AFTER_FAILURE }, || job.status(), session)?;
    let text = String::from_utf8_lossy(&ended.text).to_lowercase();
    let says_memory = TOO_LITTLE_MEMORY.iter().any(|said| text.contains(said));
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
        return Ok(Err(format!("the job was ended on {}, but not by offld. Was it cancelled?", status.node)));
    }
    ran(cmd, job, status, ended.queued, says_memory, session).map(Ok)
}

/// The command has come to its own end.
fn ran(cmd: &Cmd, job: &Job, status: Status, queued: Duration, says_memory: bool, session: &Session) -> Result<Ran> {
    let (stdout, stderr) = job.said();
    session.shell.bytes(&stderr);
    if !stdout.is_empty() {
        // Whoever has closed it wants no more.
        let _ = io::stdout().lock().write_all(&stdout);
    }
    let Status { node, peak_memory, cpu, status, .. } = status;
    if status != 0 {
        // As a process here would have ended.
        let exit = ExitStatus::from_raw(if status > 128 { status - 128 } else { status << 8 });
        let failed = failure_report(cmd, exit, Some(&node));
        let how = ended_for_memory(exit, &stderr, says_memory);
        return Err(match how {
            Some(how) => OutOfMemory { failed, how, peak_memory }.into(),
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
        let is_whole = || size().filter(|size| *size > 0 && expected.is_none_or(|expected| *size == expected));
        let whole = if expected.is_some() { wait_for(SEEN, is_whole, session)? } else { is_whole() };
        if whole.is_none() {
            bail!(
                "{} failed: `{}` ended well on {node}, but what it should have written is not here\n  inputs: {}\n  command: {}",
                cmd.step,
                cmd.program.display(),
                cmd.inputs.join(", "),
                shell::command_line(&cmd.program, &cmd.args)
            );
        }
    }
    let said = Said { stderr, printed: !stdout.is_empty() };
    Ok(Ran { usage: Usage { peak_memory, cpu }, said, node, queued, files })
}

/// Why there is no status of a job.
fn unfinished(job: &Job, ended: &Ended, node: Option<&str>) -> String {
    let how = if ended.status.success() { "ended well".to_owned() } else { how_it_ended(ended.status).0 };
    match node {
        Some(node) => {
            format!("it {how}, and the job has begun on {node} but not told its end. Was it cancelled, or the node lost?")
        }
        None => format!(
            "it {how}, and the job has not begun. Do the machines that it runs jobs on see `{}`? OFFLD_SHARED_TMP names another folder",
            job.folder().parent().unwrap_or(job.folder()).display()
        ),
    }
}

/// The error of a command that the launcher has ended for want of memory.
fn no_memory(cmd: &Cmd, status: i32, node: &str, peak_memory: u64) -> OutOfMemory {
    let failed = failure_report(cmd, ExitStatus::from_raw(status - 128), Some(node));
    OutOfMemory { failed, how: "its job had too little memory", peak_memory }
}

/// What `look` finds, for which it is asked until then or for `limit`.
fn wait_for<T>(limit: Duration, look: impl Fn() -> Option<T>, session: &Session) -> Result<Option<T>> {
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
