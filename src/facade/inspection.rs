//! [`inspect`]: what device code is in a file.

use std::path::Path;

use super::Messages;
use crate::contents::report::FileReport;
use crate::contents::{Options, Reader};
use crate::error::Error;

/// What is looked for.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct InspectOptions {
    /// Read the kernels of images that are ELF files, too.
    pub kernels: bool,
    /// Read headers alone: no hashes, and nothing is unpacked but compressed files, members of archives and the heads of compressed
    /// bundles. The images' bytes cannot be written then.
    pub headers_only: bool,
    /// How many bytes may come out of what is compressed in the file, at the most: 64 GiB, if nothing is said. 1000 times the size
    /// of the file is a limit, too.
    pub max_unpacked: Option<u64>,
}

/// The device images in the file at `path`: an object, library, program, archive, wheel, bundle or image of any kind; `-` is stdin.
/// Whatever is in the file is gone into, down to the images.
///
/// What is damaged in the file is told in [`FileReport::errors`], beside what the rest holds.
///
/// # Errors
/// [`Error::Io`] with the path when the file cannot be opened.
///
/// ```
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
/// use offld::{Error, InspectOptions};
///
/// let dir = tempfile::tempdir()?;
/// let file = dir.path().join("images.bin");
/// let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];
/// std::fs::write(&file, offload_binary::write(ImageKind::Bitcode, OffloadKind::OpenMp as u16, 0, &strings, b"code"))?;
///
/// let report = offld::inspect(&file, &InspectOptions::default())?;
/// let image = &report.images[0];
/// assert_eq!((image.kinds[0].as_str(), image.triple.as_str(), image.target.as_str()), ("openmp", "amdgcn-amd-amdhsa", "gfx90a"));
/// let mut bytes = Vec::new();
/// image.write_to(&mut bytes)?;
/// assert_eq!(bytes, b"code");
///
/// let missing = offld::inspect(dir.path().join("none"), &InspectOptions::default());
/// assert!(matches!(missing, Err(Error::Io { path: Some(_), .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect(path: impl AsRef<Path>, options: &InspectOptions) -> Result<FileReport, Error> {
    let InspectOptions { kernels, headers_only, max_unpacked } = *options;
    let max_unpacked = max_unpacked.unwrap_or(Options::default().max_unpacked);
    let options = Options { kernels, headers_only, keep_bytes: !headers_only, max_unpacked, ..Options::default() };
    Reader::new(options, &Messages::discard().session()).open(path.as_ref()).map_err(Error::of)
}
