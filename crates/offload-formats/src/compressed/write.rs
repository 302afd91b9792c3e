//! Writes compressed bundles as a stream. The header contains the compressed size, so it is filled
//! in at the end.

use super::{Hasher, Header, Method};
use crate::error::Error;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use zstd::zstd_safe::CParameter;

/// The version of the format to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// Version 1, of LLVM 18. It does not store the compressed size. Readers of later versions
    /// accept it.
    V1,
    /// Version 2, of LLVM 19 to 21, with 32-bit sizes.
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

    /// The version with this number in headers.
    pub fn of(number: u16) -> Option<Self> {
        [Version::V1, Version::V2, Version::V3]
            .into_iter()
            .find(|version| version.number() == number)
    }
}

/// Settings for compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The version of the format.
    pub version: Version,
    /// The method. Every reader accepts zlib. HIP and packaged LLVM releases accept zstd too.
    pub method: Method,
    /// The level of the method. A level outside of the method's range is replaced by the nearest
    /// one.
    pub level: i32,
    /// The number of threads for large data, or 0 to compress in the caller's thread. zstd fails if
    /// it cannot start threads. Any number except 0 gives the same output; with 0, zstd divides the
    /// data differently. zlib uses no threads.
    pub workers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            version: Version::V3,
            method: Method::Zstd,
            level: 3,
            workers: 1,
        }
    }
}

/// Compresses the data that is written to it. The output is only valid after `finish`.
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
        f.debug_struct("Compressor")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The logarithm of the window for data of this size. The window covers all data if memory allows,
/// so that content shared by code objects of several targets is stored once. The compressor holds
/// the window in memory. One-shot readers, such as those of LLVM and HIP, do not limit it.
fn window_log(plain_size: u64, level: i32) -> u32 {
    // Users who choose the highest levels, which zstd calls ultra, have the memory.
    let longest = if level >= ULTRA { 31 } else { 28 };
    let wanted = plain_size
        .checked_next_power_of_two()
        .map_or(longest, u64::trailing_zeros);
    wanted.clamp(LLVM_WINDOW_LOG, longest)
}

/// The logarithm of the window that LLVM's bundler uses. zstd reduces it for small data.
const LLVM_WINDOW_LOG: u32 = 27;
/// The first zstd level that needs much memory.
const ULTRA: i32 = 20;

/// The size of a worker's job. zstd's default is 2 MiB at low levels, where each job costs time and
/// size. Above level 12 it is tens of MiB, which is too large to keep many workers busy and makes
/// cancellation slow.
const JOB: u32 = 8 << 20;

/// Up to the level `FAST`, long-distance matching takes half of zstd's time. For data of `LARGE`
/// bytes or more, two candidates per hash instead of sixteen save a sixth of this time. Larger jobs
/// make up for the lost compression.
const FAST: i32 = 4;
const LARGE: u64 = 64 << 20;
const TWO_CANDIDATES: u32 = 1;

/// Returns a zstd encoder for data of `plain_size` bytes, which writes one frame to `out`.
/// `workers`: see [`Options`].
pub(crate) fn encoder<W: Write>(
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
        encoder.set_parameter(CParameter::LdmBucketSizeLog(TWO_CANDIDATES))?;
    }
    Ok(encoder)
}

impl<W: Write + Seek> Compressor<W> {
    /// A compressor for data of `plain_size` bytes. Its output starts at the current position of
    /// `out`.
    pub fn new(mut out: W, plain_size: u64, options: Options) -> Result<Self, Error> {
        if options.version != Version::V3 && plain_size > u64::from(u32::MAX) {
            return Err(Error::other(format!(
                "Uncompressed size exceeds version {} limit",
                options.version.number()
            )));
        }
        let start = out.stream_position()?;
        let header = vec![0; options.version.header_size() as usize];
        out.write_all(&header)?;
        let encoder = match options.method {
            Method::Zlib => {
                let level = flate2::Compression::new(options.level.clamp(0, 9).unsigned_abs());
                Encoder::Zlib(flate2::write::ZlibEncoder::new(out, level))
            }
            Method::Zstd => {
                Encoder::Zstd(encoder(out, plain_size, options.level, options.workers)?)
            }
        };
        Ok(Compressor {
            encoder,
            options,
            start,
            plain_size,
            left: plain_size,
            hash: Hasher::new(plain_size),
        })
    }

    /// Writes the rest of the output, then the header. All data must have been written before.
    pub fn finish(self) -> Result<W, Error> {
        if self.left > 0 {
            return Err(Error::other(format!(
                "the data to be compressed ends {} bytes early",
                self.left
            )));
        }
        let mut out = match self.encoder {
            Encoder::Zlib(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        let end = out.stream_position()?;
        let Options {
            version, method, ..
        } = self.options;
        let (plain_size, hash) = (self.plain_size, self.hash.finish()?);
        let size = version.header_size();
        let header = Header {
            version: version.number(),
            method,
            total: Some(end - self.start),
            plain_size,
            hash,
            size,
        };
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
            return Err(io::Error::other("more data to be compressed than expected"));
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

/// Compresses `plain` in memory.
pub fn compress(plain: &[u8], options: Options) -> Result<Vec<u8>, Error> {
    let mut compressor = Compressor::new(Cursor::new(Vec::new()), plain.len() as u64, options)?;
    compressor.write_all(plain)?;
    Ok(compressor.finish()?.into_inner())
}
