//! Pointers of objects and programs: converts addresses to file offsets, and resolves the pointer
//! at an address. Programs are at the addresses that they are linked for. An object has no
//! addresses, so its sections are at their file offsets.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use object::elf::{self, RelocationType};
use object::read::elf::{ElfFile, FileHeader, Rel, Rela, SectionHeader, Sym};
use object::{
    BinaryFormat, Endianness, File, Object, ObjectKind, ObjectSection, ObjectSymbol,
    RelocationKind, RelocationTarget, SectionFlags, SectionIndex, SectionKind, SymbolIndex,
};

use crate::elf::SHT_LLVM_OFFLOADING;
use crate::elf::raw::Class;
use crate::offload_sections;

/// The target of a pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pointer<'d> {
    /// Zero.
    Null,
    /// An address in the file.
    To(u64),
    /// A symbol that is defined elsewhere.
    Symbol(&'d str),
    /// Any other target.
    Unknown,
}

/// A pointer that a relocation fills in.
#[derive(Debug, Clone, Copy)]
struct Filled<'d> {
    /// The address of the pointer.
    address: u64,
    pointer: Pointer<'d>,
    /// The file offset of its value; none if the value is a symbol's address.
    stored: Option<u64>,
    /// Whether the program defines that symbol, and the pointer is its address without an addend.
    by_symbol: bool,
}

/// A relocation that the dynamic loader applies.
struct DynamicRelocation {
    address: u64,
    kind: RelocationType,
    /// The index of its symbol; 0 for none.
    symbol: u32,
    addend: u64,
    /// The file offset of the addend.
    stored: u64,
}

/// The memory of an object or program.
pub(super) struct AddressSpace<'d> {
    data: &'d [u8],
    class: Class,
    /// The size of a pointer in bytes.
    pub(super) word: u64,
    /// Whether it is a program or a shared library.
    pub(super) linked: bool,
    /// Whether a word without a relocation can be a pointer: in a program that is linked for fixed
    /// addresses.
    pub(super) fixed: bool,
    /// The sections, sorted by address.
    pub(super) sections: Vec<Section<'d>>,
    /// The address of each section.
    addresses: HashMap<SectionIndex, u64>,
    /// The pointers that relocations fill in, sorted by address.
    filled: Vec<Filled<'d>>,
    /// The number of relocations that may still be read, so that reading a damaged file ends.
    relocations_left: usize,
}

impl<'d> AddressSpace<'d> {
    /// Reads the memory of the ELF file or COFF object `data`. Returns none for other files, and
    /// for a file with neither images nor a section whose name `is_wanted` accepts.
    pub(super) fn of(data: &'d [u8], is_wanted: impl Fn(&str) -> bool) -> Result<Option<Self>> {
        AddressSpace::with_pointers(data, is_wanted, |_| true)
    }

    /// Like [`AddressSpace::of`], but reads only those pointers of an object whose section's name
    /// `is_read` accepts.
    pub(super) fn with_pointers(
        data: &'d [u8],
        is_wanted: impl Fn(&str) -> bool,
        is_read: impl Fn(&str) -> bool,
    ) -> Result<Option<Self>> {
        let file = File::parse(data)?;
        let linked = !matches!(file.kind(), ObjectKind::Relocatable);
        let readable = matches!(file.format(), BinaryFormat::Elf)
            || matches!(file.format(), BinaryFormat::Coff) && !linked;
        if !readable || matches!(file.kind(), ObjectKind::Core) {
            return Ok(None);
        }
        let sections = sections_of(&file, data.len() as u64, linked)?;
        let mut space = AddressSpace {
            data,
            class: Class::of_file(&file),
            word: Class::of_file(&file).address_size() as u64,
            linked,
            fixed: matches!(file.kind(), ObjectKind::Executable),
            addresses: sections
                .iter()
                .map(|section| (section.index, section.address))
                .collect(),
            sections,
            filled: Vec::new(),
            // Each relocation takes at least four bytes, in its section or at its target.
            relocations_left: data.len() / 4,
        };
        if !space
            .sections
            .iter()
            .any(|section| section.images || is_wanted(section.name))
        {
            return Ok(None);
        }
        space.check_sections()?;
        match &file {
            File::Elf64(elf) if linked => space.fill_linked(elf)?,
            File::Elf32(elf) if linked => space.fill_linked(elf)?,
            _ => space.fill_object(&file, &is_read)?,
        }
        space.filled.sort_by_key(|filled| filled.address);
        Ok(Some(space))
    }

    /// Returns the total size of the sections.
    pub(super) fn size(&self) -> u64 {
        self.sections
            .iter()
            .fold(0, |sum: u64, section| sum.saturating_add(section.size))
    }

    /// Fails if a byte or an address is in two sections. With such sections, a small file could
    /// take unlimited time to read.
    fn check_sections(&self) -> Result<()> {
        let overlap = self
            .sections
            .windows(2)
            .any(|pair| matches!(pair, [one, next] if one.holds(next.address)));
        if overlap || self.size() > self.data.len() as u64 {
            bail!("sections overlap");
        }
        Ok(())
    }

    /// Counts `count` relocations that will be read next.
    fn count(&mut self, count: usize) -> Result<()> {
        self.relocations_left = self
            .relocations_left
            .checked_sub(count)
            .context("relocation sections overlap")?;
        Ok(())
    }

    /// Whether an address is within the range of the sections, or at most 64 KiB after it.
    pub(super) fn is_near(&self, address: u64) -> bool {
        const BEHIND: u64 = 1 << 16;
        let [Some(first), Some(last)] = [self.sections.first(), self.sections.last()] else {
            return false;
        };
        address >= first.address
            && address - first.address
                <= (last.address - first.address).saturating_add(last.size + BEHIND)
    }

    /// Whether there is a section for images.
    pub(super) fn holds_images(&self) -> bool {
        self.sections.iter().any(|section| section.images)
    }

    /// Returns the section that contains an address.
    fn section(&self, address: u64) -> Option<&Section<'d>> {
        let after = self
            .sections
            .partition_point(|section| section.address <= address);
        self.sections
            .get(after.checked_sub(1)?)
            .filter(|section| section.holds(address))
    }

    /// Returns the file offset of an address.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        self.section(address)
            .map(|section| section.offset + (address - section.address))
    }

    /// Returns the file offset of an address, which may be the end of a section.
    pub(super) fn end_offset(&self, address: u64) -> Option<u64> {
        self.offset(address)
            .or_else(|| Some(self.offset(address.checked_sub(1)?)? + 1))
    }

    /// Returns the bytes from an address to the end of its section.
    pub(super) fn from(&self, address: u64) -> Option<&'d [u8]> {
        let section = self.section(address)?;
        let (start, end) = (
            section.offset + (address - section.address),
            section.offset.checked_add(section.size)?,
        );
        self.data
            .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// Reads the number of `size` bytes at an address.
    pub(super) fn number(&self, address: u64, size: u64) -> Option<u64> {
        self.class.number(self.from(address)?, size as usize)
    }

    fn filled(&self, address: u64) -> Option<&Filled<'d>> {
        let at = self
            .filled
            .binary_search_by_key(&address, |filled| filled.address)
            .ok()?;
        self.filled.get(at)
    }

    /// Resolves the pointer at an address.
    pub(super) fn pointer(&self, address: u64) -> Pointer<'d> {
        if let Some(filled) = self.filled(address) {
            return filled.pointer;
        }
        match self.number(address, self.word) {
            Some(0) => Pointer::Null,
            Some(value) if self.fixed && self.end_offset(value).is_some() => Pointer::To(value),
            _ => Pointer::Unknown,
        }
    }

    /// Returns the pointer at an address by its file offsets.
    pub(super) fn slot(&self, address: u64) -> Option<super::Slot> {
        let offset = self.offset(address)?;
        let filled = self.filled(address);
        let value = filled.map_or(Some(offset), |filled| filled.stored);
        Some(super::Slot {
            offset,
            value,
            by_symbol: filled.is_some_and(|filled| filled.by_symbol),
        })
    }

    /// Returns every location outside of code and images that may be a pointer to an address in the
    /// file, with that address. These are the locations that relocations fill in. In a program with
    /// fixed addresses, they are also all words whose value is an address in a section.
    pub(super) fn pointers(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self
            .filled
            .iter()
            .filter_map(|filled| match filled.pointer {
                Pointer::To(target) => Some((filled.address, target)),
                _ => None,
            });
        let words =
            self.sections
                .iter()
                .filter(|section| self.fixed && !section.opaque)
                .flat_map(move |section| {
                    let word = self.word as usize;
                    let first = section.address.next_multiple_of(self.word);
                    let bytes = self.from(first).unwrap_or_default();
                    bytes.chunks_exact(word).zip(0..).filter_map(
                        move |(bytes, index): (&[u8], u64)| {
                            let value = self.class.address(bytes)?;
                            let address = first + index * self.word;
                            (value != 0
                                && self.section(value).is_some()
                                && self.filled(address).is_none())
                            .then_some((address, value))
                        },
                    )
                });
        filled.chain(words)
    }

    /// Records the pointers that an object's relocations fill in. Relocations that `object`'s
    /// generic reader does not know are not pointers here.
    fn fill_object(&mut self, file: &File<'d>, is_read: &dyn Fn(&str) -> bool) -> Result<()> {
        let width = self.word * 8;
        // The loop changes other fields of `self`.
        for section in self.sections.clone() {
            let Ok(contents) = file.section_by_index(section.index) else {
                continue;
            };
            if section.opaque || section.name == ".eh_frame" || !is_read(section.name) {
                continue;
            }
            for (within, relocation) in contents.relocations() {
                self.count(1)?;
                if relocation.kind() != RelocationKind::Absolute
                    || u64::from(relocation.size()) != width
                {
                    continue;
                }
                let address = section.address.wrapping_add(within);
                let implicit = if relocation.has_implicit_addend() {
                    self.number(address, self.word).unwrap_or_default()
                } else {
                    0
                };
                let addend = (relocation.addend() as u64).wrapping_add(implicit);
                let pointer = match relocation.target() {
                    RelocationTarget::Symbol(symbol) => self.of_symbol(file, symbol, addend),
                    RelocationTarget::Section(index) => self.in_section(index, addend),
                    _ => Pointer::Unknown,
                };
                self.filled.push(Filled {
                    address,
                    pointer,
                    stored: None,
                    by_symbol: false,
                });
            }
        }
        Ok(())
    }

    fn of_symbol(&self, file: &File<'d>, symbol: SymbolIndex, addend: u64) -> Pointer<'d> {
        let Ok(symbol) = file.symbol_by_index(symbol) else {
            return Pointer::Unknown;
        };
        match symbol.section_index() {
            Some(index) => {
                let base = file
                    .section_by_index(index)
                    .map_or(0, |section| section.address());
                self.in_section(
                    index,
                    symbol.address().wrapping_sub(base).wrapping_add(addend),
                )
            }
            None if symbol.is_undefined() && addend == 0 => {
                match symbol.name_bytes().ok().and_then(text) {
                    Some(name) if !name.is_empty() => Pointer::Symbol(name),
                    _ => Pointer::Unknown,
                }
            }
            None => Pointer::Unknown,
        }
    }

    /// Returns the pointer to `within` bytes into a section of an object.
    fn in_section(&self, index: SectionIndex, within: u64) -> Pointer<'d> {
        self.addresses
            .get(&index)
            .map_or(Pointer::Unknown, |address| {
                Pointer::To(address.wrapping_add(within))
            })
    }

    /// Records the pointers that the dynamic loader fills in.
    fn fill_linked<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        file: &ElfFile<'d, Elf>,
    ) -> Result<()> {
        let (data, endian) = (self.data, file.endian());
        let kinds = PointerRelocations::of(file.elf_header().e_machine(endian), self.class.is_64);
        for section in file
            .elf_section_table()
            .iter()
            .filter(|section| section.sh_flags(endian).contains(elf::SHF_ALLOC))
        {
            if let Some((all, _)) = section.rela(endian, data)? {
                self.count(all.len())?;
                let size = size_of::<Elf::Rela>() as u64;
                let addend_at = size - self.word;
                for (record, at) in all.iter().zip(0..) {
                    let place: u64 = section.sh_offset(endian).into() + at * size + addend_at;
                    let addend: i64 = record.r_addend(endian).into();
                    let relocation = DynamicRelocation {
                        address: record.r_offset(endian).into(),
                        kind: record.r_type(endian, false),
                        symbol: record.r_sym(endian, false),
                        addend: addend as u64,
                        stored: place,
                    };
                    self.fill(file, &kinds, &relocation);
                }
            } else if let Some((all, _)) = section.rel(endian, data)? {
                self.count(all.len())?;
                for record in all {
                    let address = record.r_offset(endian).into();
                    let (Some(addend), Some(stored)) =
                        (self.number(address, self.word), self.offset(address))
                    else {
                        continue;
                    };
                    let relocation = DynamicRelocation {
                        address,
                        kind: record.r_type(endian),
                        symbol: record.r_sym(endian),
                        addend,
                        stored,
                    };
                    self.fill(file, &kinds, &relocation);
                }
            } else if let Some(all) = section.relr(endian, data)? {
                for address in all {
                    self.count(1)?;
                    let address = address.into();
                    let (Some(value), stored) =
                        (self.number(address, self.word), self.offset(address))
                    else {
                        continue;
                    };
                    self.filled.push(Filled {
                        address,
                        pointer: Pointer::To(value),
                        stored,
                        by_symbol: false,
                    });
                }
            }
        }
        Ok(())
    }

    /// Records the pointer that a relocation fills in.
    fn fill<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        file: &ElfFile<'d, Elf>,
        kinds: &PointerRelocations,
        &DynamicRelocation {
            address,
            kind,
            symbol,
            addend,
            stored,
        }: &DynamicRelocation,
    ) {
        if kind == kinds.relative {
            self.filled.push(Filled {
                address,
                pointer: Pointer::To(addend),
                stored: Some(stored),
                by_symbol: false,
            });
        } else if kind == kinds.absolute && symbol != 0 {
            let table = file.elf_dynamic_symbol_table();
            let Ok(symbol) = table.symbol(SymbolIndex(symbol as usize)) else {
                return;
            };
            let (section, value): (_, u64) = (
                symbol.st_shndx(self.class.endian),
                symbol.st_value(self.class.endian).into(),
            );
            let pointer = if section == elf::SHN_UNDEF {
                let name = table
                    .symbol_name(self.class.endian, symbol)
                    .ok()
                    .and_then(text);
                name.map_or(Pointer::Unknown, Pointer::Symbol)
            } else {
                Pointer::To(value.wrapping_add(addend))
            };
            let holds = |found: &Section<'_>| found.index == SectionIndex(section.0.into());
            let by_symbol = addend == 0 && self.section(value).is_some_and(holds);
            self.filled.push(Filled {
                address,
                pointer,
                stored: None,
                by_symbol,
            });
        }
    }
}

/// The relocation types of a CPU architecture that fill in pointers (source: the psABI documents).
struct PointerRelocations {
    /// The load address of the file plus an addend.
    relative: RelocationType,
    /// The address of a symbol plus an addend.
    absolute: RelocationType,
}

impl PointerRelocations {
    fn of(machine: elf::Machine, wide: bool) -> PointerRelocations {
        let (relative, absolute) = match machine {
            elf::EM_X86_64 | elf::EM_386 => (8, 1),
            elf::EM_AARCH64 => (1027, 257),
            elf::EM_PPC64 => (22, 38),
            elf::EM_S390 => (12, if wide { 22 } else { 4 }),
            elf::EM_RISCV => (3, if wide { 2 } else { 1 }),
            elf::EM_LOONGARCH => (3, if wide { 2 } else { 1 }),
            elf::EM_ARM => (23, 2),
            _ => (u32::MAX, u32::MAX),
        };
        PointerRelocations {
            relative: RelocationType(relative),
            absolute: RelocationType(absolute),
        }
    }
}

// Sections of objects and programs that are loaded into memory.

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
    /// The size in bytes.
    pub(super) size: u64,
    /// The offset in the file.
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
fn text(name: &[u8]) -> Option<&str> {
    Some(name)
        .filter(|name| name.len() <= LONGEST_NAME)
        .and_then(|name| std::str::from_utf8(name).ok())
}

/// Returns the sections with contents that are loaded into memory, sorted by address.
fn sections_of<'d>(file: &File<'d>, len: u64, linked: bool) -> Result<Vec<Section<'d>>> {
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
        let name = section_name(file, section.index())
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
fn section_name<'d>(file: &File<'d>, index: SectionIndex) -> Option<&'d [u8]> {
    match file {
        File::Elf32(elf) => elf_section_name(elf, index),
        File::Elf64(elf) => elf_section_name(elf, index),
        File::Coff(coff) => coff_section_name(
            coff.coff_section_table(),
            coff.coff_symbol_table().strings(),
            index,
        ),
        File::CoffBig(coff) => coff_section_name(
            coff.coff_section_table(),
            coff.coff_symbol_table().strings(),
            index,
        ),
        _ => None,
    }
}

fn elf_section_name<'d, Elf: FileHeader<Endian = Endianness>>(
    elf: &ElfFile<'d, Elf>,
    index: SectionIndex,
) -> Option<&'d [u8]> {
    let table = elf.elf_section_table();
    table
        .section_name(elf.endian(), table.section(index).ok()?)
        .ok()
}

fn coff_section_name<'d>(
    table: object::read::coff::SectionTable<'d>,
    strings: object::StringTable<'d>,
    index: SectionIndex,
) -> Option<&'d [u8]> {
    table.section(index).ok()?.name(strings).ok()
}
