//! Archives as a list of members: GNU, BSD, COFF and AIX, thin, and archives within archives. A member borrows its archive's
//! bytes; a thin archive's members are files of their own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::read::archive::ArchiveFile;

use super::magic::{Magic, magic};
use super::{Leaf, Spread};
use crate::bytes::Bytes;
use crate::model::Origin;

/// No sane build nests deeper; a cycle of thin archives does.
const DEEPEST: usize = 16;

/// Every member of the archive in `bytes`, in order, members of inner archives in their place, into `out`. `lazy` and `file` are what
/// each leaf gets.
pub(super) fn spread(origin: &Origin, bytes: &Bytes, file: usize, lazy: bool, out: &mut Spread) -> Result<()> {
    Walk { file, lazy, out }.archive(origin, bytes, 0)
}

struct Walk<'o> {
    file: usize,
    lazy: bool,
    out: &'o mut Spread,
}

impl Walk<'_> {
    fn archive(&mut self, origin: &Origin, bytes: &Bytes, depth: usize) -> Result<()> {
        let data = bytes.as_slice();
        let archive = ArchiveFile::parse(data).with_context(|| origin.to_string())?;
        let mut last = 0;
        for member in archive.members() {
            let member = member.map_err(|error| anyhow::anyhow!("{origin}: {error} (after offset {last:#x})"))?;
            let name = String::from_utf8_lossy(member.name()).into_owned();
            let (offset, size) = member.file_range();
            last = offset;
            let (inner, contents) = if member.is_thin() {
                let path = beside(&origin.file, &name);
                let map = Bytes::open(&path)
                    .with_context(|| format!("{}: cannot read the thin archive's member `{}`", origin, path.display()))?;
                self.out.thin.push(path);
                (origin.member(&name), map)
            } else {
                let contents = bytes.slice(offset, size);
                let inner = origin.member(&name);
                let truncated = || anyhow::anyhow!("{inner}: past the end of the archive, at offset {offset:#x} of it");
                (inner.clone(), contents.ok_or_else(truncated)?)
            };
            match magic(contents.as_slice()) {
                Magic::Archive if depth < DEEPEST => self.archive(&inner, &contents, depth + 1)?,
                Magic::Archive => anyhow::bail!("{inner}: archives are nested more than {DEEPEST} deep"),
                Magic::Text | Magic::Other => {}
                kind => self.out.leaves.push(Leaf { origin: inner, bytes: contents, kind, lazy: self.lazy, file: self.file }),
            }
        }
        Ok(())
    }
}

/// A thin member's path: relative to the archive's folder.
fn beside(archive: &Path, name: &str) -> PathBuf {
    match archive.parent() {
        Some(folder) => folder.join(name),
        None => PathBuf::from(name),
    }
}
