//! Faults in the creation of images and of their registration: F31, F32, F34, F35.

use libtest_mimic::{Failed, Trial};

use crate::kit::{HOST, Image};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, expect_equal, expect_in, expect_not_in, llvm, made, output,
    passed, run, run_failing, run_offloaded, stderr_of, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f31_a_32_bit_host_has_its_own_layout", f31),
        with_llvm("faults::f32_memory_does_not_grow_with_the_image", f32),
        with_llvm(
            "faults::f34_a_device_image_needs_no_runtime_and_no_loader",
            f34_needed,
        ),
        with_llvm("faults::f35_riscv64_is_a_device", f35),
    ]
}

fn f31() -> Outcome {
    let work = Work::new();
    let entry = "struct entry { unsigned long long r; unsigned short v, k; unsigned f; void *a; char *n; unsigned long long s, d; void *x; };
__attribute__((weak, section(\"llvm_offload_entries\"))) struct entry entry_of_a = { .v = 1, .k = 1 };\n";
    work.fat_for("i386-unknown-linux-gnu", "a.o", &[Image::host("A")], entry)?;
    let triple = "--host-triple=i386-unknown-linux-gnu";
    let printed = output(&mut work.wrapper([triple, "--print-wrapped-module", "-o", "x", "a.o"]))?;
    let module = text(&printed.stderr);
    expect_in(&module, "target datalayout = \"e-m:e-p:32:32-")?;
    expect_in(&module, "target triple = \"i386-unknown-linux-gnu\"")?;
    expect_in(
        &module,
        "%struct.__tgt_offload_entry = type { i64, i16, i16, i32, ptr, ptr, i64, i64, ptr }",
    )?;
    let object = work.registration_object()?;
    let headers = run(work
        .command(llvm("llvm-readelf"))
        .args(["-h", "-r"])
        .arg(&object))?;
    expect_in(&headers, "Class:                             ELF32")?;
    expect_in(&headers, "R_386_")?;
    // Four 32-bit words: a count and three pointers.
    let symbols = run(work.command(llvm("llvm-nm")).arg("-S").arg(&object))?;
    let descriptor = symbols
        .lines()
        .find(|line| line.ends_with(" .omp_offloading.descriptor"))
        .unwrap_or_default();
    expect_in(descriptor, " 00000010 ")?;
    // Entries of older generations contain a size_t, so they have 20 bytes here.
    work.fat_for(
        "i386-unknown-linux-gnu",
        "old.o",
        &[Image::host("A")],
        "__attribute__((section(\"omp_offloading_entries\"))) char entry[20];\n",
    )?;
    let printed =
        output(&mut work.wrapper([triple, "--print-wrapped-module", "-o", "x", "old.o"]))?;
    expect_in(
        &text(&printed.stderr),
        "%struct.__tgt_offload_entry = type { ptr, ptr, i32, i32, i32 }",
    )?;
    passed()
}

/// A host linker that records the peak memory of its parent in kilobytes and writes no output.
const MEASURE: &str =
    "#!/bin/sh\nsed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\) kB$/\\1/p' /proc/$PPID/status > peak\n";
/// A device compiler that writes the big image.
const COPY: &str = r#"#!/bin/sh
[ "$1" = -dumpversion ] && { echo 22.1.8; exit; }
while [ $# -gt 0 ]; do case $1 in -o) out=$2; shift ;; esac; shift; done
cp big "$out"
"#;

fn f32() -> Outcome {
    const IMAGE: u64 = 200 << 20;
    let work = Work::new();
    // A sparse file needs no disk space, but reading it costs as much as reading any other file.
    std::fs::File::create(work.path().join("big"))?.set_len(IMAGE)?;
    work.tool("tools/clang", COPY);
    work.tool("tools/linker", MEASURE);
    work.fat("a.o", &[Image::host("A")])?;
    let peak = |command: &mut std::process::Command| -> Result<u64, Failed> {
        run(command)?;
        Ok(std::fs::read_to_string(work.path().join("peak"))?
            .trim()
            .parse()?)
    };
    let ours = peak(&mut work.wrapper(["-o", "x", "a.o"]))?;
    work.expect_no_temps()?;
    std::fs::remove_dir_all(work.path().join("tmp"))?;
    let theirs = peak(&mut work.reference(["-o", "x", "a.o"]))?;
    if ours > 100 << 10 || theirs < 200 << 10 {
        return Err(format!(
            "peak for an image of 200 MiB: ours {ours} kB (at most 100 MiB), LLVM's {theirs} kB"
        )
        .into());
    }
    passed()
}

/// The dynamic section of a program's device image.
fn needed(work: &Work, program: &str) -> Result<String, Failed> {
    let extract = format!("--image=file={program}.img,triple={HOST}");
    run(work
        .command(llvm("llvm-offload-binary"))
        .args([program, &extract]))?;
    let dynamic = run(work
        .command(llvm("llvm-readelf"))
        .args(["-d", &format!("{program}.img")]))?;
    Ok(dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .map(|line| format!("{line}\n"))
        .collect())
}

fn f34_needed() -> Outcome {
    let work = Work::new();
    let source = "#include <math.h>\n#include <stdio.h>\nint main(int argc, char **argv) { double x = argc * 2.25;
#pragma omp target map(tofrom: x)\n x = sqrt(pow(x, 2));\n printf(\"%g\\n\", x); }\n";
    work.file("p.c", source);
    work.run(
        llvm("clang"),
        [&OFFLOAD[..], &["-c", "p.c", "-o", "p.o"]].concat(),
    )?;
    for program in ["ours", "theirs"] {
        let mut link = work.command(llvm("clang"));
        link.args(OFFLOAD).args(["p.o", "-lm", "-o", program]);
        if program == "ours" {
            link.arg("-B").arg(&made().links);
        }
        run(&mut link)?;
        expect_equal(
            "stdout",
            "2.25\n",
            &run_offloaded(&mut work.command(format!("./{program}")))?,
        )?;
    }
    let ours = needed(&work, "ours")?;
    expect_in(&ours, "[libm.so.6]")?;
    for unwanted in ["ld-linux", "omptarget"] {
        expect_not_in(&ours, unwanted)?;
        expect_in(&needed(&work, "theirs")?, unwanted)?;
    }
    passed()
}

fn f35() -> Outcome {
    let work = Work::new();
    let triple = "riscv64-unknown-linux-gnu";
    work.fat(
        "a.o",
        &[Image {
            triple,
            arch: "generic",
            kind: "openmp",
            bytes: b"A",
        }],
    )?;
    let riscv = [
        "--host-triple=riscv64-unknown-linux-gnu",
        "--dry-run",
        "-o",
        "x",
        "a.o",
    ];
    let ours = stderr_of(&mut work.wrapper(riscv))?;
    let device = ours.lines().next().unwrap_or_default();
    for wanted in [
        "--target=riscv64-unknown-linux-gnu",
        "-Wl,--no-undefined",
        "-Wl,-Bsymbolic",
        "-shared",
    ] {
        expect_in(device, wanted)?;
    }
    expect_in(
        &run_failing(&mut work.reference(riscv))?,
        "riscv64 linking is not supported",
    )?;
    // A real device link, with clang's support for this architecture and without libraries.
    work.file("d.c", "int add(int a, int b) { return a + b; }\n");
    let target = format!("--target={triple}");
    work.run(
        llvm("clang"),
        [&target, "-fPIC", "-O1", "-c", "d.c", "-o", "d.o"],
    )?;
    let device = std::fs::read(work.path().join("d.o"))?;
    work.fat(
        "real.o",
        &[Image {
            triple,
            arch: "generic",
            kind: "openmp",
            bytes: &device,
        }],
    )?;
    let lld = format!("{LLVM}/ld.lld");
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.env("OFFLD_CLANG", llvm("clang")).args([
        "--host-triple=x86_64-unknown-linux-gnu",
        &format!("--linker-path={lld}"),
    ]);
    link.args([
        "--device-compiler=-nostdlib",
        "-shared",
        "-o",
        "x.so",
        "real.o",
    ]);
    run(&mut link)?;
    let listing = run(work
        .command(llvm("llvm-objdump"))
        .args(["--offloading", "x.so"]))?;
    expect_in(&listing, triple)?;
    work.run(
        llvm("llvm-offload-binary"),
        ["x.so", &format!("--image=file=image,triple={triple}")],
    )?;
    let header = run(work.command(llvm("llvm-readelf")).args(["-h", "image"]))?;
    for wanted in ["RISC-V", "DYN (Shared object file)"] {
        expect_in(&header, wanted)?;
    }
    passed()
}
