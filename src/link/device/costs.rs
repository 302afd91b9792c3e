//! What the device links of a program cost the last times: kept with the cache's records on this machine, by the program and the
//! target. The next link runs the longest first, and begins none whose memory is not there. What was never linked is estimated from
//! the size of its device code, and its time from those links of the same program that were.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

use crate::build_log::Cost;
use crate::formats::magic;
use crate::link::select::DeviceJob;
use crate::store::{Cache, Key, KeyBuilder};
use crate::sys::session;

/// The version of the records.
const VERSION: u32 = 1;
/// How many runs of a link are kept. The memory of the next is taken to be that of the largest of them.
const RUNS: usize = 4;
/// Targets that have not been linked for so many links of the program are forgotten.
const TARGETS: usize = 64;

/// What was measured of full LTO for amdgcn: the memory of the linker itself, that for each byte of bitcode, and how time grows with
/// the size.
const BASE_MEMORY: u64 = 96 << 20;
const MEMORY_OF_BITCODE: u64 = 75;
const GROWTH: f64 = 1.2;
/// What is compiled already is only put together: how much less work a byte of it is, and its memory.
const WORK_OF_OBJECTS: f64 = 0.02;
const MEMORY_OF_OBJECTS: u64 = 3;

/// How large the device code of a link is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Size {
    /// Bitcode, of which code is generated.
    bitcode: u64,
    /// Everything else.
    objects: u64,
}

/// One run of a device link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    size: Size,
    /// How many threads it was granted.
    threads: usize,
    cost: Cost,
}

/// What is kept of a program: the last runs of each of its device links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    version: u32,
    links: BTreeMap<String, Vec<Run>>,
}

/// What a device link will probably cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prediction {
    /// Its time. In seconds where any link of the program is known, else in a unit of its own.
    pub(super) time: f64,
    /// Its memory at most, in bytes.
    pub(super) memory: u64,
    /// For how many threads that is enough.
    pub(super) enough_for: usize,
    /// What each thread beyond these takes, in bytes.
    pub(super) per_thread: u64,
}

/// The costs of one program's device links.
pub(super) struct Costs {
    cache: Option<Arc<Cache>>,
    key: Key,
    kept: OnceLock<Kept>,
    new: Mutex<Vec<(String, Run)>>,
}

impl Size {
    /// That of `job`.
    pub(super) fn of(job: &DeviceJob<'_>) -> Size {
        job.inputs.iter().fold(Size::default(), |mut size, input| {
            let part = if magic::is_bitcode(&input.bytes) { &mut size.bitcode } else { &mut size.objects };
            *part += input.bytes.len() as u64;
            size
        })
    }

    fn memory(self) -> u64 {
        BASE_MEMORY + MEMORY_OF_BITCODE * self.bitcode + MEMORY_OF_OBJECTS * self.objects
    }

    /// How much work it is, in a unit of its own.
    fn work(self) -> f64 {
        (1.0 + self.bitcode as f64 + WORK_OF_OBJECTS * self.objects as f64).powf(GROWTH)
    }
}

impl Default for Kept {
    fn default() -> Self {
        Kept { version: VERSION, links: BTreeMap::new() }
    }
}

impl Kept {
    /// The record `bytes`; an empty one where they are none of this version.
    fn read(bytes: &[u8]) -> Kept {
        serde_json::from_slice(bytes).ok().filter(|kept: &Kept| kept.version == VERSION).unwrap_or_default()
    }

    fn add(&mut self, name: String, run: Run) {
        if self.links.len() >= TARGETS && !self.links.contains_key(&name) {
            self.links.clear();
        }
        let runs = self.links.entry(name).or_default();
        runs.push(run);
        runs.drain(..runs.len().saturating_sub(RUNS));
    }

    /// What the links of these names and sizes will cost.
    fn predict(&self, links: &[(String, Size)]) -> Vec<Prediction> {
        let known: Vec<Option<Prediction>> = links.iter().map(|(name, size)| self.known(name, *size)).collect();
        let pairs = || links.iter().zip(&known).filter_map(|((_, size), known)| Some((size.work(), known.as_ref()?.time)));
        let (work, time) = pairs().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        let pace = if work > 0.0 { time / work } else { 1.0 };
        let estimate = |size: &Size| {
            // As much as if all of it were compiled together.
            Prediction { time: pace * size.work(), memory: size.memory(), enough_for: usize::MAX, per_thread: 0 }
        };
        links.iter().zip(known).map(|((_, size), known)| known.unwrap_or_else(|| estimate(size))).collect()
    }

    /// What the link `name` will cost now that it has the size `size`, if it is known.
    fn known(&self, name: &str, size: Size) -> Option<Prediction> {
        let runs = self.links.get(name)?;
        let last = runs.last()?;
        let memory_of = |run: &Run| {
            // Above its base, memory grows with the code. Where there is less code than then, it may still be needed.
            let more = (size.memory() as f64 / run.size.memory() as f64).max(1.0);
            let (base, peak) = (BASE_MEMORY.min(run.cost.peak_memory), run.cost.peak_memory);
            (base, ((peak - base) as f64 * more) as u64, run.threads.max(1))
        };
        let (base, code, threads) = runs.iter().map(memory_of).max_by_key(|(base, code, _)| base + code)?;
        let time = last.cost.wall_us as f64 / 1e6 * (size.work() / last.size.work());
        // Each of the threads had a part of the code.
        Some(Prediction { time, memory: base + code, enough_for: threads, per_thread: code / threads as u64 })
    }
}

impl Costs {
    /// Those of `program`. Without a cache nothing is known and nothing kept.
    pub(super) fn new(cache: Option<&Arc<Cache>>, program: &Path) -> Costs {
        let mut key = KeyBuilder::default();
        key.add("costs 1").add(identity(program, &session::temp_folder()).as_os_str().as_encoded_bytes());
        Costs { cache: cache.cloned(), key: key.key(), kept: OnceLock::new(), new: Mutex::default() }
    }

    /// What `jobs` will cost.
    pub(super) fn predict<'a>(&self, jobs: impl Iterator<Item = &'a DeviceJob<'a>>) -> Vec<Prediction> {
        let links: Vec<(String, Size)> = jobs.map(|job| (name(job), Size::of(job))).collect();
        self.kept().predict(&links)
    }

    /// Notes what `job` has cost with `threads` threads.
    pub(super) fn note(&self, job: &DeviceJob<'_>, threads: usize, cost: Cost) {
        let run = Run { size: Size::of(job), threads, cost };
        self.new.lock().unwrap_or_else(PoisonError::into_inner).push((name(job), run));
    }

    /// Keeps what was noted, in the background.
    pub(super) fn keep(self) {
        let new = self.new.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(cache) = self.cache.filter(|_| !new.is_empty()) else { return };
        let (key, store) = (self.key, Arc::clone(&cache));
        cache.later(move || {
            // Another link of this program may have ended meanwhile. When two do at once, the runs of one are lost.
            let mut kept = store.own_record(key).map_or_else(Kept::default, |bytes| Kept::read(&bytes));
            new.into_iter().for_each(|(name, run)| kept.add(name, run));
            if let Ok(bytes) = serde_json::to_vec(&kept) {
                store.put_own_record(key, &bytes);
            }
        });
    }

    fn kept(&self) -> &Kept {
        let read = || self.cache.as_ref()?.own_record(self.key).map(|bytes| Kept::read(&bytes));
        self.kept.get_or_init(|| read().unwrap_or_default())
    }
}

/// By what a device link is known among those of its program.
fn name(job: &DeviceJob<'_>) -> String {
    let kinds: Vec<&str> = job.kinds.iter().map(|kind| kind.name()).collect();
    format!("{} {}", job.target, kinds.join("+"))
}

/// By what `program` is known from one build to the next. Where it is a temporary file, as clang's for each object of a HIP program, it
/// has another name each time: `saxpy-1a2b3c.hipfb`.
fn identity(program: &Path, temporary: &Path) -> PathBuf {
    let path = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
    let (Some(name), true) = (path.file_name().and_then(|name| name.to_str()), path.starts_with(temporary)) else { return path };
    let is_random = |text: &str| text.len() >= 6 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let stem = name.split('.').next().unwrap_or(name);
    let lasting = stem.rsplit_once('-').filter(|(_, end)| is_random(end)).map_or(stem, |(lasting, _)| lasting);
    std::env::current_dir().unwrap_or_default().join("temporary").join(lasting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitcode(bytes: u64) -> Size {
        Size { bitcode: bytes, objects: 0 }
    }

    fn run(size: Size, wall_ms: u64, peak_memory: u64) -> Run {
        Run { size, threads: 1, cost: Cost { wall_us: wall_ms * 1000, cpu_us: 0, peak_memory } }
    }

    #[test]
    fn the_last_time_and_the_largest_memory_of_the_last_runs_count() {
        let (mut kept, size) = (Kept::default(), bitcode(1 << 20));
        for (wall, peak) in [(9000, 900 << 20), (800, 300 << 20), (700, 500 << 20), (600, 200 << 20), (500, 210 << 20)] {
            kept.add("a".to_owned(), run(size, wall, peak));
        }
        let kept = Kept::read(&serde_json::to_vec(&kept).unwrap());
        let known = kept.known("a", size).unwrap();
        assert_eq!((known.time, known.memory), (0.5, 500 << 20));
        assert_eq!((known.enough_for, known.per_thread), (1, 404 << 20));
        let grown = kept.known("a", bitcode(2 << 20)).unwrap();
        assert!(grown.time > 1.0 && grown.time < 1.3 && grown.memory > 600 << 20, "{grown:?}");
        let shrunk = kept.known("a", bitcode(1 << 19)).unwrap();
        assert!(shrunk.time < 0.25 && shrunk.memory == 500 << 20, "{shrunk:?}");
        assert!(kept.known("b", size).is_none());
        assert_eq!(Kept::read(br#"{"version":9,"links":{}}"#), Kept::default());
        assert_eq!(Kept::read(b"\0"), Kept::default());
    }

    #[test]
    fn what_is_unknown_is_estimated_at_the_pace_of_what_is_known() {
        let mut kept = Kept::default();
        let links: Vec<(String, Size)> = [1 << 20, 4 << 20].map(|bytes| (format!("{bytes}"), bitcode(bytes))).into();
        let unknown = kept.predict(&links);
        assert!(unknown[1].time > 5.0 * unknown[0].time);
        assert_eq!(unknown[0].memory, (96 << 20) + (75 << 20));
        kept.add(links[0].0.clone(), run(links[0].1, 2000, 50 << 20));
        let one = kept.predict(&links);
        assert_eq!((one[0].time, one[0].memory), (2.0, 50 << 20));
        assert!((one[1].time - 2.0 * 4_f64.powf(1.2)).abs() < 0.01, "{one:?}");
        let objects = kept.predict(&[(String::new(), Size { bitcode: 0, objects: 1 << 20 })]);
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
