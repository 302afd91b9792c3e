//! The `offld` binary: passes `argv` to the library and returns its exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    offld::main(std::env::args_os().collect())
}
