//! Objects of LLVM 14, 15, 16, 19 and 22. offld links each as wrapper in its own release's driver,
//! as that driver's linker, and in LLVM 22's driver. Each program runs with the runtime of its own
//! release and with a later one. Also objects of several releases in one program.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use super::programs::{Linked, Program, Way};
use super::support::{
    OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, ledger, llvm, made, missing, passed,
    run, run_offloaded, stderr_of, test,
};

/// Programs, their host linker and releases. Device constructors and destructors: only releases
/// whose runtime runs them without crashing, with LLVM's wrapper too.
const PROGRAMS: [(&str, &str, &[u32]); 7] = [
    ("reduction", "bfd", &[14, 15, 16, 19, 22]),
    ("globals", "bfd", &[14, 15, 16, 19, 22]),
    ("templates", "lld", &[14, 15, 16, 19, 22]),
    ("archive-members", "bfd", &[14, 15, 16, 19, 22]),
    ("constructors", "bfd", &[15, 16, 19, 22]),
    ("shared-and-main", "bfd", &[14, 19]),
    ("offload-lto", "lld", &[15, 16, 19]),
];

/// Releases whose objects are linked together, and the release of the runtime.
const MIXES: [(&[u32], u32); 5] = [
    (&[19, 22], 22),
    (&[22, 14], 22),
    (&[14, 15], 15),
    (&[14, 16, 19], 19),
    (&[14, 16, 19, 22], 22),
];

/// One test per program and release, and one per mix.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, linker, releases) in PROGRAMS {
        for &major in releases {
            trials.push(test(format!("releases::{name}::{major}"), move || {
                alone(name, linker, major)
            }));
        }
    }
    for major in [14, 15, 16, 19] {
        trials.push(test(
            format!("releases::driver-options::{major}"),
            move || driver_options(major),
        ));
    }
    trials.push(test("releases::runtime-too-old", runtime_too_old));
    for (releases, runtime) in MIXES {
        let names: Vec<String> = releases.iter().map(u32::to_string).collect();
        trials.push(test(
            format!("releases::mixed::{}", names.join("-")),
            move || mixed(releases, runtime),
        ));
    }
    trials
}

fn release(major: u32) -> Result<Release, Outcome> {
    Release::of(major).ok_or_else(|| missing(format!("LLVM {major} (make setup-releases)")))
}

/// LLVM 22's compiler driver, with the runtime of another release.
fn newest_with(runtime: &Release) -> Release {
    let link = vec![format!("-L{}", runtime.lib.display())];
    Release {
        lib: runtime.lib.clone(),
        link,
        ..Release::newest()
    }
}

/// The latest runtime that supports objects of release `major`. Runtimes of 19 and 22 read beyond
/// the kernel arguments of 15. They also do not run constructors that are entries, which releases
/// up to 16 generate.
fn later_runtime(program: &str, major: u32) -> u32 {
    match (program, major) {
        (_, 15) | ("constructors", 16) => major,
        _ => 22,
    }
}

fn alone(name: &str, linker: &str, major: u32) -> Outcome {
    let (own, later) = match (release(major), release(later_runtime(name, major))) {
        (Ok(own), Ok(later)) => (own, later),
        (Err(missing), _) | (_, Err(missing)) => return missing,
    };
    let program = Program::named(name);
    let folder = Work::new();
    program.compile(&folder, &own)?;
    let way = |linked, release: &Release| Way {
        linked,
        linker: linker.to_owned(),
        release: release.clone(),
    };
    for way in [
        way(Linked::Wrapper, &own),
        way(Linked::Linker, &own),
        way(Linked::Wrapper, &newest_with(&later)),
    ] {
        let with_context = |failed: Failed| {
            Failed::from(format!(
                "{}: {}",
                way.name(),
                failed.message().unwrap_or_default()
            ))
        };
        program.build(&folder, &way).map_err(with_context)?;
        let start = || program.start(&folder);
        expect_runtime(&mut start(), &way.release).map_err(with_context)?;
        let printed = run_offloaded(start().env("LD_LIBRARY_PATH", &way.release.lib))
            .map_err(with_context)?;
        expect_equal("stdout of the program", &program.expected(), &printed)
            .map_err(with_context)?;
        folder.expect_no_temps()?;
        let ledger = program
            .ledger(&folder, &way.release)
            .map_err(with_context)?;
        expect_in(&ledger, &format!("layout={}\n", entry_size(major)))?;
        // Runtimes up to 14 receive bare images.
        expect_in(
            &ledger,
            if major == 14 {
                " in=none"
            } else {
                " in=offloadbinary(kind=openmp,image=object,"
            },
        )?;
    }
    passed()
}

fn entry_size(major: u32) -> u32 {
    if major < 20 { 32 } else { 56 }
}

/// Fails unless the program loads the libomptarget of `release`.
fn expect_runtime(program: &mut std::process::Command, release: &Release) -> Result<(), Failed> {
    let loaded = run(program
        .env("LD_LIBRARY_PATH", &release.lib)
        .env("LD_TRACE_LOADED_OBJECTS", "1"))?;
    expect_in(
        &loaded,
        &format!("=> {}/libomptarget.so", release.lib.display()),
    )
}

/// Options that a release's driver passes on. Drivers of 14 to 19 use options of the wrapper, some
/// with one dash, before a `--`.
fn driver_options(major: u32) -> Outcome {
    let release = match release(major) {
        Ok(release) => release,
        Err(missing) => return missing,
    };
    let folder = Work::new();
    folder.file(
        "main.c",
        MAIN.replace("cstdio", "stdio.h").replace("std::", ""),
    );
    folder.file("part.c", PART);
    let parts = format!("-DPARTS=part({major})");
    let mut all = folder.command(release.tool("clang"));
    all.args(OFFLOAD)
        .args(&release.compile)
        .args(&release.link)
        .args(["-O2", "-g", "-v", "-save-temps"]);
    all.arg("-B")
        .arg(&made().links)
        .args([&parts, &format!("-DRELEASE={major}")]);
    let steps = stderr_of(all.args(["main.c", "part.c", "-o", "program"]))?;
    expect_in(
        &steps,
        &format!("{}/clang-linker-wrapper", made().links.display()),
    )?;
    let printed = run_offloaded(
        folder
            .command("./program")
            .env("LD_LIBRARY_PATH", &release.lib),
    )?;
    expect_equal(
        "stdout of the program",
        &format!("{major}: {} {}\ndevice 1\n", major * 10 + 1, major * 10 + 2),
        &printed,
    )?;
    passed()
}

/// If a runtime cannot read the entries, the link prints a warning, because the program would
/// crash.
fn runtime_too_old() -> Outcome {
    let folder = Work::new();
    folder.file("part.cpp", PART);
    folder.file("main.cpp", MAIN);
    for major in [15, 16, 19] {
        let old = match release(major) {
            Ok(release) => release,
            Err(missing) => return missing,
        };
        let mut link = folder.command(llvm("clang++"));
        link.args(OFFLOAD).args([
            "-DRELEASE=22",
            "-DPARTS=part(22)",
            "main.cpp",
            "part.cpp",
            "-o",
            "program",
        ]);
        let warned = stderr_of(
            link.arg("-B")
                .arg(&made().links)
                .arg(format!("-L{}", old.lib.display())),
        )?;
        expect_in(
            &warned,
            "is from LLVM 19 or earlier and cannot read the entries of",
        )?;
    }
    passed()
}

/// A part of a mixed program, the same for each release except for RELEASE.
const PART: &str = "
#include <omp.h>
#define join2(a, b) a##b
#define join(a, b) join2(a, b)
#pragma omp begin declare target
int join(calls_of_, RELEASE);
static int times(int x) { return x * RELEASE; }
#pragma omp end declare target
int join(part_of_, RELEASE)(int x, int *host) {
  int y = 0, h = 1;
#pragma omp target map(from : y, h)
  {
    h = omp_is_initial_device();
    y = times(x) + ++join(calls_of_, RELEASE);
  }
  *host |= h;
  return y;
}
";

/// PARTS is `part(14) part(15)`.
const MAIN: &str = "
#include <cstdio>
#define part(n) int part_of_##n(int x, int *host);
PARTS
#undef part
int main() {
  int host = 0;
#define part(n) std::printf(\"%d: %d %d\\n\", n, part_of_##n(10, &host), part_of_##n(10, &host));
  PARTS
  std::printf(\"device %d\\n\", !host);
}
";

/// Entries are registered by tables of their own layout: one registration per layout.
fn mixed(majors: &[u32], runtime: u32) -> Outcome {
    let mut releases = Vec::new();
    for &major in majors.iter().chain([&runtime]) {
        match release(major) {
            Ok(release) => releases.push(release),
            Err(missing) => return missing,
        }
    }
    let runtime = releases.pop().unwrap_or_else(Release::newest);
    let folder = Work::new();
    folder.file("part.cpp", PART);
    folder.file("main.cpp", MAIN);
    let parts: Vec<String> = majors
        .iter()
        .map(|major| format!("part({major})"))
        .collect();
    folder.run(
        llvm("clang++"),
        ["-c", &format!("-DPARTS={}", parts.join(" ")), "main.cpp"],
    )?;
    for release in &releases {
        let mut compile = folder.command(release.tool("clang++"));
        compile
            .arg("-O1")
            .arg(format!("-DRELEASE={}", release.major))
            .args(OFFLOAD)
            .args(&release.compile);
        run(compile.args(["-c", "part.cpp", "-o", &format!("part{}.o", release.major)]))?;
    }
    let mut layouts: Vec<u32> = majors.iter().copied().map(entry_size).collect();
    layouts.sort();
    layouts.dedup();
    let expected = majors
        .iter()
        .map(|major| format!("{major}: {} {}\n", major * 10 + 1, major * 10 + 2))
        .collect::<String>();
    let linker = format!("--ld-path={}", made().links.join("ld.offld").display());
    for as_linker in [false, true] {
        let mut link = folder.command(llvm("clang++"));
        if as_linker {
            link.args(["-fopenmp", &linker]);
        } else {
            link.args(OFFLOAD).arg("-B").arg(&made().links);
        }
        link.arg(format!("-L{}", runtime.lib.display()))
            .arg("main.o");
        run(link
            .args(majors.iter().map(|major| format!("part{major}.o")))
            .args(["-o", "program"]))?;
        let start = || folder.command(Path::new("./program"));
        expect_runtime(&mut start(), &runtime)?;
        let printed = run_offloaded(start().env("LD_LIBRARY_PATH", &runtime.lib))?;
        expect_equal(
            "stdout of the program",
            &format!("{expected}device 1\n"),
            &printed,
        )?;
        let ledger = ledger(&folder, &mut start(), &runtime)?;
        let registered: Vec<&str> = ledger
            .lines()
            .filter(|line| line.contains(" register "))
            .collect();
        let mut seen: Vec<u32> = registered
            .iter()
            .filter_map(|line| line.rsplit("layout=").next()?.parse().ok())
            .collect();
        seen.sort();
        expect_equal(
            "layouts of the registered tables",
            &format!("{layouts:?}"),
            &format!("{seen:?}"),
        )?;
    }
    folder.expect_no_temps()?;
    passed()
}
