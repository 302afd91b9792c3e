//! Copies blobs out of a store. A read error is a problem of the store, but a write error is a
//! problem of the link.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::super::digest::{BlobName, Naming, copy};

/// Copies `from` to `to` and returns the name of the contents. The outer error is a write error,
/// the inner one a read error.
pub(super) fn to_new_file(
    mut from: File,
    to: &Path,
    naming: Naming,
) -> Result<io::Result<BlobName>> {
    let context = || format!("cannot write `{}`", to.display());
    let mut out = ErrorKeeper {
        file: File::create_new(to).with_context(context)?,
        failed: None,
    };
    let copied = copy(&mut from, &mut out, naming);
    match out.failed {
        Some(error) => {
            let _ = fs::remove_file(to);
            Err(error).with_context(context)
        }
        None => Ok(copied),
    }
}

/// A file that remembers its write errors, so that they can be distinguished from read errors.
struct ErrorKeeper {
    file: File,
    failed: Option<io::Error>,
}

impl Write for ErrorKeeper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| {
            let kind = error.kind();
            if kind != ErrorKind::Interrupted {
                self.failed = Some(error);
            }
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
