//! [`bundle`] and [`unbundle`]: pack code objects for several targets into one file and extract
//! them, like `clang-offload-bundler`.

use std::ffi::OsString;
use std::path::Path;

use super::Messages;
use crate::error::Error;
use crate::formats::compressed;
use crate::tools::bundler::{self, Request, Task};

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
/// let mut options = BundleOptions::default();
/// options.file_type = "bc".to_owned();
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
