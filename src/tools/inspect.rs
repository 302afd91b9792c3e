//! Lists the device code in files: objects, programs, archives, zip files, containers, bare images.
//! What is in them is found by [`crate::contents`]; `table` shows it as text, `extract` writes
//! images to files.

mod extract;
pub(crate) mod table;

use std::path::PathBuf;

use anyhow::Result;
use rayon::prelude::*;

use crate::contents::report::{FileReport, Report, SCHEMA};
use crate::contents::{Options, Reader, folders};
use crate::sys::progress::Meter;
use crate::sys::session::Session;
use crate::sys::threads;

/// What to inspect, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The files, in the order of their reports, and folders, of which every file with device code
    /// is reported.
    pub files: Vec<PathBuf>,
    /// What is wanted of each file.
    pub options: Options,
    /// The folder to extract images to.
    pub extract: Option<PathBuf>,
}

/// Inspects the files. Errors in a file are part of its report; this fails only if extracted images
/// cannot be written or after a signal.
pub(crate) fn inspect(request: &Request, session: &Session) -> Result<Report> {
    let (paths, faults) = folders::expand(&request.files, session);
    let mut options = request.options.clone();
    options.keep_bytes |= request.extract.is_some();
    let meter = Meter::new(
        session.shell.is_terminal(),
        paths.iter().map(|found| found.size).sum(),
    );
    let reader = Reader::new(options, session).shown_by(&meter);
    let mut files: Vec<FileReport> = threads::in_parallel(|| {
        let each = paths.par_iter().filter_map(|found| {
            let also = found
                .also
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Some(FileReport {
                also,
                ..reader.one_of_many(&found.path)
            })
            .filter(|file| found.is_wanted(file))
        });
        each.collect()
    });
    files.extend(
        faults
            .into_iter()
            .map(|(path, error)| reader.unreadable(&path, &error)),
    );
    drop(meter);
    session.signals.check()?;
    if let Some(folder) = &request.extract {
        extract::all(&mut files, folder, session)?;
    }
    Ok(Report {
        schema: SCHEMA,
        generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
        files,
    })
}
