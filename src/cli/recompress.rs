//! `offld recompress FILE…`: compressed containers are compressed anew.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::edits::EditOptions;
use super::inspect::with_status;
use crate::edit::Levels;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::tools::recompress::recompress;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "HIP's compressed bundles and OffloadBinaries of version 3 become zstd with a window as large as their contents, so that what is\n\
    equal in several images is there once: HIP's runtime (comgr of ROCm 6 and later) and LLVM 19 and later read them. Entries of\n\
    fatbinaries that are zstd stay zstd (CUDA 12.8 and later), and LZ4 stays as it is.\n\n\
    Exit status: 0, or 2 where a file could not be read or changed; it is as it was then.\n\n\
    Examples:\n  offld recompress --level 19 libhip.so -o small/libhip.so\n  offld recompress --level 22 -d small build/lib";

/// The options of `offld recompress`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels, bundles and other containers; folders, for all that is in them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The level of zstd, 1 to 22: 3 is what compilers use; from 20 on, window and memory grow with the images
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    #[command(flatten)]
    edits: EditOptions,
}

/// Runs `offld recompress`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let engine = options.edits.options(false, Levels::default()).map_err(with_status)?;
    let changes = recompress(&options.files, options.level, &engine, &session).map_err(with_status)?;
    options.edits.tell(&changes, "changed", shell)
}
