//! `offld doctor`: reports the available and the missing requirements of links, and how to install
//! the missing ones. The exit status reports whether OpenMP programs for the CPU can be linked.

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;

use crate::error::Silent;
use crate::sys::native;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::{self, Shell};
use crate::tools::doctor::{Request, examine, text};

/// The exit status if OpenMP programs for the CPU cannot be linked.
const CANNOT_LINK: u8 = 1;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "The report covers links in the same environment: OFFLD_CLANG, OFFLD_LINKER, OFFLD_LLVM, OFFLD_CACHE and other variables apply.\n\
    The command queries clang, offld-llvm and the remote cache, and changes nothing.\n\n\
    Exit status: 0 if OpenMP programs for the CPU can be linked, else 1.\n\n\
    Examples:\n  offld doctor\n  OFFLD_CLANG=/opt/rocm/llvm/bin/clang offld doctor\n  \
    offld doctor --json | jq '.links[] | select(.link | not) | .kind, .missing[].what'";

/// The options of `offld doctor`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
    /// Also show missing parts for GPUs that this machine does not have
    #[arg(long)]
    all: bool,
}

pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let report = examine(
        &Request {
            native_root: native::root(),
        },
        &session,
    );
    let out = if options.json {
        let mut text =
            serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?;
        text.push('\n');
        text
    } else {
        text::text(&report, options.all, shell.stdout_style())
    };
    shell::print(&out).map_err(super::inspect::with_status)?;
    if report.host_openmp {
        Ok(())
    } else {
        Err(Silent {
            status: CANNOT_LINK,
        }
        .into())
    }
}
