//! Fault F8 with a full disk: no temporary file stays, no partial output passes for a whole one,
//! and the error names the file. The disks are file systems in memory of increasing size, so every
//! file of a link is once the one that no longer fits.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, HOST, Image, NVIDIA};
use crate::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, host_linker, missing, output, passed,
    shown, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for link in LINKS {
        trials.push(with_llvm(
            &format!("faults::f08_full_disk_for_temporary_files_{}", link.name),
            || temporary(link),
        ));
        for linker in ["ld.lld", "ld"] {
            let name = format!(
                "faults::f08_full_disk_for_the_output_{}_{}",
                link.name,
                linker.replace('.', "_")
            );
            if linker == "ld.lld" || !link.words.contains(&"--emit-fatbin-only") {
                trials.push(with_llvm(&name, move || of_output(link, linker)));
            }
        }
    }
    for linker in ["lld", "bfd", "gold", "mold", "wild"] {
        let name = format!("faults::f08_full_disk_for_the_end_of_the_output_{linker}");
        trials.push(with_llvm(&name, move || end_of_output(linker)));
    }
    trials
}

struct Link {
    name: &'static str,
    kind: &'static str,
    triple: &'static str,
    arch: &'static str,
    /// The size of the device object in KiB. The image is twice as large. In a relocatable link, up
    /// to 1 MiB of it passes through LLVM.
    object: usize,
    words: &'static [&'static str],
    /// Parts of messages that must each occur at least once, after the one for the object, while
    /// the space for temporary files grows.
    ends: &'static [&'static str],
}

const LINKS: &[Link] = &[
    Link {
        name: "openmp",
        kind: "openmp",
        triple: HOST,
        arch: "generic",
        object: 300,
        words: &["-shared"],
        ends: &[
            "device link for x86_64-pc-linux-gnu failed: ",
            "x.openmp.image.o`",
        ],
    },
    Link {
        name: "large",
        kind: "openmp",
        triple: AMD,
        arch: "gfx90a",
        object: 700,
        words: &["-shared"],
        ends: &[
            "device link for amdgcn-amd-amdhsa (gfx90a) failed: ",
            "x.openmp.image.o`",
        ],
    },
    Link {
        name: "hip",
        kind: "hip",
        triple: AMD,
        arch: "gfx90a",
        object: 300,
        words: &["-shared"],
        ends: &["device link for ", "x.hip.image.o`"],
    },
    Link {
        name: "compressed",
        kind: "hip",
        triple: AMD,
        arch: "gfx90a",
        object: 300,
        words: &["-shared", "--compress"],
        ends: &["device link for "],
    },
    Link {
        name: "cuda",
        kind: "cuda",
        triple: NVIDIA,
        arch: "sm_80",
        object: 300,
        words: &["-shared", "--cuda-path=sdk"],
        ends: &[
            "device link for ",
            "bundling of CUDA images failed: 'fatbinary' exited with ",
            "x.cuda.image.o`",
        ],
    },
    Link {
        name: "relocatable",
        kind: "openmp",
        triple: HOST,
        arch: "generic",
        object: 300,
        words: &["-r"],
        ends: &["device link for ", "x.openmp.image.wrapper.o`"],
    },
    Link {
        name: "fat_binary",
        kind: "hip",
        triple: AMD,
        arch: "gfx90a",
        object: 300,
        words: &["--emit-fatbin-only"],
        ends: &["device link for "],
    },
];

/// A device compiler that turns its only input into an image of twice the size.
const TWICE: &str = r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
for word; do
  case $last in -o) out=$word ;; esac
  case $word in *.o) in=$word ;; esac
  last=$word
done
exec cat "$in" "$in" > "$out"
"#;

/// A directory with the object and the tools.
fn prepared(link: &Link) -> Result<Work, Failed> {
    let work = Work::new();
    // Bytes that zstd cannot compress.
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    let bytes: Vec<u8> = (0..link.object << 10).map(|_| next()).collect();
    let Link {
        kind, triple, arch, ..
    } = *link;
    work.fat(
        "a.o",
        &[Image {
            triple,
            arch,
            kind,
            bytes: &bytes,
        }],
    )?;
    work.tool("tools/clang", TWICE);
    work.tool(
        "sdk/bin/fatbinary",
        "#!/bin/sh\nexec cp \"${4##*file=}\" \"$3\"\n",
    );
    Ok(work)
}

/// A tmpfs file system. It is unmounted on drop.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Mounts the file system at `name`. Returns `None` if mounting is not permitted.
    pub(crate) fn new(work: &Work, name: &str) -> Result<Option<Disk>, Failed> {
        let folder = work.path().join(name);
        std::fs::create_dir_all(&folder)?;
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=4k", "tmpfs"])
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(mount
            .status()
            .is_ok_and(|status| status.success())
            .then(|| Disk(folder)))
    }

    /// Sets the size to `kib` KiB.
    pub(crate) fn resize(&self, kib: usize) -> Result<(), Failed> {
        let size = format!("remount,size={kib}k");
        crate::support::run(Command::new("mount").args(["-o", &size]).arg(&self.0)).map(drop)
    }

    /// Makes the file system read-only.
    pub(crate) fn read_only(&self) -> Result<(), Failed> {
        crate::support::run(
            Command::new("mount")
                .args(["-o", "remount,ro"])
                .arg(&self.0),
        )
        .map(drop)
    }

    /// The mount point.
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// The names of the files on it.
    pub(crate) fn files(&self) -> Result<String, Failed> {
        let names: Vec<String> = std::fs::read_dir(&self.0)?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_, _>>()?;
        Ok(names.join(" "))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// More space than any of the links needs on one file system, in KiB.
const MOST: usize = 8 << 10;
/// The additional space for each attempt, in KiB. It is less than the smallest file, so the
/// attempts miss none.
const STEP: usize = 120;

/// Repeats the link with increasing space on `disk` until it succeeds. Each attempt checks the
/// messages and the remaining files.
fn until_it_fits(
    link: &Link,
    work: &Work,
    disk: &Disk,
    linker: &str,
    target: &Path,
) -> Result<Vec<String>, Failed> {
    let linker = if linker == "ld" {
        "/usr/bin/ld".to_owned()
    } else {
        format!("{LLVM}/{linker}")
    };
    let mut messages = Vec::new();
    for kib in (4..MOST).step_by(STEP) {
        disk.resize(kib)?;
        let mut command = work.wrapper(link.words.iter().copied());
        command
            .arg(format!("--linker-path={linker}"))
            .arg("-o")
            .arg(target)
            .arg("a.o");
        let ended = output(&mut command)?;
        if ended.status.success() {
            work.expect_no_temps()?;
            return Ok(messages);
        }
        let stderr = text(&ended.stderr);
        let all = format!("with {kib} KiB: {}", shown(&command, &ended));
        work.expect_no_temps()
            .map_err(|failed| format!("{}\n{all}", failed.message().unwrap_or_default()))?;
        ensure(!target.exists(), || format!("there is an output {all}"))?;
        let left = disk.files()?;
        expect_equal(&format!("left on the disk {all}"), "", &left)?;
        let ours = stderr
            .lines()
            .find_map(|line| line.split_once(": error: "))
            .map_or("", |(_, error)| error);
        // If another program failed, that program has reported the cause.
        let known = ours.starts_with("cannot ") && ours.ends_with(": No space left on device");
        if !known && !ours.contains(" failed: '") {
            return Err(format!("neither a file and why, nor a step of another's: {all}").into());
        }
        messages.push(ours.to_owned());
    }
    Err(format!(
        "does not fit into {MOST} KiB: {}",
        messages.last().map_or("", String::as_str)
    )
    .into())
}

fn temporary(link: &Link) -> Outcome {
    let work = prepared(link)?;
    let Some(disk) = Disk::new(&work, "tmp")? else {
        return missing("the right to mount a file system");
    };
    let messages = until_it_fits(link, &work, &disk, "ld.lld", &work.path().join("x"))?;
    for wanted in [&["cannot write the device object `"], link.ends].concat() {
        expect_in(&messages.join("\n"), wanted)?;
    }
    passed()
}

/// GNU ld reports success although its last writes failed. With any amount of space, the output is
/// complete or missing.
fn end_of_output(name: &str) -> Outcome {
    let work = Work::new();
    let Some(linker) = host_linker(name) else {
        return missing(name);
    };
    let Some(disk) = Disk::new(&work, "out")? else {
        return missing("the right to mount a file system");
    };
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    let link = |late: &str, target: &Path| {
        let mut command = work.wrapper(["-shared", "a.o"]);
        command
            .arg(format!("--offld-linker={}", linker.display()))
            .arg("-o")
            .arg(target)
            .env("OFFLD_LATE_IMAGES", late);
        output(&mut command)
    };
    for late in ["off", "on"] {
        let (whole, target) = (work.path().join("x"), disk.folder().join("x"));
        ensure(
            link(late, &whole)?.status.success(),
            || "the link fails on a disk with room",
        )?;
        let (whole, mut failed) = (std::fs::read(&whole)?, 0);
        for kib in (4..64).step_by(4) {
            disk.resize(kib)?;
            let ended = link(late, &target)?;
            let there = std::fs::read(&target).ok();
            let told = || format!("{kib} KiB, late: {late}: {}", text(&ended.stderr));
            ensure(there.is_some() == ended.status.success(), told)?;
            ensure(there.is_none_or(|there| there == whole), || {
                format!("a cut output: {}", told())
            })?;
            expect_equal(
                &told(),
                if ended.status.success() { "x" } else { "" },
                &disk.files()?,
            )?;
            failed += usize::from(!ended.status.success());
            let _ = std::fs::remove_file(&target);
        }
        ensure(failed > 0 && failed < 15, || {
            format!("{failed} links failed")
        })?;
    }
    work.expect_no_temps()?;
    passed()
}

fn of_output(link: &Link, linker: &str) -> Outcome {
    let work = prepared(link)?;
    let Some(disk) = Disk::new(&work, "out")? else {
        return missing("the right to mount a file system");
    };
    let messages = until_it_fits(link, &work, &disk, linker, &disk.0.join("x"))?;
    ensure(
        !messages.is_empty(),
        || "the output fitted into the smallest disk, so that nothing was tried",
    )?;
    passed()
}
