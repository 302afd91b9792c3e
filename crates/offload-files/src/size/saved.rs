//! Storage of sizes in a file, for a comparison without the measured files: JSON with every name
//! once, and rows of numbers.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::items::{Item, Items, Level};
use super::{Counted, Duplicates, FileSize, ImageSize, Sizes};
use crate::contents::layout::{ImageIndex, Name};
use crate::contents::selection::Choice;
use offld_system::atomic_file;

/// The format name in the file.
const FORMAT: &str = "offld-size";
/// The version of the format. Items of version 1 have no members.
const SCHEMA: u32 = 2;
/// The number of names of an item of version 1: all but the member, which is the last.
const NAMES_1: usize = Level::ALL.len() - 1;
/// The first bytes of the file, which distinguish it from files to measure.
const START: &[u8] = b"{\"format\":\"offld-size\"";

#[derive(Serialize, Deserialize)]
struct Saved {
    format: String,
    schema: u32,
    generator: String,
    files: Vec<FileSize>,
    images: Vec<ImageSize>,
    /// Every name; 0 is no name, 1 the first.
    names: Vec<String>,
    /// The indices of the names of an item, in the order of [`Level::ALL`]; its bytes in the file,
    /// and uncompressed.
    items: Vec<(Vec<usize>, u64, u64)>,
    /// The index of a kernel's name in the source, and its name in the image, because a filter may
    /// match either. The first files of this version do not have them.
    #[serde(default)]
    mangled: Vec<(usize, String)>,
}

/// Writes the sizes to `path`, atomically.
///
/// # Errors
/// The file cannot be written.
pub fn save(sizes: &Sizes, path: &Path) -> Result<()> {
    let mut numbers: HashMap<Name, usize> = HashMap::from([(Name::NONE, 0)]);
    let mut names = Vec::new();
    let mut places: HashMap<Vec<usize>, usize> = HashMap::new();
    let mut items: Vec<(Vec<usize>, u64, u64)> = Vec::new();
    for item in &sizes.items.list {
        let number = |key: Name| {
            *numbers.entry(key).or_insert_with(|| {
                names.push(sizes.items.text(key).to_string());
                names.len()
            })
        };
        let keys: Vec<usize> = item.keys.into_iter().map(number).collect();
        let place = *places.entry(keys.clone()).or_insert(items.len());
        match items.get_mut(place) {
            Some((_, file, inflated)) => {
                (*file, *inflated) = (*file + item.file, *inflated + item.inflated)
            }
            None => items.push((keys, item.file, item.inflated)),
        }
    }
    let (files, images) = (sizes.files.clone(), sizes.images.clone());
    let generator = format!("offld {}", env!("CARGO_PKG_VERSION"));
    let others = sizes
        .items
        .mangled
        .iter()
        .filter(|(kernel, mangled)| kernel != mangled);
    let mut mangled: Vec<(usize, String)> = others
        .filter_map(|(kernel, mangled)| {
            Some((
                *numbers.get(kernel)?,
                sizes.items.text(*mangled).to_string(),
            ))
        })
        .collect();
    mangled.sort_unstable();
    let saved = Saved {
        format: FORMAT.to_owned(),
        schema: SCHEMA,
        generator,
        files,
        images,
        names,
        items,
        mangled,
    };
    let mut text = serde_json::to_vec(&saved).context("cannot write the sizes as JSON")?;
    text.push(b'\n');
    atomic_file::replace(path, |file| Ok(file.write_all(&text)?))
        .with_context(|| format!("cannot write `{}`", path.display()))
}

/// Reads the sizes that [`save`] wrote to `path`; none if the file has a different format.
///
/// # Errors
/// The file cannot be read, or is damaged, or has a later version.
pub fn load(path: &Path, counted: &Counted) -> Result<Option<Sizes>> {
    let Counted {
        names, selection, ..
    } = counted;
    let context = || format!("`{}`", path.display());
    if path == Path::new("-") || !starts(path).with_context(context)? {
        return Ok(None);
    }
    let text = std::fs::read(path).with_context(context)?;
    let saved: Saved = serde_json::from_slice(&text)
        .with_context(|| format!("`{}`: not a file that --save writes", path.display()))?;
    if saved.format != FORMAT || !(1..=SCHEMA).contains(&saved.schema) {
        bail!(
            "`{}`: sizes of version {}, but this offld reads versions up to {SCHEMA}",
            path.display(),
            saved.schema
        );
    }
    let known: Vec<Name> = std::iter::once(Name::NONE)
        .chain(saved.names.iter().map(|name| names.of(name.as_bytes())))
        .collect();
    let count = if saved.schema == 1 {
        NAMES_1
    } else {
        Level::ALL.len()
    };
    let item = |(numbers, file, inflated): (Vec<usize>, u64, u64)| {
        let mut keys = [Name::NONE; Level::ALL.len()];
        for (key, number) in keys.iter_mut().zip(&numbers) {
            *key = known.get(*number).copied()?;
        }
        (numbers.len() == count).then_some(Item {
            keys,
            image: ImageIndex::NONE,
            file,
            inflated,
        })
    };
    let list: Option<Vec<Item>> = saved.items.into_iter().map(item).collect();
    let mut list = list.with_context(|| {
        format!(
            "`{}`: damaged: an item has a name that does not exist",
            path.display()
        )
    })?;
    if !selection.is_all() {
        if saved.schema == 1 {
            bail!(
                "`{}`: --only and --exclude need member names, which sizes of version 1 do not have",
                path.display()
            );
        }
        list.retain(|item| {
            let text = |level| names.text(item.key(level));
            let (file, member, container) = (
                text(Level::File),
                text(Level::Member),
                text(Level::Container),
            );
            match selection.of(Path::new(&*file), None) {
                // The headers of a wheel, or of another file with members, are counted if any of
                // its members may be.
                of_file if member.is_empty() => {
                    of_file == Choice::Selected
                        || (of_file == Choice::Within && is_packed(&container))
                }
                of_file => selection.of(Path::new(&*member), Some(of_file)) == Choice::Selected,
            }
        });
    }
    let of_kernel = |(kernel, mangled): (usize, String)| {
        Some((*known.get(kernel)?, names.of(mangled.as_bytes())))
    };
    let mangled = saved.mangled.into_iter().filter_map(of_kernel).collect();
    let mut items = Items {
        list,
        names: Arc::clone(names),
        host: names.of(b"host"),
        mangled,
    };
    items.rename_regions();
    let sizes = Sizes {
        files: saved.files,
        images: saved.images,
        items,
        duplicates: Duplicates::default(),
    };
    if !can_be_added(&sizes) {
        bail!(
            "`{}`: damaged: the sum of the sizes is too large",
            path.display()
        );
    }
    Ok(Some(sizes))
}

/// Whether this container holds files.
fn is_packed(container: &str) -> bool {
    ["zip", "tar"].contains(&container)
}

/// Whether the sums of all sizes fit into 64 bits, so that partial sums cannot overflow either.
fn can_be_added(sizes: &Sizes) -> bool {
    let (files, images, items) = (&sizes.files, &sizes.images, &sizes.items.list);
    fits(files.iter().map(|file| file.size))
        && fits(files.iter().map(|file| file.inflated))
        && fits(images.iter().map(|image| image.file))
        && fits(images.iter().map(|image| image.inflated))
        && fits(items.iter().map(|item| item.file))
        && fits(items.iter().map(|item| item.inflated))
}

fn fits(mut sizes: impl Iterator<Item = u64>) -> bool {
    sizes.try_fold(0u64, u64::checked_add).is_some()
}

/// Whether the file at `path` starts like saved sizes.
pub(crate) fn starts(path: &Path) -> std::io::Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    let mut start = Vec::new();
    std::fs::File::open(path)?
        .take(START.len() as u64)
        .read_to_end(&mut start)?;
    Ok(start == START)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenMP regions in files of offld 0.9 get the names of this version.
    #[test]
    fn regions_of_earlier_versions_are_found() {
        let names = [
            "f",
            "sm_90",
            "__omp_offloading_1_2_foo",
            "__omp_offloading_1_2_foo()_l12",
            "__omp_offloading_1_2_main_l3",
        ];
        let text = format!(
            r#"{{"format":"offld-size","schema":1,"generator":"offld 0.9.0","files":[],"images":[],"names":{names:?},
            "items":[[[1,2,0,0,0,3,4,0,0],5,5],[[1,2,0,0,0,5,5,0,0],6,6]],"mangled":[[4,"__omp_offloading_1_2__Z3foov_l12"]]}}"#
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("v1.json");
        std::fs::write(&path, text.replace('\n', "")).unwrap();
        let counted = Counted {
            names: Arc::default(),
            max_unpacked: 0,
            selection: Arc::default(),
            keep_empty: false,
        };
        let items = load(&path, &counted).unwrap().unwrap().items;
        let called = |level| {
            items
                .list
                .iter()
                .map(|item| items.text(item.key(level)).to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(called(Level::Kernel), ["foo(), line 12", "main, line 3"]);
        assert_eq!(called(Level::Template), ["foo, line 12", "main, line 3"]);
        let in_image = |name: &str| {
            items
                .mangled
                .get(&items.names.of(name.as_bytes()))
                .map(|name| items.text(*name).to_string())
        };
        assert_eq!(
            in_image("foo(), line 12").as_deref(),
            Some("__omp_offloading_1_2__Z3foov_l12")
        );
        assert_eq!(
            in_image("main, line 3").as_deref(),
            Some("__omp_offloading_1_2_main_l3")
        );
    }
}
