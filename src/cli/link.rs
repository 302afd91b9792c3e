//! `clang-linker-wrapper`, `ld.offld` and `ld`: parse the command line into a link request and run
//! the link.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;

use super::{help, misspelled};
use crate::args::{ArgumentList, Mode, Role};
use crate::link::pipeline;
use crate::sys::shell::Shell;

/// Runs as `clang-linker-wrapper`: offld's options first, then the host linker's arguments.
pub(super) fn clang_linker_wrapper(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Wrapper, false)
}

/// Runs as `ld.offld`, which compilers call for `-fuse-ld=offld`.
pub(super) fn ld_offld(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Ld, false)
}

/// Runs as `ld`, for compiler drivers that look for no other name. Users of these drivers expect
/// the host link by the system's `ld`, so it is the first choice.
pub(super) fn ld(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Ld, true)
}

fn run(argv: &[OsString], shell: &Arc<Shell>, role: Role, ld_first: bool) -> Result<()> {
    let ledger = ArgumentList::read(role, argv.to_vec())?;
    match ledger.mode() {
        Mode::Help { hidden } => return help::linker(role, hidden, shell),
        Mode::Version => return help::version(role),
        Mode::Link => {}
    }
    if let Some(list) = pipeline::llvm_help(&ledger)? {
        // A closed pipe is not an error.
        let _ = writeln!(std::io::stdout(), "{list}");
        return Ok(());
    }
    misspelled::warn(&ledger, shell);
    pipeline::run(&ledger, shell, ld_first, false)
}
