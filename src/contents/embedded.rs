//! Search for device code in plain data of objects and programs: containers and code objects that
//! no section, symbol or registration names. The program loads them by itself, or passes them to a
//! compiler. Only their headers identify them ([`crate::formats::embedded`]).

use std::ops::Range;

use anyhow::{Context, Result, anyhow};
use object::{Object, ObjectSection, SectionKind};

use super::containers;
use super::objects::device_sections;
use super::report::{Image, Step};
use super::tree::NodeKind;
use super::walk::{Cursor, Walk};
use crate::formats::containers::Kind;
use crate::formats::embedded::{self, Embedded};
use crate::io::file_slice::FileSlice;

/// Inspects the data sections of the object or program at `cursor`. Skips the images from index
/// `before` on, because they were found by name.
pub(super) fn in_data(walk: &mut Walk<'_>, cursor: &Cursor, before: usize) -> Result<()> {
    let named = named(walk.images.get(before..).unwrap_or_default());
    for section in data_sections(cursor).with_context(|| cursor.place.to_string())? {
        walk.signals.check()?;
        let Some(piece) = cursor.piece.slice(section.offset, section.size) else {
            continue;
        };
        // Pages of the map that were read count as memory in use.
        let (found, is_all) = embedded::search(piece.bytes(), |at, size| {
            piece.slice(at, size).iter().for_each(FileSlice::release);
        });
        let offset = piece.file_offset(0);
        let place = cursor.place.then(Step::Section {
            name: section.name,
            offset,
            size: section.size,
        });
        if !is_all {
            walk.note(&anyhow!("{place}: too many possible container starts in the data; some images may be missing"));
        }
        let mut inner = cursor
            .deeper(piece.clone(), place, cursor.facts.clone())
            .inside();
        inner.facts.in_data = true;
        walk.node(NodeKind::Data, &piece, |walk| {
            for one in found {
                let start = offset.map(|offset| offset + one.offset);
                let is_named = |start: u64| named.iter().any(|range| range.contains(&start));
                if !start.is_some_and(is_named) {
                    container_in_data(walk, &inner, &one);
                }
            }
        });
        piece.release();
    }
    Ok(())
}

/// Inspects a container or image at a range of the section at `cursor`.
fn container_in_data(walk: &mut Walk<'_>, cursor: &Cursor, found: &Embedded) {
    let Some(whole) = cursor.piece.slice(found.offset, found.size) else {
        return;
    };
    if let Some(kind) = Kind::of(whole.bytes()) {
        if let Err(error) = containers::inspect_container(walk, cursor, kind, found.offset, whole) {
            walk.note(&error);
        }
    } else {
        walk.enter(&cursor.deeper(whole, cursor.place.clone(), cursor.facts.clone()));
    }
}

/// The ranges of the images in the file, and of the containers around them.
fn named(images: &[Image]) -> Vec<Range<u64>> {
    let range = |offset: u64, size: u64| offset..offset.saturating_add(size);
    let own = |image: &Image| Some(range(image.offset?, image.size));
    let around = |step: &Step| match step {
        Step::Container {
            offset: Some(offset),
            size,
            ..
        }
        | Step::Symbol {
            offset: Some(offset),
            size,
            ..
        } => Some(range(*offset, *size)),
        _ => None,
    };
    let mut ranges: Vec<Range<u64>> = images
        .iter()
        .flat_map(|image| {
            own(image)
                .into_iter()
                .chain(image.path.iter().filter_map(around))
        })
        .collect();
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup();
    ranges
}

/// A section of data.
struct Data {
    name: String,
    offset: u64,
    size: u64,
}

/// The data sections that a program has in memory, without sections of device code.
fn data_sections(cursor: &Cursor) -> Result<Vec<Data>> {
    let data = cursor.piece.bytes();
    let file = object::File::parse(data)?;
    let of_device = device_sections(data, &cursor.place.to_string())?;
    let mut found = Vec::new();
    for section in file.sections() {
        let is_data = matches!(
            section.kind(),
            SectionKind::Data
                | SectionKind::ReadOnlyData
                | SectionKind::ReadOnlyDataWithRel
                | SectionKind::ReadOnlyString
        );
        let Some((offset, size)) = section
            .file_range()
            .filter(|(_, size)| is_data && *size > 0)
        else {
            continue;
        };
        if !of_device.iter().any(|device| device.offset == offset) {
            found.push(Data {
                name: String::from_utf8_lossy(section.name_bytes()?).into_owned(),
                offset,
                size,
            });
        }
    }
    Ok(found)
}
