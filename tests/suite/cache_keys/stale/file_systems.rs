//! File systems that show timestamps set elsewhere: FUSE images, lower layers of an overlay,
//! writable images, and programs that show another directory with their own timestamps. An input,
//! or the linker itself, is replaced there by a file with the same size, timestamps, inode number
//! and build id.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use libtest_mimic::{Failed, Trial};

use super::disks::{self, Mounted};
use super::{Hunt, pieces};
use crate::support::{Outcome, Work, ensure, expect_in, llvm, missing, output, passed, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (shown, name) in [
        (Presentation::ByProgram, "an_image_that_a_program_shows"),
        (Presentation::BelowOverlay, "an_image_below_an_overlay"),
        (
            Presentation::Writable,
            "an_image_that_is_mounted_to_be_written_to",
        ),
        (
            Presentation::Redated,
            "a_program_that_dates_changes_as_it_likes",
        ),
    ] {
        for (linker, what) in [
            ("ld.lld", Replaced::Library),
            ("ld.bfd", Replaced::Library),
            ("ld.lld", Replaced::Linker),
        ] {
            let noun = if what == Replaced::Library {
                "a_library_on"
            } else {
                "the_linker_on"
            };
            let name = format!(
                "cache_keys::stale::file_systems_{noun}_{name}::{}",
                linker.replace('.', "_")
            );
            trials.push(with_llvm(&name, move || replaced(shown, what, linker)));
        }
    }
    trials
}

/// How a file system presents the files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presentation {
    /// squashfs, mounted with squashfuse.
    ByProgram,
    /// squashfs, mounted by the kernel, below an overlay.
    BelowOverlay,
    /// ext4.
    Writable,
    /// Another directory through bindfs, which shows mtimes as ctimes.
    Redated,
}

/// The replaced file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replaced {
    Library,
    Linker,
}

impl Replaced {
    fn file(self) -> &'static str {
        if self == Replaced::Library {
            "libhelper.a"
        } else {
            "ld.lld"
        }
    }

    /// The contents of the first or second version of the file.
    fn version(self, which: u32, hunt: &Hunt) -> Result<Vec<u8>, Failed> {
        if self == Replaced::Library {
            return Ok(fs::read(pieces()?.join(format!("libhelper{which}.a")))?);
        }
        let source = format!(
            "#include <unistd.h>\nint main(int count, char **words) {{\n  char *all[count + 2];\n  for (int at = 0; at < count; ++at) \
             all[at] = words[at];\n  all[0] = \"{}\";\n  all[count] = \"--build-id=0x0{which}\";\n  all[count + 1] = 0;\n  \
             execv(all[0], all);\n  return 127;\n}}\n",
            hunt.linker.display()
        );
        hunt.work.file("linker.c", source);
        hunt.work.run(
            llvm("clang"),
            [
                "-w",
                "-O1",
                "-Wl,--build-id=0x1234",
                "linker.c",
                "-o",
                "linker",
            ],
        )?;
        Ok(fs::read(hunt.at("linker"))?)
    }

    fn line(self) -> &'static [&'static str] {
        match self {
            Replaced::Library => &["-Ldisk", "-lhelper"],
            Replaced::Linker => &[
                "-Llib",
                "-lhelper",
                "--device-compiler=--ld-path={}/disk/ld.lld",
            ],
        }
    }
}

/// Runs a program that mounts a file system. Returns `None` if the program is missing or not
/// permitted.
fn mount(program: &str, words: &[&str], at: &Path) -> Option<Mounted> {
    fs::create_dir_all(at).ok()?;
    let program = which::which(program).ok()?;
    let status = Command::new(program)
        .args(words)
        .arg(at)
        .stderr(Stdio::null())
        .status();
    // Mount programs go to the background, and the files appear a moment later.
    let is_mounted = || {
        fs::read_to_string("/proc/self/mounts")
            .is_ok_and(|all| all.contains(&format!(" {} ", at.display())))
    };
    let begun = SystemTime::now();
    while status.as_ref().is_ok_and(std::process::ExitStatus::success)
        && begun.elapsed().is_ok_and(|time| time.as_secs() < 10)
    {
        if is_mounted() {
            return Some(Mounted(at.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// The two versions of a file, prepared for presentation one after the other.
struct Versions {
    shown: Presentation,
    what: Replaced,
    work: Work,
}

impl Versions {
    /// Prepares both versions. Returns `None` without the tools.
    fn new(shown: Presentation, what: Replaced, hunt: &Hunt) -> Result<Option<Versions>, Failed> {
        let versions = Versions {
            shown,
            what,
            work: Work::new(),
        };
        let (one, two) = (what.version(1, hunt)?, what.version(2, hunt)?);
        ensure(
            one.len() == two.len() && one != two,
            || "the versions are not of one size",
        )?;
        for (folder, bytes) in [("one", &one), ("two", &two)] {
            let file = versions
                .work
                .file(&format!("{folder}/{}", what.file()), bytes);
            fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
            for path in [&*file, file.parent().ok_or("no folder")?] {
                fs::File::open(path)?
                    .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000))?;
            }
        }
        let is_ready = match shown {
            Presentation::ByProgram | Presentation::BelowOverlay => ["one", "two"]
                .iter()
                .all(|folder| versions.squashfs(folder)),
            Presentation::Writable => versions.ext4(&one, &two)?,
            Presentation::Redated => which::which("bindfs").is_ok(),
        };
        Ok(is_ready.then_some(versions))
    }

    fn squashfs(&self, folder: &str) -> bool {
        let mut command = self.work.command("mksquashfs");
        command.args([
            folder,
            &format!("{folder}.img"),
            "-noappend",
            "-quiet",
            "-no-progress",
            "-all-root",
        ]);
        output(&mut command).is_ok_and(|done| done.status.success())
    }

    /// Creates two images that differ only in the contents of the file.
    fn ext4(&self, one: &[u8], two: &[u8]) -> Result<bool, Failed> {
        let folder = self.work.path().join("one").display().to_string();
        let Some(first) = disks::image(&self.work, &["-d", &folder])? else {
            return Ok(false);
        };
        let mut bytes = fs::read(&first)?;
        fs::rename(first, self.work.path().join("one.img"))?;
        let at =
            memchr::memmem::find(&bytes, one).ok_or("the file is not in the image in one piece")?;
        bytes[at..at + two.len()].copy_from_slice(two);
        self.work.file("two.img", &bytes);
        // Wait past the whole-second timestamps that the image tool set.
        std::thread::sleep(Duration::from_millis(2100));
        Ok(true)
    }

    /// Presents a version at `at`. Returns the mounts, the last one first, or `None` if mounting is
    /// not permitted.
    fn show(&self, version: &str, at: &Path) -> Result<Option<Vec<Mounted>>, Failed> {
        let path = |name: &str| -> PathBuf { self.work.path().join(name) };
        let image = path(&format!("{version}.img")).display().to_string();
        match self.shown {
            Presentation::ByProgram => {
                Ok(mount("squashfuse", &[&image], at).map(|mounted| vec![mounted]))
            }
            Presentation::Writable => {
                Ok(mount("mount", &["-o", "loop", &image], at).map(|mounted| vec![mounted]))
            }
            Presentation::Redated => {
                // Overwrites the file in place and sets its timestamp again.
                let file = self.work.file(
                    &format!("files/{}", self.what.file()),
                    fs::read(path(version).join(self.what.file()))?,
                );
                fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
                fs::File::options()
                    .append(true)
                    .open(&file)?
                    .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1))?;
                if version == "two" {
                    return Ok(Some(Vec::new()));
                }
                let files = path("files").display().to_string();
                Ok(mount("bindfs", &["--ctime-from-mtime", &files], at)
                    .map(|mounted| vec![mounted]))
            }
            Presentation::BelowOverlay => {
                let below = path("below");
                let Some(image) = mount("mount", &["-o", "loop", &image], &below) else {
                    return Ok(None);
                };
                let [upper, workdir] = ["upper", "workdir"].map(path);
                [&upper, &workdir].iter().try_for_each(fs::create_dir_all)?;
                let (below, upper, workdir) = (below.display(), upper.display(), workdir.display());
                let layers = format!("lowerdir={below},upperdir={upper},workdir={workdir}");
                Ok(
                    mount("mount", &["-t", "overlay", "-o", &layers, "none"], at)
                        .map(|overlay| vec![overlay, image]),
                )
            }
        }
    }
}

fn replaced(shown: Presentation, what: Replaced, linker: &str) -> Outcome {
    const NEEDED: &str =
        "squashfuse, bindfs, mksquashfs or mkfs.ext4, or the right to mount what they make";
    let Some(hunt) = Hunt::new(linker, &std::env::temp_dir())? else {
        return missing(linker);
    };
    hunt.archive(1, "lib/libhelper.a")?;
    let Some(versions) = Versions::new(shown, what, &hunt)? else {
        return missing(NEEDED);
    };
    let disk = hunt.at("disk");
    let Some(mut mounted) = versions.show("one", &disk)? else {
        return missing(NEEDED);
    };
    hunt.rest();
    let link = |cached| hunt.link(what.line(), &[], cached);
    let (first, _) = link(true)?;
    let (again, said) = link(true)?;
    expect_in(
        &said,
        "device link for x86_64-pc-linux-gnu: found in the cache",
    )?;
    ensure(again == first, || "what was found is not what was kept")?;
    if shown != Presentation::Redated {
        mounted.into_iter().for_each(drop);
        mounted = Vec::new();
    }
    mounted.extend(
        versions
            .show("two", &disk)?
            .ok_or("the second version cannot be mounted")?,
    );
    let (after, said) = link(true)?;
    let (right, _) = link(false)?;
    mounted.into_iter().for_each(drop);
    ensure(
        right != first,
        || "the change changes nothing: this test could not fail",
    )?;
    ensure(after == right, || format!("a stale image\n{said}"))?;
    passed()
}
