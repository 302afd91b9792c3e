//! offld, the offload linker, as a library.
//!
//! The line, a stage a module; each takes the previous stage's value by reference and returns a new one:
//!
//! ```text
//! argv -> Ledger -> LinkRequest -> Inputs -> Vec<Found> -> Vec<DeviceJob> -> Vec<Linked> -> Vec<Payload> -> objects -> host link
//!         args      args::request  inputs    scan          select            device         bundle          wrap       host
//! ```
//!
//! [`pipeline`] is this line as one page. [`formats`] turns bytes into values and back and knows nothing else; [`run`] is the one
//! file that starts processes; [`llvm`] is the one folder that knows LLVM; [`cli`] turns command lines into requests and results
//! into exit statuses.

pub mod args;
pub mod bundle;
pub mod bundler;
pub mod bytes;
pub mod cache;
pub mod cli;
pub mod copy;
pub mod device;
pub mod error;
pub mod formats;
pub mod host;
pub mod inputs;
pub mod inspect;
pub mod llvm;
pub mod model;
pub mod outputs;
pub mod packager;
pub mod piece;
pub mod pipeline;
pub mod progress;
pub mod reproduce;
pub mod run;
pub mod scan;
pub mod scratch;
pub mod select;
pub mod session;
pub mod shell;
pub mod signals;
pub mod target;
pub mod toolchain;
pub mod trace;
pub mod wrap;
pub mod wrapper;
