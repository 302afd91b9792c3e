//! NVIDIA's fatbinary (`50 ED 55 BA`): code objects and PTX for several GPUs, each after its own
//! header. Several fatbinaries follow each other after a linker has merged sections.
//!
//! NVIDIA does not document the format. The layout comes from the output of `fatbinary` and
//! `cuobjdump` of CUDA 11 to 13. offld reads fatbinaries and edits them.
//!
//! ```text
//! fatbinary  u32 magic, u16 version 1, u16 header size, u64 size of the entries
//! entry      u16 kind, u16 version, u32 header size, u64 size, u32 compressed size, u32 options, u16 minor, u16 major, u32 arch,
//!            u32 name, u32 name size, u64 flags, u64 0, u64 plain size; then the name and other data, then `size` bytes
//! ```
//!
//! ```
//! use offload_formats::fatbin::{Kind, MAGIC, read_all};
//!
//! let text = b".version 8.0\n\0\0\0";
//! let mut file = [&MAGIC[..], &1u16.to_le_bytes(), &16u16.to_le_bytes(), &(64 + text.len() as u64).to_le_bytes()].concat();
//! let mut entry = [0; 64];
//! entry[0] = 1; // PTX
//! entry[4] = 64; // the size of this header
//! entry[8] = text.len() as u8;
//! entry[28] = 90; // the processor
//! file.extend(entry);
//! file.extend(text);
//! let found = read_all(&file)?;
//! let entry = &found[0].entries[0];
//! assert_eq!((entry.kind, entry.arch.as_str(), entry.stored), (Kind::Ptx, "sm_90", &text[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod tests;

/// The first four bytes.
pub use super::magic::numbers::FATBIN as MAGIC;

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::ops::Range;

use super::elf::raw::{FileHeader, Record, SectionHeader};
use crate::bytes::{overwrite, slice, u16_at, u32_at, u64_at, zeros};
use crate::compose::{Item, Part, check_kept, is_same, push_old, push_zeros};
use crate::error::Malformed;

const HEADER_SIZE: u64 = 16;
const ENTRY_SIZE: u64 = 64;
const FLAG_64_BIT: u64 = 1;
const FLAG_DEBUG: u64 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
/// `sm_90a`: for this GPU only, not for later ones.
const FLAG_EXACT: u64 = 0x10_0000;
/// `sm_100f`: for the GPUs of one family.
const FLAG_FAMILY: u64 = 0x20_0000;

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PTX, as text.
    Ptx,
    /// A cubin.
    Elf,
    /// NVVM IR for link-time optimization. Only `nvlink` can read it: NVIDIA's tools scramble it,
    /// and no public tool decodes it.
    LtoIr,
    /// An unknown value.
    Other(u16),
}

/// The compression method of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// One LZ4 block, which does not mark its end.
    Lz4,
    /// A zstd frame. Drivers older than that of CUDA 12.4 (550) cannot read it.
    Zstd,
}

/// An entry of a fatbinary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The type.
    pub kind: Kind,
    /// The GPU architecture in the compilers' spelling: `sm_90a`.
    pub arch: String,
    /// Whether the code is for 64-bit hosts.
    pub is_64: bool,
    /// Whether the code was compiled for debugging.
    pub debug: bool,
    /// The name from the compiler. Usually empty.
    pub name: &'a [u8],
    /// The compression method, if the code is compressed.
    pub method: Option<Method>,
    /// The stored bytes, without the padding of compressed code.
    pub stored: &'a [u8],
    /// The uncompressed size. For code that is stored uncompressed, this includes the padding to 8
    /// bytes.
    pub plain_size: u64,
    /// The offset of `stored` in the reader's data.
    pub at: u64,
    /// The header with its additional data, such as the name. It ends where `stored` starts.
    pub header: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Returns the code, decompressed if it is compressed.
    ///
    /// # Errors
    /// The code cannot be decompressed, or has another size than the header says.
    pub fn plain(&self) -> Result<Cow<'a, [u8]>, Malformed> {
        let fault = |what| Malformed::new(what, self.at);
        match self.method {
            None => Ok(Cow::Borrowed(self.stored)),
            Some(Method::Lz4) => unpack_lz4(self.stored, self.plain_size)
                .map(Cow::Owned)
                .map_err(|inner| fault(inner.what)),
            Some(Method::Zstd) => {
                /// Entries up to this size may have any compression ratio, larger ones at most that
                /// of LZ4.
                const SMALL: u64 = 64 << 20;
                let packed = self.stored.len() as u64;
                if self.plain_size > SMALL && is_too_much_for_lz4(packed, self.plain_size) {
                    return Err(fault(TOO_MUCH));
                }
                let size = usize::try_from(self.plain_size).map_err(|_| fault(WRONG_SIZE))?;
                match unpack_zstd(self.stored, size) {
                    Ok(plain) if plain.len() == size => Ok(Cow::Owned(plain)),
                    Ok(_) => Err(fault(WRONG_SIZE)),
                    Err(_) => Err(fault("cannot decompress")),
                }
            }
        }
    }
}

const TOO_MUCH: &str = "uncompressed size is more than the compressed data can hold";
const WRONG_SIZE: &str = "uncompressed size does not match the data";

/// Decompresses a zstd frame that holds at most `size` bytes.
fn unpack_zstd(packed: &[u8], size: usize) -> io::Result<Vec<u8>> {
    thread_local! {
        /// For many small entries, creating a context takes longer than decompression.
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(zstd::bulk::Decompressor::new()?),
        };
        context.decompress(packed, size)
    })
}

/// Whether a block of `packed` bytes of LZ4 cannot hold `size` bytes.
pub fn is_too_much_for_lz4(packed: u64, size: u64) -> bool {
    /// The most bytes that one byte of LZ4 data can expand to.
    const GROWTH: u64 = 255;
    size > packed.saturating_mul(GROWTH)
}

/// Decompresses a block of LZ4 that holds `size` bytes.
///
/// # Errors
/// The block is damaged or holds another number of bytes.
pub fn unpack_lz4(packed: &[u8], size: u64) -> Result<Vec<u8>, Malformed> {
    let fault = |what| Malformed::new(what, 0);
    if is_too_much_for_lz4(packed.len() as u64, size) {
        return Err(fault(TOO_MUCH));
    }
    let size = usize::try_from(size).map_err(|_| fault(WRONG_SIZE))?;
    let plain =
        lz4_flex::block::decompress(packed, size).map_err(|_| fault("cannot decompress"))?;
    if plain.len() == size {
        Ok(plain)
    } else {
        Err(fault(WRONG_SIZE))
    }
}

/// A fatbinary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fatbin<'a> {
    /// The entries, in order.
    pub entries: Vec<Entry<'a>>,
    /// The version of the header.
    pub version: u16,
    /// The offset of the fatbinary in the reader's data.
    pub at: u64,
    /// The size, including the header.
    pub size: u64,
}

/// Whether `data` starts with a fatbinary.
pub fn is_fatbin(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// The size of the fatbinary at the start of `data`, including the header.
pub fn size(data: &[u8]) -> Result<u64, Malformed> {
    if !is_fatbin(data) {
        return Err(Malformed::new("not a fatbinary", 0));
    }
    let header = slice(data, 0, HEADER_SIZE, "fatbinary header past the end", 0)?;
    let header_size: u64 = u16_at(header, 6).into();
    if header_size < HEADER_SIZE {
        return Err(Malformed::new("fatbinary header size too small", 6));
    }
    let size = u64_at(header, 8)
        .checked_add(header_size)
        .ok_or(Malformed::new("fatbinary size past the end", 8))?;
    slice(data, 0, size, "fatbinary size past the end", 8)?;
    Ok(size)
}

/// The length of an entry's uncompressed code without padding, as `cuobjdump` extracts it. PTX ends
/// before its terminating zero. A cubin ends where its headers and the contents of its sections
/// end.
pub fn unpadded(kind: Kind, code: &[u8]) -> u64 {
    let zeros = code
        .iter()
        .rev()
        .take(8)
        .take_while(|byte| **byte == 0)
        .count();
    let end = match kind {
        Kind::Ptx => code.len() - zeros,
        Kind::Elf => elf_end(code).unwrap_or(code.len()).max(code.len() - zeros),
        Kind::LtoIr | Kind::Other(_) => code.len(),
    };
    end.min(code.len()) as u64
}

/// The end of a 64-bit ELF file: of its header tables, or of section contents behind them. NVIDIA
/// puts a table last; other assemblers do not.
fn elf_end(code: &[u8]) -> Option<usize> {
    let (class, header) = FileHeader::read(code)
        .ok()
        .filter(|(class, _)| class.is_64)?;
    let end = |at: u64, entry: u16, count: u16| at.checked_add(u64::from(entry) * u64::from(count));
    let segments = end(header.phoff, header.phentsize, header.phnum)?;
    let tables = segments.max(end(header.shoff, header.shentsize, header.shnum)?);
    let sections = SectionHeader::table(
        class,
        code,
        header.shoff,
        header.shnum.into(),
        "section headers past the end",
    )
    .ok()?;
    let contents = sections
        .iter()
        .filter(|section| !section.is_empty_for(header.machine));
    let last = contents
        .filter_map(|section| section.offset.checked_add(section.size))
        .max()
        .unwrap_or(0);
    usize::try_from(tables.max(last)).ok()
}

/// Reads the fatbinaries in `data`, in order, with only zeros between them.
pub fn read_all(data: &[u8]) -> Result<Vec<Fatbin<'_>>, Malformed> {
    let mut all = Vec::new();
    let mut at = 0u64;
    loop {
        let rest = slice(
            data,
            at,
            (data.len() as u64).saturating_sub(at),
            "fatbinary past the end",
            at,
        )?;
        let padding = zeros(rest);
        if padding == rest.len() {
            return Ok(all);
        }
        at += padding as u64;
        let read =
            read(rest.get(padding..).unwrap_or_default()).map_err(|fault| fault.shifted(at))?;
        let entries = read
            .entries
            .into_iter()
            .map(|entry| Entry {
                at: entry.at + at,
                ..entry
            })
            .collect();
        let (size, version) = (read.size, read.version);
        all.push(Fatbin {
            entries,
            version,
            at,
            size,
        });
        at += size;
    }
}

/// Returns the entries of the fatbinary `data` up to the first damaged one, and its fault. A
/// damaged entry hides the position of the next one.
pub fn entries(data: &[u8]) -> (Vec<Entry<'_>>, Option<Malformed>) {
    let mut entries = Vec::new();
    let mut at: u64 = match size(data) {
        Ok(_) => u16_at(data, 6).into(),
        Err(fault) => return (entries, Some(fault)),
    };
    while at < data.len() as u64 {
        match entry(data, at) {
            Ok((entry, next)) => {
                entries.push(entry);
                at = next;
            }
            Err(fault) => return (entries, Some(fault)),
        }
    }
    (entries, None)
}

/// Returns a fatbinary with `entry` alone, which is an entry of the fatbinary `data`.
///
/// # Errors
/// The entry is not part of `data`.
pub fn of_entry(data: &[u8], entry: &Entry<'_>) -> Result<Vec<u8>, Malformed> {
    const OTHER: &str = "an entry of another fatbinary";
    let header = entry.header.len() as u64;
    let start = entry
        .at
        .checked_sub(header)
        .ok_or(Malformed::new(OTHER, entry.at))?;
    let size = header.saturating_add(u64_at(entry.header, 8));
    let whole = slice(data, start, size, OTHER, start)?;
    let mut all = MAGIC.to_vec();
    all.extend(1u16.to_le_bytes());
    all.extend((HEADER_SIZE as u16).to_le_bytes());
    all.extend(size.to_le_bytes());
    all.extend(whole);
    Ok(all)
}

/// Reads the fatbinary at the start of `data`.
fn read(data: &[u8]) -> Result<Fatbin<'_>, Malformed> {
    let size = size(data)?;
    let whole = slice(data, 0, size, "fatbinary size past the end", 8)?;
    match entries(whole) {
        (entries, None) => Ok(Fatbin {
            entries,
            version: u16_at(whole, 4),
            at: 0,
            size,
        }),
        (_, Some(fault)) => Err(fault),
    }
}

/// Reads the entry at offset `at`, and returns the offset of the next one.
fn entry(whole: &[u8], at: u64) -> Result<(Entry<'_>, u64), Malformed> {
    let fault = |what| Malformed::new(what, at);
    let header = slice(whole, at, ENTRY_SIZE, "fatbinary entry past the end", at)?;
    let header_size: u64 = u32_at(header, 4).into();
    if header_size < ENTRY_SIZE {
        return Err(fault("header size of a fatbinary entry too small"));
    }
    let header = slice(
        whole,
        at,
        header_size,
        "header of a fatbinary entry past the end",
        at,
    )?;
    let size = u64_at(header, 8);
    let start = at + header_size;
    let padded = slice(
        whole,
        start,
        size,
        "code of a fatbinary entry past the end",
        at,
    )?;
    let flags = u64_at(header, 40);
    let method = match (flags & FLAG_ZSTD != 0, flags & FLAG_LZ4 != 0) {
        (true, _) => Some(Method::Zstd),
        (_, true) => Some(Method::Lz4),
        _ => None,
    };
    let (stored, plain_size) = match method {
        Some(_) => {
            let packed = u32_at(header, 16).into();
            (
                slice(
                    padded,
                    0,
                    packed,
                    "compressed code of a fatbinary entry past the end",
                    at,
                )?,
                u64_at(header, 56),
            )
        }
        None => (padded, size),
    };
    let suffix = match (flags & FLAG_EXACT != 0, flags & FLAG_FAMILY != 0) {
        (true, _) => "a",
        (_, true) => "f",
        _ => "",
    };
    let name = slice(
        header,
        u32_at(header, 32).into(),
        u32_at(header, 36).into(),
        "name of a fatbinary entry past the end",
        at,
    )?;
    let entry = Entry {
        kind: match u16_at(header, 0) {
            1 => Kind::Ptx,
            2 => Kind::Elf,
            8 => Kind::LtoIr,
            other => Kind::Other(other),
        },
        arch: format!("sm_{}{suffix}", u32_at(header, 28)),
        is_64: flags & FLAG_64_BIT != 0,
        debug: flags & FLAG_DEBUG != 0,
        name,
        method,
        stored,
        plain_size,
        at: start,
        header,
    };
    Ok((entry, start + size))
}

/// The alignment of entries, from the start of the fatbinary.
const ALIGN: u64 = 8;

/// The properties of stored code that an entry's header contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The compression method, if the code is compressed.
    pub method: Option<Method>,
    /// The number of stored bytes, without padding.
    pub stored: u64,
    /// The uncompressed size, equal to `stored` for uncompressed code. For PTX, it includes the
    /// terminating zero.
    pub plain_size: u64,
}

impl Code {
    /// Uncompressed code of `size` bytes.
    pub fn plain(size: u64) -> Self {
        Code {
            method: None,
            stored: size,
            plain_size: size,
        }
    }

    /// The size with padding.
    fn padded(&self) -> Result<u64, Malformed> {
        self.stored.checked_next_multiple_of(ALIGN).ok_or(TOO_LARGE)
    }
}

const TOO_LARGE: Malformed = Malformed {
    what: "too large for a fatbinary",
    at: 0,
};

/// An entry to add to a fatbinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// The entry's header from another fatbinary, with its additional data
    /// ([`Entry::header`]).
    pub header: &'a [u8],
    /// The stored code.
    pub code: Code,
}

/// Returns the parts of the fatbinary at the start of `data` with the entries of `items`, in their
/// order. `Part::New` has the index of an item and stands for its code as stored, without padding.
///
/// A kept entry is identical in header, name and padding. For changed code, only the sizes and the
/// compression method change in the header. Data after the fatbinary is not part of the result. An
/// empty list gives a valid fatbinary without entries, in which no GPU finds code.
///
/// # Errors
/// The fatbinary is damaged, an item names a missing entry, a new header is invalid, or compressed
/// code has 4 GiB or more.
///
/// ```
/// use offload_formats::compose::{Item, join};
/// use offload_formats::fatbin::{Code, MAGIC, compose, read_all};
///
/// let mut entry = [0; 64 + 8];
/// (entry[0], entry[4], entry[8], entry[28]) = (1, 64, 8, 90); // PTX, the sizes of header and code, the processor
/// let mut old = [&MAGIC[..], &1u16.to_le_bytes(), &16u16.to_le_bytes(), &72u64.to_le_bytes()].concat();
/// old.extend(entry);
///
/// let parts = compose(&old, &[Item::Changed { entry: 0, size: Code::plain(13) }])?;
/// let new = join(&old, &parts, &[b".version 8.0\n"])?;
/// let found = &read_all(&new)?[0].entries[0];
/// assert_eq!((found.arch.as_str(), found.stored), ("sm_90", &b".version 8.0\n\0\0\0"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compose(data: &[u8], items: &[Item<NewEntry<'_>, Code>]) -> Result<Vec<Part>, Malformed> {
    let whole = slice(data, 0, size(data)?, "fatbinary size past the end", 8)?;
    let header_size: u64 = u16_at(whole, 6).into();
    let olds = places(whole, header_size)?;
    if is_same(items, olds.len()) {
        return Ok(vec![Part::Old(0..whole.len() as u64)]);
    }
    let old = |place: usize| {
        olds.get(place)
            .ok_or(Malformed::new("the fatbinary has no such entry", 0))
    };
    let kept = items
        .iter()
        .filter(|item| matches!(item, Item::Old(_)))
        .filter_map(Item::old);
    let kept_size = |place| olds.get(place).map_or(0, |old: &Place| old.end - old.start);
    check_kept(kept.map(kept_size), whole.len() as u64, 0)?;
    let mut entries = Vec::new();
    let mut total = 0u64;
    for (place, item) in items.iter().enumerate() {
        let added = match item {
            Item::Old(entry) => {
                let old = old(*entry)?;
                push_old(&mut entries, old.start..old.end);
                old.end - old.start
            }
            Item::Changed { entry, size } => {
                let Range { start, end } = old(*entry)?.header();
                push_entry(
                    &mut entries,
                    slice(
                        whole,
                        start,
                        end - start,
                        "fatbinary entry past the end",
                        start,
                    )?,
                    *size,
                    place,
                )?
            }
            Item::New(new) => push_entry(&mut entries, new.header, new.code, place)?,
        };
        total = total.checked_add(added).ok_or(TOO_LARGE)?;
    }
    let mut head = whole.get(..8).unwrap_or_default().to_vec();
    head.extend(total.to_le_bytes());
    let mut parts = vec![Part::Bytes(head)];
    push_old(&mut parts, HEADER_SIZE..header_size);
    parts.append(&mut entries);
    Ok(parts)
}

/// The location of an entry.
struct Place {
    start: u64,
    /// The offset of the code.
    code: u64,
    end: u64,
}

impl Place {
    fn header(&self) -> Range<u64> {
        self.start..self.code
    }
}

fn places(whole: &[u8], mut at: u64) -> Result<Vec<Place>, Malformed> {
    let mut all = Vec::new();
    while at < whole.len() as u64 {
        let (read, end) = entry(whole, at)?;
        all.push(Place {
            start: at,
            code: read.at,
            end,
        });
        at = end;
    }
    Ok(all)
}

/// Adds an entry with this header and the code of the item at `place` to the parts. Returns the
/// entry's size.
fn push_entry(
    parts: &mut Vec<Part>,
    header: &[u8],
    code: Code,
    place: usize,
) -> Result<u64, Malformed> {
    let length = header.len() as u64;
    if length < ENTRY_SIZE || u64::from(u32_at(header, 4)) != length {
        return Err(Malformed::new("not a header of a fatbinary entry", 0));
    }
    let padded = code.padded()?;
    let flag = match code.method {
        Some(Method::Lz4) => FLAG_LZ4,
        Some(Method::Zstd) => FLAG_ZSTD,
        None => 0,
    };
    let (packed, plain_size) = match code.method {
        Some(_) => (
            u32::try_from(code.stored).map_err(|_| TOO_LARGE)?,
            code.plain_size,
        ),
        None => (0, 0),
    };
    let flags = u64_at(header, 40) & !(FLAG_LZ4 | FLAG_ZSTD) | flag;
    let mut header = header.to_vec();
    overwrite(&mut header, 8, &padded.to_le_bytes());
    overwrite(&mut header, 16, &packed.to_le_bytes());
    overwrite(&mut header, 40, &flags.to_le_bytes());
    overwrite(&mut header, 56, &plain_size.to_le_bytes());
    parts.push(Part::Bytes(header));
    if code.stored > 0 {
        parts.push(Part::New(place));
    }
    push_zeros(parts, padded - code.stored);
    length.checked_add(padded).ok_or(TOO_LARGE)
}

/// Compresses `plain` as one LZ4 block, which every CUDA release reads. Only for entries that used
/// LZ4 before, because zstd compresses better.
pub fn lz4(plain: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(plain)
}
