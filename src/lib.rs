//! offld, the offload linker, as a library.

pub mod args;
pub mod error;
pub mod model;
