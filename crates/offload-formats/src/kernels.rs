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
//! let kernels = offload_formats::kernels::read(&object.write()?)?;
//! assert_eq!((kernels[0].name.as_str(), kernels[0].code_size), ("__omp_offloading_10_2_main_l3", Some(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amdgpu;
pub mod code;
mod demangle;
pub mod object_calls;
pub mod occupancy;

use std::collections::HashMap;

use anyhow::{Result, anyhow, bail};
use object::elf;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, FileKind};

use crate::bytes::{u16_at, u32_at};
use crate::error::Error;
use crate::model::printable;
pub use demangle::{OPENMP_PREFIX, SourceName};

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
    /// AMD: the number of work items in a wave.
    pub wave_size: Option<u64>,
    /// AMD: 1 if workgroups run on a workgroup processor, 0 if they run on a compute unit. From gfx10
    /// on.
    pub workgroup_processor_mode: Option<u64>,
    /// NVIDIA: the barriers of a block.
    pub barriers: Option<u64>,
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
pub fn demangled(name: &str) -> Option<String> {
    demangle::name(name)
}

/// The name of a kernel for messages: the name in the source if known, else the one in the image.
pub fn shown_name(name: &str) -> String {
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
        elf::EM_CUDA => cubin_kernels(&elf),
        _ => cpu_kernels(&elf),
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

// Kernels of CPU images: the functions that compilers generate for OpenMP target regions,
// identified by the prefix of their names.

fn cpu_kernels<Elf: FileHeader<Endian = Endianness>>(elf: &Image<'_, Elf>) -> Result<Vec<Kernel>> {
    // Runtimes look kernels up by name, so the kernels of a linked image are dynamic symbols.
    let is_linked = elf.header.e_type(elf.endian) == elf::ET_DYN;
    let table = if is_linked {
        elf::SHT_DYNSYM
    } else {
        elf::SHT_SYMTAB
    };
    let functions = elf.functions_of_type(table, &[elf::STT_FUNC])?;
    // Names with a dot are functions that the kernel calls.
    let kernels = functions.into_iter().filter(|function| {
        function.name.starts_with(OPENMP_PREFIX) && !function.name.contains('.')
    });
    let kernel = kernels.map(|function| Kernel {
        name: function.name.to_owned(),
        code_size: Some(function.size),
        ..Kernel::default()
    });
    Ok(kernel.collect())
}

// Kernels of NVIDIA GPUs, from a cubin. NVIDIA does not document the format; the source is the
// output of `cuobjdump -res-usage` for cubins of CUDA 11 to 13.
//
// `.nv.info` has the registers and stack of every function, `.nv.info.<name>` the other resources
// of a kernel. The size of `.nv.shared.<name>` is its shared memory. Before CUDA 12.8, the section
// header of the code also has the registers.

/// The bit of a symbol's `st_other` that distinguishes a kernel from a function that kernels call.
const STO_CUDA_ENTRY: u8 = 0x10;
/// Attributes of `.nv.info`.
const PARAMETERS_SIZE: u8 = 0x19;
const MAX_THREADS: u8 = 0x05;
const MIN_STACK_SIZE: u8 = 0x12;
const REGISTERS: u8 = 0x2f;
const BARRIERS: u8 = 0x4c;
const UNKNOWN: u32 = u32::MAX;

fn cubin_kernels<Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'_, Elf>,
) -> Result<Vec<Kernel>> {
    let sections = cubin_sections(elf)?;
    let all = cubin_attributes(
        sections.get(".nv.info").map_or(&[], |section| section.data),
        ".nv.info",
    )?;
    // Registers and stack are pairs of a symbol and a number. The stack size of a recursive kernel
    // is unknown.
    let pairs: HashMap<(u8, u32), u32> = all
        .iter()
        .rev()
        .map(|(attribute, value)| ((*attribute, u32_at(value, 0)), u32_at(value, 4)))
        .collect();
    let symbol_value = |attribute: u8, symbol: usize| {
        pairs
            .get(&(attribute, symbol as u32))
            .filter(|value| **value != UNKNOWN)
            .map(|value| u64::from(*value))
    };
    let mut kernels = Vec::new();
    for function in elf.functions_of_type(elf::SHT_SYMTAB, &[elf::STT_FUNC])? {
        if function.other & STO_CUDA_ENTRY == 0 {
            continue;
        }
        let section = |prefix: &str| sections.get(format!("{prefix}{}", function.name).as_str());
        let own = cubin_attributes(
            section(".nv.info.").map_or(&[], |section| section.data),
            ".nv.info",
        )?;
        let kernel_value = |attribute: u8| {
            own.iter()
                .find(|(own, _)| *own == attribute)
                .map(|(_, value)| *value)
        };
        let in_header = section(".text.")
            .map(|section| u64::from(section.info >> 24))
            .filter(|count| *count > 0);
        kernels.push(Kernel {
            name: function.name.to_owned(),
            code_size: Some(function.size),
            registers: symbol_value(REGISTERS, function.symbol).or(in_header),
            shared: Some(section(".nv.shared.").map_or(0, |section| section.size)),
            scratch: symbol_value(MIN_STACK_SIZE, function.symbol),
            barriers: kernel_value(BARRIERS)
                .and_then(|value| value.first())
                .map(|count| u64::from(*count)),
            arguments: kernel_value(PARAMETERS_SIZE).map(|value| u16_at(value, 0).into()),
            max_workgroup: kernel_value(MAX_THREADS).map(|size| {
                [0, 4, 8]
                    .map(|at| u64::from(u32_at(size, at)).max(1))
                    .iter()
                    .product()
            }),
            ..Kernel::default()
        });
    }
    Ok(kernels)
}

struct CubinSection<'a> {
    data: &'a [u8],
    size: u64,
    info: u32,
}

fn cubin_sections<'a, Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'a, Elf>,
) -> Result<HashMap<&'a str, CubinSection<'a>>> {
    let mut all = HashMap::new();
    for section in elf.sections.iter() {
        let Ok(name) = std::str::from_utf8(elf.sections.section_name(elf.endian, section)?) else {
            continue;
        };
        let data = if name.starts_with(".nv.info") {
            section.data(elf.endian, elf.data)?
        } else {
            &[]
        };
        let (size, info) = (
            section.sh_size(elf.endian).into(),
            section.sh_info(elf.endian),
        );
        all.insert(name, CubinSection { data, size, info });
    }
    Ok(all)
}

/// Returns the attributes in `data`, the contents of `section`, with their values. `section` is
/// `.nv.info` or another one with this format. An attribute starts with the format of the value and
/// the attribute's number, one byte each. Then comes the value in two bytes, or its size in two
/// bytes followed by the value.
pub(crate) fn cubin_attributes<'a>(
    mut data: &'a [u8],
    section: &str,
) -> Result<Vec<(u8, &'a [u8])>> {
    const VALUE_FOLLOWS: u8 = 4;
    let damaged = || anyhow!("damaged section {section}");
    let mut all = Vec::new();
    while !data.is_empty() {
        let [format, attribute, short @ ..] = data.split_off(..4).ok_or_else(damaged)? else {
            return Err(damaged());
        };
        let value = if *format == VALUE_FOLLOWS {
            data.split_off(..usize::from(u16_at(short, 0)))
                .ok_or_else(damaged)?
        } else {
            short
        };
        all.push((*attribute, value));
    }
    Ok(all)
}

/// Tests of damaged images. `tests/suite` compares results for intact images with the vendors'
/// tools.
#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::reference::{Outcome, run, tools};

    const SOURCE: &str = "__attribute__((amdgpu_kernel)) void first(int *a) { a[1] = 2; }\n\
                          __attribute__((amdgpu_kernel)) void second(int *a) { a[3] = a[4]; }\n";

    /// `source` as a code object for gfx90a.
    fn compiled(clang: &Path, source: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("k.c"), source)?;
        run(
            clang,
            dir.path(),
            [
                "--target=amdgcn-amd-amdhsa",
                "-mcpu=gfx90a",
                "-nogpulib",
                "-O1",
                "k.c",
                "-o",
                "k.co",
            ],
        )?;
        Ok(std::fs::read(dir.path().join("k.co"))?)
    }

    #[test]
    fn damaged_images_are_errors_or_other_kernels() -> Outcome {
        let Some([clang]) = tools(["clang"]) else {
            return Ok(());
        };
        let image = compiled(&clang, SOURCE)?;
        let kernels = read(&image)?;
        let summary: Vec<_> = kernels
            .iter()
            .map(|kernel| {
                (
                    kernel.name.as_str(),
                    kernel.arguments,
                    kernel.code_size > Some(0),
                )
            })
            .collect();
        assert_eq!(
            summary,
            [("first", Some(8), true), ("second", Some(8), true)]
        );
        for len in (0..image.len()).step_by(37) {
            let _ = read(&image[..len]);
        }
        // Each byte of the note's first kernel, and every seventh of the rest.
        let note = image
            .windows(6)
            .position(|word| word == b"AMDGPU")
            .ok_or("no note")?;
        for at in (note..note + 600).chain((0..image.len()).step_by(7)) {
            for value in [0, 0x7f, 0xdf, 0xff] {
                let mut changed = image.clone();
                changed[at] = value;
                let _ = read(&changed);
            }
        }
        Ok(())
    }

    /// ROCr's own kernels (code object version 1) have notes padded to four bytes in a section that
    /// is aligned to eight.
    #[test]
    fn notes_are_padded_to_four_bytes_whatever_their_section_says() -> Outcome {
        let Some([clang]) = tools(["clang"]) else {
            return Ok(());
        };
        let note = r#"__asm__(".section .note,\"a\",@note\n.p2align 3\n.long 4, 12, 2\n.asciz \"AMD\"\n.zero 12\n.text");"#;
        let kernels = read(&compiled(&clang, &format!("{note}\n{SOURCE}"))?)?;
        let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        Ok(())
    }

    #[test]
    fn a_cubin_with_truncated_attributes_is_an_error() {
        // `.nv.info`: an attribute with a value of 16 bytes, of which 4 are present.
        assert!(cubin_attributes(&[4, 0x2f, 16, 0, 1, 2, 3, 4], ".nv.info").is_err());
        assert_eq!(
            cubin_attributes(&[4, 0x2f, 2, 0, 1, 2, 3, 0x19, 8, 0], ".nv.info").unwrap(),
            [(0x2f, &[1, 2][..]), (0x19, &[8, 0])]
        );
        assert!(cubin_attributes(&[4, 0x2f, 2], ".nv.info").is_err());
    }
}
