//! The public functions of this crate: linking, inspecting, measuring, comparing, checking, bundling, packing
//! and wrapping. Each function calls the code behind one of offld's commands or emulated tools.
//! This module contains only requests, destinations of messages, and error conversion.

/// Defines methods that return options with another value: `fn METHOD FIELD: TYPE`, and
/// `list METHOD FIELD` for a list of names.
macro_rules! with_methods {
    ($options:ident { $(fn $method:ident $field:ident: $type:ty,)* $(list $list:ident $names:ident,)* }) => {
        impl $options {
            $(
                #[doc = concat!("Returns these options with another `", stringify!($field), "`.")]
                pub fn $method(self, value: $type) -> $options {
                    $options { $field: value, ..self }
                }
            )*
            $(
                #[doc = concat!("Returns these options with other `", stringify!($names), "`.")]
                pub fn $list<I>(self, names: I) -> $options
                where
                    I: IntoIterator,
                    I::Item: Into<String>,
                {
                    let $names = names.into_iter().map(Into::into).collect();
                    $options { $names, ..self }
                }
            )*
        }
    };
}

mod inspection;
mod packing;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use inspection::{
    CheckOptions, DiffOptions, GateOptions, InspectOptions, SizeOptions, check, diff, gate,
    inspect, inspect_bytes, inspect_file, size,
};
pub use packing::{
    BundleOptions, ExtractOptions, PackOptions, PackedImage, bundle, extract, pack, unbundle,
};
#[cfg(feature = "capi")]
pub(crate) use packing::{StoredImage, pack_to, unpack_bytes};

use crate::args::{ArgumentList, Mode, Role};
use crate::link::pipeline;
use crate::llvm::Llvm;
pub use crate::tools::wrapper::Emit;
use crate::tools::wrapper::{self, INLINE_LIMIT, Input, Request};
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;
use offload_formats::error::{Error, FileError};
use offload_formats::model::{Generation, OffloadKind};

/// The destination of warnings, and of the output of tools that a link runs. Each line begins with
/// the name of its sender. The default is stderr.
#[derive(Debug, Clone)]
pub struct Messages {
    shell: Arc<Shell>,
}

impl Messages {
    /// Sends messages to this process's stderr; each begins with `name`.
    pub fn stderr(name: &str) -> Messages {
        Messages {
            shell: Arc::new(Shell::stderr(name)),
        }
    }

    /// Sends messages to `out`; each begins with `name`. Programs that a link runs may still write
    /// to stderr.
    pub fn to(name: &str, out: impl Write + Send + 'static) -> Messages {
        Messages {
            shell: Arc::new(Shell::from_write(name, Box::new(out))),
        }
    }

    /// Discards all messages.
    pub fn discard() -> Messages {
        Messages::to("offld", std::io::sink())
    }

    /// Creates a session in a host process that offld does not own.
    fn session(&self) -> Session {
        Session::new(
            Arc::clone(&self.shell),
            SessionOptions {
                embedded: true,
                ..SessionOptions::default()
            },
        )
    }
}

impl Default for Messages {
    fn default() -> Self {
        Messages::stderr("offld")
    }
}

/// Fails if no file or directory exists at `path`, or if it cannot be opened. A report on many
/// files treats this as a finding about one file; here the caller named the file, so it is an
/// error.
fn expect_opens(path: &Path) -> Result<(), Error> {
    if path == Path::new("-") {
        return Ok(());
    }
    // Opening a named pipe would block until a writer appears, so only its metadata is read.
    let found = fs::metadata(path);
    let opened = found.and_then(|meta| {
        if meta.is_file() || meta.is_dir() {
            File::open(path).map(drop)
        } else {
            Ok(())
        }
    });
    opened.map_err(|error| Error::of(FileError::new(path.to_owned(), &error).into()))
}

/// Writes a file at `path` with the output of `write`. The file appears complete or not at all; `-`
/// is stdout.
#[cfg(feature = "capi")]
pub(crate) fn whole_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), Error> {
    let session = Messages::discard().session();
    let mut outputs = offld_system::io::outputs::Outputs::new(&session);
    let mut out = outputs.create_or_stdout(path).map_err(Error::of)?;
    write(&mut out)?;
    outputs.commit().map_err(Error::of)
}

/// Returns the text of a path for tools that accept comma-separated lists; a path with a comma is
/// an error.
fn without_comma(path: &Path) -> Result<&OsStr, Error> {
    let name = path.as_os_str();
    if name.as_encoded_bytes().contains(&b',') {
        return Err(Error::usage(format!(
            "'{}': a file name cannot contain a comma, which separates files",
            path.display()
        )));
    }
    Ok(name)
}

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

with_methods!(LinkOptions {
    fn with_role role: Role,
    fn with_ld_first ld_first: bool,
    fn with_messages messages: Messages,
});

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
/// let options = LinkOptions::default().with_messages(Messages::discard());
/// let error = offld::link(["--wrapper-jobs=many", "a.o"], &options).unwrap_err();
/// assert!(matches!(error, Error::Usage { .. }), "{error}");
/// ```
pub fn link<I>(argv: I, options: &LinkOptions) -> Result<(), Error>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let arguments = ArgumentList::read(options.role, argv.into_iter().map(Into::into).collect())?;
    if arguments.mode() != Mode::Link {
        return Err(Error::usage(
            "the command line asks for help or a version, not for a link",
        ));
    }
    pipeline::run(&arguments, &options.messages.shell, options.ld_first, true).map_err(Error::of)
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

with_methods!(WrapOptions {
    fn with_generation generation: Generation,
    fn with_emit emit: Option<Emit>,
    fn with_messages messages: Messages,
});

/// Writes a module of host code to the file `output`. The module contains the `images` and
/// registers them when the program starts. CUDA and HIP require a single fatbinary or bundle; `-`
/// is stdin or stdout.
///
/// This function runs `offld-llvm`: the one that `OFFLD_LLVM` names, else the one next to the
/// running program or in `../libexec/offld` from there.
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
