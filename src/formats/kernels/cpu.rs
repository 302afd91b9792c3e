//! Kernels of CPU images: the functions that compilers generate for OpenMP target regions,
//! identified by the prefix of their names.

use anyhow::Result;
use object::Endianness;
use object::elf;
use object::read::elf::FileHeader;

use super::{Image, Kernel, OPENMP_PREFIX};

pub(super) fn kernels<Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'_, Elf>,
) -> Result<Vec<Kernel>> {
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
