//! Predicts the cost of device links from the last runs of the same program and target.
//!
//! The records are in the local cache. The next link starts the longest image first, and starts
//! none that would not fit into memory. Without a record, memory is estimated from the size of the
//! device code. Time is estimated from the other links of the program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::build_log::Cost;
use crate::link::select::DeviceJob;
use offld_system::scratch;
use offld_system::store::{Cache, Key, KeyBuilder, Scope};
use offld_system::threads::lock;
use offload_formats::magic;

/// Version of the record format.
const VERSION: u32 = 1;
/// Number of recorded runs per link. The memory prediction is the maximum over them.
const RUNS: usize = 4;
/// Maximum number of links in a record. When a new one exceeds it, the record starts over.
const TARGETS: usize = 64;

/// Measured for full LTO on amdgcn: the linker's base memory in bytes, the memory per byte of
/// bitcode, and the exponent of time over size.
const BASE_MEMORY: u64 = 96 << 20;
const MEMORY_OF_BITCODE: u64 = 75;
const GROWTH: f64 = 1.2;
/// Compiled objects are only linked: work per byte relative to bitcode, and bytes of memory per
/// byte.
const WORK_OF_OBJECTS: f64 = 0.02;
const MEMORY_OF_OBJECTS: u64 = 3;

/// Size of a link's device code, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Size {
    /// Bitcode, which still needs code generation.
    bitcode: u64,
    /// All other device code.
    objects: u64,
}

/// One run of a device link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    size: Size,
    /// Number of threads that the run was granted.
    threads: usize,
    cost: Cost,
}

/// The record of one program: the last runs of each device link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CostRecord {
    version: u32,
    links: BTreeMap<String, Vec<Run>>,
}

/// Predicted cost of a device link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prediction {
    /// Run time: in seconds if any link of the program has a record, otherwise only comparable
    /// within the program.
    pub(super) time: f64,
    /// Peak memory with `enough_for` threads, in bytes.
    pub(super) memory: u64,
    /// Number of threads that `memory` covers.
    pub(super) enough_for: usize,
    /// Memory for each additional thread, in bytes.
    pub(super) per_thread: u64,
}

/// Cost records of one program's device links.
pub(super) struct Costs {
    cache: Option<Arc<Cache>>,
    key: Key,
    record: OnceLock<CostRecord>,
    new: Mutex<Vec<(String, Run)>>,
}

impl Size {
    /// Measures the inputs of `job`.
    pub(super) fn of(job: &DeviceJob<'_>) -> Size {
        job.inputs.iter().fold(Size::default(), |mut size, input| {
            let part = if magic::is_bitcode(&input.bytes) {
                &mut size.bitcode
            } else {
                &mut size.objects
            };
            *part += input.bytes.len() as u64;
            size
        })
    }

    fn memory(self) -> u64 {
        BASE_MEMORY + MEMORY_OF_BITCODE * self.bitcode + MEMORY_OF_OBJECTS * self.objects
    }

    /// Estimated work, in arbitrary units.
    fn work(self) -> f64 {
        (1.0 + self.bitcode as f64 + WORK_OF_OBJECTS * self.objects as f64).powf(GROWTH)
    }
}

impl Default for CostRecord {
    fn default() -> Self {
        CostRecord {
            version: VERSION,
            links: BTreeMap::new(),
        }
    }
}

impl CostRecord {
    /// Parses a record. Damaged records and other versions count as empty.
    fn read(bytes: &[u8]) -> CostRecord {
        serde_json::from_slice(bytes)
            .ok()
            .filter(|record: &CostRecord| record.version == VERSION)
            .unwrap_or_default()
    }

    fn add(&mut self, name: String, run: Run) {
        if self.links.len() >= TARGETS && !self.links.contains_key(&name) {
            self.links.clear();
        }
        let runs = self.links.entry(name).or_default();
        runs.push(run);
        runs.drain(..runs.len().saturating_sub(RUNS));
    }

    /// Predicts the cost of links, given by name and size.
    fn predict(&self, links: &[(String, Size)]) -> Vec<Prediction> {
        let known: Vec<Option<Prediction>> = links
            .iter()
            .map(|(name, size)| self.known(name, *size))
            .collect();
        let pairs = || {
            links
                .iter()
                .zip(&known)
                .filter_map(|((_, size), known)| Some((size.work(), known.as_ref()?.time)))
        };
        let (work, time) = pairs().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        let pace = if work > 0.0 { time / work } else { 1.0 };
        let estimate = |size: &Size| {
            // Assume that all code is compiled at once: more threads need no more memory.
            Prediction {
                time: pace * size.work(),
                memory: size.memory(),
                enough_for: usize::MAX,
                per_thread: 0,
            }
        };
        links
            .iter()
            .zip(known)
            .map(|((_, size), known)| known.unwrap_or_else(|| estimate(size)))
            .collect()
    }

    /// Predicts the cost of the link `name` at `size`, if it has a record.
    fn known(&self, name: &str, size: Size) -> Option<Prediction> {
        let runs = self.links.get(name)?;
        let last = runs.last()?;
        let memory_of = |run: &Run| {
            // Memory above the base scales with the code size. Less code does not lower the
            // prediction: it may still need as much.
            let more = (size.memory() as f64 / run.size.memory() as f64).max(1.0);
            let (base, peak) = (BASE_MEMORY.min(run.cost.peak_memory), run.cost.peak_memory);
            (
                base,
                ((peak - base) as f64 * more) as u64,
                run.threads.max(1),
            )
        };
        let (base, code, threads) = runs
            .iter()
            .map(memory_of)
            .max_by_key(|(base, code, _)| base + code)?;
        let time = last.cost.wall_us as f64 / 1e6 * (size.work() / last.size.work());
        // The threads shared the code evenly.
        Some(Prediction {
            time,
            memory: base + code,
            enough_for: threads,
            per_thread: code / threads as u64,
        })
    }
}

impl Costs {
    /// Costs of the links of `program`. Without a cache, nothing is known or recorded.
    pub(super) fn new(cache: Option<&Arc<Cache>>, program: &Path) -> Costs {
        let mut key = KeyBuilder::default();
        key.add("costs 1").add(
            identity(program, &scratch::temp_folder())
                .as_os_str()
                .as_encoded_bytes(),
        );
        Costs {
            cache: cache.cloned(),
            key: key.key(),
            record: OnceLock::new(),
            new: Mutex::default(),
        }
    }

    /// Predicts the cost of each job.
    pub(super) fn predict<'a>(
        &self,
        jobs: impl Iterator<Item = &'a DeviceJob<'a>>,
    ) -> Vec<Prediction> {
        let links: Vec<(String, Size)> = jobs.map(|job| (name(job), Size::of(job))).collect();
        self.record().predict(&links)
    }

    /// Adds a run of `job` with `threads` threads to the record.
    pub(super) fn note(&self, job: &DeviceJob<'_>, threads: usize, cost: Cost) {
        let run = Run {
            size: Size::of(job),
            threads,
            cost,
        };
        lock(&self.new).push((name(job), run));
    }

    /// Writes the new runs to the cache in the background.
    pub(super) fn keep(self) {
        let new = self
            .new
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(cache) = self.cache.filter(|_| !new.is_empty()) else {
            return;
        };
        let (key, store) = (self.key, Arc::clone(&cache));
        cache.later(move || {
            // Another link of this program may have finished meanwhile, so the record is read
            // again. If two links write at the same time, the runs of one are lost.
            let mut record = store
                .record(key, Scope::Local)
                .map_or_else(CostRecord::default, |bytes| CostRecord::read(&bytes));
            new.into_iter()
                .for_each(|(name, run)| record.add(name, run));
            store.put_record(key, &serde_json::to_vec(&record)?, Scope::Local)
        });
    }

    fn record(&self) -> &CostRecord {
        let read = || {
            self.cache
                .as_ref()?
                .record(self.key, Scope::Local)
                .map(|bytes| CostRecord::read(&bytes))
        };
        self.record.get_or_init(|| read().unwrap_or_default())
    }
}

/// The name of a device link within its program.
fn name(job: &DeviceJob<'_>) -> String {
    let kinds: Vec<&str> = job.kinds.iter().map(|kind| kind.name()).collect();
    format!("{} {}", job.target, kinds.join("+"))
}

/// Identifies `program` from one build to the next.
///
/// clang links each object of a HIP program to a temporary file with a random name
/// (`saxpy-1a2b3c.hipfb`), so the random part is dropped.
fn identity(program: &Path, temporary: &Path) -> PathBuf {
    let path = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
    let (Some(name), true) = (
        path.file_name().and_then(|name| name.to_str()),
        path.starts_with(temporary),
    ) else {
        return path;
    };
    let is_random =
        |text: &str| text.len() >= 6 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let stem = name.split('.').next().unwrap_or(name);
    let lasting = stem
        .rsplit_once('-')
        .filter(|(_, end)| is_random(end))
        .map_or(stem, |(lasting, _)| lasting);
    std::env::current_dir()
        .unwrap_or_default()
        .join("temporary")
        .join(lasting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitcode(bytes: u64) -> Size {
        Size {
            bitcode: bytes,
            objects: 0,
        }
    }

    fn run(size: Size, wall_ms: u64, peak_memory: u64) -> Run {
        Run {
            size,
            threads: 1,
            cost: Cost {
                wall_us: wall_ms * 1000,
                cpu_us: 0,
                peak_memory,
            },
        }
    }

    #[test]
    fn the_last_time_and_the_largest_memory_of_the_last_runs_count() {
        let (mut record, size) = (CostRecord::default(), bitcode(1 << 20));
        for (wall, peak) in [
            (9000, 900 << 20),
            (800, 300 << 20),
            (700, 500 << 20),
            (600, 200 << 20),
            (500, 210 << 20),
        ] {
            record.add("a".to_owned(), run(size, wall, peak));
        }
        let record = CostRecord::read(&serde_json::to_vec(&record).unwrap());
        let known = record.known("a", size).unwrap();
        assert_eq!((known.time, known.memory), (0.5, 500 << 20));
        assert_eq!((known.enough_for, known.per_thread), (1, 404 << 20));
        let grown = record.known("a", bitcode(2 << 20)).unwrap();
        assert!(
            grown.time > 1.0 && grown.time < 1.3 && grown.memory > 600 << 20,
            "{grown:?}"
        );
        let shrunk = record.known("a", bitcode(1 << 19)).unwrap();
        assert!(
            shrunk.time < 0.25 && shrunk.memory == 500 << 20,
            "{shrunk:?}"
        );
        assert!(record.known("b", size).is_none());
        assert_eq!(
            CostRecord::read(br#"{"version":9,"links":{}}"#),
            CostRecord::default()
        );
        assert_eq!(CostRecord::read(b"\0"), CostRecord::default());
    }

    #[test]
    fn unknown_links_are_estimated_from_known_ones() {
        let mut record = CostRecord::default();
        let links: Vec<(String, Size)> = [1 << 20, 4 << 20]
            .map(|bytes| (format!("{bytes}"), bitcode(bytes)))
            .into();
        let unknown = record.predict(&links);
        assert!(unknown[1].time > 5.0 * unknown[0].time);
        assert_eq!(unknown[0].memory, (96 << 20) + (75 << 20));
        record.add(links[0].0.clone(), run(links[0].1, 2000, 50 << 20));
        let one = record.predict(&links);
        assert_eq!((one[0].time, one[0].memory), (2.0, 50 << 20));
        assert!(
            (one[1].time - 2.0 * 4_f64.powf(1.2)).abs() < 0.01,
            "{one:?}"
        );
        let objects = record.predict(&[(
            String::new(),
            Size {
                bitcode: 0,
                objects: 1 << 20,
            },
        )]);
        assert!(objects[0].memory < 100 << 20);
    }

    #[test]
    fn temporary_names_are_the_same_each_time() {
        let temporary = Path::new("/tmp");
        let of = |name: &str| identity(Path::new(name), temporary);
        assert_eq!(of("/tmp/saxpy-1a2b3c.hipfb"), of("/tmp/saxpy-99ffee.hipfb"));
        assert_ne!(of("/tmp/saxpy-1a2b3c.hipfb"), of("/tmp/other-1a2b3c.hipfb"));
        assert_ne!(of("/home/x/saxpy-1a2b3c"), of("/home/x/saxpy-99ffee"));
    }
}
