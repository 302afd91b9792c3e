//! The kernels of a device image that is an ELF file, with what they take of the device: as AMD's metadata note tells it, as
//! NVIDIA's `.nv.info` sections do, or, for a CPU, names and sizes alone.
//!
//! ```
//! use object::write::Object;
//! use object::{Architecture, BinaryFormat, Endianness, SectionKind};
//! use object::write::{Symbol, SymbolSection};
//! use object::{SymbolFlags, SymbolKind, SymbolScope};
//!
//! // Code of a CPU as device, with one target region.
//! let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
//! let section = object.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
//! object.set_section_data(section, vec![0xc3], 16);
//! object.add_symbol(Symbol {
//!     name: b"__omp_offloading_10_2_main_l3".to_vec(),
//!     value: 0,
//!     size: 1,
//!     kind: SymbolKind::Text,
//!     scope: SymbolScope::Dynamic,
//!     weak: false,
//!     section: SymbolSection::Section(section),
//!     flags: SymbolFlags::None,
//! });
//! let kernels = offld::formats::kernels::read(&object.write()?)?;
//! assert_eq!((kernels[0].name.as_str(), kernels[0].code_size), ("__omp_offloading_10_2_main_l3", Some(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amdgpu;
mod cpu;
pub(super) mod cubin;
mod demangle;
#[cfg(test)]
mod tests;

use anyhow::{Result, bail};
use object::elf;
use object::read::elf::{FileHeader, SectionTable, Sym};
use object::{Endianness, FileKind};

use crate::error::Error;

/// A kernel. Values that its image does not have are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Kernel {
    /// Its name, mangled as in the image.
    pub name: String,
    /// Its name as the source has it, if it is mangled.
    pub demangled: Option<String>,
    /// The size of its code in bytes.
    pub code_size: Option<u64>,
    /// NVIDIA: registers of a thread.
    pub registers: Option<u64>,
    /// AMD: vector registers.
    pub vgprs: Option<u64>,
    /// AMD: accumulation registers.
    pub agprs: Option<u64>,
    /// AMD: scalar registers.
    pub sgprs: Option<u64>,
    /// AMD: vector registers spilled to scratch memory.
    pub spilled_vgprs: Option<u64>,
    /// AMD: scalar registers spilled.
    pub spilled_sgprs: Option<u64>,
    /// Bytes of memory that a workgroup shares, known when it was compiled: AMD's LDS, NVIDIA's shared memory.
    pub shared: Option<u64>,
    /// Bytes of memory of each work item or thread: AMD's scratch, NVIDIA's stack.
    pub scratch: Option<u64>,
    /// Bytes of arguments.
    pub arguments: Option<u64>,
    /// The largest workgroup it was compiled for.
    pub max_workgroup: Option<u64>,
}

/// The kernels of the ELF file `image`, in the order of the image. None where it has no kernels, and an error where what should
/// tell of them is damaged.
pub fn read(image: &[u8]) -> Result<Vec<Kernel>, Error> {
    let kernels = FileKind::parse(image).map_err(Into::into).and_then(|kind| match kind {
        FileKind::Elf32 => of::<elf::FileHeader32<Endianness>>(image),
        _ => of::<elf::FileHeader64<Endianness>>(image),
    });
    let mut kernels = kernels.map_err(Error::malformed)?;
    demangle::all(&mut kernels, image.len());
    Ok(kernels)
}

/// The name of a kernel as its source has it; none if it is not mangled.
pub(crate) fn demangled(name: &str) -> Option<String> {
    demangle::name(name)
}

fn of<Elf: FileHeader<Endian = Endianness>>(image: &[u8]) -> Result<Vec<Kernel>> {
    let header = Elf::parse(image)?;
    let endian = header.endian()?;
    let elf = Image { data: image, header, endian, sections: header.sections(endian, image)? };
    match header.e_machine(endian) {
        elf::EM_AMDGPU => amdgpu::kernels(&elf),
        elf::EM_CUDA => cubin::kernels(&elf),
        _ => cpu::kernels(&elf),
    }
}

/// A device image that is being read.
struct Image<'a, Elf: FileHeader<Endian = Endianness>> {
    data: &'a [u8],
    header: &'a Elf,
    endian: Endianness,
    sections: SectionTable<'a, Elf>,
}

/// A function that an image defines.
struct Function<'a> {
    name: &'a str,
    kind: elf::SymbolType,
    size: u64,
    /// `st_other`.
    other: u8,
    /// The index of its symbol.
    symbol: usize,
}

impl<'a, Elf: FileHeader<Endian = Endianness>> Image<'a, Elf> {
    /// The functions, of these types, in one of the symbol tables, in its order. Symbols without a name that is text are passed
    /// over.
    fn functions_of_type(&self, table: elf::SectionType, types: &[elf::SymbolType]) -> Result<Vec<Function<'a>>> {
        let symbols = self.sections.symbols(self.endian, self.data, table)?;
        let mut functions = Vec::new();
        let mut names = 0;
        for (index, symbol) in symbols.enumerate() {
            if !types.contains(&symbol.st_type()) || symbol.st_shndx(self.endian) == elf::SHN_UNDEF {
                continue;
            }
            let Ok(name) = std::str::from_utf8(symbols.symbol_name(self.endian, symbol)?) else { continue };
            // Names may share their ends, but not all of them all of it.
            names += name.len();
            if names / 4 > self.data.len() {
                bail!("the names of its symbols are longer than the file");
            }
            functions.push(Function {
                name,
                kind: symbol.st_type(),
                size: symbol.st_size(self.endian).into(),
                other: symbol.st_other().0,
                symbol: index.0,
            });
        }
        Ok(functions)
    }
}
