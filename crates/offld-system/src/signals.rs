//! Catches the signals that would end the process, so that the temporary directory is removed as
//! after any other error. A thread that waits for a child passes signals on to the child, and each
//! stage returns an error at its next step. A signal that was ignored when offld started (`nohup`)
//! stays ignored. The handlers write to a pipe, and threads that wait for a child also wait for
//! that pipe.
//!
//! A stage may take long to reach its next step, for example if it opens a named pipe without a
//! reader, or decompresses. So another thread waits for the pipe as well, and ends the process some
//! time after the signal, whatever the stages are doing.
//!
//! [`Lifeline`] lets other processes detect our exit.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

use anyhow::Result;
use offload_formats::error::StepFailed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::io::ioctl_fionread;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open,
    set_parent_process_death_signal, waitid,
};
use wait4::Wait4;

use crate::atomic_file;
use crate::threads::{self, lock};

/// The signals that users, batch systems and limits send to end programs. Signals of defects
/// (SIGSEGV and the like) are not among them: after a defect, no further code can be trusted.
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

/// Signals that are passed on to children unchanged. For all others, children get SIGTERM, because
/// not every signal ends a compiler: LLVM's print statistics on SIGUSR1.
const PASSED_ON: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// Time between two checks of a child after a signal, or if the system has no process descriptors.
const PAUSE: Duration = Duration::from_millis(5);

/// Time that the stages have to end after a signal, not counting the time in which they wait for
/// children.
const GRACE: Duration = Duration::from_millis(700);
/// Stack size of the thread that waits for [`GRACE`], in bytes; more than enough.
const STACK: usize = 64 << 10;

/// The last signal received, and the pipe that wakes waiting threads.
#[derive(Debug, Default)]
pub struct Signals {
    received: Arc<AtomicUsize>,
    /// Read end of the pipe to which the handlers write one byte for each signal, once they are
    /// installed. It is never read, so that every thread sees how many signals arrived.
    arrivals: OnceLock<Option<PipeReader>>,
    children: Arc<Mutex<Children>>,
}

#[derive(Debug, Default)]
struct Children {
    /// Process ids of children that a thread waits for.
    running: BTreeSet<i32>,
    /// Process ids of children that wait for us.
    idle: BTreeSet<i32>,
    /// Number of threads whose work must not be interrupted.
    held: usize,
    /// Whether another step of the link has failed. Then no child may continue.
    stopped: bool,
}

/// Resources that a child process used, as `wait4` reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Peak resident memory, in bytes.
    pub peak_memory: u64,
    /// User and system time.
    pub cpu: Duration,
}

/// Ends this process as by SIGTERM when its parent ends: a linker that was killed needs no results.
pub fn end_with_parent() {
    // If the system cannot do it, this process ends by itself later.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
}

impl Signals {
    /// Installs the signal handlers, once. Call it before creating anything that must be cleaned
    /// up.
    pub fn watch(&self) {
        self.arrivals.get_or_init(|| self.install().ok());
    }

    /// Disables the signal handlers for good: the process and its signals belong to a caller of the
    /// library.
    pub fn leave_alone(&self) {
        self.arrivals.get_or_init(|| None);
    }

    /// Every stage calls this to stop early.
    ///
    /// # Errors
    /// A signal has arrived, or another step of the link has failed.
    pub fn check(&self) -> Result<()> {
        self.check_received()?;
        if self.children().stopped {
            let report = "stopped because another step of the link has failed";
            return Err(StepFailed::new(report, 1).into());
        }
        Ok(())
    }

    /// Like [`Signals::check`], without failed steps.
    ///
    /// # Errors
    /// A signal has arrived.
    pub fn check_received(&self) -> Result<()> {
        match self.received.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => {
                let status = u8::try_from(128 + signal).unwrap_or(1);
                Err(StepFailed::new(format!("stopped by signal {signal}"), status).into())
            }
        }
    }

    /// Ends the running children, and every step at its next [`Signals::check`], because a parallel
    /// step has failed.
    pub fn stop(&self) {
        let mut children = self.children();
        children.stopped = true;
        children
            .running
            .iter()
            .filter_map(|pid| Pid::from_raw(*pid))
            .for_each(end);
    }

    fn children(&self) -> MutexGuard<'_, Children> {
        lock(&self.children)
    }

    /// Prevents signals from ending the process while the result lives. Used while something
    /// outside the process is being ended.
    pub(crate) fn hold(&self) -> Hold<'_> {
        self.children().held += 1;
        Hold { signals: self }
    }

    /// Registers a child that waits for us and must end with this process, however that ends. Drop
    /// the result before the child is reaped.
    pub(crate) fn idle(&self, pid: u32) -> Idle {
        let pid = i32::try_from(pid).unwrap_or(0);
        self.children().idle.insert(pid);
        Idle {
            children: Arc::clone(&self.children),
            pid,
        }
    }

    /// Waits for a child, which must lead its own process group, and passes signals on to it.
    pub fn wait(&self, child: &mut Child) -> io::Result<(ExitStatus, Usage)> {
        let mut relay = Relay::new(self, child.id());
        relay.until_exit();
        // After the child is reaped, another process may get its id.
        drop(relay);
        let used = child.wait4()?;
        Ok((
            used.status,
            Usage {
                peak_memory: used.rusage.maxrss,
                cpu: used.rusage.utime + used.rusage.stime,
            },
        ))
    }

    /// Waits for at least `time`.
    ///
    /// # Errors
    /// A signal arrives, or another step fails.
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

    /// Waits until `fd` can be read, or its writer has closed it.
    ///
    /// # Errors
    /// A signal arrives, or another step fails.
    pub(crate) fn until_readable(&self, fd: BorrowedFd<'_>) -> Result<()> {
        loop {
            self.check()?;
            let mut fds = vec![PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            fds.extend(
                self.arrivals()
                    .map(|arrivals| PollFd::new(arrivals, PollFlags::IN)),
            );
            wait_for(&mut fds, None);
            if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
                return Ok(());
            }
        }
    }

    pub(crate) fn are_watched(&self) -> bool {
        self.arrivals().is_some()
    }

    fn install(&self) -> io::Result<PipeReader> {
        let ignored = ignored_signals();
        let (arrivals, writer) = io::pipe()?;
        for signal in CAUGHT
            .map(Signal::as_raw)
            .into_iter()
            .filter(|signal| ignored & (1 << (signal - 1)) == 0)
        {
            let number = usize::try_from(signal).map_err(io::Error::other)?;
            // The actions run in this order, so a thread that sees the byte also sees the number.
            signal_hook::flag::register_usize(signal, Arc::clone(&self.received), number)?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        // Near a limit on processes, compilers and linkers need the room of this thread more.
        // Stages then end at their next step only.
        if !threads::is_short() {
            let last = LastResort {
                received: Arc::clone(&self.received),
                children: Arc::clone(&self.children),
                arrivals: arrivals.try_clone()?,
            };
            // The thread ends with the process.
            let _ = Builder::new()
                .name("signals".to_owned())
                .stack_size(STACK)
                .spawn(move || last.run());
        }
        Ok(arrivals)
    }

    fn arrivals(&self) -> Option<&PipeReader> {
        self.arrivals.get()?.as_ref()
    }

    /// Number of signals that have arrived so far.
    fn count(&self) -> u64 {
        self.arrivals()
            .and_then(|arrivals| ioctl_fionread(arrivals).ok())
            .unwrap_or(0)
    }
}

/// See [`Signals::hold`].
pub(crate) struct Hold<'s> {
    signals: &'s Signals,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.signals.children().held -= 1;
    }
}

/// See [`Signals::idle`].
#[derive(Debug)]
pub(crate) struct Idle {
    children: Arc<Mutex<Children>>,
    pid: i32,
}

impl Drop for Idle {
    fn drop(&mut self) {
        lock(&self.children).idle.remove(&self.pid);
    }
}

/// Ends the process after a signal if the stages do not end it in time.
struct LastResort {
    received: Arc<AtomicUsize>,
    children: Arc<Mutex<Children>>,
    arrivals: PipeReader,
}

impl LastResort {
    fn run(self) {
        let received = || self.received.load(Ordering::SeqCst);
        while received() == 0 {
            wait_for(&mut [PollFd::new(&self.arrivals, PollFlags::IN)], None);
        }
        let mut since = Instant::now();
        while since.elapsed() < GRACE {
            std::thread::sleep(PAUSE);
            let children = lock(&self.children);
            if children.held > 0 || !children.running.is_empty() {
                since = Instant::now();
            }
        }
        // The lock stays held, so no child is reaped any more, and no other process can get its id.
        let children = lock(&self.children);
        for child in children.idle.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = rustix::process::kill_process_group(child, Signal::KILL);
        }
        atomic_file::remove_unfinished();
        let signal = i32::try_from(received()).unwrap_or(0);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        // Reached only for a signal whose default action is unknown.
        signal_hook::low_level::exit(128_i32.saturating_add(signal));
    }
}

/// Passes signals on to one child while a thread waits for it.
pub(crate) struct Relay<'s> {
    signals: &'s Signals,
    child: Option<Pid>,
    passed: u64,
}

impl<'s> Relay<'s> {
    /// Creates the relay for the child `pid`, which must not have been reaped yet: otherwise
    /// another process may have its id.
    pub(crate) fn new(signals: &'s Signals, pid: u32) -> Self {
        let child = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = child {
            let mut children = signals.children();
            children.running.insert(pid.as_raw_pid());
            if children.stopped {
                end(pid);
            }
        }
        Relay {
            signals,
            child,
            passed: 0,
        }
    }

    /// Waits until one of `fds` is ready or `limit` has passed, and passes signals on to the child.
    /// A signal may end the wait early.
    pub(crate) fn wait<'f>(&mut self, fds: &mut Vec<PollFd<'f>>, limit: Option<Duration>)
    where
        's: 'f,
    {
        self.pass_on();
        match self.signals.arrivals() {
            // Bytes stay in the pipe, so after the first signal it is always ready. From then on,
            // it is polled from time to time instead.
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

    /// Returns a descriptor that becomes readable when the child has ended. Linux has such
    /// descriptors since 5.3, and some sandboxes refuse them.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        pidfd_open(self.child?, PidfdFlags::empty()).ok()
    }

    /// Whether the child has ended. The child stays a zombie, so no other process can get its id.
    pub(crate) fn child_has_ended(&self) -> bool {
        let Some(pid) = self.child else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(
            waitid(WaitId::Pid(pid), options),
            Ok(None) | Err(rustix::io::Errno::INTR)
        )
    }

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

    /// Waits for `fd` or a signal. Returns whether `fd` is ready.
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
        let signal = PASSED_ON
            .into_iter()
            .find(|signal| signal.as_raw() == number)
            .unwrap_or(Signal::TERM);
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

/// Ends a child and all processes in its group.
fn end(pid: Pid) {
    // This fails if the child has ended already, which is fine.
    let _ = rustix::process::kill_process_group(pid, Signal::TERM);
}

/// Waits until one of `fds` is ready or `limit` has passed. Callers check the result themselves.
fn wait_for(fds: &mut [PollFd<'_>], limit: Option<Duration>) {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    if poll(fds, limit.as_ref()).is_err_and(|error| error != rustix::io::Errno::INTR) {
        std::thread::sleep(PAUSE);
    }
}

/// The mask of signals that were ignored at start (`nohup` ignores SIGHUP), with bit n-1 for signal
/// n.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

// Lifelines.

/// Our end of a lifeline: a named pipe that lets processes that we have not started ourselves, such
/// as a linker's helpers, detect our exit. The system closes the pipe however this process ends.
/// The other processes notice when it is dropped, or when this process ends.
#[derive(Debug)]
pub struct Lifeline {
    _pipe: File,
}

impl Lifeline {
    /// Creates a lifeline at `path`, replacing an old one.
    pub fn at(path: &Path) -> io::Result<Lifeline> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
        // Opened for reading as well, because a pipe without a reader cannot be opened for writing
        // alone.
        Ok(Lifeline {
            _pipe: OpenOptions::new().read(true).write(true).open(path)?,
        })
    }
}

/// Ends this process as by SIGTERM when the holder of the lifeline at `path` has ended. Calls
/// `before` first.
pub fn end_with_lifeline(path: &Path, before: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut end = other_end(path)?;
    // No join: the thread ends with the process.
    Builder::new().spawn(move || {
        wait_for_end(&mut end);
        before();
        let _ = kill_process(getpid(), Signal::TERM);
    })?;
    Ok(())
}

fn other_end(path: &Path) -> io::Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
}

/// Waits until no process holds the other end.
fn wait_for_end(end: &mut File) {
    loop {
        match end.read(&mut [0]) {
            // No process has the pipe open for writing.
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&*end, PollFlags::IN)], None);
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_types, reason = "a child to wait for")]
    fn a_stop_ends_running_and_future_children() {
        let signals = Signals::default();
        let sleep = || {
            Command::new("sleep")
                .arg("60")
                .process_group(0)
                .spawn()
                .unwrap()
        };
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

    #[test]
    fn notices_the_end_of_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lifeline");
        // The second time, a pipe of an earlier run exists.
        for _ in 0..2 {
            let held = Lifeline::at(&path).unwrap();
            let mut end = other_end(&path).unwrap();
            assert_eq!(
                end.read(&mut [0]).unwrap_err().kind(),
                ErrorKind::WouldBlock
            );
            let waiter = std::thread::spawn(move || wait_for_end(&mut end));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waiter.is_finished());
            drop(held);
            waiter.join().unwrap();
        }
        // A late observer notices the end at once.
        wait_for_end(&mut other_end(&path).unwrap());
    }
}
