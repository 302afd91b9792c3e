//! `clang-linker-wrapper` and `ld.offld`: the same request from two kinds of command line.

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::Result;

use super::help;
use crate::args::request::LinkRequest;
use crate::args::{Ledger, Mode, Role};
use crate::link::inputs::Inputs;
use crate::link::pipeline;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::sys::trace::span;

/// LLVM's tool, by its own options.
pub(super) fn clang_linker_wrapper(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Wrapper, false)
}

/// The linker of `-fuse-ld=offld`.
pub(super) fn ld_offld(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Ld, false)
}

/// The linker where only `ld` is looked for: whoever calls it expects the system's `ld` to do the work.
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
    let result = pipeline::link(&ledger, &request, opened(), &session, ld_first);
    drop(whole);
    // A link that failed is worth a look as well.
    result.and(session.trace.write())
}

/// The inputs, where they were opened before `main`.
#[cfg(all(feature = "llvm", target_os = "linux"))]
fn opened() -> Option<Inputs> {
    super::early::opened()
}

/// Nothing is done before `main` in this build.
#[cfg(not(all(feature = "llvm", target_os = "linux")))]
fn opened() -> Option<Inputs> {
    None
}

/// What `argv` asks of the linker personality `name`, done before `main` when it is a link without device code (see `early`).
#[cfg(all(feature = "llvm", target_os = "linux"))]
pub(super) fn replace_if_plain(argv: Vec<OsString>, name: &str, shell: &Arc<Shell>) -> Result<Option<Inputs>> {
    let role = match name {
        "clang-linker-wrapper" => Role::Wrapper,
        "ld.offld" | "ld" => Role::Ld,
        // The other tools have no host linker.
        _ => return Ok(None),
    };
    let ledger = Ledger::read(role, argv)?;
    if ledger.mode() != Mode::Link {
        return Ok(None);
    }
    let request = LinkRequest::new(&ledger)?;
    let asks_for_more = request.dry_run
        || request.verbose
        || request.time_trace.is_some()
        || request.emit_fatbin_only
        || request.reproduce.is_some()
        || !request.override_images.is_empty();
    if asks_for_more {
        return Ok(None);
    }
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    pipeline::replace_if_plain(&ledger, &request, &session, name == "ld").map(Some)
}
