//! Kernels and variables that host code registers stay in the image, even if device LTO would
//! remove them. Also links of more inputs than fit on a command line.

use std::fs;

use libtest_mimic::{Failed, Trial};

use super::Site;
use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made, offld, output,
    passed, run, stderr_of, test, text,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        test(
            "releases::nvidia::hidden_kernels_that_host_code_registers_are_kept",
            hidden,
        ),
        test(
            "releases::nvidia::symbols_that_the_line_requires_are_kept",
            required,
        ),
    ];
    trials.extend({
        let mut trials = Vec::new();
        for (major, bitcode) in [(22, true), (22, false), (19, true)] {
            let what = if bitcode { "bitcode" } else { "machine_code" };
            trials.push(test(
                format!("releases::nvidia::two_thousand_inputs::{major}::{what}"),
                move || many(major, bitcode),
            ));
        }
        trials
    });
    trials
}

const SOURCE: &str = "
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define HIDDEN __attribute__((visibility(\"hidden\")))
struct dim3 { unsigned x, y, z; };
typedef int cudaError_t; typedef unsigned long size_t;
extern \"C\" cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern \"C\" unsigned __cudaPushCallConfiguration(dim3, dim3, size_t = 0, void * = 0);
extern \"C\" cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
extern \"C\" HIDDEN __device__ int unused(int x) { return x + 1; }
HIDDEN __device__ int variable = 4;
";

/// Compiles `k.o`, CUDA code as bitcode with the kernels `bodies`, in a new directory.
fn compiled(cuda: &std::path::Path, bodies: &str) -> Result<Work, Failed> {
    let work = Work::new();
    work.file("k.cu", format!("{SOURCE}{bodies}"));
    run(clang(&work, cuda).args([
        "-x",
        "cuda",
        "-nocudainc",
        "-fPIC",
        "-c",
        "k.cu",
        "-o",
        "k.o",
    ]))?;
    Ok(work)
}

fn clang(work: &Work, cuda: &std::path::Path) -> std::process::Command {
    let mut command = work.command(llvm("clang++"));
    command.arg(format!("--cuda-path={}", cuda.display()));
    command.args([
        "-Wno-unknown-cuda-version",
        "-fgpu-rdc",
        "-foffload-lto",
        "--offload-arch=sm_80",
        "-nocudalib",
    ]);
    command
}

/// Links a library with `args`, and again from the cache. Returns stderr, which must be the same
/// for both, and the kernels.
fn linked(work: &Work, cuda: &std::path::Path, args: &[&str]) -> Result<(String, String), Failed> {
    let mut messages = Vec::new();
    for _ in 0..2 {
        let mut link = clang(work, cuda);
        link.args(["-shared", "--offload-link", "k.o", "-o", "lib.so", "-B"])
            .arg(&made().links)
            .args(args);
        messages.push(stderr_of(
            link.env("OFFLD_CACHE", work.path().join("cache")),
        )?);
    }
    expect_equal("messages of the cached link", &messages[0], &messages[1])?;
    Ok((
        messages.remove(0),
        run(work
            .command(offld())
            .args(["inspect", "--kernels", "lib.so"]))?,
    ))
}

fn hidden() -> Outcome {
    let site = match Site::new(22, true) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let cuda = site.work.path().join("toolkit");
    // With only hidden kernels and with some visible ones, because LTO treats these cases
    // differently.
    for visible in [
        "",
        "extern \"C\" __global__ void seen(int *p) { *p = 4; }\n",
    ] {
        let hidden = "extern \"C\" HIDDEN __global__ void kern(int *p) { *p = 3; }\n";
        let work = compiled(&cuda, &format!("{hidden}{visible}"))?;
        let (messages, kernels) = linked(&work, &cuda, &[])?;
        expect_equal("nothing to warn of", "", &messages)?;
        expect_in(&kernels, " kern\n")?;
        ensure(kernels.contains(" seen\n") != visible.is_empty(), || {
            kernels.clone()
        })?;
        // The host registers hidden variables, too. It does not register functions.
        work.run(offld(), ["inspect", "--extract", "images", "lib.so"])?;
        let symbols = work.run(
            "sh",
            [
                "-c",
                &format!("{} -sW images/*", llvm("llvm-readelf").display()),
            ],
        )?;
        expect_in(&symbols, " variable\n")?;
        for args in [
            &["check", "lib.so"][..],
            &["check", "--for", "sm_80", "lib.so"],
        ] {
            let checked = text(&output(work.command(offld()).args(args))?.stdout);
            expect_not_in(&checked, "verdict: no")?;
            expect_not_in(&checked, "is registered and not in")?;
        }
    }
    passed()
}

fn required() -> Outcome {
    let site = match Site::new(22, true) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let cuda = site.work.path().join("toolkit");
    let work = compiled(
        &cuda,
        "extern \"C\" __global__ void kern(int *p) { *p = 3; }\n",
    )?;
    for args in [
        &["-Xoffload-linker", "-u", "-Xoffload-linker", "kern"][..],
        &["-Xoffload-linker", "--undefined=kern"],
    ] {
        let (messages, kernels) = linked(&work, &cuda, args)?;
        expect_equal("nothing to warn of", "", &messages)?;
        expect_in(&kernels, " kern\n")?;
    }
    let (messages, _) = linked(&work, &cuda, &["-Xoffload-linker", "-unowhere"])?;
    expect_in(
        &messages,
        "warning: the image for nvptx64-nvidia-cuda (sm_80) lacks the symbol `nowhere`, which the command line requires (-u)",
    )?;
    passed()
}

fn many(major: u32, bitcode: bool) -> Outcome {
    const COUNT: usize = 2000;
    let site = match Site::new(major, bitcode) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let work = &site.work;
    work.file("w.cu", "extern \"C\" __attribute__((device)) __attribute__((weak)) int weak(int x) { return x * 5; }\n");
    let mut compile = work.command(site.release_compiler().join("clang++"));
    compile.args([
        "-x",
        "cuda",
        "-O1",
        "-nocudainc",
        "-nocudalib",
        "--offload-arch=sm_80",
        "-fgpu-rdc",
        "--cuda-device-only",
    ]);
    compile.args(["-Wno-unknown-cuda-version", "-c", "w.cu", "-o", "w.device"]);
    compile.arg(format!(
        "--cuda-path={}",
        work.path().join("toolkit").display()
    ));
    run(if bitcode {
        compile.arg("-emit-llvm")
    } else {
        &mut compile
    })?;
    work.fat(
        "w.o",
        &[Image::cuda(
            "sm_80",
            &fs::read(work.path().join("w.device"))?,
        )],
    )?;
    let names: Vec<String> = (0..COUNT)
        .map(|at| format!("{}_{at}.o", "a_long_name_of_a_source_".repeat(6)))
        .collect();
    for name in &names {
        fs::hard_link(work.path().join("w.o"), work.path().join(name))?;
    }
    let list = work.file("members", names.join("\n"));
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "libmany.a", &format!("@{}", list.display())]))?;
    let toolkit = format!("--cuda-path={}", work.path().join("toolkit").display());
    let args = [
        &toolkit,
        "b.o",
        "--whole-archive",
        "libmany.a",
        "--no-whole-archive",
    ];
    let (plain, _) = site.link(&args, &[], false)?;
    let long = work.path().join("tmp/a_folder_with_a_long_name".repeat(8));
    fs::create_dir_all(&long)?;
    let long = long.display().to_string();
    let (in_long, _) = site.link(&args, &[("TMPDIR", &long)], false)?;
    let (first, outcome) = site.link(&args, &[], true)?;
    ensure(outcome.0 == "miss", || format!("{outcome:?}"))?;
    let (second, outcome) = site.link(&args, &[("TMPDIR", &long)], true)?;
    ensure(outcome.0 == "hit", || format!("{outcome:?}"))?;
    ensure(
        plain == in_long && first == plain && second == plain,
        || "the images differ",
    )?;
    ensure(!plain.is_empty(), || "there is no image")?;
    passed()
}
