//! `offld prune FILE…`: removes the images for some devices from finished files.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, ValueHint};

use super::edits::EditOptions;
use super::inspect::with_status;
use super::selected::Selected;
use super::size::native;
use crate::edit::{Levels, files};
use crate::model::printable;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::target::Selector;
use crate::tools::prune::{Patterns, prune};

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "Patterns are [KIND:][TRIPLE:]ARCH[:FEATURES], with * ? [abc] in names: gfx90a, gfx9*, hip:gfx942:xnack+, sm_90, cpu, native.\n\
    With --keep and --drop, an image stays if --keep selects it and --drop does not.\n\n\
    Exit status: 0, or 2 if a file could not be read or changed; such a file is unchanged.\n\n\
    Examples:\n  offld prune --keep gfx90a,gfx942 libhip.so -o small/libhip.so\n  offld prune --keep native --in-place program\n  \
    offld prune --drop 'sm_[567]?' -d pruned wheels/*.whl";

/// The options of `offld prune`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true).args(["keep", "drop"]))]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels, bundles or other containers; directories
    /// with such files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Keep only images for these devices
    #[arg(long, value_name = "PATTERNS", value_hint = ValueHint::Other, value_delimiter = ',')]
    keep: Vec<Selector>,
    /// Remove images for these devices
    #[arg(long, value_name = "PATTERNS", value_hint = ValueHint::Other, value_delimiter = ',')]
    drop: Vec<Selector>,
    /// Allow removing the last image of a registration; the program then falls back to the host, or
    /// fails if offloading is mandatory
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    edits: EditOptions,
}

pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let patterns = Patterns {
        keep: resolve_native(&options.keep)?,
        drop: resolve_native(&options.drop)?,
    };
    let selection = options.selected.selection().map_err(with_status)?;
    let engine = options
        .edits
        .options(options.allow_empty, Levels::default())
        .map_err(with_status)?;
    let engine = files::Options {
        selection: Arc::clone(&selection),
        ..engine
    };
    let pruned = prune(&options.files, &patterns, &engine, &session).map_err(with_status)?;
    for pattern in &pruned.unused {
        shell.warn(&format!(
            "pattern `{}` selects no image",
            printable(pattern)
        ));
    }
    options.edits.tell(&pruned.changes, "dropped", shell)?;
    Selected::check(&selection, shell).map_err(with_status)
}

/// Replaces `native` in the patterns with the devices of this machine.
fn resolve_native(selectors: &[Selector]) -> Result<Vec<Selector>> {
    let one = |selector: &Selector| {
        Ok(if selector.is_native() {
            selector.clone().with_native(&native(selector)?)
        } else {
            selector.clone()
        })
    };
    selectors
        .iter()
        .map(one)
        .collect::<Result<_>>()
        .map_err(with_status)
}
