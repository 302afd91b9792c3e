//! The cache under many simultaneous links, killed links, damaged entries, a full disk and a
//! read-only one. In every case, a link gives the same bytes as without a cache.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use offld_system::store::{Event, Store};

use super::{MIB, as_failed, noise};
use crate::effort::rounds;
use crate::faults::full_disk::Disk;
use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, llvm, made, missing, passed,
    run, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("cache_store::links_at_once", at_once),
        with_llvm("cache_store::links_that_are_killed", killed),
        with_llvm("cache_store::links_with_damaged_entries", damaged),
        with_llvm("cache_store::links_with_a_full_disk", full),
        with_llvm("cache_store::links_with_a_read_only_cache", read_only),
    ]
}

/// Programs with device code, the expected output of each link, and a cache.
struct Programs {
    work: Work,
    objects: Vec<PathBuf>,
    expected: Vec<Vec<u8>>,
}

impl Programs {
    fn new(count: usize) -> Result<Programs, Failed> {
        let work = Work::new();
        let mut objects = Vec::new();
        for which in 0..count {
            let code = format!(
                "int f{which}(int x) {{\n#pragma omp target map(tofrom: x)\n  x = x * {which} + {};\n  return x;\n}}\n",
                which + 40
            );
            let source = work.file(&format!("p{which}.c"), code);
            let object = source.with_extension("o");
            run(work
                .command(llvm("clang"))
                .args(OFFLOAD)
                .args(["-O1", "-fPIC", "-c"])
                .arg(source)
                .arg("-o")
                .arg(&object))?;
            objects.push(object);
        }
        let mut programs = Programs {
            work,
            objects,
            expected: Vec::new(),
        };
        for which in 0..count {
            let folder = programs.folder(&format!("expected{which}"))?;
            run(programs.link(which, &folder).arg("--wrapper-cache=off"))?;
            programs.expected.push(fs::read(folder.join("out.so"))?);
        }
        Ok(programs)
    }

    fn cache(&self) -> PathBuf {
        self.work.path().join("cache")
    }

    fn store(&self) -> Result<Store, Failed> {
        Store::open(&self.cache(), 64 * MIB).map_err(as_failed)
    }

    fn folder(&self, name: &str) -> Result<PathBuf, Failed> {
        let folder = self.work.path().join(name);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The link of a program to `folder`, always with the same arguments.
    fn link(&self, which: usize, folder: &Path) -> Command {
        let mut command = self.work.command(made().links.join("clang-linker-wrapper"));
        let linker = format!("--linker-path={LLVM}/ld.lld");
        command.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            &linker,
            "--wrapper-jobs=1",
            "--threads=1",
            "-shared",
        ]);
        command
            .args(["-o", "out.so"])
            .arg(&self.objects[which])
            .current_dir(folder);
        command
            .env("OFFLD_CLANG", llvm("clang"))
            .env("OFFLD_CACHE", self.cache());
        command
    }

    /// Links a program and compares it with the expected one. Returns the messages.
    fn check(&self, which: usize, cache: &Path) -> Result<String, Failed> {
        let folder = self.folder("checked")?;
        let mut link = self.link(which, &folder);
        let stderr = stderr_of(link.arg("--wrapper-verbose").env("OFFLD_CACHE", cache))?;
        self.expect(which, &folder)?;
        Ok(stderr)
    }

    fn expect(&self, which: usize, folder: &Path) -> Result<(), Failed> {
        let same = fs::read(folder.join("out.so"))? == self.expected[which];
        fs::remove_file(folder.join("out.so"))?;
        ensure(same, || {
            format!(
                "program {which} in {} is not what it is without the cache",
                folder.display()
            )
        })
    }
}

fn at_once() -> Outcome {
    let links_at_once = rounds("cache_store: links at once", 200, 40);
    let programs = Programs::new(10)?;
    let mut links: Vec<(usize, PathBuf, Child)> = Vec::new();
    for at in 0..links_at_once {
        let (which, folder) = (at % 10, programs.folder(&format!("link{at}"))?);
        let mut link = programs.link(which, &folder);
        let child = link
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        links.push((which, folder, child));
    }
    for (which, folder, child) in links {
        let ended = child.wait_with_output()?;
        if !ended.status.success() {
            return Err(format!(
                "{}: {}",
                ended.status,
                String::from_utf8_lossy(&ended.stderr)
            )
            .into());
        }
        programs.expect(which, &folder)?;
    }
    programs.work.expect_no_temps()?;
    let store = programs.store()?;
    let (stats, contents) = (store.stats(), store.contents());
    expect_equal(
        "links counted",
        &links_at_once.to_string(),
        &(stats.get(Event::Hit) + stats.get(Event::Miss)).to_string(),
    )?;
    expect_equal("ten images", "10", &contents.blobs.to_string())?;
    expect_equal("damaged", "0", &stats.get(Event::Damaged).to_string())?;
    // From here on, there are no misses.
    for which in 0..10 {
        expect_in(
            &programs.check(which, &programs.cache())?,
            "device link for x86_64-pc-linux-gnu: found in the cache",
        )?;
    }
    passed()
}

fn killed() -> Outcome {
    let programs = Programs::new(2)?;
    let folder = programs.folder("killed")?;
    for round in 0..rounds("cache_store: links that are killed", 100u64, 25) {
        let which = round as usize % 2;
        if round % 5 == 0 {
            // Clears the cache sometimes, so that the signal hits links that store and links that
            // fetch.
            programs.store()?.clear().map_err(as_failed)?;
        }
        let mut link = programs.link(which, &folder);
        let mut child = link.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_micros(u64::from(noise(round, 8)[3]) * 1500));
        // The child processes of the killed link continue and end by themselves.
        child.kill()?;
        child.wait()?;
        if round % 4 == 0 {
            programs.check(which, &programs.cache())?;
        }
    }
    for which in 0..2 {
        programs.check(which, &programs.cache())?;
        expect_in(
            &programs.check(which, &programs.cache())?,
            "device link for x86_64-pc-linux-gnu: found in the cache",
        )?;
    }
    expect_equal(
        "damaged",
        "0",
        &programs.store()?.stats().get(Event::Damaged).to_string(),
    )?;
    passed()
}

/// Collects every file of the store except its counters.
fn entries(folder: &Path, all: &mut Vec<PathBuf>) -> Result<(), Failed> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            entries(&path, all)?;
        } else if path
            .file_name()
            .is_some_and(|name| name.len() == 32 || name.len() == 64)
        {
            all.push(path);
        }
    }
    Ok(())
}

fn damaged() -> Outcome {
    let programs = Programs::new(1)?;
    programs.check(0, &programs.cache())?;
    expect_in(
        &programs.check(0, &programs.cache())?,
        "device link for x86_64-pc-linux-gnu: found in the cache",
    )?;
    let mut all = Vec::new();
    entries(&programs.cache(), &mut all)?;
    ensure(all.len() >= 2, || {
        format!(
            "{} files are in the cache, where an image and its record were put",
            all.len()
        )
    })?;
    for file in all {
        let whole = fs::read(&file)?;
        let bit = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            bytes
        };
        let half = whole[..whole.len() / 2].to_vec();
        for bytes in [
            bit(0),
            bit(whole.len() / 3),
            bit(whole.len() - 1),
            half,
            Vec::new(),
        ] {
            // Another link may have replaced the file already.
            let _ = fs::remove_file(&file);
            fs::write(&file, &bytes)?;
            fs::set_permissions(&file, Permissions::from_mode(0o444))?;
            programs.check(0, &programs.cache())?;
        }
    }
    // A link with a cache hit does not read all entries, so some may still be damaged.
    programs.check(0, &programs.cache())?;
    expect_in(
        &programs.check(0, &programs.cache())?,
        "device link for x86_64-pc-linux-gnu: found in the cache",
    )?;
    passed()
}

fn full() -> Outcome {
    let programs = Programs::new(1)?;
    let Some(disk) = Disk::new(&programs.work, "disk")? else {
        return missing("the right to mount a file system");
    };
    let root = disk.folder().join("cache");
    let mut found = false;
    for kib in (4..200).step_by(8) {
        disk.resize(kib)?;
        programs.check(0, &root)?;
        found = programs
            .check(0, &root)?
            .contains("device link for x86_64-pc-linux-gnu: found in the cache");
        if found {
            ensure(
                kib > 4,
                || "the entry fitted into the smallest disk, so that nothing was tried",
            )?;
            break;
        }
    }
    ensure(
        found,
        || "nothing was found in the cache, even when there was room",
    )?;
    programs.work.expect_no_temps()?;
    passed()
}

fn read_only() -> Outcome {
    let programs = Programs::new(2)?;
    let Some(disk) = Disk::new(&programs.work, "disk")? else {
        return missing("the right to mount a file system");
    };
    disk.resize(1000)?;
    let root = disk.folder().join("cache");
    programs.check(0, &root)?;
    disk.read_only()?;
    expect_in(
        &programs.check(0, &root)?,
        "device link for x86_64-pc-linux-gnu: found in the cache",
    )?;
    for _ in 0..2 {
        expect_in(
            &programs.check(1, &root)?,
            "device link for x86_64-pc-linux-gnu: not in the cache",
        )?;
    }
    passed()
}
