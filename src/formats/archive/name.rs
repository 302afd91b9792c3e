//! Checks the names of members of archives that are unpacked to directories (zip, tar).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// The path of the member `name`, relative to the target directory. `None` if the name is absolute
/// or leads out of that directory; unpackers reject such names.
pub(crate) fn path_below(name: &[u8]) -> Option<&Path> {
    let path = Path::new(OsStr::from_bytes(name));
    let is_below = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    is_below.then_some(path)
}

/// The fault of a name that is meant to deceive users who unpack or list the archive. `None` for
/// valid names.
pub(crate) fn name_fault(name: &[u8]) -> Option<&'static str> {
    if path_below(name).is_none() {
        return Some("the name leads out of the target directory");
    }
    name.iter()
        .any(u8::is_ascii_control)
        .then_some("the name has control characters")
}
