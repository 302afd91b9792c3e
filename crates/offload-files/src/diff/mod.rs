//! Comparison of the kernels of two builds: which kernels are new, gone or renamed, whose code
//! changed, and how their use of resources changed. `records` reads kernels from files or from a
//! saved list, `matching` finds the kernels that correspond, `disassembly` shows the changed code,
//! and `report` is the result, as data and for display.

mod disassembly;
mod matching;
mod records;
pub mod report;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::contents::selection::Selection;
pub(crate) use matching::renames;
use offld_system::session::Session;
use records::Records;
pub use records::save;
pub(crate) use records::{FACTS, is_saved};
pub use report::Report;

/// The builds to compare, and options.
#[derive(Debug, Clone)]
pub struct Request {
    /// The earlier build: a file, a directory, or a list written by [`save`].
    pub old: PathBuf,
    /// The later build: one or more such paths.
    pub new: Vec<PathBuf>,
    /// The files and members to read.
    pub selection: Arc<Selection>,
    /// Limit of the decompressed data of a file, in bytes.
    pub max_unpacked: u64,
    /// Whether the report shows the disassembly of changed code.
    pub changed_code: bool,
}

/// Compares the kernels of two builds.
///
/// # Errors
/// A build cannot be read, has damaged parts, or has no device code.
pub fn diff(request: &Request, session: &Session) -> Result<Report> {
    let read = |paths: &[PathBuf]| -> Result<Records> {
        let records = read(paths, request, session)?;
        if records.images == 0 {
            let paths: Vec<String> = paths
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            bail!("`{}`: no device code to compare", paths.join("`, `"));
        }
        Ok(records)
    };
    let old = read(std::slice::from_ref(&request.old))?;
    let mut report = matching::compare(&old, &read(&request.new)?);
    if request.changed_code {
        disassembly::add(&mut report, session)?;
    }
    Ok(report)
}

/// Like [`diff`], but builds may have no device code, and the report has no instructions.
pub(crate) fn diff_any(request: &Request, session: &Session) -> Result<Report> {
    let old = read(std::slice::from_ref(&request.old), request, session)?;
    Ok(matching::compare(
        &old,
        &read(&request.new, request, session)?,
    ))
}

fn read(paths: &[PathBuf], request: &Request, session: &Session) -> Result<Records> {
    let records = records::read(paths, request, session)?;
    match records.errors.first() {
        Some(error) => bail!("{error}"),
        None => Ok(records),
    }
}
