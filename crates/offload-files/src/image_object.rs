//! Objects that contain only images. The images are streamed, so that memory does not grow with
//! them (docs/spec/faults.md F32). The headers are written with holes for the images, and the
//! kernel then copies the images from their files.
//!
//! Registration code refers to the images by hidden symbols (`ImagePlace::External`,
//! `ImagePlace::Between`).

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufWriter, Seek, Write};

use anyhow::{Context as _, Result, bail};
use object::write::elf::{FileHeader, SectionHeader, SectionIndex, Sym, Writer};
use object::write::{WritableBuffer, coff};
use object::{Endianness, elf, pe};

use offld_system::io::rope::Rope;
use offload_formats::elf::raw::Class;
use offload_formats::elf::{image_section, notes};
use offload_formats::model::ObjectFormat;
use offload_formats::registration::ImageSection;

/// An image whose bytes are in files.
#[derive(Debug, Clone)]
pub struct StreamedImage {
    /// The hidden symbols by which registration code refers to the image.
    pub symbols: Vec<ImageSymbol>,
    /// Its bytes.
    pub contents: Rope,
}

impl StreamedImage {
    /// Returns an image with one symbol, which covers all of it.
    pub fn whole(symbol: impl Into<String>, contents: Rope) -> Self {
        let symbols = vec![ImageSymbol {
            name: symbol.into(),
            at: 0,
            size: contents.size(),
        }];
        StreamedImage { symbols, contents }
    }
}

/// A symbol in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSymbol {
    /// Its name.
    pub name: String,
    /// The offset in the image in bytes, at most the image's size.
    pub at: u64,
    /// The size in bytes; 0 for a symbol at the end.
    pub size: u64,
}

/// The host for which an object is written.
#[derive(Debug, Clone, Copy)]
pub struct HostObject<'a> {
    /// Its triple.
    pub triple: &'a str,
    /// The control-flow protection with which the object is compatible
    /// (`offload_formats::elf::notes`).
    pub protection: u32,
}

/// Overwrites `out` with an object for `host` that contains `images` in `section`. `in_all` is the
/// total size in bytes of the images in all objects of the link.
pub fn write(
    out: &mut File,
    host: HostObject<'_>,
    section: ImageSection,
    images: &[StreamedImage],
    in_all: u64,
) -> Result<()> {
    let layout = Layout::new(images, section, in_all)?;
    // After a truncation to zero, ext4 writes the file to the disk when it is closed, which takes
    // longer than the whole link. So a new file is not truncated.
    if out.metadata()?.len() > 0 {
        out.set_len(0)?;
    }
    out.rewind()?;
    let mut holes = Holes {
        out: BufWriter::new(&mut *out),
        result: Ok(()),
    };
    let places = match Host::of(host.triple)? {
        Host::Elf(machine) => elf_skeleton(&mut holes, machine, &layout, host.protection),
        Host::Coff(machine) => coff_skeleton(&mut holes, machine, &layout),
    }?;
    holes.finish()?;
    for (image, place) in images.iter().zip(places) {
        // The kernel copies the bytes, or shares them if the file system can.
        image.contents.write_at(out, place)?;
    }
    Ok(())
}

/// Limit on the total size of images in bytes. No file system has larger files, and sums below the
/// limit do not overflow.
const LARGEST: u64 = 1 << 62;

/// The input of both object writers. `offsets` are the aligned offsets of the images in one
/// section.
struct Layout<'a> {
    images: &'a [StreamedImage],
    section: ImageSection,
    offsets: Vec<u64>,
    size: u64,
    /// The section's size in bytes in the program, without additions by other tools.
    in_all: u64,
}

impl<'a> Layout<'a> {
    fn new(images: &'a [StreamedImage], section: ImageSection, in_all: u64) -> Result<Self> {
        let mut offsets = Vec::new();
        let mut size = 0u64;
        for image in images {
            let end = size.checked_add(image.contents.size());
            let end = end
                .and_then(|end| end.checked_next_multiple_of(section.align.into()))
                .filter(|end| *end <= LARGEST);
            let Some(end) = end else {
                bail!(
                    "`{}` is too large",
                    image
                        .symbols
                        .first()
                        .map_or("an image", |symbol| &symbol.name)
                )
            };
            offsets.push(size);
            size = end;
        }
        Ok(Layout {
            images,
            section,
            offsets,
            size,
            in_all: in_all.max(size),
        })
    }
}

/// The object format of a host, and the machine for its headers.
enum Host {
    Elf(ElfMachine),
    Coff(CoffMachine),
}

impl Host {
    fn of(triple: &str) -> Result<Self> {
        let arch = triple.split('-').next().unwrap_or_default();
        let found = match ObjectFormat::of(triple) {
            ObjectFormat::MachO => {
                bail!("Mach-O objects of the host `{triple}` cannot hold offload entries")
            }
            ObjectFormat::Coff => CoffMachine::of(arch).map(Host::Coff),
            ObjectFormat::Elf => ElfMachine::of(arch, triple.ends_with("x32")).map(Host::Elf),
        };
        found.with_context(|| format!("cannot write image objects for the host `{triple}`"))
    }
}

/// A writer that leaves a hole in the file instead of writing zeros.
struct Holes<'a> {
    out: BufWriter<&'a mut File>,
    result: std::io::Result<()>,
}

impl Holes<'_> {
    fn finish(mut self) -> std::io::Result<()> {
        self.result?;
        self.out.flush()
    }

    fn attempt(&mut self, write: impl FnOnce(&mut BufWriter<&mut File>) -> std::io::Result<()>) {
        if self.result.is_ok() {
            self.result = write(&mut self.out);
        }
    }
}

impl WritableBuffer for Holes<'_> {
    fn reserve(&mut self, _size: u64) -> Result<(), ()> {
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) {
        self.attempt(|out| out.write_all(bytes));
    }

    fn write_zeros(&mut self, count: u64) {
        self.attempt(|out| {
            let count = i64::try_from(count).map_err(|_| std::io::ErrorKind::FileTooLarge)?;
            out.seek_relative(count)
        });
    }
}

// Headers and symbols of an ELF object that contains only images.

/// Size in bytes from which images are large: code next to them might not reach its data with
/// 32-bit displacements.
const LARGE: u64 = 1 << 30;

/// The machine for an ELF header.
#[derive(Clone, Copy)]
struct ElfMachine {
    is_64: bool,
    endian: Endianness,
    machine: elf::Machine,
    /// The header flags, which linkers compare between objects. These are for the ABIs of Linux
    /// distributions.
    flags: u32,
}

impl ElfMachine {
    /// Returns the machine for a triple's first component.
    fn of(arch: &str, x32: bool) -> Option<Self> {
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
        Some(ElfMachine {
            is_64,
            endian,
            machine,
            flags,
        })
    }
}

/// Writes everything except the images. Returns the file offset of each image. Each image has its
/// own section, at the file offset where it is copied fastest. Linkers concatenate these sections.
fn elf_skeleton(
    out: &mut Holes<'_>,
    machine: ElfMachine,
    layout: &Layout<'_>,
    protection: u32,
) -> Result<Vec<u64>> {
    let class = Class {
        is_64: machine.is_64,
        endian: machine.endian,
    };
    let property = notes::property_note(class, machine.machine, protection);
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
        .map(|_| elf.add_section_name(notes::PROPERTY_SECTION));
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
        elf.write_symbol(&hidden_symbol(
            symbol,
            section,
            elf.string_offset(Some(name)),
        ));
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
fn hidden_symbol(symbol: &ImageSymbol, section: SectionIndex, st_name: u32) -> Sym {
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
    machine: ElfMachine,
    layout: &Layout<'_>,
    image: &StreamedImage,
    sh_name: u32,
    sh_offset: u64,
) -> SectionHeader {
    // Linkers merge the sections of all objects into one, so they must all have the same large
    // flag.
    let large = machine.machine == elf::EM_X86_64 && layout.in_all >= LARGE;
    let (sh_type, sh_flags) = image_section(layout.section.listed, large);
    SectionHeader {
        sh_name,
        sh_type,
        sh_flags,
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

// Headers and symbols of a COFF object that contains only images.

/// The machine for a COFF header, with its rules for symbols.
#[derive(Clone, Copy)]
struct CoffMachine {
    machine: pe::Machine,
    /// On i386, C names begin with `_`, and the symbol `@feat.00` must declare the object
    /// compatible with SafeSEH.
    i386: bool,
}

impl CoffMachine {
    /// Returns the machine for a triple's first component.
    fn of(arch: &str) -> Option<Self> {
        let machine = match arch {
            "x86_64" | "amd64" => pe::IMAGE_FILE_MACHINE_AMD64,
            "i386" | "i486" | "i586" | "i686" => pe::IMAGE_FILE_MACHINE_I386,
            "aarch64" | "arm64" => pe::IMAGE_FILE_MACHINE_ARM64,
            _ => return None,
        };
        Some(CoffMachine {
            machine,
            i386: machine == pe::IMAGE_FILE_MACHINE_I386,
        })
    }
}

/// Writes everything except the images, which are in one section. Returns the file offset of each
/// image.
fn coff_skeleton(
    out: &mut Holes<'_>,
    machine: CoffMachine,
    layout: &Layout<'_>,
) -> Result<Vec<u64>> {
    // COFF has 32-bit sizes and offsets, in objects and in programs.
    let Ok(size) = i32::try_from(layout.size) else {
        bail!(
            "device images of {} bytes exceed the limit of COFF, 2 GiB",
            layout.size
        )
    };
    // The header stores the alignment's exponent plus 1 (IMAGE_SCN_ALIGN_…).
    let align = pe::SectionFlags((layout.section.align.trailing_zeros() + 1) << 20);
    let prefix = if machine.i386 { "_" } else { "" };
    let in_section = layout
        .images
        .iter()
        .zip(&layout.offsets)
        .flat_map(|(image, offset)| {
            image
                .symbols
                .iter()
                .map(move |symbol| (symbol, offset + symbol.at))
        });
    let symbols: Vec<(String, u64)> = in_section
        .map(|(symbol, at)| (format!("{prefix}{}", symbol.name), at))
        .collect();
    let mut file = coff::Writer::new(out);
    file.reserve_file_header();
    file.reserve_section_headers(1);
    let section_at = file.reserve(layout.size, layout.section.align.into());
    let section_name = file.add_name(layout.section.name.as_bytes());
    let safe_name = file.add_name(b"@feat.00");
    let names: Vec<_> = symbols
        .iter()
        .map(|(name, _)| file.add_name(name.as_bytes()))
        .collect();
    file.reserve_symbol_indices(names.len() as u32 + u32::from(machine.i386));
    file.reserve_symtab_strtab()?;

    file.write_file_header(coff::FileHeader {
        machine: machine.machine,
        ..coff::FileHeader::default()
    })?;
    file.write_section_header(coff::SectionHeader {
        name: section_name,
        size_of_raw_data: size.unsigned_abs(),
        pointer_to_raw_data: section_at,
        characteristics: align | pe::IMAGE_SCN_CNT_INITIALIZED_DATA | pe::IMAGE_SCN_MEM_READ,
        ..coff::SectionHeader::default()
    });
    file.pad_until(u64::from(section_at) + layout.size);
    if machine.i386 {
        file.write_symbol(coff::Symbol {
            name: safe_name,
            value: 1,
            section_number: pe::IMAGE_SYM_ABSOLUTE,
            storage_class: pe::IMAGE_SYM_CLASS_STATIC,
            ..coff::Symbol::default()
        });
    }
    for (name, (_, at)) in names.into_iter().zip(&symbols) {
        file.write_symbol(coff::Symbol {
            name,
            value: u32::try_from(*at)?,
            section_number: pe::SymbolSection(1),
            storage_class: pe::IMAGE_SYM_CLASS_EXTERNAL,
            ..coff::Symbol::default()
        });
    }
    file.write_strtab();
    Ok(layout
        .offsets
        .iter()
        .map(|offset| u64::from(section_at) + offset)
        .collect())
}
