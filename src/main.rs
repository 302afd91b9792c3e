//! The binary: `argv` in, an exit status out. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    offld::programs::main(std::env::args_os().collect())
}
