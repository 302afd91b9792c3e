//! HIP builds of clang 22 that call a bundler, with offld's in its place (`-B`). Every step of the
//! old and the new driver writes the same as with LLVM's bundler, and the programs register the
//! same.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::kinds::{folder, normalized, stubs};
use crate::support::{
    Outcome, Work, expect_equal, expect_in, llvm, made, output, passed, root, run, shown, text,
    with_llvm,
};

const OLD: &str = "--no-offload-new-driver";
const NEW: &str = "--offload-new-driver";

/// One test per way to build.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for driver in [OLD, NEW] {
        let name = driver
            .trim_start_matches("--")
            .replace("-offload", "")
            .replace("offload-", "");
        trials.push(with_llvm(
            &format!("hip_builds::steps::{name}"),
            move || steps(driver),
        ));
        for (how, flags) in [
            ("plain", ""),
            ("rdc", "-fgpu-rdc"),
            (
                "compressed",
                "--offload-compress --offload-compression-level=9",
            ),
            ("rdc_compressed", "-fgpu-rdc --offload-compress"),
            ("verbose", "-v"),
        ] {
            trials.push(with_llvm(
                &format!("hip_builds::program::{name}::{how}"),
                move || program(driver, flags),
            ));
        }
    }
    trials.push(with_llvm("hip_builds::preprocessed", preprocessed));
    trials.push(with_llvm("hip_builds::assembled_again", mixed_bundlers));
    trials
}

/// Runs clang 22 on HIP sources, with offld's tools or LLVM's.
fn clang(work: &Work, ours: bool, args: &str) -> Result<Printed, Failed> {
    let mut command = work.command(llvm("clang++"));
    command.args([
        "-O2",
        "-fPIC",
        "-nogpuinc",
        "-nogpulib",
        "--offload-arch=gfx90a,gfx908",
        "-Wno-unused-command-line-argument",
    ]);
    // Without this option, clang derives unique names from its whole command line, which contains
    // `-B`.
    let source = args
        .split_whitespace()
        .find(|word| word.ends_with(".cpp"))
        .unwrap_or("none");
    command.arg(format!(
        "-cuid={}",
        Path::new(source).file_stem().unwrap_or_default().display()
    ));
    command
        .arg("-isystem")
        .arg(root().join("tests/device-headers"));
    if ours {
        command.arg("-B").arg(&made().links);
    }
    let before = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(&llvm("clang++")).parent().map(Path::to_path_buf);
    let path = std::env::join_paths(std::env::split_paths(&before).chain(tools))
        .expect("folders without colons");
    let ended = output(command.args(args.split_whitespace()).env("PATH", path))?;
    if !ended.status.success() {
        return Err(shown(&command, &ended).into());
    }
    Ok(Printed {
        stdout: text(&ended.stdout),
        stderr: text(&ended.stderr),
    })
}

/// The output of a successful compiler.
struct Printed {
    stdout: String,
    stderr: String,
}

fn source(name: &str) -> String {
    folder().join(name).display().to_string()
}

/// Compares every kind of output byte for byte.
fn steps(driver: &str) -> Outcome {
    let work = Work::new();
    let bundler = made()
        .links
        .join("clang-offload-bundler")
        .display()
        .to_string();
    let modes = [
        ("-S", true),
        ("-E", driver == OLD),
        ("-S -emit-llvm", true),
        ("-c -emit-llvm", true),
        ("-S -fgpu-rdc", true),
        ("-c -fgpu-rdc", true),
        ("-c", true),
        ("-c --offload-device-only", true),
        ("-c --offload-device-only --gpu-bundle-output", true),
        ("-S --offload-device-only --gpu-bundle-output", true),
    ];
    for (mode, bundles) in modes {
        if driver == NEW && mode.contains("-fgpu-rdc") {
            // The new driver packs these outputs. offld's packager keeps the order of strings,
            // while LLVM's writes them in hash order.
            continue;
        }
        let mut outputs = Vec::new();
        for ours in [true, false] {
            let line = format!("-x hip {driver} {mode} {} -o out", source("other.cpp"));
            if ours && bundles {
                expect_in(
                    &clang(&work, true, &format!("-### {line}"))?.stderr,
                    &bundler,
                )?;
            }
            clang(&work, ours, &line)?;
            outputs.push(std::fs::read(work.path().join("out"))?);
            std::fs::remove_file(work.path().join("out"))?;
        }
        if outputs[0] != outputs[1] {
            return Err(format!(
                "{driver} {mode}: {} bytes, but with LLVM's bundler {}",
                outputs[0].len(),
                outputs[1].len()
            )
            .into());
        }
    }
    // Output to stdout.
    for mode in ["-E", "-S -o -"] {
        let line = format!("-x hip {driver} {mode} {}", source("other.cpp"));
        expect_equal(
            mode,
            &clang(&work, false, &line)?.stdout,
            &clang(&work, true, &line)?.stdout,
        )?;
    }
    passed()
}

/// Builds two sources and a static library, and compares the registrations of the program.
fn program(driver: &str, flags: &str) -> Outcome {
    let work = Work::new();
    let mut seen = Vec::new();
    for ours in [false, true] {
        for name in ["main", "other", "archived"] {
            clang(
                &work,
                ours,
                &format!(
                    "-x hip {driver} {flags} -c {} -o {name}.o",
                    source(&format!("{name}.cpp"))
                ),
            )?;
        }
        run(work
            .command(llvm("llvm-ar"))
            .args(["rcs", "libarchived.a", "archived.o"]))?;
        let stubs = stubs().display();
        clang(
            &work,
            ours,
            &format!(
                "{driver} {flags} --hip-link main.o other.o -L. -L{stubs} -larchived -lamdhip64 -o program"
            ),
        )?;
        let ledger = work.path().join("ledger");
        let _ = std::fs::remove_file(&ledger);
        let printed = run(work
            .command("./program")
            .env("OFFLD_LEDGER", &ledger)
            .env("LD_LIBRARY_PATH", self::stubs()))?;
        seen.push((printed, normalized(&work, &ledger)?));
        if ours {
            work.expect_no_temps()?;
        }
    }
    expect_equal("stdout of the program", &seen[0].0, &seen[1].0)?;
    expect_equal("the ledger", &seen[0].1, &seen[1].1)?;
    expect_in(&seen[1].1, "hip function")?;
    passed()
}

/// Preprocessed source is a text bundle, and compiles to the same object as the source.
fn preprocessed() -> Outcome {
    let work = Work::new();
    clang(
        &work,
        true,
        &format!("-x hip {OLD} -E {} -o other.hipi", source("other.cpp")),
    )?;
    clang(
        &work,
        true,
        &format!("-x hip-cpp-output {OLD} -c other.hipi -o ours.o"),
    )?;
    clang(
        &work,
        false,
        &format!("-x hip-cpp-output {OLD} -c other.hipi -o theirs.o"),
    )?;
    if std::fs::read(work.path().join("ours.o"))? != std::fs::read(work.path().join("theirs.o"))? {
        return Err("the object differs".into());
    }
    passed()
}

/// The link unbundles bundled objects of a relocatable-device-code build, whichever bundler wrote
/// them.
fn mixed_bundlers() -> Outcome {
    let work = Work::new();
    let stubs = stubs().display();
    for (compiles, links) in [(true, false), (false, true)] {
        for name in ["main", "other", "archived"] {
            clang(
                &work,
                compiles,
                &format!(
                    "-x hip {OLD} -fgpu-rdc -c {} -o {name}.o",
                    source(&format!("{name}.cpp"))
                ),
            )?;
        }
        clang(
            &work,
            links,
            &format!(
                "{OLD} -fgpu-rdc --hip-link main.o other.o archived.o -L{stubs} -lamdhip64 -o program"
            ),
        )?;
        let printed = run(work
            .command("./program")
            .env("LD_LIBRARY_PATH", self::stubs()))?;
        expect_in(&printed, "other 100")?;
    }
    passed()
}
