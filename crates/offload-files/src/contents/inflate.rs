//! Decompression of containers and of whole files into unnamed temporary files, so that memory
//! holds only a window of the data. Sizes in headers are not trusted: the file grows with the data,
//! and data that is longer or shorter than the header's size is an error. The size of the
//! decompressed data is limited.

use std::io::{self, BufRead, BufReader, Read, Write};

use anyhow::{Context, Result};

use super::containers::format_error;
use super::layout::Part;
use super::report::Step;
use super::walk::{Cursor, Walk};
use super::{archive, bytes_of};
use offld_system::io::file_slice::FileSlice;
use offld_system::progress::Reached;
use offload_formats::compressed::{Header, Method, Unpack, window_log};
use offload_formats::compression::{Compression, Unpacked};
use offload_formats::error::Malformed;
use offload_formats::fatbin;
use offload_formats::magic::{self, ByteKind, START, byte_kind, may_have_device_code};
use offload_formats::offload_binary::{Head, PackedPart};

/// Limit of LZ4 blocks, which are decompressed in memory: this size, or this multiple of the
/// compressed size if that is more.
const LARGEST_LZ4: u64 = 64 << 20;
const LARGEST_LZ4_GROWTH: u64 = 10;

/// Decompresses a compressed bundle with this header. A size or hash that differs from the header's
/// is an error.
pub(crate) fn compressed_bundle(packed: &FileSlice, header: Header) -> Result<FileSlice> {
    FileSlice::made(|out| {
        let mut plain = Unpack::new(header, bytes_of::reader(packed), 0)?;
        io::copy(&mut plain, out)?;
        Ok(())
    })
}

/// Returns the decompressed form of the OffloadBinary `whole`, whose header is `head`.
pub(crate) fn offload_binary(
    whole: &FileSlice,
    head: &Head,
    packed: &PackedPart,
) -> Result<FileSlice> {
    let start = head.plain_start(whole.bytes()).unwrap_or_default();
    let wanted = packed.plain_size.saturating_sub(start.len() as u64);
    FileSlice::made(|out| {
        out.write_all(&start)?;
        stream(&whole.from(packed.at), method_of(packed), wanted, out)
    })
}

/// The compression method of an OffloadBinary.
pub(crate) fn method_of(packed: &PackedPart) -> Method {
    if packed.zstd {
        Method::Zstd
    } else {
        Method::Zlib
    }
}

/// Whether the code of a fatbinary's entry can be decompressed within the memory limit. A size that
/// the data cannot hold passes as well, because decompressing it fails at no cost.
pub(super) fn fits(packed: u64, method: fatbin::Method, size: u64) -> bool {
    let is_small = size <= LARGEST_LZ4.max(packed.saturating_mul(LARGEST_LZ4_GROWTH));
    method != fatbin::Method::Lz4 || is_small || is_lie(packed, method, size)
}

/// Whether the data cannot hold `size` bytes.
pub(super) fn is_lie(packed: u64, method: fatbin::Method, size: u64) -> bool {
    method == fatbin::Method::Lz4 && fatbin::is_too_much_for_lz4(packed, size)
}

/// Decompresses the code of a fatbinary's entry for which [`fits`] holds.
pub(crate) fn fatbinary_entry(
    packed: &FileSlice,
    method: fatbin::Method,
    size: u64,
) -> Result<FileSlice> {
    if method == fatbin::Method::Zstd {
        return FileSlice::made(|out| stream(packed, Method::Zstd, size, out));
    }
    let plain = fatbin::unpack_lz4(packed.bytes(), size)?;
    FileSlice::made(|out| Ok(out.write_all(&plain)?))
}

/// Decompresses a zstd frame whose header has its uncompressed size, as frames from one call of
/// zstd do.
pub(crate) fn zstd_frame(packed: &FileSlice) -> Result<FileSlice> {
    let size = zstd_frame_size(packed)?;
    FileSlice::made(|out| stream(packed, Method::Zstd, size, out))
}

/// Whether a zstd frame holds an archive; no if it cannot be decompressed.
pub(super) fn holds_archive(packed: &FileSlice) -> bool {
    let open = || -> Result<bool> {
        let mut start = [0; magic::ARCHIVE.len()];
        let mut decoder =
            zstd::stream::read::Decoder::with_buffer(bytes_of::reader(packed))?.single_frame();
        decoder.window_log_max(window_log(zstd_frame_size(packed)?))?;
        decoder.read_exact(&mut start)?;
        Ok(magic::is_archive(&start))
    };
    open().unwrap_or(false)
}

/// The uncompressed size of a zstd frame.
pub(super) fn zstd_frame_size(packed: &FileSlice) -> Result<u64> {
    match zstd::zstd_safe::get_frame_content_size(packed.bytes()) {
        Ok(Some(size)) => Ok(size),
        Ok(None) => Err(fault("zstd frame without its uncompressed size")),
        Err(_) => Err(fault("not a zstd frame")),
    }
}

fn stream(packed: &FileSlice, method: Method, size: u64, out: &mut dyn Write) -> Result<()> {
    let mut plain: Box<dyn Read> = match method {
        Method::Zlib => Box::new(flate2::bufread::ZlibDecoder::new(bytes_of::reader(packed))),
        Method::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(bytes_of::reader(packed))?.single_frame();
            decoder.window_log_max(window_log(size))?;
            Box::new(decoder)
        }
    };
    // Asks for one byte more than expected, to notice data that is too long.
    let done = io::copy(&mut plain.by_ref().take(size.saturating_add(1)), out);
    match done {
        Ok(len) if len == size => Ok(()),
        Ok(_) => Err(fault("uncompressed size does not match the data")),
        Err(error) if error.raw_os_error().is_some() => Err(error.into()),
        Err(_) => Err(fault("cannot decompress")),
    }
}

fn fault(what: &'static str) -> anyhow::Error {
    Malformed::new(what, 0).into()
}

// Inspection of files that are compressed as a whole. A tar archive is read as a stream, and only
// members that can have device code are stored. Any other file is unpacked to a temporary file, if
// its first bytes look like a file that can have device code.

/// Inspects the contents of the compressed file at `cursor`.
pub(super) fn compressed_file(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    compression: Compression,
) -> Result<()> {
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
        return archive::tar_streamed(walk, &inner(&cursor.piece, None), start, plain);
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

/// Reader of a part of a file. `at` is the position in the file on disk; none for other data.
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
    // With `keep_bytes`, the data of many files stays until the end, so it must not be in memory.
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
