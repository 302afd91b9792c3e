//! Registration with the CUDA runtime: the output of `fatbinary`, then each kernel and variable
//! (docs/spec/link-driver.md 8.3).

use super::ImageSection;
use super::entries;
use super::fatbin::{self, Becomes, Contract, NARROW_READS, WIDE_READS};
use crate::formats::offload_sections::{CUDA_FATBINARIES, CUDA_WRAPPERS};
use crate::model::{Generation, OffloadKind};

/// The section that `cuobjdump` searches. The alignment is that of LLVM's code generator for arrays
/// of 16 bytes and more; the fields of a fatbinary's header need 8.
pub const IMAGE_SECTION: ImageSection = ImageSection {
    name: CUDA_FATBINARIES,
    align: 16,
    listed: false,
};

/// The runtime's function that takes the struct and returns a handle.
pub const REGISTER_BINARY: &str = "__cudaRegisterFatBinary";

/// Returns the registration of CUDA code in `generation`. `coff` selects a host with COFF instead
/// of ELF objects.
pub fn contract(generation: Generation, coff: bool) -> Contract {
    let has_wide_entries = generation.wide_entries();
    Contract {
        image_section: IMAGE_SECTION,
        wrapper_section: CUDA_WRAPPERS,
        magic: 0x4662_43b1,
        handle: ".cuda.binary_handle",
        register: ".cuda.fatbin_reg",
        unregister: ".cuda.fatbin_unreg",
        globals: ".cuda.globals_reg",
        register_binary: REGISTER_BINARY,
        register_end: Some("__cudaRegisterFatBinaryEnd"),
        unregister_binary: "__cudaUnregisterFatBinary",
        bounds: entries::bounds(OffloadKind::Cuda, generation, coff),
        entry: entries::entry(generation),
        reads: if has_wide_entries {
            WIDE_READS
        } else {
            NARROW_READS
        },
        // Since LLVM 21 all kinds share one table. An older table contains only CUDA's entries.
        kind: (generation == Generation::Llvm21).then_some(OffloadKind::Cuda as u16),
        becomes: Becomes {
            function: fatbin::register_function("__cudaRegisterFunction"),
            global: fatbin::register_var("__cudaRegisterVar"),
            // 32-byte entries have no field for the pointer to a managed variable.
            managed: has_wide_entries
                .then_some(fatbin::register_managed("__cudaRegisterManagedVar")),
            // CUDA 12 removed the functions that register surfaces and textures.
            surface: None,
            texture: None,
        },
    }
}
