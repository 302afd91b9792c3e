//! Reads a COFF object, as compilers for Windows write it, into the form for ELF files
//! ([`HostFile`]), so that one comparison handles both. COFF attributes without an ELF equivalent
//! are stored in fields that are only compared: a section's characteristics in the high half of its
//! flags, the selection of its COMDAT in its entry size, and a symbol's storage class in its
//! visibility.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use object::read::coff::{CoffHeader, Symbol as _};
use object::{Endianness, FileKind, LittleEndian as LE, elf, pe};

use super::host_file::{HostFile, Key, Relocation, Relocations, Section, Symbol};
use offload_formats::elf::raw::{Class, FileHeader, Record, SectionHeader};
use offload_formats::error::Malformed;

/// The size of a symbol in the smaller of both forms, to limit the number of symbols.
const SYMBOL: usize = 18;
/// The size of a relocation.
const RELOCATION: usize = 10;

/// Reads the object `data`.
///
/// # Errors
/// The object is damaged, or is not a COFF object.
pub(super) fn read(data: &[u8]) -> Result<HostFile<'_>> {
    match FileKind::parse(data) {
        Ok(FileKind::Coff) => read_as::<pe::ImageFileHeader>(data),
        Ok(FileKind::CoffBig) => read_as::<pe::AnonObjectHeaderBigobj>(data),
        _ => bail!("neither an ELF file nor a COFF object"),
    }
}

fn read_as<Coff: CoffHeader>(data: &[u8]) -> Result<HostFile<'_>> {
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
    let mut names = Names {
        left: data.len().saturating_mul(4),
    };
    let (mut sections, relocations) = sections(data, coff, offset, &mut names)?;
    let symbols = symbols(data, coff, &mut sections, &mut names)?;
    Ok(HostFile {
        class,
        header,
        sections,
        symbols,
        dynamic_symbols: Vec::new(),
        stack_flags: None,
        base: None,
        tls_end: None,
        most_relocations: data.len() / RELOCATION,
        relocations: Relocations::Coff(relocations),
    })
}

/// Limits the total size of names. Names may share their bytes, so a small file could claim many.
struct Names {
    left: usize,
}

impl Names {
    fn take<'d>(&mut self, name: &'d [u8]) -> Result<&'d [u8]> {
        self.left = self.left.checked_sub(name.len()).context("names overlap")?;
        Ok(name)
    }
}

/// The sections, starting with the null section as in ELF files; and the relocations of each.
type Sections<'d> = (Vec<Section<'d>>, Vec<&'d [pe::ImageRelocation]>);

fn sections<'d, Coff: CoffHeader>(
    data: &'d [u8],
    coff: &Coff,
    offset: u64,
    names: &mut Names,
) -> Result<Sections<'d>> {
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
        if held > data.len() || count > data.len() / RELOCATION {
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

/// The symbols, with numbers one higher than in the object, because the first is the null symbol as
/// in ELF files. Moves the section attributes among them into the section headers.
fn symbols<'d, Coff: CoffHeader>(
    data: &'d [u8],
    coff: &Coff,
    sections: &mut [Section<'d>],
    names: &mut Names,
) -> Result<Vec<Symbol<'d>>> {
    let table = coff.symbols(data)?;
    if table.len() > data.len() / SYMBOL {
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
pub(super) fn relocation(raw: &pe::ImageRelocation) -> Relocation {
    Relocation {
        place: raw.virtual_address.get(LE).into(),
        kind: raw.typ.get(LE).0.into(),
        symbol: raw.symbol().0.saturating_add(1),
        addend: None,
    }
}
