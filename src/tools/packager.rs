//! The tool llvm-offload-binary (clang-offload-packager): packs device images into OffloadBinaries,
//! and extracts them from any supported file (docs/spec/containers.md 4). Images are copied from
//! file to file, so that memory use does not depend on their size.

mod arguments;
mod extract;
mod names;
mod pack;
mod read;
#[cfg(test)]
mod tests;

pub(crate) use arguments::ImageArguments;
pub(crate) use extract::{Extract, extract};
#[cfg(feature = "capi")]
pub(crate) use pack::pack_to;
pub(crate) use pack::{Format, Pack, pack};
#[cfg(feature = "capi")]
pub(crate) use read::{Image as StoredImage, unpack};
