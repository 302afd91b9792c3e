//! Edits device code in zip files, in particular Python wheels: each member with device code is
//! edited separately, the wheel's `RECORD` gets the new digests and sizes, and all other bytes stay
//! the same.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::{Change, Decide, ImageChange, Options, apply_verdicts, inspect, verdicts_for};
use crate::contents::report::{FileReport, Image};
use crate::contents::selection::{Choice, Selection};
use crate::edit::{Fixed, Levels, Recompressed, Repack, Verdict};
use offld_system::io::file_slice::{FileSlice, Spool, start_of_zip_member, zip_member};
use offld_system::io::rope::Rope;
use offld_system::progress::Reached;
use offld_system::session::Session;
use offload_formats::magic::{START, may_have_device_code};
use offload_formats::zip::resize::{NewContents, plan};
use offload_formats::zip::{ZipFile, ZipMember, ZipMethod, is_zip};

/// The deflate level of members, which is that of Python's packaging tools.
pub(crate) const LEVEL: u32 = 6;
const STORED: u16 = 0;
const DEFLATE: u16 = 8;

/// The largest text file that is read in a wheel.
const LARGEST_TEXT: u64 = 4 << 20;

/// The parts of a wheel's file name (PEP 427; labels of variants: PEP 825).
pub(crate) struct FileName<'n> {
    pub(crate) distribution: &'n str,
    pub(crate) version: &'n str,
    pub(crate) build: Option<&'n str>,
    /// Python, ABI and platform tags, each set separated by dots.
    pub(crate) tags: [&'n str; 3],
    /// The label of the variant.
    pub(crate) label: Option<&'n str>,
}

impl FileName<'_> {
    /// Parses `NAME-VERSION[-BUILD]-PYTHON-ABI-PLATFORM[-LABEL].whl`.
    pub(crate) fn parse(file: &str) -> Option<FileName<'_>> {
        let parts: Vec<&str> = file.strip_suffix(".whl")?.split('-').collect();
        let has_build = parts
            .get(2)
            .is_some_and(|build| build.starts_with(|c: char| c.is_ascii_digit()));
        let first = if has_build && parts.len() > 5 { 3 } else { 2 };
        let tags: [&str; 3] = parts.get(first..first + 3)?.try_into().ok()?;
        let label = match parts.get(first + 3..)? {
            [] => None,
            [label] => Some(*label),
            _ => return None,
        };
        Some(FileName {
            distribution: parts.first()?,
            version: parts.get(1)?,
            build: parts.get(2..first)?.first().copied(),
            tags,
            label,
        })
    }

    /// Each combination of the tags.
    pub(crate) fn all(&self) -> BTreeSet<String> {
        let [python, abi, platform] = self.tags.map(|tags| tags.split('.'));
        let mut all = BTreeSet::new();
        for python in python {
            for abi in abi.clone() {
                for platform in platform.clone() {
                    all.insert(format!("{python}-{abi}-{platform}"));
                }
            }
        }
        all
    }
}

/// Whether a member is the file `name` in the wheel's directory of metadata.
pub(crate) fn is_metadata(member: &[u8], name: &str) -> bool {
    let directory = member.strip_suffix(name.as_bytes());
    directory.is_some_and(|directory| {
        directory.ends_with(b".dist-info/")
            && directory.iter().filter(|byte| **byte == b'/').count() == 1
    })
}

/// The text of a small member.
///
/// # Errors
/// The member is large, or cannot be read.
pub(crate) fn text(wheel: &FileSlice, member: &ZipMember<'_>) -> Result<String> {
    if member.plain_size > LARGEST_TEXT {
        return Err(member.fault("larger than 4 MiB").into());
    }
    let bytes = zip_member(wheel, member)?;
    Ok(String::from_utf8_lossy(bytes.bytes()).into_owned())
}

/// Whether `piece` is a zip file.
pub(super) fn is_wheel(piece: &FileSlice) -> bool {
    is_zip(piece.bytes())
}

/// New contents of a member, packed.
struct Packed {
    name: Vec<u8>,
    contents: NewContents,
    bytes: Rope,
    sha256: [u8; 32],
}

/// The result for a member.
#[derive(Default)]
struct Done {
    images: Vec<ImageChange>,
    emptied: Vec<String>,
    recompressed: Recompressed,
    packed: Option<Packed>,
    /// The member's name and the offset of its header, if the member is removed.
    gone: Option<(Vec<u8>, u64)>,
}

/// Edits the members of the zip file `piece` by the verdicts of `decide`, and adds the results to
/// `change`. Returns `None` if nothing changes.
///
/// # Errors
/// The zip file or a member is damaged or does not support the edit; or the wheel is signed, without
/// `options.force`.
pub(super) fn edit(
    (path, piece): (&Path, &FileSlice),
    options: &Options,
    session: &Session,
    decide: &Decide<'_>,
    change: &mut Change,
    reached: &Reached,
) -> Result<Option<Rope>> {
    let zip = opened(path, piece)?;
    let members = members(path, &zip)?;
    let within = |member: &ZipMember<'_>| format!("{}({})", path.display(), member.shown_name());
    let choice = options.selection.of(path, None);
    let inspect_one = |member: &ZipMember<'_>| {
        let name = String::from_utf8_lossy(member.name);
        let choice = options.selection.of(Path::new(&*name), Some(choice));
        if choice == Choice::Selected {
            reached.now_at(&name);
        }
        let inspected = if choice == Choice::Selected {
            inspect_member(path, piece, member, options, session)
        } else {
            Ok(None)
        };
        // For the progress bar, decompressing a member counts as half of the work.
        reached.more(member.size / 2);
        inspected.with_context(|| within(member))
    };
    let mut inspected: Vec<Option<Inspected>> =
        members.par_iter().map(inspect_one).collect::<Result<_>>()?;
    let verdicts = verdicts_for_members(path, &members, &mut inspected, decide)?;
    let each =
        |((member, inspected), verdicts): ((&ZipMember<'_>, Option<Inspected>), Vec<Verdict>)| {
            let Some(inspected) = inspected else {
                return Ok(Done::default());
            };
            reached.now_at(&member.shown_name());
            let half = member.size - member.size / 2;
            let size = inspected.piece.as_ref().map_or(0, FileSlice::size);
            let progress = reached.share(half, size);
            let mut spool = Spool::new(session).with_progress(progress.clone());
            let done = edit_member(
                (member, &within(member)),
                &inspected,
                &verdicts,
                options,
                session,
                &mut spool,
            );
            progress.finish();
            done.map_err(|error| {
                if error.is::<Fixed>() {
                    error
                } else {
                    error.context(within(member))
                }
            })
        };
    let done: Vec<Done> = members
        .par_iter()
        .zip(inspected)
        .zip(verdicts)
        .map(each)
        .collect::<Result<_>>()?;
    let (mut all, mut gone) = (Vec::new(), HashMap::new());
    for one in done {
        if options.levels.only_smaller {
            change
                .recompressed
                .get_or_insert_default()
                .add(one.recompressed);
        }
        change.images.extend(one.images);
        change.emptied.extend(one.emptied);
        all.extend(one.packed);
        gone.extend(one.gone);
    }
    let is_gone = |member: &&ZipMember<'_>| gone.contains_key(member.name);
    change.removed_members = members
        .iter()
        .filter(is_gone)
        .map(ZipMember::shown_name)
        .collect();
    if !change.keeps_images() {
        change
            .emptied
            .extend(members.iter().filter(is_gone).map(within));
    }
    if all.is_empty() && gone.is_empty() {
        return Ok(None);
    }
    if !options.force {
        check_unsigned(path, &members, "; pass --force to change it anyway")?;
    }
    Ok(Some(assemble(
        (path, piece),
        &members,
        all,
        &gone,
        session,
    )?))
}

/// The zip file `piece` with new contents for the members named in `new`. A wheel's `RECORD` gets
/// their digests.
///
/// # Errors
/// The zip file is damaged, the wheel is signed, or a temporary file cannot be written.
pub(crate) fn with_contents(
    path: &Path,
    piece: &FileSlice,
    new: &HashMap<Vec<u8>, Rope>,
    session: &Session,
) -> Result<Rope> {
    let zip = opened(path, piece)?;
    let members = members(path, &zip)?;
    check_unsigned(path, &members, "")?;
    let each = |member: &ZipMember<'_>| {
        Some(pack(
            member,
            new.get(member.name)?.clone(),
            &mut Spool::new(session),
        ))
    };
    let all = members
        .par_iter()
        .filter_map(each)
        .collect::<Result<Vec<_>>>()?;
    assemble((path, piece), &members, all, &HashMap::new(), session)
}

/// Reads the directory of the zip file `piece`, which is at `path`.
///
/// # Errors
/// The zip file is damaged.
pub(crate) fn opened<'p>(path: &Path, piece: &'p FileSlice) -> Result<ZipFile<'p>> {
    ZipFile::read(piece.bytes()).map_err(|fault| anyhow!(fault.in_archive(&path.display())))
}

/// The members of the zip file at `path`, in the order of its directory.
///
/// # Errors
/// The zip file is damaged.
pub(crate) fn members<'z>(path: &Path, zip: &'z ZipFile<'_>) -> Result<Vec<ZipMember<'z>>> {
    zip.members()
        .collect::<Result<_, _>>()
        .map_err(|fault| anyhow!(fault.in_archive(&path.display())))
}

/// Checks that the wheel at `path` is not signed. `remedy` is the end of the message.
fn check_unsigned(path: &Path, members: &[ZipMember<'_>], remedy: &str) -> Result<()> {
    let is_signature = |member: &&ZipMember<'_>| {
        member.name.ends_with(b".dist-info/RECORD.jws") || member.name.ends_with(b"RECORD.p7s")
    };
    match members.iter().find(is_signature) {
        Some(signature) => {
            let (path, name) = (path.display(), signature.shown_name());
            bail!(
                "{path}: the wheel is signed by `{name}`, and a change would invalidate the signature{remedy}"
            )
        }
        None => Ok(()),
    }
}

/// The zip file with new contents for the members in `all`, and without the members in `gone`,
/// which maps their names to the offsets of their headers.
fn assemble(
    (path, piece): (&Path, &FileSlice),
    members: &[ZipMember<'_>],
    mut all: Vec<Packed>,
    gone: &HashMap<Vec<u8>, u64>,
    session: &Session,
) -> Result<Rope> {
    for record in members.iter().filter(|member| is_record(member.name)) {
        all.extend(new_record(piece, record, &all, gone, session)?);
    }
    let contents: Vec<NewContents> = all.iter().map(|packed| packed.contents).collect();
    let gone: HashSet<u64> = gone.values().copied().collect();
    let context = || path.display().to_string();
    let parts = plan(piece.bytes(), &contents, &gone).with_context(context)?;
    let new = all.into_iter().map(|packed| packed.bytes);
    Ok(Rope::of_parts(piece, parts, new)?)
}

/// A member that may have device code, with its report.
struct Inspected {
    report: FileReport,
    /// The contents of the member, which can be an open file. `None` if it has no images: the number
    /// of such members can exceed the limit of open files.
    piece: Option<FileSlice>,
}

/// Inspects a member. Returns `None` if its first bytes rule out device code.
fn inspect_member(
    path: &Path,
    zip: &FileSlice,
    member: &ZipMember<'_>,
    options: &Options,
    session: &Session,
) -> Result<Option<Inspected>> {
    session.signals.check()?;
    if !may_have_device_code(&start_of_zip_member(zip, member, START)?) {
        return Ok(None);
    }
    let piece = zip_member(zip, member)?.as_file();
    let name = path.join(
        member
            .path()
            .with_context(|| "the member's name points outside the zip file")?,
    );
    let report = inspect(&name, &piece, options.image_bytes, &Arc::default(), session);
    let piece = Some(piece).filter(|_| !report.images.is_empty());
    Ok(Some(Inspected { report, piece }))
}

/// The verdicts for the images of each member. `decide` is called once for all members. The numbers
/// of the images continue across members, and each image has its member's name.
fn verdicts_for_members(
    path: &Path,
    members: &[ZipMember<'_>],
    inspected: &mut [Option<Inspected>],
    decide: &Decide<'_>,
) -> Result<Vec<Vec<Verdict>>> {
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for (member, inspected) in members.iter().zip(inspected.iter_mut()) {
        let images = inspected
            .as_mut()
            .map(|inspected| std::mem::take(&mut inspected.report.images))
            .unwrap_or_default();
        counts.push(images.len());
        for mut image in images {
            image.index = all.len();
            image.members.insert(0, member.shown_name());
            all.push(image);
        }
    }
    let mut verdicts = verdicts_for(path, &all, decide)?.into_iter();
    let mut all = all.into_iter();
    for (inspected, count) in inspected.iter_mut().zip(&counts) {
        let images = all.by_ref().take(*count);
        if let Some(inspected) = inspected {
            inspected.report.images = images.collect();
        }
    }
    Ok(counts
        .into_iter()
        .map(|count| verdicts.by_ref().take(count).collect())
        .collect())
}

/// Edits a member. `place` is its name in messages.
fn edit_member(
    (member, place): (&ZipMember<'_>, &str),
    inspected: &Inspected,
    verdicts: &[Verdict],
    options: &Options,
    session: &Session,
    spool: &mut Spool,
) -> Result<Done> {
    session.signals.check()?;
    let piece = match &inspected.piece {
        Some(piece) => piece.clone(),
        None => {
            return inspected
                .report
                .errors
                .first()
                .map_or(Ok(Done::default()), |error| bail!("{error}"));
        }
    };
    let mut change = Change::of(String::new(), piece.size());
    let bytes = apply_verdicts(
        (Path::new(place), &piece),
        &inspected.report,
        verdicts,
        options,
        &mut change,
        spool,
    )?;
    let (images, emptied, recompressed) = (
        change.images,
        change.emptied,
        change.recompressed.unwrap_or_default(),
    );
    let mut done = Done {
        images,
        emptied,
        recompressed,
        ..Done::default()
    };
    if change.removed {
        done.gone = Some((member.name.to_vec(), member.header));
        return Ok(done);
    }
    // `offld split` calls this for members whose compressed data `offld merge` could not reproduce.
    // They are compressed again, even if the contents did not change: `offld merge` can reproduce the
    // new data.
    let recompress = options.levels.repack != Repack::No
        && !options.levels.only_smaller
        && member.method != ZipMethod::Stored
        && !done.images.is_empty();
    if let Some(bytes) = bytes.or_else(|| recompress.then(|| piece.clone().into())) {
        let packed = pack(member, bytes, spool)?;
        if options.levels.only_smaller && packed.contents.packed >= member.size {
            done.recompressed.smaller = 0;
        } else {
            done.packed = Some(packed);
        }
    }
    Ok(done)
}

/// Packs the new contents of a member: with deflate, or stored like the old contents.
fn pack(member: &ZipMember<'_>, bytes: Rope, spool: &mut Spool) -> Result<Packed> {
    let (mut crc, mut sha256) = (flate2::Crc::new(), Sha256::new());
    let mut digest = |chunk: &[u8]| {
        crc.update(chunk);
        sha256.update(chunk);
        Ok(())
    };
    let plain = bytes.size();
    let progress = spool.progress();
    let (method, bytes) = match member.method {
        ZipMethod::Stored => {
            bytes.for_each_chunk(digest)?;
            (STORED, bytes)
        }
        // Every unpacker supports deflate.
        ZipMethod::Deflate | ZipMethod::Zstd => {
            let packed = spool.add(|file| {
                let mut encoder =
                    flate2::write::DeflateEncoder::new(&mut *file, flate2::Compression::new(LEVEL));
                bytes.for_each_chunk(|chunk| {
                    encoder.write_all(chunk)?;
                    progress.more(chunk.len() as u64);
                    digest(chunk)
                })?;
                encoder.finish()?;
                Ok(())
            })?;
            (DEFLATE, packed.into())
        }
    };
    let contents = NewContents {
        header: member.header,
        method,
        crc: crc.sum(),
        packed: bytes.size(),
        plain,
    };
    Ok(Packed {
        name: member.name.to_vec(),
        contents,
        bytes,
        sha256: sha256.finalize().into(),
    })
}

/// Whether a member is the file list of a wheel (the specification "Recording installed projects",
/// `RECORD`).
pub(crate) fn is_record(name: &[u8]) -> bool {
    is_metadata(name, "RECORD")
}

/// The `RECORD` with digests and sizes of the changed members, and without the removed ones; `None`
/// if it lists none of them.
fn new_record(
    zip: &FileSlice,
    record: &ZipMember<'_>,
    changed: &[Packed],
    gone: &HashMap<Vec<u8>, u64>,
    session: &Session,
) -> Result<Option<Packed>> {
    let old = zip_member(zip, record)?;
    let text = std::str::from_utf8(old.bytes()).context("the wheel's RECORD is not UTF-8 text")?;
    let mut new = String::with_capacity(text.len());
    let mut any = false;
    for line in text.split_inclusive('\n') {
        let end = line.trim_end_matches(['\r', '\n']);
        let path = path_of(end);
        if path
            .as_ref()
            .is_some_and(|path| gone.contains_key(path.as_bytes()))
        {
            any = true;
            continue;
        }
        let is_listed = |packed: &&Packed| {
            path.as_ref()
                .is_some_and(|path| path.as_bytes() == packed.name)
        };
        match changed.iter().find(is_listed) {
            Some(packed) => {
                let path = end.rsplitn(3, ',').nth(2).unwrap_or_default();
                let digest = URL_SAFE_NO_PAD.encode(packed.sha256);
                new.push_str(&format!(
                    "{path},sha256={digest},{}{}",
                    packed.contents.plain,
                    &line[end.len()..]
                ));
                any = true;
            }
            None => new.push_str(line),
        }
    }
    let mut spool = Spool::new(session);
    Ok(if any {
        Some(pack(record, new.into_bytes().into(), &mut spool)?)
    } else {
        None
    })
}

/// The member's name in a line of `RECORD`. Paths with commas or quotes are quoted as in CSV.
fn path_of(line: &str) -> Option<String> {
    let path = line.rsplitn(3, ',').nth(2)?;
    Some(
        match path
            .strip_prefix('"')
            .and_then(|path| path.strip_suffix('"'))
        {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => path.to_owned(),
        },
    )
}

/// A member's name for a line of `RECORD`.
pub(crate) fn quoted(name: &str) -> Cow<'_, str> {
    if name.contains([',', '"']) {
        format!("\"{}\"", name.replace('"', "\"\"")).into()
    } else {
        name.into()
    }
}

/// Recompresses the members of `selection` that have device code, and the containers in them that
/// `levels` selects, in the zip file `piece`. Returns `None` if there are no such members.
///
/// # Errors
/// The zip file or a member is damaged or does not support the edit.
pub(crate) fn repacked(
    path: &Path,
    piece: &FileSlice,
    levels: Levels,
    selection: Selection,
    session: &Session,
) -> Result<Option<Rope>> {
    let to = super::To::InPlace;
    let (dry_run, force, allow_empty) = (true, true, true);
    let (new_build_id, digests, image_bytes, selection) =
        (false, false, false, Arc::new(selection));
    let options = Options {
        to,
        dry_run,
        force,
        allow_empty,
        new_build_id,
        levels,
        digests,
        image_bytes,
        selection,
    };
    let keep = |_: &Path, images: &[Image]| Ok(vec![Verdict::Keep; images.len()]);
    edit(
        (path, piece),
        &options,
        session,
        &keep,
        &mut Change::of(String::new(), piece.size()),
        &Reached::default(),
    )
}
