//! Updates the pointers of a finished program after its images and containers have moved: the table
//! rows of OpenMP and SYCL descriptors with their count, and the structs that pass a container to
//! CUDA or HIP.

use anyhow::{Context, Result, bail};
use object::{File, Object, ObjectSection, ObjectSymbol, SectionFlags, SectionIndex, SymbolKind};

use super::{Changed, Moved};
use crate::contents::tree::DeviceSection;
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::{NO_ROOM, Patch, Replacement, addresses_with, with_front_page};
use offload_formats::elf::raw::Class;
use offload_formats::registration::read::{
    Bounds, Descriptor, ImageRow, Registered, Slot, SyclDescriptor,
};

/// The pointer of a SYCL row that holds the start of the image; the next one holds its end.
const FIRST_BOUND: usize = 3;

/// A section with new contents.
pub(super) struct NewSection {
    /// Its index in the section table.
    pub(super) index: usize,
    /// Its offset in the old file.
    pub(super) offset: u64,
    /// Its size in the old file.
    pub(super) size: u64,
    /// Its address in the new file.
    pub(super) address: u64,
    pub(super) changed: Changed,
}

impl NewSection {
    /// The section `old` with new contents; [`place`] sets its address.
    pub(super) fn of(old: &DeviceSection, changed: Changed) -> NewSection {
        NewSection {
            index: old.index,
            offset: old.offset,
            size: old.size,
            address: 0,
            changed,
        }
    }
}

impl From<NewSection> for Replacement {
    fn from(section: NewSection) -> Self {
        Replacement {
            section: section.index,
            contents: section.changed.bytes,
        }
    }
}

/// The new address of a pointer's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewAddress {
    /// At this address.
    At(u64),
    Gone,
}

/// The patches that update the pointers of all registrations in the program `data` after images
/// moved. Calls `emptied` for registrations that have lost all of their images.
///
/// # Errors
/// The value of a pointer is stored at an unknown offset, or a registered container is removed.
pub(super) fn registration_patches(
    data: &[u8],
    registered: &Registered,
    sections: &[NewSection],
    emptied: &mut dyn FnMut(String),
) -> Result<Vec<Patch>> {
    let file = File::parse(data)?;
    let mut writer = Writer::new(data, &file);
    let places = Places {
        file: &file,
        sections,
    };
    for descriptor in &registered.descriptors {
        rows(descriptor, &places, &mut writer, emptied)?;
    }
    for wrapper in &registered.wrappers {
        let Some(container) = wrapper.container else {
            continue;
        };
        let runtime = wrapper.runtime;
        match places.new_address(container, false)? {
            NewAddress::At(address) => writer.follow(&wrapper.pointer, address)?,
            NewAddress::Gone => bail!(
                "the container that is registered with {runtime} at {:#x} is gone",
                wrapper.offset
            ),
        }
    }
    for descriptor in &registered.sycl {
        sycl_rows(descriptor, &places, &mut writer, emptied)?;
    }
    for section in sections {
        symbols(&file, section, &mut writer)?;
    }
    Ok(writer.patches)
}

/// The patches that update `pointers`, each with the address of its target in the program `data`,
/// after the contents of `sections` moved. `is_end` returns true if the address is one past the end
/// of an object.
///
/// # Errors
/// The value of a pointer is stored at an unknown offset, or its target is removed.
pub(super) fn pointer_patches(
    data: &[u8],
    pointers: &[(Slot, u64)],
    sections: &[NewSection],
    is_end: &dyn Fn(u64) -> bool,
) -> Result<Vec<Patch>> {
    let file = File::parse(data)?;
    let mut writer = Writer::new(data, &file);
    for (slot, target) in pointers {
        for section in sections {
            let start = file
                .section_by_index(SectionIndex(section.index))?
                .address();
            let Some(within) = target
                .checked_sub(start)
                .filter(|within| *within <= section.size)
            else {
                continue;
            };
            match new_address_in(section, within, is_end(*target)) {
                NewAddress::At(address) => writer.pointer(slot, address)?,
                NewAddress::Gone => {
                    bail!("the target of the pointer at {:#x} is gone", slot.offset)
                }
            }
        }
    }
    Ok(writer.patches)
}

/// Updates the symbols of a section: a symbol follows its target. Symbols of removed data get the
/// size zero.
fn symbols(file: &File<'_>, section: &NewSection, writer: &mut Writer<'_>) -> Result<()> {
    let old = file
        .section_by_index(SectionIndex(section.index))?
        .address();
    // Offsets of value and size in a symbol, for 64 and 32 bits.
    let (record, value_at, size_at) = if file.is_64() {
        (24, 8, 16)
    } else {
        (16, 4, 8)
    };
    for (name, symbols) in [
        (".symtab", file.symbols()),
        (".dynsym", file.dynamic_symbols()),
    ] {
        let Some(table) = file
            .section_by_name(name)
            .and_then(|table| table.file_range())
        else {
            continue;
        };
        for symbol in
            symbols.filter(|symbol| symbol.section_index() == Some(SectionIndex(section.index)))
        {
            let within = symbol.address().wrapping_sub(old);
            if within >= section.size || symbol.kind() == SymbolKind::Section {
                continue;
            }
            let at = table.0 + symbol.index().0 as u64 * record;
            let (value, size) = match new_address_in(section, within, false) {
                NewAddress::At(address) => (address, new_size(section, within, symbol.size())),
                NewAddress::Gone => (section.address, 0),
            };
            writer.word(at + value_at, value)?;
            writer.word(at + size_at, size)?;
        }
    }
    Ok(())
}

/// Updates the rows of an OpenMP descriptor: rows of remaining images move to the front.
fn rows(
    descriptor: &Descriptor,
    places: &Places<'_>,
    writer: &mut Writer<'_>,
    emptied: &mut dyn FnMut(String),
) -> Result<()> {
    let mut remaining = Vec::new();
    for row in &descriptor.images {
        remaining.extend(places.ends(row.offset, row.start, row.end)?);
    }
    if remaining.len() == descriptor.images.len() {
        for (row, ends) in descriptor.images.iter().zip(remaining) {
            writer.row(row, ends)?;
        }
        return Ok(());
    }
    if remaining.is_empty() {
        emptied(format!("OpenMP's descriptor at {:#x}", descriptor.offset));
    }
    // Unused rows have no image: both bounds are the same address.
    let unused = places.sections.first().map_or(0, |section| section.address);
    write_rows(descriptor, &remaining, unused, writer)
}

/// Writes the bounds `ends` into the rows of a descriptor's table, `unused` into the unused rows,
/// and the number of used rows.
fn write_rows(
    descriptor: &Descriptor,
    ends: &[[u64; 2]],
    unused: u64,
    writer: &mut Writer<'_>,
) -> Result<()> {
    writer.number(descriptor.offset, u32::try_from(ends.len())?);
    let ends = ends.iter().copied().chain(std::iter::repeat([unused; 2]));
    for (row, ends) in descriptor.images.iter().chain(&descriptor.spare).zip(ends) {
        writer.row(row, ends)?;
    }
    Ok(())
}

/// Updates the rows of a SYCL descriptor: rows of remaining images move to the front, with all of
/// their pointers.
fn sycl_rows(
    descriptor: &SyclDescriptor,
    places: &Places<'_>,
    writer: &mut Writer<'_>,
    emptied: &mut dyn FnMut(String),
) -> Result<()> {
    let mut remaining = Vec::new();
    for row in &descriptor.images {
        let Some(ends) = places.ends(row.offset, row.start, row.end)? else {
            continue;
        };
        let value = |slot: &Option<Slot>| match slot {
            None => Ok(None),
            Some(Slot {
                value: Some(at), ..
            }) => writer
                .word_at(*at)
                .map(Some)
                .context("a pointer past the end"),
            Some(slot) => bail!("the value of the pointer at {:#x} is unknown", slot.offset),
        };
        let mut values = row.pointers.iter().map(value).collect::<Result<Vec<_>>>()?;
        values
            .iter_mut()
            .skip(FIRST_BOUND)
            .zip(ends)
            .for_each(|(value, end)| *value = Some(end));
        remaining.push((row.offset, values));
    }
    if remaining.is_empty() {
        emptied(format!("SYCL's descriptor at {:#x}", descriptor.offset));
    }
    if remaining.len() != descriptor.images.len() {
        writer.short(descriptor.offset + 2, u16::try_from(remaining.len())?);
    }
    for (row, (from, values)) in descriptor.images.iter().zip(remaining) {
        if from != row.offset {
            writer.copy(from, row.offset, 4)?;
        }
        for (slot, value) in row.pointers.iter().zip(values) {
            match (slot, value) {
                (Some(slot), Some(address)) => writer.pointer(slot, address)?,
                (None, None) => {}
                _ => bail!(
                    "the row at {:#x} cannot take the values of the row at {from:#x}: one of them has a null pointer",
                    row.offset
                ),
            }
        }
    }
    Ok(())
}

/// The capacity of a descriptor's table, in rows.
pub(super) fn capacity(descriptor: &Descriptor) -> usize {
    descriptor.images.len() + descriptor.spare.len()
}

/// The patches that fill the table of `descriptor`, in the program `data`, with rows for the images
/// at these memory ranges, and no others. The table must be large enough ([`capacity`]).
///
/// # Errors
/// The value of a pointer is stored at an unknown offset.
pub(super) fn table_patches(
    data: &[u8],
    descriptor: &Descriptor,
    ends: &[[u64; 2]],
) -> Result<Vec<Patch>> {
    let mut writer = Writer::new(data, &File::parse(data)?);
    let unused = ends.first().map_or(0, |ends| ends[0]);
    write_rows(descriptor, ends, unused, &mut writer)?;
    Ok(writer.patches)
}

/// The patches that move the table of `descriptor`, in the program `data`, to the address `table`;
/// and the words of the new table, with rows for the images at these memory ranges.
///
/// # Errors
/// The value of a pointer is stored at an unknown offset, or the entry table is in no section.
pub(super) fn new_table_patches(
    data: &[u8],
    descriptor: &Descriptor,
    ends: &[[u64; 2]],
    table: u64,
) -> Result<(Vec<Patch>, Vec<u64>)> {
    let file = File::parse(data)?;
    let mut writer = Writer::new(data, &file);
    // The old rows are unused now.
    write_rows(
        descriptor,
        &[],
        ends.first().map_or(0, |ends| ends[0]),
        &mut writer,
    )?;
    writer
        .patches
        .retain(|patch| patch.offset != descriptor.offset);
    writer.number(descriptor.offset, u32::try_from(ends.len())?);
    writer.pointer(&descriptor.rows_pointer, table)?;
    let places = Places {
        file: &file,
        sections: &[],
    };
    let (first, last) = match descriptor.entries {
        Bounds::Place { start, end } => {
            let first = places
                .address(start, false)
                .or_else(|_| places.address(start, true))?;
            (first, first.wrapping_add(end.saturating_sub(start)))
        }
        Bounds::Nowhere { address } => (address, address),
        Bounds::Symbols { .. } => bail!("the program names its entries by symbols"),
    };
    Ok((
        writer.patches,
        ends.iter()
            .flat_map(|[start, end]| [*start, *end, first, last])
            .collect(),
    ))
}

/// The new locations of all data.
struct Places<'a> {
    file: &'a File<'a>,
    sections: &'a [NewSection],
}

impl Places<'_> {
    /// The new bounds of the image from `start` to `end`, which the row at the offset `row`
    /// registers; `None` if the image is removed.
    fn ends(&self, row: u64, start: u64, end: u64) -> Result<Option<[u64; 2]>> {
        match (
            self.new_address(start, false)?,
            self.new_address(end, true)?,
        ) {
            (NewAddress::At(start), NewAddress::At(end)) => Ok(Some([start, end])),
            (NewAddress::Gone, NewAddress::Gone) => Ok(None),
            _ => bail!("the image of the row at {row:#x} is only partly left"),
        }
    }

    /// The new address of the byte at `offset` of the file; or, for `is_end`, of the end of the
    /// data before `offset`.
    fn new_address(&self, offset: u64, is_end: bool) -> Result<NewAddress> {
        let holds = |section: &&NewSection| {
            let within = offset.wrapping_sub(section.offset);
            within <= section.size
                && if is_end {
                    within > 0
                } else {
                    within < section.size
                }
        };
        match self.sections.iter().find(holds) {
            Some(section) => Ok(new_address_in(section, offset - section.offset, is_end)),
            None => self.address(offset, is_end).map(NewAddress::At),
        }
    }

    /// The address of the byte at `offset` of the file in an unchanged section; or, for `is_end`,
    /// of the end of the data before `offset`.
    fn address(&self, offset: u64, is_end: bool) -> Result<u64> {
        let back = u64::from(is_end);
        let byte = offset.checked_sub(back).context("a pointer to nothing")?;
        for section in self.file.sections() {
            let is_loaded = matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(object::elf::SHF_ALLOC));
            if let Some((start, size)) = section.file_range().filter(|_| is_loaded)
                && (start..start.saturating_add(size)).contains(&byte)
            {
                return Ok(section
                    .address()
                    .wrapping_add(byte - start)
                    .wrapping_add(back));
            }
        }
        bail!("offset {offset:#x} is not in any loaded section")
    }
}

/// The new address of the byte at the offset `within` of a section; or, for `is_end`, of the end of
/// the data before that offset. The innermost moved range that contains the byte decides.
fn new_address_in(section: &NewSection, within: u64, is_end: bool) -> NewAddress {
    let holds = |moved: &&Moved| {
        let old = &moved.old;
        if is_end {
            old.start < within && within <= old.end
        } else {
            old.start <= within && within < old.end
        }
    };
    let innermost = section
        .changed
        .moved
        .iter()
        .filter(holds)
        .min_by_key(|moved| moved.old.end - moved.old.start);
    let Some(Moved { old, new }) = innermost else {
        return NewAddress::Gone;
    };
    let at = if old.end - old.start == new.end - new.start {
        new.start + (within - old.start)
    } else if !is_end && within == old.start {
        new.start
    } else if is_end && within == old.end {
        new.end
    } else {
        return NewAddress::Gone;
    };
    NewAddress::At(section.address.wrapping_add(at))
}

/// The new size of the `size` bytes at the offset `within`. It differs from `size` if exactly this
/// range was replaced by contents of another size.
fn new_size(section: &NewSection, within: u64, size: u64) -> u64 {
    let end = within.saturating_add(size);
    match section
        .changed
        .moved
        .iter()
        .find(|moved| size > 0 && moved.old == (within..end))
    {
        Some(moved) => moved.new.end - moved.new.start,
        None => size,
    }
}

/// The layout of a program with new contents.
pub(super) struct Placed {
    /// The program with an additional page at its start; `None` if it needs no page.
    pub(super) piece: Option<FileSlice>,
    /// The memory address of the pointer array.
    pub(super) array: u64,
}

/// Assigns addresses to the sections `new` of the program `piece`, together with an array of
/// `pointers` pointers. If the program has no room for the additional program headers, it gets a
/// page at its start. Then all offsets, including those of `new`, refer to [`Placed::piece`], and
/// the caller must read the registrations again from that file. The sections with the indices
/// `movable` may begin at a later address.
///
/// # Errors
/// As for [`addresses_with`].
pub(super) fn place(
    piece: &FileSlice,
    new: &mut [NewSection],
    pointers: usize,
    movable: &[usize],
    spool: &mut Spool,
) -> Result<Placed> {
    let sizes: Vec<(usize, u64)> = new
        .iter()
        .map(|section| (section.index, section.changed.bytes.size()))
        .collect();
    let (mut larger, mut placed) = (None, addresses_with(piece, &sizes, pointers, movable));
    if placed.as_ref().is_err_and(|fault| fault.what == NO_ROOM)
        && let Some((page, rope)) = with_front_page(piece)?
    {
        let piece = rope.into_piece(spool)?;
        placed = addresses_with(&piece, &sizes, pointers, movable);
        new.iter_mut()
            .for_each(|section| section.offset = section.offset.saturating_add(page));
        larger = Some(piece);
    }
    let (addresses, array) = placed?;
    for (section, address) in new.iter_mut().zip(addresses) {
        section.address = address;
    }
    Ok(Placed {
        piece: larger,
        array,
    })
}

/// Collects patches of a file.
struct Writer<'d> {
    data: &'d [u8],
    class: Class,
    patches: Vec<Patch>,
}

impl<'d> Writer<'d> {
    fn new(data: &'d [u8], file: &File<'_>) -> Self {
        Writer {
            data,
            class: Class::of_file(file),
            patches: Vec::new(),
        }
    }

    fn number(&mut self, offset: u64, value: u32) {
        self.patches.push(Patch {
            offset,
            bytes: self.class.word_bytes(value).to_vec(),
        });
    }

    fn short(&mut self, offset: u64, value: u16) {
        use object::Endian;
        self.patches.push(Patch {
            offset,
            bytes: self.class.endian.write_u16(value).to_vec(),
        });
    }

    /// Copies bytes from one offset to another.
    fn copy(&mut self, from: u64, to: u64, size: usize) -> Result<()> {
        let bytes = usize::try_from(from)
            .ok()
            .and_then(|from| self.data.get(from..)?.get(..size));
        self.patches.push(Patch {
            offset: to,
            bytes: bytes.context("a row past the end")?.to_vec(),
        });
        Ok(())
    }

    /// Sets a pointer to `address`, the new address of its target. Pointers that the dynamic loader
    /// computes from a symbol need no patch, because the symbol follows its target (see
    /// [`symbols`]).
    fn follow(&mut self, slot: &Slot, address: u64) -> Result<()> {
        if slot.by_symbol {
            Ok(())
        } else {
            self.pointer(slot, address)
        }
    }

    /// Sets a pointer to `address`: where its value is stored, such as in a relocation, and at the
    /// pointer itself if the linker has written the value there as well.
    fn pointer(&mut self, slot: &Slot, address: u64) -> Result<()> {
        let value = slot.value.with_context(|| {
            format!("the value of the pointer at {:#x} is unknown", slot.offset)
        })?;
        let old = self.word_at(value).context("a pointer past the end")?;
        if old == address {
            return Ok(());
        }
        let bytes = self.word_bytes(address)?;
        if slot.offset != value && old != 0 && self.word_at(slot.offset) == Some(old) {
            self.patches.push(Patch {
                offset: slot.offset,
                bytes: bytes.clone(),
            });
        }
        self.patches.push(Patch {
            offset: value,
            bytes,
        });
        Ok(())
    }

    /// Sets the pointers of a row to the bounds `ends`.
    fn row(&mut self, row: &ImageRow, ends: [u64; 2]) -> Result<()> {
        let mut each = row.pointers.iter().zip(ends);
        each.try_for_each(|(slot, address)| self.pointer(slot, address))
    }

    /// Writes a word at an offset, unless it has that value already.
    fn word(&mut self, offset: u64, value: u64) -> Result<()> {
        if self.word_at(offset) != Some(value) {
            let bytes = self.word_bytes(value)?;
            self.patches.push(Patch { offset, bytes });
        }
        Ok(())
    }

    fn word_at(&self, offset: u64) -> Option<u64> {
        self.class
            .address(self.data.get(usize::try_from(offset).ok()?..)?)
    }

    fn word_bytes(&self, value: u64) -> Result<Vec<u8>> {
        if !self.class.is_64 {
            u32::try_from(value)?;
        }
        Ok(self.class.address_bytes(value))
    }
}
