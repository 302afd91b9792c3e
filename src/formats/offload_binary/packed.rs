//! Compressed binaries of version 3: after the header one stream of zstd or zlib (docs/spec/containers.md 4.5). Both forms can be
//! streamed, so that neither has to be in memory.

use std::io::{self, Read, Seek, SeekFrom, Write};

use super::{Head, LONG_HEADER_SIZE, is_offload_binary, u32_at, u64_at};
use crate::error::{Error, Malformed};
use crate::formats::recipe::Recipe;
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

    /// The size of its plain form, as its header has it.
    pub fn plain_size(&self) -> u64 {
        (self.start.len() as u64).saturating_add(self.wanted)
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

/// Writes the compressed form of the version 3 binary that `plain` gives in its plain form, `plain_size` bytes, to where `out` stands.
///
/// # Errors
/// Those of `plain` and `out`; what `plain` gives is not such a binary, or not of that size.
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
pub fn pack<W: Write + Seek>(mut plain: impl Read, plain_size: u64, recipe: Recipe, mut out: W) -> Result<W, Error> {
    let start = out.stream_position()?;
    let mut head = [0; LONG_HEADER_SIZE as usize];
    plain.read_exact(&mut head)?;
    let (size, entries_at, inflated) = (u64_at(&head, 8), u64_at(&head, 16), u64_at(&head, 32));
    let is_plain = is_offload_binary(&head) && u32_at(&head, 4) == 3 && inflated == 0;
    if !is_plain || size != plain_size || !(LONG_HEADER_SIZE..=size).contains(&entries_at) {
        return Err(Error::from(Malformed::new("not an offload binary that can be compressed", 0)));
    }
    out.write_all(&head)?;
    // What stands between the header and the entries is not compressed.
    io::copy(&mut plain.by_ref().take(entries_at - LONG_HEADER_SIZE), &mut out)?;
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
