//! Bundles in the sections of host objects (docs/spec/containers.md 2.10): one section per code object, its name the bundler's
//! magic and the entry's id. And `.hip_fatbin`, the section that HIP programs keep whole bundles in.
//!
//! Only headers, names and symbols are looked at: code objects are told by where they stand in the file, and a new object is a plan
//! of what to copy. Objects come out as those of llvm-objcopy do, to the byte.
//!
//! ```
//! use object::write::Object;
//! use object::{Architecture, BinaryFormat, Endianness, SectionKind};
//! use offld::formats::fat_object::bundle_sections;
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
use std::ops::Range;

use super::bundle::MAGIC;
use crate::error::Malformed;

/// A section to be added to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSection<'a> {
    /// The id of the entry. The section's name is the bundler's magic followed by it.
    pub id: &'a str,
    /// Its size in bytes.
    pub size: u64,
}

/// A new object as a list of parts to write one after another, so that large sections need not be in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ObjectPlan {
    /// The parts, in order.
    pub parts: Vec<ObjectPart>,
}

/// A part of a new object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectPart {
    /// This range of the original object.
    Object(Range<u64>),
    /// The bytes of the new section with this index.
    Section(usize),
    /// These bytes.
    Made(Vec<u8>),
    /// This many zeros.
    Zeros(u64),
}

impl ObjectPlan {
    /// The size of the new file.
    pub fn size(&self, new: &[NewSection<'_>]) -> u64 {
        let sizes = self.parts.iter().map(|part| match part {
            ObjectPart::Object(range) => range.end - range.start,
            ObjectPart::Section(index) => new.get(*index).map_or(0, |section| section.size),
            ObjectPart::Made(bytes) => bytes.len() as u64,
            ObjectPart::Zeros(count) => *count,
        });
        sizes.sum()
    }
}

/// Why an object cannot be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It breaks its format.
    Malformed(Malformed),
    /// Bundles are not supported in this kind of object.
    Unsupported(Kind),
    /// It is not an object file.
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
        write!(f, "the host object is {kind}, and bundles can only be put into ELF and COFF objects")
    }
}

impl std::error::Error for Fault {}

/// `object` with sections added for `new`, in order. They have no special type and are marked so that linkers leave them out.
pub fn with_sections(object: &[u8], new: &[NewSection<'_>]) -> Result<ObjectPlan, Fault> {
    rewrite(object, &|_| false, new)
}

/// `object` without the sections of bundles: the object that the host's compiler made, byte for byte if that was clang.
pub fn without_bundles(object: &[u8]) -> Result<ObjectPlan, Fault> {
    rewrite(object, &|name| name.starts_with(MAGIC), &[])
}

fn rewrite(object: &[u8], remove: &dyn Fn(&[u8]) -> bool, new: &[NewSection<'_>]) -> Result<ObjectPlan, Fault> {
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

/// Collects the parts of a plan.
#[derive(Default)]
struct Planner {
    plan: ObjectPlan,
    end: u64,
}

impl Planner {
    /// Adds zeros up to offset `at`, which must not be less than the size so far.
    fn pad_to(&mut self, at: u64) {
        if at > self.end {
            self.plan.parts.push(ObjectPart::Zeros(at - self.end));
            self.end = at;
        }
    }

    fn made(&mut self, bytes: Vec<u8>) {
        self.end += bytes.len() as u64;
        self.plan.parts.push(ObjectPart::Made(bytes));
    }

    fn object(&mut self, at: u64, size: u64) {
        self.end += size;
        self.plan.parts.push(ObjectPart::Object(at..at + size));
    }

    fn section(&mut self, index: usize, size: u64) {
        self.end += size;
        self.plan.parts.push(ObjectPart::Section(index));
    }
}
