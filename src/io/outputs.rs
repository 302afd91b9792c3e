//! Files that appear whole or not at all, all of a command's or none: each is written beside its place under a
//! name of its own, and takes its place when everything has worked. What cannot be replaced (stdout, a pipe, a device) is
//! written at that moment, from a file without a name.

#[cfg(test)]
mod tests;

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use tempfile::TempPath;

use crate::error::StepFailed;
use crate::io::rope;
use crate::sys::session::{self, Session};
use crate::sys::signals::Signals;

/// What is read at once of what the system cannot copy by itself.
const BUFFER: usize = 256 << 10;

/// The outputs of a command.
pub struct Outputs {
    signals: Arc<Signals>,
    scratch: PathBuf,
    pending: Vec<Pending>,
}

/// An output that is not in its place yet.
enum Pending {
    /// A file beside its place.
    Beside(TempPath, PathBuf),
    /// What goes to a file that is written into, or to stdout.
    Into(File, Option<PathBuf>),
}

/// One output, to be written from its start.
pub struct Output {
    file: File,
    signals: Arc<Signals>,
}

/// `'FILE': No such file or directory`: what the container tools say of a file they cannot open, write or make.
pub fn trouble(path: &Path, error: &io::Error) -> anyhow::Error {
    // A signal is no fault of the file.
    if let Some(stopped) = error.get_ref().and_then(|inner| inner.downcast_ref::<StepFailed>()) {
        return stopped.clone().into();
    }
    anyhow!("'{}': {}", path.display(), strerror(error))
}

/// The system's words, without the number that Rust adds.
pub fn strerror(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl Outputs {
    /// None so far. What a signal interrupts leaves nothing.
    pub fn new(session: &Session) -> Outputs {
        session.signals.watch();
        Outputs { signals: Arc::clone(&session.signals), scratch: session::temp_folder(), pending: Vec::new() }
    }

    /// A new output at `path`, or at the file that `path` is a symlink to. It has the mode of the file that it replaces, else that
    /// of any new file.
    pub fn create(&mut self, path: &Path) -> Result<Output> {
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let meta = fs::metadata(&place).ok();
        if meta.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(trouble(path, &io::Error::from_raw_os_error(rustix::io::Errno::ISDIR.raw_os_error())));
        }
        if meta.as_ref().is_some_and(|meta| !meta.is_file()) {
            // What cannot be written is told before the work is done.
            fs::OpenOptions::new().write(true).open(&place).map_err(|error| trouble(path, &error))?;
            return self.staged(Some(place));
        }
        if meta.is_some() {
            fs::OpenOptions::new().write(true).open(&place).map_err(|error| trouble(path, &error))?;
        }
        let folder = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = meta.as_ref().map_or(0o666, |meta| meta.permissions().mode());
        let made = tempfile::Builder::new().prefix(".offld-").permissions(Permissions::from_mode(mode)).tempfile_in(folder);
        let (file, beside) = made.map_err(|error| trouble(path, &error))?.into_parts();
        if let Some(meta) = meta {
            // The umask is for new files.
            file.set_permissions(meta.permissions()).map_err(|error| trouble(path, &error))?;
        }
        self.pending.push(Pending::Beside(beside, place));
        Ok(Output { file, signals: Arc::clone(&self.signals) })
    }

    /// A new output that goes to stdout.
    pub fn stdout(&mut self) -> Result<Output> {
        self.staged(None)
    }

    /// The output at `path`, where `-` is stdout.
    pub fn create_or_stdout(&mut self, path: &Path) -> Result<Output> {
        if path == Path::new("-") { self.stdout() } else { self.create(path) }
    }

    fn staged(&mut self, place: Option<PathBuf>) -> Result<Output> {
        let made = tempfile::tempfile_in(&self.scratch).and_then(|file| Ok((file.try_clone()?, file)));
        let (kept, file) = made.map_err(|error| trouble(&self.scratch, &error))?;
        self.pending.push(Pending::Into(kept, place));
        Ok(Output { file, signals: Arc::clone(&self.signals) })
    }

    /// Puts everything in its place. Until here nothing is seen of it, and without it nothing is left.
    pub fn commit(self) -> Result<()> {
        self.signals.check()?;
        for pending in self.pending {
            match pending {
                Pending::Beside(beside, place) => {
                    put(beside, &place).map_err(|error| trouble(&place, &error))?;
                }
                Pending::Into(mut file, None) => {
                    file.seek(SeekFrom::Start(0))
                        .and_then(|_| io::copy(&mut file, &mut io::stdout().lock()))
                        .map_err(|error| anyhow!("cannot write to stdout: {}", strerror(&error)))?;
                }
                Pending::Into(mut file, Some(place)) => {
                    let target = fs::OpenOptions::new().write(true).open(&place);
                    let copied = target.and_then(|mut target| {
                        file.seek(SeekFrom::Start(0))?;
                        io::copy(&mut file, &mut target)
                    });
                    copied.map_err(|error| trouble(&place, &error))?;
                }
            }
        }
        Ok(())
    }
}

impl Output {
    /// Copies `len` bytes of `from`, from `offset` on, to where this output stands. The system copies them, where it can, so that they
    /// are in nobody's memory. A file with fewer bytes is an error.
    pub fn copy_range(&mut self, from: &File, offset: u64, len: u64) -> io::Result<()> {
        let signals = Arc::clone(&self.signals);
        rope::range(from, offset, &mut self.file, len, &|| go_on(&signals))
    }

    /// Copies all of `from` to where this output stands; how much it was.
    pub fn copy_all(&mut self, from: &mut impl Read) -> io::Result<u64> {
        let mut buffer = vec![0; BUFFER];
        let mut copied = 0;
        loop {
            self.check()?;
            match from.read(&mut buffer) {
                Ok(0) => return Ok(copied),
                Ok(len) => {
                    self.file.write_all(buffer.get(..len).unwrap_or_default())?;
                    copied += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Fills up with zeros to `offset` from the output's start.
    pub fn pad_to(&mut self, offset: u64) -> io::Result<()> {
        let at = self.file.stream_position()?;
        if at > offset {
            return Err(io::Error::other("the output stands behind that place already"));
        }
        // A hole reads as zeros, and takes no room.
        if offset > self.file.metadata()?.len() {
            self.file.set_len(offset)?;
        }
        self.file.seek(SeekFrom::Start(offset)).map(|_| ())
    }

    /// The file that is written.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn check(&self) -> io::Result<()> {
        go_on(&self.signals)
    }
}

/// Puts the file `beside` in its place, over what is there. Where it can it takes the place of the old file by an exchange: what is renamed
/// over a file, ext4 begins to write to the disk at once, and whoever renames waits.
fn put(beside: TempPath, place: &Path) -> io::Result<()> {
    let is_file = fs::symlink_metadata(place).is_ok_and(|meta| meta.is_file());
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    if is_file && rustix::fs::renameat_with(rustix::fs::CWD, &*beside, rustix::fs::CWD, place, flags).is_ok() {
        return beside.close();
    }
    beside.persist(place).map_err(|error| error.error)
}

/// An error once a signal has come.
fn go_on(signals: &Signals) -> io::Result<()> {
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
        self.check()?;
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
