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
pub mod cli;
pub mod error;
pub mod formats;
pub mod io;
pub mod link;
pub mod llvm;
pub mod model;
pub mod registration;
pub mod store;
pub mod sys;
pub mod target;
pub mod tools;

/// What the programs and the tests of this package use. It is no part of the library's promise and may change with any version.
#[doc(hidden)]
pub mod programs {
    pub use crate::{cli, io, link, llvm, registration, store, sys, tools};
}
