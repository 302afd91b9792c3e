//! `--only GLOB` and `--exclude GLOB`: select the files and the members that a command processes.

use std::sync::Arc;

use anyhow::Result;
use clap::{Args, ValueHint};

use crate::contents::selection::Selection;
use crate::error::Error;
use crate::model::printable;
use crate::sys::shell::Shell;

/// The options.
#[derive(Debug, Args)]
pub(super) struct Selected {
    /// Process only files and members of wheels, zip files and tar archives whose path or name
    /// matches; repeatable
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    only: Vec<String>,
    /// Skip files and members whose path or name matches; repeatable
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    exclude: Vec<String>,
}

impl Selected {
    pub(super) fn selection(&self) -> Result<Arc<Selection>> {
        Ok(Arc::new(Selection::new(&self.only, &self.exclude)?))
    }

    /// Fails if a pattern of `--only` matched nothing, and warns of unmatched patterns of
    /// `--exclude`.
    pub(super) fn check(selection: &Selection, shell: &Shell) -> Result<()> {
        if let Some(pattern) = selection.unmatched_only().next() {
            return Err(Error::usage(format!(
                "no file or member matches `{}` of --only",
                printable(pattern)
            ))
            .into());
        }
        for pattern in selection.unmatched_exclude() {
            shell.warn(&format!(
                "no file or member matches `{}` of --exclude",
                printable(pattern)
            ));
        }
        Ok(())
    }
}
