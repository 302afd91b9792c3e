//! The log of a build (`OFFLD_CACHE_LOG`): one line of JSON for each device link, which says what became of it and what it cost.
//! Links append to it, and `offld cache stats` and `offld explain` read it.

mod append;
mod read;
mod summary;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use append::Log;
pub(crate) use read::{Damaged, read};
pub(crate) use summary::{Reason, Summary};

/// The version of the lines. Another one when a field goes or changes its meaning; new fields do not change it.
pub(crate) const VERSION: u32 = 1;
/// How many inputs a line names, the largest first, so that no line is long however many objects a program has.
const NAMED_INPUTS: usize = 8;

/// What became of a device link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Its image was in the cache.
    Hit,
    /// It was not, and the link was run.
    Miss,
    /// The link was run without the cache: what it reads cannot be known, or there is no cache.
    Uncached,
    /// The link was run and failed.
    Failed,
}

impl Outcome {
    /// Every outcome, with its name for people.
    pub(crate) const ALL: [(Outcome, &str); 4] =
        [(Outcome::Hit, "hits"), (Outcome::Miss, "misses"), (Outcome::Uncached, "not cached"), (Outcome::Failed, "failed")];
}

/// An input of a device link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Input {
    /// Where the device code comes from: `a.o`, `libb.a(c.o)`.
    pub name: String,
    /// How large it is.
    pub bytes: u64,
}

/// What a device link cost. For one that was in the cache: what it cost to make the image.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// How long it took, in microseconds.
    pub wall_us: u64,
    /// The processors' time of it, in microseconds.
    pub cpu_us: u64,
    /// The peak of its resident memory, in bytes.
    pub peak_memory: u64,
}

/// One line: a device link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// When it began, in microseconds since 1970.
    pub time_us: u64,
    /// The process that did it: device links of one program have the same.
    pub process: u32,
    /// The program that is linked, as an absolute path.
    pub program: String,
    /// The device's triple.
    pub triple: String,
    /// The device's architecture.
    pub arch: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Why it was not in the cache, not cached, or failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Why it was not put into the cache, although it might have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
    /// Whether the image came from the shared cache.
    #[serde(default)]
    pub shared: bool,
    /// The machine that it ran on, where a launcher ran it on another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How long it took in all, in microseconds.
    pub wall_us: u64,
    /// How long of this it waited until it was allowed to run.
    #[serde(default)]
    pub waited_us: u64,
    /// The processors' time that programs took for it, in microseconds.
    pub cpu_us: u64,
    /// The peak of their resident memory, in bytes.
    pub peak_memory: u64,
    /// For one in the cache: what making the image has cost, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Cost>,
    /// How many inputs it has.
    pub input_count: u64,
    /// How large they are together.
    pub input_bytes: u64,
    /// The largest of them, the largest first.
    pub inputs: Vec<Input>,
    /// How large the image is.
    #[serde(default)]
    pub image_bytes: u64,
}

impl Record {
    /// The inputs of the link, of which the largest are named.
    pub(crate) fn set_inputs(&mut self, mut inputs: Vec<Input>) {
        self.input_count = inputs.len() as u64;
        self.input_bytes = inputs.iter().map(|input| input.bytes).sum();
        inputs.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        inputs.truncate(NAMED_INPUTS);
        self.inputs = inputs;
    }

    /// The device as messages name it.
    pub(crate) fn target(&self) -> String {
        if self.arch.is_empty() { self.triple.clone() } else { format!("{} ({})", self.triple, self.arch) }
    }
}

/// A length of time as lines have it.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A line as others may have written it, for tests.
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
        record.set_inputs((0..100).map(|at| Input { name: format!("{at}.o"), bytes: at }).collect());
        assert_eq!((record.input_count, record.input_bytes, record.inputs.len()), (100, 4950, NAMED_INPUTS));
        assert_eq!(record.inputs[0], Input { name: "99.o".to_owned(), bytes: 99 });
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
    }
}
