//! The build log (`OFFLD_CACHE_LOG`): one line of JSON for each device link, with its outcome and
//! its cost. Links append to it, and `offld cache stats` and `offld explain` read it.

mod append;
mod read;
mod summary;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use append::Log;
pub(crate) use read::{Damaged, read};
pub(crate) use summary::{Reason, Summary};

/// Format version of the lines. It changes when a field disappears or changes its meaning. New
/// fields do not change it.
pub(crate) const VERSION: u32 = 1;
/// Number of inputs that a line names, the largest first, so that lines stay short for programs
/// with many objects.
const NAMED_INPUTS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The image was in the cache.
    Hit,
    /// The image was not in the cache, and the link was run.
    Miss,
    /// The link was run without the cache: its inputs cannot be determined, or there is no cache.
    Uncached,
    /// The link was run and failed.
    Failed,
}

impl Outcome {
    /// Name of the outcome in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Outcome::Hit => "hit",
            Outcome::Miss => "miss",
            Outcome::Uncached => "uncached",
            Outcome::Failed => "failed",
        }
    }

    /// Every outcome, with its name for people.
    pub(crate) const ALL: [(Outcome, &str); 4] = [
        (Outcome::Hit, "hits"),
        (Outcome::Miss, "misses"),
        (Outcome::Uncached, "not cached"),
        (Outcome::Failed, "failed"),
    ];
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Input {
    /// Name of the file with the device code: `a.o`, `libb.a(c.o)`.
    pub name: String,
    /// Size of the input, in bytes.
    pub bytes: u64,
}

/// Cost of a device link. For a cache hit: the cost of the link that made the image.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// Duration, in microseconds.
    pub wall_us: u64,
    /// CPU time, in microseconds.
    pub cpu_us: u64,
    /// Peak resident memory, in bytes.
    pub peak_memory: u64,
}

/// One line: a device link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub version: u32,
    /// Start time, in microseconds since 1970.
    pub time_us: u64,
    /// Id of the process. All device links of one program have the same.
    pub process: u32,
    /// The program that is linked, as an absolute path.
    pub program: String,
    pub triple: String,
    pub arch: String,
    pub outcome: Outcome,
    /// Reason for a miss, for an uncached link, or for a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Why the image was not stored in the cache, although it could have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
    /// Whether the image came from the remote cache.
    #[serde(default)]
    pub shared: bool,
    /// The machine that the link ran on, if a launcher ran it on another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Total duration, in microseconds.
    pub wall_us: u64,
    /// The part of it that the link waited for its slot, in microseconds.
    #[serde(default)]
    pub waited_us: u64,
    /// CPU time of all programs that ran for it, in microseconds.
    pub cpu_us: u64,
    /// Their peak resident memory, in bytes.
    pub peak_memory: u64,
    /// For a cache hit: the cost of making the image, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Cost>,
    pub input_count: u64,
    /// Total size of the inputs, in bytes.
    pub input_bytes: u64,
    /// The largest inputs, the largest first.
    pub inputs: Vec<Input>,
    /// Size of the image, in bytes.
    #[serde(default)]
    pub image_bytes: u64,
}

impl Record {
    /// Sets the inputs of the link. Only the largest are named.
    pub(crate) fn set_inputs(&mut self, inputs: Vec<Input>) {
        let Inputs {
            count,
            bytes,
            largest,
        } = Inputs::of(inputs);
        (self.input_count, self.input_bytes, self.inputs) = (count, bytes, largest);
    }

    pub(crate) fn target(&self) -> String {
        if self.arch.is_empty() {
            self.triple.clone()
        } else {
            format!("{} ({})", self.triple, self.arch)
        }
    }
}

/// Totals of the inputs of a device link, and the largest inputs.
pub(crate) struct Inputs {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) largest: Vec<Input>,
}

impl Inputs {
    pub(crate) fn of(mut inputs: Vec<Input>) -> Inputs {
        let (count, bytes) = (
            inputs.len() as u64,
            inputs.iter().map(|input| input.bytes).sum(),
        );
        inputs.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        inputs.truncate(NAMED_INPUTS);
        Inputs {
            count,
            bytes,
            largest: inputs,
        }
    }
}

/// A duration in microseconds, as in the log.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// An example of a line, for tests.
#[cfg(test)]
pub(crate) fn example(outcome: Outcome) -> Record {
    Record {
        version: VERSION,
        time_us: 1_700_000_000_000_000,
        process: 7,
        program: "/b/a.out".to_owned(),
        triple: "amdgcn-amd-amdhsa".to_owned(),
        arch: "gfx90a".to_owned(),
        outcome,
        why: String::new(),
        not_kept: None,
        shared: false,
        node: None,
        wall_us: 1000,
        waited_us: 0,
        cpu_us: 900,
        peak_memory: 1 << 20,
        saved: None,
        input_count: 0,
        input_bytes: 0,
        inputs: Vec::new(),
        image_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_largest_inputs_and_counts_them_all() {
        let mut record = example(Outcome::Miss);
        record.set_inputs(
            (0..100)
                .map(|at| Input {
                    name: format!("{at}.o"),
                    bytes: at,
                })
                .collect(),
        );
        assert_eq!(
            (record.input_count, record.input_bytes, record.inputs.len()),
            (100, 4950, NAMED_INPUTS)
        );
        assert_eq!(
            record.inputs[0],
            Input {
                name: "99.o".to_owned(),
                bytes: 99
            }
        );
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
