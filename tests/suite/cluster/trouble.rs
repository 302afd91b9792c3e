//! What goes wrong on a cluster: lost nodes, cancelled jobs, folders that nodes do not see, memory, queues, full disks, and an offld that
//! is killed. The image is right, or there is one error, in bounded time; nothing is left on the nodes or in the queue.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{Lent, SRUN, on_cluster};
use super::program::{For, Program, temps};
use crate::kit::Image;
use crate::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, made, output, passed, run_failing,
    shown, stderr_of, text,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        on_cluster("a_node_is_lost", lost_node),
        on_cluster("a_job_is_cancelled", cancelled),
        on_cluster("a_node_does_not_see_the_folder", no_shared_folder),
        on_cluster("a_queue_never_starts", never),
        on_cluster("too_little_memory", memory),
        on_cluster("a_full_disk", full_disk),
        on_cluster("offld_is_killed", killed),
        on_cluster("offld_is_told_to_end", told_to_end),
        on_cluster("a_command_that_fails", failing),
        on_cluster("a_launcher_that_cannot_be_run", no_launcher),
        on_cluster("the_ssh_server_is_lost", lost_server),
        on_cluster("another_linker_on_the_node", another_linker),
    ]
}

/// The stand-in for the device compiler. `before` is what a test has it do first.
const COMPILER: &str = r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
case " $* " in *" -### "*) exit 1 ;; esac
for word; do
  case $last in -o) out=$word ;; esac
  case $word in -mcpu=*) cpu=${word#-mcpu=} ;; esac
  last=$word
done
node=$(uname -n)
echo "$cpu $node" >> notes
[ -e before ] && . ./before
printf 'image of %s' "$cpu" > "$out"
"#;
/// Waits on a node until the test has done something about it, and nowhere else.
const HOLD: &str = "case $node in node1|node2|far) : > \"held-$cpu\"; while :; do sleep 0.1; done ;; esac\n";

/// A link of images for two architectures by the stand-in.
struct Link {
    work: Work,
    /// What it makes.
    right: Vec<u8>,
}

impl Link {
    fn new(lent: &Lent) -> Result<Link, Failed> {
        let work = lent.work();
        work.fat("a.o", &[Image::amd("gfx90a", "A"), Image::amd("gfx1030", "B")])?;
        work.tool("tools/clang", COMPILER);
        let mut link = Link { work, right: Vec::new() };
        stderr_of(&mut link.command(lent, "", &[]))?;
        link.right = fs::read(link.work.path().join("out"))?;
        link.notes()?;
        fs::remove_file(link.work.path().join("out"))?;
        Ok(link)
    }

    fn command(&self, lent: &Lent, launcher: &str, words: &[&str]) -> Command {
        let mut link = self.work.command(made().links.join("clang-linker-wrapper"));
        link.args(["--host-triple=x86_64-unknown-linux-gnu", "--wrapper-verbose", "-shared", "-o", "out", "a.o"]);
        link.arg(format!("--linker-path={LLVM}/ld.lld")).args(words);
        link.env("OFFLD_CLANG", self.work.path().join("tools/clang")).env("OFFLD_LAUNCHER", launcher);
        lent.with(&mut link);
        link
    }

    /// The link while something happens to it: begun now.
    fn begun(&self, lent: &Lent, launcher: &str, words: &[&str]) -> Result<Running, Failed> {
        let mut command = self.command(lent, launcher, words);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Running { child: Some(child), command, since: Instant::now() })
    }

    /// Which links were run, and where, since the last time.
    fn notes(&self) -> Result<Vec<String>, Failed> {
        let path = self.work.path().join("notes");
        let notes = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        let mut notes: Vec<String> = notes.lines().map(str::to_owned).collect();
        notes.sort();
        Ok(notes)
    }

    fn wait_for(&self, name: &str) -> Result<(), Failed> {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.work.path().join(name).exists() {
            ensure(Instant::now() < until, || format!("no {name} after 20 seconds"))?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Both jobs are held on nodes.
    fn wait_until_held(&self) -> Result<(), Failed> {
        ["gfx90a", "gfx1030"].iter().try_for_each(|arch| self.wait_for(&format!("held-{arch}")))
    }

    fn expect_right(&self, said: &str) -> Result<(), Failed> {
        let made = fs::read(self.work.path().join("out")).map_err(|error| format!("no output: {error}\n{said}"))?;
        ensure(made == self.right, || format!("another output than without a launcher\n{said}"))?;
        self.expect_no_temps(said)
    }

    fn expect_no_temps(&self, said: &str) -> Result<(), Failed> {
        let left = [temps(self.work.path())?, temps(&self.work.path().join("tmp"))?].concat();
        ensure(left.is_empty(), || format!("left: {left:?}\n{said}"))
    }

    /// No process of a job is left anywhere within `limit`.
    fn expect_no_processes(&self, limit: Duration) -> Result<(), Failed> {
        let until = Instant::now() + limit;
        loop {
            let left = Lent::processes_in(self.work.path());
            if left.is_empty() {
                return Ok(());
            }
            ensure(Instant::now() < until, || format!("left after {limit:?}:\n{}", left.join("\n")))?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A link that runs.
struct Running {
    child: Option<Child>,
    command: Command,
    since: Instant,
}

impl Running {
    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it was not waited for")
    }

    fn pid(&mut self) -> Pid {
        Pid::from_child(self.child())
    }

    /// What it says when it has ended well, which must be within `limit` since it began.
    fn ended_well(mut self, limit: Duration) -> Result<String, Failed> {
        let child = self.child.take().expect("it was not waited for");
        let ended = child.wait_with_output()?;
        let took = self.since.elapsed();
        ensure(ended.status.success(), || shown(&self.command, &ended))?;
        ensure(took <= limit, || format!("took {took:?}, and at most {limit:?} is right\n{}", shown(&self.command, &ended)))?;
        Ok(text(&ended.stderr))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn expect_one_warning(said: &str, parts: &[&str]) -> Result<(), Failed> {
    expect_equal(&format!("warnings in\n{said}"), "1", &said.matches("warning:").count().to_string())?;
    let warning = said.lines().find(|line| line.contains("warning:")).unwrap_or_default();
    parts.iter().try_for_each(|part| expect_in(warning, part))
}

/// Both links run on node 1, which is lost. They are run here.
fn lost_node(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    link.work.file("before", HOLD);
    let running = link.begun(lent, &format!("{SRUN} -w node1"), &[])?;
    link.wait_until_held()?;
    lent.tell("kill", "node1")?;
    let ended = running.ended_well(Duration::from_secs(60));
    lent.tell("start", "node1")?;
    let said = ended?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["OFFLD_LAUNCHER", "node1"])?;
    lent.expect_empty_queue(Duration::from_secs(20))?;
    passed()
}

fn cancelled(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    link.work.file("before", HOLD);
    let running = link.begun(lent, SRUN, &["--wrapper-remote-jobs=1"])?;
    link.wait_for("held-gfx90a")?;
    lent.tool(&["scancel", "-n", "offld-out-gfx90a"])?;
    let said = running.ended_well(Duration::from_secs(30))?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["OFFLD_LAUNCHER", "cancelled"])?;
    // The other one is not launched any more.
    expect_equal("links on nodes", "1", &link.notes()?.iter().filter(|note| note.contains(" node")).count().to_string())?;
    link.expect_no_processes(Duration::from_secs(5))?;
    passed()
}

fn no_shared_folder(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    let before = lent.submitted()?;
    let running = link.begun(lent, "srun -Q -n1 -p blind", &[])?;
    let said = running.ended_well(Duration::from_secs(20))?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["OFFLD_LAUNCHER", "OFFLD_SHARED_TMP"])?;
    ensure(link.notes()?.iter().all(|note| !note.contains("blind")), || "it was run on the node")?;
    ensure(lent.submitted()? - before <= 3, || "more jobs than device links")?;
    // The temporary folder may be one that the node sees, and the working directory not.
    let mut command = link.command(lent, "srun -Q -n1 -p blind", &[]);
    let seen = lent.small();
    let said = stderr_of(command.env("OFFLD_SHARED_TMP", &seen))?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["blind", "is not there"])?;
    ensure(temps(&seen)?.is_empty(), || format!("left in {}", seen.display()))?;
    passed()
}

fn never(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    let running = link.begun(lent, "srun -Q -n1 -p never", &["--wrapper-launcher-wait=2"])?;
    let said = running.ended_well(Duration::from_secs(15))?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["OFFLD_LAUNCHER", "queue", "2 seconds"])?;
    lent.expect_empty_queue(Duration::from_secs(5))?;
    // Ended by a signal while it waits.
    let mut running = link.begun(lent, "srun -Q -n1 -p never", &[])?;
    std::thread::sleep(Duration::from_secs(1));
    kill_process(running.pid(), Signal::INT)?;
    let status = running.child().wait()?;
    ensure(!status.success(), || "interrupted, and ended well")?;
    lent.expect_empty_queue(Duration::from_secs(5))?;
    link.expect_no_processes(Duration::from_secs(5))?;
    link.expect_no_temps("")?;
    passed()
}

/// What Slurm does where control groups hold a job to its memory, which they cannot on this machine: it is killed, and that is said.
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
    // 400 MiB where 256 are asked for: it is asked for twice as much.
    let take = |mib: u32| {
        format!(
            "case $node in node*) perl -e 'my $x = \"a\" x ({mib} << 20); select(undef, undef, undef, 0.7)' || exit ;; esac\n"
        )
    };
    link.work.file("before", take(400));
    let said = stderr_of(&mut link.command(lent, &launcher, &["--wrapper-remote-jobs=1"]))?;
    link.expect_right(&said)?;
    expect_in(&said, "--mem=256M")?;
    expect_in(&said, "--mem=512M")?;
    expect_in(&said, "it is launched once more, with 512 MiB")?;
    expect_equal("links", "4", &link.notes()?.len().to_string())?;
    // More than twice as much: it is run here.
    link.work.file("before", take(800));
    let said = stderr_of(&mut link.command(lent, &launcher, &["--wrapper-remote-jobs=1"]))?;
    link.expect_right(&said)?;
    ensure(link.notes()?.iter().any(|note| !note.contains("node")), || format!("not run here\n{said}"))?;
    // More than any node has: Slurm refuses the job.
    let _ = fs::remove_file(link.work.path().join("before"));
    let said = stderr_of(&mut link.command(lent, "srun -Q -n1 --mem=900000M", &[]))?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["OFFLD_LAUNCHER"])?;
    expect_in(&said, "Requested node configuration is not available")?;
    passed()
}

/// The disk of the temporary folder is full from the beginning, or becomes full while the job runs.
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
            expect_equal(&format!("errors with {free} KiB: {said}"), "1", &said.matches("error:").count().to_string())?;
            expect_in(&said, "No space left on device")?;
            expect_no_file(&link.work.path().join("out"))?;
        }
        let left = temps(&small)?;
        ensure(left.is_empty(), || format!("left with {free} KiB: {left:?}\n{said}"))?;
        lent.expect_empty_queue(Duration::from_secs(5))?;
        let _ = fs::remove_file(link.work.path().join("out"));
    }
    // The image does not fit.
    link.work.file("before", "head -c 2000000 /dev/zero > \"$out\" || exit 1\n");
    let mut command = link.command(lent, SRUN, &[]);
    let said = run_failing(command.env("OFFLD_SHARED_TMP", &small))?;
    expect_in(&said, "No space left on device")?;
    ensure(temps(&small)?.is_empty(), || format!("left: {:?}\n{said}", temps(&small)))?;
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

/// Its status and what it says come through, and the error says where it was.
fn failing(lent: &mut Lent) -> Outcome {
    let link = Link::new(lent)?;
    link.work.file("before", "echo \"it is broken on $node\" >&2; exit 3\n");
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
        // It was not run again, here or there.
        let notes = link.notes()?;
        ensure(notes.iter().all(|note| note.ends_with(node)), || format!("{notes:?}\n{said}"))?;
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
        // It says that all is well, and has done nothing.
        ("true", "ended well"),
    ] {
        let said = stderr_of(&mut link.command(lent, launcher, &[]))?;
        link.expect_right(&said)?;
        expect_one_warning(&said, &["OFFLD_LAUNCHER", part])?;
    }
    let said = run_failing(&mut link.command(lent, "srun 'never closed", &[]))?;
    expect_in(&said, "OFFLD_LAUNCHER")?;
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
    // Nobody listens now.
    let refused = stderr_of(&mut link.command(lent, &ssh, &[]));
    lent.tell("start", "far")?;
    let said = ended?;
    link.expect_right(&said)?;
    expect_one_warning(&said, &["OFFLD_LAUNCHER", "far"])?;
    expect_one_warning(&refused?, &["OFFLD_LAUNCHER", "255"])?;
    let mut alive = link.command(lent, &ssh, &[]);
    let _ = fs::remove_file(link.work.path().join("before"));
    for _ in 0..50 {
        if stderr_of(&mut alive).is_ok_and(|said| !said.contains("warning:")) {
            return passed();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("the SSH server does not start again".into())
}

/// The linker of the node is not the one here, by its time: the image is used, and not kept.
fn another_linker(lent: &mut Lent) -> Outcome {
    let work = lent.work();
    let program = Program::new(work.path().join("build"), For::Amd(&["gfx90a"]), "full")?;
    let linker = fs::canonicalize(llvm("ld.lld"))?;
    let other = work.path().join("other");
    fs::copy(&linker, &other)?;
    let bind = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let launcher = format!("unshare --mount sh -c '{bind}' sh {} {}", other.display(), linker.display());
    let linked = |launcher: &str| {
        let mut link = program.link(lent, &work, launcher, &[]);
        program.linked(&work, link.env("OFFLD_CACHE", work.path().join("cache")))
    };
    for _ in 0..2 {
        let (said, _) = linked(&launcher)?;
        expect_in(&said, ": not in the cache")?;
        expect_one_warning(&said, &["not cached", "not the same file", "lld"])?;
    }
    // Where it is the same, it is kept.
    let same = "unshare --mount";
    expect_in(&linked(same)?.0, ": not in the cache")?;
    expect_in(&linked(same)?.0, ": found in the cache")?;
    passed()
}
