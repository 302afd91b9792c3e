//! The report as text.

use std::time::Duration;

use super::{DeviceLink, Report, Step};
use crate::build_log::{Outcome, Summary};
use crate::model::printable;
use crate::sys::table::{self, Column, Style, left_out};
use crate::sys::terminal::wrapped;
use crate::sys::trace::span;

const PATH: [Column; 5] = [
    Column::number("start"),
    Column::number("time"),
    Column::text("step"),
    Column::text("device").shows_end(),
    Column::text("program").left_out(1),
];
const SLOWEST: [Column; 7] = [
    Column::number("time"),
    Column::number("cpu").left_out(3),
    Column::number("memory").left_out(2),
    Column::text("cache").left_out(1),
    Column::text("device").shows_end(),
    Column::text("program"),
    Column::text("inputs").left_out(4),
];
/// The numbers of inputs of a device link and of reasons that are shown.
const INPUTS: usize = 3;
const REASONS: usize = 10;

/// Formats a duration. Traces count in microseconds, so durations below one second are not rounded
/// to hundredths of a second.
fn time(micros: u64) -> String {
    match micros {
        0 => "0".to_owned(),
        1..1_000 => format!("{micros} us"),
        1_000..100_000 => format!("{:.1} ms", micros as f64 / 1e3),
        100_000..1_000_000 => format!("{:.0} ms", micros as f64 / 1e3),
        _ => table::duration(Duration::from_micros(micros)),
    }
}

/// Returns the display name of a span; clang's own names stay.
fn name_of_step(name: &str) -> &str {
    match name {
        "" => "gap: no trace or log covers this time",
        span::WHOLE => "the rest of the link",
        span::EXTRACT => "finding device code",
        span::DEVICE => "preparing device links",
        span::JOB => "preparing a device link",
        span::CLANG => "device link",
        span::BUNDLE => "bundling images",
        span::WRAP => "registration code",
        span::HOST => "host link",
        span::FILL => "inserting images into the program",
        other => other,
    }
}

/// Formats the report as text.
pub(crate) fn text(report: &Report, style: Style) -> String {
    let links = if report.device_links == 1 {
        "link"
    } else {
        "links"
    };
    let mut out = format!(
        "{} from the first start to the last end, {} device {links}\n",
        time(report.wall_us),
        report.device_links
    );
    out.push_str(&wrapped(&host_links(report), style.width));
    let mut hidden = Vec::new();
    if !report.critical_path.is_empty() {
        out.push_str("\ncritical path\n");
        let rows: Vec<_> = report.critical_path.iter().map(step).collect();
        hidden.extend(show(&mut out, &PATH, &rows, style));
    }
    if !report.slowest.is_empty() {
        out.push_str("\nslowest device links\n");
        let rows: Vec<_> = report
            .slowest
            .iter()
            .map(|link| device_link(link, style))
            .collect();
        hidden.extend(show(&mut out, &SLOWEST, &rows, style));
    }
    if let Some(cache) = &report.cache {
        cache_lines(&mut out, cache, style);
    }
    out + &wrapped(&left_out(&hidden), style.width)
}

/// Appends a table without its empty columns: a trace of another tool has no data about the cache.
/// Returns the titles of columns that do not fit.
fn show<const N: usize>(
    out: &mut String,
    columns: &[Column; N],
    rows: &[[String; N]],
    style: Style,
) -> Vec<&'static str> {
    let filled: Vec<usize> = (0..N)
        .filter(|column| rows.iter().any(|row| !row[*column].is_empty()))
        .collect();
    let columns: Vec<Column> = filled.iter().map(|column| columns[*column]).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| filled.iter().map(|column| row[*column].clone()).collect())
        .collect();
    table::table(out, &columns, &rows, style)
}

/// Formats a line about the host links; empty unless they took most of the time.
fn host_links(report: &Report) -> String {
    let steps = report
        .critical_path
        .iter()
        .filter(|step| step.what == span::HOST);
    let took: u64 = steps.clone().map(|step| step.wall_us).sum();
    if took * 2 < report.wall_us || took == 0 {
        return String::new();
    }
    let mut linkers: Vec<&str> = steps
        .map(|step| step.target.as_str())
        .filter(|linker| !linker.is_empty())
        .collect();
    linkers.dedup();
    let by = if linkers.is_empty() {
        String::new()
    } else {
        format!(" ({})", linkers.join(", "))
    };
    format!(
        "the host link{by} took most of the time: {} of {}\n",
        time(took),
        time(report.wall_us)
    )
}

fn step(step: &Step) -> [String; 5] {
    let what = name_of_step(&step.what).to_owned();
    [
        time(step.begin_us),
        time(step.wall_us),
        what,
        step.target.clone(),
        step.program.clone(),
    ]
}

fn device_link(link: &DeviceLink, style: Style) -> [String; 7] {
    let cache = match link.outcome {
        None => "",
        Some(Outcome::Hit) => "hit",
        Some(Outcome::Miss) => "miss",
        Some(Outcome::Uncached) => "not cached",
        Some(Outcome::Failed) => "failed",
    };
    let named = link.inputs.iter().take(INPUTS);
    let mut inputs: Vec<String> = named
        .clone()
        .map(|input| format!("{} {}", input.name, table::size(input.bytes, style)))
        .collect();
    let more = link.input_count.saturating_sub(inputs.len() as u64);
    if more > 0 {
        inputs.push(format!("{more} more"));
    }
    [
        time(link.wall_us),
        time(link.cpu_us),
        table::size(link.peak_memory, style),
        cache.to_owned(),
        link.target.clone(),
        link.program.clone(),
        inputs.join(", "),
    ]
}

fn cache_lines(out: &mut String, cache: &Summary, style: Style) {
    let counts: Vec<String> = Outcome::ALL
        .iter()
        .map(|(outcome, name)| format!("{name} {}", cache.count(*outcome)))
        .collect();
    let line = format!(
        "\ncache: {}; saved {}\n",
        counts.join(", "),
        time(cache.saved_wall_us)
    );
    out.push_str(&wrapped(&line, style.width));
    let name = |outcome: Outcome| {
        Outcome::ALL
            .iter()
            .find(|(own, _)| *own == outcome)
            .map_or("", |(_, name)| *name)
    };
    for reason in cache.reasons.iter().take(REASONS) {
        let line = format!(
            "  {:>4}  {:<10}  {}\n",
            reason.links,
            name(reason.outcome),
            printable(&reason.why)
        );
        out.push_str(&wrapped(&line, style.width));
    }
    let more = cache.reasons.len().saturating_sub(REASONS);
    if more > 0 {
        out.push_str(&format!("  and {more} more reasons\n"));
    }
}
