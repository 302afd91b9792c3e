//! Time traces in Chrome's format, from offld and LLVM's tools, which record the absolute time of
//! the trace's start.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::DeviceLink;
use crate::build_log::Record;
use crate::sys::trace::span;

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

/// Reads the trace in `file`.
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
