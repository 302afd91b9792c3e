//! Formats reports for people: tables with aligned columns that fit the terminal, sizes and
//! durations.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

pub use super::terminal::Style;
use offload_formats::model::printable;

/// A size with a unit, such as `1.5M`, with at least two significant digits.
pub fn size(bytes: u64, style: Style) -> String {
    const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match UNITS.get(unit) {
        Some(name) if unit > 0 && !style.bytes && value < 10.0 => format!("{value:.1}{name}"),
        Some(name) if unit > 0 && !style.bytes => format!("{value:.0}{name}"),
        _ => bytes.to_string(),
    }
}

/// A duration: `0.42 s`, `37 s`, `4 min 5 s`, `2 h 10 min`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.995 {
        return format!("{seconds:.2} s");
    }
    match seconds.round() as u64 {
        whole if whole < 60 => format!("{whole} s"),
        whole if whole < 60 * 60 => format!("{} min {} s", whole / 60, whole % 60),
        whole => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    title: &'static str,
    /// Whether its cells are numbers: aligned to the right, and never cut.
    number: bool,
    /// Order in which columns are omitted if the table is too wide: the highest number first. A
    /// column with 0 is never omitted.
    left_out: u8,
    /// Whether a long cell loses its start instead of its end.
    shows_end: bool,
}

impl Column {
    /// A column of names.
    pub const fn text(title: &'static str) -> Column {
        Column {
            title,
            number: false,
            left_out: 0,
            shows_end: false,
        }
    }

    /// A column of numbers.
    pub const fn number(title: &'static str) -> Column {
        Column {
            number: true,
            ..Column::text(title)
        }
    }

    /// Makes the column optional: if the table is too wide, columns with the highest `order` are
    /// omitted first.
    pub const fn left_out(self, order: u8) -> Column {
        Column {
            left_out: order,
            ..self
        }
    }

    /// Makes long cells lose their start, for locations whose end matters most.
    pub const fn shows_end(self) -> Column {
        Column {
            shows_end: true,
            ..self
        }
    }
}

/// Appends a table with a heading. If it is too wide, omits empty optional columns, and then other
/// optional ones by their order. Returns the titles of the omitted columns. Headings and numbers
/// are never cut, and long names only as far as needed.
pub fn table<R: AsRef<[String]>>(
    out: &mut String,
    columns: &[Column],
    rows: &[R],
    style: Style,
) -> Vec<&'static str> {
    let rows = printed(rows);
    let visible = fitting_columns(columns, &rows, style.width);
    let widths = widths(&visible, columns, &rows, style.width);
    let titles: Vec<Cow<'_, str>> = columns
        .iter()
        .map(|column| Cow::Borrowed(column.title))
        .collect();
    let heading = Some(&titles).filter(|_| columns.iter().any(|column| !column.title.is_empty()));
    for row in heading.into_iter().chain(&rows) {
        line(
            out,
            visible
                .iter()
                .zip(&widths)
                .map(|(at, width)| (columns[*at], row.get(*at), *width)),
            style,
        );
    }
    let left_out =
        |(at, column): (usize, &Column)| (!visible.contains(&at)).then_some(column.title);
    columns.iter().enumerate().filter_map(left_out).collect()
}

/// Appends rows as aligned columns. The first row is the heading. The columns in `right` are
/// numbers. No column is omitted.
pub fn columns<R: AsRef<[String]>>(out: &mut String, rows: &[R], right: &[usize], style: Style) {
    let rows = printed(rows);
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let columns: Vec<Column> = (0..count)
        .map(|at| {
            if right.contains(&at) {
                Column::number("")
            } else {
                Column::text("")
            }
        })
        .collect();
    let all: Vec<usize> = (0..count).collect();
    let heading = rows
        .first()
        .map(|row| row.iter().map(|title| length(title)).collect::<Vec<_>>())
        .unwrap_or_default();
    let widths = shrunk(
        &all,
        &columns,
        natural(&all, &columns, &rows),
        &heading,
        style.width,
    );
    for row in &rows {
        line(
            out,
            all.iter()
                .zip(&widths)
                .map(|(at, width)| (columns[*at], row.get(*at), *width)),
            style,
        );
    }
}

/// Formats the line about omitted columns; empty if there are none.
pub fn left_out(titles: &[&'static str]) -> String {
    let mut each = titles.to_vec();
    each.sort_unstable();
    each.dedup();
    if each.is_empty() {
        String::new()
    } else {
        format!("not shown: {} (--wide shows all)\n", each.join(", "))
    }
}

fn printed<R: AsRef<[String]>>(rows: &[R]) -> Vec<Vec<Cow<'_, str>>> {
    rows.iter()
        .map(|row| row.as_ref().iter().map(|cell| printable(cell)).collect())
        .collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Width of a line with these columns: each has two blanks before it.
fn line_width(widths: &[usize]) -> usize {
    widths.iter().map(|width| width + 2).sum()
}

/// Indices of the visible columns.
fn fitting_columns(
    columns: &[Column],
    rows: &[Vec<Cow<'_, str>>],
    limit: Option<usize>,
) -> Vec<usize> {
    let mut visible: Vec<usize> = (0..columns.len()).collect();
    let Some(limit) = limit else { return visible };
    if line_width(&natural(&visible, columns, rows)) <= limit {
        return visible;
    }
    let is_empty = |at: usize| {
        rows.iter()
            .all(|row| row.get(at).is_none_or(|cell| matches!(&**cell, "" | "-")))
    };
    visible.retain(|at| columns[*at].left_out == 0 || !is_empty(*at));
    let fits = |visible: &[usize]| {
        let least = visible.iter().zip(natural(visible, columns, rows));
        line_width(
            &least
                .map(|(at, width)| least_width(columns[*at], width))
                .collect::<Vec<_>>(),
        ) <= limit
    };
    while !fits(&visible) {
        let next = visible
            .iter()
            .enumerate()
            .filter(|(_, at)| columns[**at].left_out > 0);
        let Some((place, _)) = next.max_by_key(|(_, at)| columns[**at].left_out) else {
            break;
        };
        visible.remove(place);
    }
    visible
}

/// Width to which a column shrinks before others are omitted.
fn least_width(column: Column, natural: usize) -> usize {
    const NAMES: usize = 17;
    if column.number {
        natural
    } else {
        natural.min(NAMES.max(length(column.title)))
    }
}

/// Width of each column without a limit.
fn natural(visible: &[usize], columns: &[Column], rows: &[Vec<Cow<'_, str>>]) -> Vec<usize> {
    let cell = |at: usize| {
        rows.iter()
            .filter_map(move |row| row.get(at))
            .map(|cell| length(cell))
    };
    visible
        .iter()
        .map(|at| {
            cell(*at)
                .chain([length(columns[*at].title)])
                .max()
                .unwrap_or_default()
        })
        .collect()
}

fn widths(
    visible: &[usize],
    columns: &[Column],
    rows: &[Vec<Cow<'_, str>>],
    limit: Option<usize>,
) -> Vec<usize> {
    let titles: Vec<usize> = columns.iter().map(|column| length(column.title)).collect();
    shrunk(
        visible,
        columns,
        natural(visible, columns, rows),
        &titles,
        limit,
    )
}

/// Shrinks `widths`, the largest first, until a line fits into `limit` characters. Numbers stay,
/// and no column gets narrower than its heading.
fn shrunk(
    visible: &[usize],
    columns: &[Column],
    mut widths: Vec<usize>,
    titles: &[usize],
    limit: Option<usize>,
) -> Vec<usize> {
    const NARROWEST: usize = 5;
    let Some(limit) = limit else { return widths };
    let least = |at: usize| titles.get(at).copied().unwrap_or_default().max(NARROWEST);
    while line_width(&widths) > limit {
        let names = widths
            .iter_mut()
            .zip(visible)
            .filter(|(width, at)| !columns[**at].number && **width > least(**at));
        match names.map(|(width, _)| width).max() {
            Some(widest) => *widest -= 1,
            None => break,
        }
    }
    widths
}

/// Appends a row. Each item is a column, its cell, and its width.
fn line<'c>(
    out: &mut String,
    cells: impl Iterator<Item = (Column, Option<&'c Cow<'c, str>>, usize)>,
    style: Style,
) {
    let mut line = String::from("  ");
    for (column, cell, width) in cells {
        let cell = shortened(cell.map_or("", |cell| cell), width, column.shows_end, style);
        let _ = match column.number {
            true => write!(line, "{cell:>width$}  "),
            false => write!(line, "{cell:<width$}  "),
        };
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// Cuts `cell` to `width` characters. Paths, and cells of columns with `shows_end`, lose their
/// start; others lose their end.
fn shortened(cell: &str, width: usize, shows_end: bool, style: Style) -> Cow<'_, str> {
    let count = length(cell);
    if count <= width {
        return Cow::Borrowed(cell);
    }
    let mark = style.ellipsis();
    let left = width.saturating_sub(length(mark));
    let is_path = cell.contains('/') && !cell.contains([' ', '<', '(']);
    Cow::Owned(if shows_end || is_path {
        mark.chars()
            .chain(cell.chars().skip(count - left))
            .collect()
    } else {
        cell.chars().take(left).chain(mark.chars()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: usize) -> (String, Vec<&'static str>) {
        const COLUMNS: [Column; 5] = [
            Column::number("#"),
            Column::text("where").shows_end(),
            Column::text("packed").left_out(1),
            Column::text("sha256").left_out(2),
            Column::text("name"),
        ];
        let row = |cells: [&str; 5]| cells.map(str::to_owned);
        let rows = [
            row([
                "0",
                ".hip_fatbin+0x1000",
                "-",
                "e3b0c44298fc",
                "void fill<float>(float*, int)",
            ]),
            row([
                "1",
                ".hip_fatbin+0x21000",
                "-",
                "2c3d",
                "/usr/lib/x86_64-linux-gnu/libm.so",
            ]),
        ];
        let mut out = String::new();
        let hidden = table(
            &mut out,
            &COLUMNS,
            &rows,
            Style {
                width: Some(width),
                ..Style::default()
            },
        );
        (out, hidden)
    }

    #[test]
    fn columns_are_left_out_and_headings_are_never_cut() {
        let (whole, none) = shown(200);
        assert!(
            whole.contains("packed") && whole.contains(".hip_fatbin+0x21000") && none.is_empty(),
            "{whole}"
        );
        let (some, hidden) = shown(60);
        assert_eq!(hidden, ["packed"], "{some}");
        assert!(
            some.contains("  sha256  ") && some.lines().all(|line| length(line) <= 60),
            "{some}"
        );
        let (few, hidden) = shown(40);
        assert_eq!(hidden, ["packed", "sha256"]);
        assert!(few.lines().all(|line| length(line) <= 40), "{few}");
        assert!(
            few.contains("…")
                && few.contains("+0x21000")
                && few.contains("  void fill<")
                && few.contains("/libm.so\n"),
            "{few}"
        );
        let (least, _) = shown(20);
        assert!(
            least.contains("  where  ") && least.contains("  name\n"),
            "{least}"
        );
        let ascii = Style {
            ascii: true,
            width: Some(40),
            ..Style::default()
        };
        assert_eq!(shortened("abcdefghij", 6, false, ascii), "abc...");
    }

    #[test]
    fn times_are_short() {
        let times = [0, 420, 9_994, 9_996, 59_400, 245_000, 7_800_000]
            .map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(
            times,
            [
                "0.00 s",
                "0.42 s",
                "9.99 s",
                "10 s",
                "59 s",
                "4 min 5 s",
                "2 h 10 min"
            ]
        );
    }

    #[test]
    fn sizes_are_short_or_exact_on_request() {
        let sizes =
            [0, 1023, 1024, 1536, 10_240, 5 << 30].map(|bytes| size(bytes, Style::default()));
        assert_eq!(sizes, ["0", "1023", "1.0K", "1.5K", "10K", "5.0G"]);
        assert_eq!(
            size(
                5 << 30,
                Style {
                    bytes: true,
                    ..Style::default()
                }
            ),
            "5368709120"
        );
    }
}
