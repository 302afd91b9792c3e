//! The relocatable device code of nvcc (`-rdc=true`, `-dc`) in host objects. Each module, which is
//! usually one source file, has a fatbinary with relocatable code, and a constructor that calls
//! `__cudaRegisterLinkedBinary<id>`. A device link defines that function for each of its modules.
//!
//! NVIDIA documents none of this. The facts come from objects of nvcc 11 to 13, and from
//! `crt/link.stub`, which `nvcc -dlink` compiles.
//!
//! ```text
//! __nv_relfatbin                        a fatbinary for each module
//! .nvFatBinSegment, __fatbinwrap<id>    u32 magic, u32 version 1, pointer to the fatbinary, null
//! __cudaRegisterLinkedBinary<id>        undefined until the device link
//! ```

use std::collections::{HashMap, HashSet};

use object::read::elf::{ElfFile64, FileHeader as _};
use object::{
    Architecture, BinaryFormat, Endianness, Object, ObjectSection, ObjectSymbol,
    RelocationEncoding, RelocationFlags, RelocationKind, RelocationTarget, SectionIndex,
    SectionKind, SymbolFlags, SymbolKind, SymbolScope, elf, write,
};

use crate::bytes::{slice, u32_at};
use crate::error::Malformed;
use crate::fatbin::{self, Entry};
use crate::model::printable_name;
use crate::offload_sections::{CUDA_PRELINKED, CUDA_WRAPPERS};
use crate::registration::fatbin::CUDA_MAGIC;
pub use crate::registration::fatbin::MODULE_IDS;
use crate::registration::fatbin::WRAPPER_SIZE;

/// The prefix of the names of the structs that refer to fatbinaries. The ID of the module follows.
pub const WRAPPER: &str = "__fatbinwrap";
/// The prefix of the names of the functions that a device link defines. The module's ID follows.
pub const REGISTER: &str = "__cudaRegisterLinkedBinary";

/// The library of CUDA's device runtime, with which kernels launch kernels.
pub const DEVICE_RUNTIME: &str = "libcudadevrt.a";

/// The offset of the pointer to the fatbinary in a wrapper.
const POINTER_AT: u64 = 8;

/// A module: relocatable device code that a device link makes part of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module<'a> {
    /// The ID, as in the names of the module's symbols: `_31f2b892_4_a_cu_table`.
    pub id: &'a str,
    /// The fatbinary with an entry for each architecture.
    pub fatbin: &'a [u8],
    /// The offset of the fatbinary in the object.
    pub at: u64,
}

/// Returns the modules in the 64-bit ELF object `data`, in the order of their code. An object has
/// several after a relocatable link. Returns none for COFF objects (nvcc for Windows) and 32-bit
/// ELF.
///
/// # Errors
/// The object is damaged, a wrapper refers to no fatbinary, or two modules share an ID or their
/// code.
pub fn modules(data: &[u8]) -> Result<Vec<Module<'_>>, Malformed> {
    let damaged = |_| Malformed::new("a damaged ELF object", 0);
    let is_object = elf::FileHeader64::<Endianness>::parse(data)
        .and_then(|header| Ok(header.e_type(header.endian()?) == elf::ET_REL));
    if !is_object.unwrap_or(false) {
        return Ok(Vec::new());
    }
    let file: ElfFile64<'_> = ElfFile64::parse(data).map_err(damaged)?;
    // `ld -r --unique` keeps several sections of one name.
    let named = |name: &'static str| {
        file.sections()
            .filter(move |section| section.name_bytes() == Ok(name.as_bytes()))
    };
    let codes: HashMap<SectionIndex, (u64, &[u8])> = named(CUDA_PRELINKED)
        .map(|section| {
            let (place, _) = section.file_range().unwrap_or_default();
            Ok((section.index(), (place, section.data()?)))
        })
        .collect::<Result<_, _>>()
        .map_err(damaged)?;
    let mut wrappers = HashMap::new();
    for section in named(CUDA_WRAPPERS).filter(|_| !codes.is_empty()) {
        let (place, _) = section.file_range().unwrap_or_default();
        let data = section.data().map_err(damaged)?;
        let pointers = pointers(&file, &section, &codes);
        wrappers.insert(section.index(), (place, data, pointers));
    }
    let mut modules = Vec::new();
    for symbol in file.symbols() {
        let name = symbol.name_bytes().map_err(damaged)?;
        let Some(id) = name.strip_prefix(WRAPPER.as_bytes()) else {
            continue;
        };
        let section = symbol
            .section_index()
            .and_then(|index| wrappers.get(&index));
        let Some((place, structs, pointers)) = section.filter(|_| symbol.is_global()) else {
            continue;
        };
        let at = place.saturating_add(symbol.address());
        let fault = |what| Malformed::new(what, at);
        let wrapper = slice(
            structs,
            symbol.address(),
            WRAPPER_SIZE,
            "the wrapper of a CUDA module past the end of its section",
            at,
        )?;
        if u32_at(wrapper, 0) != CUDA_MAGIC || u32_at(wrapper, 4) != 1 {
            return Err(fault("the wrapper of a CUDA module has an unknown version"));
        }
        let id =
            std::str::from_utf8(id).map_err(|_| fault("the ID of a CUDA module is not UTF-8"))?;
        let (code_place, fatbins, start) = *pointers
            .get(&(symbol.address() + POINTER_AT))
            .ok_or(fault("the wrapper of a CUDA module refers to no fatbinary"))?;
        let rest = slice(
            fatbins,
            start,
            (fatbins.len() as u64).saturating_sub(start),
            "the fatbinary of a CUDA module past the end of its section",
            at,
        )?;
        let place = code_place.saturating_add(start);
        let size = fatbin::size(rest).map_err(|fault| fault.shifted(place))?;
        let fatbin = slice(rest, 0, size, "fatbinary size past the end", at)?;
        modules.push(Module {
            id,
            fatbin,
            at: place,
        });
    }
    modules.sort_by_key(|module| module.at);
    // Otherwise a small file could contain any number of images.
    let ends = |module: &Module<'_>| module.at + module.fatbin.len() as u64;
    if modules
        .iter()
        .zip(modules.iter().skip(1))
        .any(|(one, next)| ends(one) > next.at)
    {
        return Err(Malformed::new("two CUDA modules share their code", 0));
    }
    let mut ids = HashSet::new();
    if modules.iter().any(|module| !ids.insert(module.id)) {
        return Err(Malformed::new("two CUDA modules have the same ID", 0));
    }
    Ok(modules)
}

/// Returns the modules that the section [`MODULE_IDS`] of an object or program lists: the ID of
/// each, and whether a device link has linked it. A device link adds the ID again, after `def `.
pub fn module_ids(section: &[u8]) -> Vec<(String, bool)> {
    const LINKED: &[u8] = b"def ";
    let texts = || {
        section
            .split(|byte| *byte == 0)
            .filter(|text| !text.is_empty())
    };
    let linked: HashSet<&[u8]> = texts()
        .filter_map(|text| text.strip_prefix(LINKED))
        .collect();
    let own: Vec<&[u8]> = texts().filter(|text| !text.starts_with(LINKED)).collect();
    let mut known = HashSet::new();
    // An object that `nvcc -dlink` makes has only the second form.
    let all = own
        .into_iter()
        .chain(texts().filter_map(|text| text.strip_prefix(LINKED)));
    all.filter(|id| known.insert(*id))
        .map(|id| (printable_name(id), linked.contains(id)))
        .collect()
}

/// The prefix of sections that list all kernels and variables that host code uses, by parts of
/// their names. In link-time optimization, nvlink removes the others.
const USED_BY_HOST: &str = ".nvHR";

/// The lists of kernels and variables that the host code of an object uses.
#[derive(Debug, Default)]
pub struct HostUses<'a>(Vec<(&'a [u8], &'a [u8])>);

impl<'a> HostUses<'a> {
    /// Reads the lists of the object `data`.
    ///
    /// # Errors
    /// The object is damaged.
    pub fn read(data: &'a [u8]) -> Result<Self, Malformed> {
        let damaged = |_| Malformed::new("a damaged ELF object", 0);
        let file: ElfFile64<'a> = ElfFile64::parse(data).map_err(damaged)?;
        let mut lists = Vec::new();
        for section in file.sections() {
            let name = section.name_bytes().map_err(damaged)?;
            if name.starts_with(USED_BY_HOST.as_bytes()) {
                lists.push((name, section.data().map_err(damaged)?));
            }
        }
        Ok(HostUses(lists))
    }

    /// Returns the size of the lists in bytes.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(_, list)| list.len()).sum()
    }
}

/// Returns a host object for nvlink, which reads code for link-time optimization only from host
/// objects. It has the entry `entry` of a fatbinary and the lists `uses`. It has no host code, so
/// that changes of host code do not change it. It is always for x86-64.
///
/// # Errors
/// The entry is too large for an object.
pub fn lto_object(
    module: &Module<'_>,
    entry: &Entry<'_>,
    uses: &HostUses<'_>,
) -> Result<Vec<u8>, Malformed> {
    let code = fatbin::of_entry(module.fatbin, entry)?;
    let mut object = write::Object::new(
        BinaryFormat::Elf,
        Architecture::X86_64,
        object::Endianness::Little,
    );
    let kind = SectionKind::ReadOnlyData;
    for (name, list) in &uses.0 {
        let copy = object.add_section(Vec::new(), name.to_vec(), kind);
        object.set_section_data(copy, list.to_vec(), 1);
    }
    let own = object.add_section(Vec::new(), CUDA_PRELINKED.into(), kind);
    object.set_section_data(own, code, 8);
    let wrappers = object.add_section(Vec::new(), CUDA_WRAPPERS.into(), SectionKind::Data);
    let mut wrapper = [CUDA_MAGIC.to_le_bytes(), 1u32.to_le_bytes()].concat();
    wrapper.resize(WRAPPER_SIZE as usize, 0);
    object.set_section_data(wrappers, wrapper, 8);
    object.add_symbol(write::Symbol {
        name: format!("{WRAPPER}{}", module.id).into_bytes(),
        value: 0,
        size: WRAPPER_SIZE,
        kind: SymbolKind::Data,
        scope: SymbolScope::Linkage,
        weak: false,
        section: write::SymbolSection::Section(wrappers),
        flags: SymbolFlags::None,
    });
    let symbol = object.section_symbol(own);
    let pointer = write::Relocation {
        offset: POINTER_AT,
        symbol,
        addend: 0,
        flags: RelocationFlags::Generic {
            kind: RelocationKind::Absolute,
            encoding: RelocationEncoding::Generic,
            size: 64,
        },
    };
    let cannot = |_| Malformed::new("cannot write an object for a CUDA module", module.at);
    object.add_relocation(wrappers, pointer).map_err(cannot)?;
    object.write().map_err(cannot)
}

/// The target of each pointer, by the offset of the pointer: the file offset of a section, its
/// data, and the offset in the section.
type Pointers<'a> = HashMap<u64, (u64, &'a [u8], u64)>;

/// Returns the pointers in `wrappers` to the sections `codes`.
fn pointers<'a>(
    file: &ElfFile64<'a>,
    wrappers: &impl ObjectSection<'a>,
    codes: &HashMap<SectionIndex, (u64, &'a [u8])>,
) -> Pointers<'a> {
    let target = |(at, relocation): (u64, object::Relocation)| {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return None;
        };
        let symbol = file.symbol_by_index(index).ok()?;
        let start = symbol.address().checked_add_signed(relocation.addend())?;
        let (place, data) = codes.get(&symbol.section_index()?)?;
        Some((at, (*place, *data, start)))
    };
    wrappers.relocations().filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use object::write::{Object, Relocation, Symbol, SymbolSection};
    use object::{
        Architecture, BinaryFormat, RelocationEncoding, RelocationFlags, RelocationKind,
        SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    };

    use super::*;

    /// A fatbinary without entries.
    fn empty() -> Vec<u8> {
        [
            &fatbin::MAGIC[..],
            &1u16.to_le_bytes(),
            &16u16.to_le_bytes(),
            &[0; 8],
        ]
        .concat()
    }

    /// An object with modules of these IDs, whose pointers have these addends.
    fn object(modules: &[(&str, i64)], version: u32) -> Vec<u8> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let code = object.add_section(
            Vec::new(),
            CUDA_PRELINKED.as_bytes().to_vec(),
            SectionKind::Data,
        );
        let wrappers = object.add_section(
            Vec::new(),
            CUDA_WRAPPERS.as_bytes().to_vec(),
            SectionKind::Data,
        );
        let code_symbol = object.section_symbol(code);
        for (id, addend) in modules {
            object.append_section_data(code, &empty(), 8);
            let wrapper = [
                &CUDA_MAGIC.to_le_bytes()[..],
                &version.to_le_bytes(),
                &[0; 16],
            ]
            .concat();
            let at = object.append_section_data(wrappers, &wrapper, 8);
            object.add_symbol(Symbol {
                name: format!("{WRAPPER}{id}").into_bytes(),
                value: at,
                size: WRAPPER_SIZE,
                kind: SymbolKind::Data,
                scope: SymbolScope::Linkage,
                weak: false,
                section: SymbolSection::Section(wrappers),
                flags: SymbolFlags::None,
            });
            let relocation = Relocation {
                offset: at + POINTER_AT,
                symbol: code_symbol,
                addend: *addend,
                flags: RelocationFlags::Generic {
                    kind: RelocationKind::Absolute,
                    encoding: RelocationEncoding::Generic,
                    size: 64,
                },
            };
            object.add_relocation(wrappers, relocation).unwrap();
        }
        object.write().unwrap()
    }

    fn fault(object: &[u8]) -> &'static str {
        modules(object).unwrap_err().what
    }

    #[test]
    fn modules_are_found_by_their_wrappers() {
        let data = object(&[("_b", 16), ("_a", 0)], 1);
        let found = modules(&data).unwrap();
        let places: Vec<u64> = found.iter().map(|own| own.at).collect();
        assert_eq!(places[1] - places[0], 16);
        let found: Vec<_> = found.iter().map(|own| (own.id, own.fatbin)).collect();
        assert_eq!(found, [("_a", &empty()[..]), ("_b", &empty()[..])]);
        assert_eq!(modules(&object(&[], 1)).unwrap(), []);
        assert_eq!(modules(b"\x7fELF").unwrap(), []);
    }

    #[test]
    fn the_ids_of_linked_modules_are_there_twice() {
        let found = |text: &[u8]| module_ids(text);
        let named = |id: &str, linked| (id.to_owned(), linked);
        assert_eq!(
            found(b"_a\0\0\0_b\0"),
            [named("_a", false), named("_b", false)]
        );
        assert_eq!(
            found(b"def _b\0_a\0_b\0_a"),
            [named("_a", false), named("_b", true)]
        );
        assert_eq!(found(b"def _c\0"), [named("_c", true)]);
        assert_eq!(found(b""), []);
    }

    #[test]
    fn damaged_modules_are_refused() {
        for (modules, version, expected) in [
            (
                &[("_a", 0)][..],
                2,
                "the wrapper of a CUDA module has an unknown version",
            ),
            (
                &[("_a", 17)],
                1,
                "the fatbinary of a CUDA module past the end of its section",
            ),
            (&[("_a", 8)], 1, "not a fatbinary"),
            (
                &[("_a", 0), ("_a", 16)],
                1,
                "two CUDA modules have the same ID",
            ),
            (
                &[("_a", 0), ("_b", 0)],
                1,
                "two CUDA modules share their code",
            ),
        ] {
            assert_eq!(fault(&object(modules, version)), expected);
        }
    }

    #[test]
    fn any_prefix_of_an_object_is_read_without_a_panic() {
        let whole = object(&[("_a", 0), ("_b", 16)], 1);
        for len in 0..whole.len() {
            let _ = modules(&whole[..len]);
        }
    }
}
