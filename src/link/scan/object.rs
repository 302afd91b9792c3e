//! Host objects: the sections that contain device images, and the symbols and entry tables of the
//! host code (docs/spec/link-driver.md 3.3). The first part reads ELF objects of any class, byte
//! order and machine (LLVM 14's named sections: docs/spec/containers.md 4.4), the second COFF
//! objects.

use std::borrow::Cow;

use anyhow::{Context, Result, anyhow, bail};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::coff::{CoffFile, CoffHeader, Symbol, SymbolTable};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, Object, ObjectSection, SymbolIndex, pe};

use super::{
    Definition, DeviceImage, Form, HostFacts, Machine, Need, SharedSymbols, modules, packaged,
};
use crate::link::inputs::InputObject;
use offload_formats::coff::{self, Directives};
use offload_formats::elf::raw::Class;
use offload_formats::elf::{SHT_LLVM_OFFLOADING, notes};
use offload_formats::magic::{self, BUNDLE};
use offload_formats::model::{Generation, OffloadKind, OffloadKinds, Origin, printable_name};
use offload_formats::offload_entries::{entry_size, generation_of_entry, generation_of_size};
use offload_formats::offload_sections::{
    self, CUDA_PRELINKED, ENTRIES, LONGEST_NAME, NAME, RELOCATABLE, entry_table,
    is_start_of_entries, without_sort_key,
};

/// Calls a function for the class of the ELF file `data`.
macro_rules! of_class {
    ($data:expr, $function:ident($($argument:expr),*)) => {
        if Class::is_32_bit($data) {
            $function::<FileHeader32<Endianness>>($($argument),*)
        } else {
            $function::<FileHeader64<Endianness>>($($argument),*)
        }
    };
}

/// Returns the device images of an ELF object.
pub(super) fn elf_images(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    of_class!(input_object.data(), images(index, input_object))
}

fn images<'a, Elf: FileHeader<Endian = Endianness>>(
    index: usize,
    input_object: &'a InputObject,
) -> Result<Vec<DeviceImage<'a>>> {
    let data = input_object.data();
    let (endian, sections) =
        open::<Elf>(data).with_context(|| input_object.origin().to_string())?;
    let mut found = Vec::new();
    let (mut has_cuda, mut bundled) = (false, Vec::new());
    let mut shares = Shares::of(data);
    let names = section_names::<Elf>(endian, &sections, data);
    for section in sections
        .iter()
        .filter(|section| may_be_device_code::<Elf>(endian, section, names))
    {
        let kind = section.sh_type(endian);
        let name = sections.section_name(endian, section).unwrap_or_default();
        let name = std::str::from_utf8(name).unwrap_or_default();
        if name == CUDA_PRELINKED {
            has_cuda = true;
            continue;
        }
        let is_bundled = name.as_bytes().starts_with(BUNDLE);
        if name == RELOCATABLE
            || (kind == elf::SHT_PROGBITS && !is_bundled && !offload_sections::is_longer(name))
        {
            continue;
        }
        if name.len() > LONGEST_NAME {
            return Err(anyhow!(
                "{}: a device code section has a name of {} bytes",
                input_object.origin(),
                name.len()
            ));
        }
        if let Some(id) = name.as_bytes().strip_prefix(BUNDLE) {
            bundled.push((id, section));
            continue;
        }
        let origin = input_object.origin().in_section(name);
        let contents = section
            .data(endian, data)
            .map_err(|error| anyhow!("{origin}: {error}"))?;
        shares.take(contents).with_context(|| origin.to_string())?;
        let allocated = section.sh_flags(endian).contains(elf::SHF_ALLOC);
        if kind == elf::SHT_PROGBITS {
            found.extend(llvm14_image(index, &origin, name, contents));
        } else if !allocated || contents.starts_with(&magic::OFFLOAD_BINARY) {
            // An allocated section with other contents is not an input: another wrapper has
            // embedded a linked image.
            found.append(&mut packaged(index, &origin, contents)?);
        }
    }
    if has_cuda {
        found.append(&mut modules::cuda(index, input_object)?);
    }
    if bundled.is_empty() {
        return Ok(found);
    }
    let units = modules::hip_units(input_object)?;
    for (id, section) in bundled {
        let origin = input_object
            .origin()
            .in_section(&printable_name(&[BUNDLE, id].concat()));
        let contents = section
            .data(endian, data)
            .map_err(|error| anyhow!("{origin}: {error}"))?;
        shares.take(contents).with_context(|| origin.to_string())?;
        found.extend(modules::hip(index, &origin, id, &units, contents));
    }
    Ok(found)
}

/// Whether an ELF object has sections of device code, by their types and names alone, without
/// reading their contents.
pub(crate) fn has_device_sections(data: &[u8]) -> bool {
    fn any<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> bool {
        open::<Elf>(data).is_ok_and(|(endian, sections)| {
            let names = section_names::<Elf>(endian, &sections, data);
            sections
                .iter()
                .any(|section| may_be_device_code::<Elf>(endian, section, names))
        })
    }
    of_class!(data, any(data))
}

/// Whether a section may contain device code, by its type and the first bytes of its name. This
/// avoids searching for the ends of long C++ names.
fn may_be_device_code<Elf: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    section: &Elf::SectionHeader,
    names: &[u8],
) -> bool {
    let begins = || {
        names
            .get(section.sh_name(endian) as usize..)
            .is_some_and(|name| {
                let starts = [NAME.as_bytes(), CUDA_PRELINKED.as_bytes(), BUNDLE];
                starts.iter().any(|start| name.starts_with(start))
            })
    };
    match section.sh_type(endian) {
        SHT_LLVM_OFFLOADING => true,
        elf::SHT_PROGBITS => begins(),
        _ => false,
    }
}

/// Returns the table of section names; empty if it is missing or cannot be read.
fn section_names<'a, Elf: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    sections: &SectionTable<'a, Elf>,
    data: &'a [u8],
) -> &'a [u8] {
    let index = Elf::parse(data)
        .and_then(|header| header.shstrndx(endian, data))
        .ok();
    let table = index.and_then(|index| {
        sections
            .section(::object::SectionIndex(index as usize))
            .ok()
    });
    table
        .and_then(|table| table.data(endian, data).ok())
        .unwrap_or_default()
}

/// The number of bytes of a file that may still be read as sections. Compilers write no sections
/// that share bytes. With such sections, a small file could require any amount of memory.
pub(super) struct Shares(usize);

impl Shares {
    pub(super) fn of(data: &[u8]) -> Self {
        Shares(data.len())
    }

    /// Counts the bytes of another section. Fails if the sections together have more bytes than the
    /// file.
    pub(super) fn take(&mut self, section: &[u8]) -> Result<()> {
        self.0 = self
            .0
            .checked_sub(section.len())
            .ok_or_else(|| anyhow!("device code sections overlap"))?;
        Ok(())
    }
}

type Opened<'a, Elf> = (Endianness, SectionTable<'a, Elf>);

fn open<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<Opened<'_, Elf>> {
    let parsed = Elf::parse(data).and_then(|header| {
        let endian = header.endian()?;
        Ok((endian, header.sections(endian, data)?))
    });
    parsed.map_err(|error| anyhow!("{error} (the file has {:#x} bytes)", data.len()))
}

/// Returns the image in a section of LLVM 14, `.llvm.offloading.<triple>.<arch>[.<name>]`; none if
/// the name does not have that form.
pub(super) fn llvm14_image<'a>(
    input_object: usize,
    origin: &Origin,
    section: &str,
    bytes: &'a [u8],
) -> Option<DeviceImage<'a>> {
    let (triple, arch) = offload_sections::named(section).filter(|_| !bytes.is_empty())?;
    Some(DeviceImage {
        input_object,
        origin: origin.clone(),
        triple: triple.to_owned(),
        arch: arch.to_owned(),
        kinds: OffloadKinds::default().with(OffloadKind::OpenMp),
        raw_section: true,
        modules: None,
        form: Form::Code,
        debug: false,
        bytes: bytes.into(),
    })
}

/// Returns the symbols and entry table of an ELF object.
pub(super) fn elf_facts(data: &[u8]) -> Result<HostFacts<'_>> {
    of_class!(data, facts(data))
}

fn facts<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<HostFacts<'_>> {
    let (endian, sections) = open::<Elf>(data)?;
    let header = Elf::parse(data)?;
    let machine = Machine::Elf(
        header.e_machine(endian),
        header.is_class_64(),
        endian == Endianness::Little,
    );
    let protection = Some(protection(header, endian, &sections, data));
    let mut facts = HostFacts {
        machine: Some(machine),
        protection,
        ..HostFacts::default()
    };
    let symbols = sections.symbols(endian, data, elf::SHT_SYMTAB)?;
    let (new, old): (Vec<EntryTable>, Vec<EntryTable>) = entry_tables(endian, &sections)
        .into_iter()
        .partition(|table| table.new_name);
    let mut older = None;
    for (index, symbol) in symbols.enumerate() {
        if symbol.st_bind() == elf::STB_LOCAL {
            continue;
        }
        let name = symbols.symbol_name(endian, symbol)?;
        if name.is_empty() {
            continue;
        }
        let section = symbols.symbol_section(endian, symbol, index)?;
        if older.is_none()
            && section.is_some_and(|section| old.iter().any(|table| table.section == section.0))
        {
            older = generation_of_entry(symbol.st_size(endian).into());
        }
        let weak = symbol.st_bind() == elf::STB_WEAK;
        if symbol.st_shndx(endian) == elf::SHN_UNDEF {
            facts.refers_to_bounds |= offload_sections::is_start_of_entries(name);
            facts.undefined.push(Need {
                name: Cow::Borrowed(name),
                weak,
            });
        } else {
            let common = symbol.st_shndx(endian) == elf::SHN_COMMON;
            let weak = weak || common || symbol.st_bind() == elf::STB_GNU_UNIQUE;
            facts.defined.push(Definition {
                name: Cow::Borrowed(name),
                weak,
                common,
            });
        }
    }
    let mut shares = Shares::of(data);
    for section in sections.iter() {
        if sections
            .section_name(endian, section)
            .is_ok_and(|name| name.starts_with(b".gnu.lto_.symtab."))
        {
            let table = section.data(endian, data)?;
            shares.take(table)?;
            gcc_symbols(table, &mut facts);
        }
    }
    let older = older.or_else(|| {
        old.first()
            .and_then(|table| generation_of_size(table.size, header.is_class_64()))
    });
    (facts.generation, facts.older_generation) = if new.is_empty() {
        (older, None)
    } else {
        (Some(Generation::Llvm21), older)
    };
    Ok(facts)
}

/// Returns the control-flow protection that an object is compatible with.
fn protection<Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    endian: Endianness,
    sections: &SectionTable<'_, Elf>,
    data: &[u8],
) -> u32 {
    let notes = sections
        .iter()
        .filter(|section| section.sh_type(endian) == elf::SHT_NOTE);
    let named = notes
        .filter(|section| sections.section_name(endian, section) == Ok(notes::PROPERTY_SECTION));
    let read = named.filter_map(|section| section.notes(endian, data).ok().flatten());
    read.map(|notes| notes::protection(header.e_machine(endian), endian, notes))
        .fold(0, |all, features| all | features)
}

/// Reads the symbols of GCC's intermediate code (`gcc -flto`), which are in no other table: name,
/// group, kind, visibility, size, slot. A truncated symbol ends the table.
fn gcc_symbols<'a>(mut table: &'a [u8], facts: &mut HostFacts<'a>) {
    const VISIBILITY_SIZE_SLOT: usize = 1 + 8 + 4;
    while let Some((name, rest)) = split_at_nul(table) {
        let Some((_group, [kind, rest @ ..])) = split_at_nul(rest) else {
            return;
        };
        let name = Cow::Borrowed(name);
        match kind {
            0 | 1 | 4 => facts.defined.push(Definition {
                name,
                weak: *kind != 0,
                common: *kind == 4,
            }),
            2 | 3 => facts.undefined.push(Need {
                name,
                weak: *kind == 3,
            }),
            _ => {}
        }
        table = rest.get(VISIBILITY_SIZE_SLOT..).unwrap_or_default();
    }
}

fn split_at_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..len], &bytes[len + 1..]))
}

/// Whether the object has a section named `wanted`.
pub(super) fn has_section(data: &[u8], wanted: &str) -> bool {
    fn read<Elf: FileHeader<Endian = Endianness>>(data: &[u8], wanted: &[u8]) -> bool {
        let Ok((endian, sections)) = open::<Elf>(data) else {
            return false;
        };
        let names = section_names::<Elf>(endian, &sections, data);
        let name = |section: &Elf::SectionHeader| {
            names
                .get(section.sh_name(endian) as usize..)
                .unwrap_or_default()
        };
        sections.iter().any(|section| {
            name(section)
                .strip_prefix(wanted)
                .is_some_and(|rest| rest.first() == Some(&0))
        })
    }
    let wanted = wanted.as_bytes();
    of_class!(data, read(data, wanted))
}

/// Returns the dynamic symbols of a shared library.
pub(super) fn shared_symbols(data: &[u8]) -> Result<SharedSymbols> {
    fn read<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<SharedSymbols> {
        let (endian, sections) = open::<Elf>(data)?;
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        let versions = sections.versions(endian, data)?;
        let mut found = SharedSymbols::default();
        let mut shares = Shares::of(data);
        for (index, symbol) in symbols.enumerate() {
            if symbol.st_bind() == elf::STB_LOCAL {
                continue;
            }
            let undefined = symbol.st_shndx(endian) == elf::SHN_UNDEF;
            let is_old = || {
                versions
                    .as_ref()
                    .is_some_and(|versions| versions.version_index(endian, index).is_hidden())
            };
            if if undefined {
                symbol.st_bind() != elf::STB_GLOBAL
            } else {
                is_old()
            } {
                continue;
            }
            let name = symbols.symbol_name(endian, symbol)?;
            shares.take(name)?;
            if undefined {
                &mut found.needs
            } else {
                &mut found.defines
            }
            .push(name.to_vec());
        }
        Ok(found)
    }
    of_class!(data, read(data))
}

struct EntryTable {
    section: usize,
    size: u64,
    new_name: bool,
}

/// Returns the sections of an object that contain entries, of any kind and generation.
fn entry_tables<Elf: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    sections: &SectionTable<'_, Elf>,
) -> Vec<EntryTable> {
    let tables = sections.iter().enumerate().filter_map(|(section, header)| {
        let name = sections.section_name(endian, header).ok()?;
        let new_name = offload_sections::entry_table(name)?.kind.is_none();
        let size = header.sh_size(endian).into();
        (size > 0).then_some(EntryTable {
            section,
            size,
            new_name,
        })
    });
    tables.collect()
}

// COFF objects, including `/bigobj` ones: the sections that contain device images, and the
// symbols, entry tables and linker directives of the host code (docs/spec/link-driver.md 3.3).

const DIRECTIVES: &str = ".drectve";

/// Returns the device images of an object, from sections whose name starts with `.llvm.offloading`.
pub(super) fn coff_images(
    index: usize,
    input_object: &InputObject,
) -> Result<Vec<DeviceImage<'_>>> {
    let mut found = Vec::new();
    let mut shares = Shares::of(input_object.data());
    for section in
        coff_sections(input_object.data()).with_context(|| input_object.origin().to_string())?
    {
        if section.name.starts_with(NAME) && section.name != RELOCATABLE {
            let origin = input_object.origin().in_section(section.name);
            shares
                .take(section.contents)
                .with_context(|| origin.to_string())?;
            found.append(&mut packaged(index, &origin, section.contents)?);
        }
    }
    Ok(found)
}

/// Returns the linker directives of an object.
pub(super) fn coff_directives(data: &[u8]) -> Result<Directives> {
    let mut text = Vec::new();
    let mut shares = Shares::of(data);
    for section in coff_sections(data)?
        .iter()
        .filter(|section| section.name == DIRECTIVES)
    {
        shares.take(section.contents)?;
        text.extend_from_slice(section.contents);
        text.push(b' ');
    }
    Ok(coff::directives(&text))
}

struct Section<'a> {
    /// The section number, from 1, as in symbols.
    number: usize,
    /// The name; empty if it is not UTF-8, because offld looks only for UTF-8 names.
    name: &'a str,
    contents: &'a [u8],
}

fn coff_sections(data: &[u8]) -> Result<Vec<Section<'_>>> {
    fn list<'a, C: CoffHeader>(file: &CoffFile<'a, &'a [u8], C>) -> Result<Vec<Section<'a>>> {
        let mut all = Vec::new();
        for section in file.sections() {
            let name = std::str::from_utf8(section.name_bytes()?).unwrap_or_default();
            let contents = section.data().map_err(|error| anyhow!("{name}: {error}"))?;
            all.push(Section {
                number: section.index().0,
                name,
                contents,
            });
        }
        Ok(all)
    }
    if is_big(data) {
        list(&CoffFile::<&[u8], pe::AnonObjectHeaderBigobj>::parse(data)?)
    } else {
        list(&CoffFile::<&[u8]>::parse(data)?)
    }
}

fn is_big(data: &[u8]) -> bool {
    matches!(object::FileKind::parse(data), Ok(object::FileKind::CoffBig))
}

/// Returns the symbols and entry table of an object.
pub(super) fn coff_facts(data: &[u8]) -> Result<HostFacts<'_>> {
    if data.len() < 20 {
        bail!("too short for a COFF object");
    }
    let mut facts = if is_big(data) {
        coff_symbols(
            &CoffFile::<&[u8], pe::AnonObjectHeaderBigobj>::parse(data)?,
            data,
        )?
    } else {
        coff_symbols(&CoffFile::<&[u8]>::parse(data)?, data)?
    };
    let directives = coff_directives(data)?;
    let included = directives.include.into_iter().map(|name| Need {
        name: Cow::Owned(name.into_bytes()),
        weak: false,
    });
    facts.undefined.extend(included);
    facts.alternate_names = directives
        .alternate_names
        .into_iter()
        .map(|(from, to)| (from.into_bytes(), to.into_bytes()))
        .collect();
    Ok(facts)
}

fn coff_symbols<'a, C: CoffHeader>(
    file: &CoffFile<'a, &'a [u8], C>,
    data: &'a [u8],
) -> Result<HostFacts<'a>> {
    let machine = file.coff_header().machine();
    let mut facts = HostFacts {
        machine: Some(Machine::Coff(machine)),
        protection: Some(0),
        ..HostFacts::default()
    };
    let mut tables: Vec<(Section<'_>, u64)> = coff_sections(data)?
        .into_iter()
        .filter(is_table)
        .map(|table| (table, 0))
        .collect();
    let table = file.coff_symbol_table();
    for (index, symbol) in table.iter() {
        let weak = symbol.storage_class() == pe::IMAGE_SYM_CLASS_WEAK_EXTERNAL;
        if !weak && symbol.storage_class() != pe::IMAGE_SYM_CLASS_EXTERNAL {
            continue;
        }
        let name = Cow::Borrowed(symbol.name(table.strings())?);
        facts.refers_to_bounds |= is_bound(&name, machine);
        if let Ok(number) = usize::try_from(symbol.section_number().0) {
            tables
                .iter_mut()
                .filter(|(table, _)| table.number == number)
                .for_each(|(_, entries)| *entries += 1);
        }
        let defined = match symbol.section_number() {
            _ if weak => has_default(table, index)?,
            // An undefined symbol with a value is a common symbol of that size.
            pe::IMAGE_SYM_UNDEFINED => symbol.value() != 0,
            _ => true,
        };
        if defined {
            facts.defined.push(Definition {
                name,
                weak,
                common: false,
            });
        } else {
            facts.undefined.push(Need { name, weak });
        }
    }
    let mut generations: Vec<Generation> = tables
        .iter()
        .filter_map(|(table, entries)| table_generation(table, *entries, machine))
        .collect();
    // The newest generation, and the oldest if there are two.
    generations.sort_by(|one, other| other.cmp(one));
    facts.generation = generations.first().copied();
    facts.older_generation = generations
        .last()
        .copied()
        .filter(|oldest| Some(*oldest) != facts.generation);
    Ok(facts)
}

/// Whether a weak external is clang's encoding of a weak definition: an alias of a symbol in this
/// object, which another definition overrides. All others are weak references, for which linkers
/// extract no archive members.
fn has_default<'a, C: CoffHeader>(
    table: &SymbolTable<'a, &'a [u8], C>,
    index: SymbolIndex,
) -> Result<bool> {
    let Ok(how) = table.aux_weak_external(index) else {
        return Ok(false);
    };
    let search = how.weak_search_type.get(object::LittleEndian);
    if search != pe::IMAGE_WEAK_EXTERN_SEARCH_ALIAS
        && search != pe::IMAGE_WEAK_EXTERN_ANTI_DEPENDENCY
    {
        return Ok(false);
    }
    let default = table.symbol(how.default_symbol())?;
    Ok(match default.section_number() {
        pe::IMAGE_SYM_UNDEFINED => false,
        // The value of a weak reference that stays undefined is an absolute 0.
        pe::IMAGE_SYM_ABSOLUTE => default.value() != 0,
        _ => true,
    })
}

/// Whether a symbol is a bound of an entry table. In COFF, the object that registers the table
/// defines the bounds.
fn is_bound(name: &[u8], machine: pe::Machine) -> bool {
    let name = match name {
        [b'_', rest @ ..] if machine == pe::IMAGE_FILE_MACHINE_I386 => rest,
        _ => name,
    };
    is_start_of_entries(name)
}

fn is_table(section: &Section<'_>) -> bool {
    let table = entry_table(without_sort_key(section.name.as_bytes()));
    table.is_some() && !section.contents.is_empty()
}

/// Returns the generation of a table: by the section name, which is new in LLVM 21, else by the
/// size per entry. Each entry has one symbol.
fn table_generation(table: &Section<'_>, entries: u64, machine: pe::Machine) -> Option<Generation> {
    if table.name.starts_with(ENTRIES) {
        return Some(Generation::Llvm21);
    }
    let narrow = entry_size(false, machine != pe::IMAGE_FILE_MACHINE_I386);
    let size = table.contents.len() as u64;
    let is_narrow = match size.checked_div(entries) {
        Some(each) => each == narrow,
        None => size.is_multiple_of(narrow),
    };
    Some(if is_narrow {
        Generation::Llvm15
    } else {
        Generation::Llvm20
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_may_not_share_their_bytes() {
        let file = [0; 100];
        let mut shares = Shares::of(&file);
        assert!(shares.take(&file[..60]).is_ok() && shares.take(&file[60..]).is_ok());
        assert!(shares.take(&file[..1]).is_err());
    }

    #[test]
    fn symbols_of_gccs_intermediate_code() {
        // The table that gcc 12 writes for `int kernel(int); int main() { return kernel(3); }`, and
        // a common symbol.
        let entry = |name: &str, kind: u8| [name.as_bytes(), &[0, 0, kind], &[0; 13]].concat();
        let table = [
            entry("main", 0),
            entry("kernel", 2),
            entry("x", 4),
            entry("maybe", 3),
        ]
        .concat();
        let mut facts = HostFacts::default();
        gcc_symbols(&table, &mut facts);
        let defined: Vec<_> = facts
            .defined
            .iter()
            .map(|symbol| (symbol.name.as_ref(), symbol.weak, symbol.common))
            .collect();
        assert_eq!(defined, [(&b"main"[..], false, false), (b"x", true, true)]);
        let needed: Vec<_> = facts
            .undefined
            .iter()
            .map(|symbol| (symbol.name.as_ref(), symbol.weak))
            .collect();
        assert_eq!(needed, [(&b"kernel"[..], false), (b"maybe", true)]);
        for len in 0..table.len() {
            gcc_symbols(&table[..len], &mut HostFacts::default());
        }
    }
}
