//! Copies bytes from file to file: by the system where it can, so that they never are in this process's memory.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, ErrorKind, Seek, Write};
use std::os::unix::fs::FileExt;

/// How much is copied between two checks whether to go on.
const CHUNK: u64 = 16 << 20;
/// How much is read at once where the system does not copy by itself: what a processor's own cache holds.
const BUFFER: u64 = 512 << 10;
/// The size of a page of memory.
const PAGE: u64 = 4096;
/// How much is read at once for a writer that does more with it than write it to a file (hashes it, compresses it).
const STEP: usize = 256 << 10;
/// What Linux moves at once when it copies. Copying is fastest, by a third, where each such step fills one aligned block of the
/// destination; and file systems that can share blocks between files share only what stands at the same place within a page in
/// both.
pub(crate) const GRAIN: u64 = 64 << 10;

/// Copies `len` bytes of `from`, from `offset` on, to where `to` stands, which then stands behind them. `go_on` is called every few
/// megabytes; its error ends the copy.
///
/// # Errors
/// `UnexpectedEof` where `from` has fewer bytes, and whatever the file systems say.
pub(crate) fn range(from: &File, offset: u64, to: &mut File, len: u64, go_on: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
    let start = to.stream_position()?;
    let (mut at, end) = (offset, offset.saturating_add(len));
    let mut buffer = Vec::new();
    // Where the bytes come to stand elsewhere within a page, Linux takes a third longer than it does through a buffer, and no file
    // system can share them. A server need not send them.
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
            // A failure is not an error yet: the files may be on two file systems, or on one without this call.
            by_system = rustix::fs::copy_file_range(from, Some(&mut at), &*to, None, want).is_ok_and(|copied| copied > 0);
        } else {
            buffer.resize(usize::try_from(step.min(BUFFER).min(left)).unwrap_or(0), 0);
            read_exact_at(from, &mut buffer, at)?;
            to.write_all(&buffer)?;
            at += buffer.len() as u64;
        }
    }
    Ok(())
}

/// Whether the file is on a server that may copy by itself: of NFS, SMB or Ceph.
fn is_on_server(file: &File) -> bool {
    // linux/magic.h; the numbers of SMB and CIFS are in fs/smb.
    const SERVERS: [u32; 4] = [0x6969, 0xfe53_4d42, 0xff53_4d42, 0x00c3_6400];
    rustix::fs::fstatfs(file).is_ok_and(|about| SERVERS.iter().any(|server| i128::from(about.f_type) == i128::from(*server)))
}

/// Writes `len` bytes of `from`, from `offset` on, to `out`, through a buffer.
///
/// # Errors
/// As those of [`range`].
pub(crate) fn range_to_writer(from: &File, offset: u64, len: u64, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
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
    from.read_exact_at(buffer, at).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => cut_short(),
        _ => error,
    })
}

/// The error for a file that has fewer bytes than it had when it was opened.
pub(crate) fn cut_short() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "a file became shorter while it was read")
}
