//! Sizes in a file, for a comparison without the files that were measured: JSON with every name once, and rows of numbers.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::items::{Item, Items, Level};
use super::{Duplicates, FileSize, ImageSize, Sizes};
use crate::contents::layout::{ImageIndex, Name, Names};
use crate::sys::atomic_file;

/// What the file says it is.
const FORMAT: &str = "offld-size";
/// The version of its form.
const SCHEMA: u32 = 1;
/// How the file begins, so that it is told from what could be measured.
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
    /// The numbers of the names of an item, in the order of [`Level::ALL`]; its bytes in the file, and inflated.
    items: Vec<([usize; Level::ALL.len()], u64, u64)>,
    /// The number of a kernel's name in the source, and its name in the image: a filter may mean either. The first files of this version
    /// do not have them.
    #[serde(default)]
    mangled: Vec<(usize, String)>,
}

/// Writes what was measured to `path`, whole or not at all.
///
/// # Errors
/// It cannot be written.
pub(crate) fn save(sizes: &Sizes, path: &Path) -> Result<()> {
    let mut numbers: HashMap<Name, usize> = HashMap::from([(Name::NONE, 0)]);
    let mut names = Vec::new();
    let mut together: HashMap<[usize; Level::ALL.len()], usize> = HashMap::new();
    let mut items: Vec<([usize; Level::ALL.len()], u64, u64)> = Vec::new();
    for item in &sizes.items.list {
        let keys = item.keys.map(|key| {
            *numbers.entry(key).or_insert_with(|| {
                names.push(sizes.items.text(key).to_string());
                names.len()
            })
        });
        let place = *together.entry(keys).or_insert(items.len());
        match items.get_mut(place) {
            Some((_, file, inflated)) => (*file, *inflated) = (*file + item.file, *inflated + item.inflated),
            None => items.push((keys, item.file, item.inflated)),
        }
    }
    let (files, images) = (sizes.files.clone(), sizes.images.clone());
    let generator = format!("offld {}", env!("CARGO_PKG_VERSION"));
    let others = sizes.items.mangled.iter().filter(|(kernel, mangled)| kernel != mangled);
    let mut mangled: Vec<(usize, String)> =
        others.filter_map(|(kernel, mangled)| Some((*numbers.get(kernel)?, sizes.items.text(*mangled).to_string()))).collect();
    mangled.sort_unstable();
    let saved = Saved { format: FORMAT.to_owned(), schema: SCHEMA, generator, files, images, names, items, mangled };
    let mut text = serde_json::to_vec(&saved).context("cannot write the sizes as JSON")?;
    text.push(b'\n');
    atomic_file::replace(path, |file| Ok(file.write_all(&text)?)).with_context(|| format!("cannot write `{}`", path.display()))
}

/// What [`save`] wrote to `path`; none if the file is something else.
///
/// # Errors
/// It cannot be read, or is damaged, or of a later version.
pub(crate) fn load(path: &Path, names: &Arc<Names>) -> Result<Option<Sizes>> {
    let context = || format!("`{}`", path.display());
    if path == Path::new("-") || !starts(path).with_context(context)? {
        return Ok(None);
    }
    let text = std::fs::read(path).with_context(context)?;
    let saved: Saved = serde_json::from_slice(&text).with_context(|| format!("`{}`: not what --save writes", path.display()))?;
    if saved.format != FORMAT || saved.schema != SCHEMA {
        bail!("`{}`: sizes of version {}, and this offld reads version {SCHEMA}", path.display(), saved.schema);
    }
    let known: Vec<Name> = std::iter::once(Name::NONE).chain(saved.names.iter().map(|name| names.of(name.as_bytes()))).collect();
    let item = |(keys, file, inflated): ([usize; Level::ALL.len()], u64, u64)| {
        let keys = keys.map(|key| known.get(key).copied());
        let whole = keys.iter().all(Option::is_some);
        whole.then(|| Item { keys: keys.map(Option::unwrap_or_default), image: ImageIndex::NONE, file, inflated })
    };
    let list: Option<Vec<Item>> = saved.items.into_iter().map(item).collect();
    let list = list.with_context(|| format!("`{}`: damaged: an item has a name that is not there", path.display()))?;
    let of_kernel = |(kernel, mangled): (usize, String)| Some((*known.get(kernel)?, names.of(mangled.as_bytes())));
    let mangled = saved.mangled.into_iter().filter_map(of_kernel).collect();
    let items = Items { list, names: Arc::clone(names), host: names.of(b"host"), mangled };
    let sizes = Sizes { files: saved.files, images: saved.images, items, duplicates: Duplicates::default() };
    if !can_be_added(&sizes) {
        bail!("`{}`: damaged: its sizes are too large to be added up", path.display());
    }
    Ok(Some(sizes))
}

/// Whether the sums of all sizes fit into 64 bits, so that no part of them can overflow either.
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

fn starts(path: &Path) -> std::io::Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    let mut start = Vec::new();
    std::fs::File::open(path)?.take(START.len() as u64).read_to_end(&mut start)?;
    Ok(start == START)
}
