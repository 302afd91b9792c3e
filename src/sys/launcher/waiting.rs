//! Waits for the end of a launcher: renews the lease of its job, looks whether that has begun and is alive, forwards what the launcher
//! says and the signals that arrive, and ends both where they are to end.

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

/// How often the files of the job are looked at: before it has begun, first often and after a long wait seldom; and afterwards.
const LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(500);
const LOOKS_OF_A_WAIT: u32 = 10;
const LOOK_AT_ALIVE: Duration = Duration::from_secs(1);
/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(5);
/// How long nothing may be heard of a job that has begun.
const SILENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// How long a launcher may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(3);
/// How much is kept of what a launcher says.
const TEXT: usize = 64 << 10;

/// How a launcher has ended.
pub(super) struct Ended {
    /// Its own status.
    pub(super) status: ExitStatus,
    /// The end of what it said.
    pub(super) text: Vec<u8>,
    /// Why it was ended, where it was.
    pub(super) stopped: Option<String>,
    /// Where its job has begun.
    pub(super) node: Option<String>,
    /// How long that took.
    pub(super) queued: Duration,
}

/// Waits for the end of `process`, whose job must begin within `limit`. `began` is called with its node.
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
        fds.extend(output.as_ref().map(|output| PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)));
        fds.extend(descriptor.as_ref().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        relay.wait(&mut fds, Some(if descriptor.is_some() { watch.pause() } else { LOOK }));
        drop(fds);
        if output.as_mut().is_some_and(|output| !forward(output, &mut text, session)) {
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
    let Watch { job, stopped, node, queued, .. } = watch;
    drop(relay);
    let status = process.child.wait()?;
    if stopped.is_some() || session.signals.check().is_err() {
        job.end_and_wait();
    }
    Ok(Ended { status, text, stopped: stopped.and_then(|(_, why)| why), node, queued })
}

/// Forwards what can be read without waiting; false at the end.
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

/// Looks after one job.
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
    /// When it was told to end, and why, unless that is known anyway.
    stopped: Option<(Instant, Option<String>)>,
    killed: bool,
}

impl<'w> Watch<'w> {
    fn new(child: &Child, job: &'w mut Job, limit: Duration, session: &'w Session, began: &'w dyn Fn(&str)) -> Self {
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

    /// How long to wait between two looks.
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
            // Where it cannot be renewed for a minute, the other side ends.
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
                self.stop(Some(format!("its queue has not started the job in {} seconds", self.limit.as_secs())));
            }
            return;
        }
        let (alive, _) = self.job.alive();
        if alive != self.alive {
            self.alive = alive;
            self.heard = self.looked;
        } else if self.heard.elapsed() >= SILENCE {
            let node = self.node.as_deref().unwrap_or_default();
            self.stop(Some(format!("nothing was heard from {node} for {} seconds", SILENCE.as_secs())));
        }
    }

    /// Ends job and launcher.
    fn stop(&mut self, why: Option<String>) {
        self.stopped = Some((Instant::now(), why));
        self.job.end();
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // This fails if it has ended already, which is fine.
            let _ = kill_process_group(group, signal);
        }
    }
}
