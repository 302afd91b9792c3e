//! liboffld, the library for C (docs/c-api.md): images, containers and registrations of files and buffers as handles with accessors,
//! OffloadBinaries packed and unpacked. `include/offld.h` is made of the files of this folder by cbindgen (cbindgen.toml).
//!
//! Everything is a layer over the facade and decides nothing. What crosses the boundary is turned here: `given` what a caller hands
//! in, `text` and `buffer` what it gets, `status` errors and panics, `sink` where bytes are written. Handles that a function takes
//! are references (`Option<&T>` is a pointer that may be NULL), so `unsafe` is left for buffers, C strings and results alone.
//!
//! Nothing here is for Rust: the feature `capi` and this module's names are no part of the promise of the Rust library.

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
pub use status::{OffldError, OffldStatus, offld_error_free, offld_error_message, offld_error_offset, offld_error_status};
pub use status::{offld_error_system, offld_status_name};
pub use step::*;
pub use text::OffldString;
pub use version::*;

mod version;
