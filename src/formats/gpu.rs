//! The GPUs that device code is for: their processors and features, how target ids spell them, and how the ELF headers of images
//! name them. All that is known of it is here.
//!
//! ```
//! use offld::formats::gpu::TargetId;
//!
//! let id = TargetId::parse("gfx90a:sramecc+:xnack-").ok_or("malformed")?;
//! assert_eq!((id.processor, id.features["xnack"]), ("gfx90a", false));
//! assert!(TargetId::parse("gfx90a:xnack").is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amd;
mod amd_arch;
mod nvidia;
mod target_id;
#[cfg(test)]
mod tests;

pub use amd_arch::AmdArch;
pub use target_id::{TargetId, canonical_target_id, is_processor};

use crate::error::Error;
use crate::formats::elf::raw::FileHeader;
use object::elf;
use std::collections::BTreeMap;

/// Intel's graphics (`EM_INTELGT`).
pub const EM_INTELGT: elf::Machine = elf::Machine(205);

/// The GPU that an image is for, as its ELF header names it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// The triple, as LLVM spells it for such images.
    pub triple: &'static str,
    /// `gfx90a`, `sm_90a`; empty if the header names no known processor.
    pub processor: String,
    /// AMD: the features that the code fixes, and whether they are on.
    pub features: BTreeMap<&'static str, bool>,
    /// AMD: the version of a generic processor (code object version 6 on).
    pub generic_version: Option<u8>,
}

impl Gpu {
    fn of_triple(triple: &'static str) -> Self {
        Gpu { triple, processor: String::new(), features: BTreeMap::new(), generic_version: None }
    }

    /// The GPU that the ELF file `image` is for; none if it is not for a GPU. Fails if it is not an ELF file or if a section with
    /// the processor is damaged.
    pub fn of_elf(image: &[u8]) -> Result<Option<Self>, Error> {
        let (class, header) = FileHeader::read(image)?;
        Ok(Some(match header.machine {
            elf::EM_AMDGPU => amd::of_header(&header),
            elf::EM_CUDA => nvidia::of_header(image, class, &header).map_err(Error::malformed)?,
            EM_INTELGT => Gpu::of_triple("spirv64-intel"),
            _ => return Ok(None),
        }))
    }

    /// The processor with its features, `gfx90a:xnack+`.
    pub fn target_id(&self) -> String {
        TargetId { processor: &self.processor, features: self.features.clone() }.to_string()
    }
}

/// Whether ELF files for this machine are for a GPU, and for nothing else.
pub fn is_gpu(machine: elf::Machine) -> bool {
    matches!(machine, elf::EM_AMDGPU | elf::EM_CUDA | EM_INTELGT)
}
