//! Reads compressed bundles as a stream: the header, then the decompressed data. Size and hash are
//! compared with the header at the end.

use std::io::{self, BufRead, Read};

use super::hash::Hasher;
use super::{MAGIC, Method};
use crate::error::{Error, Malformed};
use crate::formats::{little_endian, slice};

/// The largest growth of zstd or zlib data: a zstd block of 128 KiB takes at least 4 bytes. A
/// header that claims more is wrong.
const MAX_GROWTH: u64 = 32 << 10;
/// The range of the window's logarithm, from zstd's default limit to its maximum. The window limits
/// how far back data may refer.
const WINDOW_LOG: std::ops::RangeInclusive<u32> = 27..=31;

/// The logarithm of the largest window allowed for data of this size. The decoder allocates the
/// window first, so small data must not request a large one.
pub fn window_log(plain_size: u64) -> u32 {
    (u64::BITS - plain_size.leading_zeros()).clamp(*WINDOW_LOG.start(), *WINDOW_LOG.end())
}

/// The header of a compressed bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// The version: 1, 2 or 3.
    pub version: u16,
    /// The compression method.
    pub method: Method,
    /// The size of the compressed bundle, including the header. Version 1 does not store it.
    pub total: Option<u64>,
    /// The size after decompression.
    pub plain_size: u64,
    /// The first 8 bytes of the MD5 of the uncompressed data, as a little-endian number.
    pub hash: u64,
    /// The size of the header.
    pub size: u64,
}

impl Header {
    /// The size of the longest header.
    pub const LONGEST: u64 = 32;

    /// Reads the header at the start of `start`. Errors have the offset `at`.
    pub fn read(start: &[u8], at: u64) -> Result<Header, Malformed> {
        let fault = |what| Malformed::new(what, at);
        if !start.starts_with(MAGIC) {
            return Err(fault("not a compressed bundle"));
        }
        let field =
            |offset, len| slice(start, offset, len, "header past the end", at).map(little_endian);
        let version = field(4, 2)? as u16;
        let method = match field(6, 2)? {
            0 => Method::Zlib,
            1 => Method::Zstd,
            _ => return Err(fault("unknown compression method")),
        };
        let (size, total, plain_size, hash) = match version {
            1 => (20, None, field(8, 4)?, field(12, 8)?),
            2 => (24, Some(field(8, 4)?), field(12, 4)?, field(16, 8)?),
            3 => (32, Some(field(8, 8)?), field(16, 8)?, field(24, 8)?),
            _ => return Err(fault("unsupported compressed bundle version")),
        };
        if total.is_some_and(|total| total < size) {
            return Err(fault("size field too small"));
        }
        Ok(Header {
            version,
            method,
            total,
            plain_size,
            hash,
            size,
        })
    }

    /// Returns the stored form of the header.
    ///
    /// # Errors
    /// The version is unknown, or a size does not fit into its field.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let method: u16 = if self.method == Method::Zstd { 1 } else { 0 };
        let mut bytes = MAGIC.to_vec();
        [self.version, method]
            .iter()
            .for_each(|field| bytes.extend(field.to_le_bytes()));
        let total = self.total.unwrap_or(0);
        let short = |size: u64, what: &str| {
            let limit = || Error::other(format!("{what} exceeds version {} limit", self.version));
            u32::try_from(size)
                .map(u32::to_le_bytes)
                .map_err(|_| limit())
        };
        let plain_size = || short(self.plain_size, "Uncompressed size");
        match self.version {
            1 => bytes.extend(plain_size()?),
            2 => bytes.extend([short(total, "Total file size")?, plain_size()?].concat()),
            3 => bytes.extend([total, self.plain_size].map(u64::to_le_bytes).concat()),
            _ => return Err(Error::other("unsupported compressed bundle version")),
        }
        bytes.extend(self.hash.to_le_bytes());
        Ok(bytes)
    }

    /// Whether `packed` bytes of compressed data can expand to the size in the header.
    pub fn is_likely(&self, packed: u64) -> bool {
        self.plain_size <= packed.saturating_mul(MAX_GROWTH)
    }
}

/// A reader of the decompressed data of a compressed bundle. If size or hash differ from the
/// header, the last read fails instead of returning the end. The data read before must not be used
/// then.
pub struct Unpack<R: BufRead> {
    stream: Stream<R>,
    header: Header,
    /// The offset of the compressed data, for errors.
    at: u64,
    left: u64,
    /// `None` after the check at the end.
    hash: Option<Hasher>,
}

impl<R: BufRead> std::fmt::Debug for Unpack<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpack")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl<R: BufRead> Unpack<R> {
    /// Returns a reader of the data after `header`, which `packed` yields. `at` is the offset of
    /// the header, for errors.
    pub fn new(header: Header, packed: R, at: u64) -> Result<Self, Malformed> {
        let at = at.saturating_add(header.size);
        let stream =
            Stream::new(&header, packed).map_err(|_| Malformed::new("cannot decompress", at))?;
        Ok(Unpack {
            stream,
            header,
            at,
            left: header.plain_size,
            hash: Some(Hasher::new(header.plain_size)),
        })
    }

    /// The source of the compressed data. After the last read, it is positioned at the end of that
    /// data.
    pub fn get_ref(&self) -> &R {
        match &self.stream {
            Stream::Zlib(decoder) => decoder.get_ref(),
            Stream::Zstd(decoder) => decoder.get_ref(),
        }
    }

    /// The number of uncompressed bytes read so far.
    pub fn position(&self) -> u64 {
        self.header.plain_size - self.left
    }

    fn fault(&self, what: &'static str) -> io::Error {
        Malformed::new(what, self.at).into()
    }

    /// Compares size and hash with the header at the end of the data.
    fn check(&mut self) -> io::Result<()> {
        let Some(hash) = self.hash.take() else {
            return Ok(());
        };
        if self.left > 0 {
            return Err(self.fault("less data than the header states"));
        }
        if hash.finish()? != self.header.hash {
            return Err(self.fault("the data does not match its hash"));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Unpack<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.stream {
            Stream::Zlib(decoder) => decoder.read(buffer),
            Stream::Zstd(decoder) => decoder.read(buffer),
        };
        let len = read.map_err(|_| self.fault("cannot decompress"))?;
        if len == 0 && !buffer.is_empty() {
            self.check()?;
        }
        self.left = self
            .left
            .checked_sub(len as u64)
            .ok_or_else(|| self.fault("more data than the header states"))?;
        if let Some(hash) = &mut self.hash {
            hash.update(buffer.get(..len).unwrap_or_default());
        }
        Ok(len)
    }
}

enum Stream<R: BufRead> {
    Zlib(flate2::bufread::ZlibDecoder<R>),
    Zstd(zstd::stream::read::Decoder<'static, R>),
}

impl<R: BufRead> Stream<R> {
    fn new(header: &Header, packed: R) -> io::Result<Self> {
        Ok(match header.method {
            Method::Zlib => Stream::Zlib(flate2::bufread::ZlibDecoder::new(packed)),
            Method::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?.single_frame();
                decoder.window_log_max(window_log(header.plain_size))?;
                Stream::Zstd(decoder)
            }
        })
    }
}
