//! Headers and symbols of an ELF object that contains only images.

use super::{Holes, ImageSymbol, Layout, StreamedImage};
use crate::formats::elf::property;
use crate::formats::elf::raw::Class;
use crate::formats::elf::{SHF_X86_64_LARGE, SHT_LLVM_OFFLOADING};
use anyhow::Result;
use object::write::elf::{FileHeader, SectionHeader, SectionIndex, Sym, Writer};
use object::{Endianness, elf};

/// Size in bytes from which images are large: code next to them might not reach its data with
/// 32-bit displacements.
const LARGE: u64 = 1 << 30;

/// The machine for an ELF header.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    is_64: bool,
    endian: Endianness,
    machine: elf::Machine,
    /// The header flags, which linkers compare between objects. These are for the ABIs of Linux
    /// distributions.
    flags: u32,
}

impl Machine {
    /// Returns the machine for a triple's first component.
    pub(super) fn of(arch: &str, x32: bool) -> Option<Self> {
        let (is_64, endian, machine, flags) = match arch {
            "x86_64" | "amd64" => (!x32, Endianness::Little, elf::EM_X86_64, 0),
            "i386" | "i486" | "i586" | "i686" => (false, Endianness::Little, elf::EM_386, 0),
            "aarch64" | "arm64" => (true, Endianness::Little, elf::EM_AARCH64, 0),
            "aarch64_be" => (true, Endianness::Big, elf::EM_AARCH64, 0),
            // ELFv2.
            "powerpc64le" | "ppc64le" => (true, Endianness::Little, elf::EM_PPC64, 2),
            // 0: no ABI is specified.
            "powerpc64" | "ppc64" => (true, Endianness::Big, elf::EM_PPC64, 0),
            // Compressed instructions, doubles in registers.
            "riscv64" => (true, Endianness::Little, elf::EM_RISCV, 5),
            "riscv32" => (false, Endianness::Little, elf::EM_RISCV, 5),
            "s390x" => (true, Endianness::Big, elf::EM_S390, 0),
            // Doubles in registers, version 1 of the object format.
            "loongarch64" => (true, Endianness::Little, elf::EM_LOONGARCH, 0x43),
            _ => return None,
        };
        Some(Machine {
            is_64,
            endian,
            machine,
            flags,
        })
    }
}

/// Writes everything except the images. Returns the file offset of each image. Each image has its
/// own section, at the file offset where it is copied fastest. Linkers concatenate these sections.
pub(super) fn skeleton(
    out: &mut Holes<'_>,
    machine: Machine,
    layout: &Layout<'_>,
    protection: u32,
) -> Result<Vec<u64>> {
    let class = Class {
        is_64: machine.is_64,
        endian: machine.endian,
    };
    let property = property::note(class, machine.machine, protection);
    let mut elf = Writer::new(machine.endian, machine.is_64, out);
    let align = u64::from(layout.section.align);
    elf.reserve_file_header();
    let mut places = Vec::new();
    for image in layout.images {
        let from = elf.reserve(0, align);
        elf.reserve_until(place(from, image, align));
        places.push(elf.reserve(image.contents.size(), align));
    }
    let end = elf.reserve(0, 1);
    let property_at = property
        .as_ref()
        .map(|note| elf.reserve(note.len() as u64, class.address_size() as u64));
    let section_name = elf.add_section_name(layout.section.name.as_bytes());
    let stack_name = elf.add_section_name(b".note.GNU-stack");
    let property_name = property
        .as_ref()
        .map(|_| elf.add_section_name(property::SECTION));
    let sections: Vec<_> = places.iter().map(|_| elf.reserve_section_index()).collect();
    elf.reserve_section_index();
    if property.is_some() {
        elf.reserve_section_index();
    }
    elf.reserve_symtab_section_index();
    elf.reserve_strtab_section_index();
    elf.reserve_shstrtab_section_index();
    elf.reserve_null_symbol_index();
    let in_sections = || {
        layout
            .images
            .iter()
            .zip(&sections)
            .flat_map(|(image, section)| image.symbols.iter().map(move |symbol| (symbol, *section)))
    };
    let symbols: Vec<_> = in_sections()
        .map(|(symbol, section)| (symbol, section, elf.add_string(symbol.name.as_bytes())))
        .collect();
    for (_, section, _) in &symbols {
        elf.reserve_symbol_index(Some(*section));
    }
    elf.reserve_symtab();
    elf.reserve_strtab()?;
    elf.reserve_shstrtab()?;
    elf.reserve_section_headers();

    let (e_machine, e_flags) = (machine.machine, elf::FileFlags(machine.flags));
    elf.write_file_header(&FileHeader {
        e_type: elf::ET_REL,
        e_machine,
        e_flags,
        ..FileHeader::default()
    })?;
    elf.pad_until(property_at.unwrap_or(end));
    if let Some(note) = &property {
        elf.write(note);
    }
    elf.write_null_symbol();
    for (symbol, section, name) in symbols {
        elf.write_symbol(&hidden(symbol, section, elf.string_offset(Some(name))));
    }
    elf.write_strtab();
    elf.write_shstrtab();

    elf.write_null_section_header();
    for (image, place) in layout.images.iter().zip(&places) {
        let sh_name = elf.section_name_offset(Some(section_name));
        elf.write_section_header(&image_header(machine, layout, image, sh_name, *place));
    }
    elf.write_section_header(&no_stack(elf.section_name_offset(Some(stack_name)), end));
    if let (Some(note), Some(at)) = (&property, property_at) {
        elf.write_section_header(&property_header(
            class,
            elf.section_name_offset(property_name),
            at,
            note.len() as u64,
        ));
    }
    elf.write_symtab_section_header(1);
    elf.write_strtab_section_header();
    elf.write_shstrtab_section_header();
    Ok(places)
}

/// Returns the hidden symbol `symbol` of an image in `section`.
fn hidden(symbol: &ImageSymbol, section: SectionIndex, st_name: u32) -> Sym {
    let kind = if symbol.size == 0 {
        elf::STT_NOTYPE
    } else {
        elf::STT_OBJECT
    };
    Sym {
        section: Some(section.0),
        st_shndx: elf::SHN_UNDEF,
        st_name,
        st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, kind),
        st_other: elf::SymbolOther::default().with_visibility(elf::STV_HIDDEN),
        st_value: symbol.at,
        st_size: symbol.size,
    }
}

/// Returns the section header of an image.
fn image_header(
    machine: Machine,
    layout: &Layout<'_>,
    image: &StreamedImage,
    sh_name: u32,
    sh_offset: u64,
) -> SectionHeader {
    // Linkers merge the sections of all objects into one, so they must all have the same large
    // flag.
    let large = machine.machine == elf::EM_X86_64 && layout.in_all >= LARGE;
    SectionHeader {
        sh_name,
        sh_type: if layout.section.listed {
            SHT_LLVM_OFFLOADING
        } else {
            elf::SHT_PROGBITS
        },
        sh_flags: if large {
            elf::SHF_ALLOC | SHF_X86_64_LARGE
        } else {
            elf::SHF_ALLOC
        },
        sh_offset,
        sh_size: image.contents.size(),
        sh_addralign: layout.section.align.into(),
        ..SectionHeader::default()
    }
}

/// `.note.gnu.property`: the control-flow protection of this object.
fn property_header(class: Class, sh_name: u32, sh_offset: u64, sh_size: u64) -> SectionHeader {
    let sh_addralign = class.address_size() as u64;
    SectionHeader {
        sh_name,
        sh_type: elf::SHT_NOTE,
        sh_flags: elf::SHF_ALLOC,
        sh_offset,
        sh_size,
        sh_addralign,
        ..SectionHeader::default()
    }
}

/// `.note.GNU-stack`: this object does not need an executable stack.
fn no_stack(sh_name: u32, sh_offset: u64) -> SectionHeader {
    SectionHeader {
        sh_name,
        sh_type: elf::SHT_PROGBITS,
        sh_offset,
        sh_addralign: 1,
        ..SectionHeader::default()
    }
}

/// Returns the file offset for an image, at least `from`.
fn place(from: u64, image: &StreamedImage, align: u64) -> u64 {
    let best = image.contents.best_start(from);
    if best.is_multiple_of(align) {
        best
    } else {
        from
    }
}
