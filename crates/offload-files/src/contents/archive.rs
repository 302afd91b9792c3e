//! Inspection of archives, zip files and tar archives: each member is inspected in turn. Members of
//! thin archives are files of their own.

use std::io::{self, Read};
use std::path::PathBuf;

use anyhow::{Context, Error, Result, anyhow, bail};

use super::inflate::{start_of, store};
use super::layout::Part;
use super::report::Step;
use super::selection::Choice;
use super::tree::{ImageMetadata, NodeKind};
use super::walk::{Cursor, Walk};
use offld_system::io::file_slice::{
    FileSlice, check_zip_member, member_of, start_of_zip_member, zip_member,
};
use offload_formats::archive::{self, ArchiveFault, ArchiveMember, MemberContents};
use offload_formats::error::Malformed;
use offload_formats::magic::{START, byte_kind, may_have_device_code};
use offload_formats::tar::{InMemory, Streamed, TarInput, TarMember, TarReader, fault_of};
use offload_formats::zip::{ZipFile, ZipMember, ZipMethod};

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

/// Whether a member is padding that aligns the next member, as in device archives of Intel's ocloc:
/// `pad_0` with blanks.
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

// Inspection of zip files, including Python wheels. The first bytes of a member reveal its type,
// so only members that can have device code or members of their own are decompressed, one after
// the other, to a temporary file. The uncompressed size is limited, because a small file could
// grow without end.

/// Inspects every member of the zip file at `cursor`, in order. An unreadable member is recorded as
/// an error, and the rest is inspected.
pub(super) fn zip_members(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
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
                inspect_zip_member(walk, cursor, &member)
            });
        if let Err(error) = done {
            walk.note(&error);
        }
    }
    Ok(())
}

fn inspect_zip_member(walk: &mut Walk<'_>, cursor: &Cursor, member: &ZipMember<'_>) -> Result<()> {
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
    take_unpacked(walk, cursor, member, member.plain_size.min(START))?;
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
        take_unpacked(walk, cursor, member, member.plain_size)?;
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
fn take_unpacked(
    walk: &Walk<'_>,
    cursor: &Cursor,
    member: &ZipMember<'_>,
    size: u64,
) -> Result<()> {
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

// Inspection of tar archives, by themselves and in compressed files. The first bytes of a member
// reveal its type. A member of an uncompressed archive is read in place; other members are
// unpacked if they can have device code. Links and devices are skipped: a link's target is either
// outside of the archive or a member itself.

/// Inspects every file in the tar archive at `cursor`, in order.
pub(super) fn tar_members(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    walk.container(cursor, 0, cursor.piece.size(), "tar");
    let mut tar = TarReader::new(InMemory::new(cursor.piece.bytes()));
    for_each_member(walk, cursor, &mut tar, |walk, tar, member| {
        // The search for the next member reports missing bytes.
        let Some(stored) = cursor.piece.slice(member.offset, member.size) else {
            return Ok(());
        };
        let packed = tar_member(
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
pub(super) fn tar_streamed(
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
        let at = tar_member(walk, cursor, member, None, FileSlice::owned(Vec::new()));
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
                    note_fault(walk, cursor, &fault);
                }
                go(walk, tar, &member)
            }
            Err(error) => Err(error),
        };
        match done.as_ref().map_err(fault_of) {
            Ok(()) => {}
            Err(Some(fault)) => note_fault(walk, cursor, fault),
            Err(None) => return done.map_err(Malformed::or_io),
        }
    }
}

/// A cursor for `member` of the archive at `cursor`. Its bytes are in `piece` and begin at `offset`
/// in the file on disk.
fn tar_member(
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

fn note_fault(walk: &mut Walk<'_>, cursor: &Cursor, fault: &ArchiveFault) {
    walk.note(&anyhow!(fault.in_archive(&cursor.place)));
}
