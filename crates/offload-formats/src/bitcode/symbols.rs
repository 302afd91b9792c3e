//! The symbols of the object file of a module.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::module::{Global, Kind, Layout, Module, Types};
use super::{modules, producer_major, unwrapped};
use crate::error::Malformed;
use crate::model::Generation;
use crate::offload_entries::entry_size;
use crate::offload_sections::{entry_table, is_start_of_entries, without_sort_key};

/// The limit on the size of all names, as a multiple of the file's size. Names can share bytes, so
/// that a small file could need any amount of memory. The names of one module are never larger than
/// the file, but a file can contain several modules.
const MAX_SHARED: u64 = 4;
const HIDDEN: u64 = 1;

/// The symbols of the object file of a bitcode module, according to its declarations. Function
/// bodies are not read. Symbols that the compiler adds (`memcpy`) are therefore missing, and every
/// declared symbol counts as used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModuleSymbols<'a> {
    /// The module's target triple.
    pub triple: String,
    /// Symbols that are defined and visible to other objects.
    pub defined: Vec<Symbol<'a>>,
    /// Symbols that are used but not defined.
    pub undefined: Vec<Symbol<'a>>,
    /// The generation of the offload entries. The newest if there are several.
    pub entries: Option<Generation>,
    /// The oldest generation of the offload entries, if modules of several compilers with different
    /// generations were linked.
    pub older_entries: Option<Generation>,
    /// Whether the module refers to the bounds of an entry table, which only happens in a wrapper's
    /// registration code.
    pub refers_to_bounds: bool,
}

/// A symbol, under its name in the object file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbol<'a> {
    /// The name, mangled as in the host's objects.
    pub name: Cow<'a, [u8]>,
    /// Whether the symbol is weak. If defined, another definition can replace it; otherwise it can
    /// stay undefined.
    pub weak: bool,
    /// Whether the symbol is common. Common symbols are also weak.
    pub common: bool,
    /// Whether the symbol is hidden: invisible outside of the program or library that it is linked
    /// into.
    pub hidden: bool,
    /// Whether the symbol is a function.
    pub function: bool,
}

/// Returns the symbols of the object file of `bitcode`, from all its modules. Fails if `bitcode` is
/// damaged or not bitcode.
pub fn symbols(bitcode: &[u8]) -> Result<ModuleSymbols<'_>, Malformed> {
    let (stream, base) = unwrapped(bitcode)?;
    let (mut found, mut names) = (ModuleSymbols::default(), 0);
    let mut read = || {
        modules(stream)?
            .into_iter()
            .try_for_each(|module| found.add(Module::read(module)?, &mut names))
    };
    read().map_err(|fault| fault.shifted(base))?;
    if names > MAX_SHARED * bitcode.len() as u64 {
        return Err(Malformed::new("symbols share their names", base));
    }
    // Entries of LLVM 14 have the layout of LLVM 15, but need a different registration.
    if found.entries == Some(Generation::Llvm15)
        && producer_major(bitcode).is_some_and(|major| major < 15)
    {
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
        // The order of LLVM's symbol tables.
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
            let symbol = Symbol {
                name: Cow::Owned(name.to_vec()),
                weak: true,
                common: false,
                hidden: false,
                function: false,
            };
            self.undefined.push(Symbol {
                weak: false,
                ..symbol.clone()
            });
            self.defined.push(symbol);
        }
        Ok(())
    }

    /// Adds `value` to the defined or the undefined symbols.
    fn note(&mut self, value: Global<'a>, prefix: &str) {
        // Intrinsics and lists for LLVM are not symbols.
        if value.name.starts_with(b"llvm.") || value.name.is_empty() {
            return;
        }
        self.refers_to_bounds |= is_start_of_entries(&value.name);
        let Some(Linkage {
            weak,
            common,
            elsewhere,
        }) = linkage(value.linkage)
        else {
            return;
        };
        let function = matches!(value.kind, Kind::Function);
        let symbol = Symbol {
            name: mangled(value.name, prefix),
            weak,
            common,
            hidden: value.visibility == HIDDEN,
            function,
        };
        if value.defined && !elsewhere {
            self.defined.push(symbol)
        } else {
            self.undefined.push(symbol)
        }
    }

    /// Determines the generation by the size of the offload entries among the variables.
    fn note_entries(&mut self, module: &Module<'_>, layout: &Layout) -> Result<(), Malformed> {
        let (mut types, mut oldest) = (None, None);
        for global in module
            .values
            .iter()
            .filter(|value| value.kind == Kind::Variable)
        {
            let Some(table) = entry_table(without_sort_key(module.section(global))) else {
                continue;
            };
            let types = match &mut types {
                Some(types) => types,
                none => none.insert(Types::read(module)?),
            };
            // Variables of other types are empty tables: a wrapper's dummy or bounds.
            let Some(size) = types.struct_size(global, layout) else {
                continue;
            };
            let generation = match table.kind {
                None => Generation::Llvm21,
                _ if size > entry_size(false, true) => Generation::Llvm20,
                _ => Generation::Llvm15,
            };
            self.entries = self.entries.max(Some(generation));
            oldest = Some(oldest.map_or(generation, |oldest: Generation| oldest.min(generation)));
        }
        self.older_entries = oldest.filter(|_| oldest != self.entries);
        Ok(())
    }
}

/// The effect of a linkage on the symbol.
struct Linkage {
    weak: bool,
    common: bool,
    /// LLVM's `available_externally`: the value has a body here but is defined elsewhere.
    elsewhere: bool,
}

/// The effect of an encoded linkage, or `None` for values that are local to their module. Unknown
/// values are external, as in LLVM's reader.
fn linkage(encoded: u64) -> Option<Linkage> {
    let plain = Linkage {
        weak: false,
        common: false,
        elsewhere: false,
    };
    match encoded {
        // Internal, and private in three encodings.
        3 | 9 | 13 | 14 => None,
        // Weak and linkonce (each with and without ODR, in two encodings), and extern_weak.
        1 | 4 | 7 | 10 | 11 | 16..=19 => Some(Linkage {
            weak: true,
            ..plain
        }),
        8 => Some(Linkage {
            weak: true,
            common: true,
            ..plain
        }),
        12 => Some(Linkage {
            elsewhere: true,
            ..plain
        }),
        _ => Some(plain),
    }
}

/// The name in object files, with the target's prefix. A name that begins with the byte 1 gets no
/// prefix.
fn mangled<'a>(name: Cow<'a, [u8]>, prefix: &str) -> Cow<'a, [u8]> {
    match (name, prefix) {
        (Cow::Borrowed([1, rest @ ..]), _) => Cow::Borrowed(rest),
        (Cow::Owned(name), _) if name.starts_with(&[1]) => {
            Cow::Owned(name.get(1..).unwrap_or_default().to_vec())
        }
        (name, "") => name,
        (name, prefix) => Cow::Owned([prefix.as_bytes(), &name].concat()),
    }
}

/// All identifiers in assembly. The assembly is not parsed, so each one counts as defined and as
/// used.
fn identifiers(asm: &[u8]) -> impl Iterator<Item = &[u8]> {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    asm.split(move |byte| !inside(byte))
        .filter(|word| word.first().is_some_and(|first| !first.is_ascii_digit()))
}
