//! `--wrapper-time-trace`: a Chrome trace of a link, with LLVM's span names. Each device job has a
//! lane with its command, peak memory and CPU time. Nothing is recorded unless a trace was
//! requested.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::atomic_file;
use crate::signals::Usage;
use crate::threads::lock;

/// Span names of LLVM's wrapper in its own time trace.
pub mod span {
    /// The whole link.
    pub const WHOLE: &str = "Execute linker wrapper";
    /// Opening inputs and finding images.
    pub const EXTRACT: &str = "ExtractDeviceCode";
    /// Everything between extraction and the host link.
    pub const DEVICE: &str = "Handle all device input";
    /// One device job, from writing its inputs on.
    pub const JOB: &str = "Link device input";
    /// The compiler of one device job.
    pub const CLANG: &str = "Clang";
    /// Packing of linked images.
    pub const BUNDLE: &str = "Bundle linked output";
    /// Generating registration code.
    pub const WRAP: &str = "Wrap bundled images";
    /// The host link.
    pub const HOST: &str = "Execute host linker";
    /// Writing images into the program.
    pub const FILL: &str = "Put images into the program";
}

/// A finished span. Lane 0 is the process itself; job n has lane n + 1.
#[derive(Debug)]
struct Event {
    name: &'static str,
    lane: usize,
    start: Duration,
    length: Duration,
    args: Value,
}

/// A trace under construction, or none.
#[derive(Debug)]
pub struct Trace {
    file: Option<PathBuf>,
    granularity: Duration,
    began: Instant,
    wall: SystemTime,
    process: String,
    events: Mutex<Vec<Event>>,
    device_links: AtomicBool,
}

/// A span that ends when it is dropped.
#[derive(Debug)]
pub struct Span<'t> {
    trace: &'t Trace,
    name: &'static str,
    lane: usize,
    start: Instant,
    args: Value,
}

impl Trace {
    /// A trace for `file`, or one that records nothing. Spans shorter than `granularity`
    /// microseconds are omitted.
    pub fn new(file: Option<PathBuf>, granularity: u32, process: &str) -> Self {
        Trace {
            file,
            granularity: Duration::from_micros(granularity.into()),
            began: Instant::now(),
            wall: SystemTime::now(),
            process: process.to_owned(),
            events: Mutex::default(),
            device_links: AtomicBool::new(false),
        }
    }

    /// Begins a span in a lane.
    pub fn span(&self, name: &'static str, lane: usize) -> Span<'_> {
        if name == span::DEVICE {
            self.device_links.store(true, Ordering::Relaxed);
        }
        Span {
            trace: self,
            name,
            lane,
            start: Instant::now(),
            args: Value::Null,
        }
    }

    /// Whether a device link is in the trace.
    pub fn has_device_links(&self) -> bool {
        self.device_links.load(Ordering::Relaxed)
    }

    /// Writes the trace file atomically, if one was requested.
    pub fn write(&self) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let write = |out: &mut std::fs::File| Ok(serde_json::to_writer(out, &self.json())?);
        atomic_file::replace(file, write)
            .with_context(|| format!("cannot write the time trace `{}`", file.display()))
    }

    fn json(&self) -> Value {
        let pid = std::process::id();
        let events = lock(&self.events);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let lane = |lane: usize| u64::from(pid) + lane as u64;
        let mut all: Vec<Value> = Vec::new();
        for event in events.iter() {
            let mut value = json!({"pid": pid, "tid": lane(event.lane), "ts": micros(event.start), "ph": "X", "dur": micros(event.length), "name": event.name});
            if !event.args.is_null() {
                value["args"] = event.args.clone();
            }
            all.push(value);
        }
        let lanes = events.iter().map(|event| event.lane).max().unwrap_or(0);
        for (index, (name, count, total)) in totals(&events).into_iter().enumerate() {
            all.push(json!({
                "pid": pid, "tid": lane(lanes + 1 + index), "ph": "X", "ts": 0, "dur": micros(total), "name": format!("Total {name}"),
                "args": {"count": count, "avg ms": u64::try_from(total.as_millis()).unwrap_or(u64::MAX) / count},
            }));
        }
        all.push(json!({"cat": "", "pid": pid, "tid": pid, "ts": 0, "ph": "M", "name": "process_name", "args": {"name": self.process}}));
        for job in 0..=lanes {
            let name = if job == 0 {
                self.process.clone()
            } else {
                format!("device job {job}")
            };
            all.push(json!({"cat": "", "pid": pid, "tid": lane(job), "ts": 0, "ph": "M", "name": "thread_name", "args": {"name": name}}));
        }
        let began = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({"traceEvents": all, "beginningOfTime": micros(began)})
    }
}

/// Count and total duration of each span name, the longest first.
fn totals(events: &[Event]) -> Vec<(&'static str, u64, Duration)> {
    let mut totals: Vec<(&'static str, u64, Duration)> = Vec::new();
    for event in events {
        match totals.iter_mut().find(|(name, ..)| *name == event.name) {
            Some((_, count, total)) => (*count, *total) = (*count + 1, *total + event.length),
            None => totals.push((event.name, 1, event.length)),
        }
    }
    totals.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(b.0)));
    totals
}

impl Span<'_> {
    /// Whether the span will be in a file.
    pub fn is_recorded(&self) -> bool {
        self.trace.file.is_some()
    }

    /// Adds an argument, which trace viewers show with the span.
    pub fn set_arg(&mut self, key: &str, value: impl Into<Value>) {
        if !self.is_recorded() {
            return;
        }
        if self.args.is_null() {
            self.args = json!({});
        }
        self.args[key] = value.into();
    }

    /// Adds the resources that a child used.
    pub fn record_usage(&mut self, usage: Usage) {
        self.set_arg("peak memory KiB", usage.peak_memory / 1024);
        self.set_arg(
            "cpu ms",
            u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX),
        );
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        let length = self.start.elapsed();
        if self.trace.file.is_none() || length < self.trace.granularity {
            return;
        }
        let start = self.start.saturating_duration_since(self.trace.began);
        let event = Event {
            name: self.name,
            lane: self.lane,
            start,
            length,
            args: std::mem::take(&mut self.args),
        };
        lock(&self.trace.events).push(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_llvms_names_and_a_lane_for_each_job() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("trace.json");
        let trace = Trace::new(Some(file.clone()), 0, "clang-linker-wrapper");
        let whole = trace.span(span::WHOLE, 0);
        let mut job = trace.span(span::CLANG, 2);
        job.set_arg("command", "clang -o x");
        job.record_usage(Usage {
            peak_memory: 4096,
            cpu: Duration::from_millis(3),
        });
        drop(job);
        drop(whole);
        trace.write().unwrap();
        let read: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let events = read["traceEvents"].as_array().unwrap();
        let named = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
        let pid = u64::from(std::process::id());
        assert_eq!(named(span::CLANG)["tid"], pid + 2);
        assert_eq!(
            named(span::CLANG)["args"],
            json!({"command": "clang -o x", "peak memory KiB": 4, "cpu ms": 3})
        );
        assert_eq!(named("Total Execute linker wrapper")["args"]["count"], 1);
        assert_eq!(
            named("process_name")["args"]["name"],
            "clang-linker-wrapper"
        );
    }

    #[test]
    fn omits_short_spans_and_records_nothing_without_a_file() {
        let trace = Trace::new(Some("unwritten".into()), 1_000_000, "x");
        drop(trace.span(span::HOST, 0));
        assert!(trace.events.lock().unwrap().is_empty());
        Trace::new(None, 0, "x").write().unwrap();
    }
}
