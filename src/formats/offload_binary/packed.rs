//! Compressed version 3 binaries: the header, then one zstd or zlib stream (docs/spec/containers.md
//! 4.5). Compression and decompression stream, so that neither form has to be in memory.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::{Head, LONG_HEADER_SIZE, is_offload_binary};
use crate::error::{Error, Malformed};
use crate::formats::recipe::Recipe;
use crate::formats::{magic, slice, u32_at, u64_at};

/// A compressed binary.
#[derive(Debug, Clone)]
pub struct Packed<'a> {
    /// The start of the uncompressed form.
    start: Vec<u8>,
    body: &'a [u8],
    /// The size of the body after decompression.
    body_size: u64,
}

impl<'a> Packed<'a> {
    /// The binary at the start of `data`, or `None` if it is not compressed. Fails if `data` does
    /// not start with an OffloadBinary.
    pub fn of(data: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let head = Head::read(data, 0)?;
        let whole = slice(data, 0, head.size, "size field past the end", 0)?;
        let (Some(part), Some(start)) = (head.packed, head.plain_start(whole)) else {
            return Ok(None);
        };
        let body = whole.get(start.len()..).unwrap_or_default();
        Ok(Some(Packed {
            start,
            body,
            body_size: part.plain_size.saturating_sub(part.at),
        }))
    }

    /// The size in `data`, without padding after it.
    pub fn size(&self) -> u64 {
        (self.start.len() + self.body.len()) as u64
    }

    /// The size after decompression, according to the header.
    pub fn plain_size(&self) -> u64 {
        (self.start.len() as u64).saturating_add(self.body_size)
    }

    /// Writes the uncompressed form, whose header has the fields of an uncompressed binary. Errors
    /// are those of `out`, or `InvalidData` with a `Malformed` for damaged data.
    pub fn inflate(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.start)?;
        // Reads one byte more than expected, to detect data that is too long.
        let zstd = self.body.starts_with(&magic::ZSTD);
        let copied = if zstd {
            let stream = zstd::stream::read::Decoder::with_buffer(self.body)?.single_frame();
            copy(&mut stream.take(self.body_size + 1), out)?
        } else {
            copy(
                &mut flate2::bufread::ZlibDecoder::new(self.body).take(self.body_size + 1),
                out,
            )?
        };
        if copied == self.body_size {
            Ok(())
        } else {
            Err(invalid("uncompressed size does not match the data"))
        }
    }

    /// Converts an error of `inflate` to a format error.
    pub fn fault(&self, error: &io::Error) -> Malformed {
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Malformed>());
        Malformed::new(
            inner.map_or("cannot decompress", |fault| fault.what),
            self.start.len() as u64,
        )
    }
}

/// Compresses the version 3 binary of `plain_size` bytes that `plain` yields, and writes it at the
/// current position of `out`.
///
/// # Errors
/// Reading or writing fails, or `plain` does not yield an uncompressed version 3 binary of that
/// size.
///
/// ```
/// use std::io::Cursor;
/// use offld::formats::offload_binary::{Entry, Packed, pack, plain_frame, read_all};
/// use offld::formats::recipe::{Recipe, Style};
/// use offld::model::ImageKind;
///
/// let strings = vec![(&b"triple"[..], &b"amdgcn-amd-amdhsa"[..])];
/// let entry = Entry { image_kind: ImageKind::Object, offload_kind: 1, flags: 0, strings, image_size: 800 };
/// let mut plain = plain_frame(&[entry]).head;
/// plain.extend([7; 800]);
/// let packed = pack(&plain[..], plain.len() as u64, Recipe { style: Style::Zstd, level: 3 }, Cursor::new(Vec::new()))?.into_inner();
/// assert!(packed.len() < plain.len() / 4);
/// assert_eq!(&*read_all(&packed)?[0].image, [7; 800]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pack<W: Write + Seek>(
    mut plain: impl Read,
    plain_size: u64,
    recipe: Recipe,
    mut out: W,
) -> Result<W, Error> {
    let start = out.stream_position()?;
    let mut head = [0; LONG_HEADER_SIZE as usize];
    plain.read_exact(&mut head)?;
    let (size, entries_at, inflated) = (u64_at(&head, 8), u64_at(&head, 16), u64_at(&head, 32));
    let is_plain = is_offload_binary(&head) && u32_at(&head, 4) == 3 && inflated == 0;
    if !is_plain || size != plain_size || !(LONG_HEADER_SIZE..=size).contains(&entries_at) {
        return Err(Error::from(Malformed::new(
            "not an offload binary that can be compressed",
            0,
        )));
    }
    out.write_all(&head)?;
    // Data between the header and the entries is not compressed.
    io::copy(
        &mut plain.by_ref().take(entries_at - LONG_HEADER_SIZE),
        &mut out,
    )?;
    let mut out = recipe.pack(plain, plain_size - entries_at, out)?;
    let end = out.stream_position()?;
    for (at, value) in [(8, end - start), (32, plain_size)] {
        out.seek(SeekFrom::Start(start + at))?;
        out.write_all(&value.to_le_bytes())?;
    }
    out.seek(SeekFrom::Start(end))?;
    Ok(out)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Malformed::new(what, 0))
}

/// Copies all of `from`. A read error means damaged data and becomes `InvalidData`, to distinguish
/// it from errors of `out`.
fn copy(from: &mut impl Read, out: &mut impl Write) -> io::Result<u64> {
    let mut buffer = vec![0; 128 << 10];
    let mut copied = 0;
    loop {
        let len = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(invalid("cannot decompress")),
        };
        out.write_all(buffer.get(..len).unwrap_or_default())?;
        copied += len as u64;
    }
}
