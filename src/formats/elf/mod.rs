//! ELF: what offload tools need to know of objects, images and finished files.

pub mod edit;
pub mod interface;
pub(crate) mod raw;
pub mod wrapper_notes;

use object::elf;

/// The type of sections that hold containers of device images, whatever their names (`SHT_LLVM_OFFLOADING`, LLVM 15 on).
pub const SHT_LLVM_OFFLOADING: elf::SectionType = elf::SectionType(0x6fff_4c0b);
/// The type of sections that list the symbols whose address matters (`SHT_LLVM_ADDRSIG`).
pub const SHT_LLVM_ADDRSIG: elf::SectionType = elf::SectionType(0x6fff_4c03);
/// The section may be placed beyond what 32-bit displacements reach, so that the rest of the program stays within
/// (`SHF_X86_64_LARGE`).
pub const SHF_X86_64_LARGE: elf::SectionFlags = elf::SectionFlags(0x1000_0000);
