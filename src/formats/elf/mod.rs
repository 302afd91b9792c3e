//! ELF: what offload tools need to know of objects, images and finished files.
//!
//! ```
//! use object::write::Object;
//! use object::{Architecture, BinaryFormat, Endianness, SectionKind};
//! use object::{File, Object as _};
//! use offld::formats::elf::edit::{Edit, rewrite};
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

mod append;
pub mod edit;
pub(crate) mod file;
pub mod interface;
pub mod link_note;
pub mod property;
pub(crate) mod raw;
pub(crate) mod resize;
pub mod strip;
pub mod wrapper_notes;

use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, elf};

/// The type of sections that hold containers of device images, whatever their names
/// (`SHT_LLVM_OFFLOADING`, LLVM 15 on).
pub const SHT_LLVM_OFFLOADING: elf::SectionType = elf::SectionType(0x6fff_4c0b);
/// The type of sections that list the symbols whose address matters (`SHT_LLVM_ADDRSIG`).
pub const SHT_LLVM_ADDRSIG: elf::SectionType = elf::SectionType(0x6fff_4c03);
/// The section may be placed beyond what 32-bit displacements reach, so that the rest of the
/// program stays within (`SHF_X86_64_LARGE`).
pub const SHF_X86_64_LARGE: elf::SectionFlags = elf::SectionFlags(0x1000_0000);

/// The bytes of the first section with this name of the ELF file `data`; none when it has no such
/// section.
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
