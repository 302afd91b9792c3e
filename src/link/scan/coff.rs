//! COFF objects, including `/bigobj` ones: the sections that contain device images, and the
//! symbols, entry tables and linker directives of the host code (docs/spec/link-driver.md 3.3).

use std::borrow::Cow;

use anyhow::{Context, Result, anyhow, bail};
use object::read::coff::{CoffFile, CoffHeader, Symbol, SymbolTable};
use object::{Object, ObjectSection, SymbolIndex, pe};

use super::object::Shares;
use super::{Definition, DeviceImage, HostFacts, Machine, Need, packaged};
use crate::formats::coff::drectve::{self, Directives};
use crate::formats::offload_entries::entry_size;
use crate::formats::offload_sections::{
    ENTRIES, NAME, RELOCATABLE, entry_table, is_start_of_entries,
};
use crate::link::inputs::InputObject;
use crate::model::Generation;

const DIRECTIVES: &str = ".drectve";

/// Returns the device images of an object, from sections whose name starts with `.llvm.offloading`.
pub(super) fn images(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    let mut found = Vec::new();
    let mut shares = Shares::of(input_object.data());
    for section in
        sections(input_object.data()).with_context(|| input_object.origin().to_string())?
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
pub(super) fn directives(data: &[u8]) -> Result<Directives> {
    let mut text = Vec::new();
    let mut shares = Shares::of(data);
    for section in sections(data)?
        .iter()
        .filter(|section| section.name == DIRECTIVES)
    {
        shares.take(section.contents)?;
        text.extend_from_slice(section.contents);
        text.push(b' ');
    }
    Ok(drectve::read(&text))
}

struct Section<'a> {
    /// The section number, from 1, as in symbols.
    number: usize,
    /// The name; empty if it is not UTF-8, because offld looks only for UTF-8 names.
    name: &'a str,
    contents: &'a [u8],
}

fn sections(data: &[u8]) -> Result<Vec<Section<'_>>> {
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
pub(super) fn facts(data: &[u8]) -> Result<HostFacts<'_>> {
    if data.len() < 20 {
        bail!("too short for a COFF object");
    }
    let mut facts = if is_big(data) {
        symbols(
            &CoffFile::<&[u8], pe::AnonObjectHeaderBigobj>::parse(data)?,
            data,
        )?
    } else {
        symbols(&CoffFile::<&[u8]>::parse(data)?, data)?
    };
    let directives = directives(data)?;
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

fn symbols<'a, C: CoffHeader>(
    file: &CoffFile<'a, &'a [u8], C>,
    data: &'a [u8],
) -> Result<HostFacts<'a>> {
    let machine = file.coff_header().machine();
    let mut facts = HostFacts {
        machine: Some(Machine::Coff(machine)),
        protection: Some(0),
        ..HostFacts::default()
    };
    let mut tables: Vec<(Section<'_>, u64)> = sections(data)?
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
        .filter_map(|(table, entries)| generation(table, *entries, machine))
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
    let stem = section.name.split('$').next().unwrap_or_default();
    entry_table(stem.as_bytes()).is_some() && !section.contents.is_empty()
}

/// Returns the generation of a table: by the section name, which is new in LLVM 21, else by the
/// size per entry. Each entry has one symbol.
fn generation(table: &Section<'_>, entries: u64, machine: pe::Machine) -> Option<Generation> {
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
