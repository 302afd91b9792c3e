//! Links that are killed, or whose disk is full: the program always finds its files.

use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::{files_in, link, object, only_file};
use crate::effort::rounds;
use crate::faults::full_disk::Disk;
use crate::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, llvm, missing, output, passed, run,
    run_offloaded, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "external_images::stopped::a_killed_link_leaves_a_program_with_its_files",
            killed,
        ),
        with_llvm(
            "external_images::stopped::a_full_disk_leaves_a_program_with_its_files",
            full_disk,
        ),
    ]
}

/// The program runs on the device.
fn works(work: &Work, program: &str) -> Result<(), Failed> {
    let printed = run_offloaded(&mut work.command(work.path().join(program)))?;
    expect_equal("stdout", "4950 device\n", &printed)
}

/// Compiles `main.o` with another image than before.
fn other_object(work: &Work, round: u32) -> Result<(), Failed> {
    let mut compile = work.command(llvm("clang"));
    compile
        .args(OFFLOAD)
        .args(["-O0", "-fPIC", "-c", "main.c", "-o", "main.o"]);
    let level = if round.is_multiple_of(2) {
        "-O1"
    } else {
        "-O2"
    };
    run(compile.arg(level))?;
    Ok(())
}

fn killed() -> Outcome {
    const SIGNALS: [Signal; 3] = [Signal::KILL, Signal::TERM, Signal::INT];
    let work = Work::new();
    object(&work)?;
    run(&mut link(&work, "program", &[]))?;
    let began = Instant::now();
    run(&mut link(&work, "program", &[]))?;
    let whole = began.elapsed();
    let mut ended = 0;
    for round in 0..rounds("external images: links that are killed", 200u32, 8) {
        other_object(&work, round)?;
        let share = f64::from(round.wrapping_mul(2_654_435_761) >> 16) / f64::from(1 << 16);
        let signal = SIGNALS[round as usize % SIGNALS.len()];
        let mut linking = link(&work, "program", &[]);
        linking.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = linking.spawn()?;
        std::thread::sleep(whole.mul_f64(share));
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("no process")?, signal)?;
        ended += u32::from(!child.wait()?.success());
        // clang has ended, and the link may still run.
        std::thread::sleep(Duration::from_millis(300));
        works(&work, "program").map_err(|failed| {
            format!(
                "round {round}, {signal:?}: {}",
                failed.message().unwrap_or_default()
            )
        })?;
    }
    ensure(ended > 0, || "no link was ended early")?;
    run(&mut link(&work, "program", &[]))?;
    works(&work, "program")?;
    passed()
}

fn full_disk() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let Some(disk) = Disk::new(&work, "disk")? else {
        return missing("permission to mount");
    };
    let mut failed = 0;
    for kib in (8..).step_by(8) {
        disk.resize(kib)?;
        let mut linking = link(&work, "disk/program", &[]);
        if output(&mut linking)?.status.success() {
            break;
        }
        failed += 1;
        let left = files_in(disk.folder());
        ensure(left.is_empty(), || format!("{kib} KiB: {left:?}"))?;
    }
    ensure(failed > 2, || format!("{failed} links failed"))?;
    works(&work, "disk/program")?;
    // The next build does not fit beside this one. As after other failed links, there may be no
    // program.
    let before = only_file(&disk.folder().join("program.images"))?;
    other_object(&work, 1)?;
    let ended = output(&mut link(&work, "disk/program", &[]))?;
    ensure(!ended.status.success(), || text(&ended.stderr))?;
    ensure(
        only_file(&disk.folder().join("program.images"))? == before,
        || "another file".to_owned(),
    )?;
    if disk.folder().join("program").exists() {
        works(&work, "disk/program")?;
    }
    passed()
}
