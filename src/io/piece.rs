//! Files that users name, and parts of them. A piece is looked into through a map and copied from file to file by the system: every
//! page of a map that is touched counts as memory of this process, so large contents are never read through it.
//!
//! There is one way to open what a user names, whatever it is: a file, stdin (`-`), a pipe (`/dev/fd/63`, as shells write `<(…)`),
//! a file below `/proc`. What has no size, or can be read only once, is first copied to an unnamed temporary file. What another
//! file names (a thin archive its members) is opened by [`Piece::open_member`], which takes regular files only.

mod archive;
#[cfg(test)]
mod tests;
mod zip;

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::io::Errno;

pub(crate) use archive::{member_of, write_archive};
pub(crate) use zip::{check_zip_member, start_of_zip_member, zip_member};

use crate::io::bytes::Bytes;
use crate::io::copy;
use crate::io::outputs::{Output, io_error};
use crate::sys::session::{self, Session};
use crate::sys::signals::Signals;

/// Pieces up to this size are read through the map: that costs less than copying does.
const SMALL: u64 = 64 << 10;
/// How much of two pieces is compared before its memory is given back.
const SPAN: usize = 16 << 20;
/// How much is gathered before it is written to a temporary file.
const BUFFER: usize = 256 << 10;

/// Part of a file, or bytes of our own; cheap to clone.
#[derive(Clone)]
pub struct Piece {
    bytes: Bytes,
    /// The file that the bytes are copied from, and where in it they begin.
    source: Option<(Arc<Source>, u64)>,
    /// Whether the bytes are not of the user's file but were made here (inflated, read from a pipe).
    made: bool,
}

/// A file that bytes are copied from.
#[derive(Debug)]
enum Source {
    Open(File),
    /// To be opened anew for each copy: an archive may name more files than can be open at once.
    Path(PathBuf),
    /// No file: the user has handed over bytes, whose offsets are told like those of a file.
    Memory,
}

/// A [`Source`] that is open.
#[derive(Debug)]
pub enum SourceFile<'p> {
    /// It was open.
    Kept(&'p File),
    /// It has been opened for this.
    Opened(File),
}

impl Deref for SourceFile<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            SourceFile::Kept(file) => file,
            SourceFile::Opened(file) => file,
        }
    }
}

impl Source {
    fn file(&self) -> io::Result<Option<SourceFile<'_>>> {
        Ok(match self {
            Source::Open(file) => Some(SourceFile::Kept(file)),
            Source::Path(path) => Some(SourceFile::Opened(File::open(path)?)),
            Source::Memory => None,
        })
    }
}

impl Piece {
    /// All of what is at `path`; `-` is stdin. The error has LLVM's wording: the name in quotes, and the system's text.
    pub fn open(path: &Path) -> Result<Piece> {
        Piece::try_open(path).map_err(|error| io_error(path, &error))
    }

    /// As [`Piece::open`], for a file that is one of many: it is not kept open.
    pub fn open_one_of_many(path: &Path) -> Result<Piece> {
        Piece::try_open_one_of_many(path).map_err(|error| io_error(path, &error))
    }

    /// The same, with the system's error.
    pub fn try_open_one_of_many(path: &Path) -> io::Result<Piece> {
        Ok(Piece::try_open(path)?.without_handle(path))
    }

    /// All of the file at `path`, which another file names. It must be a regular file: an archive that names a device or a pipe
    /// would make us read without end. It is not kept open.
    pub fn open_member(path: &Path) -> Result<Piece> {
        Piece::try_open_member(path).map_err(|error| io_error(path, &error))
    }

    /// As [`Piece::open`], with the system's error.
    pub fn try_open(path: &Path) -> io::Result<Piece> {
        if path == Path::new("-") {
            return Piece::spooled(&mut io::stdin().lock());
        }
        Piece::try_of(File::open(path)?)
    }

    /// All of an open file, or what a pipe still gives.
    pub fn try_of(mut file: File) -> io::Result<Piece> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        // Files below /proc are regular files, too, and of size 0 whatever is in them.
        if meta.is_file() && meta.len() > 0 { Piece::of(file) } else { Piece::spooled(&mut file) }
    }

    /// As [`Piece::open_member`], with the system's error.
    pub fn try_open_member(path: &Path) -> io::Result<Piece> {
        // Before it is opened: opening a pipe waits for somebody who writes to it.
        let meta = std::fs::metadata(path)?;
        if meta.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        if !meta.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        Ok(Piece::of(File::open(path)?)?.without_handle(path))
    }

    fn without_handle(mut self, path: &Path) -> Piece {
        if !self.made {
            self.source = Some((Arc::new(Source::Path(path.to_owned())), 0));
        }
        self
    }

    /// A copy of everything that `from` gives.
    fn spooled(from: &mut impl Read) -> io::Result<Piece> {
        let mut first = [0; 1];
        // For nothing (compilers name `/dev/null` for the host, once for each bundle) no file is made: there may be many.
        if from.read(&mut first)? == 0 {
            return Ok(Piece::owned(Vec::new()));
        }
        let mut file = tempfile::tempfile_in(session::temp_folder())?;
        io::copy(&mut first.chain(from), &mut file)?;
        Ok(Piece { made: true, ..Piece::of(file)? })
    }

    /// All of an open file, which must have a size.
    fn of(file: File) -> io::Result<Piece> {
        let size = file.metadata()?.len();
        Ok(Piece { bytes: Bytes::map(&file, size)?, source: Some((Arc::new(Source::Open(file)), 0)), made: false })
    }

    /// Bytes that are in no file.
    pub fn owned(bytes: Vec<u8>) -> Piece {
        Piece { bytes: bytes.into(), source: None, made: true }
    }

    /// Bytes that the user has handed over in place of a file.
    pub fn handed_over(bytes: Vec<u8>) -> Piece {
        Piece { bytes: bytes.into(), source: Some((Arc::new(Source::Memory), 0)), made: false }
    }

    /// What `write` writes, in an unnamed temporary file of its own.
    pub fn made(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Piece> {
        let mut out = io::BufWriter::with_capacity(BUFFER, temporary()?);
        write(&mut out)?;
        Ok(Piece { made: true, ..Piece::of(out.into_inner().map_err(io::IntoInnerError::into_error)?)? })
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// The bytes. What is touched of them is in memory.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Gives back the memory of what has been looked at of the bytes.
    pub fn release(&self) {
        self.bytes.release();
    }

    /// The `size` bytes from `offset`; `None` when they are not all there.
    pub fn slice(&self, offset: u64, size: u64) -> Option<Piece> {
        let bytes = self.bytes.slice(offset, size)?;
        let source = self.source.as_ref().map(|(source, at)| (Arc::clone(source), at.saturating_add(offset)));
        Some(Piece { bytes, source, made: self.made })
    }

    /// The bytes from `offset` on; an empty piece where there are none.
    pub fn from(&self, offset: u64) -> Piece {
        let offset = offset.min(self.size());
        self.slice(offset, self.size() - offset).unwrap_or_else(|| self.clone())
    }

    /// Whether the bytes are in no file of the user's: inflated, say, or read from stdin.
    pub fn is_made(&self) -> bool {
        self.made
    }

    /// The same bytes as a file of their own: what was unpacked has offsets as well then.
    pub fn as_file(self) -> Piece {
        if !self.made {
            return self;
        }
        Piece { made: false, ..self }
    }

    /// Where the byte `within` these is in the user's file; `None` for bytes that were made here.
    pub fn file_offset(&self, within: u64) -> Option<u64> {
        let (_, at) = self.source.as_ref().filter(|_| !self.made)?;
        at.checked_add(within)
    }

    /// Whether both are the same part of the same file.
    pub fn is(&self, other: &Piece) -> bool {
        std::ptr::eq(self.bytes(), other.bytes())
    }

    /// Whether the bytes of both are the same. However many there are, what is compared takes little memory.
    pub fn has_bytes_of(&self, other: &Piece) -> bool {
        let same = |(one, theirs): (&[u8], &[u8])| {
            let same = one == theirs;
            self.release();
            other.release();
            same
        };
        let (own, theirs) = (self.bytes(), other.bytes());
        self.is(other) || own.len() == theirs.len() && own.chunks(SPAN).zip(theirs.chunks(SPAN)).all(same)
    }

    /// The file that the bytes should be copied from, open, and where in it they begin; `None` where they are better taken from
    /// memory, because they are few or in no file.
    pub fn file_range(&self) -> io::Result<Option<(SourceFile<'_>, u64)>> {
        match &self.source {
            Some((source, at)) if self.size() > SMALL => Ok(source.file()?.map(|file| (file, *at))),
            _ => Ok(None),
        }
    }

    /// Where the bytes begin in the file that they are copied from.
    pub fn copied_from(&self) -> Option<u64> {
        self.source.as_ref().filter(|(source, _)| !matches!(**source, Source::Memory)).map(|(_, at)| *at)
    }

    /// Copies the bytes to where `out` stands: if they are many, in the system and not through this process's memory.
    pub fn copy_to(&self, out: &mut Output) -> io::Result<()> {
        match self.file_range()? {
            Some((file, at)) => out.copy_range(&file, at, self.size()),
            None => out.write_all(self.bytes()),
        }
    }

    /// Reads the bytes from their file, so that what has been read takes no memory.
    pub fn reader(&self) -> PieceReader<'_> {
        PieceReader { piece: self, opened: None, at: 0 }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece").field("size", &self.size()).field("source", &self.source).field("made", &self.made).finish()
    }
}

/// Reads a piece from its start, by a position of its own.
#[derive(Debug)]
pub struct PieceReader<'p> {
    piece: &'p Piece,
    opened: Option<SourceFile<'p>>,
    at: u64,
}

impl PieceReader<'_> {
    /// How many bytes are not read yet.
    pub fn left(&self) -> u64 {
        self.piece.size() - self.at
    }
}

impl Read for PieceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left()).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = buffer.get_mut(..wanted).unwrap_or_default();
        if let (Some((source, _)), None) = (&self.piece.source, &self.opened) {
            self.opened = source.file()?;
        }
        let len = match (&self.opened, &self.piece.source) {
            (Some(file), Some((_, start))) => file.read_at(buffer, start.saturating_add(self.at))?,
            _ => self.piece.bytes().get(usize::try_from(self.at).unwrap_or(usize::MAX)..).unwrap_or_default().read(buffer)?,
        };
        if len == 0 && wanted > 0 {
            return Err(copy::cut_short());
        }
        self.at += len as u64;
        Ok(len)
    }
}

fn temporary() -> Result<File> {
    let folder = session::temp_folder();
    tempfile::tempfile_in(&folder)
        .with_context(|| format!("cannot make a temporary file in {}", session::shown_temp_folder(&folder)))
}

/// An unnamed temporary file to which many pieces are appended: there may be more of them than files can be open at once.
#[derive(Debug)]
pub struct Spool {
    signals: Arc<Signals>,
    file: Option<(File, Arc<Source>)>,
    end: u64,
}

impl Spool {
    /// An empty one. The file is made when the first piece is added: most runs need none.
    pub fn new(session: &Session) -> Self {
        Spool { signals: Arc::clone(&session.signals), file: None, end: 0 }
    }

    /// What `write` writes, as a piece. Nothing of it is kept when `write` fails.
    pub fn add(&mut self, write: impl FnOnce(&mut File) -> Result<()>) -> Result<Piece> {
        let (file, source) = match self.file.take() {
            Some(made) => self.file.insert(made),
            None => self.file.insert(Spool::make()?),
        };
        file.seek(SeekFrom::Start(self.end))?;
        write(file)?;
        self.signals.check()?;
        let (at, end) = (self.end, file.stream_position()?);
        let bytes = Bytes::map_part(file, at, end - at)?;
        self.end = end;
        Ok(Piece { bytes, source: Some((Arc::clone(source), at)), made: true })
    }

    fn make() -> Result<(File, Arc<Source>)> {
        let file = temporary()?;
        let other = file.try_clone().context("cannot open a temporary file twice")?;
        Ok((file, Arc::new(Source::Open(other))))
    }
}
