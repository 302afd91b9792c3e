//! ELF files: reads, edits and annotates objects, device images and linked programs.
//!
//! ```
//! use object::write::Object;
//! use object::{Architecture, BinaryFormat, Endianness, SectionKind};
//! use object::{File, Object as _};
//! use offload_formats::elf::edit::{Edit, rewrite};
//!
//! let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
//! let section = object.add_section(Vec::new(), b"images".to_vec(), SectionKind::ReadOnlyData);
//! object.set_section_data(section, b"code".to_vec(), 1);
//! let object = object.write()?;
//! let edited = rewrite(&object, &Edit { remove: &|section| section.name == b"images", ..Edit::default() })?;
//! assert!(File::parse(&*object)?.section_by_name("images").is_some());
//! assert!(File::parse(&*edited)?.section_by_name("images").is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod edit;
pub mod file;
pub mod interface;
pub mod notes;
pub mod raw;
pub mod rename;
pub mod resize;
pub mod strip;

use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, elf};

/// Type of sections with containers of device images, regardless of the section name
/// (`SHT_LLVM_OFFLOADING`, since LLVM 15).
pub const SHT_LLVM_OFFLOADING: elf::SectionType = elf::SectionType(0x6fff_4c0b);
/// Type of sections that list the symbols with significant addresses (`SHT_LLVM_ADDRSIG`).
pub const SHT_LLVM_ADDRSIG: elf::SectionType = elf::SectionType(0x6fff_4c03);
/// Flag of sections that linkers may place beyond the reach of 32-bit displacements, so that the
/// rest of the program stays within it (`SHF_X86_64_LARGE`).
pub const SHF_X86_64_LARGE: elf::SectionFlags = elf::SectionFlags(0x1000_0000);

/// Returns the type and the flags of a section with images in a host object. `listed`:
/// wrappers find the images by the type. `large`: the images are large, and the host is x86-64.
pub fn image_section(listed: bool, large: bool) -> (elf::SectionType, elf::SectionFlags) {
    let kind = if listed {
        SHT_LLVM_OFFLOADING
    } else {
        elf::SHT_PROGBITS
    };
    let flags = if large {
        elf::SHF_ALLOC | SHF_X86_64_LARGE
    } else {
        elf::SHF_ALLOC
    };
    (kind, flags)
}

/// Returns the bytes of the first section with this name in the ELF file `data`, or `None` if there
/// is no such section.
pub(crate) fn section<'a>(
    data: &'a [u8],
    name: &[u8],
) -> Result<Option<&'a [u8]>, object::read::Error> {
    fn of<'a, Elf: FileHeader<Endian = Endianness>>(
        data: &'a [u8],
        name: &[u8],
    ) -> object::read::Result<Option<&'a [u8]>> {
        let header = Elf::parse(data)?;
        let endian = header.endian()?;
        let found = header.sections(endian, data)?.section_by_name(endian, name);
        found
            .map(|(_, section)| section.data(endian, data))
            .transpose()
    }
    match object::FileKind::parse(data)? {
        object::FileKind::Elf32 => of::<elf::FileHeader32<Endianness>>(data, name),
        _ => of::<elf::FileHeader64<Endianness>>(data, name),
    }
}
