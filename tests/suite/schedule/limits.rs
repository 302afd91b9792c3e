//! Links with few threads and processes, or none.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::kit::{Image, NVIDIA};
use crate::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, llvm, missing, output, passed, run,
    run_offloaded, shown, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("schedule::a_link_under_any_limit_of_processes", || {
            under_limits(&Way {
                cached: false,
                objects: 1,
            })
        }),
        with_llvm("schedule::the_same_with_the_cache", || {
            under_limits(&Way {
                cached: true,
                objects: 1,
            })
        }),
        with_llvm(
            "schedule::the_same_with_many_objects_and_large_ones",
            || {
                under_limits(&Way {
                    cached: true,
                    objects: 40,
                })
            },
        ),
        with_llvm(
            "schedule::a_link_in_a_group_with_a_limit_of_processes",
            in_a_group,
        ),
        with_llvm("schedule::tools_under_a_limit_of_one_process", tools),
        with_llvm(
            "schedule::a_groups_share_of_the_processors_counts",
            share_of_processors,
        ),
    ]
}

const LINKERS: [&str; 2] = ["/usr/lib/llvm-22/bin/ld.lld", "/usr/bin/ld"];
const PROGRAM: &str = "#include <stdio.h>\nint main(void) {\n  int out = 0;\n#pragma omp target map(from : out)\n  out = 42;\n  printf(\"%d\\n\", out);\n}\n";

struct Way {
    cached: bool,
    objects: usize,
}

/// A user ID for this test alone, because limits count all processes of a user.
fn user() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1_000_000 + (std::process::id() % 100_000) * 16 + NEXT.fetch_add(1, Ordering::SeqCst)
}

/// Runs `command` as `user` with this limit on processes and threads. The user can read and write
/// every file, because the programs under test can be in a private home directory.
fn limited(command: &Command, user: u32, limit: u32) -> Command {
    let mut all = Command::new("prlimit");
    all.arg(format!("--nproc={limit}"))
        .args(["setpriv", "--clear-groups"]);
    all.arg(format!("--reuid={user}"))
        .arg(format!("--regid={user}"));
    all.args([
        "--inh-caps=-all,+dac_override",
        "--ambient-caps=-all,+dac_override",
    ]);
    all.arg(command.get_program()).args(command.get_args());
    all.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => all.env(name, value),
            None => all.env_remove(name),
        };
    }
    all
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes `user` the owner of everything in the directory.
fn give(folder: &Path, user: u32) -> Result<(), Failed> {
    run(Command::new("chown")
        .arg("-R")
        .arg(format!("{user}:{user}"))
        .arg(folder))?;
    Ok(())
}

/// Runs `command`. Fails after one minute.
fn in_time(command: &mut Command) -> Result<Output, Failed> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let until = Instant::now() + Duration::from_secs(60);
    while child.try_wait()?.is_none() {
        if Instant::now() > until {
            child.kill()?;
            return Err(format!("hangs: {}", shown(command, &child.wait_with_output()?)).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child.wait_with_output()?)
}

/// The names of a program's object files: one with device code, and as many others as `way`
/// requires.
fn objects(work: &Work, way: &Way) -> Result<Vec<String>, Failed> {
    let source = work.file("main.c", PROGRAM);
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-c", "-O1"])
        .arg(source)
        .args(["-o", "main.o"]))?;
    let mut names = vec!["main.o".to_owned()];
    for at in 1..way.objects {
        // Together, these objects are large enough that offld starts threads to scan them.
        let filler = work.file(
            &format!("f{at}.c"),
            format!("char filler_{at}[1 << 20] = {{1}};\n"),
        );
        let name = format!("f{at}.o");
        run(work
            .command(llvm("clang"))
            .arg("-c")
            .arg(filler)
            .args(["-o", &name]))?;
        names.push(name);
    }
    Ok(names)
}

/// The command line with which clang calls its wrapper for these objects.
fn link_line(work: &Work, objects: &[String], wrapper: &Path, linker: &str) -> Command {
    let mut link = work.command(wrapper);
    link.args([
        "--host-triple=x86_64-pc-linux-gnu",
        &format!("--linker-path={linker}"),
        "-m",
        "elf_x86_64",
        "-pie",
    ]);
    link.args([
        "-dynamic-linker",
        "/lib64/ld-linux-x86-64.so.2",
        "-o",
        "program",
    ]);
    let file = |name: &str| {
        text(
            &output(Command::new("gcc").arg(format!("-print-file-name={name}")))
                .map(|output| output.stdout)
                .unwrap_or_default(),
        )
    };
    for start in ["Scrt1.o", "crti.o", "crtbeginS.o"] {
        link.arg(file(start).trim());
    }
    let gcc = PathBuf::from(file("libgcc.a").trim());
    link.arg(format!(
        "-L{}",
        gcc.parent().unwrap_or(Path::new("/")).display()
    ));
    link.args([
        "-L/usr/lib/llvm-22/lib",
        "-L/lib/x86_64-linux-gnu",
        "-L/usr/lib/x86_64-linux-gnu",
    ])
    .args(objects);
    link.args(["-lomp", "-lomptarget", "-lgcc", "-lgcc_s", "-lc"]);
    for end in ["crtendS.o", "crtn.o"] {
        link.arg(file(end).trim());
    }
    link.env("OFFLD_CLANG", llvm("clang"));
    link
}

/// Links under each limit, each as its own user, with either linker.
fn under_limits(way: &Way) -> Outcome {
    if !is_root() {
        return missing("root, to become a user whose processes are counted");
    }
    let work = Work::new();
    let objects = objects(&work, way)?;
    let user = user();
    let limit_of = |command: &Command, limit| {
        give(work.path(), user)?;
        give(&work.session(), user)?;
        Ok(limited(command, user, limit))
    };
    for linker in LINKERS {
        for limit in 1..=12 {
            let must_link =
                llvms_links(&work, &objects, linker, &|command| limit_of(command, limit))?;
            let mut link = link_line(&work, &objects, &wrapper(), linker);
            // As many threads as on a machine with many CPUs.
            link.arg("--wrapper-jobs=64").env("RAYON_NUM_THREADS", "64");
            if way.cached {
                link.env("OFFLD_CACHE", work.path().join(format!("cache{limit}")));
            }
            // The second link uses the entries that the first link cached.
            for turn in 0..1 + u32::from(way.cached) {
                let mut command = limit_of(&link, limit)?;
                let ended = in_time(&mut command)?;
                right_or_one_error(&work, &command, &ended, must_link)
                    .map_err(|failed| with_limit(&limit.to_string(), turn, failed))?;
            }
        }
    }
    passed()
}

/// Whether LLVM's wrapper can link in the environment that `enter` sets up. Its linker starts
/// threads and crashes if it cannot.
fn llvms_links(
    work: &Work,
    objects: &[String],
    linker: &str,
    enter: &dyn Fn(&Command) -> Result<Command, Failed>,
) -> Result<bool, Failed> {
    let ended = in_time(&mut enter(&link_line(
        work,
        objects,
        &llvm("clang-linker-wrapper"),
        linker,
    ))?)?;
    let _ = std::fs::remove_file(work.path().join("program"));
    std::fs::remove_dir_all(work.path().join("tmp"))?;
    Ok(ended.status.success())
}

fn with_limit(limit: &str, turn: u32, failed: Failed) -> Failed {
    format!(
        "limit {limit}, turn {turn}: {}",
        failed.message().unwrap_or_default()
    )
    .into()
}

fn wrapper() -> PathBuf {
    crate::support::made().links.join("clang-linker-wrapper")
}

/// The program exists and prints the correct text, or there is one clear offld error. Nothing else
/// is allowed.
fn right_or_one_error(
    work: &Work,
    command: &Command,
    ended: &Output,
    must_link: bool,
) -> Result<(), Failed> {
    let stderr = text(&ended.stderr);
    let all = || shown(command, ended);
    ensure(
        !stderr.contains("panicked") && ended.status.code() != Some(101),
        all,
    )?;
    if ended.status.success() {
        let printed = run_offloaded(
            work.command("./program")
                .env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib"),
        )?;
        return expect_equal("what the program prints", "42\n", &printed);
    }
    ensure(!must_link, all)?;
    let ours = stderr
        .lines()
        .filter(|line| line.contains("clang-linker-wrapper: error: "))
        .count();
    ensure(ours == 1 && ended.status.code().is_some(), all)?;
    work.expect_no_temps()
}

/// A control group with certain settings. It is removed on drop.
struct Group(PathBuf);

impl Group {
    /// Creates a group of `kind`, with the settings for cgroups v1 (`first`) or v2 (`second`),
    /// whichever this machine has. Returns `None` if that is not possible.
    fn new(kind: &str, first: &[(&str, &str)], second: &[(&str, &str)]) -> Option<Group> {
        let root = Path::new("/sys/fs/cgroup");
        let is_second = root.join("cgroup.controllers").exists();
        if is_second {
            // The controller may be enabled already, or this process may not enable it. In the
            // latter case, the settings' files are missing.
            let _ = std::fs::write(root.join("cgroup.subtree_control"), format!("+{kind}"));
        }
        let folder = if is_second {
            root.to_path_buf()
        } else {
            root.join(kind)
        }
        .join(format!("offld-test-{}", user()));
        std::fs::create_dir(&folder).ok()?;
        let group = Group(folder);
        let settings = if is_second { second } else { first };
        settings
            .iter()
            .all(|(file, value)| {
                group.0.join(file).exists() && std::fs::write(group.0.join(file), value).is_ok()
            })
            .then_some(group)
    }

    /// Runs `command` in the group.
    fn enter(&self, command: &Command) -> Command {
        let mut all = Command::new("sh");
        all.args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""])
            .arg(&self.0)
            .arg(command.get_program())
            .args(command.get_args());
        all.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
        all.envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        all
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn in_a_group() -> Outcome {
    let work = Work::new();
    let objects = objects(
        &work,
        &Way {
            cached: false,
            objects: 40,
        },
    )?;
    for linker in LINKERS {
        for limit in 1..=12 {
            let limit = limit.to_string();
            let Some(group) = Group::new("pids", &[("pids.max", &limit)], &[("pids.max", &limit)])
            else {
                return missing(
                    "a control group that limits processes (/sys/fs/cgroup, to be written by root)",
                );
            };
            let must_link =
                llvms_links(&work, &objects, linker, &|command| Ok(group.enter(command)))?;
            let mut command = group.enter(&link_line(&work, &objects, &wrapper(), linker));
            let ended = in_time(&mut command)?;
            right_or_one_error(&work, &command, &ended, must_link)
                .map_err(|failed| with_limit(&limit, 0, failed))?;
        }
    }
    passed()
}

/// Commands that start no other program need no processes or threads beyond their own.
fn tools() -> Outcome {
    if !is_root() {
        return missing("root, to become a user whose processes are counted");
    }
    let work = Work::new();
    let names: Vec<String> = (0..30).map(|at| format!("o{at}.o")).collect();
    for name in &names {
        work.fat(
            name,
            &[Image {
                triple: NVIDIA,
                arch: "sm_80",
                kind: "cuda",
                bytes: &[7; 300_000],
            }],
        )?;
    }
    let user = user();
    give(work.path(), user)?;
    chown(work.path(), Some(user), Some(user))?;
    let offld = crate::support::offld();
    let mut inspect = work.command(&offld);
    inspect.arg("inspect").args(&names);
    run(&mut limited(&inspect, user, 1))?;
    let mut bundle = work.command(&offld);
    bundle.args([
        "clang-offload-bundler",
        "-type=o",
        "-compress",
        "-targets=hip-amdgcn-amd-amdhsa--gfx906,hip-amdgcn-amd-amdhsa--gfx90a",
    ]);
    bundle.args(["-input=o0.o", "-input=o1.o", "-output=bundle"]);
    run(&mut limited(&bundle, user, 1))?;
    let mut unbundle = work.command(&offld);
    unbundle.args([
        "clang-offload-bundler",
        "-type=o",
        "-unbundle",
        "-targets=hip-amdgcn-amd-amdhsa--gfx906",
        "-input=bundle",
        "-output=back",
    ]);
    run(&mut limited(&unbundle, user, 1))?;
    ensure(
        std::fs::read(work.path().join("o0.o"))? == std::fs::read(work.path().join("back"))?,
        || "another object came back",
    )?;
    passed()
}

/// A device compiler that records how many instances run at the same time.
const COUNTS: &str = r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
mkdir -p running; : > "running/$$"; ls running | wc -l >> at-once; sleep 0.3; rm "running/$$"
while [ $# -gt 0 ]; do case $1 in -o) echo image > "$2" ;; esac; shift; done
"#;

fn share_of_processors() -> Outcome {
    if std::thread::available_parallelism()?.get() < 2 {
        return missing("a second processor");
    }
    let first = [
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "100000"),
    ];
    let group = Group::new("cpu", &first, &[("cpu.max", "100000 100000")]);
    let Some(group) = group else {
        return missing(
            "a control group that shares processors (/sys/fs/cgroup, to be written by root)",
        );
    };
    let work = Work::new();
    work.fat(
        "a.o",
        &[
            Image::amd("gfx90a", "A"),
            Image::amd("gfx908", "B"),
            Image::amd("gfx906", "C"),
        ],
    )?;
    work.tool("tools/clang", COUNTS);
    let link = work.wrapper(["-o", "x", "a.o"]);
    let most = |command: &mut Command| -> Result<Option<u32>, Failed> {
        let _ = std::fs::remove_file(work.path().join("at-once"));
        run(command)?;
        let counts = std::fs::read_to_string(work.path().join("at-once"))?;
        Ok(counts
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .max())
    };
    expect_equal(
        "device links at once, with one processor's share",
        "Some(1)",
        &format!("{:?}", most(&mut group.enter(&link))?),
    )?;
    let mut link = link;
    let without = most(&mut link)?;
    ensure(without > Some(1), || {
        format!("device links at once, with all processors: {without:?}")
    })?;
    passed()
}
