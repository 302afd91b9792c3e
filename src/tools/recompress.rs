//! Recompresses the compressed images of a file at another level.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::contents::report::Image;
use crate::edit::files::{Change, Options, change};
use crate::edit::{Levels, Repack, Verdict};
use crate::sys::session::Session;

/// Recompresses the compressed images of the files at `level`.
///
/// # Errors
/// The places of the new files cannot be, or a signal. What is wrong with one file is in its
/// change.
pub(crate) fn recompress(
    files: &[PathBuf],
    level: i32,
    options: &Options,
    session: &Session,
) -> Result<Vec<Change>> {
    let options = Options {
        levels: Levels {
            level: Some(level),
            repack: Repack::All,
            only_smaller: true,
            sort: true,
        },
        ..options.clone()
    };
    let keep = |_: &Path, images: &[Image]| Ok(vec![Verdict::Keep; images.len()]);
    change(files, &options, session, &keep)
}
