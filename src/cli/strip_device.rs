//! `offld strip-device FILE…`: removes debug information from device images.

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
pub(super) const AFTER_HELP: &str = "The command removes debug sections from AMD images, NVIDIA cubins and CPU images. Everything that a runtime loads stays unchanged:\n\
    segments, addresses, symbols and kernel metadata. Host code keeps its debug information; `strip` removes that.\n\n\
    Exit status: 0, or 2 if a file could not be read or changed; such a file is unchanged.\n\n\
    Examples:\n  offld strip-device --in-place libhip.so\n  offld strip-device -d small build/lib";

/// The options of `offld strip-device`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels, bundles or other containers; directories
    /// with such files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    edits: EditOptions,
}

pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let engine = options
        .edits
        .options(false, Levels::default())
        .map_err(with_status)?;
    let changes = strip_device(&options.files, &engine, &session).map_err(with_status)?;
    options.edits.tell(&changes, "stripped", shell)
}
