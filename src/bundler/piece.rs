//! Parts of files: looked into through maps, copied from file to file by the kernel. What has to be made first (decompressed, read
//! from a pipe) goes to one file without a name, so that memory does not grow with it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::bytes::Bytes;
use crate::outputs::Output;
use crate::session::{self, Session};

/// Below this the map is as good as the file.
const SMALL: u64 = 64 << 10;

/// Part of a file; cheap to clone.
#[derive(Clone)]
pub struct Piece {
    bytes: Bytes,
    file: Arc<Place>,
    at: u64,
    size: u64,
}

/// A file that bytes are copied from. One that is one of many is opened anew for that: an archive may name more files than can be open
/// at once.
enum Place {
    Open(Mutex<File>),
    Path(PathBuf),
}

impl Place {
    /// Hands the file to `read`; nobody else moves its place meanwhile.
    fn with<T>(&self, read: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
        match self {
            Place::Open(file) => read(&mut file.lock().unwrap_or_else(PoisonError::into_inner)),
            Place::Path(path) => read(&mut File::open(path)?),
        }
    }
}

impl Piece {
    /// All of the file at `path`; `-` is stdin. The error is LLVM's: the name in quotes, and the system's word for what is wrong.
    pub fn open(path: &Path, spool: &mut Spool) -> Result<Piece> {
        let named = |error: io::Error| anyhow::anyhow!("'{}': {}", path.display(), reason(&error));
        if path.as_os_str() == "-" {
            return spool.add(|out| Ok(io::copy(&mut io::stdin().lock(), out).map(drop)?)).context("cannot read stdin");
        }
        let mut file = File::open(path).map_err(named)?;
        let about = file.metadata().map_err(named)?;
        if about.is_dir() {
            return Err(named(io::Error::from_raw_os_error(rustix::io::Errno::ISDIR.raw_os_error())));
        }
        if !about.is_file() {
            return spool
                .add(|out| Ok(io::copy(&mut file, out).map(drop)?))
                .map_err(|error| error.context(format!("'{}'", path.display())));
        }
        let bytes = Bytes::map(&file, about.len()).map_err(named)?;
        let size = bytes.as_slice().len() as u64;
        Ok(Piece { bytes, file: Arc::new(Place::Open(Mutex::new(file))), at: 0, size })
    }

    /// The same for a file that is one of many, of which no handle is kept.
    pub fn open_one_of_many(path: &Path, spool: &mut Spool) -> Result<Piece> {
        let piece = Piece::open(path, spool)?;
        let spooled = spool.file.as_ref().is_some_and(|spooled| Arc::ptr_eq(&spooled.read, &piece.file));
        let file = if spooled { piece.file } else { Arc::new(Place::Path(path.to_owned())) };
        Ok(Piece { file, ..piece })
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes. Whoever touches all of them has all of them in memory.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The part from `offset`, `size` long; none when it is not all there.
    pub fn slice(&self, offset: u64, size: u64) -> Option<Piece> {
        let bytes = self.bytes.slice(offset, size)?;
        Some(Piece { bytes, file: Arc::clone(&self.file), at: self.at + offset, size })
    }

    /// Writes the bytes to `out`: if that is a file, without bringing them into this process.
    pub fn copy_to(&self, out: &mut impl Write) -> io::Result<()> {
        if self.size < SMALL {
            return out.write_all(self.bytes());
        }
        let copied = self.file.with(|file| {
            file.seek(SeekFrom::Start(self.at))?;
            io::copy(&mut file.take(self.size), out)
        })?;
        if copied != self.size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was copied"));
        }
        Ok(())
    }
}

/// One temporary file without a name, to which things are appended.
pub struct Spool<'s> {
    session: &'s Session,
    file: Option<Spooled>,
    end: u64,
}

/// The file, opened twice: what is read while something is written must not move the place that is written to.
struct Spooled {
    write: File,
    read: Arc<Place>,
}

impl<'s> Spool<'s> {
    /// No file yet: most runs need none.
    pub fn new(session: &'s Session) -> Self {
        Spool { session, file: None, end: 0 }
    }

    /// What `write` writes, as a piece. Nothing of it is kept when `write` fails.
    pub fn add(&mut self, write: impl FnOnce(&mut File) -> Result<()>) -> Result<Piece> {
        let made = match self.file.take() {
            Some(file) => file,
            None => Spool::make()?,
        };
        let file = self.file.insert(made);
        file.write.seek(SeekFrom::Start(self.end))?;
        write(&mut file.write)?;
        self.session.signals.check()?;
        let (at, end) = (self.end, file.write.stream_position()?);
        let bytes = Bytes::map_part(&file.write, at, end - at)?;
        self.end = end;
        Ok(Piece { bytes, file: Arc::clone(&file.read), at, size: end - at })
    }

    /// Gone from its folder as soon as it is open, so that nothing is left behind on any path.
    fn make() -> Result<Spooled> {
        let told = || format!("cannot make a temporary file in `{}`", session::temp_folder().display());
        let named = tempfile::NamedTempFile::new_in(session::temp_folder()).with_context(told)?;
        let read = named.reopen().with_context(told)?;
        Ok(Spooled { write: named.into_file(), read: Arc::new(Place::Open(Mutex::new(read))) })
    }
}

impl Piece {
    /// All of an open file of `size` bytes.
    pub fn of(file: File, size: u64) -> io::Result<Piece> {
        let bytes = Bytes::map(&file, size)?;
        let size = bytes.as_slice().len() as u64;
        Ok(Piece { bytes, file: Arc::new(Place::Open(Mutex::new(file))), at: 0, size })
    }

    /// Writes the bytes to an output, as `copy_to` does; a signal is noticed on the way.
    pub fn write_to(&self, out: &mut Output) -> io::Result<()> {
        self.file.with(|file| out.copy_range(file, self.at, self.size))
    }

    /// Reads the bytes from their file, so that what has been read is in nobody's memory.
    pub fn reader(&self) -> Reader<'_> {
        Reader { piece: self, at: 0 }
    }
}

/// Reads a piece from its start.
pub struct Reader<'p> {
    piece: &'p Piece,
    at: u64,
}

impl Reader<'_> {
    /// How many bytes are not read yet.
    pub fn left(&self) -> u64 {
        self.piece.size - self.at
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.piece.size - self.at).unwrap_or(usize::MAX);
        let len = left.min(buffer.len());
        let buffer = buffer.get_mut(..len).unwrap_or_default();
        let len = self.piece.file.with(|file| file.read_at(buffer, self.piece.at + self.at))?;
        self.at += len as u64;
        Ok(len)
    }
}

/// What went wrong, in the words of the system alone.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
