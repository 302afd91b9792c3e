//! Fault F8: whatever ends a link early, the temporary directory is gone, no process that offld
//! started is left running, and no partial output passes for a whole one.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use crate::kit::{AMD, Image, NVIDIA};
use crate::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, passed, run, run_failing,
    text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("faults::f08_nothing_is_left_of_a_failed_link", failures),
        with_llvm(
            "faults::f08_a_signal_that_was_ignored_stays_ignored",
            ignored,
        ),
    ];
    for (name, signal) in [("hup", 1), ("int", 2), ("term", 15)] {
        for stage in [
            "device",
            "two_devices",
            "bundling",
            "fat_binary",
            "host",
            "relocatable",
            "override",
            "long_plain",
            "traced_plain",
        ] {
            let test = format!("faults::f08_sig{name}_in_the_{stage}_link");
            trials.push(with_llvm(&test, move || stopped(signal, stage)));
        }
        if name != "hup" {
            trials.push(with_llvm(
                &format!("faults::f08_sig{name}_at_any_time"),
                move || at_any_time(signal),
            ));
        }
    }
    trials
}

fn failures() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    work.fat("b.o", &[Image::amd("gfx908", "B")])?;
    let fails = "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\nexit 1\n";
    work.tool("tools/clang", fails);
    run_failing(&mut work.wrapper(["-o", "x", "a.o", "b.o"]))?;
    work.expect_no_temps()?;
    run_failing(&mut work.reference(["-o", "x", "a.o", "b.o"]))?;
    expect_in(&format!("{:?}", work.expect_no_temps()), "left in TMPDIR")?;
    std::fs::remove_dir_all(work.path().join("tmp"))?;
    std::fs::remove_file(work.path().join("tools/clang"))?;
    work.tool("tools/linker", "#!/bin/sh\nexit 1\n");
    run_failing(&mut work.wrapper(["-o", "x", "a.o", "b.o"]))?;
    work.expect_no_temps()?;
    passed()
}

/// A tool that writes half an output and starts another program, which would run for a minute. Both
/// record their process IDs.
const SLEEPER: &str = r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
case $1 in @*) set -- $(tr -d '"' < "${1#@}") ;; esac
for word; do
  case $last in -o|--create) out=$word ;; esac
  last=$word
done
echo partial > "$out"
echo $$ > "pid.$$"
sh -c 'echo $$ > "$0"; exec sleep 60' "inner.$$"
exit 0
"#;

/// A link that a signal stops in one of its stages.
pub(crate) fn stopped(signal: i32, stage: &'static str) -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    work.fat("b.o", &[Image::amd("gfx908", "B")])?;
    work.fat(
        "c.o",
        &[Image {
            triple: NVIDIA,
            arch: "sm_80",
            kind: "cuda",
            bytes: b"C",
        }],
    )?;
    let (tool, expected) = match stage {
        "device" | "fat_binary" => ("tools/clang", 1),
        "two_devices" => ("tools/clang", 2),
        "bundling" => ("sdk/bin/fatbinary", 1),
        _ => ("tools/linker", 1),
    };
    work.tool(tool, SLEEPER);
    let mut command = work.wrapper(["--wrapper-jobs=2", "-o", "x"]);
    match stage {
        // Without device code, the host linker replaces the offld process, unless some work remains
        // after it.
        "long_plain" => {
            command.args((0..6000).map(|at| format!("-L/a/folder/by/a/long/name/{at}")))
        }
        "traced_plain" => command.arg("--wrapper-time-trace=trace"),
        "two_devices" => command.args(["a.o", "b.o"]),
        "bundling" => command.args(["--cuda-path=sdk", "c.o"]),
        "fat_binary" => command.args(["--emit-fatbin-only", "a.o"]),
        "relocatable" => command.args(["-r", "a.o"]),
        "override" => command.args(["--override-image=openmp=a.o", "a.o"]),
        _ => command.arg("a.o"),
    };
    let mut link = command.stderr(Stdio::piped()).spawn()?;
    let running = started(work.path(), expected, &mut link)?;
    tell(&link, signal)?;
    let ended = link.wait_with_output()?;
    let stderr = text(&ended.stderr);
    expect_equal(
        "the status",
        &format!("Some({})", 128 + signal),
        &format!("{:?}", ended.status.code()),
    )?;
    expect_in(&stderr, &format!("error: stopped by signal {signal}\n"))?;
    work.expect_no_temps()?;
    for pid in running {
        expect_ended(pid)?;
    }
    expect_no_file(&work.path().join("x"))?;
    passed()
}

/// Sends the signal a bit later on each attempt, until the link finishes first. This covers offld's
/// own stages, too.
pub(crate) fn at_any_time(signal: i32) -> Outcome {
    let work = Work::new();
    let bytes = vec![7u8; 3 << 20];
    let hip = |arch| Image {
        triple: AMD,
        arch,
        kind: "hip",
        bytes: &bytes,
    };
    work.fat(
        "a.o",
        &[
            Image {
                kind: "openmp",
                ..hip("gfx906")
            },
            hip("gfx90a"),
            hip("gfx908"),
        ],
    )?;
    let linker = format!("--linker-path={LLVM}/ld.lld");
    let words = ["--compress", &linker, "-r", "-o", "x", "a.o"];
    let begin = Instant::now();
    run(&mut work.wrapper(words))?;
    // The load of the machine can change, so the loop ends only after several links succeeded.
    let step = begin.elapsed() / 25;
    let mut done = 0;
    for turn in 0..400 {
        let _ = std::fs::remove_file(work.path().join("x"));
        let link = work.wrapper(words).stderr(Stdio::piped()).spawn()?;
        std::thread::sleep(step * turn);
        tell(&link, signal)?;
        let ended = link.wait_with_output()?;
        let how = format!(
            "after {:?}: {}\n{}",
            step * turn,
            ended.status,
            text(&ended.stderr)
        );
        work.expect_no_temps()
            .map_err(|failed| format!("{}\n{how}", failed.message().unwrap_or_default()))?;
        let beside: Vec<_> = std::fs::read_dir(work.path())?
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        let left = beside.iter().any(|name| {
            name.to_string_lossy().starts_with("x.tmp")
                || name.to_string_lossy().starts_with(".tmp")
        });
        ensure(!left, || format!("something is left in {beside:?} {how}"))?;
        expect_equal(
            &format!("there is an output {how}"),
            &ended.status.success().to_string(),
            &work.path().join("x").exists().to_string(),
        )?;
        // Before offld installs its handlers, a signal has its default effect.
        let by_signal =
            ended.status.signal() == Some(signal) || ended.status.code() == Some(128 + signal);
        ensure(ended.status.success() || by_signal, || {
            format!(
                "ended neither well nor by the signal: {}, {how}",
                ended.status
            )
        })?;
        done += u32::from(ended.status.success());
        if done == 3 {
            return passed();
        }
    }
    Err("the link never got to its end".into())
}

/// Waits until `count` tools run. Returns the process IDs of the tools and of their children.
pub(crate) fn started(folder: &Path, count: usize, link: &mut Child) -> Result<Vec<u32>, Failed> {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("pid.") || name.starts_with("inner.") {
                pids.extend(std::fs::read_to_string(entry.path())?.trim().parse::<u32>());
            }
        }
        if pids.len() == 2 * count {
            return Ok(pids);
        }
        if let Some(status) = link.try_wait()? {
            return Err(format!("the link ended by itself: {status}").into());
        }
        if Instant::now() > patience {
            link.kill()?;
            return Err(format!("{} of {} processes have started", pids.len(), 2 * count).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn tell(link: &Child, signal: i32) -> Result<(), Failed> {
    let pid = i32::try_from(link.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or("no process id")?;
    let signal = Signal::from_named_raw(signal).ok_or("no such signal")?;
    kill_process(pid, signal).map_err(|error| format!("cannot send the signal: {error}").into())
}

/// Fails unless the process has ended, or is a zombie that its adoptive parent has not reaped yet.
fn expect_ended(pid: u32) -> Result<(), Failed> {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if status.is_empty() || status.contains("\nState:\tZ") {
            return Ok(());
        }
        if Instant::now() > patience {
            return Err(format!("process {pid} is still running:\n{status}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As under `nohup make`: SIGHUP has no effect on a link that was started with SIGHUP ignored.
fn ignored() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    let waits = "#!/bin/sh\necho $$ > pid.1; echo $$ > inner.1\nwhile [ ! -e go ]; do sleep 0.01; done\n: > x\n";
    work.tool("tools/linker", waits);
    let ours = work.wrapper(["-o", "x", "a.o"]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(ours.get_program())
        .args(ours.get_args());
    command.current_dir(work.path()).envs(
        ours.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let mut link = command.spawn()?;
    started(work.path(), 1, &mut link)?;
    tell(&link, 1)?;
    std::thread::sleep(Duration::from_millis(50));
    work.file("go", "");
    expect_equal("the status", "exit status: 0", &link.wait()?.to_string())?;
    passed()
}
