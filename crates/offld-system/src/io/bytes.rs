//! Files as bytes: memory-mapped unless they are small, shared, and cut into parts without copying.
//!
//! # Files that change while they are mapped
//!
//! A map shows the current contents of the file, not those at the time of opening. Linux cannot
//! prevent another process from changing it. The functions here are safe to call under this
//! contract:
//!
//! * Callers assume that no process writes to an open file until the run is over, as every linker
//!   does. Files that this process writes itself are mapped when they are complete, and never
//!   written again; the caller ensures that.
//! * If another process changes bytes nevertheless, readers see old bytes, new bytes or a mixture.
//!   The result may be wrong or an error, as for a half-written file. Readers check every offset
//!   against the size of the map, which never changes.
//! * If another process truncates the file, reading the missing part raises SIGBUS, which ends the
//!   process at once. offld does not catch it, because it could not continue. No output is damaged,
//!   because outputs are written next to their final paths ([`crate::io::outputs`]), but the
//!   temporary directory remains. Images and other large contents are not read through maps but
//!   copied from the files ([`crate::io::rope`]). There, a file that is too short is an error with
//!   a message.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

/// Part of a file, or owned bytes; cheap to clone.
#[derive(Clone)]
pub struct Bytes {
    all: Arc<Storage>,
    range: Range<usize>,
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bytes")
            .field("size", &self.range.len())
            .finish_non_exhaustive()
    }
}

/// Small files are read: Linux allows a process 65530 maps, and a link may have more objects than
/// that.
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
    /// Maps a file.
    pub fn open(path: &Path) -> std::io::Result<Bytes> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Bytes::map(&file, size)
    }

    /// Opens a whole file. The error names it.
    pub fn of(path: &Path) -> Result<Bytes> {
        Bytes::open(path).with_context(|| format!("cannot read `{}`", path.display()))
    }

    /// Maps a whole open file of `size` bytes. The size is an argument because callers have queried
    /// it already, and in a link of thousands of files each further system call counts.
    pub fn map(file: &File, size: u64) -> std::io::Result<Bytes> {
        Bytes::map_part(file, 0, size)
    }

    /// Maps `size` bytes of an open file from `offset`. Small parts are read, and may then be
    /// shorter than `size`. Large parts are mapped, and the file must have all of them. See the
    /// module's documentation for files that change afterwards.
    #[expect(
        unsafe_code,
        reason = "a memory map of a file that other processes may change: see the contract at the top of this file"
    )]
    pub(crate) fn map_part(file: &File, offset: u64, size: u64) -> std::io::Result<Bytes> {
        const SMALL: u64 = 16 << 10;
        let large = usize::try_from(size).ok().filter(|_| size > SMALL);
        // SAFETY: the map is only read. It cannot be proved here that no other process changes the
        // file meanwhile: that is the contract.
        let all = match large
            .map(|len| unsafe { MmapOptions::new().offset(offset).len(len).map(file) })
        {
            Some(Ok(map)) => Storage::Map(map),
            // Some file systems do not support maps.
            _ => Storage::Copy(read(file, offset, size)?),
        };
        let range = 0..all.as_slice().len();
        Ok(Bytes {
            all: Arc::new(all),
            range,
        })
    }

    /// Lets the system reclaim the pages of these bytes that were read through a map, and that
    /// count as memory of this process. If the file is in the page cache in large pieces, reading
    /// one byte can count as 2 MiB. The bytes can be read again at any time.
    #[expect(
        unsafe_code,
        reason = "this advice discards writes to private maps; ours are shared maps of files, and never written"
    )]
    pub(crate) fn release(&self) {
        /// Size of the largest pieces of files in the page cache, in bytes. Parts at the edges are
        /// mapped with their whole pieces.
        const PIECE: usize = 2 << 20;
        /// Less than this many bytes is not worth a system call.
        const FEW: usize = 64 << 10;
        let Storage::Map(map) = &*self.all else {
            return;
        };
        let (start, end) = (
            self.range.start / PIECE * PIECE,
            self.range.end.next_multiple_of(PIECE).min(map.len()),
        );
        if self.range.len() >= FEW {
            // SAFETY: a page of a shared map of a file has the same contents when it is read the
            // next time. Whether the system follows the advice does not matter.
            let _ = unsafe {
                map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
            };
        }
    }

    /// Returns all bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.all.as_slice()[self.range.clone()]
    }

    /// Returns the bytes of `part`, without copying. Returns `None` if `part` does not borrow from
    /// `self`.
    pub fn part(&self, part: &[u8]) -> Option<Bytes> {
        let offset = part
            .as_ptr()
            .addr()
            .checked_sub(self.as_slice().as_ptr().addr())?;
        self.slice(offset as u64, part.len() as u64)
    }

    /// Returns the `size` bytes from `offset`, without copying. Returns `None` if they exceed the
    /// end.
    pub fn slice(&self, offset: u64, size: u64) -> Option<Bytes> {
        let start = self
            .range
            .start
            .checked_add(usize::try_from(offset).ok()?)?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        (end <= self.range.end).then(|| Bytes {
            all: Arc::clone(&self.all),
            range: start..end,
        })
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Bytes {
            all: Arc::new(Storage::Copy(bytes)),
            range,
        }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// Reads `size` bytes from `offset`, or as many as the file has.
fn read(file: &File, offset: u64, size: u64) -> std::io::Result<Vec<u8>> {
    let size = usize::try_from(size).map_err(std::io::Error::other)?;
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        // The buffer is not filled with zeros first: a link has thousands of small files.
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
    fn small_files_are_read_and_large_ones_are_mapped() {
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
