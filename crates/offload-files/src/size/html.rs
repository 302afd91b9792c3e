//! Page of `offld size --html`: all sizes, as rows for `page`.

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
use offld_system::atomic_file;

/// The levels of the page.
const LEVELS: [Level; 7] = [
    Level::File,
    Level::Member,
    Level::Arch,
    Level::Unit,
    Level::Template,
    Level::Kernel,
    Level::Part,
];

/// The names of a row of the page at [`LEVELS`].
type Key = [Name; LEVELS.len()];

/// Writes the page to `path`, atomically. With `old`, the sizes are compared with those in `old`.
///
/// # Errors
/// The page cannot be written.
pub fn save(sizes: &Sizes, old: Option<&Sizes>, path: &Path) -> Result<()> {
    let generator = format!("offld {}", env!("CARGO_PKG_VERSION"));
    let (title, rows) = (title(sizes, old), rows(sizes, old));
    let written = atomic_file::replace(path, |file| {
        let mut out = BufWriter::new(file);
        page::write(&mut out, &title, &generator, old.is_some(), &rows)?;
        Ok(out.flush()?)
    });
    written.with_context(|| format!("cannot write the page to {}", path.display()))
}

/// The title of the page: file names. Directories are included only if the names are equal.
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
    // Both measurements share one list of names.
    for item in old.iter().flat_map(|old| &old.items.list) {
        let row = row(&mut rows, &sizes.items, item, several);
        *row.old_file.get_or_insert(0) += item.file;
        *row.old_inflated.get_or_insert(0) += item.inflated;
    }
    rows.into_values().collect()
}

/// Whether the page distinguishes files: there are several, and at least one has the same name as a
/// file of `old`. Otherwise all bytes would appear as removed from one file and added to another.
fn are_several(sizes: &Sizes, old: Option<&Sizes>) -> bool {
    let names: HashSet<&str> = sizes.files.iter().map(|file| file.file.as_str()).collect();
    names.len() > 1
        && old.is_none_or(|old| {
            old.files
                .iter()
                .any(|file| names.contains(file.file.as_str()))
        })
}

/// The row for the names of an item.
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
