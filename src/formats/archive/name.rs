//! The names of members of archives that are unpacked to folders (zip, tar).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// The path below the folder that an archive is unpacked to of its member `name`; none where the name is absolute or leads out of
/// that folder, which no unpacker takes.
pub(crate) fn path_below(name: &[u8]) -> Option<&Path> {
    let path = Path::new(OsStr::from_bytes(name));
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    is_below.then_some(path)
}

/// What is wrong with `name`, where something is: such a name is made to deceive who unpacks the archive, or who reads what is in
/// it.
pub(crate) fn name_fault(name: &[u8]) -> Option<&'static str> {
    if path_below(name).is_none() {
        return Some("its name leads out of the folder that the archive is unpacked to");
    }
    name.iter().any(u8::is_ascii_control).then_some("its name has control characters")
}
