//! How images are registered with each offload runtime, as plain data without LLVM types, so that a plan can be printed and
//! compared. `offld-llvm` turns a plan into an LLVM module; `image_object` writes images that are too large to pass through LLVM.

pub mod cuda;
pub mod entries;
pub mod fatbin;
pub mod hip;
pub mod host;
pub mod openmp;
pub(crate) mod read;
pub mod sycl;

use serde::{Deserialize, Serialize};

use crate::model::{Generation, ImageKind, OffloadKind};
use std::ops::Range;

/// The name of the module and its source file. LLVM 14 used another one.
pub const MODULE: &str = "offload.wrapper.module";
/// The section of the registration functions.
pub const FUNCTION_SECTION: &str = ".text.startup";

/// The registration of the images of one kind and one generation of entry table with one runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The host's triple, as given: it becomes the module's target triple.
    pub host_triple: String,
    /// Selects the layout of the entry table and the registration functions. SYCL has only one layout and ignores it.
    pub generation: Generation,
    /// The images; their variant also selects the runtime.
    pub images: Images,
    /// `-r`: images go into a section that later links do not scan (docs/spec/faults.md F17). This only matters for OpenMP, as the
    /// other runtimes' sections are never scanned.
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
    /// Any number of images, of all targets (docs/spec/faults.md F29), for the runtime of LLVM 22.
    Sycl(Vec<SyclImage>),
    /// The one OffloadBinary of all images, for SYCL's runtime of LLVM 23 and later.
    SyclBinary(ImagePlace, sycl::Registration),
}

impl Images {
    /// The runtime they are registered with.
    pub fn kind(&self) -> OffloadKind {
        match self {
            Images::OpenMp(_) => OffloadKind::OpenMp,
            Images::Cuda(_) => OffloadKind::Cuda,
            Images::Hip(_) => OffloadKind::Hip,
            Images::Sycl(_) | Images::SyclBinary(..) => OffloadKind::Sycl,
        }
    }
}

/// One image of an OpenMP plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedImage {
    /// Where the bytes are.
    pub place: ImagePlace,
    /// The ranges of the bytes that are registered, each as an image of its own. If the bytes are OffloadBinaries, their headers
    /// are in no range (docs/spec/faults.md W3). Empty for [`ImagePlace::Between`], which is one image.
    pub parts: Vec<Range<u64>>,
    /// The target id of every range for `__tgt_register_image_info` and `.offload_arch_list` (`--offload-arch`); without one there
    /// are no info objects.
    pub offload_arch: Option<String>,
}

/// One image of a SYCL plan: the bytes are the image itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyclImage {
    /// Where the bytes are.
    pub place: ImagePlace,
    /// Their format.
    pub image_kind: ImageKind,
    /// The triple of the device.
    pub triple: String,
    /// The names of the kernels in them.
    pub symbols: Vec<String>,
}

/// Where the bytes of an image are while LLVM makes the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImagePlace {
    /// In the module itself.
    Inline(#[serde(with = "serde_bytes")] Vec<u8>),
    /// In an object of their own, so that a large image does not pass through LLVM. The module refers to them by a symbol.
    External {
        /// The hidden symbol's name.
        symbol: String,
        /// Size in bytes.
        size: u64,
    },
    /// In an object of their own, of which only symbols are known. So the code is the same for every image and can be generated
    /// before the image is linked. SYCL's runtimes are told more, and those of LLVM 23 and later the size as well: not for them.
    Between {
        /// The hidden symbol at the first byte that is registered.
        start: String,
        /// The hidden symbol after the last one.
        stop: String,
    },
    /// In the output itself, but inserted after LLVM has written it (`wrapper`): LLVM sees zeros. In an object the zeros are a
    /// section without contents, whose name starts with `LATER`.
    Later {
        /// Size in bytes.
        size: u64,
        /// The length of the array of zeros in the module; for objects it must be the size.
        length: u64,
    },
}

/// The section, on ELF and on COFF, of an image that LLVM does not see, if the plan names none: one of its own among the constants.
const CONSTANTS: [&str; 2] = [".rodata.offload", ".rdata$offload"];

/// The name of the section that LLVM writes without contents. On ELF every section whose name starts so is one; the rest of the
/// name is the one that the section gets in the end. COFF has only the one.
pub const LATER: &str = ".bss";

impl ImagePlace {
    /// The size of the bytes; 0 where it is not known.
    pub fn size(&self) -> u64 {
        match self {
            ImagePlace::Between { .. } => 0,
            ImagePlace::Inline(bytes) => bytes.len() as u64,
            ImagePlace::External { size, .. } | ImagePlace::Later { size, .. } => *size,
        }
    }

    /// The length of the array in the module that stands for the bytes.
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
    /// The alignment of each image, in bytes.
    pub align: u32,
    /// Whether tools and later links shall find the images in it. On ELF it then has the section type for offload images.
    pub listed: bool,
}

/// The section of a plan's images that LLVM does not see (`ImagePlace::Later`), in an object; `coff` selects COFF instead of ELF.
pub fn deferred_section(plan: &Plan, coff: bool) -> ImageSection {
    let section = plan_section(plan);
    match plan.images {
        Images::OpenMp(_) if !openmp::registration(plan.generation, coff).listed_images => {
            ImageSection { name: CONSTANTS[usize::from(coff)], listed: false, ..section }
        }
        _ => section,
    }
}

/// The section for the images of `plan`.
pub fn plan_section(plan: &Plan) -> ImageSection {
    match plan.images {
        Images::SyclBinary(..) => sycl::BINARY_SECTION,
        _ => image_section(plan.images.kind(), plan.relocatable),
    }
}

/// The section for images of `kind`; of SYCL, for those that LLVM 22's runtime takes.
pub fn image_section(kind: OffloadKind, relocatable: bool) -> ImageSection {
    match kind {
        OffloadKind::OpenMp => openmp::image_section(relocatable),
        OffloadKind::Cuda => cuda::IMAGE_SECTION,
        OffloadKind::Hip => hip::IMAGE_SECTION,
        OffloadKind::Sycl => sycl::IMAGE_SECTION,
    }
}
