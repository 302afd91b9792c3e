//! `offld check FILE…`: checks whether the registered images exist, or which image a device would
//! load. The exit status is the answer.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, ValueHint};

use super::selected::Selected;
use crate::error::Silent;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::{self, Shell};
use crate::tools::check::report::Answer;
use crate::tools::check::{Asked, Request, check, text};

/// The exit status if the answer is no or unknown.
const NOT_CONFIRMED: u8 = 1;
/// The exit status if a file, or part of one, could not be read.
const UNREADABLE: u8 = 2;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "Exit status: 0 if the answer is yes for every file, 1 if an answer is no or unknown, 2 if a file could not be read.\n\
    The last line of the output is the answer for all files.\n\n\
    Examples:\n  offld check program\n  offld check --for gfx90a:xnack+ libkernels.so\n  \
    offld check --for sm_90,sm_120 package.whl\n  offld check --for native build/\n  \
    offld check --json lib.so | jq '.files[].findings[].text'";

/// The options of `offld check`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels and other zip files, tar archives or .deb
    /// packages, also compressed with gzip, xz, zstd or bzip2; directories with such files; - for
    /// stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check which image each of these devices would load: gfx1101, gfx90a:xnack+, sm_120,
    /// x86-64-v3, aarch64-linux-gnu, a compute capability such as 8.6, a GPU such as rtx4090 or
    /// mi300x, or native for this machine; with openmp:, cuda: or hip: in front, only in that
    /// runtime
    #[arg(long = "for", value_name = "DEVICE", value_delimiter = ',', value_hint = ValueHint::Other)]
    devices: Vec<String>,
    #[command(flatten)]
    selected: Selected,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let Options {
        files,
        devices,
        selected,
        json,
    } = options;
    let asked = devices
        .iter()
        .map(|text| Asked::parse(text))
        .collect::<Result<Vec<Asked>>>()
        .map_err(super::inspect::with_status)?;
    let by_name = asked
        .iter()
        .flat_map(|asked| &asked.devices)
        .filter_map(|wanted| wanted.by_name.as_ref());
    by_name.for_each(|text| shell.note(text));
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let selection = selected.selection().map_err(super::inspect::with_status)?;
    let request = Request {
        files,
        asked,
        selection: Arc::clone(&selection),
    };
    let report = check(&request, &session).map_err(super::inspect::with_status)?;
    Selected::check(&selection, shell).map_err(super::inspect::with_status)?;
    let out = if json {
        report.to_json()?
    } else {
        text::text(&report, shell.stdout_style())
    };
    let printed = shell::print(&out);
    report
        .files
        .iter()
        .flat_map(|file| &file.errors)
        .for_each(|error| shell.error(error));
    printed.map_err(super::inspect::with_status)?;
    match report.answer {
        Answer::Yes => Ok(()),
        Answer::No | Answer::Unknown | Answer::NotApplicable => Err(Silent {
            status: NOT_CONFIRMED,
        }
        .into()),
        Answer::Unreadable => Err(Silent { status: UNREADABLE }.into()),
    }
}
