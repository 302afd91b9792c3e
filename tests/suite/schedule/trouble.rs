//! Links that are killed, processes that are, and folders that are not to be trusted.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};

use libtest_mimic::{Failed, Trial};

use super::stand_in::{link, prepared, ran};
use crate::support::{Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, passed, run_failing, stderr_of, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("schedule::a_killed_link_is_tried_again_alone", tried_again),
        with_llvm("schedule::a_link_that_is_killed_twice_says_what_helps", given_up),
        with_llvm("schedule::the_share_of_a_killed_process_is_free", killed_process),
        with_llvm("schedule::folders_of_others_are_not_used", hostile_folders),
        with_llvm("schedule::a_wrong_size_is_an_error", wrong_size),
    ]
}

/// Kills the link for gfx90a the first time, once another runs beside it, which then goes on for a while.
const KILLS_ONCE: &str = r#"
until_there() { n=0; while [ ! -e "$1" ] && [ $n -lt 3000 ]; do sleep 0.01; n=$((n + 1)); done; }
case $cpu in
  gfx90a) if [ ! -e killed ]; then until_there beside; : > killed; kill -9 $$; fi
          echo "running $(($(grep -c '^begun' notes) - $(grep -c '^ended' notes)))" > alone ;;
  *) : > beside; until_there killed ;;
esac
"#;

fn tried_again() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0"), ("gfx942", 2, "0.3")])?;
    work.file("before", KILLS_ONCE);
    let log = work.path().join("log");
    // Both run at once, however little memory this machine has.
    let told = stderr_of(link(&work, &["--wrapper-jobs=2", "--wrapper-memory=off"]).env("OFFLD_CACHE_LOG", &log))?;
    expect_in(&told, "warning: device link for amdgcn-amd-amdhsa (gfx90a): it was killed, most probably for want of memory,")?;
    expect_in(&told, "it is tried again, with no device link beside it")?;
    expect_equal("warnings", "1", &told.matches("warning:").count().to_string())?;
    let lines = std::fs::read_to_string(&log)?;
    let line = lines.lines().find(|line| line.contains("gfx90a")).ok_or("no line for the killed link")?;
    let waited = line.split_once("\"waited_us\":").and_then(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok());
    ensure(waited.is_some_and(|waited| waited >= 100_000), || format!("the wait for the end of the other is not told: {line}"))?;
    // The first run of it began, too, and did not end.
    expect_equal("at once", "running 2", std::fs::read_to_string(work.path().join("alone"))?.trim())?;
    expect_equal("links", "2", &ran(&work)?.len().to_string())?;
    work.expect_no_temps()?;
    passed()
}

fn given_up() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    for (end, how) in [
        ("kill -9 $$", "it was killed, most probably for want of memory,"),
        ("exit 137", "it was killed, most probably for want of memory,"),
        ("echo 'LLVM ERROR: out of memory' >&2; kill -6 $$", "it ran out of memory"),
    ] {
        work.file("before", end);
        let told = run_failing(&mut link(&work, &[]))?;
        expect_in(&told, &format!("warning: device link for amdgcn-amd-amdhsa (gfx90a): {how} when it had "))?;
        expect_in(&told, "error: device link for amdgcn-amd-amdhsa (gfx90a) failed: 'clang' ")?;
        expect_in(&told, &format!("\n  memory: {how} when it had "))?;
        expect_in(&told, "\n  what helps: more memory")?;
        let begun = std::fs::read_to_string(work.path().join("notes"))?.matches("begun").count();
        std::fs::remove_file(work.path().join("notes"))?;
        expect_equal("runs", "2", &begun.to_string())?;
    }
    // What fails for another reason is not.
    work.file("before", "exit 1");
    expect_not_in(&run_failing(&mut link(&work, &[]))?, "tried again")?;
    passed()
}

/// A process that writes a line which has `text`, and all that it has written until then.
fn until_it_says(child: &mut Child, text: &str) -> Result<(), Failed> {
    let stderr = child.stderr.take().ok_or("its stderr is not ours")?;
    let mut reader = BufReader::new(stderr);
    let mut all = String::new();
    while !all.contains(text) {
        if reader.read_line(&mut all)? == 0 {
            return Err(format!("it ended without `{text}`:\n{all}").into());
        }
    }
    // What comes after it is read as well, so that it can be written.
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    Ok(())
}

fn killed_process() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    let options = ["--wrapper-memory=150M", "--wrapper-verbose", "--wrapper-jobs=4"];
    // The first stands still until there is `go`.
    work.file("before", "if [ ! -e held ]; then : > held; while [ ! -e go ]; do sleep 0.01; done; fi");
    let mut first = link(&work, &options).stderr(Stdio::null()).spawn()?;
    while !work.path().join("held").exists() {
        ensure(first.try_wait()?.is_none(), || "the first link has ended")?;
        std::thread::yield_now();
    }
    let mut second = link(&work, &options).stderr(Stdio::piped()).spawn()?;
    // What it takes is not known: about 96 MiB, twice.
    until_it_says(&mut second, "waits for memory: it takes about 96MiB, and 54MiB is free")?;
    first.kill()?;
    first.wait()?;
    ensure(second.wait()?.success(), || "the second link has failed")?;
    work.file("go", "");
    let table = work.session().join("offld");
    ensure(table.join("1.lock").exists(), || "there is no table")?;
    // The next looks at the table, and removes what the killed one has left.
    stderr_of(&mut link(&work, &options))?;
    let left = std::fs::read_dir(table)?.count();
    expect_equal("files in the table", "1", &left.to_string())?;
    passed()
}

/// Makes `path` a folder for hostile things, by what it is.
fn make_hostile(path: &std::path::Path, how: &str, work: &Work) -> Result<(), Failed> {
    match how {
        "symlink" => {
            std::fs::create_dir_all(work.path().join("elsewhere"))?;
            std::fs::set_permissions(work.path().join("elsewhere"), std::fs::Permissions::from_mode(0o700))?;
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
    let user = String::from_utf8_lossy(&Command::new("id").arg("-u").output()?.stdout).trim().to_owned();
    for how in ["symlink", "open", "theirs"] {
        if how == "theirs" && !is_root()? {
            continue;
        }
        let work = prepared(&[("gfx90a", 2, "0")])?;
        let linked = || stderr_of(&mut link(&work, &["--wrapper-verbose"]));
        linked()?;
        let first = work.session().join("offld");
        std::fs::remove_dir_all(&first)?;
        make_hostile(&first, how, &work)?;
        expect_not_in(&linked()?, "are not counted")?;
        let second = work.path().join(format!("tmp/offld-{user}"));
        ensure(second.join("1.lock").exists(), || format!("{how}: the second folder is not used"))?;
        std::fs::remove_dir_all(&second)?;
        make_hostile(&second, how, &work)?;
        let told = linked()?;
        expect_in(&told, "note: device links of other processes are not counted: `")?;
        for folder in [&first, &second] {
            ensure(std::fs::read_dir(folder)?.count() == 0, || format!("{how}: {} is written to", folder.display()))?;
        }
    }
    passed()
}

fn wrong_size() -> Outcome {
    let work = prepared(&[("gfx90a", 2, "0")])?;
    let told = run_failing(&mut link(&work, &["--wrapper-memory=much"]))?;
    expect_in(&told, "--wrapper-memory=much: expected auto, off or a size such as 8G")?;
    let told = run_failing(link(&work, &[]).env("OFFLD_MEMORY", "much"))?;
    expect_in(&told, "OFFLD_MEMORY=much: expected auto, off or a size such as 8G")?;
    stderr_of(link(&work, &["--wrapper-memory=off"]).env("OFFLD_MEMORY", "much"))?;
    passed()
}
