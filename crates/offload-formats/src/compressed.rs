//! Compressed offload bundles (`CCOB`, docs/spec/containers.md 2.13). Reads versions 1 to 3, with
//! zlib or zstd, and writes them as a stream.
//!
//! A bundle ends at the size in its header, so several may follow each other. The hash is verified:
//! damaged data is an error, while LLVM 22 passes it on. The contents may be a bundle or any other
//! data.
//!
//! ```
//! use offload_formats::compressed::{Options, compress, read_at};
//!
//! let plain = vec![7; 100_000];
//! let packed = compress(&plain, Options::default())?;
//! assert!(packed.len() < 1000);
//! assert_eq!(read_at(&packed, 0)?.unpack()?, plain);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod tests;

/// The first four bytes.
pub use super::magic::numbers::COMPRESSED_BUNDLE as MAGIC;

use std::borrow::Cow;
use std::io::{self, BufRead, Cursor, Read, Seek, SeekFrom, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use md5::{Digest, Md5};
use zstd::zstd_safe::CParameter;

use super::bundle;
use crate::bytes::{little_endian, slice, u64_at, zeros};
use crate::error::{Error, Malformed};

const CHUNK: usize = 128 << 10;

/// The compression method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// zlib (RFC 1950).
    Zlib,
    /// A single zstd frame.
    Zstd,
}

/// A compressed bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compressed<'a> {
    /// The version of the header: 1, 2 or 3.
    pub version: u16,
    /// The compression method.
    pub method: Method,
    /// The size after decompression.
    pub plain_size: u64,
    /// The first 8 bytes of the MD5 of the uncompressed data, as a little-endian number.
    pub hash: u64,
    /// The offset of the bundle in the reader's data.
    pub at: u64,
    /// The size, including the header.
    pub size: u64,
    packed: &'a [u8],
}

/// Whether `data` starts with a compressed bundle.
pub fn is_compressed(data: &[u8]) -> bool {
    data.starts_with(MAGIC)
}

/// Reads the header of the compressed bundle at offset `at` of `data`. Any data may follow the
/// bundle. Version 1 does not store the compressed size; then the compressed data is read to its
/// end.
pub fn read_at(data: &[u8], at: u64) -> Result<Compressed<'_>, Malformed> {
    let rest = slice(
        data,
        at,
        (data.len() as u64).saturating_sub(at),
        "compressed bundle past the end",
        at,
    )?;
    let fault = |what| Malformed::new(what, at);
    if !is_compressed(rest) {
        return Err(fault("not a compressed bundle"));
    }
    let Header {
        version,
        method,
        total,
        plain_size,
        hash,
        size: header,
    } = Header::read(rest, at)?;
    let whole = match total {
        Some(total) => slice(rest, 0, total, "size field past the end", at)?,
        None => rest,
    };
    let packed = whole
        .get(header as usize..)
        .ok_or(fault("size field too small"))?;
    let mut read = Compressed {
        version,
        method,
        plain_size,
        hash,
        at,
        size: whole.len() as u64,
        packed,
    };
    if !Header::read(rest, at)?.is_likely(packed.len() as u64) {
        return Err(read.fault("uncompressed size is more than the compressed data can hold"));
    }
    if total.is_none() {
        let used = read.used()?;
        read.packed = packed.get(..used).ok_or(read.fault("cannot decompress"))?;
        read.size = header + used as u64;
    }
    Ok(read)
}

/// Returns the bundles in `data`, compressed or not, in order and decompressed. Linkers merge
/// several into one section, with only zeros between them.
pub fn unpack_all(data: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, Malformed> {
    let mut bundles = Vec::new();
    let mut at = 0;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        let (size, plain) = if is_compressed(rest) {
            let read = read_at(data, at as u64)?;
            (read.size as usize, Cow::Owned(read.unpack()?))
        } else {
            let size = bundle::read_at(data, at as u64)?.size;
            (
                size as usize,
                Cow::Borrowed(slice(rest, 0, size, "bundle past the end", at as u64)?),
            )
        };
        bundles.push(plain);
        at += size + zeros(rest.get(size..).unwrap_or_default());
    }
    Ok(bundles)
}

impl Compressed<'_> {
    /// The size of the compressed data, without the header.
    pub fn packed_size(&self) -> u64 {
        self.packed.len() as u64
    }

    /// Decompresses the data. A size or hash that differs from the header is an error.
    pub fn unpack(&self) -> Result<Vec<u8>, Malformed> {
        let mut plain = Vec::new();
        self.pump(|bytes| {
            plain.extend_from_slice(bytes);
            Ok::<(), Malformed>(())
        })?;
        Ok(plain)
    }

    /// Writes the decompressed data. The hash is checked at the end, so an error may come after all
    /// data has been written.
    pub fn unpack_to(&self, out: &mut impl Write) -> Result<(), Error> {
        self.pump(|bytes| Ok::<(), Error>(out.write_all(bytes)?))
    }

    /// Passes the decompressed data to `sink` in chunks.
    fn pump<E: From<Malformed>>(
        &self,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = self.reader()?;
        let mut buffer = vec![0; CHUNK];
        loop {
            let len = reader
                .read(&mut buffer)
                .map_err(|error| self.malformed(&error))?;
            let Some(bytes) = buffer.get(..len).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            sink(bytes)?;
        }
        if !reader.get_ref().is_empty() {
            return Err(self.fault("bytes after the compressed data").into());
        }
        Ok(())
    }

    fn reader(&self) -> Result<Unpack<&[u8]>, Malformed> {
        let Compressed {
            version,
            method,
            plain_size,
            hash,
            ..
        } = *self;
        let size = self.size - self.packed.len() as u64;
        Unpack::new(
            Header {
                version,
                method,
                total: Some(self.size),
                plain_size,
                hash,
                size,
            },
            self.packed,
            self.at,
        )
    }

    /// Converts an error of the reader to a format error.
    fn malformed(&self, error: &io::Error) -> Malformed {
        Malformed::of(error).unwrap_or(self.fault("cannot decompress"))
    }

    /// The length of the compressed data in `packed`, for headers that do not store it.
    fn used(&self) -> Result<usize, Malformed> {
        match self.method {
            Method::Zstd => zstd::zstd_safe::find_frame_compressed_size(self.packed)
                .map_err(|_| self.fault("cannot decompress")),
            Method::Zlib => {
                let mut reader = self.reader()?;
                io::copy(&mut reader, &mut io::sink()).map_err(|error| self.malformed(&error))?;
                Ok(self.packed.len() - reader.get_ref().len())
            }
        }
    }

    /// A fault at the offset of the compressed data.
    fn fault(&self, what: &'static str) -> Malformed {
        Malformed::new(
            what,
            self.at.saturating_add(self.size - self.packed.len() as u64),
        )
    }
}

// Reads compressed bundles as a stream: the header, then the decompressed data. Size and hash are
// compared with the header at the end.

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

// The hash of a compressed bundle's uncompressed data. For large data, a second thread computes it,
// because hashing takes longer than decompression.

/// The smallest data size for which a thread is started.
const THREAD_MIN: u64 = 4 << 20;
/// The size of the blocks passed to the thread, and the length of its queue.
const BLOCK: usize = 512 << 10;
const QUEUE: usize = 4;

/// Computes the hash of data that is passed in order.
struct Hasher(Place);

enum Place {
    /// In the caller's thread.
    Caller(Md5),
    /// In a separate thread.
    Thread(Thread),
}

struct Thread {
    block: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    /// Hashed blocks, for reuse.
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<Md5>,
}

impl Hasher {
    /// A hasher for about `size` bytes.
    fn new(size: u64) -> Self {
        let alone = size < THREAD_MIN
            || std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        let thread_hash = if alone { None } else { Thread::new() };
        Hasher(thread_hash.map_or_else(|| Place::Caller(Md5::new()), Place::Thread))
    }

    fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Place::Caller(hash) => hash.update(bytes),
            Place::Thread(thread_hash) => thread_hash.update(bytes),
        }
    }

    /// Returns the hash as headers store it: the first 8 bytes of the MD5, as a little-endian
    /// number.
    fn finish(self) -> io::Result<u64> {
        let hash = match self.0 {
            Place::Caller(hash) => hash,
            Place::Thread(thread_hash) => thread_hash.finish()?,
        };
        Ok(u64_at(&hash.finalize(), 0))
    }
}

impl Thread {
    /// `None` if no thread can be started.
    fn new() -> Option<Self> {
        let (full, filled) = sync_channel::<Vec<u8>>(QUEUE);
        let (emptied, empty) = sync_channel(QUEUE + 2);
        let work = move || {
            let mut hash = Md5::new();
            for mut block in filled {
                hash.update(&block);
                block.clear();
                // The receiver may have been dropped after an error.
                let _ = emptied.try_send(block);
            }
            hash
        };
        let thread = std::thread::Builder::new()
            .name("hash".to_owned())
            .spawn(work)
            .ok()?;
        Some(Thread {
            block: Vec::with_capacity(BLOCK),
            full,
            empty,
            thread,
        })
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                let next = self
                    .empty
                    .try_recv()
                    .unwrap_or_else(|_| Vec::with_capacity(BLOCK));
                // Sending only fails if the thread has failed, which `finish` reports.
                let _ = self.full.send(std::mem::replace(&mut self.block, next));
            }
        }
    }

    fn finish(self) -> io::Result<Md5> {
        let _ = self.full.send(self.block);
        drop(self.full);
        self.thread
            .join()
            .map_err(|_| io::Error::other("the hashing thread failed"))
    }
}

// Writes compressed bundles as a stream. The header contains the compressed size, so it is filled
// in at the end.

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
fn window_log_of(plain_size: u64, level: i32) -> u32 {
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
    encoder.window_log(window_log_of(plain_size, level))?;
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
