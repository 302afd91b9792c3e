//! Files as bytes: memory-mapped unless they are small, shared, and cut into parts without copying.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use memmap2::{Mmap, MmapOptions};

/// Part of a file; cheap to clone.
#[derive(Clone)]
pub struct Bytes {
    all: Arc<Contents>,
    range: Range<usize>,
}

/// A process has 65530 maps on Linux, and a link may have as many objects: small files are read.
enum Contents {
    Map(Mmap),
    Copy(Vec<u8>),
}

impl Contents {
    fn as_slice(&self) -> &[u8] {
        match self {
            Contents::Map(map) => map,
            Contents::Copy(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// All of a file.
    pub fn open(path: &Path) -> std::io::Result<Bytes> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Bytes::map(&file, size)
    }

    /// All of a file that must be there; the error names it.
    pub fn of(path: &Path) -> Result<Bytes> {
        Bytes::open(path).with_context(|| format!("cannot read `{}`", path.display()))
    }

    /// All of an open file of `size` bytes, from its start. Takes the size because whoever has opened a file has asked the system about
    /// it already: a link opens thousands, and each question counts.
    pub fn map(file: &File, size: u64) -> std::io::Result<Bytes> {
        Bytes::map_part(file, 0, size)
    }

    /// `size` bytes of an open file from `offset`, or as many as there are.
    #[expect(
        unsafe_code,
        reason = "a memory map: a file that another process cuts short while we link it is a broken build in any linker"
    )]
    pub fn map_part(file: &File, offset: u64, size: u64) -> std::io::Result<Bytes> {
        const SMALL: u64 = 16 << 10;
        let large = usize::try_from(size).ok().filter(|_| size > SMALL);
        // SAFETY: the map is only read; see the reason above for files that change below us.
        let all = match large.map(|len| unsafe { MmapOptions::new().offset(offset).len(len).map(file) }) {
            Some(Ok(map)) => Contents::Map(map),
            // Not every file system has maps.
            _ => Contents::Copy(read(file, offset, size)?),
        };
        let range = 0..all.as_slice().len();
        Ok(Bytes { all: Arc::new(all), range })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.all.as_slice()[self.range.clone()]
    }

    /// The part of these bytes from `offset`, `size` long; none when it is not all there.
    pub fn slice(&self, offset: u64, size: u64) -> Option<Bytes> {
        let start = self.range.start.checked_add(usize::try_from(offset).ok()?)?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        (end <= self.range.end).then(|| Bytes { all: Arc::clone(&self.all), range: start..end })
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Bytes { all: Arc::new(Contents::Copy(bytes)), range }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// As many of `size` bytes from `offset` as there are.
fn read(file: &File, offset: u64, size: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).map_err(std::io::Error::other)?];
    let mut at = 0;
    while at < bytes.len() {
        match file.read_at(&mut bytes[at..], offset + at as u64) {
            Ok(0) => break,
            Ok(count) => at += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_read_and_large_ones_mapped() {
        let dir = tempfile::tempdir().unwrap();
        for size in [0, 5, 100_000] {
            let path = dir.path().join("file");
            std::fs::write(&path, vec![7; size]).unwrap();
            let bytes = Bytes::open(&path).unwrap();
            assert_eq!(bytes.as_slice(), vec![7; size]);
            assert_eq!(matches!(*bytes.all, Contents::Map(_)), size > 16384);
            assert!(bytes.slice(1, size as u64).is_none());
        }
    }
}
