//! Processes that use one cache. Each looks results up as a link does, checks every byte of a hit,
//! and stores the result of a miss. They are this program, started with an environment variable
//! that names their task.

use std::fs;
use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use offld_system::store::{Event, Key, Store};

use super::{Cache, MIB, as_failed, fetched, file, noise};
use crate::effort::rounds;
use crate::support::{Outcome, ensure, expect_equal, passed, test};

/// The task has five lines: `ROOT`, `LIMIT`, `SEED`, `COUNT` and `FOLDER`.
const TASK: &str = "OFFLD_SUITE_CACHE_WORKER";
/// The number of different results, as from ten programs.
const RESULTS: u64 = 10;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("cache_store::processes_at_once", at_once),
        test("cache_store::workers_that_are_killed", killed),
    ]
}

/// Runs the task of this process if it was started as a worker.
pub(crate) fn worker() -> Option<ExitCode> {
    let task = std::env::var(TASK).ok()?;
    Some(match work(&task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("{}", failed.message().unwrap_or("failed"));
            ExitCode::FAILURE
        }
    })
}

fn work(task: &str) -> Result<(), Failed> {
    let lines: Vec<&str> = task.lines().collect();
    let [root, limit, seed, count, folder] = lines[..] else {
        return Err("no task".into());
    };
    let store = Store::open(Path::new(root), limit.parse()?).map_err(as_failed)?;
    let seed: u64 = seed.parse()?;
    // The parent process waits for this line.
    println!("at work");
    for step in 0..count.parse()? {
        let which = noise(seed * 1_000_003 + step, 8)[0] as u64 % RESULTS;
        let file = Path::new(folder).join(format!("{seed}-{step}"));
        link(&store, which, &file, step % 2 == 0)?;
    }
    Ok(())
}

/// The contents of a result, between 5 and 400 KB.
fn image(which: u64) -> Vec<u8> {
    noise(which + 1, 5000 + which as usize * 43_210)
}

fn key(which: u64) -> Key {
    Key::of(format!("program {which}"))
}

/// Uses the store as a link does: looks up the record and fetches its blob, or stores both. Fails
/// if the bytes are wrong.
fn link(store: &Store, which: u64, at: &Path, hash_is_known: bool) -> Result<(), Failed> {
    let image = image(which);
    let name = super::named(&image);
    if let Some(record) = store.record(key(which)) {
        expect_equal(
            "a record",
            &name.to_string(),
            &String::from_utf8_lossy(&record),
        )?;
        if let Some(found) = fetched(store, name, at)? {
            if found != image {
                return Err(format!("a wrong image: {which}").into());
            }
            store.count(Event::Hit);
            return Ok(());
        }
    }
    store.count(Event::Miss);
    fs::write(at, &image)?;
    let put = store
        .put_blob(at, hash_is_known.then_some(name))
        .map_err(as_failed)?;
    fs::remove_file(at)?;
    expect_equal("the name of a blob", &name.to_string(), &put.to_string())?;
    store
        .put_record(key(which), name.to_string().as_bytes())
        .map_err(as_failed)
}

/// Starts a worker.
fn start(cache: &Cache, limit: u64, seed: u64, count: u64) -> Result<Child, Failed> {
    let (root, folder) = (cache.store.root().display(), cache.work.path().display());
    let task = format!("{root}\n{limit}\n{seed}\n{count}\n{folder}");
    let me = std::env::current_exe()?;
    Ok(Command::new(me)
        .env(TASK, task)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?)
}

/// Checks that everything in the store matches its name. Returns the number of blobs.
fn all_is_whole(cache: &Cache) -> Result<u64, Failed> {
    let mut blobs = 0;
    for which in 0..RESULTS {
        let image = image(which);
        let path = file(cache.store.root(), "b", super::named(&image));
        if path.exists() {
            blobs += 1;
            ensure(fs::read(path)? == image, || {
                format!("blob {which} is not what was put")
            })?;
        }
        let record = file(cache.store.root(), "r", key(which));
        if record.exists() {
            let read = cache
                .store
                .record(key(which))
                .ok_or_else(|| format!("a torn record: {which}"))?;
            expect_equal(
                "a record",
                &super::named(&image).to_string(),
                &String::from_utf8_lossy(&read),
            )?;
        }
    }
    expect_equal(
        "all blobs",
        &blobs.to_string(),
        &cache.store.contents().blobs.to_string(),
    )?;
    expect_equal(
        "damaged",
        "0",
        &cache.store.stats().get(Event::Damaged).to_string(),
    )?;
    Ok(blobs)
}

fn at_once() -> Outcome {
    const STEPS: u64 = 10;
    let processes = rounds("cache_store: processes at once", 200, 50);
    // Half of the results fit into the smaller limit, so offld always evicts some.
    for limit in [64 * MIB, MIB] {
        let cache = Cache::new(limit)?;
        let workers = (0..processes)
            .map(|seed| start(&cache, limit, seed, STEPS))
            .collect::<Result<Vec<_>, _>>()?;
        for worker in workers {
            let ended = worker.wait_with_output()?;
            if !ended.status.success() {
                return Err(format!(
                    "{}: {}",
                    ended.status,
                    String::from_utf8_lossy(&ended.stderr)
                )
                .into());
            }
        }
        let blobs = all_is_whole(&cache)?;
        let stats = cache.store.stats();
        let counted = stats.get(Event::Hit) + stats.get(Event::Miss);
        expect_equal(
            "every link was counted",
            &(processes * STEPS).to_string(),
            &counted.to_string(),
        )?;
        let evicted = stats.get(Event::Evicted);
        let held = if limit == MIB {
            blobs < RESULTS && evicted > 0
        } else {
            blobs == RESULTS && evicted == 0
        };
        ensure(held, || {
            format!(
                "{blobs} of {RESULTS} blobs are there, {evicted} were evicted, where {limit} bytes fit"
            )
        })?;
        // The last put may have skipped the collection, because another process was collecting.
        cache.store.gc(limit).map_err(as_failed)?;
        let (size, contents) = (cache.store.stats().size, cache.store.contents());
        expect_equal(
            "the size is known",
            &contents.size.to_string(),
            &size.to_string(),
        )?;
        ensure(size <= limit, || {
            format!("{size} bytes are left after a collection, where {limit} fit")
        })?;
        expect_equal(
            "nothing is left aside",
            "0",
            &fs::read_dir(cache.store.root().join("v3/tmp"))?
                .count()
                .to_string(),
        )?;
    }
    passed()
}

fn killed() -> Outcome {
    let cache = Cache::new(MIB)?;
    let mut before = 0;
    let rounds = rounds("cache_store: pairs of workers that are killed", 100, 25u64);
    for round in 0..rounds {
        let mut workers = vec![
            start(&cache, MIB, round * 2, 1_000_000)?,
            start(&cache, MIB, round * 2 + 1, 1_000_000)?,
        ];
        let at_work = workers
            .first_mut()
            .and_then(|worker| worker.stdout.take())
            .ok_or("no stdout")?;
        std::io::BufReader::new(at_work).read_line(&mut String::new())?;
        // A put takes some milliseconds.
        std::thread::sleep(Duration::from_micros(u64::from(noise(round, 8)[3]) * 150));
        for worker in &mut workers {
            let early = worker.try_wait()?;
            worker.kill()?;
            let ended = worker.wait()?;
            if early.is_some() {
                return Err(format!("a worker ended by itself: {ended}").into());
            }
        }
        all_is_whole(&cache)?;
        let stats = cache.store.stats();
        let counted = stats.get(Event::Hit) + stats.get(Event::Miss);
        if counted < before {
            return Err(format!("counted {counted} after {before}").into());
        }
        before = counted;
        // The counted size may be too high, never too low.
        let (known, there) = (stats.size, cache.store.contents().size);
        ensure(known >= there, || {
            format!("{there} bytes are there, and only {known} counted")
        })?;
    }
    ensure(before > rounds, || {
        format!("the workers have put only {before} results before they were killed")
    })?;
    // Many workers were killed during a put. Their temporary files do not remain.
    let tmp = cache.store.root().join("v3/tmp");
    let left: Vec<_> = fs::read_dir(&tmp)?.collect();
    ensure(left.len() as u64 > rounds / 20, || {
        format!(
            "only {} workers were killed while they were putting something",
            left.len()
        )
    })?;
    for entry in left {
        let file = fs::File::open(entry?.path())?;
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(2 * 3600))?;
    }
    cache.store.gc(MIB).map_err(as_failed)?;
    expect_equal("left aside", "0", &fs::read_dir(tmp)?.count().to_string())?;
    expect_equal(
        "the size",
        &cache.store.contents().size.to_string(),
        &cache.store.stats().size.to_string(),
    )?;
    passed()
}
