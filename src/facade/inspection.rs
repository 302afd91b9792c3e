//! [`inspect`] and [`inspect_bytes`]: what device code is in a file, or in bytes that are in memory.

use std::path::Path;

use super::Messages;
use crate::contents::report::FileReport;
use crate::contents::{Options, Reader};
use crate::error::Error;
use crate::io::piece::Piece;
use crate::sys::threads;

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
    let (path, session) = (path.as_ref(), Messages::discard().session());
    let reader = Reader::new(of_contents(options), &session);
    threads::in_parallel(|| reader.open(path)).map_err(Error::of)
}

/// The device images in `bytes`, as [`inspect`] finds them in a file with these contents; `name` is what the report calls it. A thin
/// archive names its members as files, which are looked for as if the archive was at `name`.
///
/// ```
/// use offld::InspectOptions;
/// use offld::formats::offload_binary;
/// use offld::model::{ImageKind, OffloadKind};
///
/// let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];
/// let binary = offload_binary::write(ImageKind::Bitcode, OffloadKind::OpenMp as u16, 0, &strings, b"code");
/// let report = offld::inspect_bytes("upload", binary, &InspectOptions::default());
/// assert_eq!((report.file.as_str(), report.kind, report.images[0].size), ("upload", "offload-binary", 4));
/// # Ok::<(), offld::Error>(())
/// ```
pub fn inspect_bytes(name: impl AsRef<Path>, bytes: impl Into<Vec<u8>>, options: &InspectOptions) -> FileReport {
    let (name, bytes, session) = (name.as_ref(), bytes.into(), Messages::discard().session());
    let reader = Reader::new(of_contents(options), &session);
    threads::in_parallel(|| reader.opened(name, Piece::owned(bytes)))
}

fn of_contents(options: &InspectOptions) -> Options {
    let InspectOptions { kernels, headers_only, max_unpacked } = *options;
    let max_unpacked = max_unpacked.unwrap_or(Options::default().max_unpacked);
    Options { kernels, headers_only, keep_bytes: !headers_only, max_unpacked, ..Options::default() }
}
