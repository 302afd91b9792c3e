//! The result of `offld::diff` as plain data, with the names that `offld diff --json` writes
//! (docs/reference/json.md); as tables for terminals or in Markdown, one for each architecture; and
//! as the page of `offld diff --html`.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::records::Disassembled;
use crate::html::{STYLE, escaped, fill, hash, unknown};
use offld_system::table::{Column, Style, table};
use offld_system::{atomic_file, shell};
use offload_formats::error::Error;
use offload_formats::model::printable;

/// The version of the report's format.
pub(super) const SCHEMA: u32 = 1;

/// The comparison of two builds.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of the JSON format: 1.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The files of the earlier build.
    pub old_files: Vec<String>,
    /// The files of the later build.
    pub new_files: Vec<String>,
    /// The architectures of both builds.
    pub archs: Vec<ArchDiff>,
}

/// The comparison of the kernels for one architecture.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ArchDiff {
    /// The architecture.
    pub arch: String,
    /// The number of kernels of the earlier build. 0: the architecture is new.
    pub old_kernels: u64,
    /// The number of kernels of the later build. 0: the architecture is gone.
    pub new_kernels: u64,
    /// The number of kernels that are the same in both builds.
    pub unchanged: u64,
    /// The number of kernels with equal facts whose code cannot be compared.
    pub unknown: u64,
    /// The kernels that differ. Empty if the architecture is new or gone.
    pub changes: Vec<Change>,
}

/// A kernel that differs.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// How it differs.
    pub change: Kind,
    /// The name in the source, or else the name in the image. For a kernel that is gone, the earlier
    /// name.
    pub kernel: String,
    /// The name in the image.
    pub mangled: String,
    /// The earlier name of a renamed kernel.
    pub old_name: Option<String>,
    /// The file or member with the kernel.
    pub place: String,
    /// Whether the code differs. None if that is unknown, or the kernel is in one build only.
    pub code_changed: Option<bool>,
    /// The facts that differ. For a kernel in one build only, all facts.
    pub facts: Vec<Fact>,
    /// The instructions that differ, as a unified diff, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_diff: Option<String>,
    /// The old and the new kernel, to disassemble them.
    #[serde(skip)]
    pub(super) images: Option<(Disassembled, Disassembled)>,
}

/// How a kernel differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Only the later build has it.
    New,
    /// Only the earlier build has it.
    Gone,
    /// Both builds have it, with different names.
    Renamed,
    /// The code or the use of resources differs.
    Changed,
}

impl Kind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::New => "new",
            Kind::Gone => "gone",
            Kind::Renamed => "renamed",
            Kind::Changed => "changed",
        }
    }
}

/// A number about a kernel, such as its registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fact {
    /// The name, as in reports of `offld inspect`, or `occupancy`.
    pub fact: String,
    /// The number in the earlier build.
    pub old: Option<u64>,
    /// The number in the later build.
    pub new: Option<u64>,
}

impl Report {
    /// Whether a kernel differs, or may differ because its code cannot be compared.
    pub fn differs(&self) -> bool {
        self.archs.iter().any(|arch| {
            !arch.changes.is_empty()
                || arch.unknown > 0
                || arch.old_kernels == 0
                || arch.new_kernels == 0
        })
    }

    /// The report as JSON, as `offld diff --json` prints it.
    ///
    /// # Errors
    /// No errors are known: all data can be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        shell::json(self).map_err(Error::of)
    }
}

const CHANGES: [Column; 3] = [
    Column::text("change"),
    Column::text("kernel"),
    Column::text("difference"),
];

/// Returns the report as tables.
pub fn text(report: &Report, style: Style) -> String {
    let mut out = String::new();
    for arch in &report.archs {
        let _ = writeln!(out, "{}", heading(arch));
        if !arch.changes.is_empty() {
            let rows: Vec<[String; 3]> = arch
                .changes
                .iter()
                .map(|change| row(change, style.mangled))
                .collect();
            table(&mut out, &CHANGES, &rows, style);
        }
        for (change, code) in changed_code(arch) {
            let _ = writeln!(out, "\n{}:", printable(&change.kernel));
            for line in code.lines() {
                let _ = writeln!(out, "  {}", printable(line));
            }
        }
    }
    out
}

/// Returns the report as Markdown, for comments and job summaries.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    for arch in &report.archs {
        let _ = writeln!(out, "**{}**\n", cell(&heading(arch)));
        if arch.changes.is_empty() {
            continue;
        }
        out.push_str("| Change | Kernel | Difference |\n|---|---|---|\n");
        for change in &arch.changes {
            let [kind, kernel, difference] = row(change, false).map(|text| cell(&text));
            let _ = writeln!(out, "| {kind} | `{kernel}` | {difference} |");
        }
        out.push('\n');
        for (change, code) in changed_code(arch) {
            let _ = writeln!(out, "`{}`\n\n```diff", cell(&change.kernel));
            for line in code.lines() {
                let _ = writeln!(out, "{}", printable(line));
            }
            out.push_str("```\n\n");
        }
    }
    out
}

/// The kernels with a disassembly of their changed code.
fn changed_code(arch: &ArchDiff) -> impl Iterator<Item = (&Change, &str)> {
    arch.changes
        .iter()
        .filter_map(|change| Some((change, change.code_diff.as_deref()?)))
}

/// Text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    printable(text).replace('|', "\\|").replace('`', "'")
}

/// The line about an architecture: `gfx90a: 1 of 12 kernels changed, 2 new`.
fn heading(arch: &ArchDiff) -> String {
    let kernels = |count: u64| match count {
        1 => "1 kernel".to_owned(),
        count => format!("{count} kernels"),
    };
    let name = printable(&arch.arch);
    match (arch.old_kernels, arch.new_kernels) {
        (0, count) => return format!("{name}: new architecture, {}", kernels(count)),
        (count, 0) => return format!("{name}: architecture gone, {}", kernels(count)),
        (_, count) if arch.changes.is_empty() && arch.unknown == 0 => {
            return format!("{name}: {}, no changes", kernels(count));
        }
        _ => {}
    }
    let count = |kind: Kind| {
        let own = arch.changes.iter().filter(|change| change.change == kind);
        own.count()
    };
    let counts = [Kind::Changed, Kind::New, Kind::Gone, Kind::Renamed]
        .into_iter()
        .filter(|kind| count(*kind) > 0)
        .map(|kind| format!("{} {}", count(kind), kind.name()));
    let unknown = (arch.unknown > 0).then(|| format!("code of {} not compared", arch.unknown));
    format!(
        "{name}: {}: {}",
        kernels(arch.new_kernels),
        counts.chain(unknown).collect::<Vec<_>>().join(", ")
    )
}

/// The cells of a change.
fn row(change: &Change, mangled: bool) -> [String; 3] {
    let name = if mangled && !change.mangled.is_empty() {
        change.mangled.clone()
    } else {
        change.kernel.clone()
    };
    [change.change.name().to_owned(), name, difference(change)]
}

/// The differences of a kernel, separated by commas. A kernel in one build only has none.
fn difference(change: &Change) -> String {
    if matches!(change.change, Kind::New | Kind::Gone) {
        return String::new();
    }
    let old = change.old_name.iter().map(|old| format!("was {old}"));
    let code = match change.code_changed {
        Some(true) => Some("code".to_owned()),
        Some(false) => None,
        None => Some("code unknown".to_owned()),
    };
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    let fact = |Fact { fact, old, new }: &Fact| {
        format!(
            "{} {} -> {}",
            fact.replace('_', " "),
            number(*old),
            number(*new)
        )
    };
    let parts = old.chain(code).chain(change.facts.iter().map(fact));
    parts.collect::<Vec<_>>().join(", ")
}

// The report as a page: one file with a table of the kernels that differ, which can be searched and
// sorted. The page looks like that of `offld size --html`, and loads nothing.

const PAGE: &str = include_str!("page/page.html");
/// What this page has in addition to the style of all pages.
const OWN_STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// The columns of the page.
const HEADINGS: [&str; 5] = ["Change", "Kernel", "Architecture", "Difference", "File"];

/// Writes the page to `path`, atomically.
///
/// # Errors
/// The page cannot be written.
pub fn save_page(report: &Report, path: &Path) -> Result<()> {
    let written = atomic_file::replace(path, |file| {
        let mut out = BufWriter::new(file);
        write_page(&mut out, report)?;
        Ok(out.flush()?)
    });
    written.with_context(|| format!("cannot write the page to {}", path.display()))
}

fn write_page(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let title = || {
        let files = |files: &[String]| match files {
            [one] => one.clone(),
            several => format!("{} files", several.len()),
        };
        let (old, new) = (files(&report.old_files), files(&report.new_files));
        format!("{new}, compared with {old}")
    };
    let style = format!("{STYLE}{OWN_STYLE}");
    fill(out, PAGE, |out, name| match name {
        "title" => out.write_all(escaped(&title()).as_bytes()),
        "generator" => out.write_all(escaped(&report.generator).as_bytes()),
        "style" => out.write_all(style.as_bytes()),
        "script" => out.write_all(SCRIPT.as_bytes()),
        "style-hash" => out.write_all(hash(&style).as_bytes()),
        "script-hash" => out.write_all(hash(SCRIPT).as_bytes()),
        "totals" => report
            .archs
            .iter()
            .try_for_each(|arch| write!(out, "<li>{}</li>", escaped(&heading(arch)))),
        "headings" => HEADINGS
            .iter()
            .try_for_each(|name| write!(out, "<th scope=\"col\">{name}</th>")),
        "rows" => page_rows(out, report),
        _ => Err(unknown(name)),
    })
}

fn page_rows(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for arch in &report.archs {
        for change in &arch.changes {
            let kernel = escaped(&change.kernel);
            let (arch, place) = (escaped(&arch.arch), escaped(&change.place));
            let difference = escaped(&difference(change));
            let code = change.code_diff.as_ref().map(|code| {
                let code = escaped(code);
                format!("<details><summary>code</summary><pre>{code}</pre></details>")
            });
            writeln!(
                out,
                "<tr><td>{}</td><th scope=\"row\"><bdi class=\"name\">{kernel}</bdi></th><td>{arch}</td><td class=\"difference\">{difference}{}</td><td>{place}</td></tr>",
                change.change.name(),
                code.unwrap_or_default()
            )?;
        }
    }
    Ok(())
}
