//! Reads an ELF file or a COFF object into plain values, independent of class and byte order: its
//! sections, symbols and relocations, without their positions in the file's tables.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use anyhow::{Context, Result, bail};
use object::elf::{self, Rel32, Rel64, Rela32, Rela64};
use object::pod::{self, Pod};
use object::read::coff::{CoffHeader, Symbol as _};
use object::read::elf as read;
use object::read::elf::{CrelIterator, Rel, Rela, RelrIterator};
use object::{Endianness, FileKind, LittleEndian as LE, pe};

use offload_formats::bytes::c_string;
use offload_formats::elf::SHT_LLVM_OFFLOADING;
use offload_formats::elf::file::SectionTable;
use offload_formats::elf::raw::{
    Class, FileHeader, Record, SectionHeader, Symbol as RawSymbol, extended_indices,
    section_of_symbol,
};
use offload_formats::error::Malformed;
use offload_formats::model::OffloadKind;
use offload_formats::offload_sections::{self, SectionContents};
use offload_formats::registration::read::Registered;
use offload_formats::{bundle, registration};

/// Identifies a section in both files: its name, and its index among the sections of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key<'d> {
    pub(super) name: &'d [u8],
    pub(super) number: usize,
}

/// A section.
#[derive(Debug)]
pub(super) struct Section<'d> {
    pub(super) key: Key<'d>,
    pub(super) header: SectionHeader,
    /// Its bytes in the file; empty if it has none.
    pub(super) body: &'d [u8],
}

impl Section<'_> {
    /// Its name as text.
    pub(super) fn printable_name(&self) -> String {
        offload_formats::model::printable_name(self.key.name)
    }

    /// Whether it is a symbol table.
    pub(super) fn is_symbols(&self) -> bool {
        matches!(self.header.kind, elf::SHT_SYMTAB | elf::SHT_DYNSYM)
    }
}

/// A symbol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol<'d> {
    pub(super) name: &'d [u8],
    pub(super) info: elf::SymbolInfo,
    pub(super) other: u8,
    /// The section that contains it.
    pub(super) section: Option<usize>,
    /// The special section index, if it has no section: undefined, absolute, common.
    pub(super) special: u16,
    pub(super) value: u64,
    pub(super) size: u64,
    /// The default of a weak external symbol; only in COFF.
    pub(super) stands_for: &'d [u8],
}

impl Symbol<'_> {
    pub(super) fn kind(&self) -> elf::SymbolType {
        self.info.st_type()
    }

    pub(super) fn is_local(&self) -> bool {
        self.info.st_bind() == elf::STB_LOCAL
    }
}

/// A relocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relocation {
    /// The location it applies to: an offset in a section of an object, or an address in a program.
    pub(super) place: u64,
    /// Its type, in the numbering of the processor; 0 for an entry of a packed table of relative
    /// ones.
    pub(super) kind: u32,
    /// The target symbol; 0 for none.
    pub(super) symbol: usize,
    /// The addend; `None` if it is stored at the location itself.
    pub(super) addend: Option<i64>,
}

/// An ELF file.
#[derive(Debug)]
pub(super) struct HostFile<'d> {
    pub(super) class: Class,
    pub(super) header: FileHeader,
    /// By index; the first is the null section.
    pub(super) sections: Vec<Section<'d>>,
    /// The symbols for linkers.
    pub(super) symbols: Vec<Symbol<'d>>,
    /// The symbols for the dynamic loader.
    pub(super) dynamic_symbols: Vec<Symbol<'d>>,
    /// The flags of the stack segment, which decide whether the stack is executable.
    pub(super) stack_flags: Option<u32>,
    /// The address of the first byte of the file, if that is loaded.
    pub(super) base: Option<u64>,
    /// The end of thread-local memory. Some processors count thread-local offsets from there.
    pub(super) tls_end: Option<u64>,
    /// Limit on the relocations of one table, from the size of the file.
    pub(super) most_relocations: usize,
    pub(super) relocations: Relocations<'d>,
}

/// The location of relocations.
#[derive(Debug)]
pub(super) enum Relocations<'d> {
    /// In sections of their own.
    Sections,
    /// With each section, by its index.
    Coff(Vec<&'d [object::pe::ImageRelocation]>),
}

impl<'d> HostFile<'d> {
    /// Reads the object, program or shared library `data`.
    ///
    /// # Errors
    /// The headers, names or symbols are damaged; sections overlap; or a program has no section
    /// headers.
    pub(super) fn read(data: &'d [u8]) -> Result<Self> {
        if !data.starts_with(&elf::ELFMAG) {
            return read_coff(data);
        }
        let (class, header) = FileHeader::read(data)?;
        if !matches!(header.kind, elf::ET_REL | elf::ET_EXEC | elf::ET_DYN) {
            bail!("neither an object nor a program or shared library");
        }
        let sections = sections(data, class, &header)?;
        let lent = sections.iter().fold(0, |sum: u64, section| {
            sum.saturating_add(section.body.len() as u64)
        });
        if lent > data.len() as u64 {
            return Err(Malformed::new("sections overlap", header.shoff).into());
        }
        let mut names_left = data.len().saturating_mul(4);
        let mut of_kind = |kind| {
            let table = sections
                .iter()
                .position(|section| section.header.kind == kind);
            table.map_or(Ok(Vec::new()), |table| {
                symbols(class, &sections, table, &mut names_left)
            })
        };
        let (symbols, dynamic_symbols) = (of_kind(elf::SHT_SYMTAB)?, of_kind(elf::SHT_DYNSYM)?);
        let segments = header.program_headers(class, data)?;
        let stack = segments
            .iter()
            .find(|segment| segment.kind == elf::PT_GNU_STACK);
        let first = segments
            .iter()
            .find(|segment| segment.kind == elf::PT_LOAD && segment.offset == 0);
        // The loader aligns the segment from its start.
        let tls = segments.iter().find(|segment| segment.kind == elf::PT_TLS);
        let tls_end = tls.and_then(|tls| {
            tls.vaddr
                .checked_add(tls.memsz)?
                .checked_next_multiple_of(tls.align.max(1))
        });
        let most_relocations = data.len() / 2;
        Ok(HostFile {
            class,
            header,
            sections,
            symbols,
            dynamic_symbols,
            stack_flags: stack.map(|segment| segment.flags.0),
            base: first.map(|segment| segment.vaddr),
            tls_end,
            most_relocations,
            relocations: Relocations::Sections,
        })
    }

    /// Whether it is an object, which is linked later.
    pub(super) fn is_object(&self) -> bool {
        self.header.kind == elf::ET_REL
    }

    /// Whether it is linked for fixed addresses, so that any word can be an address.
    pub(super) fn is_fixed(&self) -> bool {
        self.header.kind == elf::ET_EXEC
    }

    /// The sections with relocations, by the section that they apply to.
    pub(super) fn relocation_tables(&self) -> BTreeMap<usize, Vec<usize>> {
        if let Relocations::Coff(all) = &self.relocations {
            return (0..all.len()).map(|index| (index, vec![index])).collect();
        }
        let mut tables: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, section) in self
            .sections
            .iter()
            .enumerate()
            .filter(|(_, section)| section.header.is_relocations())
        {
            tables
                .entry(section.header.info as usize)
                .or_default()
                .push(index);
        }
        tables
    }

    /// The relocations in section `index`, in their order.
    ///
    /// # Errors
    /// A table is truncated, or has an unknown form.
    pub(super) fn relocations(&self, index: usize) -> Result<Vec<Relocation>> {
        if let Relocations::Coff(all) = &self.relocations {
            return Ok(all
                .get(index)
                .into_iter()
                .flat_map(|own| own.iter())
                .map(coff_relocation)
                .collect());
        }
        let Some(section) = self.sections.get(index) else {
            return Ok(Vec::new());
        };
        let (body, endian) = (section.body, self.class.endian);
        let mips =
            self.class.is_64 && endian == Endianness::Little && self.header.machine == elf::EM_MIPS;
        let found = match (section.header.kind, self.class.is_64) {
            (elf::SHT_RELA, true) => rela::<Rela64<Endianness>>(body, endian, mips),
            (elf::SHT_RELA, false) => rela::<Rela32<Endianness>>(body, endian, false),
            (elf::SHT_REL, true) => rel::<Rel64<Endianness>>(body, endian),
            (elf::SHT_REL, false) => rel::<Rel32<Endianness>>(body, endian),
            (elf::SHT_RELR, true) => self.relr::<elf::FileHeader64<Endianness>>(body),
            (elf::SHT_RELR, false) => self.relr::<elf::FileHeader32<Endianness>>(body),
            (elf::SHT_CREL, _) => crel(body)?,
            _ => Some(Vec::new()),
        };
        found
            .filter(|all| all.len() <= self.most_relocations)
            .with_context(|| format!("{}: damaged relocations", section.printable_name()))
    }

    fn relr<Elf: read::FileHeader<Endian = Endianness>>(
        &self,
        body: &[u8],
    ) -> Option<Vec<Relocation>> {
        let places = RelrIterator::<'_, Elf>::new(self.class.endian, records(body)?);
        let at = |place: u64| Relocation {
            place,
            kind: 0,
            symbol: 0,
            addend: None,
        };
        Some(
            places
                .take(self.most_relocations.saturating_add(1))
                .map(|place| at(place.into()))
                .collect(),
        )
    }
}

/// All of `body` as records.
fn records<R: Pod>(body: &[u8]) -> Option<&[R]> {
    pod::slice_from_all_bytes(body).ok()
}

fn rela<R: Rela<Endian = Endianness> + Pod>(
    body: &[u8],
    endian: Endianness,
    mips: bool,
) -> Option<Vec<Relocation>> {
    let each = |record: &R| Relocation {
        place: record.r_offset(endian).into(),
        kind: record.r_type(endian, mips).0,
        symbol: record.r_sym(endian, mips) as usize,
        addend: Some(record.r_addend(endian).into()),
    };
    Some(records::<R>(body)?.iter().map(each).collect())
}

fn rel<R: Rel<Endian = Endianness> + Pod>(
    body: &[u8],
    endian: Endianness,
) -> Option<Vec<Relocation>> {
    let each = |record: &R| Relocation {
        place: record.r_offset(endian).into(),
        kind: record.r_type(endian).0,
        symbol: record.r_sym(endian) as usize,
        addend: None,
    };
    Some(records::<R>(body)?.iter().map(each).collect())
}

fn crel(body: &[u8]) -> Result<Option<Vec<Relocation>>> {
    let all = CrelIterator::new(body)?;
    let has_addend = all.is_rela();
    let mut found = Vec::new();
    for record in all {
        let record = record?;
        found.push(Relocation {
            place: record.r_offset,
            kind: record.r_type.0,
            symbol: record.r_sym as usize,
            addend: has_addend.then_some(record.r_addend),
        });
    }
    Ok(Some(found))
}

fn sections<'d>(data: &'d [u8], class: Class, header: &FileHeader) -> Result<Vec<Section<'d>>> {
    if header.shoff == 0 {
        bail!("no section headers, which a merge needs to compare sections");
    }
    let table = SectionTable::read(data, class, header)?;
    let names = table.names_header()?;
    let names = names.bytes(data, names.offset)?;
    let mut left = data.len().saturating_mul(4);
    let mut numbers: HashMap<&[u8], usize> = HashMap::new();
    let mut found = Vec::with_capacity(table.headers.len());
    for (index, header) in table.headers.iter().enumerate() {
        let name = name(names, header.name, &mut left)?;
        let number = numbers.entry(name).or_insert(0);
        // The size of the null section may hold the number of sections.
        let body = if index == 0 {
            &[][..]
        } else {
            header.bytes(data, header.offset)?
        };
        found.push(Section {
            key: Key {
                name,
                number: *number,
            },
            header: *header,
            body,
        });
        *number += 1;
    }
    Ok(found)
}

/// The string at `offset` of a table. `left` is the remaining limit on the total size of names.
/// Names may share their bytes, so a small file could claim many.
fn name<'d>(table: &'d [u8], offset: u32, left: &mut usize) -> Result<&'d [u8], Malformed> {
    if offset == 0 && table.is_empty() {
        return Ok(&[]);
    }
    let tail = table
        .get(offset as usize..)
        .ok_or(Malformed::new("name past the end", offset.into()))?;
    let tail = tail.get(..*left).unwrap_or(tail);
    let name = c_string(tail).ok_or(Malformed::new("name without an end", offset.into()))?;
    *left = left.saturating_sub(name.len());
    Ok(name)
}

fn symbols<'d>(
    class: Class,
    sections: &[Section<'d>],
    table: usize,
    left: &mut usize,
) -> Result<Vec<Symbol<'d>>> {
    let Some(own) = sections.get(table) else {
        return Ok(Vec::new());
    };
    let names = sections
        .get(own.header.link as usize)
        .map_or(&[][..], |section| section.body);
    let headers = sections.iter().map(|section| section.header);
    let extended = extended_indices(headers, table)
        .and_then(|index| sections.get(index))
        .map(|section| section.body);
    let mut found = Vec::new();
    for (number, record) in own.body.chunks_exact(RawSymbol::size(class)).enumerate() {
        let raw = RawSymbol::of(class, record)
            .ok_or(Malformed::new("symbol past the end", own.header.offset))?;
        let section =
            section_of_symbol(class, number, raw.shndx, extended).map(|index| index as usize);
        let name = name(names, raw.name, left).with_context(|| format!("symbol {number}"))?;
        if section.is_some_and(|index| index >= sections.len()) {
            let at = own
                .header
                .offset
                .saturating_add((number * record.len()) as u64);
            return Err(Malformed::new("a symbol in a section that does not exist", at).into());
        }
        let special = if section.is_some() { 0 } else { raw.shndx.0 };
        let (info, other, value, size) = (raw.info, raw.other.0, raw.value, raw.size);
        found.push(Symbol {
            name,
            info,
            other,
            section,
            special,
            value,
            size,
            stands_for: &[],
        });
    }
    Ok(found)
}

// The ranges of device code in a host file: images and containers, the rows and counts of OpenMP's
// descriptors, and pointers to containers. A merge changes these ranges, so they are not compared.

/// Size of the image count in an OpenMP descriptor, in bytes.
const COUNT: u64 = 4;

/// The ranges of the ELF file or COFF object `data` that hold device code or describe its location,
/// sorted and disjoint.
///
/// # Errors
/// The file's headers or registrations are damaged.
pub(crate) fn device_ranges(data: &[u8]) -> Result<Vec<Range<u64>>> {
    let file = HostFile::read(data)?;
    let sections = file
        .sections
        .iter()
        .filter(|section| is_device(section) && !section.header.is_empty_in_file());
    let mut all: Vec<_> = sections
        .map(|section| section.header.offset..section.header.offset + section.body.len() as u64)
        .collect();
    all.extend(registered(&registration::read::read(data)?, file.class));
    Ok(joined(all))
}

/// Whether a section holds device code and nothing else.
pub(super) fn is_device(section: &Section<'_>) -> bool {
    // SYCL's descriptors are compared, so the images that they point to are as well.
    let is_named = || {
        let name = &section.key.name;
        let known = offload_sections::known(name, false);
        name.starts_with(bundle::MAGIC)
            || known.is_some_and(|known| {
                matches!(
                    known.contents,
                    SectionContents::Images | SectionContents::Containers
                ) && known.kind != Some(OffloadKind::Sycl)
            })
    };
    section.header.kind == SHT_LLVM_OFFLOADING
        || section.header.kind == elf::SHT_PROGBITS && is_named()
}

fn registered(found: &Registered, class: Class) -> Vec<Range<u64>> {
    let word = class.address_size() as u64;
    let mut all = Vec::new();
    for descriptor in &found.descriptors {
        all.push(descriptor.offset..descriptor.offset.saturating_add(COUNT));
        let rows = descriptor.images.len() + descriptor.spare.len();
        let size = (rows as u64).saturating_mul(4 * word);
        all.push(descriptor.rows..descriptor.rows.saturating_add(size));
        all.extend(descriptor.images.iter().map(|image| image.start..image.end));
    }
    all.extend(
        found
            .wrappers
            .iter()
            .map(|wrapper| wrapper.pointer.offset..wrapper.pointer.offset.saturating_add(word)),
    );
    all
}

/// Sorts the ranges, and joins adjacent and overlapping ones.
pub(super) fn joined(mut all: Vec<Range<u64>>) -> Vec<Range<u64>> {
    all.retain(|range| range.start < range.end);
    all.sort_by_key(|range| (range.start, range.end));
    let mut apart: Vec<Range<u64>> = Vec::with_capacity(all.len());
    for range in all {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// The part of each range within the `size` bytes at `offset`, relative to `offset`.
pub(super) fn within(ranges: &[Range<u64>], offset: u64, size: u64) -> Vec<Range<u64>> {
    let end = offset.saturating_add(size);
    let first = ranges.partition_point(|range| range.end <= offset);
    let inside = ranges
        .iter()
        .skip(first)
        .take_while(|range| range.start < end);
    inside
        .map(|range| range.start.max(offset) - offset..range.end.min(end) - offset)
        .collect()
}

// Reads a COFF object, as compilers for Windows write it, into the form for ELF files, so that one
// comparison handles both. COFF attributes without an ELF equivalent are stored in fields that are
// only compared: a section's characteristics in the high half of its flags, the selection of its
// COMDAT in its entry size, and a symbol's storage class in its visibility.

/// The size of a COFF symbol in the smaller of both forms, to limit the number of symbols.
const COFF_SYMBOL: usize = 18;
/// The size of a COFF relocation.
const COFF_RELOCATION: usize = 10;

/// Reads the COFF object `data`.
///
/// # Errors
/// The object is damaged, or is not a COFF object.
fn read_coff(data: &[u8]) -> Result<HostFile<'_>> {
    match FileKind::parse(data) {
        Ok(FileKind::Coff) => read_coff_as::<pe::ImageFileHeader>(data),
        Ok(FileKind::CoffBig) => read_coff_as::<pe::AnonObjectHeaderBigobj>(data),
        _ => bail!("neither an ELF file nor a COFF object"),
    }
}

fn read_coff_as<Coff: CoffHeader>(data: &[u8]) -> Result<HostFile<'_>> {
    let mut offset = 0;
    let coff = Coff::parse(data, &mut offset)?;
    let is_64 = matches!(
        coff.machine(),
        pe::IMAGE_FILE_MACHINE_AMD64 | pe::IMAGE_FILE_MACHINE_ARM64
    );
    let class = Class {
        is_64,
        endian: Endianness::Little,
    };
    let empty = [0; 64];
    let header = FileHeader::of(class, &empty).context("no header")?;
    let (machine, flags) = (
        elf::Machine(coff.machine().0),
        elf::FileFlags(coff.characteristics().0.into()),
    );
    let header = FileHeader {
        kind: elf::ET_REL,
        machine,
        flags,
        ..header
    };
    let mut names = CoffNames {
        left: data.len().saturating_mul(4),
    };
    let (mut sections, relocations) = coff_sections(data, coff, offset, &mut names)?;
    let symbols = coff_symbols(data, coff, &mut sections, &mut names)?;
    Ok(HostFile {
        class,
        header,
        sections,
        symbols,
        dynamic_symbols: Vec::new(),
        stack_flags: None,
        base: None,
        tls_end: None,
        most_relocations: data.len() / COFF_RELOCATION,
        relocations: Relocations::Coff(relocations),
    })
}

/// Limits the total size of names of a COFF object. Names may share their bytes, so a small file
/// could claim many.
struct CoffNames {
    left: usize,
}

impl CoffNames {
    fn take<'d>(&mut self, name: &'d [u8]) -> Result<&'d [u8]> {
        self.left = self.left.checked_sub(name.len()).context("names overlap")?;
        Ok(name)
    }
}

/// The sections of a COFF object, starting with the null section as in ELF files; and the
/// relocations of each.
type CoffSections<'d> = (Vec<Section<'d>>, Vec<&'d [pe::ImageRelocation]>);

fn coff_sections<'d, Coff: CoffHeader>(
    data: &'d [u8],
    coff: &Coff,
    offset: u64,
    names: &mut CoffNames,
) -> Result<CoffSections<'d>> {
    let strings = coff.symbols(data)?.strings();
    let mut numbers: HashMap<&[u8], usize> = HashMap::new();
    let none = Section {
        key: Key {
            name: &[],
            number: 0,
        },
        header: SectionHeader::default(),
        body: &[],
    };
    let (mut found, mut relocations) = (vec![none], vec![&[][..]]);
    let (mut held, mut count) = (0_usize, 0_usize);
    for raw in coff.sections(data, offset)?.iter() {
        let name = names.take(raw.name(strings)?)?;
        let characteristics = raw.characteristics.get(LE);
        let at = u64::from(raw.pointer_to_raw_data.get(LE));
        let body = raw
            .coff_data(data)
            .map_err(|()| Malformed::new("section past the end", at))?;
        let own = raw.coff_relocations(data)?;
        held = held.saturating_add(body.len());
        count = count.saturating_add(own.len());
        if held > data.len() || count > data.len() / COFF_RELOCATION {
            return Err(Malformed::new("sections overlap", at).into());
        }
        let is_empty = characteristics.contains(pe::IMAGE_SCN_CNT_UNINITIALIZED_DATA);
        let is_removed = characteristics.contains(pe::IMAGE_SCN_LNK_REMOVE);
        let in_memory = if is_removed {
            elf::SectionFlags::default()
        } else {
            elf::SHF_ALLOC
        };
        let header = SectionHeader {
            kind: if is_empty {
                elf::SHT_NOBITS
            } else {
                elf::SHT_PROGBITS
            },
            flags: elf::SectionFlags(in_memory.0 | u64::from(characteristics.0) << 32),
            offset: at,
            size: raw.size_of_raw_data.get(LE).into(),
            ..SectionHeader::default()
        };
        let number = numbers.entry(name).or_insert(0);
        found.push(Section {
            key: Key {
                name,
                number: *number,
            },
            header,
            body,
        });
        relocations.push(own);
        *number += 1;
    }
    Ok((found, relocations))
}

/// The symbols of a COFF object, with numbers one higher than in the object, because the first is
/// the null symbol as in ELF files. Moves the section attributes among them into the section
/// headers.
fn coff_symbols<'d, Coff: CoffHeader>(
    data: &'d [u8],
    coff: &Coff,
    sections: &mut [Section<'d>],
    names: &mut CoffNames,
) -> Result<Vec<Symbol<'d>>> {
    let table = coff.symbols(data)?;
    if table.len() > data.len() / COFF_SYMBOL {
        bail!("more symbols than fit into the object");
    }
    let mut found = vec![no_symbol(); table.len() + 1];
    for (index, symbol) in table.iter() {
        let section = symbol
            .section_number()
            .index()
            .map(|section| section as usize);
        if section.is_some_and(|section| section >= sections.len()) {
            bail!("symbol {}: its section does not exist", index.0);
        }
        let class = symbol.storage_class();
        if symbol.has_aux_section()
            && let Some(own) = section.and_then(|section| sections.get_mut(section))
        {
            let aux = table.aux_section(index)?;
            own.header.entsize = aux.selection.0.into();
            if aux.selection == pe::IMAGE_COMDAT_SELECT_ASSOCIATIVE {
                own.header.link =
                    u32::from(aux.number.get(LE)) | u32::from(aux.high_number.get(LE)) << 16;
                own.header.flags |= elf::SHF_LINK_ORDER;
            }
        }
        let (mut stands_for, mut size) = (&[][..], 0);
        if symbol.has_aux_weak_external() {
            let aux = table.aux_weak_external(index)?;
            stands_for = names.take(table.symbol(aux.default_symbol())?.name(table.strings())?)?;
            size = aux.weak_search_type.get(LE).0.into();
        }
        let bind = match class {
            pe::IMAGE_SYM_CLASS_EXTERNAL => elf::STB_GLOBAL,
            pe::IMAGE_SYM_CLASS_WEAK_EXTERNAL => elf::STB_WEAK,
            _ => elf::STB_LOCAL,
        };
        let kind = match class {
            pe::IMAGE_SYM_CLASS_FILE => elf::STT_FILE,
            _ if symbol.has_aux_section() => elf::STT_SECTION,
            _ if symbol.derived_type() == pe::IMAGE_SYM_DTYPE_FUNCTION => elf::STT_FUNC,
            _ => elf::STT_NOTYPE,
        };
        let place = found
            .get_mut(index.0 + 1)
            .context("symbol index past the end")?;
        *place = Symbol {
            name: names.take(symbol.name(table.strings())?)?,
            info: elf::SymbolInfo::new(bind, kind),
            other: class.0,
            section,
            special: if section.is_some() {
                0
            } else {
                symbol.section_number().0 as u16
            },
            value: symbol.value().into(),
            size,
            stands_for,
        };
    }
    Ok(found)
}

/// Placeholder for auxiliary records. The comparison skips it like the names of source files.
fn no_symbol<'d>() -> Symbol<'d> {
    let info = elf::SymbolInfo::new(elf::STB_LOCAL, elf::STT_FILE);
    Symbol {
        name: &[],
        info,
        other: 0,
        section: None,
        special: 0,
        value: 0,
        size: 0,
        stands_for: &[],
    }
}

/// Converts a relocation to the ELF form. The addend is in the section data.
fn coff_relocation(raw: &pe::ImageRelocation) -> Relocation {
    Relocation {
        place: raw.virtual_address.get(LE).into(),
        kind: raw.typ.get(LE).0.into(),
        symbol: raw.symbol().0.saturating_add(1),
        addend: None,
    }
}
