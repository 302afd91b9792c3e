//! Reads registrations back from objects and from finished programs: entry tables with the names of
//! kernels and variables, OpenMP descriptors with their rows of images, and the structs through
//! which CUDA and HIP get a container. The layouts are those of [`offload_entries`],
//! [`openmp`](super::openmp) and [`fatbin`](super::fatbin). `offload_entries` also determines which
//! sections are tables, and from which release.
//!
//! A stripped program has none of the symbols that name these structs. So this reader uses no
//! symbols: it finds a table by its section, and a descriptor by its layout (`descriptors`).
//! `address_space` resolves pointers, through relocations or the word in the file.

mod address_space;
mod descriptors;
#[cfg(test)]
mod tests;

use std::ops::Range;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bytes::c_string;
use crate::error::Malformed;
use crate::model::{Generation, OffloadKind, OffloadKinds};
use crate::offload_entries::{self, EntryTable, Field, NARROW_ENTRY, WIDE_ENTRY};
use crate::offload_sections;
use crate::registration::fatbin::{EntryField, NARROW_READS, Read, WIDE_READS};
use address_space::{AddressSpace, Pointer};

/// The flag of an OpenMP entry that states a program's requirements on its runtime (LLVM's
/// `OMPTargetGlobalRegisterRequires`). Such an entry is not a kernel, although its size is 0.
const REQUIRES: u32 = 0x10;
/// The section of SYCL's images.
const SYCL_IMAGES: &str = super::sycl::IMAGE_SECTION.name;

/// The registrations in a file, or in an archive member. Offsets count from the start of the object
/// or program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Registered {
    /// The archive members that contain the object, outermost first.
    pub members: Vec<String>,
    /// The indices of these members in their archives, because two members of one archive may have
    /// the same name.
    #[serde(skip)]
    pub numbers: Vec<usize>,
    /// Whether the file is a linked program or shared library.
    pub linked: bool,
    /// The offset of the file, or of the member, in the file on disk; none for a member that was
    /// decompressed.
    pub base: Option<u64>,
    /// The entry tables.
    pub tables: Vec<Table>,
    /// OpenMP's descriptors.
    pub descriptors: Vec<Descriptor>,
    /// The structs through which CUDA and HIP get a container.
    pub wrappers: Vec<Wrapper>,
    /// SYCL's descriptors.
    #[serde(skip)]
    pub sycl: Vec<SyclDescriptor>,
}

impl Registered {
    /// Whether nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
            && self.descriptors.is_empty()
            && self.wrappers.is_empty()
            && self.sycl.is_empty()
    }
}

/// An entry table. An object may have several sections with the same name; each is a table here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The name of the table's section.
    pub section: String,
    /// The offset of the table.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// The size of an entry in bytes. None if the release is unknown; then there are no entries
    /// here.
    pub entry_size: Option<u64>,
    /// The entries, in order.
    pub entries: Vec<Entry>,
}

/// An entry of a table: a kernel or variable that host code uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The offset of the entry.
    pub offset: u64,
    /// The runtimes that the entry is for: `openmp`, `cuda`, `hip`, `sycl`. Empty if the entry does
    /// not contain them.
    pub kinds: Vec<&'static str>,
    /// The name in device code; none if the pointer to it cannot be followed.
    pub name: Option<String>,
    /// The offset of the name in the file.
    pub name_offset: Option<u64>,
    /// The offset of the value of the pointer to the name: in the entry, or in the relocation that
    /// fills it in.
    pub name_pointer: Option<u64>,
    /// The size of a variable in bytes; 0 for a kernel.
    pub size: u64,
    /// The sort of variable, in the runtime's encoding.
    pub flags: u32,
    /// The alignment of a managed variable, or the type of a surface or texture.
    pub data: u64,
}

impl Entry {
    /// Whether it is a kernel rather than a variable. Runtimes distinguish them by their size.
    pub fn is_kernel(&self) -> bool {
        self.size == 0
    }

    /// Whether an OpenMP entry states the program's requirements on its runtime, and names no
    /// symbol.
    pub fn is_requirement(&self) -> bool {
        self.is_kernel() && self.flags & REQUIRES != 0
    }
}

/// A pointer in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Slot {
    /// The offset of the pointer.
    pub offset: u64,
    /// The offset of the pointer's value: the same offset, or the relocation that fills it in. None
    /// if the value is a symbol's address, as an object's relocation may give it.
    pub value: Option<u64>,
    /// Whether the dynamic loader sets the pointer to the address of a symbol of the program,
    /// without an addend.
    #[serde(skip)]
    pub by_symbol: bool,
}

/// The struct that OpenMP's runtime gets (`__tgt_bin_desc`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Descriptor {
    /// The offset of the struct; its first four bytes are the number of images.
    pub offset: u64,
    /// The pointer to the rows of images.
    pub rows_pointer: Slot,
    /// The offset of the rows.
    pub rows: u64,
    /// The bounds of its entry table: symbols in an object, offsets in a program. The offsets of an
    /// empty table are equal.
    pub entries: Bounds,
    /// The images, in the order in which the runtime sees them.
    pub images: Vec<ImageRow>,
    /// Unused rows behind the rows of images, in a program from which images were removed. Both
    /// bounds of such a row are equal.
    #[serde(skip)]
    pub spare: Vec<ImageRow>,
}

/// The bounds of a descriptor's entry table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Bounds {
    /// In a program: offsets in the file.
    Place {
        /// The offset of the first entry.
        start: u64,
        /// The offset after the last entry.
        end: u64,
    },
    /// In a program: an empty table without a section.
    Nowhere {
        /// The address of the table.
        address: u64,
    },
    /// In an object: the symbols that the linker defines.
    Symbols {
        /// The symbol of the first entry.
        start: String,
        /// The symbol after the last entry.
        end: String,
    },
}

/// An image in a descriptor (`__tgt_device_image`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageRow {
    /// The offset of the row.
    pub offset: u64,
    /// The offset of the image.
    pub start: u64,
    /// The offset after the image.
    pub end: u64,
    /// The pointers to both.
    pub pointers: [Slot; 2],
}

/// The struct that SYCL's runtime of LLVM 22 gets (`__sycl.tgt_bin_desc`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyclDescriptor {
    /// The offset of the struct; bytes 2 and 3 are the number of images.
    pub offset: u64,
    /// The images, in the order in which the runtime sees them.
    pub images: Vec<SyclRow>,
}

/// An image in SYCL's descriptor (`__sycl.tgt_device_image`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyclRow {
    /// The offset of the row: four bytes of version and kinds, then pointers.
    pub offset: u64,
    /// The offset of the image.
    pub start: u64,
    /// The offset after the image.
    pub end: u64,
    /// The pointers, none for null pointers: triple, options of compiler and linker, and both ends
    /// of the image, of its entries and of its properties.
    pub pointers: Vec<Option<Slot>>,
}

/// The struct through which CUDA or HIP gets a container (`fatbin_wrapper`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wrapper {
    /// `cuda` or `hip`.
    pub runtime: &'static str,
    /// The name of the struct's section.
    pub section: String,
    /// The offset of the struct.
    pub offset: u64,
    /// The version: 1, or 2 for a CUDA image that is linked from modules.
    pub version: u32,
    /// The pointer to the container.
    pub pointer: Slot,
    /// The offset of the container; none if an object refers to it by a symbol of another object.
    pub container: Option<u64>,
}

/// Reads the registrations in the ELF file or COFF object `data`. The result is empty for other
/// files, including linked Windows programs, because they have no names to find registrations by.
///
/// # Errors
/// The file's sections, symbols or relocations are damaged, or it has entries that no runtime could
/// read.
pub fn read(data: &[u8]) -> Result<Registered> {
    let tables = table_sections(data)?;
    let wrappers = descriptors::wrapper_sections();
    let is_wanted = |name: &str| {
        name == SYCL_IMAGES
            || wrappers.iter().any(|start| name.starts_with(start))
            || tables.iter().any(|table| table.section == name)
    };
    let Some(space) = AddressSpace::of(data, is_wanted)? else {
        return Ok(Registered::default());
    };
    let descriptors = if space.holds_images() || !tables.is_empty() {
        descriptors::openmp(&space)?
    } else {
        Vec::new()
    };
    Ok(Registered {
        members: Vec::new(),
        numbers: Vec::new(),
        linked: space.linked,
        base: None,
        tables: read_tables(&space, tables)?,
        descriptors,
        wrappers: descriptors::wrappers(&space),
        sycl: descriptors::sycl(&space),
    })
}

/// Reads only the entry tables of the ELF file or COFF object `data`.
///
/// # Errors
/// The same as for [`read`].
pub fn tables(data: &[u8]) -> Result<Vec<Table>> {
    let tables = table_sections(data)?;
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let is_table = |name: &str| tables.iter().any(|table| table.section == name);
    let Some(space) = AddressSpace::with_pointers(data, is_table, is_table)? else {
        return Ok(Vec::new());
    };
    read_tables(&space, tables)
}

/// Returns every pointer of a program to one of `addresses`, with its target address.
///
/// # Errors
/// The file is damaged.
pub fn pointers_to(data: &[u8], addresses: &[Range<u64>]) -> Result<Vec<(Slot, u64)>> {
    let Some(space) = AddressSpace::of(data, |_| true)? else {
        return Ok(Vec::new());
    };
    let is_meant = |target: &u64| addresses.iter().any(|range| range.contains(target));
    let pointers = space.pointers().filter(|(_, target)| is_meant(target));
    Ok(pointers
        .filter_map(|(at, target)| Some((space.slot(at)?, target)))
        .collect())
}

// Entry tables with the names of kernels and variables.

/// Returns the tables of the file `data`, by the names of their sections.
fn table_sections(data: &[u8]) -> Result<Vec<EntryTable>> {
    offload_entries::tables(data).context("cannot read the entry tables")
}

/// Reads the entries of `tables`.
fn read_tables(space: &AddressSpace<'_>, tables: Vec<EntryTable>) -> Result<Vec<Table>> {
    let mut all = Vec::new();
    // Entries may share their names, so a small file could request any amount of memory. No
    // compiler comes near this limit.
    let mut left = space.size().saturating_mul(4);
    for table in tables {
        for section in space
            .sections
            .iter()
            .filter(|section| section.name == table.section)
        {
            let mut found = Table {
                section: table.section.clone(),
                offset: section.offset,
                size: section.size,
                entry_size: table.entry_size(),
                entries: Vec::new(),
            };
            if let Some((generation, size)) = table.generation.zip(found.entry_size) {
                let layout = EntryLayout::of(generation, &table.section, space.word);
                let count = section.size / size;
                for entry in (0..count).filter_map(|index| {
                    layout
                        .entry(space, section.address + index * size)
                        .transpose()
                }) {
                    let entry = entry.with_context(|| table.section.clone())?;
                    left = left
                        .checked_sub(entry.name.as_ref().map_or(0, |name| name.len() as u64))
                        .with_context(|| {
                            format!(
                                "{}: the entry names are longer than the file",
                                table.section
                            )
                        })?;
                    found.entries.push(entry);
                }
            }
            all.push(found);
        }
    }
    Ok(all)
}

/// The offsets of an entry's fields.
struct EntryLayout {
    fields: &'static [Field],
    reads: &'static [Read],
    word: u64,
    /// The kinds that the section's name gives its entries; none if each entry has its own.
    kinds: Option<OffloadKinds>,
}

impl EntryLayout {
    fn of(generation: Generation, section: &str, word: u64) -> EntryLayout {
        let (fields, reads) = if generation.wide_entries() {
            (WIDE_ENTRY, WIDE_READS)
        } else {
            (NARROW_ENTRY, NARROW_READS)
        };
        let kinds = offload_sections::known(section.as_bytes(), false)
            .and_then(|known| known.kind)
            .map(|kind| OffloadKinds::default().with(kind));
        EntryLayout {
            fields,
            reads,
            word,
            kinds,
        }
    }

    /// Returns the offset and the type of a field in an entry.
    fn at(&self, wanted: EntryField) -> Option<(u64, Field)> {
        let index = self.reads.iter().find(|read| read.field == wanted)?.index as usize;
        let offset = self
            .fields
            .get(..index)?
            .iter()
            .map(|field| self.size(*field))
            .sum();
        Some((offset, *self.fields.get(index)?))
    }

    /// Returns the size of a field in bytes. Entries are packed: their layout has no gaps on any
    /// host.
    fn size(&self, field: Field) -> u64 {
        match field {
            Field::U8 => 1,
            Field::U16 => 2,
            Field::U32 => 4,
            Field::U64 => 8,
            Field::Size | Field::Pointer => self.word,
        }
    }

    fn number(&self, space: &AddressSpace<'_>, entry: u64, field: EntryField) -> Option<u64> {
        let (offset, kind) = self.at(field)?;
        space.number(entry + offset, self.size(kind))
    }

    /// Reads the entry at an address. Returns none if it is all zeros, which is padding.
    fn entry(&self, space: &AddressSpace<'_>, address: u64) -> Result<Option<Entry>> {
        let offset = space.offset(address).unwrap_or_default();
        let damaged = || Malformed::new("an entry past the end of its section", offset);
        let number = |field| self.number(space, address, field);
        let (name_at, _) = self.at(EntryField::Name).ok_or_else(damaged)?;
        let pointer = space.pointer(address + name_at);
        let size = number(EntryField::Size).ok_or_else(damaged)?;
        let raw_kind = number(EntryField::Kind).unwrap_or_default();
        if pointer == Pointer::Null && size == 0 && raw_kind == 0 {
            return Ok(None);
        }
        let kinds = self
            .kinds
            .unwrap_or_else(|| OffloadKinds::from_stored(raw_kind as u16, ""));
        let target = match pointer {
            Pointer::To(target) => Some(target),
            _ => None,
        };
        Ok(Some(Entry {
            offset,
            kinds: kinds.iter().map(OffloadKind::name).collect(),
            name: target.and_then(|target| entry_name(space, target)),
            name_offset: target.and_then(|target| space.offset(target)),
            name_pointer: space.slot(address + name_at).and_then(|slot| slot.value),
            size,
            flags: number(EntryField::Flags).unwrap_or_default() as u32,
            data: number(EntryField::Data).unwrap_or_default(),
        }))
    }
}

/// Reads the string at an address, up to the zero that ends it.
fn entry_name(space: &AddressSpace<'_>, address: u64) -> Option<String> {
    /// Limit on the length of a name in bytes, so that a name without an end is not searched to the
    /// end of a large section.
    const LONGEST: usize = 1 << 16;
    let bytes = space.from(address)?;
    let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
    std::str::from_utf8(c_string(bytes)?)
        .ok()
        .map(str::to_owned)
}
