//! Unusual signals, signals while data is compressed, and resource limits that end programs.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::early_linker::at_work;
use crate::faults::stopped::{at_any_time, started, stopped, tell};
use crate::kit::{AMD, Image};
use crate::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, made,
    output, passed, shown, text, with_llvm,
};

const SIGNALS: [(&str, i32); 7] = [
    ("quit", 3),
    ("abrt", 6),
    ("usr1", 10),
    ("usr2", 12),
    ("alrm", 14),
    ("xcpu", 24),
    ("xfsz", 25),
];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm(
            "signals::waiting_linkers_are_gone_after_any_signal",
            waiting_linkers,
        ),
        with_llvm(
            "signals::a_limit_on_the_size_of_files_leaves_nothing",
            size_of_files,
        ),
    ];
    trials.push(with_llvm(
        "signals::at_high_compression_levels_in_the_bundler",
        bundler,
    ));
    trials.push(with_llvm(
        "signals::at_high_compression_levels_in_a_link",
        link,
    ));
    for (name, signal) in SIGNALS {
        for stage in ["device", "bundling", "host", "relocatable"] {
            let test = format!("signals::sig{name}_in_the_{stage}_link_leaves_nothing");
            trials.push(with_llvm(&test, move || stopped(signal, stage)));
        }
    }
    trials.push(with_llvm(
        "signals::sigusr1_at_any_time_leaves_nothing",
        || at_any_time(10),
    ));
    trials
}

/// A slow device compiler.
const SLOW: &str = "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\necho $$ > pid.1; echo $$ > inner.1\nexec sleep 60\n";

fn waiting_linkers() -> Outcome {
    for (name, signal) in SIGNALS {
        let work = Work::new();
        work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
        work.tool("tools/clang", SLOW);
        let linker = format!("--linker-path={LLVM}/ld.lld");
        let mut command = work.wrapper(["-m", "elf_x86_64", &linker, "-o", "x", "a.o"]);
        let mut link = command.stderr(Stdio::piped()).spawn()?;
        started(work.path(), 1, &mut link)?;
        ensure(
            at_work(&work)? >= 2,
            || "no linker waits, so this test shows nothing",
        )?;
        tell(&link, signal)?;
        let ended = link.wait_with_output()?;
        let stderr = text(&ended.stderr);
        expect_equal(
            name,
            &format!("Some({})", 128 + signal),
            &format!("{:?}", ended.status.code()),
        )?;
        expect_in(&stderr, &format!("error: stopped by signal {signal}\n"))?;
        expect_not_in(&stderr, "no input files")?;
        expect_equal("processes that are left", "0", &at_work(&work)?.to_string())?;
        work.expect_no_temps()?;
    }
    passed()
}

fn size_of_files() -> Outcome {
    let work = Work::new();
    let bytes = vec![7u8; 3 << 20];
    work.fat(
        "a.o",
        &[Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "hip",
            bytes: &bytes,
        }],
    )?;
    let link = work.wrapper(["-o", "x", "a.o"]);
    let mut limited = Command::new("prlimit");
    limited
        .arg("--fsize=1000000")
        .arg(link.get_program())
        .args(link.get_args())
        .current_dir(work.path());
    limited.envs(
        link.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let ended = output(&mut limited)?;
    ensure(ended.status.code().is_some_and(|code| code != 0), || {
        shown(&limited, &ended)
    })?;
    expect_in(&text(&ended.stderr), "error: ")?;
    work.expect_no_temps()?;
    expect_no_file(&work.path().join("x"))?;
    passed()
}

/// Numbers that repeat at a large distance, which zstd compresses slowly at its highest levels.
fn slow_to_pack() -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        b"0123456789abcdef"[(state >> 60) as usize]
    };
    (0..48 << 20).map(|_| next()).collect()
}

/// Sends a signal while `command` compresses. The command must end soon and leave no new files.
fn ends_soon(work: &Work, mut command: Command, signal: i32) -> Result<(), Failed> {
    let before = names(work)?;
    let mut child = command
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(2));
    ensure(
        child.try_wait()?.is_none(),
        || "it has ended before the signal",
    )?;
    tell(&child, signal)?;
    let since = Instant::now();
    let ended = child.wait()?;
    let took = since.elapsed();
    expect_equal(
        "the status",
        &format!("Some({})", 128 + signal),
        &format!("{:?}", ended.code()),
    )?;
    ensure(took < Duration::from_secs(3), || {
        format!("it went on for {took:?} after signal {signal}")
    })?;
    work.expect_no_temps()?;
    expect_equal(
        "files",
        &format!("{before:?}"),
        &format!("{:?}", names(work)?),
    )
}

/// The sorted names in a test's directory.
fn names(work: &Work) -> Result<Vec<String>, Failed> {
    let mut names: Vec<String> = std::fs::read_dir(work.path())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

fn bundler() -> Outcome {
    let work = Work::new();
    work.file("image", slow_to_pack());
    std::fs::create_dir(work.path().join("tmp"))?;
    for (signal, output) in [(2, "made"), (15, "-")] {
        let mut command = work.command(made().links.join("clang-offload-bundler"));
        command.args([
            "-type=bc",
            "-compress",
            "-compression-level=22",
            &format!("-targets=host-x86_64-pc-linux-gnu,hip-{AMD}--gfx906"),
        ]);
        command.args([
            "-input=/dev/null",
            "-input=image",
            &format!("-output={output}"),
        ]);
        ends_soon(&work, command, signal)?;
    }
    passed()
}

fn link() -> Outcome {
    let work = Work::new();
    work.fat(
        "a.o",
        &[Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "hip",
            bytes: &slow_to_pack(),
        }],
    )?;
    let command = work.wrapper(["--compress", "--compression-level=22", "-o", "x", "a.o"]);
    // The files that the stand-in for the device compiler writes.
    std::fs::create_dir_all(work.path().join("device"))?;
    work.file("images", "");
    ends_soon(&work, command, 15)?;
    expect_no_file(&work.path().join("x"))?;
    passed()
}
