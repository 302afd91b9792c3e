//! `offld explain`: reports which steps of a build took time. It reads time traces
//! (`--wrapper-time-trace=`, and those of clang and of LLVM's own wrapper) and logs
//! (`OFFLD_CACHE_LOG`). The report contains the critical path, the slowest device links, cache
//! hits, and the reasons for misses.

mod trace;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::build_log::{self, Damaged, Input, Outcome, Record, Summary};
use offld_system::table::{self, Column, Style, left_out};
use offld_system::terminal::wrapped;
use offld_system::trace::span;
use offload_formats::model::printable;
use trace::Trace;

/// The version of the JSON schema. It changes if a key is removed or changes its meaning.
const SCHEMA: u32 = 1;

/// The report on a build.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    schema: u32,
    /// The same number under its name up to offld 0.9.
    version: u32,
    /// The files that were read.
    files: Vec<SourceFile>,
    /// The start of the first step in the files, in microseconds since 1970.
    begin_us: u64,
    /// The time from there to the end of the last step, in microseconds.
    wall_us: u64,
    /// The steps that determined the duration, from the first to the last.
    critical_path: Vec<Step>,
    /// The slowest device links, the slowest first.
    slowest: Vec<DeviceLink>,
    /// The total number of device links.
    device_links: u64,
    /// The cache statistics from the logs; `None` without a log.
    cache: Option<Summary>,
    /// The damaged lines of logs, which are not counted.
    #[serde(skip)]
    pub(crate) damaged: Vec<Damaged>,
}

#[derive(Debug, Serialize)]
struct SourceFile {
    path: String,
    kind: SourceKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum SourceKind {
    Trace,
    Log,
}

/// A part of the critical path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Step {
    /// The start, in microseconds after the start of the build.
    begin_us: u64,
    /// The contribution to the critical path, in microseconds.
    wall_us: u64,
    /// The program, or the file with the trace.
    program: String,
    /// The step; empty for time that no file covers.
    what: String,
    /// The device of a device link, the linker of a host link.
    target: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct DeviceLink {
    /// The duration without the wait for permission to run, in microseconds.
    wall_us: u64,
    waited_us: u64,
    cpu_us: u64,
    peak_memory: u64,
    program: String,
    target: String,
    /// The outcome in the cache, if a log contains it.
    outcome: Option<Outcome>,
    why: String,
    input_count: u64,
    input_bytes: u64,
    /// The largest inputs.
    inputs: Vec<Input>,
}

impl DeviceLink {
    fn of_record(record: &Record) -> DeviceLink {
        DeviceLink {
            wall_us: record.wall_us.saturating_sub(record.waited_us),
            waited_us: record.waited_us,
            cpu_us: record.cpu_us,
            peak_memory: record.peak_memory,
            program: record.program.clone(),
            target: record.target(),
            outcome: Some(record.outcome),
            why: record.why.clone(),
            input_count: record.input_count,
            input_bytes: record.input_bytes,
            inputs: record.inputs.clone(),
        }
    }
}

/// Combines all `files` into one report. `top`: the number of slowest device links to list; `None`
/// for all.
///
/// # Errors
/// A file is unreadable, is neither a trace nor a log, is a damaged trace, or is a log without an
/// intact line.
pub(crate) fn explain(files: &[PathBuf], top: Option<usize>) -> Result<Report> {
    let (mut traces, mut records, mut sources, mut damaged) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for file in files {
        let kind = kind_of(file)?;
        match kind {
            SourceKind::Trace => traces.push(trace::read(file)?),
            SourceKind::Log => {
                let log = build_log::read(file)?;
                records.extend(log.records);
                damaged.extend(log.damaged);
            }
        }
        sources.push(SourceFile {
            path: file.to_string_lossy().into_owned(),
            kind,
        });
    }
    // A link that is in both a trace and a log counts once; the log has more data.
    let is_logged = |trace: &Trace| records.iter().any(|record| trace.has(record));
    let of_traces = traces
        .iter()
        .filter(|trace| !is_logged(trace))
        .flat_map(Trace::device_links);
    let mut slowest: Vec<DeviceLink> = records
        .iter()
        .map(DeviceLink::of_record)
        .chain(of_traces)
        .collect();
    let device_links = slowest.len() as u64;
    slowest.sort_by(|a, b| {
        b.wall_us
            .cmp(&a.wall_us)
            .then_with(|| (&a.program, &a.target).cmp(&(&b.program, &b.target)))
    });
    slowest.truncate(top.unwrap_or(usize::MAX));
    let path = trace::critical_path(&traces, &records);
    Ok(Report {
        schema: SCHEMA,
        version: SCHEMA,
        files: sources,
        begin_us: path.begin_us,
        wall_us: path.wall_us,
        critical_path: path.steps,
        slowest,
        device_links,
        cache: (!records.is_empty()).then(|| Summary::of(&records)),
        damaged,
    })
}

/// Determines from the beginning of a file whether it is a trace or a log. The first line of a log
/// may be damaged.
fn kind_of(file: &Path) -> Result<SourceKind> {
    use std::io::Read;
    let mut start = Vec::new();
    let opened =
        std::fs::File::open(file).and_then(|file| file.take(1 << 20).read_to_end(&mut start));
    opened.with_context(|| format!("cannot read `{}`", file.display()))?;
    let start = start.trim_ascii_start();
    match start.first() {
        None => bail!(
            "{}:1: empty file: expected a time trace or a build log",
            file.display()
        ),
        Some(_)
            if start
                .split(|byte| *byte == b'\n')
                .any(|line| line.starts_with(b"{\"version\"")) =>
        {
            Ok(SourceKind::Log)
        }
        Some(b'{' | b'[') => Ok(SourceKind::Trace),
        Some(_) => bail!("{}:1: neither a time trace nor a build log", file.display()),
    }
}

// The report as text.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_log::example;

    #[test]
    fn a_link_in_a_trace_and_a_log_is_one_link() {
        let dir = tempfile::tempdir().unwrap();
        let (log, trace) = (dir.path().join("log"), dir.path().join("trace.json"));
        let record = Record {
            wall_us: 4_000,
            why: "a.o has changed".to_owned(),
            ..example(Outcome::Miss)
        };
        let other = Record {
            process: 8,
            wall_us: 9_000,
            time_us: record.time_us + 20_000,
            ..example(Outcome::Hit)
        };
        let lines = [&record, &other]
            .map(|record| serde_json::to_string(record).unwrap())
            .join("\n{\"version\":1,\n");
        std::fs::write(&log, lines).unwrap();
        let spans = trace::example_text(record.time_us - 100, 7);
        std::fs::write(&trace, &spans).unwrap();
        let report = explain(&[trace.clone(), log.clone()], None).unwrap();
        assert_eq!((report.device_links, report.slowest.len()), (2, 2));
        assert_eq!(report.slowest[0].wall_us, 9_000);
        assert_eq!(report.slowest[1].why, "a.o has changed");
        assert_eq!(report.cache.as_ref().unwrap().links, 2);
        let warnings: Vec<String> = report.damaged.iter().map(Damaged::warning).collect();
        assert_eq!(
            warnings,
            [format!("{}:2: skipped a damaged line", log.display())]
        );
        assert_eq!(
            explain(std::slice::from_ref(&trace), Some(1))
                .unwrap()
                .slowest
                .len(),
            1
        );
        let alone = explain(&[trace], None).unwrap();
        assert!(
            alone.cache.is_none() && alone.device_links == 2,
            "{alone:?}"
        );
        let value: serde_json::Value =
            serde_json::from_str(&offld_system::shell::json(&report).unwrap()).unwrap();
        assert_eq!(
            (&value["schema"], &value["version"]),
            (&1.into(), &1.into())
        );
        assert!(text(&report, offld_system::table::Style::default()).contains("a.o has changed"));
    }

    #[test]
    fn damaged_files_are_named_with_their_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let whole = trace::example_text(1, 7);
        let says = |contents: &str| {
            std::fs::write(&file, contents).unwrap();
            format!(
                "{:#}",
                explain(std::slice::from_ref(&file), None).unwrap_err()
            )
        };
        let at = |line: u32| format!("{}:{line}: ", file.display());
        for (contents, line) in [
            ("", 1),
            ("text", 1),
            (&whole[..whole.len() / 2], 1),
            ("{\n\"traceEvents\": [\n7\n]}", 3),
            ("{\"version\":1,\n", 1),
            ("{\"traceEvents\": []}", 1),
        ] {
            let error = says(contents);
            assert!(error.starts_with(&at(line)), "{error}");
        }
    }

    /// A killed process may have written half of the first line.
    #[test]
    fn a_log_whose_first_line_is_damaged_is_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let whole = serde_json::to_string(&example(Outcome::Miss)).unwrap();
        std::fs::write(&log, format!("{}\n{whole}\n", &whole[20..])).unwrap();
        let report = explain(&[log], None).unwrap();
        assert_eq!((report.device_links, report.damaged.len()), (1, 1));
    }
}
