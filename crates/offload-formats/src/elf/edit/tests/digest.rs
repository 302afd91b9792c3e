//! Text representation of an object. Sections and symbols appear by name, so that renumbering does
//! not change it. The crate `object` reads the object and shares no code with the editor.

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex};

const SHT_CREL: elf::SectionType = elf::SectionType(0x4000_0014);
const SHT_LLVM_ADDRSIG: elf::SectionType = elf::SectionType(0x6fff_4c03);

/// Returns a line for each section, symbol, relocation and group, each kind in file order.
pub(in crate::elf) fn digest(data: &[u8]) -> Vec<String> {
    match data[4] {
        1 => lines::<FileHeader32<Endianness>>(data),
        _ => lines::<FileHeader64<Endianness>>(data),
    }
    .expect("an object that can be read")
}

/// Returns a line of [`digest`], with the flag that makes linkers keep the section added if the
/// line is that of an entry table with the tag `tag`.
pub(in crate::elf) fn retained(line: String, tag: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    match &mut words[..] {
        [what, name, _, flags, ..]
            if what == "section"
                && name.ends_with(&format!("_entries_{tag}"))
                && !name.starts_with('.') =>
        {
            let before = u64::from_str_radix(flags.trim_start_matches("0x"), 16).expect("flags");
            *flags = format!("{:#x}", before | elf::SHF_GNU_RETAIN.0);
            words.join(" ")
        }
        _ => line,
    }
}

fn lines<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> object::Result<Vec<String>> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut lines = Vec::new();
    for section in sections.iter().skip(1) {
        lines.extend(section_lines::<Elf>(endian, data, &sections, section)?);
    }
    let symbols = sections.symbols(endian, data, elf::SHT_SYMTAB)?;
    for (index, symbol) in symbols.enumerate() {
        let home = match symbols.symbol_section(endian, symbol, index)? {
            Some(home) => name_of(endian, &sections, home)?,
            None => format!("{:#x}", symbol.st_shndx(endian).0),
        };
        let name = String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?);
        let (value, size): (u64, u64) = (
            symbol.st_value(endian).into(),
            symbol.st_size(endian).into(),
        );
        lines.push(format!(
            "symbol {name} {:#x} {:#x} {value:#x} {size:#x} in {home} end",
            symbol.st_info(),
            symbol.st_other()
        ));
    }
    lines.extend(relocation_lines(data)?);
    Ok(lines)
}

fn name_of<Elf: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    sections: &SectionTable<'_, Elf>,
    index: SectionIndex,
) -> object::Result<String> {
    if index.0 == 0 {
        return Ok("none".to_owned());
    }
    Ok(
        String::from_utf8_lossy(sections.section_name(endian, sections.section(index)?)?)
            .into_owned(),
    )
}

fn section_lines<Elf: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    data: &[u8],
    sections: &SectionTable<'_, Elf>,
    section: &Elf::SectionHeader,
) -> object::Result<Vec<String>> {
    let kind = section.sh_type(endian);
    // LLVM's objcopy damages the link and the contents of this section.
    if kind == SHT_LLVM_ADDRSIG {
        return Ok(Vec::new());
    }
    let relocations = matches!(kind, elf::SHT_REL | elf::SHT_RELA | SHT_CREL);
    let name = String::from_utf8_lossy(sections.section_name(endian, section)?);
    let link = name_of(
        endian,
        sections,
        SectionIndex(section.sh_link(endian) as usize),
    )?;
    let info = if relocations {
        name_of(
            endian,
            sections,
            SectionIndex(section.sh_info(endian) as usize),
        )?
    } else {
        String::new()
    };
    let (align, entsize): (u64, u64) = (
        section.sh_addralign(endian).into(),
        section.sh_entsize(endian).into(),
    );
    let contents = match kind {
        elf::SHT_SYMTAB | elf::SHT_STRTAB | elf::SHT_GROUP | elf::SHT_SYMTAB_SHNDX => String::new(),
        _ if relocations => String::new(),
        elf::SHT_NOBITS => format!("{:#x}", section.sh_size(endian).into()),
        _ => format!("{:x?}", section.data(endian, data)?),
    };
    let flags = section.sh_flags(endian).0;
    let mut lines = vec![format!(
        "section {name} {:#x} {flags:#x} {align} {entsize} to {link} info {info} {contents}",
        kind.0
    )];
    if let Some((flag, members)) = section.group(endian, data)? {
        let symbols = sections.symbols(endian, data, elf::SHT_SYMTAB)?;
        let signature = symbols.symbol(object::SymbolIndex(section.sh_info(endian) as usize))?;
        let signature = String::from_utf8_lossy(symbols.symbol_name(endian, signature)?);
        let mut line = format!("group {signature} {:#x}", flag.0);
        for member in members {
            line.push(' ');
            line.push_str(&name_of(
                endian,
                sections,
                SectionIndex(member.get(endian) as usize),
            )?);
        }
        lines.push(line);
    }
    Ok(lines)
}

fn relocation_lines(data: &[u8]) -> object::Result<Vec<String>> {
    let file = object::File::parse(data)?;
    let mut lines = Vec::new();
    for section in file.sections() {
        for (offset, relocation) in section.relocations() {
            let target = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = file.symbol_by_index(index)?;
                    let home = symbol
                        .section_index()
                        .and_then(|home| file.section_by_index(home).ok());
                    let home = home
                        .and_then(|home| home.name().ok().map(str::to_owned))
                        .unwrap_or_default();
                    format!("{} of {home}", symbol.name()?)
                }
                other => format!("{other:?}"),
            };
            lines.push(format!(
                "relocation in {} {offset:#x} {:?} {} {target}",
                section.name()?,
                relocation.flags(),
                relocation.addend()
            ));
        }
    }
    Ok(lines)
}
