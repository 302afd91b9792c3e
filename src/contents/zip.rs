//! Inspection of zip files, Python wheels among them. What members are is told by how they begin, so that only those with device
//! code or with files in them are inflated: to a temporary file, one after the other. What a small file could grow to is limited.

use anyhow::{Error, Result, anyhow};
use object::FileKind;

use super::layout::Part;
use super::report::Step;
use super::walk::{Cursor, Walk};
use super::what::{ByteKind, byte_kind};
use crate::formats::archive::ArchiveFault;
use crate::formats::zip::{ZipFile, ZipMember, ZipMethod};
use crate::io::piece::{Piece, check_zip_member, start_of_zip_member, zip_member};

/// How much of a member is inflated to tell what it is.
const START: u64 = 64 << 10;
/// How much the members of a file may grow to, all together: this, and for each byte of the file [`GROWTH`] more.
const LEAST_GROWTH: u64 = 1 << 30;
const GROWTH: u64 = 100;

/// How many bytes may be inflated of the members in a file of `size` bytes.
pub(super) fn most_inflated(size: u64) -> u64 {
    LEAST_GROWTH.saturating_add(size.saturating_mul(GROWTH))
}

/// Inspects every member of the zip file at `cursor`, in order. A member that cannot be read is noted, and the rest is inspected.
pub(super) fn members(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let zip = ZipFile::read(cursor.piece.bytes()).map_err(|fault| told(cursor, &fault))?;
    walk.container(cursor, 0, cursor.piece.size(), "zip");
    for member in zip.members() {
        walk.signals.check()?;
        let done = member.map_err(|fault| told(cursor, &fault)).and_then(|member| {
            if let Some(fault) = member.name_fault() {
                walk.note(&told(cursor, &fault));
            }
            one(walk, cursor, &member)
        });
        if let Err(error) = done {
            walk.note(&error);
        }
    }
    Ok(())
}

fn one(walk: &mut Walk<'_>, cursor: &Cursor, member: &ZipMember<'_>) -> Result<()> {
    let fault = |error| located(cursor, member, error);
    take(walk, cursor, member, member.plain_size.min(START))?;
    let start = start_of_zip_member(&cursor.piece, member, START).map_err(fault)?;
    if !is_wanted(&start, member) {
        if let Some(stored) = cursor.piece.slice(member.offset, member.size) {
            walk.unread(&Cursor { piece: stored, ..cursor.clone() }, Part::Files, member.plain_size);
        }
        return Ok(());
    }
    if member.method != ZipMethod::Stored {
        take(walk, cursor, member, member.plain_size)?;
    } else if !walk.options.headers_only && walk.layout.is_none() {
        check_zip_member(&cursor.piece, member).map_err(fault)?;
    }
    let step = Step::Member {
        name: String::from_utf8_lossy(member.name).into_owned(),
        file: None,
        offset: cursor.piece.file_offset(member.offset),
        size: member.size,
        compression: member.method.name(),
        plain_size: member.method.name().map(|_| member.plain_size),
    };
    // What the member names (libraries beside it, members of a thin archive) would be in the zip file, too. No file has such a
    // path.
    let file = cursor.file.join(member.path().unwrap_or_else(|| "member".as_ref()));
    let packed = cursor.piece.slice(member.offset, member.size).unwrap_or_else(|| Piece::owned(Vec::new()));
    let packed = Cursor { file, ..cursor.deeper(packed, cursor.place.then(step), cursor.facts.clone()) };
    if member.method == ZipMethod::Stored {
        let piece = zip_member(&cursor.piece, member).map_err(fault)?;
        walk.enter(&Cursor { piece, ..packed });
        return Ok(());
    }
    let (zip, name, member) = (cursor.clone(), member.name.to_vec(), ZipMember { name: b"", ..*member });
    walk.inflated(&packed.clone(), move |walk| {
        let member = ZipMember { name: &name, ..member };
        let piece = zip_member(&zip.piece, &member).map_err(|error| located(&zip, &member, error))?;
        let inner = walk.root(&Cursor { piece, ..packed });
        walk.enter(&inner);
        Ok(())
    })
}

/// An error of reading `member`, with its place.
fn located(cursor: &Cursor, member: &ZipMember<'_>, error: Error) -> Error {
    match error.downcast::<ArchiveFault>() {
        Ok(fault) => told(cursor, &fault),
        Err(error) => error.context(format!("{}({})", cursor.place, member.shown_name())),
    }
}

/// Whether there can be device code in `member`, which begins with `start`.
fn is_wanted(start: &[u8], member: &ZipMember<'_>) -> bool {
    match byte_kind(start, true) {
        ByteKind::Empty => false,
        // Whether it is a COFF object is told by tables further on.
        ByteKind::Unknown => member.plain_size > START && matches!(FileKind::parse(start), Ok(FileKind::Coff)),
        _ => true,
    }
}

/// Counts `size` bytes that are to come out of `member`.
fn take(walk: &mut Walk<'_>, cursor: &Cursor, member: &ZipMember<'_>, size: u64) -> Result<()> {
    if member.method == ZipMethod::Stored {
        return Ok(());
    }
    let left = walk.inflatable.checked_sub(size).ok_or_else(|| {
        let most = "with it, more than 1 GiB plus 100 times the size of the file would have come out of it";
        told(cursor, &member.fault(format!("not inflated: {most}")))
    })?;
    walk.inflatable = left;
    Ok(())
}

fn told(cursor: &Cursor, fault: &ArchiveFault) -> Error {
    anyhow!(fault.in_archive(&cursor.place))
}
