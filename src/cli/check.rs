//! `offld check FILE…`: whether what files register is there, or which image a device would load. The exit status is the answer.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use crate::error::Silent;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::{self, Shell};
use crate::tools::check::report::Answer;
use crate::tools::check::{Asked, Request, check, text};

/// The exit status where the answer is no, or is not known.
const NO: u8 = 1;
/// The exit status where a file, or part of one, could not be read.
const UNREADABLE: u8 = 2;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "Exit status: 0 where the answer is yes for every file, 1 where it is no or cannot be known, 2 where something could not\n\
    be read. The last line of the output is the answer on all files.\n\n\
    Examples:\n  offld check program\n  offld check --for gfx90a:xnack+ libkernels.so\n  \
    offld check --for sm_90,sm_120 package.whl\n  offld check --for native build/\n  \
    offld check --json lib.so | jq '.files[].findings[].text'";

/// The options of `offld check`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels and other zip files, tar archives, packages (.deb), and whatever of this gzip,
    /// xz, zstd or bzip2 has compressed; folders, for all that is in them; - is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Ask which image this device would load: gfx1101, gfx90a:xnack+, sm_120, x86-64-v3, aarch64-linux-gnu, or native for those
    /// of this machine; after openmp:, cuda: or hip: only of that runtime. Several need an image each
    #[arg(long = "for", value_name = "DEVICE", value_delimiter = ',')]
    devices: Vec<String>,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `offld check`.
pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let Options { files, devices, json } = options;
    let asked =
        devices.iter().map(|text| Asked::parse(text)).collect::<Result<Vec<Asked>>>().map_err(super::inspect::with_status)?;
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let report = check(&Request { files, asked }, &session).map_err(super::inspect::with_status)?;
    let out = if json { report.to_json()? } else { text::text(&report) };
    let printed = shell::print(&out);
    report.files.iter().flat_map(|file| &file.errors).for_each(|error| shell.error(error));
    printed.map_err(super::inspect::with_status)?;
    match report.answer {
        Answer::Yes => Ok(()),
        Answer::No | Answer::Unknown => Err(Silent { status: NO }.into()),
        Answer::Unreadable => Err(Silent { status: UNREADABLE }.into()),
    }
}
