//! Fault F26: how many device links run at once, alone and under make.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{Outcome, Work, expect_equal, expect_in, passed, run, stderr_of, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f26_make_j1_runs_one_device_link", one_at_a_time),
        with_llvm("faults::f26_links_of_one_make_share_its_jobs", shared),
        with_llvm("faults::f26_without_a_jobserver", without),
    ]
}

/// A device compiler that records its start and end. Lines this short are appended atomically.
const NOTES: &str = r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
echo start >> notes
sleep 0.2
for word; do case $last in -o) echo image > "$word" ;; esac; last=$word; done
echo end >> notes
"#;

const ARCHS: [&str; 6] = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"];

/// A directory with an object for six devices and the stand-in.
fn prepared() -> Result<Work, Failed> {
    let work = Work::new();
    let images: Vec<Image<'_>> = ARCHS.iter().map(|arch| Image::amd(arch, "A")).collect();
    work.fat("a.o", &images)?;
    work.tool("tools/clang", NOTES);
    Ok(work)
}

/// The highest number of simultaneous device links since the last call.
fn most(work: &Work, links: usize) -> Result<usize, Failed> {
    let notes = std::fs::read_to_string(work.path().join("notes"))?;
    std::fs::remove_file(work.path().join("notes"))?;
    expect_equal(
        "device links",
        &(links * ARCHS.len()).to_string(),
        &notes.matches("start").count().to_string(),
    )?;
    let (mut running, mut most) = (0, 0);
    for line in notes.lines() {
        running = if line == "start" {
            running + 1
        } else {
            running - 1
        };
        most = most.max(running);
    }
    Ok(most)
}

/// Runs make with targets `x` and `y`, which are links by `link`. If `takes_part`, the recipe has
/// the `+` with which make shares its jobserver.
fn make(work: &Work, link: &Command, takes_part: bool, options: &[&str]) -> Result<(), Failed> {
    let words: Vec<String> = link
        .get_args()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = format!("{} {}", link.get_program().display(), words.join(" "));
    let plus = if takes_part { "+" } else { "" };
    work.file(
        "Makefile",
        format!("all: x y\nx y:\n\t{plus}@{line} -o $@ a.o\n.PHONY: x y\n"),
    );
    let mut make = work.command("make");
    make.envs(
        link.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    run(make.args(options)).map(drop)
}

fn expect_between(what: &str, least: usize, value: usize, most: usize) -> Result<(), Failed> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{what}: {value}, not {least} to {most}").into())
    }
}

/// The least number of parallel jobs to expect without make: 2, or 1 on a machine with one CPU.
fn several() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(2))
}

fn one_at_a_time() -> Outcome {
    let work = prepared()?;
    for words in [&["--wrapper-jobs=jobserver"][..], &[]] {
        make(
            &work,
            &work.wrapper(words.iter().copied()),
            true,
            &["-j1", "x"],
        )?;
        expect_equal(
            &format!("at once under make -j1, {words:?}"),
            "1",
            &most(&work, 1)?.to_string(),
        )?;
    }
    make(
        &work,
        &work.reference(["--wrapper-jobs=jobserver"]),
        true,
        &["-j1", "x"],
    )?;
    expect_between(
        "at once under make -j1, by LLVM",
        several(),
        most(&work, 1)?,
        ARCHS.len(),
    )?;
    passed()
}

fn shared() -> Outcome {
    let work = prepared()?;
    for words in [&["--wrapper-jobs=jobserver"][..], &[]] {
        make(
            &work,
            &work.wrapper(words.iter().copied()),
            true,
            &["-j3", "x"],
        )?;
        expect_between(
            &format!("at once in one link under make -j3, {words:?}"),
            several(),
            most(&work, 1)?,
            3,
        )?;
        make(&work, &work.wrapper(words.iter().copied()), true, &["-j3"])?;
        expect_between(
            &format!("at once in two links under make -j3, {words:?}"),
            2,
            most(&work, 2)?,
            3,
        )?;
    }
    // An explicit number applies under make, too.
    make(
        &work,
        &work.wrapper(["--wrapper-jobs=5"]),
        true,
        &["-j1", "x"],
    )?;
    expect_between("at once with --wrapper-jobs=5", 2, most(&work, 1)?, 5)?;
    work.expect_no_temps()?;
    passed()
}

fn without() -> Outcome {
    let work = prepared()?;
    let jobserver = ["--wrapper-jobs=jobserver"];
    // Plain make runs one job. With make -j3, a recipe without `+` gets neither the jobserver nor
    // information about it. Since make 4.4, the jobserver has a name, with which such a recipe can
    // use it.
    make(&work, &work.wrapper(jobserver), true, &["x"])?;
    expect_equal("at once under make", "1", &most(&work, 1)?.to_string())?;
    make(&work, &work.wrapper(jobserver), false, &["-j3", "x"])?;
    let version = run(work.command("make").arg("--version"))?;
    let number = version
        .lines()
        .next()
        .and_then(|line| line.rsplit(' ').next())
        .unwrap_or_default();
    let parts: Vec<u32> = number
        .split('.')
        .filter_map(|part| part.parse().ok())
        .collect();
    let at_most = if parts >= vec![4, 4] { 3 } else { 1 };
    expect_between(
        "at once in a rule that takes no part",
        1,
        most(&work, 1)?,
        at_most,
    )?;
    let stderr = stderr_of(&mut work.wrapper(["--wrapper-jobs=jobserver", "-o", "x", "a.o"]))?;
    expect_in(
        &stderr,
        "warning: --wrapper-jobs=jobserver: no jobserver in the environment; using all cores",
    )?;
    expect_between(
        "at once without make",
        several(),
        most(&work, 1)?,
        ARCHS.len(),
    )?;
    passed()
}
