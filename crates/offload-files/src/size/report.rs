//! The result of `offld::size` as plain data, with the names that `offld size --json` writes
//! (docs/reference/json.md), and its tree of rows: sums of bytes by the requested levels.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::Sizes;
pub(crate) use super::budget::Outcome;
pub use super::duplicates::{Duplicates, NotCompressed, Repeated, Served};
pub use super::items::Level;
use super::items::{Item, Items};
use crate::contents::layout::Name;
use offld_system::shell;
use offload_formats::error::Error;
use offload_formats::model::OffloadKinds;
use offload_formats::target::{Selector, Target};

/// The version of the report's format.
const SCHEMA: u32 = 1;

/// The report on all files.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of the JSON format: 1.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The files.
    pub files: Vec<FileSize>,
    /// The total of all files, with the rows of the requested levels below it.
    pub total: Row,
    /// The images.
    pub images: Vec<ImageSize>,
    /// Repeated data, and data that could be smaller.
    pub duplicates: Duplicates,
    /// The results of the limits.
    pub budgets: Vec<Outcome>,
}

/// A file whose bytes were counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileSize {
    /// The file, as given by the caller.
    pub file: String,
    /// Its type, as in `offld inspect`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its size after decompression of everything in it.
    pub inflated: u64,
    /// Errors of reading the file.
    pub errors: Vec<String>,
}

/// The bytes of a device image.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageSize {
    /// The file that contains it, as given by the caller.
    pub input: String,
    /// The location in the file.
    pub place: String,
    /// The programming models it is for, with commas between them.
    pub kind: String,
    /// The triple.
    pub triple: String,
    /// The processor or target id.
    pub target: String,
    /// The architecture, by the name in size reports.
    pub arch: String,
    /// The format by its bytes.
    pub format: String,
    /// The number of bytes in the file.
    pub file: u64,
    /// The number of bytes after decompression.
    pub inflated: u64,
}

impl ImageSize {
    /// Whether `selector` selects the image.
    pub(crate) fn is_selected(&self, selector: &Selector) -> bool {
        let kinds = OffloadKinds::from_names(self.kind.split(','));
        // PTX for 9.0 is also selected by `compute_90`, its name in reports.
        [&self.target, &self.arch]
            .into_iter()
            .any(|name| selector.selects(kinds, &Target::new(&self.triple, name)))
    }
}

impl Report {
    /// Creates the report on `sizes`; `total` is the tree of their bytes, the result of
    /// [`tree`].
    pub fn new(sizes: Sizes, total: Row, budgets: Vec<Outcome>) -> Report {
        let Sizes {
            files,
            images,
            duplicates,
            items: _,
        } = sizes;
        let generator = format!("offld {}", env!("CARGO_PKG_VERSION"));
        Report {
            schema: SCHEMA,
            generator,
            files,
            total,
            images,
            duplicates,
            budgets,
        }
    }

    /// The report as JSON, as `offld size --json` prints it.
    ///
    /// # Errors
    /// No errors are known: all data can be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        shell::json(self).map_err(Error::of)
    }
}

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
