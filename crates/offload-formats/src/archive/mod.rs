//! Archives of objects (`ar`): one reader for all variants that linkers accept, and a writer of GNU
//! archives.
//!
//! ```
//! use offload_formats::archive::{MemberContents, members, write_plain};
//!
//! let mut file = Vec::new();
//! write_plain([("a.o".to_owned(), &b"first"[..]), ("b.o".to_owned(), b"second")].into_iter(), &mut file)?;
//! let member = members(&file)?.nth(1).ok_or("no second member")??;
//! assert_eq!(member.name, b"b.o");
//! let MemberContents::Within { offset, size } = member.contents else { return Err("a thin archive".into()) };
//! assert_eq!(&file[offset as usize..(offset + size) as usize], b"second");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod read;
pub mod resize;
mod write;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

pub use read::shown_name;
pub use read::{
    ArchiveFault, ArchiveMember, ArchiveMembers, MemberContents, is_thin, member_at, members,
};
pub use write::{NewMember, write, write_plain};

// Checks of the names of members of archives that are unpacked to directories (zip, tar).

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
