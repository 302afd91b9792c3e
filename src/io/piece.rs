//! Parts of files: looked into through maps, copied from file to file by the system, because every page of a map that is touched
//! counts as memory. What has to be made first (inflated, read from a pipe) goes to a file without a name.

mod archive;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rustix::io::Errno;

pub use archive::write_archive;

use crate::io::bytes::Bytes;
use crate::io::outputs::{Output, trouble};
use crate::sys::session::{self, Session};

/// Below this the map is as good as the file.
const SMALL: u64 = 64 << 10;
const CHUNK: usize = 256 << 10;

/// Part of a file, or bytes of our own; cheap to clone.
#[derive(Clone)]
pub struct Piece {
    bytes: Bytes,
    place: Option<(Arc<Place>, u64)>,
    made: bool,
}

/// A file that bytes are copied from. One that is one of many is opened anew for that: an archive may name more files than can be open
/// at once.
enum Place {
    Open(File),
    Path(PathBuf),
}

impl Piece {
    /// All of the file at `path`; `-` is stdin. The error is LLVM's: the name in quotes, and the system's word for what is wrong.
    pub fn open(path: &Path) -> Result<Piece> {
        Piece::try_open(path).map_err(|error| trouble(path, &error))
    }

    /// The same for a file that is one of many, of which no handle is kept.
    pub fn open_one_of_many(path: &Path) -> Result<Piece> {
        let mut piece = Piece::open(path)?;
        if !piece.made {
            piece.place = Some((Arc::new(Place::Path(path.to_owned())), 0));
        }
        Ok(piece)
    }

    fn try_open(path: &Path) -> io::Result<Piece> {
        if path == Path::new("-") {
            return Piece::spooled(&mut io::stdin().lock());
        }
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        // Files below /proc are regular, too, and have no size.
        if meta.is_file() && meta.len() > 0 { Piece::of(file) } else { Piece::spooled(&mut file) }
    }

    /// A copy of what can be read only once.
    fn spooled(from: &mut impl Read) -> io::Result<Piece> {
        let mut first = [0; 1];
        // Nothing (`/dev/null`, as compilers have it for the host) takes no file: there may be many.
        if from.read(&mut first)? == 0 {
            return Ok(Piece::owned(Vec::new()));
        }
        let mut file = tempfile::tempfile_in(session::temp_folder())?;
        io::copy(&mut first.chain(from), &mut file)?;
        Ok(Piece { made: true, ..Piece::of(file)? })
    }

    /// All of an open file.
    pub fn of(file: File) -> io::Result<Piece> {
        let size = file.metadata()?.len();
        Ok(Piece { bytes: Bytes::map(&file, size)?, place: Some((Arc::new(Place::Open(file)), 0)), made: false })
    }

    /// Bytes that are in no file.
    pub fn owned(bytes: Vec<u8>) -> Piece {
        Piece { bytes: bytes.into(), place: None, made: true }
    }

    /// What `write` writes, in a file of its own that has no name.
    pub fn made(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Piece> {
        let file = tempfile::tempfile_in(session::temp_folder());
        let file = file.with_context(|| format!("cannot make a temporary file in `{}`", session::temp_folder().display()))?;
        let mut out = io::BufWriter::with_capacity(CHUNK, file);
        write(&mut out)?;
        Ok(Piece { made: true, ..Piece::of(out.into_inner().map_err(io::IntoInnerError::into_error)?)? })
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// The bytes. Whoever touches all of them has all of them in memory.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The part from `offset`, `size` long; none when it is not all there.
    pub fn slice(&self, offset: u64, size: u64) -> Option<Piece> {
        let bytes = self.bytes.slice(offset, size)?;
        let place = self.place.as_ref().map(|(place, at)| (Arc::clone(place), at.saturating_add(offset)));
        Some(Piece { bytes, place, made: self.made })
    }

    /// The bytes from `offset` on; none where they end before it.
    pub fn from(&self, offset: u64) -> Piece {
        let offset = offset.min(self.size());
        self.slice(offset, self.size() - offset).unwrap_or_else(|| self.clone())
    }

    /// Where what is `within` bytes into these is in the file that the user has; none where it was made.
    pub fn file_offset(&self, within: u64) -> Option<u64> {
        let (_, at) = self.place.as_ref().filter(|_| !self.made)?;
        at.checked_add(within)
    }

    /// Whether both are the same part of the same file.
    pub fn is(&self, other: &Piece) -> bool {
        std::ptr::eq(self.bytes(), other.bytes())
    }

    /// Copies the bytes to where `out` stands: if they are many, without bringing them into this process.
    pub fn copy_to(&self, out: &mut Output) -> io::Result<()> {
        match &self.place {
            Some((place, at)) if self.size() > SMALL => match &**place {
                Place::Open(file) => out.copy_range(file, *at, self.size()),
                Place::Path(path) => out.copy_range(&File::open(path)?, *at, self.size()),
            },
            _ => out.write_all(self.bytes()),
        }
    }

    /// Reads the bytes from their file, so that what has been read is in nobody's memory.
    pub fn reader(&self) -> Reader<'_> {
        Reader { piece: self, opened: None, at: 0 }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// Reads a piece from its start, wherever anybody else reads it.
pub struct Reader<'p> {
    piece: &'p Piece,
    opened: Option<File>,
    at: u64,
}

impl Reader<'_> {
    /// How many bytes are not read yet.
    pub fn left(&self) -> u64 {
        self.piece.size() - self.at
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left()).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = buffer.get_mut(..wanted).unwrap_or_default();
        let len = match &self.piece.place {
            None => self.piece.bytes().get(usize::try_from(self.at).unwrap_or(usize::MAX)..).unwrap_or_default().read(buffer)?,
            Some((place, start)) => {
                let file = match (&**place, &mut self.opened) {
                    (Place::Open(file), _) => file,
                    (Place::Path(_), Some(file)) => file,
                    (Place::Path(path), opened) => opened.insert(File::open(path)?),
                };
                file.read_at(buffer, start.saturating_add(self.at))?
            }
        };
        if len == 0 && wanted > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was read"));
        }
        self.at += len as u64;
        Ok(len)
    }
}

/// One file without a name, to which many things are appended: there may be more of them than can be open at once.
pub struct Spool<'s> {
    session: &'s Session,
    file: Option<(File, Arc<Place>)>,
    end: u64,
}

impl<'s> Spool<'s> {
    /// No file yet: most runs need none.
    pub fn new(session: &'s Session) -> Self {
        Spool { session, file: None, end: 0 }
    }

    /// What `write` writes, as a piece. Nothing of it is kept when `write` fails.
    pub fn add(&mut self, write: impl FnOnce(&mut File) -> Result<()>) -> Result<Piece> {
        let (file, place) = match self.file.take() {
            Some(made) => self.file.insert(made),
            None => self.file.insert(Spool::make()?),
        };
        file.seek(SeekFrom::Start(self.end))?;
        write(file)?;
        self.session.signals.check()?;
        let (at, end) = (self.end, file.stream_position()?);
        let bytes = Bytes::map_part(file, at, end - at)?;
        self.end = end;
        Ok(Piece { bytes, place: Some((Arc::clone(place), at)), made: true })
    }

    fn make() -> Result<(File, Arc<Place>)> {
        let told = || format!("cannot make a temporary file in `{}`", session::temp_folder().display());
        let file = tempfile::tempfile_in(session::temp_folder()).with_context(told)?;
        let other = file.try_clone().with_context(told)?;
        Ok((file, Arc::new(Place::Open(other))))
    }
}
