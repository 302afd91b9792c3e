//! NVIDIA's fatbinary (`50 ED 55 BA`): code objects and PTX for several GPUs, each behind a header of its own, several fatbinaries
//! in a row where a linker has merged sections. NVIDIA documents none of it; the layout is what `fatbinary` of CUDA 11 to 13 writes
//! and `cuobjdump` says of it. Read, and composed anew of entries that there are.
//!
//! ```text
//! fatbinary  u32 magic, u16 version 1, u16 header size, u64 size of the entries
//! entry      u16 kind, u16 version, u32 header size, u64 size, u32 compressed size, u32 options, u16 minor, u16 major, u32 arch,
//!            u32 name, u32 name size, u64 flags, u64 0, u64 plain size; then what it names, then `size` bytes
//! ```
//!
//! ```
//! use offld::formats::fatbin::{Kind, MAGIC, read_all};
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

mod compose;
#[cfg(test)]
mod tests;

pub use compose::{Code, NewEntry, compose, lz4};

use super::elf::raw::FileHeader;
use super::slice;
use crate::error::Malformed;

/// The first four bytes.
pub use super::magic::FATBIN as MAGIC;

const HEADER_SIZE: u64 = 16;
const ENTRY_SIZE: u64 = 64;
const FLAG_64_BIT: u64 = 1;
const FLAG_DEBUG: u64 = 2;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
/// `sm_90a`: for this GPU and no later one.
const FLAG_EXACT: u64 = 0x10_0000;
/// `sm_100f`: for the GPUs of one family.
const FLAG_FAMILY: u64 = 0x20_0000;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// PTX, as text.
    Ptx,
    /// A cubin.
    Elf,
    /// A value this version has no name for.
    Other(u16),
}

/// How an entry is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// One LZ4 block, which does not say where it ends.
    Lz4,
    /// A zstd frame. Drivers before those of CUDA 12.4 (550) cannot read it.
    Zstd,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// What it is.
    pub kind: Kind,
    /// The GPU, as compilers name it: `sm_90a`.
    pub arch: String,
    /// Whether it is for 64-bit hosts.
    pub is_64: bool,
    /// Whether it was compiled for debugging.
    pub debug: bool,
    /// The name the compiler gave it; empty as a rule.
    pub name: &'a [u8],
    /// How it is compressed, if it is.
    pub method: Option<Method>,
    /// Its bytes as they are stored, without the padding of compressed ones.
    pub stored: &'a [u8],
    /// How large it is when it is not compressed; the padding to 8 bytes counts where it was never compressed.
    pub plain_size: u64,
    /// Where `stored` starts in the data the reader was given.
    pub at: u64,
    /// Its header with what belongs to it, the name for one; it ends where `stored` starts.
    pub header: &'a [u8],
}

/// A fatbinary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fatbin<'a> {
    /// What is in it, in order.
    pub entries: Vec<Entry<'a>>,
    /// The version of its header.
    pub version: u16,
    /// Where it starts in the data the reader was given.
    pub at: u64,
    /// Its size with the header.
    pub size: u64,
}

/// Whether `data` starts as a fatbinary does.
pub fn is_fatbin(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// The size of the fatbinary at the start of `data`, header and all.
pub fn size(data: &[u8]) -> Result<u64, Malformed> {
    if !is_fatbin(data) {
        return Err(Malformed::new("not a fatbinary", 0));
    }
    let header = slice(data, 0, HEADER_SIZE, "fatbinary header past the end", 0)?;
    let header_size = number(header, 6, 2);
    if header_size < HEADER_SIZE {
        return Err(Malformed::new("fatbinary header size too small", 6));
    }
    let size = number(header, 8, 8).checked_add(header_size).ok_or(Malformed::new("fatbinary size past the end", 8))?;
    slice(data, 0, size, "fatbinary size past the end", 8)?;
    Ok(size)
}

/// How much of the plain code of an entry is not padding: what `cuobjdump` extracts. PTX ends before its terminating zero; a cubin
/// ends where its headers say.
pub fn unpadded(kind: Kind, code: &[u8]) -> u64 {
    let zeros = code.iter().rev().take(8).take_while(|byte| **byte == 0).count();
    let end = match kind {
        Kind::Ptx => code.len() - zeros,
        Kind::Elf => elf_end(code).unwrap_or(code.len()).max(code.len() - zeros),
        Kind::Other(_) => code.len(),
    };
    end.min(code.len()) as u64
}

/// The end of the header tables of a 64-bit ELF file; NVIDIA puts one of them last.
fn elf_end(code: &[u8]) -> Option<usize> {
    let (_, header) = FileHeader::read(code).ok().filter(|(class, _)| class.is_64)?;
    let end = |at: u64, entry: u16, count: u16| at.checked_add(u64::from(entry) * u64::from(count));
    let segments = end(header.phoff, header.phentsize, header.phnum)?;
    let sections = end(header.shoff, header.shentsize, header.shnum)?;
    usize::try_from(segments.max(sections)).ok()
}

/// The fatbinaries in `data`, in order; they may be apart by zeros, and by nothing else.
pub fn read_all(data: &[u8]) -> Result<Vec<Fatbin<'_>>, Malformed> {
    let mut all = Vec::new();
    let mut at = 0u64;
    loop {
        let rest = slice(data, at, (data.len() as u64).saturating_sub(at), "fatbinary past the end", at)?;
        let padding = rest.iter().take_while(|byte| **byte == 0).count();
        if padding == rest.len() {
            return Ok(all);
        }
        at += padding as u64;
        let read = read(rest.get(padding..).unwrap_or_default()).map_err(|fault| fault.shifted(at))?;
        let entries = read.entries.into_iter().map(|entry| Entry { at: entry.at + at, ..entry }).collect();
        let (size, version) = (read.size, read.version);
        all.push(Fatbin { entries, version, at, size });
        at += size;
    }
}

/// The fatbinary at the start of `data`.
fn read(data: &[u8]) -> Result<Fatbin<'_>, Malformed> {
    let size = size(data)?;
    let whole = slice(data, 0, size, "fatbinary size past the end", 8)?;
    let (version, header_size) = (number(whole, 4, 2) as u16, number(whole, 6, 2));
    let mut entries = Vec::new();
    let mut at = header_size;
    while at < size {
        let (entry, next) = entry(whole, at)?;
        entries.push(entry);
        at = next;
    }
    Ok(Fatbin { entries, version, at: 0, size })
}

/// The entry at `at`, and where the next one is.
fn entry(whole: &[u8], at: u64) -> Result<(Entry<'_>, u64), Malformed> {
    let fault = |what| Malformed::new(what, at);
    let header = slice(whole, at, ENTRY_SIZE, "fatbinary entry past the end", at)?;
    let header_size = number(header, 4, 4);
    if header_size < ENTRY_SIZE {
        return Err(fault("header size of a fatbinary entry too small"));
    }
    let header = slice(whole, at, header_size, "header of a fatbinary entry past the end", at)?;
    let size = number(header, 8, 8);
    let start = at + header_size;
    let padded = slice(whole, start, size, "code of a fatbinary entry past the end", at)?;
    let flags = number(header, 40, 8);
    let method = match (flags & FLAG_ZSTD != 0, flags & FLAG_LZ4 != 0) {
        (true, _) => Some(Method::Zstd),
        (_, true) => Some(Method::Lz4),
        _ => None,
    };
    let (stored, plain_size) = match method {
        Some(_) => {
            let packed = number(header, 16, 4);
            (slice(padded, 0, packed, "compressed code of a fatbinary entry past the end", at)?, number(header, 56, 8))
        }
        None => (padded, size),
    };
    let suffix = match (flags & FLAG_EXACT != 0, flags & FLAG_FAMILY != 0) {
        (true, _) => "a",
        (_, true) => "f",
        _ => "",
    };
    let name = slice(header, number(header, 32, 4), number(header, 36, 4), "name of a fatbinary entry past the end", at)?;
    let entry = Entry {
        kind: match number(header, 0, 2) as u16 {
            1 => Kind::Ptx,
            2 => Kind::Elf,
            other => Kind::Other(other),
        },
        arch: format!("sm_{}{suffix}", number(header, 28, 4)),
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

/// The little-endian number of `len` bytes at `at`; what is not there counts as zero, and the callers have looked.
fn number(data: &[u8], at: usize, len: usize) -> u64 {
    data.iter().skip(at).take(len).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
