//! NVIDIA's GPUs, as cubins name them. NVIDIA does not document this format; the source is the output of `cuobjdump -elf` for
//! cubins of CUDA 11 to 13. A letter after the number means code for that one processor and no later one (`sm_90a`); code for a
//! family (`sm_100f`) is not marked in the cubin, so it is reported as that of the processor (`sm_100`), as cuobjdump does.

use super::Gpu;
use crate::formats::elf::raw::{Class, FileHeader};
use crate::formats::elf::section;
use crate::formats::kernels::cubin::attributes;
use anyhow::Result;

/// From this ABI version on (CUDA 12.8 for `sm_100`, CUDA 13 for all), `e_flags` has another layout.
const SECOND_LAYOUT: u8 = 8;
/// The flag for code that runs on one processor only, before and since that version.
const ACCELERATORS_V1: u32 = 0x800;
const ACCELERATORS: u32 = 0x8;
/// CUDA 13 no longer sets that flag. Instead, this section has this attribute with the value 1.
const COMPATIBILITY: &[u8] = b".nv.compat";
const ACCELERATOR_TARGET: u8 = 9;

/// The GPU that the header of the cubin `image` names.
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
