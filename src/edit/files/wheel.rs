//! Zip files, Python wheels above all: members with device code are changed each by itself, the wheel's `RECORD` gets their new digests
//! and sizes, and every other byte stays.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::{Change, Decide, ImageChange, Options, carried_out, decided, looked_into};
use crate::contents::report::{FileReport, Image};
use crate::contents::what::{START, may_have_device_code};
use crate::edit::{Levels, Repack, Verdict};
use crate::formats::compose::Part;
use crate::formats::zip::resize::{NewContents, plan};
use crate::formats::zip::{ZipFile, ZipMember, ZipMethod, is_zip};
use crate::io::piece::{Piece, Spool, start_of_zip_member, zip_member};
use crate::io::rope::Rope;
use crate::sys::session::Session;

/// The level at which members are deflated: that of Python's own packers.
pub(crate) const LEVEL: u32 = 6;
const STORED: u16 = 0;
const DEFLATE: u16 = 8;

/// Whether `piece` is a zip file.
pub(super) fn is_wheel(piece: &Piece) -> bool {
    is_zip(piece.bytes())
}

/// New contents of a member, packed.
struct Packed {
    name: Vec<u8>,
    contents: NewContents,
    bytes: Rope,
    sha256: [u8; 32],
}

/// What became of a member.
#[derive(Default)]
struct Done {
    images: Vec<ImageChange>,
    emptied: Vec<String>,
    packed: Option<Packed>,
}

/// The zip file `piece` with what `decide` says of the images of its members; none where nothing changes. What became of the images is
/// added to `change`.
///
/// # Errors
/// The zip file or a member is damaged, or cannot be changed; a wheel is signed.
pub(super) fn edit(
    path: &Path,
    piece: &Piece,
    options: &Options,
    session: &Session,
    decide: &Decide<'_>,
    change: &mut Change,
) -> Result<Option<Rope>> {
    let zip = opened(path, piece)?;
    let members = members(path, &zip)?;
    let within = |member: &ZipMember<'_>| format!("{}({})", path.display(), member.shown_name());
    let look = |member| looked_at(path, piece, member, options, session).with_context(|| within(member));
    let mut looked: Vec<Option<Looked>> = members.par_iter().map(look).collect::<Result<_>>()?;
    let verdicts = decided_together(path, &members, &mut looked, decide)?;
    let each = |((member, looked), verdicts): ((&ZipMember<'_>, Option<Looked>), Vec<Verdict>)| {
        let Some(looked) = looked else { return Ok(Done::default()) };
        one(member, &looked, &verdicts, options, session).with_context(|| within(member))
    };
    let done: Vec<Done> = members.par_iter().zip(looked).zip(verdicts).map(each).collect::<Result<_>>()?;
    let mut all = Vec::new();
    for Done { images, emptied, packed } in done {
        change.images.extend(images);
        change.emptied.extend(emptied);
        all.extend(packed);
    }
    if all.is_empty() {
        return Ok(None);
    }
    if !options.force {
        check_unsigned(path, &members, " (--force changes it)")?;
    }
    Ok(Some(put_together((path, piece), &members, all, session)?))
}

/// The zip file `piece` in which members have other contents, by their names. A wheel's `RECORD` has their digests.
///
/// # Errors
/// The zip file is damaged, a wheel is signed, or a temporary file cannot be written.
pub(crate) fn with_contents(path: &Path, piece: &Piece, new: &HashMap<Vec<u8>, Rope>, session: &Session) -> Result<Rope> {
    let zip = opened(path, piece)?;
    let members = members(path, &zip)?;
    check_unsigned(path, &members, "")?;
    let each = |member: &ZipMember<'_>| Some(pack(member, new.get(member.name)?.clone(), &mut Spool::new(session)));
    let all = members.par_iter().filter_map(each).collect::<Result<Vec<_>>>()?;
    put_together((path, piece), &members, all, session)
}

/// The zip file `piece`, which is at `path`.
///
/// # Errors
/// It is damaged.
pub(crate) fn opened<'p>(path: &Path, piece: &'p Piece) -> Result<ZipFile<'p>> {
    ZipFile::read(piece.bytes()).map_err(|fault| anyhow!(fault.in_archive(&path.display())))
}

/// The members of the zip file at `path`, in the order of its directory.
///
/// # Errors
/// It is damaged.
pub(crate) fn members<'z>(path: &Path, zip: &'z ZipFile<'_>) -> Result<Vec<ZipMember<'z>>> {
    zip.members().collect::<Result<_, _>>().map_err(|fault| anyhow!(fault.in_archive(&path.display())))
}

/// That the wheel at `path`, which is to change, is not signed. `remedy` says what could be done.
fn check_unsigned(path: &Path, members: &[ZipMember<'_>], remedy: &str) -> Result<()> {
    let is_signature =
        |member: &&ZipMember<'_>| member.name.ends_with(b".dist-info/RECORD.jws") || member.name.ends_with(b"RECORD.p7s");
    match members.iter().find(is_signature) {
        Some(signature) => {
            let (path, name) = (path.display(), signature.shown_name());
            bail!("{path}: it is signed by `{name}`, and no signature is right after a change{remedy}")
        }
        None => Ok(()),
    }
}

/// The zip file with what has been packed anew in the places of the old members.
fn put_together(
    (path, piece): (&Path, &Piece),
    members: &[ZipMember<'_>],
    mut all: Vec<Packed>,
    session: &Session,
) -> Result<Rope> {
    for record in members.iter().filter(|member| is_record(member.name)) {
        all.extend(new_record(piece, record, &all, session)?);
    }
    let contents: Vec<NewContents> = all.iter().map(|packed| packed.contents).collect();
    let mut bytes: Vec<Option<Rope>> = all.into_iter().map(|packed| Some(packed.bytes)).collect();
    let mut rope = Rope::default();
    for part in plan(piece.bytes(), &contents).with_context(|| path.display().to_string())? {
        match part {
            Part::Old(range) => {
                rope.push_piece(piece.slice(range.start, range.end.saturating_sub(range.start)).context("a range past the end")?);
            }
            Part::New(place) => rope.append(bytes.get_mut(place).and_then(Option::take).unwrap_or_default()),
            Part::Bytes(new) => rope.push_bytes(new),
            Part::Zeros(count) => rope.push_zeros(count),
        }
    }
    Ok(rope)
}

/// A member that may have device code, and what is in it.
struct Looked {
    name: PathBuf,
    report: FileReport,
    /// Its contents; none where there are no images in it. There may be more such members than files can be open at once.
    piece: Option<Piece>,
}

/// Looks into a member; none where it has no device code by how it begins.
fn looked_at(path: &Path, zip: &Piece, member: &ZipMember<'_>, options: &Options, session: &Session) -> Result<Option<Looked>> {
    session.signals.check()?;
    if !may_have_device_code(&start_of_zip_member(zip, member, START)?) {
        return Ok(None);
    }
    let piece = zip_member(zip, member)?.as_file();
    let name = path.join(member.path().with_context(|| "the name of the member leads out of the zip file")?);
    let report = looked_into(&name, &piece, options, session);
    let piece = Some(piece).filter(|_| !report.images.is_empty());
    Ok(Some(Looked { name, report, piece }))
}

/// What becomes of the images of each member. It is decided once for all of them, which are numbered through and know their members.
fn decided_together(
    path: &Path,
    members: &[ZipMember<'_>],
    looked: &mut [Option<Looked>],
    decide: &Decide<'_>,
) -> Result<Vec<Vec<Verdict>>> {
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for (member, looked) in members.iter().zip(looked.iter_mut()) {
        let images = looked.as_mut().map(|looked| std::mem::take(&mut looked.report.images)).unwrap_or_default();
        counts.push(images.len());
        for mut image in images {
            image.index = all.len();
            image.members.insert(0, member.shown_name());
            all.push(image);
        }
    }
    let mut verdicts = decided(path, &all, decide)?.into_iter();
    let mut all = all.into_iter();
    for (looked, count) in looked.iter_mut().zip(&counts) {
        let images = all.by_ref().take(*count);
        if let Some(looked) = looked {
            looked.report.images = images.collect();
        }
    }
    Ok(counts.into_iter().map(|count| verdicts.by_ref().take(count).collect()).collect())
}

fn one(member: &ZipMember<'_>, looked: &Looked, verdicts: &[Verdict], options: &Options, session: &Session) -> Result<Done> {
    session.signals.check()?;
    let piece = match &looked.piece {
        Some(piece) => piece.clone(),
        None => return looked.report.errors.first().map_or(Ok(Done::default()), |error| bail!("{error}")),
    };
    let mut spool = Spool::new(session);
    let mut change = Change::of(String::new(), piece.size());
    let bytes = carried_out((&looked.name, &piece), &looked.report, verdicts, options, &mut change, &mut spool)?;
    let mut done = Done { images: change.images, emptied: change.emptied, packed: None };
    // Who wants streams that can be made again wants those of members as well.
    let anew = options.levels.repack != Repack::No && member.method != ZipMethod::Stored && !done.images.is_empty();
    if let Some(bytes) = bytes.or_else(|| anew.then(|| piece.clone().into())) {
        done.packed = Some(pack(member, bytes, &mut spool)?);
    }
    Ok(done)
}

/// Packs the new contents of a member by the method of the old ones.
fn pack(member: &ZipMember<'_>, bytes: Rope, spool: &mut Spool) -> Result<Packed> {
    let mut sums = Sums { crc: flate2::Crc::new(), sha256: Sha256::new() };
    let plain = bytes.size();
    let (method, bytes) = match member.method {
        ZipMethod::Stored => {
            bytes.write_to(&mut sums)?;
            (STORED, bytes)
        }
        // Every unpacker knows deflate.
        ZipMethod::Deflate | ZipMethod::Zstd => {
            let packed = spool.add(|file| {
                let mut encoder = flate2::write::DeflateEncoder::new(&mut *file, flate2::Compression::new(LEVEL));
                bytes.write_to(&mut Both(&mut encoder, &mut sums))?;
                encoder.finish()?;
                Ok(())
            })?;
            (DEFLATE, packed.into())
        }
    };
    let contents = NewContents { header: member.header, method, crc: sums.crc.sum(), packed: bytes.size(), plain };
    Ok(Packed { name: member.name.to_vec(), contents, bytes, sha256: sums.sha256.finalize().into() })
}

struct Sums {
    crc: flate2::Crc,
    sha256: Sha256,
}

impl Write for Sums {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.crc.update(bytes);
        self.sha256.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to both.
struct Both<'w, A, B>(&'w mut A, &'w mut B);

impl<A: Write, B: Write> Write for Both<'_, A, B> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes)?;
        self.1.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether a member is the list of a wheel's files (the specification "Recording installed projects", `RECORD`).
pub(crate) fn is_record(name: &[u8]) -> bool {
    name.ends_with(b".dist-info/RECORD") && name.iter().filter(|byte| **byte == b'/').count() == 1
}

/// The list with the digests and sizes of the members that have changed; none where it names none of them.
fn new_record(zip: &Piece, record: &ZipMember<'_>, changed: &[Packed], session: &Session) -> Result<Option<Packed>> {
    let old = zip_member(zip, record)?;
    let text = std::str::from_utf8(old.bytes()).context("the wheel's RECORD is no text")?;
    let mut new = String::with_capacity(text.len());
    let mut any = false;
    for line in text.split_inclusive('\n') {
        let end = line.trim_end_matches(['\r', '\n']);
        let of = |packed: &&Packed| names(end, &packed.name);
        match changed.iter().find(of) {
            Some(packed) => {
                let path = end.rsplitn(3, ',').nth(2).unwrap_or_default();
                let digest = URL_SAFE_NO_PAD.encode(packed.sha256);
                new.push_str(&format!("{path},sha256={digest},{}{}", packed.contents.plain, &line[end.len()..]));
                any = true;
            }
            None => new.push_str(line),
        }
    }
    let mut spool = Spool::new(session);
    Ok(if any { Some(pack(record, new.into_bytes().into(), &mut spool)?) } else { None })
}

/// Whether a line of the list is about the member `name`. Paths with commas or quotes are quoted as in CSV.
fn names(line: &str, name: &[u8]) -> bool {
    let Some(path) = line.rsplitn(3, ',').nth(2) else { return false };
    let plain = match path.strip_prefix('"').and_then(|path| path.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => path.to_owned(),
    };
    plain.as_bytes() == name
}

/// The zip file `piece` in which members with device code are compressed anew, and in them what `levels` says; none where there are no
/// such members.
///
/// # Errors
/// As [`edit`] has them.
pub(crate) fn repacked(path: &Path, piece: &Piece, levels: Levels, session: &Session) -> Result<Option<Rope>> {
    let to = super::To::InPlace;
    let (dry_run, force, allow_empty) = (true, true, true);
    let (new_build_id, digests, image_bytes) = (false, false, false);
    let options = Options { to, dry_run, force, allow_empty, new_build_id, levels, digests, image_bytes };
    let keep = |_: &Path, images: &[Image]| Ok(vec![Verdict::Keep; images.len()]);
    edit(path, piece, &options, session, &keep, &mut Change::of(String::new(), piece.size()))
}
