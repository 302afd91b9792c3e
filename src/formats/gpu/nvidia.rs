//! NVIDIA's GPUs, as cubins name them. NVIDIA documents none of it; what is read here is what `cuobjdump -elf` tells of cubins of
//! CUDA 11 to 13. A letter after the number means code for that one processor and no later one (`sm_90a`); code for a family
//! (`sm_100f`) has no mark of it in the cubin, so it is told, by cuobjdump too, as that of the processor (`sm_100`).

use super::Gpu;
use crate::formats::elf::raw::{Class, FileHeader};
use crate::formats::elf::section;
use crate::formats::kernels::cubin::attributes;
use anyhow::Result;

/// From this ABI version on (CUDA 12.8 for `sm_100`, CUDA 13 for all), the fields of `e_flags` stand elsewhere.
const SECOND_LAYOUT: u8 = 8;
/// Code for this one processor, before and since.
const ACCELERATORS_V1: u32 = 0x800;
const ACCELERATORS: u32 = 0x8;
/// CUDA 13 no longer sets that flag. It has this attribute instead, which is 1, in a section of such.
const COMPATIBILITY: &[u8] = b".nv.compat";
const ACCELERATOR_TARGET: u8 = 9;

/// What the header of the cubin `image` says.
pub(super) fn of_header(image: &[u8], class: Class, header: &FileHeader) -> Result<Gpu> {
    let flags = header.flags.0;
    let (number, exact) = if header.ident.abi_version < SECOND_LAYOUT {
        (flags & 0xff, flags & ACCELERATORS_V1 != 0)
    } else {
        (flags >> 8 & 0xff, flags & ACCELERATORS != 0 || has_attribute(image)?)
    };
    let triple = if class.is_64 { "nvptx64-nvidia-cuda" } else { "nvptx-nvidia-cuda" };
    let letter = if exact { "a" } else { "" };
    Ok(Gpu { processor: format!("sm_{number}{letter}"), ..Gpu::of_triple(triple) })
}

fn has_attribute(image: &[u8]) -> Result<bool> {
    let Some(contents) = section(image, COMPATIBILITY)? else { return Ok(false) };
    let all = attributes(contents, ".nv.compat")?;
    Ok(all.iter().any(|(attribute, value)| *attribute == ACCELERATOR_TARGET && value.first() == Some(&1)))
}
