//! The outputs of a command: all of them appear, each of them complete, or none does. Each is
//! written next to its final path and renamed when everything has worked. Targets that cannot be
//! replaced (stdout, a pipe, a device) are written at that moment, from an unnamed temporary file.
//! Bytes are copied from file to file by the kernel if possible, so that they are never in this
//! process's memory.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use offload_formats::error::{FileError, StepFailed, strerror};

use crate::atomic_file::{self, AtomicFile};
use crate::scratch;
use crate::session::Session;
use crate::signals::Signals;

/// Up to this many zeros are written. More become a hole, which takes no disk space but some more
/// system calls.
const SMALL_GAP: usize = 4096;

/// The outputs of a command: all appear, or none.
#[derive(Debug)]
pub struct Outputs {
    signals: Arc<Signals>,
    scratch: PathBuf,
    moved: Option<MovedDirectory>,
    pending: Vec<PendingOutput>,
}

/// A directory whose outputs are written at another place.
#[derive(Debug, Clone)]
pub(super) struct MovedDirectory {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    /// Set if an output below the directory cannot be written.
    pub(super) has_failed: Arc<AtomicBool>,
}

impl MovedDirectory {
    /// Returns where `path`, which is below the directory, is written.
    pub(super) fn current(&self, path: &Path) -> Option<PathBuf> {
        let within = path.strip_prefix(&self.from).ok()?;
        Some(if within.as_os_str().is_empty() {
            self.to.clone()
        } else {
            self.to.join(within)
        })
    }

    /// Notes an error, if there is one.
    pub(super) fn noted<T, E>(&self, done: Result<T, E>) -> Result<T, E> {
        if done.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        done
    }
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
    moved: Option<MovedDirectory>,
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

    /// Writes the outputs below a directory at another place. Errors name the directory.
    pub(super) fn moved(self, moved: &MovedDirectory) -> Outputs {
        Outputs {
            moved: Some(moved.clone()),
            ..self
        }
    }

    /// Returns the path at which the output for `path` is written.
    fn current(&self, path: &Path) -> PathBuf {
        let moved = self.moved.as_ref();
        moved
            .and_then(|moved| moved.current(path))
            .unwrap_or_else(|| path.to_owned())
    }

    /// Creates an output at `path`, or at the target if `path` is a symlink. It gets the mode of
    /// the file that it replaces, else that of any new file.
    ///
    /// # Errors
    /// The file at `path` is not writable, or cannot be created. This is known before any work is
    /// done.
    pub fn create(&mut self, path: &Path) -> Result<Output> {
        let current = self.current(path);
        if atomic_file::is_special(&current) {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(current)
                .map_err(|error| io_error(path, &error))?;
            return self.staged(Some(Target {
                file,
                path: path.to_owned(),
            }));
        }
        self.atomic(path, AtomicFile::create(&current))
    }

    /// Creates an output that replaces the file or the symlink at `path`, with the mode of any new
    /// file. LLVM writes objects and containers this way.
    ///
    /// # Errors
    /// `path` is a directory, or the file cannot be created.
    pub fn create_anew(&mut self, path: &Path) -> Result<Output> {
        let current = self.current(path);
        if atomic_file::is_special(&current) {
            return self.create(path);
        }
        if current.is_dir() {
            return Err(io_error(path, &io::ErrorKind::IsADirectory.into()));
        }
        self.atomic(path, AtomicFile::create_anew(&current))
    }

    fn atomic(&mut self, path: &Path, made: io::Result<(File, AtomicFile)>) -> Result<Output> {
        let made = match &self.moved {
            Some(moved) => moved.noted(made),
            None => made,
        };
        let (file, pending) = made.map_err(|error| io_error(path, &error))?;
        self.pending
            .push(PendingOutput::Atomic(pending, path.to_owned()));
        Ok(self.output(file))
    }

    fn output(&self, file: File) -> Output {
        Output {
            file,
            signals: Arc::clone(&self.signals),
            moved: self.moved.clone(),
        }
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
        Ok(self.output(file))
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
        let done = copy_range(from, offset, &mut self.file, len, &|| check(&signals));
        self.noted(done)
    }

    fn noted<T>(&self, done: io::Result<T>) -> io::Result<T> {
        match &self.moved {
            Some(moved) => moved.noted(done),
            None => done,
        }
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
            let done = self.file.set_len(offset);
            self.noted(done)?;
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
        let written = self.file.write(bytes);
        self.noted(written)
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

/// Number of bytes that are copied between two checks whether to continue.
const CHUNK: u64 = 16 << 20;
/// Number of bytes read at once if the kernel does not copy: as many as the CPU's own cache holds.
const BUFFER: u64 = 512 << 10;
/// Size of a memory page, in bytes.
const PAGE: u64 = 4096;
/// Number of bytes read at once for a writer that processes them (hashes or compresses), not just
/// writes them to a file.
const STEP: usize = 256 << 10;
/// Number of bytes that Linux moves at once when it copies. Copying is fastest, by a third, if each
/// such step fills one aligned block of the destination. And file systems that can share blocks
/// between files share only bytes with the same offset within a page in both.
pub const GRAIN: u64 = 64 << 10;

/// Copies `len` bytes of `from`, from `offset` on, to the current position of `to`, and advances
/// that position. Calls `go_on` at least every [`CHUNK`] bytes; its error ends the copy.
///
/// # Errors
/// `UnexpectedEof` if `from` has fewer bytes, and errors of the file systems.
pub(crate) fn copy_range(
    from: &File,
    offset: u64,
    to: &mut File,
    len: u64,
    go_on: &dyn Fn() -> io::Result<()>,
) -> io::Result<()> {
    let start = to.stream_position()?;
    let (mut at, end) = (offset, offset.saturating_add(len));
    let mut buffer = Vec::new();
    // If the offsets within a page differ, Linux takes a third longer than a copy through a buffer,
    // and no file system can share blocks. A file server can still avoid sending the bytes.
    let in_place = offset % PAGE == start % PAGE;
    let mut by_system = in_place || len < GRAIN || is_on_server(to);
    while at < end {
        go_on()?;
        let step = match start.saturating_add(at - offset) % GRAIN {
            0 => CHUNK,
            over => GRAIN - over,
        };
        let left = end - at;
        if by_system {
            let want = usize::try_from(step.min(left)).unwrap_or(usize::MAX);
            // A failure is not an error yet: the files may be on two file systems, or on one
            // without this call.
            by_system = rustix::fs::copy_file_range(from, Some(&mut at), &*to, None, want)
                .is_ok_and(|copied| copied > 0);
        } else {
            buffer.resize(usize::try_from(step.min(BUFFER).min(left)).unwrap_or(0), 0);
            read_exact_at(from, &mut buffer, at)?;
            to.write_all(&buffer)?;
            at += buffer.len() as u64;
        }
    }
    Ok(())
}

/// Whether the file is on a server that may copy by itself: NFS, SMB or Ceph.
fn is_on_server(file: &File) -> bool {
    // From linux/magic.h; the numbers of SMB and CIFS are in fs/smb.
    const SERVERS: [u32; 4] = [0x6969, 0xfe53_4d42, 0xff53_4d42, 0x00c3_6400];
    rustix::fs::fstatfs(file).is_ok_and(|about| {
        SERVERS
            .iter()
            .any(|server| i128::from(about.f_type) == i128::from(*server))
    })
}

/// Writes `len` bytes of `from`, from `offset` on, to `out`, through a buffer.
///
/// # Errors
/// See [`copy_range`].
pub(crate) fn copy_range_to_writer(
    from: &File,
    offset: u64,
    len: u64,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let mut buffer = vec![0; usize::try_from(len).unwrap_or(STEP).min(STEP)];
    let (mut at, end) = (offset, offset.saturating_add(len));
    while at < end {
        let step = usize::try_from(end - at).unwrap_or(STEP).min(STEP);
        let chunk = buffer.get_mut(..step).unwrap_or_default();
        read_exact_at(from, chunk, at)?;
        out.write_all(chunk)?;
        at += step as u64;
    }
    Ok(())
}

fn read_exact_at(from: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    from.read_exact_at(buffer, at)
        .map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => cut_short(),
            _ => error,
        })
}

/// The error for a file that has become shorter since it was opened.
pub(crate) fn cut_short() -> io::Error {
    io::Error::new(
        ErrorKind::UnexpectedEof,
        "the file was truncated while being read",
    )
}
