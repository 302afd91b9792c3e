//! The binary: `argv` in, an exit status out. Everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    offld::programs::cli::main(std::env::args_os().collect())
}
