//! Containers of device images: [`pack`] and [`extract`], like `llvm-offload-binary`; [`bundle`]
//! and [`unbundle`], like `clang-offload-bundler`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Messages, without_comma};
use offload_files::bundler::{self, Request, Task};
#[cfg(feature = "capi")]
pub(crate) use offload_files::packager::StoredImage;
use offload_files::packager::{self, Extract, Format, ImageArguments, Pack};
use offload_formats::compressed;
use offload_formats::error::Error;
use offload_formats::model::OffloadKind;

/// An image with its metadata. [`pack`] reads `file`. [`extract`] writes it, and an image matches
/// if it has all other values given here.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PackedImage {
    /// The image's file; its name must not contain a comma.
    pub file: PathBuf,
    /// The programming model. `None`: matches any when extracting, and stores none when packing.
    pub kind: Option<OffloadKind>,
    /// The triple of the device; empty for any.
    pub triple: String,
    /// The processor or target id; empty for any.
    pub arch: String,
    /// Further strings that are stored with the image, as keys and values.
    pub strings: Vec<(String, String)>,
}

impl PackedImage {
    /// Creates the description of the image in `file`, for the device `triple`.
    pub fn new(file: impl Into<PathBuf>, triple: impl Into<String>) -> PackedImage {
        PackedImage {
            file: file.into(),
            kind: None,
            triple: triple.into(),
            arch: String::new(),
            strings: Vec::new(),
        }
    }

    /// Sets the programming model to `kind`.
    pub fn with_kind(self, kind: OffloadKind) -> PackedImage {
        PackedImage {
            kind: Some(kind),
            ..self
        }
    }

    /// Sets the processor or target id to `arch`.
    pub fn with_arch(self, arch: impl Into<String>) -> PackedImage {
        PackedImage {
            arch: arch.into(),
            ..self
        }
    }

    fn arguments(&self) -> Result<ImageArguments, Error> {
        let kind = self.kind.map_or("", OffloadKind::name);
        let known = [
            ("kind", kind),
            ("triple", &self.triple),
            ("arch", &self.arch),
        ]
        .into_iter();
        let others = self
            .strings
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()));
        let given = known.chain(others).filter(|(_, value)| !value.is_empty());
        let file = (b"file".as_slice(), without_comma(&self.file)?.as_bytes());
        Ok(ImageArguments::new([file].into_iter().chain(
            given.map(|(key, value)| (key.as_bytes(), value.as_bytes())),
        )))
    }
}

/// Options for packing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct PackOptions {
    /// Write version 2 of the format, which LLVM 23 reads: one binary for all images. Default:
    /// version 1, with one binary for each image.
    pub shared: bool,
    /// Number the programming models like LLVM 15 to 20, where HIP is 3.
    pub legacy_kinds: bool,
    /// The destination of warnings.
    pub messages: Messages,
}

/// Options for extraction.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// Write an archive of all matching images. Default: write the last matching image.
    pub archive: bool,
    /// The destination of warnings.
    pub messages: Messages,
}

with_methods!(PackOptions {
    fn with_shared shared: bool,
    fn with_legacy_kinds legacy_kinds: bool,
    fn with_messages messages: Messages,
});

with_methods!(ExtractOptions {
    fn with_archive archive: bool,
    fn with_messages messages: Messages,
});

/// Packs `images` into the file `output`, which appears complete or not at all; `-` is stdout.
///
/// # Errors
/// [`Error::Io`] for files; [`Error::Usage`] and [`Error::Other`] for an impossible request.
///
/// ```
/// use offld::model::OffloadKind;
/// use offld::{ExtractOptions, PackOptions, PackedImage};
///
/// let dir = tempfile::tempdir()?;
/// let path = |name: &str| dir.path().join(name);
/// std::fs::write(path("k.cubin"), "device code")?;
/// let image = PackedImage::new(path("k.cubin"), "nvptx64-nvidia-cuda").with_kind(OffloadKind::Cuda).with_arch("sm_90");
/// offld::pack(&[image], path("packed"), &PackOptions::default())?;
///
/// let wanted = PackedImage::new(path("again"), "nvptx64-nvidia-cuda");
/// offld::extract(path("packed"), &[wanted], &ExtractOptions::default())?;
/// assert_eq!(std::fs::read(path("again"))?, b"device code");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pack(
    images: &[PackedImage],
    output: impl AsRef<Path>,
    options: &PackOptions,
) -> Result<(), Error> {
    let images = images
        .iter()
        .map(PackedImage::arguments)
        .collect::<Result<_, _>>()?;
    let format = if options.shared {
        Format::Shared
    } else {
        Format::Separate
    };
    let request = Pack {
        images,
        output: output.as_ref().to_owned(),
        format,
        compression: None,
        legacy_kinds: options.legacy_kinds,
    };
    packager::pack(&request, &options.messages.session()).map_err(Error::of)
}

/// Extracts the images that `wanted` describes from `input` (a binary, an object, a program, an
/// archive; `-` is stdin), each into its file. All files appear, or none.
///
/// # Errors
/// [`Error::Malformed`] for damaged input, [`Error::Io`] for files, [`Error::Usage`] if `wanted` is
/// empty, and [`Error::Other`] if nothing in the input matches one of the images.
pub fn extract(
    input: impl AsRef<Path>,
    wanted: &[PackedImage],
    options: &ExtractOptions,
) -> Result<(), Error> {
    if wanted.is_empty() {
        return Err(Error::usage("nothing to extract: no image was requested"));
    }
    let images = wanted
        .iter()
        .map(PackedImage::arguments)
        .collect::<Result<_, _>>()?;
    let request = Extract {
        input: input.as_ref().to_owned(),
        images,
        archive: options.archive,
        all_must_match: true,
    };
    packager::extract(&request, &options.messages.session())
        .map(drop)
        .map_err(Error::of)
}

/// Writes `images` to `out`, in the format of [`pack`].
#[cfg(feature = "capi")]
pub(crate) fn pack_to(
    images: &[&StoredImage],
    shared: bool,
    out: &mut dyn std::io::Write,
) -> Result<(), Error> {
    packager::pack_to(
        images,
        if shared {
            Format::Shared
        } else {
            Format::Separate
        },
        out,
    )
    .map_err(Error::of)
}

/// Returns the images of the OffloadBinaries in `bytes`, as stored. The limit for decompressed data
/// is the same as for inspected files.
#[cfg(feature = "capi")]
pub(crate) fn unpack_bytes(bytes: &[u8]) -> Result<Vec<StoredImage>, Error> {
    let most = offload_files::contents::most_unpacked(bytes.len() as u64);
    packager::unpack(bytes, most, &Messages::discard().session()).map_err(Error::of)
}

/// Options for bundling and unbundling.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BundleOptions {
    /// The file type, as in the bundler's `-type=`: `o` for objects (the default), `bc`, `ll`, `s`,
    /// `i`, `ii`, `hipi`, `cui`, `d`, `gch`, `ast`; for [`unbundle`] also `a`, archives of objects.
    pub file_type: String,
    /// The alignment of code objects in a binary bundle, in bytes; not 0.
    pub align: u32,
    /// The compression of the bundle; `None` for an uncompressed one.
    pub compression: Option<compressed::Options>,
    /// When unbundling: write an empty file for a target without a code object, instead of failing.
    pub allow_missing: bool,
    /// When unbundling: code objects for HIP match OpenMP targets, and vice versa.
    pub hip_openmp_compatible: bool,
    /// The destination of warnings.
    pub messages: Messages,
}

impl Default for BundleOptions {
    fn default() -> Self {
        BundleOptions {
            file_type: "o".to_owned(),
            align: 1,
            compression: None,
            allow_missing: false,
            hip_openmp_compatible: false,
            messages: Messages::default(),
        }
    }
}

with_methods!(BundleOptions {
    fn with_file_type file_type: String,
    fn with_align align: u32,
    fn with_compression compression: Option<compressed::Options>,
    fn with_allow_missing allow_missing: bool,
    fn with_hip_openmp_compatible hip_openmp_compatible: bool,
    fn with_messages messages: Messages,
});

/// Bundles the files `objects`, each with its target id (`hip-amdgcn-amd-amdhsa--gfx90a`; the
/// host's is `host-` and its triple), into the file `output`, which appears complete or not at all.
/// `-` is stdin or stdout.
///
/// # Errors
/// [`Error::Io`] for files; [`Error::Other`] for invalid or conflicting ids and for an unknown file
/// type.
///
/// ```
/// use offld::BundleOptions;
/// use offld::formats::bundle::read_all;
///
/// let dir = tempfile::tempdir()?;
/// let path = |name: &str| dir.path().join(name);
/// std::fs::write(path("host"), "")?;
/// std::fs::write(path("gpu"), "device code")?;
/// let options = BundleOptions::default().with_file_type("bc".to_owned());
/// let (host, gpu) = ("host-x86_64-unknown-linux-gnu", "hip-amdgcn-amd-amdhsa--gfx90a");
/// offld::bundle(&[(host, path("host")), (gpu, path("gpu"))], path("both"), &options)?;
///
/// offld::unbundle(path("both"), &[(gpu, path("again"))], &options)?;
/// assert_eq!(std::fs::read(path("again"))?, b"device code");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn bundle(
    objects: &[(impl AsRef<str>, impl AsRef<Path>)],
    output: impl AsRef<Path>,
    options: &BundleOptions,
) -> Result<(), Error> {
    let mut request = request(Task::Bundle, options);
    request.outputs.push(output.as_ref().to_owned());
    for (id, path) in objects {
        request.targets.push(id.as_ref().into());
        request.inputs.push(path.as_ref().to_owned());
    }
    bundler::run(&request, &options.messages.session()).map_err(Error::of)
}

/// Extracts the code objects for the ids in `outputs` from the file `input`, each into its file.
/// All files appear, or none.
///
/// # Errors
/// [`Error::Malformed`] for a damaged bundle, [`Error::Io`] for files, [`Error::Other`] for invalid
/// ids and for ids without a code object in the bundle.
pub fn unbundle(
    input: impl AsRef<Path>,
    outputs: &[(impl AsRef<str>, impl AsRef<Path>)],
    options: &BundleOptions,
) -> Result<(), Error> {
    let mut request = request(Task::Unbundle, options);
    request.inputs.push(input.as_ref().to_owned());
    for (id, path) in outputs {
        request.targets.push(id.as_ref().into());
        request.outputs.push(path.as_ref().to_owned());
    }
    bundler::run(&request, &options.messages.session()).map_err(Error::of)
}

/// Creates a request without files.
fn request(task: Task, options: &BundleOptions) -> Request {
    Request {
        task,
        file_type: OsString::from(&options.file_type),
        targets: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        align: options.align,
        compression: options.compression,
        verbose: false,
        show_commands: false,
        allow_missing: options.allow_missing,
        hip_openmp_compatible: options.hip_openmp_compatible,
        check_input_archive: false,
        explain: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_requests_have_distinct_errors() {
        let dir = tempfile::tempdir().unwrap();
        let (options, output) = (ExtractOptions::default(), dir.path().join("out"));
        assert!(matches!(
            extract("/dev/null", &[], &options),
            Err(Error::Usage { .. })
        ));
        let comma = [PackedImage::new(dir.path().join("a,b"), "x")];
        assert!(matches!(
            pack(&comma, &output, &PackOptions::default()),
            Err(Error::Usage { .. })
        ));
        let missing = [PackedImage::new(dir.path().join("none"), "x")];
        let result = pack(&missing, &output, &PackOptions::default());
        assert!(
            matches!(&result, Err(Error::Io { path: Some(path), .. }) if path.ends_with("none")),
            "{result:?}"
        );
        std::fs::write(dir.path().join("cut.a"), b"!<arch>\ncut").unwrap();
        let result = extract(dir.path().join("cut.a"), &missing, &options);
        assert!(
            matches!(&result, Err(Error::Malformed { place, .. }) if place.ends_with("cut.a")),
            "{result:?}"
        );
        assert!(!output.exists());
    }
}
