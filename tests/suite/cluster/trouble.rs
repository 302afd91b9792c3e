//! Failures of a cluster: lost nodes, cancelled jobs, directories that nodes cannot see, memory
//! limits, full disks, and broken launchers. The image is right, or there is one error, in bounded
//! time. Nothing is left on the nodes or in the queue.

use std::fs;
use std::time::Duration;

use libtest_mimic::Trial;

use super::fixture::{Lent, SRUN, on_cluster};
use super::held::{HOLD, Link, expect_one_warning};
use super::program::{For, Program, temps};
use crate::support::{
    Outcome, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, output, passed,
    run_failing, shown, stderr_of,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        on_cluster("a_node_is_lost", lost_node),
        on_cluster("a_job_is_cancelled", cancelled),
        on_cluster("a_node_does_not_see_the_folder", no_shared_folder),
        on_cluster("too_little_memory", memory),
        on_cluster("a_full_disk", full_disk),
        on_cluster("a_command_that_fails", failing),
        on_cluster("a_launcher_that_cannot_be_run", no_launcher),
        on_cluster("the_ssh_server_is_lost", lost_server),
        on_cluster("another_linker_on_the_node", another_linker),
    ]
}

/// Both links run on node 1, which is lost. They run locally instead.
fn lost_node(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    link.work.file("before", HOLD);
    let running = link.begun(lent, &format!("{SRUN} -w node1"), &[])?;
    link.wait_until_held()?;
    lent.tell("kill", "node1")?;
    let ended = running.ended_well(Duration::from_secs(60));
    lent.tell("start", "node1")?;
    let messages = ended?;
    link.expect_right(&messages)?;
    expect_one_warning(&messages, &["OFFLD_LAUNCHER", "node1"])?;
    lent.expect_empty_queue(Duration::from_secs(20))?;
    passed()
}

fn cancelled(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    link.work.file("before", HOLD);
    let running = link.begun(lent, SRUN, &["--wrapper-remote-jobs=1"])?;
    link.wait_for("held-gfx90a")?;
    lent.tool(&["scancel", "-n", "offld-out-gfx90a"])?;
    let messages = running.ended_well(Duration::from_secs(30))?;
    link.expect_right(&messages)?;
    expect_one_warning(&messages, &["OFFLD_LAUNCHER", "cancelled"])?;
    // The other link is not launched again.
    expect_equal(
        "links on nodes",
        "1",
        &link
            .notes()?
            .iter()
            .filter(|note| note.contains(" node"))
            .count()
            .to_string(),
    )?;
    link.expect_no_processes(Duration::from_secs(5))?;
    passed()
}

fn no_shared_folder(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    let before = lent.submitted()?;
    let running = link.begun(lent, "srun -Q -n1 -p blind", &[])?;
    let messages = running.ended_well(Duration::from_secs(20))?;
    link.expect_right(&messages)?;
    expect_one_warning(&messages, &["OFFLD_LAUNCHER", "OFFLD_SHARED_TMP"])?;
    ensure(
        link.notes()?.iter().all(|note| !note.contains("blind")),
        || "it was run on the node",
    )?;
    ensure(
        lent.submitted()? - before <= 3,
        || "more jobs than device links",
    )?;
    // The node may see the temporary directory but not the working directory.
    let mut command = link.command(lent, "srun -Q -n1 -p blind", &[]);
    let seen = lent.small();
    let messages = stderr_of(command.env("OFFLD_SHARED_TMP", &seen))?;
    link.expect_right(&messages)?;
    expect_one_warning(&messages, &["blind", "does not exist"])?;
    ensure(temps(&seen)?.is_empty(), || {
        format!("left in {}", seen.display())
    })?;
    passed()
}

/// Imitates Slurm with memory limits through control groups, which this machine does not support:
/// the job is killed, and Slurm reports that.
const LIMITED: &str = r#"#!/bin/sh
limit=$(($1 * 1024)) && shift
"$@" &
job=$!
while kill -0 "$job" 2>/dev/null; do
  for status in /proc/[0-9]*/status; do
    case $(tr '\0' ' ' < "${status%/status}/cmdline") in perl*) ;; *) continue ;; esac
    taken=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "$status")
    if [ "${taken:-0}" -gt "$limit" ]; then
      pid=${status#/proc/}
      kill -KILL "${pid%/status}"
      echo 'slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.' >&2
    fi
  done 2>/dev/null
  sleep 0.1
done
wait "$job"
"#;

fn memory(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    let limited = link.work.tool("tools/limited", LIMITED);
    let launcher = format!("{SRUN} {} {{mem}}", limited.display());
    // 400 MiB with a request for 256: offld requests twice as much.
    let take = |mib: u32| {
        format!(
            "case $node in node*) perl -e 'my $x = \"\"; vec($x, ({mib} << 20) - 1, 8) = 1; select(undef, undef, undef, 0.7)' || exit ;; esac\n"
        )
    };
    link.work.file("before", take(400));
    let said = stderr_of(&mut link.command(lent, &launcher, &["--wrapper-remote-jobs=1"]))?;
    link.expect_right(&said)?;
    expect_in(&said, "--mem=256M")?;
    expect_in(&said, "--mem=512M")?;
    expect_in(&said, "launching again with 512 MiB")?;
    expect_equal("links", "4", &link.notes()?.len().to_string())?;
    // More than twice as much: the link runs locally.
    link.work.file("before", take(800));
    let said = stderr_of(&mut link.command(lent, &launcher, &["--wrapper-remote-jobs=1"]))?;
    link.expect_right(&said)?;
    ensure(
        link.notes()?.iter().any(|note| !note.contains("node")),
        || format!("not run here\n{said}"),
    )?;
    // More than any node has: Slurm rejects the job.
    let _ = fs::remove_file(link.work.path().join("before"));
    let said = stderr_of(&mut link.command(lent, "srun -Q -n1 --mem=900000M", &[]))?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["OFFLD_LAUNCHER"])?;
    expect_in(&said, "Requested node configuration is not available")?;
    passed()
}

/// The disk with the temporary directory is full from the start, or becomes full while the job
/// runs.
fn full_disk(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    let small = lent.small();
    let fill = small.join("fill");
    for free in [0, 4, 12, 20, 40, 80] {
        let full = fs::write(&fill, vec![b'x'; (512 - free) << 10]);
        let mut command = link.command(lent, SRUN, &["--wrapper-jobs=1"]);
        let ended = output(command.env("OFFLD_SHARED_TMP", &small));
        let _ = fs::remove_file(&fill);
        let ended = ended?;
        let said = shown(&command, &ended);
        ensure(full.is_ok() || free == 0, || format!("{full:?}"))?;
        if ended.status.success() {
            link.expect_right(&said)?;
        } else {
            expect_equal(
                &format!("errors with {free} KiB: {said}"),
                "1",
                &said.matches("wrapper: error:").count().to_string(),
            )?;
            expect_in(&said, "No space left on device")?;
            expect_no_file(&link.work.path().join("out"))?;
        }
        let left = temps(&small)?;
        ensure(left.is_empty(), || {
            format!("left with {free} KiB: {left:?}\n{said}")
        })?;
        lent.expect_empty_queue(Duration::from_secs(5))?;
        let _ = fs::remove_file(link.work.path().join("out"));
    }
    // The image does not fit.
    link.work
        .file("before", "head -c 2000000 /dev/zero > \"$out\" || exit 1\n");
    let mut command = link.command(lent, SRUN, &[]);
    let said = run_failing(command.env("OFFLD_SHARED_TMP", &small))?;
    expect_in(&said, "No space left on device")?;
    ensure(temps(&small)?.is_empty(), || {
        format!("left: {:?}\n{said}", temps(&small))
    })?;
    passed()
}

/// offld passes on the job's exit status and messages, and its error names the machine.
fn failing(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    link.work
        .file("before", "echo \"it is broken on $node\" >&2; exit 3\n");
    for (launcher, node) in [(format!("{SRUN} -w node2"), "node2"), (lent.ssh(), "far")] {
        let mut command = link.command(lent, &launcher, &["--wrapper-remote-jobs=1"]);
        let ended = output(&mut command)?;
        let said = shown(&command, &ended);
        expect_equal(&said, "Some(3)", &format!("{:?}", ended.status.code()))?;
        expect_in(&said, &format!("it is broken on {node}"))?;
        let error = said.split("error:").nth(1).unwrap_or_default().to_owned();
        expect_in(&error, node)?;
        expect_in(&error, "gfx")?;
        expect_not_in(&said, "warning:")?;
        // The link was not repeated, neither locally nor on a node.
        let notes = link.notes()?;
        ensure(notes.iter().all(|note| note.ends_with(node)), || {
            format!("{notes:?}\n{said}")
        })?;
        link.expect_no_temps(&said)?;
    }
    passed()
}

fn no_launcher(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    let broken = link.work.file("not-a-program", "");
    for (launcher, part) in [
        ("/none/srun -n1", "/none/srun"),
        (&*broken.display().to_string(), "not-a-program"),
        ("false", "1"),
        ("srun --no-such-option", "255"),
        ("ssh -F /none/config far", "255"),
        // The launcher reports success but ran nothing.
        ("true", "succeeded"),
    ] {
        let stderr = stderr_of(&mut link.command(lent, launcher, &[]))?;
        link.expect_right(&stderr)?;
        expect_one_warning(&stderr, &["OFFLD_LAUNCHER", part])?;
    }
    let stderr = run_failing(&mut link.command(lent, "srun 'never closed", &[]))?;
    expect_in(&stderr, "OFFLD_LAUNCHER")?;
    passed()
}

fn lost_server(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    link.work.file("before", HOLD);
    let running = link.begun(lent, &lent.ssh(), &[])?;
    link.wait_until_held()?;
    lent.tell("kill", "far")?;
    let ended = running.ended_well(Duration::from_secs(60));
    let ssh = lent.ssh();
    // No server listens now.
    let refused = stderr_of(&mut link.command(lent, &ssh, &[]));
    lent.tell("start", "far")?;
    let messages = ended?;
    link.expect_right(&messages)?;
    expect_one_warning(&messages, &["OFFLD_LAUNCHER", "far"])?;
    expect_one_warning(&refused?, &["OFFLD_LAUNCHER", "255"])?;
    let mut alive = link.command(lent, &ssh, &[]);
    let _ = fs::remove_file(link.work.path().join("before"));
    for _ in 0..50 {
        if stderr_of(&mut alive).is_ok_and(|messages| !messages.contains("warning:")) {
            return passed();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("the SSH server does not start again".into())
}

/// The node's linker has another timestamp than the local one, so offld uses the image and does not
/// cache it.
fn another_linker(lent: &mut Lent) -> Outcome {
    let work = lent.work();
    let program = Program::new(work.path().join("build"), For::Amd(&["gfx90a"]), "full")?;
    let linker = fs::canonicalize(llvm("ld.lld"))?;
    let other = work.path().join("other");
    fs::copy(&linker, &other)?;
    let bind = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let launcher = format!(
        "unshare --mount sh -c '{bind}' sh {} {}",
        other.display(),
        linker.display()
    );
    let linked = |launcher: &str| {
        let mut link = program.link(lent, &work, launcher, &[]);
        program.linked(&work, link.env("OFFLD_CACHE", work.path().join("cache")))
    };
    for _ in 0..2 {
        let (messages, _) = linked(&launcher)?;
        expect_in(&messages, ": not in the cache")?;
        expect_one_warning(&messages, &["not cached", "differs in size or time", "lld"])?;
    }
    // With the same linker, the image is cached.
    let same = "unshare --mount";
    expect_in(&linked(same)?.0, ": not in the cache")?;
    expect_in(&linked(same)?.0, ": found in the cache")?;
    passed()
}
