//! Files as bytes: memory-mapped unless they are small, shared, and cut into parts without copying.
//!
//! # Files that change while they are mapped
//!
//! A map shows the file as it is, not as it was when it was opened, and nothing on Linux can prevent another process from changing
//! it. The functions here are safe to call all the same, under this contract:
//!
//! * Whoever opens a file takes it that nobody writes to it until the run is over, as every linker does. For files that this
//!   process writes itself, the caller sees to that: they are mapped when they are complete, and never written again.
//! * If somebody changes bytes all the same, readers see old bytes, new bytes or a mixture: the result may be wrong or an error,
//!   like that of a file which is half written. Readers check every offset against the size of the map, which never changes.
//! * If somebody truncates the file, touching what is gone raises SIGBUS, which ends the process at once. Nothing of ours catches
//!   it: there is no way to go on. No output is damaged by it, because outputs are written beside their places
//!   ([`crate::io::outputs`]); the folder with temporary files is left behind. Images and other large contents are not read through
//!   maps but copied from the files ([`crate::io::rope`]), where a file that is too short is an error that says so.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

/// Part of a file, or bytes of our own; cheap to clone.
#[derive(Clone)]
pub(crate) struct Bytes {
    all: Arc<Storage>,
    range: Range<usize>,
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bytes").field("size", &self.range.len()).finish_non_exhaustive()
    }
}

/// Small files are read: Linux allows a process 65530 maps, and a link may have more objects than that.
enum Storage {
    Map(Mmap),
    Copy(Vec<u8>),
}

impl Storage {
    fn as_slice(&self) -> &[u8] {
        match self {
            Storage::Map(map) => map,
            Storage::Copy(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// All of a file.
    pub(crate) fn open(path: &Path) -> std::io::Result<Bytes> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Bytes::map(&file, size)
    }

    /// All of a file; the error names it.
    pub(crate) fn of(path: &Path) -> Result<Bytes> {
        Bytes::open(path).with_context(|| format!("cannot read `{}`", path.display()))
    }

    /// All of an open file of `size` bytes. The size is an argument because callers have asked the system for it already, and in a
    /// link of thousands of files each further system call counts.
    pub(crate) fn map(file: &File, size: u64) -> std::io::Result<Bytes> {
        Bytes::map_part(file, 0, size)
    }

    /// `size` bytes of an open file from `offset`. Small ones are read, and then only as many as there are; large ones are mapped,
    /// and the file must have them all. See the module's documentation for what happens when the file changes afterwards.
    #[expect(unsafe_code, reason = "a memory map of a file that others may change: the contract stands at the top of this file")]
    pub(crate) fn map_part(file: &File, offset: u64, size: u64) -> std::io::Result<Bytes> {
        const SMALL: u64 = 16 << 10;
        let large = usize::try_from(size).ok().filter(|_| size > SMALL);
        // SAFETY: the map is only read. That nobody else changes the file meanwhile cannot be proved here: it is the contract.
        let all = match large.map(|len| unsafe { MmapOptions::new().offset(offset).len(len).map(file) }) {
            Some(Ok(map)) => Storage::Map(map),
            // Some file systems have no maps.
            _ => Storage::Copy(read(file, offset, size)?),
        };
        let range = 0..all.as_slice().len();
        Ok(Bytes { all: Arc::new(all), range })
    }

    /// Lets the system take back what of these bytes has been looked at through a map, which counts as memory of this process: with
    /// a file that is in memory in large pieces, a look at one byte can count as 2 MiB. They can be looked at again at any time.
    #[expect(
        unsafe_code,
        reason = "this advice loses what is written to private maps; ours are shared, of files, and never written"
    )]
    pub(crate) fn release(&self) {
        /// The largest pieces in which files are in memory: what is at the edges comes with its whole piece.
        const PIECE: usize = 2 << 20;
        /// Less is not worth a call of the system.
        const FEW: usize = 64 << 10;
        let Storage::Map(map) = &*self.all else { return };
        let (start, end) = (self.range.start / PIECE * PIECE, self.range.end.next_multiple_of(PIECE).min(map.len()));
        if self.range.len() >= FEW {
            // SAFETY: a page of a shared map of a file has the same contents when it is touched the next time. Whether the system
            // follows is of no importance.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
        }
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.all.as_slice()[self.range.clone()]
    }

    /// The same bytes as `part`, which borrows from these, without copying; `None` when it does not.
    pub(crate) fn part(&self, part: &[u8]) -> Option<Bytes> {
        let offset = part.as_ptr().addr().checked_sub(self.as_slice().as_ptr().addr())?;
        self.slice(offset as u64, part.len() as u64)
    }

    /// The `size` bytes from `offset`, without copying; `None` when they are not all there.
    pub(crate) fn slice(&self, offset: u64, size: u64) -> Option<Bytes> {
        let start = self.range.start.checked_add(usize::try_from(offset).ok()?)?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        (end <= self.range.end).then(|| Bytes { all: Arc::clone(&self.all), range: start..end })
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Bytes { all: Arc::new(Storage::Copy(bytes)), range }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// As many of `size` bytes from `offset` as there are.
fn read(file: &File, offset: u64, size: u64) -> std::io::Result<Vec<u8>> {
    let size = usize::try_from(size).map_err(std::io::Error::other)?;
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        // What was set aside is not filled with zeros first: a link has thousands of small files.
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(size);
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
            assert_eq!(matches!(*bytes.all, Storage::Map(_)), size > 16384);
            assert!(bytes.slice(1, size as u64).is_none());
        }
    }
}
