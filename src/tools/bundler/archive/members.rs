//! The members of an archive: GNU, BSD, COFF and AIX, thin or not.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use object::read::archive::ArchiveFile;

use crate::io::piece::{Piece, Spool};

/// What an archive starts with.
const MAGICS: [&[u8]; 3] = [b"!<arch>\n", b"!<thin>\n", b"<bigaf>\n"];

/// Calls `take` with the name and the bytes of each member of `archive`, the file at `path`. The members of a thin archive are files
/// of their own, named relative to it.
pub(super) fn each(
    archive: &Piece,
    path: &Path,
    spool: &mut Spool<'_>,
    mut take: impl FnMut(&str, &Piece, &mut Spool<'_>) -> Result<()>,
) -> Result<()> {
    let data = archive.bytes();
    if !MAGICS.iter().any(|magic| data.starts_with(magic)) {
        // LLVM's message for everything that is not an archive, whatever its size.
        bail!("'{}': file too small to be an archive", path.display());
    }
    let context = || format!("'{}'", path.display());
    for member in ArchiveFile::parse(data).with_context(context)?.members() {
        let member = member.with_context(context)?;
        let name = String::from_utf8_lossy(member.name()).into_owned();
        let piece = if member.is_thin() {
            Piece::open_member(&path.with_file_name(OsStr::from_bytes(member.name())))?
        } else {
            let (offset, size) = member.file_range();
            let past = || anyhow!("'{}': member '{name}' at offset {offset:#x} is past the end of the file", path.display());
            archive.slice(offset, size).ok_or_else(past)?
        };
        take(&name, &piece, spool)?;
    }
    Ok(())
}
