//! A child process that answers requests over its stdin and stdout, in their order. Requests and
//! answers are frames: a length as four bytes, little endian, then that many bytes. Waiting for an
//! answer has a time limit. If the child ends or exceeds the limit, the error describes the reason.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::ioctl_fionbio;

use crate::run::how_it_ended;
use crate::signals::{Idle, Relay, Signals};
use crate::threads;

/// Largest frame, without its length field, in bytes.
pub const LARGEST_FRAME: usize = 64 << 20;
/// Size of a frame's length field, in bytes.
const LENGTH_SIZE: usize = 4;
/// Number of bytes from the end of the program's stderr that go into the error report.
const STDERR_TAIL: usize = 4096;

/// A program that answers requests, in their order, or a stand-in for one in tests.
pub trait Service: Send {
    /// Sends `request` without waiting for its answer. [`Service::answer`] sends the part that the
    /// program does not read yet.
    ///
    /// # Errors
    /// The request is too long. The service is unusable afterwards.
    fn send(&mut self, request: &[u8]) -> Result<(), ServiceFailure>;

    /// Returns the answer to the oldest unanswered request.
    ///
    /// # Errors
    /// There is no answer within `limit`, or the program has ended. The service is unusable
    /// afterwards.
    fn answer(&mut self, limit: Duration) -> Result<Vec<u8>, ServiceFailure>;

    /// Ends the program because no further request follows, so that its memory is free while other
    /// steps run.
    fn stop(&mut self) {}
}

/// Reason for a missing answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceFailure {
    /// Description that follows the program's name: `was ended by signal 11`.
    pub what: String,
    /// Exit status for offld: 128+n if signal n killed the program, else the program's own status,
    /// at least 1.
    pub status: u8,
    /// The end of its stderr.
    pub stderr_tail: String,
}

/// A running program. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    stderr_tail: Vec<u8>,
    /// Frames that are not written yet.
    unsent: VecDeque<u8>,
    /// Bytes read that do not form a whole answer yet.
    received: Vec<u8>,
    unanswered: usize,
    reaped: bool,
    signals: Arc<Signals>,
    idle: Option<Idle>,
}

impl Process {
    /// Takes over `child`, whose three streams must be pipes.
    pub(super) fn new(mut child: Child, signals: Arc<Signals>) -> io::Result<Process> {
        let pid = child.id();
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(io::Error::other("a service needs three pipes"));
        };
        for stream in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
            ioctl_fionbio(stream, true)?;
        }
        Ok(Process {
            child,
            stdin: Some(stdin),
            stdout,
            stderr: Some(stderr),
            stderr_tail: Vec::new(),
            unsent: VecDeque::new(),
            received: Vec::new(),
            unanswered: 0,
            reaped: false,
            idle: Some(signals.idle(pid)),
            signals,
        })
    }

    /// Writes as much of the unsent requests as the pipe accepts. If the program has closed its
    /// stdin, all requests count as sent: reading the answer then reveals how the program ended.
    fn write(&mut self) {
        let sent = match &self.stdin {
            None => Ok(self.unsent.len()),
            Some(stdin) => rustix::io::write(stdin, self.unsent.make_contiguous()),
        };
        match sent {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(error) if is_retryable(error.into()) => {}
            Err(_) => {
                self.stdin = None;
                self.unsent.clear();
            }
        }
    }

    /// The next whole answer, if it has been read.
    fn take_answer(&mut self) -> Option<Result<Vec<u8>, ServiceFailure>> {
        let length = match complete(&self.received)? {
            Ok(length) => length,
            Err(length) => {
                return Some(Err(self.end(Some(format!(
                    "sent an answer of {length} bytes; the limit is 64 MiB"
                )))));
            }
        };
        let rest = self.received.split_off(length + LENGTH_SIZE);
        let mut answer = std::mem::replace(&mut self.received, rest);
        self.unanswered = self.unanswered.saturating_sub(1);
        if self.unanswered == 0 && !self.received.is_empty() {
            return Some(Err(self.end(Some("sent more than one answer".to_owned()))));
        }
        Some(Ok(answer.split_off(LENGTH_SIZE)))
    }

    fn read_stderr(&mut self) {
        let Some(stderr) = &self.stderr else { return };
        let mut buffer = [0; STDERR_TAIL];
        match rustix::io::read(stderr, &mut buffer) {
            Ok(0) => self.stderr = None,
            Ok(count) => {
                self.stderr_tail
                    .extend_from_slice(buffer.get(..count).unwrap_or_default());
                let over = self.stderr_tail.len().saturating_sub(STDERR_TAIL);
                self.stderr_tail.drain(..over);
            }
            Err(error) if is_retryable(error.into()) => {}
            Err(_) => self.stderr = None,
        }
    }

    /// Ends the service and returns the failure to report. With `why`, kills the program and
    /// reports `why`. Otherwise the program has ended by itself, and its exit status is reported.
    fn end(&mut self, why: Option<String>) -> ServiceFailure {
        if why.is_some() {
            let _ = self.child.kill();
        }
        let status = self.reap();
        while self.stderr.is_some() {
            let before = self.stderr_tail.len();
            self.read_stderr();
            if self.stderr_tail.len() == before {
                break;
            }
        }
        let stderr_tail = String::from_utf8_lossy(&self.stderr_tail).trim().to_owned();
        match (why, status) {
            (Some(what), _) => ServiceFailure {
                what,
                status: 1,
                stderr_tail,
            },
            (None, Some(status)) => {
                let (what, status) = how_it_ended(status);
                ServiceFailure {
                    what,
                    status: status.max(1),
                    stderr_tail,
                }
            }
            (None, None) => ServiceFailure {
                what: "ended without a status".to_owned(),
                status: 1,
                stderr_tail,
            },
        }
    }

    fn reap(&mut self) -> Option<std::process::ExitStatus> {
        if std::mem::replace(&mut self.reaped, true) {
            return None;
        }
        self.idle = None;
        self.signals
            .wait(&mut self.child)
            .ok()
            .map(|(status, _)| status)
    }

    /// Waits until a stream can be read or written, for at most `left`.
    fn wait(&self, sending: bool, left: Duration) {
        let mut fds: Vec<PollFd<'_>> =
            vec![PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN)];
        let stdin: Option<BorrowedFd<'_>> =
            self.stdin.as_ref().filter(|_| sending).map(AsFd::as_fd);
        fds.extend(stdin.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        fds.extend(
            self.stderr
                .as_ref()
                .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)),
        );
        // The result does not matter: the caller tries to read and write in any case, and checks
        // the time.
        Relay::new(&self.signals, self.child.id()).wait(&mut fds, Some(left));
    }
}

impl Service for Process {
    fn send(&mut self, request: &[u8]) -> Result<(), ServiceFailure> {
        let Some(length) = u32::try_from(request.len())
            .ok()
            .filter(|_| request.len() <= LARGEST_FRAME)
        else {
            return Err(self.end(Some(format!(
                "cannot take a request of {} bytes; the limit is 64 MiB",
                request.len()
            ))));
        };
        self.unsent.extend(length.to_le_bytes());
        self.unsent.extend(request);
        self.unanswered += 1;
        self.write();
        Ok(())
    }

    fn answer(&mut self, limit: Duration) -> Result<Vec<u8>, ServiceFailure> {
        let until = Instant::now() + limit;
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(answer) = self.take_answer() {
                return answer;
            }
            if !self.unsent.is_empty() {
                self.write();
            }
            self.read_stderr();
            match rustix::io::read(&self.stdout, &mut buffer) {
                Ok(0) => return Err(self.end(None)),
                Ok(count) => self
                    .received
                    .extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if is_retryable(error.into()) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(
                            self.end(Some(format!("gave no answer within {} s", limit.as_secs())))
                        );
                    }
                    self.wait(!self.unsent.is_empty(), left);
                }
                Err(error) => return Err(self.end(Some(format!("cannot be read from: {error}")))),
            }
        }
    }

    fn stop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        // Reaping waits until the program's memory is free, so it is normally left to the drop.
        // Near a limit on processes, the killed program is reaped now, because it counts until
        // then.
        if threads::is_short() {
            self.reap();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.reap();
    }
}

/// Returns the length of the answer if `frame` is complete, and `None` if it is not. The inner
/// error is a length above the limit, which is reported at once.
fn complete(frame: &[u8]) -> Option<Result<usize, usize>> {
    let (length, rest) = frame.split_first_chunk::<LENGTH_SIZE>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > LARGEST_FRAME {
        return Some(Err(length));
    }
    (rest.len() >= length).then_some(Ok(length))
}

fn is_retryable(error: io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
