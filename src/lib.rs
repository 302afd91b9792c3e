//! offld, the offload linker, as a library: it links the device code that is embedded in host objects, registers it with its
//! runtime, and runs the host link; and it reads and writes every format that device code is kept in.
//!
//! ```
//! use offld::InspectOptions;
//!
//! // This program has no device code in it.
//! let report = offld::inspect("/proc/self/exe", &InspectOptions::default())?;
//! assert_eq!(report.kind, "elf-executable");
//! assert!(report.errors.is_empty());
//! for image in report.images.iter().filter(|image| image.is_device()) {
//!     println!("{} {} {}: {} bytes", image.kinds.join("+"), image.triple, image.target, image.size);
//! }
//! # Ok::<(), offld::Error>(())
//! ```
//!
//! # What is public
//!
//! * The facade: [`link()`], [`inspect()`] ([`inspect_file()`], [`inspect_bytes()`]), [`size()`], [`check()`], [`bundle()`] and [`unbundle()`], [`pack()`] and [`extract()`], [`wrap()`]. These are
//!   what the programs of this package do, as functions. They open files, run compilers and linkers where a link needs them, and
//!   read the environment variables that the program reads.
//! * [`report`]: what [`inspect()`] finds; [`sizes`]: what [`size()`] counts; [`answers`]: what [`check()`] answers. Each is also written as
//!   the JSON that the command prints.
//! * [`formats`]: bytes to values and back, a module for each format. No file is opened and no process is started there.
//! * [`model`] and [`target`]: the nouns. Offload kinds, image kinds, generations of registration; targets, which image serves
//!   which target, and the one order of images.
//! * [`args`]: the command line of a link as a ledger of tagged tokens, and what it asks for.
//! * [`Error`], the one error of all of these, and [`error::Malformed`], a fault in bytes with its offset.
//!
//! Everything else is private: the stages of a link change with what compilers and runtimes do. Public types are
//! `#[non_exhaustive]` where fields or variants may come.
//!
//! # Files must not change while they are read
//!
//! Files are mapped into memory. Whoever calls the facade takes it that nobody writes to the inputs until the function has come
//! back, and for [`inspect()`] until its report is dropped. If somebody changes bytes all the same, the result may be wrong or an
//! error; if somebody truncates a file, touching what is gone raises SIGBUS, which ends the process. Outputs are never damaged by
//! it: they are written beside their places, and appear whole or not at all. The readers in [`formats`] are given bytes, so there
//! the caller says where they are from.

#![cfg_attr(test, expect(clippy::disallowed_types, reason = "unit tests run compilers and what they have made"))]

#[cfg(not(target_os = "linux"))]
compile_error!("offld runs on Linux only. A port to another system changes src/sys and src/io (ARCHITECTURE.md)");

pub mod args;
mod build_log;
#[cfg(feature = "capi")]
#[doc(hidden)]
pub mod capi;
mod cli;
mod contents;
mod edit;
pub mod error;
mod facade;
pub mod formats;
mod io;
mod link;
mod llvm;
pub mod model;
mod registration;
mod store;
mod sys;
pub mod target;
mod tools;

pub use contents::report;
pub use error::Error;
pub use facade::{
    BundleOptions, CheckOptions, Emit, ExtractOptions, InspectOptions, LinkOptions, Messages, PackOptions, PackedImage,
    SizeOptions, WrapOptions, bundle, check, extract, inspect, inspect_bytes, inspect_file, link, pack, size, unbundle, wrap,
};
pub use tools::check::report as answers;
pub use tools::size::report as sizes;

/// The version of this library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the programs, the tests and the fuzz targets of this package use. It is no part of the library's promise and may change
/// with any version.
#[doc(hidden)]
pub mod programs {
    pub use crate::cli::main;
    pub use crate::io::piece::Piece;
    pub use crate::io::resize::{Patch, Replacement, resize};
    pub use crate::io::rope::Rope;
    pub use crate::llvm::protocol;
    pub use crate::store::{BlobName, Cache, Digest, Event, Key, Naming, RemoteSettings, SecretKey, Store};
    pub use crate::sys::service::LARGEST_FRAME;

    /// Registration plans and each runtime's contract, which `offld-llvm` makes modules of.
    pub mod registration {
        pub use crate::registration::*;
    }

    /// Objects of images that are too large for a module.
    pub mod image_object {
        pub use crate::link::register::image_object::{StreamedImage, write};
    }

    /// What the commands that change finished files do, for the fuzz targets.
    pub mod edit {
        pub use crate::edit::trial::trial;
    }

    /// Inputs of a link as values, for the fuzz targets.
    pub mod inputs {
        pub use crate::link::inputs::*;
        pub use crate::link::scan;
    }
}
