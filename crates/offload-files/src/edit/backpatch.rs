//! Changes finished programs, whose host link ran in parallel with their device links: replaces
//! placeholders by device images, and puts in stable names.
//!
//! Each image has a placeholder of 48 bytes that occurs nowhere else. The sections with
//! placeholders move to the end of the program and grow, and all pointers to them are updated. The
//! rest of the program stays the same, except for its build id.

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use memchr::memmem;
use object::{File, Object, ObjectSection, SectionFlags, elf};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::Xxh3;

use super::files::build_id_place;
use super::objects::targets;
use super::pointers::{self, NewSection};
use super::{Changed, Moved};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::{Patch, Replacement, Rope, resize_with};
use offld_system::threads;
use offload_formats::elf::rename::in_place;
use offload_formats::registration::read;
use offload_formats::stable_names::StableNames;

/// The size of a placeholder in bytes.
const PLACEHOLDER: u64 = 48;

/// A placeholder of an image. Its second third marks the range that registration passes to the
/// runtime.
pub(crate) type Placeholder = [u8; PLACEHOLDER as usize];

/// The part of a placeholder that marks the registered range.
pub const REGISTERED: Range<u64> = 16..32;

/// The placeholder of the image whose start has this symbol in the program's registration code.
pub fn placeholder(symbol: &str) -> Placeholder {
    let mut bytes = [0; PLACEHOLDER as usize];
    for (number, part) in (0u8..).zip(bytes.chunks_exact_mut(16)) {
        let mut hash = Xxh3::new();
        hash.update(b"placeholder of a device image");
        hash.update(&[number]);
        hash.update(symbol.as_bytes());
        part.copy_from_slice(&hash.digest128().to_le_bytes());
    }
    bytes
}

/// An image, with its placeholder.
#[derive(Debug, Clone)]
pub struct Filling {
    /// The bytes that the image replaces.
    pub placeholder: Placeholder,
    /// The new bytes: an image in its container.
    pub contents: Rope,
    /// The range of `contents` that registration passes to the runtime.
    pub registered: Range<u64>,
    /// The alignment of the contents, in bytes.
    pub align: u64,
}

/// The program `file` with images in place of their placeholders. With `new_build_id` it gets a new
/// build id, a digest of the old one and the images.
///
/// # Errors
/// The program is damaged or of an unsupported type; a placeholder is missing or not registered; an
/// image cannot be read.
pub fn fill(
    file: &FileSlice,
    fillings: &[Filling],
    new_build_id: bool,
    spool: &mut Spool,
) -> Result<Rope> {
    let (mut new, places) = sections(file, fillings)?;
    // Every pointer to a placeholder is known, because only offld's registration code refers to it.
    let movable: Vec<usize> = new.iter().map(|section| section.index).collect();
    let placed = pointers::place(file, &mut new, 0, &movable, spool)?;
    let file = placed.piece.as_ref().unwrap_or(file);
    let registered = read::read(file.bytes())?;
    let mut emptied = Vec::new();
    let mut patches =
        pointers::registration_patches(file.bytes(), &registered, &new, &mut |what| {
            emptied.push(what)
        })?;
    if let Some(what) = emptied.first() {
        bail!("{what} would lose its images");
    }
    // Find all other pointers to placeholders, in any data structure.
    let ranges: Vec<Range<u64>> = places
        .iter()
        .map(|start| start + REGISTERED.start..start + REGISTERED.end + 1)
        .collect();
    let pointers = read::pointers_to(file.bytes(), &ranges)?;
    if let Some(range) = ranges
        .iter()
        .find(|range| !pointers.iter().any(|(_, target)| *target == range.start))
    {
        bail!(
            "no pointer leads to an image's placeholder, at address {:#x}",
            range.start
        );
    }
    let is_end = |target: u64| places.iter().any(|start| target == start + REGISTERED.end);
    let mut more = pointers::pointer_patches(file.bytes(), &pointers, &new, &is_end)?;
    more.retain(|patch| !patches.iter().any(|known| known.offset == patch.offset));
    patches.append(&mut more);
    if new_build_id {
        patches.extend(build_id_of(file, fillings)?);
    }
    Ok(resize_with(
        file,
        new.into_iter().map(Replacement::from).collect(),
        patches,
        &[],
        &movable,
    )?)
}

/// The sections with placeholders, rebuilt with the images, and the addresses of the placeholders.
fn sections(file: &FileSlice, fillings: &[Filling]) -> Result<(Vec<NewSection>, Vec<u64>)> {
    let parsed = File::parse(file.bytes())?;
    let mut found = vec![false; fillings.len()];
    let (mut new, mut addresses) = (Vec::new(), Vec::new());
    for section in parsed.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            continue;
        };
        let Some((offset, size)) = section.file_range().filter(|_| holds_images(sh_flags)) else {
            continue;
        };
        let piece = file
            .slice(offset, size)
            .context("a section past the end of the file")?;
        let places = places(piece.bytes(), fillings);
        piece.release();
        if places.is_empty() {
            continue;
        }
        for (_, filling) in &places {
            if let Some(found) = found.get_mut(*filling)
                && std::mem::replace(found, true)
            {
                bail!(
                    "section {}: second copy of an image's placeholder",
                    section.name().unwrap_or_default()
                );
            }
        }
        addresses.extend(
            places
                .iter()
                .map(|(at, _)| section.address().saturating_add(*at)),
        );
        let (changed, others) = with_images(&piece, &places, fillings, section.align());
        let others: Vec<Range<u64>> = others
            .iter()
            .map(|other| offset + other.start..offset + other.end)
            .collect();
        check_others(file, &others)
            .with_context(|| section.name().unwrap_or_default().to_owned())?;
        new.push(NewSection {
            index: section.index().0,
            offset,
            size,
            address: 0,
            changed,
        });
    }
    if found.contains(&false) {
        bail!("the host linker has removed an image's placeholder");
    }
    Ok((new, addresses))
}

/// Checks that the other data of a section, at these offsets of the file, may move with the images:
/// a known pointer leads to it.
fn check_others(file: &FileSlice, others: &[Range<u64>]) -> Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    let targets = targets(&read::read(file.bytes())?);
    match others
        .iter()
        .find(|other| !targets.iter().any(|target| other.contains(target)))
    {
        Some(other) => bail!(
            "no known pointer leads to the data at {:#x}, next to images",
            other.start
        ),
        None => Ok(()),
    }
}

/// Whether a section with these flags may contain images: it is loaded, not code and not writable.
fn holds_images(flags: elf::SectionFlags) -> bool {
    flags.contains(elf::SHF_ALLOC)
        && !flags.contains(elf::SHF_WRITE)
        && !flags.contains(elf::SHF_EXECINSTR)
}

/// The offsets of placeholders in `data`, each with its index in `fillings`, in ascending order.
fn places(data: &[u8], fillings: &[Filling]) -> Vec<(u64, usize)> {
    let each = fillings.iter().enumerate();
    let offsets = |(index, filling): (usize, &Filling)| {
        memmem::find_iter(data, &filling.placeholder)
            .map(move |at| (at as u64, index))
            .collect::<Vec<_>>()
    };
    let mut places: Vec<(u64, usize)> = each.flat_map(offsets).collect();
    places.sort_unstable();
    places
}

/// The section `piece`, which is aligned to `align`, with images at `places`; and the ranges of its
/// other data. That data keeps its offset modulo the alignment.
fn with_images(
    piece: &FileSlice,
    places: &[(u64, usize)],
    fillings: &[Filling],
    align: u64,
) -> (Changed, Vec<Range<u64>>) {
    let (mut bytes, mut moved, mut others, mut at) = (Rope::default(), Vec::new(), Vec::new(), 0);
    let align = align.max(1);
    let mut keep = |old: Range<u64>, bytes: &mut Rope, moved: &mut Vec<Moved>| {
        let rest = piece.slice(old.start, old.end.saturating_sub(old.start));
        // Zeros only pad the following data to its alignment.
        let Some(rest) = rest.filter(|rest| rest.bytes().iter().any(|byte| *byte != 0)) else {
            return;
        };
        let start = bytes.size() + (old.start.wrapping_sub(bytes.size()) % align);
        bytes.pad_to(start);
        bytes.push_piece(rest);
        others.push(old.clone());
        moved.push(Moved {
            new: start..bytes.size(),
            old,
        });
    };
    for (place, filling) in places {
        let Some(filling) = fillings.get(*filling) else {
            continue;
        };
        keep(at..*place, &mut bytes, &mut moved);
        let start = bytes.size().next_multiple_of(filling.align.max(1));
        bytes.pad_to(start);
        bytes.append(filling.contents.clone());
        at = place + PLACEHOLDER;
        let shifted = |range: &Range<u64>, from: u64| from + range.start..from + range.end;
        moved.push(Moved {
            old: shifted(&REGISTERED, *place),
            new: shifted(&filling.registered, start),
        });
        moved.push(Moved {
            old: *place..at,
            new: start..bytes.size(),
        });
    }
    keep(at..piece.size(), &mut bytes, &mut moved);
    (Changed { bytes, moved }, others)
}

/// The patch of the build id, a digest of the old one and the images.
fn build_id_of(file: &FileSlice, fillings: &[Filling]) -> Result<Option<Patch>> {
    let Some((offset, len)) = build_id_place(file.bytes()) else {
        return Ok(None);
    };
    let digest = |filling: &Filling| -> Result<u128> {
        let mut hash = Xxh3::new();
        filling.contents.for_each_chunk(|chunk| {
            hash.update(chunk);
            Ok(())
        })?;
        Ok(hash.digest128())
    };
    let indexed = |index: usize| (index, fillings.get(index).map(digest));
    let mut digests = threads::run_indexed(fillings.len(), threads::count(), indexed);
    digests.sort_by_key(|(index, _)| *index);
    let mut hash = Sha256::new();
    hash.update(
        file.slice(offset, len as u64)
            .context("a build id past the end")?
            .bytes(),
    );
    for digest in digests.into_iter().filter_map(|(_, digest)| digest) {
        hash.update(digest.context("cannot read a linked image")?.to_le_bytes());
    }
    let bytes = hash.finalize().iter().cycle().take(len).copied().collect();
    Ok(Some(Patch { offset, bytes }))
}

/// Puts the stable `names`, which its device images have already, into the ELF file at `path`, in
/// place. With `new_build_id`, a build id in it becomes a digest of its contents.
///
/// # Errors
/// The file is damaged, or cannot be written.
pub fn rename(path: &Path, names: &StableNames, new_build_id: bool) -> Result<()> {
    let file = FileSlice::try_open(path)?;
    let mut patches = in_place(file.bytes(), names)?;
    if new_build_id {
        patches.extend(stable_build_id(file.bytes(), &patches)?);
    }
    drop(file);
    let out = OpenOptions::new().write(true).open(path)?;
    for patch in &patches {
        out.write_all_at(&patch.bytes, patch.offset)?;
    }
    Ok(())
}

/// The new build id of the file `bytes` with `patches`, if it has one.
fn stable_build_id(bytes: &[u8], patches: &[Patch]) -> Result<Option<Patch>> {
    let Some((offset, len)) = build_id_place(bytes) else {
        return Ok(None);
    };
    // The digest is of the file without its build id.
    let mut changes: Vec<(u64, usize, &[u8])> = vec![(offset, len, &[])];
    changes.extend(
        patches
            .iter()
            .map(|patch| (patch.offset, patch.bytes.len(), &patch.bytes[..])),
    );
    changes.sort_by_key(|(offset, ..)| *offset);
    let (mut hash, mut done) = (Xxh3::new(), 0);
    for (offset, len, new) in changes {
        let start = usize::try_from(offset)?;
        hash.update(bytes.get(done..start).context("overlapping changes")?);
        hash.update(new);
        done = start + len;
    }
    hash.update(bytes.get(done..).context("a build id past the end")?);
    let digest = Sha256::digest(hash.digest128().to_le_bytes());
    Ok(Some(Patch {
        offset,
        bytes: digest.iter().cycle().take(len).copied().collect(),
    }))
}
