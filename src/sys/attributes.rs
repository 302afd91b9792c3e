//! File attributes other than the contents: owner, mode, and extended attributes with capabilities
//! and access lists. A new version of a file gets those of the old one.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::buffer::spare_capacity;
use rustix::fs::{Gid, Uid, XattrFlags, fchown, fgetxattr, flistxattr, fsetxattr};
use rustix::io::Errno;

/// Extended attributes in which the kernel's integrity subsystem stores signatures. They are valid
/// for the old contents only.
const SIGNATURES: [&str; 2] = ["security.ima", "security.evm"];
/// Linux's limit for the value of an attribute, and for the list of names, in bytes.
const LONGEST: usize = 64 << 10;
/// Mode bits that make a program run as another user or group.
const SET_ID: u32 = 0o6000;

fn names(file: &File) -> io::Result<Vec<String>> {
    let mut list = Vec::with_capacity(LONGEST);
    match flistxattr(file, spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect())
}

/// Returns the attribute that contains a signature of `file`, if there is one.
///
/// # Errors
/// The attributes cannot be read.
pub(crate) fn signature(file: &File) -> io::Result<Option<String>> {
    Ok(names(file)?
        .into_iter()
        .find(|name| SIGNATURES.contains(&name.as_str())))
}

/// Copies owner, mode and extended attributes from `from` to `to`, without signatures. If this
/// process may not change the owner, the new file keeps its owner, and loses the set-id bits.
///
/// # Errors
/// An attribute cannot be read or set: none is omitted silently.
pub(crate) fn copy(from: &File, to: &File) -> io::Result<()> {
    let meta: Metadata = from.metadata()?;
    let own = to.metadata()?;
    let mut mode = meta.permissions().mode();
    if (own.uid(), own.gid()) != (meta.uid(), meta.gid()) {
        let owner = (
            Some(Uid::from_raw(meta.uid())),
            Some(Gid::from_raw(meta.gid())),
        );
        match fchown(to, owner.0, owner.1) {
            Ok(()) => {}
            Err(Errno::PERM) => mode &= !SET_ID,
            Err(error) => return Err(error.into()),
        }
    }
    // Changing the owner clears the set-id bits and the capabilities, so the mode follows, and the
    // extended attributes come last.
    to.set_permissions(std::fs::Permissions::from_mode(mode))?;
    for name in names(from)?
        .iter()
        .filter(|name| !SIGNATURES.contains(&name.as_str()))
    {
        let mut value: Vec<u8> = Vec::with_capacity(LONGEST);
        fgetxattr(from, name.as_str(), spare_capacity(&mut value))
            .map_err(|error| named(name, error))?;
        fsetxattr(to, name.as_str(), &value, XattrFlags::empty())
            .map_err(|error| named(name, error))?;
    }
    Ok(())
}

fn named(name: &str, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(
        error.kind(),
        format!("the extended attribute `{name}`: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_mode_and_attributes_without_signatures() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let from = File::create(&one).unwrap();
        from.set_permissions(std::fs::Permissions::from_mode(0o4751))
            .unwrap();
        let has = fsetxattr(&from, "user.note", b"text", XattrFlags::empty()).is_ok();
        let to = File::create(&other).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(to.metadata().unwrap().permissions().mode() & 0o7777, 0o4751);
        assert_eq!(names(&to).unwrap().contains(&"user.note".to_owned()), has);
        assert_eq!(signature(&to).unwrap(), None);
    }
}
