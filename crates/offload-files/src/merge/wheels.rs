//! Merges wheels and other zip files of several builds. Members with the same name are merged.
//! Members without device code must have the same contents in all builds, except `RECORD` and some
//! lines of `WHEEL`. The times, order and compression of members may differ.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayon::prelude::*;

use super::{Holds, Merged, Outcome, add_device, unmatched};
use crate::contents::{Options, Reader};
use crate::edit::files::wheel::{self, is_record};
use offld_system::io::file_slice::{FileSlice, Spool, start_of_zip_member, zip_member};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offld_system::threads;
use offload_formats::error;
use offload_formats::magic::{START, may_have_device_code};
use offload_formats::model::{printable, printable_name};
use offload_formats::zip::{ZipMember, is_zip};

/// Prefixes of the lines in a wheel's `WHEEL` file that may differ between builds. These lines
/// describe the supported interpreters and systems, and the tool that packed the wheel. The merged
/// wheel has the lines of the first build.
const PACKING: [&str; 3] = ["Tag:", "Build:", "Generator:"];

/// The members of one name, one from each build, in the order of the builds. Each element is a
/// build's zip file and its member.
type Row<'r> = Vec<(&'r FileSlice, &'r ZipMember<'r>)>;

/// The result of merging one member.
enum Fate {
    /// The member of the first build is used unchanged. The fields are the number of images in the
    /// member, and the devices of these images.
    Same(usize, Vec<String>),
    /// The member is merged from all builds.
    Merged(Box<Merged>),
    /// The member cannot be merged, for these reasons.
    Refused(Vec<String>),
}

/// Merges zip files. Each element of `files` is the path and the opened contents of one build.
///
/// # Errors
/// Fails if a file is damaged or signed, or if a signal arrives.
pub(super) fn merge(files: &[(PathBuf, FileSlice)], session: &Session) -> Result<Outcome> {
    let zips = files
        .iter()
        .map(|(path, piece)| wheel::opened(path, piece))
        .collect::<Result<Vec<_>>>()?;
    let all = files
        .iter()
        .zip(&zips)
        .map(|((path, _), zip)| wheel::members(path, zip))
        .collect::<Result<Vec<_>>>()?;
    let mut by_name = Vec::with_capacity(all.len());
    for ((path, _), members) in files.iter().zip(&all) {
        let mut names: HashMap<&[u8], &ZipMember<'_>> = HashMap::new();
        if let Some(twice) = members
            .iter()
            .find(|member| names.insert(member.name, member).is_some())
        {
            bail!(
                "{}: two members have the name {}",
                path.display(),
                twice.shown_name()
            );
        }
        by_name.push(names);
    }
    let names = files.iter().zip(&by_name).map(|((path, _), names)| {
        let names: BTreeSet<&[u8]> = names.keys().copied().collect();
        (printable(&path.display().to_string()).into_owned(), names)
    });
    let missing = unmatched(&names.collect::<Vec<_>>(), "member");
    if !missing.is_empty() {
        return Ok(Outcome::Refused(missing));
    }
    let (Some((path, piece)), Some(members)) = (files.first(), all.first()) else {
        bail!("no builds to merge")
    };
    let each = |member: &ZipMember<'_>| {
        session.signals.check()?;
        let row = files
            .iter()
            .zip(&by_name)
            .filter_map(|((_, piece), names)| Some((piece, *names.get(member.name)?)));
        merge_member(files, &row.collect(), session).or_else(|error| {
            session.signals.check()?;
            Ok(Fate::Refused(vec![error::chain(&error)]))
        })
    };
    let fates: Vec<Fate> =
        threads::in_parallel(|| members.par_iter().map(each).collect::<Result<_>>())?;
    let (mut refused, mut count, mut devices) = (Vec::new(), 0, Vec::new());
    let mut merged = Vec::new();
    for (member, fate) in members.iter().zip(fates) {
        let own = match fate {
            Fate::Refused(reasons) => {
                refused.extend(reasons);
                continue;
            }
            Fate::Same(images, devices) => {
                count += images;
                devices
            }
            Fate::Merged(one) => {
                count += one.count;
                let devices = one.devices.clone();
                merged.push((member.name.to_vec(), *one));
                devices
            }
        };
        devices.extend(own);
    }
    if !refused.is_empty() {
        return Ok(Outcome::Refused(refused));
    }
    let mut seen = BTreeSet::new();
    devices.retain(|device: &String| seen.insert(device.clone()));
    merged.retain(|(_, one)| one.is_changed);
    let is_changed = !merged.is_empty();
    let new: HashMap<Vec<u8>, Rope> = merged
        .iter()
        .map(|(name, one)| (name.clone(), one.bytes.clone()))
        .collect();
    let bytes = if is_changed {
        wheel::with_contents(path, piece, &new, session)?
    } else {
        piece.clone().into()
    };
    Ok(Outcome::Merged(Merged {
        bytes,
        is_changed,
        count,
        devices,
        holds: Holds::Members(merged),
    }))
}

/// Merges one member. `files` are the builds, and `row` has the member of each build.
fn merge_member(files: &[(PathBuf, FileSlice)], row: &Row<'_>, session: &Session) -> Result<Fate> {
    let (zip, member) = *row.first().context("no builds to merge")?;
    let is_stored_alike = |(zip, other): &(&FileSlice, &ZipMember<'_>)| {
        let stored =
            |zip: &FileSlice, member: &ZipMember<'_>| zip.slice(member.offset, member.size);
        let own = row.first().and_then(|(zip, member)| stored(zip, member));
        member.method == other.method
            && own
                .zip(stored(zip, other))
                .is_some_and(|(one, other)| one.has_bytes_of(&other))
    };
    if is_record(member.name) || row.iter().all(is_stored_alike) {
        return same(files, (zip, member), session);
    }
    let mut pieces = Vec::new();
    for ((path, _), (zip, member)) in files.iter().zip(row) {
        let name = member
            .path()
            .with_context(|| format!("{}({})", path.display(), member.shown_name()));
        let name = name.context("the member's name points outside the zip file")?;
        let piece = zip_member(zip, member)
            .with_context(|| format!("{}({})", path.display(), member.shown_name()))?;
        pieces.push((path.join(name), piece.as_file()));
    }
    let (_, first) = pieces.first().context("no builds to merge")?;
    if pieces.iter().all(|(_, piece)| {
        piece.has_bytes_of(first) || is_wheel_file(member.name) && is_packing(first, piece)
    }) {
        return same(files, (zip, member), session);
    }
    if let Some((path, _)) = pieces.iter().find(|(_, piece)| is_zip(piece.bytes())) {
        return Ok(Fate::Refused(vec![format!(
            "{}: cannot merge a zip file inside another one",
            path.display()
        )]));
    }
    Ok(
        match super::merge(&pieces, &mut Spool::new(session), session)? {
            Outcome::Merged(merged) => Fate::Merged(Box::new(merged)),
            Outcome::Refused(reasons) => Fate::Refused(reasons),
        },
    )
}

/// Keeps the member of the first build. Counts the images in this member and lists their devices.
fn same(
    files: &[(PathBuf, FileSlice)],
    (zip, member): (&FileSlice, &ZipMember<'_>),
    session: &Session,
) -> Result<Fate> {
    let (mut count, mut devices) = (0, Vec::new());
    if let Some((path, _)) = files.first()
        && may_have_device_code(&start_of_zip_member(zip, member, START)?)
        && let Some(name) = member.path()
    {
        let options = Options {
            headers_only: true,
            ..Options::default()
        };
        let report = Reader::new(options, session)
            .opened(&path.join(name), zip_member(zip, member)?.as_file());
        let images = report.images.iter().filter(|image| image.is_device());
        count = images.map(|image| add_device(image, &mut devices)).count();
    }
    Ok(Fate::Same(count, devices))
}

/// Whether `name` is the name of a wheel's metadata file, `WHEEL`. The Python specification "Binary
/// distribution format" defines this file.
fn is_wheel_file(name: &[u8]) -> bool {
    name.ends_with(b".dist-info/WHEEL") && name.iter().filter(|byte| **byte == b'/').count() == 1
}

/// Whether two `WHEEL` files differ only in the lines of [`PACKING`].
fn is_packing(one: &FileSlice, other: &FileSlice) -> bool {
    let lines = |piece: &FileSlice| {
        let text = String::from_utf8_lossy(piece.bytes()).into_owned();
        let compared = text
            .lines()
            .filter(|line| !PACKING.iter().any(|start| line.starts_with(start)));
        compared.map(str::to_owned).collect::<Vec<_>>()
    };
    lines(one) == lines(other)
}

/// Checks a merged zip file: it must have all merged `members`, and each member must have the
/// expected images. `piece` is the opened zip file, and `place` is its path.
///
/// # Errors
/// Fails if the zip file lacks a merged member or an expected image, which is a bug in offld. Also
/// fails if a signal arrives.
pub(super) fn check(
    members: &[(Vec<u8>, Merged)],
    place: &Path,
    piece: &FileSlice,
    session: &Session,
) -> Result<()> {
    let zip = wheel::opened(place, piece)?;
    let all = wheel::members(place, &zip)?;
    let each = |(name, merged): &(Vec<u8>, Merged)| {
        session.signals.check()?;
        let member_place = || format!("{}({})", place.display(), printable_name(name));
        let member = all.iter().find(|member| member.name == name.as_slice());
        let member = member.with_context(|| {
            format!("{}: a bug in offld: the member is missing", member_place())
        })?;
        let contents = zip_member(piece, member)
            .with_context(member_place)?
            .as_file();
        merged.check(Path::new(&member_place()), &contents, session)
    };
    threads::in_parallel(|| members.par_iter().try_for_each(each))
}
