//! What llvm-offload-binary (clang-offload-packager) does: packs device images into OffloadBinaries, and extracts them from
//! whatever holds some (docs/spec/containers.md 4). Images are copied from file to file, so memory does not grow with them.

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
