//! Objects in an archive, including members of nested archives. A member borrows its archive's
//! bytes; members of a thin archive are separate files.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};

use super::{Expanded, InputObject, Place};
use crate::formats::archive::{self, ArchiveFault, MemberContents};
use crate::formats::containers::MAX_NESTING;
use crate::formats::magic::{Magic, magic};
use crate::io::bytes::Bytes;
use crate::model::Origin;

/// Appends every object in the archive `bytes` to `out`, in order, with nested archives expanded in
/// place. `lazy` and `file` are copied into each [`InputObject`].
pub(super) fn expand(
    path: &Path,
    bytes: &Bytes,
    file: usize,
    lazy: bool,
    out: &mut Expanded,
) -> Result<()> {
    Walk { file, lazy, out }.archive(Origin::file(path), path, bytes, 0)
}

struct Walk<'o> {
    file: usize,
    lazy: bool,
    out: &'o mut Expanded,
}

impl Walk<'_> {
    /// Walks one archive. `at` is the file that contains it: the names in a thin archive are
    /// relative to that file.
    fn archive(&mut self, origin: Origin, at: &Path, bytes: &Bytes, depth: usize) -> Result<()> {
        let origin = Arc::new(origin);
        let context = |fault: ArchiveFault| anyhow!(fault.in_archive(&origin));
        for member in archive::members(bytes.as_slice()).map_err(context)? {
            let member = member.map_err(context)?;
            let inner = || origin.member(&member.shown_name());
            let (own_file, contents) = match member.contents {
                MemberContents::Within { offset, size } => (
                    None,
                    bytes
                        .slice(offset, size)
                        .with_context(|| inner().to_string())?,
                ),
                MemberContents::File => {
                    let path = member.file(at);
                    let Some(contents) = self.member_file(&origin, &path)? else {
                        continue;
                    };
                    (Some(path), contents)
                }
                MemberContents::InArchive { header } => {
                    let path = member.file(at);
                    let Some(other) = self.member_file(&origin, &path)? else {
                        continue;
                    };
                    let (archive, faulty) = (inner(), |fault: ArchiveFault| {
                        anyhow!(fault.in_archive(&inner()))
                    });
                    let place = archive::member_at(other.as_slice(), header).map_err(faulty)?;
                    let place = place.and_then(|found| match found.contents {
                        MemberContents::Within { offset, size } => {
                            Some((found, other.slice(offset, size)?))
                        }
                        _ => None,
                    });
                    let (found, contents) = place.with_context(|| {
                        format!("{archive}: no member at {header:#x}. Rebuild the thin archive")
                    })?;
                    let kind = magic(contents.as_slice());
                    if !matches!(kind, Magic::Archive | Magic::Text | Magic::Other) {
                        self.object(Arc::new(archive), &other, found.name, contents, kind);
                    }
                    continue;
                }
            };
            match magic(contents.as_slice()) {
                Magic::Archive if depth < MAX_NESTING => {
                    self.archive(
                        inner(),
                        own_file.as_deref().unwrap_or(at),
                        &contents,
                        depth + 1,
                    )?;
                }
                Magic::Archive => bail!(
                    "{}: archives are nested more than {MAX_NESTING} deep",
                    inner()
                ),
                Magic::Text | Magic::Other => {}
                kind => self.object(Arc::clone(&origin), bytes, member.name, contents, kind),
            }
        }
        Ok(())
    }

    /// Adds the member `contents` of `archive`, whose name is in `names`, if it is part of them.
    fn object(
        &mut self,
        archive: Arc<Origin>,
        names: &Bytes,
        name: &[u8],
        contents: Bytes,
        kind: Magic,
    ) {
        let name = names.part(name).unwrap_or_else(|| name.to_vec().into());
        self.out.objects.push(InputObject {
            place: Place::Member { archive, name },
            bytes: contents,
            kind,
            lazy: self.lazy,
            file: self.file,
        });
    }

    /// Opens the file of a thin archive's member. Returns none if a lazy archive's file is missing:
    /// the linker reports that if it needs the member.
    fn member_file(&mut self, origin: &Origin, path: &Path) -> Result<Option<Bytes>> {
        match Bytes::open(path) {
            Ok(bytes) => {
                self.out.thin.push(path.to_owned());
                Ok(Some(bytes))
            }
            Err(_) if self.lazy && !path.exists() => Ok(None),
            Err(error) => Err(error).with_context(|| {
                format!(
                    "{origin}: cannot read the thin archive's member `{}`",
                    path.display()
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Returns a thin archive with one member, by its path.
    fn thin(member: &[u8]) -> Vec<u8> {
        let names = [member, b"/\n"].concat();
        let names = [
            names.as_slice(),
            if names.len() % 2 == 1 { b"\n" } else { b"" },
        ]
        .concat();
        let header = |name: &str, size: usize| {
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).into_bytes()
        };
        [
            b"!<thin>\n".to_vec(),
            header("//", names.len()),
            names,
            header("/0", 18),
        ]
        .concat()
    }

    #[test]
    fn thin_members_are_found_from_where_their_archive_is_and_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let elf = [
            &[
                0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
            ][..],
            &[0; 46],
        ]
        .concat();
        std::fs::write(inner.join(OsStr::from_bytes(b"k\xff.o")), elf).unwrap();
        std::fs::write(inner.join("i.a"), thin(b"k\xff.o")).unwrap();
        let outer = dir.path().join("o.a");
        std::fs::write(&outer, thin(b"inner/i.a")).unwrap();
        let mut out = Expanded::default();
        expand(&outer, &Bytes::open(&outer).unwrap(), 0, true, &mut out).unwrap();
        assert_eq!((out.objects.len(), out.thin.len()), (1, 2));
    }
}
