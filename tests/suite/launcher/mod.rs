//! Device links by a launcher (`OFFLD_LAUNCHER`). The launchers are scripts that run jobs on this
//! machine, in another directory and environment. The images equal locally linked ones, whatever
//! the launcher does.

mod stopped;
mod trouble;
mod units;

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::log::records;
use crate::schedule::stand_in::{self, prepared, ran};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made,
    passed, run, run_failing, run_offloaded, stderr_of, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("launcher::the_images_are_those_of_this_machine", || {
            equal("full", &[])
        }),
        with_llvm("launcher::with_thinlto_too", || {
            equal("thin", &["--device-compiler=amdgcn-amd-amdhsa=-flto=thin"])
        }),
        with_llvm("launcher::a_program_for_the_cpu_runs", cpu),
        with_llvm("launcher::its_jobs_are_counted_by_themselves", jobs),
        with_llvm(
            "launcher::a_dry_run_shows_what_it_shows_without_one",
            dry_run,
        ),
        with_llvm("launcher::the_node_is_told", node),
        with_llvm(
            "launcher::temporary_files_are_where_the_user_says",
            shared_folder,
        ),
        with_llvm("launcher::wrong_values_are_errors", wrong_values),
    ];
    trials.extend(trials_of! { trouble stopped units });
    trials
}

/// Runs jobs in another directory and environment, and records its arguments.
const ELSEWHERE: &str = "#!/bin/sh\necho \"$*\" >> \"${0%/*}/submitted\"\nshift 3\n\
    exec env -i -C / PATH=/usr/bin:/bin SLURMD_NODENAME=node7 HOME=/nowhere \"$@\"\n";

/// The option for a launcher script with this text in `work`.
fn launcher(work: &Work, text: &str) -> String {
    let script = work.tool("launcher it's $x", text);
    format!(
        "--wrapper-launcher=\"{}\" {{threads}} {{mem}} {{job}}",
        script.display().to_string().replace('$', "\\$")
    )
}

/// The arguments that the launcher received for each job.
fn submitted(work: &Work) -> Vec<String> {
    let text = std::fs::read_to_string(work.path().join("submitted")).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Fails if a temporary file remains next to an output.
fn expect_nothing_beside(folder: &Path) -> Result<(), Failed> {
    let names =
        std::fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let left: Vec<String> = names.filter(|name| name.starts_with("offld-")).collect();
    ensure(left.is_empty(), || {
        format!("left in {}: {left:?}", folder.display())
    })
}

/// A library from two translation units for two devices, in a directory whose name needs quotes in
/// a shell.
struct Library {
    work: Work,
    folder: PathBuf,
}

impl Library {
    fn new(lto: &str) -> Result<Library, Failed> {
        let work = Work::new();
        let folder = work.path().join("it's $HOME \"quoted\" #");
        std::fs::create_dir(&folder)?;
        for unit in 0..2 {
            let code = format!(
                "void f{unit}(int *x) {{\n#pragma omp target map(tofrom: x[0:64])\n  for (int i = 1; i < 64; ++i)\n    \
                 x[i] = x[i - 1] * {unit} + x[i];\n}}\n"
            );
            let source = work.file(&format!("f{unit}.c"), code);
            let mut compile = work.command(llvm("clang"));
            compile
                .args([
                    "-O2",
                    "-fopenmp",
                    "-nogpulib",
                    "-fPIC",
                    "-c",
                    "--offload-arch=gfx90a,gfx942",
                ])
                .current_dir(&folder);
            run(compile.arg(format!("-foffload-lto={lto}")).arg(source))?;
        }
        Ok(Library { work, folder })
    }

    fn link(&self, cache: &str, more: &[&str]) -> Command {
        let mut link = self.work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--wrapper-verbose",
            "-shared",
            "-o",
            "out.so",
            "f0.o",
            "f1.o",
        ]);
        link.arg(format!("--linker-path={LLVM}/ld.lld"))
            .current_dir(&self.folder)
            .args(more);
        link.arg("--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all");
        let cache = if cache == "off" {
            "off".into()
        } else {
            self.work.path().join(cache)
        };
        link.env("OFFLD_CLANG", llvm("clang"))
            .env("OFFLD_CACHE", cache);
        link
    }

    /// Runs a link. Returns its messages and the library.
    fn linked(&self, cache: &str, more: &[&str]) -> Result<(String, Vec<u8>), Failed> {
        let stderr = stderr_of(&mut self.link(cache, more))?;
        expect_nothing_beside(&self.folder)?;
        Ok((stderr, std::fs::read(self.folder.join("out.so"))?))
    }
}

fn equal(lto: &str, more: &[&str]) -> Outcome {
    let library = Library::new(lto)?;
    let launcher = launcher(&library.work, ELSEWHERE);
    let right = library.linked("off", more)?.1;
    let launched = [&[launcher.as_str()], more].concat();
    // With a cache, each translation unit is a job.
    let of_units = ["gfx90a", "gfx942"]
        .map(|gpu| [0, 1].map(|unit| format!("1 256 offld-f{unit}-amdgcn-amd-amdhsa-{gpu} ")));
    let of_links =
        |threads| ["gfx90a", "gfx942"].map(|gpu| format!("{threads} 256 offld-out.so-{gpu} "));
    for cache in ["off", "cache"] {
        let mut expected = match (lto, cache) {
            ("thin", "cache") => of_units.concat(),
            ("thin", _) => of_links(2).to_vec(),
            _ => of_links(1).to_vec(),
        };
        expected.sort();
        let (said, made) = library.linked(cache, &launched)?;
        ensure(made == right, || {
            format!("another library, with the cache {cache}\n{said}")
        })?;
        expect_not_in(&said, "warning: ")?;
        let jobs = submitted(&library.work);
        let as_expected = jobs.len() == expected.len()
            && jobs
                .iter()
                .zip(&expected)
                .all(|(job, start)| job.starts_with(start));
        ensure(as_expected, || format!("{jobs:?}\n{said}"))?;
        std::fs::remove_file(library.work.path().join("submitted"))?;
    }
    // Everything is cached now. A link without a launcher uses the entries, too.
    for more in [launched, more.to_vec()] {
        let (said, made) = library.linked("cache", &more)?;
        expect_equal(
            "found",
            "2",
            &said
                .matches(": found in the cache\n")
                .count()
                .saturating_sub(1)
                .to_string(),
        )?;
        ensure(made == right, || format!("another library\n{said}"))?;
    }
    expect_equal("jobs", "[]", &format!("{:?}", submitted(&library.work)))?;
    library.work.expect_no_temps()?;
    passed()
}

fn cpu() -> Outcome {
    let work = Work::new();
    let source = "#include <stdio.h>\nint main(void) {\n  int x = 1;\n#pragma omp target map(tofrom: x)\n  x += 41;\n  \
                  printf(\"%d\\n\", x);\n}\n";
    work.file("a.c", source);
    let mut link = work.command(llvm("clang"));
    link.args(OFFLOAD)
        .arg(format!("-B{}", made().links.display()))
        .args(["a.c", "-o", "a", "-Wl,-rpath,/usr/lib/llvm-22/lib"]);
    let script = work.tool("launcher", ELSEWHERE);
    link.env("OFFLD_LAUNCHER", format!("{} 1 2 3", script.display()))
        .env("OFFLD_CACHE", work.path().join("cache"));
    run(&mut link)?;
    expect_equal("jobs", "1", &submitted(&work).len().to_string())?;
    expect_equal(
        "output",
        "42\n",
        &run_offloaded(&mut work.command(work.path().join("a")))?,
    )?;
    run(&mut link)?;
    expect_equal("jobs", "1", &submitted(&work).len().to_string())?;
    passed()
}

/// Architectures whose links all take the same time.
const LINKS: [(&str, u64, &str); 4] = [
    ("gfx906", 2, "0.5"),
    ("gfx908", 2, "0.5"),
    ("gfx90a", 2, "0.5"),
    ("gfx942", 2, "0.5"),
];

fn jobs() -> Outcome {
    let work = prepared(&LINKS)?;
    let launcher = launcher(&work, ELSEWHERE);
    // Neither the CPUs and memory of this machine nor its other load limit launched jobs.
    let local = ["--wrapper-jobs=1", "--wrapper-memory=1M", &launcher];
    for (more, expected) in [("--wrapper-why", 4), ("--wrapper-remote-jobs=2", 2)] {
        stderr_of(&mut stand_in::link(&work, &[&local[..], &[more]].concat()))?;
        let links = ran(&work)?;
        let at = |time: f64| {
            links
                .iter()
                .filter(|link| link.begun <= time && time < link.ended)
                .count()
        };
        let most = links.iter().map(|link| at(link.begun)).max().unwrap_or(0);
        ensure(links.len() == 4 && most == expected, || {
            format!("{most} at once with {more}: {links:?}")
        })?;
    }
    stderr_of(stand_in::link(&work, &local).env("OFFLD_REMOTE_JOBS", "1"))?;
    let mut links = ran(&work)?;
    links.sort_by(|a, b| a.begun.total_cmp(&b.begun));
    ensure(
        links.windows(2).all(|pair| pair[0].ended <= pair[1].begun),
        || format!("not one after the other: {links:?}"),
    )?;
    passed()
}

fn dry_run() -> Outcome {
    let work = prepared(&LINKS[..2])?;
    let shown = |words: &[&str]| -> Result<Vec<String>, Failed> {
        let stderr = stderr_of(&mut stand_in::link(&work, words))?;
        // The name of the temporary directory is random.
        Ok(stderr
            .lines()
            .map(|line| {
                line.split("/offld-")
                    .map(|part| part.get(6..).unwrap_or(part))
                    .collect()
            })
            .collect())
    };
    expect_equal(
        "shown",
        &shown(&["--dry-run"])?.join("\n"),
        &shown(&["--dry-run", "--wrapper-launcher=false"])?.join("\n"),
    )?;
    passed()
}

fn node() -> Outcome {
    let work = prepared(&LINKS[..1])?;
    let (log, launcher) = (work.path().join("log"), launcher(&work, ELSEWHERE));
    let words = ["--wrapper-verbose", "--wrapper-time-trace=trace", &launcher];
    let stderr = stderr_of(stand_in::link(&work, &words).env("OFFLD_CACHE_LOG", &log))?;
    expect_in(
        &stderr,
        "note: device link for amdgcn-amd-amdhsa (gfx906): running on node7\n",
    )?;
    expect_in(&stderr, "/launcher it's \\$x\" 1 ")?;
    let records = records(&log)?;
    ensure(records.len() == 1 && records[0]["node"] == "node7", || {
        format!("{records:?}")
    })?;
    let time = |key: &str| records[0][key].as_u64().unwrap_or(0);
    ensure(
        time("wall_us") >= 500_000 && time("waited_us") < 400_000,
        || format!("{records:?}"),
    )?;
    expect_in(
        &std::fs::read_to_string(work.path().join("trace"))?,
        "\"node\":\"node7\"",
    )?;
    let summary = run(work
        .command(crate::support::offld())
        .args(["explain", "log"]))?;
    expect_in(&summary, "gfx906")?;
    passed()
}

fn shared_folder() -> Outcome {
    let work = prepared(&LINKS[..1])?;
    work.file("shared folder/x", "");
    work.file(
        "before",
        "echo \"$out\" >> outputs; echo \"$TMPDIR\" >> temps",
    );
    let launcher = launcher(&work, ELSEWHERE);
    stderr_of(stand_in::link(&work, &[&launcher]).env("OFFLD_SHARED_TMP", "shared folder"))?;
    let (outputs, temps) = (work.path().join("outputs"), work.path().join("temps"));
    let expected = format!("{}/shared folder/offld-", work.path().display());
    for file in [outputs, temps] {
        let text = std::fs::read_to_string(file)?;
        ensure(text.starts_with(&expected), || text)?;
    }
    expect_equal(
        "files",
        "1",
        &std::fs::read_dir(work.path().join("shared folder"))?
            .count()
            .to_string(),
    )?;
    let stderr =
        run_failing(stand_in::link(&work, &[&launcher]).env("OFFLD_SHARED_TMP", "/nowhere"))?;
    expect_in(
        &stderr,
        "cannot create a temporary directory in `/nowhere` (set by OFFLD_SHARED_TMP)",
    )?;
    passed()
}

fn wrong_values() -> Outcome {
    let work = prepared(&LINKS[..1])?;
    for (option, told) in [
        (
            "--wrapper-launcher=srun 'x",
            "--wrapper-launcher=srun 'x: unclosed single quote (')",
        ),
        (
            "--wrapper-remote-jobs=0",
            "--wrapper-remote-jobs=0: expected a positive number",
        ),
        (
            "--wrapper-launcher-wait=soon",
            "--wrapper-launcher-wait=soon: expected a number of seconds",
        ),
    ] {
        expect_in(
            &run_failing(&mut stand_in::link(&work, &[option]))?,
            &format!("error: {told}\n"),
        )?;
    }
    for (name, value, told) in [
        (
            "OFFLD_LAUNCHER",
            "\"",
            "OFFLD_LAUNCHER=\": unclosed double quote (\")",
        ),
        (
            "OFFLD_LAUNCHER_WAIT",
            "0",
            "OFFLD_LAUNCHER_WAIT=0: expected a number of seconds",
        ),
        (
            "OFFLD_REMOTE_JOBS",
            "-1",
            "OFFLD_REMOTE_JOBS=-1: expected a positive number",
        ),
    ] {
        let mut link = stand_in::link(&work, &[]);
        let stderr = run_failing(link.env("OFFLD_LAUNCHER", "env").env(name, value))?;
        expect_in(&stderr, &format!("error: {told}\n"))?;
    }
    // An empty option disables the launcher in the environment variable.
    stderr_of(stand_in::link(&work, &["--wrapper-launcher="]).env("OFFLD_LAUNCHER", "false"))?;
    passed()
}
