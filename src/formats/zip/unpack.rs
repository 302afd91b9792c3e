//! Decompresses a member as a stream and compares size and checksum with the directory at the end.
//! At most one excess byte is decompressed.

use std::fmt;
use std::io::{self, BufRead, Read};

use super::{ZipMember, ZipMethod};
use crate::error::Malformed;
use crate::formats::compressed::window_log;

/// A reader of a member's contents. Errors in the data are a [`Malformed`] with the offset of the
/// member's header. After an error, the data read before must not be used.
pub struct ZipReader<R: BufRead> {
    stream: Stream<R>,
    at: u64,
    left: u64,
    expected_crc: u32,
    crc: flate2::Crc,
}

enum Stream<R: BufRead> {
    Stored(R),
    Deflate(flate2::bufread::DeflateDecoder<R>),
    Zstd(zstd::stream::read::Decoder<'static, R>),
}

impl<R: BufRead> fmt::Debug for ZipReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZipReader")
            .field("at", &self.at)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl<R: BufRead> ZipReader<R> {
    /// A reader of `member`, whose stored bytes `packed` yields.
    pub fn new(member: &ZipMember<'_>, packed: R) -> Result<Self, Malformed> {
        let ZipMember {
            header: at,
            plain_size: left,
            crc: expected_crc,
            ..
        } = *member;
        let stream = match member.method {
            ZipMethod::Stored => Stream::Stored(packed),
            ZipMethod::Deflate => Stream::Deflate(flate2::bufread::DeflateDecoder::new(packed)),
            ZipMethod::Zstd => Stream::Zstd(
                zstd_stream(packed, left).map_err(|_| Malformed::new("cannot decompress", at))?,
            ),
        };
        Ok(ZipReader {
            stream,
            at,
            left,
            expected_crc,
            crc: flate2::Crc::new(),
        })
    }

    fn fault(&self, what: &'static str) -> io::Error {
        Malformed::new(what, self.at).into()
    }
}

fn zstd_stream<R: BufRead>(
    packed: R,
    size: u64,
) -> io::Result<zstd::stream::read::Decoder<'static, R>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?.single_frame();
    decoder.window_log_max(window_log(size))?;
    Ok(decoder)
}

impl<R: BufRead> Read for ZipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.stream {
            Stream::Stored(bytes) => bytes.read(buffer),
            Stream::Deflate(decoder) => decoder.read(buffer),
            Stream::Zstd(decoder) => decoder.read(buffer),
        };
        // I/O errors are not faults of the contents.
        let len = read.map_err(|error| {
            if error.raw_os_error().is_some() {
                error
            } else {
                self.fault("cannot decompress")
            }
        })?;
        self.left = self
            .left
            .checked_sub(len as u64)
            .ok_or_else(|| self.fault("more data than the directory states"))?;
        self.crc.update(buffer.get(..len).unwrap_or_default());
        if len == 0 && !buffer.is_empty() {
            if self.left > 0 {
                return Err(self.fault("less data than the directory states"));
            }
            if self.crc.sum() != self.expected_crc {
                return Err(self.fault("the data does not match its checksum"));
            }
        }
        Ok(len)
    }
}
