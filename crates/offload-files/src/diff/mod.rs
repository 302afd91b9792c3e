//! Comparison of the kernels of two builds: which kernels are new, gone or renamed, whose code
//! changed, and how their use of resources changed. `records` reads kernels from files or from a
//! saved list, `matching` finds the kernels that correspond, `report` is the result as data, and
//! `text` displays it.

mod matching;
mod records;
pub mod report;
pub mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::contents::folders::Selection;
use offld_system::session::Session;
use records::Records;
pub use records::save;
pub use report::Report;

/// The builds to compare, and options.
#[derive(Debug, Clone)]
pub struct Request {
    /// The earlier build: a file, a directory, or a list written by [`save`].
    pub old: PathBuf,
    /// The later build.
    pub new: PathBuf,
    /// The files and members to read.
    pub selection: Arc<Selection>,
    /// Limit of the decompressed data of a file, in bytes.
    pub max_unpacked: u64,
}

/// Compares the kernels of two builds.
///
/// # Errors
/// A build cannot be read, has damaged parts, or has no device code.
pub fn diff(request: &Request, session: &Session) -> Result<Report> {
    let read = |path: &Path| -> Result<Records> {
        let records = records::read(path, request, session)?;
        if let Some(error) = records.errors.first() {
            bail!("{error}");
        }
        if records.images == 0 {
            bail!("`{}`: no device code to compare", path.display());
        }
        Ok(records)
    };
    let (old, new) = (read(&request.old)?, read(&request.new)?);
    Ok(matching::compare(&old, &new))
}
