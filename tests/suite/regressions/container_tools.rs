//! The container tools: several of their modules in one program, and signals while they compress.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::faults::stopped::tell;
use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, made,
    passed, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "regressions::g20d_two_modules_of_the_old_wrapper_in_one_program",
            two_modules,
        ),
        with_llvm(
            "regressions::g20e_signals_at_high_compression_levels_in_the_bundler",
            bundler,
        ),
        with_llvm(
            "regressions::g20f_signals_at_high_compression_levels_in_a_link",
            link,
        ),
    ]
}

const HOST: &str = "x86_64-pc-linux-gnu";
const MAIN: &str = r#"#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
struct entry { void *address; char *name; size_t size; int32_t flags, reserved; };
void kernel(void) {}
__attribute__((section("omp_offloading_entries"), retain, used, aligned(1))) struct entry entries[] = {
    { (void *)&kernel, "kernel", 0, 0, 0 } };
int main(void) { puts("main"); return 0; }
"#;

/// Links two offld modules as objects, through `-r` and through LLVM's text form. Both register
/// their images.
fn two_modules() -> Outcome {
    let work = Work::new();
    work.file("main.c", MAIN);
    let wrap = made().links.join("clang-offload-wrapper");
    for (image, form) in [("one", "o"), ("two", "ll")] {
        work.file(image, format!("IMAGE {image}"));
        run(work
            .command(&wrap)
            .args(["-target", HOST, "-o", &format!("{image}.{form}"), image]))?;
    }
    work.run(llvm("clang"), ["-c", "two.ll", "-o", "two.o"])?;
    for linker in ["-fuse-ld=bfd", "-fuse-ld=lld"] {
        for relocatable in [false, true] {
            let mut inputs = vec!["one.o", "two.o"];
            if relocatable {
                work.run(
                    llvm("clang"),
                    ["-r", "-nostdlib", linker, "one.o", "two.o", "-o", "both.o"],
                )?;
                inputs = vec!["both.o"];
            }
            let mut link = work.command(llvm("clang"));
            link.arg("main.c").args(inputs).args([
                "-Wl,--gc-sections",
                linker,
                "-lomptarget",
                "-o",
                "program",
                "-L",
            ]);
            run(link.arg(&made().stub))?;
            let printed = run(work
                .command("./program")
                .env("LD_LIBRARY_PATH", &made().stub)
                .env_remove("OFFLD_LEDGER"))?;
            expect_not_in(&printed, "BAD:")?;
            for lib in [0, 1] {
                expect_in(
                    &printed,
                    &format!("openmp register lib={lib} images=1 entries=1 layout=32"),
                )?;
                expect_in(
                    &printed,
                    &format!("openmp image lib={lib} index=0 is=raw in=none size=9"),
                )?;
                expect_in(&printed, &format!("openmp unregister lib={lib}"))?;
            }
        }
    }
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
            &format!("-targets=host-{HOST},hip-{AMD}--gfx906"),
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
