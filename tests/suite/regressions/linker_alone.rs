//! The linker by itself, as `ld.offld` and under other compilers' drivers: which runtime libraries it adds, what it says of a line that clang's own wrapper
//! has been at, and its messages about undefined symbols and missing libraries.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, expect_equal, expect_in, expect_not_in, llvm, made, offld, passed, run, run_failing,
    run_offloaded, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("regressions::g13a_clangs_own_wrapper_came_first", wrapped),
        with_llvm("regressions::g13b_the_option_to_add_can_be_pasted", wrapped_advice),
        with_llvm("regressions::g14a_omp_functions_of_the_host", omp_functions),
        with_llvm("regressions::g14b_a_relocatable_output_alone", relocatable),
        with_llvm("regressions::g14d_a_relocatable_output_in_an_archive", relocatable_in_archive),
        with_llvm("regressions::g14c_the_runtime_of_gpus", gpu_runtime),
        with_llvm("regressions::g24a_undefined_host_symbols", undefined_on_the_host),
        with_llvm("regressions::g24b_a_missing_library", missing_library),
        with_llvm("regressions::g24b_a_library_where_only_the_linker_looks", library_of_the_linker),
        with_llvm("regressions::g24c_device_code_calls_host_code", host_function),
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

/// A folder with `main.o` and `kernel.o`.
fn objects(kernel: &str) -> Result<Work, Failed> {
    let work = Work::new();
    work.file("main.c", MAIN);
    work.file("kernel.c", kernel);
    run(work.command("gcc").args(["-c", "main.c"]))?;
    run(work.command(llvm("clang")).args(OFFLOAD).args(["-O1", "-fPIC", "-c", "kernel.c"]))?;
    Ok(work)
}

/// gcc, with offld as its linker.
fn gcc(work: &Work) -> std::process::Command {
    let mut link = work.command("gcc");
    link.arg("-B").arg(&made().as_ld).arg(format!("-Wl,-rpath,{LLVM}/../lib"));
    link
}

fn wrapped() -> Outcome {
    let work = objects(KERNEL)?;
    let linker = format!("--ld-path={}", made().links.join("ld.offld").display());
    let clang = |args: &[&str]| {
        let mut link = work.command(llvm("clang"));
        link.args(args).args([&linker, "main.o", "kernel.o", "-o", "program"]);
        link
    };
    let told = stderr_of(&mut clang(&OFFLOAD))?;
    expect_in(&told, "warning: ")?;
    expect_in(
        &told,
        "registers device code already: another wrapper has linked it, as clang's own does on a line with options for offloading. ",
    )?;
    expect_equal("stdout", "device 1\n", &run_offloaded(&mut work.command("./program"))?)?;
    // What it names does not warn, and neither does the line without clang's wrapper.
    let mut by_wrapper = work.command(llvm("clang"));
    by_wrapper.args(OFFLOAD).arg("-B").arg(&made().links).args(["main.o", "kernel.o", "-o", "program"]);
    for mut link in [by_wrapper, clang(&["-fopenmp"])] {
        expect_not_in(&stderr_of(&mut link)?, "warning")?;
        expect_equal("stdout", "device 1\n", &run_offloaded(&mut work.command("./program"))?)?;
    }
    passed()
}

/// What the warning says can be pasted into the same line, whatever the folder is called.
fn wrapped_advice() -> Outcome {
    let work = objects(KERNEL)?;
    run(work.command(offld()).args(["links", "it's here"]))?;
    let link = |shell: &str, more: &str| {
        let mut link = work.command("sh");
        let line = format!("\"$CLANG\" $OFFLOAD {shell} {more} main.o kernel.o -o program");
        link.env("CLANG", llvm("clang")).env("OFFLOAD", OFFLOAD.join(" ")).args(["-c", &line]);
        link
    };
    let by_path = "--ld-path=\"it's here/ld.offld\"";
    let told = stderr_of(&mut link(by_path, ""))?;
    let folder = work.path().join("it's here");
    let advice = told.split("add `").nth(1).and_then(|rest| rest.split("` to clang's line").next()).unwrap_or_default();
    expect_equal("the option", &format!("-B '{}'", folder.display().to_string().replace('\'', r"'\''")), advice)?;
    for line in [by_path, ""] {
        expect_equal("stderr", "", &stderr_of(&mut link(line, advice))?)?;
        let inspected = run(work.command(offld()).args(["inspect", "program"]))?;
        expect_in(&inspected, "device code linked by offld ")?;
        expect_equal("stdout", "device 1\n", &run_offloaded(&mut work.command("./program"))?)?;
    }
    // The names where `make install` puts them.
    for (name, to) in [("usr/bin/ld.offld", "ld.offld"), ("usr/libexec/offld/clang-linker-wrapper", "clang-linker-wrapper")] {
        let path = work.path().join(name);
        std::fs::create_dir_all(path.parent().ok_or("a folder")?)?;
        std::os::unix::fs::symlink(made().links.join(to), path)?;
    }
    let told = stderr_of(&mut link("--ld-path=usr/bin/ld.offld", ""))?;
    expect_in(&told, &format!("add `-B {}/usr/libexec/offld` to clang's line", work.path().display()))?;
    // A copy of the linker alone does not know of such a folder.
    std::fs::create_dir(work.path().join("alone"))?;
    std::os::unix::fs::symlink(made().links.join("ld.offld"), work.path().join("alone/ld.offld"))?;
    let told = stderr_of(&mut link("--ld-path=alone/ld.offld", ""))?;
    expect_in(&told, "run `offld links DIR`, and add `-B DIR` to clang's line")?;
    passed()
}

fn omp_functions() -> Outcome {
    let kernel = format!("int omp_get_max_threads(void); int threads(void) {{ return omp_get_max_threads(); }}\n{KERNEL}");
    let work = objects(&kernel)?;
    run(gcc(&work).args(["main.o", "kernel.o", "-o", "program"]))?;
    expect_equal("stdout", "device 1\n", &run_offloaded(&mut work.command("./program"))?)?;
    // Not where the program has the function itself.
    work.file("own.c", "int omp_get_max_threads(void) { return 1; }");
    run(work.command("gcc").args(["-c", "own.c"]))?;
    run(gcc(&work).args(["main.o", "kernel.o", "own.o", "-o", "program"]))?;
    let needed = run(work.command(llvm("llvm-readelf")).args(["-d", "program"]))?;
    expect_not_in(&needed, "[libomp.so")?;
    passed()
}

/// `merged.o`, which a relocatable link has made of `kernel.o`: by our wrapper or by LLVM's.
fn merge(work: &Work, ours: bool) -> Outcome {
    let mut merge = work.command(llvm("clang"));
    merge.args(OFFLOAD).args(["-r", "kernel.o", "-o", "merged.o"]);
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
            expect_equal("stdout", "device 1\n", &run_offloaded(&mut work.command("./program"))?)?;
        } else {
            let needed = run(work.command(llvm("llvm-readelf")).args(["-d", "program"]))?;
            expect_in(&needed, "[libomptarget.so")?;
        }
    }
    passed()
}

/// The same in an archive: where the host link pulls the member, the program runs; where not, nothing is added.
fn relocatable_in_archive() -> Outcome {
    let work = objects(KERNEL)?;
    work.file("plain.c", "int main(void) { return 0; }");
    run(work.command("gcc").args(["-c", "plain.c"]))?;
    for ours in [true, false] {
        merge(&work, ours)?;
        let _ = std::fs::remove_file(work.path().join("libmerged.a"));
        work.archive("libmerged.a", &["merged.o"])?;
        for (object, is_pulled) in [("main.o", true), ("plain.o", false)] {
            expect_equal("stderr", "", &stderr_of(gcc(&work).args([object, "-L.", "-lmerged", "-o", "program"]))?)?;
            let needed = run(work.command(llvm("llvm-readelf")).args(["-d", "program"]))?;
            if is_pulled {
                expect_in(&needed, "[libomptarget.so")?;
            } else {
                expect_not_in(&needed, "[libomp")?;
            }
            if ours && is_pulled {
                expect_equal("stdout", "device 1\n", &run_offloaded(&mut work.command("./program"))?)?;
            }
        }
    }
    passed()
}

/// A stand-in for a clang whose folders have the runtime.
fn gpu_runtime() -> Outcome {
    runtime_of("amdgcn-amd-amdhsa", "gfx90a")?;
    runtime_of("nvptx64-nvidia-cuda", "sm_70")
}

fn runtime_of(triple: &str, arch: &str) -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image { triple, arch, kind: "openmp", bytes: b"A" }])?;
    let clang = work.tool(
        "llvm/bin/clang",
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\nprintf '%s\\n' \"$@\" > device-line\n\
         [ -e fails ] && exit 1\nwhile [ \"$1\" != -o ]; do shift; done; echo image > \"$2\"\n",
    );
    let linker = work.tool("tools/linker", "#!/bin/sh\nexit 0\n");
    let link = |words: &[&str]| {
        let mut link = work.command(made().links.join("ld.offld"));
        link.env("OFFLD_CLANG", &clang).env("OFFLD_LINKER", &linker).args(["-o", "x", "a.o", "-lomptarget"]).args(words);
        link
    };
    let line = || std::fs::read_to_string(work.path().join("device-line"));
    run(&mut link(&[]))?;
    expect_not_in(&line()?, "ompdevice")?;
    // It is not there, and the link fails.
    work.file("fails", "");
    let told = run_failing(&mut link(&[]))?;
    expect_in(&told, &format!("OpenMP device code for {triple} ({arch}) needs libompdevice, and there is none in "))?;
    expect_in(&told, &format!("llvm/lib/{triple}: install "))?;
    std::fs::remove_file(work.path().join("fails"))?;
    let folder = format!("llvm/lib/{triple}");
    for name in ["libompdevice.a", "libc.a"] {
        work.file(&format!("{folder}/{name}"), "!<arch>\n");
    }
    work.file(&format!("llvm/include/{triple}/stdio.h"), "");
    run(&mut link(&[]))?;
    let added = line()?;
    expect_in(&added, "-Xlinker\n-L/")?;
    expect_in(&added, &format!("{folder}\n-Xlinker\n-lompdevice\n-Xlinker\n-lc\n"))?;
    // What the line says itself, and a wrapper's line, stay as they are.
    run(&mut link(&[&format!("--device-linker={triple}=/my/libompdevice.a")]))?;
    expect_not_in(&line()?, "-lompdevice")?;
    run(&mut link(&["--no-offload-runtime"]))?;
    expect_not_in(&line()?, "-lompdevice")?;
    let mut wrapper = work.command(made().links.join("clang-linker-wrapper"));
    wrapper.env("OFFLD_CLANG", &clang).arg("--host-triple=x86_64-unknown-linux-gnu");
    run(wrapper.arg(format!("--linker-path={}", linker.display())).args(["-o", "x", "a.o"]))?;
    expect_not_in(&line()?, "-lompdevice")?;
    passed()
}

fn undefined_on_the_host() -> Outcome {
    let work = objects(&format!("int nowhere(void); int host(void) {{ return nowhere(); }}\n{KERNEL}"))?;
    let link = |more: &[&str]| {
        let mut link = gcc(&work);
        link.args(["main.o", "kernel.o", "-o", "program"]).args(more);
        link
    };
    let told = run_failing(&mut link(&[]))?;
    expect_in(&told, "undefined reference to `nowhere'")?;
    let ours: Vec<&str> =
        told.lines().filter(|line| line.contains("host link") || line.contains("command:") || line.contains("inputs:")).collect();
    let [line] = ours[..] else { return Err(format!("one line of ours:\n{told}").into()) };
    expect_in(line, "error: host link failed: '")?;
    expect_in(line, "' exited with status 1 (--wrapper-verbose shows its command)")?;
    expect_in(&run_failing(&mut link(&["-Wl,--wrapper-verbose"]))?, "\n  command: \"")?;
    passed()
}

fn missing_library() -> Outcome {
    let work = objects(KERNEL)?;
    for linker in ["lld", "bfd"] {
        for library in ["-lnot_there", "-l:libnot_there.so.1"] {
            let mut link = work.command(llvm("clang"));
            link.args(OFFLOAD).arg(format!("-fuse-ld={linker}")).arg("-B").arg(&made().links);
            let told = run_failing(link.args(["main.o", "kernel.o", library, "-o", "program"]))?;
            expect_in(&told, library)?;
            expect_in(&told, "error: host link failed")?;
            expect_not_in(&told, "device link")?;
        }
    }
    passed()
}

/// A library in a folder that only GNU's linker itself knows goes to the device link.
fn library_of_the_linker() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image { triple: "x86_64-pc-linux-gnu", arch: "", kind: "openmp", bytes: b"A" }])?;
    work.file("root/usr/x86_64-linux-gnu/lib/libthere.a", "!<arch>\n");
    let clang = work.tool(
        "llvm/bin/clang",
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\nprintf '%s\\n' \"$@\" > device-line\n\
         while [ \"$1\" != -o ]; do shift; done; echo image > \"$2\"\n",
    );
    let mut link = work.command(made().links.join("ld.offld"));
    link.env("OFFLD_CLANG", &clang).env("OFFLD_LINKER", "/usr/bin/ld.bfd").args([
        "-shared",
        "--sysroot=root",
        "-o",
        "x.so",
        "a.o",
    ]);
    link.args(["-lthere", "-lnot_there", "--no-offload-runtime"]);
    let told = run_failing(&mut link)?;
    expect_in(&told, "-lnot_there")?;
    expect_not_in(&told, "-lthere")?;
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
        link.args(OFFLOAD).arg(format!("-fuse-ld={linker}")).arg("-B").arg(&made().links);
        let told = run_failing(link.args(["main.o", "kernel.o", "helper.o", "-o", "program"]))?;
        expect_in(&told, "device link for x86_64-pc-linux-gnu failed")?;
        expect_in(
            &told,
            "\n  `helper` is host code: helper.o defines it, for no device. Put it between `#pragma omp begin declare target`",
        )?;
    }
    // For a GPU, whose linker says it in its own words.
    work.run(llvm("clang"), ["-O1", "-fopenmp", "--offload-arch=gfx90a", "-nogpulib", "-c", "kernel.c"])?;
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.args(["--host-triple=x86_64-pc-linux-gnu", "--linker-path=/usr/bin/ld", "-o", "program", "kernel.o", "helper.o"]);
    expect_in(&run_failing(&mut link)?, "\n  `helper` is host code: helper.o defines it, for no device. ")?;
    passed()
}
