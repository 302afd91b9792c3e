//! Compressed offload bundles (`CCOB`, docs/spec/containers.md 2.13): versions 1 to 3 are read, with zlib or zstd, each bounded
//! by its own size so that several may follow one another; and written, as a stream. The hash is verified: damaged data is an error,
//! where LLVM 22 passes it on.
//!
//! What is inside is not looked at here: it is a bundle, or anything else.
//!
//! ```
//! use offld::formats::compressed::{Options, compress, read_at};
//!
//! let plain = vec![7; 100_000];
//! let packed = compress(&plain, Options::default())?;
//! assert!(packed.len() < 1000);
//! assert_eq!(read_at(&packed, 0)?.unpack()?, plain);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod hash;
mod stream;
mod write;

#[cfg(test)]
mod tests;

pub use stream::{Header, Unpack, window_log};
pub(in crate::formats) use write::encoder;
pub use write::{Compressor, Options, Version, compress};

use super::{bundle, slice};
use crate::error::{Error, Malformed};
use std::borrow::Cow;
use std::io::{Read, Write};

/// The first four bytes.
pub use super::magic::COMPRESSED_BUNDLE as MAGIC;

const CHUNK: usize = 128 << 10;

/// How data is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// RFC 1950.
    Zlib,
    /// One frame.
    Zstd,
}

/// A compressed bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compressed<'a> {
    /// The version of the header: 1, 2 or 3.
    pub version: u16,
    /// How it is compressed.
    pub method: Method,
    /// The size of the decompressed data.
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

/// The header of the compressed bundle that starts `at` bytes into `data`, whatever follows it. Version 1 does not store its
/// size, which is found by reading the compressed data to its end.
pub fn read_at(data: &[u8], at: u64) -> Result<Compressed<'_>, Malformed> {
    let rest = slice(data, at, (data.len() as u64).saturating_sub(at), "compressed bundle past the end", at)?;
    let fault = |what| Malformed::new(what, at);
    if !is_compressed(rest) {
        return Err(fault("not a compressed bundle"));
    }
    let Header { version, method, total, plain_size, hash, size: header } = Header::read(rest, at)?;
    let whole = match total {
        Some(total) => slice(rest, 0, total, "size field past the end", at)?,
        None => rest,
    };
    let packed = whole.get(header as usize..).ok_or(fault("size field too small"))?;
    let mut read = Compressed { version, method, plain_size, hash, at, size: whole.len() as u64, packed };
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
            let size = bundle::read_at(data, at as u64)?.size;
            (size as usize, Cow::Borrowed(slice(rest, 0, size, "bundle past the end", at as u64)?))
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

    /// The decompressed data. A size or hash that differs from the header's is an error.
    pub fn unpack(&self) -> Result<Vec<u8>, Malformed> {
        let mut plain = Vec::new();
        self.pump(|bytes| {
            plain.extend_from_slice(bytes);
            Ok::<(), Malformed>(())
        })?;
        Ok(plain)
    }

    /// Writes the plain data. An error may come after all of it has been written, because the hash is known only then.
    pub fn unpack_to(&self, out: &mut impl Write) -> Result<(), Error> {
        self.pump(|bytes| Ok::<(), Error>(out.write_all(bytes)?))
    }

    /// Passes the decompressed data to `sink` in chunks.
    fn pump<E: From<Malformed>>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut reader = self.reader()?;
        let mut buffer = vec![0; CHUNK];
        loop {
            let len = reader.read(&mut buffer).map_err(|error| self.malformed(&error))?;
            let Some(bytes) = buffer.get(..len).filter(|bytes| !bytes.is_empty()) else { break };
            sink(bytes)?;
        }
        if !reader.get_ref().is_empty() {
            return Err(self.fault("bytes after the compressed data").into());
        }
        Ok(())
    }

    fn reader(&self) -> Result<Unpack<&[u8]>, Malformed> {
        let Compressed { version, method, plain_size, hash, .. } = *self;
        let size = self.size - self.packed.len() as u64;
        Unpack::new(Header { version, method, total: Some(self.size), plain_size, hash, size }, self.packed, self.at)
    }

    /// The format error for an error of the reader.
    fn malformed(&self, error: &std::io::Error) -> Malformed {
        Malformed::of(error).unwrap_or(self.fault("cannot decompress"))
    }

    /// How many bytes of `packed` are compressed data, where only the data itself says.
    fn used(&self) -> Result<usize, Malformed> {
        match self.method {
            Method::Zstd => zstd::zstd_safe::find_frame_compressed_size(self.packed).map_err(|_| self.fault("cannot decompress")),
            Method::Zlib => {
                let mut reader = self.reader()?;
                std::io::copy(&mut reader, &mut std::io::sink()).map_err(|error| self.malformed(&error))?;
                Ok(self.packed.len() - reader.get_ref().len())
            }
        }
    }

    /// A fault of the compressed data.
    fn fault(&self, what: &'static str) -> Malformed {
        Malformed::new(what, self.at.saturating_add(self.size - self.packed.len() as u64))
    }
}
