//! Arguments that a linker does not accept: ld.lld options for another device linker, empty
//! arguments, and symbols of HIP device code that host code does not have.

use libtest_mimic::Trial;

use crate::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made, offld,
    output, passed, run, run_offloaded, stderr_of, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "device_links::device_code_that_is_assembled_by_hand",
            by_hand,
        ),
        with_llvm(
            "device_links::kernels_that_an_image_lacks_are_a_warning",
            lacks_kernels,
        ),
        with_llvm(
            "device_links::llvm_options_reach_each_device_linker_in_its_words",
            llvm_options,
        ),
        with_llvm("device_links::empty_arguments_are_dropped", empty_arguments),
    ]
}

/// Host code and device code of one HIP source, compiled separately and assembled, with the device
/// code under a plain name.
fn by_hand() -> Outcome {
    let work = Work::new();
    work.file("host.s", ".section .hipFatBinSegment,\"aw\",@progbits\n.quad __hip_fatbin_0123456789abcdef\n.hidden __hip_fatbin_0123456789abcdef\n.section .note.GNU-stack,\"\",@progbits\n");
    work.file("device.s", ".section .hip_fatbin,\"a\",@progbits\n.globl __hip_fatbin\n__hip_fatbin: .quad 1\n.section .note.GNU-stack,\"\",@progbits\n");
    work.file("main.c", "int main(void) { return 0; }");
    work.run(llvm("clang"), ["-c", "host.s", "device.s", "main.c"])?;
    let inputs = ["main.o", "host.o", "device.o", "-o", "x"];
    let remedy = "--defsym=__hip_fatbin_0123456789abcdef=__hip_fatbin";
    let mut wrapper = work.command(made().links.join("clang-linker-wrapper"));
    wrapper.args([
        "--host-triple=x86_64-pc-linux-gnu",
        "--linker-path=/usr/bin/ld",
        "-e",
        "main",
    ]);
    let mut linker = work.command(made().links.join("ld.offld"));
    for (command, linker_env) in [
        (&mut wrapper, ""),
        (linker.args(["-e", "main"]), "/usr/bin/ld"),
    ] {
        if !linker_env.is_empty() {
            command.env("OFFLD_LINKER", linker_env);
        }
        let ended = output(command.args(inputs))?;
        let told = text(&ended.stderr);
        ensure(!ended.status.success(), || {
            format!("it should have failed: {told}")
        })?;
        expect_in(
            &told,
            "host.o needs `__hip_fatbin_0123456789abcdef`, but device.o defines plain `__hip_fatbin`",
        )?;
        expect_in(&told, "-fuse-cuid=none")?;
        expect_in(&told, remedy)?;
        let mended = stderr_of(command.arg(remedy))?;
        expect_not_in(&mended, "hip_fatbin")?;
    }
    // A later link can still add the device code.
    let mut again = work.command(made().links.join("ld.offld"));
    expect_equal(
        "relocatable",
        "",
        &stderr_of(
            again
                .args(["-r", "main.o", "host.o", "-o", "r.o"])
                .env("OFFLD_LINKER", "/usr/bin/ld"),
        )?,
    )?;
    passed()
}

const SOURCE: &str = "
#include <stdio.h>
static int twice(int x) { return x * 2; }
int main(void) {
  int x = 0;
#pragma omp target map(from : x)
  x = twice(4);
  printf(\"%d\\n\", x);
}
";

/// A version script hides the kernels of a CPU image. The link reports that, cached or not, and so
/// does `offld check` in either form.
fn lacks_kernels() -> Outcome {
    let work = Work::new();
    work.file("a.c", SOURCE);
    work.file("hide.map", "{ local: *; };\n");
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-c", "a.c"]))?;
    let script = format!(
        "--version-script={}",
        work.path().join("hide.map").display()
    );
    for linker in ["bfd", "lld"] {
        for _ in 0..2 {
            let mut link = work.command(llvm("clang"));
            link.args(OFFLOAD)
                .arg(format!("-fuse-ld={linker}"))
                .args(["-Xoffload-linker", &script, "-B"])
                .arg(&made().links);
            let stderr = stderr_of(
                link.args(["a.o", "-o", "program"])
                    .env("OFFLD_CACHE", work.path().join("cache")),
            )?;
            expect_in(
                &stderr,
                "warning: the image for x86_64-pc-linux-gnu lacks the kernel `__omp_offloading_",
            )?;
            expect_in(&stderr, "which a.o registers")?;
        }
        let for_device = (
            &["check", "--for", "x86-64", "program"][..],
            "is not in image 0",
        );
        for (words, expected) in [
            (
                &["check", "program"][..],
                "is registered and not in image 0",
            ),
            for_device,
        ] {
            let checked = text(&output(work.command(offld()).args(words))?.stdout);
            expect_in(&checked, "verdict: no")?;
            expect_in(&checked, expected)?;
        }
    }
    // A kernel with hidden visibility is harmless on a CPU, because the compiler makes it
    // protected.
    let mut link = work.command(llvm("clang"));
    link.args(OFFLOAD)
        .args([
            "-O1",
            "-fvisibility=hidden",
            "-foffload-lto",
            "a.c",
            "-o",
            "program",
            "-B",
        ])
        .arg(&made().links);
    expect_equal("nothing to warn of", "", &stderr_of(&mut link)?)?;
    passed()
}

fn llvm_options() -> Outcome {
    let work = Work::new();
    work.file("a.c", SOURCE);
    for lto in [&[][..], &["-foffload-lto"]] {
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(lto)
            .args(["-O1", "-c", "a.c"]))?;
        for linker in ["bfd", "gold", "mold", "lld"] {
            for option in [
                &["-mllvm", "-inline-threshold=5"][..],
                &["-Xlinker", "--offload-opt=-inline-threshold=5"],
            ] {
                let mut link = work.command(llvm("clang"));
                link.args(OFFLOAD)
                    .args(lto)
                    .arg(format!("-fuse-ld={linker}"))
                    .args(option)
                    .arg("-B")
                    .arg(&made().links);
                run(link.args(["a.o", "-o", "program"]))?;
                expect_equal(
                    &format!("{linker} {lto:?} {option:?}"),
                    "8\n",
                    &run_offloaded(&mut work.command("./program"))?,
                )?;
            }
        }
    }
    passed()
}

fn empty_arguments() -> Outcome {
    let work = Work::new();
    work.file("f.c", "int f(void) { return 1; }");
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-fPIC", "-c", "f.c"]))?;
    work.file("rsp", "\"\" f.o '' -L \"\"");
    let lld = llvm("ld.lld").display().to_string();
    for linker in ["/usr/bin/ld", "/usr/bin/ld.gold", &lld] {
        let mut wrapper = work.command(made().links.join("clang-linker-wrapper"));
        wrapper.args([
            "--host-triple=x86_64-pc-linux-gnu",
            &format!("--linker-path={linker}"),
            "-shared",
            "-o",
            "l.so",
        ]);
        let started = |words: &[&str]| {
            let mut command = work.command(wrapper.get_program());
            command.args(wrapper.get_args()).args(words);
            command
        };
        for words in [
            &["", "f.o"][..],
            &["f.o", ""],
            &["", "", "f.o", "-rpath", "", "-L", ""],
            &["@rsp"],
        ] {
            // gold does not accept an empty directory name.
            if linker.ends_with("gold") && words.contains(&"-L")
                || linker.ends_with("gold") && words == ["@rsp"]
            {
                continue;
            }
            expect_equal(
                &format!("{linker} {words:?}"),
                "",
                &stderr_of(&mut started(words))?,
            )?;
        }
    }
    // As a linker, offld passes the same arguments to the real linker, which reports them or not.
    let mut plain = work.command("/usr/bin/ld");
    let mut ours = work.command(made().links.join("ld.offld"));
    let words = ["-shared", "f.o", "", "-o", "l.so"];
    let (plain, ours) = (
        output(plain.args(words))?,
        output(ours.args(words).env("OFFLD_LINKER", "/usr/bin/ld"))?,
    );
    expect_equal(
        "status",
        &format!("{:?}", plain.status.code()),
        &format!("{:?}", ours.status.code()),
    )?;
    expect_in(
        &text(&ours.stderr),
        text(&plain.stderr)
            .trim_start_matches("/usr/bin/")
            .trim_end(),
    )?;
    passed()
}
