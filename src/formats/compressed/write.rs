//! Writes compressed bundles as a stream: the header, which says how long the data has become, is filled in at the end.

use super::MAGIC;
use super::hash::Hasher;
use anyhow::{Result, bail};
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use zstd::zstd_safe::CParameter;

/// The header that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// What LLVM 19 to 21 write: sizes have 32 bits.
    V2,
    /// What LLVM 22 writes.
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
pub struct Options {
    /// The header.
    pub version: Version,
    /// zstd's level; what it does not have is the nearest that it has.
    pub level: i32,
    /// How many threads work at large data. The result is the same with any number.
    pub workers: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { version: Version::V3, level: 3, workers: 1 }
    }
}

/// Compresses what is written to it. Without `finish`, what it has written is no compressed bundle.
pub struct Compressor<W: Write> {
    encoder: zstd::stream::write::Encoder<'static, W>,
    options: Options,
    /// Where the header stands in the output.
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

/// How far back data is looked for that comes again: over all of the plain data, so that code objects of several targets share what
/// is the same in them, as far as memory allows (readers that decompress at once, as LLVM's and HIP's, know no limit). The window is in
/// memory here.
fn window_log(plain_size: u64, level: i32) -> u32 {
    // Whoever asks for such a level has the memory: zstd calls them ultra.
    let longest = if level >= ULTRA { 31 } else { 28 };
    let wanted = plain_size.checked_next_power_of_two().map_or(longest, u64::trailing_zeros);
    wanted.clamp(LLVM_WINDOW_LOG, longest)
}

/// What LLVM's bundler has; zstd makes it smaller for small data.
const LLVM_WINDOW_LOG: u32 = 27;
/// The first of zstd's levels that take much memory.
const ULTRA: i32 = 20;

/// What a worker is given at a time. Of its own zstd gives 2 MiB, where each start costs time and size; above level 12 it gives tens of
/// MiB: too much for many workers to have some, and for whoever stops it to wait for.
const JOB: u32 = 8 << 20;

/// Up to this level zstd is fast, and looking for what comes again takes half of its time. It takes a sixth of that less when only two places
/// are remembered for each hash instead of sixteen, and what large data loses by that it gains by larger jobs.
const FAST: i32 = 4;
const LARGE: u64 = 64 << 20;
const TWO_PLACES: u32 = 1;

impl<W: Write + Seek> Compressor<W> {
    /// A compressor for data of `plain_size` bytes; its output starts where `out` stands.
    pub fn new(mut out: W, plain_size: u64, options: Options) -> Result<Self> {
        if options.version == Version::V2 && plain_size > u64::from(u32::MAX) {
            bail!("Uncompressed size exceeds version 2 limit");
        }
        let start = out.stream_position()?;
        let header = vec![0; options.version.header_size() as usize];
        out.write_all(&header)?;
        let mut encoder = zstd::stream::write::Encoder::new(out, options.level)?;
        encoder.long_distance_matching(true)?;
        encoder.window_log(window_log(plain_size, options.level))?;
        encoder.set_pledged_src_size(Some(plain_size))?;
        encoder.include_contentsize(true)?;
        // With no worker zstd splits its work otherwise than with some.
        encoder.multithread(options.workers.max(1))?;
        encoder.set_parameter(CParameter::JobSize(JOB))?;
        if options.level <= FAST && plain_size >= LARGE {
            encoder.set_parameter(CParameter::LdmBucketSizeLog(TWO_PLACES))?;
        }
        Ok(Compressor { encoder, options, start, plain_size, left: plain_size, hash: Hasher::new(plain_size) })
    }

    /// Writes what is left, then the header. All of the data must have been written.
    pub fn finish(self) -> Result<W> {
        if self.left > 0 {
            bail!("the data to be compressed ends {} bytes early", self.left);
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
                let Ok(short) = u32::try_from(total) else { bail!("Total file size exceeds version 2 limit") };
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
pub fn compress(plain: &[u8], options: Options) -> Result<Vec<u8>> {
    let mut compressor = Compressor::new(Cursor::new(Vec::new()), plain.len() as u64, options)?;
    compressor.write_all(plain)?;
    Ok(compressor.finish()?.into_inner())
}
