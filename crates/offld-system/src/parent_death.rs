//! Lets processes that we have not started ourselves, such as a linker's helpers, detect our exit.
//! The lifeline is a named pipe that we keep open: the system closes it however this process ends.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::Builder;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::{Signal, getpid, kill_process};

/// Our end of a lifeline. The other processes notice when it is dropped, or when this process ends.
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
pub fn end_with(path: &Path, before: impl FnOnce() + Send + 'static) -> io::Result<()> {
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
    use super::*;

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
