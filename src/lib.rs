//! offld, the offload linker, as a library. It links the device code embedded in host objects,
//! registers the images with their runtimes, and runs the host link. It also reads and writes every
//! format that holds device code.
//!
//! ```
//! use offld::InspectOptions;
//!
//! // This program contains no device code.
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
//! * The facade: [`link()`], [`inspect()`] ([`inspect_file()`], [`inspect_bytes()`]), [`size()`],
//!   [`check()`], [`bundle()`] and [`unbundle()`], [`pack()`] and [`extract()`], [`wrap()`]. These
//!   functions do the work of the programs in this package. They open files, run the compilers and
//!   linkers that a link needs, and read the environment variables that the program reads.
//! * [`inspect_report`], [`size_report`] and [`check_report`]: the results of [`inspect()`],
//!   [`size()`] and [`check()`]. Each serializes to the JSON that the command prints.
//! * [`formats`]: conversion between bytes and values, one module for each format. It opens no
//!   files and starts no processes.
//! * [`model`] and [`target`]: the basic types. Offload kinds, image kinds and registration
//!   generations; targets, the rule for which image serves which target, and the one order of
//!   images.
//! * [`args`]: the command line of a link as a list of tagged tokens, and the settings that it
//!   requests.
//! * [`Error`], the error of all these functions, and [`error::Malformed`], a format error with its
//!   offset.
//!
//! Everything else is private, because the stages of a link follow changes in compilers and
//! runtimes. Public types are `#[non_exhaustive]` if fields or variants may be added.
//!
//! # Files must not change while they are read
//!
//! offld maps files into memory. The caller must make sure that nothing writes to the inputs until
//! the function has returned, and for [`inspect()`] until its report is dropped. If bytes change,
//! the result may be wrong or an error. If a file is truncated, reading the lost part raises
//! SIGBUS, which ends the process. Outputs are never damaged: offld writes them under temporary
//! names and renames them into place when they are complete. The readers in [`formats`] take bytes,
//! so the caller chooses their source.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_types,
        reason = "unit tests run compilers and what they have made"
    )
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "offld runs on Linux only. A port to another system changes src/sys and src/io (ARCHITECTURE.md)"
);

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

pub use contents::report as inspect_report;
pub use error::Error;
pub use facade::{
    BundleOptions, CheckOptions, Emit, ExtractOptions, InspectOptions, LinkOptions, Messages,
    PackOptions, PackedImage, SizeOptions, WrapOptions, bundle, check, extract, inspect,
    inspect_bytes, inspect_file, link, pack, size, unbundle, wrap,
};
pub use tools::check::report as check_report;
pub use tools::size::report as size_report;

/// The version of this library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Items for the programs, the tests and the fuzz targets of this package. They are not part of the
/// library's API and may change in any version.
#[doc(hidden)]
pub mod programs {
    pub use crate::cli::main;
    pub use crate::io::file_slice::FileSlice;
    pub use crate::io::resize::{Patch, Replacement, resize};
    pub use crate::io::rope::Rope;
    pub use crate::llvm::protocol;
    pub use crate::store::{
        BlobName, Cache, Digest, Event, Key, Naming, RemoteSettings, Scope, SecretKey, Store,
    };
    pub use crate::sys::service::LARGEST_FRAME;

    /// Registration plans and the contract of each runtime, from which `offld-llvm` builds modules.
    pub mod registration {
        pub use crate::registration::*;
    }

    /// Object files for images that are too large for an LLVM module.
    pub mod image_object {
        pub use crate::link::register::image_object::{HostObject, StreamedImage, write};
    }

    /// Editing of finished files, for the fuzz targets.
    pub mod edit {
        pub use crate::edit::trial::trial;
    }

    /// Link inputs as values, for the fuzz targets.
    pub mod inputs {
        pub use crate::link::inputs::*;
        pub use crate::link::scan;
    }
}

/// The program in docs/reference/rust.md, which `cargo test` compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/reference/rust.md")]
mod page {}
