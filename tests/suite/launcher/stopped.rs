//! Links that end while their jobs run elsewhere: nothing is left behind on either side.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::{expect_nothing_beside, launcher};
use crate::schedule::stand_in::{link, prepared};
use crate::support::{Outcome, Work, ensure, passed, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, signal) in [
        ("hup", Signal::HUP),
        ("int", Signal::INT),
        ("term", Signal::TERM),
        ("kill", Signal::KILL),
    ] {
        let near = format!("launcher::sig{name}_ends_what_was_launched");
        trials.push(with_llvm(&near, move || stopped(signal, NEAR)));
        let far = format!("launcher::sig{name}_ends_what_no_signal_reaches");
        trials.push(with_llvm(&far, move || stopped(signal, FAR)));
        trials.push(with_llvm(
            &format!("launcher::sig{name}_ends_a_launcher_that_waits"),
            move || waiting(signal),
        ));
    }
    trials
}

/// With `NEAR`, signals to the launcher reach its job. With `FAR` they do not, so only the lease
/// ends the job.
const NEAR: &str = "#!/bin/sh\nshift 3\n\"$@\"\n";
const FAR: &str = "#!/bin/sh\nshift 3\ntrap 'exit 1' HUP INT TERM\nsetsid \"$@\" &\nwait\n";

/// Runs for a minute and ignores signals, as a child of a process that does not ignore them.
const STAYS: &str = "sh -c 'trap \"\" TERM HUP INT; echo $$ > \"pid.$0\"; sleep 60 & echo $! > \"inner.$0\"; wait; sleep 60' $cpu";

fn stopped(signal: Signal, text: &str) -> Outcome {
    let work = prepared(&[("gfx906", 2, "0"), ("gfx90a", 2, "0")])?;
    work.file("before", STAYS);
    let launcher = launcher(&work, text);
    let mut command = link(&work, &[&launcher]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pids = running(
        &work,
        &mut child,
        &["pid.gfx906", "inner.gfx906", "pid.gfx90a", "inner.gfx90a"],
    )?;
    ended(&work, &mut child, signal, &pids)
}

/// Sends `signal` to `child`. Fails unless `pids` and temporary files disappear soon.
fn ended(work: &Work, child: &mut Child, signal: Signal, pids: &[Pid]) -> Outcome {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or("no number")?;
    kill_process(pid, signal)?;
    let begun = Instant::now();
    child.wait()?;
    while let Some(pid) = pids.iter().find(|pid| is_there(**pid)) {
        ensure(begun.elapsed() < Duration::from_secs(5), || {
            format!("{pid:?} of {pids:?} still runs")
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    // After SIGKILL, helper processes clean up.
    let limit = Instant::now() + Duration::from_secs(8);
    while expect_nothing_beside(work.path()).is_err() && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(50));
    }
    expect_nothing_beside(work.path())?;
    work.expect_no_temps()?;
    passed()
}

/// Jobs that the queue has not started. One launcher ends on a signal, the other does not.
fn waiting(signal: Signal) -> Outcome {
    let work = prepared(&[("gfx906", 2, "0"), ("gfx90a", 2, "0")])?;
    let text = "#!/bin/sh\ncase $3 in *906) trap '' HUP INT TERM ;; esac\necho $$ > \"pid.$3\"\nexec sleep 60\n";
    let mut child = link(&work, &[&launcher(&work, text)])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let pids = running(
        &work,
        &mut child,
        &["pid.offld-p0-gfx906", "pid.offld-p0-gfx90a"],
    )?;
    ended(&work, &mut child, signal, &pids)
}

/// The process IDs of both links once they run, read from the files `names`.
fn running(work: &Work, child: &mut Child, names: &[&str]) -> Result<Vec<Pid>, Failed> {
    let limit = Instant::now() + Duration::from_secs(30);
    let number = |path: &Path| {
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<i32>()
            .ok()
            .and_then(Pid::from_raw)
    };
    loop {
        let pids: Vec<Pid> = names
            .iter()
            .filter_map(|name| number(&work.path().join(name)))
            .collect();
        if pids.len() == names.len() {
            // The job looks for processes that ignore signals five times per second.
            std::thread::sleep(Duration::from_millis(600));
            return Ok(pids);
        }
        ensure(
            child.try_wait()?.is_none() && Instant::now() < limit,
            || "the links do not run",
        )?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process runs. A zombie does not count.
pub(super) fn is_there(pid: Pid) -> bool {
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    test_kill_process(pid).is_ok() && !stat.contains(") Z ")
}
