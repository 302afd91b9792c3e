//! [`check`]: whether the device code of a file will run.

use std::path::Path;

use super::{Messages, expect_opens};
use crate::error::Error;
use crate::sys::threads;
use crate::tools::check::report::Report;
use crate::tools::check::{self, Asked, Request};

/// What is asked.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Which of the images each of these devices would load: `gfx90a:xnack+`, `cuda:sm_90`, `x86-64-v3`, or `native` for those of this
    /// machine. None: whether what the file registers is there.
    pub devices: Vec<String>,
}

/// Whether the device code in the file at `path`, or in every file of the folder there, will run: whether the kernels that it registers are
/// there, or which image a device would load. `-` is stdin. It is what `offld check` says.
///
/// What is damaged in a file is told in [`FileCheck::errors`](crate::answers::FileCheck::errors), and then the answer on it is
/// [`Answer::Unreadable`](crate::answers::Answer::Unreadable).
///
/// # Errors
/// [`Error::Io`] with the path when the file or folder cannot be opened; [`Error::Usage`] for a device that is none, and for a GPU of this
/// machine where there is none.
///
/// ```
/// use offld::answers::Answer;
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
/// assert!(report.files[0].units[0].loads[0].text.contains("the nearest is"));
/// assert!(report.to_json()?.contains("\"answer\": \"no\""));
///
/// options.devices = vec!["toaster".to_owned()];
/// assert!(matches!(offld::check(&file, &options), Err(Error::Usage { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn check(path: impl AsRef<Path>, options: &CheckOptions) -> Result<Report, Error> {
    let path = path.as_ref();
    let asked = options.devices.iter().map(|text| Asked::parse(text).map_err(Error::in_line)).collect::<Result<_, _>>()?;
    expect_opens(path)?;
    let request = Request { files: vec![path.to_owned()], asked };
    let session = Messages::discard().session();
    threads::in_parallel(|| check::check(&request, &session)).map_err(Error::of)
}
