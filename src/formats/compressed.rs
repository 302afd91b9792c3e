//! Compressed offload bundles (`CCOB`, containers spec 2.13): versions 1 to 3 are read, with zlib or zstd, each bounded by its own
//! size so that several may follow one another; versions 2 and 3 are written, with zstd, as a stream. The hash is verified: damaged
//! data is an error, where LLVM 22 passes it on.
//!
//! What is inside is not looked at here: it is a bundle, or anything else.

mod write;

#[cfg(test)]
mod tests;

pub use write::{Compressor, Options, Version, compress};

use super::{bundle, slice};
use crate::error::Malformed;
use md5::{Digest, Md5};
use std::borrow::Cow;
use std::io::{Read, Write};

/// The first four bytes.
pub const MAGIC: &[u8] = b"CCOB";

/// No stream of zstd or zlib grows by more: a zstd block of 128 KiB takes at least 4 bytes. What claims more is a lie.
const MAX_GROWTH: u64 = 32 << 10;
/// How far back data may refer: what zstd allows at most. Memory for it is taken as it is used.
const MAX_WINDOW_LOG: u32 = 31;
const CHUNK: usize = 128 << 10;

/// How data is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// RFC 1950.
    Zlib,
    /// One frame.
    Zstd,
}

/// A compressed bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressed<'a> {
    /// The version of the header: 1, 2 or 3.
    pub version: u16,
    /// How it is compressed.
    pub method: Method,
    /// How large it is when it is not.
    pub plain_size: u64,
    /// The first 8 bytes of the MD5 of the plain data, as a little-endian number.
    pub hash: u64,
    /// Where it starts in the data the reader was given.
    pub at: u64,
    /// Its size with the header.
    pub size: u64,
    packed: &'a [u8],
}

/// Whether `data` starts as a compressed bundle does.
pub fn is_compressed(data: &[u8]) -> bool {
    data.starts_with(MAGIC)
}

/// The header of the compressed bundle that starts `at` bytes into `data`, whatever follows it. Version 1 does not say how long
/// it is, which is found by looking through it.
pub fn read_at(data: &[u8], at: u64) -> Result<Compressed<'_>, Malformed> {
    let rest = slice(data, at, (data.len() as u64).saturating_sub(at), "compressed bundle past the end", at)?;
    let fault = |what| Malformed::new(what, at);
    if !is_compressed(rest) {
        return Err(fault("not a compressed bundle"));
    }
    let field = |offset: u64, len: u64| -> Result<u64, Malformed> {
        let bytes = slice(rest, offset, len, "header past the end", at)?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let version = field(4, 2)? as u16;
    let method = match field(6, 2)? {
        0 => Method::Zlib,
        1 => Method::Zstd,
        _ => return Err(fault("unknown compression method")),
    };
    let (header, total, plain_size, hash) = match version {
        1 => (20, None, field(8, 4)?, field(12, 8)?),
        2 => (24, Some(field(8, 4)?), field(12, 4)?, field(16, 8)?),
        3 => (32, Some(field(8, 8)?), field(16, 8)?, field(24, 8)?),
        _ => return Err(fault("unsupported compressed bundle version")),
    };
    let whole = match total {
        Some(total) => slice(rest, 0, total, "size field past the end", at)?,
        None => rest,
    };
    let packed = whole.get(header..).ok_or(fault("size field too small"))?;
    let mut read = Compressed { version, method, plain_size, hash, at, size: whole.len() as u64, packed };
    if plain_size > (packed.len() as u64).saturating_mul(MAX_GROWTH) {
        return Err(read.fault("uncompressed size is more than the compressed data can hold"));
    }
    if total.is_none() {
        let used = read.used()?;
        read.packed = packed.get(..used).ok_or(read.fault("cannot decompress"))?;
        read.size = (header + used) as u64;
    }
    Ok(read)
}

/// What is in `data`, decompressed where it is compressed: bundles of both kinds, in order. Linkers put several into one section;
/// they may be apart by zeros, and by nothing else.
pub fn unpack_all(data: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, Malformed> {
    let mut bundles = Vec::new();
    let mut at = 0;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        let (size, plain) = if is_compressed(rest) {
            let read = read_at(data, at as u64)?;
            (read.size as usize, Cow::Owned(read.unpack()?))
        } else {
            let size = bundle::read_at(data, at as u64)?.size as usize;
            (size, Cow::Borrowed(&rest[..size]))
        };
        bundles.push(plain);
        at += size + bundle::zeros(rest.get(size..).unwrap_or_default());
    }
    Ok(bundles)
}

impl Compressed<'_> {
    /// The size of the compressed data, without the header.
    pub fn packed_size(&self) -> u64 {
        self.packed.len() as u64
    }

    /// The plain data. Its size and its hash are those that the header says.
    pub fn unpack(&self) -> Result<Vec<u8>, Malformed> {
        let mut plain = Vec::new();
        self.pump(|bytes| {
            plain.extend_from_slice(bytes);
            Ok::<(), Malformed>(())
        })?;
        Ok(plain)
    }

    /// Writes the plain data. An error may come after all of it has been written, because the hash is known only then.
    pub fn unpack_to(&self, out: &mut impl Write) -> anyhow::Result<()> {
        self.pump(|bytes| Ok::<(), anyhow::Error>(out.write_all(bytes)?))
    }

    /// Hands the plain data to `sink`, piece by piece.
    fn pump<E: From<Malformed>>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut reader = Reader::new(self)?;
        let mut buffer = vec![0; CHUNK];
        let mut left = self.plain_size;
        let mut hash = Md5::new();
        loop {
            let len = reader.read(&mut buffer).map_err(|_| self.fault("cannot decompress"))?;
            let Some(bytes) = buffer.get(..len).filter(|bytes| !bytes.is_empty()) else { break };
            left = left.checked_sub(len as u64).ok_or(self.fault("more data than the header says"))?;
            hash.update(bytes);
            sink(bytes)?;
        }
        if left > 0 {
            return Err(self.fault("less data than the header says").into());
        }
        if reader.unread() > 0 {
            return Err(self.fault("bytes after the compressed data").into());
        }
        if hash_of(hash) != self.hash {
            return Err(self.fault("the data does not match its hash").into());
        }
        Ok(())
    }

    /// How many bytes of `packed` are compressed data, where only the data itself says.
    fn used(&self) -> Result<usize, Malformed> {
        let fault = self.fault("cannot decompress");
        match self.method {
            Method::Zstd => zstd::zstd_safe::find_frame_compressed_size(self.packed).map_err(|_| fault),
            Method::Zlib => {
                let mut reader = Reader::new(self)?;
                let plain =
                    std::io::copy(&mut (&mut reader).take(self.plain_size + 1), &mut std::io::sink()).map_err(|_| fault)?;
                if plain > self.plain_size {
                    return Err(self.fault("more data than the header says"));
                }
                Ok(self.packed.len() - reader.unread())
            }
        }
    }

    /// A fault of the compressed data.
    fn fault(&self, what: &'static str) -> Malformed {
        Malformed::new(what, self.at.saturating_add(self.size - self.packed.len() as u64))
    }
}

/// The number that headers keep of an MD5.
fn hash_of(hash: Md5) -> u64 {
    hash.finalize().iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Decompresses one stream, and knows what it has not looked at.
enum Reader<'a> {
    Zlib(flate2::bufread::ZlibDecoder<&'a [u8]>),
    Zstd(zstd::stream::read::Decoder<'a, &'a [u8]>),
}

impl<'a> Reader<'a> {
    fn new(compressed: &Compressed<'a>) -> Result<Self, Malformed> {
        Ok(match compressed.method {
            Method::Zlib => Reader::Zlib(flate2::bufread::ZlibDecoder::new(compressed.packed)),
            Method::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed.packed)
                    .map_err(|_| compressed.fault("cannot decompress"))?
                    .single_frame();
                decoder.window_log_max(MAX_WINDOW_LOG).map_err(|_| compressed.fault("cannot decompress"))?;
                Reader::Zstd(decoder)
            }
        })
    }

    fn unread(&self) -> usize {
        match self {
            Reader::Zlib(decoder) => decoder.get_ref().len(),
            Reader::Zstd(decoder) => decoder.get_ref().len(),
        }
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Reader::Zlib(decoder) => decoder.read(buffer),
            Reader::Zstd(decoder) => decoder.read(buffer),
        }
    }
}
