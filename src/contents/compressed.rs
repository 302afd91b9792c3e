//! Inspection of files that are compressed as a whole. A tar archive is read as a stream, and only
//! members that can have device code are stored. Any other file is unpacked to a temporary file, if
//! its first bytes look like a file that can have device code.

use std::io::{self, BufRead, BufReader, Read};

use anyhow::{Context, Result};

use super::containers::format_error;
use super::layout::Part;
use super::report::Step;
use super::walk::{Cursor, Walk};
use super::{bytes_of, tar};
use crate::error::Malformed;
use crate::formats::compression::{Compression, Unpacked};
use crate::formats::magic::{ByteKind, START, byte_kind, may_have_device_code};
use crate::io::file_slice::FileSlice;
use crate::sys::progress::Reached;

/// Inspects the contents of the compressed file at `cursor`.
pub(super) fn file(walk: &mut Walk<'_>, cursor: &Cursor, compression: Compression) -> Result<()> {
    let packed = cursor.clone();
    walk.inflated(cursor, move |walk| {
        unpacked(walk, &packed, compression)
            .map_err(|error| error.context(format!("{}: {}", packed.place, compression.name())))
    })
}

fn unpacked(walk: &mut Walk<'_>, cursor: &Cursor, compression: Compression) -> Result<()> {
    let inner = |piece: &FileSlice, plain_size| {
        let (offset, size) = (cursor.piece.file_offset(0), cursor.piece.size());
        let step = Step::Compressed {
            name: compression.name(),
            offset,
            size,
            plain_size,
        };
        cursor.deeper(piece.clone(), cursor.place.then(step), cursor.facts.clone())
    };
    let mut plain = walk.allowance.metered(Unpacked::new(
        compression,
        progress_reader(&cursor.piece, walk.reached.clone()),
    )?);
    let start = start_of(&mut plain).map_err(Malformed::or_io)?;
    let kind = byte_kind(&start, true);
    if kind == ByteKind::Tar {
        return tar::streamed(walk, &inner(&cursor.piece, None), start, plain);
    }
    if !cursor.is_selected(kind) {
        let rest = if walk.layout.is_some() {
            io::copy(&mut plain, &mut io::sink()).map_err(Malformed::or_io)?
        } else {
            0
        };
        walk.streamed_out(cursor, start.len() as u64 + rest);
        return Ok(());
    }
    if may_have_device_code(&start) {
        let piece = store(walk, start, &mut plain).map_err(format_error)?;
        walk.enter_streamed(&inner(&piece, Some(piece.size())));
    } else if walk.layout.is_some() {
        let rest = io::copy(&mut plain, &mut io::sink()).map_err(Malformed::or_io)?;
        walk.streamed(cursor, Part::Files, "", start.len() as u64 + rest);
    }
    Ok(())
}

/// A reader of `piece` that reports its position in the file on disk as progress.
fn progress_reader(piece: &FileSlice, reached: Reached) -> impl BufRead {
    let reader = ProgressReader {
        inner: piece.reader(),
        at: piece.file_offset(0),
        reached,
    };
    BufReader::with_capacity(bytes_of::CHUNK, reader)
}

/// Reader of a part of a file. `at` is its position, none if the part is not on disk.
struct ProgressReader<R> {
    inner: R,
    at: Option<u64>,
    reached: Reached,
}

impl<R: Read> Read for ProgressReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        if let Some(at) = &mut self.at {
            *at += len as u64;
            self.reached.up_to(*at);
        }
        Ok(len)
    }
}

/// Up to [`START`] bytes of `plain`.
pub(super) fn start_of(plain: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    plain.take(START).read_to_end(&mut start)?;
    Ok(start)
}

/// Stores a file that begins with `start`, the result of [`start_of`], and continues with `rest`. A
/// small file stays in memory, and a larger one goes to a temporary file.
pub(super) fn store(walk: &Walk<'_>, start: Vec<u8>, rest: &mut impl Read) -> Result<FileSlice> {
    // With `keep_bytes`, many files may stay to the end.
    if (start.len() as u64) < START && !walk.options.keep_bytes {
        return Ok(FileSlice::owned(start));
    }
    FileSlice::made(|out| {
        out.write_all(&start)
            .context("cannot write a temporary file")?;
        io::copy(rest, out)?;
        Ok(())
    })
}
