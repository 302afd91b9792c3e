//! What programs say, where somebody else has to know it, too: it is forwarded to our own streams all the same.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::fd::AsFd;
use std::process::{ChildStderr, Command, Stdio};

use super::Real;
use crate::sys::signals::Relay;

/// What a program has said.
#[derive(Debug, Default)]
pub struct Said {
    /// Its stderr.
    pub stderr: Vec<u8>,
    /// Whether it has written anything to its stdout.
    pub printed: bool,
}

impl Real {
    /// Captures both streams of `command`: stderr through a pipe, as it comes, and stdout, which is empty but for options that ask
    /// for something, in a file without a name. None if no such file can be made; then stdout is ours.
    pub(super) fn capture(&self, command: &mut Command) -> Option<File> {
        command.stderr(Stdio::piped());
        let file = self.scratch.folder().map_or_else(tempfile::tempfile, tempfile::tempfile_in).ok()?;
        command.stdout(file.try_clone().ok()?);
        Some(file)
    }

    /// Forwards a child's stderr to the user as it arrives, and appends it to `captured`.
    pub(super) fn forward_stderr(&self, mut stderr: ChildStderr, child: u32, captured: &mut Vec<u8>) {
        let mut buffer = [0; 4096];
        let mut relay = Relay::new(&self.signals, child);
        loop {
            relay.until_readable(stderr.as_fd());
            match stderr.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    captured.extend_from_slice(&buffer[..count]);
                    self.shell.bytes(&buffer[..count]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // If the child has ended, its exit status tells.
                Err(_) => return,
            }
        }
    }
}

/// Copies what a child has written to `file` to our stdout; returns whether it was anything.
pub(super) fn forward_stdout(mut file: File) -> bool {
    let copied = file.rewind().and_then(|()| std::io::copy(&mut file, &mut std::io::stdout().lock()));
    // What cannot be read or shown was there.
    copied.map_or(true, |count| count > 0)
}
