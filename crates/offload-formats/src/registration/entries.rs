//! Table of offload entries, which compilers put into host objects and every registration except
//! SYCL's reads: the layout of an entry in each generation, and the symbols around the table
//! (docs/spec/link-driver.md 8.1 and 11). Data only; `offld-llvm` emits the code.

use crate::model::{Generation, OffloadKind};
use crate::offload_sections::entry_section;

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
        let after = (format!("{section}$OZZ"), format!("__dummy.{section}"));
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
            name: format!("__dummy.{section}"),
            section,
            align,
            retention: Retention::CompilerUsed,
        })
    };
    Bounds {
        start: format!("__start_{section}"),
        stop: format!("__stop_{section}"),
        array: true,
        defined,
    }
}
