//! Bytes that are looked into: part of a file, of the user's or of a nameless one that something was inflated into. Headers are read
//! through a map; whatever is as large as an image is read in ranges, because every page of a map that is touched counts as memory.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::bytes::Bytes;

const CHUNK: usize = 256 << 10;

/// Part of a file; cheap to clone.
#[derive(Clone)]
pub(super) struct Piece {
    bytes: Bytes,
    file: Arc<File>,
    at: u64,
    inflated: bool,
}

impl Piece {
    /// All of the file at `path`, which must be a regular one.
    pub(super) fn open(path: &Path) -> io::Result<Piece> {
        // A pipe would be waited for, and a folder has no bytes.
        let meta = fs::metadata(path)?;
        if !meta.is_file() {
            return Err(io::Error::other(if meta.is_dir() { "is a folder" } else { "is not a regular file" }));
        }
        Piece::of(File::open(path)?, false)
    }

    /// What `write` writes, in a file that has no name.
    pub(super) fn spilled(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<Piece> {
        let mut out = BufWriter::with_capacity(CHUNK, tempfile::tempfile()?);
        write(&mut out)?;
        Ok(Piece::of(out.into_inner().map_err(io::IntoInnerError::into_error)?, true)?)
    }

    fn of(file: File, inflated: bool) -> io::Result<Piece> {
        let size = file.metadata()?.len();
        Ok(Piece { bytes: Bytes::map(&file, size)?, file: Arc::new(file), at: 0, inflated })
    }

    /// The bytes, for headers.
    pub(super) fn data(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// How many bytes there are.
    pub(super) fn size(&self) -> u64 {
        self.data().len() as u64
    }

    /// `size` bytes of these from `offset`; none when they are not all there.
    pub(super) fn slice(&self, offset: u64, size: u64) -> Option<Piece> {
        let bytes = self.bytes.slice(offset, size)?;
        Some(Piece { bytes, file: Arc::clone(&self.file), at: self.at.checked_add(offset)?, inflated: self.inflated })
    }

    /// These bytes from `offset` on; nothing where they end before it.
    pub(super) fn from(&self, offset: u64) -> Piece {
        let offset = offset.min(self.size());
        self.slice(offset, self.size() - offset).unwrap_or_else(|| self.clone())
    }

    /// Where what is `within` bytes into these is in the user's file; none where it was inflated.
    pub(super) fn place(&self, within: u64) -> Option<u64> {
        (!self.inflated).then(|| self.at.saturating_add(within))
    }

    /// The file, and where in it the bytes start.
    pub(super) fn range(&self) -> (&File, u64) {
        (&self.file, self.at)
    }

    /// Reads the bytes, not through the map.
    pub(super) fn reader(&self) -> BufReader<Range<'_>> {
        BufReader::with_capacity(CHUNK, Range { file: &self.file, at: self.at, left: self.size() })
    }

    /// Their SHA-256, in hexadecimal.
    pub(super) fn sha256(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        let mut reader = Range { file: &self.file, at: self.at, left: self.size() };
        let mut buffer = vec![0; CHUNK];
        loop {
            match reader.read(&mut buffer)? {
                0 => break,
                len => hash.update(buffer.get(..len).unwrap_or_default()),
            }
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Reads part of a file, wherever anybody else reads it.
pub(super) struct Range<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Range<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let len = self.file.read_at(buffer.get_mut(..want).unwrap_or_default(), self.at)?;
        self.at += len as u64;
        self.left -= len as u64;
        Ok(len)
    }
}
