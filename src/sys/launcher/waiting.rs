//! Waits for the end of a launcher. Meanwhile it renews the lease of the job, watches its start and
//! its signs of life, and forwards the launcher's output and arriving signals. It ends the job and
//! the launcher if necessary.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, kill_process_group};

use super::job::Job;
use crate::sys::run::LauncherProcess;
use crate::sys::session::Session;
use crate::sys::signals::Relay;

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
