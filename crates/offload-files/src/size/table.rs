//! Sizes as tables for the terminal, and as Markdown.

use std::fmt::Write as _;

use console::style;

use super::Sizes;
use super::budget::Outcome;
use super::duplicates::{Repeated, Served};
use super::items::Level;
use super::report::{self, Row, View, sum_of_rows, tree};
use crate::contents::report::UNREADABLE;
use offld_system::table::{Column, Style, columns, left_out, size, table};
use offld_system::terminal::wrapped;
use offload_formats::model::printable;

/// The columns of a tree, without and with a comparison.
const COLUMNS: [Column; 8] = [
    Column::text(""),
    Column::number("images").left_out(3),
    Column::number("kernels").left_out(2),
    Column::number("file"),
    Column::number("share").left_out(1),
    Column::number("uncompressed").left_out(4),
    Column::number("change"),
    Column::number("change, uncompressed").left_out(5),
];

/// Limit of the repeated images, and of the repeated kernels, without `--duplicates`.
const FEW: usize = 3;

/// Options of tables.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// The style of columns and sizes.
    pub style: Style,
    /// The limit of rows of a level; none for all.
    pub top: Option<usize>,
    /// Whether up to `top` rows of repeated images and kernels are shown instead of `FEW`.
    pub duplicates: bool,
    /// Whether to use colours.
    pub colour: bool,
}

/// The default output without levels: architectures, the purpose of bytes, the largest kernels, and
/// duplicates.
pub fn overview(sizes: &Sizes, old: Option<&Sizes>, by_inflated: bool, look: Look) -> String {
    let mut out = String::new();
    // Files that could not be opened are in the errors.
    let files = || sizes.files.iter().filter(|file| file.kind != UNREADABLE);
    for file in files() {
        let inflated = if file.inflated == file.size {
            String::new()
        } else {
            format!(", {} uncompressed", size(file.inflated, look.style))
        };
        let has_code = sizes
            .images
            .iter()
            .any(|image| image.input == file.file && image.arch != "host");
        let code = if has_code { "" } else { ", no device code" };
        let (name, bytes) = (printable(&file.file), size(file.size, look.style));
        let _ = writeln!(out, "{name}: {}, {bytes}{inflated}{code}", file.kind);
    }
    if files().next().is_none() {
        return out;
    }
    let mut hidden = Vec::new();
    let sections = [
        ("By architecture", Level::Arch),
        ("By part", Level::Part),
        ("Largest kernels", Level::Template),
    ];
    for (title, level) in sections {
        let view = View {
            by: vec![level],
            by_inflated,
        };
        let mut root = tree(&sizes.items, old.map(|old| &old.items), &view);
        if level == Level::Template {
            root.rows
                .retain(|row| row.name != Level::Template.nothing());
        }
        // A table with one row would repeat the line of the file.
        if root.rows.len() <= usize::from(root.images == 0) {
            continue;
        }
        let _ = writeln!(out, "\n{}", heading(title, look));
        out.push_str(&tree_table(
            &root,
            level != Level::Template,
            look,
            &mut hidden,
        ));
    }
    out.push_str(&wrapped(&left_out(&hidden), look.style.width));
    duplicates(&mut out, sizes, look);
    out
}

/// The rows of a tree, indented by their level. `total`: add a line for all of them.
pub(crate) fn of_tree(root: &Row, total: bool, look: Look) -> String {
    let mut hidden = Vec::new();
    let out = tree_table(root, total, look, &mut hidden);
    out + &wrapped(&left_out(&hidden), look.style.width)
}

/// The same as [`of_tree`] without the line about omitted columns. Their names are added to
/// `hidden`.
fn tree_table(root: &Row, total: bool, look: Look, hidden: &mut Vec<&'static str>) -> String {
    let compared = root.old_file.is_some();
    let mut lines = Vec::new();
    collect(&root.rows, 0, root.file, compared, look, &mut lines);
    if total {
        lines.push(line("total", root, 0, root.file, compared, look));
    }
    let shown = if compared {
        &COLUMNS[..]
    } else {
        &COLUMNS[..6]
    };
    let mut out = String::new();
    hidden.extend(table(&mut out, shown, &lines, look.style));
    if look.colour && compared {
        coloured(&out)
    } else {
        out
    }
}

fn collect(
    rows: &[Row],
    depth: usize,
    all: u64,
    compared: bool,
    look: Look,
    lines: &mut Vec<Vec<String>>,
) {
    let shown = look.top.unwrap_or(rows.len()).min(rows.len());
    // A line `1 more` is as long as the row that it replaces.
    let shown = if rows.len() == shown + 1 {
        rows.len()
    } else {
        shown
    };
    for row in &rows[..shown] {
        // A template with one instance needs no line of its own.
        let row = match row.rows.as_slice() {
            [only] if row.level == Level::Template.name() => only,
            _ => row,
        };
        lines.push(line(&row.name, row, depth, all, compared, look));
        collect(&row.rows, depth + 1, all, compared, look, lines);
    }
    if let Some(more) = sum_of_rows(&rows[shown..], compared) {
        lines.push(line(
            &format!("{} more", rows.len() - shown),
            &more,
            depth,
            all,
            compared,
            look,
        ));
    }
}

fn line(name: &str, row: &Row, depth: usize, all: u64, compared: bool, look: Look) -> Vec<String> {
    let count = |count: u64| {
        if count == 0 {
            String::new()
        } else {
            count.to_string()
        }
    };
    let share = if all == 0 {
        0.0
    } else {
        row.file as f64 * 100.0 / all as f64
    };
    let mut cells = vec![
        format!("{}{}", "  ".repeat(depth), name),
        count(row.images),
        count(row.kernels),
        size(row.file, look.style),
        format!("{share:.1}%"),
        size(row.inflated, look.style),
    ];
    if compared {
        cells.push(change(row.change(), row.file, row.old_file, look.style));
        cells.push(change(
            row.inflated_change(),
            row.inflated,
            row.old_inflated,
            look.style,
        ));
    }
    cells
}

/// The change of a size, with its sign.
pub(super) fn change(change: i64, new: u64, old: Option<u64>, style: Style) -> String {
    let sign = if change < 0 { '-' } else { '+' };
    let word = match (new, old) {
        (_, Some(0)) if new > 0 => " new",
        (0, Some(old)) if old > 0 => " gone",
        _ => "",
    };
    if change == 0 {
        "=".to_owned()
    } else {
        format!("{sign}{}{word}", size(change.unsigned_abs(), style))
    }
}

/// Colours the lines of a comparison: growth in red, decrease in green. The signs have the same
/// meaning without colours.
fn coloured(text: &str) -> String {
    let colour = |line: &str| {
        let grew = line
            .split_whitespace()
            .rev()
            .take(4)
            .any(|word| word.starts_with('+'));
        let shrank = line
            .split_whitespace()
            .rev()
            .take(4)
            .any(|word| word.starts_with('-'));
        let styled = if grew {
            style(line).red()
        } else if shrank {
            style(line).green()
        } else {
            style(line)
        };
        format!("{}\n", styled.force_styling(true))
    };
    text.lines().map(colour).collect()
}

fn heading(text: &str, look: Look) -> String {
    if look.colour {
        style(text).bold().force_styling(true).to_string()
    } else {
        text.to_owned()
    }
}

/// Appends the repeated data, and the containers that are not compressed.
pub(crate) fn duplicates(out: &mut String, sizes: &Sizes, look: Look) {
    let found = &sizes.duplicates;
    repeated(out, "Repeated images", &found.images, look);
    repeated(
        out,
        "Repeated kernels and device functions",
        &found.kernels,
        look,
    );
    if !found.served.is_empty() {
        let _ = writeln!(
            out,
            "\n{}",
            heading(
                "Architectures whose devices also run images of another architecture",
                look
            )
        );
        let mut lines =
            vec![["arch", "images", "file", "uncompressed", "run by"].map(str::to_owned)];
        let line = |one: &Served| {
            let sizes = [one.file, one.inflated].map(|bytes| size(bytes, look.style));
            let [file, inflated] = sizes;
            [
                one.arch.clone(),
                one.images.to_string(),
                file,
                inflated,
                one.by.clone(),
            ]
        };
        lines.extend(
            found
                .served
                .iter()
                .take(look.top.unwrap_or(usize::MAX))
                .map(line),
        );
        columns(out, &lines, &[1, 2, 3], look.style);
    }
    for one in &found.not_compressed {
        let (containers, are) = if one.count == 1 {
            ("container", "is")
        } else {
            ("containers", "are")
        };
        let _ = writeln!(
            out,
            "\n{} {} {containers} with {} {are} uncompressed: zstd would save about {} (estimated from samples)",
            one.count,
            one.container,
            size(one.size, look.style),
            size(one.estimated_saving, look.style)
        );
    }
}

fn repeated(out: &mut String, title: &str, all: &[Repeated], look: Look) {
    if all.is_empty() {
        return;
    }
    let wasted: u64 = all.iter().map(|one| one.wasted_file).sum();
    let inflated: u64 = all.iter().map(|one| one.wasted_inflated).sum();
    let (wasted, inflated) = (size(wasted, look.style), size(inflated, look.style));
    let title =
        format!("{title}: up to {wasted} in the file ({inflated} uncompressed) could be saved");
    let _ = writeln!(out, "\n{}", heading(&title, look));
    let with_kernels = all.iter().any(|one| one.kernel.is_some());
    let mut lines = vec![
        vec![
            if with_kernels { "kernel" } else { "" },
            "arch",
            "copies",
            "size",
            "wasted",
            "where",
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>(),
    ];
    let most = look
        .top
        .unwrap_or(all.len())
        .min(if look.duplicates { all.len() } else { FEW });
    let shown = most.min(all.len());
    for one in &all[..shown] {
        lines.push(vec![
            one.kernel.clone().unwrap_or_default(),
            one.arch.clone(),
            one.copies.to_string(),
            size(one.size, look.style),
            size(one.wasted_file, look.style),
            few(&one.places),
        ]);
    }
    columns(out, &lines, &[2, 3, 4], look.style);
    if shown < all.len() {
        let rest: u64 = all[shown..].iter().map(|one| one.wasted_file).sum();
        let option = if look.duplicates {
            ""
        } else {
            " (pass --duplicates to list them)"
        };
        let _ = writeln!(
            out,
            "  {} more, {}{option}",
            all.len() - shown,
            size(rest, look.style)
        );
    }
}

/// Some of the locations, and the number of the others.
fn few(places: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = places
        .iter()
        .take(SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if places.len() > SHOWN {
        format!("{shown} and {} more", places.len() - SHOWN)
    } else {
        shown
    }
}

/// The limits that are not exceeded.
pub fn budgets(outcomes: &[Outcome]) -> String {
    outcomes
        .iter()
        .filter(|outcome| outcome.kept)
        .map(|outcome| format!("ok: {}\n", outcome.budget))
        .collect()
}

/// The tree in the form `view`, as a table.
pub fn by(sizes: &Sizes, old: Option<&Sizes>, view: &View, look: Look) -> String {
    of_tree(
        &report::tree(&sizes.items, old.map(|old| &old.items), view),
        true,
        look,
    )
}

// Sizes as Markdown, for CI summaries.

/// The tree `root`, the limits, and possible savings. At most `top` rows of a level are shown.
pub fn markdown(
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
            markdown_cell(&file.file),
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
    markdown_rows(&mut out, &root.rows, 0, root, top, style);
    markdown_line(&mut out, "**total**", root, root, style);
    for outcome in outcomes {
        let (mark, text) = if outcome.kept {
            ("✅", &outcome.budget)
        } else {
            ("❌", &outcome.why)
        };
        let _ = writeln!(out, "\n{mark} {}", markdown_cell(text));
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

fn markdown_rows(
    out: &mut String,
    rows_of_level: &[Row],
    depth: usize,
    root: &Row,
    top: Option<usize>,
    style: Style,
) {
    let shown = top.unwrap_or(rows_of_level.len()).min(rows_of_level.len());
    for row in &rows_of_level[..shown] {
        markdown_line(
            out,
            &format!("{}{}", "&emsp;".repeat(depth), markdown_cell(&row.name)),
            row,
            root,
            style,
        );
        markdown_rows(out, &row.rows, depth + 1, root, top, style);
    }
    if let Some(rest) = sum_of_rows(&rows_of_level[shown..], root.old_file.is_some()) {
        markdown_line(
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

fn markdown_line(out: &mut String, name: &str, row: &Row, root: &Row, style: Style) {
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
fn markdown_cell(text: &str) -> String {
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
