//! The comparison as text: a table for each architecture, for terminals or as Markdown.

use std::fmt::Write as _;

use super::report::{ArchDiff, Change, Fact, Kind, Report};
use offld_system::table::{Column, Style, table};
use offload_formats::model::printable;

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
        let _ = writeln!(out, "**{}**\n", escaped(&heading(arch)));
        if arch.changes.is_empty() {
            continue;
        }
        out.push_str("| Change | Kernel | Difference |\n|---|---|---|\n");
        for change in &arch.changes {
            let [kind, kernel, difference] = row(change, false).map(|cell| escaped(&cell));
            let _ = writeln!(out, "| {kind} | `{kernel}` | {difference} |");
        }
        out.push('\n');
        for (change, code) in changed_code(arch) {
            let _ = writeln!(out, "`{}`\n\n```diff", escaped(&change.kernel));
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
fn escaped(text: &str) -> String {
    printable(text).replace('|', "\\|").replace('`', "'")
}

/// The line about an architecture: `gfx90a: 1 of 12 kernels changed, 2 new`.
pub(super) fn heading(arch: &ArchDiff) -> String {
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
pub(super) fn difference(change: &Change) -> String {
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
