//! [`inspect`], [`inspect_file`], [`inspect_bytes`]: what device code is in a file, or in bytes.

use std::fs::File;
use std::path::Path;

use super::Messages;
use crate::contents::report::FileReport;
use crate::contents::{Options, Reader};
use crate::error::Error;
use crate::io::outputs::io_error;
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
    let reader = Reader::new(wanted(options), &session);
    threads::in_parallel(|| reader.open(path)).map_err(Error::of)
}

/// The device images in an open file, as [`inspect`] finds them: in all of a regular file, and in what a pipe still gives. Messages
/// call it `name`. As its place is not known, no other file is opened: neither what a thin archive names, nor the libraries that a
/// program needs, which its registrations are then told without.
///
/// # Errors
/// [`Error::Io`] with the name when the file cannot be read.
///
/// ```
/// let file = std::fs::File::open("/proc/self/exe")?;
/// assert_eq!(offld::inspect_file("myself", file, &offld::InspectOptions::default())?.kind, "elf-executable");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn inspect_file(name: impl AsRef<Path>, file: File, options: &InspectOptions) -> Result<FileReport, Error> {
    let name = name.as_ref();
    let piece = Piece::try_of(file).map_err(|error| Error::of(io_error(name, &error)))?;
    Ok(alone(name, piece, options))
}

/// The device images in `bytes`, as [`inspect`] finds them in a file with these contents. Messages call them `name`. No file is
/// opened for them, as in [`inspect_file`]; what is compressed in them is unpacked into unnamed temporary files.
///
/// ```
/// use offld::formats::offload_binary;
/// use offld::model::ImageKind;
///
/// let packed = offload_binary::write(ImageKind::Ptx, 2, 0, &[("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90")], b"code");
/// let report = offld::inspect_bytes("packed", packed, &offld::InspectOptions::default());
/// assert_eq!((report.images[0].target.as_str(), report.images[0].bytes()?), ("sm_90", &b"code"[..]));
/// # Ok::<(), offld::Error>(())
/// ```
pub fn inspect_bytes(name: impl AsRef<Path>, bytes: impl Into<Vec<u8>>, options: &InspectOptions) -> FileReport {
    alone(name.as_ref(), Piece::handed_over(bytes.into()), options)
}

fn alone(name: &Path, piece: Piece, options: &InspectOptions) -> FileReport {
    let options = Options { alone: true, ..wanted(options) };
    let session = Messages::discard().session();
    let reader = Reader::new(options, &session);
    threads::in_parallel(|| reader.opened(name, piece))
}

fn wanted(options: &InspectOptions) -> Options {
    let InspectOptions { kernels, headers_only, max_unpacked } = *options;
    let max_unpacked = max_unpacked.unwrap_or(Options::default().max_unpacked);
    Options { kernels, headers_only, keep_bytes: !headers_only, max_unpacked, ..Options::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_a_file_is_and_no_file_is_opened_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut file =
            crate::formats::offload_binary::write(crate::model::ImageKind::Object, 1, 0, &[("arch", "a")], &[7; 100_000]);
        file.extend(file.clone());
        std::fs::write(&path, &file).unwrap();
        let options = InspectOptions::default();
        let reports = [
            inspect(&path, &options).unwrap(),
            inspect_file(&path, File::open(&path).unwrap(), &options).unwrap(),
            inspect_bytes(&path, file, &options),
        ];
        let told = reports.each_ref().map(|report| serde_json::to_string(report).unwrap());
        assert!(told[0] == told[1] && told[0] == told[2], "{told:?}");
        for image in reports.iter().flat_map(|report| &report.images) {
            let mut written = Vec::new();
            image.write_to(&mut written).unwrap();
            assert_eq!((written.as_slice(), image.bytes().unwrap()), (&[7; 100_000][..], &[7; 100_000][..]));
        }
        let offsets: Vec<Option<u64>> = reports[2].images.iter().map(|image| image.offset).collect();
        assert!(matches!(offsets[..], [Some(one), Some(other)] if one < other), "{offsets:?}");

        let thin = b"!<thin>\nx/              0           0     0     644     100       `\n";
        let report = inspect_bytes(dir.path().join("a.a"), thin, &options);
        assert!(
            report.images.is_empty() && report.errors[0].ends_with("is a file of its own, which is not opened"),
            "{report:?}"
        );
        std::fs::write(dir.path().join("a.a"), thin).unwrap();
        assert_eq!(inspect(dir.path().join("a.a"), &options).unwrap().images.len(), 2);
    }
}
