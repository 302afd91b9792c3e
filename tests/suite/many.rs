//! The program of `examples/many`, linked in every way that should make no difference: several
//! translation units, a partly used static library, a shared library with an image. Repeated links
//! give the same bytes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use super::kit::{AMD, Image};
use super::programs::Linked;
use super::support::{
    OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, ledger, llvm, made, passed, root,
    run, run_offloaded, stderr_of, with_llvm,
};
use crate::effort::rounds;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for linked in [Linked::Wrapper, Linked::Linker] {
        let role = if linked == Linked::Wrapper {
            "wrapper"
        } else {
            "linker"
        };
        for linker in ["bfd", "lld"] {
            trials.push(with_llvm(&format!("many::{role}::{linker}"), move || {
                plain(linked, linker)
            }));
            trials.push(with_llvm(
                &format!("many::{role}::merged-by-{linker}"),
                move || merged(linked, linker),
            ));
        }
        trials.push(with_llvm(&format!("many::{role}::host-lto"), move || {
            host_lto(linked)
        }));
        trials.push(with_llvm(&format!("many::{role}::any-order"), move || {
            any_order(linked)
        }));
    }
    trials.push(with_llvm(
        "many::f7_the_same_bytes_at_every_job_count",
        same_bytes,
    ));
    trials.push(with_llvm(
        "many::f7_the_same_bytes_whichever_device_link_ends_first",
        same_bytes_in_any_timing,
    ));
    trials
}

const EXPECTED: &str = "\
on the host  0
equal        1
sum          4020
steps        4
smoothings   3
smoothed     25
right
";

/// The parts of the program in a directory: compiled once, copied for each test.
fn parts() -> Result<Work, Failed> {
    static COMPILED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let compile = || {
        let (folder, shared) = (compiled(&[])?, made().shared("many"));
        std::fs::create_dir(&shared)?;
        copy_files(folder.path(), &shared)?;
        Ok::<PathBuf, Failed>(shared)
    };
    let compiled = COMPILED.get_or_init(|| {
        compile().map_err(|failed| failed.message().unwrap_or_default().to_owned())
    });
    let folder = Work::new();
    copy_files(
        compiled.as_ref().map_err(|failure| failure.as_str())?,
        folder.path(),
    )?;
    Ok(folder)
}

fn copy_files(from: &Path, to: &Path) -> Result<(), Failed> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Compiles the objects, `libstats.a` and `libfilter.so`.
fn compiled(flags: &[&str]) -> Result<Work, Failed> {
    let folder = Work::new();
    let source = root().join("examples/many");
    for name in [
        "main",
        "grid",
        "step",
        "stats/sum",
        "stats/clamp",
        "stats/histogram",
        "filter/smooth",
    ] {
        let mut compile = folder.command(llvm("clang++"));
        compile
            .args(["-O2", "-g", "-fPIC"])
            .args(OFFLOAD)
            .args(flags)
            .arg("-c")
            .arg(source.join(name).with_extension("cpp"));
        run(&mut compile)?;
    }
    folder.archive("libstats.a", &["sum.o", "clamp.o", "histogram.o"])?;
    let mut library = driver(&folder, Linked::Wrapper, "lld");
    run(library
        .args(flags)
        .args(["-shared", "smooth.o", "-o", "libfilter.so"]))?;
    Ok(folder)
}

/// A clang command that selects who links. As the linker, offld also needs the name of its host
/// linker.
fn driver(folder: &Work, linked: Linked, linker: &str) -> Command {
    let mut command = folder.command(llvm("clang++"));
    match linked {
        Linked::Linker => {
            command
                .arg(format!(
                    "--ld-path={}",
                    made().links.join("ld.offld").display()
                ))
                .arg("-fopenmp");
            command.env("OFFLD_LINKER", linker);
        }
        _ => {
            command
                .arg(format!("-fuse-ld={linker}"))
                .arg("-B")
                .arg(&made().links)
                .args(OFFLOAD);
        }
    }
    command
}

const LIBRARIES: [&str; 4] = ["-L.", "-lstats", "-lfilter", "-Wl,-rpath,$ORIGIN"];

/// Fails unless the program prints the right output and registers its own image and the library's.
fn expect_right(folder: &Work, program: &str) -> Result<(), Failed> {
    let path = Path::new(".").join(program);
    expect_equal(
        "stdout",
        EXPECTED,
        &run_offloaded(&mut folder.command(&path))?,
    )?;
    let ledger = ledger(folder, &mut folder.command(&path), &Release::newest())?;
    let registered: Vec<&str> = ledger
        .lines()
        .filter(|line| line.contains(" register "))
        .collect();
    expect_equal("registrations", "2", &registered.len().to_string())?;
    for line in registered {
        expect_in(line, "images=1")?;
    }
    folder.expect_no_temps()
}

fn plain(linked: Linked, linker: &str) -> Outcome {
    let folder = parts()?;
    run(driver(&folder, linked, linker)
        .args(["main.o", "grid.o", "step.o"])
        .args(LIBRARIES)
        .args(["-o", "many"]))?;
    expect_right(&folder, "many")?;
    passed()
}

/// The host linker merges the objects into one, whose images are all in one section.
fn merged(linked: Linked, linker: &str) -> Outcome {
    let folder = parts()?;
    let merger = if linker == "lld" {
        llvm("ld.lld")
    } else {
        "ld.bfd".into()
    };
    folder.run(
        merger,
        ["-r", "-o", "merged.o", "main.o", "grid.o", "step.o"],
    )?;
    run(driver(&folder, linked, linker)
        .arg("merged.o")
        .args(LIBRARIES)
        .args(["-o", "many"]))?;
    expect_right(&folder, "many")?;
    passed()
}

/// Host objects that are bitcode.
fn host_lto(linked: Linked) -> Outcome {
    for lto in ["-flto", "-flto=thin"] {
        let folder = compiled(&[lto])?;
        let mut link = driver(&folder, linked, "lld");
        run(link
            .arg(lto)
            .args(["main.o", "grid.o", "step.o"])
            .args(LIBRARIES)
            .args(["-o", "many"]))?;
        expect_right(&folder, "many")?;
    }
    passed()
}

/// The same images from the same inputs, and the same output of the program.
fn any_order(linked: Linked) -> Outcome {
    let folder = parts()?;
    let orders = [
        ["main.o", "grid.o", "step.o", "libstats.a"],
        ["step.o", "grid.o", "main.o", "libstats.a"],
        ["grid.o", "step.o", "libstats.a", "main.o"],
        ["libstats.a", "main.o", "step.o", "grid.o"],
    ];
    let mut first = None;
    for order in orders {
        let mut link = driver(&folder, linked, "lld");
        link.args(order).args([
            "-L.",
            "-lfilter",
            "-Wl,-rpath,$ORIGIN",
            "-Wl,--wrapper-verbose",
            "-o",
            "many",
        ]);
        let steps = stderr_of(&mut link)?;
        let mut inputs = Vec::new();
        for line in steps.lines().filter(|line| line.contains("--target=")) {
            let names = line
                .split(' ')
                .filter(|word| word.ends_with(".o"))
                .filter_map(|word| word.rsplit('/').next());
            let mut names: Vec<&str> = names.collect();
            names.sort();
            inputs.push(names.join(" "));
        }
        expect_equal("device links", "1", &inputs.len().to_string())?;
        let inputs = inputs.join("\n");
        expect_equal(
            "inputs of the images",
            first.get_or_insert_with(|| inputs.clone()),
            &inputs,
        )?;
        expect_right(&folder, "many")?;
    }
    passed()
}

/// A program with images for the host and for three GPUs, linked by the real tools: 20 links, three
/// job counts, one result.
fn same_bytes() -> Outcome {
    let folder = parts()?;
    folder.file(
        "gpu.cpp",
        "#pragma omp begin declare target\nint counted;\n#pragma omp end declare target\n\
         void count() {\n#pragma omp target\n  ++counted;\n}\n",
    );
    let gpus = [
        "-O2",
        "-g",
        "-fopenmp",
        "--offload-arch=gfx90a,gfx908,gfx1030",
        "-nogpulib",
        "-c",
        "gpu.cpp",
    ];
    folder.run(llvm("clang++"), gpus)?;
    let unresolved = format!("-Wl,--device-linker={AMD}=--unresolved-symbols=ignore-all");
    expect_one_result(20, |jobs| {
        let mut link = driver(&folder, Linked::Wrapper, "lld");
        link.args([
            "main.o",
            "grid.o",
            "step.o",
            "gpu.o",
            &unresolved,
            &format!("-Wl,--wrapper-jobs={jobs}"),
        ]);
        run(link.args(LIBRARIES).args(["-o", "many"]))?;
        Ok(folder.path().join("many"))
    })?;
    folder.expect_no_temps()?;
    passed()
}

/// Eight device links that end in random order, twenty times per job count.
fn same_bytes_in_any_timing() -> Outcome {
    let folder = Work::new();
    let archs = [
        "gfx900", "gfx906", "gfx908", "gfx90a", "gfx90c", "gfx942", "gfx1030", "gfx1100",
    ];
    for name in ["one", "two", "three"] {
        let texts: Vec<String> = archs
            .iter()
            .map(|arch| format!("{name} for {arch}\n"))
            .collect();
        let images: Vec<Image<'_>> = archs
            .iter()
            .zip(&texts)
            .map(|(arch, text)| Image::amd(arch, text))
            .collect();
        folder.fat(&format!("{name}.o"), &images)?;
    }
    folder.file("main.c", "int main(void) { return 0; }");
    folder.run(llvm("clang"), ["-c", "main.c"])?;
    let compiler = folder.tool(
        "tools/clang",
        "#!/bin/sh\nsleep 0.0$(($$ % 4))\nfor word; do\n  case $last in -o) out=$word ;; esac\n  last=$word\n  \
         case $word in *.o) inputs=\"$inputs $word\" ;; esac\ndone\ncat $inputs > \"$out\"\n",
    );
    expect_one_result(60, |jobs| {
        let mut link = driver(&folder, Linked::Wrapper, "lld");
        link.env("OFFLD_CLANG", &compiler)
            .arg(format!("-Wl,--wrapper-jobs={jobs}"));
        run(link.args(["main.o", "one.o", "two.o", "three.o", "-o", "program"]))?;
        Ok(folder.path().join("program"))
    })?;
    folder.expect_no_temps()?;
    passed()
}

/// Fails unless `count` calls of `link`, with 1, 2 and 8 jobs in turn, write the same file. Short
/// test runs do a quarter of the calls, at least six.
pub(crate) fn expect_one_result(
    count: usize,
    link: impl Fn(usize) -> Result<PathBuf, Failed>,
) -> Result<(), Failed> {
    let mut first = None;
    for (turn, jobs) in [1, 2, 8]
        .into_iter()
        .cycle()
        .take(rounds(
            "links at each job count that must give the same bytes",
            count,
            (count / 4).max(6),
        ))
        .enumerate()
    {
        let bytes = std::fs::read(link(jobs)?)?;
        if *first.get_or_insert_with(|| bytes.clone()) != bytes {
            return Err(format!(
                "link {turn}, with --wrapper-jobs={jobs}, gives other bytes than the first"
            )
            .into());
        }
    }
    Ok(())
}
