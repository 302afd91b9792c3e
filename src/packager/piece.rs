//! Part of a file, or bytes of our own: looked into through a map, and copied by the system from the file itself, so that a large
//! image is never in memory.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rustix::io::Errno;

use crate::bytes::Bytes;
use crate::outputs::{Output, trouble};

/// Below this, copying from the map is cheaper than asking the system.
const SMALL: usize = 64 << 10;

/// Bytes, and where they are in a file.
#[derive(Clone)]
pub struct Piece {
    bytes: Bytes,
    place: Option<(Arc<Place>, u64)>,
}

/// A file that bytes can be copied from. A path is opened again for that: an archive may name more files than can be open at once.
enum Place {
    Path(PathBuf),
    Open(File),
}

impl Piece {
    /// All of a file; `-` is stdin.
    pub fn open(path: &Path) -> Result<Piece> {
        let source = Source::open(path)?;
        let bytes = Bytes::map(&source.file, source.size).map_err(|error| trouble(path, &error))?;
        let place = if source.spooled { Place::Open(source.file) } else { Place::Path(path.to_owned()) };
        Ok(Piece { bytes, place: Some((Arc::new(place), 0)) })
    }

    /// Bytes that are in no file.
    pub fn owned(bytes: Vec<u8>) -> Piece {
        Piece { bytes: bytes.into(), place: None }
    }

    /// All of an open file of `size` bytes.
    pub fn of_file(file: File, size: u64) -> io::Result<Piece> {
        let bytes = Bytes::map(&file, size)?;
        Ok(Piece { bytes, place: Some((Arc::new(Place::Open(file)), 0)) })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The part from `offset` on, `size` long; none when it is not all there.
    pub fn part(&self, offset: u64, size: u64) -> Option<Piece> {
        let bytes = self.bytes.slice(offset, size)?;
        let place = self.place.as_ref().map(|(place, at)| (Arc::clone(place), at.saturating_add(offset)));
        Some(Piece { bytes, place })
    }

    /// Whether both are the same part of the same file.
    pub(super) fn is(&self, other: &Piece) -> bool {
        std::ptr::eq(self.bytes(), other.bytes())
    }

    /// Writes all of it to `out`.
    pub fn copy_to(&self, out: &mut Output) -> io::Result<()> {
        let large = self.bytes().len() > SMALL;
        match &self.place {
            Some((place, at)) if large => {
                let size = self.bytes().len() as u64;
                match &**place {
                    Place::Path(path) => out.copy_range(&File::open(path)?, *at, size),
                    Place::Open(file) => out.copy_range(file, *at, size),
                }
            }
            _ => out.write_all(self.bytes()),
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// An input that can be read at any place: the file itself, or a copy without a name of what can be read only once.
pub(super) struct Source {
    pub file: File,
    pub size: u64,
    /// It is a copy.
    pub spooled: bool,
}

impl Source {
    /// Opens `path`; `-` is stdin.
    pub fn open(path: &Path) -> Result<Source> {
        Source::try_open(path).map_err(|error| trouble(path, &error))
    }

    fn try_open(path: &Path) -> io::Result<Source> {
        if path == Path::new("-") {
            return Source::spool(&mut io::stdin().lock());
        }
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        if meta.is_file() {
            return Ok(Source { size: meta.len(), file, spooled: false });
        }
        Source::spool(&mut file)
    }

    fn spool(from: &mut impl io::Read) -> io::Result<Source> {
        let mut file = tempfile::tempfile()?;
        let size = io::copy(from, &mut file)?;
        Ok(Source { file, size, spooled: true })
    }
}
