//! Files that are compressed as a whole, as `gzip`, `xz`, `zstd` and `bzip2` write them: which of them it is, and what is in it, as
//! a stream. Files that were written one behind the other are read as one, as these programs do; and zeros behind what gzip has
//! written, which pad it to whole blocks, are passed over.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use offld::formats::compression::{Compression, Unpacked};
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

use super::magic;
use crate::error::Malformed;

/// The most memory, in KiB, that xz's decoder may take: twice what its highest level needs for its dictionary.
const XZ_MEMORY: u32 = 128 << 10;
/// The largest window of zstd, as a power of two: what `zstd -d` takes without `--long`.
const ZSTD_WINDOW: u32 = 27;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// The .xz format of XZ Utils.
    Xz,
    /// RFC 8878.
    Zstd,
    /// bzip2.
    Bzip2,
}

impl Compression {
    /// How what begins with `start` is compressed; none where it is not, or otherwise.
    pub fn of(start: &[u8]) -> Option<Compression> {
        if start.starts_with(&magic::GZIP) {
            Some(Compression::Gzip)
        } else if start.starts_with(&magic::XZ) {
            Some(Compression::Xz)
        } else if behind_skippable_frames(start).starts_with(&magic::ZSTD) {
            Some(Compression::Zstd)
        } else {
            // A digit says how large the blocks are, and behind it the first block begins, or the end of an empty file.
            let [b'B', b'Z', b'h', b'1'..=b'9', rest @ ..] = start else { return None };
            let is_bzip2 = rest.starts_with(&magic::BZIP2_BLOCK) || rest.starts_with(&magic::BZIP2_END);
            is_bzip2.then_some(Compression::Bzip2)
        }
    }

    /// The name of the program that writes it: `gzip`, `xz`, `zstd`, `bzip2`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
        }
    }
}

/// What follows the frames at the start of `file` that decoders of zstd skip; pzstd begins its files with one. LZ4 has the same frames,
/// so they alone tell nothing.
fn behind_skippable_frames(mut file: &[u8]) -> &[u8] {
    const LOW_BITS: u32 = 15;
    while let Some(([number, len], rest)) = two_words(file)
        && number & !LOW_BITS == magic::ZSTD_SKIPPABLE
        && let Some(rest) = usize::try_from(len).ok().and_then(|len| rest.get(len..))
    {
        file = rest;
    }
    file
}

/// The two little-endian words that `bytes` begins with, and what is behind them.
fn two_words(bytes: &[u8]) -> Option<([u32; 2], &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    let (second, rest) = rest.split_first_chunk()?;
    Some(([u32::from_le_bytes(*first), u32::from_le_bytes(*second)], rest))
}

/// Reads what is in a compressed file. An error of what is read is a [`Malformed`] with the offset in the compressed file up to
/// which it was taken, which may be a buffer beyond the fault; what was read before is not sure to be right then.
pub struct Unpacked<R: BufRead> {
    stream: Stream<R>,
    failed: Option<Malformed>,
}

#[expect(clippy::large_enum_variant, reason = "there is one for each file, and not many at once")]
enum Stream<R: BufRead> {
    Gzip(Gzip<R>),
    Xz(lzma_rust2::XzReader<Counted<R>>),
    Zstd(zstd::stream::read::Decoder<'static, Counted<R>>),
    Bzip2(bzip2::bufread::MultiBzDecoder<Counted<R>>),
}

impl<R: BufRead> fmt::Debug for Unpacked<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacked").field("taken", &self.taken()).field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl<R: BufRead> Unpacked<R> {
    /// A reader of what is in `packed`.
    ///
    /// # Errors
    /// There is no memory for the decoder, or `packed` cannot be read.
    pub fn new(compression: Compression, packed: R) -> io::Result<Self> {
        let packed = Counted { inner: packed, taken: 0 };
        let stream = match compression {
            Compression::Gzip => Stream::Gzip(Gzip(Some(flate2::bufread::GzDecoder::new(packed)))),
            Compression::Xz => Stream::Xz(lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_MEMORY)),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
                decoder.window_log_max(ZSTD_WINDOW)?;
                Stream::Zstd(decoder)
            }
            Compression::Bzip2 => Stream::Bzip2(bzip2::bufread::MultiBzDecoder::new(packed)),
        };
        Ok(Unpacked { stream, failed: None })
    }

    /// How many bytes of the compressed file have been taken so far.
    pub fn taken(&self) -> u64 {
        match &self.stream {
            Stream::Gzip(Gzip(decoder)) => decoder.as_ref().map_or(0, |decoder| decoder.get_ref().taken),
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
            // What the system says of the file is no fault of its contents.
            if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            let fault = Malformed::new(told(&error), self.taken());
            self.failed = Some(fault);
            fault.into()
        })
    }
}

/// Reads what gzip has written: any number of files, one behind the other. There is always a decoder between two calls.
struct Gzip<R: BufRead>(Option<flate2::bufread::GzDecoder<Counted<R>>>);

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.0 {
            let len = decoder.read(buffer)?;
            if len > 0 || buffer.is_empty() || !has_more(decoder.get_mut())? {
                return Ok(len);
            }
            self.0 = self.0.take().map(|decoder| flate2::bufread::GzDecoder::new(decoder.into_inner()));
        }
        Ok(0)
    }
}

/// Whether something follows other than zeros, which are passed over.
fn has_more(packed: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let part = packed.fill_buf()?;
        let (len, zeros) = (part.len(), part.iter().take_while(|byte| **byte == 0).count());
        packed.consume(zeros);
        if zeros < len || len == 0 {
            return Ok(len > 0);
        }
    }
}

/// What is wrong, in our words: the decoders say it in theirs, and some only by the kind of the error.
fn told(error: &io::Error) -> &'static str {
    let text = error.to_string();
    if error.kind() == io::ErrorKind::UnexpectedEof || text.contains("incomplete frame") {
        "the compressed data ends too early"
    } else if error.kind() == io::ErrorKind::OutOfMemory || text.contains("too much memory") {
        "unpacking it would take more than 128 MiB of memory"
    } else if text.contains("checksum") {
        "the data does not match its checksum"
    } else {
        "the compressed data is damaged"
    }
}

/// Counts the bytes that are taken of a file.
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
