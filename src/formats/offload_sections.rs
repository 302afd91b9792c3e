//! Finds the sections with device images in native objects (docs/spec/containers.md 4.4): by
//! section type in ELF files of any class, byte order and type, and by name in COFF objects. Also
//! finds the sections of LLVM 14, whose names contain the image's target.
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

/// The prefix of the names of sections with images. In programs, the name of sections with bare
/// images.
pub const NAME: &str = ".llvm.offloading";
/// The section in which a relocatable link stores images that are already linked, so that no later
/// link takes them as inputs (docs/spec/faults.md F17).
pub const RELOCATABLE: &str = ".llvm.offloading.relocatable";
/// The limit on the length of a section's name, which may contain a triple and an architecture.
pub(crate) const LONGEST_NAME: usize = 4096;

/// A section with device images.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FatSection {
    /// The section's name.
    pub name: String,
    /// The offset of the contents in the file, which may be truncated.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// Whether the section is part of the program in memory. Then a linker made it, and other data
    /// may be next to the containers.
    pub allocated: bool,
}

/// Returns the sections with images of the ELF or COFF object `data`, in its order. Other data has
/// none.
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
    // Sections that share bytes could make a small file request any amount of memory. No compiler
    // writes them.
    let total = found
        .iter()
        .fold(0, |total: u64, section| total.saturating_add(section.size));
    if total > data.len() as u64 && found.len() > 1 {
        bail!("sections share their bytes, or are past the end of the file");
    }
    Ok(found)
}

/// The section's name as text. Many sections may share a name, so its length is limited.
fn text(name: &[u8]) -> Result<String> {
    if name.len() > LONGEST_NAME {
        bail!(
            "a section of device code has a name of {} bytes",
            name.len()
        );
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
        let by_name =
            section.sh_type(endian) == elf::SHT_PROGBITS && name.starts_with(NAME.as_bytes());
        if !by_type && !by_name {
            continue;
        }
        let name = text(name)?;
        let (offset, size) = section.file_range(endian).unwrap_or_default();
        // A section that lost its type is identified by its name and contents.
        let contents = section.data(endian, data).unwrap_or_default();
        if by_type || named(&name).is_some() || is_offload_binary(contents) {
            found.push(FatSection {
                name,
                offset,
                size,
                allocated: section.sh_flags(endian).contains(elf::SHF_ALLOC),
            });
        }
    }
    Ok(found)
}

fn coff_sections<Coff: CoffHeader>(data: &[u8]) -> Result<Vec<FatSection>> {
    let file = CoffFile::<&[u8], Coff>::parse(data)?;
    let mut found = Vec::new();
    for section in file.sections() {
        let name = section
            .name_bytes()
            .context("cannot read a section's name")?;
        if name.starts_with(NAME.as_bytes()) {
            let (offset, size) = section.file_range().unwrap_or_default();
            found.push(FatSection {
                name: text(name)?,
                offset,
                size,
                allocated: false,
            });
        }
    }
    Ok(found)
}

/// Whether text follows the common name in a section's name: a triple with an architecture, or
/// anything else.
pub fn is_longer(section: &str) -> bool {
    section
        .strip_prefix(NAME)
        .is_some_and(|rest| rest.starts_with('.'))
}

/// Returns triple and architecture from a section name of LLVM 14,
/// `.llvm.offloading.<triple>.<arch>[.<file name that clang chose>]`.
pub fn named(section: &str) -> Option<(&str, &str)> {
    let mut parts = section
        .strip_prefix(NAME)?
        .strip_prefix('.')?
        .splitn(3, '.');
    let (triple, arch) = (parts.next()?, parts.next()?);
    triple.contains('-').then_some((triple, arch))
}
