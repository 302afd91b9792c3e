//! kpack: archives with device code of AMD GPUs, beside the program that registers it.
//!
//! A program or library without device code refers to its archives ([`Reference`]). The archive
//! ([`Archive`]) has the code objects of any number of programs, each for one architecture. Both
//! are maps of MessagePack. All numbers outside of MessagePack are little-endian:
//!
//! | bytes of an archive | contents |
//! |---|---|
//! | 0 to 3 | `KPAK` |
//! | 4 to 7 | the version, 1 |
//! | 8 to 15 | the offset of the table of contents, which extends to the end of the file |
//! | 64 to the table | the code objects |
//! | table | a map of MessagePack |
//!
//! With the scheme `none`, each code object is stored as it is, and `blobs` in the table has their
//! offsets and sizes. With `zstd-per-kernel`, the bytes at `zstd_offset` are the number of code
//! objects (4 bytes), then for each its size (4 bytes) and a zstd frame. Sources: AMD's writer and
//! loader (ROCm/rocm-systems, `shared/kpack/python/rocm_kpack/kpack.py`, `compression.py`,
//! `elf/kpack_transform.py`, `shared/kpack/runtime/src/loader.cpp`, `toc_parser.cpp`).
//!
//! ```
//! use offload_formats::compose::join;
//! use offload_formats::kpack::{Archive, Code, Head, NewEntry, Scheme, create};
//!
//! let head = Head { group: "x", family: "gfx90a", scheme: Scheme::None };
//! let entry = NewEntry { binary: "lib/libx.so#0", arch: "gfx90a", code: 0 };
//! let parts = create(&head, &[entry], &[Code { stored: 11, original_size: 11 }])?;
//! let bytes = join(&[], &parts, &[b"code object"])?;
//!
//! let archive = Archive::read(&bytes)?;
//! assert_eq!((archive.entries[0].binary, archive.entries[0].arch), ("lib/libx.so#0", "gfx90a"));
//! assert_eq!(archive.entries[0].stored, Ok(64..75));
//! # Ok::<(), offload_formats::error::Malformed>(())
//! ```

mod compose;
mod msgpack;
mod reference;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Range;

use crate::bytes::{number, slice};
use crate::error::Malformed;

pub use compose::{Code, Head, NewEntry, compose, create};
use msgpack::Values;
pub use reference::{HIPK, PLACEHOLDER, Program, REFERENCE_SECTION, Reference, program};

/// The first bytes of an archive.
pub const MAGIC: [u8; 4] = *b"KPAK";
/// The version of the archive's format.
const VERSION: u32 = 1;
/// The size of the archive's header.
const HEADER: u64 = 16;
/// The offset of the first code object, which each archive of AMD's writer has.
const FIRST: u64 = 64;
/// The zstd level of AMD's writer.
pub const LEVEL: i32 = 3;

/// Whether `data` starts as an archive does.
pub fn is_kpack(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// The way in which an archive stores code objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// As they are.
    None,
    /// Each in a zstd frame.
    ZstdPerKernel,
}

impl Scheme {
    /// The name in the table of contents.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::None => "none",
            Scheme::ZstdPerKernel => "zstd-per-kernel",
        }
    }
}

/// An archive. It borrows from its bytes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Archive<'a> {
    /// The build that the archive belongs to: `blas_lib`.
    pub group: &'a str,
    /// The architectures that the file is for, as one name: `gfx90a`, `gfx110X`.
    pub family: &'a str,
    /// The architectures. The loader looks for code only in archives that list the device's.
    pub architectures: Vec<&'a str>,
    /// The way in which code objects are stored.
    pub scheme: Scheme,
    /// The code objects, in the order of the table of contents.
    pub entries: Vec<Entry<'a>>,
    /// The offset of the table of contents.
    pub table: u64,
}

/// A code object of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<'a> {
    /// The program that registers it, by its path in the installation, and the number of the
    /// registration in that program: `lib/librccl.so#0`.
    pub binary: &'a str,
    /// The architecture: `gfx90a:xnack+`.
    pub arch: &'a str,
    /// The number of the stored code object. Entries may share one.
    pub ordinal: u64,
    /// The size of the code object, if the table has it.
    pub original_size: Option<u64>,
    /// The stored bytes as a range of the archive: the code object, or its zstd frame. An error if
    /// the table or the frames are damaged; other entries may be whole.
    pub stored: Result<Range<u64>, Malformed>,
}

impl<'a> Archive<'a> {
    /// Reads the archive `data`.
    ///
    /// # Errors
    /// The header or the table of contents is damaged, or its version or scheme is unknown.
    pub fn read(data: &'a [u8]) -> Result<Self, Malformed> {
        let table = Table::read(data)?;
        let stored = match table.scheme {
            Scheme::None => table.blobs.iter().map(|blob| checked(data, blob)).collect(),
            Scheme::ZstdPerKernel => frames(data, &table)?,
        };
        let one = |row: Row<'a>| Entry {
            binary: row.binary,
            arch: row.arch,
            ordinal: row.ordinal,
            original_size: row.original_size,
            stored: usize::try_from(row.ordinal)
                .ok()
                .and_then(|ordinal| stored.get(ordinal).cloned())
                .unwrap_or(Err(Malformed::new("no code object of this number", row.at))),
        };
        Ok(Archive {
            group: table.group,
            family: table.family,
            architectures: table.architectures,
            scheme: table.scheme,
            entries: table.rows.into_iter().map(one).collect(),
            table: table.at,
        })
    }
}

/// The table of contents.
#[derive(Debug)]
struct Table<'a> {
    at: u64,
    group: &'a str,
    family: &'a str,
    architectures: Vec<&'a str>,
    scheme: Scheme,
    rows: Vec<Row<'a>>,
    /// The code objects of an archive that does not compress.
    blobs: Vec<Range<u64>>,
    /// The zstd frames, with their number and sizes.
    frames: Option<Range<u64>>,
    /// All fields, with their bytes.
    fields: Vec<(&'a str, &'a [u8])>,
}

/// An entry of the table.
#[derive(Debug)]
struct Row<'a> {
    binary: &'a str,
    arch: &'a str,
    ordinal: u64,
    original_size: Option<u64>,
    /// The other fields, with their bytes.
    others: Vec<(&'a str, &'a [u8])>,
    /// Its offset.
    at: u64,
}

impl<'a> Table<'a> {
    fn read(data: &'a [u8]) -> Result<Self, Malformed> {
        if !is_kpack(data) {
            return Err(Malformed::new("not a kpack archive", 0));
        }
        if number(data, 4, 4, "truncated kpack header")? != u64::from(VERSION) {
            return Err(Malformed::new("unknown version of kpack", 4));
        }
        let at = number(data, 8, 8, "truncated kpack header")?;
        if at < HEADER {
            // The writer fills in the offset last.
            return Err(Malformed::new(
                "no table of contents: the file is incomplete",
                8,
            ));
        }
        let size = (data.len() as u64).saturating_sub(at);
        let bytes = slice(data, at, size, "table of contents past the end", 8)?;
        let mut table = Table {
            at,
            group: "",
            family: "",
            architectures: Vec::new(),
            // As AMD's reader takes archives without this field.
            scheme: Scheme::None,
            rows: Vec::new(),
            blobs: Vec::new(),
            frames: None,
            fields: Vec::new(),
        };
        let (mut offset, mut stored) = (None, None);
        let mut values = Values::new(bytes, at);
        let mut names = HashSet::new();
        for _ in 0..values.map("no table of contents")? {
            let (name, mut value) = field(&mut values)?;
            let Some(name) = name else { continue };
            let start = value;
            if !names.insert(name) {
                return Err(Malformed::new("a field occurs twice", start.at()));
            }
            match name {
                "group_name" => table.group = value.text("group_name is not text")?,
                "gfx_arch_family" => table.family = value.text("gfx_arch_family is not text")?,
                "gfx_arches" => {
                    for _ in 0..value.list("gfx_arches is not a list")? {
                        table
                            .architectures
                            .push(value.text("architecture is not text")?);
                    }
                }
                "compression_scheme" => {
                    table.scheme = match value.text("compression_scheme is not text")? {
                        "none" => Scheme::None,
                        "zstd-per-kernel" => Scheme::ZstdPerKernel,
                        _ => return Err(Malformed::new("unknown compression scheme", start.at())),
                    }
                }
                "blobs" => {
                    for _ in 0..value.list("blobs is not a list")? {
                        table.blobs.push(blob(&mut value)?);
                    }
                }
                "zstd_offset" => offset = Some(value.number("zstd_offset is not a number")?),
                "zstd_size" => stored = Some(value.number("zstd_size is not a number")?),
                "toc" => table.read_rows(&mut value)?,
                _ => {}
            }
            let mut whole = start;
            table.fields.push((name, whole.skip()?));
        }
        table.frames = offset
            .zip(stored)
            .map(|(start, size)| start..start.saturating_add(size));
        Ok(table)
    }

    /// Reads the entries: for each program, those of each architecture.
    fn read_rows(&mut self, values: &mut Values<'a>) -> Result<(), Malformed> {
        for _ in 0..values.map("toc is not a map")? {
            let (binary, mut architectures) = field(values)?;
            let Some(binary) = binary else { continue };
            for _ in 0..architectures.map("the entries of a program are not a map")? {
                let (arch, mut entry) = field(&mut architectures)?;
                let Some(arch) = arch else { continue };
                let at = entry.at();
                let (mut ordinal, mut original_size, mut others) = (None, None, Vec::new());
                for _ in 0..entry.map("an entry is not a map")? {
                    let (name, mut value) = field(&mut entry)?;
                    match name {
                        Some("ordinal") => ordinal = Some(value.number("ordinal is not a number")?),
                        Some("original_size") => {
                            original_size = Some(value.number("original_size is not a number")?);
                        }
                        Some(name) => others.push((name, value.skip()?)),
                        None => {}
                    }
                }
                self.rows.push(Row {
                    binary,
                    arch,
                    ordinal: ordinal.ok_or(Malformed::new("an entry has no ordinal", at))?,
                    original_size,
                    others,
                    at,
                });
            }
        }
        Ok(())
    }
}

/// Reads the name and the value of a field. The name is none if it is not text: readers ignore the
/// field.
fn field<'a>(values: &mut Values<'a>) -> Result<(Option<&'a str>, Values<'a>), Malformed> {
    let mut key = *values;
    values.skip()?;
    let value = *values;
    values.skip()?;
    Ok((key.text("").ok(), value))
}

/// Reads the range of a code object.
fn blob(values: &mut Values<'_>) -> Result<Range<u64>, Malformed> {
    let at = values.at();
    let (mut offset, mut size) = (None, None);
    for _ in 0..values.map("a blob is not a map")? {
        let (name, mut value) = field(values)?;
        match name {
            Some("offset") => offset = Some(value.number("offset is not a number")?),
            Some("size") => size = Some(value.number("size is not a number")?),
            _ => {}
        }
    }
    let fault = Malformed::new("a blob has no offset or size", at);
    let (offset, size) = offset.zip(size).ok_or(fault)?;
    Ok(offset..offset.saturating_add(size))
}

/// The range of a code object, if it is inside of `data`.
fn checked(data: &[u8], blob: &Range<u64>) -> Result<Range<u64>, Malformed> {
    let size = blob.end - blob.start;
    slice(
        data,
        blob.start,
        size,
        "code object past the end",
        blob.start,
    )?;
    Ok(blob.clone())
}

/// The ranges of the zstd frames, by number. After a damaged one, no other can be found.
fn frames(data: &[u8], table: &Table<'_>) -> Result<Vec<Result<Range<u64>, Malformed>>, Malformed> {
    let Some(place) = &table.frames else {
        return Err(Malformed::new("no zstd_offset or zstd_size", table.at));
    };
    let (start, what) = (place.start, "zstd frames past the end");
    let bytes = slice(data, start, place.end - start, what, start)?;
    let mut found = Vec::new();
    let mut at = 4;
    for _ in 0..number(bytes, 0, 4, what).map_err(|fault| fault.shifted(start))? {
        let what = "zstd frame past the end";
        let frame = number(bytes, at, 4, what).and_then(|size| {
            slice(bytes, at + 4, size, what, at)?;
            Ok(at + 4..at + 4 + size)
        });
        match frame {
            Ok(frame) => {
                at = frame.end;
                found.push(Ok(start + frame.start..start + frame.end));
            }
            Err(fault) => {
                found.push(Err(fault.shifted(start)));
                break;
            }
        }
    }
    Ok(found)
}
