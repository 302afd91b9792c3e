//! The outputs of a command: all of them appear, each of them whole, or none does. Each is written beside its place and takes it
//! when everything has worked. What cannot be replaced (stdout, a pipe, a device) is written at that moment, from an unnamed
//! temporary file.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};

use crate::error::{FileError, StepFailed, strerror};
use crate::io::copy;
use crate::sys::atomic_file::{self, AtomicFile};
use crate::sys::session::{self, Session};
use crate::sys::signals::Signals;

/// Fewer zeros than this are written; more become a hole, which takes no room but some system calls more.
const SMALL_GAP: usize = 4096;

/// The outputs of a command.
pub(crate) struct Outputs {
    signals: Arc<Signals>,
    scratch: PathBuf,
    pending: Vec<PendingOutput>,
}

/// An output that is not in its place yet.
enum PendingOutput {
    /// Takes the place of what is there.
    Atomic(AtomicFile, PathBuf),
    /// To be copied into a device or a pipe, or to stdout (none).
    Into(File, Option<PathBuf>),
}

/// One output, to be written from its start.
#[derive(Debug)]
pub struct Output {
    file: File,
    signals: Arc<Signals>,
}

/// The error `'FILE': No such file or directory`: the wording of LLVM's container tools for a file that they cannot open, write or
/// make.
pub(crate) fn io_error(path: &Path, error: &io::Error) -> anyhow::Error {
    // A signal ended the run: not the file's fault, and with an exit status of its own.
    if let Some(stopped) = error.get_ref().and_then(|inner| inner.downcast_ref::<StepFailed>()) {
        return stopped.clone().into();
    }
    FileError::new(path.to_owned(), error).into()
}

impl Outputs {
    /// None so far. From here on, signals are caught, so that an interrupted run removes what it has begun.
    pub(crate) fn new(session: &Session) -> Outputs {
        session.signals.watch();
        Outputs { signals: Arc::clone(&session.signals), scratch: session::temp_folder(), pending: Vec::new() }
    }

    /// A new output at `path`, or at the file that `path` is a symlink to. It has the mode of the file that it replaces, else that
    /// of any new file.
    ///
    /// # Errors
    /// What is at `path` cannot be written, or nothing can be made there: known before any work is done.
    pub(crate) fn create(&mut self, path: &Path) -> Result<Output> {
        if atomic_file::is_special(path) {
            fs::OpenOptions::new().write(true).open(path).map_err(|error| io_error(path, &error))?;
            return self.staged(Some(path.to_owned()));
        }
        let (file, pending) = AtomicFile::create(path).map_err(|error| io_error(path, &error))?;
        self.pending.push(PendingOutput::Atomic(pending, path.to_owned()));
        Ok(Output { file, signals: Arc::clone(&self.signals) })
    }

    /// A new output that goes to stdout.
    pub(crate) fn stdout(&mut self) -> Result<Output> {
        self.staged(None)
    }

    /// The output at `path`, where `-` is stdout.
    pub(crate) fn create_or_stdout(&mut self, path: &Path) -> Result<Output> {
        if path == Path::new("-") { self.stdout() } else { self.create(path) }
    }

    fn staged(&mut self, place: Option<PathBuf>) -> Result<Output> {
        let made = tempfile::tempfile_in(&self.scratch).and_then(|file| Ok((file.try_clone()?, file)));
        let (kept, file) = made.map_err(|error| io_error(&self.scratch, &error))?;
        self.pending.push(PendingOutput::Into(kept, place));
        Ok(Output { file, signals: Arc::clone(&self.signals) })
    }

    /// Puts everything in its place. Dropped without this, nothing of the outputs is ever seen.
    pub(crate) fn commit(self) -> Result<()> {
        self.signals.check()?;
        for pending in self.pending {
            match pending {
                PendingOutput::Atomic(file, path) => file.commit().map_err(|error| io_error(&path, &error))?,
                PendingOutput::Into(mut file, None) => {
                    file.seek(SeekFrom::Start(0))
                        .and_then(|_| io::copy(&mut file, &mut io::stdout().lock()))
                        .map_err(|error| anyhow!("cannot write to stdout: {}", strerror(&error)))?;
                }
                PendingOutput::Into(mut file, Some(path)) => {
                    let copied = fs::OpenOptions::new().write(true).open(&path).and_then(|mut target| {
                        file.seek(SeekFrom::Start(0))?;
                        io::copy(&mut file, &mut target)
                    });
                    copied.map_err(|error| io_error(&path, &error))?;
                }
            }
        }
        Ok(())
    }
}

impl Output {
    /// Copies `len` bytes of `from`, from `offset` on, to where this output stands, in the system where it can. A file with fewer
    /// bytes is an error.
    pub fn copy_range(&mut self, from: &File, offset: u64, len: u64) -> io::Result<()> {
        let signals = Arc::clone(&self.signals);
        copy::range(from, offset, &mut self.file, len, &|| check(&signals))
    }

    /// Writes `count` zeros. Many of them become a hole, which reads as zeros and takes no room on the disk.
    pub fn write_zeros(&mut self, count: u64) -> io::Result<()> {
        const ZEROS: [u8; SMALL_GAP] = [0; SMALL_GAP];
        if let Some(zeros) = usize::try_from(count).ok().and_then(|count| ZEROS.get(..count)) {
            return self.write_all(zeros);
        }
        let at = self.file.stream_position()?;
        self.pad_to(at.saturating_add(count))
    }

    /// Fills up with zeros to `offset` from the output's start.
    pub fn pad_to(&mut self, offset: u64) -> io::Result<()> {
        let at = self.file.stream_position()?;
        if at > offset {
            return Err(io::Error::other(format!("{at} bytes are written already, and padding was to end at {offset}")));
        }
        if offset > self.file.metadata()?.len() {
            self.file.set_len(offset)?;
        }
        self.file.seek(SeekFrom::Start(offset)).map(|_| ())
    }

    /// The file that is written.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// An error once a signal has come. The error has the [`StepFailed`] in it that says with which status the program ends.
fn check(signals: &Signals) -> io::Result<()> {
    signals.check().map_err(|error| match error.downcast::<StepFailed>() {
        Ok(stopped) => io::Error::other(stopped),
        Err(error) => io::Error::other(error.to_string()),
    })
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check(&self.signals)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Output {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        self.file.seek(place)
    }
}
