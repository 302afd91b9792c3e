//! Bytes joined from owned bytes, ranges of files and zeros. Nothing is read before it is written,
//! so a rope of gigabytes takes as much memory as its list of parts.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::error::Malformed;
use crate::formats::compose::Part;
use crate::io::copy::{self, GRAIN};
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::outputs::Output;

/// Bytes that are joined when they are written. Cheap to create, and to clone except for owned
/// bytes.
#[derive(Debug, Clone, Default)]
pub struct Rope {
    parts: Vec<RopePart>,
    size: u64,
}

#[derive(Debug, Clone)]
enum RopePart {
    Bytes(Vec<u8>),
    /// A range of a file that is opened for each write: a rope may consist of more files than can
    /// be open at once.
    File {
        path: PathBuf,
        offset: u64,
        size: u64,
    },
    FileSlice(FileSlice),
    Zeros(u64),
}

impl RopePart {
    fn size(&self) -> u64 {
        match self {
            RopePart::Bytes(bytes) => bytes.len() as u64,
            RopePart::File { size, .. } | RopePart::Zeros(size) => *size,
            RopePart::FileSlice(piece) => piece.size(),
        }
    }

    /// Offset of the part in the file that it is copied from.
    fn file_offset(&self) -> Option<u64> {
        match self {
            RopePart::File { offset, .. } => Some(*offset),
            RopePart::FileSlice(piece) => piece.copied_from(),
            RopePart::Bytes(_) | RopePart::Zeros(_) => None,
        }
    }

    fn write_into(&self, to: &mut impl Sink) -> io::Result<()> {
        match self {
            RopePart::Bytes(bytes) => to.bytes(bytes),
            RopePart::Zeros(count) => to.zeros(*count),
            RopePart::File { size: 0, .. } => Ok(()),
            RopePart::File { path, offset, size } => {
                let named = |error| named(path, error);
                let from = open(path, *offset, *size).map_err(named)?;
                to.range(&from, *offset, *size).map_err(named)
            }
            RopePart::FileSlice(piece) => match piece.file_range()? {
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
    /// There is no such file. Whether it is readable shows when the rope is written.
    pub fn of_file(path: PathBuf) -> Result<Self> {
        let meta = std::fs::metadata(&path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        let mut all = Rope::default();
        all.push_file(path, 0, meta.len());
        Ok(all)
    }

    /// A file that is assembled from `parts` of `old`, with `new` as the new contents.
    ///
    /// # Errors
    /// A part is outside of `old`, or `new` has too few elements.
    pub fn of_parts(
        old: &FileSlice,
        parts: Vec<Part>,
        new: impl IntoIterator<Item = Rope>,
    ) -> Result<Self, Malformed> {
        let mut new: Vec<Option<Rope>> = new.into_iter().map(Some).collect();
        let mut all = Rope::default();
        for part in parts {
            match part {
                Part::Old(range) => all.push_piece(
                    old.slice(range.start, range.end.saturating_sub(range.start))
                        .ok_or(Malformed::new("a range past the end", range.start))?,
                ),
                Part::New(index) => all.append(
                    new.get_mut(index)
                        .and_then(Option::take)
                        .ok_or(Malformed::new("new contents are missing", 0))?,
                ),
                Part::Bytes(bytes) => all.push_bytes(bytes),
                Part::Zeros(count) => all.push_zeros(count),
            }
        }
        Ok(all)
    }

    /// Appends bytes.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.push(RopePart::Bytes(bytes));
        }
    }

    /// Appends the `size` bytes from `offset` of the file at `path`. A file with fewer bytes is an
    /// error when the rope is written.
    pub fn push_file(&mut self, path: PathBuf, offset: u64, size: u64) {
        self.push(RopePart::File { path, offset, size });
    }

    /// Appends a piece.
    pub fn push_piece(&mut self, piece: FileSlice) {
        if piece.size() > 0 {
            self.push(RopePart::FileSlice(piece));
        }
    }

    /// Appends zeros.
    pub fn push_zeros(&mut self, count: u64) {
        if count > 0 {
            self.push(RopePart::Zeros(count));
        }
    }

    /// Appends zeros until there are `size` bytes. Does nothing if there are as many already.
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

    /// Number of bytes.
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

    /// Best start offset in a file, relative to a multiple of [`GRAIN`]: with it, the first large
    /// part is copied fast.
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

    /// The first offset from `free` on with the best start for this rope ([`Rope::best_offset`]).
    pub fn best_start(&self, free: u64) -> u64 {
        free + self.best_offset().wrapping_sub(free) % GRAIN
    }

    /// Writes the bytes into `out` from `start` on. Zeros are not written: `out` must have a hole
    /// there, or end before.
    pub fn write_at(&self, out: &mut File, start: u64) -> io::Result<()> {
        out.seek(SeekFrom::Start(start))?;
        self.write_into(&mut ToFile(out))
    }

    /// Writes the bytes to the current position of `out`.
    pub fn copy_to(&self, out: &mut Output) -> io::Result<()> {
        self.write_into(out)
    }

    /// Writes all bytes, including zeros, to any writer (a pipe, a compressor, a hash).
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.write_into(&mut ToWriter(out))
    }

    /// Passes the bytes to `take` in chunks.
    pub fn for_each_chunk(&self, take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.write_to(&mut Chunks(take))
    }

    /// The bytes, in memory.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut all = Vec::with_capacity(usize::try_from(self.size).map_err(io::Error::other)?);
        self.write_to(&mut all)?;
        Ok(all)
    }

    /// The bytes as one piece. If there is more than one part, they are written to `spool` first.
    pub fn into_piece(mut self, spool: &mut Spool) -> Result<FileSlice> {
        match self.parts.pop() {
            Some(RopePart::FileSlice(piece)) if self.parts.is_empty() => return Ok(piece),
            last => self.parts.extend(last),
        }
        spool.add(|out| Ok(self.write_to(out)?))
    }

    fn write_into(&self, to: &mut impl Sink) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| part.write_into(to))
    }
}

impl From<Vec<u8>> for Rope {
    fn from(bytes: Vec<u8>) -> Self {
        let mut rope = Rope::default();
        rope.push_bytes(bytes);
        rope
    }
}

impl From<FileSlice> for Rope {
    fn from(piece: FileSlice) -> Self {
        let mut rope = Rope::default();
        rope.push_piece(piece);
        rope
    }
}

/// Target of a rope, which is written part by part.
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

/// Writes to the current position of the file, and skips zeros.
struct ToFile<'f>(&'f mut File);

impl Sink for ToFile<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()> {
        copy::range(from, offset, self.0, size, &|| Ok(()))
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        self.0
            .seek_relative(i64::try_from(count).map_err(io::Error::other)?)
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

struct Chunks<F>(F);

impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Chunks<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the file at `path`, which must have `size` bytes from `offset` on.
fn open(path: &Path, offset: u64, size: u64) -> io::Result<File> {
    let file = File::open(path)?;
    let available = file.metadata()?.len().saturating_sub(offset);
    if available < size {
        return Err(io::Error::other(format!(
            "{available} bytes, expected {size}"
        )));
    }
    Ok(file)
}

/// Adds the file name to an error. A signal's error, which ends the whole program, keeps its type
/// and stays unchanged.
fn named(path: &Path, error: io::Error) -> io::Error {
    match crate::error::StepFailed::of(&error).is_some() {
        true => error,
        false => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
    }
}
