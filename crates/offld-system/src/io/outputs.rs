//! The outputs of a command: all of them appear, each of them complete, or none does. Each is
//! written next to its final path and renamed when everything has worked. Targets that cannot be
//! replaced (stdout, a pipe, a device) are written at that moment, from an unnamed temporary file.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};

use crate::atomic_file::{self, AtomicFile};
use crate::io::{copy, output_directory};
use crate::scratch;
use crate::session::Session;
use crate::signals::Signals;
use offload_formats::error::{FileError, StepFailed, strerror};

/// Up to this many zeros are written. More become a hole, which takes no disk space but some more
/// system calls.
const SMALL_GAP: usize = 4096;

/// The outputs of a command: all appear, or none.
#[derive(Debug)]
pub struct Outputs {
    signals: Arc<Signals>,
    scratch: PathBuf,
    /// A directory, and its present place.
    moved: Option<(PathBuf, PathBuf)>,
    pending: Vec<PendingOutput>,
}

/// An output that is not in its place yet.
#[derive(Debug)]
enum PendingOutput {
    /// Replaces an existing file.
    Atomic(AtomicFile, PathBuf),
    /// Is copied into a device or a pipe, or to stdout (`None`).
    Into(File, Option<Target>),
}

/// A device or a pipe. It is opened once: for the reader of a pipe, the first close is the end of
/// the contents.
#[derive(Debug)]
struct Target {
    file: File,
    path: PathBuf,
}

/// One output, to be written from its start.
#[derive(Debug)]
pub struct Output {
    file: File,
    signals: Arc<Signals>,
}

/// The error `'FILE': No such file or directory`, worded like LLVM's container tools for a file
/// that they cannot open, write or create.
pub fn io_error(path: &Path, error: &io::Error) -> anyhow::Error {
    // A signal ended the run: the file is not at fault, and the exit status is that of the signal.
    if let Some(stopped) = StepFailed::of(error) {
        return stopped.clone().into();
    }
    FileError::new(path.to_owned(), error).into()
}

impl Outputs {
    /// Starts without outputs. From here on, signals are caught, so that an interrupted run removes
    /// its unfinished files.
    pub fn new(session: &Session) -> Outputs {
        session.signals.watch();
        Outputs {
            signals: Arc::clone(&session.signals),
            scratch: scratch::temp_folder(),
            moved: None,
            pending: Vec::new(),
        }
    }

    /// Writes the outputs below the directory `from` below `to`. Errors name the former.
    pub(super) fn moved(self, from: &Path, to: &Path) -> Outputs {
        Outputs {
            moved: Some((from.to_owned(), to.to_owned())),
            ..self
        }
    }

    /// Returns the path at which the output for `path` is written.
    fn current(&self, path: &Path) -> PathBuf {
        let moved = self.moved.as_ref();
        moved
            .and_then(|(from, to)| output_directory::moved(path, from, to))
            .unwrap_or_else(|| path.to_owned())
    }

    /// Creates an output at `path`, or at the target if `path` is a symlink. It gets the mode of
    /// the file that it replaces, else that of any new file.
    ///
    /// # Errors
    /// The file at `path` is not writable, or cannot be created. This is known before any work is
    /// done.
    pub fn create(&mut self, path: &Path) -> Result<Output> {
        if atomic_file::is_special(path) {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(path)
                .map_err(|error| io_error(path, &error))?;
            return self.staged(Some(Target {
                file,
                path: path.to_owned(),
            }));
        }
        let made = AtomicFile::create(&self.current(path));
        self.atomic(path, made)
    }

    /// Creates an output that replaces the file or the symlink at `path`, with the mode of any new
    /// file. LLVM writes objects and containers this way.
    ///
    /// # Errors
    /// `path` is a directory, or the file cannot be created.
    pub fn create_anew(&mut self, path: &Path) -> Result<Output> {
        if atomic_file::is_special(path) {
            return self.create(path);
        }
        if path.is_dir() {
            return Err(io_error(path, &io::ErrorKind::IsADirectory.into()));
        }
        let made = AtomicFile::create_anew(&self.current(path));
        self.atomic(path, made)
    }

    fn atomic(&mut self, path: &Path, made: io::Result<(File, AtomicFile)>) -> Result<Output> {
        let (file, pending) = made.map_err(|error| io_error(path, &error))?;
        self.pending
            .push(PendingOutput::Atomic(pending, path.to_owned()));
        Ok(Output {
            file,
            signals: Arc::clone(&self.signals),
        })
    }

    pub(crate) fn stdout(&mut self) -> Result<Output> {
        self.staged(None)
    }

    /// Creates the output at `path`; `-` is stdout.
    pub fn create_or_stdout(&mut self, path: &Path) -> Result<Output> {
        if path == Path::new("-") {
            self.stdout()
        } else {
            self.create(path)
        }
    }

    /// Creates the output that replaces `path`; `-` is stdout.
    pub fn create_anew_or_stdout(&mut self, path: &Path) -> Result<Output> {
        if path == Path::new("-") {
            self.stdout()
        } else {
            self.create_anew(path)
        }
    }

    fn staged(&mut self, place: Option<Target>) -> Result<Output> {
        let made =
            tempfile::tempfile_in(&self.scratch).and_then(|file| Ok((file.try_clone()?, file)));
        let (handle, file) = made.map_err(|error| io_error(&self.scratch, &error))?;
        self.pending.push(PendingOutput::Into(handle, place));
        Ok(Output {
            file,
            signals: Arc::clone(&self.signals),
        })
    }

    /// Moves all outputs into place. If the outputs are dropped instead, none of them ever appears.
    pub fn commit(self) -> Result<()> {
        self.signals.check()?;
        let mut files = Vec::new();
        // Writes that may fail, or wait for a reader, precede the replacement of other files.
        for pending in self.pending {
            match pending {
                PendingOutput::Atomic(file, path) => files.push((file, path)),
                PendingOutput::Into(mut file, None) => {
                    copy_all(&mut file, &mut io::stdout().lock())
                        .map_err(|error| anyhow!("cannot write to stdout: {}", strerror(&error)))?;
                }
                PendingOutput::Into(mut file, Some(mut target)) => {
                    copy_all(&mut file, &mut target.file)
                        .map_err(|error| io_error(&target.path, &error))?;
                }
            }
        }
        self.signals.check()?;
        files
            .into_iter()
            .try_for_each(|(file, path)| file.commit().map_err(|error| io_error(&path, &error)))
    }
}

fn copy_all(file: &mut File, to: &mut impl Write) -> io::Result<()> {
    file.rewind()?;
    io::copy(file, to)?;
    to.flush()
}

impl Output {
    /// Copies `len` bytes of `from`, from `offset` on, to the current position of this output, in
    /// the kernel if possible. A file with fewer bytes is an error.
    pub fn copy_range(&mut self, from: &File, offset: u64, len: u64) -> io::Result<()> {
        let signals = Arc::clone(&self.signals);
        copy::range(from, offset, &mut self.file, len, &|| check(&signals))
    }

    /// Writes `count` zeros. Many of them become a hole, which reads as zeros and takes no disk
    /// space.
    pub fn write_zeros(&mut self, count: u64) -> io::Result<()> {
        const ZEROS: [u8; SMALL_GAP] = [0; SMALL_GAP];
        if let Some(zeros) = usize::try_from(count)
            .ok()
            .and_then(|count| ZEROS.get(..count))
        {
            return self.write_all(zeros);
        }
        let at = self.file.stream_position()?;
        self.pad_to(at.saturating_add(count))
    }

    /// Fills with zeros up to `offset` from the output's start.
    pub fn pad_to(&mut self, offset: u64) -> io::Result<()> {
        let at = self.file.stream_position()?;
        if at > offset {
            return Err(io::Error::other(format!(
                "cannot pad to offset {offset}: {at} bytes are already written"
            )));
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

/// Returns an error after a signal. The error contains the [`StepFailed`] with the exit status of
/// the program.
fn check(signals: &Signals) -> io::Result<()> {
    signals
        .check()
        .map_err(|error| match error.downcast::<StepFailed>() {
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
