//! Writes compressed bundles as a stream. The header has the compressed size, so it is filled in at the end.

use super::hash::Hasher;
use super::{Header, Method};
use crate::error::Error;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use zstd::zstd_safe::CParameter;

/// The version of the format to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// Version 1, of LLVM 18: does not say how large the compressed data is. Readers of later versions take it, too.
    V1,
    /// Version 2, of LLVM 19 to 21: sizes have 32 bits.
    V2,
    /// Version 3, of LLVM 22.
    V3,
}

impl Version {
    fn header_size(self) -> u64 {
        match self {
            Version::V1 => 20,
            Version::V2 => 24,
            Version::V3 => 32,
        }
    }

    fn number(self) -> u16 {
        match self {
            Version::V1 => 1,
            Version::V2 => 2,
            Version::V3 => 3,
        }
    }

    /// The version with this number, as headers have it.
    pub fn of(number: u16) -> Option<Self> {
        [Version::V1, Version::V2, Version::V3].into_iter().find(|version| version.number() == number)
    }
}

/// How to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The version of the format.
    pub version: Version,
    /// The method. Every reader of bundles takes zlib; those of HIP and LLVM as they are packaged take zstd as well.
    pub method: Method,
    /// The method's level. A level that it does not have is replaced by the nearest.
    pub level: i32,
    /// The number of threads for large data; 0: all is done on the caller's. zstd fails where it cannot start them. The output is
    /// the same for any number but 0, for which zstd divides the data in another way. zlib uses none.
    pub workers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { version: Version::V3, method: Method::Zstd, level: 3, workers: 1 }
    }
}

/// Compresses the data that is written to it. The output is valid only after `finish`.
pub struct Compressor<W: Write> {
    encoder: Encoder<W>,
    options: Options,
    /// The position of the header in the output.
    start: u64,
    plain_size: u64,
    left: u64,
    hash: Hasher,
}

enum Encoder<W: Write> {
    Zlib(flate2::write::ZlibEncoder<W>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
}

impl<W: Write> std::fmt::Debug for Compressor<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The logarithm of the window for data of this size: all of it if memory allows, so that equal parts in the code objects of
/// several targets are stored once. The window is in memory while compressing. Readers that decompress in one go, such as LLVM's
/// and HIP's, have no limit for it.
fn window_log(plain_size: u64, level: i32) -> u32 {
    // The highest levels, which zstd calls ultra, are chosen by users who have the memory.
    let longest = if level >= ULTRA { 31 } else { 28 };
    let wanted = plain_size.checked_next_power_of_two().map_or(longest, u64::trailing_zeros);
    wanted.clamp(LLVM_WINDOW_LOG, longest)
}

/// The logarithm of the window that LLVM's bundler uses; zstd makes it smaller for small data.
const LLVM_WINDOW_LOG: u32 = 27;
/// The first of zstd's levels that take much memory.
const ULTRA: i32 = 20;

/// The size of a worker's job. zstd's default is 2 MiB at low levels, where starting a job costs time and size, and tens of MiB
/// above level 12, which is too much to keep many workers busy and makes stopping slow.
const JOB: u32 = 8 << 20;

/// Up to this level zstd is fast, and the search for distant repetitions takes half of its time. Remembering two places for each
/// hash instead of sixteen saves a sixth of that; what large data loses in size by this, it gains by larger jobs.
const FAST: i32 = 4;
const LARGE: u64 = 64 << 20;
const TWO_PLACES: u32 = 1;

/// zstd as it is set here for data of `plain_size` bytes, which is written to `out` as one frame. `workers` is that of [`Options`].
pub(in crate::formats) fn encoder<W: Write>(
    out: W,
    plain_size: u64,
    level: i32,
    workers: u32,
) -> io::Result<zstd::stream::write::Encoder<'static, W>> {
    let mut encoder = zstd::stream::write::Encoder::new(out, level)?;
    encoder.long_distance_matching(true)?;
    encoder.window_log(window_log(plain_size, level))?;
    encoder.set_pledged_src_size(Some(plain_size))?;
    encoder.include_contentsize(true)?;
    if workers > 0 {
        encoder.multithread(workers)?;
        encoder.set_parameter(CParameter::JobSize(JOB))?;
    }
    if level <= FAST && plain_size >= LARGE {
        encoder.set_parameter(CParameter::LdmBucketSizeLog(TWO_PLACES))?;
    }
    Ok(encoder)
}

impl<W: Write + Seek> Compressor<W> {
    /// A compressor for data of `plain_size` bytes; its output starts at the position of `out`.
    pub fn new(mut out: W, plain_size: u64, options: Options) -> Result<Self, Error> {
        if options.version != Version::V3 && plain_size > u64::from(u32::MAX) {
            return Err(Error::other(format!("Uncompressed size exceeds version {} limit", options.version.number())));
        }
        let start = out.stream_position()?;
        let header = vec![0; options.version.header_size() as usize];
        out.write_all(&header)?;
        let encoder = match options.method {
            Method::Zlib => {
                let level = flate2::Compression::new(options.level.clamp(0, 9).unsigned_abs());
                Encoder::Zlib(flate2::write::ZlibEncoder::new(out, level))
            }
            Method::Zstd => Encoder::Zstd(encoder(out, plain_size, options.level, options.workers)?),
        };
        Ok(Compressor { encoder, options, start, plain_size, left: plain_size, hash: Hasher::new(plain_size) })
    }

    /// Writes the rest of the output, then the header. All data must have been written before.
    pub fn finish(self) -> Result<W, Error> {
        if self.left > 0 {
            return Err(Error::other(format!("the data to be compressed ends {} bytes early", self.left)));
        }
        let mut out = match self.encoder {
            Encoder::Zlib(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        let end = out.stream_position()?;
        let Options { version, method, .. } = self.options;
        let (plain_size, hash) = (self.plain_size, self.hash.finish()?);
        let size = version.header_size();
        let header = Header { version: version.number(), method, total: Some(end - self.start), plain_size, hash, size };
        let header = header.to_bytes()?;
        out.seek(SeekFrom::Start(self.start))?;
        out.write_all(&header)?;
        out.seek(SeekFrom::Start(end))?;
        Ok(out)
    }
}

impl<W: Write> Write for Compressor<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::other("more data to be compressed than was announced"));
        }
        let written = match &mut self.encoder {
            Encoder::Zlib(encoder) => encoder.write(bytes)?,
            Encoder::Zstd(encoder) => encoder.write(bytes)?,
        };
        let (done, _) = bytes.split_at(written);
        self.hash.update(done);
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::Zlib(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }
}

/// `plain`, compressed in memory.
pub fn compress(plain: &[u8], options: Options) -> Result<Vec<u8>, Error> {
    let mut compressor = Compressor::new(Cursor::new(Vec::new()), plain.len() as u64, options)?;
    compressor.write_all(plain)?;
    Ok(compressor.finish()?.into_inner())
}
