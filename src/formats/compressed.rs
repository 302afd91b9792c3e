//! Compressed offload bundles (`CCOB`, docs/spec/containers.md 2.13). Reads versions 1 to 3, with
//! zlib or zstd, and writes them as a stream.
//!
//! A bundle ends at the size in its header, so several may follow each other. The hash is verified:
//! damaged data is an error, while LLVM 22 passes it on. The contents may be a bundle or any other
//! data.
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

use super::{bundle, slice, zeros};
use crate::error::{Error, Malformed};
use std::borrow::Cow;
use std::io::{Read, Write};

/// The first four bytes.
pub use super::magic::COMPRESSED_BUNDLE as MAGIC;

const CHUNK: usize = 128 << 10;

/// The compression method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
    fn malformed(&self, error: &std::io::Error) -> Malformed {
        Malformed::of(error).unwrap_or(self.fault("cannot decompress"))
    }

    /// The length of the compressed data in `packed`, for headers that do not store it.
    fn used(&self) -> Result<usize, Malformed> {
        match self.method {
            Method::Zstd => zstd::zstd_safe::find_frame_compressed_size(self.packed)
                .map_err(|_| self.fault("cannot decompress")),
            Method::Zlib => {
                let mut reader = self.reader()?;
                std::io::copy(&mut reader, &mut std::io::sink())
                    .map_err(|error| self.malformed(&error))?;
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
