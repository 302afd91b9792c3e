//! offld killed or asked to stop, and a queue that never starts a job: no process, job or file is
//! left behind.

use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Signal, kill_process};

use super::fixture::{Lent, SRUN, on_cluster};
use super::held::{HOLD, Link, Running, expect_no_processes_in, expect_one_warning};
use super::program::{For, Program};
use crate::support::{Outcome, ensure, expect_equal, expect_no_file, expect_not_in, passed, shown};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        on_cluster("a_queue_never_starts", never),
        on_cluster("offld_is_killed", killed),
        on_cluster("offld_is_told_to_end", told_to_end),
        on_cluster("units_that_are_cut_short", units),
    ]
}

fn never(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    let running = link.begun(lent, "srun -Q -n1 -p never", &["--wrapper-launcher-wait=2"])?;
    let messages = running.ended_well(Duration::from_secs(15))?;
    link.expect_right(&messages)?;
    expect_one_warning(&messages, &["OFFLD_LAUNCHER", "queue", "2 seconds"])?;
    lent.expect_empty_queue(Duration::from_secs(5))?;
    // A signal ends the link while its job is in the queue.
    std::fs::remove_file(link.work.path().join("out"))?;
    for signal in [Signal::INT, Signal::KILL] {
        let mut running = link.begun(lent, "srun -Q -n1 -p never", &[])?;
        let until = Instant::now() + Duration::from_secs(10);
        while lent.queue()?.lines().count() < 2 {
            ensure(Instant::now() < until, || "the jobs are not in the queue")?;
        }
        let since = Instant::now();
        kill_process(running.pid(), signal)?;
        let status = running.child().wait()?;
        ensure(!status.success(), || "interrupted, and ended well")?;
        expect_ended(&link, lent, since)?;
    }
    passed()
}

/// After SIGKILL, within five seconds, no process remains on the nodes, no job in the queue, and no
/// temporary file.
fn killed(lent: &mut Lent) -> Outcome {
    for launcher in [SRUN.to_owned(), lent.ssh()] {
        let link = Link::new(lent)?;
        link.work.file("before", HOLD);
        let mut running = link.begun(lent, &launcher, &[])?;
        link.wait_until_held()?;
        running.child().kill()?;
        running.child().wait()?;
        let since = Instant::now();
        expect_ended(&link, lent, since)?;
    }
    passed()
}

fn expect_ended(link: &Link, lent: &Lent, since: Instant) -> Result<(), Failed> {
    let left = || Duration::from_secs(5).saturating_sub(since.elapsed());
    lent.expect_empty_queue(left())?;
    link.expect_no_processes(left())?;
    while !left().is_zero() && link.expect_no_temps("").is_err() {
        std::thread::sleep(Duration::from_millis(50));
    }
    link.expect_no_temps("5 seconds later")?;
    expect_no_file(&link.work.path().join("out"))
}

fn told_to_end(lent: &mut Lent) -> Outcome {
    for (launcher, signal, status) in [
        (SRUN.to_owned(), Signal::INT, 130),
        (SRUN.to_owned(), Signal::TERM, 143),
        (lent.ssh(), Signal::HUP, 129),
    ] {
        let link = Link::new(lent)?;
        link.work.file("before", HOLD);
        let mut running = link.begun(lent, &launcher, &[])?;
        link.wait_until_held()?;
        let since = Instant::now();
        kill_process(running.pid(), signal)?;
        let child = running.child.take().ok_or("it was waited for")?;
        let ended = child.wait_with_output()?;
        let by =
            std::os::unix::process::ExitStatusExt::signal(&ended.status).map(|signal| 128 + signal);
        let messages = shown(&running.command, &ended);
        expect_equal(
            &messages,
            &format!("{:?}", Some(status)),
            &format!("{:?}", ended.status.code().or(by)),
        )?;
        expect_not_in(&messages, "warning:")?;
        expect_ended(&link, lent, since)?;
    }
    passed()
}

/// Jobs of ThinLTO units wait on their nodes. If the jobs are cancelled, offld compiles the units
/// locally. If offld ends, all jobs end.
fn units(lent: &mut Lent) -> Outcome {
    const HOLD: &str =
        "#!/bin/sh\n: > \"${0%/*}/held-$$-$(uname -n)\"\nwhile :; do sleep 0.1; done\n";
    let work = lent.work();
    let hold = work.tool("held/hold", HOLD);
    let program = Program::new(work.path().join("build"), For::Amd(&["gfx90a"]), "thin")?;
    let (_, right) = program.linked(&work, &mut program.link(lent, &work, "", &[]))?;
    let launcher = format!("{SRUN} {}", hold.display());
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        let cache = work.path().join(format!("cache-{signal:?}"));
        let mut link = program.link(lent, &work, &launcher, &[]);
        std::fs::remove_file(program.output())?;
        let mut running = Running::start(link.env("OFFLD_CACHE", &cache))?;
        let held = || std::fs::read_dir(work.path().join("held")).map_or(0, |all| all.count() - 1);
        let until = Instant::now() + Duration::from_secs(20);
        while held() < 3 {
            ensure(Instant::now() < until, || {
                format!("{} of 3 units are on nodes", held())
            })?;
            std::thread::sleep(Duration::from_millis(20));
        }
        let since = Instant::now();
        if let Some(signal) = signal {
            kill_process(running.pid(), signal)?;
            ensure(
                !running.child().wait()?.success(),
                || "told to end, and ended well",
            )?;
        } else {
            lent.tool(&["scancel", "-u", "root"])?;
            let said = running.ended_well(Duration::from_secs(40))?;
            ensure(std::fs::read(program.output())? == right, || {
                format!("another file\n{said}")
            })?;
            expect_one_warning(&said, &["OFFLD_LAUNCHER"])?;
        }
        let left = || Duration::from_secs(5).saturating_sub(since.elapsed());
        lent.expect_empty_queue(if signal.is_some() {
            left()
        } else {
            Duration::from_secs(5)
        })?;
        expect_no_processes_in(work.path(), Duration::from_secs(5))?;
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until && program.expect_no_temps("").is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        program.expect_no_temps(&format!("{signal:?}"))?;
        for file in std::fs::read_dir(work.path().join("held"))?
            .flatten()
            .filter(|file| file.path() != hold)
        {
            std::fs::remove_file(file.path())?;
        }
        if signal.is_some() {
            expect_no_file(&program.output())?;
            std::fs::write(program.output(), "")?;
        }
    }
    passed()
}
