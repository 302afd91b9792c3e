//! Contents of COFF objects and of programs and libraries for Windows: headers, sections by
//! purpose, the relocations of each section, symbols and their names.

use anyhow::{Context, Result};
use object::read::coff::CoffHeader;
use object::{FileKind, LittleEndian, pe};

use super::{Claim, Label, Names, Part};
use offload_formats::bytes::u32_at;
use offload_formats::offload_sections::{self, SectionContents};

/// The depths of claims.
const SECTION: u32 = 2;
const HEADER: u32 = 6;

/// The claims to the bytes of `data`. `label` is the default for all fields that the contents do
/// not determine. Fails if `data` is neither a COFF object nor a Windows program or library.
pub(super) fn read(data: &[u8], label: Label, names: &Names) -> Result<Vec<Claim<Label>>> {
    match FileKind::parse(data)? {
        FileKind::CoffBig => object(
            pe::AnonObjectHeaderBigobj::parse(data, &mut 0)?,
            data,
            label,
            names,
        ),
        FileKind::Pe32 | FileKind::Pe64 => program(data, label, names),
        _ => object(
            pe::ImageFileHeader::parse(data, &mut 0)?,
            data,
            label,
            names,
        ),
    }
}

fn object<H: CoffHeader>(
    header: &H,
    data: &[u8],
    label: Label,
    names: &Names,
) -> Result<Vec<Claim<Label>>> {
    let mut offset = 0;
    H::parse(data, &mut offset)?;
    let sections = header.sections(data, offset)?;
    let headers = offset + sections.len() as u64 * size_of::<pe::ImageSectionHeader>() as u64;
    let mut claims = vec![claim(
        0,
        headers,
        HEADER,
        Label {
            part: Part::Headers,
            ..label
        },
    )];
    let symbols = header.symbols(data)?;
    let mut left = data.len();
    for section in sections.iter() {
        let name = section.name(symbols.strings()).unwrap_or_default();
        left = left
            .checked_sub(name.len())
            .context("section names overlap")?;
        of_section(section, name, data, label, names, &mut claims);
    }
    let start = u64::from(header.pointer_to_symbol_table());
    if start != 0 {
        let size = u64::from(header.number_of_symbols()) * size_of::<H::SymbolBytes>() as u64;
        claims.push(symbol_table(data, start, size, label));
    }
    Ok(claims)
}

fn program(data: &[u8], label: Label, names: &Names) -> Result<Vec<Claim<Label>>> {
    let dos = pe::ImageDosHeader::parse(data)?;
    let mut offset = u64::from(dos.nt_headers_offset()) + 4;
    let start = offset;
    let header = pe::ImageFileHeader::parse(
        data.get(usize::try_from(start).unwrap_or(usize::MAX)..)
            .unwrap_or_default(),
        &mut 0,
    )?;
    offset += size_of::<pe::ImageFileHeader>() as u64
        + u64::from(header.size_of_optional_header.get(LittleEndian));
    let sections = header.sections(data, offset)?;
    let headers = offset + sections.len() as u64 * size_of::<pe::ImageSectionHeader>() as u64;
    let mut claims = vec![claim(
        0,
        headers,
        HEADER,
        Label {
            part: Part::Headers,
            ..label
        },
    )];
    for section in sections.iter() {
        of_section(section, section.raw_name(), data, label, names, &mut claims);
    }
    let symbols = u64::from(header.pointer_to_symbol_table.get(LittleEndian));
    if symbols != 0 {
        // MinGW linkers leave symbols in programs, followed by the names of all symbols.
        let size = u64::from(header.number_of_symbols.get(LittleEndian))
            * size_of::<pe::ImageSymbolBytes>() as u64;
        claims.push(symbol_table(data, symbols, size, label));
    }
    Ok(claims)
}

/// The `size` bytes of the symbol table at `start`, and the names after it.
fn symbol_table(data: &[u8], start: u64, size: u64, label: Label) -> Claim<Label> {
    let strings = u64::from(u32_at(data, (start + size) as usize));
    claim(
        start,
        size + strings,
        HEADER,
        Label {
            part: Part::Symbols,
            ..label
        },
    )
}

fn of_section(
    section: &pe::ImageSectionHeader,
    name: &[u8],
    data: &[u8],
    label: Label,
    names: &Names,
    claims: &mut Vec<Claim<Label>>,
) {
    let own = Label {
        part: part(name, section.characteristics.get(LittleEndian)),
        section: names.of(name),
        ..label
    };
    let size = u64::from(section.size_of_raw_data.get(LittleEndian));
    let start = u64::from(section.pointer_to_raw_data.get(LittleEndian));
    if start != 0 {
        claims.push(claim(start, size, SECTION, own));
    }
    let relocations = u64::from(section.pointer_to_relocations.get(LittleEndian));
    if let (true, Ok(all)) = (relocations != 0, section.coff_relocations(data)) {
        // If the header field is too small for the number of relocations, the first record holds
        // the number.
        let more = u64::from(
            section.characteristics.get(LittleEndian) & pe::IMAGE_SCN_LNK_NRELOC_OVFL
                != pe::SectionFlags(0),
        );
        let size = (all.len() as u64 + more) * size_of::<pe::ImageRelocation>() as u64;
        claims.push(claim(
            relocations,
            size,
            HEADER,
            Label {
                part: Part::Relocations,
                ..own
            },
        ));
    }
}

fn claim(start: u64, size: u64, depth: u32, to: Label) -> Claim<Label> {
    Claim {
        start,
        end: start.saturating_add(size),
        depth,
        to,
    }
}

fn part(name: &[u8], flags: pe::SectionFlags) -> Part {
    let starts = |prefixes: &[&str]| {
        prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()))
    };
    if let Some(SectionContents::Wrappers | SectionContents::Entries) =
        offload_sections::known(name, true).map(|known| known.contents)
    {
        return Part::Registration;
    }
    match () {
        () if starts(&[".debug", "/4"]) => Part::Debug,
        () if starts(&[".reloc"]) => Part::Relocations,
        () if starts(&[".edata", ".idata", ".drectve", ".llvm_addrsig"]) => Part::Symbols,
        () if flags.contains(pe::IMAGE_SCN_CNT_CODE) => Part::Code,
        () if flags.contains(pe::IMAGE_SCN_MEM_WRITE) => Part::Data,
        () if flags.contains(pe::IMAGE_SCN_CNT_INITIALIZED_DATA) => Part::Constants,
        () => Part::Other,
    }
}
