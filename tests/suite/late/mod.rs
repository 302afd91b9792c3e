//! Late images: the host link runs beside the device links, and the images are put into the program when both are done. That such
//! programs run as others do, `programs` and `kinds` show, which link each of theirs late as well.

mod bytes;
mod everywhere;
mod failures;
mod layout;

use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::support::{Work, llvm, made, run, run_offloaded};

pub(crate) fn trials() -> Vec<Trial> {
    [bytes::trials(), everywhere::trials(), failures::trials(), layout::trials()].into_iter().flatten().collect()
}

/// The host linkers, as clang's `-fuse-ld=` names them.
const LINKERS: [&str; 4] = ["lld", "bfd", "gold", "mold"];

/// A program that says where its target region ran.
const SOURCE: &str = "#include <stdio.h>\n#include <omp.h>\nint main(void) {\n  int host = 1, sum = 0;\n\
    #pragma omp target map(tofrom : host, sum)\n  { host = omp_is_initial_device(); for (int i = 0; i < 100; i++) sum += i; }\n  \
    printf(\"%d %s\\n\", sum, host ? \"host\" : \"device\");\n  return sum != 4950;\n}\n";

/// What makes clang compile and link for the CPU and for an AMD GPU.
const TWO: [&str; 10] = [
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

/// Makes `main.o` for the CPU and for gfx90a.
fn object(work: &Work) -> Result<(), Failed> {
    work.file("main.c", SOURCE);
    run(work.command(llvm("clang")).args(TWO).args(["-g", "-c", "main.c", "-o", "main.o"]))?;
    Ok(())
}

/// The late link of `main.o` to `name` by `linker`.
fn link(work: &Work, name: &str, linker: &str) -> Command {
    let mut link = work.command(llvm("clang"));
    link.args(TWO).args(["main.o", "-o", name]).arg(format!("-fuse-ld={linker}"));
    link.arg("-B").arg(&made().links).env("OFFLD_LATE_IMAGES", "on");
    link
}

/// What a program with an OpenMP device says; it must have one.
fn ran(work: &Work, program: PathBuf) -> Result<String, Failed> {
    run_offloaded(work.command(program).env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib"))
}
