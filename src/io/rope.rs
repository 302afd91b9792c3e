//! Bytes from file to file, copied by the system where it can; and what is put together of parts of files.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// How much is copied between two looks at whether to go on.
const CHUNK: u64 = 16 << 20;
/// What is read at once where the system cannot copy by itself.
const BUFFER: u64 = 1 << 20;
/// What is read at once for somebody who does more with it than write it.
const STEP: usize = 256 << 10;
/// What Linux carries at once when it copies. It is fastest, by a third, where each of these fills one of the destination's; and only
/// what stands alike within a page in both files can be shared by file systems that share.
pub const GRAIN: u64 = 64 << 10;

/// Copies `len` bytes of `from`, from `offset` on, to where `to` stands, which then stands behind them. The system copies them, where it
/// can, so that they are in nobody's memory. A source with fewer bytes is an error. `go_on` is asked now and then.
pub fn range(from: &File, offset: u64, to: &mut File, len: u64, go_on: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
    let start = to.stream_position()?;
    let (mut at, end) = (offset, offset.saturating_add(len));
    let mut buffer = Vec::new();
    let mut by_system = true;
    while at < end {
        go_on()?;
        let step = match start.saturating_add(at - offset) % GRAIN {
            0 => CHUNK,
            over => GRAIN - over,
        };
        let left = end - at;
        if by_system {
            let want = usize::try_from(step.min(left)).unwrap_or(usize::MAX);
            // It is no error yet: there may be two file systems, or one that has no such call.
            by_system = rustix::fs::copy_file_range(from, Some(&mut at), &*to, None, want).is_ok_and(|copied| copied > 0);
        } else {
            buffer.resize(usize::try_from(BUFFER.min(left)).unwrap_or(0), 0);
            from.read_exact_at(&mut buffer, at)?;
            to.write_all(&buffer)?;
            at += buffer.len() as u64;
        }
    }
    Ok(())
}

/// What is to be written in one piece: bytes and parts of files, zeros between them. Nothing is read before it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Composed {
    /// Where each part starts, ascending.
    parts: Vec<(u64, Part)>,
    size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    File { path: PathBuf, offset: u64, size: u64 },
}

impl Composed {
    /// All of the file at `path`.
    pub fn of_file(path: PathBuf) -> Result<Self> {
        let meta = std::fs::metadata(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let mut all = Composed::default();
        all.push_file(path, 0, meta.len());
        Ok(all)
    }

    /// Appends bytes.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        let at = self.size;
        self.size = at.saturating_add(bytes.len() as u64);
        if !bytes.is_empty() {
            self.parts.push((at, Part::Bytes(bytes)));
        }
    }

    /// Appends the `size` bytes from `offset` of the file at `path`.
    pub fn push_file(&mut self, path: PathBuf, offset: u64, size: u64) {
        let at = self.size;
        self.size = at.saturating_add(size);
        self.parts.push((at, Part::File { path, offset, size }));
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Composed) {
        let start = self.size;
        self.parts.extend(other.parts.into_iter().map(|(at, part)| (start.saturating_add(at), part)));
        self.size = start.saturating_add(other.size);
    }

    /// Appends zeros up to `size` bytes in all; nothing when there are as many.
    pub fn pad_to(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// How many bytes it is.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The files it is made of, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().filter_map(|(_, part)| match part {
            Part::File { path, .. } => Some(path.as_path()),
            Part::Bytes(_) => None,
        })
    }

    /// How far it should stand behind a multiple of [`GRAIN`], so that the first part of a file in it is copied fast.
    pub fn best_offset(&self) -> u64 {
        let first = self.parts.iter().find_map(|(at, part)| match part {
            Part::File { offset, size, .. } if *size >= GRAIN => Some(offset.wrapping_sub(*at)),
            _ => None,
        });
        first.unwrap_or(0) % GRAIN
    }

    /// Writes it into `out` from `start` on. Zeros are not written: what is between the parts, and what comes after the last one, must be
    /// a hole, or past the end.
    pub fn write_at(&self, out: &mut File, start: u64) -> Result<()> {
        for (at, part) in &self.parts {
            out.seek(SeekFrom::Start(start.saturating_add(*at)))?;
            match part {
                Part::Bytes(bytes) => out.write_all(bytes)?,
                Part::File { size: 0, .. } => {}
                Part::File { path, offset, size } => {
                    let from = open(path, *offset, *size)?;
                    range(&from, *offset, out, *size, &|| Ok(())).with_context(|| path.display().to_string())?;
                }
            }
        }
        Ok(())
    }

    /// Writes it to anything, zeros and all, through memory.
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> Result<()> {
        let mut written = 0;
        for (at, part) in &self.parts {
            io::copy(&mut io::repeat(0).take(at.saturating_sub(written)), out)?;
            written = at
                + match part {
                    Part::Bytes(bytes) => {
                        out.write_all(bytes)?;
                        bytes.len() as u64
                    }
                    Part::File { path, offset, size } => {
                        let mut from = open(path, *offset, *size)?;
                        from.seek(SeekFrom::Start(*offset))?;
                        let copied = stream(&mut from.take(*size), out).with_context(|| path.display().to_string())?;
                        if copied != *size {
                            bail!("{}: {copied} bytes, where {size} were expected", path.display());
                        }
                        copied
                    }
                };
        }
        io::copy(&mut io::repeat(0).take(self.size.saturating_sub(written)), out)?;
        Ok(())
    }
}

/// The file at `path`, which must have `size` bytes from `offset` on.
fn open(path: &Path, offset: u64, size: u64) -> Result<File> {
    let told = || path.display().to_string();
    let file = File::open(path).with_context(told)?;
    let there = file.metadata().with_context(told)?.len().saturating_sub(offset);
    if there < size {
        bail!("{}: {there} bytes, where {size} were expected", path.display());
    }
    Ok(file)
}

/// Copies all of `from`, in larger steps than `io::copy`; how much it was.
pub fn stream(from: &mut impl Read, out: &mut (impl Write + ?Sized)) -> io::Result<u64> {
    let mut buffer = vec![0; STEP];
    let mut copied = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(len) => {
                out.write_all(buffer.get(..len).unwrap_or_default())?;
                copied += len as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
