//! offld, the offload linker, as a library.

pub mod error;
pub mod formats;
pub mod llvm;
pub mod model;
pub mod wrap;
