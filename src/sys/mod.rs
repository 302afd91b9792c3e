//! All effects of the process on its surroundings: other programs, signals, temporary files, messages, environment variables, the
//! time trace, job slots, clocks. offld runs on Linux alone; this folder is the seam of a port: one to another system changes it and
//! `io`, and nothing else.

pub(crate) mod atomic_file;
pub(crate) mod clock;
pub(crate) mod jobs;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod scratch;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod shell;
pub(crate) mod signals;
pub(crate) mod toolchain;
pub(crate) mod trace;
