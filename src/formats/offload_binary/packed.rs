//! Compressed binaries of version 3: after the header one stream of zstd or zlib (docs/spec/containers.md 4.5). The plain form
//! can be streamed, so that it never has to be in memory.

use std::io::{self, Read, Write};

use super::Head;
use crate::error::Malformed;
use crate::formats::{magic, slice};

/// A compressed binary.
#[derive(Debug, Clone)]
pub struct Packed<'a> {
    /// The start of its plain form.
    start: Vec<u8>,
    body: &'a [u8],
    /// The size of the decompressed body.
    wanted: u64,
}

impl<'a> Packed<'a> {
    /// The binary at the start of `data`, if it is compressed. Fails if there is no OffloadBinary.
    pub fn of(data: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let head = Head::read(data, 0)?;
        let whole = slice(data, 0, head.size, "size field past the end", 0)?;
        let (Some(part), Some(start)) = (head.packed, head.plain_start(whole)) else { return Ok(None) };
        let body = whole.get(start.len()..).unwrap_or_default();
        Ok(Some(Packed { start, body, wanted: part.plain_size.saturating_sub(part.at) }))
    }

    /// Its size in `data`, without padding after it.
    pub fn size(&self) -> u64 {
        (self.start.len() + self.body.len()) as u64
    }

    /// Writes the plain form, a binary whose header says that nothing is compressed. Errors are those of `out`, or `InvalidData`
    /// with a `Malformed` for damaged data.
    pub fn inflate(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.start)?;
        // Asks for one byte more than expected, to notice data that is too long.
        let zstd = self.body.starts_with(&magic::ZSTD);
        let copied = if zstd {
            let stream = zstd::stream::read::Decoder::with_buffer(self.body)?.single_frame();
            copy(&mut stream.take(self.wanted + 1), out)?
        } else {
            copy(&mut flate2::bufread::ZlibDecoder::new(self.body).take(self.wanted + 1), out)?
        };
        if copied == self.wanted { Ok(()) } else { Err(invalid("inflated size does not match the data")) }
    }

    /// The format error for an error of `inflate`.
    pub fn fault(&self, error: &io::Error) -> Malformed {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Malformed>());
        Malformed::new(inner.map_or("cannot inflate", |fault| fault.what), self.start.len() as u64)
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Malformed::new(what, 0))
}

/// Copies all of `from`. A read error means damaged data and becomes `InvalidData`, which tells it from errors of `out`.
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
