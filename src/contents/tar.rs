//! Inspection of tar archives, by themselves and in compressed files. The first bytes of a member
//! reveal its type. A member of an uncompressed archive is read in place; other members are
//! unpacked if they can have device code. Links and devices are skipped: a link's target is either
//! outside of the archive or a member itself.

use std::io::{self, Read};

use anyhow::{Result, anyhow};

use super::compressed::{start_of, store};
use super::layout::Part;
use super::report::Step;
use super::selection::Choice;
use super::walk::{Cursor, Walk};
use crate::error::Malformed;
use crate::formats::archive::ArchiveFault;
use crate::formats::magic::may_have_device_code;
use crate::formats::tar::{InMemory, Streamed, TarInput, TarMember, TarReader, fault_of};
use crate::io::file_slice::FileSlice;

/// Inspects every file in the tar archive at `cursor`, in order.
pub(super) fn members(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    walk.container(cursor, 0, cursor.piece.size(), "tar");
    let mut tar = TarReader::new(InMemory::new(cursor.piece.bytes()));
    for_each_member(walk, cursor, &mut tar, |walk, tar, member| {
        // The search for the next member reports missing bytes.
        let Some(stored) = cursor.piece.slice(member.offset, member.size) else {
            return Ok(());
        };
        let packed = inner(
            walk,
            cursor,
            member,
            cursor.piece.file_offset(member.offset),
            stored,
        );
        if packed.choice == Choice::Excluded {
            walk.leave_out(&packed, member.plain_size);
            return Ok(());
        }
        let piece = if member.is_sparse() {
            walk.allowance
                .take(member.plain_size)
                .map_err(|limit| io::Error::other(member.fault(limit)))?;
            unpacked(walk, tar, member)?
        } else {
            Some(packed.piece.clone()).filter(|piece| may_have_device_code(piece.bytes()))
        };
        match piece {
            Some(piece) if member.is_sparse() => {
                let full = Cursor {
                    piece,
                    ..packed.clone()
                };
                let done = walk.inflated(&packed, move |walk| {
                    walk.enter_streamed(&full);
                    Ok(())
                });
                done.map_err(io::Error::other)?;
            }
            Some(_) => walk.enter(&packed),
            None if packed.choice == Choice::Within => walk.leave_out(&packed, member.plain_size),
            None if member.is_sparse() => walk.unread(&packed, Part::Files, member.plain_size),
            None => walk.bytes(&packed, Part::Files),
        }
        Ok(())
    })
}

/// Inspects every file in the tar archive that begins with `start` and continues with `rest`, the
/// decompressed data of the file at `cursor`. Reads `rest` to its end, which has the checksums.
pub(super) fn streamed(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    start: Vec<u8>,
    rest: impl Read,
) -> Result<()> {
    let mut tar = TarReader::new(Streamed::new(io::Cursor::new(start).chain(rest)));
    let mut entered = 0_u64;
    let done = for_each_member(walk, cursor, &mut tar, |walk, tar, member| {
        let more = member.plain_size - member.size;
        walk.allowance
            .take(more)
            .map_err(|limit| io::Error::other(member.fault(limit)))?;
        let at = inner(walk, cursor, member, None, FileSlice::owned(Vec::new()));
        let piece = if at.choice == Choice::Excluded {
            None
        } else {
            unpacked(walk, tar, member)?
        };
        entered = entered.saturating_add(member.size);
        match piece {
            Some(piece) => walk.enter_streamed(&Cursor { piece, ..at }),
            None if at.choice != Choice::Selected => walk.streamed_out(&at, member.size),
            None => walk.streamed(&at, Part::Files, "tar", member.size),
        }
        Ok(())
    });
    let read = tar.position();
    let trailing = done.and_then(|()| {
        io::copy(&mut tar.into_inner().into_inner(), &mut io::sink()).map_err(Malformed::or_io)
    });
    let headers = read
        .saturating_sub(entered)
        .saturating_add(trailing.as_ref().map_or(0, |trailing| *trailing));
    walk.streamed(cursor, Part::Container, "tar", headers);
    trailing.map(drop)
}

/// The contents of `member`, if it can have device code.
fn unpacked<R: TarInput>(
    walk: &Walk<'_>,
    tar: &mut TarReader<R>,
    member: &TarMember,
) -> io::Result<Option<FileSlice>> {
    let mut plain = tar.contents(member);
    let start = start_of(&mut plain)?;
    if !may_have_device_code(&start) {
        return Ok(None);
    }
    store(walk, start, &mut plain)
        .map(Some)
        .map_err(|error| error.downcast().unwrap_or_else(io::Error::other))
}

/// Calls `go` for each file of `tar`. Errors in one file are recorded. Fails if the rest of the
/// archive cannot be read.
fn for_each_member<R: TarInput>(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    tar: &mut TarReader<R>,
    mut go: impl FnMut(&mut Walk<'_>, &mut TarReader<R>, &TarMember) -> io::Result<()>,
) -> Result<()> {
    loop {
        walk.signals.check()?;
        let done = match tar.next_member() {
            Ok(None) => return Ok(()),
            Ok(Some(member)) => {
                if let Some(fault) = member.name_fault() {
                    note(walk, cursor, &fault);
                }
                go(walk, tar, &member)
            }
            Err(error) => Err(error),
        };
        match done.as_ref().map_err(fault_of) {
            Ok(()) => {}
            Err(Some(fault)) => note(walk, cursor, fault),
            Err(None) => return done.map_err(Malformed::or_io),
        }
    }
}

/// A cursor for `member` of the archive at `cursor`. Its bytes are in `piece` and begin at `offset`
/// in the file on disk.
fn inner(
    walk: &Walk<'_>,
    cursor: &Cursor,
    member: &TarMember,
    offset: Option<u64>,
    piece: FileSlice,
) -> Cursor {
    let name = String::from_utf8_lossy(&member.name).into_owned();
    let step = Step::Member {
        name: name.clone(),
        file: None,
        offset,
        size: member.size,
        compression: member.is_sparse().then_some("sparse"),
        plain_size: member.is_sparse().then_some(member.plain_size),
    };
    let inner = walk.as_member(
        cursor.deeper(piece, cursor.place.then(step), cursor.facts.clone()),
        &name,
    );
    // Files that the member refers to (libraries next to it, members of a thin archive) would be in
    // the archive, too. This path leads to no existing file.
    let file = cursor
        .file
        .join(member.path().unwrap_or_else(|| "member".as_ref()));
    Cursor { file, ..inner }
}

fn note(walk: &mut Walk<'_>, cursor: &Cursor, fault: &ArchiveFault) {
    walk.note(&anyhow!(fault.in_archive(&cursor.place)));
}
