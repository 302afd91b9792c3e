//! Late links of every kind of program: static, static-pie, shared libraries, and for aarch64.

use libtest_mimic::{Failed, Trial};

use super::LINKERS;
use crate::kit::{HOLES, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, made, missing, offld, passed, run,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for linker in LINKERS {
        for kind in ["static", "static-pie", "shared"] {
            // gold cannot link such programs.
            if (linker, kind) == ("gold", "static-pie") {
                continue;
            }
            trials.push(with_llvm(
                &format!("late::everywhere::{linker}_{kind}"),
                move || runs_in_every_state(linker, kind),
            ));
        }
    }
    trials.extend(["lld", "bfd"].map(|linker| {
        with_llvm(&format!("late::everywhere::aarch64_{linker}"), move || {
            aarch64(linker)
        })
    }));
    trials
}

/// A runtime that prints the size and the first bytes of each image.
const RUNTIME: &str = r#"#include <stdio.h>
struct image { const char *start, *end; const void *first, *last; };
struct descriptor { int count; struct image *images; const void *first, *last; };
void __tgt_register_lib(struct descriptor *d) {
  for (int i = 0; i < d->count; i++)
    printf("%d bytes: %.12s\n", (int)(d->images[i].end - d->images[i].start), d->images[i].start);
}
void __tgt_unregister_lib(struct descriptor *d) { (void)d; }
void __tgt_init_all_rtls(void) {}
"#;

/// The output of a program whose images have 100,000 bytes.
const OUTPUT: &str = "100000 bytes: first of gfx\n100000 bytes: first of gfx\nruns\n";

/// Compiles the inputs for a host: `main.o` with device code, and `runtime.o`.
fn inputs(work: &Work, host: &str) -> Result<(), Failed> {
    let images = ["gfx906", "gfx90a"].map(|arch| Image::amd(arch, "A"));
    let source = "int puts(const char *);\nint main(void) { puts(\"runs\"); return 0; }\n";
    work.fat_for(host, "main.o", &images, source)?;
    work.file("runtime.c", RUNTIME);
    run(work
        .command(llvm("clang"))
        .arg(format!("--target={host}"))
        .args([
            "-ffreestanding",
            "-fPIC",
            "-c",
            "runtime.c",
            "-o",
            "runtime.o",
        ]))?;
    Ok(())
}

fn runs_in_every_state(linker: &str, kind: &str) -> Outcome {
    let work = Work::new();
    let compiler = work.tool("tools/clang", &HOLES.replace("SIZE", "99996"));
    let images = ["gfx906", "gfx90a"].map(|arch| Image::amd(arch, "A"));
    let in_library = "int puts(const char *);\nint run(void) { puts(\"runs\"); return 0; }\n";
    inputs(&work, "x86_64-unknown-linux-gnu")?;
    // `fat_with` uses clang's default code model. PIE code is sufficient for this library.
    work.fat_with("library.o", &images, in_library)?;
    let link = |args: &[&str], late: &str| {
        let mut link = work.command(llvm("clang"));
        link.args(["--offload-link", "-Wl,--no-offload-runtime", "-B"])
            .arg(&made().links)
            .arg(format!("-fuse-ld={linker}"));
        link.args(args)
            .env("OFFLD_CLANG", &compiler)
            .env("OFFLD_LATE_IMAGES", late);
        link
    };
    for late in ["off", "on"] {
        if kind == "shared" {
            work.file(
                "user.c",
                "int run(void);\nint main(void) { return run(); }\n",
            );
            run(work
                .command(llvm("clang"))
                .args(["-fPIC", "-c", "user.c", "-o", "user.o"]))?;
            run(&mut link(
                &["-shared", "library.o", "runtime.o", "-o", "libdevice.so"],
                late,
            ))?;
            run(work.command(llvm("clang")).args([
                "user.o",
                "-L.",
                "-ldevice",
                "-Wl,-rpath,$ORIGIN",
                "-o",
                "program",
            ]))?;
        } else {
            run(&mut link(
                &[&format!("-{kind}"), "main.o", "runtime.o", "-o", "program"],
                late,
            ))?;
        }
        expect_equal(
            &format!("late: {late}"),
            OUTPUT,
            &without_arch_numbers(&run(&mut work.command("./program"))?),
        )?;
    }
    let file = if kind == "shared" {
        "libdevice.so"
    } else {
        "program"
    };
    run(work.command("strip").arg(file))?;
    expect_equal(
        "stripped",
        OUTPUT,
        &without_arch_numbers(&run(&mut work.command("./program"))?),
    )?;
    run(work
        .command(offld())
        .args(["prune", "--drop", "gfx906", file, "--in-place"]))?;
    let left = run(&mut work.command("./program"))?;
    expect_equal(
        "pruned",
        "100000 bytes: first of gfx\nruns\n",
        &without_arch_numbers(&left),
    )?;
    work.expect_no_temps()?;
    passed()
}

/// The output of a program without the numbers of architectures.
fn without_arch_numbers(output: &str) -> String {
    output
        .replace("gfx906", "gfx")
        .replace("gfx90a", "gfx")
        .replace("gfx9\n", "gfx\n")
        .replace("gfx90\n", "gfx\n")
}

fn aarch64(linker: &str) -> Outcome {
    let found = |tool: &str| {
        std::env::var_os("PATH").is_some_and(|path| {
            std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
        })
    };
    if !found("qemu-aarch64") || !found("aarch64-linux-gnu-gcc") {
        return missing("Debian's qemu-user, gcc-aarch64-linux-gnu and libc6-dev-arm64-cross");
    }
    let work = Work::new();
    let compiler = work.tool("tools/clang", &HOLES.replace("SIZE", "99996"));
    inputs(&work, "aarch64-linux-gnu")?;
    for args in [&["-pie"][..], &["-no-pie"], &["-static"]] {
        let mut sizes = Vec::new();
        for late in ["off", "on"] {
            let mut link = work.command(llvm("clang"));
            link.args([
                "--target=aarch64-linux-gnu",
                "--offload-link",
                "-Wl,--no-offload-runtime",
                "-B",
            ])
            .arg(&made().links);
            if linker == "bfd" {
                link.arg("-Wl,--offld-linker=/usr/bin/aarch64-linux-gnu-ld.bfd");
            } else {
                link.arg("-fuse-ld=lld");
            }
            link.args(args)
                .args(["main.o", "runtime.o", "-o", "program"]);
            run(link
                .env("OFFLD_CLANG", &compiler)
                .env("OFFLD_LATE_IMAGES", late))?;
            let ended = work.run(
                "qemu-aarch64",
                ["-L", "/usr/aarch64-linux-gnu", "./program"],
            )?;
            expect_equal(
                &format!("{args:?}, late: {late}"),
                OUTPUT,
                &without_arch_numbers(&ended),
            )?;
            sizes.push(std::fs::metadata(work.path().join("program"))?.len());
            let headers = work.run("readelf", ["-lW", "program"])?;
            let loads: Vec<&str> = headers
                .lines()
                .filter(|line| line.trim_start().starts_with("LOAD"))
                .collect();
            ensure(!loads.is_empty(), || headers.clone())?;
            if late == "on" {
                expect_in(
                    &work.run("readelf", ["-SW", "program"])?,
                    ".llvm.offloading",
                )?;
            }
        }
        // Padding of up to 64 KiB pages may be between existing contents and the images.
        ensure(sizes[1] < sizes[0] + (192 << 10), || {
            format!("{args:?}: {} bytes, late {}", sizes[0], sizes[1])
        })?;
    }
    passed()
}
