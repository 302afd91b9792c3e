//! Captures the output of programs and forwards it to our own streams.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::fd::AsFd;
use std::process::{ChildStderr, Command, Stdio};

use super::Real;
use crate::sys::signals::Relay;

/// Captured output of a program.
#[derive(Debug, Default)]
pub struct CapturedOutput {
    /// The complete stderr.
    pub stderr: Vec<u8>,
    /// Whether the program wrote anything to its stdout.
    pub printed: bool,
}

impl Real {
    /// Captures both streams of `command`. Its stderr goes through a pipe, so that it can be
    /// forwarded as it arrives. Its stdout goes to an unnamed file, because it is usually empty.
    /// Returns `None` if no such file can be created; stdout then stays ours.
    pub(super) fn capture(&self, command: &mut Command) -> Option<File> {
        command.stderr(Stdio::piped());
        let file = self
            .scratch
            .folder()
            .map_or_else(tempfile::tempfile, tempfile::tempfile_in)
            .ok()?;
        command.stdout(file.try_clone().ok()?);
        Some(file)
    }

    /// Forwards a child's stderr to the user as it arrives, and appends it to `captured`.
    pub(super) fn forward_stderr(
        &self,
        mut stderr: ChildStderr,
        child: u32,
        captured: &mut Vec<u8>,
    ) {
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
                // If the child has ended, its exit status is reported elsewhere.
                Err(_) => return,
            }
        }
    }
}

/// Copies the contents of `file`, a child's stdout, to our stdout. Returns whether there were any.
pub(super) fn forward_stdout(mut file: File) -> bool {
    let copied = file
        .rewind()
        .and_then(|()| std::io::copy(&mut file, &mut std::io::stdout().lock()));
    // A failed copy means that there was output.
    copied.map_or(true, |count| count > 0)
}
