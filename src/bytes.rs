//! Files as bytes: memory-mapped, shared, and cut into parts without copying.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use memmap2::Mmap;

/// Part of a memory-mapped file; cheap to clone.
#[derive(Clone)]
pub struct Bytes {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl Bytes {
    /// All of a file.
    pub fn open(path: &Path) -> std::io::Result<Bytes> {
        Bytes::map(&File::open(path)?)
    }

    /// All of a file that must be there; the error names it.
    pub fn of(path: &Path) -> Result<Bytes> {
        Bytes::open(path).with_context(|| format!("cannot read `{}`", path.display()))
    }

    /// All of an open file.
    #[expect(
        unsafe_code,
        reason = "a memory map: a file that another process cuts short while we link it is a broken build in any linker"
    )]
    pub fn map(file: &File) -> std::io::Result<Bytes> {
        // SAFETY: the map is only read; see the reason above for files that change below us.
        let map = Arc::new(unsafe { Mmap::map(file) }?);
        let range = 0..map.len();
        Ok(Bytes { map, range })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }

    /// The part of these bytes from `offset`, `size` long; none when it is not all there.
    pub fn slice(&self, offset: u64, size: u64) -> Option<Bytes> {
        let start = self.range.start.checked_add(usize::try_from(offset).ok()?)?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        (end <= self.range.end).then(|| Bytes { map: Arc::clone(&self.map), range: start..end })
    }
}
