//! External images: the files beside a program that its tables name
//! (`offload_formats::external_images`).

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::{Object, ObjectSection};

use super::packs::folder_of;
use super::report::{EXTERNAL_IMAGES, ExternalFile, ExternalImages, Image, Step};
use super::tree::{ImageMetadata, NodeKind};
use super::walk::{Cursor, Walk};
use offld_system::io::file_slice::FileSlice;
use offload_formats::error::Malformed;
use offload_formats::external_images::{self, Digest, ExternalImage, SECTION, Table};
use offload_formats::magic::{ByteKind, byte_kind};
use offload_formats::model::OffloadKind;
use offload_formats::target::Target;

/// Records the tables of the program at `cursor`. For a file on disk, inspects the files that they
/// name, if that is requested.
pub(super) fn tables(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let place = || format!("{}: {SECTION}", cursor.place);
    let Some((offset, data)) = section(cursor.piece.bytes()).with_context(place)? else {
        return Ok(());
    };
    let tables = external_images::read_all(data).map_err(|fault| fault.shifted(offset));
    for (index, table) in tables.with_context(place)?.iter().enumerate() {
        let mut found = ExternalImages {
            members: cursor.place.members(),
            numbers: cursor.numbers.clone(),
            runtime: table.kind.name(),
            directory: table.directory.clone(),
            files: table.images.iter().map(named).collect(),
        };
        if walk.follows && found.members.is_empty() && cursor.file != Path::new("-") {
            follow(walk, cursor, index, table, &mut found);
        }
        walk.external.push(found);
    }
    Ok(())
}

/// The files with images of the program at `path`, if it is one.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    let Ok(piece) = FileSlice::try_open_one_of_many(path) else {
        return Vec::new();
    };
    if !matches!(byte_kind(piece.bytes(), true), ByteKind::Object(_)) {
        return Vec::new();
    }
    let found = section(piece.bytes()).ok().flatten();
    let tables = found.and_then(|(_, data)| external_images::read_all(data).ok());
    let folder = folder_of(path);
    let mut files = Vec::new();
    for table in tables.unwrap_or_default() {
        let names = table.images.iter().map(|image| &image.name);
        files.extend(names.map(|name| folder.join(&table.directory).join(name)));
    }
    files.retain(|file| file.is_file());
    files
}

/// The section of the tables, with its offset.
fn section(data: &[u8]) -> Result<Option<(u64, &[u8])>, Malformed> {
    let damaged = |_| Malformed::new("damaged section table", 0);
    let file = object::File::parse(data).map_err(damaged)?;
    let Some(section) = file.section_by_name(SECTION) else {
        return Ok(None);
    };
    let at = section.file_range().map_or(0, |(start, _)| start);
    let bytes = section.data();
    let bytes = bytes.map_err(|_| Malformed::new("section past the end", at))?;
    Ok(Some((at, bytes)))
}

fn named(image: &ExternalImage) -> ExternalFile {
    ExternalFile {
        name: image.name.clone(),
        target: image.arch.clone(),
        size: image.size,
        found: None,
    }
}

/// Inspects the files of the table with number `index`.
fn follow(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    index: usize,
    table: &Table,
    found: &mut ExternalImages,
) {
    let folder = folder_of(&cursor.file).join(&table.directory);
    for (image, file) in table.images.iter().zip(&mut found.files) {
        let path = folder.join(&image.name);
        file.found = Some(path.is_file());
        if !path.is_file() {
            continue;
        }
        if let Err(error) = one_file(walk, cursor, index, table, image, &path) {
            walk.note(&error);
        }
    }
    if found.files.iter().all(|file| file.found == Some(false)) {
        let text = format!(
            "none of the files with the code for {} is in {}",
            found.runtime,
            folder.display()
        );
        walk.fault_for(table.kind, cursor, "missing", text);
    }
}

/// Inspects the file of one image.
fn one_file(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    index: usize,
    table: &Table,
    image: &ExternalImage,
    path: &Path,
) -> Result<()> {
    let place = || format!("{}: {}", cursor.place, path.display());
    let piece = FileSlice::try_open_one_of_many(path).with_context(place)?;
    let mut digest = Digest::default();
    if !walk.options.headers_only {
        io::copy(&mut piece.bytes(), &mut digest)?;
    }
    let is_other =
        piece.size() != image.size || !walk.options.headers_only && digest.finish() != image.digest;
    if is_other {
        let text = format!(
            "{} is damaged or belongs to another build: the program does not load it",
            path.display()
        );
        walk.fault_for(table.kind, cursor, "foreign", text);
    }
    // All files of a table are in one container for the runtime.
    let container = Step::Container {
        name: EXTERNAL_IMAGES,
        offset: None,
        size: 0,
        version: Some(1),
        compression: None,
        plain_size: None,
        within: index as u64,
    };
    let step = Step::File {
        name: image.name.clone(),
        file: path.display().to_string(),
        size: piece.size(),
    };
    let target = target(table.kind, image);
    let facts = ImageMetadata {
        kinds: vec![table.kind.name().to_owned()],
        triple: target.triple,
        target: target.arch,
        id: (table.kind == OffloadKind::Hip).then(|| image.id.clone()),
        ..ImageMetadata::default()
    };
    let place = cursor.place.then(container).then(step);
    let inner = cursor.deeper(piece.clone(), place, facts).inside();
    let inner = Cursor {
        file: path.to_owned(),
        ..inner
    };
    let node = NodeKind::Member(image.name.clone());
    walk.node_at(node, 0..piece.size(), &piece, |walk| walk.enter(&inner));
    Ok(())
}

/// The target of an image.
fn target(kind: OffloadKind, image: &ExternalImage) -> Target {
    match kind {
        OffloadKind::OpenMp => {
            let target = Target::new(&image.id, &image.arch);
            // The table has the CPU's name, where others have no architecture.
            let is_named = target.arch == target.arch_name();
            Target::new(&image.id, if is_named { "" } else { &image.arch })
        }
        OffloadKind::Hip => {
            let triple = image.id.split('-').skip(1).take(3);
            Target::new(&triple.collect::<Vec<_>>().join("-"), &image.arch)
        }
        _ => Target::new("nvptx64-nvidia-cuda", &image.arch),
    }
}

/// Whether an image is in a file beside the program that registers it.
pub(crate) fn is_external(image: &Image) -> bool {
    let is_file = |step: &Step| matches!(step, Step::File { .. });
    image.path.iter().any(is_file)
}
