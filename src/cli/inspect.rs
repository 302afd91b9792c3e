//! `offld inspect FILE…`: lists the device code in files, as a table or as JSON. The exit status
//! reports whether there is any.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;

use crate::args::size::parse_size;
use crate::contents;
use crate::contents::report::Report;
use crate::error::{self, Silent, StepFailed};
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::{self, Shell};
use crate::sys::table::Style;
use crate::tools::inspect::{Request, inspect, table};

/// The exit status for files without device code.
const NONE_FOUND: u8 = 1;
/// The exit status if a file, or part of one, could not be read.
const UNREADABLE: u8 = 2;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "Exit status: 0 if there is device code, 1 if there is none, 2 if a part could not be read\n\
    (the errors are on stderr; the report covers the other parts).\n\n\
    Examples:\n  offld inspect --kernels program\n  offld inspect --json *.a | jq '.files[].images[].target'\n  \
    offld inspect --extract images libhip.so";

/// The options of `offld inspect`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels and other zip files, tar archives, .deb
    /// packages, bundles or device images, also compressed with gzip, xz, zstd or bzip2;
    /// directories with such files; - for stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show kernels of ELF images: registers, shared memory, scratch memory, code size
    #[arg(long)]
    kernels: bool,
    /// Show mangled kernel names; JSON has both names
    #[arg(long, requires = "kernels")]
    no_demangle: bool,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
    /// Write each image to a file in DIR; all or none, and never over existing files
    #[arg(long, value_name = "DIR")]
    extract: Option<PathBuf>,
    /// Read only headers: no hashes, and no decompression except compressed files, members and the
    /// start of compressed bundles
    #[arg(long, conflicts_with_all = ["kernels", "extract"])]
    headers_only: bool,
    /// Limit decompressed data, to a size such as 500M or 2G [default: 64G, and 1000 times the file
    /// size]
    #[arg(long, value_name = "SIZE")]
    max_unpacked: Option<OsString>,
    /// Show sizes in bytes
    #[arg(long)]
    bytes: bool,
    /// Show all columns and full names, regardless of the terminal width
    #[arg(long)]
    wide: bool,
    /// Show totals for each kind and target instead of images, from headers only
    #[arg(long, conflicts_with_all = ["kernels", "json"])]
    summary: bool,
}

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let Options {
        files,
        kernels,
        no_demangle,
        json,
        extract,
        headers_only,
        max_unpacked,
        bytes,
        summary,
        wide,
    } = options;
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let size = max_unpacked
        .map(|size| parse_size(&size).context("--max-unpacked"))
        .transpose()
        .map_err(with_status)?;
    let max_unpacked = size.unwrap_or(contents::Options::default().max_unpacked);
    // The headers are sufficient for totals.
    let headers_only = headers_only || (summary && extract.is_none());
    let options = contents::Options {
        kernels,
        headers_only,
        max_unpacked,
        ..contents::Options::default()
    };
    let request = Request {
        files,
        options,
        extract,
    };
    let report = inspect(&request, &session).map_err(with_status)?;
    let text = if json {
        let mut text =
            serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?;
        text.push('\n');
        text
    } else {
        let style = Style {
            bytes,
            mangled: no_demangle,
            ..shell.stdout_style().wide(wide)
        };
        if summary {
            table::summary(&report, style)
        } else {
            table::text(&report, style)
        }
    };
    let printed = shell::print(&text);
    report
        .files
        .iter()
        .flat_map(|file| &file.errors)
        .for_each(|error| shell.error(error));
    printed.map_err(with_status)?;
    match status(&report) {
        0 => Ok(()),
        status => Err(Silent { status }.into()),
    }
}

/// The exit status, with grep's meanings: 0 if there is device code, 1 if there is none, 2 if
/// something could not be read.
fn status(report: &Report) -> u8 {
    let mut files = report.files.iter();
    if files.clone().any(|file| !file.errors.is_empty()) {
        UNREADABLE
    } else if files.any(|file| file.images.iter().any(|image| image.is_device())) {
        0
    } else {
        NONE_FOUND
    }
}

/// Makes an error end the program with `UNREADABLE`, because status 1 means "no device code". An
/// error with its own status keeps it.
pub(super) fn with_status(error: anyhow::Error) -> anyhow::Error {
    match error::exit_status(&error) {
        1 => StepFailed::new(error::chain(&error), UNREADABLE).into(),
        _ => error,
    }
}
