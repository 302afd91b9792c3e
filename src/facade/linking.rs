//! [`link`]: a complete offload link, from its command line. [`wrap`]: registration code for device
//! images, like `llvm-offload-wrapper`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Messages;
use crate::args::{ArgumentList, Mode, Role};
use crate::error::Error;
use crate::link::pipeline;
use crate::llvm::Llvm;
use crate::model::{Generation, OffloadKind};
pub use crate::tools::wrapper::Emit;
use crate::tools::wrapper::{self, INLINE_LIMIT, Input, Request};

/// Options for a link that are not on its command line.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LinkOptions {
    /// The syntax of the command line: that of `clang-linker-wrapper`, or that of a linker.
    pub role: Role,
    /// With [`Role::Ld`]: prefer `ld` to `ld.lld` if the command line names no linker.
    pub ld_first: bool,
    /// The destination of warnings, and of the commands that `--dry-run` and `--wrapper-verbose`
    /// show.
    pub messages: Messages,
}

/// Runs the link of the command line `argv`, which excludes the program's name. It links the device
/// code embedded in the inputs, creates an object that registers the images when the program
/// starts, and runs the host linker with that object added.
///
/// Device links run clang, and registration needs `offld-llvm`. This function finds them like the
/// program `offld`, and reads the same environment variables (`OFFLD_CLANG`, `OFFLD_LLVM`,
/// `OFFLD_CACHE` and others). Unlike the program, it installs no signal handlers and always
/// returns, even if the inputs contain no device code.
///
/// # Errors
/// [`Error::Usage`] for an invalid option value, or if the command line requests help or a version;
/// [`Error::StepFailed`] with the exit status of a failed compiler or linker; [`Error::Malformed`]
/// and [`Error::Io`] for unreadable inputs.
///
/// ```
/// use offld::{Error, LinkOptions, Messages};
///
/// let mut options = LinkOptions::default();
/// options.messages = Messages::discard();
/// let error = offld::link(["--wrapper-jobs=many", "a.o"], &options).unwrap_err();
/// assert!(matches!(error, Error::Usage { .. }), "{error}");
/// ```
pub fn link<I>(argv: I, options: &LinkOptions) -> Result<(), Error>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let ledger = ArgumentList::read(options.role, argv.into_iter().map(Into::into).collect())?;
    if ledger.mode() != Mode::Link {
        return Err(Error::usage(
            "the command line asks for help or a version, not for a link",
        ));
    }
    pipeline::run(&ledger, &options.messages.shell, options.ld_first, true).map_err(Error::of)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_device_code_comes_back_with_the_linkers_status() {
        let options = LinkOptions {
            messages: Messages::discard(),
            ..LinkOptions::default()
        };
        // If the process became this linker, the tests would end with it.
        let result = link(["--linker-path=/bin/false", "-o", "x"], &options);
        assert!(
            matches!(&result, Err(Error::StepFailed(step)) if step.status == 1),
            "{result:?}"
        );
        assert!(matches!(
            link(["--help"], &options),
            Err(Error::Usage { .. })
        ));
    }
}
