//! Archives: each member is gone into, those of thin archives as files of their own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use object::read::archive::ArchiveFile;

use super::report::Step;
use super::walk::{Cursor, Walk};
use crate::io::piece::Piece;

/// Goes into every member of the archive at `cursor`, in order.
pub(super) fn members(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let archive = ArchiveFile::parse(cursor.piece.bytes()).with_context(|| cursor.place.to_string())?;
    let mut last = 0;
    for member in archive.members() {
        walk.signals.check()?;
        let member = member.map_err(|error| anyhow!("{}: {error} (after offset {last:#x})", cursor.place))?;
        let name = String::from_utf8_lossy(member.name()).into_owned();
        let (offset, size) = member.file_range();
        last = offset;
        let opened = if member.is_thin() { thin(cursor, member.name()) } else { own(cursor, &name, offset, size) };
        match opened {
            Ok((piece, file)) => {
                let own = file.as_ref().map(|file| file.display().to_string());
                let step = Step::Member { name, file: own, offset: piece.file_offset(0), size: piece.size() };
                let inner = cursor.deeper(piece, cursor.place.then(step), cursor.facts.clone());
                walk.enter(&Cursor { file: file.unwrap_or(inner.file), ..inner });
            }
            Err(error) => walk.note(&error),
        }
    }
    Ok(())
}

/// A member, and the file it is where it is one.
type Opened = (Piece, Option<PathBuf>);

/// A member in a file of its own, beside the archive's.
fn thin(cursor: &Cursor, name: &[u8]) -> Result<Opened> {
    let path = cursor.file.with_file_name(OsStr::from_bytes(name));
    let piece = Piece::try_open_member(&path);
    let context = || format!("{}: cannot read the thin archive's member `{}`", cursor.place, path.display());
    Ok((piece.with_context(context)?, Some(path)))
}

fn own(cursor: &Cursor, name: &str, offset: u64, size: u64) -> Result<Opened> {
    let piece = cursor.piece.slice(offset, size);
    let cut = || anyhow!("{}({name}): past the end of the archive, at offset {offset:#x} of it", cursor.place);
    Ok((piece.ok_or_else(cut)?, None))
}
