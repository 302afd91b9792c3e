//! An offld that is killed or told to end, and a queue that never starts a job: nothing is left on the nodes, in the queue, or of files.

use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Signal, kill_process};

use super::fixture::{Lent, SRUN, on_cluster};
use super::held::{HOLD, Link, expect_one_warning};
use crate::support::{Outcome, ensure, expect_equal, expect_no_file, expect_not_in, passed, shown};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        on_cluster("a_queue_never_starts", never),
        on_cluster("offld_is_killed", killed),
        on_cluster("offld_is_told_to_end", told_to_end),
    ]
}

fn never(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    let running = link.begun(lent, "srun -Q -n1 -p never", &["--wrapper-launcher-wait=2"])?;
    let said = running.ended_well(Duration::from_secs(15))?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["OFFLD_LAUNCHER", "queue", "2 seconds"])?;
    lent.expect_empty_queue(Duration::from_secs(5))?;
    // Ended by a signal while it waits.
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

/// Killed: within five seconds nothing runs on the nodes, nothing is in the queue, and no temporary file is left.
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
    for (launcher, signal, status) in
        [(SRUN.to_owned(), Signal::INT, 130), (SRUN.to_owned(), Signal::TERM, 143), (lent.ssh(), Signal::HUP, 129)]
    {
        let link = Link::new(lent)?;
        link.work.file("before", HOLD);
        let mut running = link.begun(lent, &launcher, &[])?;
        link.wait_until_held()?;
        let since = Instant::now();
        kill_process(running.pid(), signal)?;
        let child = running.child.take().ok_or("it was waited for")?;
        let ended = child.wait_with_output()?;
        let by = std::os::unix::process::ExitStatusExt::signal(&ended.status).map(|signal| 128 + signal);
        let said = shown(&running.command, &ended);
        expect_equal(&said, &format!("{:?}", Some(status)), &format!("{:?}", ended.status.code().or(by)))?;
        expect_not_in(&said, "warning:")?;
        expect_ended(&link, lent, since)?;
    }
    passed()
}
