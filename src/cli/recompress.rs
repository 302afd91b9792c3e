//! `offld recompress FILE…`: recompresses compressed containers.

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
pub(super) const AFTER_HELP: &str = "Compressed HIP bundles, OffloadBinaries of version 3 and zstd entries of fatbinaries are recompressed by the method they have:\n\
    zstd or zlib. The zstd window of a bundle covers all of its images, so data that several images share is stored once; HIP of\n\
    ROCm 6.2 and LLVM 19, and later ones, read such bundles. LZ4 entries of fatbinaries do not change.\n\n\
    Exit status: 0, or 2 if a file could not be read or changed; such a file is unchanged.\n\n\
    Examples:\n  offld recompress --level 19 libhip.so -o small/libhip.so\n  offld recompress --level 22 -d small build/lib";

/// The options of `offld recompress`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels, bundles or other containers; directories
    /// with such files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Set the zstd level, 1 to 22; compilers use 3; from 20 on, window and memory grow with the
    /// images
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    #[command(flatten)]
    edits: EditOptions,
}

pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let engine = options
        .edits
        .options(false, Levels::default())
        .map_err(with_status)?;
    let changes =
        recompress(&options.files, options.level, &engine, &session).map_err(with_status)?;
    options.edits.tell(&changes, "changed", shell)
}
