//! [`check`]: whether the device code of a file will run.

use std::path::Path;
use std::sync::Arc;

use super::{Messages, expect_opens};
use crate::contents::selection::Selection;
use crate::error::Error;
use crate::sys::threads;
use crate::tools::check::report::Report;
use crate::tools::check::{self, Asked, Request};

/// The question and the files that it covers.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CheckOptions {
    /// The devices for which to determine the image that each would load: `gfx90a:xnack+`,
    /// `cuda:sm_90`, `x86-64-v3`, or `native` for those of this machine. Empty: check that
    /// everything the file registers exists.
    pub devices: Vec<String>,
    /// Patterns such as `*cuda*`: checks only files, and members of zip files and tar archives,
    /// whose path or name matches one of them. Empty: all.
    pub only: Vec<String>,
    /// Patterns of files and members to skip.
    pub exclude: Vec<String>,
}

/// Checks whether the device code in the file at `path`, or in every file of that directory, will
/// run: whether the registered kernels exist, or which image a device would load. `-` is stdin. The
/// result is the report of `offld check`.
///
/// Damage in a file is reported in [`FileCheck::errors`](crate::check_report::FileCheck::errors),
/// and the answer for that file is then
/// [`Answer::Unreadable`](crate::check_report::Answer::Unreadable).
///
/// # Errors
/// [`Error::Io`] with the path if the file or directory cannot be opened; [`Error::Usage`] for an
/// invalid device or pattern, and for a native GPU on a machine without one.
///
/// ```
/// use offld::check_report::Answer;
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
/// use offld::{CheckOptions, Error};
///
/// let dir = tempfile::tempdir()?;
/// let file = dir.path().join("images.bin");
/// let strings = [("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90")];
/// std::fs::write(&file, offload_binary::write(ImageKind::Ptx, OffloadKind::Cuda as u16, 0, &strings, b".version 8.0\n.target sm_90\n"))?;
///
/// let mut options = CheckOptions::default();
/// options.devices = vec!["sm_35".to_owned()];
/// let report = offld::check(&file, &options)?;
/// assert_eq!(report.answer, Answer::No);
/// assert!(report.files[0].units[0].loads[0].text.contains("the nearest image is for"));
/// assert!(report.to_json()?.contains("\"answer\": \"no\""));
///
/// options.devices = vec!["toaster".to_owned()];
/// assert!(matches!(offld::check(&file, &options), Err(Error::Usage { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(path: impl AsRef<Path>, options: &CheckOptions) -> Result<Report, Error> {
    let path = path.as_ref();
    let asked = options
        .devices
        .iter()
        .map(|text| Asked::parse(text).map_err(Error::in_line))
        .collect::<Result<_, _>>()?;
    expect_opens(path)?;
    let selection = Arc::new(Selection::new(&options.only, &options.exclude)?);
    let request = Request {
        files: vec![path.to_owned()],
        asked,
        selection,
    };
    let session = Messages::discard().session();
    threads::in_parallel(|| check::check(&request, &session)).map_err(Error::of)
}
