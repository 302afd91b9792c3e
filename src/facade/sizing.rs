//! [`size`]: attributes the bytes of a file to architectures, translation units and kernels.

use std::path::Path;
use std::sync::Arc;

use super::{Messages, expect_opens};
use crate::contents::Options;
use crate::contents::layout::Names;
use crate::contents::selection::Selection;
use crate::error::Error;
use crate::sys::threads;
use crate::tools::size::report::{Level, Report};
use crate::tools::size::rows::{View, levels, tree};
use crate::tools::size::{Counted, measure, pattern};

/// Options for measuring.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SizeOptions {
    /// The levels of rows, the outermost first (default: architectures). Kernels are below their
    /// templates.
    pub by: Vec<Level>,
    /// Sort rows by uncompressed size instead of the size in the file.
    pub by_inflated: bool,
    /// A case-insensitive regular expression. Rows contain only bytes with a matching kernel,
    /// translation unit, section or architecture.
    pub filter: Option<String>,
    /// Patterns such as `*cuda*`: counts only files, and members of zip files and tar archives,
    /// whose path or name matches one of them. Empty: all.
    pub only: Vec<String>,
    /// Patterns of files and members to skip.
    pub exclude: Vec<String>,
    /// The limit for decompressed data in bytes (default: 64 GiB). 1000 times the size of the file
    /// is a limit, too.
    pub max_unpacked: Option<u64>,
}

/// Attributes the bytes of the file at `path`, or of the files in that directory, to architectures,
/// translation units and kernels, and finds duplicates. `-` is stdin. The result is the report of
/// `offld size`.
///
/// Damage in a file is reported in [`FileSize::errors`](crate::size_report::FileSize::errors).
///
/// # Errors
/// [`Error::Io`] with the path if the file or directory cannot be opened; [`Error::Usage`] if the
/// filter or a pattern is invalid.
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
    let SizeOptions {
        by,
        by_inflated,
        filter,
        only,
        exclude,
        max_unpacked,
    } = options;
    let selection = Arc::new(Selection::new(only, exclude)?);
    let filter = filter.as_ref().map(|filter| pattern(filter)).transpose();
    let filter = filter.map_err(|error| Error::usage(format!("invalid filter: {error}")))?;
    expect_opens(path)?;
    let by = if by.is_empty() {
        vec![Level::Arch]
    } else {
        levels(by)
    };
    let view = View {
        by,
        by_inflated: *by_inflated,
    };
    let max_unpacked = max_unpacked.unwrap_or(Options::default().max_unpacked);
    let session = Messages::discard().session();
    let counted = Counted {
        names: Arc::new(Names::default()),
        max_unpacked,
        selection,
    };
    let measured = || measure(&[path.to_owned()], &counted, &session);
    let mut sizes = threads::in_parallel(measured).map_err(Error::of)?;
    if let Some(filter) = filter {
        sizes.items.keep(|text| filter.is_match(text.as_bytes()));
    }
    let total = tree(&sizes.items, None, &view);
    Ok(Report::new(sizes, total, Vec::new()))
}
