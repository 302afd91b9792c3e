//! The cache under load: many processes at once, which are killed, on full and read-only disks,
//! with damaged files and wrong clocks. The processes are links, and this program itself, as
//! `worker` starts it.

mod directory;
mod disks;
mod links;
mod worker;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use libtest_mimic::{Failed, Trial};
use offld_system::store::{BlobName, Digest, Event, Key, Naming, Store};

use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, passed, run, run_failing, test,
};
pub(crate) use worker::worker;

const MIB: u64 = 1 << 20;
/// The least disk space of a file, in bytes.
const BLOCK: u64 = 4096;

/// Every test in this directory.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        test("cache_store::a_flipped_bit_anywhere_is_a_miss", flipped),
        test("cache_store::a_cut_or_grown_file_is_a_miss", cut),
        test(
            "cache_store::gc_removes_what_was_not_used_for_longest",
            eviction_order,
        ),
        test(
            "cache_store::wrong_clocks_keep_nothing_for_ever",
            wrong_clocks,
        ),
        test("cache_store::clear_stats_and_path", commands),
        test("cache_store::garbage_for_counters", garbage),
    ];
    trials.extend(trials_of! { disks worker links directory });
    trials
}

/// A store in a test's own directory.
struct Cache {
    work: Work,
    store: Store,
}

impl Cache {
    fn new(limit: u64) -> Result<Cache, Failed> {
        let work = Work::new();
        let store = Store::open(&work.path().join("cache"), limit).map_err(as_failed)?;
        Ok(Cache { work, store })
    }

    /// Stores a blob from a file.
    fn put(&self, bytes: &[u8]) -> Result<BlobName, Failed> {
        let file = self.work.file("put", bytes);
        let name = self.store.put_blob(&file, None).map_err(as_failed)?;
        fs::remove_file(file)?;
        Ok(name)
    }

    /// Fetches the blob. Returns `None` for a miss.
    fn fetch(&self, name: BlobName) -> Result<Option<Vec<u8>>, Failed> {
        fetched(&self.store, name, &self.work.path().join("fetched"))
    }

    /// The file of a blob or record.
    fn file(&self, kind: &str, name: impl ToString) -> PathBuf {
        file(self.store.root(), kind, name)
    }

    /// Sets the last use of a blob to `seconds` from now. A negative number is in the past.
    fn used(&self, name: BlobName, seconds: i64) -> Result<(), Failed> {
        let by = Duration::from_secs(seconds.unsigned_abs());
        let time = if seconds < 0 {
            SystemTime::now() - by
        } else {
            SystemTime::now() + by
        };
        Ok(File::open(self.file("b", name))?.set_modified(time)?)
    }

    /// `offld cache` for this store.
    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.work.command(crate::support::offld());
        command
            .arg("cache")
            .args(words)
            .env("OFFLD_CACHE", self.store.root());
        command
    }

    fn stat(&self, name: &str) -> Result<u64, Failed> {
        let text = run(&mut self.command(&["stats", "--json"]))?;
        let all: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        all[name]
            .as_u64()
            .ok_or_else(|| format!("no `{name}`: {text}").into())
    }
}

fn as_failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}

/// The name of a blob in a local-only store.
fn named(blob: &[u8]) -> BlobName {
    BlobName::of(blob, Naming::Quick)
}

/// The path that docs/reference/cache.md specifies.
fn file(root: &Path, kind: &str, name: impl ToString) -> PathBuf {
    let name = name.to_string();
    root.join("v3").join(kind).join(&name[..2]).join(name)
}

/// Fetches the blob `name` through the file `to`, which must exist exactly if the blob does.
fn fetched(store: &Store, name: BlobName, to: &Path) -> Result<Option<Vec<u8>>, Failed> {
    let there = store.fetch_blob(name, to).map_err(as_failed)?;
    if there != to.exists() {
        return Err(format!("fetched: {there}, and there: {}", to.exists()).into());
    }
    let bytes = if there { Some(fs::read(to)?) } else { None };
    if there {
        fs::remove_file(to)?;
    }
    Ok(bytes)
}

/// Incompressible bytes, always the same for one `seed`.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// Overwrites a read-only file.
fn damage(file: &Path, bytes: &[u8]) -> Result<(), Failed> {
    fs::set_permissions(file, Permissions::from_mode(0o644))?;
    Ok(fs::write(file, bytes)?)
}

fn flipped() -> Outcome {
    let cache = Cache::new(64 * MIB)?;
    let image = noise(1, 600_000);
    let name = cache.put(&image)?;
    // Both ends, both sides of the read buffer's boundaries, and offsets in between.
    let places = [
        0, 1, 4095, 4096, 262_143, 262_144, 262_145, 524_288, 599_998, 599_999,
    ];
    for (count, at) in places
        .into_iter()
        .chain((7..600_000).step_by(60_007))
        .enumerate()
    {
        let mut bytes = image.clone();
        bytes[at] ^= 1 << (at % 8);
        damage(&cache.file("b", name), &bytes)?;
        if cache.fetch(name)?.is_some() || cache.file("b", name).exists() {
            return Err(format!("a bit is wrong at {at}, and the blob is there").into());
        }
        expect_equal(
            "damaged",
            &(count + 1).to_string(),
            &cache.stat("damaged")?.to_string(),
        )?;
        cache.put(&image)?;
        if cache.fetch(name)? != Some(image.clone()) {
            return Err(format!("put again after {at}, and not there").into());
        }
    }
    let key = Key::of("key");
    let bytes = noise(2, 300);
    cache.store.put_record(key, &bytes).map_err(as_failed)?;
    let whole = fs::read(cache.file("r", key))?;
    for at in 0..whole.len() {
        let mut wrong = whole.clone();
        wrong[at] ^= 1 << (at % 8);
        damage(&cache.file("r", key), &wrong)?;
        if cache.store.record(key).is_some() || cache.file("r", key).exists() {
            return Err(format!("a bit is wrong at {at}, and the record is there").into());
        }
        cache.store.put_record(key, &bytes).map_err(as_failed)?;
    }
    ensure(
        cache.store.record(key) == Some(bytes),
        || "the record is not what was put last",
    )?;
    passed()
}

fn cut() -> Outcome {
    let cache = Cache::new(64 * MIB)?;
    let image = noise(3, 300_000);
    let key = Key::of("key");
    for len in [0, 1, 4096, 262_144, 299_999, 300_001, 400_000] {
        let name = cache.put(&image)?;
        cache.store.put_record(key, &image).map_err(as_failed)?;
        for file in [cache.file("b", name), cache.file("r", key)] {
            fs::set_permissions(&file, Permissions::from_mode(0o644))?;
            File::options().write(true).open(&file)?.set_len(len)?;
        }
        if cache.fetch(name)?.is_some() || cache.store.record(key).is_some() {
            return Err(format!("cut to {len}, and there").into());
        }
        // A put replaces a file of the wrong size.
        cache.put(&image)?;
        damage(&cache.file("b", name), b"short")?;
        cache.put(&image)?;
        ensure(
            cache.fetch(name)?.as_ref() == Some(&image),
            || "a put did not replace the damaged blob",
        )?;
    }
    // A directory in place of a file is a miss, too.
    let (name, key) = (named(b"a folder"), Key::of("a folder"));
    fs::create_dir_all(cache.file("b", name))?;
    fs::create_dir_all(cache.file("r", key))?;
    ensure(
        cache.fetch(name)?.is_none() && cache.store.record(key).is_none(),
        || "a folder was taken for an entry",
    )?;
    passed()
}

fn eviction_order() -> Outcome {
    let cache = Cache::new(64 * MIB)?;
    let names = (0..6)
        .map(|seed| cache.put(&noise(seed, 3000)))
        .collect::<Result<Vec<_>, _>>()?;
    for (name, ago) in names.iter().zip([500, 3600, 400_000, 1000, 90_000, 7200]) {
        cache.used(*name, -ago)?;
    }
    let left = || -> String {
        names
            .iter()
            .map(|name| {
                if cache.store.has_blob(*name) {
                    '+'
                } else {
                    '-'
                }
            })
            .collect()
    };
    let stdout = run(&mut cache.command(&["gc", "--max-size=16K"]))?;
    expect_equal(
        "told",
        "removed 2 files, 8.0K; left 4 files, 16K\n",
        &stdout,
    )?;
    expect_equal("four of six", "++-+-+", &left())?;
    // A use of the oldest entry makes the next one the oldest.
    cache.fetch(names[5])?;
    run(&mut cache.command(&["gc", "--max-size=12K"]))?;
    expect_equal("three of six", "+--+-+", &left())?;
    // Without `--max-size`, the limit of the cache applies.
    run(cache.command(&["gc"]).env("OFFLD_CACHE_SIZE", "4K"))?;
    expect_equal("one of six", "-----+", &left())?;
    expect_equal("evicted", "5", &cache.stat("evicted")?.to_string())?;
    passed()
}

fn wrong_clocks() -> Outcome {
    const YEAR: i64 = 365 * 24 * 3600;
    let limit = 8 * BLOCK;
    let cache = Cache::new(limit)?;
    // Entries from a machine whose clock was years ahead, and from one whose clock was at 1970.
    for seed in 0..8 {
        let name = cache.put(&noise(seed, 3000))?;
        cache.used(name, if seed < 4 { 30 * YEAR } else { -50 * YEAR })?;
    }
    for seed in 100..110 {
        let name = cache.put(&noise(seed, 3000))?;
        let size = cache.store.contents().size;
        if size > limit || cache.fetch(name)?.is_none() {
            return Err(format!("{size} bytes, or what was put last is gone").into());
        }
    }
    // The remaining entries have a correct timestamp.
    let names = (100..110).map(|seed| named(&noise(seed, 3000)));
    let known = names.filter(|name| cache.store.has_blob(*name)).count() as u64;
    expect_equal(
        "left",
        &cache.store.contents().blobs.to_string(),
        &known.to_string(),
    )?;
    // The recorded last collection is in the future.
    let stats = cache.store.root().join("v3/stats");
    let text = fs::read_to_string(&stats)?;
    let collected = text
        .lines()
        .find(|line| line.starts_with("collected "))
        .ok_or("no `collected`")?;
    let future = text.replace(collected, "collected 09999999999999999999");
    let (lines, _) = future.trim_end().rsplit_once('\n').ok_or("no lines")?;
    fs::write(
        &stats,
        format!("{lines}\n{}\n", Digest::of(format!("{lines}\n").as_bytes())),
    )?;
    fs::write(cache.store.root().join("v3/tmp/left"), "x")?;
    File::open(cache.store.root().join("v3/tmp/left"))?.set_modified(SystemTime::UNIX_EPOCH)?;
    cache.put(b"one more")?;
    expect_no_file(&cache.store.root().join("v3/tmp/left"))?;
    passed()
}

fn commands() -> Outcome {
    let cache = Cache::new(64 * MIB)?;
    cache.put(&noise(1, 100_000))?;
    cache
        .store
        .put_record(Key::of("record"), b"record")
        .map_err(as_failed)?;
    for event in [Event::Hit, Event::Hit, Event::Miss, Event::Uncached] {
        cache.store.count(event);
    }
    let text = run(&mut cache.command(&["stats"]))?;
    for line in [
        "size           104K of 5.0G",
        "images         1",
        "records        1",
        "hits           2 (66.7%)",
        "misses         1",
    ] {
        expect_in(&text, line)?;
    }
    expect_equal("size", "106496", &cache.stat("size")?.to_string())?;
    expect_equal(
        "limit",
        &(5u64 << 30).to_string(),
        &cache.stat("limit")?.to_string(),
    )?;
    expect_equal(
        "path",
        &format!("{}\n", cache.store.root().display()),
        &run(&mut cache.command(&["path"]))?,
    )?;
    expect_in(
        &fs::read_to_string(cache.store.root().join("CACHEDIR.TAG"))?,
        "Signature: 8a477f597d28d172789f06886806bc55\n",
    )?;
    // Files that offld did not create remain.
    let theirs = cache.work.file("cache/v3/b/aa/notes.txt", "mine");
    expect_equal(
        "clear",
        "removed 2 files, 104K; left 0 files, 0\n",
        &run(&mut cache.command(&["clear"]))?,
    )?;
    expect_equal("after that", "0 0 0 0 true", &{
        let of = |name| cache.stat(name);
        format!(
            "{} {} {} {} {}",
            of("blobs")?,
            of("size")?,
            of("hits")?,
            of("stored")?,
            theirs.exists()
        )
    })?;
    // `clear` waits for the process that holds the lock.
    let lock = File::options()
        .write(true)
        .open(cache.store.root().join("v3/lock"))?;
    lock.lock()?;
    let mut clear = cache
        .command(&["clear"])
        .stdout(std::process::Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(200));
    let waits = clear.try_wait()?.is_none();
    drop(lock);
    expect_equal(
        "it waits, and does it",
        "true true",
        &format!("{waits} {}", clear.wait()?.success()),
    )?;
    passed()
}

fn garbage() -> Outcome {
    let cache = Cache::new(64 * MIB)?;
    cache.put(b"image")?;
    cache.store.count(Event::Hit);
    let stats = cache.store.root().join("v3/stats");
    let good = fs::read(&stats)?;
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    for bytes in [
        b"".to_vec(),
        noise(1, 5000),
        good[..good.len() - 1].to_vec(),
        flipped,
        vec![0; 1 << 20],
    ] {
        fs::write(&stats, &bytes)?;
        expect_equal(
            "garbage counts as nothing",
            "0",
            &cache.stat("hits")?.to_string(),
        )?;
        cache.store.count(Event::Hit);
        expect_equal("and is written anew", "1", &cache.stat("hits")?.to_string())?;
        expect_equal(
            "in its size",
            &good.len().to_string(),
            &fs::metadata(&stats)?.len().to_string(),
        )?;
    }
    // A directory in place of the statistics: offld counts nothing, and everything else works.
    fs::remove_file(&stats)?;
    fs::create_dir(&stats)?;
    cache.store.count(Event::Hit);
    ensure(
        cache.fetch(named(b"image"))?.is_some(),
        || "the blob was not found",
    )?;
    ensure(
        cache.store.put_record(Key::of("r"), b"r").is_err(),
        || "a record was put, though the statistics cannot be written",
    )?;
    expect_in(&run_failing(&mut cache.command(&["clear"]))?, "/v3/stats`")?;
    passed()
}
