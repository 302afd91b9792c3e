//! Time traces in Chrome's format, from offld and LLVM's tools, which record the absolute time of
//! the trace's start. Also the critical path through them.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{DeviceLink, Step};
use crate::build_log::Record;
use offld_system::trace::span::{self, HOST};

/// The spans of one process.
#[derive(Debug)]
pub(super) struct Trace {
    /// The traced program, or the file with the trace.
    pub(super) program: String,
    process: u64,
    /// Its spans, without the totals that LLVM adds.
    pub(super) spans: Vec<Span>,
}

#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) name: String,
    /// The thread, or a substitute for one. Spans of one lane are nested or follow each other.
    pub(super) lane: u64,
    /// In microseconds since 1970.
    pub(super) begin: u64,
    pub(super) end: u64,
    args: Map<String, Value>,
}

impl Span {
    /// Returns an argument of a type other than a number; `None` if it is missing or has another
    /// type.
    fn value<T: serde::de::DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.args
            .get(key)
            .and_then(|value| T::deserialize(value).ok())
    }

    fn number(&self, key: &str) -> u64 {
        self.args
            .get(key)
            .and_then(Value::as_u64)
            .unwrap_or_default()
    }

    /// The device of a device link; empty if the trace does not contain it.
    pub(super) fn target(&self) -> String {
        self.args
            .get("target")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// The file name of the host linker; empty if the trace does not contain it.
    pub(super) fn linker(&self) -> String {
        let path = self
            .args
            .get("linker")
            .and_then(Value::as_str)
            .unwrap_or_default();
        Path::new(path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// The compiled or linked file: LLVM's `detail`.
    pub(super) fn detail(&self) -> String {
        self.args
            .get("detail")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }
}

#[derive(Deserialize)]
struct File<'t> {
    #[serde(rename = "traceEvents", borrow)]
    events: Vec<Event<'t>>,
    #[serde(rename = "beginningOfTime", default)]
    beginning: f64,
}

#[derive(Deserialize)]
struct Event<'t> {
    #[serde(borrow)]
    ph: Cow<'t, str>,
    #[serde(borrow, default)]
    name: Cow<'t, str>,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Map<String, Value>,
}

pub(super) fn read(file: &Path) -> Result<Trace> {
    let shown = file.display();
    let bytes = std::fs::read(file).with_context(|| format!("cannot read the trace `{shown}`"))?;
    let parsed: File<'_> = serde_json::from_slice(&bytes).map_err(|error| {
        anyhow::anyhow!(
            "{shown}:{}: not a time trace, or damaged: {error}",
            error.line().max(1)
        )
    })?;
    let File { events, beginning } = parsed;
    let totals = |event: &Event<'_>| event.name.starts_with("Total ");
    let micros = |time: f64| time.max(0.0) as u64;
    let spans = events
        .iter()
        .filter(|event| event.ph == "X" && !totals(event))
        .map(|event| {
            let begin = micros(beginning) + micros(event.ts);
            Span {
                name: event.name.clone().into_owned(),
                lane: event.tid,
                begin,
                end: begin + micros(event.dur),
                args: event.args.clone(),
            }
        });
    // LLVM also writes intervals as `b` and `e` events; other spans contain the same data.
    let spans: Vec<Span> = spans.collect();
    let Some(process) = events
        .iter()
        .find(|event| event.ph == "X")
        .map(|event| event.pid)
        .filter(|_| !spans.is_empty())
    else {
        bail!("{shown}:1: time trace without spans");
    };
    Ok(Trace {
        program: file.to_string_lossy().into_owned(),
        process,
        spans,
    })
}

impl Trace {
    pub(super) fn begin(&self) -> u64 {
        self.spans
            .iter()
            .map(|span| span.begin)
            .min()
            .unwrap_or_default()
    }

    pub(super) fn end(&self) -> u64 {
        self.spans
            .iter()
            .map(|span| span.end)
            .max()
            .unwrap_or_default()
    }

    /// Whether `record` is a device link in this trace.
    pub(super) fn has(&self, record: &Record) -> bool {
        u64::from(record.process) == self.process
            && (self.begin()..=self.end()).contains(&record.time_us)
    }

    pub(super) fn device_links(&self) -> Vec<DeviceLink> {
        let jobs = self.spans.iter().filter(|span| span.name == span::JOB);
        let link = |job: &Span| {
            let within = |span: &&Span| {
                span.lane == job.lane && span.begin >= job.begin && span.end <= job.end
            };
            let run = self
                .spans
                .iter()
                .filter(within)
                .find(|span| span.name == span::CLANG);
            let figures = run.unwrap_or(job);
            DeviceLink {
                wall_us: figures.end - figures.begin,
                waited_us: figures.begin.saturating_sub(job.begin),
                cpu_us: figures.number("cpu ms") * 1000,
                peak_memory: figures.number("peak memory KiB") * 1024,
                program: self.program.clone(),
                target: Some(figures.target())
                    .filter(|target| !target.is_empty())
                    .unwrap_or_else(|| job.detail()),
                outcome: job.value("cache"),
                why: String::new(),
                input_count: job.number("input count"),
                input_bytes: job.number("input bytes"),
                inputs: job.value("inputs").unwrap_or_default(),
            }
        };
        jobs.map(link).collect()
    }
}

/// A trace of a link with two parallel device links. The link waits for the second one.
#[cfg(test)]
pub(super) fn example_text(beginning: u64, process: u64) -> String {
    let span = |name: &str, lane: u64, begin: u64, length: u64| serde_json::json!({"pid": process, "tid": process + lane, "ph": "X", "ts": begin, "dur": length, "name": name});
    let mut clang = span(span::CLANG, 2, 200, 4_000);
    clang["args"] = serde_json::json!({"target": "gfx90a", "cpu ms": 3, "peak memory KiB": 2048});
    let events = [
        span(span::WHOLE, 0, 0, 10_000),
        span(span::DEVICE, 0, 100, 5_000),
        span(span::JOB, 1, 110, 1_000),
        span(span::JOB, 2, 120, 4_900),
        clang,
        span(span::HOST, 0, 6_000, 3_900),
        span("Total Clang", 5, 0, 4_000),
    ];
    serde_json::json!({"traceEvents": events, "beginningOfTime": beginning}).to_string()
}

// The critical path, inferred from start and end times, because no file records dependencies. The
// search goes backwards. Among processes, it takes the one that ended last, then the one that
// ended last before that one began, and so on. Within a process, it takes the innermost running
// step at each moment, and the one that ended last among parallel steps.

/// Steps below this duration, in microseconds, are merged with the step before them.
const SHORTEST: u64 = 1_000;

/// The critical path of a build.
pub(super) struct Critical {
    /// The start of the first step, in microseconds since 1970.
    pub(super) begin_us: u64,
    /// The time to the end of the last step, in microseconds.
    pub(super) wall_us: u64,
    pub(super) steps: Vec<Step>,
}

/// A process with a trace, or a device link that only a log records. Its times are in microseconds
/// since 1970.
struct Piece<'t> {
    begin: u64,
    end: u64,
    source: Source<'t>,
}

enum Source<'t> {
    Trace(&'t Trace),
    Record(&'t Record),
}

/// Finds the critical path through all traces and records.
pub(super) fn critical_path(traces: &[Trace], records: &[Record]) -> Critical {
    let in_traces = |record: &&Record| traces.iter().any(|trace| trace.has(record));
    let of_trace = |trace| Piece {
        begin: Trace::begin(trace),
        end: trace.end(),
        source: Source::Trace(trace),
    };
    let of_record = |record: &'_ _| {
        let record: &Record = record;
        (record.time_us, record.time_us + record.wall_us)
    };
    let mut pieces: Vec<Piece<'_>> = traces.iter().map(of_trace).collect();
    for record in records.iter().filter(|record| !in_traces(record)) {
        let (begin, end) = of_record(record);
        pieces.push(Piece {
            begin,
            end,
            source: Source::Record(record),
        });
    }
    let start = pieces
        .iter()
        .map(|piece| piece.begin)
        .min()
        .unwrap_or_default();
    let finish = pieces
        .iter()
        .map(|piece| piece.end)
        .max()
        .unwrap_or_default();
    let mut steps = Vec::new();
    let mut at = finish;
    // In the order of their ends, each piece is visited once.
    pieces.sort_by_key(|piece| (piece.end, piece.begin));
    while let Some(piece) = pieces.pop() {
        if piece.end > at {
            continue;
        }
        if at - piece.end >= SHORTEST {
            steps.push(Step {
                begin_us: piece.end - start,
                wall_us: at - piece.end,
                program: String::new(),
                what: String::new(),
                target: String::new(),
            });
        }
        at = piece.begin;
        match piece.source {
            Source::Trace(trace) => steps.extend(within(trace, start)),
            Source::Record(record) => steps.push(Step {
                begin_us: piece.begin - start,
                wall_us: piece.end - piece.begin,
                program: record.program.clone(),
                what: "device link".to_owned(),
                target: record.target(),
            }),
        }
    }
    steps.reverse();
    Critical {
        begin_us: start,
        wall_us: finish - start,
        steps: merged(steps),
    }
}

/// Finds the critical path of one process, the last step first.
fn within(trace: &Trace, start: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let begin = trace.begin();
    let mut at = trace.end();
    let main = trace
        .spans
        .iter()
        .max_by_key(|span| span.end - span.begin)
        .map(|span| span.lane);
    while at > begin {
        // The innermost of the spans that run just before this moment; spans outside the process's
        // main lane are preferred.
        let running = trace
            .spans
            .iter()
            .filter(|span| span.begin < at && span.end >= at);
        let Some(span) = running.max_by_key(|span| (Some(span.lane) != main, span.begin)) else {
            at = trace
                .spans
                .iter()
                .map(|span| span.end)
                .filter(|end| *end < at)
                .max()
                .unwrap_or(begin);
            continue;
        };
        let inner = |other: &&Span| {
            let deeper = other.lane == span.lane || Some(span.lane) == main;
            deeper
                && other.end < at
                && other.begin >= span.begin
                && other.end > span.begin
                && !std::ptr::eq(*other, span)
        };
        let from = trace
            .spans
            .iter()
            .filter(inner)
            .map(|other| other.end)
            .max()
            .unwrap_or(span.begin)
            .max(span.begin);
        let target = Some(span.target())
            .filter(|target| !target.is_empty())
            .unwrap_or_else(|| span.detail());
        let target = if span.name == HOST {
            span.linker()
        } else {
            target
        };
        let (program, what) = (trace.program.clone(), span.name.clone());
        steps.push(Step {
            begin_us: from - start,
            wall_us: at - from,
            program,
            what,
            target,
        });
        at = from;
    }
    steps
}

/// Merges steps that are too short with the step before them, and neighbors with the same name.
fn merged(steps: Vec<Step>) -> Vec<Step> {
    let mut merged: Vec<Step> = Vec::new();
    for step in steps {
        match merged.last_mut() {
            Some(last)
                if last.program == step.program
                    && ((last.what == step.what && last.target == step.target)
                        || step.wall_us < SHORTEST) =>
            {
                last.wall_us = step.begin_us + step.wall_us - last.begin_us;
            }
            _ => merged.push(step),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_log::{Outcome, example};

    #[test]
    fn the_path_follows_the_steps_that_ended_last() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace.json");
        std::fs::write(&file, example_text(100_000, 7)).unwrap();
        let traces = [read(&file).unwrap()];
        let before = Record {
            time_us: 50_000,
            wall_us: 45_000,
            ..example(Outcome::Miss)
        };
        let beside = Record {
            time_us: 60_000,
            wall_us: 10_000,
            ..example(Outcome::Miss)
        };
        let path = critical_path(&traces, &[before, beside]);
        assert_eq!((path.begin_us, path.wall_us), (50_000, 60_000));
        let steps: Vec<(&str, u64)> = path
            .steps
            .iter()
            .map(|step| (step.what.as_str(), step.wall_us))
            .collect();
        // The first device link, a gap without data, and the link. The steps after clang take less
        // than a millisecond each and are merged with it.
        assert_eq!(
            steps,
            [
                ("device link", 45_000),
                ("", 5_000),
                ("Execute linker wrapper", 200),
                ("Clang", 5_800),
                ("Execute host linker", 4_000)
            ]
            .map(|(what, wall)| (what, wall))
        );
        assert_eq!(
            path.steps.iter().map(|step| step.wall_us).sum::<u64>(),
            path.wall_us
        );
        assert_eq!(critical_path(&[], &[]).wall_us, 0);
    }
}
