//! Kernels of ELF device images with their resource use, from AMD's metadata note or NVIDIA's
//! `.nv.info` sections. For CPUs, only names and sizes are known.
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
pub(crate) mod object_calls;
#[cfg(test)]
mod tests;

use anyhow::{Result, bail};
use object::elf;
use object::read::elf::{FileHeader, SectionTable, Sym};
use object::{Endianness, FileKind};

use crate::error::Error;
use crate::model::printable;
pub(crate) use demangle::{OPENMP_PREFIX, SourceName};

/// A kernel. Values that the image does not contain are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Kernel {
    /// The name in the image, possibly mangled.
    pub name: String,
    /// The name in the source, if the name in the image is mangled.
    pub demangled: Option<String>,
    /// The code size in bytes.
    pub code_size: Option<u64>,
    /// NVIDIA: registers per thread.
    pub registers: Option<u64>,
    /// AMD: vector registers.
    pub vgprs: Option<u64>,
    /// AMD: accumulation registers.
    pub agprs: Option<u64>,
    /// AMD: scalar registers.
    pub sgprs: Option<u64>,
    /// AMD: vector registers spilled to scratch memory.
    pub spilled_vgprs: Option<u64>,
    /// AMD: spilled scalar registers.
    pub spilled_sgprs: Option<u64>,
    /// The statically allocated memory of a workgroup in bytes: AMD's LDS, NVIDIA's shared memory.
    pub shared: Option<u64>,
    /// The memory of each work item or thread in bytes: AMD's scratch, NVIDIA's stack.
    pub scratch: Option<u64>,
    /// The size of the arguments in bytes.
    pub arguments: Option<u64>,
    /// The largest workgroup size that the kernel was compiled for.
    pub max_workgroup: Option<u64>,
}

/// Returns the kernels of the ELF file `image`, in its order. Fails if the data about kernels is
/// damaged.
pub fn read(image: &[u8]) -> Result<Vec<Kernel>, Error> {
    let kernels = FileKind::parse(image)
        .map_err(Into::into)
        .and_then(|kind| match kind {
            FileKind::Elf32 => kernels_of::<elf::FileHeader32<Endianness>>(image),
            _ => kernels_of::<elf::FileHeader64<Endianness>>(image),
        });
    let mut kernels = kernels.map_err(Error::malformed)?;
    demangle::all(&mut kernels, image.len());
    Ok(kernels)
}

/// The name of a kernel in its source, or `None` if `name` is not mangled.
pub(crate) fn demangled(name: &str) -> Option<String> {
    demangle::name(name)
}

/// The name of a kernel for messages: the name in the source if known, else the one in the image.
pub(crate) fn shown_name(name: &str) -> String {
    printable(&demangled(name).unwrap_or_else(|| name.to_owned())).into_owned()
}

fn kernels_of<Elf: FileHeader<Endian = Endianness>>(image: &[u8]) -> Result<Vec<Kernel>> {
    let header = Elf::parse(image)?;
    let endian = header.endian()?;
    let elf = Image {
        data: image,
        header,
        endian,
        sections: header.sections(endian, image)?,
    };
    match header.e_machine(endian) {
        elf::EM_AMDGPU => amdgpu::kernels(&elf),
        elf::EM_CUDA => cubin::kernels(&elf),
        _ => cpu::kernels(&elf),
    }
}

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
    /// The index of the symbol.
    symbol: usize,
}

impl<'a, Elf: FileHeader<Endian = Endianness>> Image<'a, Elf> {
    /// The functions of these types in one of the symbol tables, in its order. Symbols without a
    /// UTF-8 name are skipped.
    fn functions_of_type(
        &self,
        table: elf::SectionType,
        types: &[elf::SymbolType],
    ) -> Result<Vec<Function<'a>>> {
        let symbols = self.sections.symbols(self.endian, self.data, table)?;
        let mut functions = Vec::new();
        let mut names = 0;
        for (index, symbol) in symbols.enumerate() {
            if !types.contains(&symbol.st_type()) || symbol.st_shndx(self.endian) == elf::SHN_UNDEF
            {
                continue;
            }
            let Ok(name) = std::str::from_utf8(symbols.symbol_name(self.endian, symbol)?) else {
                continue;
            };
            // Names may share suffixes, but a table in which they share most of their bytes is
            // damaged.
            names += name.len();
            if names / 4 > self.data.len() {
                bail!("symbol names are longer than the file");
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
