//! `offld strip-device FILE…`: device images lose their debug information.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::edits::EditOptions;
use super::inspect::with_status;
use crate::edit::Levels;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::tools::strip_device::strip_device;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "Debug sections leave AMD's images, NVIDIA's cubins and images for CPUs. What a runtime loads stays as it is: segments, addresses,\n\
    symbols, and what images say of their kernels. Host code keeps its debug information; `strip` takes that.\n\n\
    Exit status: 0, or 2 where a file could not be read or changed; it is as it was then.\n\n\
    Examples:\n  offld strip-device --in-place libhip.so\n  offld strip-device -d small build/lib";

/// The options of `offld strip-device`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels, bundles and other containers; folders, for all that is in them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    edits: EditOptions,
}

/// Runs `offld strip-device`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let engine = options.edits.options(false, Levels::default()).map_err(with_status)?;
    let changes = strip_device(&options.files, &engine, &session).map_err(with_status)?;
    options.edits.tell(&changes, "stripped", shell)
}
