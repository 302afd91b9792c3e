//! What host code registers, read back from objects and from finished programs: the tables of entries with the names of kernels and
//! variables, OpenMP's descriptors with their rows of images, and the structs through which CUDA and HIP are given a container.
//! Layouts are those of [`entries`](super::entries), [`openmp`](super::openmp) and [`fatbin`](super::fatbin); which section is a
//! table, and of which release, [`offload_entries`](crate::formats::offload_entries) tells.
//!
//! A stripped program has none of the symbols that name these structs, so symbols are not asked: a table is its section, and a
//! descriptor is found by its form (`openmp_descriptors`). `address_space` knows what a pointer stands for, by relocations or by the
//! word in the file.

mod address_space;
mod entry_tables;
mod fatbin_wrappers;
mod openmp_descriptors;
mod sections;
mod sycl_descriptors;
#[cfg(test)]
mod tests;

use std::ops::Range;

use anyhow::Result;
use serde::Serialize;

use address_space::AddressSpace;

/// The section of SYCL's images.
const SYCL_IMAGES: &str = super::sycl::IMAGE_SECTION.name;

/// What a file, or a member of one, registers. Offsets count from the start of the object or program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Registered {
    /// The members of archives that it is in, the outermost first.
    pub members: Vec<String>,
    /// Which members of archives these are, by number: two members of one archive may have the same name.
    #[serde(skip)]
    pub numbers: Vec<usize>,
    /// Whether it is linked: a program or a shared library.
    pub linked: bool,
    /// Where the file, or the member, starts in the file on disk; none for a member that was decompressed.
    pub base: Option<u64>,
    /// The tables of entries.
    pub tables: Vec<Table>,
    /// OpenMP's descriptors.
    pub descriptors: Vec<Descriptor>,
    /// The structs through which CUDA and HIP are given a container.
    pub wrappers: Vec<Wrapper>,
    /// SYCL's descriptors.
    #[serde(skip)]
    pub sycl: Vec<SyclDescriptor>,
}

impl Registered {
    /// Whether nothing is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.descriptors.is_empty() && self.wrappers.is_empty() && self.sycl.is_empty()
    }
}

/// A table of entries. An object may have several sections of one name; each is a table here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Table {
    /// Its section.
    pub section: String,
    /// Where it starts.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The size of an entry in bytes; none where the release cannot be told, and then there are no entries here.
    pub entry_size: Option<u64>,
    /// Its entries, in order.
    pub entries: Vec<Entry>,
}

/// An entry of a table: a kernel or variable that host code uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    /// Where it starts.
    pub offset: u64,
    /// The runtimes it is for: `openmp`, `cuda`, `hip`, `sycl`. Empty where it does not say.
    pub kinds: Vec<&'static str>,
    /// Its name in device code; none where the pointer to it cannot be followed.
    pub name: Option<String>,
    /// Where the name stands in the file.
    pub name_offset: Option<u64>,
    /// Where the value of the pointer to the name is kept: in the entry, or in the relocation that fills it in.
    pub name_pointer: Option<u64>,
    /// The size of a variable in bytes; 0 for a kernel.
    pub size: u64,
    /// What sort of variable it is, as its runtime numbers them.
    pub flags: u32,
    /// More of that: the alignment of a managed variable, the type of a texture.
    pub data: u64,
}

impl Entry {
    /// Whether it is a kernel and no variable. Runtimes tell them by their size.
    pub(crate) fn is_kernel(&self) -> bool {
        self.size == 0
    }
}

/// A pointer in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Slot {
    /// Where it is.
    pub offset: u64,
    /// Where its value is kept: at the same offset, or in the relocation that fills it in. An object's relocation may say it by a
    /// symbol, so that it stands nowhere.
    pub value: Option<u64>,
}

/// What OpenMP's runtime is handed (`__tgt_bin_desc`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Descriptor {
    /// Where it starts; its first four bytes are the number of images.
    pub offset: u64,
    /// The pointer to the rows of images.
    pub rows_pointer: Slot,
    /// Where the rows start.
    pub rows: u64,
    /// The table of entries it names: its bounds as symbols in an object; in a program as offsets, which are equal where it is
    /// empty.
    pub entries: Bounds,
    /// The images, in the order in which the runtime sees them.
    pub images: Vec<ImageRow>,
    /// Rows behind those, which nobody reads: of a program that has lost images. Both bounds are one address.
    #[serde(skip)]
    pub spare: Vec<ImageRow>,
}

/// Where a descriptor's table of entries is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub(crate) enum Bounds {
    /// In a program: offsets in the file.
    Place {
        /// Of the first entry.
        start: u64,
        /// After the last one.
        end: u64,
    },
    /// In a program: an empty table where there is no section.
    Nowhere {
        /// Its address.
        address: u64,
    },
    /// In an object: the symbols that the linker defines.
    Symbols {
        /// Of the first entry.
        start: String,
        /// After the last one.
        end: String,
    },
}

/// An image in a descriptor (`__tgt_device_image`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ImageRow {
    /// Where the row starts.
    pub offset: u64,
    /// Where the image starts.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// The pointers to both.
    pub pointers: [Slot; 2],
}

/// What SYCL's runtime of LLVM 22 is handed (`__sycl.tgt_bin_desc`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyclDescriptor {
    /// Where it starts; the number of images is in the two bytes behind the first two.
    pub offset: u64,
    /// The images, in the order in which the runtime sees them.
    pub images: Vec<SyclRow>,
}

/// An image in SYCL's descriptor (`__sycl.tgt_device_image`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyclRow {
    /// Where the row starts: four bytes of version and kinds, and then pointers.
    pub offset: u64,
    /// Where the image starts.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// The pointers, none for those that are null: triple, options of compiler and linker, both ends of the image, of its entries and
    /// of its properties.
    pub pointers: Vec<Option<Slot>>,
}

/// The struct through which CUDA or HIP is given a container (`fatbin_wrapper`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Wrapper {
    /// `cuda` or `hip`.
    pub runtime: &'static str,
    /// Its section.
    pub section: String,
    /// Where it starts.
    pub offset: u64,
    /// Its version: 1, or 2 of CUDA's containers that are linked when they are registered.
    pub version: u32,
    /// The pointer to the container.
    pub pointer: Slot,
    /// Where the container is; none where an object leaves it to a symbol of another one.
    pub container: Option<u64>,
}

/// Reads what the ELF file or COFF object `data` registers. Other files, linked programs for Windows among them, have no names by
/// which it could be found, and the result is empty.
///
/// # Errors
/// What is damaged in the file's sections, symbols or relocations, and entries that no runtime could read.
pub(crate) fn read(data: &[u8]) -> Result<Registered> {
    let tables = entry_tables::sections(data)?;
    let wrappers = fatbin_wrappers::sections();
    let is_wanted = |name: &str| {
        name == SYCL_IMAGES
            || wrappers.iter().any(|start| name.starts_with(start))
            || tables.iter().any(|table| table.section == name)
    };
    let Some(space) = AddressSpace::of(data, is_wanted)? else { return Ok(Registered::default()) };
    let descriptors = if space.holds_images() || !tables.is_empty() { openmp_descriptors::find(&space)? } else { Vec::new() };
    Ok(Registered {
        members: Vec::new(),
        numbers: Vec::new(),
        linked: space.is_linked(),
        base: None,
        tables: entry_tables::read(&space, tables)?,
        descriptors,
        wrappers: fatbin_wrappers::read(&space),
        sycl: sycl_descriptors::find(&space),
    })
}

/// Every pointer of a program to one of `addresses`, and what it points to.
///
/// # Errors
/// The file is damaged.
pub(crate) fn pointers_to(data: &[u8], addresses: &[Range<u64>]) -> Result<Vec<(Slot, u64)>> {
    let Some(space) = AddressSpace::of(data, |_| true)? else { return Ok(Vec::new()) };
    let is_meant = |target: &u64| addresses.iter().any(|range| range.contains(target));
    let pointers = space.pointers().filter(|(_, target)| is_meant(target));
    Ok(pointers.filter_map(|(at, target)| Some((space.slot(at)?, target))).collect())
}
