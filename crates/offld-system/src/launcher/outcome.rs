//! Waits for the end of a job, and determines its outcome from the exit status of its launcher and
//! the reports of the other machine.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, kill_process_group};

use super::job::{self, Files, Job, Status};
use crate::posix_shell;
use crate::run::{
    CapturedOutput, Cmd, LauncherProcess, OutOfMemory, ended_for_memory, failure_report,
    how_it_ended,
};
use crate::session::Session;
use crate::signals::Relay;
use crate::signals::Usage;

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
pub struct Ran {
    /// Resources used. The memory is 0 if unknown.
    pub usage: Usage,
    /// Output of the command, which has been forwarded.
    pub said: CapturedOutput,
    /// Name of the node that the command ran on.
    pub node: String,
    /// Time that the job waited before it started.
    pub queued: Duration,
    files: Files,
}

impl Ran {
    /// Returns the first of `paths` that differs between this machine and the node, or exists on
    /// one of them only. The job reports the files that it had to compare and those in its
    /// dependency file. Any other existing file counts as different.
    pub fn differing<'p>(&self, paths: impl IntoIterator<Item = &'p Path>) -> Option<&'p Path> {
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

// Waits for the end of a launcher. Meanwhile renews the lease of the job, watches the job's start
// and signs of life, and forwards the launcher's output and arriving signals. Ends the job and the
// launcher if necessary.

/// Time between two looks at the files of the job. Before the job starts, it grows from `LOOK` to
/// `LONGEST_LOOK`, as the time waited so far divided by `LOOKS_OF_A_WAIT`. After the start, it is
/// `LOOK_AT_ALIVE`.
const LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(500);
const LOOKS_OF_A_WAIT: u32 = 10;
const LOOK_AT_ALIVE: Duration = Duration::from_secs(1);
/// Time between two renewals of the lease.
const RENEW: Duration = Duration::from_secs(5);
/// Longest time without a sign of life from a started job.
const SILENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// Time that a launcher has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// Number of bytes that are stored of a launcher's output.
const TEXT: usize = 64 << 10;

/// How a launcher ended.
pub(super) struct Ended {
    /// Exit status of the launcher.
    pub(super) status: ExitStatus,
    /// The end of its output.
    pub(super) text: Vec<u8>,
    /// Why offld ended the launcher, if it did.
    pub(super) stopped: Option<String>,
    /// The node that its job started on.
    pub(super) node: Option<String>,
    /// Time until the job started.
    pub(super) queued: Duration,
}

/// Waits for the end of `process`, whose job must start within `limit`. Calls `began` with the node
/// of the job.
pub(super) fn until_end(
    mut process: LauncherProcess,
    job: &mut Job,
    limit: Duration,
    session: &Session,
    began: &dyn Fn(&str),
) -> io::Result<Ended> {
    let mut relay = Relay::new(&session.signals, process.child.id());
    let descriptor = relay.descriptor();
    let mut output = Some(&mut process.output);
    let mut watch = Watch::new(&process.child, job, limit, session, began);
    let mut text = Vec::new();
    loop {
        let mut fds = Vec::new();
        fds.extend(
            output
                .as_ref()
                .map(|output| PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)),
        );
        fds.extend(
            descriptor
                .as_ref()
                .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)),
        );
        relay.wait(
            &mut fds,
            Some(if descriptor.is_some() {
                watch.pause()
            } else {
                LOOK
            }),
        );
        drop(fds);
        if output
            .as_mut()
            .is_some_and(|output| !forward(output, &mut text, session))
        {
            output = None;
        }
        if relay.child_has_ended() {
            break;
        }
        watch.look();
    }
    if let Some(output) = output {
        forward(output, &mut text, session);
    }
    let Watch {
        job,
        stopped,
        node,
        queued,
        ..
    } = watch;
    let _hold = session.signals.hold();
    drop(relay);
    let status = process.child.wait()?;
    if stopped.is_some() || session.signals.check().is_err() {
        job.end_and_wait();
    }
    Ok(Ended {
        status,
        text,
        stopped: stopped.and_then(|(_, why)| why),
        node,
        queued,
    })
}

/// Forwards the output that can be read without waiting. Returns false at the end of the output.
fn forward(output: &mut PipeReader, text: &mut Vec<u8>, session: &Session) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match output.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => {
                session.shell.bytes(&buffer[..count]);
                text.extend_from_slice(&buffer[..count]);
                text.drain(..text.len().saturating_sub(TEXT));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Watches one job.
struct Watch<'w> {
    group: Option<Pid>,
    job: &'w mut Job,
    limit: Duration,
    session: &'w Session,
    began: &'w dyn Fn(&str),
    started: Instant,
    renewed: Instant,
    looked: Instant,
    node: Option<String>,
    queued: Duration,
    alive: String,
    heard: Instant,
    /// When offld ended the job, and why, unless a signal was the reason.
    stopped: Option<(Instant, Option<String>)>,
    killed: bool,
}

impl<'w> Watch<'w> {
    fn new(
        child: &Child,
        job: &'w mut Job,
        limit: Duration,
        session: &'w Session,
        began: &'w dyn Fn(&str),
    ) -> Self {
        let now = Instant::now();
        Watch {
            group: i32::try_from(child.id()).ok().and_then(Pid::from_raw),
            job,
            limit,
            session,
            began,
            started: now,
            renewed: now,
            looked: now,
            node: None,
            queued: Duration::ZERO,
            alive: String::new(),
            heard: now,
            stopped: None,
            killed: false,
        }
    }

    /// Time between two looks.
    fn pause(&self) -> Duration {
        match (&self.stopped, &self.node) {
            (Some(_), _) => LOOK,
            (None, Some(_)) => LOOK_AT_ALIVE,
            (None, None) => (self.started.elapsed() / LOOKS_OF_A_WAIT).clamp(LOOK, LONGEST_LOOK),
        }
    }

    fn look(&mut self) {
        if let Some((when, _)) = self.stopped {
            if !self.killed && when.elapsed() >= GRACE {
                self.killed = true;
                self.signal(Signal::KILL);
            }
            return;
        }
        if self.session.signals.check().is_err() {
            return self.stop(None);
        }
        if self.renewed.elapsed() >= RENEW {
            self.renewed = Instant::now();
            // If the lease cannot be renewed for a minute, the other machine ends the job.
            let _ = self.job.renew();
        }
        if self.looked.elapsed() < self.pause() {
            return;
        }
        self.looked = Instant::now();
        if self.node.is_none() {
            self.node = self.job.node();
            self.queued = self.started.elapsed();
            self.heard = self.looked;
            if let Some(node) = &self.node {
                (self.began)(node);
            } else if self.queued >= self.limit {
                self.stop(Some(format!(
                    "the queue did not start the job within {} seconds",
                    self.limit.as_secs()
                )));
            }
            return;
        }
        let (alive, _) = self.job.alive();
        if alive != self.alive {
            self.alive = alive;
            self.heard = self.looked;
        } else if self.heard.elapsed() >= SILENCE {
            let node = self.node.as_deref().unwrap_or_default();
            self.stop(Some(format!(
                "no report from {node} for {} seconds",
                SILENCE.as_secs()
            )));
        }
    }

    /// Ends the job and the launcher.
    fn stop(&mut self, why: Option<String>) {
        self.stopped = Some((Instant::now(), why));
        self.job.end();
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // This fails if the launcher has ended already, which is fine.
            let _ = kill_process_group(group, signal);
        }
    }
}
