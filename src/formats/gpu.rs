//! GPUs and their spellings: processors and features, their form in target IDs, and their encoding
//! in the ELF headers of images.
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
mod amd_processors;
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

/// Intel GPUs (`EM_INTELGT`).
pub const EM_INTELGT: elf::Machine = elf::Machine(205);

/// The GPU of an image, according to its ELF header.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// The triple in LLVM's spelling for such images.
    pub triple: &'static str,
    /// The processor: `gfx90a`, `sm_90a`. Empty if the header has no known processor.
    pub processor: String,
    /// AMD: the features that the code requires, and whether they are on.
    pub features: BTreeMap<&'static str, bool>,
    /// AMD: the version of a generic processor (since code object version 6).
    pub generic_version: Option<u8>,
}

impl Gpu {
    fn of_triple(triple: &'static str) -> Self {
        Gpu {
            triple,
            processor: String::new(),
            features: BTreeMap::new(),
            generic_version: None,
        }
    }

    /// The GPU of the ELF file `image`, or `None` if it is not for a GPU. Fails if `image` is not
    /// an ELF file or if a section that names the processor is damaged.
    pub fn of_elf(image: &[u8]) -> Result<Option<Self>, Error> {
        let (class, header) = FileHeader::read(image)?;
        Ok(Some(match header.machine {
            elf::EM_AMDGPU => amd::of_header(&header),
            elf::EM_CUDA => nvidia::of_header(image, class, &header).map_err(Error::malformed)?,
            EM_INTELGT => Gpu::of_triple("spirv64-intel"),
            _ => return Ok(None),
        }))
    }

    /// The processor with its features: `gfx90a:xnack+`.
    pub fn target_id(&self) -> String {
        TargetId {
            processor: &self.processor,
            features: self.features.clone(),
        }
        .to_string()
    }
}

/// Whether ELF files for this machine are always for a GPU.
pub fn is_gpu(machine: elf::Machine) -> bool {
    matches!(machine, elf::EM_AMDGPU | elf::EM_CUDA | EM_INTELGT)
}
