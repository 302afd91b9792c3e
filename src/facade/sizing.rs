//! [`size`]: what the bytes of a file belong to.

use std::path::Path;
use std::sync::Arc;

use super::{Messages, expect_opens};
use crate::contents::Options;
use crate::contents::layout::Names;
use crate::error::Error;
use crate::sys::threads;
use crate::tools::size::report::{Level, Report};
use crate::tools::size::rows::{View, levels, tree};
use crate::tools::size::{measure, pattern};

/// What is counted, and what is told apart.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SizeOptions {
    /// What makes a level of rows each, the outermost first; architectures, if nothing is said. Kernels are below their templates.
    pub by: Vec<Level>,
    /// The largest rows come first by their inflated bytes, and not by those in the file.
    pub by_inflated: bool,
    /// A regular expression: only what has a kernel, translation unit, section or architecture that it matches is in the rows. Lower and
    /// upper case are the same.
    pub filter: Option<String>,
    /// How many bytes may come out of what is compressed in a file, at the most: 64 GiB, if nothing is said. 1000 times the size
    /// of the file is a limit, too.
    pub max_unpacked: Option<u64>,
}

/// Which architecture, translation unit and kernel the bytes of the file at `path`, or of the files in the folder there, belong to, and
/// what of it is there twice. `-` is stdin. It is what `offld size` says.
///
/// What is damaged in a file is told in [`FileSize::errors`](crate::sizes::FileSize::errors).
///
/// # Errors
/// [`Error::Io`] with the path when the file or folder cannot be opened; [`Error::Usage`] where the filter is no regular expression.
///
/// ```
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
/// use offld::SizeOptions;
///
/// let dir = tempfile::tempdir()?;
/// let file = dir.path().join("images.bin");
/// let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];
/// std::fs::write(&file, offload_binary::write(ImageKind::Bitcode, OffloadKind::OpenMp as u16, 0, &strings, b"code"))?;
///
/// let report = offld::size(&file, &SizeOptions::default())?;
/// assert_eq!(report.total.file, std::fs::metadata(&file)?.len());
/// let gfx90a = report.total.rows.iter().find(|row| row.name == "gfx90a").unwrap();
/// assert_eq!(gfx90a.file, 4);
/// assert!(report.to_json()?.starts_with("{\n  \"schema\": 1,"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn size(path: impl AsRef<Path>, options: &SizeOptions) -> Result<Report, Error> {
    let path = path.as_ref();
    let SizeOptions { by, by_inflated, filter, max_unpacked } = options;
    let filter = filter.as_ref().map(|filter| pattern(filter)).transpose();
    let filter = filter.map_err(|error| Error::usage(format!("the filter: {error}")))?;
    expect_opens(path)?;
    let by = if by.is_empty() { vec![Level::Arch] } else { levels(by) };
    let view = View { by, by_inflated: *by_inflated };
    let max_unpacked = max_unpacked.unwrap_or(Options::default().max_unpacked);
    let session = Messages::discard().session();
    let measured = || measure(&[path.to_owned()], &Arc::new(Names::default()), max_unpacked, &session);
    let mut sizes = threads::in_parallel(measured).map_err(Error::of)?;
    if let Some(filter) = filter {
        sizes.items.keep(|text| filter.is_match(text.as_bytes()));
    }
    let total = tree(&sizes.items, None, &view);
    Ok(Report::new(sizes, total, Vec::new()))
}
