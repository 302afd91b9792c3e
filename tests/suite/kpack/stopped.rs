//! Commands that write directories, killed at any time or on a full disk: the new directory is there
//! with all files, or not at all.

use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::split::{build, same_trees};
use crate::effort::rounds;
use crate::faults::full_disk::Disk;
use crate::support::{
    Outcome, Work, ensure, expect_equal, missing, offld, output, passed, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "kpack::stopped::a_killed_command_leaves_no_half_directory",
            killed,
        ),
        with_llvm(
            "kpack::stopped::a_full_disk_leaves_no_half_directory",
            full_disk,
        ),
    ]
}

/// The commands; the last argument is the new directory.
const COMMANDS: [&[&str]; 4] = [
    &["split", "--kpack", "--kpack-name", "test", "install", "-d"],
    &["merge", "packed", "-d"],
    &["split", "install", "-d"],
    &["merge", "parts", "-d"],
];

/// Builds an installation, and makes a directory with each command. Returns the longest time.
fn prepare(work: &Work) -> Result<Duration, Failed> {
    build(work, "--no-offload-new-driver", "")?;
    // `split` refuses its damaged archive.
    std::fs::remove_dir_all(work.path().join("install/.kpack"))?;
    let mut longest = Duration::ZERO;
    for (command, name) in COMMANDS
        .into_iter()
        .zip(["packed", "again", "parts", "joined"])
    {
        let began = Instant::now();
        run(work.command(offld()).args(command).arg(name))?;
        longest = longest.max(began.elapsed());
    }
    same_trees(work, "install", "again")?;
    same_trees(work, "install", "joined")?;
    Ok(longest)
}

/// The directory that a command makes.
fn expected(command: &[&str]) -> &'static str {
    match (command[0], command[1]) {
        ("merge", _) => "install",
        (_, "--kpack") => "packed",
        _ => "parts",
    }
}

fn killed() -> Outcome {
    const SIGNALS: [Signal; 3] = [Signal::KILL, Signal::TERM, Signal::INT];
    let work = Work::new();
    let longest = prepare(&work)?;
    let (mut ended, mut complete) = (0, 0);
    for round in 0..rounds("kpack: directories of killed commands", 400u32, 24) {
        let command = COMMANDS[round as usize % COMMANDS.len()];
        let signal = SIGNALS[round as usize / COMMANDS.len() % SIGNALS.len()];
        let share = f64::from(round.wrapping_mul(2_654_435_761) >> 16) / f64::from(1 << 16);
        std::fs::create_dir(work.path().join("out"))?;
        let mut command_line = work.command(offld());
        command_line.args(command).arg("out/new/directory");
        command_line.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command_line.spawn()?;
        std::thread::sleep(longest.mul_f64(share * 1.2));
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("no process")?, signal)?;
        let status = child.wait()?;
        ended += u32::from(!status.success());
        let names = names_in(&work, "out")?;
        let others: Vec<&String> = names.iter().filter(|name| *name != "new").collect();
        let what = || format!("round {round}, {command:?}, {signal:?}: {names:?}");
        // Nothing can remove the temporary directory after SIGKILL.
        ensure(
            others.is_empty()
                || signal == Signal::KILL && others.iter().all(|name| name.starts_with(".offld-")),
            what,
        )?;
        if others.len() < names.len() {
            complete += 1;
            same_trees(&work, expected(command), "out/new/directory")?;
        } else {
            ensure(!status.success(), what)?;
        }
        std::fs::remove_dir_all(work.path().join("out"))?;
    }
    ensure(ended > 0 && complete > 0, || {
        format!("{ended} commands ended early, {complete} directories are complete")
    })?;
    passed()
}

fn names_in(work: &Work, folder: &str) -> Result<Vec<String>, Failed> {
    let entries = std::fs::read_dir(work.path().join(folder))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    Ok(names.collect::<std::io::Result<_>>()?)
}

fn full_disk() -> Outcome {
    let work = Work::new();
    prepare(&work)?;
    let Some(disk) = Disk::new(&work, "disk")? else {
        return missing("permission to mount");
    };
    for command in COMMANDS {
        let mut failed = 0;
        for kib in (8..).step_by(8) {
            disk.resize(kib)?;
            let mut command_line = work.command(offld());
            command_line.args(command).arg("disk/new/directory");
            if output(&mut command_line)?.status.success() {
                break;
            }
            failed += 1;
            expect_equal("files", "", &disk.files()?)?;
        }
        ensure(failed > 2, || format!("{command:?}: {failed} failed"))?;
        same_trees(&work, expected(command), "disk/new/directory")?;
        std::fs::remove_dir_all(disk.folder().join("new"))?;
    }
    passed()
}
