//! All effects of the process on its surroundings: other programs, signals, temporary files, messages, environment variables, the
//! time trace, job slots, clocks. offld runs on Linux alone; this folder is the seam of a port: one to another system changes it and
//! `io`, and nothing else.

pub mod atomic_file;
pub mod clock;
pub mod jobs;
pub mod progress;
pub mod run;
pub mod scratch;
pub mod service;
pub mod session;
pub mod shell;
pub mod signals;
pub mod toolchain;
pub mod trace;
