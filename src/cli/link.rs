//! `clang-linker-wrapper`, `ld.offld` and `ld`: all three read their command line into a link request and run it.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::Result;

use super::help;
use crate::args::request::LinkRequest;
use crate::args::{Ledger, Mode, Role};
use crate::link::pipeline;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::sys::trace::span;

/// Runs as `clang-linker-wrapper`: offld's options first, then the host linker's arguments.
pub(super) fn clang_linker_wrapper(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Wrapper, false)
}

/// Runs as `ld.offld`, which compilers call for `-fuse-ld=offld`.
pub(super) fn ld_offld(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Ld, false)
}

/// Runs as `ld`, for compiler drivers that look for no other name. Their users expect the system's `ld` to do the host link, so it
/// is the first choice.
pub(super) fn ld(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Ld, true)
}

fn run(argv: &[OsString], shell: &Arc<Shell>, role: Role, ld_first: bool) -> Result<()> {
    let ledger = Ledger::read(role, argv.to_vec())?;
    match ledger.mode() {
        Mode::Help { hidden } => return help::linker(role, hidden),
        Mode::Version => return help::version(role),
        Mode::Link => {}
    }
    let request = LinkRequest::new(&ledger)?;
    let options = SessionOptions {
        dry_run: request.dry_run,
        verbose: request.verbose,
        save_temps: request.save_temps,
        time_trace: request.time_trace.clone(),
        time_trace_granularity: request.time_trace_granularity,
    };
    let session = Session::new(Arc::clone(shell), options);
    let whole = session.trace.span(span::WHOLE, 0);
    let result = pipeline::link(&ledger, &request, &session, ld_first);
    drop(whole);
    // The trace is written for a failed link as well.
    result.and(session.trace.write())
}
