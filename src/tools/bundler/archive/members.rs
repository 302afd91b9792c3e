//! The members of an archive to unbundle.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use crate::formats::archive::{self, ArchiveFault, MemberContents};
use crate::formats::magic;
use crate::io::file_slice::{FileSlice, Spool, member_of};

/// Calls `take` with name and contents of each member of `archive`, the file at `path`. Members of
/// a thin archive are separate files with names relative to it.
pub(super) fn each(
    archive: &FileSlice,
    path: &Path,
    spool: &mut Spool,
    mut take: impl FnMut(&str, &FileSlice, &mut Spool) -> Result<()>,
) -> Result<()> {
    if !magic::is_archive(archive.bytes()) {
        // LLVM prints this for files of any size.
        bail!("'{}': file too small to be an archive", path.display());
    }
    let fault_in =
        |fault: ArchiveFault| anyhow!(fault.in_archive(&format_args!("'{}'", path.display())));
    for member in archive::members(archive.bytes()).map_err(fault_in)? {
        let member = member.map_err(fault_in)?;
        let piece = match member.contents {
            MemberContents::Within { offset, size } => archive
                .slice(offset, size)
                .with_context(|| format!("'{}'({})", path.display(), member.shown_name()))?,
            MemberContents::File => FileSlice::open_member(&member.file(path))?,
            MemberContents::InArchive { header } => member_of(&member.file(path), header)?,
        };
        take(&String::from_utf8_lossy(member.name), &piece, spool)?;
    }
    Ok(())
}
