//! Search for waste: images and functions with the same bytes, and containers that are not
//! compressed. Only items with the same architecture and size are compared, functions only if they
//! also have the same name. A digest of 128 bits decides whether two items are equal. Also finds
//! redundant images, whose devices other images in the file serve.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use anyhow::{Context, Result};
use rayon::prelude::*;
use serde::Serialize;

use super::items::{Items, Level};
use super::{FileSize, ImageSize};
use crate::contents::bytes_of;
use crate::contents::layout::{Footprint, FunctionCode, Name, Names, SizedImage};
use offld_system::io::file_slice::FileSlice;
use offload_formats::kernels::demangled;
use offload_formats::target::Target;
use offload_formats::target::device::{Code, Fit, Wanted};

/// Bytes that occur more than once.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Repeated {
    /// The kernel; none for whole images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The architecture.
    pub arch: String,
    /// The number of copies.
    pub copies: u64,
    /// The uncompressed size of each copy.
    pub size: u64,
    /// The file bytes of all copies except one; for compressed data, their share of the compressed
    /// bytes.
    pub wasted_file: u64,
    /// The uncompressed bytes of all copies except one.
    pub wasted_inflated: u64,
    /// The translation units with the copies. If these are unknown, the locations of the copies,
    /// which include the file if there are several.
    pub places: Vec<String>,
}

/// Containers of a format that are not compressed.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct NotCompressed {
    /// The format.
    pub container: String,
    /// The number of containers.
    pub count: u64,
    /// Their size in bytes.
    pub size: u64,
    /// The bytes that zstd would save: an estimate from samples.
    pub estimated_saving: u64,
}

/// Duplicates, and containers that could be smaller.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Duplicates {
    /// Images that occur more than once.
    pub images: Vec<Repeated>,
    /// Kernels and device functions that occur more than once, in images that differ.
    pub kernels: Vec<Repeated>,
    /// Architectures whose devices also take the images of another one.
    pub served: Vec<Served>,
    /// Containers that are not compressed.
    pub not_compressed: Vec<NotCompressed>,
}

/// An image with its bytes in the file.
struct Placed<'f> {
    /// The file that contains it, if there are several.
    input: Option<&'f str>,
    image: &'f SizedImage,
    index: usize,
    file: u64,
}

/// Finds the duplicates in `files`, which have these footprints and the bytes `items`.
///
/// # Errors
/// A file is no longer readable.
pub(super) fn find(
    files: &[FileSize],
    footprints: &[Footprint],
    items: &Items,
    names: &Names,
) -> Result<Duplicates> {
    let placed = placed(files, footprints, items);
    let units = units(items);
    let same_images = images(&placed)?;
    let mut repeated: HashSet<usize> = HashSet::new();
    let mut found = Duplicates::default();
    for group in &same_images {
        let [first, rest @ ..] = group.as_slice() else {
            continue;
        };
        repeated.extend(rest.iter().map(|placed| placed.index));
        found.images.push(Repeated {
            kernel: None,
            arch: names.text(first.image.arch).to_string(),
            copies: group.len() as u64,
            size: first.image.size,
            wasted_file: rest.iter().map(|placed| placed.file).sum(),
            wasted_inflated: rest.iter().map(|placed| placed.image.size).sum(),
            places: places(group, &units, names),
        });
    }
    let others: Vec<&Placed<'_>> = placed
        .iter()
        .filter(|placed| !repeated.contains(&placed.index))
        .collect();
    found.kernels = functions(&others, &units, names)?;
    for list in [&mut found.images, &mut found.kernels] {
        list.sort_by(|one, other| order(one).cmp(&order(other)));
    }
    found.not_compressed = not_compressed(footprints);
    Ok(found)
}

/// The sort key: the most wasted bytes first. The other fields make the order deterministic.
fn order(one: &Repeated) -> impl Ord {
    let Repeated {
        kernel,
        arch,
        copies,
        size,
        wasted_file,
        wasted_inflated,
        places,
    } = one;
    (
        Reverse(*wasted_file),
        kernel,
        arch,
        Reverse(*size),
        Reverse(*wasted_inflated),
        *copies,
        places,
    )
}

/// All images of device code, with the indices of the items.
fn placed<'f>(
    files: &'f [FileSize],
    footprints: &'f [Footprint],
    items: &Items,
) -> Vec<Placed<'f>> {
    let input = |file: &'f FileSize| Some(file.file.as_str()).filter(|_| files.len() > 1);
    let of_file = |(file, footprint): (&'f FileSize, &'f Footprint)| {
        footprint
            .images
            .iter()
            .map(move |image| (input(file), image))
    };
    let images = files.iter().zip(footprints).flat_map(of_file);
    let placed = (0..).zip(images).map(|(index, (input, image))| Placed {
        input,
        image,
        index,
        file: 0,
    });
    let mut placed: Vec<Placed<'_>> = placed.collect();
    for item in &items.list {
        if let Some(placed) = item.image.place().and_then(|image| placed.get_mut(image)) {
            placed.file += item.file;
        }
    }
    placed.retain(|placed| placed.image.arch != items.host);
    placed
}

/// The known translation units, by the indices of the images.
fn units(items: &Items) -> HashMap<usize, Name> {
    let each = items
        .list
        .iter()
        .filter_map(|item| Some((item.image.place()?, item.key(Level::Unit))));
    each.filter(|(_, unit)| *unit != Name::NONE).collect()
}

fn places(group: &[&Placed<'_>], units: &HashMap<usize, Name>, names: &Names) -> Vec<String> {
    let place = |placed: &&Placed<'_>| {
        let place = match units.get(&placed.index) {
            Some(unit) => names.text(*unit).to_string(),
            None => placed.image.place.clone(),
        };
        match placed.input {
            Some(input) => format!("{input}: {place}"),
            None => place,
        }
    };
    let mut all: Vec<String> = group.iter().map(place).collect();
    all.sort();
    all.dedup();
    all
}

/// The groups of images with the same bytes.
fn images<'p, 'f>(placed: &'p [Placed<'f>]) -> Result<Vec<Vec<&'p Placed<'f>>>> {
    let placed = placed.iter().filter(|placed| placed.image.size > 0);
    same_bytes(
        placed.map(|placed| ((placed.image.arch, placed.image.size), placed)),
        |placed| digest_of_image(placed.image),
    )
}

/// The groups of items with the same key, size and bytes.
fn same_bytes<K: Copy + Eq + Hash + Sync, T: Copy + Sync>(
    items: impl Iterator<Item = ((K, u64), T)>,
    digest: impl Fn(T) -> Result<Option<u128>> + Sync,
) -> Result<Vec<Vec<T>>> {
    let mut by_size: HashMap<(K, u64), Vec<(K, T)>> = HashMap::new();
    for ((key, size), item) in items {
        by_size.entry((key, size)).or_default().push((key, item));
    }
    let candidates: Vec<(K, T)> = by_size
        .into_values()
        .filter(|group| group.len() > 1)
        .flatten()
        .collect();
    let digests: Result<Vec<Option<u128>>> = candidates
        .par_iter()
        .map(|(_, item)| digest(*item))
        .collect();
    let mut same: HashMap<(K, u128), Vec<T>> = HashMap::new();
    for ((key, item), digest) in candidates.into_iter().zip(digests?) {
        if let Some(digest) = digest {
            same.entry((key, digest)).or_default().push(item);
        }
    }
    Ok(same.into_values().filter(|group| group.len() > 1).collect())
}

fn digest_of_image(image: &SizedImage) -> Result<Option<u128>> {
    match (&image.piece, image.digest) {
        (Some(piece), None) => bytes_of::quick_digest(piece)
            .with_context(|| image.place.clone())
            .map(Some),
        (_, digest) => Ok(digest),
    }
}

/// Functions of one name, architecture and size with the same code, in images that differ.
fn functions(
    placed: &[&Placed<'_>],
    units: &HashMap<usize, Name>,
    names: &Names,
) -> Result<Vec<Repeated>> {
    type Function<'p, 'f> = (&'p Placed<'f>, &'f FunctionCode);
    let functions = placed.iter().flat_map(|placed| {
        let functions = placed.image.functions.iter();
        functions
            .filter(|function| function.size > 0)
            .map(move |function| {
                let key = (placed.image.arch, function.name);
                ((key, function.size), (*placed, function))
            })
    });
    let same = same_bytes(functions, |(placed, function): Function<'_, '_>| {
        digest_of_function(placed.image, function)
    })?;
    let repeated = same.into_iter().map(|group| {
        let (first, function) = group[0];
        let kernel = names.text(function.name);
        let share = |(placed, function): &Function<'_, '_>| match placed.image.size {
            0 => 0,
            size => u64::try_from(
                u128::from(function.size) * u128::from(placed.file) / u128::from(size),
            )
            .unwrap_or(u64::MAX),
        };
        let holders: Vec<&Placed<'_>> = group.iter().map(|(placed, _)| *placed).collect();
        Repeated {
            kernel: Some(demangled(&kernel).unwrap_or_else(|| kernel.to_string())),
            arch: names.text(first.image.arch).to_string(),
            copies: group.len() as u64,
            size: function.size,
            wasted_file: group.iter().skip(1).map(share).sum(),
            wasted_inflated: function.size * (group.len() as u64 - 1),
            places: places(&holders, units, names),
        }
    });
    Ok(repeated.collect())
}

fn digest_of_function(image: &SizedImage, function: &FunctionCode) -> Result<Option<u128>> {
    let code = image
        .piece
        .as_ref()
        .and_then(|piece| piece.slice(function.offset, function.size));
    match (code, function.digest) {
        (Some(code), None) => bytes_of::quick_digest(&code)
            .with_context(|| image.place.clone())
            .map(Some),
        (_, digest) => Ok(digest),
    }
}

/// Estimates the saving by compression from samples of up to [`SAMPLES`] containers of a format.
fn not_compressed(footprints: &[Footprint]) -> Vec<NotCompressed> {
    const SAMPLES: usize = 16;
    const LEVEL: i32 = 3;
    let mut formats: Vec<&'static str> = footprints
        .iter()
        .flat_map(|one| &one.uncompressed)
        .map(|one| one.container)
        .collect();
    formats.sort_unstable();
    formats.dedup();
    let each = formats.into_iter().map(|format| {
        let all = footprints
            .iter()
            .flat_map(|one| &one.uncompressed)
            .filter(|one| one.container == format);
        let all: Vec<_> = all.collect();
        let size: u64 = all.iter().map(|one| one.size).sum();
        let samples: Vec<&FileSlice> = all
            .iter()
            .step_by(all.len().div_ceil(SAMPLES))
            .map(|one| &one.sample)
            .collect();
        let packed = |sample: &&FileSlice| {
            let plain = sample.size();
            let size = zstd::bulk::compress(sample.bytes(), LEVEL)
                .map_or(plain, |packed| plain.min(packed.len() as u64));
            sample.release();
            size
        };
        let plain: u64 = samples.iter().map(|sample| sample.size()).sum();
        let packed: u64 = samples.par_iter().map(packed).sum();
        let saved = u128::from(size) * u128::from(plain - packed) / u128::from(plain.max(1));
        let estimated_saving = u64::try_from(saved).unwrap_or(u64::MAX);
        NotCompressed {
            container: format.to_owned(),
            count: all.len() as u64,
            size,
            estimated_saving,
        }
    });
    each.filter(|one| one.estimated_saving > 0).collect()
}

// Architectures whose images are redundant, because their devices also take the images of another
// architecture in the file, by the rules of [`offload_formats::target::device`].

/// An architecture whose devices also take the images of another one.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Served {
    /// The architecture.
    pub arch: String,
    /// The other architecture, whose images these devices also take.
    pub by: String,
    /// The number of its images.
    pub images: u64,
    /// The bytes of its images in the file.
    pub file: u64,
    /// The uncompressed bytes of its images.
    pub inflated: u64,
}

/// Finds all served architectures, those with the most bytes first. Only images in the same file
/// and for the same programming model are compared.
pub(super) fn find_served(images: &[ImageSize]) -> Vec<Served> {
    let mut groups: BTreeMap<(&str, &str), BTreeMap<&str, Vec<&ImageSize>>> = BTreeMap::new();
    // PTX does not replace machine code, because it is compiled when a program starts.
    for image in images
        .iter()
        .filter(|image| matches!(image.format.as_str(), "elf" | "cubin"))
    {
        groups
            .entry((&image.input, &image.kind))
            .or_default()
            .entry(&image.arch)
            .or_default()
            .push(image);
    }
    // The result has neither files nor models, so their values are added up.
    let mut found: BTreeMap<(&str, &str), Served> = BTreeMap::new();
    for archs in groups.values() {
        for (arch, of_arch) in archs {
            let others = archs.iter().filter(|(other, _)| *other != arch);
            // If two architectures serve one another, only one of them is listed.
            let serves = |(other, of_other): &(&&str, &Vec<&ImageSize>)| {
                serves(of_other, arch) && (*other < arch || !serves(of_arch, other))
            };
            let Some((by, _)) = others.clone().find(|one| serves(one)) else {
                continue;
            };
            let (arch, by): (&str, &str) = (arch, by);
            let none = || Served {
                arch: arch.to_owned(),
                by: by.to_owned(),
                images: 0,
                file: 0,
                inflated: 0,
            };
            let served = found.entry((arch, by)).or_insert_with(none);
            served.images += of_arch.len() as u64;
            served.file += of_arch.iter().map(|image| image.file).sum::<u64>();
            served.inflated += of_arch.iter().map(|image| image.inflated).sum::<u64>();
        }
    }
    let mut found: Vec<Served> = found.into_values().collect();
    // Entries of the same size stay in the order of their names.
    found.sort_by_key(|one| std::cmp::Reverse(one.file));
    found
}

/// Whether devices of `arch` take one of these images, which are for another architecture.
fn serves(images: &[&ImageSize], arch: &str) -> bool {
    // Code for the features of one device (`sm_90a`) is there for these features. It neither
    // replaces other code nor is replaced by it.
    let of_one = |arch: &str| arch.starts_with("sm_") && arch.ends_with(['a', 'f']);
    let Some(wanted) = Wanted::parse(arch).ok().filter(|_| !of_one(arch)) else {
        return false;
    };
    images
        .iter()
        .filter(|image| !of_one(&image.arch))
        .any(|image| {
            let target = Target::new(&image.triple, &image.target);
            let code = Code {
                target: &target,
                format: &image.format,
                gpu: None,
                abi_version: None,
                ptx: None,
            };
            matches!(wanted.device.takes(&code), Fit::Yes(..))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(kind: &str, triple: &str, target: &str, format: &str) -> ImageSize {
        let text = str::to_owned;
        ImageSize {
            input: text("lib"),
            place: String::new(),
            kind: text(kind),
            triple: text(triple),
            target: text(target),
            arch: text(target),
            format: text(format),
            file: 10,
            inflated: 20,
        }
    }

    #[test]
    fn what_another_architecture_serves_is_told() {
        let cuda = |target| image("cuda", "nvptx64-nvidia-cuda", target, "cubin");
        let hip = |target| image("hip", "amdgcn-amd-amdhsa", target, "elf");
        let all = [
            cuda("sm_80"),
            cuda("sm_86"),
            cuda("sm_90"),
            cuda("sm_90a"),
            hip("gfx942"),
            hip("gfx9-4-generic"),
            hip("gfx90a"),
            hip("gfx90a:xnack+"),
            image("hip", "nvptx64-nvidia-cuda", "sm_89", "cubin"),
        ];
        let lines: Vec<String> = find_served(&all)
            .iter()
            .map(|one| format!("{} by {}", one.arch, one.by))
            .collect();
        assert_eq!(
            lines,
            [
                "gfx90a:xnack+ by gfx90a",
                "gfx942 by gfx9-4-generic",
                "sm_86 by sm_80"
            ]
        );
        let other = |target| ImageSize {
            input: "other".to_owned(),
            ..cuda(target)
        };
        let two_files = [
            cuda("sm_80"),
            cuda("sm_86"),
            other("sm_80"),
            other("sm_86"),
            other("sm_86"),
        ];
        let lines = find_served(&two_files)
            .into_iter()
            .map(|one| (one.arch, one.by, one.images, one.file, one.inflated));
        let expected = ("sm_86".to_owned(), "sm_80".to_owned(), 3, 30, 60);
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [expected],
            "the files are added up"
        );
        // Images of another file do not count.
        assert_eq!(find_served(&[cuda("sm_80"), other("sm_86")]).len(), 0);
    }
}
