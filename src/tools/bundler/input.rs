//! The code objects to bundle.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::formats::bundled_object;
use crate::io::file_slice::FileSlice;

pub(super) struct Input {
    pub(super) path: PathBuf,
    pub(super) contents: FileSlice,
}

impl Input {
    /// Opens the input at `path`. `-` is stdin.
    pub(super) fn open(path: &Path) -> Result<Input> {
        Ok(Input {
            path: path.to_owned(),
            contents: FileSlice::open_one_of_many(path)?,
        })
    }
}

/// A code object to bundle: an input and its target.
pub(super) struct CodeObject<'a> {
    /// The target's ID, as stored in the bundle.
    pub(super) id: String,
    /// Whether this is the host's code object.
    pub(super) is_host: bool,
    pub(super) input: &'a Input,
}

/// The host's code object, if it is an object file, to which the others are added as sections.
/// Without it, the output is a binary bundle, whatever the other inputs are. (LLVM's bundler
/// crashes if a device object comes first and there is no host: docs/spec/faults.md B3.)
pub(super) fn host_object<'a>(objects: &'a [CodeObject<'a>]) -> Option<&'a CodeObject<'a>> {
    let host = objects.iter().find(|object| object.is_host)?;
    bundled_object::kind(host.input.contents.bytes()).map(|_| host)
}
