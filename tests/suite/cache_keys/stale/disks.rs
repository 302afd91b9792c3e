//! File systems with coarse timestamps: whole seconds, and images whose creator has set the
//! timestamps.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use libtest_mimic::{Failed, Trial};

use super::{BOTH, Hunt, pieces};
use crate::support::{Outcome, Work, ensure, expect_in, missing, output, passed, run, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for linker in BOTH {
        let name = |what: &str| format!("cache_keys::stale::{what}::{}", linker.replace('.', "_"));
        trials.push(with_llvm(
            &name("a_file_system_with_whole_seconds"),
            move || whole_seconds(linker),
        ));
        trials.push(with_llvm(
            &name("another_read_only_image_in_the_place_of_one"),
            move || images(linker),
        ));
    }
    trials
}

const LINE: &[&str] = &["-Llib", "-lhelper"];
const ROOT: &str = "mkfs.ext4, and the right to mount a file system";

/// A mounted file system. It is unmounted on drop.
pub(super) struct Mounted(pub(super) PathBuf);

impl Mounted {
    /// Mounts `image`. Returns `None` if that is not permitted.
    fn new(image: &Path, at: PathBuf, options: &str) -> Result<Option<Mounted>, Failed> {
        fs::create_dir_all(&at)?;
        let mounted = output(
            Command::new("mount")
                .args(["-o", options])
                .arg(image)
                .arg(&at),
        )?;
        Ok(mounted.status.success().then_some(Mounted(at)))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for _ in 0..50 {
            if Command::new("umount")
                .arg(&self.0)
                .status()
                .is_ok_and(|status| status.success())
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// An ext4 image made with `options`, or `None` without the tool.
pub(super) fn image(work: &Work, options: &[&str]) -> Result<Option<PathBuf>, Failed> {
    let Some(tool) = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"]
        .into_iter()
        .find(|tool| Path::new(tool).is_file())
    else {
        return Ok(None);
    };
    let file = work.path().join("image");
    run(work
        .command(tool)
        .args(["-q", "-F", "-b", "4096"])
        .args(options)
        .arg(&file)
        .arg("48M"))?;
    Ok(Some(file))
}

fn whole_seconds(linker: &str) -> Outcome {
    let work = Work::new();
    // Inodes of 128 bytes store whole seconds only.
    let Some(image) = image(&work, &["-I", "128"])? else {
        return missing(ROOT);
    };
    let Some(disk) = Mounted::new(&image, work.path().join("disk"), "loop")? else {
        return missing(ROOT);
    };
    let Some(hunt) = Hunt::new(linker, &disk.0)? else {
        return missing(linker);
    };
    for _ in 0..5 {
        let _ = fs::remove_dir_all(hunt.at("cache"));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        std::thread::sleep(
            Duration::from_millis(1010) - Duration::from_nanos(now.subsec_nanos().into()),
        );
        let changed =
            || -> Result<i64, Failed> { Ok(fs::metadata(hunt.at("lib/libhelper.a"))?.ctime()) };
        hunt.archive(1, "lib/libhelper.a")?;
        let before = changed()?;
        hunt.rest();
        let (first, _) = hunt.link(LINE, &[], true)?;
        hunt.archive(2, "lib/libhelper.a")?;
        if changed()? != before {
            continue;
        }
        let (after, said) = hunt.link(LINE, &[], true)?;
        let (right, _) = hunt.link(LINE, &[], false)?;
        ensure(
            right != first,
            || "the change changes nothing: this test could not fail",
        )?;
        ensure(after == right, || format!("a stale image\n{said}"))?;
        // After enough time without changes, the result is cached.
        std::thread::sleep(Duration::from_millis(2100));
        hunt.link(LINE, &[], true)?;
        let (found, said) = hunt.link(LINE, &[], true)?;
        expect_in(
            &said,
            "device link for x86_64-pc-linux-gnu: found in the cache",
        )?;
        return if found == right {
            passed()
        } else {
            Err("another image is found".into())
        };
    }
    missing("a machine that links within a second")
}

fn images(linker: &str) -> Outcome {
    let work = Work::new();
    let archive = |which: u32| -> Result<Vec<u8>, Failed> {
        Ok(fs::read(pieces()?.join(format!("libhelper{which}.a")))?)
    };
    let (one, two) = (archive(1)?, archive(2)?);
    work.file("files/libhelper.a", &one);
    let files = work.path().join("files");
    let Some(first) = image(&work, &["-d", &files.display().to_string()])? else {
        return missing(ROOT);
    };
    // The same image except for the contents of the file, as from image tools that set all
    // timestamps to one value.
    let mut bytes = fs::read(&first)?;
    let at =
        memchr::memmem::find(&bytes, &one).ok_or("the archive is not in the image in one piece")?;
    bytes[at..at + two.len()].copy_from_slice(&two);
    let second = work.file("second", &bytes);
    let Some(hunt) = Hunt::new(linker, &std::env::temp_dir())? else {
        return missing(linker);
    };
    let disk = hunt.at("lib");
    let Some(mounted) = Mounted::new(&first, disk.clone(), "loop,ro")? else {
        return missing(ROOT);
    };
    // Wait past the whole-second timestamps that the image tool set.
    std::thread::sleep(Duration::from_millis(2100));
    let (before, _) = hunt.link(LINE, &[], true)?;
    let (again, said) = hunt.link(LINE, &[], true)?;
    expect_in(
        &said,
        "device link for x86_64-pc-linux-gnu: found in the cache",
    )?;
    ensure(before == again, || "another image is found")?;
    drop(mounted);
    let _mounted =
        Mounted::new(&second, disk, "loop,ro")?.ok_or("the second image cannot be mounted")?;
    let (after, said) = hunt.link(LINE, &[], true)?;
    let (right, _) = hunt.link(LINE, &[], false)?;
    ensure(
        right != before,
        || "the change changes nothing: this test could not fail",
    )?;
    ensure(after == right, || format!("a stale image\n{said}"))?;
    passed()
}
