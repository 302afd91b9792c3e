//! Code that loads images from files beside the program. It is written in C
//! (`external_images/loader.c`), and linked into the module as LLVM IR.

use anyhow::{Context as _, Result, anyhow, bail};
use inkwell::builder::Builder;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Linkage;
use inkwell::targets::ByteOrdering;
use inkwell::types::BasicType;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FunctionValue, PointerValue};

use super::emit::Emitter;

/// The code, made by `scripts/external-images.sh`.
const LOADER: &str = include_str!("external_images/loader.ll");
/// Loads the images of OpenMP. The fatbinary contracts name the functions of CUDA and HIP.
const OPENMP: &str = "offld_external_openmp";
/// Removes the images from memory.
const UNLOAD: &str = "offld_external_unload";

/// Emits the call that fills `rows` with the images of OpenMP that `table` lists. Returns their
/// number.
pub(super) fn load_openmp<'ctx>(
    emitter: &Emitter<'ctx, '_>,
    builder: &Builder<'ctx>,
    table: &str,
    rows: PointerValue<'ctx>,
) -> Result<BasicValueEnum<'ctx>> {
    let pointer = emitter.pointer().into();
    let kind = emitter
        .context
        .i32_type()
        .fn_type(&[pointer, pointer], false);
    let function = emitter.module.add_function(OPENMP, kind, None);
    let table = table_address(emitter, table);
    call(builder, function, &[table.into(), rows.into()])
}

/// Emits the call of `function`, which makes one file for a runtime from the images that `table`
/// lists. Returns its address.
pub(super) fn load<'ctx>(
    emitter: &Emitter<'ctx, '_>,
    builder: &Builder<'ctx>,
    function: &str,
    table: &str,
) -> Result<BasicValueEnum<'ctx>> {
    let pointer = emitter.pointer();
    let kind = pointer.fn_type(&[pointer.into()], false);
    let function = emitter.module.add_function(function, kind, None);
    let table = table_address(emitter, table);
    call(builder, function, &[table.into()])
}

/// Emits the call that removes the images from memory.
pub(super) fn unload<'ctx>(emitter: &Emitter<'ctx, '_>, builder: &Builder<'ctx>) -> Result<()> {
    let kind = emitter.context.void_type().fn_type(&[], false);
    let function = emitter.module.add_function(UNLOAD, kind, None);
    builder.build_call(function, &[], "")?;
    Ok(())
}

fn table_address<'ctx>(emitter: &Emitter<'ctx, '_>, table: &str) -> PointerValue<'ctx> {
    let kind = emitter.byte_array(0).as_basic_type_enum();
    emitter.elsewhere(table, kind).as_pointer_value()
}

fn call<'ctx>(
    builder: &Builder<'ctx>,
    function: FunctionValue<'ctx>,
    arguments: &[BasicMetadataValueEnum<'ctx>],
) -> Result<BasicValueEnum<'ctx>> {
    let call = builder.build_call(function, arguments, "")?;
    call.try_as_basic_value().basic().context("no value")
}

/// Adds the code to the module. LLVM adds only the functions and constants that the module uses.
pub(super) fn link_loader(emitter: &Emitter<'_, '_>) -> Result<()> {
    let (module, host) = (&emitter.module, emitter.host);
    let is_64_bit_linux = host.data.get_pointer_byte_size(None) == 8
        && host.data.get_byte_ordering() == ByteOrdering::LittleEndian
        && !host.coff;
    if !is_64_bit_linux {
        bail!("images in files need a 64-bit little-endian host with ELF files");
    }
    let text = MemoryBuffer::create_from_memory_range_copy(LOADER.as_bytes(), "loader.ll");
    let loader = emitter
        .context
        .create_module_from_ir(text)
        .map_err(|error| anyhow!("{error}"))?;
    loader.set_triple(&module.get_triple());
    loader.set_data_layout(&module.get_data_layout());
    let mut names = Vec::new();
    for function in loader.get_functions() {
        if function.count_basic_blocks() == 0 {
            continue;
        }
        emitter.add_attributes(function);
        if function.get_linkage() == Linkage::External {
            // LLVM leaves out such functions if nothing calls them.
            function.set_linkage(Linkage::LinkOnceODR);
            names.push(function.get_name().to_owned());
        }
    }
    module
        .link_in_module(loader)
        .map_err(|error| anyhow!("{error}"))?;
    for name in names {
        let function = name
            .to_str()
            .ok()
            .and_then(|name| module.get_function(name));
        if let Some(function) = function {
            function.set_linkage(Linkage::Internal);
        }
    }
    Ok(())
}
