//! Edits of containers: keeps, replaces or adds entries, and returns the new container as a list of
//! parts.
//!
//! Most parts are ranges of the old container, so that large images are neither read nor copied.
//! The module of each container has a `compose` function, which takes [`Item`]s and returns
//! [`Part`]s.
//!
//! ```
//! use offload_formats::bundle::{self, Source, write};
//! use offload_formats::compose::{Item, join};
//!
//! let object = |id, bytes| Source { id, size: 4, bytes };
//! let mut old = Vec::new();
//! write(vec![object("hip-amdgcn-amd-amdhsa--gfx908", &b"one."[..]), object("hip-amdgcn-amd-amdhsa--gfx90a", b"two.")], 64, &mut old)?;
//!
//! // The first code object goes, the second one gets other bytes.
//! let parts = bundle::compose(&old, &[Item::Changed { entry: 1, size: 5 }])?;
//! let new = join(&old, &parts, &[b"other"])?;
//! let [bundle] = &bundle::read_all(&new)?[..] else { return Err("one bundle".into()) };
//! assert_eq!((bundle.entries[0].id, bundle.entries[0].object), ("hip-amdgcn-amd-amdhsa--gfx90a", &b"other"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;

use crate::bytes::slice;
use crate::error::Malformed;
use crate::gpu::{AmdArch, TargetId};

/// A part of a file or container that is assembled when it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// This range of the old bytes.
    Old(Range<u64>),
    /// New contents, with their index in the list that the caller passed (of items or of sizes).
    New(usize),
    /// Other bytes.
    Bytes(Vec<u8>),
    /// This many zeros.
    Zeros(u64),
}

/// An entry of the new container. Entries are written in the order of the list, and unlisted
/// entries are removed.
///
/// `N` describes an entry that the old container does not have, `S` the replaced contents, usually
/// by their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<N, S = u64> {
    /// The entry with this index in the old container, unchanged.
    Old(usize),
    /// The same entry with other contents.
    Changed {
        /// The entry's index in the old container.
        entry: usize,
        /// The size of the new contents in bytes.
        size: S,
    },
    /// An entry that the old container does not have.
    New(N),
}

impl Part {
    /// Number of bytes. `new` returns the size of the new contents with this index.
    pub fn size(&self, new: impl FnOnce(usize) -> u64) -> u64 {
        match self {
            Part::Old(range) => range.end.saturating_sub(range.start),
            Part::New(index) => new(*index),
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Zeros(count) => *count,
        }
    }
}

impl<N, S> Item<N, S> {
    /// The entry's index in the old container, or `None` for a new entry.
    pub fn old(&self) -> Option<usize> {
        match self {
            Item::Old(entry) | Item::Changed { entry, .. } => Some(*entry),
            Item::New(_) => None,
        }
    }
}

/// Whether `items` are all `count` entries of the old container in their order, so that nothing
/// changes.
pub(super) fn is_same<N, S>(items: &[Item<N, S>], count: usize) -> bool {
    items.len() == count
        && items
            .iter()
            .enumerate()
            .all(|(place, item)| matches!(item, Item::Old(entry) if *entry == place))
}

/// Checks that the unchanged entries are together no larger than the old container of `available`
/// bytes. In a damaged container, many entries may overlap, and each would be written in full. The
/// fault has the offset `at`.
pub(super) fn check_kept(
    sizes: impl Iterator<Item = u64>,
    available: u64,
    at: u64,
) -> Result<(), Malformed> {
    let kept = sizes.fold(0u64, u64::saturating_add);
    if kept > available {
        Err(Malformed::new("the entries of the container overlap", at))
    } else {
        Ok(())
    }
}

/// Assembles the parts in memory, for small containers. `new` has the contents for each
/// `Part::New`, in the order of `parts`.
///
/// # Errors
/// A part is outside of `data`, or `new` has too few elements.
pub fn join(data: &[u8], parts: &[Part], new: &[&[u8]]) -> Result<Vec<u8>, Malformed> {
    let of_new = |index: usize| new.get(index).map_or(0, |bytes| bytes.len() as u64);
    let size = parts
        .iter()
        .map(|part| part.size(of_new))
        .fold(0, u64::saturating_add);
    // The capacity is limited, because the parts of a damaged file can have any size.
    let mut all = Vec::with_capacity(data.len().saturating_mul(2).min(size as usize));
    let mut new = new.iter();
    for part in parts {
        match part {
            Part::Old(range) => {
                let size = range.end.saturating_sub(range.start);
                all.extend(slice(
                    data,
                    range.start,
                    size,
                    "a range past the end",
                    range.start,
                )?);
            }
            Part::New(_) => all.extend(
                *new.next()
                    .ok_or(Malformed::new("new contents are missing", 0))?,
            ),
            Part::Bytes(bytes) => all.extend(bytes),
            Part::Zeros(count) => all.resize(
                all.len()
                    .saturating_add(usize::try_from(*count).unwrap_or(usize::MAX)),
                0,
            ),
        }
    }
    Ok(all)
}

/// Parts in the order of the new file, and their size so far.
#[derive(Default)]
pub(super) struct PartList {
    pub(super) parts: Vec<Part>,
    pub(super) size: u64,
}

impl PartList {
    pub(super) fn old(&mut self, range: Range<u64>) {
        self.size += range.end.saturating_sub(range.start);
        push_old(&mut self.parts, range);
    }

    /// Adds the `size` bytes of the new contents with this index.
    pub(super) fn contents(&mut self, index: usize, size: u64) {
        self.size += size;
        self.parts.push(Part::New(index));
    }

    pub(super) fn bytes(&mut self, bytes: Vec<u8>) {
        self.size += bytes.len() as u64;
        self.parts.push(Part::Bytes(bytes));
    }

    /// Adds zeros up to the offset `at`.
    pub(super) fn pad_to(&mut self, at: u64) {
        push_zeros(&mut self.parts, at.saturating_sub(self.size));
        self.size = self.size.max(at);
    }
}

/// Adds zeros to `parts` if `count` is not 0.
pub(super) fn push_zeros(parts: &mut Vec<Part>, count: u64) {
    if count > 0 {
        parts.push(Part::Zeros(count));
    }
}

/// Adds a range of the old bytes to `parts`, merged with the preceding range if they touch.
pub(super) fn push_old(parts: &mut Vec<Part>, range: Range<u64>) {
    match parts.last_mut() {
        _ if range.start >= range.end => {}
        Some(Part::Old(last)) if last.end == range.start => last.end = range.end,
        _ => parts.push(Part::Old(range)),
    }
}

// The order of images that puts similar ones next to each other. A compressor stores shared content
// once, but only within its window.

/// The properties that decide whether images are similar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Likeness<'a> {
    /// The triple.
    pub triple: &'a str,
    /// The processor or target ID. Empty if there is none.
    pub target: &'a str,
    /// The kernel names, in any order.
    pub kernels: &'a [&'a str],
}

/// Returns the indices of `images`, grouped by triple and processor family, and within a family by
/// kernel names. Families, and the images of a family, stay in the order of their first occurrence.
///
/// A runtime takes the first image that fits, so images that the same device might accept keep
/// their order. They are in one family, and kernels only matter if each image of the family is for
/// a different processor.
///
/// ```
/// use offload_formats::compose::{Likeness, by_likeness};
///
/// let image = |target| Likeness { triple: "amdgcn-amd-amdhsa", target, kernels: &["k"] };
/// assert_eq!(by_likeness(&["gfx906", "gfx1100", "gfx90a", "gfx1030", "gfx1101"].map(image)), [0, 2, 1, 4, 3]);
/// ```
pub fn by_likeness(images: &[Likeness<'_>]) -> Vec<usize> {
    let mut families: Vec<(String, Vec<usize>)> = Vec::new();
    for (place, image) in images.iter().enumerate() {
        let family = family(image);
        match families.iter_mut().find(|(known, _)| *known == family) {
            Some((_, places)) => places.push(place),
            None => families.push((family, vec![place])),
        }
    }
    families
        .into_iter()
        .flat_map(|(_, places)| by_kernels(images, places))
        .collect()
}

/// The group of images that are compiled for nearly the same instructions. All NVIDIA images are
/// one family, because code for one architecture may run on others.
fn family(image: &Likeness<'_>) -> String {
    let of_name = || AmdArch::of_processor(image.target);
    let of_triple = || AmdArch::of_triple(image.triple).filter(|arch| !arch.is_any());
    match of_name().or_else(of_triple) {
        Some(arch) => format!("amdgcn {}", arch.major()),
        None => image.triple.to_owned(),
    }
}

/// Groups the images at `places`, which are of one family, by kernel names.
fn by_kernels(images: &[Likeness<'_>], places: Vec<usize>) -> Vec<usize> {
    let image_at = |place: &usize| images.get(*place);
    let processors: Vec<&str> = places.iter().filter_map(image_at).map(processor).collect();
    let all_distinct = processors.iter().enumerate().all(|(at, name)| {
        is_single_processor(name) && !processors.iter().take(at).any(|other| other == name)
    });
    if !all_distinct {
        return places;
    }
    let kernels = |place: &usize| {
        let mut names = image_at(place).map_or_else(Vec::new, |image| image.kernels.to_vec());
        names.sort_unstable();
        names.dedup();
        names
    };
    let mut groups: Vec<(Vec<&str>, Vec<usize>)> = Vec::new();
    for place in places {
        let names = kernels(&place);
        match groups.iter_mut().find(|(known, _)| *known == names) {
            Some((_, places)) => places.push(place),
            None => groups.push((names, vec![place])),
        }
    }
    groups.into_iter().flat_map(|(_, places)| places).collect()
}

fn processor<'a>(image: &Likeness<'a>) -> &'a str {
    TargetId::parse(image.target).map_or(image.target, |id| id.processor)
}

/// Whether a name is that of a single AMD processor, whose images no other device accepts.
fn is_single_processor(processor: &str) -> bool {
    processor.starts_with("gfx") && !processor.ends_with("-generic")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(images: &[(&str, &str, &[&str])]) -> Vec<usize> {
        let all: Vec<_> = images
            .iter()
            .map(|(triple, target, kernels)| Likeness {
                triple,
                target,
                kernels,
            })
            .collect();
        by_likeness(&all)
    }

    const AMD: &str = "amdgcn-amd-amdhsa";

    #[test]
    fn families_and_kernels_stand_together() {
        let (one, other): (&[&str], &[&str]) = (&["a", "b"], &["c"]);
        let twisted: &[&str] = &["b", "a", "b"];
        assert_eq!(
            order(&[
                (AMD, "gfx906", one),
                (AMD, "gfx908", other),
                (AMD, "gfx1030", one),
                (AMD, "gfx90a", twisted)
            ]),
            [0, 3, 1, 2]
        );
        assert_eq!(order(&[]), [0; 0]);
        // The triples of LLVM 24.
        assert_eq!(
            order(&[
                ("amdgpu9.08-amd-amdhsa", "", one),
                (AMD, "gfx1100", one),
                (AMD, "gfx90a", one)
            ]),
            [0, 2, 1]
        );
    }

    #[test]
    fn images_for_one_device_keep_their_order() {
        let (one, other): (&[&str], &[&str]) = (&["a"], &["c"]);
        for targets in [
            ["gfx90a:xnack+", "gfx908", "gfx90a"],
            ["gfx9-generic", "gfx906", "gfx908"],
        ] {
            let [x, y, z] = targets;
            assert_eq!(
                order(&[(AMD, x, one), (AMD, y, other), (AMD, z, one)]),
                [0, 1, 2],
                "{targets:?}"
            );
        }
        let nvidia = "nvptx64-nvidia-cuda";
        let cpu = "x86_64-pc-linux-gnu";
        let all = [
            (nvidia, "sm_80", one),
            (cpu, "", one),
            (nvidia, "sm_90", other),
            (nvidia, "sm_86", one),
            (cpu, "", other),
        ];
        assert_eq!(order(&all), [0, 2, 3, 1, 4]);
    }
}
