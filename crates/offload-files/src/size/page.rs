//! The page of `offld size --html`: a treemap with zoom, and a table with search and sorting.
//! Everything is in one file, and its content security policy forbids the browser to load anything
//! else. This module writes the data of the page; its appearance and behaviour are in `page/`.
//!
//! Names of kernels come from files that may be hostile. The data is base64, and scripts insert
//! names into the page as text only. Names in the HTML itself (the title, and the tables for
//! browsers without scripts) are escaped.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::prelude::BASE64_STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;

use super::items::{Item, Items, Level};
use super::{FileSize, Sizes};
use crate::contents::layout::Name;
use crate::html::{STYLE, escaped, fill, hash, unknown};
use offld_system::atomic_file;

const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = concat!(
    include_str!("page/data.js"),
    include_str!("page/treemap.js"),
    include_str!("page/table.js"),
    include_str!("page/page.js")
);
/// The number of kernels in a browser without scripts.
const WITHOUT_SCRIPTS: usize = 100;
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

/// The names of an item at [`LEVELS`].
type ItemKey = [Name; LEVELS.len()];

/// Writes the page to `path`, atomically. With `old`, the sizes are compared with those in `old`.
///
/// # Errors
/// The page cannot be written.
pub fn save(sizes: &Sizes, old: Option<&Sizes>, path: &Path) -> Result<()> {
    let generator = format!("offld {}", env!("CARGO_PKG_VERSION"));
    let (title, rows) = (title(sizes, old), page_rows(sizes, old));
    let written = atomic_file::replace(path, |file| {
        let mut out = BufWriter::new(file);
        write(&mut out, &title, &generator, old.is_some(), &rows)?;
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

fn page_rows(sizes: &Sizes, old: Option<&Sizes>) -> Vec<PageRow> {
    let mut rows: HashMap<ItemKey, PageRow> = HashMap::new();
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
    rows: &'r mut HashMap<ItemKey, PageRow>,
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

/// Some bytes of a file, with all names that they belong to.
#[derive(Debug, Clone, Default)]
pub struct PageRow {
    /// The file that contains them; empty if there is only one file.
    pub input: Arc<str>,
    /// The member of the wheel, other zip file or tar archive that contains them; empty for none.
    pub member: Arc<str>,
    /// `gfx90a`, `sm_80`, `host`; empty for bytes of containers themselves.
    pub arch: Arc<str>,
    /// The translation unit; empty if it is unknown.
    pub unit: Arc<str>,
    /// The kernel's name without template arguments; empty for none.
    pub template: Arc<str>,
    /// The kernel's demangled name; empty for none.
    pub kernel: Arc<str>,
    /// Their purpose: code, constants, debug, headers, …
    pub part: Arc<str>,
    /// The number of bytes in the file; 0 if only the old file has them.
    pub file: u64,
    /// The number of bytes after decompression.
    pub inflated: u64,
    /// The number of bytes in the old file; none if it has no such row, or if no files are
    /// compared.
    pub old_file: Option<u64>,
    /// The number of uncompressed bytes in the old file.
    pub old_inflated: Option<u64>,
}

impl PageRow {
    fn key(&self) -> Key<'_> {
        [
            &self.input,
            &self.member,
            &self.arch,
            &self.unit,
            &self.template,
            &self.kernel,
            &self.part,
        ]
    }
}

/// The names of a row: file, member, architecture, translation unit, template, kernel and part.
type Key<'a> = [&'a str; 7];

/// The sizes of a row in bytes, new and old.
#[derive(Debug, Clone, Copy, Default)]
struct RowSizes {
    file: u64,
    inflated: u64,
    /// File size and uncompressed size; none if there was nothing before.
    old: Option<(u64, u64)>,
}

impl RowSizes {
    fn add(&mut self, row: &PageRow) {
        self.file += row.file;
        self.inflated += row.inflated;
        if row.old_file.is_some() || row.old_inflated.is_some() {
            let (file, inflated) = self.old.unwrap_or_default();
            self.old = Some((
                file + row.old_file.unwrap_or(0),
                inflated + row.old_inflated.unwrap_or(0),
            ));
        }
    }
}

/// Rows in the form that `page/data.js` reads: sorted strings without the prefix that each shares
/// with the previous one, and columns of numbers. The columns of names hold differences between the
/// indices of strings. `inflated` holds differences from the file size, and the old sizes are
/// differences from the new ones. Such small numbers compress well.
#[derive(Debug, Serialize)]
struct Data<'a> {
    compared: bool,
    /// The length of the prefix that a string shares with the previous one, in UTF-16 units as in
    /// JavaScript.
    shared: Vec<usize>,
    rest: Vec<&'a str>,
    input: Vec<i64>,
    member: Vec<i64>,
    arch: Vec<i64>,
    unit: Vec<i64>,
    template: Vec<i64>,
    kernel: Vec<i64>,
    part: Vec<i64>,
    file: Vec<u64>,
    inflated: Vec<i128>,
    old_file: Vec<Option<i128>>,
    old_inflated: Vec<Option<i128>>,
}

/// Writes the page.
///
/// `title` names the file, and `generator` the program that writes the page. With `compared`, the
/// page also shows the old sizes of the rows. Rows may come in any order; rows with the same names
/// are added up.
///
/// # Errors
/// Writing to `out` fails.
pub fn write(
    out: &mut impl Write,
    title: &str,
    generator: &str,
    compared: bool,
    rows: &[PageRow],
) -> io::Result<()> {
    let mut merged: BTreeMap<Key<'_>, RowSizes> = BTreeMap::new();
    for row in rows {
        merged.entry(row.key()).or_default().add(row);
    }
    fill(out, PAGE, |out, name| match name {
        "title" => out.write_all(escaped(title).as_bytes()),
        "generator" => out.write_all(escaped(generator).as_bytes()),
        "style" => out.write_all(STYLE.as_bytes()),
        "script" => out.write_all(SCRIPT.as_bytes()),
        "style-hash" => out.write_all(hash(STYLE).as_bytes()),
        "script-hash" => out.write_all(hash(SCRIPT).as_bytes()),
        "totals" => out.write_all(totals(&merged).as_bytes()),
        "tables" => tables(out, &merged, compared),
        "data" => pack(out, &Data::of(&merged, compared)),
        _ => Err(unknown(name)),
    })
}

/// The data as base64 of deflated JSON. No character of base64 has a meaning in HTML.
fn pack(out: &mut impl Write, data: &Data<'_>) -> io::Result<()> {
    let mut deflate = DeflateEncoder::new(
        EncoderWriter::new(out, &BASE64_STANDARD),
        Compression::best(),
    );
    serde_json::to_writer(&mut deflate, data)?;
    deflate.finish()?.finish()?;
    Ok(())
}

impl<'a> Data<'a> {
    fn of(rows: &BTreeMap<Key<'a>, RowSizes>, compared: bool) -> Data<'a> {
        let numbers: BTreeMap<&'a str, i64> =
            rows.keys().flatten().map(|name| (*name, 0)).collect();
        let numbers: BTreeMap<&'a str, i64> = numbers.into_keys().zip(0..).collect();
        let mut last = "";
        let (shared, rest) = numbers
            .keys()
            .map(|name| {
                let (units, rest) = after_shared(last, name);
                last = name;
                (units, rest)
            })
            .unzip();
        let column = |level: usize| {
            let mut before = 0;
            let each = rows
                .keys()
                .map(|key| numbers.get(key[level]).copied().unwrap_or(0));
            each.map(|number| number - std::mem::replace(&mut before, number))
                .collect()
        };
        let old = |before: fn((u64, u64)) -> u64, now: fn(&RowSizes) -> u64| {
            let each = rows.values().filter(|_| compared);
            each.map(|sizes| {
                sizes
                    .old
                    .map(|old| i128::from(now(sizes)) - i128::from(before(old)))
            })
            .collect()
        };
        Data {
            compared,
            shared,
            rest,
            input: column(0),
            member: column(1),
            arch: column(2),
            unit: column(3),
            template: column(4),
            kernel: column(5),
            part: column(6),
            file: rows.values().map(|sizes| sizes.file).collect(),
            inflated: rows
                .values()
                .map(|sizes| i128::from(sizes.inflated) - i128::from(sizes.file))
                .collect(),
            old_file: old(|(file, _)| file, |sizes| sizes.file),
            old_inflated: old(|(_, inflated)| inflated, |sizes| sizes.inflated),
        }
    }
}

/// The length of the prefix that `name` shares with `last` in UTF-16 units, and the rest of `name`.
fn after_shared<'a>(last: &str, name: &'a str) -> (usize, &'a str) {
    let same = last
        .chars()
        .zip(name.chars())
        .take_while(|(one, other)| one == other);
    let (bytes, units) = same.fold((0, 0), |(bytes, units), (c, _)| {
        (bytes + c.len_utf8(), units + c.len_utf16())
    });
    (units, name.get(bytes..).unwrap_or_default())
}

fn totals(rows: &BTreeMap<Key<'_>, RowSizes>) -> String {
    let sum = |of: fn(&RowSizes) -> u64| rows.values().map(of).sum::<u64>();
    format!(
        "{} bytes in the file, {} uncompressed",
        sum(|sizes| sizes.file),
        sum(|sizes| sizes.inflated)
    )
}

/// The tables for browsers without scripts: the architectures and the largest kernels.
fn tables(
    out: &mut impl Write,
    rows: &BTreeMap<Key<'_>, RowSizes>,
    compared: bool,
) -> io::Result<()> {
    let mut archs: BTreeMap<[&str; 2], RowSizes> = BTreeMap::new();
    let mut kernels: BTreeMap<[&str; 2], RowSizes> = BTreeMap::new();
    for ([_, _, arch, _, _, kernel, _], sizes) in rows {
        let row = PageRow {
            file: sizes.file,
            inflated: sizes.inflated,
            old_file: sizes.old.map(|(file, _)| file),
            old_inflated: sizes.old.map(|(_, inflated)| inflated),
            ..PageRow::default()
        };
        let arch = if arch.is_empty() { "containers" } else { arch };
        archs.entry([arch, ""]).or_default().add(&row);
        if !kernel.is_empty() {
            kernels.entry([kernel, arch]).or_default().add(&row);
        }
    }
    table(out, "Architectures", &["Architecture"], archs, compared)?;
    if !kernels.is_empty() {
        table(
            out,
            "The largest kernels",
            &["Kernel", "Architecture"],
            kernels,
            compared,
        )?;
    }
    Ok(())
}

fn table(
    out: &mut impl Write,
    caption: &str,
    names: &[&str],
    rows: BTreeMap<[&str; 2], RowSizes>,
    compared: bool,
) -> io::Result<()> {
    let mut rows: Vec<([&str; 2], RowSizes)> = rows.into_iter().collect();
    rows.sort_by_key(|(_, sizes)| std::cmp::Reverse(sizes.file));
    let numbers: &[&str] = if compared {
        &["In file", "Uncompressed", "Before"]
    } else {
        &["In file", "Uncompressed"]
    };
    write!(out, "  <table><caption>{caption}</caption><thead><tr>")?;
    names
        .iter()
        .try_for_each(|name| write!(out, "<th scope=\"col\">{name}</th>"))?;
    numbers
        .iter()
        .try_for_each(|name| write!(out, "<th scope=\"col\" class=\"number\">{name}</th>"))?;
    writeln!(out, "</tr></thead><tbody>")?;
    for (keys, sizes) in rows.iter().take(WITHOUT_SCRIPTS) {
        write!(out, "  <tr><th scope=\"row\">{}</th>", escaped(keys[0]))?;
        if names.len() > 1 {
            write!(out, "<td>{}</td>", escaped(keys[1]))?;
        }
        write!(
            out,
            "<td class=\"number\">{}</td><td class=\"number\">{}</td>",
            sizes.file, sizes.inflated
        )?;
        if compared {
            let old = sizes
                .old
                .map_or_else(|| "absent".to_owned(), |(file, _)| file.to_string());
            write!(out, "<td class=\"number\">{old}</td>")?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "  </tbody></table>")?;
    Ok(())
}

/// Tests of the contents of the page, without a browser; tests/suite/size/page tests the page in
/// Chromium.
#[cfg(test)]
mod tests {
    use std::io::Read;

    use serde_json::Value;

    use base64::prelude::Engine as _;

    use super::*;

    fn row(arch: &str, kernel: &str, part: &str, file: u64) -> PageRow {
        let [arch, kernel, part] = [arch, kernel, part].map(Into::into);
        PageRow {
            arch,
            kernel,
            part,
            file,
            inflated: 3 * file,
            ..PageRow::default()
        }
    }

    fn page(title: &str, compared: bool, rows: &[PageRow]) -> String {
        let mut out = Vec::new();
        write(&mut out, title, "offld 1", compared, rows).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Six names, the file size and uncompressed size, and both for the old file.
    type Row = (Vec<String>, i64, i64, Option<i64>, Option<i64>);

    /// The rows of a page, read as its script does.
    fn rows_of(page: &str) -> Vec<Row> {
        let data = page
            .split_once("id=\"data\">")
            .unwrap()
            .1
            .split_once("</script>")
            .unwrap()
            .0;
        let mut json = String::new();
        flate2::read::DeflateDecoder::new(&BASE64_STANDARD.decode(data).unwrap()[..])
            .read_to_string(&mut json)
            .unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        let list = |name: &str| json[name].as_array().unwrap().clone();
        let mut strings: Vec<Vec<u16>> = Vec::new();
        for (shared, rest) in list("shared").iter().zip(list("rest")) {
            let last = strings.last().cloned().unwrap_or_default();
            let start = &last[..usize::try_from(shared.as_u64().unwrap()).unwrap()];
            strings.push(
                [
                    start,
                    &rest.as_str().unwrap().encode_utf16().collect::<Vec<u16>>(),
                ]
                .concat(),
            );
        }
        let mut at = [0; 6];
        let columns = ["input", "arch", "unit", "template", "kernel", "part"].map(list);
        let [file, inflated, old_file, old_inflated] =
            ["file", "inflated", "old_file", "old_inflated"].map(list);
        let row = |i: usize| {
            let names = columns.iter().zip(&mut at).map(|(column, at)| {
                *at += column[i].as_i64().unwrap();
                String::from_utf16(&strings[usize::try_from(*at).unwrap()]).unwrap()
            });
            let names = names.collect();
            let size = file[i].as_i64().unwrap();
            let whole = size + inflated[i].as_i64().unwrap();
            let old = |now: i64, list: &[Value]| Some(now - list.get(i)?.as_i64()?);
            (
                names,
                size,
                whole,
                old(size, &old_file),
                old(whole, &old_inflated),
            )
        };
        (0..file.len()).map(row).collect()
    }

    #[test]
    fn rows_of_the_same_names_are_added_up() {
        let mut old = row("sm_80", "b", "code", 7);
        (old.old_file, old.old_inflated) = (Some(9), Some(5));
        let rows = [
            row("sm_80", "b", "code", 1),
            row("sm_80", "a", "code", 2),
            old.clone(),
            row("", "", "padding", 4),
        ];
        let names = |of: [&str; 6]| of.map(str::to_owned).to_vec();
        let plain = rows_of(&page("t", false, &rows));
        assert_eq!(
            plain[0],
            (names(["", "", "", "", "", "padding"]), 4, 12, None, None)
        );
        assert_eq!(
            plain[1],
            (names(["", "sm_80", "", "", "a", "code"]), 2, 6, None, None)
        );
        assert_eq!(
            plain[2],
            (names(["", "sm_80", "", "", "b", "code"]), 8, 24, None, None)
        );
        assert_eq!(plain.len(), 3);
        let compared = rows_of(&page("t", true, &rows));
        assert_eq!(compared[1].3, None, "a new row has no old size");
        assert_eq!((compared[2].3, compared[2].4), (Some(9), Some(5)));
    }

    #[test]
    fn any_name_comes_back_as_it_was() {
        // Outside of the basic plane, a character has two UTF-16 units. Two of these characters share
        // the first unit.
        let kernels = [
            "</script><img src=x onerror=alert(1)>",
            "a\u{1f600}b",
            "a\u{1f601}b",
            "a\u{2028}\u{2029}\n\t\"'&\0",
            "é",
            "ê",
            "{{title}}",
        ];
        let rows: Vec<PageRow> = kernels
            .iter()
            .map(|kernel| row("gfx90a", kernel, "code", 1))
            .collect();
        let mut found: Vec<String> = rows_of(&page("t", false, &rows))
            .into_iter()
            .map(|(names, ..)| names[4].clone())
            .collect();
        found.sort();
        let mut expected = kernels.map(str::to_owned);
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn hostile_names_are_text() {
        let hostile = "</script></noscript><img src=x onerror='alert(1)'>\" {{data}}";
        let page = page(hostile, false, &[row(hostile, hostile, hostile, 1)]);
        assert!(!page.contains("<img"), "{page}");
        assert_eq!(page.matches("</noscript>").count(), 1);
        assert_eq!(page.matches("</script>").count(), 2);
        // The title (twice), the architecture (twice) and the kernel. Text that looks like a
        // placeholder stays unchanged.
        let escaped = "&lt;/script&gt;&lt;/noscript&gt;&lt;img src=x onerror=&#39;alert(1)&#39;&gt;&quot; {{data}}";
        assert_eq!(page.matches(escaped).count(), 5, "{page}");
    }

    #[test]
    fn the_policy_allows_the_page_alone() {
        let page = page("t", false, &[row("gfx90a", "k", "code", 1)]);
        assert!(
            page.contains("content=\"default-src 'none'; script-src 'sha256-"),
            "{page}"
        );
        let elsewhere = [
            "http:",
            "https:",
            "//cdn",
            "@import",
            "url(",
            "src=\"",
            "fetch(",
            "XMLHttpRequest",
            "innerHTML",
            "eval(",
        ];
        for word in elsewhere {
            assert!(!page.contains(word), "`{word}` is in the page");
        }
    }

    #[test]
    fn nothing_is_a_page_as_well() {
        assert_eq!(rows_of(&page("t", true, &[])), []);
    }
}
