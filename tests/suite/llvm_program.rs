//! `offld-llvm`, the program that contains LLVM. A link that needs it reports if it is missing,
//! from another build, silent, or killed at any moment, and leaves no files behind. A link with a
//! cached registration object does not need it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use offld::BUILD;

use super::effort::llvm_inside;
use super::kit::Image;
use super::support::{
    LLVM, OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made,
    missing, passed, run, run_failing, run_offloaded, shown, stderr_of, test, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let built = |name: &str, run: fn() -> Outcome| {
        with_llvm(name, move || {
            if Path::new(&program()).is_file() {
                run()
            } else {
                missing("offld-llvm (the feature `llvm`)")
            }
        })
    };
    vec![
        built("llvm_program::killed_at_any_moment", killed),
        built("llvm_program::what_stands_in_for_it_is_told", stand_ins),
        built(
            "llvm_program::found_beside_offld_or_in_libexec",
            search_path,
        ),
        built("llvm_program::a_kept_object_needs_no_llvm", cached),
        built(
            "llvm_program::a_warm_link_starts_no_llvm",
            hit_starts_no_llvm,
        ),
        built(
            "llvm_program::changed_plans_and_programs_are_made_anew",
            changed,
        ),
        built(
            "llvm_program::holds_the_llvm_that_is_asked_for",
            records_llvm_version,
        ),
        built("llvm_program::replaced_while_a_link_uses_it", replaced),
        built(
            "llvm_program::an_earlier_store_stays_beside_this_one",
            earlier_store,
        ),
        test(
            "llvm_program::without_it_links_say_how_to_get_it",
            missing_program,
        ),
    ]
}

/// The path of the program as built by cargo.
fn program() -> PathBuf {
    crate::support::offld().with_file_name("offld-llvm")
}

/// Its bitcode contains the LLVM version of the writer.
fn records_llvm_version() -> Outcome {
    let work = Work::new();
    work.file("image", "an image");
    let mut wrap = work.command(made().links.join("llvm-offload-wrapper"));
    run(wrap.args([
        "--kind=openmp",
        "--triple=x86_64-pc-linux-gnu",
        "-o",
        "wrapped.bc",
        "image",
    ]))?;
    let dump = work.run(llvm("llvm-bcanalyzer"), ["--dump", "wrapped.bc"])?;
    expect_in(&dump, &format!("'LLVM{}.", llvm_inside()))?;
    passed()
}

/// A link of one object with an AMD GPU image, with stand-ins for the device compiler and the host
/// linker.
fn link(work: &Work) -> Result<Command, Failed> {
    if !work.path().join("a.o").exists() {
        work.fat("a.o", &[Image::amd("gfx90a", "an image")])?;
    }
    work.forget();
    let mut command = work.wrapper(["-o", "a.out", "a.o", "--wrapper-verbose"]);
    command
        .env_remove("OFFLD_LLVM")
        .env_remove("OFFLD_LLVM_TIMEOUT");
    Ok(command)
}

/// The registration objects that the host linker received.
fn objects(work: &Work) -> Result<Vec<Vec<u8>>, Failed> {
    work.made_objects()?
        .iter()
        .map(|file| Ok(std::fs::read(file)?))
        .collect()
}

const HIT: &str = "registration code for openmp: found in the cache";
const MISS: &str = "registration code for openmp: not in the cache";

fn killed() -> Outcome {
    // The long test run does 200 links.
    let links = if std::env::var_os("OFFLD_TEST_LONG").is_some() {
        200
    } else {
        30
    };
    let work = Work::new();
    drop(link(&work)?);
    let (mut failed, mut seed) = (0, 12345u64);
    for _ in 0..links {
        let mut command = link(&work)?;
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        kill_llvm_of(child.id(), Duration::from_micros((seed >> 33) % 12_000));
        let output = child.wait_with_output()?;
        work.expect_no_temps()?;
        if output.status.success() {
            continue;
        }
        failed += 1;
        let stderr = text(&output.stderr);
        expect_in(
            &stderr,
            "registration code for openmp failed: 'offld-llvm' was ended by signal 9",
        )?;
        expect_in(&stderr, "inputs: a.out")?;
        if output.status.code() != Some(128 + 9) || work.host_line().is_ok() {
            return Err(shown(&command, &output).into());
        }
    }
    // Otherwise this test has no effect.
    if failed < links / 10 {
        Err(format!("only {failed} of {links} links met a killed offld-llvm").into())
    } else {
        passed()
    }
}

/// Kills the child process `offld-llvm` of `parent`, `after` it was first seen. Does nothing if
/// `parent` ends before it has one.
fn kill_llvm_of(parent: u32, after: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60)
        && Path::new(&format!("/proc/{parent}/stat")).exists()
    {
        if std::fs::read_to_string(format!("/proc/{parent}/stat"))
            .is_ok_and(|stat| stat.contains(") Z "))
        {
            return;
        }
        let tasks = std::fs::read_dir(format!("/proc/{parent}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let children = tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
            .collect::<String>();
        for pid in children
            .split_whitespace()
            .filter_map(|pid| pid.parse::<i32>().ok())
        {
            if std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == "offld-llvm")
            {
                std::thread::sleep(after);
                let pid = rustix::process::Pid::from_raw(pid).expect("a process");
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                return;
            }
        }
    }
}

fn stand_ins() -> Outcome {
    let work = Work::new();
    let frame = |text: &str| format!("printf '\\{:03o}\\000\\000\\000%s' '{text}'", text.len());
    let other = frame("offld-llvm 1 0.0.0 0");
    for (script, parts) in [
        (
            "exec sleep 60".to_owned(),
            [
                "registration code for openmp failed: 'llvm' gave no answer within 1 s",
                "inputs: a.out",
            ],
        ),
        (
            "kill -SEGV $$".to_owned(),
            [
                "registration code for openmp failed: 'llvm' was ended by signal 11",
                "inputs: a.out",
            ],
        ),
        (
            "echo oops >&2; exit 7".to_owned(),
            ["failed: 'llvm' exited with status 7", "stderr: oops"],
        ),
        (
            format!("{other}; exec sleep 60"),
            [
                "and this offld are from different builds (offld-llvm 1 0.0.0 0 and ",
                "OFFLD_LLVM",
            ],
        ),
        (
            format!("{}; sleep 0.3; {}; exec sleep 60", frame(BUILD), frame("?")),
            ["offld-llvm sent an invalid answer", ""],
        ),
        (
            // Both answers are sent at once, because offld may stop reading after the first.
            format!(
                "printf '\\{:03o}\\000\\000\\000{BUILD}{1}{1}'; exec sleep 60",
                BUILD.len(),
                r"\004\000\000\000\000abc"
            ),
            ["'llvm' sent more than one answer", "inputs: a.out"],
        ),
    ] {
        let stand_in = work.tool("llvm", &format!("#!/bin/sh\n{script}\n"));
        let stderr = run_failing(
            link(&work)?
                .env("OFFLD_LLVM", stand_in)
                .env("OFFLD_LLVM_TIMEOUT", "1"),
        )?;
        parts.iter().try_for_each(|part| expect_in(&stderr, part))?;
        work.expect_no_temps()?;
        if work.host_line().is_ok() {
            return Err(format!("the host link ran after: {stderr}").into());
        }
    }
    expect_in(
        &run_failing(link(&work)?.env("OFFLD_LLVM_TIMEOUT", "soon"))?,
        "OFFLD_LLVM_TIMEOUT=soon: expected a number of seconds",
    )?;
    expect_in(
        &run_failing(link(&work)?.env("OFFLD_LLVM", "/no/such"))?,
        "OFFLD_LLVM names `/no/such`, which is not a file",
    )?;
    passed()
}

fn search_path() -> Outcome {
    let work = Work::new();
    let bin = work.path().join("prefix/bin");
    std::fs::create_dir_all(&bin)?;
    std::fs::copy(crate::support::offld(), bin.join("offld"))?;
    let names = work.path().join("names");
    work.run(
        bin.join("offld"),
        [std::ffi::OsStr::new("links"), names.as_os_str()],
    )?;
    let ours = |work: &Work| -> Result<Command, Failed> {
        let line = link(work)?;
        let mut command = work.command(names.join("clang-linker-wrapper"));
        command
            .args(line.get_args())
            .env("OFFLD_CLANG", work.path().join("tools/clang"));
        Ok(command)
    };
    let stderr = run_failing(&mut ours(&work)?)?;
    for part in [
        "cannot find `offld-llvm`, the program that generates registration code",
        "prefix/bin/offld-llvm",
        "prefix/libexec/offld/offld-llvm",
        "OFFLD_LLVM",
    ] {
        expect_in(&stderr, part)?;
    }
    // Commands that need no LLVM still work.
    expect_in(&work.run(bin.join("offld"), ["inspect", "a.o"])?, "gfx90a")?;
    for place in ["prefix/libexec/offld", "prefix/bin"] {
        let folder = work.path().join(place);
        std::fs::create_dir_all(&folder)?;
        std::fs::copy(program(), folder.join("offld-llvm"))?;
        run(&mut ours(&work)?)?;
        std::fs::remove_file(folder.join("offld-llvm"))?;
    }
    passed()
}

fn cached() -> Outcome {
    let work = Work::new();
    let_timestamps_settle();
    let cache = work.path().join("cache");
    run(&mut link(&work)?)?;
    let uncached = objects(&work)?;
    let stderr = stderr_of(link(&work)?.env("OFFLD_CACHE", &cache))?;
    expect_in(&stderr, MISS)?;
    // offld reads this invalid timeout only if it runs offld-llvm.
    let stderr = stderr_of(
        link(&work)?
            .env("OFFLD_CACHE", &cache)
            .env("OFFLD_LLVM_TIMEOUT", "not looked at"),
    )?;
    expect_in(&stderr, HIT)?;
    if objects(&work)? != uncached {
        return Err("an object from the cache is another".into());
    }
    let stats = run(work
        .command(crate::support::offld())
        .args(["cache", "stats"])
        .env("OFFLD_CACHE", &cache))?;
    expect_in(&stats, "1 cached, 1 generated")?;
    // A damaged record is ignored.
    for record in files_below(&cache.join("v3/r"))? {
        let mut bytes = std::fs::read(&record)?;
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        std::fs::remove_file(&record)?;
        std::fs::write(&record, bytes)?;
    }
    expect_in(&stderr_of(link(&work)?.env("OFFLD_CACHE", &cache))?, MISS)?;
    if objects(&work)? != uncached {
        return Err("an object from a damaged cache is another".into());
    }
    passed()
}

/// Waits until the timestamp of the program, which cargo may have just written, can be trusted.
fn let_timestamps_settle() {
    std::thread::sleep(Duration::from_millis(60));
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Failed> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.append(&mut files_below(&path)?)
        } else {
            files.push(path)
        }
    }
    Ok(files)
}

fn hit_starts_no_llvm() -> Outcome {
    let Ok(strace) = which::which("strace") else {
        return missing("strace");
    };
    let work = Work::new();
    let source = work.file(
        "a.c",
        "int main(void) { int x = 1;\n#pragma omp target map(x)\nx = 42;\nreturn x != 42; }\n",
    );
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .arg("-c")
        .arg(source)
        .args(["-o", "a.o"]))?;
    let trace = |program: &str| -> Result<String, Failed> {
        let mut command = work.command(&strace);
        command
            .args(["-f", "-e", "trace=execve", "-o", "trace"])
            .arg(llvm("clang"))
            .arg("-fuse-ld=lld")
            .args(OFFLOAD)
            .arg("a.o")
            .arg("-o")
            .arg(program);
        command
            .arg("-B")
            .arg(&made().links)
            .env("OFFLD_CACHE", work.path().join("cache"));
        run(&mut command)?;
        Ok(std::fs::read_to_string(work.path().join("trace"))?)
    };
    expect_in(&trace("cold")?, "offld-llvm")?;
    let warm = trace("warm")?;
    expect_in(&warm, "ld.lld")?;
    expect_not_in(&warm, "offld-llvm")?;
    let run_of = |program: &str| {
        run_offloaded(
            work.command(work.path().join(program))
                .env("LD_LIBRARY_PATH", Path::new(LLVM).with_file_name("lib")),
        )
    };
    expect_equal(
        "what the program prints",
        &run_of("cold")?,
        &run_of("warm")?,
    )?;
    passed()
}

fn changed() -> Outcome {
    let work = Work::new();
    let_timestamps_settle();
    let cache = work.path().join("cache");
    let link_with = |change: &dyn Fn(&mut Command)| -> Result<String, Failed> {
        let mut command = link(&work)?;
        change(command.env("OFFLD_CACHE", &cache));
        stderr_of(&mut command)
    };
    expect_in(&link_with(&|_| {})?, MISS)?;
    expect_in(&link_with(&|_| {})?, HIT)?;
    // A different host or a different program needs a different object.
    expect_in(
        &link_with(&|command| {
            command.arg("--host-triple=aarch64-unknown-linux-gnu");
        })?,
        MISS,
    )?;
    let copy = work.path().join("offld-llvm");
    std::fs::copy(program(), &copy)?;
    let_timestamps_settle();
    expect_in(
        &link_with(&|command| {
            command.env("OFFLD_LLVM", &copy);
        })?,
        MISS,
    )?;
    expect_in(
        &link_with(&|command| {
            command.env("OFFLD_LLVM", &copy);
        })?,
        HIT,
    )?;
    expect_in(&link_with(&|_| {})?, HIT)?;
    // Registration code depends on the number of images, not on their contents.
    work.fat("a.o", &[Image::amd("gfx90a", "another image")])?;
    expect_in(&link_with(&|_| {})?, HIT)?;
    work.fat(
        "a.o",
        &[
            Image::amd("gfx90a", "another image"),
            Image::amd("gfx908", "a second one"),
        ],
    )?;
    expect_in(&link_with(&|_| {})?, MISS)?;
    passed()
}

/// The program is replaced while a link uses it. The object from the old program must not be cached
/// as an object of the new one.
fn replaced() -> Outcome {
    let work = Work::new();
    let (cache, copy) = (work.path().join("cache"), work.path().join("offld-llvm"));
    std::fs::copy(program(), &copy)?;
    // The device compiler replaces the program, because offld-llvm already runs at that time.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && {{ echo 22.1.8; exit; }}\n\
         if rm replace 2>/dev/null; then cp -p {0} {0}.new && mv {0}.new {0} && sleep 0.2; fi\n\
         while [ $# -gt 0 ]; do [ \"$1\" = -o ] && echo image > \"$2\"; shift; done\n",
        copy.display()
    );
    work.tool("tools/clang", &script);
    work.file("replace", "");
    let_timestamps_settle();
    let relink = || {
        stderr_of(
            link(&work)?
                .env("OFFLD_CACHE", &cache)
                .env("OFFLD_LLVM", &copy),
        )
    };
    expect_in(&relink()?, MISS)?;
    ensure(!work.path().join("replace").exists(), || {
        "the program was not replaced: this tests nothing".to_owned()
    })?;
    expect_in(&relink()?, MISS)?;
    expect_in(&relink()?, HIT)?;
    passed()
}

fn earlier_store() -> Outcome {
    let work = Work::new();
    let cache = work.path().join("cache");
    let name = "aa00".repeat(8);
    let old = ["v1", "v2"].map(|version| {
        work.file(&format!("cache/{version}/stats"), "offld cache 1\n");
        work.file(
            &format!("cache/{version}/r/aa/{name}"),
            "a record of an earlier offld",
        )
    });
    run(link(&work)?.env("OFFLD_CACHE", &cache))?;
    expect_in(&stderr_of(link(&work)?.env("OFFLD_CACHE", &cache))?, HIT)?;
    for old in &old {
        expect_equal(
            "an earlier release's record",
            "a record of an earlier offld",
            &std::fs::read_to_string(old)?,
        )?;
    }
    let cached = |args: &[&str]| {
        run(work
            .command(crate::support::offld())
            .arg("cache")
            .args(args)
            .env("OFFLD_CACHE", &cache))
    };
    cached(&["gc"])?;
    ensure(
        old.iter().all(|old| old.exists()),
        || "a store that was used a moment ago is gone",
    )?;
    expect_in(&cached(&["stats"])?, "8.0K of earlier releases")?;
    cached(&["clear"])?;
    ensure(
        !old.iter().any(|old| old.exists()),
        || "`offld cache clear` has left an earlier release's store",
    )?;
    passed()
}

fn missing_program() -> Outcome {
    let work = Work::new();
    let alone = work.path().join("alone");
    std::fs::create_dir_all(&alone)?;
    std::fs::copy(crate::support::offld(), alone.join("offld"))?;
    work.file("image", "an image");
    let stderr = run_failing(
        work.command(alone.join("offld"))
            .args([
                "llvm-offload-wrapper",
                "--kind=openmp",
                "--triple=x86_64-unknown-linux-gnu",
            ])
            .args(["-o", "out.bc", "image"]),
    )?;
    expect_in(
        &stderr,
        "cannot find `offld-llvm`, the program that generates registration code",
    )?;
    expect_in(&stderr, "make install")?;
    if work.path().join("out.bc").exists() {
        return Err("an output without registration code".into());
    }
    passed()
}
