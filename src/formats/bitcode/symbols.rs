//! The symbols that the object made from a module would have.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::layout::Layout;
use super::module::{Global, Kind, Module};
use super::producer::producer_major;
use super::stream::{modules, unwrapped};
use super::types::Types;
use crate::error::Malformed;
use crate::model::Generation;

/// How the names of bounds symbols end.
const ENTRIES: [&str; 4] =
    ["llvm_offload_entries", "omp_offloading_entries", "cuda_offloading_entries", "hip_offloading_entries"];
/// The size of the largest entry of LLVM 15; those of LLVM 20 are larger.
const LARGEST_OF_LLVM_15: u64 = 32;
/// Limit of the size of all names, as a multiple of the file's size. Names can share bytes, so that a small file could need any
/// amount of memory. The names of one module are never larger than the file, but a file can have several modules.
const MOST_SHARED: u64 = 4;
const HIDDEN: u64 = 1;

/// The symbols that an object made from a bitcode module would have, as far as the module tells: function bodies are not read,
/// so what the compiler adds (`memcpy`) is missing, and what is declared counts as used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModuleSymbols<'a> {
    /// The module's target triple.
    pub triple: String,
    /// Symbols that are defined and visible to other objects.
    pub defined: Vec<Symbol<'a>>,
    /// Symbols that are used but not defined here.
    pub undefined: Vec<Symbol<'a>>,
    /// The generation of its offload entries, the newest if it has several.
    pub entries: Option<Generation>,
    /// The oldest generation of its entries, if it has entries of several: modules of several compilers were linked.
    pub older_entries: Option<Generation>,
    /// Whether it refers to the bounds of an entry table, as only registration code made by a wrapper does.
    pub refers_to_bounds: bool,
}

/// One symbol, under its name in the object file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbol<'a> {
    /// The name, mangled as the host's objects have it.
    pub name: Cow<'a, [u8]>,
    /// Weak. If it is defined, another definition can replace it; else it can stay undefined.
    pub weak: bool,
    /// A common symbol, which is weak as well.
    pub common: bool,
    /// Hidden: not visible outside of the program or library that it is linked into.
    pub hidden: bool,
}

/// The symbols of the object that would be made from `bitcode`, of all its modules. Fails if it is damaged or not bitcode.
pub fn symbols(bitcode: &[u8]) -> Result<ModuleSymbols<'_>, Malformed> {
    let (stream, base) = unwrapped(bitcode)?;
    let (mut found, mut names) = (ModuleSymbols::default(), 0);
    let mut read = || modules(stream)?.into_iter().try_for_each(|module| found.add(Module::read(module)?, &mut names));
    read().map_err(|fault| fault.shifted(base))?;
    if names > MOST_SHARED * bitcode.len() as u64 {
        return Err(Malformed::new("symbols share their names", base));
    }
    // Entries of LLVM 14 have the layout of 15, but need another registration.
    if found.entries == Some(Generation::Llvm15) && producer_major(bitcode).is_some_and(|major| major < 15) {
        found.entries = Some(Generation::Llvm14);
    }
    Ok(found)
}

impl<'a> ModuleSymbols<'a> {
    /// Adds the symbols of `module`, and the length of their names to `names`.
    fn add(&mut self, module: Module<'a>, names: &mut u64) -> Result<(), Malformed> {
        let layout = Layout::read(&module.data_layout);
        self.note_entries(&module, &layout)?;
        if self.triple.is_empty() {
            self.triple = String::from_utf8_lossy(&module.triple).into_owned();
        }
        // The order is that of LLVM's symbol tables.
        let mut values = module.values;
        values.sort_by_key(|value| match value.kind {
            Kind::Function => 0,
            Kind::Variable => 1,
            Kind::Alias => 2,
            Kind::Ifunc => 3,
        });
        for value in values {
            *names += value.name.len() as u64;
            self.note(value, layout.prefix);
        }
        let mut seen = BTreeSet::new();
        for name in identifiers(&module.asm).filter(|name| seen.insert(*name)) {
            let symbol = Symbol { name: Cow::Owned(name.to_vec()), weak: true, common: false, hidden: false };
            self.undefined.push(Symbol { weak: false, ..symbol.clone() });
            self.defined.push(symbol);
        }
        Ok(())
    }

    /// Adds `value` to the defined or the undefined symbols.
    fn note(&mut self, value: Global<'a>, prefix: &str) {
        // Intrinsics, and lists that only LLVM reads, are no symbols.
        if value.name.starts_with(b"llvm.") || value.name.is_empty() {
            return;
        }
        let bounds = value.name.strip_prefix(b"__start_");
        self.refers_to_bounds |= bounds.is_some_and(|of| ENTRIES.iter().any(|entries| entries.as_bytes() == of));
        let Some(Linkage { weak, common, elsewhere }) = linkage(value.linkage) else { return };
        let symbol = Symbol { name: mangled(value.name, prefix), weak, common, hidden: value.visibility == HIDDEN };
        if value.defined && !elsewhere { self.defined.push(symbol) } else { self.undefined.push(symbol) }
    }

    /// Finds the generation by the size of the offload entries among the variables.
    fn note_entries(&mut self, module: &Module<'_>, layout: &Layout) -> Result<(), Malformed> {
        let (mut types, mut oldest) = (None, None);
        for global in module.values.iter().filter(|value| value.kind == Kind::Variable) {
            // On COFF the part after the `$` is only for sorting by the linker.
            let table = module.section(global).split(|byte| *byte == b'$').next().unwrap_or_default();
            let Some(of) = ENTRIES.iter().position(|entries| entries.as_bytes() == table) else { continue };
            let types = match &mut types {
                Some(types) => types,
                none => none.insert(Types::read(module)?),
            };
            // Variables that are no structs are empty tables: a wrapper's dummy or bounds.
            let Some(size) = types.struct_size(global, layout) else { continue };
            let generation = match of {
                0 => Generation::Llvm21,
                _ if size > LARGEST_OF_LLVM_15 => Generation::Llvm20,
                _ => Generation::Llvm15,
            };
            self.entries = self.entries.max(Some(generation));
            oldest = Some(oldest.map_or(generation, |oldest: Generation| oldest.min(generation)));
        }
        self.older_entries = oldest.filter(|_| oldest != self.entries);
        Ok(())
    }
}

/// The meaning of a linkage for the symbol.
struct Linkage {
    weak: bool,
    common: bool,
    /// LLVM's `available_externally`: it has a body here but is defined elsewhere.
    elsewhere: bool,
}

/// The meaning of an encoded linkage; none for values that only their module sees. Unknown values are external, as in LLVM's
/// reader.
fn linkage(encoded: u64) -> Option<Linkage> {
    let plain = Linkage { weak: false, common: false, elsewhere: false };
    match encoded {
        // Internal; private in three encodings.
        3 | 9 | 13 | 14 => None,
        // Weak, linkonce (each with and without ODR, in two encodings) and extern_weak.
        1 | 4 | 7 | 10 | 11 | 16..=19 => Some(Linkage { weak: true, ..plain }),
        8 => Some(Linkage { weak: true, common: true, ..plain }),
        12 => Some(Linkage { elsewhere: true, ..plain }),
        _ => Some(plain),
    }
}

/// A name as objects have it, with the target's prefix. A name that begins with the byte 1 gets none.
fn mangled<'a>(name: Cow<'a, [u8]>, prefix: &str) -> Cow<'a, [u8]> {
    match (name, prefix) {
        (Cow::Borrowed([1, rest @ ..]), _) => Cow::Borrowed(rest),
        (Cow::Owned(name), _) if name.starts_with(&[1]) => Cow::Owned(name.get(1..).unwrap_or_default().to_vec()),
        (name, "") => name,
        (name, prefix) => Cow::Owned([prefix.as_bytes(), &name].concat()),
    }
}

/// All words in assembly that can be symbols. The assembly is not parsed, so each counts as defined and as used.
fn identifiers(asm: &[u8]) -> impl Iterator<Item = &[u8]> {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    asm.split(move |byte| !inside(byte)).filter(|word| word.first().is_some_and(|first| !first.is_ascii_digit()))
}
