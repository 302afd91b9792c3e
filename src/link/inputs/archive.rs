//! Archives as a list of members: GNU, BSD, COFF and AIX, thin, and archives within archives. A member borrows its archive's
//! bytes; a thin archive's members are files of their own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use object::read::archive::ArchiveFile;

use super::{InputObject, Spread};
use crate::formats::magic::{Magic, magic};
use crate::io::bytes::Bytes;
use crate::model::Origin;

/// No sane build nests deeper; a cycle of thin archives does.
const DEEPEST: usize = 16;

/// Every member of the archive in `bytes`, in order, members of inner archives in their place, into `out`. `lazy` and `file` are what
/// each input_object gets.
pub(super) fn spread(origin: &Origin, bytes: &Bytes, file: usize, lazy: bool, out: &mut Spread) -> Result<()> {
    Walk { file, lazy, out }.archive(origin, &origin.file, bytes, 0)
}

struct Walk<'o> {
    file: usize,
    lazy: bool,
    out: &'o mut Spread,
}

impl Walk<'_> {
    /// `at` is the file that the archive is or is in: names in a thin archive are seen from there.
    fn archive(&mut self, origin: &Origin, at: &Path, bytes: &Bytes, depth: usize) -> Result<()> {
        let data = bytes.as_slice();
        let archive = ArchiveFile::parse(data).with_context(|| origin.to_string())?;
        let mut last = 0;
        for member in archive.members() {
            let member = member.map_err(|error| anyhow::anyhow!("{origin}: {error} (after offset {last:#x})"))?;
            let name = shown(member.name());
            let (offset, size) = member.file_range();
            last = offset;
            let (inner, own, contents) = if member.is_thin() {
                let path = at.with_file_name(OsStr::from_bytes(member.name()));
                let map = Bytes::open(&path)
                    .with_context(|| format!("{}: cannot read the thin archive's member `{}`", origin, path.display()))?;
                self.out.thin.push(path.clone());
                (origin.member(&name), Some(path), map)
            } else {
                let contents = bytes.slice(offset, size);
                let inner = origin.member(&name);
                let truncated = || anyhow::anyhow!("{inner}: past the end of the archive, at offset {offset:#x} of it");
                (inner.clone(), None, contents.ok_or_else(truncated)?)
            };
            match magic(contents.as_slice()) {
                Magic::Archive if depth < DEEPEST => {
                    self.archive(&inner, own.as_deref().unwrap_or(at), &contents, depth + 1)?;
                }
                Magic::Archive => anyhow::bail!("{inner}: archives are nested more than {DEEPEST} deep"),
                Magic::Text | Magic::Other => {}
                kind => {
                    self.out.objects.push(InputObject { origin: inner, bytes: contents, kind, lazy: self.lazy, file: self.file })
                }
            }
        }
        Ok(())
    }
}

/// A member's name for messages. Any number of members may share one long name, so it is cut.
fn shown(name: &[u8]) -> String {
    const LONGEST: usize = 512;
    let start = name.get(..LONGEST).unwrap_or(name);
    let rest = if start.len() < name.len() { "…" } else { "" };
    format!("{}{rest}", String::from_utf8_lossy(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thin archive of one member, by its path.
    fn thin(member: &[u8]) -> Vec<u8> {
        let names = [member, b"/\n"].concat();
        let names = [names.as_slice(), if names.len() % 2 == 1 { b"\n" } else { b"" }].concat();
        let header = |name: &str, size: usize| format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).into_bytes();
        [b"!<thin>\n".to_vec(), header("//", names.len()), names, header("/0", 18)].concat()
    }

    #[test]
    fn long_names_are_cut_in_messages() {
        assert_eq!(shown(b"a.o"), "a.o");
        assert_eq!(shown(&[b'a'; 513]), format!("{}…", "a".repeat(512)));
    }

    #[test]
    fn thin_members_are_found_from_where_their_archive_is_and_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let elf = [&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0][..], &[0; 46]].concat();
        std::fs::write(inner.join(OsStr::from_bytes(b"k\xff.o")), elf).unwrap();
        std::fs::write(inner.join("i.a"), thin(b"k\xff.o")).unwrap();
        let outer = dir.path().join("o.a");
        std::fs::write(&outer, thin(b"inner/i.a")).unwrap();
        let mut out = Spread::default();
        spread(&Origin::file(&outer), &Bytes::open(&outer).unwrap(), 0, true, &mut out).unwrap();
        assert_eq!((out.objects.len(), out.thin.len()), (1, 2));
    }
}
