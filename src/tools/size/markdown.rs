//! Sizes as Markdown, for CI summaries.

use std::fmt::Write as _;

use super::Sizes;
use super::budget::Outcome;
use super::rows::{Row, sum_of_rows};
use super::table::change;
use crate::model::printable;
use crate::sys::table::{Style, size};

/// The tree `root`, the limits, and possible savings. At most `top` rows of a level are shown.
pub(crate) fn text(
    sizes: &Sizes,
    root: &Row,
    outcomes: &[Outcome],
    top: Option<usize>,
    style: Style,
) -> String {
    let mut out = String::new();
    for file in &sizes.files {
        let _ = writeln!(
            out,
            "**{}**: {}, {}, {} uncompressed",
            cell(&file.file),
            file.kind,
            size(file.size, style),
            size(file.inflated, style)
        );
    }
    let compared = root.old_file.is_some();
    out.push_str("\n| | images | kernels | file | share | uncompressed |");
    out.push_str(if compared {
        " change | change, uncompressed |\n"
    } else {
        "\n"
    });
    out.push_str("|---|--:|--:|--:|--:|--:|");
    out.push_str(if compared { "--:|--:|\n" } else { "\n" });
    rows(&mut out, &root.rows, 0, root, top, style);
    line(&mut out, "**total**", root, root, style);
    for outcome in outcomes {
        let (mark, text) = if outcome.kept {
            ("✅", &outcome.budget)
        } else {
            ("❌", &outcome.why)
        };
        let _ = writeln!(out, "\n{mark} {}", cell(text));
    }
    let found = &sizes.duplicates;
    let wasted: u64 = found
        .images
        .iter()
        .chain(&found.kernels)
        .map(|one| one.wasted_file)
        .sum();
    if wasted > 0 {
        let _ = writeln!(
            out,
            "\nRepeated images and kernels take {}.",
            size(wasted, style)
        );
    }
    for one in &found.not_compressed {
        let saved = size(one.estimated_saving, style);
        let (containers, are) = if one.count == 1 {
            ("container", "is")
        } else {
            ("containers", "are")
        };
        let (count, container, bytes) = (one.count, &one.container, size(one.size, style));
        let _ = writeln!(
            out,
            "\n{count} {container} {containers} with {bytes} {are} uncompressed: zstd would save about {saved}."
        );
    }
    out
}

fn rows(
    out: &mut String,
    rows_of_level: &[Row],
    depth: usize,
    root: &Row,
    top: Option<usize>,
    style: Style,
) {
    let shown = top.unwrap_or(rows_of_level.len()).min(rows_of_level.len());
    for row in &rows_of_level[..shown] {
        line(
            out,
            &format!("{}{}", "&emsp;".repeat(depth), cell(&row.name)),
            row,
            root,
            style,
        );
        rows(out, &row.rows, depth + 1, root, top, style);
    }
    if let Some(rest) = sum_of_rows(&rows_of_level[shown..], root.old_file.is_some()) {
        line(
            out,
            &format!(
                "{}{} more",
                "&emsp;".repeat(depth),
                rows_of_level.len() - shown
            ),
            &rest,
            root,
            style,
        );
    }
}

fn line(out: &mut String, name: &str, row: &Row, root: &Row, style: Style) {
    let count = |count: u64| {
        if count == 0 {
            String::new()
        } else {
            count.to_string()
        }
    };
    let share = row.file as f64 * 100.0 / root.file.max(1) as f64;
    let (images, kernels) = (count(row.images), count(row.kernels));
    let _ = write!(
        out,
        "| {name} | {images} | {kernels} | {} | {share:.1}% | {} |",
        size(row.file, style),
        size(row.inflated, style)
    );
    if root.old_file.is_some() {
        let file = change(row.change(), row.file, row.old_file, style);
        let inflated = change(row.inflated_change(), row.inflated, row.old_inflated, style);
        let _ = write!(out, " {file} | {inflated} |");
    }
    out.push('\n');
}

/// Escapes a name from a file: no character of the result is markup or changes the direction of the
/// following text.
fn cell(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in printable(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '*' | '_' | '`' | '\\' | '[' | ']' | '~' | '#' => {
                out.push('\\');
                out.push(letter);
            }
            letter => out.push(letter),
        }
    }
    out
}
