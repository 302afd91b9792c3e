//! Memory and output size do not grow with the code objects without need (docs/spec/containers.md
//! 6).

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use super::{GFX90A, GFX906, HOST, bundler, done, ours, theirs, words};
use crate::faults::stopped::tell;
use crate::support::{
    Outcome, Release, Work, at_most_memory, ensure, expect_equal, expect_in, expect_no_file, llvm,
    passed, run, run_failing, test, with_llvm,
};

const MIB: u64 = 1 << 20;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("bundler::memory_does_not_grow_with_code_objects", memory),
        with_llvm(
            "bundler::what_is_the_same_is_compressed_once",
            identical_images,
        ),
        test("bundler::more_inputs_than_open_files", many),
        test("bundler::b21_a_signal_leaves_nothing", ended_by_signal),
        test("bundler::b21_a_full_disk_is_told", full_disk),
    ]
}

/// Runs a command line with offld's bundler, which must succeed within `limit` MiB of memory.
fn run_within_memory(work: &Work, line: &str, limit: u64) -> Result<(), Failed> {
    at_most_memory(&mut bundler(work, ours(), &words(line)), limit)
}

/// Writes a sparse code object with data at both ends.
fn write_sparse(work: &Work, name: &str, size: u64) -> Result<(), Failed> {
    let path = work.file(name, "first");
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.set_len(size)?;
    Ok(file.write_all_at(b"last\n", size - 5)?)
}

fn memory() -> Outcome {
    let work = Work::new();
    work.file("host.c", "int x;\n");
    run(work.command(llvm("clang")).args([
        "--target=x86_64-unknown-linux-gnu",
        "-c",
        "host.c",
        "-o",
        "host.o",
    ]))?;
    write_sparse(&work, "image", 600 * MIB)?;
    for kind in ["i", "bc", "o"] {
        run_within_memory(
            &work,
            &format!(
                "-type={kind} -targets={HOST},{GFX906} -input=host.o -input=image -output=made"
            ),
            64,
        )?;
        run_within_memory(&work, &format!("-list -type={kind} -input=made"), 64)?;
        run_within_memory(
            &work,
            &format!(
                "-unbundle -type={kind} -targets={HOST},{GFX906} -input=made -output=host -output=out"
            ),
            64,
        )?;
        run(work.command("cmp").args(["image", "out"]))?;
    }
    let line = "-type=bc -compress";
    run_within_memory(
        &work,
        &format!("{line} -targets={HOST},{GFX906} -input=host.o -input=image -output=made"),
        400,
    )?;
    run_within_memory(&work, "-list -type=bc -input=made", 64)?;
    run_within_memory(
        &work,
        &format!("-unbundle -type=bc -targets={GFX906} -input=made -output=out"),
        400,
    )?;
    run(work.command("cmp").args(["image", "out"]))?;
    passed()
}

/// Writes incompressible bytes.
fn write_noise(path: &Path, size: u64) -> Result<(), Failed> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let bytes: Vec<u8> = words.take((size / 8) as usize).flatten().collect();
    Ok(std::fs::write(path, bytes)?)
}

/// Identical images share their compressed bytes: LLVM's bundler finds no match further back than
/// 128 MiB. LLVM 22 and 19 read the result.
fn identical_images() -> Outcome {
    const SIZE: u64 = 140 * MIB;
    let work = Work::new();
    write_noise(&work.path().join("image"), SIZE)?;
    let line = format!(
        "-type=bc -compress -targets={HOST},{GFX906},{GFX90A} -input=/dev/null -input=image -input=image -output=made"
    );
    run(bundler(&work, ours(), &words(&line)).env("COMPRESSED_BUNDLE_FORMAT_VERSION", "2"))?;
    let size = std::fs::metadata(work.path().join("made"))?.len();
    if size > SIZE + SIZE / 50 {
        return Err(format!(
            "two code objects of {SIZE} bytes, which are the same, take {size} bytes"
        )
        .into());
    }
    let old = Release::of(19).map(|release| release.tool("clang-offload-bundler"));
    for tool in [Some(theirs()), old].into_iter().flatten() {
        done(
            &work,
            tool,
            &format!("-unbundle -type=bc -targets={GFX90A} -input=made -output=out"),
        )?;
        run(work.command("cmp").args(["image", "out"]))?;
        std::fs::remove_file(work.path().join("out"))?;
    }
    passed()
}

fn many() -> Outcome {
    let work = Work::new();
    let mut line = format!("-type=bc -output=made -targets={HOST} -input=/dev/null");
    for index in 0..1500 {
        work.file(&format!("f{index}"), format!("code object {index}"));
        line.push_str(&format!(
            " -targets=hip-amdgcn-amd-amdhsa--gfx{} -input=f{index}",
            90000 + index
        ));
    }
    work.file("line", line);
    done(&work, ours(), "@line")?;
    let listed = done(&work, ours(), "-list -type=bc -input=made")?;
    expect_equal("entries", "1501", &listed.lines().count().to_string())?;
    passed()
}

/// The number of temporary files that the running tool has in the test directory.
fn temporary_files(work: &Work) -> Result<usize, Failed> {
    let names = std::fs::read_dir(work.path())?
        .flatten()
        .map(|entry| entry.file_name());
    Ok(names
        .filter(|name| name.to_string_lossy().starts_with(".offld"))
        .count())
}

/// Ends the tool by a signal: during compression, which takes many seconds at this level, and
/// during a write to a pipe that is not read.
fn ended_by_signal() -> Outcome {
    let work = Work::new();
    write_noise(&work.path().join("image"), 64 * MIB)?;
    for (more, output) in [("-compress -compression-level=22", "made"), ("", "-")] {
        let line = format!(
            "-type=bc {more} -targets={HOST},{GFX906} -input=/dev/null -input=image -output={output}"
        );
        let mut child = bundler(&work, ours(), &words(&line))
            .stdout(Stdio::piped())
            .spawn()?;
        let mut pipe = child.stdout.take().ok_or("no pipe")?;
        if output == "-" {
            pipe.read_exact(&mut [0])?;
        } else {
            let patience = Instant::now() + Duration::from_secs(20);
            while temporary_files(&work)? == 0 {
                ensure(
                    child.try_wait()?.is_none() && Instant::now() < patience,
                    || format!("wrote no file: {line}"),
                )?;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        tell(&child, 15)?;
        drop(pipe);
        let ended = child.wait()?;
        ensure(!ended.success(), || {
            format!("ended well, though it was told to end: {line}")
        })?;
        expect_no_file(&work.path().join("made"))?;
        work.expect_no_temps()?;
        expect_equal(
            "files beside the output",
            "0",
            &temporary_files(&work)?.to_string(),
        )?;
    }
    passed()
}

fn full_disk() -> Outcome {
    let work = Work::new();
    work.file("a", "x".repeat(100_000));
    for more in ["", "-compress"] {
        let line = format!("-type=bc {more} -targets={HOST} -input=a -output=/dev/full");
        let stderr = run_failing(&mut bundler(&work, ours(), &words(&line)))?;
        expect_in(&stderr, "error: '/dev/full': No space left on device")?;
    }
    passed()
}
