//! By which a process that we have not started ourselves hears that we have ended, however that was: a named pipe that we hold open, since
//! the system closes it in any case. A linker's helpers are such processes.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::Builder;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::{Signal, getpid, kill_process};

/// Our end of a lifeline. Once it is dropped, or this process has ended, the others hear of it.
#[derive(Debug)]
pub(crate) struct Lifeline {
    _held: File,
}

impl Lifeline {
    /// A new one at `path`.
    pub(crate) fn at(path: &Path) -> io::Result<Lifeline> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
        // Opened for reading as well, since a pipe that nobody reads cannot be opened for writing alone.
        Ok(Lifeline { _held: OpenOptions::new().read(true).write(true).open(path)? })
    }
}

/// Ends this process as by SIGTERM, after it has called `before`, when the one that holds the lifeline at `path` has ended.
pub(crate) fn end_with(path: &Path, before: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut end = other_end(path)?;
    // Nobody waits for this thread: it ends with the process.
    Builder::new().spawn(move || {
        wait_for_end(&mut end);
        before();
        let _ = kill_process(getpid(), Signal::TERM);
    })?;
    Ok(())
}

fn other_end(path: &Path) -> io::Result<File> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    OpenOptions::new().read(true).custom_flags(nonblocking).open(path)
}

/// Waits until nobody holds the other end.
fn wait_for_end(end: &mut File) {
    loop {
        match end.read(&mut [0]) {
            // Nobody has it open for writing.
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
    use super::*;

    #[test]
    fn the_end_of_the_holder_is_heard() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lifeline");
        // Also over one that an earlier run has left.
        for _ in 0..2 {
            let held = Lifeline::at(&path).unwrap();
            let mut end = other_end(&path).unwrap();
            assert_eq!(end.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            let heard = std::thread::spawn(move || wait_for_end(&mut end));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!heard.is_finished());
            drop(held);
            heard.join().unwrap();
        }
        // Who comes too late hears of it at once.
        wait_for_end(&mut other_end(&path).unwrap());
    }
}
