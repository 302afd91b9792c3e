//! A program that is started once and then answers requests over its stdin and stdout, one after another. A request and an answer
//! are frames: four bytes of length, little endian, then so many bytes. Who asks never waits without an end, and a program that ends
//! or says nothing is an error that tells how it ended.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;

use crate::sys::run::how_it_ended;
use crate::sys::signals::Signals;

/// The largest frame, without its length.
pub const LARGEST_FRAME: usize = 64 << 20;
/// The size of a frame's length.
const HEAD: usize = 4;
/// How much of the end of what the program writes to stderr is kept for the report.
const SAID: usize = 4096;

/// Something that answers requests.
pub trait Service: Send {
    /// The answer to `request`.
    ///
    /// # Errors
    /// No answer within `limit`, or none at all; the service is of no use then.
    fn ask(&mut self, request: &[u8], limit: Duration) -> Result<Vec<u8>, Ended>;

    /// Says that nothing more will be asked, so that its memory is free while others work.
    fn dismiss(&mut self) {}
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// What happened, to follow the program's name: `was ended by signal 11`.
    pub how: String,
    /// The exit status that goes with it: 128+n for signal n, else 1.
    pub status: u8,
    /// The end of what it wrote to stderr.
    pub said: String,
}

/// A running program. Dropped, it is gone.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    said: Vec<u8>,
    reaped: bool,
    signals: Arc<Signals>,
}

impl Process {
    /// Takes over `child`, whose three streams are pipes and which `signals` knows of.
    pub(super) fn new(mut child: Child, signals: Arc<Signals>) -> io::Result<Process> {
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(io::Error::other("a service needs three pipes"));
        };
        for stream in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
            ioctl_fionbio(stream, true)?;
        }
        Ok(Process { child, stdin: Some(stdin), stdout, stderr: Some(stderr), said: Vec::new(), reaped: false, signals })
    }

    /// Writes what it can of `request` from `sent` on; how much has been written then. A program that reads no more is as good as one
    /// that has read all: its end shows in its answer.
    fn send(&mut self, request: &[u8], sent: usize) -> usize {
        let Some(stdin) = &self.stdin else { return request.len() };
        match rustix::io::write(stdin, request.get(sent..).unwrap_or_default()) {
            Ok(count) => sent + count,
            Err(error) if waits(error.into()) => sent,
            Err(_) => {
                self.stdin = None;
                request.len()
            }
        }
    }

    fn hear(&mut self) {
        let Some(stderr) = &self.stderr else { return };
        let mut buffer = [0; SAID];
        match rustix::io::read(stderr, &mut buffer) {
            Ok(0) => self.stderr = None,
            Ok(count) => {
                self.said.extend_from_slice(buffer.get(..count).unwrap_or_default());
                let over = self.said.len().saturating_sub(SAID);
                self.said.drain(..over);
            }
            Err(error) if waits(error.into()) => {}
            Err(_) => self.stderr = None,
        }
    }

    /// Ends it, if it has not ended by itself; how it ended then.
    fn end(&mut self, why: Option<String>) -> Ended {
        if why.is_some() {
            let _ = self.child.kill();
        }
        let status = self.reap();
        while self.stderr.is_some() {
            let heard = self.said.len();
            self.hear();
            if self.said.len() == heard {
                break;
            }
        }
        let said = String::from_utf8_lossy(&self.said).trim().to_owned();
        match (why, status) {
            (Some(how), _) => Ended { how, status: 1, said },
            (None, Some(status)) => {
                let (how, status) = how_it_ended(status);
                Ended { how, status: status.max(1), said }
            }
            (None, None) => Ended { how: "ended without a status".to_owned(), status: 1, said },
        }
    }

    fn reap(&mut self) -> Option<std::process::ExitStatus> {
        if std::mem::replace(&mut self.reaped, true) {
            return None;
        }
        self.signals.wait(&mut self.child).ok().map(|(status, _)| status)
    }

    /// Waits until something can be read or written, `left` at most.
    fn wait(&self, sending: bool, left: Duration) {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::from_borrowed_fd(self.stdout.as_fd(), PollFlags::IN)];
        let stdin: Option<BorrowedFd<'_>> = self.stdin.as_ref().filter(|_| sending).map(AsFd::as_fd);
        fds.extend(stdin.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        fds.extend(self.stderr.as_ref().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        let timeout = Timespec::try_from(left).ok();
        // Interrupted or not, the caller tries to read and write, and looks at the time.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}

impl Service for Process {
    fn ask(&mut self, request: &[u8], limit: Duration) -> Result<Vec<u8>, Ended> {
        let until = Instant::now() + limit;
        let Some(length) = u32::try_from(request.len()).ok().filter(|_| request.len() <= LARGEST_FRAME) else {
            return Err(self.end(Some(format!("cannot be sent {} bytes: a request has at most 64 MiB", request.len()))));
        };
        let frame = [&length.to_le_bytes(), request].concat();
        let (mut sent, mut answer) = (0, Vec::new());
        let mut buffer = vec![0; 64 << 10];
        loop {
            if sent < frame.len() {
                sent = self.send(&frame, sent);
            }
            self.hear();
            match rustix::io::read(&self.stdout, &mut buffer) {
                Ok(0) => return Err(self.end(None)),
                Ok(count) => answer.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if waits(error.into()) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(self.end(Some(format!("gave no answer within {} s", limit.as_secs()))));
                    }
                    self.wait(sent < frame.len(), left);
                }
                Err(error) => return Err(self.end(Some(format!("cannot be heard: {error}")))),
            }
            match complete(&answer) {
                Some(Ok(length)) if answer.len() == length + HEAD => return Ok(answer.split_off(HEAD)),
                Some(Ok(_)) => return Err(self.end(Some("said more than it was asked".to_owned()))),
                Some(Err(length)) => {
                    return Err(self.end(Some(format!("gave an answer of {length} bytes: one has at most 64 MiB"))));
                }
                None => {}
            }
        }
    }

    fn dismiss(&mut self) {
        self.stdin = None;
        // It is waited for when it is dropped.
        let _ = self.child.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.reap();
    }
}

/// The length of the answer in a frame that is complete; none while it is not. A frame that says it is too large is an error at once.
fn complete(frame: &[u8]) -> Option<Result<usize, usize>> {
    let (length, rest) = frame.split_first_chunk::<HEAD>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > LARGEST_FRAME {
        return Some(Err(length));
    }
    (rest.len() >= length).then_some(Ok(length))
}

fn waits(error: io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
