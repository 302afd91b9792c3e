//! `offld prune` on OpenMP programs of every linker: what is left runs offloaded, as it is and after tools that change finished files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::support::{
    Outcome, Work, ensure, expect_equal, llvm, made, missing, offld, output, passed, run, run_offloaded, test, text,
};

/// The size of the image that goes, at least.
const LARGE: u64 = 2_000_000;
const SOURCE: &str = r#"
#include <cstdio>
#include <omp.h>
#ifdef __AMDGCN__
#pragma omp begin declare target device_type(nohost)
__attribute__((used)) unsigned char large[2000000] = {1, 2, 3};
#pragma omp end declare target
#endif
int check() {
  int numbers[100], on_host = 1;
#pragma omp target teams distribute parallel for map(from: numbers)
  for (int at = 0; at < 100; at++) numbers[at] = at * 2;
#pragma omp target map(from: on_host)
  on_host = omp_is_initial_device();
  int sum = 0;
  for (int number : numbers) sum += number;
  std::printf("%d %d\n", sum, on_host);
  return sum != 9900 || on_host;
}
#ifndef LIBRARY
int main() { return check(); }
#endif
"#;
const RIGHT: &str = "9900 0\n";
const KINDS: [(&str, &[&str]); 3] =
    [("pie", &["-pie", "-fPIE"]), ("fixed", &["-no-pie", "-fno-pie"]), ("library", &["-shared", "-fPIC", "-DLIBRARY"])];
const RPATH: &[&str] = &["patchelf", "--set-rpath", "/a/path/long/enough/to/move/things/about/in/the/file", "FILE"];
/// The command lines of tools, `FILE` being the program.
const TOOLS: [&[&[&str]]; 8] = [
    &[],
    &[&["strip", "FILE"]],
    &[&["llvm-strip", "FILE"]],
    &[&["objcopy", "--strip-debug", "FILE"]],
    &[RPATH],
    &[RPATH, &["strip", "FILE"]],
    &[&["strip", "FILE"], RPATH],
    &[RPATH, &["patchelf", "--add-needed", "libm.so.6", "FILE"]],
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for linker in ["ld.lld", "bfd", "gold", "mold"] {
        for (kind, flags) in KINDS {
            trials.push(test(format!("prune::{linker}::{kind}"), move || pruned(linker, kind, flags, true)));
        }
    }
    for (kind, flags) in KINDS {
        trials.push(test(format!("prune::llvm::{kind}"), move || pruned("ld.lld", kind, flags, false)));
    }
    trials
}

/// A program with an image for the host's processor and perhaps a large one for a GPU, made by offld or by LLVM's own wrapper.
fn link(work: &Work, linker: &str, flags: &[&str], targets: &str, output: &str, is_ours: bool) -> Result<(), Failed> {
    let linker = match linker {
        "ld.lld" => llvm(linker).display().to_string(),
        "mold" => which::which(linker)?.display().to_string(),
        named => named.to_owned(),
    };
    work.file("check.cpp", SOURCE);
    let mut command = work.command(llvm("clang++"));
    command.args(["-fopenmp", targets, "-nogpulib", "check.cpp", "-o", output]).args(flags);
    if targets.contains("amdgcn") {
        command.args(["-Xopenmp-target=amdgcn-amd-amdhsa", "-march=gfx90a"]);
        command.arg("-Wl,--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all");
    }
    if is_ours {
        command.arg("-B").arg(&made().links);
    }
    run(command.arg(format!("-fuse-ld={linker}"))).map(drop)
}

fn pruned(linker: &str, kind: &str, flags: &[&str], is_ours: bool) -> Outcome {
    if !llvm("clang++").is_file() {
        return missing("LLVM 22");
    }
    if which::which(if linker == "ld.lld" { "clang++-22" } else { linker }).is_err()
        && which::which(format!("ld.{linker}")).is_err()
    {
        return missing(linker);
    }
    let work = Work::new();
    let program = if kind == "library" { "libcheck.so" } else { "check" };
    link(&work, linker, flags, "-fopenmp-targets=x86_64-pc-linux-gnu", program, is_ours)?;
    let expected = std::fs::metadata(work.path().join(program))?.len();
    link(&work, linker, flags, "-fopenmp-targets=x86_64-pc-linux-gnu,amdgcn-amd-amdhsa", program, is_ours)?;
    if kind == "library" {
        work.file("main.cpp", "int check(); int main() { return check(); }");
        work.run(llvm("clang++"), ["main.cpp", "-L.", "-lcheck", "-o", "main"])?;
    }
    let before = std::fs::metadata(work.path().join(program))?.len();
    let old_faults = faults(&work, program)?;
    ensure(before > expected + LARGE, || format!("{before} bytes with two images"))?;
    work.run(offld(), ["prune", "--keep", "cpu", "--in-place", program])?;
    let after = std::fs::read(work.path().join(program))?;
    // A page for each segment, and the name of the device that the descriptor has no row for.
    ensure((after.len() as u64) < expected + expected / 100 + 5 * 4096, || format!("{} bytes, not {expected}", after.len()))?;
    let sections = work.run("readelf", ["-SW", program])?;
    ensure(sections.contains(".llvm.offloading"), || sections)?;
    let new: Vec<String> = faults(&work, program)?.into_iter().filter(|fault| !old_faults.contains(fault)).collect();
    ensure(new.is_empty(), || new.join("\n"))?;
    for commands in TOOLS {
        let ran = run_after(&work, kind, program, &after, commands);
        ran.map_err(|failed| format!("{commands:?}: {}", failed.message().unwrap_or_default()))?;
    }
    passed()
}

/// What tools that read programs complain of.
fn faults(work: &Work, name: &str) -> Result<Vec<String>, Failed> {
    let mut all = Vec::new();
    let checks: [&[&str]; 4] = [
        &["readelf", "-aW", name],
        &["gdb", "-batch", "-ex", "info files", name],
        &["eu-elflint", "--gnu-ld", name],
        &["/lib64/ld-linux-x86-64.so.2", "--verify", name],
    ];
    for command in checks {
        let Some((tool, args)) = command.split_first().filter(|(tool, _)| which::which(tool).is_ok()) else { continue };
        let done = output(work.command(tool).args(args))?;
        let said = if *tool == "eu-elflint" { done.stdout } else { done.stderr };
        // Sections may have other numbers, which are written with blanks in front.
        all.extend(
            text(&said)
                .lines()
                .map(|line| format!("{tool}: {}", line.replace(|one: char| one.is_ascii_digit() || one == ' ', ""))),
        );
        if *tool != "eu-elflint" && !done.status.success() {
            all.push(format!("{tool}: {}", done.status));
        }
    }
    Ok(all)
}

/// Changes `data` by each tool in turn and runs the program.
fn run_after(work: &Work, kind: &str, output: &str, data: &[u8], commands: &[&[&str]]) -> Result<(), Failed> {
    let path = work.file(output, data);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    for command in commands {
        let (name, args) = command.split_first().ok_or("a tool")?;
        let tool = if name.starts_with("llvm-") { llvm(name) } else { Path::new(name).to_owned() };
        if which::which(&tool).is_err() {
            return missing(name).map(drop);
        }
        work.run(tool, args.iter().map(|arg| if *arg == "FILE" { output } else { arg }))?;
    }
    let program = work.path().join(if kind == "library" { "main" } else { output });
    let printed = run_offloaded(Command::new(program).env("LD_LIBRARY_PATH", work.path()))?;
    expect_equal("output", RIGHT, &printed)
}
