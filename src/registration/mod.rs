//! What a runtime must be handed, as plain data: no LLVM types here, so that a plan can be printed and compared.
//! `llvm/` turns a plan into a module; `image_object` writes images too large to pass through LLVM.

pub mod cuda;
pub mod entries;
pub mod fatbin;
pub mod hip;
pub mod host;
pub mod openmp;
pub mod sycl;

use serde::{Deserialize, Serialize};

use crate::model::{Generation, ImageKind, OffloadKind};
use std::ops::Range;

/// The module's name, which is its source file name too; only LLVM 14's was another.
pub const MODULE: &str = "offload.wrapper.module";
/// The section that registration code is in.
pub const FUNCTION_SECTION: &str = ".text.startup";

/// The registration of the images of one kind and one generation of entry table with one runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The host's triple, as given: it becomes the module's target triple.
    pub host_triple: String,
    /// Which entry table and which registration functions. SYCL has had only one way so far and does not look at it.
    pub generation: Generation,
    /// What is registered, and with it the runtime.
    pub images: Images,
    /// `-r`: images go where no later link looks for them (docs/spec/faults.md F17). Only OpenMP's are elsewhere otherwise.
    pub relocatable: bool,
}

/// The images of a plan, in the order the runtime sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Images {
    /// Any number of images.
    OpenMp(Vec<PlannedImage>),
    /// The one fatbinary.
    Cuda(ImagePlace),
    /// The one bundle.
    Hip(ImagePlace),
    /// Any number of images, of all targets (docs/spec/faults.md F29).
    Sycl(Vec<SyclImage>),
}

impl Images {
    /// The runtime they are registered with.
    pub fn kind(&self) -> OffloadKind {
        match self {
            Images::OpenMp(_) => OffloadKind::OpenMp,
            Images::Cuda(_) => OffloadKind::Cuda,
            Images::Hip(_) => OffloadKind::Hip,
            Images::Sycl(_) => OffloadKind::Sycl,
        }
    }
}

/// One image of an OpenMP plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedImage {
    /// Where the bytes are.
    pub place: ImagePlace,
    /// What of the bytes the runtime is handed, each part as an image by itself: not the headers of OffloadBinaries, of which the
    /// bytes may be several (docs/spec/faults.md W3).
    pub parts: Vec<Range<u64>>,
    /// The target id for `__tgt_register_image_info` and `.offload_arch_list` (`--offload-arch`), of every part;
    /// none means that they get no info objects.
    pub offload_arch: Option<String>,
}

/// One image of a SYCL plan: the bytes are the image itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyclImage {
    /// Where the bytes are.
    pub place: ImagePlace,
    /// What they are.
    pub image_kind: ImageKind,
    /// The triple of what they are for.
    pub triple: String,
    /// The names of the kernels in them.
    pub symbols: Vec<String>,
}

/// Where the bytes of an image are when the module is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImagePlace {
    /// In the module itself.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// In an object of their own, under this hidden symbol, `size` bytes long: large images never pass through LLVM.
    External {
        /// The hidden symbol's name.
        symbol: String,
        /// Size in bytes.
        size: u64,
    },
    /// In the module itself, but put there once LLVM is done with it (`wrapper`): LLVM sees zeros. In an object they are a section
    /// without contents, whose name starts with `LATER`.
    Later {
        /// Size in bytes.
        size: u64,
        /// The length of the array that the module has in its place; in objects it must be the size.
        length: u64,
    },
}

/// Where an image that LLVM does not see is in an object, if the plan names no section: with the constants, by itself.
const CONSTANTS: [&str; 2] = [".rodata.offload", ".rdata$offload"];

/// The COFF section that LLVM gives no contents. On ELF it is what the names of such sections start with, of which there may be many;
/// the rest is the name that the section shall have in the end.
pub const LATER: &str = ".bss";

impl ImagePlace {
    /// The size of the bytes.
    pub fn size(&self) -> u64 {
        match self {
            ImagePlace::Inline(bytes) => bytes.len() as u64,
            ImagePlace::External { size, .. } | ImagePlace::Later { size, .. } => *size,
        }
    }

    /// The length of the array that a module has for them.
    pub fn array_length(&self) -> u64 {
        match self {
            ImagePlace::Later { length, .. } => *length,
            _ => self.size(),
        }
    }
}

/// The section that the images of a registration are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSection {
    /// Its name.
    pub name: &'static str,
    /// How each image is aligned.
    pub align: u32,
    /// Whether image tools, and later links, are to find the images in it: ELF has a section type for that.
    pub listed: bool,
}

/// The section that images of a plan which LLVM does not see are in, in an object of a host whose objects are COFF or ELF.
pub fn deferred_section(plan: &Plan, coff: bool) -> ImageSection {
    let section = image_section(plan.images.kind(), plan.relocatable);
    match plan.images {
        Images::OpenMp(_) if !openmp::registration(plan.generation, coff).listed_images => {
            ImageSection { name: CONSTANTS[usize::from(coff)], listed: false, ..section }
        }
        _ => section,
    }
}

/// The section for images of `kind`.
pub fn image_section(kind: OffloadKind, relocatable: bool) -> ImageSection {
    match kind {
        OffloadKind::OpenMp => openmp::image_section(relocatable),
        OffloadKind::Cuda => cuda::IMAGE_SECTION,
        OffloadKind::Hip => hip::IMAGE_SECTION,
        OffloadKind::Sycl => sycl::IMAGE_SECTION,
    }
}
