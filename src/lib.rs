//! offld, the offload linker, as a library.
//!
//! The line, a stage a module; each takes the previous stage's value by reference and returns a new one:
//!
//! ```text
//! argv -> Ledger -> LinkRequest -> Inputs -> Vec<DeviceImage> -> Vec<DeviceJob> -> Vec<Linked> -> Vec<Payload> -> objects -> host link
//!         args      args::request  inputs    scan          select            device         bundle          wrap       host
//! ```
//!
//! [`pipeline`] is this line as one page. [`formats`] turns bytes into values and back and knows nothing else; [`run`] is the one
//! file that starts processes; [`llvm`] is the one folder that knows LLVM; [`cli`] turns command lines into requests and results
//! into exit statuses.

#![cfg_attr(test, expect(clippy::disallowed_types, reason = "unit tests run compilers and what they have made"))]

#[cfg(not(target_os = "linux"))]
compile_error!("offld runs on Linux only. A port to another system changes src/sys and src/io (ARCHITECTURE.md)");

pub mod args;
mod cli;
pub mod error;
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

/// What the programs, the tests and the fuzz targets of this package use. It is no part of the library's promise and may change with
/// any version.
#[doc(hidden)]
pub mod programs {
    pub use crate::cli::main;
    pub use crate::io::rope::Rope;
    pub use crate::llvm::protocol;
    pub use crate::store::{Cache, Digest, Event, RemoteSettings, Store};
    pub use crate::sys::service::LARGEST_FRAME;

    /// Registration plans and each runtime's contract, which `offld-llvm` makes modules of.
    pub mod registration {
        pub use crate::registration::*;
    }

    /// Objects of images that are too large for a module.
    pub mod image_object {
        pub use crate::link::register::image_object::{StreamedImage, write};
    }

    /// Inputs of a link as values, for the fuzz targets.
    pub mod inputs {
        pub use crate::link::inputs::*;
        pub use crate::link::scan;
    }
}
