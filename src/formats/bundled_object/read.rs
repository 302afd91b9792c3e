//! Finds bundle sections in ELF and COFF objects and in linked programs.

use std::ops::Range;

use object::{FileKind, Object, ObjectSection};

use crate::error::Malformed;
use crate::formats::bundle::MAGIC;
use crate::formats::magic::{ByteKind, byte_kind};
use crate::formats::offload_sections::{HIP_BUNDLES, is_cut, known};
use crate::formats::slice;

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

/// The format of the object file `data`. `None` for other data, such as bitcode, archives, bundles,
/// text.
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
        let is_hip = name == HIP_BUNDLES.as_bytes() || linked_pe && is_cut(name, HIP_BUNDLES);
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
        let interesting = name.starts_with(MAGIC)
            || known(name, true).is_some_and(|known| known.name == HIP_BUNDLES);
        if interesting {
            slice(data, at, size, "section past the end", at)?;
            look(name, at..at + size)?;
        }
    }
    Ok(())
}
