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
//! use offld::formats::bundled_object::bundle_sections;
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
mod read;
mod strings;

#[cfg(test)]
mod tests;

pub use read::{BundleSection, Kind, bundle_sections, hip_sections, kind};

use std::fmt;

use super::bundle::MAGIC;
use super::compose::Part;
use crate::error::Malformed;

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

/// The parts of `object` with sections added for `new`, in order. `Part::New` has the index of a new
/// section. The sections have no special type and are flagged
/// so that linkers omit them.
pub fn with_sections(object: &[u8], new: &[NewSection<'_>]) -> Result<Vec<Part>, Fault> {
    rewrite(object, &|_| false, new)
}

/// The parts of `object` without the sections of bundles. The result is the original output of the host
/// compiler, byte for byte if that was clang.
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
