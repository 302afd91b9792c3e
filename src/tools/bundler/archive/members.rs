//! The members of an archive that is unbundled.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use crate::formats::archive::{self, ArchiveFault, MemberContents};
use crate::formats::magic;
use crate::io::piece::{Piece, Spool, member_of};

/// Calls `take` with the name and the bytes of each member of `archive`, the file at `path`. The members of a thin archive are
/// files of their own, named relative to it.
pub(super) fn each(
    archive: &Piece,
    path: &Path,
    spool: &mut Spool,
    mut take: impl FnMut(&str, &Piece, &mut Spool) -> Result<()>,
) -> Result<()> {
    if !magic::is_archive(archive.bytes()) {
        // LLVM says so whatever the size.
        bail!("'{}': file too small to be an archive", path.display());
    }
    let fault_in = |fault: ArchiveFault| anyhow!(fault.in_archive(&format_args!("'{}'", path.display())));
    for member in archive::members(archive.bytes()).map_err(fault_in)? {
        let member = member.map_err(fault_in)?;
        let piece = match member.contents {
            MemberContents::Within { offset, size } => {
                archive.slice(offset, size).with_context(|| format!("'{}'({})", path.display(), member.shown_name()))?
            }
            MemberContents::File => Piece::open_member(&member.file(path))?,
            MemberContents::InArchive { header } => member_of(&member.file(path), header)?,
        };
        take(&String::from_utf8_lossy(member.name), &piece, spool)?;
    }
    Ok(())
}
