//! Random changes of intact files, given to every command that reads or edits them. A command ends
//! with one of its own statuses and no panic, within limits of time, memory and size. After an error it
//! leaves no output, and it never leaves temporary files.

use std::path::Path;
use std::time::Instant;

use libtest_mimic::{Failed, Trial};

use super::samples::{Samples, samples};
use super::{LONGEST, TARGET, limited};
use crate::effort::rounds;
use crate::support::{Outcome, Random, Work, output, passed, shown, text, with_llvm};

/// The limit on the size of an output in bytes. The intact files have a few KiB.
const LARGEST: u64 = 64 << 20;

/// A command: `offld` or one of its other names, and its arguments. `FILE` stands for the changed
/// file, `OUT` for its output, and `OTHER` for an intact file.
struct FrontEnd {
    name: &'static str,
    tool: &'static str,
    args: &'static [&'static str],
}

const FRONT_ENDS: [FrontEnd; 16] = [
    of_offld("inspect", &["inspect", "--json", "FILE"]),
    of_offld("size", &["size", "FILE"]),
    of_offld("check", &["check", "--for", "gfx90a,sm_80", "FILE"]),
    of_offld("diff", &["diff", "FILE", "OTHER"]),
    of_offld(
        "prune",
        &[
            "prune",
            "--drop",
            "gfx906",
            "--allow-empty",
            "FILE",
            "-o",
            "OUT",
        ],
    ),
    of_offld(
        "recompress",
        &["recompress", "--level", "1", "FILE", "-o", "OUT"],
    ),
    of_offld("strip_device", &["strip-device", "FILE", "-o", "OUT"]),
    of_offld(
        "replace",
        &[
            "replace", "--force", "--image", "0=OTHER", "FILE", "-o", "OUT",
        ],
    ),
    of_offld("split", &["split", "FILE", "-d", "OUT"]),
    of_offld("merge", &["merge", "FILE", "OTHER", "-o", "OUT"]),
    FrontEnd {
        name: "link",
        tool: "clang-linker-wrapper",
        args: &[
            "--dry-run",
            "--host-triple=x86_64-unknown-linux-gnu",
            "--linker-path=/bin/true",
            "-o",
            "OUT",
            "FILE",
        ],
    },
    of_bundler("bundler_list", &["-list", "-type=bc", "-input=FILE"]),
    of_bundler(
        "bundler_objects",
        &[
            "-unbundle",
            "-type=o",
            "-allow-missing-bundles",
            "-targets=TARGET",
            "-input=FILE",
            "-output=OUT",
        ],
    ),
    of_bundler(
        "bundler_archives",
        &[
            "-unbundle",
            "-type=a",
            "-allow-missing-bundles",
            "-targets=TARGET",
            "-input=FILE",
            "-output=OUT",
        ],
    ),
    FrontEnd {
        name: "packager",
        tool: "llvm-offload-binary",
        args: &["FILE", "--image=file=OUT,kind=openmp"],
    },
    FrontEnd {
        name: "wrapper",
        tool: "llvm-offload-wrapper",
        args: &[
            "--kind=openmp",
            "--triple=x86_64-unknown-linux-gnu",
            "FILE",
            "-o",
            "OUT",
        ],
    },
];

const fn of_offld(name: &'static str, args: &'static [&'static str]) -> FrontEnd {
    FrontEnd {
        name,
        tool: "offld",
        args,
    }
}

const fn of_bundler(name: &'static str, args: &'static [&'static str]) -> FrontEnd {
    FrontEnd {
        name,
        tool: "clang-offload-bundler",
        args,
    }
}

/// One test for each command.
pub(super) fn trials() -> Vec<Trial> {
    FRONT_ENDS
        .iter()
        .map(|one| {
            with_llvm(&format!("malformed::mutations::{}", one.name), || {
                check(one)
            })
        })
        .collect()
}

fn all(samples: &Samples) -> [&[u8]; 10] {
    [
        &samples.bundle,
        &samples.text,
        &samples.ccob,
        &samples.ccob2,
        &samples.packed,
        &samples.fat,
        &samples.coff,
        &samples.bundled,
        &samples.archive,
        &samples.hip,
    ]
}

fn check(one: &FrontEnd) -> Outcome {
    let files = all(samples()?);
    let work = Work::new();
    for seed in 0..rounds("changed files for each command", 4_000u64, 40) {
        let mut random = Random(seed);
        let (good, other) = (
            files[random.below(files.len())],
            files[random.below(files.len())],
        );
        let changed = damaged(&mut random, good, other);
        work.file("file", &changed);
        work.file("other", good);
        let mut command = limited(&work, one.tool);
        command.args(one.args.iter().map(|arg| {
            arg.replace("FILE", "file")
                .replace("OTHER", "other")
                .replace("OUT", "out")
                .replace("TARGET", TARGET)
        }));
        let start = Instant::now();
        let ended = output(&mut command)?;
        let (status, stderr) = (ended.status.code(), text(&ended.stderr));
        let context =
            |why: &str| Failed::from(format!("seed {seed}: {why}\n{}", shown(&command, &ended)));
        let is_own_status = matches!(status, Some(0..=2));
        if !is_own_status || stderr.contains("panicked") {
            return Err(context("not a status of the command"));
        }
        if start.elapsed() > LONGEST {
            return Err(context("the command takes too long"));
        }
        let out = work.path().join("out");
        if status != Some(0) && has_contents(&out) {
            return Err(context("an output after an error"));
        }
        if out.metadata().is_ok_and(|meta| meta.len() > LARGEST) {
            return Err(context("a huge output"));
        }
        work.expect_no_temps()
            .map_err(|_| context("temporary files are left"))?;
        if out.is_dir() {
            std::fs::remove_dir_all(out)?;
        } else if out.exists() {
            std::fs::remove_file(out)?;
        }
    }
    passed()
}

/// Whether `path` is a file, or a directory with a file.
fn has_contents(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.exists(),
    }
}

/// Returns `good` with one to twelve changes: of bits, bytes and numbers, cuts, and parts that go,
/// are repeated, or come from `other`.
pub(crate) fn damaged(random: &mut Random, good: &[u8], other: &[u8]) -> Vec<u8> {
    const NUMBERS: [u64; 12] = [
        0,
        1,
        7,
        0x7f,
        0xff,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 40,
        u64::MAX >> 1,
        u64::MAX - 7,
        u64::MAX,
    ];
    let mut bytes = good.to_vec();
    let most = if random.chance(25) { 12 } else { 3 };
    for _ in 0..=random.below(most) {
        if bytes.is_empty() {
            break;
        }
        // Headers are small, and a change of them has more effects.
        let end = if random.chance(33) {
            bytes.len().min(256)
        } else {
            bytes.len()
        };
        let at = random.below(end);
        let part = at..at + 1 + random.below((bytes.len() - at).min(64));
        let size = [2, 4, 8][random.below(3)];
        match random.below(9) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 | 3 => {
                let number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
                let at = at - at % size;
                let places = bytes.iter_mut().skip(at).take(size);
                places.zip(number).for_each(|(place, byte)| *place = byte);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(part)),
            6 => {
                let repeated = bytes[part].to_vec();
                bytes.splice(at..at, repeated);
            }
            7 => {
                let to = random.below(bytes.len());
                let copied = bytes[part].to_vec();
                let places = bytes.iter_mut().skip(to);
                places.zip(copied).for_each(|(place, byte)| *place = byte);
            }
            _ => {
                let from = random.below(other.len());
                let more = other.iter().skip(from).take(1 + random.below(512));
                bytes.splice(at..at, more.copied());
            }
        }
    }
    bytes
}
