//! Moves the code objects of HIP out of a finished program: its bundles become a reference to kpack
//! archives, and the structs for HIP's runtime point to the reference. For the loader, the result
//! equals that of AMD's tool (ROCm/rocm-systems, `shared/kpack/python/rocm_kpack/elf/kpack_transform.py`).
//! That tool adds a section and a segment; here, the section of the bundles becomes the section of
//! the reference.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use object::{Object, ObjectSection, SectionFlags, SectionIndex, elf};

use super::pointers::{self, NewSection};
use super::{Changed, Moved};
use crate::contents::report::{FileReport, Image};
use crate::contents::tree::{DeviceSection, Node, NodeKind};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::{Patch, Replacement, Rope, resize, resize_with};
use offload_formats::compose::Part;
use offload_formats::elf::raw::FileHeader;
use offload_formats::kpack::{HIPK, REFERENCE_SECTION, Reference};
use offload_formats::model::{OffloadKind, printable};
use offload_formats::offload_sections::HIP_BUNDLES;
use offload_formats::registration::read::{self, Registered, Wrapper};

/// The offset of the number of the registration in a struct for HIP's runtime.
const NUMBER_AT: u64 = 16;

/// A finished program with bundles of HIP code that its structs point to.
pub(crate) struct HipProgram<'f> {
    path: &'f Path,
    piece: &'f FileSlice,
    section: &'f DeviceSection,
    /// The ranges of the containers in the section.
    containers: Vec<Range<u64>>,
    /// The code objects, in the order of the registrations.
    pub(crate) codes: Vec<CodeObject<'f>>,
}

/// A code object that a program registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeObject<'f> {
    /// The number of the registration.
    pub(crate) number: usize,
    /// The image in the report.
    pub(crate) image: &'f Image,
}

/// The HIP code of the file `piece`, which `report` describes with its registrations; none if it has
/// no bundles of HIP code, or if it is not a finished program.
///
/// # Errors
/// The code cannot be moved, because not all of it is registered code objects of AMD GPUs.
pub(crate) fn find<'f>(
    path: &'f Path,
    piece: &'f FileSlice,
    report: &'f FileReport,
) -> Result<Option<HipProgram<'f>>> {
    if let Some(error) = report.errors.first() {
        bail!("{error}");
    }
    let Some(Node {
        kind: NodeKind::HostFile(_),
        children,
        ..
    }) = &report.tree
    else {
        return Ok(None);
    };
    let bundles = |child: &'f Node| match &child.kind {
        NodeKind::Section(section) if section.name == HIP_BUNDLES => Some((child, &**section)),
        _ => None,
    };
    let Some((node, section)) = children.iter().find_map(bundles) else {
        return Ok(None);
    };
    let Some(registered) = report
        .registered
        .first()
        .filter(|registered| registered.linked)
    else {
        return Ok(None);
    };
    let place = || format!("{}: {}", path.display(), section.name);
    let (class, _) = FileHeader::read(piece.bytes()).with_context(place)?;
    ensure!(
        class.is_64 && piece.bytes().get(5) == Some(&elf::ELFDATA2LSB.0),
        "{}: kpack needs a 64-bit, little-endian program",
        path.display()
    );
    let mut by_start: BTreeMap<u64, &Node> = BTreeMap::new();
    for child in &node.children {
        by_start.insert(section.offset + child.range.start, child);
    }
    let mut codes = Vec::new();
    let mut used = HashSet::new();
    for (number, wrapper) in hip_structs(registered).into_iter().enumerate() {
        let container = wrapper
            .container
            .and_then(|start| Some((start, by_start.get(&start)?)));
        let (start, container) = container.with_context(|| {
            format!(
                "{}: the struct at {:#x} points to no bundle of {}",
                path.display(),
                wrapper.offset,
                section.name
            )
        })?;
        used.insert(start);
        let mut targets = HashSet::new();
        let images = report
            .images
            .get(container.images.clone())
            .unwrap_or_default();
        for image in images.iter().filter(|image| image.is_device()) {
            let is_code_object =
                image.format == "elf" && image.machine.as_deref() == Some("amdgpu");
            ensure!(
                is_code_object && !image.target.is_empty(),
                "{}: image {} ({}, {}) is not a code object of an AMD GPU, as kpack archives need",
                place(),
                image.index,
                image.arch(),
                image.format
            );
            // The target becomes part of file names.
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:+-_".contains(&byte);
            ensure!(
                image.target.starts_with("gfx") && image.target.bytes().all(is_plain),
                "{}: image {}: {} is not a target of an AMD GPU",
                place(),
                image.index,
                printable(&image.target)
            );
            ensure!(
                targets.insert(&image.target),
                "{}: two code objects for {} in the bundle at {start:#x}",
                place(),
                image.target
            );
            codes.push(CodeObject { number, image });
        }
    }
    if let Some((start, _)) = by_start.iter().find(|(start, _)| !used.contains(start)) {
        bail!(
            "{}: no known code registers the bundle at {start:#x}",
            place()
        );
    }
    if codes.is_empty() {
        return Ok(None);
    }
    Ok(Some(HipProgram {
        path,
        piece,
        section,
        containers: node
            .children
            .iter()
            .map(|child| child.range.clone())
            .collect(),
        codes,
    }))
}

/// The structs for HIP's runtime, in the order of the file, which decides their numbers.
fn hip_structs(registered: &Registered) -> Vec<&Wrapper> {
    let is_hip = |wrapper: &&Wrapper| wrapper.runtime == OffloadKind::Hip.name();
    let mut all: Vec<&Wrapper> = registered.wrappers.iter().filter(is_hip).collect();
    all.sort_by_key(|wrapper| wrapper.offset);
    all
}

impl HipProgram<'_> {
    /// The program with `reference` in place of its bundles.
    ///
    /// # Errors
    /// The program has no room for the change; see [`pointers::place`].
    pub(crate) fn with_reference(&self, reference: &Reference, spool: &mut Spool) -> Result<Rope> {
        let place = || self.path.display().to_string();
        let bytes = reference.write();
        let size = bytes.len() as u64;
        let moved = self.containers.iter().map(|old| Moved {
            old: old.clone(),
            new: 0..size,
        });
        let changed = Changed {
            bytes: Rope::from(bytes),
            moved: moved.collect(),
        };
        let mut new = vec![NewSection::of(self.section, changed)];
        let movable = [self.section.index];
        let placed =
            pointers::place(self.piece, &mut new, 0, &movable, spool).with_context(place)?;
        let file = placed.piece.unwrap_or_else(|| self.piece.clone());
        let registered = read::read(file.bytes()).with_context(place)?;
        let mut patches =
            pointers::registration_patches(file.bytes(), &registered, &new, &mut |_| {})
                .with_context(place)?;
        for (number, wrapper) in hip_structs(&registered).into_iter().enumerate() {
            patches.push(Patch {
                offset: wrapper.offset,
                bytes: HIPK.to_le_bytes().to_vec(),
            });
            patches.push(Patch {
                offset: wrapper.offset + NUMBER_AT,
                bytes: (number as u64).to_le_bytes().to_vec(),
            });
        }
        let new = new.into_iter().map(Replacement::from).collect();
        let rope = resize_with(&file, new, patches, &[], &movable).with_context(place)?;
        let piece = rope.into_piece(spool)?;
        renamed(&piece, spool).with_context(place)
    }
}

/// The program `piece` with the name of the reference's section for the section of the bundles.
/// Without names for linkers and debuggers alone, it stays as it is: the loader needs no names.
fn renamed(piece: &FileSlice, spool: &mut Spool) -> Result<Rope> {
    let (class, header) = FileHeader::read(piece.bytes())?;
    let names = SectionIndex(header.shstrndx.0.into());
    let file = object::File::parse(piece.bytes())?;
    let is_loaded = |section: &object::Section<'_, '_>| matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(elf::SHF_ALLOC));
    let (Ok(table), Some(section)) = (
        file.section_by_index(names),
        file.section_by_name(HIP_BUNDLES),
    ) else {
        return Ok(piece.clone().into());
    };
    if is_loaded(&table) {
        return Ok(piece.clone().into());
    }
    let mut contents = table.data()?.to_vec();
    let name = u32::try_from(contents.len())?;
    contents.extend(REFERENCE_SECTION.as_bytes());
    contents.push(0);
    let replacement = Replacement {
        section: names.0,
        contents: Rope::from(contents),
    };
    // Sections that are not loaded stay in their order.
    let index = section.index().0;
    let piece = resize(piece, vec![replacement], Vec::new())?.into_piece(spool)?;
    let (_, header) = FileHeader::read(piece.bytes())?;
    // The name is the first field.
    let at = header.section_header_at(class, index);
    let parts = vec![
        Part::Old(0..at),
        Part::Bytes(name.to_le_bytes().to_vec()),
        Part::Old(at + 4..piece.size()),
    ];
    Ok(Rope::of_parts(&piece, parts, [])?)
}
