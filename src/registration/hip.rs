//! What the HIP runtime must be handed: a bundle of code objects, then each kernel and variable (docs/spec/link-driver.md 8.4).

use super::ImageSection;
use super::entries;
use super::fatbin::{self, Becomes, Contract, NARROW_READS, WIDE_READS};
use crate::model::{Generation, OffloadKind};

/// The section that ROCm's tools look in. The runtime maps the code objects of a bundle, which are aligned to pages within it; so
/// must the bundle be. clang's own HIP code does that; LLVM's wrapper leaves it at 16 bytes.
pub const IMAGE_SECTION: ImageSection = ImageSection { name: ".hip_fatbin", align: 4096, listed: false };

/// How `generation` registers HIP code on a host whose objects are COFF or ELF.
pub fn contract(generation: Generation, coff: bool) -> Contract {
    let wide = generation.wide_entries();
    Contract {
        image_section: IMAGE_SECTION,
        wrapper_section: ".hipFatBinSegment",
        // "HIPF".
        magic: 0x4849_5046,
        handle: ".hip.binary_handle",
        register: ".hip.fatbin_reg",
        unregister: ".hip.fatbin_unreg",
        globals: ".hip.globals_reg",
        register_binary: "__hipRegisterFatBinary",
        register_end: None,
        unregister_binary: "__hipUnregisterFatBinary",
        bounds: entries::bounds(OffloadKind::Hip, generation, coff),
        entry: entries::entry(generation),
        reads: if wide { WIDE_READS } else { NARROW_READS },
        // Older tables hold nothing else, and HIP's entries in them say 3 where they say something (docs/spec/faults.md F19).
        kind: (generation == Generation::Llvm21).then_some(OffloadKind::Hip as u16),
        becomes: Becomes {
            function: fatbin::register_function("__hipRegisterFunction"),
            global: fatbin::register_var("__hipRegisterVar"),
            // 32-byte entries have no room for the pointer to it.
            managed: wide.then_some(fatbin::register_managed("__hipRegisterManagedVar")),
            surface: Some(fatbin::register_surface("__hipRegisterSurface")),
            texture: Some(fatbin::register_texture("__hipRegisterTexture")),
        },
    }
}
