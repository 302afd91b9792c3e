//! [`wrap`]: registration code for device images, as `llvm-offload-wrapper` makes it.

use std::path::{Path, PathBuf};

use super::Messages;
use crate::error::Error;
use crate::llvm::Llvm;
use crate::model::{Generation, OffloadKind};
pub use crate::tools::wrapper::Emit;
use crate::tools::wrapper::{self, INLINE_LIMIT, Input, Request};

/// For what, and in which form, registration code is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WrapOptions {
    /// The runtime that the images are registered with.
    pub kind: OffloadKind,
    /// The host's triple.
    pub host_triple: String,
    /// Which entry table and which registration functions: those of LLVM 21 and later, unless set otherwise.
    pub generation: Generation,
    /// What is written; none for what the output's name asks for (`.ll`, `.s`, `.o`, `.obj`, else bitcode).
    pub emit: Option<Emit>,
    /// Where warnings go.
    pub messages: Messages,
}

impl WrapOptions {
    /// Code that registers images with the runtime of `kind` on the host `host_triple`.
    pub fn new(kind: OffloadKind, host_triple: impl Into<String>) -> WrapOptions {
        let messages = Messages::default();
        WrapOptions { kind, host_triple: host_triple.into(), generation: Generation::Llvm21, emit: None, messages }
    }
}

/// Writes to the file `output` a module of host code that holds the `images` and registers them when the program starts. For CUDA
/// and HIP that is one fatbinary or bundle; `-` is stdin or stdout.
///
/// This takes `offld-llvm`, which `OFFLD_LLVM` names, or which is beside the running program.
///
/// # Errors
/// [`Error::StepFailed`] when `offld-llvm` fails; [`Error::Malformed`] and [`Error::Io`] for images that cannot be read;
/// [`Error::Other`] when `offld-llvm` is not found, or for a host without registration code.
///
/// ```
/// use offld::WrapOptions;
/// use offld::model::OffloadKind;
///
/// let options = WrapOptions::new(OffloadKind::OpenMp, "no-such-host");
/// let error = offld::wrap(&["image"], "wrapped.o", &options).unwrap_err();
/// assert!(error.to_string().contains("'no-such-host'"), "{error}");
/// ```
pub fn wrap(images: &[impl AsRef<Path>], output: impl AsRef<Path>, options: &WrapOptions) -> Result<(), Error> {
    let output: PathBuf = output.as_ref().to_owned();
    let input = |path: &_| Input { path: AsRef::<Path>::as_ref(path).to_owned(), offload_arch: None };
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
