//! Files compressed as a whole by `gzip`, `xz`, `zstd` or `bzip2`: detects the format and
//! decompresses as a stream.
//!
//! Like these programs, the reader treats concatenated files as one. It skips zeros after gzip
//! data, which pad it to whole blocks.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use offload_formats::compression::{Compression, Unpacked};
//!
//! let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
//! packed.write_all(b"plain")?;
//! let packed = packed.finish()?;
//! let compression = Compression::of(&packed).ok_or("not compressed")?;
//! let mut plain = String::new();
//! Unpacked::new(compression, &packed[..])?.read_to_string(&mut plain)?;
//! assert_eq!((compression.name(), plain.as_str()), ("gzip", "plain"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, BufRead, Read};

use super::magic::numbers as magic;
use crate::bytes::zeros;
use crate::error::Malformed;

/// The memory limit of the xz decoder in KiB: twice the dictionary size of the highest level.
const XZ_MEMORY: u32 = 128 << 10;
/// The largest window of zstd, as a power of two: the limit of `zstd -d` without `--long`.
const ZSTD_WINDOW: u32 = 27;

/// The compression format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// gzip (RFC 1952).
    Gzip,
    /// The .xz format of XZ Utils.
    Xz,
    /// zstd (RFC 8878).
    Zstd,
    /// bzip2.
    Bzip2,
}

impl Compression {
    /// Detects the format of a file that begins with `start`. `None` means uncompressed or unknown.
    pub fn of(start: &[u8]) -> Option<Compression> {
        if start.starts_with(&magic::GZIP) {
            Some(Compression::Gzip)
        } else if start.starts_with(&magic::XZ) {
            Some(Compression::Xz)
        } else if skip_frames(start).starts_with(&magic::ZSTD) {
            Some(Compression::Zstd)
        } else {
            // A digit with the block size precedes the first block, or the end mark of an empty
            // file.
            let [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] = start else {
                return None;
            };
            let is_bzip2 =
                rest.starts_with(&magic::BZIP2_BLOCK) || rest.starts_with(&magic::BZIP2_END);
            is_bzip2.then_some(Compression::Bzip2)
        }
    }

    /// The name of the program that writes the format: `gzip`, `xz`, `zstd`, `bzip2`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
        }
    }
}

/// The data after the skippable zstd frames at the start of `file`; pzstd begins its files with
/// one. LZ4 has the same frames, so they do not identify the format.
fn skip_frames(mut file: &[u8]) -> &[u8] {
    const LOW_BITS: u32 = 15;
    while let Some(([number, len], rest)) = two_words(file)
        && number & !LOW_BITS == magic::ZSTD_SKIPPABLE
        && let Some(rest) = usize::try_from(len).ok().and_then(|len| rest.get(len..))
    {
        file = rest;
    }
    file
}

/// The two little-endian words at the start of `bytes`, and the rest.
fn two_words(bytes: &[u8]) -> Option<([u32; 2], &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    let (second, rest) = rest.split_first_chunk()?;
    Some((
        [u32::from_le_bytes(*first), u32::from_le_bytes(*second)],
        rest,
    ))
}

/// A reader of the decompressed data. Errors in the data are a [`Malformed`] with the number of
/// bytes read from the compressed file, which may be one buffer beyond the fault. After an error,
/// data that was read before may be wrong.
pub struct Unpacked<R: BufRead> {
    stream: Stream<R>,
    failed: Option<Malformed>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each file, and not many at once"
)]
enum Stream<R: BufRead> {
    Gzip(Gzip<R>),
    Xz(lzma_rust2::XzReader<Counted<R>>),
    Zstd(zstd::stream::read::Decoder<'static, Counted<R>>),
    Bzip2(bzip2::bufread::MultiBzDecoder<Counted<R>>),
}

impl<R: BufRead> fmt::Debug for Unpacked<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacked")
            .field("taken", &self.taken())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl<R: BufRead> Unpacked<R> {
    /// Returns a reader of the decompressed `packed`.
    ///
    /// # Errors
    /// No memory for the decoder, or `packed` cannot be read.
    pub fn new(compression: Compression, packed: R) -> io::Result<Self> {
        let packed = Counted {
            inner: packed,
            taken: 0,
        };
        let stream = match compression {
            Compression::Gzip => Stream::Gzip(Gzip(Some(flate2::bufread::GzDecoder::new(packed)))),
            Compression::Xz => {
                Stream::Xz(lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_MEMORY))
            }
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
                decoder.window_log_max(ZSTD_WINDOW)?;
                Stream::Zstd(decoder)
            }
            Compression::Bzip2 => Stream::Bzip2(bzip2::bufread::MultiBzDecoder::new(packed)),
        };
        Ok(Unpacked {
            stream,
            failed: None,
        })
    }

    /// The number of bytes read from the compressed file so far.
    pub fn taken(&self) -> u64 {
        match &self.stream {
            Stream::Gzip(Gzip(decoder)) => decoder
                .as_ref()
                .map_or(0, |decoder| decoder.get_ref().taken),
            Stream::Xz(decoder) => decoder.inner().taken,
            Stream::Zstd(decoder) => decoder.get_ref().taken,
            Stream::Bzip2(decoder) => decoder.get_ref().taken,
        }
    }
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(fault) = self.failed {
            return Err(fault.into());
        }
        let read = match &mut self.stream {
            Stream::Gzip(decoder) => decoder.read(buffer),
            Stream::Xz(decoder) => decoder.read(buffer),
            Stream::Zstd(decoder) => decoder.read(buffer),
            Stream::Bzip2(decoder) => decoder.read(buffer),
        };
        read.map_err(|error| {
            // I/O errors are not faults of the contents.
            if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            let fault = Malformed::new(fault_of(&error), self.taken());
            self.failed = Some(fault);
            fault.into()
        })
    }
}

/// Reads concatenated gzip files. The decoder is only absent during a call.
struct Gzip<R: BufRead>(Option<flate2::bufread::GzDecoder<Counted<R>>>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.0 {
            let len = decoder.read(buffer)?;
            if len > 0 || buffer.is_empty() || !has_more(decoder.get_mut())? {
                return Ok(len);
            }
            self.0 = self
                .0
                .take()
                .map(|decoder| flate2::bufread::GzDecoder::new(decoder.into_inner()));
        }
        Ok(0)
    }
}

/// Skips zeros and returns whether other data follows.
fn has_more(packed: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let part = packed.fill_buf()?;
        let (len, zeros) = (part.len(), zeros(part));
        packed.consume(zeros);
        if zeros < len || len == 0 {
            return Ok(len > 0);
        }
    }
}

/// Converts a decoder's error to our message. Some decoders distinguish errors by text, others only
/// by kind.
fn fault_of(error: &io::Error) -> &'static str {
    let text = error.to_string();
    if error.kind() == io::ErrorKind::UnexpectedEof || text.contains("incomplete frame") {
        "the compressed data ends too early"
    } else if error.kind() == io::ErrorKind::OutOfMemory || text.contains("too much memory") {
        "decompression needs more than 128 MiB of memory"
    } else if text.contains("checksum") {
        "the data does not match its checksum"
    } else {
        "the compressed data is damaged"
    }
}

/// Counts the bytes that are read from a file.
#[derive(Debug)]
struct Counted<R> {
    inner: R,
    taken: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        self.taken += len as u64;
        Ok(len)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, len: usize) {
        self.taken += len as u64;
        self.inner.consume(len);
    }
}
