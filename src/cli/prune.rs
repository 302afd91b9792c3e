//! `offld prune FILE…`: images of some devices leave finished files.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::edits::EditOptions;
use super::inspect::with_status;
use super::size::native;
use crate::edit::Levels;
use crate::model::printable;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::target::Selector;
use crate::tools::prune::{Patterns, prune};

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "Patterns are [KIND:][TRIPLE:]ARCH[:FEATURES], with * ? [abc] in names: gfx90a, gfx9*, hip:gfx942:xnack+, sm_90, cpu, native.\n\
    With both --keep and --drop an image stays that the one selects and the other does not.\n\n\
    Exit status: 0, or 2 where a file could not be read or changed; it is as it was then.\n\n\
    Examples:\n  offld prune --keep gfx90a,gfx942 libhip.so -o small/libhip.so\n  offld prune --keep native --in-place program\n  \
    offld prune --drop 'sm_[567]?' -d pruned wheels/*.whl";

/// The options of `offld prune`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels, bundles and other containers; folders, for all that is in them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only images for these devices stay
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',', required_unless_present = "drop")]
    keep: Vec<Selector>,
    /// Images for these devices go
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    drop: Vec<Selector>,
    /// Take the last image that a registration has as well: then the program runs without the device, or stops if it must have one
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    edits: EditOptions,
}

/// Runs `offld prune`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let patterns = Patterns { keep: here(&options.keep)?, drop: here(&options.drop)? };
    let engine = options.edits.options(options.allow_empty, Levels::default()).map_err(with_status)?;
    let pruned = prune(&options.files, &patterns, &engine, &session).map_err(with_status)?;
    for pattern in &pruned.unused {
        shell.warn(&format!("no image is for `{}`", printable(pattern)));
    }
    options.edits.tell(&pruned.changes, "dropped", shell)
}

/// The patterns, with `native` for the devices of this machine.
fn here(selectors: &[Selector]) -> Result<Vec<Selector>> {
    let one = |selector: &Selector| {
        Ok(if selector.is_native() { selector.clone().with_native(&native(selector)?) } else { selector.clone() })
    };
    selectors.iter().map(one).collect::<Result<_>>().map_err(with_status)
}
