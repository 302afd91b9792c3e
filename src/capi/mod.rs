//! liboffld, the C library (docs/reference/c.md): images, containers and registrations of files and
//! buffers as handles with accessors, and packing and unpacking of OffloadBinaries. cbindgen
//! generates `include/offld.h` from the files of this directory (cbindgen.toml).
//!
//! The module is a thin layer over the facade. It converts everything that crosses the boundary:
//! `given` checks the caller's arguments, `text` and `buffer` return data, `status` returns errors
//! and catches panics, `sink` writes bytes. Functions take handles as references (`Option<&T>` is a
//! pointer that may be NULL), so only buffers, C strings and results need `unsafe`.
//!
//! Nothing here is for Rust: the feature `capi` and this module's names are not part of the Rust
//! library's API.

mod buffer;
mod entry;
mod given;
mod image;
mod options;
mod package;
mod registration;
mod report;
mod sink;
mod status;
mod step;
mod text;

pub use buffer::*;
pub use entry::*;
pub use image::*;
pub use options::*;
pub use package::*;
pub use registration::*;
pub use report::*;
pub use sink::OffldWrite;
pub use status::{
    OffldError, OffldStatus, offld_error_free, offld_error_message, offld_error_offset,
    offld_error_status,
};
pub use status::{offld_error_system, offld_status_name};
pub use step::*;
pub use text::OffldString;
pub use version::*;

mod version;
