//! Writes compressed bundles as a stream. The header has the compressed size, so it is filled in at the end.

use super::MAGIC;
use super::hash::Hasher;
use crate::error::Error;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use zstd::zstd_safe::CParameter;

/// The version of the format to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// Version 2, of LLVM 19 to 21: sizes have 32 bits.
    V2,
    /// Version 3, of LLVM 22.
    V3,
}

impl Version {
    fn header_size(self) -> u64 {
        match self {
            Version::V2 => 24,
            Version::V3 => 32,
        }
    }
}

/// How to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The version of the format.
    pub version: Version,
    /// zstd's level. A level that zstd does not have is replaced by the nearest.
    pub level: i32,
    /// The number of threads for large data; 0: all is done on the caller's. zstd fails where it cannot start them. The output is
    /// the same for any number but 0, for which zstd divides the data in another way.
    pub workers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { version: Version::V3, level: 3, workers: 1 }
    }
}

/// Compresses the data that is written to it. The output is valid only after `finish`.
pub struct Compressor<W: Write> {
    encoder: zstd::stream::write::Encoder<'static, W>,
    options: Options,
    /// The position of the header in the output.
    start: u64,
    plain_size: u64,
    left: u64,
    hash: Hasher,
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

impl<W: Write + Seek> Compressor<W> {
    /// A compressor for data of `plain_size` bytes; its output starts at the position of `out`.
    pub fn new(mut out: W, plain_size: u64, options: Options) -> Result<Self, Error> {
        if options.version == Version::V2 && plain_size > u64::from(u32::MAX) {
            return Err(Error::other("Uncompressed size exceeds version 2 limit"));
        }
        let start = out.stream_position()?;
        let header = vec![0; options.version.header_size() as usize];
        out.write_all(&header)?;
        let mut encoder = zstd::stream::write::Encoder::new(out, options.level)?;
        encoder.long_distance_matching(true)?;
        encoder.window_log(window_log(plain_size, options.level))?;
        encoder.set_pledged_src_size(Some(plain_size))?;
        encoder.include_contentsize(true)?;
        if options.workers > 0 {
            encoder.multithread(options.workers)?;
            encoder.set_parameter(CParameter::JobSize(JOB))?;
        }
        if options.level <= FAST && plain_size >= LARGE {
            encoder.set_parameter(CParameter::LdmBucketSizeLog(TWO_PLACES))?;
        }
        Ok(Compressor { encoder, options, start, plain_size, left: plain_size, hash: Hasher::new(plain_size) })
    }

    /// Writes the rest of the output, then the header. All data must have been written before.
    pub fn finish(self) -> Result<W, Error> {
        if self.left > 0 {
            return Err(Error::other(format!("the data to be compressed ends {} bytes early", self.left)));
        }
        let mut out = self.encoder.finish()?;
        let end = out.stream_position()?;
        let total = end - self.start;
        let mut header = MAGIC.to_vec();
        let hash = self.hash.finish()?;
        let version: u16 = if self.options.version == Version::V2 { 2 } else { 3 };
        let zstd: u16 = 1;
        [version, zstd].iter().for_each(|field| header.extend(field.to_le_bytes()));
        match self.options.version {
            Version::V2 => {
                let short = u32::try_from(total).map_err(|_| Error::other("Total file size exceeds version 2 limit"))?;
                header.extend(short.to_le_bytes());
                header.extend((self.plain_size as u32).to_le_bytes());
            }
            Version::V3 => [total, self.plain_size].iter().for_each(|field| header.extend(field.to_le_bytes())),
        }
        header.extend(hash.to_le_bytes());
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
        let written = self.encoder.write(bytes)?;
        let (done, _) = bytes.split_at(written);
        self.hash.update(done);
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }
}

/// `plain`, compressed in memory.
pub fn compress(plain: &[u8], options: Options) -> Result<Vec<u8>, Error> {
    let mut compressor = Compressor::new(Cursor::new(Vec::new()), plain.len() as u64, options)?;
    compressor.write_all(plain)?;
    Ok(compressor.finish()?.into_inner())
}
