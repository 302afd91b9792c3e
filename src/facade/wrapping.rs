//! [`wrap`]: generates registration code for device images, like `llvm-offload-wrapper`.

use std::path::{Path, PathBuf};

use super::Messages;
use crate::error::Error;
use crate::llvm::Llvm;
use crate::model::{Generation, OffloadKind};
pub use crate::tools::wrapper::Emit;
use crate::tools::wrapper::{self, INLINE_LIMIT, Input, Request};

/// The runtime, the host and the output format of registration code.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WrapOptions {
    /// The runtime that the images are registered with.
    pub kind: OffloadKind,
    /// The host's triple.
    pub host_triple: String,
    /// The version of the entry table and of the registration functions (default: LLVM 21 and
    /// later).
    pub generation: Generation,
    /// The output format. `None`: determined by the output's extension (`.ll`, `.s`, `.o`, `.obj`,
    /// else bitcode).
    pub emit: Option<Emit>,
    /// The destination of warnings.
    pub messages: Messages,
}

impl WrapOptions {
    /// Options for registering images with the runtime of `kind` on the host `host_triple`.
    pub fn new(kind: OffloadKind, host_triple: impl Into<String>) -> WrapOptions {
        let messages = Messages::default();
        WrapOptions {
            kind,
            host_triple: host_triple.into(),
            generation: Generation::Llvm21,
            emit: None,
            messages,
        }
    }
}

/// Writes a module of host code to the file `output`. The module contains the `images` and
/// registers them when the program starts. CUDA and HIP require a single fatbinary or bundle; `-`
/// is stdin or stdout.
///
/// This function runs `offld-llvm`: the one that `OFFLD_LLVM` names, or the one next to the running
/// program.
///
/// # Errors
/// [`Error::StepFailed`] if `offld-llvm` fails; [`Error::Malformed`] and [`Error::Io`] for
/// unreadable images; [`Error::Other`] if `offld-llvm` is not found, or if no registration code
/// exists for the host.
///
/// ```
/// use offld::WrapOptions;
/// use offld::model::OffloadKind;
///
/// let options = WrapOptions::new(OffloadKind::OpenMp, "no-such-host");
/// let error = offld::wrap(&["image"], "wrapped.o", &options).unwrap_err();
/// assert!(error.to_string().contains("'no-such-host'"), "{error}");
/// ```
pub fn wrap(
    images: &[impl AsRef<Path>],
    output: impl AsRef<Path>,
    options: &WrapOptions,
) -> Result<(), Error> {
    let output: PathBuf = output.as_ref().to_owned();
    let input = |path: &_| Input {
        path: AsRef::<Path>::as_ref(path).to_owned(),
        offload_arch: None,
    };
    let request = Request {
        host_triple: options.host_triple.clone(),
        kind: options.kind,
        generation: options.generation,
        inputs: images.iter().map(input).collect(),
        emit: options.emit.unwrap_or(Emit::of(&output)),
        output,
        notes: false,
        relocatable: false,
        inline_limit: INLINE_LIMIT,
    };
    let session = options.messages.session();
    wrapper::wrap(&request, &Llvm::new(&session), &session).map_err(Error::of)
}
