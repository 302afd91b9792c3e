//! The sections of native objects that hold device images (docs/spec/containers.md 4.4): ELF of any class, byte order and kind,
//! by section type, COFF by name; and the sections of LLVM 14, whose names say what the image in them is for.
//!
//! ```
//! use object::write::Object;
//! use object::{Architecture, BinaryFormat, Endianness, SectionKind};
//! use offld::formats::{offload_binary, offload_sections};
//! use offld::model::ImageKind;
//!
//! let image = offload_binary::write(ImageKind::Object, 1, 0, &[("triple", "x86_64-pc-linux-gnu")], b"code");
//! let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
//! let section = object.add_section(Vec::new(), b".llvm.offloading".to_vec(), SectionKind::ReadOnlyData);
//! object.set_section_data(section, image.clone(), 8);
//! let found = offload_sections::sections(&object.write()?)?;
//! assert_eq!((found[0].name.as_str(), found[0].size), (".llvm.offloading", image.len() as u64));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use anyhow::{Context, Result, bail};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::coff::{CoffFile, CoffHeader};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, FileKind, Object, ObjectSection, pe};

use super::elf::SHT_LLVM_OFFLOADING;
use super::offload_binary::is_offload_binary;
use crate::error::Error;

#[cfg(test)]
mod tests;

/// What the names of sections with images begin with; in programs, of bare ones.
pub const NAME: &str = ".llvm.offloading";
/// Where a relocatable link keeps images that are linked already, so that no later link takes them for its inputs
/// (docs/spec/faults.md F17).
pub const RELOCATABLE: &str = ".llvm.offloading.relocatable";
/// No triple and architecture are longer.
pub(crate) const LONGEST_NAME: usize = 4096;

/// A section with device images.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FatSection {
    /// Its name.
    pub name: String,
    /// Where its contents are in the file; they need not be all there.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
    /// It is part of the program in memory: a linker's work, in which other things may stand beside containers.
    pub allocated: bool,
}

/// The sections with images of the ELF or COFF object `data`, in its order. Anything else has none.
pub fn sections(data: &[u8]) -> Result<Vec<FatSection>, Error> {
    found(data).map_err(Error::malformed)
}

fn found(data: &[u8]) -> Result<Vec<FatSection>> {
    let found = match FileKind::parse(data) {
        Ok(FileKind::Elf32) => elf_sections::<FileHeader32<Endianness>>(data)?,
        Ok(FileKind::Elf64) => elf_sections::<FileHeader64<Endianness>>(data)?,
        Ok(FileKind::Coff) => coff_sections::<pe::ImageFileHeader>(data)?,
        Ok(FileKind::CoffBig) => coff_sections::<pe::AnonObjectHeaderBigobj>(data)?,
        _ => Vec::new(),
    };
    // Sections that share bytes could make a small file ask for any amount of memory, and no compiler writes them.
    let total = found.iter().fold(0, |total: u64, section| total.saturating_add(section.size));
    if total > data.len() as u64 && found.len() > 1 {
        bail!("sections share their bytes, or are past the end of the file");
    }
    Ok(found)
}

/// A section's name as text. Any number of sections may share one, so it must be short.
fn text(name: &[u8]) -> Result<String> {
    if name.len() > LONGEST_NAME {
        bail!("a section of device code has a name of {} bytes", name.len());
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn elf_sections<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<Vec<FatSection>> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut found = Vec::new();
    for section in sections.iter() {
        let name = sections.section_name(endian, section).unwrap_or_default();
        let by_type = section.sh_type(endian) == SHT_LLVM_OFFLOADING;
        let by_name = section.sh_type(endian) == elf::SHT_PROGBITS && name.starts_with(NAME.as_bytes());
        if !by_type && !by_name {
            continue;
        }
        let name = text(name)?;
        let (offset, size) = section.file_range(endian).unwrap_or_default();
        // A section that lost its type on the way is told by its name and by what is in it.
        let contents = section.data(endian, data).unwrap_or_default();
        if by_type || named(&name).is_some() || is_offload_binary(contents) {
            found.push(FatSection { name, offset, size, allocated: section.sh_flags(endian).contains(elf::SHF_ALLOC) });
        }
    }
    Ok(found)
}

fn coff_sections<Coff: CoffHeader>(data: &[u8]) -> Result<Vec<FatSection>> {
    let file = CoffFile::<&[u8], Coff>::parse(data)?;
    let mut found = Vec::new();
    for section in file.sections() {
        let name = section.name_bytes().context("a section's name")?;
        if name.starts_with(NAME.as_bytes()) {
            let (offset, size) = section.file_range().unwrap_or_default();
            found.push(FatSection { name: text(name)?, offset, size, allocated: false });
        }
    }
    Ok(found)
}

/// Whether a section's name goes on after the one that is common to all: with a triple and an architecture, or otherwise.
pub fn is_longer(section: &str) -> bool {
    section.strip_prefix(NAME).is_some_and(|rest| rest.starts_with('.'))
}

/// Triple and architecture in the name of a section of LLVM 14, `.llvm.offloading.<triple>.<arch>[.<what clang called the file>]`.
pub fn named(section: &str) -> Option<(&str, &str)> {
    let mut parts = section.strip_prefix(NAME)?.strip_prefix('.')?.splitn(3, '.');
    let (triple, arch) = (parts.next()?, parts.next()?);
    triple.contains('-').then_some((triple, arch))
}
