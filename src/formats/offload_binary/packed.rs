//! Compressed binaries of version 3: after the header one stream of zstd or zlib (containers spec 4.5). The plain form can be
//! streamed, so that its size is nobody's memory.

use std::io::{self, Read, Write};

use super::{HEADER_SIZE, Head};
use crate::error::Malformed;
use crate::formats::slice;

/// The field that a version 3 header has beyond the others: the size of the plain binary, 0 where nothing is compressed.
const INFLATED_SIZE: usize = HEADER_SIZE as usize;

/// A compressed binary.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    header: &'a [u8],
    body: &'a [u8],
    wanted: u64,
}

impl<'a> Packed<'a> {
    /// The binary at the start of `data`, if it is a compressed one.
    pub fn of(data: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let head = Head::read(data, 0)?;
        let Some(part) = head.packed else { return Ok(None) };
        let whole = slice(data, 0, head.size, "size field past the end", 0)?;
        let header = slice(whole, 0, part.at, "entry past the end", 0)?;
        let body = whole.get(header.len()..).unwrap_or_default();
        let wanted = part.plain_size.saturating_sub(part.at);
        Ok(Some(Packed { header, body, wanted }))
    }

    /// How many bytes it is in, padding after it not counted.
    pub fn size(&self) -> u64 {
        (self.header.len() + self.body.len()) as u64
    }

    /// Writes the plain form: a binary like any other, whose header says so. Errors are those of `out`, and `InvalidData` with the
    /// `Malformed` in it.
    pub fn inflate(&self, out: &mut impl Write) -> io::Result<()> {
        let plain_size = self.header.len() as u64 + self.wanted;
        let mut header = self.header.to_vec();
        if let Some(field) = header.get_mut(8..16) {
            field.copy_from_slice(&plain_size.to_le_bytes());
        }
        if let Some(field) = header.get_mut(INFLATED_SIZE..INFLATED_SIZE + 8) {
            field.fill(0);
        }
        out.write_all(&header)?;
        // One byte more than promised is asked for, so that too much is noticed.
        let zstd = self.body.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
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
        Malformed::new(inner.map_or("cannot inflate", |fault| fault.what), self.header.len() as u64)
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
