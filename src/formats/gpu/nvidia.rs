//! NVIDIA GPUs in cubins. NVIDIA does not document the format; the source is the output of
//! `cuobjdump -elf` for cubins of CUDA 11 to 13.
//!
//! A letter after the number means code for that processor only, not for later ones (`sm_90a`).
//! Cubins do not mark code for a family (`sm_100f`), so it is reported as `sm_100`, as in
//! cuobjdump.

use super::Gpu;
use crate::formats::elf::raw::{Class, FileHeader};
use crate::formats::elf::section;
use crate::formats::kernels::cubin::attributes;
use anyhow::Result;

/// The first ABI version with another layout of `e_flags` (CUDA 12.8 for `sm_100`, CUDA 13 for
/// all).
const SECOND_LAYOUT: u8 = 8;
/// The flag for code that runs on one processor only, in the first and in the second layout.
const ACCELERATORS_V1: u32 = 0x800;
const ACCELERATORS: u32 = 0x8;
/// The first processor that has code for it alone.
const FIRST_EXACT: u32 = 90;
/// CUDA 13 no longer sets that flag. Instead, this section has this attribute with the value 1.
const COMPATIBILITY: &[u8] = b".nv.compat";
const ACCELERATOR_TARGET: u8 = 9;

/// The GPU according to the header of the cubin `image`.
pub(super) fn of_header(image: &[u8], class: Class, header: &FileHeader) -> Result<Gpu> {
    let flags = header.flags.0;
    let (number, exact) = if header.ident.abi_version < SECOND_LAYOUT {
        (flags & 0xff, flags & ACCELERATORS_V1 != 0)
    } else {
        (
            flags >> 8 & 0xff,
            flags & ACCELERATORS != 0 || has_attribute(image)?,
        )
    };
    // Some cubins for earlier processors have that flag, too: those for SGEMM in cuBLAS.
    let exact = exact && number >= FIRST_EXACT;
    let triple = if class.is_64 {
        "nvptx64-nvidia-cuda"
    } else {
        "nvptx-nvidia-cuda"
    };
    let letter = if exact { "a" } else { "" };
    Ok(Gpu {
        processor: format!("sm_{number}{letter}"),
        ..Gpu::of_triple(triple)
    })
}

fn has_attribute(image: &[u8]) -> Result<bool> {
    let Some(contents) = section(image, COMPATIBILITY)? else {
        return Ok(false);
    };
    let all = attributes(contents, ".nv.compat")?;
    Ok(all
        .iter()
        .any(|(attribute, value)| *attribute == ACCELERATOR_TARGET && value.first() == Some(&1)))
}
