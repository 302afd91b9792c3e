//! `offld explain FILE…`: where the time of a build went.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::inspect::with_status;
use crate::sys::shell::{self, Shell};
use crate::sys::table::Style;
use crate::tools::explain::{explain, json, text};

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "A build writes a log where OFFLD_CACHE_LOG names a file, and a link a time trace by --wrapper-time-trace=FILE; clang's\n\
    -ftime-trace and the traces of LLVM's own wrapper are read as well. The critical path is what was waited for: what ended\n\
    last, and before it what ended last when that began.\n\n\
    Exit status: 0, or 2 where a file could not be read.\n\n\
    Examples:\n  OFFLD_CACHE_LOG=$PWD/build.log make && offld explain build.log\n  offld explain --top 3 --json build.log link.json";

/// The options of `offld explain`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Time traces and logs of device links, of one build
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name this many of the slowest device links; 0 for all
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `offld explain`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let report = explain(&options.files, Some(options.top).filter(|top| *top > 0)).map_err(with_status)?;
    for damaged in &report.damaged {
        shell.warn(&damaged.warning());
    }
    let width = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    let style = Style { width, ..Style::default() };
    let text = if options.json { json(&report)? } else { text(&report, style) };
    shell::print(&text).map_err(with_status)
}
