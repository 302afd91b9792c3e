//! Bytes put together from owned bytes, ranges of files and zeros. Nothing is read before it is written, so a rope of gigabytes
//! takes as much memory as its list of parts.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::io::copy::{self, GRAIN};
use crate::io::outputs::Output;
use crate::io::piece::{Piece, Spool};

/// Bytes that are put together when they are written; cheap to make, and to clone but for the bytes it owns.
#[derive(Debug, Clone, Default)]
pub struct Rope {
    parts: Vec<RopePart>,
    size: u64,
}

#[derive(Debug, Clone)]
enum RopePart {
    Bytes(Vec<u8>),
    /// A range of a file that is opened each time it is written: a rope may be of more files than can be open at once.
    File {
        path: PathBuf,
        offset: u64,
        size: u64,
    },
    Piece(Piece),
    Zeros(u64),
}

impl RopePart {
    fn size(&self) -> u64 {
        match self {
            RopePart::Bytes(bytes) => bytes.len() as u64,
            RopePart::File { size, .. } | RopePart::Zeros(size) => *size,
            RopePart::Piece(piece) => piece.size(),
        }
    }

    /// Where the part begins in a file that it is copied from.
    fn file_offset(&self) -> Option<u64> {
        match self {
            RopePart::File { offset, .. } => Some(*offset),
            RopePart::Piece(piece) => piece.copied_from(),
            RopePart::Bytes(_) | RopePart::Zeros(_) => None,
        }
    }

    fn send(&self, to: &mut impl Sink) -> io::Result<()> {
        match self {
            RopePart::Bytes(bytes) => to.bytes(bytes),
            RopePart::Zeros(count) => to.zeros(*count),
            RopePart::File { size: 0, .. } => Ok(()),
            RopePart::File { path, offset, size } => {
                let named = |error| named(path, error);
                let from = open(path, *offset, *size).map_err(named)?;
                to.range(&from, *offset, *size).map_err(named)
            }
            RopePart::Piece(piece) => match piece.file_range()? {
                Some((from, offset)) => to.range(&from, offset, piece.size()),
                None => to.bytes(piece.bytes()),
            },
        }
    }
}

impl Rope {
    /// All of the file at `path`.
    ///
    /// # Errors
    /// There is no such file. Whether it can be read shows when the rope is written.
    pub fn of_file(path: PathBuf) -> Result<Self> {
        let meta = std::fs::metadata(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let mut all = Rope::default();
        all.push_file(path, 0, meta.len());
        Ok(all)
    }

    /// Appends bytes.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.push(RopePart::Bytes(bytes));
        }
    }

    /// Appends the `size` bytes from `offset` of the file at `path`. A file without that many is an error when the rope is written.
    pub fn push_file(&mut self, path: PathBuf, offset: u64, size: u64) {
        self.push(RopePart::File { path, offset, size });
    }

    /// Appends a piece.
    pub fn push_piece(&mut self, piece: Piece) {
        if piece.size() > 0 {
            self.push(RopePart::Piece(piece));
        }
    }

    /// Appends zeros.
    pub fn push_zeros(&mut self, count: u64) {
        if count > 0 {
            self.push(RopePart::Zeros(count));
        }
    }

    /// Appends zeros until there are `size` bytes; nothing where there are as many already.
    pub fn pad_to(&mut self, size: u64) {
        self.push_zeros(size.saturating_sub(self.size));
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Rope) {
        other.parts.into_iter().for_each(|part| self.push(part));
    }

    fn push(&mut self, part: RopePart) {
        self.size = self.size.saturating_add(part.size());
        self.parts.push(part);
    }

    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The paths of the files that were appended by path, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().filter_map(|part| match part {
            RopePart::File { path, .. } => Some(path.as_path()),
            _ => None,
        })
    }

    /// How far behind a multiple of [`GRAIN`] the rope should begin in a file, so that its first large part is copied fast.
    pub fn best_offset(&self) -> u64 {
        let mut at = 0u64;
        for part in &self.parts {
            if let Some(offset) = part.file_offset().filter(|_| part.size() >= GRAIN) {
                return offset.wrapping_sub(at) % GRAIN;
            }
            at = at.saturating_add(part.size());
        }
        0
    }

    /// The first offset from `free` on at which the rope should begin in a file ([`Rope::best_offset`]).
    pub fn best_start(&self, free: u64) -> u64 {
        free + self.best_offset().wrapping_sub(free) % GRAIN
    }

    /// Writes the bytes into `out` from `start` on. Zeros are not written: where they belong, `out` must have a hole, or end
    /// before.
    pub fn write_at(&self, out: &mut File, start: u64) -> io::Result<()> {
        out.seek(SeekFrom::Start(start))?;
        self.send(&mut ToFile(out))
    }

    /// Writes the bytes to where `out` stands.
    pub fn copy_to(&self, out: &mut Output) -> io::Result<()> {
        self.send(out)
    }

    /// Writes the bytes to anything that takes bytes (a pipe, a compressor, a hash), zeros and all.
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.send(&mut ToWriter(out))
    }

    /// Hands over the bytes, some at a time.
    pub fn for_each_chunk(&self, take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.write_to(&mut Chunks(take))
    }

    /// The bytes, in memory.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut all = Vec::with_capacity(usize::try_from(self.size).map_err(io::Error::other)?);
        self.write_to(&mut all)?;
        Ok(all)
    }

    /// The bytes as one piece. Where they are more than one part, they are written to `spool` first.
    pub fn into_piece(mut self, spool: &mut Spool) -> Result<Piece> {
        match self.parts.pop() {
            Some(RopePart::Piece(piece)) if self.parts.is_empty() => return Ok(piece),
            last => self.parts.extend(last),
        }
        spool.add(|out| Ok(self.write_to(out)?))
    }

    fn send(&self, to: &mut impl Sink) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| part.send(to))
    }
}

impl From<Vec<u8>> for Rope {
    fn from(bytes: Vec<u8>) -> Self {
        let mut rope = Rope::default();
        rope.push_bytes(bytes);
        rope
    }
}

impl From<Piece> for Rope {
    fn from(piece: Piece) -> Self {
        let mut rope = Rope::default();
        rope.push_piece(piece);
        rope
    }
}

/// Where a rope is written to, a part after the other.
trait Sink {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()>;
    fn zeros(&mut self, count: u64) -> io::Result<()>;
}

impl Sink for Output {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()> {
        self.copy_range(from, offset, size)
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        self.write_zeros(count)
    }
}

/// Writes to where the file stands, and leaves zeros out.
struct ToFile<'f>(&'f mut File);

impl Sink for ToFile<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()> {
        copy::range(from, offset, self.0, size, &|| Ok(()))
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        self.0.seek_relative(i64::try_from(count).map_err(io::Error::other)?)
    }
}

struct ToWriter<'w, W: Write + ?Sized>(&'w mut W);

impl<W: Write + ?Sized> Sink for ToWriter<'_, W> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()> {
        copy::range_to_writer(from, offset, size, self.0)
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        io::copy(&mut io::repeat(0).take(count), self.0).map(drop)
    }
}

/// A writer that hands on what is written.
struct Chunks<F>(F);

impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Chunks<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file at `path`, which must have `size` bytes from `offset` on.
fn open(path: &Path, offset: u64, size: u64) -> io::Result<File> {
    let file = File::open(path)?;
    let there = file.metadata()?.len().saturating_sub(offset);
    if there < size {
        return Err(io::Error::other(format!("{there} bytes, where {size} were expected")));
    }
    Ok(file)
}

/// An error that says which file it is about, unless it is one that ends the whole program (a signal): that keeps its type.
fn named(path: &Path, error: io::Error) -> io::Error {
    match error.get_ref().is_some_and(|inner| inner.is::<crate::error::StepFailed>()) {
        true => error,
        false => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
    }
}
