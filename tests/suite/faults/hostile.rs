//! Inputs and environments that could keep offld busy or waiting forever: pipes without a reader,
//! containers with thousands of images, and small files that decompress to large ones.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::fs::{CWD, Mode, mkfifoat};

use super::stopped::tell;
use crate::kit::{AMD, HOST, Image, NVIDIA};
use crate::support::{
    Outcome, Work, at_most_memory, ensure, expect_equal, expect_in, made, offld, output, passed,
    run, shown, test, text,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("faults::f08_a_signal_ends_what_waits_for_a_reader", readers),
        test("faults::f08_a_signal_ends_what_waits_for_a_writer", writers),
        test("faults::f08_a_signal_ends_long_work", long_work),
        test("faults::f08_a_pipe_is_opened_once", opened_once),
        test("faults::thousands_of_images_in_a_container", many_images),
        test("faults::thousands_of_targets", many_targets),
        test("faults::thousands_of_targets_of_a_bundle", bundles),
        test("faults::little_memory_for_much_that_is_inflated", memory),
        test("faults::one_limit_for_all_containers_of_a_file", one_limit),
    ]
}

fn fifo(work: &Work, name: &str) -> Result<(), Failed> {
    Ok(mkfifoat(
        CWD,
        work.path().join(name),
        Mode::RUSR | Mode::WUSR,
    )?)
}

/// A command of one of offld's tools.
fn tool(work: &Work, name: &str, words: &[&str]) -> Command {
    let mut command = if name == "offld" {
        work.command(offld())
    } else {
        work.command(made().links.join(name))
    };
    command
        .args(words)
        .stderr(Stdio::null())
        .stdin(Stdio::null());
    command
}

/// The exit status of `child` after `signal`. Fails if it does not end soon.
fn ended_by(mut child: Child, signal: i32) -> Result<ExitStatus, Failed> {
    // Long enough for the program to reach the point where it waits.
    std::thread::sleep(Duration::from_millis(300));
    ensure(
        child.try_wait()?.is_none(),
        || "it ended by itself, so this test shows nothing",
    )?;
    tell(&child, signal)?;
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > patience {
            child.kill()?;
            return Err(format!("it was still there 10 s after signal {signal}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal while the command waits. Fails unless that ends the command, without an output
/// and without leftover files.
fn is_ended(work: &Work, command: &mut Command, signal: i32) -> Outcome {
    let before = names(work)?;
    let status =
        ended_by(command.spawn()?, signal).map_err(|failed| with_command(command, &failed))?;
    let by_signal = status.signal() == Some(signal) || status.code() == Some(128 + signal);
    ensure(by_signal, || format!("{command:?}: {status}"))?;
    expect_equal(
        &format!("the files after {command:?}"),
        &before,
        &names(work)?,
    )?;
    work.expect_no_temps()
        .map_err(|failed| with_command(command, &failed))?;
    passed()
}

fn with_command(command: &Command, failed: &Failed) -> Failed {
    format!("{command:?}: {}", failed.message().unwrap_or_default()).into()
}

fn names(work: &Work) -> Result<String, Failed> {
    let each = std::fs::read_dir(work.path())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = each.collect();
    names.sort();
    Ok(names.join(" "))
}

fn inputs(work: &Work) -> Outcome {
    fifo(work, "pipe")?;
    work.file("x", "x");
    work.file("large", vec![7_u8; 1 << 20]);
    work.file("old", "old contents");
    work.pack(
        "images",
        &[Image::hip("gfx90a", b"A"), Image::hip("gfx908", b"B")],
    )?;
    work.fat("one.o", &[Image::hip("gfx90a", b"A")])?;
    std::fs::copy(work.path().join("one.o"), work.path().join("two.o"))?;
    passed()
}

/// Output pipes that no process opens, or that a process opens and does not read.
fn readers() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    let image = format!("--image=file=large,triple={AMD},arch=gfx90a,kind=hip");
    let targets = format!("-targets=host-{HOST}-,hip-{AMD}--gfx90a");
    let lines: [(&str, &[&str]); 11] = [
        ("llvm-offload-binary", &["-o", "pipe", &image]),
        (
            "clang-offload-bundler",
            &[
                "-type=bc",
                &targets,
                "-input=x",
                "-input=large",
                "-output=pipe",
            ],
        ),
        (
            "offld",
            &["prune", "--keep", "gfx90a", "images", "-o", "pipe"],
        ),
        ("offld", &["strip-device", "images", "-o", "pipe"]),
        ("offld", &["merge", "one.o", "two.o", "-o", "pipe"]),
        ("offld", &["diff", "--save", "pipe", "images"]),
        (
            "offld",
            &["replace", "--image", "0=large", "images", "-o", "pipe"],
        ),
        (
            "offld",
            &["recompress", "--level", "3", "images", "-o", "pipe"],
        ),
        ("offld", &["size", "--html", "pipe", "images"]),
        (
            "llvm-offload-wrapper",
            &[
                "--kind=hip",
                "--triple=x86_64-unknown-linux-gnu",
                "-o",
                "pipe",
                "images",
            ],
        ),
        (
            "llvm-offload-binary",
            &["images", "--image=file=pipe,arch=gfx90a"],
        ),
    ];
    for (at, (name, words)) in lines.into_iter().enumerate() {
        is_ended(&work, &mut tool(&work, name, words), [15, 2, 1][at % 3])?;
    }
    // The other output keeps its old contents.
    for _ in 0..2 {
        let bundle = work.path().join("bundle");
        let words = [
            "-type=bc",
            &targets,
            "-input=x",
            "-input=large",
            "-output=bundle",
        ];
        run(tool(&work, "clang-offload-bundler", &words).stderr(Stdio::piped()))?;
        for outputs in [
            ["-output=old", "-output=pipe"],
            ["-output=pipe", "-output=old"],
        ] {
            let words = [
                &["-unbundle", "-type=bc", &targets, "-input=bundle"][..],
                &outputs,
            ]
            .concat();
            is_ended(&work, &mut tool(&work, "clang-offload-bundler", &words), 15)?;
            expect_equal(
                "the other output",
                "old contents",
                &std::fs::read_to_string(work.path().join("old"))?,
            )?;
        }
        std::fs::remove_file(bundle)?;
    }
    let reader = OpenOptions::new()
        .read(true)
        .write(true)
        .open(work.path().join("pipe"))?;
    for (name, words) in [lines[0], lines[1]] {
        is_ended(&work, &mut tool(&work, name, words), 15)?;
    }
    drop(reader);
    // A standard output that no process reads.
    for (name, words) in [
        ("offld", &["inspect", "--json", "many"][..]),
        ("llvm-offload-binary", &["-o", "-", &image]),
    ] {
        let one = std::fs::read(work.path().join("images"))?;
        work.file("many", one.repeat(1000));
        is_ended(&work, tool(&work, name, words).stdout(Stdio::piped()), 15)?;
    }
    passed()
}

/// Input pipes that no process writes to.
fn writers() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    let packed = format!("--image=file=pipe,triple={AMD},arch=gfx90a,kind=hip");
    let targets = format!("-targets=host-{HOST}-,hip-{AMD}--gfx90a");
    for (name, words) in [
        ("offld", &["inspect", "pipe"][..]),
        ("offld", &["size", "pipe"]),
        ("offld", &["prune", "--keep", "gfx90a", "pipe", "-o", "new"]),
        ("llvm-offload-binary", &["-o", "new", &packed]),
        ("llvm-offload-binary", &["@pipe"]),
        (
            "clang-offload-bundler",
            &[
                "-type=bc",
                &targets,
                "-input=x",
                "-input=pipe",
                "-output=new",
            ],
        ),
        (
            "clang-linker-wrapper",
            &["--linker-path=/usr/bin/true", "-o", "new", "pipe"],
        ),
        (
            "clang-linker-wrapper",
            &["--linker-path=/usr/bin/true", "-o", "new", "@pipe"],
        ),
        ("ld.offld", &["-o", "new", "-T", "pipe", "x"]),
    ] {
        is_ended(&work, &mut tool(&work, name, words), 15)?;
    }
    passed()
}

/// zstd needs minutes at its highest level.
fn long_work() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 & 0x3f
    };
    work.file("noise", (0..24 << 20).map(next).collect::<Vec<u8>>());
    let targets = format!("-targets=host-{HOST}-,hip-{AMD}--gfx90a");
    let words = [
        "-type=bc",
        &targets,
        "-input=x",
        "-input=noise",
        "-output=new",
        "-compress",
        "-compression-level=22",
    ];
    is_ended(&work, &mut tool(&work, "clang-offload-bundler", &words), 15)
}

/// If offld opened and closed a pipe twice, its reader would see the end of the contents too early.
fn opened_once() -> Outcome {
    let work = Work::new();
    inputs(&work)?;
    let image = format!("--image=file=large,triple={AMD},arch=gfx90a,kind=hip");
    run(&mut tool(
        &work,
        "llvm-offload-binary",
        &["-o", "file", &image],
    ))?;
    for _ in 0..5 {
        let mut packing = tool(&work, "llvm-offload-binary", &["-o", "pipe", &image]).spawn()?;
        let mut read = Vec::new();
        std::fs::File::open(work.path().join("pipe"))?.read_to_end(&mut read)?;
        if read.is_empty() {
            packing.kill()?;
        }
        ensure(packing.wait()?.success(), || "nothing was written")?;
        ensure(
            read == std::fs::read(work.path().join("file"))?,
            || "something else was written",
        )?;
    }
    passed()
}

/// CPU time in seconds that is enough to process thousands of items, even for an unoptimized
/// program on a slow machine.
const SECONDS: u32 = 20;

/// Runs `command` with a limit of [`SECONDS`] of CPU time.
fn quick(command: &Command) -> Result<String, Failed> {
    let mut limited = Command::new("prlimit");
    limited
        .arg(format!("--cpu={SECONDS}"))
        .arg(command.get_program())
        .args(command.get_args());
    limited.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    limited.current_dir(command.get_current_dir().ok_or("no folder")?);
    let ended = output(&mut limited)?;
    ensure(ended.status.code().is_some_and(|code| code < 2), || {
        shown(&limited, &ended)
    })?;
    Ok(text(&ended.stdout) + &text(&ended.stderr))
}

/// An OffloadBinary for each item, concatenated.
fn binaries(
    work: &Work,
    name: &str,
    each: &mut dyn Iterator<Item = (String, String, &'static str)>,
) -> Outcome {
    let listed = each.map(|(triple, arch, kind)| {
        format!("--image=file=x,triple={triple},arch={arch},kind={kind}")
    });
    let words: Vec<String> = [format!("-o {name}")].into_iter().chain(listed).collect();
    work.file("x", "x");
    work.file("pack.rsp", words.join("\n"));
    run(&mut tool(work, "llvm-offload-binary", &["@pack.rsp"]))?;
    passed()
}

/// Runs every tool on an input with many images.
fn all_front_ends(work: &Work, name: &str, count: usize) -> Outcome {
    let linked = [
        "--host-triple=x86_64-unknown-linux-gnu",
        "--linker-path=/usr/bin/true",
        "--dry-run",
        "-o",
        "program",
        name,
    ];
    let shown = quick(&tool(work, "clang-linker-wrapper", &linked))?;
    expect_in(&shown, "/usr/bin/true")?;
    let listed = quick(&tool(work, "offld", &["inspect", name]))?;
    expect_in(&listed, &format!("{count} device images"))?;
    for words in [
        &["size", name][..],
        &["check", "--for", "gfx90a", name],
        &["check", name],
        &[
            "prune",
            "--drop",
            "gfx90a",
            "--allow-empty",
            name,
            "-o",
            "pruned",
        ],
        &["strip-device", name, "-o", "stripped"],
        &["split", name, "--dir", "parts"],
    ] {
        quick(&tool(work, "offld", words))?;
    }
    quick(&tool(
        work,
        "llvm-offload-binary",
        &[name, "--archive", "--image=file=x.a"],
    ))?;
    quick(&tool(
        work,
        "llvm-offload-wrapper",
        &[
            "--kind=openmp",
            "--triple=x86_64-unknown-linux-gnu",
            "-o",
            "w.bc",
            name,
        ],
    ))?;
    passed()
}

fn many_images() -> Outcome {
    let work = Work::new();
    binaries(
        &work,
        "one",
        &mut [(AMD.to_owned(), "gfx90a".to_owned(), "hip")].into_iter(),
    )?;
    let one = std::fs::read(work.path().join("one"))?;
    work.file("many", one.repeat(30_000));
    all_front_ends(&work, "many", 30_000)?;
    // The same images as members of an archive, and as separate inputs.
    let member = |at: usize| {
        [
            format!(
                "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
                format!("m{at}.o/"),
                0,
                0,
                0,
                644,
                one.len()
            )
            .into_bytes(),
            one.clone(),
        ]
    };
    let members: Vec<u8> = (0..10_000).flat_map(member).flatten().collect();
    work.file("many.a", [b"!<arch>\n", &members[..]].concat());
    all_front_ends(&work, "many.a", 10_000)?;
    work.file("line.rsp", "one\n".repeat(10_000));
    let words = [
        "--host-triple=x86_64-unknown-linux-gnu",
        "--linker-path=/usr/bin/true",
        "--dry-run",
        "-o",
        "program",
        "@line.rsp",
    ];
    quick(&tool(&work, "clang-linker-wrapper", &words))?;
    passed()
}

fn many_targets() -> Outcome {
    let work = Work::new();
    let count = 3000;
    // Unknown architectures, triples and features, and two targets where code for one also serves
    // the other.
    binaries(
        &work,
        "archs",
        &mut (0..count).map(|at| (AMD.to_owned(), format!("gfx{:x}", 0x10000 + at), "openmp")),
    )?;
    all_front_ends(&work, "archs", count)?;
    binaries(
        &work,
        "triples",
        &mut (0..count).map(|at| (format!("cpu{at}-pc-linux-gnu"), String::new(), "openmp")),
    )?;
    all_front_ends(&work, "triples", count)?;
    binaries(
        &work,
        "features",
        &mut (0..count).map(|at| (AMD.to_owned(), format!("gfx90a:f{at}+"), "openmp")),
    )?;
    all_front_ends(&work, "features", count)?;
    let served = |at| {
        (
            AMD.to_owned(),
            if at % 2 == 0 {
                "gfx90a"
            } else {
                "gfx90a:xnack+"
            }
            .to_owned(),
            "openmp",
        )
    };
    binaries(&work, "served", &mut (0..count).map(served))?;
    all_front_ends(&work, "served", count)?;
    let served = |at| {
        (
            NVIDIA.to_owned(),
            if at == 0 {
                String::new()
            } else {
                format!("sm_{at}")
            },
            "openmp",
        )
    };
    binaries(&work, "generic", &mut (0..count).map(served))?;
    all_front_ends(&work, "generic", count)
}

/// Bundles with many code objects, created and extracted.
fn bundles() -> Outcome {
    let work = Work::new();
    work.file("x", "x");
    let count = 4000;
    let mut targets = vec![format!("host-{HOST}-")];
    targets.extend((0..count).map(|at| format!("hip-{AMD}--gfx{:x}", 0x10000 + at)));
    let targets = format!("-targets={}", targets.join(","));
    let inputs = "-input=x\n".repeat(count + 1);
    work.file(
        "bundle.rsp",
        format!("-type=bc\n{targets}\n{inputs}-output=bundle"),
    );
    quick(&tool(&work, "clang-offload-bundler", &["@bundle.rsp"]))?;
    let listed = quick(&tool(
        &work,
        "clang-offload-bundler",
        &["-list", "-type=bc", "-input=bundle"],
    ))?;
    expect_equal(
        "the ids",
        &(count + 1).to_string(),
        &listed.lines().count().to_string(),
    )?;
    let outputs: Vec<String> = (0..=count).map(|at| format!("-output=out.{at}")).collect();
    work.file(
        "unbundle.rsp",
        format!(
            "-type=bc\n-unbundle\n{targets}\n-input=bundle\n{}",
            outputs.join("\n")
        ),
    );
    quick(&tool(&work, "clang-offload-bundler", &["@unbundle.rsp"]))?;
    ensure(
        (0..=count).all(|at| work.path().join(format!("out.{at}")).exists()),
        || "outputs are missing",
    )?;
    for words in [
        &["inspect", "bundle"][..],
        &["size", "bundle"],
        &["prune", "--drop", "gfx10001", "bundle", "-o", "pruned"],
    ] {
        quick(&tool(&work, "offld", words))?;
    }
    passed()
}

/// A file of `size` bytes with `parts` fatbinaries. Each has one image of zeros.
fn fatbinary(zeros: u64, parts: usize, size: usize) -> Result<Vec<u8>, Failed> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3)?;
    encoder.set_pledged_src_size(Some(zeros))?;
    encoder.include_contentsize(true)?;
    std::io::copy(&mut std::io::repeat(0).take(zeros), &mut encoder)?;
    let mut packed = encoder.finish()?;
    let stored = packed.len() as u64;
    packed.resize(packed.len().next_multiple_of(8), 0);
    let entry = [
        &2_u16.to_le_bytes()[..],
        &0x101_u16.to_le_bytes(),
        &64_u32.to_le_bytes(),
        &(packed.len() as u64).to_le_bytes(),
        &u32::try_from(stored)?.to_le_bytes(),
        &0_u32.to_le_bytes(),
        &[0, 0, 7, 0],
        &90_u32.to_le_bytes(),
        &[0; 8],
        &0x8011_u64.to_le_bytes(),
        &[0; 8],
        &zeros.to_le_bytes(),
        &packed,
    ]
    .concat();
    let head = [
        &0xba55_ed50_u32.to_le_bytes()[..],
        &1_u16.to_le_bytes(),
        &16_u16.to_le_bytes(),
        &(entry.len() as u64).to_le_bytes(),
    ];
    let mut file = [head.concat(), entry].concat().repeat(parts);
    file.resize(file.len().max(size), 0);
    Ok(file)
}

/// Memory use stays low, however much data decompression yields.
fn memory() -> Outcome {
    let work = Work::new();
    work.file("fatbin", fatbinary(512 << 20, 1, 1 << 20)?);
    // Several threads may unpack the images of one file at the same time.
    work.file("four", fatbinary(128 << 20, 4, 1 << 20)?);
    for file in ["fatbin", "four"] {
        let sized = run(&mut tool(&work, "offld", &["size", file]))?;
        expect_in(&sized, "512M")?;
        for words in [
            &["size", file][..],
            &["inspect", file],
            &["inspect", "--extract", "out", file],
        ] {
            at_most_memory(&mut tool(&work, "offld", words), 150)?;
        }
    }
    passed()
}

/// Many containers count together like one of the same total size. Containers within the limit are
/// read.
fn one_limit() -> Outcome {
    let work = Work::new();
    let small = fatbinary(1000, 1, 0)?;
    work.file(
        "bombs",
        [small.clone(), fatbinary(256 << 20, 20, 0)?, small].concat(),
    );
    let listed = output(tool(&work, "offld", &["inspect", "bombs"]).stderr(Stdio::piped()))?;
    expect_equal(
        "the status",
        "Some(2)",
        &format!("{:?}", listed.status.code()),
    )?;
    let (listed, errors) = (text(&listed.stdout), text(&listed.stderr));
    expect_in(&listed, "22 device images")?;
    expect_in(
        &errors,
        "not unpacked: the file would unpack to more than 1000 times its size",
    )?;
    let hashed = |line: &&str| {
        line.contains("sm_90") && line.trim_end().len() > 12 && !line.trim_end().ends_with('-')
    };
    expect_equal(
        "images that were gone into",
        "2",
        &(listed.lines().filter(hashed).count()).to_string(),
    )?;
    let bundle = format!("host-{HOST}-,hip-{AMD}--gfx90a");
    let zeros = std::fs::File::create(work.path().join("zeros"))?;
    zeros.set_len(128 << 20)?;
    let words = [
        "-type=bc",
        &format!("-targets={bundle}"),
        "-input=/dev/null",
        "-input=zeros",
        "-output=ccob",
        "-compress",
    ];
    run(&mut tool(&work, "clang-offload-bundler", &words))?;
    work.file("ccobs", std::fs::read(work.path().join("ccob"))?.repeat(50));
    for file in ["bombs", "ccobs"] {
        let began = Instant::now();
        for words in [
            &["inspect", "--json", file][..],
            &["size", file],
            &["check", "--for", "gfx90a,sm_90", file],
            &["prune", "--drop", "sm_80", file, "-o", "new"],
            &["strip-device", file, "-o", "new"],
        ] {
            let mut command = Command::new("prlimit");
            command
                .arg(format!("--fsize={}", 200 << 20))
                .arg(format!("--cpu={SECONDS}"))
                .arg(offld())
                .args(words);
            command
                .current_dir(work.path())
                .env("TMPDIR", work.path().join("tmp"));
            let ended = output(&mut command)?;
            ensure(ended.status.code().is_some(), || shown(&command, &ended))?;
            // Commands that change files use the metadata of containers, and read images only if
            // necessary.
            if ["inspect", "size", "check"].contains(&words[0]) {
                expect_in(
                    &(text(&ended.stdout) + &text(&ended.stderr)),
                    "the file would unpack to more than 1000 times its size",
                )?;
            }
        }
        ensure(began.elapsed() < Duration::from_secs(120), || {
            format!("{file}: {:?}", began.elapsed())
        })?;
    }
    // LLVM's tools have no limit, so all contents of a bundle are written.
    let words = [
        "-type=bc",
        "-unbundle",
        &format!("-targets={bundle}"),
        "-input=ccob",
        "-output=host",
        "-output=code",
    ];
    run(&mut tool(&work, "clang-offload-bundler", &words))?;
    expect_equal(
        "its size",
        &(128_u64 << 20).to_string(),
        &std::fs::metadata(work.path().join("code"))?
            .len()
            .to_string(),
    )?;
    passed()
}
