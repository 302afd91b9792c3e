//! Archives: their members are rewritten, and the rest of the archive stays to the byte.

use anyhow::{Context, Result, anyhow, bail};

use super::rewriter::{Location, Rewriter};
use super::{Changed, Outcome};
use crate::formats::archive::resize::plan;
use crate::formats::archive::{ArchiveFault, MemberContents, members};
use crate::io::rope::Rope;

/// The archive at `location`, with what becomes of the images in its members.
pub(super) fn rewrite(rewriter: &mut Rewriter<'_>, location: &Location) -> Result<Outcome> {
    let describe = |fault: ArchiveFault| anyhow!(fault.in_archive(&location.place));
    let mut changed: Vec<((u64, u64), Rope)> = Vec::new();
    for member in members(location.piece.bytes()).map_err(describe)? {
        let member = member.map_err(describe)?;
        let place = format!("{}({})", location.place, member.shown_name());
        let MemberContents::Within { offset, size } = member.contents else {
            bail!("{place}: cannot change a member of a thin archive: edit the member file");
        };
        let piece = location
            .piece
            .slice(offset, size)
            .with_context(|| place.clone())?;
        let inner = location.member(piece, place);
        match rewriter.enter(&inner)? {
            Outcome::Same => {}
            Outcome::Gone => {
                rewriter.emptied.push(inner.place);
                changed.push(((offset, 0), Rope::default()));
            }
            Outcome::New(Changed { bytes, .. }) => changed.push(((offset, bytes.size()), bytes)),
        }
        location.piece.release();
    }
    if changed.is_empty() {
        return Ok(Outcome::Same);
    }
    let (sizes, ropes): (Vec<_>, Vec<_>) = changed.into_iter().unzip();
    let parts = plan(location.piece.bytes(), &sizes).map_err(describe)?;
    let bytes =
        Rope::of_parts(&location.piece, parts, ropes).with_context(|| location.place.clone())?;
    Ok(Outcome::New(bytes.into()))
}
