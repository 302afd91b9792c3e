//! What the CUDA runtime must be handed: the output of `fatbinary`, then each kernel and variable (docs/spec/link-driver.md 8.3).

use super::ImageSection;
use super::entries;
use super::fatbin::{self, Becomes, Contract, NARROW_READS, WIDE_READS};
use crate::model::{Generation, OffloadKind};

/// The section that `cuobjdump` looks in. LLVM leaves the alignment to its code generator, which gives files of 16 bytes and
/// more these 16; the fatbinary's header has fields of 8.
pub const IMAGE_SECTION: ImageSection = ImageSection { name: ".nv_fatbin", align: 16, listed: false };

/// How `generation` registers CUDA code on a host whose objects are COFF or ELF.
pub fn contract(generation: Generation, coff: bool) -> Contract {
    let wide = generation.wide_entries();
    Contract {
        image_section: IMAGE_SECTION,
        wrapper_section: ".nvFatBinSegment",
        magic: 0x4662_43b1,
        handle: ".cuda.binary_handle",
        register: ".cuda.fatbin_reg",
        unregister: ".cuda.fatbin_unreg",
        globals: ".cuda.globals_reg",
        register_binary: "__cudaRegisterFatBinary",
        register_end: Some("__cudaRegisterFatBinaryEnd"),
        unregister_binary: "__cudaUnregisterFatBinary",
        bounds: entries::bounds(OffloadKind::Cuda, generation, coff),
        entry: entries::entry(generation),
        reads: if wide { WIDE_READS } else { NARROW_READS },
        // Older tables hold nothing else.
        kind: (generation == Generation::Llvm21).then_some(OffloadKind::Cuda as u16),
        becomes: Becomes {
            function: fatbin::register_function("__cudaRegisterFunction"),
            global: fatbin::register_var("__cudaRegisterVar"),
            // 32-byte entries have no room for the pointer to it.
            managed: wide.then_some(fatbin::register_managed("__cudaRegisterManagedVar")),
            // CUDA 12 has no functions for them any more.
            surface: None,
            texture: None,
        },
    }
}
