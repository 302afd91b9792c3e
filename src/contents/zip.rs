//! Inspection of zip files, including Python wheels. The first bytes of a member reveal its type,
//! so only members that can have device code or members of their own are decompressed, one after
//! the other, to a temporary file. The uncompressed size is limited, because a small file could
//! grow without end.

use anyhow::{Error, Result, anyhow};

use super::layout::Part;
use super::report::Step;
use super::selection::Choice;
use super::walk::{Cursor, Walk};
use crate::formats::archive::ArchiveFault;
use crate::formats::magic::{START, byte_kind, may_have_device_code};
use crate::formats::zip::{ZipFile, ZipMember, ZipMethod};
use crate::io::file_slice::{FileSlice, check_zip_member, start_of_zip_member, zip_member};

/// Inspects every member of the zip file at `cursor`, in order. An unreadable member is recorded as
/// an error, and the rest is inspected.
pub(super) fn members(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let zip = ZipFile::read(cursor.piece.bytes()).map_err(|fault| error_in(cursor, &fault))?;
    walk.container(cursor, 0, cursor.piece.size(), "zip");
    for member in zip.members() {
        walk.signals.check()?;
        let done = member
            .map_err(|fault| error_in(cursor, &fault))
            .and_then(|member| {
                if let Some(fault) = member.name_fault() {
                    walk.note(&error_in(cursor, &fault));
                }
                inspect_member(walk, cursor, &member)
            });
        if let Err(error) = done {
            walk.note(&error);
        }
    }
    Ok(())
}

fn inspect_member(walk: &mut Walk<'_>, cursor: &Cursor, member: &ZipMember<'_>) -> Result<()> {
    let fault = |error| located(cursor, member, error);
    let name = String::from_utf8_lossy(member.name).into_owned();
    let stored = cursor
        .piece
        .slice(member.offset, member.size)
        .unwrap_or_else(|| FileSlice::owned(Vec::new()));
    let at = walk.as_member(
        cursor.deeper(stored, cursor.place.clone(), cursor.facts.clone()),
        &name,
    );
    if at.choice == Choice::Excluded {
        walk.leave_out(&at, member.plain_size);
        return Ok(());
    }
    take(walk, cursor, member, member.plain_size.min(START))?;
    let start = start_of_zip_member(&cursor.piece, member, START).map_err(fault)?;
    if !at.is_selected(byte_kind(&start, true)) {
        walk.leave_out(&at, member.plain_size);
        return Ok(());
    }
    if !may_have_device_code(&start) {
        walk.unread(&at, Part::Files, member.plain_size);
        return Ok(());
    }
    if member.method != ZipMethod::Stored {
        take(walk, cursor, member, member.plain_size)?;
    } else if !walk.options.headers_only && walk.layout.is_none() {
        check_zip_member(&cursor.piece, member).map_err(fault)?;
    }
    let step = Step::Member {
        name,
        file: None,
        offset: cursor.piece.file_offset(member.offset),
        size: member.size,
        compression: member.method.name(),
        plain_size: member.method.name().map(|_| member.plain_size),
    };
    // Files that the member refers to (libraries next to it, members of a thin archive) would be in
    // the zip file, too. This path leads to no existing file.
    let file = cursor
        .file
        .join(member.path().unwrap_or_else(|| "member".as_ref()));
    let packed = Cursor {
        file,
        place: cursor.place.then(step),
        ..at
    };
    let stored = packed.piece.clone();
    if member.method == ZipMethod::Stored {
        let piece = zip_member(&cursor.piece, member).map_err(fault)?;
        walk.enter(&Cursor { piece, ..packed });
        walk.report_progress(&stored);
        return Ok(());
    }
    let (zip, name, member) = (
        cursor.clone(),
        member.name.to_vec(),
        ZipMember {
            name: b"",
            ..*member
        },
    );
    walk.inflated(&packed.clone(), move |walk| {
        let member = ZipMember {
            name: &name,
            ..member
        };
        let piece =
            zip_member(&zip.piece, &member).map_err(|error| located(&zip, &member, error))?;
        walk.reached.now_at(&String::from_utf8_lossy(&name));
        let inner = walk.root(&Cursor { piece, ..packed });
        walk.enter(&inner);
        walk.report_progress(&stored);
        Ok(())
    })
}

/// An error of reading `member`, with its location.
fn located(cursor: &Cursor, member: &ZipMember<'_>, error: Error) -> Error {
    match error.downcast::<ArchiveFault>() {
        Ok(fault) => error_in(cursor, &fault),
        Err(error) => error.context(format!("{}({})", cursor.place, member.shown_name())),
    }
}

/// Counts `size` decompressed bytes of `member`.
fn take(walk: &Walk<'_>, cursor: &Cursor, member: &ZipMember<'_>, size: u64) -> Result<()> {
    if member.method == ZipMethod::Stored {
        return Ok(());
    }
    walk.allowance
        .take(size)
        .map_err(|limit| error_in(cursor, &member.fault(limit)))
}

fn error_in(cursor: &Cursor, fault: &ArchiveFault) -> Error {
    anyhow!(fault.in_archive(&cursor.place))
}
