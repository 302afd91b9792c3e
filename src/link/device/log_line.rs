//! A device link's line in the log of the build, from its beginning to its end. It is written when it is dropped, so that every link
//! that began has its line, on whatever way it ends.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Planned;
use super::memo::Hit;
use crate::build_log::{Cost, Input, Log, Outcome, Record, VERSION, micros};
use crate::error;
use crate::sys::trace::Usage;

/// The line of one device link; empty without a log.
pub(super) struct LogLine(Option<Open>);

struct Open {
    log: Arc<Log>,
    record: Record,
    begun: Instant,
    /// Set once the link has ended: what is done for the cache afterwards is not its time.
    ended: bool,
}

impl LogLine {
    /// Begins the line of `planned`.
    pub(super) fn begin(log: Option<&Arc<Log>>, planned: &Planned<'_>) -> LogLine {
        let open = |log: &Arc<Log>| {
            let program = std::path::absolute(&planned.program).unwrap_or_else(|_| planned.program.clone());
            let mut record = Record {
                version: VERSION,
                time_us: micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
                process: std::process::id(),
                program: program.to_string_lossy().into_owned(),
                triple: planned.job.target.triple.clone(),
                arch: planned.job.target.arch.clone(),
                outcome: Outcome::Failed,
                why: "it was stopped".to_owned(),
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
            let inputs = planned.job.inputs.iter();
            let inputs = inputs.map(|input| Input { name: input.origin.to_string(), bytes: input.bytes.len() as u64 });
            record.set_inputs(inputs.collect());
            Open { log: Arc::clone(log), record, begun: Instant::now(), ended: false }
        };
        LogLine(log.map(open))
    }

    /// The image was in the cache.
    pub(super) fn hit(mut self, hit: &Hit, image: &Path) {
        self.outcome(Outcome::Hit, "");
        if let Some(Open { record, .. }) = &mut self.0 {
            (record.shared, record.saved, record.image_bytes) = (hit.shared, hit.saved, size(image));
        }
    }

    /// What became of it, and why.
    pub(super) fn outcome(&mut self, outcome: Outcome, why: &str) {
        if let Some(Open { record, .. }) = &mut self.0 {
            (record.outcome, record.why) = (outcome, why.to_owned());
        }
    }

    /// It is allowed to run.
    pub(super) fn runs(&mut self) {
        if let Some(Open { record, begun, .. }) = &mut self.0 {
            record.waited_us = micros(begun.elapsed());
        }
    }

    /// It has waited once more, for so long.
    pub(super) fn waited_again(&mut self, time: Duration) {
        if let Some(Open { record, .. }) = &mut self.0 {
            record.waited_us += micros(time);
        }
    }

    /// It was run, and has failed.
    pub(super) fn failed(&mut self, error: &anyhow::Error) {
        let report = error::chain(error);
        self.outcome(Outcome::Failed, report.lines().next().unwrap_or_default());
    }

    /// It was run, and has written `image`.
    pub(super) fn ended(&mut self, cost: Cost, image: &Path) {
        if let Some(Open { record, begun, ended, .. }) = &mut self.0 {
            (record.cpu_us, record.peak_memory, record.image_bytes) = (cost.cpu_us, cost.peak_memory, size(image));
            record.wall_us = micros(begun.elapsed());
            *ended = true;
        }
    }

    /// It has run on another machine.
    pub(super) fn ran_on(&mut self, node: &str) {
        if let Some(Open { record, .. }) = &mut self.0 {
            record.node = Some(node.to_owned());
        }
    }

    /// The image could not be kept.
    pub(super) fn not_kept(&mut self, why: String) {
        if let Some(Open { record, .. }) = &mut self.0 {
            record.not_kept = Some(why);
        }
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        if let Some(Open { log, record, begun, ended }) = &mut self.0 {
            if !*ended {
                record.wall_us = micros(begun.elapsed());
            }
            log.append(record);
        }
    }
}

/// What a link that took `wall` and used `usage` has cost.
pub(super) fn cost(wall: Duration, usage: Usage) -> Cost {
    Cost { wall_us: micros(wall), cpu_us: micros(usage.cpu), peak_memory: usage.peak_memory }
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |meta| meta.len())
}
