//! [`bundle`] and [`unbundle`]: code objects of several targets in one file, and out of it, as `clang-offload-bundler` does it.

use std::ffi::OsString;
use std::path::Path;

use super::Messages;
use crate::error::Error;
use crate::formats::compressed;
use crate::tools::bundler::{self, Request, Task};

/// How files are bundled and unbundled.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BundleOptions {
    /// What the files are, as the bundler's `-type=` names it: `o` for objects (the default), `bc`, `ll`, `s`, `i`, `ii`, `hipi`,
    /// `cui`, `d`, `gch`, `ast`; for [`unbundle`] also `a`, archives of objects.
    pub file_type: String,
    /// The alignment of code objects in a binary bundle, in bytes; not 0.
    pub align: u32,
    /// How the bundle is compressed, if it is.
    pub compression: Option<compressed::Options>,
    /// When unbundling: a target without a code object gets an empty file and is no error.
    pub allow_missing: bool,
    /// When unbundling: code objects for HIP fit targets for OpenMP, and the other way round.
    pub hip_openmp_compatible: bool,
    /// Where warnings go.
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

/// Bundles the files `objects`, each with the id of its target (`hip-amdgcn-amd-amdhsa--gfx90a`; the host's is `host-` and its
/// triple), into the file `output`, which appears whole or not at all. `-` is stdin or stdout.
///
/// # Errors
/// [`Error::Io`] for files; [`Error::Other`] for ids that are wrong or in conflict and for a file type that is not known.
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

/// Takes the code objects for the ids in `outputs` out of the file `input`, each into its file. All files appear, or none.
///
/// # Errors
/// [`Error::Malformed`] for a damaged bundle, [`Error::Io`] for files, [`Error::Other`] for ids that are wrong or that have no code
/// object in the bundle.
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

/// A request without files.
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
