//! Full and read-only disks: no partial file stays, and existing entries are found.

use std::fs;
use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};
use offld_system::store::{Event, Key, Store};

use super::{MIB, as_failed, fetched, noise};
use crate::faults::full_disk::Disk;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, missing, passed, run, run_failing, test,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("cache_store::a_full_disk_keeps_nothing_by_halves", full),
        test("cache_store::a_full_disk_for_what_is_fetched", full_target),
        test("cache_store::a_read_only_cache_is_read", read_only),
    ]
}

fn files_below(folder: PathBuf) -> Result<Vec<PathBuf>, Failed> {
    let mut all = Vec::new();
    let mut waiting = vec![folder];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path)?.flatten().map(|entry| entry.path()));
        } else if path.exists() {
            all.push(path);
        }
    }
    Ok(all)
}

fn full() -> Outcome {
    let work = Work::new();
    let Some(disk) = Disk::new(&work, "disk")? else {
        return missing("the right to mount a file system");
    };
    let image = noise(1, 100_000);
    let name = super::named(&image);
    let file = work.file("image", &image);
    let root = disk.folder().join("cache");
    let (mut failed, mut put) = (0, false);
    for kib in (4..400).step_by(4) {
        disk.resize(kib)?;
        let store = Store::open(&root, 64 * MIB).map_err(as_failed)?;
        let blob = store.put_blob(&file, (kib % 8 == 0).then_some(name));
        let record = store.put_record(Key::of("record"), &image[..3000]);
        store.count(Event::Miss);
        let all = files_below(root.join("v3"))?;
        let shown = format!("with {kib} KiB: {all:?}");
        expect_equal(
            &format!("left aside {shown}"),
            "0",
            &files_below(root.join("v3/tmp"))?.len().to_string(),
        )?;
        // A failed put leaves nothing. A successful one leaves the complete blob.
        let there = fetched(&store, name, &work.path().join("to"))?;
        expect_equal(
            &format!("the blob {shown}"),
            &blob.is_ok().to_string(),
            &there.is_some().to_string(),
        )?;
        ensure(there.is_none_or(|bytes| bytes == image), || {
            format!("other bytes than were put, {shown}")
        })?;
        let record_there = store
            .record(Key::of("record"))
            .is_some_and(|bytes| bytes == image[..3000]);
        expect_equal(
            &format!("the record {shown}"),
            &record.is_ok().to_string(),
            &record_there.to_string(),
        )?;
        expect_equal(
            "damaged",
            "0",
            &store.stats().get(Event::Damaged).to_string(),
        )?;
        failed += usize::from(blob.is_err());
        if let Err(error) = &blob {
            expect_in(&format!("{error:#}"), "No space left on device")?;
        }
        put = blob.is_ok() && record.is_ok();
        if put {
            break;
        }
        store.forget(Key::of("record"));
    }
    expect_equal(
        "failed first, then not",
        "true true",
        &format!("{} {put}", failed > 10),
    )?;
    passed()
}

fn full_target() -> Outcome {
    let work = Work::new();
    let Some(disk) = Disk::new(&work, "disk")? else {
        return missing("the right to mount a file system");
    };
    disk.resize(64)?;
    let image = noise(1, 100_000);
    let store = Store::open(&work.path().join("cache"), 64 * MIB).map_err(as_failed)?;
    let name = store
        .put_blob(&work.file("image", &image), None)
        .map_err(as_failed)?;
    let to = disk.folder().join("to");
    let error = store
        .fetch_blob(name, &to)
        .err()
        .ok_or("there is no room, and no error")?;
    expect_in(&format!("{error:#}"), "No space left on device")?;
    expect_equal("what is left of it", "", &disk.files()?)?;
    // A full output disk does not make the blob invalid.
    disk.resize(200)?;
    ensure(
        fetched(&store, name, &to)? == Some(image),
        || "the blob was not fetched once there was room",
    )?;
    passed()
}

fn read_only() -> Outcome {
    let work = Work::new();
    let Some(disk) = Disk::new(&work, "disk")? else {
        return missing("the right to mount a file system");
    };
    disk.resize(400)?;
    let root = disk.folder().join("cache");
    let (image, other) = (noise(1, 50_000), noise(2, 50_000));
    let store = Store::open(&root, 64 * MIB).map_err(as_failed)?;
    let name = store
        .put_blob(&work.file("image", &image), None)
        .map_err(as_failed)?;
    let damaged = store
        .put_blob(&work.file("other", &other), None)
        .map_err(as_failed)?;
    super::damage(&super::file(&root, "b", damaged), &image)?;
    store
        .put_record(Key::of("record"), b"record")
        .map_err(as_failed)?;
    store.count(Event::Hit);
    disk.read_only()?;
    let store = Store::open(&root, 64 * MIB).map_err(as_failed)?;
    let to = work.path().join("to");
    ensure(
        fetched(&store, name, &to)? == Some(image),
        || "the blob was not fetched from a read-only disk",
    )?;
    ensure(
        store.record(Key::of("record")).as_deref() == Some(b"record"),
        || "the record was not read from a read-only disk",
    )?;
    // A damaged blob that cannot be removed is a miss each time.
    for _ in 0..2 {
        ensure(
            fetched(&store, damaged, &to)?.is_none(),
            || "a damaged blob was handed out",
        )?;
    }
    store.count(Event::Hit);
    let put = store
        .put_blob(&work.file("third", noise(3, 100)), None)
        .err()
        .ok_or("put into a read-only folder")?;
    expect_in(&format!("{put:#}"), "Read-only file system")?;
    let mut offld = work.command(crate::support::offld());
    expect_in(
        &run(offld.args(["cache", "stats"]).env("OFFLD_CACHE", &root))?,
        "hits           1 (100.0%)",
    )?;
    for words in [&["cache", "clear"], &["cache", "gc"]] {
        let mut offld = work.command(crate::support::offld());
        let stderr = run_failing(offld.args(words).env("OFFLD_CACHE", &root))?;
        expect_in(&stderr, "error: cannot open `")?;
        expect_in(&stderr, "Read-only file system")?;
    }
    // A missing cache directory on a read-only disk is not an error either.
    let store = Store::open(&disk.folder().join("none"), MIB).map_err(as_failed)?;
    store.count(Event::Miss);
    ensure(
        fetched(&store, name, &to)?.is_none() && store.record(Key::of("record")).is_none(),
        || "found in a cache that is not there",
    )?;
    passed()
}
