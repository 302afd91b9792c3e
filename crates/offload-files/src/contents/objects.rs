//! Inspection of objects and programs: sections with device code, and variables with device code.
//! Old wrappers and the SYCL wrappers put images into variables of other sections. Device code in
//! plain data, which nothing names, is searched for as well.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result, anyhow};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind};

use super::containers::{self, with_id};
use super::image;
use super::layout::{Part, SHARING};
use super::report::{Image, Step};
use super::tree::{DeviceSection, Holds, ImageMetadata, NodeKind, SectionForm};
use super::walk::{Cursor, Walk};
use offld_system::io::file_slice::FileSlice;
use offload_formats::containers::Kind;
use offload_formats::elf::SHT_LLVM_OFFLOADING;
use offload_formats::embedded::{self, Embedded};
use offload_formats::gpu::AmdArch;
use offload_formats::model::OffloadKind;
use offload_formats::offload_sections::{
    self, NAME, RELOCATABLE, SectionContents, is_longer, named,
};
use offload_formats::registration::openmp;
use offload_formats::registration::read::{self, ImageRow, Registered};
use offload_formats::{bitcode, bundle};

/// The start of the names of variables with images.
const SYCL_VARIABLE: &str = ".sycl_offloading.";
const LONGEST_TRIPLE: u64 = 4096;

/// Whether `data` is an object whose sections can be read.
pub(super) fn is_readable(data: &[u8]) -> bool {
    object::File::parse(data).is_ok()
}

/// Inspects every section of device code of the object at `cursor`.
pub(super) fn sections(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    for section in device_sections_of(cursor)? {
        let name = || format!("{}: {}", cursor.place, section.name);
        let piece = cursor.piece.slice(section.offset, section.size);
        let piece = piece.ok_or_else(|| {
            anyhow!(
                "{}: past the end of the file, at offset {:#x}",
                name(),
                section.offset
            )
        })?;
        let step = Step::Section {
            name: section.name.clone(),
            offset: piece.file_offset(0),
            size: section.size,
        };
        let mut inner = cursor
            .deeper(piece, cursor.place.then(step), cursor.facts.clone())
            .inside();
        if inner.piece.size() == 0 {
            continue;
        }
        match &section.holds {
            Holds::Entry(id) => inner.facts = with_id(&inner.facts, id),
            Holds::Image(facts) => inner.facts = facts.clone(),
            Holds::Containers(kind) | Holds::Images(kind) => {
                inner.facts.kinds = kind.iter().map(|kind| (*kind).to_owned()).collect();
            }
        }
        let (name, form) = (section.name.clone(), section.form(inner.piece.bytes()));
        let range = section.offset..section.offset.saturating_add(section.size);
        let node = NodeKind::Section(Box::new(section));
        let done = walk.node(node, &inner.piece, |walk| match form {
            SectionForm::OneImage => {
                walk.enter(&inner);
                Ok(())
            }
            SectionForm::BareImages => bare_images(walk, cursor, &name, &range, &inner),
            SectionForm::Containers => super::containers::sequence(walk, &inner),
        });
        if let Err(error) = done {
            walk.note(&error);
        }
    }
    Ok(())
}

/// The sections of device code of the object `data`, in the order of its section table. `place` is
/// the location for messages.
pub(crate) fn device_sections(data: &[u8], place: &str) -> Result<Vec<DeviceSection>> {
    find_device_sections(data, &place, &ImageMetadata::default())
}

fn device_sections_of(cursor: &Cursor) -> Result<Vec<DeviceSection>> {
    find_device_sections(cursor.piece.bytes(), &cursor.place, &cursor.facts)
}

fn find_device_sections(
    data: &[u8],
    place: &dyn std::fmt::Display,
    facts: &ImageMetadata,
) -> Result<Vec<DeviceSection>> {
    let describe =
        |error: object::Error| anyhow!("{place}: {error} (size: {:#x} bytes)", data.len());
    let file = object::File::parse(data).map_err(describe)?;
    let short = matches!(file.format(), object::BinaryFormat::Pe);
    let mut found = Vec::new();
    let mut left = SHARING.saturating_mul(data.len() as u64);
    for section in file.sections() {
        let Some((offset, size)) = section.file_range() else {
            continue;
        };
        // Tables of sections and symbols, whatever their names are.
        if section.kind() == SectionKind::Metadata {
            continue;
        }
        let name = section.name_bytes().map_err(describe)?;
        let shared = || anyhow!("{place}: section names overlap");
        left = left.checked_sub(name.len() as u64).ok_or_else(shared)?;
        let name = String::from_utf8_lossy(name).into_owned();
        let (typed, elf, linked) = match section.flags() {
            SectionFlags::Elf { sh_type, sh_flags } => (
                sh_type == SHT_LLVM_OFFLOADING,
                true,
                sh_flags.contains(object::elf::SHF_ALLOC),
            ),
            SectionFlags::Coff { characteristics } if !short => (
                false,
                false,
                name != NAME && !characteristics.contains(object::pe::IMAGE_SCN_LNK_REMOVE),
            ),
            _ => (false, false, short),
        };
        if let Some(holds) = holds(&name, short, typed, elf && !linked, facts) {
            let (index, align) = (section.index().0, section.align());
            found.push(DeviceSection {
                index,
                name,
                offset,
                size,
                align,
                is_allocated: linked,
                holds,
            });
        }
    }
    Ok(found)
}

/// The contents of a section with this name, if it is a section of device code. `short`: the file
/// format truncates names. `typed`: the section has the type for offload images, whatever its name.
/// `object`: it is an ELF section that linking removes.
fn holds(
    name: &str,
    short: bool,
    typed: bool,
    object: bool,
    facts: &ImageMetadata,
) -> Option<Holds> {
    if let Some(id) = bundle_entry(name) {
        return Some(Holds::Entry(id.to_owned()));
    }
    if !typed && is_longer(name) && name != RELOCATABLE {
        let facts = with_section_name(name, facts);
        return (!facts.triple.is_empty()).then_some(Holds::Image(facts));
    }
    // The name counts as well, because tools that copy objects can lose the type.
    if typed || name == NAME || name == RELOCATABLE {
        return Some(if object {
            Holds::Containers(None)
        } else {
            Holds::Images(None)
        });
    }
    let known = offload_sections::known(name.as_bytes(), short)?;
    let kind = known.kind.map(OffloadKind::name);
    match known.contents {
        SectionContents::Images if kind.is_none() && object => None,
        SectionContents::Images => Some(Holds::Images(kind)),
        SectionContents::Containers => Some(Holds::Containers(kind)),
        SectionContents::Wrappers | SectionContents::Entries => None,
    }
}

fn bundle_entry(name: &str) -> Option<&str> {
    name.strip_prefix(std::str::from_utf8(bundle::MAGIC).ok()?)
        .filter(|id| !id.is_empty())
}

/// Returns `facts` with the triple and target in the section's name, if it is one of LLVM 14's
/// names. Otherwise returns `facts` unchanged.
pub(super) fn with_section_name(name: &str, facts: &ImageMetadata) -> ImageMetadata {
    let mut facts = facts.clone();
    if let Some((triple, arch)) = named(name) {
        facts.triple = triple.to_owned();
        facts.target = arch.to_owned();
        facts.kinds = vec!["openmp".to_owned()];
    }
    facts
}

/// Inspects the images in a section without containers. Each image variable in it is an image. In a
/// program without symbols, each image that an OpenMP descriptor points to in the section is one.
/// Otherwise the whole section is one image.
fn bare_images(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    section: &str,
    range: &Range<u64>,
    whole: &Cursor,
) -> Result<()> {
    let before = walk.images.len();
    variables(walk, cursor, Some(section))?;
    if walk.images.len() > before {
        return Ok(());
    }
    let registered = read::read(cursor.piece.bytes()).with_context(|| cursor.place.to_string())?;
    let rows = registered
        .descriptors
        .iter()
        .flat_map(|descriptor| &descriptor.images);
    let within = |row: &ImageRow| range.start <= row.start && row.end <= range.end;
    let mut ranges: Vec<(u64, u64)> = rows
        .filter(|row| within(row))
        .map(|row| (row.start, row.end))
        .collect();
    ranges.sort_unstable();
    ranges.dedup();
    if ranges.is_empty() {
        return image::add_leaf(walk, whole);
    }
    for (start, end) in ranges {
        let Some(piece) = cursor.piece.slice(start, end - start) else {
            continue;
        };
        let within = cursor.place.then(Step::Section {
            name: section.to_owned(),
            offset: None,
            size: 0,
        });
        let step = Step::Symbol {
            name: openmp::IMAGE.to_owned(),
            offset: piece.file_offset(0),
            size: end - start,
        };
        let facts = ImageMetadata {
            kinds: vec!["openmp".to_owned()],
            ..cursor.facts.clone()
        };
        walk.enter(&cursor.deeper(piece, within.then(step), facts).inside());
    }
    Ok(())
}

/// A variable that is an image.
struct Variable {
    name: String,
    section: String,
    offset: u64,
    size: u64,
    facts: ImageMetadata,
}

/// Inspects the images in variables of the program at `cursor`. With `section`, these are the
/// variables in that section. Otherwise they are the variables in sections that are not for device
/// code, such as the constants, where LLVM 14's wrapper puts images.
pub(super) fn variables(walk: &mut Walk<'_>, cursor: &Cursor, section: Option<&str>) -> Result<()> {
    let found = image_variables(cursor, section).with_context(|| cursor.place.to_string())?;
    for variable in found {
        let Some(piece) = cursor.piece.slice(variable.offset, variable.size) else {
            continue;
        };
        let (offset, size) = (piece.file_offset(0), variable.size);
        let within = cursor.place.then(Step::Section {
            name: variable.section,
            offset: None,
            size: 0,
        });
        let place = within.then(Step::Symbol {
            name: variable.name,
            offset,
            size,
        });
        walk.enter(&cursor.deeper(piece, place, variable.facts).inside());
    }
    Ok(())
}

fn image_variables(cursor: &Cursor, wanted: Option<&str>) -> Result<Vec<Variable>> {
    let file = object::File::parse(cursor.piece.bytes())?;
    let mut found = Vec::new();
    let inspected = device_sections_of(cursor)?;
    let symbols = image_symbols(cursor, &file)?;
    let triples = sycl_triples(&file, &symbols);
    for (symbol, name) in symbols {
        let Some(index) = symbol.section_index() else {
            continue;
        };
        let kind = match name.strip_prefix(SYCL_VARIABLE) {
            Some(rest) if is_sycl_image(rest) => "sycl",
            _ if name.starts_with(openmp::IMAGE) && !name.starts_with(openmp::IMAGES) => "openmp",
            _ => continue,
        };
        let section = file.section_by_index(index)?;
        let Some((start, size)) = section.file_range() else {
            continue;
        };
        let section_name = section.name()?;
        let elsewhere = match wanted {
            Some(wanted) => wanted != section_name,
            // Sections of device code have been inspected already.
            None => inspected.iter().any(|section| section.offset == start),
        };
        if elsewhere {
            continue;
        }
        let Some(within) = symbol
            .address()
            .checked_sub(section.address())
            .filter(|within| *within <= size)
        else {
            continue;
        };
        if symbol.size() == 0 {
            continue;
        }
        let triple = sycl_index(name)
            .and_then(|index| triples.get(index))
            .cloned()
            .unwrap_or_default();
        let facts = ImageMetadata {
            kinds: vec![kind.to_owned()],
            triple,
            ..cursor.facts.clone()
        };
        let (name, section) = (name.to_owned(), section_name.to_owned());
        found.push(Variable {
            name,
            section,
            offset: start.saturating_add(within),
            size: symbol.size(),
            facts,
        });
    }
    found.sort_by_key(|variable| variable.offset);
    Ok(found)
}

/// Inspects the images that OpenMP descriptors point to and that have neither a section for images
/// nor a symbol: images of stripped programs that `clang-offload-wrapper` of LLVM 15 or earlier
/// wrapped. `before` is the number of images before this file's.
pub(super) fn descriptor_images(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    registered: &Registered,
    before: usize,
) {
    for row in registered
        .descriptors
        .iter()
        .flat_map(|descriptor| &descriptor.images)
    {
        let (offset, size) = (cursor.piece.file_offset(row.start), row.end - row.start);
        // The row may cover the OffloadBinary that contains the image. Decompressed images have no
        // offset.
        let is_same = |image: &Image| match (offset, image.offset) {
            (Some(start), Some(at)) => at >= start && at - start < size,
            _ => image.size <= size,
        };
        let is_known = walk
            .images
            .get(before..)
            .unwrap_or_default()
            .iter()
            .any(is_same);
        let Some(piece) = cursor.piece.slice(row.start, size).filter(|_| !is_known) else {
            continue;
        };
        let place = cursor.place.then(Step::Symbol {
            name: openmp::IMAGE.to_owned(),
            offset,
            size,
        });
        let facts = ImageMetadata {
            kinds: vec!["openmp".to_owned()],
            ..cursor.facts.clone()
        };
        walk.enter(&cursor.deeper(piece, place, facts).inside());
    }
}

/// Whether the name is `0.data`, or `data.<hash>.0` for large images.
fn is_sycl_image(rest: &str) -> bool {
    rest.starts_with("data.")
        || rest
            .strip_suffix(".data")
            .is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The part of a variable's name that identifies a SYCL image of a program.
fn sycl_index(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(SYCL_VARIABLE)?;
    rest.strip_suffix(".data").or(rest
        .strip_prefix("data.")
        .and_then(|rest| rest.rsplit('.').next()))
}

/// The symbols with the names of images or of their parts, such as triples.
fn image_symbols<'f>(
    cursor: &Cursor,
    file: &'f object::File<'f>,
) -> Result<Vec<(object::Symbol<'f, 'f>, &'f str)>> {
    let mut found = Vec::new();
    let mut left = SHARING.saturating_mul(cursor.piece.size());
    for symbol in file.symbols() {
        let Ok(name) = symbol.name_bytes() else {
            continue;
        };
        left = left
            .checked_sub(name.len() as u64)
            .ok_or_else(|| anyhow!("symbol names overlap"))?;
        if let Some(name) = std::str::from_utf8(name)
            .ok()
            .filter(|name| name.starts_with(SYCL_VARIABLE) || name.starts_with(openmp::IMAGE))
        {
            found.push((symbol, name));
        }
    }
    Ok(found)
}

/// The triples of a program's SYCL images, by the part of the name that identifies the image. Each
/// triple is in a variable of its own.
fn sycl_triples(
    file: &object::File<'_>,
    symbols: &[(object::Symbol<'_, '_>, &str)],
) -> HashMap<String, String> {
    let mut triples = HashMap::new();
    for (symbol, name) in symbols {
        let index = name
            .strip_prefix(SYCL_VARIABLE)
            .and_then(|rest| rest.strip_prefix("target."));
        let section = symbol
            .section_index()
            .and_then(|section| file.section_by_index(section).ok());
        if let (Some(index), Some(section)) = (index, section)
            && let Ok(Some(text)) =
                section.data_range(symbol.address(), symbol.size().min(LONGEST_TRIPLE))
        {
            triples.insert(
                index.to_owned(),
                String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).into_owned(),
            );
        }
    }
    triples
}

/// Inspects the images that the module at `cursor` embeds. A module without images is an image
/// itself if it is for a device.
pub(super) fn host_bitcode(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    walk.bytes(cursor, Part::Bitcode);
    let embedded =
        bitcode::embedded_images(cursor.piece.bytes()).with_context(|| cursor.place.to_string())?;
    if embedded.is_empty() {
        return device_bitcode(walk, cursor);
    }
    walk.node(NodeKind::HostBitcode, &cursor.piece, |walk| {
        for image in embedded {
            let size = image.bytes.len() as u64;
            let piece = FileSlice::made(|out| Ok(out.write_all(&image.bytes)?))?;
            let place = cursor.place.then(Step::Section {
                name: image.section.to_string(),
                offset: None,
                size,
            });
            let facts = with_section_name(&image.section, &cursor.facts);
            walk.enter(&cursor.deeper(piece, place, facts).inside());
        }
        Ok(())
    })
}

fn device_bitcode(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let triple = bitcode::symbols(cursor.piece.bytes())
        .with_context(|| cursor.place.to_string())?
        .triple;
    let arch = triple.split('-').next().unwrap_or_default();
    if AmdArch::parse(arch).is_some()
        || ["r600", "nvptx", "nvptx64", "spir", "spir64"].contains(&arch)
        || arch.starts_with("spirv")
    {
        let facts = ImageMetadata {
            triple,
            ..cursor.facts.clone()
        };
        image::add_leaf(
            walk,
            &Cursor {
                facts,
                ..cursor.clone()
            },
        )?;
    }
    Ok(())
}

// Search for device code in plain data of objects and programs: containers and code objects that
// no section, symbol or registration names. The program loads them by itself, or passes them to a
// compiler. Only their headers identify them ([`offload_formats::embedded`]).

/// Inspects the data sections of the object or program at `cursor`. Skips the images from index
/// `before` on, because they were found by name.
pub(super) fn in_plain_data(walk: &mut Walk<'_>, cursor: &Cursor, before: usize) -> Result<()> {
    let named = named_ranges(walk.images.get(before..).unwrap_or_default());
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
fn named_ranges(images: &[Image]) -> Vec<Range<u64>> {
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
