//! `offld explain`: reports which steps of a build took time. It reads time traces
//! (`--wrapper-time-trace=`, and those of clang and of LLVM's own wrapper) and logs
//! (`OFFLD_CACHE_LOG`). The report contains the critical path, the slowest device links, cache
//! hits, and the reasons for misses.

mod path;
mod show;
mod trace;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::build_log::{self, Damaged, Input, Outcome, Record, Summary};
pub(crate) use show::text;
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

/// A file that was read.
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

/// A device link.
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
    let path = path::critical(&traces, &records);
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
            serde_json::from_str(&crate::sys::shell::json(&report).unwrap()).unwrap();
        assert_eq!(
            (&value["schema"], &value["version"]),
            (&1.into(), &1.into())
        );
        assert!(text(&report, crate::sys::table::Style::default()).contains("a.o has changed"));
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
