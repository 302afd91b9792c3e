//! Tests of the store: stored entries are found, damaged ones are not, and recently used ones stay.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::layout::Contents;
use super::*;
use crate::clock::TestClock;
use crate::reference;

const MIB: u64 = 1 << 20;

struct Bench {
    dir: TempDir,
    clock: Arc<TestClock>,
    store: Store,
}

impl Bench {
    fn new(limit: u64) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        let store = Store::with_clock(
            &dir.path().join("cache"),
            limit,
            Arc::clone(&clock) as Arc<dyn Clock>,
        )
        .unwrap();
        Bench { dir, clock, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Stores `bytes` through a file.
    fn put(&self, bytes: &[u8]) -> BlobName {
        let file = self.path("put");
        fs::write(&file, bytes).unwrap();
        let name = self.store.put_blob(&file, None).unwrap();
        assert_eq!(name, quick(bytes));
        fs::remove_file(file).unwrap();
        name
    }

    /// Returns the blob `name`, if it can be fetched.
    fn fetch(&self, name: BlobName) -> Option<Vec<u8>> {
        let to = self.path("fetched");
        let there = self.store.fetch_blob(name, &to).unwrap();
        assert_eq!(there, to.exists());
        let bytes = there.then(|| fs::read(&to).unwrap());
        let _ = fs::remove_file(to);
        bytes
    }

    fn blob(&self, name: BlobName) -> PathBuf {
        self.store.layout.path(&Layout::blob(name))
    }

    /// Sets the last use of a blob to `seconds` ago (in the future if negative).
    fn set_last_use(&self, name: BlobName, seconds: i64) {
        let by = Duration::from_secs(seconds.unsigned_abs());
        let time = if seconds < 0 {
            self.clock.now() + by
        } else {
            self.clock.now() - by
        };
        File::open(self.blob(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    }
}

/// Name of a blob in an unshared store.
fn quick(bytes: &[u8]) -> BlobName {
    BlobName::of(bytes, Naming::Quick)
}

/// Overwrites a file that its mode protects.
fn overwrite(path: &Path, bytes: &[u8]) {
    let writable = Permissions::from_mode(0o644);
    fs::set_permissions(path, writable).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn stored_entries_are_found() {
    let bench = Bench::new(MIB);
    let name = bench.put(b"image");
    assert_eq!(bench.fetch(name), Some(b"image".to_vec()));
    assert_eq!(bench.fetch(quick(b"other")), None);
    let key = Key::of("key");
    assert_eq!(bench.store.record(key), None);
    bench.store.put_record(key, b"one").unwrap();
    bench.store.put_record(key, b"two").unwrap();
    assert_eq!(bench.store.record(key), Some(b"two".to_vec()));
    bench.store.forget(key);
    assert_eq!(bench.store.record(key), None);
    assert_eq!(bench.store.stats().get(Event::Damaged), 0);
}

#[test]
fn opening_writes_nothing() {
    let bench = Bench::new(MIB);
    assert_eq!(bench.fetch(quick(b"x")), None);
    assert_eq!(bench.store.record(Key::of("x")), None);
    assert_eq!(bench.store.stats(), Stats::default());
    assert_eq!(bench.store.contents(), Contents::default());
    assert!(!bench.store.root().exists());
}

#[test]
fn a_blob_and_its_hard_links_are_one_file() {
    let bench = Bench::new(MIB);
    let (put, to) = (bench.path("put"), bench.path("to"));
    fs::write(&put, b"image").unwrap();
    fs::write(&to, b"of an earlier link").unwrap();
    let name = bench.store.put_blob(&put, Some(quick(b"image"))).unwrap();
    assert!(bench.store.fetch_blob(name, &to).unwrap());
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_eq!([inode(&put), inode(&to)], [inode(&bench.blob(name)); 2]);
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o444);
    fs::remove_file(&put).unwrap();
    // The target of a fetch is replaced, never written into.
    let other = bench.put(b"other");
    assert!(bench.store.fetch_blob(other, &to).unwrap());
    assert_eq!(
        (fs::read(&to).unwrap(), bench.fetch(name)),
        (b"other".to_vec(), Some(b"image".to_vec()))
    );
}

#[test]
fn no_temporary_file_remains() {
    let bench = Bench::new(MIB);
    // The second round finds existing entries: by the given name, or by the digest after reading.
    for _ in 0..2 {
        let name = bench.put(b"image");
        fs::write(bench.path("again"), b"image").unwrap();
        assert_eq!(
            bench
                .store
                .put_blob(&bench.path("again"), Some(name))
                .unwrap(),
            name
        );
        assert_eq!(bench.store.put_blob(&bench.blob(name), None).unwrap(), name);
    }
    bench.store.put_record(Key::of("r"), b"r").unwrap();
    assert_eq!(
        fs::read_dir(bench.store.layout.below(layout::TMP))
            .unwrap()
            .count(),
        0
    );
    assert_eq!(bench.store.stats().get(Event::Stored), 2);
    assert_eq!(
        bench.store.contents(),
        Contents {
            blobs: 1,
            records: 1,
            size: 2 * BLOCK,
            earlier: 0
        }
    );
    assert_eq!(bench.store.stats().size, 2 * BLOCK);
}

#[test]
fn damaged_blobs_count_as_missing_and_are_removed() {
    let bench = Bench::new(MIB);
    let image: Vec<u8> = (0..10_000u32).map(|at| (at % 251) as u8).collect();
    let flipped = |at: usize| {
        let mut bytes = image.clone();
        bytes[at] ^= 4;
        bytes
    };
    let longer = [image.as_slice(), b"x"].concat();
    let damages = [
        flipped(0),
        flipped(5000),
        flipped(9999),
        image[..9999].to_vec(),
        Vec::new(),
        longer,
    ];
    for (count, damage) in damages.iter().enumerate() {
        let name = bench.put(&image);
        overwrite(&bench.blob(name), damage);
        assert_eq!(bench.fetch(name), None);
        assert!(!bench.blob(name).exists());
        assert_eq!(bench.store.stats().get(Event::Damaged), count as u64 + 1);
    }
}

#[test]
fn a_record_with_any_wrong_bit_is_missing() {
    let bench = Bench::new(MIB);
    let key = Key::of("key");
    let path = bench.store.layout.path(&Layout::record(key));
    let whole = layout::record_file(key, b"some bytes").unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x80;
        for damage in [&bytes, &whole[..at]] {
            bench.store.put_record(key, b"some bytes").unwrap();
            overwrite(&path, damage);
            assert_eq!(bench.store.record(key), None, "{at}");
            assert!(!path.exists());
        }
    }
    // A record of another key under this name.
    bench.store.put_record(key, b"").unwrap();
    overwrite(
        &path,
        &layout::record_file(Key::of("other"), b"some bytes").unwrap(),
    );
    assert_eq!(bench.store.record(key), None);
}

#[test]
fn blobs_of_either_name_are_found_and_checked() {
    let bench = Bench::new(MIB);
    let quick = bench.put(b"image");
    let Bench { dir, clock, store } = bench;
    let bench = Bench {
        dir,
        clock,
        store: store.with_naming(Naming::Sure),
    };
    let file = bench.path("again");
    fs::write(&file, b"image").unwrap();
    let sure = bench.store.put_blob(&file, None).unwrap();
    assert_eq!(sure, BlobName::of(b"image", Naming::Sure));
    assert_eq!(bench.store.contents().blobs, 2);
    for name in [quick, sure] {
        assert_eq!(bench.fetch(name), Some(b"image".to_vec()));
        overwrite(&bench.blob(name), b"imagf");
        assert_eq!(bench.fetch(name), None, "{name}");
    }
}

#[test]
fn a_wrong_name_is_detected() {
    let bench = Bench::new(MIB);
    let file = bench.path("file");
    fs::write(&file, b"image").unwrap();
    let wrong = quick(b"other");
    bench.store.put_blob(&file, Some(wrong)).unwrap();
    assert_eq!(bench.fetch(wrong), None);
}

#[test]
fn evicts_the_least_recently_used_first() {
    let bench = Bench::new(MIB);
    let names: Vec<BlobName> = (0..4u8).map(|at| bench.put(&[at; 3000])).collect();
    // Ages in seconds. The second blob was used just now, by a machine whose clock is a minute
    // ahead.
    for (name, age) in names.iter().zip([4000, -60, 3000, 2000]) {
        bench.set_last_use(*name, age);
    }
    let left = |limit: u64| {
        let collected = bench.store.gc(limit).unwrap().unwrap();
        assert_eq!(collected.left, bench.store.contents());
        names
            .iter()
            .map(|name| bench.store.has_blob(*name))
            .collect::<Vec<_>>()
    };
    assert_eq!(left(3 * BLOCK), [false, true, true, true]);
    // A fetched entry counts as used and stays.
    assert!(bench.fetch(names[2]).is_some());
    assert_eq!(left(2 * BLOCK), [false, true, true, false]);
    assert_eq!(bench.store.stats().get(Event::Evicted), 2);
    assert_eq!(left(0), [false; 4]);
    assert_eq!(bench.store.stats().size, 0);
}

#[test]
fn wrong_clocks_keep_nothing_forever() {
    const YEAR: i64 = 365 * 24 * 60 * 60;
    let bench = Bench::new(MIB);
    let names: Vec<BlobName> = (0..4u8).map(|at| bench.put(&[at; 3000])).collect();
    for (name, age) in names.iter().zip([-30 * YEAR, 40 * YEAR, -20 * YEAR, 0]) {
        bench.set_last_use(*name, age);
    }
    let mut order: Vec<BlobName> = Vec::new();
    for left in (0..4).rev() {
        bench.store.gc(left * BLOCK).unwrap();
        order.extend(
            names
                .iter()
                .copied()
                .find(|name| !bench.store.has_blob(*name) && !order.contains(name)),
        );
    }
    // Dates in the far future go first, then the past one, then the most recently used.
    assert_eq!(order, [names[2], names[0], names[1], names[3]]);
    // A use corrects the date.
    let name = bench.put(b"image");
    bench.set_last_use(name, -30 * YEAR);
    assert!(bench.fetch(name).is_some());
    assert!(fs::metadata(bench.blob(name)).unwrap().modified().unwrap() <= bench.clock.now());
}

#[test]
fn a_put_makes_room() {
    let limit = 10 * BLOCK;
    let bench = Bench::new(limit);
    for at in 0..50u8 {
        bench.put(&[at; 3000]);
        assert!(bench.store.contents().size <= limit);
    }
    assert_eq!(bench.store.stats().size, bench.store.contents().size);
    // Larger than the size that a collection leaves, so this blob replaces all other entries.
    let large = bench.put(&[0; 9 * BLOCK as usize + 1]);
    assert_eq!(
        bench.store.contents(),
        Contents {
            blobs: 1,
            records: 0,
            size: limit,
            earlier: 0
        }
    );
    assert!(bench.fetch(large).is_some());
    let larger = bench.path("larger");
    File::create(&larger).unwrap().set_len(limit + 1).unwrap();
    assert!(bench.store.put_blob(&larger, None).is_err());
    assert_eq!(fs::metadata(&larger).unwrap().mode() & 0o200, 0o200);
}

#[test]
fn removes_old_leftovers() {
    let bench = Bench::new(MIB);
    bench.put(b"image");
    for (name, age) in [("new", 60), ("old", 3700)] {
        let file = File::create(bench.store.layout.below(layout::TMP).join(name)).unwrap();
        file.set_modified(bench.clock.now() - Duration::from_secs(age))
            .unwrap();
    }
    bench.store.gc(MIB).unwrap();
    let left: Vec<_> = fs::read_dir(bench.store.layout.below(layout::TMP))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["new"]);
    // Temporary files count, because they may be renamed to their places during the collection.
    assert_eq!(bench.store.stats().size, 2 * BLOCK);
}

#[test]
fn entries_of_earlier_releases_are_counted_and_evicted_by_age() {
    let bench = Bench::new(MIB);
    let own = bench.put(b"image");
    bench.set_last_use(own, 3000);
    let root = bench.store.root().to_owned();
    let place = |version: &str, kind: &str, name: &str| {
        root.join(version).join(kind).join(&name[..2]).join(name)
    };
    let name = |digit: &str| digit.repeat(32);
    let earlier = [
        ("v1", "b", name("1"), 5000),
        ("v2", "r", name("2"), 4000),
        ("v2", "b", name("3"), 2000),
    ];
    let paths = earlier.map(|(version, kind, name, age)| {
        let path = place(version, kind, &name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = File::create(&path).unwrap();
        file.set_modified(bench.clock.now() - Duration::from_secs(age))
            .unwrap();
        path
    });
    // A file name that offld does not use.
    fs::write(root.join("v2/b/33/notes.txt"), "mine").unwrap();
    let all = Contents {
        blobs: 1,
        records: 0,
        size: 4 * BLOCK,
        earlier: 3 * BLOCK,
    };
    assert_eq!(bench.store.contents(), all);
    let left = |limit: u64| {
        bench.store.gc(limit).unwrap();
        (
            paths.clone().map(|path| path.exists()),
            bench.store.has_blob(own),
        )
    };
    assert_eq!(left(4 * BLOCK), ([true; 3], true));
    assert_eq!(bench.store.stats().size, 4 * BLOCK);
    assert_eq!(left(2 * BLOCK), ([false, false, true], true));
    assert_eq!(left(BLOCK), ([false, false, true], false));
    assert_eq!(left(0), ([false; 3], false));
    assert!(root.join("v2/b/33/notes.txt").exists());
    bench.store.clear().unwrap();
    assert!(!root.join("v1").exists() && !root.join("v2").exists());
}

#[test]
fn does_not_wait_for_another_collecting_process() {
    let bench = Bench::new(MIB);
    bench.put(b"image");
    let held = File::create(bench.store.layout.below(layout::LOCK)).unwrap();
    held.lock().unwrap();
    assert_eq!(bench.store.gc(0).unwrap(), None);
    assert_eq!(bench.store.clear().unwrap(), None);
    drop(held);
    bench.store.count(Event::Hit);
    assert_eq!(bench.store.clear().unwrap().unwrap().removed, 1);
    assert_eq!(
        (
            bench.store.stats().get(Event::Hit),
            bench.store.stats().get(Event::Evicted)
        ),
        (0, 0)
    );
}

#[test]
fn a_damaged_statistics_file_counts_from_zero() {
    for garbage in [
        "",
        "garbage",
        "offld cache 1\nhits 5\n",
        &"x".repeat(100_000),
    ] {
        let bench = Bench::new(MIB);
        bench.put(b"image");
        fs::write(bench.store.layout.below(layout::STATS), garbage).unwrap();
        assert_eq!(bench.store.stats(), Stats::default());
        bench.store.count(Event::Hit);
        bench.store.count(Event::Hit);
        assert_eq!(bench.store.stats().get(Event::Hit), 2);
        // The next put determines the size: after damage, the last collection counts as long ago.
        bench.put(b"other");
        assert_eq!(bench.store.stats().size, 2 * BLOCK);
    }
}

#[test]
fn counts_are_exact_among_threads() {
    let dir = tempfile::tempdir().unwrap();
    // With the system's clock, because the threads really wait for one another.
    let store = Store::open(&dir.path().join("cache"), MIB).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| store.count(Event::Hit)));
        }
    });
    assert_eq!(store.stats().get(Event::Hit), 400);
}

#[test]
fn another_file_system_gets_a_copy() {
    let bench = Bench::new(MIB);
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    let own = device(bench.dir.path());
    let other = ["/dev/shm", "/var/tmp"].into_iter().find_map(|place| {
        tempfile::tempdir_in(place)
            .ok()
            .filter(|dir| device(dir.path()) != own)
    });
    let Some(other) = other else {
        return reference::missing("a second file system at /dev/shm or /var/tmp");
    };
    let (put, to) = (other.path().join("put"), other.path().join("to"));
    fs::write(&put, b"image").unwrap();
    let name = bench.store.put_blob(&put, None).unwrap();
    assert!(bench.store.fetch_blob(name, &to).unwrap());
    assert_eq!(fs::read(&to).unwrap(), b"image");
    let wrong = bench.store.put_blob(&put, Some(quick(b"other")));
    assert!(wrong.is_err() && !bench.store.has_blob(quick(b"other")));
    overwrite(&bench.blob(name), b"imagf");
    assert!(!bench.store.fetch_blob(name, &to).unwrap() && !to.exists());
}
