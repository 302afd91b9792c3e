//! The code objects that are to be bundled.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::formats::fat_object;
use crate::io::piece::Piece;

/// An input file.
pub(super) struct Input {
    pub(super) path: PathBuf,
    pub(super) contents: Piece,
}

impl Input {
    /// The input at `path`; `-` is stdin.
    pub(super) fn open(path: &Path) -> Result<Input> {
        Ok(Input { path: path.to_owned(), contents: Piece::open_one_of_many(path)? })
    }
}

/// A code object to be bundled: an input and the target that it is for.
pub(super) struct CodeObject<'a> {
    /// The target's id, as it is written into the bundle.
    pub(super) id: String,
    /// Whether it is the host's.
    pub(super) is_host: bool,
    /// Its bytes.
    pub(super) input: &'a Input,
}

/// The host's code object, if that is an object file: the one that the others go into as sections. Without it a binary bundle is
/// made, whatever the other inputs are. (LLVM's bundler crashes when a device object comes first and there is no host:
/// docs/spec/faults.md B3.)
pub(super) fn host_object<'a>(objects: &'a [CodeObject<'a>]) -> Option<&'a CodeObject<'a>> {
    let host = objects.iter().find(|object| object.is_host)?;
    fat_object::kind(host.input.contents.bytes()).map(|_| host)
}
