//! Self-contained HTML page of sizes: a treemap with zoom, and a table with search and sorting.
//! Everything is in one file, and its content security policy forbids the browser to load anything
//! else. This module writes the data of the page; its appearance and behaviour are in `page/`.
//!
//! Names of kernels come from files that may be hostile. The data is base64, and scripts insert
//! names into the page as text only. Names in the HTML itself (the title, and the tables for
//! browsers without scripts) are escaped.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page/page.html");
/// The style of all pages.
pub(crate) const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/data.js"),
    include_str!("page/treemap.js"),
    include_str!("page/table.js"),
    include_str!("page/page.js")
);
/// The number of kernels in a browser without scripts.
const WITHOUT_SCRIPTS: usize = 100;

/// Some bytes of a file, with all names that they belong to.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageRow {
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

/// Sizes in bytes, new and old.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    file: u64,
    inflated: u64,
    /// File size and uncompressed size; none if there was nothing before.
    old: Option<(u64, u64)>,
}

impl Sizes {
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
pub(crate) fn write(
    out: &mut impl Write,
    title: &str,
    generator: &str,
    compared: bool,
    rows: &[PageRow],
) -> io::Result<()> {
    let mut merged: BTreeMap<Key<'_>, Sizes> = BTreeMap::new();
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

/// Writes `page`, in which `value` writes the text in place of each `{{NAME}}`.
pub(crate) fn fill<W: Write>(
    out: &mut W,
    mut page: &str,
    mut value: impl FnMut(&mut W, &str) -> io::Result<()>,
) -> io::Result<()> {
    while let Some((before, rest)) = page.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let (name, after) = rest
            .split_once("}}")
            .ok_or_else(|| io::Error::other("page.html: `{{` without `}}`"))?;
        page = after;
        value(out, name)?;
    }
    out.write_all(page.as_bytes())
}

/// The error for a name in a page that has no value.
pub(crate) fn unknown(name: &str) -> io::Error {
    io::Error::other(format!("page.html: unknown name `{name}`"))
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
    fn of(rows: &BTreeMap<Key<'a>, Sizes>, compared: bool) -> Data<'a> {
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
        let old = |before: fn((u64, u64)) -> u64, now: fn(&Sizes) -> u64| {
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

/// The hash by which the content security policy identifies the style and the script.
pub(crate) fn hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// Escapes a text, so that HTML treats it as text everywhere.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML has no NUL character.
            '\0' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

fn totals(rows: &BTreeMap<Key<'_>, Sizes>) -> String {
    let sum = |of: fn(&Sizes) -> u64| rows.values().map(of).sum::<u64>();
    format!(
        "{} bytes in the file, {} uncompressed",
        sum(|sizes| sizes.file),
        sum(|sizes| sizes.inflated)
    )
}

/// The tables for browsers without scripts: the architectures and the largest kernels.
fn tables(out: &mut impl Write, rows: &BTreeMap<Key<'_>, Sizes>, compared: bool) -> io::Result<()> {
    let mut archs: BTreeMap<[&str; 2], Sizes> = BTreeMap::new();
    let mut kernels: BTreeMap<[&str; 2], Sizes> = BTreeMap::new();
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
    rows: BTreeMap<[&str; 2], Sizes>,
    compared: bool,
) -> io::Result<()> {
    let mut rows: Vec<([&str; 2], Sizes)> = rows.into_iter().collect();
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
