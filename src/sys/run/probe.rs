//! Runs programs for their stderr.

#![expect(
    clippy::disallowed_types,
    reason = "a part of `run`, which starts processes"
)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::sys::signals::Signals;
use crate::sys::threads;

/// A running program, and its stderr so far.
pub(crate) struct Probe {
    child: Child,
    stderr: File,
}

pub(crate) struct ProbeOutput {
    pub success: bool,
    pub stderr: Vec<u8>,
}

impl Probe {
    /// Starts `program`. If there are too many processes, waits for others to end first.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn start(program: &Path, args: &[OsString]) -> io::Result<Probe> {
        // Not a pipe: clang writes its answer one character at a time, and each character would
        // wake the reader of a pipe.
        let stderr = match memfd_create("stderr", MemfdFlags::CLOEXEC) {
            Ok(file) => File::from(file),
            Err(_) => tempfile::tempfile()?,
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.try_clone()?);
        let child =
            threads::retry(&Signals::default(), || command.spawn()).map_err(io::Error::other)??;
        Ok(Probe { child, stderr })
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// The wait fails, or its stderr cannot be read.
    pub(crate) fn finish(mut self) -> io::Result<ProbeOutput> {
        let status = self.child.wait()?;
        let mut stderr = Vec::new();
        self.stderr.rewind()?;
        self.stderr.read_to_end(&mut stderr)?;
        Ok(ProbeOutput {
            success: status.success(),
            stderr,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_stderr_only() {
        let run = |script: &str| {
            Probe::start(Path::new("/bin/sh"), &["-c".into(), script.into()])
                .unwrap()
                .finish()
                .unwrap()
        };
        let ended_well = run("echo out; echo one >&2; echo two >&2");
        assert!(ended_well.success);
        assert_eq!(ended_well.stderr, b"one\ntwo\n");
        let failed = run("echo no >&2; exit 3");
        assert!(!failed.success);
        assert_eq!(failed.stderr, b"no\n");
        assert!(Probe::start(Path::new("/nowhere/clang"), &[]).is_err());
    }
}
