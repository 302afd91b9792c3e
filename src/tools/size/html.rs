//! The page of `offld size --html`: all sizes, as rows for [`super::page`].

use std::collections::HashMap;
use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

use super::items::{Item, Items, Level};
use super::page::{self, PageRow};
use super::{FileSize, Sizes};
use crate::contents::layout::Name;
use crate::sys::atomic_file;

/// What the page tells apart.
const LEVELS: [Level; 7] = [
    Level::File,
    Level::Member,
    Level::Arch,
    Level::Unit,
    Level::Template,
    Level::Kernel,
    Level::Part,
];

/// What a row of the page belongs to, by the names at [`LEVELS`].
type Key = [Name; LEVELS.len()];

/// Writes the page to `path`, whole or not at all; with `old`, the sizes are compared with those.
///
/// # Errors
/// It cannot be written.
pub(crate) fn save(sizes: &Sizes, old: Option<&Sizes>, path: &Path) -> Result<()> {
    let generator = format!("offld {}", env!("CARGO_PKG_VERSION"));
    let (title, rows) = (title(sizes, old), rows(sizes, old));
    let written = atomic_file::replace(path, |file| {
        let mut out = BufWriter::new(file);
        page::write(&mut out, &title, &generator, old.is_some(), &rows)?;
        Ok(out.flush()?)
    });
    written.with_context(|| format!("cannot write the page to {}", path.display()))
}

/// What the page is of: the names of files, with their folders only where that is the difference.
fn title(sizes: &Sizes, old: Option<&Sizes>) -> String {
    let short = |files: &[FileSize]| match files {
        [one] => Path::new(&one.file).file_name().map_or_else(
            || one.file.clone(),
            |name| name.to_string_lossy().into_owned(),
        ),
        several => format!("{} files", several.len()),
    };
    let new = short(&sizes.files);
    match old.map(|old| (old, short(&old.files))) {
        None => new,
        Some((old, name)) if name == new => match &old.files[..] {
            [one] => format!("{new}, compared with {}", one.file),
            _ => format!("{new}, compared with {name}"),
        },
        Some((_, name)) => format!("{new}, compared with {name}"),
    }
}

fn rows(sizes: &Sizes, old: Option<&Sizes>) -> Vec<PageRow> {
    let mut rows: HashMap<Key, PageRow> = HashMap::new();
    let several = are_several(sizes, old);
    for item in &sizes.items.list {
        let row = row(&mut rows, &sizes.items, item, several);
        row.file += item.file;
        row.inflated += item.inflated;
    }
    // Both have their names in the same list.
    for item in old.iter().flat_map(|old| &old.items.list) {
        let row = row(&mut rows, &sizes.items, item, several);
        *row.old_file.get_or_insert(0) += item.file;
        *row.old_inflated.get_or_insert(0) += item.inflated;
    }
    rows.into_values().collect()
}

/// Whether files are told apart: if there are several, and of what they are compared with one has
/// the name of one of them. Else everything would have gone in one file, and come in another.
fn are_several(sizes: &Sizes, old: Option<&Sizes>) -> bool {
    let names: HashSet<&str> = sizes.files.iter().map(|file| file.file.as_str()).collect();
    names.len() > 1
        && old.is_none_or(|old| {
            old.files
                .iter()
                .any(|file| names.contains(file.file.as_str()))
        })
}

/// The row of what an item belongs to.
fn row<'r>(
    rows: &'r mut HashMap<Key, PageRow>,
    items: &Items,
    item: &Item,
    several: bool,
) -> &'r mut PageRow {
    let mut key = LEVELS.map(|level| item.key(level));
    if !several {
        key[0] = Name::NONE;
    }
    rows.entry(key).or_insert_with(|| {
        let [input, member, arch, unit, template, kernel, part]: [Arc<str>; LEVELS.len()] =
            key.map(|name| items.text(name));
        PageRow {
            input,
            member,
            arch,
            unit,
            template,
            kernel,
            part,
            ..PageRow::default()
        }
    })
}
