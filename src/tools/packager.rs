//! What llvm-offload-binary (clang-offload-packager) does: packs device images into OffloadBinaries, and extracts them from whatever
//! holds some (docs/spec/containers.md 4). Images are copied from file to file, so memory does not grow with them.

mod arguments;
mod extract;
mod names;
mod pack;
mod read;
#[cfg(test)]
mod tests;

pub use arguments::{ImageArguments, kind_number};
pub use extract::{Extract, Extracted, extract};
pub use pack::{Format, Pack, pack};
pub use read::{Image, images};
