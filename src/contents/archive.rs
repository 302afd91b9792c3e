//! Inspection of archives: each member is inspected in turn. Members of thin archives are files of
//! their own.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};

use super::image::ImageMetadata;
use super::report::Step;
use super::tree::NodeKind;
use super::walk::{Cursor, Walk};
use crate::formats::archive::{self, ArchiveFault, ArchiveMember, MemberContents};
use crate::io::file_slice::{FileSlice, member_of};

/// Inspects every member of the archive at `cursor`, in order. An unreadable member is recorded as
/// an error, and the rest is inspected.
pub(super) fn members(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let describe = |fault: ArchiveFault| anyhow!(fault.in_archive(&cursor.place));
    walk.container(cursor, 0, cursor.piece.size(), "archive");
    for (number, member) in archive::members(cursor.piece.bytes())
        .map_err(describe)?
        .enumerate()
    {
        walk.signals.check()?;
        let opened = member
            .map_err(describe)
            .and_then(|member| Ok((member, open(walk, cursor, &member)?)));
        match opened {
            Ok((member, (piece, _))) if cursor.inside && is_padding(member.name, piece.bytes()) => {
            }
            Ok((member, (piece, file))) => {
                let name = String::from_utf8_lossy(member.name).into_owned();
                let node = NodeKind::Member(member.shown_name().to_string());
                let facts = of_intel_member(&cursor.facts, &name);
                let own = file.as_ref().map(|file| file.display().to_string());
                let (offset, size) = (piece.file_offset(0), piece.size());
                let unit = name.clone();
                let step = Step::Member {
                    name,
                    file: own,
                    offset,
                    size,
                    compression: None,
                    plain_size: None,
                };
                let mut inner = cursor.deeper(piece, cursor.place.then(step), facts);
                inner.numbers.push(number);
                let inner = walk.unit(inner, &unit);
                let inner = match file {
                    Some(file) => walk.root(&Cursor { file, ..inner }),
                    None => inner,
                };
                walk.node(node, &inner.piece, |walk| walk.enter(&inner));
            }
            Err(error) => walk.note(&error),
        }
    }
    Ok(())
}

/// Whether a member of an archive that is an image is padding that aligns the next member, as
/// Intel's ocloc writes it: `pad_0` with blanks.
fn is_padding(name: &[u8], bytes: &[u8]) -> bool {
    name.starts_with(b"pad_") && bytes.iter().all(|byte| *byte == b' ')
}

/// Returns `facts` with the device in a member's name, if Intel's ocloc made the archive for
/// several devices: `64.12.60.7`, in which `64` is the pointer size.
fn of_intel_member(facts: &ImageMetadata, name: &str) -> ImageMetadata {
    let mut facts = facts.clone();
    let device = name.strip_prefix("64.").or(name.strip_prefix("32."));
    if let Some(device) =
        device.filter(|_| facts.triple.starts_with("spir64_gen") && facts.target.is_empty())
    {
        facts.target = device.to_owned();
    }
    facts
}

/// The bytes of a member. A member of a thin archive is a file, whose path is returned as well.
fn open(
    walk: &Walk<'_>,
    cursor: &Cursor,
    member: &ArchiveMember<'_>,
) -> Result<(FileSlice, Option<PathBuf>)> {
    match member.contents {
        MemberContents::File | MemberContents::InArchive { .. } if walk.options.alone => {
            bail!(
                "{}: member `{}` of the thin archive is another file, which is not opened",
                cursor.place,
                member.shown_name()
            )
        }
        MemberContents::Within { offset, size } => {
            let piece = cursor.piece.slice(offset, size);
            Ok((
                piece.with_context(|| format!("{}({})", cursor.place, member.shown_name()))?,
                None,
            ))
        }
        MemberContents::File => {
            let path = member.file(&cursor.file);
            let piece = FileSlice::try_open_member(&path).with_context(|| {
                format!(
                    "{}: cannot read the thin archive's member `{}`",
                    cursor.place,
                    path.display()
                )
            })?;
            Ok((piece, Some(path)))
        }
        MemberContents::InArchive { header } => {
            let path = member.file(&cursor.file);
            let piece = member_of(&path, header).with_context(|| {
                format!("{}: cannot read the thin archive's member", cursor.place)
            })?;
            Ok((piece, Some(path)))
        }
    }
}
