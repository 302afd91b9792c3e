//! The build log (`OFFLD_CACHE_LOG`): one line of JSON for each device link, with its outcome and
//! its cost, and the totals of many links. Links append to it, and `offld cache stats` and `offld
//! explain` read it.

mod append;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub(crate) use append::Log;

/// Format version of the lines. It changes when a field disappears or changes its meaning. New
/// fields do not change it.
pub(crate) const VERSION: u32 = 1;
/// Number of inputs that a line names, the largest first, so that lines stay short for programs
/// with many objects.
const NAMED_INPUTS: usize = 8;
/// Number of changes in a message. The build log has all of them.
const MOST_IN_TEXT: usize = 3;

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
    /// For a miss: all changes since the most similar link of the same output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
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
    /// The part of the duration in which the link waited for its slot, in microseconds.
    #[serde(default)]
    pub waited_us: u64,
    /// CPU time of all programs that ran for the link, in microseconds.
    pub cpu_us: u64,
    /// Peak resident memory of these programs, in bytes.
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

/// The time, in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    micros(time.unwrap_or_default())
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
        changes: Vec::new(),
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

// The changes that made a device link miss the cache.

/// A difference between a link and an earlier link of the same output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub kind: ChangeKind,
    /// The thing that has changed: an object, a kernel, an argument, a variable, a program.
    pub name: String,
    pub change: How,
    /// The value before, if the kind has values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The value now, if the kind has values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeKind {
    /// Whether kernels have stable names. The device code changes with it.
    StableNames,
    /// A kernel that moved to another line.
    Kernel,
    /// The device code of an object.
    DeviceCode,
    /// An argument of the linker.
    Argument,
    /// An environment variable.
    Variable,
    /// The linker, or a program that it runs.
    Linker,
    /// The key that signs the remote cache.
    SigningKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    Added,
    Removed,
    Changed,
    /// The same things are in another order.
    Reordered,
}

impl Change {
    pub(crate) fn new(kind: ChangeKind, name: impl Into<String>, change: How) -> Change {
        Change {
            kind,
            name: name.into(),
            change,
            old: None,
            new: None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change {
            kind,
            name,
            change,
            old,
            new,
        } = self;
        let value = |value: &Option<String>| value.clone().unwrap_or_default();
        let (old, new) = (value(old), value(new));
        match (kind, change) {
            (ChangeKind::StableNames, How::Removed) => {
                f.write_str("the kernels no longer have stable names")
            }
            (ChangeKind::StableNames, _) => f.write_str("the kernels now have stable names"),
            (ChangeKind::Kernel, _) => write!(
                f,
                "the kernel {name} has moved from line {old} to line {new}"
            ),
            (ChangeKind::DeviceCode, How::Reordered) => {
                f.write_str("the order of the device code has changed")
            }
            (ChangeKind::DeviceCode, How::Added) => {
                write!(f, "the device code of {name} was added")
            }
            (ChangeKind::DeviceCode, How::Removed) => {
                write!(f, "the device code of {name} was removed")
            }
            (ChangeKind::DeviceCode, How::Changed) => {
                write!(f, "the device code of {name} has changed")
            }
            (ChangeKind::Argument, How::Added) => {
                write!(f, "the linker argument `{name}` was added")
            }
            (ChangeKind::Argument, How::Removed) => {
                write!(f, "the linker argument `{name}` was removed")
            }
            (ChangeKind::Argument, _) => {
                f.write_str("the order of the linker arguments has changed")
            }
            (ChangeKind::Variable, How::Added) => write!(f, "{name} was set to `{new}`"),
            (ChangeKind::Variable, How::Removed) => {
                write!(f, "{name} is no longer set (it was `{old}`)")
            }
            (ChangeKind::Variable, _) => write!(f, "{name} has changed from `{old}` to `{new}`"),
            (ChangeKind::Linker, How::Added) => write!(f, "the linker {name} was added"),
            (ChangeKind::Linker, How::Removed) => write!(f, "the linker {name} was removed"),
            (ChangeKind::Linker, _) => write!(f, "the linker {name} has changed"),
            (ChangeKind::SigningKey, _) => {
                f.write_str("the signing key (OFFLD_CACHE_KEY) has changed")
            }
        }
    }
}

/// The message about `changes`: the first ones, and the number of the others.
pub(crate) fn changes_text(changes: &[Change]) -> String {
    let shown: Vec<String> = changes
        .iter()
        .take(MOST_IN_TEXT)
        .map(Change::to_string)
        .collect();
    match changes.len().checked_sub(MOST_IN_TEXT) {
        _ if changes.is_empty() => "the entry was evicted or removed".to_owned(),
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

// Reads a log. Damaged lines are skipped, because a killed process or a full disk leaves half a
// line in an otherwise good log. A line of a later release is an error that names the file and the
// line.

/// The common part of all versions of a line.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Debug)]
pub(crate) struct Contents {
    /// The records, in the order in which they were written.
    pub records: Vec<Record>,
    /// The damaged lines, if any.
    pub damaged: Option<Damaged>,
}

/// Damaged lines, which are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damaged {
    path: PathBuf,
    /// Number of the first damaged line, counted from 1.
    first: usize,
    /// Number of damaged lines.
    lines: u64,
}

impl Damaged {
    pub(crate) fn warning(&self) -> String {
        let (path, first) = (self.path.display(), self.first);
        match self.lines {
            1 => format!("{path}:{first}: skipped a damaged line"),
            lines => format!("{path}:{first}: skipped {lines} damaged lines, beginning here"),
        }
    }
}

/// Reads the log at `path`.
///
/// # Errors
/// The log cannot be read, all of its lines are damaged, or a line was written by a later release.
pub(crate) fn read(path: &Path) -> Result<Contents> {
    let bytes = std::fs::read(path)
        .with_context(|| format!("cannot read the build log `{}`", path.display()))?;
    let mut contents = Contents {
        records: Vec::new(),
        damaged: None,
    };
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .zip(1..)
        .filter(|(line, _)| !line.trim_ascii().is_empty());
    for (line, number) in lines {
        if let Some(record) =
            record(line).with_context(|| format!("{}:{number}", path.display()))?
        {
            contents.records.push(record);
        } else {
            let none = Damaged {
                path: path.to_owned(),
                first: number,
                lines: 0,
            };
            contents.damaged.get_or_insert(none).lines += 1;
        }
    }
    if let (Some(damaged), true) = (&contents.damaged, contents.records.is_empty()) {
        bail!(
            "{}:{}: not a line of a build log, or damaged",
            path.display(),
            damaged.first
        );
    }
    Ok(contents)
}

/// Parses a line. Returns `None` if it is damaged.
///
/// # Errors
/// The line has another format version.
fn record(line: &[u8]) -> Result<Option<Record>> {
    let Ok(Versioned { version }) = serde_json::from_slice(line) else {
        return Ok(None);
    };
    if version != VERSION {
        bail!("log format version {version}; this offld reads version {VERSION}");
    }
    Ok(serde_json::from_slice(line).ok())
}

/// Totals of the lines of a log.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// Number of device links.
    pub links: u64,
    /// Links whose image was in the cache.
    pub hits: u64,
    /// Hits whose image came from the remote cache.
    pub shared_hits: u64,
    /// Links that were run, and could have been in the cache.
    pub misses: u64,
    /// Misses whose image could not be stored in the cache.
    pub not_kept: u64,
    /// Links that ran without the cache.
    pub uncached: u64,
    /// Links that failed.
    pub failed: u64,
    /// Total duration of the links that were run, one after another, in microseconds.
    pub wall_us: u64,
    /// Time that those links waited for their slots, in microseconds.
    pub waited_us: u64,
    /// CPU time of those links, in microseconds.
    pub cpu_us: u64,
    /// Peak memory of any of them, in bytes.
    pub peak_memory: u64,
    /// Additional time that hits would have taken if they had been run, in microseconds.
    pub saved_wall_us: u64,
    /// CPU time that hits would have taken, in microseconds.
    pub saved_cpu_us: u64,
    /// Number of hits whose images have an unknown cost.
    pub saved_unknown: u64,
    /// Start time of the first link, in microseconds since 1970.
    pub first_us: Option<u64>,
    /// Start time of the last link, in microseconds since 1970.
    pub last_us: Option<u64>,
    /// Why links were misses, not cached, or failed. The most frequent reason comes first.
    pub reasons: Vec<Reason>,
}

/// A reason, and the number of links that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Reason {
    pub outcome: Outcome,
    pub why: String,
    pub links: u64,
}

impl Summary {
    pub(crate) fn of<'r>(records: impl IntoIterator<Item = &'r Record>) -> Summary {
        let mut sum = Summary::default();
        let mut reasons: BTreeMap<(Outcome, &str), u64> = BTreeMap::new();
        for record in records {
            sum.add(record);
            if record.outcome != Outcome::Hit {
                *reasons.entry((record.outcome, &record.why)).or_default() += 1;
            }
            if let Some(why) = &record.not_kept {
                *reasons.entry((Outcome::Uncached, why)).or_default() += 1;
            }
        }
        let reason = |((outcome, why), links): ((Outcome, &str), u64)| Reason {
            outcome,
            why: why.to_owned(),
            links,
        };
        sum.reasons = reasons.into_iter().map(reason).collect();
        sum.reasons.sort_by_key(|reason| Reverse(reason.links));
        sum
    }

    fn add(&mut self, record: &Record) {
        self.links += 1;
        match record.outcome {
            Outcome::Hit => self.hits += 1,
            Outcome::Miss => self.misses += 1,
            Outcome::Uncached => self.uncached += 1,
            Outcome::Failed => self.failed += 1,
        }
        self.shared_hits += u64::from(record.shared);
        self.not_kept += u64::from(record.not_kept.is_some());
        self.first_us = Some(
            self.first_us
                .map_or(record.time_us, |first| first.min(record.time_us)),
        );
        self.last_us = self.last_us.max(Some(record.time_us));
        if record.outcome != Outcome::Hit {
            self.wall_us = self
                .wall_us
                .saturating_add(record.wall_us.saturating_sub(record.waited_us));
            self.waited_us = self.waited_us.saturating_add(record.waited_us);
            self.cpu_us = self.cpu_us.saturating_add(record.cpu_us);
            self.peak_memory = self.peak_memory.max(record.peak_memory);
        } else if let Some(cost) = record.saved {
            self.saved_wall_us = self
                .saved_wall_us
                .saturating_add(cost.wall_us.saturating_sub(record.wall_us));
            self.saved_cpu_us = self.saved_cpu_us.saturating_add(cost.cpu_us);
        } else {
            self.saved_unknown += 1;
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Hit => self.hits,
            Outcome::Miss => self.misses,
            Outcome::Uncached => self.uncached,
            Outcome::Failed => self.failed,
        }
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

    #[test]
    fn damaged_lines_are_skipped_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = serde_json::to_string(&example(Outcome::Hit)).unwrap();
        std::fs::write(&path, format!("{line}\n\n{line}\n")).unwrap();
        let whole = read(&path).unwrap();
        assert_eq!((whole.records.len(), whole.damaged), (2, None));
        let half = &line[..line.len() / 2];
        let glued = format!("{half}{line}");
        for bad in [half, "[]", "{\"version\":1}", &glued, "\u{0}\u{0}"] {
            std::fs::write(&path, format!("{line}\n{bad}\n{line}\n")).unwrap();
            let read_back = read(&path).unwrap();
            assert_eq!(read_back.records.len(), 2, "{bad}");
            let warning = read_back.damaged.unwrap().warning();
            assert_eq!(
                warning,
                format!("{}:2: skipped a damaged line", path.display())
            );

            std::fs::write(&path, format!("\n{bad}\n{bad}\n")).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(
                error.starts_with(&format!("{}:2: ", path.display())) && error.contains("damaged"),
                "{error}"
            );
        }
        std::fs::write(&path, format!("{half}\n{line}\n{glued}\n")).unwrap();
        let warning = read(&path).unwrap().damaged.unwrap().warning();
        assert_eq!(
            warning,
            format!(
                "{}:1: skipped 2 damaged lines, beginning here",
                path.display()
            )
        );
    }

    #[test]
    fn a_line_of_a_later_release_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = serde_json::to_string(&example(Outcome::Hit)).unwrap();
        let later = line.replace("\"version\":1", "\"version\":9");
        std::fs::write(&path, format!("{line}\n{later}\n{line}\n")).unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(
            error.starts_with(&format!("{}:2: ", path.display())) && error.contains("version 9"),
            "{error}"
        );
        assert!(format!("{:#}", read(&dir.path().join("none")).unwrap_err()).contains("none"));
    }

    #[test]
    fn hits_count_as_savings_and_all_others_as_cost() {
        let hit = |saved| Record {
            saved,
            wall_us: 10,
            shared: true,
            ..example(Outcome::Hit)
        };
        let miss = |why: &str| Record {
            why: why.to_owned(),
            waited_us: 400,
            time_us: 5,
            ..example(Outcome::Miss)
        };
        let cost = Cost {
            wall_us: 5_010,
            cpu_us: 7_000,
            peak_memory: 1,
        };
        let failed = Record {
            why: "x".to_owned(),
            peak_memory: 9 << 20,
            time_us: 9,
            ..example(Outcome::Failed)
        };
        let not_kept = Record {
            not_kept: Some("y".to_owned()),
            ..miss("b")
        };
        let records = [
            hit(Some(cost)),
            hit(None),
            miss("a"),
            miss("b"),
            not_kept,
            failed,
        ];
        let sum = Summary::of(&records);
        assert_eq!(
            (
                sum.links,
                sum.hits,
                sum.shared_hits,
                sum.misses,
                sum.failed,
                sum.not_kept
            ),
            (6, 2, 2, 3, 1, 1)
        );
        assert_eq!(
            (sum.wall_us, sum.waited_us, sum.cpu_us, sum.peak_memory),
            (3 * 600 + 1000, 1200, 3600, 9 << 20)
        );
        assert_eq!(
            (sum.saved_wall_us, sum.saved_cpu_us, sum.saved_unknown),
            (5_000, 7_000, 1)
        );
        assert_eq!(
            (sum.first_us, sum.last_us),
            (Some(5), Some(records[0].time_us))
        );
        let reasons: Vec<_> = sum
            .reasons
            .iter()
            .map(|reason| (reason.links, reason.outcome, reason.why.as_str()))
            .collect();
        assert_eq!(
            reasons,
            [
                (2, Outcome::Miss, "b"),
                (1, Outcome::Miss, "a"),
                (1, Outcome::Uncached, "y"),
                (1, Outcome::Failed, "x")
            ]
        );
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
