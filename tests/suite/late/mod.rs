//! Late images: the host link runs in parallel with the device links, and offld writes the images
//! into the program when both are done. `programs` and `kinds` also link each of their programs
//! late, and run it.

mod bytes;
mod everywhere;
mod failures;
mod layout;
mod output;

use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::edit::SOURCE;
use super::support::{Work, llvm, made, run, run_offloaded};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { bytes everywhere failures layout output }
}

/// Host linkers as values of clang's `-fuse-ld=`.
const LINKERS: [&str; 5] = ["lld", "bfd", "gold", "mold", "wild"];

/// Arguments that compile and link for the CPU and for an AMD GPU.
pub(crate) const TWO: [&str; 10] = [
    "-fopenmp",
    "-fopenmp-targets=x86_64-pc-linux-gnu,amdgcn-amd-amdhsa",
    "-Xopenmp-target=amdgcn-amd-amdhsa",
    "-march=gfx90a",
    "-nogpulib",
    "-O1",
    "-Xoffload-linker-amdgcn-amd-amdhsa",
    "-z",
    "-Xoffload-linker-amdgcn-amd-amdhsa",
    "undefs",
];

/// Compiles `main.o` for the CPU and for gfx90a.
fn object(work: &Work) -> Result<(), Failed> {
    work.file("main.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(TWO)
        .args(["-g", "-c", "main.c", "-o", "main.o"]))?;
    Ok(())
}

/// The late link of `main.o` to `name` by `linker`.
fn link(work: &Work, name: &str, linker: &str) -> Command {
    let mut link = work.command(llvm("clang"));
    link.args(TWO)
        .args(["main.o", "-o", name])
        .arg(format!("-fuse-ld={linker}"));
    link.arg("-B")
        .arg(&made().links)
        .env("OFFLD_LATE_IMAGES", "on");
    link
}

/// Runs a program that must find an OpenMP device. Returns its output.
fn ran(work: &Work, program: PathBuf) -> Result<String, Failed> {
    run_offloaded(
        work.command(program)
            .env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib"),
    )
}

/// The late link of `main.o` with a stand-in for the device compiler, whose shell commands `end`
/// write the image `$out`.
fn stand_in(work: &Work, end: &str) -> Command {
    let compiler = "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\n\
        case \" $* \" in *\" -### \"*) exit 1 ;; esac\n\
        for word; do case $last in -o) out=$word ;; esac; last=$word; done\nEND\n";
    let compiler = work.tool("tools/clang", &compiler.replace("END", end));
    let mut link = work.command(llvm("clang"));
    link.args(["--offload-link", "-fuse-ld=lld", "-B"])
        .arg(&made().links)
        .args(["main.o", "-o", "program"]);
    link.args([
        "-Wl,--no-as-needed",
        "-lomptarget",
        "-L/usr/lib/llvm-22/lib",
    ]);
    link.env("OFFLD_CLANG", compiler)
        .env("OFFLD_LATE_IMAGES", "on");
    link
}
