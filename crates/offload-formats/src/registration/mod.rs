//! Registration of images with each offload runtime, as plain data without LLVM types, so that a
//! plan can be printed and compared. `offld-llvm` translates a plan to an LLVM module;
//! `image_object` writes images that are too large to pass through LLVM.

pub mod fatbin;
pub mod host;
pub mod openmp;
pub mod protocol;
pub mod read;
pub mod sycl;

use serde::{Deserialize, Serialize};

use crate::model::{Generation, ImageKind, OffloadKind};
use std::ops::Range;

/// The name of the module and its source file. LLVM 14 used another name.
pub const MODULE: &str = "offload.wrapper.module";
/// The section of the registration functions.
pub const FUNCTION_SECTION: &str = ".text.startup";

/// The registration of the images of one kind and one generation of entry table with one runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The host's triple, as given: it becomes the module's target triple.
    pub host_triple: String,
    /// The layout of the entry table and the registration functions. SYCL has only one layout and
    /// ignores the generation.
    pub generation: Generation,
    /// The images; their variant also selects the runtime.
    pub images: Images,
    /// `-r`: images are in a section that later links do not scan (docs/spec/faults.md F17). This
    /// matters only for OpenMP, because the other runtimes' sections are never scanned.
    pub relocatable: bool,
    /// The control-flow protection of the code and of the objects with images
    /// (`elf::notes`). It is that of the program's objects with device code, because a
    /// program has only the protection that all of its objects have.
    pub protection: u32,
    /// The modules that register their own kernels and variables with the image. Only CUDA and HIP
    /// have them.
    pub modules: Modules,
}

/// Modules that are part of an image and register their own kernels and variables. They have no
/// entry table. nvcc's relocatable code (`nvcc`) and the translation units of HIP's old driver are
/// modules.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Modules {
    /// The IDs of the modules, in the order of the device link.
    pub ids: Vec<String>,
    /// Whether the image has only code of these modules, so that no entry table is registered.
    pub alone: bool,
}

impl Modules {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// The images of a plan, in the runtime's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Images {
    /// Any number of images.
    OpenMp(Vec<PlannedImage>),
    /// The one fatbinary.
    Cuda(ImagePlace),
    /// The one bundle.
    Hip(ImagePlace),
    /// Any number of images, of all targets (docs/spec/faults.md F29), for the runtime of LLVM 22.
    Sycl(Vec<SyclImage>),
    /// The one OffloadBinary of all images, for SYCL's runtime of LLVM 23 and later.
    SyclBinary(ImagePlace, sycl::Registration),
}

impl Images {
    /// Returns the runtime that the images are registered with.
    pub fn kind(&self) -> OffloadKind {
        match self {
            Images::OpenMp(_) => OffloadKind::OpenMp,
            Images::Cuda(_) => OffloadKind::Cuda,
            Images::Hip(_) => OffloadKind::Hip,
            Images::Sycl(_) | Images::SyclBinary(..) => OffloadKind::Sycl,
        }
    }

    /// Returns the symbol of the table of images in files, if the images are in files.
    pub fn table(&self) -> Option<&str> {
        match self {
            Images::OpenMp(images) => images.iter().find_map(|image| image.place.table()),
            Images::Cuda(place) | Images::Hip(place) => place.table(),
            Images::Sycl(_) | Images::SyclBinary(..) => None,
        }
    }
}

/// One image of an OpenMP plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedImage {
    /// The location of the bytes.
    pub place: ImagePlace,
    /// The ranges of the bytes that are registered, each as an image of its own. If the bytes are
    /// OffloadBinaries, no range contains their headers (docs/spec/faults.md W3). Empty for
    /// [`ImagePlace::Between`] and [`ImagePlace::Files`], which are one image.
    pub parts: Vec<Range<u64>>,
    /// The target ID of every range for `__tgt_register_image_info` and `.offload_arch_list`
    /// (`--offload-arch`). Without a target ID, there are no info objects.
    pub offload_arch: Option<String>,
}

/// One image of a SYCL plan: the bytes are the image itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyclImage {
    /// The location of the bytes.
    pub place: ImagePlace,
    /// The format of the bytes.
    pub image_kind: ImageKind,
    /// The triple of the device.
    pub triple: String,
    /// The names of the kernels in the image.
    pub symbols: Vec<String>,
}

/// The location of an image's bytes while LLVM generates the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImagePlace {
    /// In the module itself.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// In an object of its own, so that a large image does not pass through LLVM. The module refers
    /// to it by a symbol.
    External {
        /// The hidden symbol's name.
        symbol: String,
        /// Size in bytes.
        size: u64,
    },
    /// In an object of its own, with known symbols and unknown contents. The code is then the same
    /// for every image, and can be generated before the image is linked. SYCL's registration also
    /// contains other facts about the image: since LLVM 23, its size. So `Between` cannot be used
    /// for SYCL of LLVM 23 and later.
    Between {
        /// The hidden symbol at the first byte that is registered.
        start: String,
        /// The hidden symbol after the last registered byte.
        stop: String,
    },
    /// In the output itself, inserted after LLVM has written the output (`src/tools/wrapper.rs`):
    /// LLVM sees zeros. In an object, the zeros are a section without contents, whose name starts
    /// with `LATER`.
    Later {
        /// Size in bytes.
        size: u64,
        /// The length of the array of zeros in the module; for objects it must be the size.
        length: u64,
    },
    /// In files beside the program, which the program loads when it starts (`external_images`). One
    /// table lists all images of the plan, so that the code is the same for every image.
    Files {
        /// The hidden symbol of the table.
        table: String,
    },
}

/// Sections, on ELF and on COFF, for an image that LLVM does not see and whose plan names no
/// section. They are separate from other constants.
const ELF_CONSTANTS: &str = ".rodata.offload";
const COFF_CONSTANTS: &str = ".rdata$offload";

/// The name of the section that LLVM writes without contents. On ELF, every section whose name
/// starts with it has no contents; the rest of the name is the final name of the section. COFF has
/// only one such section.
pub const LATER: &str = ".bss";

impl ImagePlace {
    /// Returns the size in bytes; 0 if it is unknown.
    pub fn size(&self) -> u64 {
        match self {
            ImagePlace::Between { .. } | ImagePlace::Files { .. } => 0,
            ImagePlace::Inline(bytes) => bytes.len() as u64,
            ImagePlace::External { size, .. } | ImagePlace::Later { size, .. } => *size,
        }
    }

    /// Returns the symbol of the table that lists images in files.
    pub fn table(&self) -> Option<&str> {
        match self {
            ImagePlace::Files { table } => Some(table),
            _ => None,
        }
    }

    /// Returns the length of the module's array for the bytes.
    pub fn array_length(&self) -> u64 {
        match self {
            ImagePlace::Later { length, .. } => *length,
            _ => self.size(),
        }
    }
}

/// The section of a registration's images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSection {
    /// The name.
    pub name: &'static str,
    /// The alignment of each image, in bytes.
    pub align: u32,
    /// Whether tools and later links must find the images in it. On ELF, it then has the section
    /// type for offload images.
    pub listed: bool,
}

/// Returns the section, in an object, for a plan's images that LLVM does not see
/// (`ImagePlace::Later`). `coff` selects COFF instead of ELF.
pub fn deferred_section(plan: &Plan, coff: bool) -> ImageSection {
    let section = plan_section(plan);
    match plan.images {
        Images::OpenMp(_) if !openmp::registration(plan.generation, coff).listed_images => {
            ImageSection {
                name: if coff { COFF_CONSTANTS } else { ELF_CONSTANTS },
                listed: false,
                ..section
            }
        }
        _ => section,
    }
}

/// Returns the section for the images of `plan`.
pub fn plan_section(plan: &Plan) -> ImageSection {
    match plan.images {
        Images::SyclBinary(..) => sycl::BINARY_SECTION,
        _ => image_section(plan.images.kind(), plan.relocatable),
    }
}

/// Returns the section for images of `kind`. For SYCL, it is the section for LLVM 22's runtime.
pub fn image_section(kind: OffloadKind, relocatable: bool) -> ImageSection {
    match kind {
        OffloadKind::OpenMp => openmp::image_section(relocatable),
        OffloadKind::Cuda => fatbin::CUDA_SECTION,
        OffloadKind::Hip => fatbin::HIP_SECTION,
        OffloadKind::Sycl => sycl::IMAGE_SECTION,
    }
}
