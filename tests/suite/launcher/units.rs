//! ThinLTO units as launcher jobs: the link for one architecture runs on several machines.

use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use rustix::process::{Pid, Signal, kill_process};

use super::stopped::is_there;
use super::{ELSEWHERE, Library, expect_nothing_beside, launcher, submitted};
use crate::support::{
    Outcome, ensure, expect_equal, expect_in, expect_not_in, passed, run_failing, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm(
            "launcher::units_run_anywhere_and_the_image_is_the_same",
            anywhere,
        ),
        with_llvm("launcher::units_run_here_after_one_warning", given_up),
        with_llvm("launcher::units_of_other_tools_are_not_kept", differing),
        with_llvm("launcher::a_unit_that_fails_elsewhere_is_named", failing),
    ];
    for (name, signal) in [("term", Signal::TERM), ("kill", Signal::KILL)] {
        trials.push(with_llvm(
            &format!("launcher::sig{name}_ends_launched_units"),
            move || stopped(signal),
        ));
    }
    trials
}

const THIN: &str = "--device-compiler=amdgcn-amd-amdhsa=-flto=thin";

fn anywhere() -> Outcome {
    let library = Library::new("thin")?;
    let launcher = launcher(&library.work, ELSEWHERE);
    let right = library.linked("off", &[THIN])?.1;
    for jobs in 1..=4 {
        let (said, made) = library.linked(
            &format!("cache{jobs}"),
            &[THIN, &launcher, &format!("--wrapper-remote-jobs={jobs}")],
        )?;
        ensure(made == right, || {
            format!("another library with {jobs} jobs\n{said}")
        })?;
        expect_equal(
            "units on the node",
            "4",
            &said.matches(": running on node7\n").count().to_string(),
        )?;
        expect_equal(
            "told",
            "2",
            &said
                .matches("ThinLTO: 0 units found in the cache, 2 compiled")
                .count()
                .to_string(),
        )?;
    }
    // Cache hits start no job. Without distribution, the link is one job.
    std::fs::remove_file(library.work.path().join("submitted"))?;
    let other = "--device-linker=amdgcn-amd-amdhsa=--build-id";
    let (said, _) = library.linked("cache1", &[THIN, &launcher, other])?;
    expect_equal(
        "told",
        "2",
        &said
            .matches("ThinLTO: 2 units found in the cache, 0 compiled")
            .count()
            .to_string(),
    )?;
    expect_equal("jobs", "[]", &format!("{:?}", submitted(&library.work)))?;
    let (said, made) = library.linked("cache5", &[THIN, &launcher, "--wrapper-distribute=off"])?;
    ensure(made == right, || {
        format!("another library without distribution\n{said}")
    })?;
    expect_equal("jobs", "2", &submitted(&library.work).len().to_string())?;
    library.work.expect_no_temps()?;
    passed()
}

fn given_up() -> Outcome {
    let library = Library::new("thin")?;
    let right = library.linked("off", &[THIN])?.1;
    let launcher = launcher(&library.work, "#!/bin/sh\nexit 3\n");
    for (cache, word) in [
        ("one", &*launcher),
        ("other", "--wrapper-launcher=/nowhere/srun -n1"),
    ] {
        let (said, made) = library.linked(cache, &[THIN, word])?;
        ensure(made == right, || format!("another library\n{said}"))?;
        expect_equal(
            "warnings",
            "1",
            &said.matches("warning: ").count().to_string(),
        )?;
        expect_in(
            &said,
            "running this and all remaining jobs on this machine, because --wrapper-launcher cannot run them: ",
        )?;
        // Only that link prints the warning.
        let (said, _) = library.linked(cache, &[THIN, word])?;
        expect_not_in(&said, "warning: ")?;
    }
    passed()
}

/// On the node, `stat` reports other properties for every LLVM file.
fn differing() -> Outcome {
    let library = Library::new("thin")?;
    let right = library.linked("off", &[THIN])?.1;
    library.work.tool(
        "other/stat",
        "#!/bin/sh\n/usr/bin/stat \"$@\" | sed '/llvm\\|LLVM\\|clang/s/^[0-9]*/7/'\n",
    );
    let launcher = launcher(
        &library.work,
        &ELSEWHERE.replace("PATH=", "PATH=\"${0%/*}/other\":"),
    );
    for _ in 0..2 {
        let (said, made) = library.linked("cache", &[THIN, &launcher])?;
        ensure(made == right, || format!("another library\n{said}"))?;
        expect_in(
            &said,
            "` differs in size or time between node7 and this machine\n",
        )?;
        expect_not_in(&said, "(gfx90a): found in the cache")?;
        expect_equal(
            "told",
            "2",
            &said
                .matches("ThinLTO: 0 units found in the cache, 2 compiled")
                .count()
                .to_string(),
        )?;
    }
    passed()
}

fn failing() -> Outcome {
    let library = Library::new("thin")?;
    let launcher = launcher(&library.work, ELSEWHERE);
    let mut link = library.link("cache", &[THIN, &launcher]);
    let stderr = run_failing(link.env(
        "CCC_OVERRIDE_OPTIONS",
        "s/^-fthinlto-index=.*$/--no-such-option/",
    ))?;
    expect_in(&stderr, "unknown argument: '--no-such-option'")?;
    expect_in(
        &stderr,
        "ThinLTO code generation for `f1.o: .llvm.offloading` failed: 'clang' exited with status 1 on node7",
    )?;
    expect_nothing_beside(&library.folder)?;
    passed()
}

fn stopped(signal: Signal) -> Outcome {
    let library = Library::new("thin")?;
    // Jobs that no signal reaches, and that wait before they begin.
    let waits = "#!/bin/sh\necho $$ >> \"${0%/*}/pids\"\nshift 3\ntrap 'exit 1' HUP INT TERM\n\"$@\" &\nsleep 60 &\nwait\n";
    let launcher = launcher(&library.work, waits);
    let mut command = library.link("cache", &[THIN, &launcher, "--wrapper-jobs=2"]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let limit = Instant::now() + Duration::from_secs(30);
    let pids = loop {
        let text = std::fs::read_to_string(library.work.path().join("pids")).unwrap_or_default();
        let pids: Vec<Pid> = text
            .lines()
            .filter_map(|line| Pid::from_raw(line.parse().ok()?))
            .collect();
        if pids.len() == 4 {
            break pids;
        }
        ensure(
            child.try_wait()?.is_none() && Instant::now() < limit,
            || format!("the units do not run: {pids:?}"),
        )?;
        std::thread::sleep(Duration::from_millis(20));
    };
    kill_process(
        i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or("no number")?,
        signal,
    )?;
    let begun = Instant::now();
    child.wait()?;
    while let Some(pid) = pids.iter().find(|pid| is_there(**pid)) {
        ensure(begun.elapsed() < Duration::from_secs(5), || {
            format!("{pid:?} of {pids:?} still runs")
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    while expect_nothing_beside(&library.folder).is_err()
        && begun.elapsed() < Duration::from_secs(10)
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    expect_nothing_beside(&library.folder)?;
    if signal == Signal::KILL {
        // After SIGKILL, only the next link can remove the table of running links.
        let _ = std::fs::remove_dir_all(library.work.session().join("offld"));
    }
    library.work.expect_no_temps()?;
    passed()
}
