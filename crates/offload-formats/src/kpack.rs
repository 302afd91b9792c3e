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

mod msgpack;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use object::{BinaryFormat, File, Object, ObjectSection, Section};

use crate::bytes::{number, slice, u32_at, u64_at};
use crate::compose::{Item, Part, PartList, check_kept, is_same};
use crate::error::Malformed;
use crate::offload_sections::{HIP_WRAPPERS, is_named};
use crate::registration::fatbin::{HIP_MAGIC, WRAPPER_SIZE};
use msgpack::{Values, Written};

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

/// The properties of a new archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'a> {
    /// The build that the archive belongs to.
    pub group: &'a str,
    /// The architectures that the file is for, as one name.
    pub family: &'a str,
    /// The way in which code objects are stored.
    pub scheme: Scheme,
}

/// A code object of a new archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The number of stored bytes: of the code object, or of its zstd frame.
    pub stored: u64,
    /// The size of the code object.
    pub original_size: u64,
}

/// An entry of a new archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// The program and the number of the registration: `lib/librccl.so#0`.
    pub binary: &'a str,
    /// The architecture.
    pub arch: &'a str,
    /// The index of its code object. Entries with equal code share one.
    pub code: usize,
}

/// Returns the parts of a new archive. `Part::New` has the index of a code object. The bytes equal
/// those of AMD's writer.
///
/// # Errors
/// An entry's code object does not exist, or a frame has 4 GiB or more.
pub fn create(
    head: &Head<'_>,
    entries: &[NewEntry<'_>],
    codes: &[Code],
) -> Result<Vec<Part>, Malformed> {
    let mut kind = Written::default();
    kind.text("hsaco");
    let mut rows = Vec::new();
    for entry in entries {
        let code = codes.get(entry.code);
        let code = code.ok_or(Malformed::new("no code object of this number", 0))?;
        rows.push(Row {
            binary: entry.binary,
            arch: entry.arch,
            ordinal: entry.code as u64,
            original_size: Some(code.original_size),
            others: vec![("type", kind.0.as_slice())],
            at: 0,
        });
    }
    let mut architectures: Vec<&str> = Vec::new();
    for entry in entries {
        if !architectures.contains(&entry.arch) {
            architectures.push(entry.arch);
        }
    }
    let number = |number: u64| {
        let mut bytes = Written::default();
        bytes.number(number);
        bytes.0
    };
    let text = |text: &str| {
        let mut bytes = Written::default();
        bytes.text(text);
        bytes.0
    };
    let fields = vec![
        ("format_version", Cow::Owned(number(VERSION.into()))),
        ("group_name", text(head.group).into()),
        ("gfx_arch_family", text(head.family).into()),
        ("gfx_arches", list_of(&architectures).into()),
        ("toc", Vec::new().into()),
        ("compression_scheme", text(head.scheme.name()).into()),
    ];
    let stored = codes.iter().enumerate();
    let stored = stored.map(|(index, code)| Stored::New(index, code.stored));
    assemble(fields, head.scheme, &rows, &stored.collect::<Vec<_>>())
}

/// Returns the parts of the archive `data` with the entries of `items`, in their order. `Part::New`
/// has the index of an item and stands for its bytes as stored. The other fields of the table of
/// contents stay. An architecture that loses all of its entries is no longer listed.
///
/// # Errors
/// The archive is damaged, an item names a missing or damaged entry, or a frame has 4 GiB or more.
pub fn compose(data: &[u8], items: &[Item<(), Code>]) -> Result<Vec<Part>, Malformed> {
    let mut table = Table::read(data)?;
    if is_same(items, table.rows.len()) {
        return Ok(vec![Part::Old(0..data.len() as u64)]);
    }
    let old = match table.scheme {
        Scheme::None => table.blobs.iter().map(|blob| checked(data, blob)).collect(),
        Scheme::ZstdPerKernel => frames(data, &table)?,
    };
    let mut olds: Vec<Option<Row<'_>>> = table.rows.drain(..).map(Some).collect();
    let had: Vec<&str> = olds.iter().flatten().map(|row| row.arch).collect();
    let (mut rows, mut stored) = (Vec::new(), Vec::new());
    let mut shared: HashMap<u64, u64> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let missing = Malformed::new("the archive has no such entry", table.at);
        let row = item.old().and_then(|entry| olds.get_mut(entry)?.take());
        let row = row.ok_or(missing)?;
        let next = stored.len() as u64;
        let (ordinal, original_size) = match item {
            Item::Changed { size: code, .. } => {
                stored.push(Stored::New(index, code.stored));
                (next, Some(code.original_size))
            }
            _ => {
                let ordinal = *shared.entry(row.ordinal).or_insert(next);
                if ordinal == next {
                    let range = usize::try_from(row.ordinal).ok().and_then(|at| old.get(at));
                    stored.push(Stored::Old(range.ok_or(missing)?.clone()?));
                }
                (ordinal, row.original_size)
            }
        };
        rows.push(Row {
            ordinal,
            original_size,
            ..row
        });
    }
    let kept = stored.iter().map(|one| match one {
        Stored::Old(range) => range.end - range.start,
        Stored::New(..) => 0,
    });
    check_kept(kept, data.len() as u64, table.at)?;
    let remains = |arch: &&str| !had.contains(arch) || rows.iter().any(|row| row.arch == *arch);
    table.architectures.retain(remains);
    let fields = table.fields.iter().map(|(name, value)| match *name {
        "gfx_arches" => (*name, Cow::Owned(list_of(&table.architectures))),
        name => (name, Cow::Borrowed(*value)),
    });
    assemble(fields.collect(), table.scheme, &rows, &stored)
}

fn list_of(texts: &[&str]) -> Vec<u8> {
    let mut bytes = Written::default();
    bytes.list(texts.len());
    for text in texts {
        bytes.text(text);
    }
    bytes.0
}

/// A code object as it is stored.
enum Stored {
    /// A range of the old archive.
    Old(Range<u64>),
    /// New contents with this index and size.
    New(usize, u64),
}

impl Stored {
    fn size(&self) -> u64 {
        match self {
            Stored::Old(range) => range.end - range.start,
            Stored::New(_, size) => *size,
        }
    }

    fn push_to(&self, parts: &mut PartList) {
        match self {
            Stored::Old(range) => parts.old(range.clone()),
            Stored::New(index, size) => parts.contents(*index, *size),
        }
    }
}

/// The table's map of programs, in the order of their first entries, and their architectures.
fn toc(rows: &[Row<'_>]) -> Vec<u8> {
    let mut binaries: Vec<(&str, Vec<&Row<'_>>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for row in rows {
        let place = *places.entry(row.binary).or_insert(binaries.len());
        match binaries.get_mut(place) {
            Some((_, rows)) => rows.push(row),
            None => binaries.push((row.binary, vec![row])),
        }
    }
    let mut bytes = Written::default();
    bytes.map(binaries.len());
    for (binary, rows) in binaries {
        bytes.text(binary);
        bytes.map(rows.len());
        for row in rows {
            bytes.text(row.arch);
            bytes.map(row.others.len() + 1 + usize::from(row.original_size.is_some()));
            // The order of AMD's writer: type, ordinal, size, others.
            let first = usize::from(row.others.first().is_some_and(|(name, _)| *name == "type"));
            let (before, after) = row.others.split_at_checked(first).unwrap_or_default();
            let others = |bytes: &mut Written, fields: &[(&str, &[u8])]| {
                for (name, value) in fields {
                    bytes.text(name);
                    bytes.raw(value);
                }
            };
            others(&mut bytes, before);
            bytes.text("ordinal");
            bytes.number(row.ordinal);
            if let Some(size) = row.original_size {
                bytes.text("original_size");
                bytes.number(size);
            }
            others(&mut bytes, after);
        }
    }
    bytes.0
}

/// Lays out the archive: header, code objects, table of contents.
fn assemble(
    mut fields: Vec<(&str, Cow<'_, [u8]>)>,
    scheme: Scheme,
    rows: &[Row<'_>],
    stored: &[Stored],
) -> Result<Vec<Part>, Malformed> {
    let mut parts = PartList::default();
    parts.pad_to(FIRST);
    let mut places = Vec::new();
    match scheme {
        Scheme::None => {
            let mut blobs = Written::default();
            blobs.list(stored.len());
            for one in stored {
                blobs.map(2);
                blobs.text("offset");
                blobs.number(parts.size);
                blobs.text("size");
                blobs.number(one.size());
                one.push_to(&mut parts);
            }
            places.push(("blobs", blobs.0));
        }
        Scheme::ZstdPerKernel => {
            let too_large = |_| Malformed::new("too large for a kpack archive", 0);
            let count = u32::try_from(stored.len()).map_err(too_large)?;
            parts.bytes(count.to_le_bytes().to_vec());
            for one in stored {
                let size = u32::try_from(one.size()).map_err(too_large)?;
                parts.bytes(size.to_le_bytes().to_vec());
                one.push_to(&mut parts);
            }
            for (name, value) in [("zstd_offset", FIRST), ("zstd_size", parts.size - FIRST)] {
                let mut bytes = Written::default();
                bytes.number(value);
                places.push((name, bytes.0));
            }
        }
    }
    places.push(("toc", toc(rows)));
    for (name, value) in places {
        match fields.iter_mut().find(|(field, _)| *field == name) {
            Some((_, old)) => *old = value.into(),
            None => fields.push((name, value.into())),
        }
    }
    let table = parts.size;
    let mut bytes = Written::default();
    bytes.map(fields.len());
    for (name, value) in &fields {
        bytes.text(name);
        bytes.raw(value);
    }
    parts.bytes(bytes.0);
    // In place of the zeros before the first code object.
    let mut header = [&MAGIC[..], &VERSION.to_le_bytes(), &table.to_le_bytes()].concat();
    header.resize(FIRST as usize, 0);
    let rest = parts.parts.into_iter().skip(1);
    Ok([Part::Bytes(header)].into_iter().chain(rest).collect())
}

/// The part of a search path that the loader replaces by the architecture of the device.
pub const PLACEHOLDER: &str = "@GFXARCH@";
/// The section with the reference in ELF files.
pub const REFERENCE_SECTION: &str = ".rocm_kpack_ref";
/// The section with the reference, in ELF files and in programs for Windows.
const SECTIONS: [&str; 2] = [REFERENCE_SECTION, ".kpackrf"];
/// The magic number of a struct whose code is in an archive.
pub const HIPK: u32 = u32::from_le_bytes(*b"HIPK");
/// The loader reads at most this many bytes of the map.
const LARGEST: usize = 64 << 10;

/// A program's reference to archives, and the registrations whose code they have.
///
/// The section `.rocm_kpack_ref` (`.kpackrf` in programs for Windows) has a map of MessagePack:
/// `kernel_name`, the path of the program in its installation, and `kpack_search_paths`, paths of
/// archives, relative to the directory of the program. The structs that are passed to HIP's runtime
/// point to this map. Their magic number is `HIPK` instead of `HIPF`, and the pointer that is
/// otherwise unused has the number of the registration (ROCm/rocm-systems,
/// `shared/kpack/python/rocm_kpack/elf/kpack_transform.py`, `coff/kpack_transform.py`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The path of the program in its installation, under which archives list its code:
    /// `lib/librccl.so`.
    pub binary: String,
    /// The paths of archives, relative to the directory of the program. [`PLACEHOLDER`] stands for
    /// an architecture.
    pub search_paths: Vec<String>,
}

impl Reference {
    /// Reads the reference at the start of `data`. The loader ignores the bytes after it.
    ///
    /// # Errors
    /// The map is damaged or lacks a field.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut values = Values::new(data.get(..LARGEST).unwrap_or(data), 0);
        let (mut binary, mut search_paths) = (None, Vec::new());
        for _ in 0..values.map("not a kpack reference")? {
            let (name, mut value) = field(&mut values)?;
            match name {
                Some("kernel_name") => binary = Some(value.text("kernel_name is not text")?),
                Some("kpack_search_paths") => {
                    for _ in 0..value.list("kpack_search_paths is not a list")? {
                        search_paths.push(value.text("a search path is not text")?.to_owned());
                    }
                }
                _ => {}
            }
        }
        let binary = binary.ok_or(Malformed::new("no kernel_name in the kpack reference", 0))?;
        if search_paths.is_empty() {
            return Err(Malformed::new("no search path in the kpack reference", 0));
        }
        Ok(Reference {
            binary: binary.to_owned(),
            search_paths,
        })
    }

    /// The bytes of the reference, equal to those of AMD's tool.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Written::default();
        bytes.map(2);
        bytes.text("kpack_search_paths");
        bytes.list(self.search_paths.len());
        for path in &self.search_paths {
            bytes.text(path);
        }
        bytes.text("kernel_name");
        bytes.text(&self.binary);
        bytes.0
    }
}

/// A program whose device code is in archives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// The reference.
    pub reference: Reference,
    /// The numbers of the registrations whose code is in archives, in the order of the structs.
    pub registrations: Vec<u32>,
    /// The number of registrations whose bundles are in the program.
    pub embedded: usize,
}

/// The reference and the registrations of the ELF file or Windows program `data`; none if it does
/// not refer to archives.
///
/// # Errors
/// The file or the reference is damaged.
pub fn program<'data>(data: &'data [u8]) -> Result<Option<Program>, Malformed> {
    let damaged = |_| Malformed::new("damaged section table", 0);
    let file = File::parse(data).map_err(damaged)?;
    if !matches!(file.format(), BinaryFormat::Elf | BinaryFormat::Pe) {
        return Ok(None);
    }
    let contents = |section: Section<'data, '_>| {
        section.data().map_err(|_| {
            let at = section.file_range().map_or(0, |(start, _)| start);
            Malformed::new("section past the end", at)
        })
    };
    let reference = SECTIONS.iter().find_map(|name| file.section_by_name(name));
    let Some(reference) = reference.map(contents).transpose()? else {
        return Ok(None);
    };
    let reference = Reference::read(reference)?;
    let linked_pe = file.format() == BinaryFormat::Pe;
    let wrappers = file.sections().find(|section| {
        let name = section.name_bytes().unwrap_or_default();
        is_named(name, HIP_WRAPPERS, linked_pe)
    });
    let wrappers = wrappers.map(contents).transpose()?.unwrap_or_default();
    let wrappers = wrappers.chunks_exact(WRAPPER_SIZE as usize);
    let magic = |wrapper: &&[u8]| u32_at(wrapper, 0);
    let number = |wrapper: &[u8]| u64_at(wrapper, 16) as u32;
    Ok(Some(Program {
        reference,
        registrations: wrappers
            .clone()
            .filter(|one| magic(one) == HIPK)
            .map(number)
            .collect(),
        embedded: wrappers.filter(|one| magic(one) == HIP_MAGIC).count(),
    }))
}
