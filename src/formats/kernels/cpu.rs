//! Kernels of an image for a CPU: the functions that compilers make from OpenMP target regions, recognized by the start of their
//! names.

use anyhow::Result;
use object::Endianness;
use object::elf;
use object::read::elf::FileHeader;

use super::{Image, Kernel};

const PREFIX: &str = "__omp_offloading_";

pub(super) fn kernels<Elf: FileHeader<Endian = Endianness>>(elf: &Image<'_, Elf>) -> Result<Vec<Kernel>> {
    // Runtimes look kernels up by name, so in a linked image they are dynamic symbols.
    let mut functions = elf.functions_of_type(elf::SHT_DYNSYM, &[elf::STT_FUNC])?;
    if functions.is_empty() {
        functions = elf.functions_of_type(elf::SHT_SYMTAB, &[elf::STT_FUNC])?;
    }
    // Names with a dot are functions that the kernel calls.
    let kernels = functions.into_iter().filter(|function| function.name.starts_with(PREFIX) && !function.name.contains('.'));
    let kernel =
        kernels.map(|function| Kernel { name: function.name.to_owned(), code_size: Some(function.size), ..Kernel::default() });
    Ok(kernel.collect())
}
