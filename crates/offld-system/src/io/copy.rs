//! Copies bytes from file to file. If possible, the kernel copies, so that the bytes are never in
//! this process's memory.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, ErrorKind, Seek, Write};
use std::os::unix::fs::FileExt;

/// Number of bytes that are copied between two checks whether to continue.
const CHUNK: u64 = 16 << 20;
/// Number of bytes read at once if the kernel does not copy: as many as the CPU's own cache holds.
const BUFFER: u64 = 512 << 10;
/// Size of a memory page, in bytes.
const PAGE: u64 = 4096;
/// Number of bytes read at once for a writer that processes them (hashes or compresses), not just
/// writes them to a file.
const STEP: usize = 256 << 10;
/// Number of bytes that Linux moves at once when it copies. Copying is fastest, by a third, if each
/// such step fills one aligned block of the destination. And file systems that can share blocks
/// between files share only bytes with the same offset within a page in both.
pub const GRAIN: u64 = 64 << 10;

/// Copies `len` bytes of `from`, from `offset` on, to the current position of `to`, and advances
/// that position. Calls `go_on` at least every [`CHUNK`] bytes; its error ends the copy.
///
/// # Errors
/// `UnexpectedEof` if `from` has fewer bytes, and errors of the file systems.
pub(crate) fn range(
    from: &File,
    offset: u64,
    to: &mut File,
    len: u64,
    go_on: &dyn Fn() -> io::Result<()>,
) -> io::Result<()> {
    let start = to.stream_position()?;
    let (mut at, end) = (offset, offset.saturating_add(len));
    let mut buffer = Vec::new();
    // If the offsets within a page differ, Linux takes a third longer than a copy through a buffer,
    // and no file system can share blocks. A file server can still avoid sending the bytes.
    let in_place = offset % PAGE == start % PAGE;
    let mut by_system = in_place || len < GRAIN || is_on_server(to);
    while at < end {
        go_on()?;
        let step = match start.saturating_add(at - offset) % GRAIN {
            0 => CHUNK,
            over => GRAIN - over,
        };
        let left = end - at;
        if by_system {
            let want = usize::try_from(step.min(left)).unwrap_or(usize::MAX);
            // A failure is not an error yet: the files may be on two file systems, or on one
            // without this call.
            by_system = rustix::fs::copy_file_range(from, Some(&mut at), &*to, None, want)
                .is_ok_and(|copied| copied > 0);
        } else {
            buffer.resize(usize::try_from(step.min(BUFFER).min(left)).unwrap_or(0), 0);
            read_exact_at(from, &mut buffer, at)?;
            to.write_all(&buffer)?;
            at += buffer.len() as u64;
        }
    }
    Ok(())
}

/// Whether the file is on a server that may copy by itself: NFS, SMB or Ceph.
fn is_on_server(file: &File) -> bool {
    // From linux/magic.h; the numbers of SMB and CIFS are in fs/smb.
    const SERVERS: [u32; 4] = [0x6969, 0xfe53_4d42, 0xff53_4d42, 0x00c3_6400];
    rustix::fs::fstatfs(file).is_ok_and(|about| {
        SERVERS
            .iter()
            .any(|server| i128::from(about.f_type) == i128::from(*server))
    })
}

/// Writes `len` bytes of `from`, from `offset` on, to `out`, through a buffer.
///
/// # Errors
/// See [`range`].
pub(crate) fn range_to_writer(
    from: &File,
    offset: u64,
    len: u64,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let mut buffer = vec![0; usize::try_from(len).unwrap_or(STEP).min(STEP)];
    let (mut at, end) = (offset, offset.saturating_add(len));
    while at < end {
        let step = usize::try_from(end - at).unwrap_or(STEP).min(STEP);
        let chunk = buffer.get_mut(..step).unwrap_or_default();
        read_exact_at(from, chunk, at)?;
        out.write_all(chunk)?;
        at += step as u64;
    }
    Ok(())
}

fn read_exact_at(from: &File, buffer: &mut [u8], at: u64) -> io::Result<()> {
    from.read_exact_at(buffer, at)
        .map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => cut_short(),
            _ => error,
        })
}

/// The error for a file that has become shorter since it was opened.
pub(crate) fn cut_short() -> io::Error {
    io::Error::new(
        ErrorKind::UnexpectedEof,
        "the file was truncated while being read",
    )
}
