//! Changes of finished files: `offld prune`, `split`, `merge`, `replace`, `recompress`,
//! `strip-device`.

mod coff;
mod fixed;
mod kills;
mod ledgers;
mod merge;
mod nvcc;
mod prune;
mod real_files;
mod recompress;
mod releases;
mod replace;
pub(crate) mod split;
mod strip_device;
mod sycl;
pub(crate) mod wheels;
mod whole_builds;

use std::path::Path;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::support::{Work, llvm, made, offld, output, run, run_offloaded, shown, text};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! {
        ledgers prune split sycl replace recompress strip_device kills merge coff fixed
        nvcc releases wheels whole_builds real_files
    }
}

/// A program that reports where its target region ran. It includes no header, because those of
/// Debian 13's C library do not compile for AMD GPUs.
pub(crate) const SOURCE: &str = concat!(
    include_str!("../on_host.h"),
    r#"int main(void) {
  int host = 1, sum = 0;
#pragma omp target map(tofrom : host, sum)
  { host = is_on_host(); for (int i = 0; i < 100; i++) sum += i; }
  printf("%d %s\n", sum, host ? "host" : "device");
  return sum != 4950;
}
"#
);

/// The clang arguments that compile for the CPU and an AMD GPU.
const TWO: [&str; 6] = [
    "-fopenmp",
    "-fopenmp-targets=x86_64-pc-linux-gnu,amdgcn-amd-amdhsa",
    "-Xopenmp-target=amdgcn-amd-amdhsa",
    "-march=gfx90a",
    "-nogpulib",
    "-O1",
];

/// A HIP file with two kernels that needs no header.
const HIP: &str = "#define __global__ __attribute__((global))\n\
    struct dim3 { unsigned x, y, z; dim3(unsigned a = 1) : x(a), y(1), z(1) {} };\n\
    extern \"C\" int __hipPushCallConfiguration(dim3, dim3, unsigned long = 0, void *s = nullptr);\n\
    extern \"C\" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, void **);\n\
    extern \"C\" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *);\n\
    __global__ void first(int *p) { p[1] += 3; }\n__global__ void second(float *p) { p[0] *= 2.5f; }\n\
    void both(int *p) { first<<<1, 1>>>(p); second<<<1, 1>>>((float *)p); }\n";

/// Runs `offld WORDS`, which must succeed. Returns its standard output.
fn stdout_of<'a>(work: &Work, words: impl IntoIterator<Item = &'a str>) -> Result<String, Failed> {
    let mut command = work.command(offld());
    run(command.args(words))
}

/// Runs `offld WORDS`, which must fail with status 2. Returns its standard error.
fn refused<'a>(work: &Work, words: impl IntoIterator<Item = &'a str>) -> Result<String, Failed> {
    let mut command = work.command(offld());
    let ended = output(command.args(words))?;
    if ended.status.code() == Some(2) {
        Ok(text(&ended.stderr))
    } else {
        Err(shown(&command, &ended).into())
    }
}

/// The images of a file: the kinds, device and digest of each.
fn images(work: &Work, file: &str) -> Result<Vec<String>, Failed> {
    let text = stdout_of(work, ["inspect", "--json", file])?;
    let json: Value = serde_json::from_str(&text)?;
    let images = json["files"][0]["images"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let one = |image: &Value| {
        format!(
            "{} {} {} {}",
            image["kinds"], image["triple"], image["target"], image["sha256"]
        )
    };
    Ok(images.iter().map(one).collect())
}

/// The devices of the images in a file.
fn targets(work: &Work, file: &str) -> Result<String, Failed> {
    let text = stdout_of(work, ["inspect", "--json", file])?;
    let json: Value = serde_json::from_str(&text)?;
    let images = json["files"][0]["images"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let device = images
        .iter()
        .filter(|image| image["kinds"][0] != "host")
        .map(|image| {
            let name = |key: &str| image[key].as_str().unwrap_or_default().to_owned();
            Some(name("target"))
                .filter(|name| !name.is_empty() && name != "generic")
                .unwrap_or_else(|| name("triple"))
        });
    Ok(device.collect::<Vec<_>>().join(" "))
}

/// Creates `main.o` for the CPU and gfx90a.
fn object(work: &Work) -> Result<(), Failed> {
    work.file("main.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(TWO)
        .args(["-c", "main.c", "-o", "main.o"]))?;
    Ok(())
}

/// Links `main.o` to `name`, with the additional arguments `words`.
fn program(work: &Work, name: &str, words: &[&str]) -> Result<(), Failed> {
    let mut link = work.command(llvm("clang"));
    link.args(TWO).args([
        "-Xoffload-linker",
        "-z",
        "-Xoffload-linker",
        "undefs",
        "main.o",
        "-o",
        name,
    ]);
    run(link.arg("-B").arg(&made().links).args(words))?;
    Ok(())
}

/// Creates `kernels.o` for three AMD GPUs, with HIP.
fn hip_object(work: &Work, words: &[&str]) -> Result<(), Failed> {
    work.file("kernels.hip", HIP);
    let archs = [
        "--offload-arch=gfx90a",
        "--offload-arch=gfx908",
        "--offload-arch=gfx1100",
    ];
    let mut compile = work.command(llvm("clang++"));
    compile
        .args(["-x", "hip", "-nogpulib", "-nogpuinc", "-O1", "-cuid=1"])
        .args(archs)
        .args(words);
    run(compile.args(["-c", "kernels.hip", "-o", "kernels.o"]))?;
    Ok(())
}

/// Runs a program, which must use an OpenMP device. Returns its output.
fn ran(work: &Work, name: &str) -> Result<String, Failed> {
    run_offloaded(
        work.command(work.path().join(name))
            .env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib"),
    )
}

/// Fails unless both files have the same bytes.
fn same(one: &Path, other: &Path) -> Result<(), Failed> {
    let (first, second) = (std::fs::read(one)?, std::fs::read(other)?);
    if first == second {
        return Ok(());
    }
    let at = first
        .iter()
        .zip(&second)
        .take_while(|(one, other)| one == other)
        .count();
    Err(format!(
        "{} ({} bytes) and {} ({} bytes) differ at {at:#x}",
        one.display(),
        first.len(),
        other.display(),
        second.len()
    )
    .into())
}
