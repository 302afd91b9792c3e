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
//!   [`diff()`], [`check()`], [`gate()`], [`bundle()`] and [`unbundle()`], [`pack()`] and [`extract()`],
//!   [`wrap()`]. These functions do the work of the programs in this package. They open files, run the compilers and
//!   linkers that a link needs, and read the environment variables that the program reads.
//! * [`inspect_report`], [`size_report`], [`diff_report`], [`check_report`] and [`gate_report`]: the
//!   results of [`inspect()`], [`size()`], [`diff()`], [`check()`] and [`gate()`]. Each serializes to the
//!   JSON that the command prints.
//! * [`formats`]: conversion between bytes and values, one module for each format. It opens no
//!   files and starts no processes. It is the crate `offload-formats`, which can be used alone.
//! * [`model`] and [`target`], also from that crate: the basic types. Offload kinds, image kinds
//!   and registration generations; targets, the rule for which image serves which target, and the
//!   one order of images.
//! * [`args`]: the command line of a link as a list of tagged tokens, and the settings that it
//!   requests.
//! * [`Error`], the error of all these functions, and [`error::Malformed`], a format error with its
//!   offset.
//!
//! Everything else is private, because the stages of a link follow changes in compilers and
//! runtimes. Public structs are `#[non_exhaustive]` if fields may be added. Most enums can be
//! matched exhaustively; a new variant raises the minor version.
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

pub mod args;
mod build_log;
#[cfg(feature = "capi")]
#[doc(hidden)]
pub mod capi;
mod cli;
mod facade;
mod link;
mod llvm;
mod toolchain;
mod tools;

pub use cli::main;
pub use facade::{
    BundleOptions, CheckOptions, DiffOptions, Emit, ExtractOptions, GateOptions, InspectOptions,
    LinkOptions, Messages, PackOptions, PackedImage, SizeOptions, WrapOptions, bundle, check, diff,
    extract, gate, inspect, inspect_bytes, inspect_file, link, pack, size, unbundle, wrap,
};
#[cfg(fuzzing)]
pub use link::read_input;
pub use offload_files::contents::report as inspect_report;
pub use offload_formats as formats;
pub use offload_formats::error::Error;
pub use offload_formats::{error, model, target};

#[cfg(test)]
#[expect(dead_code, reason = "other crates use the rest")]
#[path = "../crates/offload-formats/src/reference.rs"]
mod reference;

/// The version of this library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Results of [`check()`] as plain data, with the names that `offld check --json` writes
/// (docs/reference/json.md).
pub mod check_report {
    pub use offload_files::check::report::{Answer, FileCheck, Finding, Load, Report, UnitCheck};
}

/// Results of [`diff()`] as plain data, with the names that `offld diff --json` writes
/// (docs/reference/json.md).
pub mod diff_report {
    pub use offload_files::diff::report::{ArchDiff, Change, Fact, Kind, Report};
}

/// Results of [`gate()`] as plain data, with the names that `offld gate --json` writes
/// (docs/reference/json.md).
pub mod gate_report {
    pub use offload_files::gate::report::{Report, RuleReport, Violation};
}

/// Results of [`size()`] as plain data, with the names that `offld size --json` writes
/// (docs/reference/json.md).
pub mod size_report {
    pub use offload_files::size::report::{
        Duplicates, FileSize, ImageSize, Level, NotCompressed, Repeated, Report, Row, Served,
    };
}

/// The build of the programs `offld` and `offld-llvm`: the versions of their protocol and of this
/// crate, and a digest of the sources. Two programs with the same name encode registrations in the
/// same way.
pub const BUILD: &str = concat!(
    "offld-llvm 5 ",
    env!("CARGO_PKG_VERSION"),
    " ",
    env!("OFFLD_SOURCES")
);

/// The program in docs/reference/rust.md, which `cargo test` compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/reference/rust.md")]
mod page {}
