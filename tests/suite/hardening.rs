//! Device code must not cost a program its hardening: control-flow protection, which every object
//! of a program must have, and sanitizers, whose runtime can be in a process only once.

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use super::kit::{AMD, Image};
use super::support::{
    OFFLOAD, Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made,
    missing, offld, output, passed, run, run_failing, run_offloaded, shown, test, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("hardening::control-flow::every-link", every_link),
        with_llvm(
            "hardening::control-flow::only-what-all-have",
            only_what_all_have,
        ),
        with_llvm(
            "hardening::control-flow::lto-and-archives",
            lto_and_archives,
        ),
        with_llvm("hardening::control-flow::other-hosts", other_hosts),
        with_llvm("hardening::control-flow::cache", protection_is_in_the_key),
        test("hardening::sanitizers::address", || {
            sanitizer("address", &[])
        }),
        test("hardening::sanitizers::address-shared-runtime", || {
            sanitizer("address", &["-shared-libsan"])
        }),
        test("hardening::sanitizers::undefined", || {
            sanitizer("undefined", &[])
        }),
        test("hardening::sanitizers::thread", || sanitizer("thread", &[])),
        with_llvm("hardening::sanitizers::host-code", host_code),
        test("hardening::sanitizers::profile", profile),
        test("hardening::sanitizers::gcc", by_gcc),
    ]
}

const KERNEL: &str = "int kernel(int y) {
  int r = 0;
#pragma omp target map(from : r)
  r = y * 2;
  return r;
}
";

/// The control-flow protection recorded in a file.
fn protection(work: &Work, file: &str) -> Result<String, Failed> {
    let notes = work.run("readelf", ["-n", file])?;
    let line = notes.lines().find(|line| line.contains("feature:"));
    Ok(line
        .and_then(|line| line.split("feature: ").nth(1))
        .unwrap_or("none")
        .trim()
        .to_owned())
}

/// Compiles an object with device code for the host.
fn compile(work: &Work, source: &str, args: &[&str], object: &str) -> Result<(), Failed> {
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-fPIC", "-c", source, "-o", object])
        .args(args))
    .map(drop)
}

/// Links only the given objects into a library with offld.
fn library(work: &Work, args: &[&str], late: bool) -> Result<String, Failed> {
    let mut link = work.command(llvm("clang"));
    link.env("OFFLD_LATE_IMAGES", if late { "on" } else { "off" });
    let output = output(
        link.args(OFFLOAD)
            .arg("-B")
            .arg(&made().links)
            .args(["-nostartfiles"])
            .args(args),
    )?;
    ensure(output.status.success(), || shown(&link, &output))?;
    Ok(text(&output.stderr))
}

/// With each linker that checks protection: with immediate and late images, and after a second
/// link.
fn every_link() -> Outcome {
    let work = Work::new();
    work.file("kernel.c", KERNEL);
    compile(&work, "kernel.c", &["-fcf-protection=full"], "kernel.o")?;
    for linker in ["-fuse-ld=lld", "-fuse-ld=bfd"] {
        for late in [false, true] {
            for flag in ["cet-report=error", "force-ibt", "shstk"] {
                if flag == "force-ibt" && linker.ends_with("bfd") {
                    continue;
                }
                let stderr = library(
                    &work,
                    &["-shared", linker, "kernel.o", "-z", flag, "-o", "kernel.so"],
                    late,
                )?;
                expect_equal(
                    &format!("{linker} {flag}, late images {late}: messages"),
                    "",
                    &stderr,
                )?;
                expect_equal(
                    &format!("{linker} {flag}, late images {late}"),
                    "IBT, SHSTK",
                    &protection(&work, "kernel.so")?,
                )?;
            }
        }
        library(&work, &["-r", linker, "kernel.o", "-o", "partial.o"], false)?;
        expect_equal("-r", "IBT, SHSTK", &protection(&work, "partial.o")?)?;
        library(
            &work,
            &[
                "-shared",
                linker,
                "partial.o",
                "-z",
                "cet-report=error",
                "-o",
                "again.so",
            ],
            false,
        )?;
        expect_equal("-r, linked", "IBT, SHSTK", &protection(&work, "again.so")?)?;
    }
    // offld does not read the inputs of a link with --override-image.
    library(
        &work,
        &[
            "-shared",
            "-fuse-ld=lld",
            "kernel.o",
            "-Wl,--override-image=openmp=kernel.so",
            "-o",
            "other.so",
        ],
        false,
    )?;
    expect_equal(
        "another image",
        "IBT, SHSTK",
        &protection(&work, "other.so")?,
    )?;
    // Registration code starts with an instruction that the CPU accepts as a jump target.
    let code = work.run(
        llvm("llvm-objdump"),
        ["-d", "--no-show-raw-insn", "kernel.so"],
    )?;
    let function = code
        .split("omp_offloading.descriptor_reg>:")
        .nth(1)
        .and_then(|after| after.lines().nth(1));
    expect_in(function.unwrap_or_default(), "endbr64")?;
    passed()
}

/// Objects without protection remove it from the program, with or without offld. Registration code
/// has only the protection that all objects have.
fn only_what_all_have() -> Outcome {
    let work = Work::new();
    work.file("kernel.c", KERNEL);
    work.file("other.c", KERNEL.replace("kernel", "other"));
    compile(&work, "kernel.c", &["-fcf-protection=full"], "kernel.o")?;
    for (args, expected) in [
        ("-fcf-protection=none", "none"),
        ("-fcf-protection=branch", "IBT"),
        ("-fcf-protection=return", "SHSTK"),
    ] {
        compile(&work, "other.c", &[args], "other.o")?;
        library(
            &work,
            &[
                "-shared",
                "-fuse-ld=lld",
                "kernel.o",
                "other.o",
                "-o",
                "both.so",
            ],
            false,
        )?;
        expect_equal(args, expected, &protection(&work, "both.so")?)?;
        let mut link = work.command(llvm("clang"));
        link.args(OFFLOAD).arg("-B").arg(&made().links).args([
            "-shared",
            "-nostartfiles",
            "-fuse-ld=lld",
            "other.o",
            "-o",
            "x.so",
        ]);
        let printed = output(link.arg("-Wl,--print-wrapped-module"))?;
        ensure(printed.status.success(), || shown(&link, &printed))?;
        let module = text(&printed.stdout) + &text(&printed.stderr);
        for (flag, is_there) in [
            ("cf-protection-branch", expected == "IBT"),
            ("cf-protection-return", expected == "SHSTK"),
        ] {
            ensure(module.contains(flag) == is_there, || {
                format!("{args}: {module}")
            })?;
        }
        let code = work.run(llvm("llvm-objdump"), ["-d", "--no-show-raw-insn", "x.so"])?;
        let function = code
            .split("omp_offloading.descriptor_reg>:")
            .nth(1)
            .and_then(|after| after.lines().nth(1));
        let function = function.ok_or("no registration code")?;
        ensure(function.contains("endbr64") == (expected == "IBT"), || {
            format!("{args}: {function}")
        })?;
    }
    passed()
}

/// Bitcode has the protection of the object that the host link creates from it. An archive member
/// has that of its object.
fn lto_and_archives() -> Outcome {
    let work = Work::new();
    work.file("kernel.c", KERNEL);
    work.file(
        "user.c",
        "int kernel(int);\nint user(int x) { return kernel(x); }\n",
    );
    run(work.command(llvm("clang")).args([
        "-O1",
        "-fPIC",
        "-fcf-protection=full",
        "-c",
        "user.c",
    ]))?;
    for (protect, expected) in [
        ("-fcf-protection=full", "IBT, SHSTK"),
        ("-fcf-protection=none", "none"),
    ] {
        compile(&work, "kernel.c", &[protect, "-flto"], "kernel.o")?;
        library(
            &work,
            &[
                "-shared",
                "-fuse-ld=lld",
                "-flto",
                "kernel.o",
                "user.o",
                "-o",
                "lto.so",
            ],
            false,
        )?;
        expect_equal(
            &format!("-flto {protect}"),
            expected,
            &protection(&work, "lto.so")?,
        )?;
        compile(&work, "kernel.c", &[protect], "member.o")?;
        let _ = std::fs::remove_file(work.path().join("libkernel.a"));
        work.archive("libkernel.a", &["member.o"])?;
        library(
            &work,
            &[
                "-shared",
                "-fuse-ld=lld",
                "user.o",
                "-L.",
                "-lkernel",
                "-o",
                "member.so",
            ],
            false,
        )?;
        expect_equal(
            &format!("a member {protect}"),
            expected,
            &protection(&work, "member.so")?,
        )?;
    }
    passed()
}

/// The protection marks of other hosts, with GPU images.
fn other_hosts() -> Outcome {
    let hosts = [
        (
            "aarch64-unknown-linux-gnu",
            "-mbranch-protection=standard",
            "aarch64elf",
            0b11,
        ),
        (
            "aarch64-unknown-linux-gnu",
            "-mbranch-protection=bti",
            "aarch64elf",
            1,
        ),
        (
            "aarch64-unknown-linux-gnu",
            "-mbranch-protection=none",
            "aarch64elf",
            0,
        ),
        (
            "i686-unknown-linux-gnu",
            "-fcf-protection=full",
            "elf_i386",
            0b11,
        ),
        ("riscv64-unknown-linux-gnu", "-O1", "elf64lriscv", 0),
    ];
    for (host, args, emulation, expected) in hosts {
        let work = Work::new();
        let image = [Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "openmp",
            bytes: b"IMAGE",
        }];
        let packed = work.pack("packed", &image)?;
        let source = work.file("a.c", "int a(int x) { return x; }\n");
        let mut compile = work.command(llvm("clang"));
        compile
            .arg(format!("--target={host}"))
            .arg(args)
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg("a.o");
        run(compile
            .args(["-fPIC", "-Xclang"])
            .arg(format!("-fembed-offload-object={}", packed.display())))?;
        let linker = format!("--linker-path={}", llvm("ld.lld").display());
        let flag = if emulation.starts_with("aarch64") && expected == 0b11 {
            "force-bti"
        } else {
            "separate-code"
        };
        let triple = format!("--host-triple={host}");
        let args = [
            &triple[..],
            &linker,
            "-m",
            emulation,
            "-shared",
            "-z",
            flag,
            "a.o",
            "-o",
            "a.so",
        ];
        let linked = output(&mut work.wrapper(args))?;
        ensure(linked.status.success(), || text(&linked.stderr))?;
        expect_not_in(&text(&linked.stderr), "force-bti")?;
        let notes = work.run(
            llvm("llvm-readelf"),
            ["-n", "--elf-output-style=JSON", "a.so"],
        )?;
        let shown = work.run(llvm("llvm-readelf"), ["-n", "a.so"])?;
        let features: [(u32, &[&str]); 2] = [(1, &["BTI", "IBT"]), (2, &["PAC", "SHSTK"])];
        for (bit, names) in features {
            let is_there = names.iter().any(|name| shown.contains(name));
            ensure(is_there == (expected & bit != 0), || {
                format!("{host} {args:?}: {shown}{notes}")
            })?;
        }
    }
    passed()
}

/// The cache holds separate registration objects with and without protection.
fn protection_is_in_the_key() -> Outcome {
    let work = Work::new();
    work.file("kernel.c", KERNEL);
    let cache = work.path().join("cache");
    for (protect, expected) in [
        ("full", "IBT, SHSTK"),
        ("none", "none"),
        ("branch", "IBT"),
        ("full", "IBT, SHSTK"),
        ("none", "none"),
    ] {
        compile(
            &work,
            "kernel.c",
            &[&format!("-fcf-protection={protect}")],
            "kernel.o",
        )?;
        let mut link = work.command(llvm("clang"));
        link.args(OFFLOAD).arg("-B").arg(&made().links).args([
            "-shared",
            "-nostartfiles",
            "-fuse-ld=lld",
            "kernel.o",
        ]);
        run(link.args(["-o", "kernel.so"]).env("OFFLD_CACHE", &cache))?;
        expect_equal(protect, expected, &protection(&work, "kernel.so")?)?;
        let code = work.run(
            llvm("llvm-objdump"),
            ["-d", "--no-show-raw-insn", "kernel.so"],
        )?;
        let function = code
            .split("omp_offloading.descriptor_reg>:")
            .nth(1)
            .and_then(|after| after.lines().nth(1));
        let begins = function.ok_or("no registration code")?.contains("endbr64");
        ensure(begins == expected.contains("IBT"), || {
            format!("{protect}: {function:?}")
        })?;
    }
    passed()
}

/// The directory of clang's runtimes, from the package libclang-rt-22-dev.
fn runtimes() -> Option<PathBuf> {
    let folder = Path::new("/usr/lib/llvm-22/lib/clang/22/lib/linux");
    folder
        .join("libclang_rt.asan-x86_64.a")
        .exists()
        .then(|| folder.to_owned())
}

const MAIN: &str = "#include <omp.h>
#include <stdio.h>
int main(void) {
  int r = 0, host = 1, a[4] = {1, 2, 3, 4};
#pragma omp target map(from : r, host) map(to : a)
  {
    host = omp_is_initial_device();
    r = a[1] + 40;
  }
  printf(\"%d on %s\\n\", r, host ? \"the host\" : \"the device\");
  return 0;
}
";

/// Links a program with device code for the host and these options, with immediate and late images.
/// Its image must not contain the sanitizer runtime.
fn sanitizer(name: &str, more: &[&str]) -> Outcome {
    let Some(folder) = runtimes() else {
        return missing("libclang-rt-22-dev");
    };
    let work = Work::new();
    work.file("main.c", MAIN);
    let sanitize = format!("-fsanitize={name}");
    let args = [OFFLOAD[0], OFFLOAD[1], &sanitize];
    run(work
        .command(llvm("clang"))
        .args(args)
        .args(["-O1", "-c", "main.c"]))?;
    for late in ["off", "on"] {
        for linker in ["-fuse-ld=lld", "-fuse-ld=bfd"] {
            let mut link = work.command(llvm("clang"));
            link.args(args)
                .args(more)
                .arg("-B")
                .arg(&made().links)
                .args([linker, "main.o", "-o", "program"]);
            run(link.env("OFFLD_LATE_IMAGES", late))?;
            let libraries = [Release::newest().lib, folder.clone()];
            let libraries = std::env::join_paths(libraries).map_err(|error| error.to_string())?;
            let mut program = work.command("./program");
            // The OpenMP runtimes are not instrumented.
            program
                .env("ASAN_OPTIONS", "detect_leaks=0")
                .env("TSAN_OPTIONS", "report_bugs=0")
                .env("LD_LIBRARY_PATH", libraries);
            expect_equal(
                name,
                "42 on the device\n",
                &run(program.env("OMP_TARGET_OFFLOAD", "MANDATORY"))?,
            )?;
        }
    }
    // A sanitizer runtime has a megabyte or more.
    work.run(offld(), ["inspect", "--extract", "images", "program"])?;
    for image in std::fs::read_dir(work.path().join("images"))? {
        let size = image?.metadata()?.len();
        ensure(size < 100_000, || format!("an image of {size} bytes"))?;
    }
    passed()
}

/// A call to a host-only function is a link error, although the image leaves the sanitizer's
/// functions undefined.
fn host_code() -> Outcome {
    if runtimes().is_none() {
        return missing("libclang-rt-22-dev");
    }
    let work = Work::new();
    work.file(
        "main.c",
        MAIN.replace("int main", "int helper(int);\nint main")
            .replace("a[1] + 40", "helper(a[1])"),
    );
    work.file("helper.c", "int helper(int x) { return x + 40; }\n");
    let args = [OFFLOAD[0], OFFLOAD[1], "-fsanitize=address"];
    run(work
        .command(llvm("clang"))
        .args(args)
        .args(["-O1", "-c", "main.c"]))?;
    run(work.command(llvm("clang")).args([
        "-fsanitize=address",
        "-fPIC",
        "-O1",
        "-c",
        "helper.c",
    ]))?;
    let link = |helper: &str| {
        let mut link = work.command(llvm("clang"));
        link.args(args)
            .arg("-B")
            .arg(&made().links)
            .args(["main.o", helper, "-o", "program"]);
        link
    };
    expect_in(
        &run_failing(&mut link("helper.o"))?,
        "`helper` is host code: helper.o defines it, for no device",
    )?;
    // An archive is also a library for the image.
    work.archive("libhelper.a", &["helper.o"])?;
    run(&mut link("libhelper.a"))?;
    let mut program = work.command("./program");
    expect_equal(
        "archive",
        "42 on the device\n",
        &run_offloaded(program.env("ASAN_OPTIONS", "detect_leaks=0"))?,
    )?;
    passed()
}

/// Every library contains the profile runtime, as in links by clang.
fn profile() -> Outcome {
    if runtimes().is_none() {
        return missing("libclang-rt-22-dev");
    }
    let work = Work::new();
    work.file("main.c", MAIN);
    let args = [OFFLOAD[0], OFFLOAD[1], "-fprofile-instr-generate"];
    run(work
        .command(llvm("clang"))
        .args(args)
        .args(["-O1", "-c", "main.c"]))?;
    let mut link = work.command(llvm("clang"));
    run(link
        .args(args)
        .arg("-B")
        .arg(&made().links)
        .args(["main.o", "-o", "program"]))?;
    expect_equal(
        "profile",
        "42 on the device\n",
        &run_offloaded(&mut work.command("./program"))?,
    )?;
    passed()
}

/// GCC's driver links objects of clang with its own sanitizer runtime, shared or static.
fn by_gcc() -> Outcome {
    let work = Work::new();
    work.file("main.c", MAIN);
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-fPIE", "-c", "main.c"]))?;
    for more in [&[][..], &["-static-libasan"]] {
        let mut link = work.command("gcc");
        link.arg("-B")
            .arg(&made().as_ld)
            .args(["-fsanitize=address", "main.o", "-o", "program"])
            .args(more);
        run(&mut link)?;
        let mut program = work.command("./program");
        program.env("ASAN_OPTIONS", "detect_leaks=0");
        expect_equal("gcc", "42 on the device\n", &run_offloaded(&mut program)?)?;
    }
    passed()
}
