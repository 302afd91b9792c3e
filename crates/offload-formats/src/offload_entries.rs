//! Offload entry tables, which compilers put into host objects and every registration except SYCL's
//! reads: finds their sections in objects and programs, detects which LLVM release's layout they
//! have, and describes the layout of an entry and the symbols around the table for registration
//! code (docs/spec/link-driver.md 8.1 and 11). `offld-llvm` emits that code.

use std::collections::HashMap;

use object::{BinaryFormat, File, Object, ObjectKind, ObjectSection, ObjectSymbol, SectionIndex};

use crate::elf::raw::Class;
use crate::model::{Generation, OffloadKind};
use crate::offload_sections::{self, DUMMY_PREFIX, START_PREFIX, STOP_PREFIX, entry_section};

/// The start of an entry's name in LLVM 19 and later; the kernel's name follows.
pub const ENTRY_PREFIX: &str = ".offloading.entry.";
/// The same in earlier releases.
pub const OLD_ENTRY_PREFIX: &str = ".omp_offloading.entry.";
/// The suffix of a table's name in COFF objects.
const COFF_SUFFIX: &str = "$OE";
/// The version in an entry of LLVM 20 and later, after eight zero bytes.
const ENTRY_VERSION: u64 = 1;

/// A table of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryTable {
    /// The section's name. After a relocatable link, it ends with a tag.
    pub section: String,
    /// The size in bytes.
    pub size: u64,
    /// The releases with this layout, or `None` if the size fits no layout.
    pub generation: Option<Generation>,
    /// Whether pointers have 64 bits.
    pub wide_pointers: bool,
}

impl EntryTable {
    /// The size of an entry in bytes.
    pub fn entry_size(&self) -> Option<u64> {
        self.generation
            .map(|generation| entry_size(generation.wide_entries(), self.wide_pointers))
    }
}

/// The generation with entries of `size` bytes, for a section with an old name.
pub fn generation_of_entry(size: u64) -> Option<Generation> {
    match size {
        32 | 20 => Some(Generation::Llvm15),
        56 | 44 => Some(Generation::Llvm20),
        _ => None,
    }
}

/// The generation of a table without symbols, by its size. If both layouts fit, the older one is
/// assumed, which was in use longer.
pub fn generation_of_size(size: u64, wide_pointers: bool) -> Option<Generation> {
    match (
        size % entry_size(false, wide_pointers),
        size % entry_size(true, wide_pointers),
    ) {
        (0, _) => Some(Generation::Llvm15),
        (_, 0) => Some(Generation::Llvm20),
        _ => None,
    }
}

/// Returns the size of an entry in bytes.
pub fn entry_size(wide_entry: bool, wide_pointers: bool) -> u64 {
    match (wide_entry, wide_pointers) {
        (true, true) => 56,
        (true, false) => 44,
        (false, true) => 32,
        (false, false) => 20,
    }
}

/// Returns the nonempty tables in `data`, an ELF file or a COFF object. Linked programs for Windows
/// have no names to identify tables.
///
/// # Errors
/// The file's sections or symbols are damaged.
pub fn tables(data: &[u8]) -> Result<Vec<EntryTable>, object::read::Error> {
    let file = File::parse(data)?;
    let coff = matches!(file.format(), BinaryFormat::Coff);
    if !coff && !matches!(file.format(), BinaryFormat::Elf)
        || matches!(file.kind(), ObjectKind::Core)
    {
        return Ok(Vec::new());
    }
    let mut tables: Vec<FoundTable> = Vec::new();
    // Relocatable links tag the names of their tables, and a link of many such objects has
    // thousands of them.
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut by_section: HashMap<SectionIndex, usize> = HashMap::new();
    for section in file.sections().filter(|section| section.size() > 0) {
        let Ok(name) = std::str::from_utf8(section.name_bytes()?) else {
            continue;
        };
        let Some(new) = is_table(name, coff) else {
            continue;
        };
        let index = *by_name.entry(name).or_insert(tables.len());
        by_section.insert(section.index(), index);
        match tables.get_mut(index) {
            Some(found) => found.table.size = found.table.size.saturating_add(section.size()),
            None => tables.push(FoundTable {
                table: EntryTable {
                    section: name.to_owned(),
                    size: section.size(),
                    generation: new.then_some(Generation::Llvm21),
                    wide_pointers: file.is_64(),
                },
                first: section.index(),
                of_symbol: None,
            }),
        }
    }
    if tables.iter().any(|found| found.table.generation.is_none()) {
        for symbol in file.symbols() {
            let index = symbol
                .section_index()
                .and_then(|section| by_section.get(&section));
            if let Some(found) = index.and_then(|index| tables.get_mut(*index)) {
                found.of_symbol = found
                    .of_symbol
                    .or_else(|| generation_of_entry(symbol.size()));
            }
        }
    }
    Ok(tables.into_iter().map(|found| found.table(&file)).collect())
}

/// A table with the data that determines its generation.
struct FoundTable {
    table: EntryTable,
    /// The first nonempty section of this name.
    first: SectionIndex,
    /// The generation according to the size of a symbol in the table.
    of_symbol: Option<Generation>,
}

impl FoundTable {
    /// Returns the table with its generation. For an old name, that follows from a symbol's size,
    /// else from the contents of the entries, else from the table's size.
    fn table(self, file: &File<'_>) -> EntryTable {
        let FoundTable {
            mut table,
            first,
            of_symbol,
        } = self;
        table.generation = table
            .generation
            .or(of_symbol)
            .or_else(|| generation_of_contents(file, first, &table))
            .or_else(|| generation_of_size(table.size, table.wide_pointers));
        table
    }
}

/// Whether the entry table `section` belongs to images that a relocatable link has registered. Such
/// a link adds a tag to the names of tables.
pub fn is_registered(section: &str) -> bool {
    let section = section.strip_suffix(COFF_SUFFIX).unwrap_or(section);
    offload_sections::entry_table(section.as_bytes()).is_none()
}

/// Returns `None` if `section` is not a table, otherwise whether it is one of LLVM 21 and later.
fn is_table(section: &str, coff: bool) -> Option<bool> {
    let section = if coff {
        section.strip_suffix(COFF_SUFFIX)?
    } else {
        section
    };
    let mut tables = offload_sections::entry_tables();
    let table = tables.find(|table| {
        section.strip_prefix(table.name).is_some_and(|rest| {
            rest.strip_prefix('_').map_or(rest.is_empty(), |tag| {
                tag.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
        })
    })?;
    Some(table.kind.is_none())
}

/// The generation according to the contents of the section `first`: entries of LLVM 20 have a
/// version.
fn generation_of_contents(
    file: &File<'_>,
    first: SectionIndex,
    table: &EntryTable,
) -> Option<Generation> {
    let size = usize::try_from(entry_size(true, table.wide_pointers)).ok()?;
    if !table.size.is_multiple_of(size as u64) {
        return None;
    }
    let class = Class::of_file(file);
    let is_wide = |entry: &[u8]| {
        let version = entry.get(8..).and_then(|bytes| class.number(bytes, 2));
        entry.get(..8) == Some(&[0; 8]) && version == Some(ENTRY_VERSION)
    };
    file.section_by_index(first)
        .ok()?
        .data()
        .ok()?
        .chunks_exact(size)
        .all(is_wide)
        .then_some(Generation::Llvm20)
}

/// The type of a field of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// 8 bits.
    U8,
    /// 16 bits.
    U16,
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
    /// The host's `size_t` (docs/spec/faults.md F31).
    Size,
    /// An address.
    Pointer,
}

/// Name and fields of a struct.
pub type Struct = (&'static str, &'static [Field]);

/// The name of the entry type since LLVM 15.
pub const ENTRY: &str = "struct.__tgt_offload_entry";
/// `{u64 Reserved, u16 Version, u16 Kind, u32 Flags, ptr Address, ptr SymbolName, u64 Size, u64
/// Data, ptr AuxAddr}`, since LLVM 20.
pub const WIDE_ENTRY: &[Field] = &[
    Field::U64,
    Field::U16,
    Field::U16,
    Field::U32,
    Field::Pointer,
    Field::Pointer,
    Field::U64,
    Field::U64,
    Field::Pointer,
];
/// `{ptr addr, ptr name, size_t size, i32 flags, i32 data}`, up to LLVM 19.
pub const NARROW_ENTRY: &[Field] = &[
    Field::Pointer,
    Field::Pointer,
    Field::Size,
    Field::U32,
    Field::U32,
];

/// Returns the entry type of `generation`. Not for LLVM 14, whose type has another name.
pub fn entry(generation: Generation) -> Struct {
    (
        ENTRY,
        if generation.wide_entries() {
            WIDE_ENTRY
        } else {
            NARROW_ENTRY
        },
    )
}

/// The two symbols around the table of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Name of the first entry's symbol.
    pub start: String,
    /// Name of the symbol after the last entry.
    pub stop: String,
    /// Whether the symbols are declared as an array of no entries instead of as one entry.
    pub array: bool,
    /// The definition of the symbols.
    pub defined: BoundsDefined,
}

/// The definition of the symbols around the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundsDefined {
    /// The linker defines them, because the section's name is a C identifier. The dummy makes sure
    /// that the section exists.
    ByLinker(Dummy),
    /// The registration module defines them, in sections that the linker sorts before and after the
    /// entries (COFF).
    ///
    /// In objects they are COMDATs, and the linker uses only one definition. LLVM's wrapper emits
    /// weak definitions. On COFF, each of these has a strong definition with another name, so that
    /// the registrations of two kinds in one program clash.
    BySortedSections {
        /// The section of the first symbol.
        start: String,
        /// The section of the last symbol.
        stop: String,
        /// In objects only: a section after the last symbol's, and the symbol of the one byte in
        /// it. Linkers drop a table whose sections are all empty together with its bounds. A
        /// program without entries would then fail to link, as with LLVM's wrapper.
        after: (String, String),
    },
}

/// An array of no entries that makes its section exist.
///
/// It is not in `llvm.used` (SHF_GNU_RETAIN): `ld.lld --gc-sections` would then keep it and drop
/// the program's own entries. A link that fails now would succeed, with a program that registers
/// nothing. That link needs `-z nostart-stop-gc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dummy {
    /// The name.
    pub name: String,
    /// The section of the entries.
    pub section: &'static str,
    /// The alignment in bytes, if it is not the type's.
    pub align: Option<u32>,
    /// The reason why the compiler does not drop it.
    pub retention: Retention,
}

/// The reason why the compiler does not drop a symbol without references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// The symbol is internal, and listed in `llvm.compiler.used`.
    CompilerUsed,
    /// The symbol is global (weak and hidden). So the compiler must keep it, and a program may
    /// contain several modules that define it.
    Weak,
}

/// Returns the bounds of the table with the entries of `kind`, for LLVM 15 and later, and for LLVM
/// 14 on COFF. `coff` selects a host with COFF instead of ELF objects.
pub fn bounds(kind: OffloadKind, generation: Generation, coff: bool) -> Bounds {
    let section = entry_section(generation, kind);
    let defined = if coff {
        let after = (format!("{section}$OZZ"), format!("{DUMMY_PREFIX}{section}"));
        BoundsDefined::BySortedSections {
            start: format!("{section}$OA"),
            stop: format!("{section}$OZ"),
            after,
        }
    } else {
        let align = match generation {
            // LLVM 20's entries have alignment 1. On 32-bit hosts, a larger alignment here would
            // create a gap in their table.
            Generation::Llvm20 => Some(1),
            Generation::Llvm21 => Some(8),
            _ => None,
        };
        BoundsDefined::ByLinker(Dummy {
            name: format!("{DUMMY_PREFIX}{section}"),
            section,
            align,
            retention: Retention::CompilerUsed,
        })
    };
    Bounds {
        start: format!("{START_PREFIX}{section}"),
        stop: format!("{STOP_PREFIX}{section}"),
        array: true,
        defined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object as Writer, Symbol, SymbolSection};
    use object::{Architecture, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    /// The tables of an object with `contents` in `section` and a symbol of the size `symbol`
    /// there.
    fn tables_of(
        section: &str,
        contents: &[u8],
        symbol: Option<u64>,
    ) -> Result<Vec<EntryTable>, Box<dyn std::error::Error>> {
        let mut object = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let id = object.add_section(Vec::new(), section.as_bytes().to_vec(), SectionKind::Data);
        object.set_section_data(id, contents.to_vec(), 1);
        if let Some(size) = symbol {
            object.add_symbol(Symbol {
                name: b"entry".to_vec(),
                value: 0,
                size,
                kind: SymbolKind::Data,
                scope: SymbolScope::Linkage,
                weak: true,
                section: SymbolSection::Section(id),
                flags: SymbolFlags::None,
            });
        }
        Ok(tables(&object.write()?)?)
    }

    #[test]
    fn the_layout_follows_from_name_symbols_contents_and_size() -> Outcome {
        let wide = [[0; 8].as_slice(), &[1, 0], &[0; 46]].concat();
        type Case = (&'static str, Vec<u8>, Option<u64>, Option<u64>);
        let cases: [Case; 9] = [
            ("llvm_offload_entries", vec![0; 112], None, Some(56)),
            ("llvm_offload_entries_1f2e", vec![0; 56], None, Some(56)),
            ("omp_offloading_entries", vec![0; 64], None, Some(32)),
            ("cuda_offloading_entries", vec![0; 56], None, Some(56)),
            ("hip_offloading_entries", vec![0; 224], Some(56), Some(56)),
            ("hip_offloading_entries", vec![0; 224], Some(32), Some(32)),
            ("omp_offloading_entries", vec![0; 224], None, Some(32)),
            ("omp_offloading_entries", wide.repeat(4), None, Some(56)),
            ("omp_offloading_entries", vec![0; 33], None, None),
        ];
        for (section, contents, symbol, expected) in cases {
            let found = tables_of(section, &contents, symbol)?;
            let found: Vec<_> = found
                .iter()
                .map(|table| (table.section.as_str(), table.entry_size()))
                .collect();
            assert_eq!(
                found,
                [(section, expected)],
                "{} bytes, a symbol of {symbol:?}",
                contents.len()
            );
        }
        for other in ["llvm_offload_entries_new!", "omp_offloading_entry", "data"] {
            assert_eq!(tables_of(other, &[0; 56], None)?, [], "{other}");
        }
        assert_eq!(tables_of("llvm_offload_entries", &[], None)?, []);
        Ok(())
    }

    /// The reader visits each section and each symbol once, however many tables there are.
    #[test]
    fn thousands_of_tables_take_no_longer_than_their_symbols() -> Outcome {
        const COUNT: u64 = 20_000;
        let mut object = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        for table in 0..COUNT {
            let name = format!("omp_offloading_entries_{table:x}").into_bytes();
            let section = object.add_section(Vec::new(), name.clone(), SectionKind::Data);
            object.set_section_data(section, vec![0; 224], 1);
            let (section, flags) = (SymbolSection::Section(section), SymbolFlags::None);
            let (kind, scope) = (SymbolKind::Data, SymbolScope::Linkage);
            object.add_symbol(Symbol {
                name,
                value: 0,
                size: 56,
                kind,
                scope,
                weak: true,
                section,
                flags,
            });
        }
        let began = std::time::Instant::now();
        let found = tables(&object.write()?)?;
        assert_eq!(found.len() as u64, COUNT);
        assert!(
            found
                .iter()
                .all(|table| table.generation == Some(Generation::Llvm20))
        );
        // This takes 0.1 s. A search of all symbols for each table would take 400 million steps.
        assert!(
            began.elapsed() < std::time::Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
        Ok(())
    }
}
