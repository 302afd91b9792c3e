//! The table of entries that host objects bring along, which every registration but SYCL's walks: how an entry looks in each
//! generation, and the symbols around the table (docs/spec/link-driver.md 8.1 and 11). Data only; `llvm/` emits it.

use crate::model::{Generation, OffloadKind};

/// Of a struct, what an emitter needs to know about a field.
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
    /// As wide as the host's addresses (docs/spec/faults.md F31).
    Size,
    /// An address.
    Pointer,
}

/// Name and fields of a struct.
pub type Struct = (&'static str, &'static [Field]);

/// The name of the entry type since LLVM 15.
pub const ENTRY: &str = "struct.__tgt_offload_entry";
/// `{u64 Reserved, u16 Version, u16 Kind, u32 Flags, ptr Address, ptr SymbolName, u64 Size, u64 Data, ptr AuxAddr}`, since LLVM 20.
pub const WIDE_ENTRY: &[Field] =
    &[Field::U64, Field::U16, Field::U16, Field::U32, Field::Pointer, Field::Pointer, Field::U64, Field::U64, Field::Pointer];
/// `{ptr addr, ptr name, size_t size, i32 flags, i32 data}`, up to LLVM 19.
pub const NARROW_ENTRY: &[Field] = &[Field::Pointer, Field::Pointer, Field::Size, Field::U32, Field::U32];

/// The entries of `generation`, which is not LLVM 14's.
pub fn entry(generation: Generation) -> Struct {
    (ENTRY, if generation.wide_entries() { WIDE_ENTRY } else { NARROW_ENTRY })
}

/// The two symbols around the table of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Name of the first entry's symbol.
    pub start: String,
    /// Name of the symbol after the last entry.
    pub stop: String,
    /// Whether their type is an array of no entries, rather than one entry.
    pub array: bool,
    /// Who defines them.
    pub defined: BoundsDefined,
}

/// Who defines the symbols around the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundsDefined {
    /// The linker, because the section's name is a C identifier; the dummy sees to it that there is such a section.
    ByLinker(Dummy),
    /// We do, in sections that the linker sorts around the entries' (COFF).
    ///
    /// In objects, they are alternatives of which the linker keeps one (COMDAT). LLVM's wrapper has them as mere weak definitions,
    /// each of which brings along a strong one of another name, so that the registrations of two kinds in one program clash.
    BySortedSections {
        /// The section of the first symbol.
        start: String,
        /// The section of the last symbol.
        stop: String,
        /// A section after it and the symbol of the byte in it, in objects alone. Linkers drop a table of nothing but empty sections,
        /// and the bounds of a program without entries with it, which is then an error; LLVM's wrapper runs into it.
        after: (String, String),
    },
}

/// An entry table of no entries, there so that its section is.
///
/// It is not `llvm.used` (SHF_GNU_RETAIN): `ld.lld --gc-sections` would then keep it and drop the program's own entries, and
/// what is an error now would be a program that registers nothing. That link needs `-z nostart-stop-gc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dummy {
    /// Its name.
    pub name: String,
    /// Its section: the entries'.
    pub section: &'static str,
    /// Its alignment, where one is said.
    pub align: Option<u32>,
    /// What keeps the compiler from dropping it.
    pub kept: Kept,
}

/// What keeps a symbol that nothing refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is internal, and listed in `llvm.compiler.used`.
    CompilerUsed,
    /// It is external (hidden), so the compiler must keep it.
    External,
}

/// The bounds of the table that the entries of `kind` are in, since LLVM 15, on a host whose objects are COFF or ELF.
pub fn bounds(kind: OffloadKind, generation: Generation, coff: bool) -> Bounds {
    let section = generation.entry_section(kind);
    let defined = if coff {
        let after = (format!("{section}$OZZ"), format!("__dummy.{section}"));
        BoundsDefined::BySortedSections { start: format!("{section}$OA"), stop: format!("{section}$OZ"), after }
    } else {
        let align = match generation {
            // LLVM 20's entries have alignment 1. On 32-bit hosts a larger one here would put a gap into their table.
            Generation::Llvm20 => Some(1),
            Generation::Llvm21 => Some(8),
            _ => None,
        };
        BoundsDefined::ByLinker(Dummy { name: format!("__dummy.{section}"), section, align, kept: Kept::CompilerUsed })
    };
    Bounds { start: format!("__start_{section}"), stop: format!("__stop_{section}"), array: true, defined }
}
