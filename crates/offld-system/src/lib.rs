//! Everything in offld that touches the system: other programs, signals, temporary files, messages,
//! environment variables, the time trace, job slots, memory, clocks; files as bytes or as ranges to
//! copy ([`io`]); and the cache's storage ([`store`]). offld runs on Linux only. A port to another
//! system would change this crate, and nothing else.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_types,
        reason = "unit tests run compilers and the compiled programs"
    )
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "offld runs on Linux only. A port to another system changes crates/offld-system (ARCHITECTURE.md)"
);

pub mod atomic_file;
pub mod clock;
pub mod environment;
pub mod folder;
pub mod io;
pub mod jobs;
pub mod launcher;
pub mod native;
pub mod posix_shell;
pub mod progress;
pub mod response;
pub mod run;
pub mod scratch;
pub mod service;
pub mod session;
pub mod shell;
pub mod signals;
pub mod store;
pub mod table;
pub mod terminal;
pub mod threads;
pub mod trace;

#[cfg(test)]
#[expect(dead_code, reason = "other crates use the rest")]
#[path = "../../offload-formats/src/reference.rs"]
mod reference;
