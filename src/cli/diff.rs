//! `offld diff OLD NEW`: shows which kernels differ between two builds.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;

use super::{Selected, finish, max_unpacked};
use offld_system::session::Session;
use offld_system::shell::Shell;
use offld_system::table::Style;
use offload_files::diff::text::{markdown, text};
use offload_files::diff::{self, Request, html};

/// The options of `offld diff`.
#[derive(Debug, Args)]
#[command(
    after_help = "The report lists new, gone and renamed kernels, and kernels whose code or use of resources differs. Code that only moved\n\
    counts as equal: addresses, the order of functions, build IDs, timestamps, paths and debug information are ignored.\n\n\
    Exit status: 0 if no kernel differs, 1 if kernels differ or could not be compared, or 2 if a file could not be read.\n\n\
    Examples:\n  offld diff libold.so libnew.so\n  offld diff --markdown old.whl new.whl >> \"$GITHUB_STEP_SUMMARY\"\n  \
    offld diff --save v1.json libx.so   # and after the next build:\n  offld diff v1.json libx.so"
)]
pub(super) struct Options {
    /// Compare this build: a file, directory, wheel, or list written by --save
    old: PathBuf,
    /// Compare with this later build; optional with --save
    new: Option<PathBuf>,
    #[command(flatten)]
    selected: Selected,
    /// Show the instructions that differ; needs llvm-objdump for AMD, and nvdisasm for NVIDIA
    #[arg(long)]
    changed_code: bool,
    /// Write the kernels of NEW, or of the only build, to FILE, for later comparisons
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the report as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write a self-contained web page to FILE, with a table that can be searched and sorted
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Limit decompressed data to a size such as 500M [default: 64G]. It is also limited to the larger
    /// of 64 MB and 1000 times the file size
    #[arg(long, value_name = "SIZE")]
    max_unpacked: Option<OsString>,
    /// Show mangled kernel names in the table
    #[arg(long)]
    no_demangle: bool,
    /// Show all columns and full names, regardless of the terminal width
    #[arg(long)]
    wide: bool,
}

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let selection = options.selected.selection()?;
    let (old, new) = match options.new {
        Some(new) => (Some(options.old), new),
        None if options.save.is_some() => (None, options.old),
        None => bail!("pass two files to compare, or --save with one"),
    };
    let new = vec![new];
    let request = Request {
        old: old.clone().unwrap_or_default(),
        new,
        selection: Arc::clone(&selection),
        max_unpacked: max_unpacked(options.max_unpacked.as_ref())?,
        changed_code: options.changed_code,
    };
    let session = Session::of(shell);
    if let Some(path) = &options.save {
        diff::save(&request, path, &session)?;
    }
    if old.is_none() {
        return Ok(());
    }
    let report = diff::diff(&request, &session)?;
    Selected::check(&selection, shell)?;
    if let Some(path) = &options.html {
        html::save(&report, path)?;
    }
    let style = Style {
        mangled: options.no_demangle,
        ..shell.stdout_style().wide(options.wide)
    };
    let text = if options.json {
        report.to_json()?
    } else if options.markdown {
        markdown(&report)
    } else {
        text(&report, style)
    };
    finish(
        &text,
        std::iter::empty::<&String>(),
        u8::from(report.differs()),
        shell,
    )
}
