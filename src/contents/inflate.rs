//! Decompression of containers into unnamed temporary files, so that memory holds only a window of
//! the data. Sizes in headers are not trusted: the file grows with the data, and data that is
//! longer or shorter than the header's size is an error.

use std::io::{self, Read, Write};

use anyhow::Result;

use super::bytes_of;
use crate::error::Malformed;
use crate::formats::compressed::{Header, Method, Unpack, window_log};
use crate::formats::offload_binary::{Head, PackedPart};
use crate::formats::{fatbin, magic};
use crate::io::file_slice::FileSlice;

/// Limit of LZ4 blocks, which are decompressed in memory: this size, or this multiple of the
/// compressed size if that is more.
const LARGEST_LZ4: u64 = 64 << 20;
const LARGEST_LZ4_GROWTH: u64 = 10;
/// The most bytes that one byte of LZ4 data can expand to.
const LZ4_GROWTH: u64 = 255;

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
    method == fatbin::Method::Lz4 && size > packed.saturating_mul(LZ4_GROWTH)
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
    if is_lie(packed.size(), method, size) {
        return Err(fault(
            "uncompressed size is more than the compressed data can hold",
        ));
    }
    let plain = lz4_flex::block::decompress(packed.bytes(), usize::try_from(size)?)
        .map_err(|_| fault("cannot decompress"))?;
    if plain.len() as u64 != size {
        return Err(fault("uncompressed size does not match the data"));
    }
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
