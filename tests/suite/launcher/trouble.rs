//! Broken launchers, failing jobs, and machines that differ.

use libtest_mimic::{Completion, Trial};

use super::{ELSEWHERE, Library, expect_nothing_beside, launcher, submitted};
use crate::schedule::stand_in::{link, prepared, ran};
use crate::setup::mount_namespace;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, output, passed, run_failing,
    stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "launcher::one_that_does_not_work_is_given_up_with_one_warning",
            given_up,
        ),
        with_llvm("launcher::what_has_not_begun_runs_here_too", the_rest),
        with_llvm("launcher::a_link_that_fails_elsewhere_is_an_error", failing),
        with_llvm(
            "launcher::a_link_that_is_killed_for_memory_gets_more",
            memory,
        ),
        with_llvm("launcher::what_other_tools_made_is_not_kept", differing),
        with_llvm(
            "launcher::a_compiler_that_is_not_there_on_the_node",
            missing_compiler,
        ),
    ]
}

const WARNING: &str = "warning: device link for amdgcn-amd-amdhsa (gfx9";

fn given_up() -> Outcome {
    let library = Library::new("full")?;
    let right = library.linked("off", &[])?.1;
    for (text, why) in [
        (
            "exit 3",
            "the launcher exited with status 3, but the job did not start. Do its machines see `",
        ),
        (
            "exec sleep 60",
            "the queue did not start the job within 1 seconds\n",
        ),
        // The launcher shows an empty directory at that path.
        (
            "exec unshare -m sh -c 'mount -t tmpfs none \"$(dirname \"$(dirname \"$4\")\")\" && exec \"$@\"' sh \"$@\"",
            "the job did not start",
        ),
        (
            "shift 3; \"$@\" & sleep 0.05; kill -9 $!; exit 1",
            "the launcher exited with status 1, but the job",
        ),
        (
            "shift 3; \"$@\" & sleep 0.05; kill $!; wait",
            "Was the job cancelled?",
        ),
    ] {
        let launcher = launcher(&library.work, &format!("#!/bin/sh\n{text}\n"));
        let (said, made) = library.linked(
            "off",
            &[
                &launcher,
                "--wrapper-launcher-wait=1",
                "--wrapper-remote-jobs=1",
            ],
        )?;
        ensure(made == right, || {
            format!("another library with {text}\n{said}")
        })?;
        expect_equal(text, "1", &said.matches("warning: ").count().to_string())?;
        expect_in(&said, WARNING)?;
        expect_in(
            &said,
            "): running this and all remaining jobs on this machine, because --wrapper-launcher cannot run them: ",
        )?;
        expect_in(&said, why)?;
    }
    let (said, made) = library.linked("off", &["--wrapper-launcher=/nowhere/srun -n1"])?;
    ensure(made == right, || said.clone())?;
    expect_in(
        &said,
        "--wrapper-launcher cannot run them: `/nowhere/srun`: No such file or directory",
    )?;
    library.work.expect_no_temps()?;
    passed()
}

fn the_rest() -> Outcome {
    let work = prepared(&[
        ("gfx906", 2, "0"),
        ("gfx908", 2, "0"),
        ("gfx90a", 2, "0"),
        ("gfx942", 2, "0"),
    ])?;
    // The first job works, and no other.
    let once = "#!/bin/sh\necho \"$*\" >> \"${0%/*}/submitted\"\nshift 3\nmkdir \"${0%/*}/once\" || exit 1\nexec \"$@\"\n";
    let launcher = launcher(&work, once);
    let stderr = stderr_of(&mut link(&work, &[&launcher, "--wrapper-remote-jobs=1"]))?;
    expect_equal(
        "warnings",
        "1",
        &stderr.matches("warning: ").count().to_string(),
    )?;
    expect_equal("jobs", "2", &submitted(&work).len().to_string())?;
    expect_equal("links", "4", &ran(&work)?.len().to_string())?;
    expect_nothing_beside(work.path())?;
    passed()
}

fn failing() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    let launcher = launcher(&work, ELSEWHERE);
    work.file("before", "echo 'it is \u{fc}ber' >&2; exit 7");
    let mut command = link(&work, &[&launcher]);
    let stderr = run_failing(&mut command)?;
    expect_in(&stderr, "it is \u{fc}ber\n")?;
    expect_in(
        &stderr,
        "error: device link for amdgcn-amd-amdhsa (gfx90a) failed: 'clang' exited with status 7 on node7\n  inputs: a.o",
    )?;
    expect_not_in(&stderr, "warning")?;
    expect_equal(
        "status",
        "Some(7)",
        &format!("{:?}", output(&mut command)?.status.code()),
    )?;
    work.file("before", "kill -11 $$");
    expect_in(
        &run_failing(&mut link(&work, &[&launcher]))?,
        "failed: 'clang' was ended by signal 11 on node7\n",
    )?;
    expect_nothing_beside(work.path())?;
    passed()
}

fn memory() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    let launcher = launcher(
        &work,
        &ELSEWHERE.replace("shift 3", "echo \"$2\" > \"${0%/*}/asked\"; shift 3"),
    );
    // A job with less than 300 MiB is killed.
    work.file("before", "[ \"$(cat asked)\" -ge 300 ] || kill -9 $$");
    let stderr = stderr_of(&mut link(&work, &[&launcher]))?;
    let retry = "(gfx90a): was killed (probably out of memory) with 256 MiB; launching again with 512 MiB\n";
    expect_in(&stderr, retry)?;
    expect_equal(
        "warnings",
        "1",
        &stderr.matches("warning: ").count().to_string(),
    )?;
    expect_equal("links", "1", &ran(&work)?.len().to_string())?;
    // A launched job is killed with any amount of memory, a local one is not.
    work.file("before", "case $TMPDIR in */job-*) kill -9 $$ ;; esac");
    let stderr = stderr_of(&mut link(&work, &[&launcher]))?;
    expect_in(&stderr, retry)?;
    expect_in(&stderr, "retrying with no other device link running\n")?;
    expect_equal("links", "1", &ran(&work)?.len().to_string())?;
    // Every job is killed.
    work.file("before", "kill -9 $$");
    let stderr = run_failing(&mut link(&work, &[&launcher]))?;
    expect_in(
        &stderr,
        "error: device link for amdgcn-amd-amdhsa (gfx90a) failed: 'clang' was ended by signal 9\n",
    )?;
    expect_in(&stderr, "\n  remedy: more memory")?;
    // The scheduler kills the whole job and reports it.
    work.file("before", "[ \"$(cat asked)\" -ge 300 ] || sleep 60");
    let ends = "#!/bin/sh\necho \"$2\" > \"${0%/*}/asked\"\nif [ \"$2\" -lt 300 ]; then\n  shift 3\n  setsid \"$@\" &\n  sleep 0.5\n  \
                kill -KILL \"-$!\"\n  echo 'slurmstepd: error: Detected 1 oom_kill event' >&2\n  exit 1\nfi\nshift 3\nexec \"$@\"\n";
    let launcher = super::launcher(&work, ends);
    let stderr = stderr_of(&mut link(&work, &[&launcher]))?;
    expect_in(
        &stderr,
        "(gfx90a): had too little memory with 256 MiB; launching again with 512 MiB\n",
    )?;
    expect_equal("links", "1", &ran(&work)?.len().to_string())?;
    expect_nothing_beside(work.path())?;
    passed()
}

/// The node has another linker, or a library that is missing here.
fn differing() -> Outcome {
    let has = "#!/bin/sh\n/usr/bin/stat \"$@\"\nfor word; do case $word in */glibc-hwcaps) echo \"1 1 $word\"; exit ;; esac; done\n";
    not_cached("#!/bin/sh\n/usr/bin/stat \"$@\" | sed '/lld/s/^[0-9]*/7/'\n")?;
    not_cached(has)
}

/// Images from a node whose `stat` reports other files are not cached.
fn not_cached(stat: &str) -> Outcome {
    let library = Library::new("full")?;
    let right = library.linked("off", &[])?.1;
    library.work.tool("other/stat", stat);
    let launcher = launcher(
        &library.work,
        &ELSEWHERE.replace("PATH=", "PATH=\"${0%/*}/other\":"),
    );
    for _ in 0..2 {
        let (said, made) = library.linked("cache", &[&launcher])?;
        ensure(made == right, || format!("another library\n{said}"))?;
        expect_equal(
            "warnings",
            "1",
            &said.matches("warning: ").count().to_string(),
        )?;
        expect_in(&said, "): not cached: `/")?;
        expect_in(
            &said,
            "` differs in size or time between node7 and this machine\n",
        )?;
        expect_not_in(&said, "(gfx90a): found in the cache")?;
    }
    let (said, made) = library.linked("cache", &[])?;
    expect_not_in(&said, "(gfx90a): found in the cache")?;
    ensure(made == right, || said)?;
    passed()
}

fn missing_compiler() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    // In a chroot, root may not have a mount namespace either.
    if !rustix::process::getuid().is_root() || mount_namespace(&work).is_none() {
        return Ok(Completion::ignored_with("needs root, to hide a folder"));
    }
    let shared = Work::new();
    let hides = "#!/bin/sh\nshift 3\nexec unshare -m sh -c 'mount -t tmpfs none \"$0\" && cd / && exec \"$@\"' \"${0%/*}\" \"$@\"\n";
    let launcher = launcher(&work, hides);
    let stderr = stderr_of(link(&work, &[&launcher]).env("OFFLD_SHARED_TMP", shared.path()))?;
    expect_in(
        &stderr,
        &format!(
            ": the program {}/tools/clang does not exist\n",
            work.path().display()
        ),
    )?;
    expect_equal("links", "1", &ran(&work)?.len().to_string())?;
    expect_equal(
        "left",
        "0",
        &std::fs::read_dir(shared.path())?.count().to_string(),
    )?;
    passed()
}
