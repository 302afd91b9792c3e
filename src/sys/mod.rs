//! All effects of the process on its surroundings: other programs, signals, temporary files, messages, environment variables, the
//! time trace, job slots. A port to another system changes this folder and `io`, and nothing else.

pub mod atomic_file;
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
