//! Compressed binaries of version 3: after the header one stream of zstd or zlib (docs/spec/containers.md 4.5). The plain form
//! can be streamed, so that its size is nobody's memory.

use std::io::{self, Read, Write};

use super::Head;
use crate::error::Malformed;
use crate::formats::{magic, slice};

/// A compressed binary.
#[derive(Debug, Clone)]
pub struct Packed<'a> {
    /// What its plain form starts with.
    start: Vec<u8>,
    body: &'a [u8],
    /// How much the body inflates to.
    wanted: u64,
}

impl<'a> Packed<'a> {
    /// The binary at the start of `data`, if it is a compressed one. What is no binary is an error.
    pub fn of(data: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let head = Head::read(data, 0)?;
        let whole = slice(data, 0, head.size, "size field past the end", 0)?;
        let (Some(part), Some(start)) = (head.packed, head.plain_start(whole)) else { return Ok(None) };
        let body = whole.get(start.len()..).unwrap_or_default();
        Ok(Some(Packed { start, body, wanted: part.plain_size.saturating_sub(part.at) }))
    }

    /// How many bytes it is in, padding after it not counted.
    pub fn size(&self) -> u64 {
        (self.start.len() + self.body.len()) as u64
    }

    /// Writes the plain form: a binary like any other, whose header says so. Errors are those of `out`, and `InvalidData` with the
    /// `Malformed` in it.
    pub fn inflate(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.start)?;
        // One byte more than promised is asked for, so that too much is noticed.
        let zstd = self.body.starts_with(&magic::ZSTD);
        let copied = if zstd {
            let stream = zstd::stream::read::Decoder::with_buffer(self.body)?.single_frame();
            copy(&mut stream.take(self.wanted + 1), out)?
        } else {
            copy(&mut flate2::bufread::ZlibDecoder::new(self.body).take(self.wanted + 1), out)?
        };
        if copied == self.wanted { Ok(()) } else { Err(invalid("inflated size does not match the data")) }
    }

    /// What is wrong with the binary, by the error of `inflate`.
    pub fn fault(&self, error: &io::Error) -> Malformed {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Malformed>());
        Malformed::new(inner.map_or("cannot inflate", |fault| fault.what), self.start.len() as u64)
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Malformed::new(what, 0))
}

/// Copies all of `from`; an error of its is a fault of the data, not of `out`.
fn copy(from: &mut impl Read, out: &mut impl Write) -> io::Result<u64> {
    let mut buffer = vec![0; 128 << 10];
    let mut copied = 0;
    loop {
        let len = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(invalid("cannot inflate")),
        };
        out.write_all(buffer.get(..len).unwrap_or_default())?;
        copied += len as u64;
    }
}
