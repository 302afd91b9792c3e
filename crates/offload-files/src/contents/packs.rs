//! Inspection of kpack archives, and of the archives that a program refers to. A program is found in
//! an archive by the path that both name and by the number of each registration.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::image;
use super::report::{Image, Pack, PackReference, Place, Step};
use super::tree::{ImageMetadata, NodeKind};
use super::walk::{Cursor, Walk};
use offld_system::io::file_slice::FileSlice;
use offload_formats::gpu::TargetId;
use offload_formats::kpack::{self, Archive, Entry, PLACEHOLDER, Scheme};
use offload_formats::magic::{ByteKind, byte_kind};
use offload_formats::model::printable;

/// The name of the format in reports.
pub(crate) const NAME: &str = "kpack";
/// The number of architectures that are compared. There are some 60 processors, with four variants
/// each.
const MOST_ARCHS: usize = 512;
/// The triple of the code in archives.
const TRIPLE: &str = "amdgcn-amd-amdhsa";

/// Inspects the code objects of the archive at `cursor`.
pub(super) fn archive(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let place = || cursor.place.to_string();
    let archive = Archive::read(cursor.piece.bytes()).with_context(place)?;
    let cursor = &Cursor {
        spot: walk.container(cursor, 0, cursor.piece.size(), NAME),
        ..cursor.clone()
    };
    if archive.scheme == Scheme::None {
        walk.not_compressed(cursor, 0, cursor.piece.size(), NAME);
    }
    let inner = place_in(&cursor.place, &cursor.piece);
    let mut entered = HashSet::new();
    for entry in &archive.entries {
        walk.signals.check()?;
        // Each byte belongs to one item, so entries that share a code object count once.
        if walk.layout.is_none() || entered.insert(entry.ordinal) {
            code_object(walk, cursor, &inner, entry);
        }
    }
    faults_of(walk, cursor, &archive);
    Ok(())
}

/// The location of the code objects of an archive, which is at `place`.
fn place_in(place: &Place, piece: &FileSlice) -> Place {
    place.then(Step::Container {
        name: NAME,
        offset: piece.file_offset(0),
        size: piece.size(),
        version: Some(1),
        compression: None,
        plain_size: None,
        within: 0,
    })
}

/// Inspects one code object. A damaged one is an image, too.
fn code_object(walk: &mut Walk<'_>, cursor: &Cursor, place: &Place, entry: &Entry<'_>) {
    let facts = ImageMetadata {
        kinds: vec!["hip".to_owned()],
        triple: TRIPLE.to_owned(),
        target: entry.arch.to_owned(),
        id: Some(entry.binary.to_owned()),
        ..cursor.facts.clone()
    };
    let piece = entry.stored.clone().map(|range| {
        let size = range.end - range.start;
        cursor
            .piece
            .slice(range.start, size)
            .unwrap_or_else(|| cursor.piece.from(u64::MAX))
    });
    let before = walk.images.len();
    match piece {
        Ok(piece) => walk.enter(&cursor.deeper(piece, place.clone(), facts).inside()),
        Err(fault) => {
            let what = format!(
                "{place}: {} for {}",
                printable(entry.binary),
                printable(entry.arch)
            );
            walk.note(&anyhow::Error::from(fault).context(what));
            let empty = cursor.piece.from(u64::MAX);
            let cursor = cursor.deeper(empty.clone(), place.clone(), facts);
            let size = entry.original_size.unwrap_or_default();
            let image = image::unread(walk.images.len(), &cursor, "unread", size);
            walk.push_image(image, &empty);
        }
    }
    let sizes = walk
        .images
        .get(before)
        .map(|image| image.size)
        .zip(entry.original_size);
    if let Some((size, listed)) =
        sizes.filter(|(size, listed)| size != listed && walk.layout.is_none())
    {
        let text = format!(
            "{} for {}: the table of contents has {listed} bytes, the code object has {size}: the loader allocates by the table",
            entry.binary, entry.arch
        );
        walk.fault(cursor, "wrong-size", text);
    }
}

/// Records contradictions in the table of contents of an archive.
fn faults_of(walk: &mut Walk<'_>, cursor: &Cursor, archive: &Archive<'_>) {
    let of_entries: BTreeSet<&str> = archive.entries.iter().map(|entry| entry.arch).collect();
    let listed: BTreeSet<&str> = archive.architectures.iter().copied().collect();
    for arch in of_entries.difference(&listed) {
        let text = format!(
            "{arch} is not in the list of architectures: the loader skips the archive for such devices"
        );
        walk.fault(cursor, "not-listed", text);
    }
    for arch in listed.difference(&of_entries) {
        let text =
            format!("{arch} is in the list of architectures, but the archive has no code for it");
        walk.fault(cursor, "no-code", text);
    }
    let unnumbered = archive
        .entries
        .iter()
        .find(|entry| split_key(entry.binary).1.is_none());
    if let Some(entry) = unnumbered {
        let text = format!(
            "{} has no number of a registration (`#0`): the loader does not find it",
            entry.binary
        );
        walk.fault(cursor, "no-number", text);
    }
}

/// The program and the number of the registration in the key of an entry: `lib/libx.so#3`.
pub(crate) fn split_key(key: &str) -> (&str, Option<u32>) {
    match key.rsplit_once('#') {
        Some((binary, number)) => match number.parse() {
            Ok(number) => (binary, Some(number)),
            Err(_) => (key, None),
        },
        None => (key, None),
    }
}

/// Records the reference of the program at `cursor`, if it has one. For a file on disk, inspects
/// its code objects in the archives, if that is requested.
pub(super) fn reference(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let found = kpack::program(cursor.piece.bytes()).with_context(|| cursor.place.to_string())?;
    let Some(program) = found else {
        return Ok(());
    };
    let mut reference = PackReference {
        members: cursor.place.members(),
        numbers: cursor.numbers.clone(),
        binary: program.reference.binary,
        search_paths: program.reference.search_paths,
        registrations: program.registrations,
        packs: Vec::new(),
    };
    if reference.registrations.is_empty() {
        let text = format!(
            "{} refers to kpack archives, but {}",
            reference.binary,
            match program.embedded {
                0 => "registers no code",
                _ => "registers code in the file itself, so that HIP never looks into the archives",
            }
        );
        walk.fault(cursor, "not-registered", text);
    }
    if walk.follows && reference.members.is_empty() && cursor.file != Path::new("-") {
        follow(walk, cursor, &mut reference);
    }
    walk.references.push(reference);
    Ok(())
}

/// Inspects the archives that `reference` names.
fn follow(walk: &mut Walk<'_>, cursor: &Cursor, reference: &mut PackReference) {
    let folder = &folder_of(&cursor.file);
    let mut missing = Vec::new();
    let mut others: Vec<(String, BTreeSet<String>)> = Vec::new();
    for path in reference.search_paths.clone() {
        let found = candidates(folder, &path);
        if found.is_empty() {
            missing.push(path);
        }
        for (file, arch) in found {
            let name = shown(&file, folder);
            match pack(walk, cursor, reference, &file, &name) {
                Ok((pack, binaries)) if pack.images == 0 => others.push((pack.file, binaries)),
                Ok((pack, _)) => {
                    swapped(walk, cursor, &pack, arch.as_deref());
                    reference.packs.push(pack);
                }
                Err(error) => walk.note(&error),
            }
        }
    }
    if !reference.packs.is_empty() {
        incomplete(walk, cursor, reference);
        return;
    }
    let folder = folder.display();
    for (file, binaries) in &others {
        let text = match binaries.iter().next() {
            Some(other) => format!(
                "{file} has no code of {}, but of {other}: the archive is of another build, or the path in the reference is wrong",
                reference.binary
            ),
            None => format!("{file} has no code at all"),
        };
        walk.fault(cursor, "foreign", text);
    }
    if others.is_empty() && walk.errors.is_empty() {
        for path in missing {
            walk.fault(
                cursor,
                "missing",
                format!("no kpack archive {path} (looked for in {folder})"),
            );
        }
    }
}

/// Inspects the code objects of the program in the archive `file`. Returns the archive, and the
/// programs in it.
fn pack(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    reference: &PackReference,
    file: &Path,
    name: &str,
) -> Result<(Pack, BTreeSet<String>)> {
    let place = || format!("{}: {name}", cursor.place);
    let piece = FileSlice::try_open_one_of_many(file).with_context(place)?;
    let archive = Archive::read(piece.bytes()).with_context(place)?;
    let step = Step::Member {
        name: name.to_owned(),
        file: Some(file.display().to_string()),
        offset: Some(0),
        size: piece.size(),
        compression: None,
        plain_size: None,
    };
    let inner = cursor.deeper(
        piece.clone(),
        cursor.place.then(step),
        ImageMetadata::default(),
    );
    let inner = Cursor {
        file: file.to_owned(),
        ..inner
    };
    let place = place_in(&inner.place, &piece);
    let before = walk.images.len();
    let mut architectures = BTreeSet::new();
    walk.node_at(
        NodeKind::Member(name.to_owned()),
        0..piece.size(),
        &piece,
        |walk| {
            for entry in &archive.entries {
                if split_key(entry.binary).0 == reference.binary {
                    architectures.insert(entry.arch.to_owned());
                    code_object(walk, &inner, &place, entry);
                }
            }
        },
    );
    let pack = Pack {
        file: name.to_owned(),
        architectures: architectures.into_iter().collect(),
        images: walk.images.len() - before,
    };
    if pack.images > 0 {
        faults_of(walk, &inner, &archive);
    }
    let binaries = archive.entries.iter();
    let binaries = binaries.map(|entry| split_key(entry.binary).0.to_owned());
    Ok((pack, binaries.collect()))
}

/// Records that an archive is not for the architecture in its name. The loader opens it by name.
fn swapped(walk: &mut Walk<'_>, cursor: &Cursor, pack: &Pack, arch: Option<&str>) {
    let processor = |arch: &str| arch.split(':').next().unwrap_or_default().to_owned();
    let Some(named) = arch else { return };
    let is_other = |arch: &&String| processor(arch) != processor(named);
    if let Some(other) = pack.architectures.iter().find(is_other) {
        let text = format!(
            "{} is named for {named}, but has code for {other}",
            pack.file
        );
        walk.fault(cursor, "swapped", text);
    }
}

/// Records registrations without code for an architecture that others have code for, and code that
/// nothing registers.
fn incomplete(walk: &mut Walk<'_>, cursor: &Cursor, reference: &PackReference) {
    let mut found = Vec::new();
    found.extend(
        walk.images
            .iter()
            .filter_map(|image| pack_image(image, reference)),
    );
    let has: HashSet<(&str, u32)> = found
        .iter()
        .map(|(arch, _, number)| (*arch, *number))
        .collect();
    let mut archs: Vec<&str> = found.iter().map(|(arch, ..)| *arch).collect();
    archs.sort_unstable();
    archs.dedup();
    archs.truncate(MOST_ARCHS);
    let known: HashSet<u32> = reference.registrations.iter().copied().collect();
    let binary = &reference.binary;
    let mut faults = Vec::new();
    for arch in &archs {
        let base = arch.split(':').next().unwrap_or_default();
        let is_variant = |other: &&&str| {
            other
                .strip_prefix(base)
                .is_some_and(|rest| rest.starts_with(':'))
        };
        let variants: Vec<&&str> = archs.iter().filter(is_variant).collect();
        // Code for all variants of a processor serves the processor.
        let is_served = |number: u32| {
            base == *arch
                && variants.len() > 1
                && variants.iter().all(|one| has.contains(&(one, number)))
        };
        let mut lacks = reference.registrations.clone();
        lacks.retain(|number| !has.contains(&(arch, *number)) && !is_served(*number));
        let hidden = |number: &&u32| has.contains(&(base, **number));
        let lost = lacks.iter().find(|number| !hidden(number));
        let Some(number) = lost.or(lacks.first()) else {
            continue;
        };
        let pack = found.iter().find(|(other, ..)| other == arch);
        let mut text = format!(
            "{}: no code for {arch} for {} of {} registrations, such as {binary}#{number}",
            pack.map_or("", |(_, pack, _)| pack),
            lacks.len(),
            reference.registrations.len(),
        );
        if lost.is_none() {
            text.push_str("; ROCm 7.14 takes this archive and does not look for the code for ");
            text.push_str(base);
        }
        faults.push((
            if lost.is_some() {
                "incomplete"
            } else {
                "hides"
            },
            text,
        ));
    }
    let is_unused = |number: &u32| !known.contains(number);
    if let Some(number) = found.iter().map(|(.., number)| *number).find(is_unused) {
        let text = format!(
            "the archives have code of {binary}#{number}, which the program does not register"
        );
        faults.push(("not-registered", text));
    }
    for (what, text) in faults {
        walk.fault(cursor, what, text);
    }
}

/// The architecture, the archive and the number of the registration of an image of the program.
fn pack_image<'i>(image: &'i Image, reference: &PackReference) -> Option<(&'i str, &'i str, u32)> {
    let (binary, number) = split_key(image.id.as_deref()?);
    let is_own = is_packed(image) && binary == reference.binary;
    let pack = image.members.last()?;
    Some((&image.target, pack, number.filter(|_| is_own)?))
}

/// Whether an image is in a kpack archive.
pub(crate) fn is_packed(image: &Image) -> bool {
    let is_pack = |step: &Step| matches!(step, Step::Container { name: NAME, .. });
    image.path.iter().any(is_pack)
}

/// The archives that the program at `path` refers to, if it is one.
pub(crate) fn archives_of(path: &Path) -> Vec<PathBuf> {
    let Ok(piece) = FileSlice::try_open_one_of_many(path) else {
        return Vec::new();
    };
    let is_object = matches!(byte_kind(piece.bytes(), true), ByteKind::Object(_));
    let program = kpack::program(piece.bytes()).ok().flatten();
    let Some(program) = program.filter(|_| is_object) else {
        return Vec::new();
    };
    let folder = folder_of(path);
    let paths = program.reference.search_paths.iter();
    paths
        .flat_map(|path| candidates(&folder, path))
        .map(|(file, _)| file)
        .collect()
}

/// The directory from which the loader looks for archives. It takes the name of the program from
/// the map of the process, which has no links.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real.parent().map(Path::to_owned).unwrap_or_default()
}

/// The files that a search path names, with the architecture in place of [`PLACEHOLDER`].
fn candidates(folder: &Path, path: &str) -> Vec<(PathBuf, Option<String>)> {
    let path = folder.join(path);
    let Some(text) = path.to_str().filter(|text| text.contains(PLACEHOLDER)) else {
        return if path.is_file() {
            vec![(path, None)]
        } else {
            Vec::new()
        };
    };
    let (before, after) = text.split_once(PLACEHOLDER).unwrap_or((text, ""));
    let (parent, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let (suffix, rest) = after
        .split_once('/')
        .map_or((after, None), |(suffix, rest)| (suffix, Some(rest)));
    let Ok(entries) = std::fs::read_dir(if parent.is_empty() { "/" } else { parent }) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let arch = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix)?.strip_suffix(suffix));
        // Other archives may have names with the same start: `torch_gfx90a`, `torch_x_gfx90a`.
        let Some(arch) =
            arch.filter(|arch| arch.starts_with("gfx") && TargetId::parse(arch).is_some())
        else {
            continue;
        };
        let path = match rest {
            Some(rest) => entry.path().join(rest),
            None => entry.path(),
        };
        if path.is_file() {
            found.push((path, Some(arch.to_owned())));
        }
    }
    found.sort();
    found
}

/// The name of an archive in reports: relative to the directory of the program.
fn shown(file: &Path, folder: &Path) -> String {
    file.strip_prefix(folder)
        .unwrap_or(file)
        .display()
        .to_string()
}
