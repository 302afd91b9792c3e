//! liboffld, the C library (docs/reference/c.md): images, containers and registrations of files and
//! buffers as handles with accessors, comparisons of builds, checks of policies, and packing and unpacking of OffloadBinaries. cbindgen
//! generates `include/offld.h` from the files of this directory (cbindgen.toml).
//!
//! The module is a thin layer over the facade. It converts everything that crosses the boundary:
//! `given` checks the caller's arguments, `status` returns text and errors, and catches panics. Functions take handles as references (`Option<&T>` is a
//! pointer that may be NULL), so only buffers, C strings and results need `unsafe`.
//!
//! Nothing here is for Rust: the feature `capi` and this module's names are not part of the Rust
//! library's API.

mod compare;
mod given;
mod image;
mod package;
mod report;
mod status;

pub use compare::*;
pub use given::OffldWrite;
pub use image::*;
pub use package::*;
pub use report::*;
pub use status::*;
