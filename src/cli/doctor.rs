//! `offld doctor`: what links need that is here, what is missing, and how to get it. The exit status says whether OpenMP programs for the
//! processor can be linked.

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;

use crate::error::Silent;
use crate::sys::native;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::{self, Shell};
use crate::sys::table::Style;
use crate::tools::doctor::{Request, examine, text};

/// The exit status where OpenMP programs for the processor cannot be linked.
const NO: u8 = 1;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "It looks as a link in the same environment would: OFFLD_CLANG, OFFLD_LINKER, OFFLD_LLVM, OFFLD_CACHE and the others count.\n\
    It asks clang, offld-llvm and the shared cache, and changes nothing.\n\n\
    Exit status: 0 where OpenMP programs whose device is the processor can be linked, else 1.\n\n\
    Examples:\n  offld doctor\n  OFFLD_CLANG=/opt/rocm/llvm/bin/clang offld doctor\n  \
    offld doctor --json | jq '.links[] | select(.link | not) | .kind, .missing[].what'";

/// The options of `offld doctor`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `offld doctor`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let report = examine(&Request { native_root: native::root() }, &session);
    let out = if options.json {
        let mut text = serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?;
        text.push('\n');
        text
    } else {
        text::text(&report, Style::default())
    };
    shell::print(&out).map_err(super::inspect::with_status)?;
    if report.host_openmp { Ok(()) } else { Err(Silent { status: NO }.into()) }
}
