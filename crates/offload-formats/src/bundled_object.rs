//! Bundles in sections of host objects (docs/spec/containers.md 2.10): one section per code object,
//! named with the bundler's magic and the entry's ID. Also `.hip_fatbin`, the section for whole
//! bundles in HIP programs.
//!
//! This module only reads headers, names and symbols. Code objects are ranges of the file, and a
//! new object is a list of parts to copy. The output equals that of llvm-objcopy byte for byte.
//!
//! ```
//! use object::write::Object;
//! use object::{Architecture, BinaryFormat, Endianness, SectionKind};
//! use offload_formats::bundled_object::bundle_sections;
//!
//! let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
//! let name = b"__CLANG_OFFLOAD_BUNDLE__hip-amdgcn-amd-amdhsa--gfx90a".to_vec();
//! let section = object.add_section(Vec::new(), name, SectionKind::ReadOnlyData);
//! object.set_section_data(section, b"code".to_vec(), 1);
//! let object = object.write()?;
//! let found = bundle_sections(&object)?;
//! assert_eq!((found[0].id, found[0].size), ("hip-amdgcn-amd-amdhsa--gfx90a", 4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod coff;
mod elf;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use object::{FileKind, Object, ObjectSection, SectionKind};

use super::bundle::MAGIC;
use super::compose::Part;
use crate::bytes::slice;
use crate::error::Malformed;
use crate::magic::{ByteKind, byte_kind};
use crate::offload_sections::{HIP_BUNDLES, is_named, known};

/// A section to add to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSection<'a> {
    /// The ID of the entry. The section's name is the bundler's magic followed by this ID.
    pub id: &'a str,
    /// The size in bytes.
    pub size: u64,
}

/// Reasons why an object cannot be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The object is damaged.
    Malformed(Malformed),
    /// This type of object does not support bundles.
    Unsupported(Kind),
    /// The file is not an object file.
    NoObject,
}

impl From<Malformed> for Fault {
    fn from(fault: Malformed) -> Self {
        Fault::Malformed(fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Fault::Malformed(fault) => return fault.fmt(f),
            Fault::NoObject => return f.write_str("not an object file"),
            Fault::Unsupported(Kind::MachO) => "a Mach-O file",
            Fault::Unsupported(Kind::Wasm) => "a WebAssembly file",
            Fault::Unsupported(Kind::Xcoff) => "an XCOFF file",
            Fault::Unsupported(Kind::Pe) => "a linked PE file",
            Fault::Unsupported(Kind::Elf | Kind::Coff) => "this file",
        };
        write!(
            f,
            "the host object is {kind}: only ELF and COFF objects can contain bundles"
        )
    }
}

impl std::error::Error for Fault {}

/// The parts of `object` with sections added for `new`, in order. `Part::New` has the index of a
/// new section. The new sections are of an ordinary type, with flags that make linkers omit them.
pub fn with_sections(object: &[u8], new: &[NewSection<'_>]) -> Result<Vec<Part>, Fault> {
    rewrite(object, &|_| false, new)
}

/// The parts of `object` without the sections of bundles. The result is the host compiler's
/// original output, byte for byte if the compiler was clang.
pub fn without_bundles(object: &[u8]) -> Result<Vec<Part>, Fault> {
    rewrite(object, &|name| name.starts_with(MAGIC), &[])
}

fn rewrite(
    object: &[u8],
    remove: &dyn Fn(&[u8]) -> bool,
    new: &[NewSection<'_>],
) -> Result<Vec<Part>, Fault> {
    match kind(object) {
        Some(Kind::Elf) => Ok(elf::rewrite(object, remove, new)?),
        Some(Kind::Coff) => Ok(coff::rewrite(object, remove, new)?),
        Some(other) => Err(Fault::Unsupported(other)),
        None => Err(Fault::NoObject),
    }
}

/// The name of a section for `id`.
fn section_name(id: &str) -> Vec<u8> {
    [MAGIC, id.as_bytes()].concat()
}

// Finds bundle sections in ELF and COFF objects and in linked programs.

/// The formats of object files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// ELF: objects, libraries and programs.
    Elf,
    /// COFF objects, small or big.
    Coff,
    /// PE: programs and libraries for Windows.
    Pe,
    /// Mach-O, for Apple's systems.
    MachO,
    /// WebAssembly.
    Wasm,
    /// XCOFF, for AIX.
    Xcoff,
}

/// The format of the object file `data`. `None` for other data, such as bitcode, archives, bundles
/// or text.
pub fn kind(data: &[u8]) -> Option<Kind> {
    if data.starts_with(b"\0asm") {
        return Some(Kind::Wasm);
    }
    let ByteKind::Object(kind) = byte_kind(data, true) else {
        return None;
    };
    match kind {
        FileKind::Elf32 | FileKind::Elf64 => Some(Kind::Elf),
        FileKind::Coff | FileKind::CoffBig => Some(Kind::Coff),
        FileKind::Pe32 | FileKind::Pe64 => Some(Kind::Pe),
        FileKind::MachO32 | FileKind::MachO64 => Some(Kind::MachO),
        FileKind::Xcoff32 | FileKind::Xcoff64 => Some(Kind::Xcoff),
        _ => None,
    }
}

/// A code object in its own section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BundleSection<'a> {
    /// The ID of the entry, which follows the magic in the section's name.
    pub id: &'a str,
    /// The offset of the contents in the file.
    pub at: u64,
    /// The size of the contents in bytes.
    pub size: u64,
}

/// The sections of `data` that are entries of a bundle, in the order of the section table. Empty if
/// `data` is not an ELF or COFF file.
pub fn bundle_sections(data: &[u8]) -> Result<Vec<BundleSection<'_>>, Malformed> {
    let mut found = Vec::new();
    each_section(data, |name, range| {
        if let Some(id) = name.strip_prefix(MAGIC) {
            let id = std::str::from_utf8(id)
                .map_err(|_| Malformed::new("bundle id is not text", range.start))?;
            found.push(BundleSection {
                id,
                at: range.start,
                size: range.end - range.start,
            });
        }
        Ok(())
    })?;
    Ok(found)
}

/// The ranges of the nonempty `.hip_fatbin` sections of `data`, an ELF or COFF object, library or
/// program.
pub fn hip_sections(data: &[u8]) -> Result<Vec<Range<u64>>, Malformed> {
    let linked_pe = kind(data) == Some(Kind::Pe);
    let mut found = Vec::new();
    each_section(data, |name, range| {
        let is_hip = is_named(name, HIP_BUNDLES, linked_pe);
        if is_hip && !range.is_empty() {
            found.push(range);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Calls `look` with the name and range of every section whose name looks like that of a bundle
/// section.
fn each_section<'a>(
    data: &'a [u8],
    mut look: impl FnMut(&'a [u8], Range<u64>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    if !matches!(kind(data), Some(Kind::Elf | Kind::Coff | Kind::Pe)) {
        return Ok(());
    }
    let file = object::File::parse(data).map_err(|_| Malformed::new("inconsistent headers", 0))?;
    for section in file.sections() {
        let name = section
            .name_bytes()
            .map_err(|_| Malformed::new("a section's name is past the end", 0))?;
        let (at, size) = section.file_range().unwrap_or_default();
        // Tables of sections and symbols, whatever their names are.
        if section.kind() == SectionKind::Metadata {
            continue;
        }
        let interesting = name.starts_with(MAGIC)
            || known(name, true).is_some_and(|known| known.name == HIP_BUNDLES);
        if interesting {
            slice(data, at, size, "section past the end", at)?;
            look(name, at..at + size)?;
        }
    }
    Ok(())
}

// String tables with LLVM's layout: no duplicates, and a string that is the suffix of another
// shares its bytes. The order depends only on the strings, so rewriting an unchanged object gives
// the same table.

/// A string table.
struct Strings<'a> {
    offsets: HashMap<&'a [u8], u64>,
    /// The stored strings, in order.
    stored: Vec<&'a [u8]>,
    size: u64,
}

impl<'a> Strings<'a> {
    /// An empty table with `first` bytes before its first string.
    fn new(first: u64) -> Self {
        Strings {
            offsets: HashMap::new(),
            stored: Vec::new(),
            size: first,
        }
    }

    /// Appends strings, sorted by their last bytes, so that a suffix of another string directly
    /// follows it.
    fn add(&mut self, strings: impl IntoIterator<Item = &'a [u8]>) {
        let unknown = |string: &&[u8]| !string.is_empty() && !self.offsets.contains_key(string);
        let mut strings: Vec<&[u8]> = strings.into_iter().filter(unknown).collect();
        strings.sort_unstable_by(|one, other| other.iter().rev().cmp(one.iter().rev()));
        strings.dedup();
        for string in strings {
            if self
                .stored
                .last()
                .is_some_and(|previous| previous.ends_with(string))
            {
                self.offsets
                    .insert(string, self.size - string.len() as u64 - 1);
                continue;
            }
            self.offsets.insert(string, self.size);
            self.stored.push(string);
            self.size += string.len() as u64 + 1;
        }
    }

    /// The offset of `string`, or 0 for the empty string and for one that was not added.
    fn offset(&self, string: &[u8]) -> u64 {
        self.offsets.get(string).copied().unwrap_or(0)
    }

    /// The size of the table, including the bytes before the first string.
    fn size(&self) -> u64 {
        self.size
    }

    /// The table: `first`, then the strings, each with a terminating zero.
    fn bytes(&self, first: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size as usize);
        bytes.extend_from_slice(first);
        for string in &self.stored {
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        bytes
    }
}
