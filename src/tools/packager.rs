//! The packager: device images into OffloadBinaries, and out of whatever holds some (docs/spec/containers.md 4). Both ways
//! stream: an image goes from file to file, and memory does not grow with it.

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
