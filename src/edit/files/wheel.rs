//! Zip files, Python wheels above all: members with device code are changed each by itself, the wheel's `RECORD` gets their new digests
//! and sizes, and every other byte stays.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::{Change, Decide, ImageChange, Options, edited};
use crate::contents::report::FileReport;
use crate::contents::what::{START, may_have_device_code};
use crate::edit::{Levels, Verdict};
use crate::formats::archive::ArchiveFault;
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
    let told = |fault: ArchiveFault| anyhow!(fault.in_archive(&path.display()));
    let zip = ZipFile::read(piece.bytes()).map_err(told)?;
    let members: Vec<ZipMember<'_>> = zip.members().collect::<Result<_, _>>().map_err(told)?;
    let each = |member: &ZipMember<'_>| {
        let done = one(path, piece, member, options, session, decide);
        done.with_context(|| format!("{}({})", path.display(), member.shown_name()))
    };
    let done: Vec<Done> = members.par_iter().map(each).collect::<Result<_>>()?;
    let mut all = Vec::new();
    for Done { images, emptied, packed } in done {
        change.images.extend(images);
        change.emptied.extend(emptied);
        all.extend(packed);
    }
    if all.is_empty() {
        return Ok(None);
    }
    for record in members.iter().filter(|member| is_record(member.name)) {
        all.extend(new_record(piece, record, &all, session)?);
    }
    let is_signed =
        |member: &&ZipMember<'_>| member.name.ends_with(b".dist-info/RECORD.jws") || member.name.ends_with(b"RECORD.p7s");
    if let Some(signature) = members.iter().find(is_signed).filter(|_| !options.force) {
        bail!(
            "{}: it is signed by `{}`, and no signature is right after a change (--force changes it)",
            path.display(),
            signature.shown_name()
        );
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
    Ok(Some(rope))
}

fn one(
    path: &Path,
    zip: &Piece,
    member: &ZipMember<'_>,
    options: &Options,
    session: &Session,
    decide: &Decide<'_>,
) -> Result<Done> {
    session.signals.check()?;
    let mut done = Done { images: Vec::new(), emptied: Vec::new(), packed: None };
    if !may_have_device_code(&start_of_zip_member(zip, member, START)?) {
        return Ok(done);
    }
    let piece = zip_member(zip, member)?.as_file();
    let name = path.join(member.path().with_context(|| "the name of the member leads out of the zip file")?);
    let mut spool = Spool::new(session);
    let mut change = Change::of(String::new(), piece.size());
    let bytes = edited(&name, &piece, options, session, decide, &mut change, &mut spool)?;
    done.images = change.images;
    for image in &mut done.images {
        image.members.insert(0, member.shown_name());
    }
    done.emptied = change.emptied;
    // Who wants streams that can be made again wants those of members as well.
    let anew = options.levels.repack && member.method != ZipMethod::Stored && !done.images.is_empty();
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
fn is_record(name: &[u8]) -> bool {
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

/// The zip file `piece` in which everything that is compressed and holds device code is compressed anew; none where nothing is.
///
/// # Errors
/// As [`edit`] has them.
pub(crate) fn repacked(path: &Path, piece: &Piece, levels: Levels, session: &Session) -> Result<Option<Rope>> {
    let to = super::To::InPlace;
    let (dry_run, force, allow_empty) = (true, true, true);
    let (new_build_id, digests, image_bytes) = (false, false, false);
    let options = Options { to, dry_run, force, allow_empty, new_build_id, levels, digests, image_bytes };
    let keep = |report: &FileReport| Ok(vec![Verdict::Keep; report.images.len()]);
    edit(path, piece, &options, session, &keep, &mut Change::of(String::new(), piece.size()))
}
