//! One table with the names of all sections of device code or of its registration, and functions
//! that find sections with device images in native objects (docs/spec/containers.md 4.4): by section
//! type in ELF files, by name in COFF objects. In both, they also find the sections of LLVM 14, whose
//! names contain the image's target.
//!
//! ```
//! use object::write::Object;
//! use object::{Architecture, BinaryFormat, Endianness, SectionKind};
//! use offload_formats::{offload_binary, offload_sections};
//! use offload_formats::model::ImageKind;
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
use crate::model::{Generation, OffloadKind};

#[cfg(test)]
mod tests;

/// The start of the names of LLVM's sections with images. Sections with bare images, in programs,
/// have just this name.
pub const NAME: &str = ".llvm.offloading";
/// The section in which a relocatable link stores images that are already linked, so that no later
/// link takes them as inputs (docs/spec/faults.md F17).
pub const RELOCATABLE: &str = ".llvm.offloading.relocatable";
/// Bundles of HIP.
pub const HIP_BUNDLES: &str = ".hip_fatbin";
/// Fatbinaries of CUDA.
pub(crate) const CUDA_FATBINARIES: &str = ".nv_fatbin";
/// Fatbinaries with the relocatable code that was the input of nvcc's device link. The CUDA driver links
/// that code again for a device that no linked image fits. CUDA's `fatbinary_section.h` calls it
/// prelinked.
pub const CUDA_PRELINKED: &str = "__nv_relfatbin";
/// Images for LLVM 22's SYCL runtime, in no container.
pub(crate) const SYCL_IMAGES: &str = ".sycl_offloading";
/// The OffloadBinary for SYCL's runtimes of LLVM 23 and later.
pub(crate) const SYCL_BINARY: &str = ".sycl_fatbin";
/// The structs that are passed to the runtime of HIP.
pub const HIP_WRAPPERS: &str = ".hipFatBinSegment";
/// The structs that are passed to the runtime of CUDA.
pub(crate) const CUDA_WRAPPERS: &str = ".nvFatBinSegment";
/// The entries of all kinds, in LLVM 21 and later.
pub const ENTRIES: &str = "llvm_offload_entries";
/// The same in COFF objects: linkers sort sections by the part after the `$`.
pub(crate) const COFF_ENTRIES: &str = "llvm_offload_entries$OE";
/// The start of the name of the symbol that a linker defines for the start of an entry table.
pub const START_PREFIX: &str = "__start_";
/// The same for the end.
pub const STOP_PREFIX: &str = "__stop_";
/// The start of the name of the variable through which a table exists even without entries.
pub(crate) const DUMMY_PREFIX: &str = "__dummy.";
/// The limit on the length of a section's name, which may contain a triple and an architecture.
pub const LONGEST_NAME: usize = 4096;
/// The length of section names in programs for Windows. Longer ones are cut off, unless the linker
/// added a string table.
const PE_NAME: usize = 8;

/// The contents of a section of device code or of its registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionContents {
    /// Containers in objects; containers or bare images in programs.
    Images,
    /// Containers.
    Containers,
    /// Structs through which a runtime gets a container.
    Wrappers,
    /// Offload entries. The section names are C identifiers, so that linkers define symbols for
    /// their start and end.
    Entries,
}

/// A section of device code or of its registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownSection {
    /// The name, or its start.
    pub name: &'static str,
    /// The contents.
    pub contents: SectionContents,
    /// The kind of the device code, if it is always the same. None for sections that all kinds
    /// share.
    pub kind: Option<OffloadKind>,
}

const fn row(
    name: &'static str,
    contents: SectionContents,
    kind: Option<OffloadKind>,
) -> KnownSection {
    KnownSection {
        name,
        contents,
        kind,
    }
}

/// All sections of device code and of its registration.
const SECTIONS: [KnownSection; 14] = {
    use OffloadKind::{Cuda, Hip, OpenMp, Sycl};
    use SectionContents::{Containers, Entries, Images, Wrappers};
    [
        row(NAME, Images, None),
        row(RELOCATABLE, Images, None),
        row(HIP_BUNDLES, Containers, Some(Hip)),
        row(CUDA_FATBINARIES, Containers, Some(Cuda)),
        row("__nv_fatbin", Containers, Some(Cuda)),
        row(CUDA_PRELINKED, Containers, Some(Cuda)),
        row(SYCL_IMAGES, Images, Some(Sycl)),
        row(SYCL_BINARY, Containers, Some(Sycl)),
        row(HIP_WRAPPERS, Wrappers, Some(Hip)),
        row(CUDA_WRAPPERS, Wrappers, Some(Cuda)),
        row(ENTRIES, Entries, None),
        row("omp_offloading_entries", Entries, Some(OpenMp)),
        row("cuda_offloading_entries", Entries, Some(Cuda)),
        row("hip_offloading_entries", Entries, Some(Hip)),
    ]
};

/// Returns the row whose name is `name` or the start of it. `cut`: `name` may be cut off, as in
/// programs for Windows.
pub fn known(name: &[u8], cut: bool) -> Option<&'static KnownSection> {
    SECTIONS
        .iter()
        .find(|row| name.starts_with(row.name.as_bytes()) || cut && is_cut(name, row.name))
}

/// Whether `name` is `whole` or, if `cut`, `whole` cut off as in programs for Windows.
pub(crate) fn is_named(name: &[u8], whole: &str, cut: bool) -> bool {
    name == whole.as_bytes() || cut && is_cut(name, whole)
}

/// Whether `name` is `whole` cut off to the length of section names in programs for Windows.
fn is_cut(name: &[u8], whole: &str) -> bool {
    name.len() == PE_NAME && whole.as_bytes().starts_with(name)
}

/// Returns the name of a COFF section up to the `$`. Linkers sort sections by the rest.
pub fn without_sort_key(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == b'$').next().unwrap_or_default()
}

/// Returns the rows of entry tables: of LLVM 21 and later, then of older releases.
pub(crate) fn entry_tables() -> impl Iterator<Item = &'static KnownSection> {
    SECTIONS
        .iter()
        .filter(|row| row.contents == SectionContents::Entries)
}

/// Returns the row for the entry table with exactly this name.
pub fn entry_table(name: &[u8]) -> Option<&'static KnownSection> {
    entry_tables().find(|row| row.name.as_bytes() == name)
}

/// Whether a symbol is the start of an entry table, as linkers define it. Only a wrapper's
/// registration code refers to it.
pub fn is_start_of_entries(symbol: &[u8]) -> bool {
    symbol
        .strip_prefix(START_PREFIX.as_bytes())
        .is_some_and(|table| entry_table(table).is_some())
}

/// Returns the section of the entries of `kind`: one for all kinds since LLVM 21, one for each kind
/// before. SYCL has only the former, because LLVM's support for it came later. The linker's
/// `__start_` and `__stop_` symbols are named after the section.
pub fn entry_section(generation: Generation, kind: OffloadKind) -> &'static str {
    entry_tables()
        .find(|row| row.kind == Some(kind) && generation < Generation::Llvm21)
        .map_or(ENTRIES, |row| row.name)
}

/// A section with device images.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FatSection {
    /// The section's name.
    pub name: String,
    /// The offset of the contents in the file. It can be past the end of a truncated file.
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

/// The section's name as text. Its length is limited, because many sections may share a name and
/// each gets a copy.
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

/// Whether a section's name continues after [`NAME`] with a dot, for example
/// followed by a triple or `relocatable`.
pub fn is_longer(section: impl AsRef<[u8]>) -> bool {
    section
        .as_ref()
        .strip_prefix(NAME.as_bytes())
        .is_some_and(|rest| rest.starts_with(b"."))
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
