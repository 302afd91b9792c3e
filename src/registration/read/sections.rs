//! Sections of objects and programs that are loaded into memory.

use anyhow::Result;
use object::elf;
use object::read::elf::{ElfFile, FileHeader};
use object::{Endianness, File, Object, ObjectSection, SectionFlags, SectionIndex, SectionKind};

use crate::formats::elf::SHT_LLVM_OFFLOADING;
use crate::formats::offload_sections;

/// Limit on the length of names of sections and symbols; longer names are ignored.
const LONGEST_NAME: usize = offload_sections::LONGEST_NAME;

/// A section with contents that is part of the program in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'d> {
    /// The name; empty if it is not text, or longer than any name that is searched for.
    pub(super) name: &'d str,
    /// The index of the section in the file.
    pub(super) index: SectionIndex,
    pub(super) address: u64,
    /// Its size in bytes.
    pub(super) size: u64,
    /// Its offset in the file.
    pub(super) offset: u64,
    /// Whether the section is code or contains images.
    pub(super) opaque: bool,
    /// Whether the section contains images.
    pub(super) images: bool,
}

impl Section<'_> {
    /// Whether an address is in the section.
    pub(super) fn holds(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.size
    }
}

/// Returns a name if it is text and not too long.
pub(super) fn text(name: &[u8]) -> Option<&str> {
    Some(name)
        .filter(|name| name.len() <= LONGEST_NAME)
        .and_then(|name| std::str::from_utf8(name).ok())
}

/// Returns the sections with contents that are loaded into memory, sorted by address.
pub(super) fn of<'d>(file: &File<'d>, len: u64, linked: bool) -> Result<Vec<Section<'d>>> {
    let mut all = Vec::new();
    for section in file.sections() {
        let Some((offset, size)) = section.file_range().filter(|(_, size)| *size > 0) else {
            continue;
        };
        let (in_memory, typed) = match section.flags() {
            SectionFlags::Elf { sh_type, sh_flags } => (
                sh_flags.contains(elf::SHF_ALLOC),
                sh_type == SHT_LLVM_OFFLOADING,
            ),
            _ => (true, false),
        };
        if !in_memory {
            continue;
        }
        let name = name_of(file, section.index())
            .and_then(text)
            .unwrap_or_default();
        let images = typed || name.starts_with(offload_sections::NAME);
        let opaque = images || section.kind() == SectionKind::Text;
        let address = if linked { section.address() } else { offset };
        // These limits ensure that an address in a section plus the size of a struct never
        // overflows.
        let is_inside =
            |start: u64, most: u64| start.checked_add(size).is_some_and(|end| end <= most);
        if !is_inside(offset, len) || !is_inside(address, u64::MAX >> 1) {
            continue;
        }
        all.push(Section {
            name,
            index: section.index(),
            address,
            size,
            offset,
            opaque,
            images,
        });
    }
    all.sort_by_key(|section| section.address);
    Ok(all)
}

/// Returns a section's name, which borrows the file's bytes.
fn name_of<'d>(file: &File<'d>, index: SectionIndex) -> Option<&'d [u8]> {
    match file {
        File::Elf32(elf) => of_elf(elf, index),
        File::Elf64(elf) => of_elf(elf, index),
        File::Coff(coff) => of_coff(
            coff.coff_section_table(),
            coff.coff_symbol_table().strings(),
            index,
        ),
        File::CoffBig(coff) => of_coff(
            coff.coff_section_table(),
            coff.coff_symbol_table().strings(),
            index,
        ),
        _ => None,
    }
}

fn of_elf<'d, Elf: FileHeader<Endian = Endianness>>(
    elf: &ElfFile<'d, Elf>,
    index: SectionIndex,
) -> Option<&'d [u8]> {
    let table = elf.elf_section_table();
    table
        .section_name(elf.endian(), table.section(index).ok()?)
        .ok()
}

fn of_coff<'d>(
    table: object::read::coff::SectionTable<'d>,
    strings: object::StringTable<'d>,
    index: SectionIndex,
) -> Option<&'d [u8]> {
    table.section(index).ok()?.name(strings).ok()
}
