//! Access to the operating system: other programs, signals, temporary files, messages, environment
//! variables, the time trace, job slots, memory, clocks. offld runs on Linux only. A port to
//! another system would change this directory and `io`, and nothing else.

pub(crate) mod atomic_file;
pub(crate) mod attributes;
pub(crate) mod clock;
pub(crate) mod control_groups;
pub(crate) mod folder;
pub(crate) mod jobs;
pub(crate) mod launcher;
pub(crate) mod native;
pub(crate) mod opened;
pub(crate) mod parent_death;
pub(crate) mod posix_shell;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod scratch;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod shell;
pub(crate) mod signals;
pub(crate) mod table;
pub(crate) mod terminal;
pub(crate) mod threads;
pub(crate) mod toolchain;
pub(crate) mod trace;
pub(crate) mod unfinished;
