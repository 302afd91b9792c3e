//! Sums of bytes as a tree of rows, with the requested levels.

use std::collections::HashMap;

use serde::Serialize;

use super::items::{Item, Items, Level};
use crate::contents::layout::Name;

/// The requested form of the tree.
#[derive(Debug, Clone)]
pub struct View {
    /// The levels of the tree, the outermost first.
    pub by: Vec<Level>,
    /// Whether the rows are sorted by uncompressed bytes instead of file bytes.
    pub by_inflated: bool,
}

/// Bytes with the same names down to this level.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Their common name; empty at the outermost level.
    pub name: String,
    /// The kernel's name in the image, if it is different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mangled: Option<String>,
    /// The level of the name.
    pub level: &'static str,
    /// The number of bytes in the files.
    pub file: u64,
    /// The number of bytes after decompression.
    pub inflated: u64,
    /// The number of bytes in the old files of a comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_file: Option<u64>,
    /// The number of uncompressed bytes in the old files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_inflated: Option<u64>,
    /// The number of images that contain them.
    pub images: u64,
    /// The number of kernels and device functions that they belong to.
    pub kernels: u64,
    /// The rows of the next level.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
}

impl Row {
    /// The growth in file bytes; negative if there are fewer.
    pub(crate) fn change(&self) -> i64 {
        self.old_file.map_or(0, |old| difference(self.file, old))
    }

    /// The growth in uncompressed bytes.
    pub(crate) fn inflated_change(&self) -> i64 {
        self.old_inflated
            .map_or(0, |old| difference(self.inflated, old))
    }
}

fn difference(new: u64, old: u64) -> i64 {
    let size = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    size(new).saturating_sub(size(old))
}

/// Returns `by` with the level of templates added above that of kernels.
pub fn levels(by: &[Level]) -> Vec<Level> {
    let with_template = |level: &Level| match level {
        Level::Kernel => vec![Level::Template, Level::Kernel],
        level => vec![*level],
    };
    by.iter().flat_map(with_template).collect()
}

/// The tree of `items` in the form `view`. With `old`, the rows are compared with those items.
pub fn tree(items: &Items, old: Option<&Items>, view: &View) -> Row {
    let new: Vec<&Item> = items.list.iter().collect();
    let before: Option<Vec<&Item>> = old.map(|old| old.list.iter().collect());
    let mut root = sum(&new, before.as_deref(), items.host);
    root.rows = below(&new, before.as_deref(), &view.by, items, view);
    root
}

fn sum(new: &[&Item], old: Option<&[&Item]>, host: Name) -> Row {
    let mut row = Row::default();
    let (mut images, mut kernels) = (Marks::default(), Marks::default());
    for item in new {
        row.file += item.file;
        row.inflated += item.inflated;
        // An entry for the host is not a device image.
        images.mark(item.image.place().filter(|_| item.key(Level::Arch) != host));
        kernels.mark(item.key(Level::Kernel).place());
    }
    (row.images, row.kernels) = (images.count, kernels.count);
    row.old_file = old.map(|old| old.iter().map(|item| item.file).sum());
    row.old_inflated = old.map(|old| old.iter().map(|item| item.inflated).sum());
    row
}

/// The sum of several rows, with the old sizes if they are `compared`; none if there are no rows.
pub(super) fn sum_of_rows(rows: &[Row], compared: bool) -> Option<Row> {
    let sum = |value: fn(&Row) -> u64| rows.iter().map(value).sum();
    (!rows.is_empty()).then(|| Row {
        file: sum(|row| row.file),
        inflated: sum(|row| row.inflated),
        old_file: compared.then(|| sum(|row| row.old_file.unwrap_or_default())),
        old_inflated: compared.then(|| sum(|row| row.old_inflated.unwrap_or_default())),
        ..Row::default()
    })
}

/// A set of indices with its size. A bit set, because all bytes of a large library are counted for
/// each level.
#[derive(Default)]
struct Marks {
    words: Vec<u64>,
    count: u64,
}

impl Marks {
    fn mark(&mut self, place: Option<usize>) {
        let Some(place) = place else { return };
        let (word, bit) = (place / 64, 1 << (place % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.count += u64::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }
}

fn below(
    new: &[&Item],
    old: Option<&[&Item]>,
    levels: &[Level],
    items: &Items,
    view: &View,
) -> Vec<Row> {
    let Some((level, deeper)) = levels.split_first() else {
        return Vec::new();
    };
    let mut groups: HashMap<Name, (Vec<&Item>, Vec<&Item>)> = HashMap::new();
    for item in new {
        groups.entry(item.key(*level)).or_default().0.push(item);
    }
    for item in old.unwrap_or_default() {
        groups.entry(item.key(*level)).or_default().1.push(item);
    }
    let mut rows: Vec<Row> = groups
        .into_iter()
        .map(|(key, (new, before))| {
            let before = old.map(|_| before.as_slice());
            let rows = below(&new, before, deeper, items, view);
            let text = items.text(key);
            let name = if text.is_empty() {
                level.nothing().to_owned()
            } else {
                text.to_string()
            };
            let mangled = (*level == Level::Kernel)
                .then(|| items.mangled.get(&key))
                .flatten()
                .filter(|mangled| **mangled != key);
            let mangled = mangled.map(|mangled| items.text(*mangled).to_string());
            Row {
                name,
                mangled,
                level: level.name(),
                rows,
                ..sum(&new, before, items.host)
            }
        })
        .collect();
    let size = |row: &Row| match (view.by_inflated, old.is_some()) {
        (false, false) => row.file,
        (true, false) => row.inflated,
        // The rows with the greatest change come first. Rows without change follow by size.
        (false, true) => row.change().unsigned_abs(),
        (true, true) => row.inflated_change().unsigned_abs(),
    };
    rows.sort_by(|one, other| {
        size(other)
            .cmp(&size(one))
            .then_with(|| other.file.cmp(&one.file))
            .then_with(|| one.name.cmp(&other.name))
    });
    rows
}
