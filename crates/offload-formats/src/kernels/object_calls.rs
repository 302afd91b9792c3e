//! Calls between objects of AMD GPU code. A kernel declares its registers and scratch memory,
//! including those of all functions that it calls. The compiler only counts functions that it sees.
//! For functions in other ELF objects, ld.lld of LLVM 23 and earlier adds nothing and prints no
//! warning.

use std::collections::{HashMap, HashSet};

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Sym};
use object::{
    Endianness, File, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind,
    SymbolKind,
};

/// The functions that an object defines and calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectCalls {
    /// Whether the object has a kernel.
    pub has_kernel: bool,
    /// The functions that the object exports to other objects.
    pub functions: HashSet<String>,
    /// The calls of functions of other objects, in the order of the code.
    pub calls: Vec<Call>,
}

/// A call of a function that another object must define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The kernel or function that calls. Empty if unknown.
    pub caller: String,
    /// Whether the caller is a kernel.
    pub by_kernel: bool,
    /// The symbol of the called function.
    pub callee: String,
}

/// The calls of the ELF object `data`. `None` for other data and for damaged objects, which the
/// linker reports.
pub fn of_object(data: &[u8]) -> Option<ObjectCalls> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != elf::EM_AMDGPU || header.e_type(endian) != elf::ET_REL {
        return None;
    }
    let file = File::parse(data).ok()?;
    let text = |name: &str| name.to_owned();
    let descriptors: HashSet<&str> = file
        .symbols()
        .filter_map(|symbol| symbol.name().ok()?.strip_suffix(".kd"))
        .collect();
    let mut found = ObjectCalls {
        has_kernel: !descriptors.is_empty(),
        ..ObjectCalls::default()
    };
    let mut code: Vec<(usize, u64, u64, &str)> = Vec::new();
    for symbol in file
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
    {
        let (Ok(name), Some(section)) = (symbol.name(), symbol.section_index()) else {
            continue;
        };
        code.push((section.0, symbol.address(), symbol.size(), name));
        if symbol.is_global() {
            found.functions.insert(text(name));
        }
    }
    let mut seen = HashSet::new();
    for section in file
        .sections()
        .filter(|section| section.kind() == SectionKind::Text)
    {
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(index) = relocation.target() else {
                continue;
            };
            let Ok(symbol) = file.symbol_by_index(index) else {
                continue;
            };
            let (true, Ok(callee)) = (symbol.is_undefined(), symbol.name()) else {
                continue;
            };
            if !seen.insert(index) {
                continue;
            }
            let is_in = |(code_section, start, size, _): &&(usize, u64, u64, &str)| {
                *code_section == section.index().0
                    && (*start..start.saturating_add(*size)).contains(&offset)
            };
            let caller = code.iter().find(is_in).map_or("", |(.., name)| *name);
            let by_kernel = descriptors.contains(caller);
            found.calls.push(Call {
                caller: text(caller),
                by_kernel,
                callee: text(callee),
            });
        }
    }
    Some(found)
}

/// Finds a kernel in the finished image `data` that calls functions unknown to its compiler, if the
/// image contains a function from another object. Such a kernel may declare too few resources. The
/// check uses symbols, so a stripped image gives `None`.
pub fn open_kernel(data: &[u8]) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != elf::EM_AMDGPU || header.e_type(endian) == elf::ET_REL {
        return None;
    }
    let symbols = header
        .sections(endian, data)
        .ok()?
        .symbols(endian, data, elf::SHT_SYMTAB)
        .ok()?;
    let (mut has_foreign, mut names) = (false, 0);
    let mut signs: HashMap<&[u8], u8> = HashMap::new();
    for symbol in symbols.iter() {
        let name = symbols.symbol_name(endian, symbol).unwrap_or_default();
        // Names may share suffixes, but a table in which they share most of their bytes is damaged.
        names += name.len();
        if names / 4 > data.len() {
            return None;
        }
        // Compilers make a module's internal symbols local. A symbol that is local and hidden was
        // made local by the linker, which merged several objects.
        has_foreign |= symbol.st_type() == elf::STT_FUNC
            && symbol.st_bind() == elf::STB_LOCAL
            && symbol.st_visibility() == elf::STV_HIDDEN;
        let is_set = symbol.st_shndx(endian) == elf::SHN_ABS && symbol.st_value(endian) != 0;
        // Compilers set `.has_recursion` and `.has_dyn_sized_stack` for calls of unknown functions,
        // which may use any stack size and may call back.
        let signed = [
            (&b".kd"[..], 1, true),
            (b".has_recursion", 2, is_set),
            (b".has_dyn_sized_stack", 4, is_set),
        ];
        for (end, sign, _) in signed.into_iter().filter(|(.., counts)| *counts) {
            if let Some(kernel) = name.strip_suffix(end) {
                *signs.entry(kernel).or_default() |= sign;
            }
        }
    }
    let mut open: Vec<&[u8]> = signs
        .into_iter()
        .filter(|(_, signs)| *signs == 7)
        .map(|(kernel, _)| kernel)
        .collect();
    open.sort_unstable();
    open.first()
        .filter(|_| has_foreign)
        .map(|kernel| String::from_utf8_lossy(kernel).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Outcome;
    use object::write::{Object as Writer, Relocation, Symbol, SymbolSection};
    use object::{Architecture, BinaryFormat, RelocationFlags, SymbolFlags, SymbolScope};

    /// An AMD GPU object with a kernel and a function, which call functions of other objects.
    fn sample() -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let mut object = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let code = object.add_section(vec![], b".text".to_vec(), SectionKind::Text);
        object.append_section_data(code, &[0; 64], 16);
        let data = object.add_section(vec![], b".rodata".to_vec(), SectionKind::ReadOnlyData);
        object.append_section_data(data, &[0; 64], 16);
        let mut symbol = |name: &str, value, section, kind| {
            let (scope, flags) = (SymbolScope::Linkage, SymbolFlags::None);
            object.add_symbol(Symbol {
                name: name.into(),
                value,
                size: 16,
                kind,
                scope,
                weak: false,
                section,
                flags,
            })
        };
        symbol("kern", 0, SymbolSection::Section(code), SymbolKind::Text);
        symbol("kern.kd", 0, SymbolSection::Section(data), SymbolKind::Data);
        symbol(
            "function",
            32,
            SymbolSection::Section(code),
            SymbolKind::Text,
        );
        let one = symbol("one", 0, SymbolSection::Undefined, SymbolKind::Unknown);
        let two = symbol("two", 0, SymbolSection::Undefined, SymbolKind::Unknown);
        for (offset, symbol) in [(8, one), (12, one), (36, two), (40, one)] {
            let flags = RelocationFlags::Elf {
                r_type: elf::RelocationType(10),
            };
            object.add_relocation(
                code,
                Relocation {
                    offset,
                    symbol,
                    addend: 0,
                    flags,
                },
            )?;
        }
        let mut bytes = object.write()?;
        bytes[18..20].copy_from_slice(&elf::EM_AMDGPU.0.to_le_bytes());
        Ok(bytes)
    }

    #[test]
    fn calls_have_their_callers() -> Outcome {
        let bytes = sample()?;
        let found = of_object(&bytes).ok_or("no object")?;
        assert!(found.has_kernel);
        assert_eq!(
            found.functions,
            ["kern", "function"].map(str::to_owned).into()
        );
        let call = |caller: &str, by_kernel, callee: &str| Call {
            caller: caller.to_owned(),
            by_kernel,
            callee: callee.to_owned(),
        };
        assert_eq!(
            found.calls,
            [call("kern", true, "one"), call("function", false, "two")]
        );
        assert_eq!(open_kernel(&bytes), None, "an object is not an image");
        Ok(())
    }

    #[test]
    fn damaged_objects_and_images_do_not_panic() -> Outcome {
        let bytes = sample()?;
        let as_image = |mut bytes: Vec<u8>| {
            bytes[16..18].copy_from_slice(&elf::ET_DYN.0.to_le_bytes());
            bytes
        };
        for len in 0..bytes.len() {
            let _ = of_object(&bytes[..len]);
            let _ = open_kernel(&as_image(bytes[..len.max(18)].to_vec()));
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = of_object(&bytes);
            let _ = open_kernel(&as_image(bytes));
        }
        Ok(())
    }
}
