//! The linker by itself, as `ld.offld` and under other compilers' drivers. Tests cover the runtime
//! libraries that it adds, its messages for a command line that clang's own wrapper has processed,
//! and its messages about undefined symbols and missing libraries.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, expect_equal, expect_in, expect_not_in, llvm, made, offld,
    passed, run, run_failing, run_offloaded, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("ld_offld::clangs_own_wrapper_came_first", wrapped),
        with_llvm("ld_offld::the_option_to_add_can_be_pasted", wrapped_advice),
        with_llvm("ld_offld::omp_functions_of_the_host", omp_functions),
        with_llvm("ld_offld::a_relocatable_output_alone", relocatable),
        with_llvm(
            "ld_offld::a_relocatable_output_in_an_archive",
            relocatable_in_archive,
        ),
        with_llvm("ld_offld::undefined_host_symbols", undefined_on_the_host),
        with_llvm("ld_offld::a_missing_library", missing_library),
        with_llvm(
            "ld_offld::a_library_where_only_the_linker_looks",
            library_of_the_linker,
        ),
        with_llvm("ld_offld::device_code_calls_host_code", host_function),
    ]
}

const KERNEL: &str = "
int kernel(void) {
  int device = 0;
#pragma omp target map(from : device)
  device = 1;
  return device;
}
";
const MAIN: &str = "#include <stdio.h>\nint kernel(void);\nint main(void) { printf(\"device %d\\n\", kernel()); }\n";

/// A directory with `main.o` and `kernel.o`.
fn objects(kernel: &str) -> Result<Work, Failed> {
    let work = Work::new();
    work.file("main.c", MAIN);
    work.file("kernel.c", kernel);
    run(work.command("gcc").args(["-c", "main.c"]))?;
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-fPIC", "-c", "kernel.c"]))?;
    Ok(work)
}

/// gcc with offld as its linker.
fn gcc(work: &Work) -> std::process::Command {
    let mut link = work.command("gcc");
    link.arg("-B")
        .arg(&made().as_ld)
        .arg(format!("-Wl,-rpath,{LLVM}/../lib"));
    link
}

fn wrapped() -> Outcome {
    let work = objects(KERNEL)?;
    let linker = format!("--ld-path={}", made().links.join("ld.offld").display());
    let clang = |args: &[&str]| {
        let mut link = work.command(llvm("clang"));
        link.args(args)
            .args([&linker, "main.o", "kernel.o", "-o", "program"]);
        link
    };
    let stderr = stderr_of(&mut clang(&OFFLOAD))?;
    expect_in(&stderr, "warning: ")?;
    expect_in(
        &stderr,
        "registers device code already: another wrapper has linked it, such as clang's own. ",
    )?;
    expect_equal(
        "stdout",
        "device 1\n",
        &run_offloaded(&mut work.command("./program"))?,
    )?;
    // Neither the suggested command nor a command without clang's wrapper causes the warning.
    let mut by_wrapper = work.command(llvm("clang"));
    by_wrapper
        .args(OFFLOAD)
        .arg("-B")
        .arg(&made().links)
        .args(["main.o", "kernel.o", "-o", "program"]);
    for mut link in [by_wrapper, clang(&["-fopenmp"])] {
        expect_not_in(&stderr_of(&mut link)?, "warning")?;
        expect_equal(
            "stdout",
            "device 1\n",
            &run_offloaded(&mut work.command("./program"))?,
        )?;
    }
    passed()
}

/// The command in the warning can be pasted, whatever characters the directory name has.
fn wrapped_advice() -> Outcome {
    let work = objects(KERNEL)?;
    run(work.command(offld()).args(["links", "it's here"]))?;
    let link = |shell: &str, more: &str| {
        let mut link = work.command("sh");
        let line = format!("\"$CLANG\" $OFFLOAD {shell} {more} main.o kernel.o -o program");
        link.env("CLANG", llvm("clang"))
            .env("OFFLOAD", OFFLOAD.join(" "))
            .args(["-c", &line]);
        link
    };
    let by_path = "--ld-path=\"it's here/ld.offld\"";
    let stderr = stderr_of(&mut link(by_path, ""))?;
    let folder = work.path().join("it's here");
    let advice = stderr
        .split("add `")
        .nth(1)
        .and_then(|rest| rest.split("` to clang's command line").next())
        .unwrap_or_default();
    expect_equal(
        "the option",
        &format!(
            "-B '{}'",
            folder.display().to_string().replace('\'', r"'\''")
        ),
        advice,
    )?;
    for line in [by_path, ""] {
        expect_equal("stderr", "", &stderr_of(&mut link(line, advice))?)?;
        let inspected = run(work.command(offld()).args(["inspect", "program"]))?;
        expect_in(&inspected, "device code linked by offld ")?;
        expect_equal(
            "stdout",
            "device 1\n",
            &run_offloaded(&mut work.command("./program"))?,
        )?;
    }
    // The tool links where `make install` creates them.
    for (name, to) in [
        ("usr/bin/ld.offld", "ld.offld"),
        (
            "usr/libexec/offld/clang-linker-wrapper",
            "clang-linker-wrapper",
        ),
    ] {
        let path = work.path().join(name);
        std::fs::create_dir_all(path.parent().ok_or("a folder")?)?;
        std::os::unix::fs::symlink(made().links.join(to), path)?;
    }
    let stderr = stderr_of(&mut link("--ld-path=usr/bin/ld.offld", ""))?;
    expect_in(
        &stderr,
        &format!(
            "add `-B {}/usr/libexec/offld` to clang's command line",
            work.path().display()
        ),
    )?;
    // A lone copy of the linker has no such directory next to it.
    std::fs::create_dir(work.path().join("alone"))?;
    std::os::unix::fs::symlink(
        made().links.join("ld.offld"),
        work.path().join("alone/ld.offld"),
    )?;
    let stderr = stderr_of(&mut link("--ld-path=alone/ld.offld", ""))?;
    expect_in(
        &stderr,
        "run `offld links DIR`, and add `-B DIR` to clang's command line",
    )?;
    passed()
}

fn omp_functions() -> Outcome {
    let kernel = format!(
        "int omp_get_max_threads(void); int threads(void) {{ return omp_get_max_threads(); }}\n{KERNEL}"
    );
    let work = objects(&kernel)?;
    run(gcc(&work).args(["main.o", "kernel.o", "-o", "program"]))?;
    expect_equal(
        "stdout",
        "device 1\n",
        &run_offloaded(&mut work.command("./program"))?,
    )?;
    // No message if the program defines the function itself.
    work.file("own.c", "int omp_get_max_threads(void) { return 1; }");
    run(work.command("gcc").args(["-c", "own.c"]))?;
    run(gcc(&work).args(["main.o", "kernel.o", "own.o", "-o", "program"]))?;
    let needed = run(work.command(llvm("llvm-readelf")).args(["-d", "program"]))?;
    expect_not_in(&needed, "[libomp.so")?;
    passed()
}

/// Creates `merged.o` from `kernel.o` with a relocatable link, by offld's wrapper or LLVM's.
fn merge(work: &Work, ours: bool) -> Outcome {
    let mut merge = work.command(llvm("clang"));
    merge
        .args(OFFLOAD)
        .args(["-r", "kernel.o", "-o", "merged.o"]);
    if ours {
        merge.arg("-B").arg(&made().links);
    }
    run(&mut merge)?;
    passed()
}

fn relocatable() -> Outcome {
    let work = objects(KERNEL)?;
    for ours in [true, false] {
        merge(&work, ours)?;
        run(gcc(&work).args(["main.o", "merged.o", "-o", "program"]))?;
        if ours {
            expect_equal(
                "stdout",
                "device 1\n",
                &run_offloaded(&mut work.command("./program"))?,
            )?;
        } else {
            let needed = run(work.command(llvm("llvm-readelf")).args(["-d", "program"]))?;
            expect_in(&needed, "[libomptarget.so")?;
        }
    }
    passed()
}

/// The same object in an archive. If the host link pulls the member, the program runs. If not,
/// nothing is added.
fn relocatable_in_archive() -> Outcome {
    let work = objects(KERNEL)?;
    work.file("plain.c", "int main(void) { return 0; }");
    run(work.command("gcc").args(["-c", "plain.c"]))?;
    for ours in [true, false] {
        merge(&work, ours)?;
        let _ = std::fs::remove_file(work.path().join("libmerged.a"));
        work.archive("libmerged.a", &["merged.o"])?;
        for (object, is_pulled) in [("main.o", true), ("plain.o", false)] {
            expect_equal(
                "stderr",
                "",
                &stderr_of(gcc(&work).args([object, "-L.", "-lmerged", "-o", "program"]))?,
            )?;
            let needed = run(work.command(llvm("llvm-readelf")).args(["-d", "program"]))?;
            if is_pulled {
                expect_in(&needed, "[libomptarget.so")?;
            } else {
                expect_not_in(&needed, "[libomp")?;
            }
            if ours && is_pulled {
                expect_equal(
                    "stdout",
                    "device 1\n",
                    &run_offloaded(&mut work.command("./program"))?,
                )?;
            }
        }
    }
    passed()
}

fn undefined_on_the_host() -> Outcome {
    let work = objects(&format!(
        "int nowhere(void); int host(void) {{ return nowhere(); }}\n{KERNEL}"
    ))?;
    let link = |more: &[&str]| {
        let mut link = gcc(&work);
        link.args(["main.o", "kernel.o", "-o", "program"])
            .args(more);
        link
    };
    let told = run_failing(&mut link(&[]))?;
    expect_in(&told, "undefined reference to `nowhere'")?;
    let ours: Vec<&str> = told
        .lines()
        .filter(|line| {
            line.contains("host link") || line.contains("command:") || line.contains("inputs:")
        })
        .collect();
    let [line] = ours[..] else {
        return Err(format!("one line of ours:\n{told}").into());
    };
    expect_in(line, "error: host link failed: '")?;
    expect_in(
        line,
        "' exited with status 1 (--wrapper-verbose shows its command)",
    )?;
    expect_in(
        &run_failing(&mut link(&["-Wl,--wrapper-verbose"]))?,
        "\n  command: \"",
    )?;
    passed()
}

fn missing_library() -> Outcome {
    let work = objects(KERNEL)?;
    for linker in ["lld", "bfd"] {
        for library in ["-lnot_there", "-l:libnot_there.so.1"] {
            let mut link = work.command(llvm("clang"));
            link.args(OFFLOAD)
                .arg(format!("-fuse-ld={linker}"))
                .arg("-B")
                .arg(&made().links);
            let stderr = run_failing(link.args(["main.o", "kernel.o", library, "-o", "program"]))?;
            expect_in(&stderr, library)?;
            expect_in(&stderr, "error: host link failed")?;
            expect_not_in(&stderr, "device link")?;
        }
    }
    passed()
}

/// A library in a directory that only GNU ld itself searches is an input of the device link.
fn library_of_the_linker() -> Outcome {
    let work = Work::new();
    work.fat(
        "a.o",
        &[Image {
            triple: "x86_64-pc-linux-gnu",
            arch: "",
            kind: "openmp",
            bytes: b"A",
        }],
    )?;
    work.file("root/usr/x86_64-linux-gnu/lib/libthere.a", "!<arch>\n");
    let clang = work.tool(
        "llvm/bin/clang",
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\nprintf '%s\\n' \"$@\" > device-line\n\
         while [ \"$1\" != -o ]; do shift; done; echo image > \"$2\"\n",
    );
    let mut link = work.command(made().links.join("ld.offld"));
    link.env("OFFLD_CLANG", &clang)
        .env("OFFLD_LINKER", "/usr/bin/ld.bfd")
        .args(["-shared", "--sysroot=root", "-o", "x.so", "a.o"]);
    link.args(["-lthere", "-lnot_there", "--no-offload-runtime"]);
    let stderr = run_failing(&mut link)?;
    expect_in(&stderr, "-lnot_there")?;
    expect_not_in(&stderr, "-lthere")?;
    let line = std::fs::read_to_string(work.path().join("device-line"))?;
    expect_in(&line, "\n-lthere\n")?;
    expect_not_in(&line, "-lnot_there")?;
    passed()
}

fn host_function() -> Outcome {
    let kernel = "int helper(int); int kernel(void) {\n  int x = 0;\n#pragma omp target map(tofrom : x)\n  x = helper(1);\n  return x;\n}\n";
    let work = objects(kernel)?;
    work.file("helper.c", "int helper(int x) { return x; }");
    run(work.command(llvm("clang")).args(["-c", "helper.c"]))?;
    for linker in ["bfd", "lld"] {
        let mut link = work.command(llvm("clang"));
        link.args(OFFLOAD)
            .arg(format!("-fuse-ld={linker}"))
            .arg("-B")
            .arg(&made().links);
        let stderr = run_failing(link.args(["main.o", "kernel.o", "helper.o", "-o", "program"]))?;
        expect_in(&stderr, "device link for x86_64-pc-linux-gnu failed")?;
        expect_in(
            &stderr,
            "\n  `helper` is host code: helper.o defines it, for no device. Put it between `#pragma omp begin declare target`",
        )?;
    }
    // The same for a GPU, whose linker has a different message.
    work.run(
        llvm("clang"),
        [
            "-O1",
            "-fopenmp",
            "--offload-arch=gfx90a",
            "-nogpulib",
            "-c",
            "kernel.c",
        ],
    )?;
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.args([
        "--host-triple=x86_64-pc-linux-gnu",
        "--linker-path=/usr/bin/ld",
        "-o",
        "program",
        "kernel.o",
        "helper.o",
    ]);
    expect_in(
        &run_failing(&mut link)?,
        "\n  `helper` is host code: helper.o defines it, for no device. ",
    )?;
    passed()
}
