//! Tables for people: aligned columns that fit the terminal, and sizes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use crate::model::printable;

/// How the text is formatted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Style {
    /// Whether sizes are in bytes instead of K, M or G.
    pub bytes: bool,
    /// Whether kernels are named as in the image, and not as in the source.
    pub mangled: bool,
    /// How many characters fit into a line; none if there is no limit.
    pub width: Option<usize>,
}

/// A size with a unit, such as `1.5M`, with at least two significant digits.
pub(crate) fn size(bytes: u64, style: Style) -> String {
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

/// A length of time for people: `0.42 s`, `37 s`, `4 min 5 s`, `2 h 10 min`.
pub(crate) fn duration(time: Duration) -> String {
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

/// Appends rows as aligned columns; those in `right` are aligned to the right. Most cells are names from the file.
pub(crate) fn columns<R: AsRef<[String]>>(out: &mut String, rows: &[R], right: &[usize], style: Style) {
    let rows: Vec<Vec<Cow<'_, str>>> = rows.iter().map(|row| row.as_ref().iter().map(|cell| printable(cell)).collect()).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths = fitting((0..count).map(|column| width(column).unwrap_or_default()).collect(), style.width);
    for row in &rows {
        let mut line = String::from("  ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = shortened(cell, *width);
            let _ = match right.contains(&column) {
                true => write!(line, "{cell:>width$}  "),
                false => write!(line, "{cell:<width$}  "),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// `widths` made smaller, the largest first, until a line of them fits into `limit` characters.
fn fitting(mut widths: Vec<usize>, limit: Option<usize>) -> Vec<usize> {
    const NARROWEST: usize = 5;
    let line = |widths: &[usize]| widths.iter().map(|width| width + 2).sum::<usize>();
    while limit.is_some_and(|limit| line(&widths) > limit) {
        match widths.iter_mut().filter(|width| **width > NARROWEST).max() {
            Some(widest) => *widest -= 1,
            None => break,
        }
    }
    widths
}

/// `cell`, with its middle left out if it is longer than `width`: names differ at their ends.
fn shortened(cell: &str, width: usize) -> Cow<'_, str> {
    let count = cell.chars().count();
    if count <= width {
        return Cow::Borrowed(cell);
    }
    let (start, end) = ((width - 1).div_ceil(2), (width - 1) / 2);
    let kept = cell.chars().take(start).chain(['…']).chain(cell.chars().skip(count - end));
    Cow::Owned(kept.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let times = [0, 420, 9_994, 9_996, 59_400, 245_000, 7_800_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(times, ["0.00 s", "0.42 s", "9.99 s", "10 s", "59 s", "4 min 5 s", "2 h 10 min"]);
    }

    #[test]
    fn sizes_are_short_and_exact_where_asked() {
        let sizes = [0, 1023, 1024, 1536, 10_240, 5 << 30].map(|bytes| size(bytes, Style::default()));
        assert_eq!(sizes, ["0", "1023", "1.0K", "1.5K", "10K", "5.0G"]);
        assert_eq!(size(5 << 30, Style { bytes: true, ..Style::default() }), "5368709120");
    }
}
