//! What a runtime must be handed, as plain data: no LLVM types here, so that a plan can be printed and compared.
//! `llvm/` turns a plan into a module; `image_object` writes images too large to pass through LLVM.

pub mod image_object;
pub mod objects;
pub mod openmp;

use crate::model::Generation;

/// The registration of the images of one kind and one generation of entry table with one runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The host's triple, as given: it becomes the module's target triple.
    pub host_triple: String,
    /// Which entry table and which registration functions.
    pub generation: Generation,
    /// The images, in the order the runtime sees them.
    pub images: Vec<PlannedImage>,
    /// `-r`: images go to `.llvm.offloading.relocatable`, where no later link looks for them (fault F17).
    pub relocatable: bool,
}

/// One image of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedImage {
    /// Where the bytes are.
    pub place: ImagePlace,
    /// Offset of what the runtime is handed from the start of the bytes (it skips the OffloadBinary header).
    pub start: u64,
    /// Offset of its end.
    pub end: u64,
    /// The target id for `__tgt_register_image_info` and `.offload_arch_list` (the seed document's `--offload-arch`); none
    /// means that the image gets no info object.
    pub offload_arch: Option<String>,
}

/// Where the bytes of an image are when the module is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImagePlace {
    /// In the module itself.
    Inline(Vec<u8>),
    /// In an object of their own, under this hidden symbol, `size` bytes long (decision 9).
    External {
        /// The hidden symbol's name.
        symbol: String,
        /// Size in bytes.
        size: u64,
    },
}
