//! OffloadBinary (`10 FF 10 AD`), the container of a device image and its target
//! (docs/spec/containers.md 4.3, 4.5). Reads and writes versions 1 to 3. Several binaries may
//! follow each other, with zeros between them.
//!
//! Integers are little-endian. LLVM writes them in the byte order of the build machine, but
//! big-endian ones are not supported. Strings and images borrow from the data, except those of a
//! compressed version 3 binary.
//!
//! ```
//! use offload_formats::offload_binary::{read_all, write};
//! use offload_formats::model::{ImageKind, OffloadKind};
//!
//! let strings = [("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90")];
//! let file = write(ImageKind::Cubin, OffloadKind::Cuda as u16, 0, &strings, b"code");
//! let images = read_all(&file)?;
//! assert_eq!((&*images[0].arch(), &*images[0].image), ("sm_90", &b"code"[..]));
//! // A file that is cut short is an error with an offset.
//! assert!(read_all(&file[..40]).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
mod write;

/// The first four bytes.
pub use super::magic::numbers::OFFLOAD_BINARY as MAGIC;
pub use write::{
    Entry, Frame, SharedFrame, compose, frame, frame_of, plain_frame, shared_frame, spaced_frame,
    write,
};

use std::borrow::Cow;
use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::bytes::{c_string, slice, u16_at, u32_at, u64_at, zeros};
use crate::containers::MAX_NESTING;
use crate::error::{Error, Malformed};
use crate::magic::numbers as magic;
use crate::model::ImageKind;
use crate::recipe::Recipe;

const HEADER_SIZE: u64 = 32;
/// The header size of version 3.
const LONG_HEADER_SIZE: u64 = 40;
const ENTRY_SIZE: u64 = 40;
/// A flag of an entry, since version 2: the entry describes an image but has no contents.
const FLAG_METADATA_ONLY: u32 = 1;

type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// An entry: an image and its strings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Image<'a> {
    /// The type of the image's bytes, as stored.
    pub image_kind: ImageKind,
    /// The bits of the programming models, as stored. `OffloadKinds::from_stored` decodes them.
    pub offload_kind: u16,
    /// The entry's flags.
    pub flags: u32,
    /// Pairs of key and value in stored order, unknown keys included.
    pub strings: Vec<Pair<'a>>,
    /// The image's bytes.
    pub image: Cow<'a, [u8]>,
    /// The offset of the image's bytes in the reader's data, or 0 for an image of a compressed
    /// binary.
    pub at: u64,
}

impl Image<'_> {
    /// The value of `key`. If a key occurs twice, the last value counts, as in LLVM.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.strings
            .iter()
            .rfind(|(name, _)| name.as_ref() == key.as_bytes())
            .map(|(_, value)| value.as_ref())
    }

    /// The target triple. Empty if there is none.
    pub fn triple(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.get("triple").unwrap_or_default())
    }

    /// The architecture or target ID. Empty if there is none.
    pub fn arch(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.get("arch").unwrap_or_default())
    }

    /// Whether the entry only describes an image that is stored elsewhere (since version 2).
    pub fn is_description(&self) -> bool {
        self.flags & FLAG_METADATA_ONLY != 0 && self.image.is_empty()
    }

    fn into_owned(self) -> Image<'static> {
        let own = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
        Image {
            image_kind: self.image_kind,
            offload_kind: self.offload_kind,
            flags: self.flags,
            strings: self
                .strings
                .into_iter()
                .map(|(key, value)| (own(key), own(value)))
                .collect(),
            image: own(self.image),
            at: 0,
        }
    }
}

/// Whether `data` starts with an OffloadBinary.
pub fn is_offload_binary(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// Reads the images of all binaries in `data`, in order. Empty data has none. Only zeros may follow
/// each binary.
pub fn read_all(data: &[u8]) -> Result<Vec<Image<'_>>, Malformed> {
    let mut images = Vec::new();
    let mut at = 0;
    while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
        let size = read_first(rest, &mut images, at as u64)?;
        at += size + zeros(rest.get(size..).unwrap_or_default());
    }
    Ok(images)
}

/// The end of the binaries at the start of `data`, including the zeros between them, for sections
/// with other data after them. Only the size fields are read.
pub fn extent(data: &[u8]) -> u64 {
    let (mut at, mut end) = (0, 0);
    while let Some(rest) = data.get(at..).filter(|rest| is_offload_binary(rest)) {
        let Ok(header) = slice(rest, 0, HEADER_SIZE, "", 0) else {
            break;
        };
        let Ok(whole) = slice(rest, 0, u64_at(header, 8).max(HEADER_SIZE), "", 0) else {
            break;
        };
        end = at + whole.len();
        at = end + zeros(rest.get(whole.len()..).unwrap_or_default());
    }
    end as u64
}

/// Appends the images of the binary at the start of `data` to `images` and returns the binary's
/// size. `base` is the offset of `data` in the caller's data, for offsets in the result.
pub fn read_first<'a>(
    data: &'a [u8],
    images: &mut Vec<Image<'a>>,
    base: u64,
) -> Result<usize, Malformed> {
    if !is_offload_binary(data) {
        return Err(Malformed::new("not an offload binary", base));
    }
    let header = slice(data, 0, HEADER_SIZE, "header past the end", base)?;
    let version = u32_at(header, 4);
    let layout = match version {
        1 => Layout {
            string_entry: 16,
            entries: 1,
            metadata_only: 0,
        },
        2 | 3 => Layout {
            string_entry: 24,
            entries: u64_at(header, 24),
            metadata_only: FLAG_METADATA_ONLY,
        },
        _ => return Err(Malformed::new("unsupported offload binary version", base)),
    };
    let size = u64_at(header, 8);
    let whole = slice(data, 0, size, "size field past the end", base)?;
    let entries_at = u64_at(header, 16);
    if size < HEADER_SIZE {
        return Err(Malformed::new("size field too small", base));
    }
    if let Some(packed) = Packed::of(whole).map_err(|fault| fault.shifted(base))? {
        let mut plain = Vec::new();
        packed
            .inflate(&mut plain)
            .map_err(|error| packed.fault(&error).shifted(base))?;
        // Offsets into decompressed data mean nothing to the caller, so such faults have the
        // binary's offset.
        for image in layout.read(&plain, entries_at, base) {
            images.push(
                image
                    .map_err(|fault| Malformed::new(fault.what, base))?
                    .into_owned(),
            );
        }
    } else {
        for image in layout.read(whole, entries_at, base) {
            images.push(image.map_err(|fault| fault.shifted(base))?);
        }
    }
    Ok(whole.len())
}

/// The differences between versions after decompression.
#[derive(Clone, Copy)]
struct Layout {
    string_entry: u64,
    entries: u64,
    metadata_only: u32,
}

impl Layout {
    /// The images of the uncompressed binary `data`, whose offset in the caller's data is `base`.
    /// Offsets of faults count from the start of `data`.
    fn read<'a>(
        self,
        data: &'a [u8],
        entries_at: u64,
        base: u64,
    ) -> impl Iterator<Item = Result<Image<'a>, Malformed>> {
        let table = self.entries.saturating_mul(ENTRY_SIZE);
        let (entries, fault) = match slice(data, entries_at, table, "entry past the end", 0) {
            Ok(entries) => (entries, None),
            Err(fault) => (&[][..], Some(Err(fault))),
        };
        let (entries, _) = entries.as_chunks::<{ ENTRY_SIZE as usize }>();
        let mut budget = Budget::of(data);
        let images = entries.iter().zip(0..).map(move |(entry, index)| {
            let at = entries_at + index * ENTRY_SIZE;
            self.image(data, entry, at, base, &mut budget)
        });
        images.chain(fault)
    }

    fn image<'a>(
        self,
        data: &'a [u8],
        entry: &[u8],
        at: u64,
        base: u64,
        budget: &mut Budget,
    ) -> Result<Image<'a>, Malformed> {
        let flags = u32_at(entry, 4);
        let strings = self.strings(data, u64_at(entry, 8), u64_at(entry, 16), at, budget)?;
        let (offset, size) = (u64_at(entry, 24), u64_at(entry, 32));
        let image = if flags & self.metadata_only != 0 {
            &[]
        } else {
            slice(data, offset, 0, "image offset past the end", at)?;
            slice(data, offset, size, "image size past the end", at)?
        };
        Ok(Image {
            image_kind: ImageKind::from_raw(u16_at(entry, 0)),
            offload_kind: u16_at(entry, 2),
            flags,
            strings,
            image: Cow::Borrowed(image),
            at: base.saturating_add(offset),
        })
    }

    fn strings<'a>(
        self,
        data: &'a [u8],
        offset: u64,
        count: u64,
        at: u64,
        budget: &mut Budget,
    ) -> Result<Vec<Pair<'a>>, Malformed> {
        slice(data, offset, 0, "string table past the end", at)?;
        let len = count.saturating_mul(self.string_entry);
        let table = slice(data, offset, len, "number of strings past the end", at)?;
        budget.take(count, 0, at)?;
        let pairs = table
            .chunks_exact(self.string_entry as usize)
            .zip(0..)
            .map(|(pair, index)| {
                let at = offset + index * self.string_entry;
                let key = string(data, u64_at(pair, 0), at)?;
                let value = match pair.len() {
                    24 => slice(
                        data,
                        u64_at(pair, 8),
                        u64_at(pair, 16),
                        "string past the end",
                        at,
                    )?,
                    _ => string(data, u64_at(pair, 8), at)?,
                };
                budget.take(0, (key.len() + value.len()) as u64, at)?;
                Ok((Cow::Borrowed(key), Cow::Borrowed(value)))
            });
        pairs.collect()
    }
}

/// The limit on the strings of one binary. Images may share strings, but each [`Image`] lists its
/// own, so that a small file could request the product of both. No writer comes near the limit.
struct Budget {
    pairs: u64,
    bytes: u64,
}

impl Budget {
    fn of(data: &[u8]) -> Self {
        let size = data.len() as u64;
        Budget {
            pairs: (64 << 10) + size / 8,
            bytes: (16 << 20) + size,
        }
    }

    fn take(&mut self, pairs: u64, bytes: u64, at: u64) -> Result<(), Malformed> {
        let fault = Malformed::new("more strings than the binary can hold", at);
        self.pairs = self.pairs.checked_sub(pairs).ok_or(fault)?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or(fault)?;
        Ok(())
    }
}

fn string(data: &[u8], offset: u64, at: u64) -> Result<&[u8], Malformed> {
    let fault = |what| Malformed::new(what, at);
    let start = usize::try_from(offset).map_err(|_| fault("string past the end"))?;
    let tail = data.get(start..).ok_or(fault("string past the end"))?;
    c_string(tail).ok_or(fault("string without a terminating zero"))
}

// Headers: enough to skip a binary, or to decompress it elsewhere.

/// The largest growth of zstd or zlib data: a zstd block of 128 KiB takes at least 4 bytes. A
/// header that claims more is wrong.
const MAX_GROWTH: u64 = 32 << 10;

/// The header of a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// The version: 1, 2 or 3.
    pub version: u32,
    /// The size of the binary in the data, in bytes.
    pub size: u64,
    /// The compressed part, if there is one.
    pub packed: Option<PackedPart>,
}

/// The location of the compressed data in a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedPart {
    /// The offset in the binary. The compressed data extends to the binary's end; the bytes before
    /// it are not compressed.
    pub at: u64,
    /// Whether the data is a zstd frame. Otherwise it is a zlib stream.
    pub zstd: bool,
    /// The size of the whole binary after decompression.
    pub plain_size: u64,
}

impl Head {
    /// Reads the header of the binary at offset `at` of `data`. Any data may follow the binary.
    pub fn read(data: &[u8], at: u64) -> Result<Head, Malformed> {
        let fault = |what| Malformed::new(what, at);
        let rest = slice(
            data,
            at,
            (data.len() as u64).saturating_sub(at),
            "offload binary past the end",
            at,
        )?;
        if !is_offload_binary(rest) {
            return Err(fault("not an offload binary"));
        }
        let header = slice(rest, 0, HEADER_SIZE, "header past the end", at)?;
        let (version, size) = (u32_at(header, 4), u64_at(header, 8));
        if !(1..=3).contains(&version) {
            return Err(fault("unsupported offload binary version"));
        }
        let whole = slice(rest, 0, size, "size field past the end", at)?;
        if size < HEADER_SIZE {
            return Err(fault("size field too small"));
        }
        let mut head = Head {
            version,
            size,
            packed: None,
        };
        if version < 3 {
            return Ok(head);
        }
        let long = slice(whole, 0, HEADER_SIZE + 8, "size field too small", at)?;
        let (packed_at, plain_size) = (u64_at(long, 16), u64_at(long, 32));
        if plain_size == 0 {
            return Ok(head);
        }
        let packed = slice(
            whole,
            packed_at,
            size.saturating_sub(packed_at),
            "entry past the end",
            at,
        )?;
        if packed_at < HEADER_SIZE + 8 {
            return Err(fault("entry inside the header"));
        }
        let grown = plain_size
            .checked_sub(packed_at)
            .ok_or(fault("uncompressed size too small"))?;
        if grown > (packed.len() as u64).saturating_mul(MAX_GROWTH) {
            return Err(fault(
                "uncompressed size is more than the compressed data can hold",
            ));
        }
        let zstd = packed.starts_with(&magic::ZSTD);
        head.packed = Some(PackedPart {
            at: packed_at,
            zstd,
            plain_size,
        });
        Ok(head)
    }

    /// The start of the uncompressed form of `whole`: its bytes before the compressed data, with
    /// the fields of an uncompressed binary. `None` if the binary is not compressed.
    pub fn plain_start(&self, whole: &[u8]) -> Option<Vec<u8>> {
        let packed = self.packed?;
        let mut start = whole.get(..usize::try_from(packed.at).ok()?)?.to_vec();
        start
            .get_mut(8..16)?
            .copy_from_slice(&packed.plain_size.to_le_bytes());
        start.get_mut(32..40)?.fill(0);
        Some(start)
    }
}

// Compressed version 3 binaries: the header, then one zstd or zlib stream (docs/spec/containers.md
// 4.5). Compression and decompression stream, so that neither form has to be in memory.

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
/// use offload_formats::offload_binary::{Entry, Packed, pack, plain_frame, read_all};
/// use offload_formats::recipe::{Recipe, Style};
/// use offload_formats::model::ImageKind;
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

// OffloadBinaries inside OffloadBinaries. A device link needs the innermost images.

/// The largest total of images and binaries. Images may share bytes, so that a small file could
/// contain an unlimited number.
const MAX_IMAGES: usize = 1 << 18;

/// Reads images as [`read_all`] does, but replaces an image that is itself a binary by the images
/// in it. Inner images inherit the kind and keys that they lack from the enclosing binary.
///
/// # Errors
/// The errors of `read_all`, for inner binaries too, and excessive nesting.
pub fn read_nested(data: &[u8]) -> Result<Vec<Image<'_>>, Malformed> {
    let mut reader = NestedReader {
        found: Vec::new(),
        seen: 0,
    };
    for image in read_all(data)? {
        reader.take(image, 0)?;
    }
    Ok(reader.found)
}

struct NestedReader<'a> {
    found: Vec<Image<'a>>,
    /// The number of images so far, including those that are binaries.
    seen: usize,
}

impl<'a> NestedReader<'a> {
    /// Adds `image`, or the images in it. Faults in a decompressed image have no offset of their
    /// own.
    fn take(&mut self, image: Image<'a>, depth: usize) -> Result<(), Malformed> {
        self.seen += 1;
        if !is_offload_binary(&image.image) {
            self.found.push(image);
            return Ok(());
        }
        if depth == MAX_NESTING {
            return Err(Malformed::new(
                "offload binaries nested too deeply",
                image.at,
            ));
        }
        if self.seen > MAX_IMAGES {
            return Err(Malformed::new("too many nested offload binaries", image.at));
        }
        let Image {
            offload_kind,
            strings,
            at,
            image,
            ..
        } = image;
        match image {
            Cow::Borrowed(bytes) => {
                for mut inner in read_all(bytes).map_err(|fault| fault.shifted(at))? {
                    // Decompressed images have no offset in the data.
                    inner.at = if inner.at == 0 {
                        0
                    } else {
                        inner.at.saturating_add(at)
                    };
                    self.take(inner.within(offload_kind, &strings), depth + 1)?;
                }
            }
            Cow::Owned(bytes) => {
                for inner in read_all(&bytes).map_err(|fault| Malformed::new(fault.what, at))? {
                    self.take(inner.into_owned().within(offload_kind, &strings), depth + 1)?;
                }
            }
        }
        Ok(())
    }
}

impl<'a> Image<'a> {
    /// Completes this image with the properties of the enclosing binary.
    fn within(mut self, offload_kind: u16, strings: &[Pair<'a>]) -> Image<'a> {
        if self.offload_kind == 0 {
            self.offload_kind = offload_kind;
        }
        let lacks = |key: &[u8]| !self.strings.iter().any(|(own, _)| own.as_ref() == key);
        let lacking: Vec<_> = strings
            .iter()
            .filter(|(key, _)| lacks(key))
            .cloned()
            .collect();
        self.strings.extend(lacking);
        self
    }
}
