//! Inspection of archives: each member is inspected in turn, those of thin archives as files of their own.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};

use super::report::Step;
use super::walk::{Cursor, Walk};
use crate::formats::archive::{self, ArchiveFault, ArchiveMember, MemberContents};
use crate::io::piece::{Piece, member_of};

/// Inspects every member of the archive at `cursor`, in order. A member that cannot be read is noted, and the rest is inspected.
pub(super) fn members(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let describe = |fault: ArchiveFault| anyhow!(fault.in_archive(&cursor.place));
    for member in archive::members(cursor.piece.bytes()).map_err(describe)? {
        walk.signals.check()?;
        let opened = member.map_err(describe).and_then(|member| Ok((member, open(cursor, &member)?)));
        match opened {
            Ok((member, (piece, file))) => {
                let name = String::from_utf8_lossy(member.name).into_owned();
                let own = file.as_ref().map(|file| file.display().to_string());
                let (offset, size) = (piece.file_offset(0), piece.size());
                let step = Step::Member { name, file: own, offset, size, compression: None, plain_size: None };
                let inner = cursor.deeper(piece, cursor.place.then(step), cursor.facts.clone());
                walk.enter(&Cursor { file: file.unwrap_or(inner.file), ..inner });
            }
            Err(error) => walk.note(&error),
        }
    }
    Ok(())
}

/// The bytes of a member. A member of a thin archive is a file, whose path is returned too.
fn open(cursor: &Cursor, member: &ArchiveMember<'_>) -> Result<(Piece, Option<PathBuf>)> {
    match member.contents {
        MemberContents::Within { offset, size } => {
            let piece = cursor.piece.slice(offset, size);
            Ok((piece.with_context(|| format!("{}({})", cursor.place, member.shown_name()))?, None))
        }
        MemberContents::File => {
            let path = member.file(&cursor.file);
            let piece = Piece::try_open_member(&path)
                .with_context(|| format!("{}: cannot read the thin archive's member `{}`", cursor.place, path.display()))?;
            Ok((piece, Some(path)))
        }
        MemberContents::InArchive { header } => {
            let path = member.file(&cursor.file);
            let piece =
                member_of(&path, header).with_context(|| format!("{}: cannot read the thin archive's member", cursor.place))?;
            Ok((piece, Some(path)))
        }
    }
}
