//! Puts stable names into a relocatable object: into the names of symbols and sections, the strings
//! of its debug information, and the names in its offload entries.
//!
//! Every string table is rebuilt, so that objects of two checkouts of one source become the same
//! bytes. Symbols and relocations that refer to a string are updated.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::ops::Range;

use object::elf::{self, Rela64};
use object::{Endianness, I64, pod};

use super::edit::{Contents, OutputFile, OutputSection, Policy};
use super::file::{Object, PatchedBytes, Section, SectionTable};
use super::raw::{FileHeader, Record, Symbol, extended_indices, section_of_symbol};
use super::resize::Patch;
use crate::compose;
use crate::error::Malformed;
use crate::stable_names::{Replaced, StableNames};

/// Sections of strings that other sections refer to, each string by its start.
const STRINGS: [&[u8]; 3] = [
    b".debug_str",
    b".debug_line_str",
    b".llvm.rodata.offloading",
];

/// Sections of bitcode that a linker may take in place of the object (`-ffat-lto-objects`,
/// `-fembed-bitcode`).
const BITCODE: [&[u8]; 2] = [b".llvm.lto", b".llvmbc"];

/// Types of sections in objects of NVIDIA GPUs. From Blackwell on, these have a second set of many
/// sections, for NVIDIA's finalizer. Source: the output of ptxas 13.5 for sm_75 to sm_120.
mod nvidia {
    /// Pairs of a symbol and the position of its prototype among the names of symbols.
    pub(super) const PROTOTYPES: [u32; 2] = [0x7000_0002, 0x7000_008b];
    /// The second symbol table.
    pub(super) const SYMBOLS: u32 = 0x7000_0085;
    /// Sections without positions of names: information, call graph, memory and constants, code for
    /// the finalizer, its relocations, information and call graph, and requirements.
    pub(super) const OTHERS: [u32; 17] = [
        0x7000_0000,
        0x7000_0001,
        0x7000_0007,
        0x7000_0008,
        0x7000_0009,
        0x7000_000a,
        0x7000_0016,
        0x7000_0064,
        0x7000_0065,
        0x7000_0066,
        0x7000_0067,
        0x7000_0068,
        0x7000_0082,
        0x7000_0083,
        0x7000_0086,
        0x7000_0087,
        0x7000_008a,
    ];
    /// The first type that is only NVIDIA's.
    pub(super) const FIRST: u32 = 0x7000_0000;
}

/// Returns the object `data` with the stable `names`; `None` if it has none of their IDs.
///
/// Names in other places stay, such as strings of the program, and compressed debug information.
///
/// # Errors
/// The object is damaged, is for an AMD GPU (whose notes also contain kernel names), contains
/// bitcode, or may use a string in an unknown way.
pub fn rename(data: &[u8], names: &StableNames) -> Result<Option<Vec<u8>>, Malformed> {
    let object = Object::parse(data)?;
    let has_names = |section: &&Section<'_>| {
        let by_kind = section.header.kind == elf::SHT_STRTAB;
        let by_name = STRINGS.contains(&section.name)
            && section.header.kind == elf::SHT_PROGBITS
            && !section.header.flags.contains(elf::SHF_COMPRESSED);
        by_kind || by_name
    };
    let tables: BTreeMap<usize, Replaced> = object
        .sections
        .iter()
        .enumerate()
        .filter(|(_, section)| has_names(section))
        .filter_map(|(index, section)| Some((index, names.replaced(section.body)?)))
        .collect();
    let mut sections = object.sections.iter();
    if let Some(section) = sections.find(|section| {
        BITCODE.contains(&section.name) && (!tables.is_empty() || names.is_in(section.body))
    }) {
        return Err(Malformed::new(
            "bitcode in an object",
            section.header.offset,
        ));
    }
    if tables.is_empty() {
        return Ok(None);
    }
    if object.head.machine == elf::EM_AMDGPU {
        return Err(Malformed::new("notes of an AMD object name its kernels", 0));
    }
    let is_nvidia = object.head.machine == elf::EM_CUDA;
    if is_nvidia {
        check_nvidia(&object)?;
    }
    let extended = object
        .symbols
        .and_then(|symbols| extended_indices(object.headers(), symbols));
    let mut renaming = Renaming {
        object: &object,
        names,
        tables: &tables,
        has_strings: tables.keys().any(|index| {
            let section = object.sections.get(*index);
            section.is_some_and(|section| section.header.kind == elf::SHT_PROGBITS)
        }),
        targets: Vec::new(),
        extended: extended.and_then(|index| Some(object.sections.get(index)?.body)),
        is_nvidia,
    };
    if renaming.has_strings {
        renaming.targets = renaming.targets();
    }
    let mut sections = Vec::with_capacity(object.sections.len());
    for index in 0..object.sections.len() {
        sections.push(renaming.section(index)?);
    }
    let file = OutputFile {
        bytes: PatchedBytes::new(data),
        class: object.class,
        head: object.head,
        sections,
        names: object.names as u32,
        start: FileHeader::size(object.class) as u64,
    };
    let parts = file.lay_out(Policy::HeadersInPlace)?;
    compose::join(data, &parts, &[]).map(Some)
}

/// Checks that all sections of an NVIDIA object are of known types.
fn check_nvidia(object: &Object<'_>) -> Result<(), Malformed> {
    let is_known = |kind: u32| {
        kind < nvidia::FIRST
            || kind == nvidia::SYMBOLS
            || nvidia::PROTOTYPES.contains(&kind)
            || nvidia::OTHERS.contains(&kind)
    };
    let unknown = object.headers().find(|header| !is_known(header.kind.0));
    match unknown {
        Some(header) => Err(Malformed::new(
            "an NVIDIA section of an unknown type",
            header.offset,
        )),
        None => Ok(()),
    }
}

/// The section of the names in offload entries (LLVM 19 and later). It has no other strings.
pub const ENTRY_NAMES: &[u8] = b".llvm.rodata.offloading";
const ENTRY_NAME: &[u8] = b".llvm.rodata.offloading\0";

/// The changes that put the stable `names` into the linked file `data`: into its offload entries,
/// and, in a program or shared library, into its symbol table. Each new name is at most as long as
/// the old one, and takes its place. The names of dynamic symbols stay, because other files use
/// them.
///
/// # Errors
/// The file is damaged, or has none of the names in the section [`ENTRY_NAMES`]. The linker has then
/// put them elsewhere.
pub fn in_place(data: &[u8], names: &StableNames) -> Result<Vec<Patch>, Malformed> {
    let object = Object::parse_any(data)?;
    let mut patches = Vec::new();
    for section in &object.sections {
        if section.name == ENTRY_NAMES && section.header.kind == elf::SHT_PROGBITS {
            rename_strings(section, names, &|_| true, &mut patches);
        }
    }
    if patches.is_empty() {
        let what = "no names of OpenMP kernels in a section .llvm.rodata.offloading";
        return Err(Malformed::new(what, object.head.shoff));
    }
    let table = object.symbols.and_then(|index| object.sections.get(index));
    let table = table.filter(|table| {
        // Names of sections may share the strings.
        object.head.kind != elf::ET_REL && table.header.link as usize != object.names
    });
    if let Some(table) = table
        && let Some(strings) = object.sections.get(table.header.link as usize)
    {
        // Not needed for most programs without symbols of kernels.
        let starts = LazyCell::new(|| starts_of_names(&object, table));
        // Linkers may store a name as the end of a longer name.
        let is_alone = |string: Range<usize>| {
            let next = starts.partition_point(|other| *other <= string.start);
            starts.get(next).is_none_or(|other| *other > string.end)
        };
        rename_strings(strings, names, &is_alone, &mut patches);
    }
    Ok(patches)
}

/// The positions of the names of the symbols in `table`, in order.
fn starts_of_names(object: &Object<'_>, table: &Section<'_>) -> Vec<usize> {
    let records = table.body.chunks_exact(Symbol::size(object.class));
    let mut starts: Vec<usize> = records
        .filter_map(|record| Some(Symbol::of(object.class, record)?.name as usize))
        .collect();
    starts.sort_unstable();
    starts
}

/// Adds a patch for the strings of `section` with IDs to replace, if there are any. `may_change` is
/// true for the ranges of strings that may change.
fn rename_strings(
    section: &Section<'_>,
    names: &StableNames,
    may_change: &dyn Fn(Range<usize>) -> bool,
    patches: &mut Vec<Patch>,
) {
    let mut body = section.body.to_vec();
    if names.replace_in_strings(&mut body, may_change) {
        patches.push(Patch {
            offset: section.header.offset,
            bytes: body,
        });
    }
}

/// The names in the offload entries of the ELF file `data` that are in the section
/// [`ENTRY_NAMES`]. Empty if it has no such section.
pub fn entry_names(data: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let (class, head) = FileHeader::read(data)?;
    let table = SectionTable::read(data, class, &head)?;
    let names = table.names_header()?.bytes(data, head.shoff)?;
    let mut all = Vec::new();
    for header in &table.headers {
        // Most sections have another type or flags.
        if header.kind == elf::SHT_PROGBITS
            && header.flags.contains(elf::SHF_ALLOC)
            && names
                .get(header.name as usize..)
                .is_some_and(|name| name.starts_with(ENTRY_NAME))
        {
            all.extend(header.bytes(data, head.shoff)?.split(|byte| *byte == 0));
        }
    }
    Ok(all)
}

/// The names of the symbols of the relocatable object `data`.
pub fn names_of_symbols(data: &[u8], add: &mut dyn FnMut(&[u8])) -> Result<(), Malformed> {
    let object = Object::parse(data)?;
    let table = object.symbols.and_then(|index| object.sections.get(index));
    let Some(strings) = table.and_then(|table| object.sections.get(table.header.link as usize))
    else {
        return Ok(());
    };
    strings.body.split(|byte| *byte == 0).for_each(add);
    Ok(())
}

struct Renaming<'a> {
    object: &'a Object<'a>,
    names: &'a StableNames,
    /// The new contents of sections of strings, by their index.
    tables: &'a BTreeMap<usize, Replaced>,
    /// Whether one of these sections is of strings that relocations refer to.
    has_strings: bool,
    /// The symbols as targets of relocations; empty without such strings.
    targets: Vec<Target<'a>>,
    /// The section indices that do not fit into symbols.
    extended: Option<&'a [u8]>,
    is_nvidia: bool,
}

/// A symbol that relocations refer to.
struct Target<'a> {
    value: u64,
    /// The new strings of the section that defines the symbol.
    strings: Option<&'a Replaced>,
}

impl<'a> Renaming<'a> {
    /// The new section with the number `index`.
    fn section(&self, index: usize) -> Result<OutputSection, Malformed> {
        let section = self.object.sections.get(index);
        let section = section.ok_or(Malformed::new("a missing section", 0))?;
        let mut header = section.header;
        if let Some(names) = self.tables.get(&self.object.names) {
            header.name = moved(names, header.name.into(), header.offset)? as u32;
        }
        let body = if let Some(new) = self.tables.get(&index) {
            Cow::Borrowed(&new.bytes[..])
        } else if Some(index) == self.object.symbols
            || self.is_nvidia && header.kind.0 == nvidia::SYMBOLS
        {
            self.symbols(section)?
        } else if self.is_nvidia && nvidia::PROTOTYPES.contains(&header.kind.0) {
            self.prototypes(section)?
        } else if header.kind == elf::SHT_RELA && Some(header.link as usize) == self.object.symbols
        {
            self.relocations(section)?
        } else if header.is_relocations() && self.has_strings && !section.body.is_empty() {
            return Err(Malformed::new("relocations without addends", header.offset));
        } else if header.flags.contains(elf::SHF_STRINGS) {
            self.locations(section)
        } else {
            Cow::Borrowed(section.body)
        };
        let is_same = matches!(body, Cow::Borrowed(body) if std::ptr::eq(body, section.body));
        header.size = if header.is_empty_for(self.object.head.machine) || index == 0 {
            header.size
        } else {
            body.len() as u64
        };
        Ok(OutputSection {
            header,
            contents: if is_same {
                Contents::Old(body.len() as u64)
            } else {
                Contents::Made(body.into_owned())
            },
            fixed: false,
        })
    }

    /// The symbol table with new positions of names, and of the strings that symbols stand for.
    fn symbols(&self, section: &Section<'_>) -> Result<Cow<'_, [u8]>, Malformed> {
        let class = self.object.class;
        let at = section.header.offset;
        let names = self.tables.get(&(section.header.link as usize));
        let mut body = Vec::with_capacity(section.body.len());
        let records = section.body.chunks_exact(Symbol::size(class));
        for (number, record) in records.enumerate() {
            let Some(mut symbol) = Symbol::of(class, record) else {
                continue;
            };
            if let Some(names) = names {
                symbol.name = moved(names, symbol.name.into(), at)? as u32;
                let name = names.bytes.get(symbol.name as usize..);
                if name.is_some_and(is_region_id) {
                    symbol.other = symbol.other.with_visibility(elf::STV_HIDDEN);
                }
            }
            if let Some(strings) = self.strings_of(number, symbol.shndx) {
                let end = moved(strings, symbol.value.saturating_add(symbol.size), at)?;
                symbol.value = moved(strings, symbol.value, at)?;
                symbol.size = end.saturating_sub(symbol.value);
            }
            symbol.append(class, &mut body);
        }
        Ok(Cow::Owned(body))
    }

    /// The prototypes `section` of an NVIDIA object with new positions.
    fn prototypes<'s>(&self, section: &Section<'s>) -> Result<Cow<'s, [u8]>, Malformed> {
        let table = self.object.sections.get(section.header.link as usize);
        let names = table.and_then(|table| self.tables.get(&(table.header.link as usize)));
        let Some(names) = names else {
            return Ok(Cow::Borrowed(section.body));
        };
        let mut body = section.body.to_vec();
        let (pairs, rest) = body.as_chunks_mut::<8>();
        if !rest.is_empty() {
            let at = section.header.offset;
            return Err(Malformed::new("prototypes of an unknown size", at));
        }
        for [_, _, _, _, position @ ..] in pairs {
            let old = u32::from_le_bytes(*position).into();
            let new = moved(names, old, section.header.offset)? as u32;
            *position = new.to_le_bytes();
        }
        Ok(Cow::Owned(body))
    }

    /// The string section `section`, with stable names in its source locations.
    fn locations<'s>(&self, section: &Section<'s>) -> Cow<'s, [u8]> {
        let mut body = Cow::Borrowed(section.body);
        let mut start = 0;
        for text in section.body.split(|byte| *byte == 0) {
            let mut new = text.to_vec();
            if text.starts_with(b";")
                && self.names.replace_in_location(&mut new)
                && let Some(place) = body.to_mut().get_mut(start..start + new.len())
            {
                place.copy_from_slice(&new);
            }
            start += text.len() + 1;
        }
        body
    }

    /// The new strings of the section that defines the symbol with this number.
    fn strings_of(&self, number: usize, short: elf::SymbolSection) -> Option<&'a Replaced> {
        let home = section_of_symbol(self.object.class, number, short, self.extended)?;
        self.tables.get(&(home as usize))
    }

    /// The symbols of the object as targets of relocations.
    fn targets(&self) -> Vec<Target<'a>> {
        let class = self.object.class;
        let table = self
            .object
            .symbols
            .and_then(|index| self.object.sections.get(index));
        let body = table.map_or(&[][..], |table| table.body);
        let records = body.chunks_exact(Symbol::size(class)).enumerate();
        records
            .filter_map(|(number, record)| {
                let symbol = Symbol::of(class, record)?;
                Some(Target {
                    value: symbol.value,
                    strings: self.strings_of(number, symbol.shndx),
                })
            })
            .collect()
    }

    /// The relocations `section`. Those relative to a section of strings get new addends.
    fn relocations<'s>(&self, section: &Section<'s>) -> Result<Cow<'s, [u8]>, Malformed> {
        if !self.has_strings {
            return Ok(Cow::Borrowed(section.body));
        }
        let at = section.header.offset;
        if !self.object.class.is_64 {
            return Err(Malformed::new("relocations of a 32-bit object", at));
        }
        let endian = self.object.class.endian;
        let mut body = section.body.to_vec();
        let all = pod::slice_from_all_bytes_mut::<Rela64<Endianness>>(&mut body)
            .map_err(|()| Malformed::new("relocations of an unknown size", at))?;
        for relocation in all {
            let number = relocation.r_sym(endian, self.object.split_info);
            let Some(target) = self.targets.get(number as usize) else {
                return Err(Malformed::new("a relocation without its symbol", at));
            };
            let Some(strings) = target.strings else {
                continue;
            };
            let addend = relocation.r_addend.get(endian);
            let old = target.value.checked_add_signed(addend);
            let old = old.ok_or(Malformed::new("a relocation outside of its strings", at))?;
            let new = moved(strings, old, at)?.wrapping_sub(moved(strings, target.value, at)?);
            relocation.r_addend = I64::new(endian, new as i64);
        }
        Ok(Cow::Owned(body))
    }
}

/// Whether a name is that of a constant whose address identifies a target region. It is weak, and
/// only clang's numbers keep it apart from those of other programs and libraries.
fn is_region_id(name: &[u8]) -> bool {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    name.starts_with(b".__omp_offloading_") && name.ends_with(b".region_id")
}

/// The new position of the string at `old`.
fn moved(strings: &Replaced, old: u64, at: u64) -> Result<u64, Malformed> {
    let new = usize::try_from(old)
        .ok()
        .and_then(|old| strings.position(old));
    let new = new.ok_or(Malformed::new(
        "a string that begins inside of a file's ID",
        at,
    ))?;
    Ok(new as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use object::{
        Architecture, BinaryFormat, SectionKind, SymbolFlags, SymbolKind, SymbolScope, write,
    };

    use super::*;
    use crate::stable_names::Uses;

    /// An object with `text` in the section `name`.
    fn with_section(name: &[u8], text: &[u8]) -> Vec<u8> {
        let mut object =
            write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let section = object.add_section(Vec::new(), name.to_vec(), SectionKind::ReadOnlyData);
        object.set_section_data(section, text.to_vec(), 1);
        object.write().unwrap()
    }

    #[test]
    fn objects_with_bitcode_are_refused() {
        let text = b"__omp_offloading_fe00_9948e5_main_l3\0";
        let mut uses = Uses::default();
        uses.add(text);
        let stable = StableNames::choose(&uses, &BTreeSet::new());
        let mut object =
            write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let strings = object.section_id(write::StandardSection::ReadOnlyData);
        let kernel = write::Symbol {
            name: text[..text.len() - 1].to_vec(),
            section: write::SymbolSection::Section(strings),
            value: 0,
            size: 0,
            kind: SymbolKind::Text,
            scope: SymbolScope::Dynamic,
            weak: false,
            flags: SymbolFlags::None,
        };
        object.add_symbol(kernel);
        assert!(matches!(
            rename(&object.write().unwrap(), &stable),
            Ok(Some(_))
        ));
        object.add_section(Vec::new(), b".llvm.lto".to_vec(), SectionKind::Metadata);
        let fault = rename(&object.write().unwrap(), &stable).unwrap_err();
        assert_eq!(fault.what, "bitcode in an object");
    }

    #[test]
    fn names_are_replaced_in_place_or_the_file_is_refused() {
        let text = b"__omp_offloading_fe00_9948e5_main_l3\0other\0";
        let mut uses = Uses::default();
        uses.add(&text[..text.len() - 7]);
        let stable = StableNames::choose(&uses, &BTreeSet::new());
        let patches = in_place(&with_section(ENTRY_NAMES, text), &stable).unwrap();
        let [patch] = &patches[..] else {
            panic!("{patches:?}");
        };
        assert_eq!(patch.bytes.len(), text.len());
        assert!(patch.bytes.starts_with(b"__omp_offloading_0_"));
        assert!(patch.bytes.ends_with(b"_main_l3\0\0\0\0\0\0\0\0\0other\0"));
        for (section, text) in [(&b".rodata"[..], &text[..]), (ENTRY_NAMES, b"other\0")] {
            let fault = in_place(&with_section(section, text), &stable).unwrap_err();
            assert!(fault.what.contains(".llvm.rodata.offloading"));
        }
    }
}
