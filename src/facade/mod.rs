//! The public functions of this crate: linking, inspecting, measuring, checking, bundling, packing
//! and wrapping. Each function calls the code behind one of offld's commands or emulated tools.
//! This module contains only requests, destinations of messages, and error conversion.

mod inspection;
mod linking;
mod packing;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

pub use inspection::{
    CheckOptions, InspectOptions, SizeOptions, check, inspect, inspect_bytes, inspect_file, size,
};
pub use linking::{Emit, LinkOptions, WrapOptions, link, wrap};
pub use packing::{
    BundleOptions, ExtractOptions, PackOptions, PackedImage, bundle, extract, pack, unbundle,
};
#[cfg(feature = "capi")]
pub(crate) use packing::{StoredImage, pack_to, unpack_bytes};

use crate::error::{Error, FileError};
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;

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
    let mut outputs = crate::io::outputs::Outputs::new(&session);
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
