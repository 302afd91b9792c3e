//! The critical path, inferred from start and end times, because no file records dependencies. The
//! search goes backwards. Among processes, it takes the one that ended last, then the one that
//! ended last before that one began, and so on. Within a process, it takes the innermost running
//! step at each moment, and the one that ended last among parallel steps.

use super::Step;
use super::trace::{Span, Trace};
use crate::build_log::Record;
use crate::sys::trace::span::HOST;

/// Shorter steps are merged with the step before them, in microseconds.
const SHORTEST: u64 = 1_000;

/// The critical path of a build.
pub(super) struct Critical {
    /// The start of the first step, in microseconds since 1970.
    pub(super) begin_us: u64,
    /// The time to the end of the last step, in microseconds.
    pub(super) wall_us: u64,
    pub(super) steps: Vec<Step>,
}

/// A process with a trace, or a device link that only a log records. Times in microseconds since
/// 1970.
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
pub(super) fn critical(traces: &[Trace], records: &[Record]) -> Critical {
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
    use super::super::trace::{example_text, read};
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
        let path = critical(&traces, &[before, beside]);
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
        assert_eq!(critical(&[], &[]).wall_us, 0);
    }
}
