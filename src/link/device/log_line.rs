//! Collects a device link's line for the build log.
//!
//! The line is written when it is dropped, so every link that began has a line, however it ends.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Planned;
use super::link_cache::Hit;
use crate::build_log::{Cost, Input, Inputs, Log, Outcome, Record, VERSION, micros};
use crate::error;
use crate::sys::trace::{Span, Usage};

/// The line of one device link. Empty without a log.
pub(super) struct LogLine(Option<OpenLine>);

struct OpenLine {
    log: Arc<Log>,
    record: Record,
    begun: Instant,
    /// Set once the link has ended. Storing it in the cache does not count as link time.
    ended: bool,
}

impl LogLine {
    /// Begins the line of `planned`.
    pub(super) fn begin(log: Option<&Arc<Log>>, planned: &Planned<'_>) -> LogLine {
        let open = |log: &Arc<Log>| {
            let program =
                std::path::absolute(&planned.program).unwrap_or_else(|_| planned.program.clone());
            let mut record = Record {
                version: VERSION,
                time_us: micros(
                    SystemTime::now()
                        .duration_since(UNIX_EPOCH)
                        .unwrap_or_default(),
                ),
                process: std::process::id(),
                program: program.to_string_lossy().into_owned(),
                triple: planned.job.target.triple.clone(),
                arch: planned.job.target.arch.clone(),
                outcome: Outcome::Failed,
                why: "the link was interrupted".to_owned(),
                not_kept: None,
                shared: false,
                node: None,
                wall_us: 0,
                waited_us: 0,
                cpu_us: 0,
                peak_memory: 0,
                saved: None,
                input_count: 0,
                input_bytes: 0,
                inputs: Vec::new(),
                image_bytes: 0,
            };
            record.set_inputs(inputs_of(planned));
            OpenLine {
                log: Arc::clone(log),
                record,
                begun: Instant::now(),
                ended: false,
            }
        };
        LogLine(log.map(open))
    }

    /// Completes the line of a cache hit.
    pub(super) fn hit(mut self, hit: &Hit, image: &Path) {
        self.outcome(Outcome::Hit, "");
        if let Some(OpenLine { record, .. }) = &mut self.0 {
            (record.shared, record.saved, record.image_bytes) =
                (hit.shared, hit.saved, size(image));
        }
    }

    /// Records the outcome and its reason.
    pub(super) fn outcome(&mut self, outcome: Outcome, why: &str) {
        if let Some(OpenLine { record, .. }) = &mut self.0 {
            (record.outcome, record.why) = (outcome, why.to_owned());
        }
    }

    /// Records the start of the run. The time before it was waiting time.
    pub(super) fn runs(&mut self) {
        if let Some(OpenLine { record, begun, .. }) = &mut self.0 {
            record.waited_us = micros(begun.elapsed());
        }
    }

    /// Adds further waiting time.
    pub(super) fn waited_again(&mut self, time: Duration) {
        if let Some(OpenLine { record, .. }) = &mut self.0 {
            record.waited_us += micros(time);
        }
    }

    /// Records the first line of the error of a failed run.
    pub(super) fn failed(&mut self, error: &anyhow::Error) {
        let report = error::chain(error);
        self.outcome(Outcome::Failed, report.lines().next().unwrap_or_default());
    }

    /// Records a successful run, which has written `image`.
    pub(super) fn ended(&mut self, cost: Cost, image: &Path) {
        if let Some(OpenLine {
            record,
            begun,
            ended,
            ..
        }) = &mut self.0
        {
            (record.cpu_us, record.peak_memory, record.image_bytes) =
                (cost.cpu_us, cost.peak_memory, size(image));
            record.wall_us = micros(begun.elapsed());
            *ended = true;
        }
    }

    /// Records the machine that ran the link.
    pub(super) fn ran_on(&mut self, node: &str) {
        if let Some(OpenLine { record, .. }) = &mut self.0 {
            record.node = Some(node.to_owned());
        }
    }

    /// Records the reason why the image was not cached.
    pub(super) fn not_kept(&mut self, why: String) {
        if let Some(OpenLine { record, .. }) = &mut self.0 {
            record.not_kept = Some(why);
        }
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if let Some(OpenLine {
            log,
            record,
            begun,
            ended,
        }) = &mut self.0
        {
            if !*ended {
                record.wall_us = micros(begun.elapsed());
            }
            log.append(record);
        }
    }
}

fn inputs_of(planned: &Planned<'_>) -> Vec<Input> {
    let inputs = planned.job.inputs.iter();
    inputs
        .map(|input| Input {
            name: input.origin.to_string(),
            bytes: input.bytes.len() as u64,
        })
        .collect()
}

/// Adds the target and the inputs to the trace, as in the build log.
pub(super) fn describe(span: &mut Span<'_>, planned: &Planned<'_>) {
    if !span.is_recorded() {
        return;
    }
    let inputs = Inputs::of(inputs_of(planned));
    span.set_arg("target", planned.job.target.to_string());
    span.set_arg("input count", inputs.count);
    span.set_arg("input bytes", inputs.bytes);
    span.set_arg(
        "inputs",
        serde_json::to_value(inputs.largest).unwrap_or_default(),
    );
}

/// Returns the cost of a link from its run time and usage.
pub(super) fn cost(wall: Duration, usage: Usage) -> Cost {
    Cost {
        wall_us: micros(wall),
        cpu_us: micros(usage.cpu),
        peak_memory: usage.peak_memory,
    }
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |meta| meta.len())
}
