//! What other programs use this crate for: linking, inspecting, measuring, checking, bundling, packing and wrapping, as functions. Each is the library's
//! side of what one of the programs does, over the same code; here is nothing but requests, where messages go, and errors.

mod bundling;
mod checking;
mod inspection;
mod linking;
mod packing;
mod sizing;
mod wrapping;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

pub use bundling::{BundleOptions, bundle, unbundle};
pub use checking::{CheckOptions, check};
pub use inspection::{InspectOptions, inspect, inspect_bytes, inspect_file};
pub use linking::{LinkOptions, link};
pub use packing::{ExtractOptions, PackOptions, PackedImage, extract, pack};
#[cfg(feature = "capi")]
pub(crate) use packing::{StoredImage, pack_to, unpack_bytes};
pub use sizing::{SizeOptions, size};
pub use wrapping::{Emit, WrapOptions, wrap};

use crate::error::{Error, FileError};
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;

/// Where warnings go, and what the tools say that a link runs: each line begins with the name of whoever speaks. The default is
/// stderr.
#[derive(Debug, Clone)]
pub struct Messages {
    shell: Arc<Shell>,
}

impl Messages {
    /// To this process's stderr, where each message begins with `name`.
    pub fn stderr(name: &str) -> Messages {
        Messages { shell: Arc::new(Shell::stderr(name)) }
    }

    /// To `out`, where each message begins with `name`. What programs write that are run for a link may still go to stderr.
    pub fn to(name: &str, out: impl Write + Send + 'static) -> Messages {
        Messages { shell: Arc::new(Shell::from_write(name, Box::new(out))) }
    }

    /// Nowhere.
    pub fn discard() -> Messages {
        Messages::to("offld", std::io::sink())
    }

    /// A session in a process that is not ours.
    fn session(&self) -> Session {
        Session::new(Arc::clone(&self.shell), SessionOptions { embedded: true, ..SessionOptions::default() })
    }
}

impl Default for Messages {
    fn default() -> Self {
        Messages::stderr("offld")
    }
}

/// An error where there is no file or folder at `path`, or it cannot be opened. Reports on many files have that as a finding about one
/// of them; here it is the one that was named.
fn expect_opens(path: &Path) -> Result<(), Error> {
    if path == Path::new("-") {
        return Ok(());
    }
    // To open a pipe is to wait for somebody who writes to it.
    let found = fs::metadata(path);
    let opened = found.and_then(|meta| if meta.is_file() || meta.is_dir() { File::open(path).map(drop) } else { Ok(()) });
    opened.map_err(|error| Error::of(FileError::new(path.to_owned(), &error).into()))
}

/// What `write` writes, in the file at `path`, which appears whole or not at all; `-` is stdout.
#[cfg(feature = "capi")]
pub(crate) fn whole_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), Error>) -> Result<(), Error> {
    let session = Messages::discard().session();
    let mut outputs = crate::io::outputs::Outputs::new(&session);
    let mut out = outputs.create_or_stdout(path).map_err(Error::of)?;
    write(&mut out)?;
    outputs.commit().map_err(Error::of)
}

/// `text` of a path, for the tools that take it as part of a list that commas divide.
fn without_comma(path: &Path) -> Result<&OsStr, Error> {
    let name = path.as_os_str();
    if name.as_encoded_bytes().contains(&b',') {
        return Err(Error::usage(format!("'{}': a name with a comma stands for several files", path.display())));
    }
    Ok(name)
}
