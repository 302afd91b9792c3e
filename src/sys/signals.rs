//! Signals that would end the process are caught: whoever waits for a child passes them on to it, and the stages then return an
//! error at their next step, so that the temporary folder is removed as on any other error. A signal that was ignored when offld
//! started (`nohup`) stays ignored. No thread is needed for this: the handlers write to a pipe, and whoever waits for a child waits
//! for that pipe, too.

use std::collections::BTreeSet;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, set_parent_process_death_signal, waitid};
use wait4::Wait4;

use crate::error::StepFailed;
use crate::sys::trace::Usage;

/// The signals that users, batch systems and limits end programs with. Those of defects (SIGSEGV and the like) are not among them:
/// nothing can be trusted to run after one.
const CAUGHT: [Signal; 15] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::ABORT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::TERM,
    Signal::STKFLT,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
];

/// Passed on to children as they are. For the others children get SIGTERM, because compilers do not end by all of them: LLVM's
/// print statistics on SIGUSR1.
const PASSED_ON: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// How long to wait between two looks at a child after a signal, or where the system has no descriptors for processes.
const PAUSE: Duration = Duration::from_millis(5);

/// The last signal received, and how those who wait hear of one.
#[derive(Debug, Default)]
pub struct Signals {
    received: Arc<AtomicUsize>,
    /// Where the handlers write a byte for each signal, once they are installed. It is never read, so that everybody sees how many
    /// came.
    arrivals: OnceLock<Option<PipeReader>>,
    children: Mutex<Children>,
}

/// The children that are being waited for.
#[derive(Debug, Default)]
struct Children {
    running: BTreeSet<i32>,
    /// Whether another step of the link has failed: then no child may run any longer.
    stopped: bool,
}

/// Ends this process as by SIGTERM when the one that has started it ends: a linker that was killed wants no results.
pub(crate) fn end_with_parent() {
    // Where the system cannot do it, what runs here ends by itself.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
}

impl Signals {
    /// Installs the signal handlers, once. To be called before anything is created that must be cleaned up.
    pub fn watch(&self) {
        self.arrivals.get_or_init(|| self.install().ok());
    }

    /// Never installs a handler from here on: the process belongs to a caller of the library, and so do its signals.
    pub fn leave_alone(&self) {
        self.arrivals.get_or_init(|| None);
    }

    /// An error if a signal has been received, or another step of the link has failed; every stage calls this to stop early.
    pub fn check(&self) -> Result<()> {
        self.check_received()?;
        if self.children().stopped {
            return Err(StepFailed { report: "stopped because another step of the link has failed".to_owned(), status: 1 }.into());
        }
        Ok(())
    }

    /// An error if a signal has been received.
    pub(crate) fn check_received(&self) -> Result<()> {
        match self.received.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => {
                Err(StepFailed { report: format!("stopped by signal {signal}"), status: u8::try_from(128 + signal).unwrap_or(1) }
                    .into())
            }
        }
    }

    /// Ends the children that are running, and every step at its next [`Signals::check`], since a step that runs beside others has
    /// failed.
    pub(crate) fn stop(&self) {
        let mut children = self.children();
        children.stopped = true;
        children.running.iter().filter_map(|pid| Pid::from_raw(*pid)).for_each(end);
    }

    fn children(&self) -> std::sync::MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a child, which leads its own process group, and passes signals on to it meanwhile.
    pub fn wait(&self, child: &mut Child) -> io::Result<(ExitStatus, Usage)> {
        let mut relay = Relay::new(self, child.id());
        relay.until_exit();
        // Once it is reaped, its number may be another's.
        drop(relay);
        let used = child.wait4()?;
        Ok((used.status, Usage { peak_memory: used.rusage.maxrss, cpu: used.rusage.utime + used.rusage.stime }))
    }

    /// Waits at least for `time`, or until a signal arrives.
    pub(crate) fn pause(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            match self.arrivals() {
                Some(arrivals) => wait_for(&mut [PollFd::new(arrivals, PollFlags::IN)], Some(left)),
                None => std::thread::sleep(left),
            }
        }
    }

    /// Waits until `fd` can be read, or its writer has closed it. An error once a signal has arrived.
    pub(crate) fn until_readable(&self, fd: BorrowedFd<'_>) -> Result<()> {
        loop {
            self.check()?;
            let mut fds = vec![PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            fds.extend(self.arrivals().map(|arrivals| PollFd::new(arrivals, PollFlags::IN)));
            wait_for(&mut fds, None);
            if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                return Ok(());
            }
        }
    }

    /// Whether signals are caught.
    pub(crate) fn are_watched(&self) -> bool {
        self.arrivals().is_some()
    }

    fn install(&self) -> io::Result<PipeReader> {
        let ignored = ignored_signals();
        let (arrivals, told) = io::pipe()?;
        for signal in CAUGHT.map(Signal::as_raw).into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0) {
            let number = usize::try_from(signal).map_err(io::Error::other)?;
            // The actions run in this order: whoever finds the byte finds the number as well.
            signal_hook::flag::register_usize(signal, Arc::clone(&self.received), number)?;
            signal_hook::low_level::pipe::register(signal, told.try_clone()?)?;
        }
        Ok(arrivals)
    }

    fn arrivals(&self) -> Option<&PipeReader> {
        self.arrivals.get()?.as_ref()
    }

    /// How many signals have arrived so far.
    fn count(&self) -> u64 {
        self.arrivals().and_then(|arrivals| ioctl_fionread(arrivals).ok()).unwrap_or(0)
    }
}

/// Passes signals on to one child while somebody waits for it.
pub(crate) struct Relay<'s> {
    signals: &'s Signals,
    child: Option<Pid>,
    passed: u64,
}

impl<'s> Relay<'s> {
    /// For the child `pid`, which has not been reaped yet: until then its number cannot be another's.
    pub(crate) fn new(signals: &'s Signals, pid: u32) -> Self {
        let child = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = child {
            let mut children = signals.children();
            children.running.insert(pid.as_raw_pid());
            if children.stopped {
                end(pid);
            }
        }
        Relay { signals, child, passed: 0 }
    }

    /// Waits until one of `fds` is ready or for `limit`, and passes on what arrives meanwhile; a signal may end the wait early.
    pub(crate) fn wait<'f>(&mut self, fds: &mut Vec<PollFd<'f>>, limit: Option<Duration>)
    where
        's: 'f,
    {
        self.pass_on();
        match self.signals.arrivals() {
            // Bytes stay in the pipe. Once some are known, it is always ready, and has to be looked at from time to time instead.
            Some(arrivals) if self.passed == 0 => {
                fds.push(PollFd::new(arrivals, PollFlags::IN));
                wait_for(fds, limit);
            }
            Some(_) => wait_for(fds, Some(limit.map_or(PAUSE, |limit| limit.min(PAUSE)))),
            None => wait_for(fds, limit),
        }
        self.pass_on();
    }

    /// Waits until `fd` can be read, or its writer has closed it.
    pub(crate) fn until_readable<'f>(&mut self, fd: BorrowedFd<'f>)
    where
        's: 'f,
    {
        while !self.is_ready(fd) {}
    }

    /// What can be read once the child has ended. Linux has these since 5.3, and some sandboxes refuse them.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        pidfd_open(self.child?, PidfdFlags::empty()).ok()
    }

    /// Whether the child has ended; it stays a zombie, whose number no other process can get.
    pub(crate) fn child_has_ended(&self) -> bool {
        let Some(pid) = self.child else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None) | Err(rustix::io::Errno::INTR))
    }

    /// Waits until the child has ended.
    fn until_exit(&mut self) {
        let descriptor = self.descriptor();
        loop {
            self.pass_on();
            let Some(descriptor) = &descriptor else {
                if self.child_has_ended() {
                    return;
                }
                self.wait(&mut Vec::new(), Some(PAUSE));
                continue;
            };
            if self.is_ready(descriptor.as_fd()) {
                return;
            }
        }
    }

    /// Waits for `fd` or a signal; whether `fd` is ready.
    fn is_ready<'f>(&mut self, fd: BorrowedFd<'f>) -> bool
    where
        's: 'f,
    {
        let mut fds = vec![PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        self.wait(&mut fds, None);
        fds.first().is_some_and(|fd| !fd.revents().is_empty())
    }

    fn pass_on(&mut self) {
        let arrived = self.signals.count();
        if arrived <= self.passed {
            return;
        }
        self.passed = arrived;
        let number = i32::try_from(self.signals.received.load(Ordering::SeqCst)).unwrap_or(0);
        let signal = PASSED_ON.into_iter().find(|signal| signal.as_raw() == number).unwrap_or(Signal::TERM);
        if let Some(pid) = self.child {
            // This fails if the child has ended already, which is fine.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        if let Some(pid) = self.child {
            self.signals.children().running.remove(&pid.as_raw_pid());
        }
    }
}

/// Ends a child with all that it has started.
fn end(pid: Pid) {
    // This fails if it has ended already, which is fine.
    let _ = rustix::process::kill_process_group(pid, Signal::TERM);
}

/// Waits until one of `fds` is ready, or for `limit`. What came of it does not matter: the caller looks.
fn wait_for(fds: &mut [PollFd<'_>], limit: Option<Duration>) {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    if poll(fds, limit.as_ref()).is_err_and(|error| error != rustix::io::Errno::INTR) {
        std::thread::sleep(PAUSE);
    }
}

/// The mask of signals that were ignored at start (`nohup` ignores SIGHUP), with bit n-1 for signal n.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_types, reason = "a child to wait for")]
    fn a_stop_ends_children_that_run_and_those_that_come() {
        let signals = Signals::default();
        let sleep = || Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let began = Instant::now();
        let ended = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| signals.wait(&mut sleep()).unwrap().0);
            std::thread::sleep(Duration::from_millis(50));
            assert!(signals.check().is_ok());
            signals.stop();
            waiting.join().unwrap()
        });
        assert!(!ended.success());
        assert!(signals.check().is_err() && signals.check_received().is_ok());
        assert!(!signals.wait(&mut sleep()).unwrap().0.success());
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
