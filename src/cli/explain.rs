//! `offld explain FILE…`: reports which steps of a build took time.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::inspect::with_status;
use crate::sys::shell::{self, Shell};
use crate::tools::explain::{explain, json, text};

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "With OFFLD_CACHE_LOG=FILE, a build writes a build log; with --wrapper-time-trace=FILE, a link writes a time trace. Time traces of\n\
    clang (-ftime-trace) and of LLVM's wrapper are accepted, too. The critical path is inferred from start and end times: the step\n\
    that ended last, the step that ended last before that one began, and so on.\n\n\
    Exit status: 0, or 2 if a file could not be read.\n\n\
    Examples:\n  OFFLD_CACHE_LOG=$PWD/build.log make && offld explain build.log\n  offld explain --top 3 --json build.log link.json";

/// The options of `offld explain`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Time traces and build logs from the same build
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// List this many of the slowest device links; 0 for all
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
    /// Show full names, regardless of the terminal width
    #[arg(long)]
    wide: bool,
}

pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let report =
        explain(&options.files, Some(options.top).filter(|top| *top > 0)).map_err(with_status)?;
    for damaged in &report.damaged {
        shell.warn(&damaged.warning());
    }
    let style = shell.stdout_style().wide(options.wide);
    let text = if options.json {
        json(&report)?
    } else {
        text(&report, style)
    };
    shell::print(&text).map_err(with_status)
}
