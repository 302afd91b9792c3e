//! Killed links, killed processes, and untrusted directories.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};

use super::stand_in::{link, prepared, ran};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, passed, run_failing, stderr_of,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("schedule::a_killed_link_is_tried_again_alone", retried),
        with_llvm(
            "schedule::a_link_that_is_killed_twice_says_what_helps",
            fails_after_retry,
        ),
        with_llvm(
            "schedule::the_share_of_a_killed_process_is_free",
            killed_process,
        ),
        with_llvm("schedule::folders_of_others_are_not_used", hostile_folders),
        with_llvm(
            "schedule::an_empty_tmpdir_is_empty_after_every_link",
            nothing_is_left,
        ),
        with_llvm("schedule::a_wrong_size_is_an_error", wrong_size),
    ]
}

/// Kills the first link for gfx90a once another link runs. The other link then runs for a while.
const KILLS_ONCE: &str = r#"
until_there() { n=0; while [ ! -e "$1" ] && [ $n -lt 3000 ]; do sleep 0.01; n=$((n + 1)); done; }
case $cpu in
  gfx90a) if [ ! -e killed ]; then until_there beside; : > killed; kill -9 $$; fi
          echo "running $(($(grep -c '^begun' notes) - $(grep -c '^ended' notes)))" > alone ;;
  *) : > beside; until_there killed ;;
esac
"#;

fn retried() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0"), ("gfx942", 2, "0.3")])?;
    work.file("before", KILLS_ONCE);
    let log = work.path().join("log");
    // Both links run at once, however little memory this machine has.
    let stderr = stderr_of(
        link(&work, &["--wrapper-jobs=2", "--wrapper-memory=off"]).env("OFFLD_CACHE_LOG", &log),
    )?;
    expect_in(
        &stderr,
        "warning: device link for amdgcn-amd-amdhsa (gfx90a): was killed (probably out of memory)",
    )?;
    expect_in(&stderr, "retrying with no other device link running")?;
    expect_equal(
        "warnings",
        "1",
        &stderr.matches("warning:").count().to_string(),
    )?;
    let lines = std::fs::read_to_string(&log)?;
    let line = lines
        .lines()
        .find(|line| line.contains("gfx90a"))
        .ok_or("no line for the killed link")?;
    let waited = line
        .split_once("\"waited_us\":")
        .and_then(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok());
    ensure(waited.is_some_and(|waited| waited >= 100_000), || {
        format!("the wait for the end of the other is not told: {line}")
    })?;
    // The killed first run has a start but no end in the notes.
    expect_equal(
        "at once",
        "running 2",
        std::fs::read_to_string(work.path().join("alone"))?.trim(),
    )?;
    expect_equal("links", "2", &ran(&work)?.len().to_string())?;
    work.expect_no_temps()?;
    passed()
}

fn fails_after_retry() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    for (end, how) in [
        ("kill -9 $$", "was killed (probably out of memory)"),
        ("exit 137", "was killed (probably out of memory)"),
        (
            "echo 'LLVM ERROR: out of memory' >&2; kill -6 $$",
            "ran out of memory",
        ),
    ] {
        work.file("before", end);
        let stderr = run_failing(&mut link(&work, &[]))?;
        expect_in(
            &stderr,
            &format!("warning: device link for amdgcn-amd-amdhsa (gfx90a): {how} with a peak of "),
        )?;
        expect_in(
            &stderr,
            "error: device link for amdgcn-amd-amdhsa (gfx90a) failed: 'clang' ",
        )?;
        expect_in(
            &stderr,
            &format!("\n  memory: the device link {how} with a peak of "),
        )?;
        expect_in(&stderr, "\n  remedy: more memory")?;
        let begun = std::fs::read_to_string(work.path().join("notes"))?
            .matches("begun")
            .count();
        std::fs::remove_file(work.path().join("notes"))?;
        expect_equal("runs", "2", &begun.to_string())?;
    }
    // A link that fails for another reason is not retried.
    work.file("before", "exit 1");
    expect_not_in(&run_failing(&mut link(&work, &[]))?, "retrying")?;
    passed()
}

/// Reads the stderr of a process up to the first line that contains `text`.
fn read_until(child: &mut Child, text: &str) -> Result<(), Failed> {
    let stderr = child.stderr.take().ok_or("its stderr is not ours")?;
    let mut reader = BufReader::new(stderr);
    let mut all = String::new();
    while !all.contains(text) {
        if reader.read_line(&mut all)? == 0 {
            return Err(format!("it ended without `{text}`:\n{all}").into());
        }
    }
    // Read the rest too, so that the process does not block on a full pipe.
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    Ok(())
}

fn killed_process() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    let options = [
        "--wrapper-memory=150M",
        "--wrapper-verbose",
        "--wrapper-jobs=4",
    ];
    // The first link waits until the file `go` exists.
    work.file(
        "before",
        "if [ ! -e held ]; then : > held; while [ ! -e go ]; do sleep 0.01; done; fi",
    );
    let mut first = link(&work, &options).stderr(Stdio::null()).spawn()?;
    while !work.path().join("held").exists() {
        ensure(first.try_wait()?.is_none(), || "the first link has ended")?;
        std::thread::yield_now();
    }
    let mut second = link(&work, &options).stderr(Stdio::piped()).spawn()?;
    // Its memory use is not known: offld assumes 96 MiB for each of the two.
    read_until(
        &mut second,
        "waits for memory: about 96MiB needed, 54MiB free",
    )?;
    let table = work.session().join("offld");
    ensure(table.join("1.lock").exists(), || "there is no table")?;
    first.kill()?;
    first.wait()?;
    ensure(second.wait()?.success(), || "the second link has failed")?;
    // The last process removes the table, including the file of the killed process.
    ensure(!table.exists(), || "the table is left")?;
    work.file("go", "");
    stderr_of(&mut link(&work, &options))?;
    passed()
}

/// Creates a hostile directory of this kind at `path`.
fn make_hostile(path: &std::path::Path, how: &str, work: &Work) -> Result<(), Failed> {
    match how {
        "symlink" => {
            std::fs::create_dir_all(work.path().join("elsewhere"))?;
            std::fs::set_permissions(
                work.path().join("elsewhere"),
                std::fs::Permissions::from_mode(0o700),
            )?;
            symlink(work.path().join("elsewhere"), path)?;
        }
        "open" => {
            std::fs::create_dir(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
        }
        _ => {
            std::fs::create_dir(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
            std::os::unix::fs::chown(path, Some(12345), Some(12345))?;
        }
    }
    Ok(())
}

fn hostile_folders() -> Outcome {
    let is_root = || -> Result<bool, Failed> {
        let id = Command::new("id").arg("-u").output()?.stdout;
        Ok(id == b"0\n")
    };
    let user = String::from_utf8_lossy(&Command::new("id").arg("-u").output()?.stdout)
        .trim()
        .to_owned();
    for how in ["symlink", "open", "theirs"] {
        if how == "theirs" && !is_root()? {
            continue;
        }
        let work = prepared(&[("gfx90a", 2, "0")])?;
        let linked = || stderr_of(&mut link(&work, &["--wrapper-verbose"]));
        let (first, second) = (
            work.session().join("offld"),
            work.path().join(format!("tmp/offld-{user}")),
        );
        linked()?;
        ensure(!first.exists(), || "the first directory is left")?;
        make_hostile(&first, how, &work)?;
        work.file("before", format!("ls tmp/offld-{user} > seen"));
        expect_not_in(&linked()?, "cannot count the device links")?;
        let seen = std::fs::read_to_string(work.path().join("seen"))?;
        ensure(seen.contains("1.lock\n"), || {
            format!("{how}: the second directory is not used")
        })?;
        ensure(!second.exists(), || {
            format!("{how}: the second directory is left")
        })?;
        std::fs::remove_file(work.path().join("before"))?;
        make_hostile(&second, how, &work)?;
        let stderr = linked()?;
        expect_in(
            &stderr,
            "note: cannot count the device links of other processes: `",
        )?;
        for folder in [&first, &second] {
            ensure(std::fs::read_dir(folder)?.count() == 0, || {
                format!("{how}: {} is written to", folder.display())
            })?;
        }
    }
    passed()
}

/// Without a session directory, offld uses `TMPDIR` for all files.
fn nothing_is_left() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0.2"), ("gfx942", 2, "0.2")])?;
    let linked = |before: &str, args: &[&str]| {
        work.file("before", before);
        let mut command = link(&work, args);
        command.env_remove("XDG_RUNTIME_DIR").stderr(Stdio::null());
        command
    };
    let see = "ls tmp > seen";
    // Five links at once share a table; the last one removes it.
    let at_once: Result<Vec<Child>, _> = (0..5)
        .map(|at| linked(see, &["--wrapper-jobs=2", "-o", &format!("x{at}")]).spawn())
        .collect();
    for mut child in at_once? {
        ensure(child.wait()?.success(), || "a link failed")?;
    }
    expect_in(
        &std::fs::read_to_string(work.path().join("seen"))?,
        "offld-",
    )?;
    work.expect_no_temps()?;
    for (before, args) in [
        ("exit 3", &[][..]),
        ("kill -TERM $PPID; sleep 5", &[]),
        ("kill -INT $PPID; sleep 5", &[]),
        (see, &["-r"]),
        (see, &["--wrapper-late-images"]),
        (see, &["--no-such-option-of-ld"]),
    ] {
        let _ = linked(before, args).status()?;
        work.expect_no_temps()
            .map_err(|left| format!("{before} {args:?}: {}", left.message().unwrap_or_default()))?;
    }
    passed()
}

fn wrong_size() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    let stderr = run_failing(&mut link(&work, &["--wrapper-memory=much"]))?;
    expect_in(
        &stderr,
        "--wrapper-memory=much: expected auto, off or a size such as 8G",
    )?;
    let stderr = run_failing(link(&work, &[]).env("OFFLD_MEMORY", "much"))?;
    expect_in(
        &stderr,
        "OFFLD_MEMORY=much: expected auto, off or a size such as 8G",
    )?;
    stderr_of(link(&work, &["--wrapper-memory=off"]).env("OFFLD_MEMORY", "much"))?;
    passed()
}
