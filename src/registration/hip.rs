//! Registration with the HIP runtime: a bundle of code objects, then each kernel and variable
//! (docs/spec/link-driver.md 8.4).

use super::ImageSection;
use super::entries;
use super::fatbin::{self, Becomes, Contract, NARROW_READS, WIDE_READS};
use crate::formats::offload_sections::{HIP_BUNDLES, HIP_WRAPPERS};
use crate::model::{Generation, OffloadKind};

/// The section that ROCm's tools search. The runtime maps the code objects of a bundle into memory.
/// They are aligned to pages within the bundle, so the bundle must be aligned to a page as well.
/// clang aligns its own HIP code to pages; LLVM's wrapper aligns to 16 bytes.
pub const IMAGE_SECTION: ImageSection = ImageSection {
    name: HIP_BUNDLES,
    align: 4096,
    listed: false,
};

/// The runtime's function that takes the struct and returns a handle.
pub const REGISTER_BINARY: &str = "__hipRegisterFatBinary";

/// Returns the registration of HIP code in `generation`. `coff` selects a host with COFF instead of
/// ELF objects.
pub fn contract(generation: Generation, coff: bool) -> Contract {
    let has_wide_entries = generation.wide_entries();
    Contract {
        image_section: IMAGE_SECTION,
        wrapper_section: HIP_WRAPPERS,
        // "HIPF".
        magic: 0x4849_5046,
        handle: ".hip.binary_handle",
        register: ".hip.fatbin_reg",
        unregister: ".hip.fatbin_unreg",
        globals: ".hip.globals_reg",
        register_binary: REGISTER_BINARY,
        register_end: None,
        unregister_binary: "__hipUnregisterFatBinary",
        bounds: entries::bounds(OffloadKind::Hip, generation, coff),
        entry: entries::entry(generation),
        reads: if has_wide_entries {
            WIDE_READS
        } else {
            NARROW_READS
        },
        // Since LLVM 21 all kinds share one table. An older table contains only HIP's entries,
        // whose kind, if they have one, is 3 (docs/spec/faults.md F19).
        kind: (generation == Generation::Llvm21).then_some(OffloadKind::Hip as u16),
        becomes: Becomes {
            function: fatbin::register_function("__hipRegisterFunction"),
            global: fatbin::register_var("__hipRegisterVar"),
            // 32-byte entries have no field for the pointer to a managed variable.
            managed: has_wide_entries
                .then_some(fatbin::register_managed("__hipRegisterManagedVar")),
            surface: Some(fatbin::register_surface("__hipRegisterSurface")),
            texture: Some(fatbin::register_texture("__hipRegisterTexture")),
        },
    }
}
