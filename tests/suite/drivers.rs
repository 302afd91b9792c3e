//! How a link comes to offld: by the compiler drivers that there are, each by the ways it knows of naming a linker, and what offld
//! then calls itself. And the examples, by their Makefiles.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::programs::Linked;
use super::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, expect_not_in, ledger, llvm, made, missing, output, passed,
    root, run, run_failing, run_offloaded, shown, test, text, with_llvm,
};

/// The tests.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("drivers::gcc", gcc),
        with_llvm("drivers::gcc::shared-library", gcc_shared),
        with_llvm("drivers::gcc::lto", gcc_lto),
        with_llvm("drivers::rustc-like-line", rustc_like),
        with_llvm("drivers::clang::linker-names", clang_as_linker),
        with_llvm("drivers::clang::wrapper-names", clang_as_wrapper),
        with_llvm("drivers::wrapped-once", wrapped_once),
        with_llvm("drivers::never-itself", never_itself),
        with_llvm("drivers::static", static_executable),
        with_llvm("drivers::no-runtime", no_runtime),
        with_llvm("drivers::no-device-code", no_device_code),
        with_llvm("drivers::gc-sections", gc_sections),
    ];
    for linker in ["bfd", "gold", "mold", "lld"] {
        trials.push(test(format!("drivers::host-linker::{linker}"), move || host_linker(linker)));
    }
    for (example, expected) in [("zaxpy", 3), ("many", 1), ("cargo-app", 1)] {
        trials.push(with_llvm(&format!("drivers::examples::{example}"), move || by_makefile(example, expected)));
    }
    trials
}

const KERNELS: &str = "
#include <omp.h>
int on_device(int x, int *y) {
  int host = 1;
#pragma omp target map(from : host, y[0 : 1])
  {
    host = omp_is_initial_device();
    // Parallel, so that the image, too, needs the host's OpenMP library.
    int sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int i = 0; i < 3; ++i)
      sum += x;
    *y = sum;
  }
  return !host;
}
";
const MAIN: &str = "
#include <iostream>
int on_device(int x, int *y);
int main() {
  int y = 0, device = on_device(14, &y);
  std::cout << \"device \" << device << \", \" << y << std::endl;
}
";
const EXPECTED: &str = "device 1, 42\n";

/// `main.o`, which knows nothing of offloading, and `kernels.o`.
fn objects() -> Result<Work, Failed> {
    let folder = Work::new();
    folder.file("main.cpp", MAIN);
    folder.file("kernels.cpp", KERNELS);
    folder.run("g++", ["-O1", "-c", "main.cpp"])?;
    let kernels = ["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections", "-c", "kernels.cpp"];
    run(folder.command(llvm("clang++")).args(OFFLOAD).args(kernels))?;
    Ok(folder)
}

/// `link` makes a program that runs offloaded and registers one image, once; only that program is left.
fn expect_offloads(folder: &Work, link: &mut Command) -> Result<(), Failed> {
    run(link.args(["-o", "program"]))?;
    expect_equal("stdout", EXPECTED, &run_offloaded(&mut folder.command("./program"))?)?;
    let ledger = ledger(folder, &mut folder.command("./program"), &Release::newest())?;
    let registered: Vec<&str> = ledger.lines().filter(|line| line.contains(" register ")).collect();
    expect_equal("registrations", "openmp register lib=0 images=1 entries=1 layout=56", &registered.join("\n"))?;
    folder.expect_no_temps()?;
    std::fs::remove_file(folder.path().join("program"))?;
    Ok(())
}

/// `PATH` with `folder` before everything.
fn path_with(folder: &Path) -> std::ffi::OsString {
    let before = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&before))).expect("folders")
}

/// gcc knows no linker but by a few names; it takes the `ld` of a `-B` folder. Nothing on the line says OpenMP, or part of it does.
fn gcc() -> Outcome {
    let folder = objects()?;
    let lib = format!("-L{}", Release::newest().lib.display());
    let lines: [&[&str]; 6] = [
        &[],
        &["-fopenmp"],
        &[&lib, "-lomp"],
        &[&lib, "-lomp", "-lomptarget"],
        &["-lomptarget"],
        &["-Wl,--as-needed", "-Wl,--gc-sections", "-no-pie", "-s"],
    ];
    for words in lines {
        let mut link = folder.command("g++");
        expect_offloads(&folder, link.arg("-B").arg(&made().as_ld).args(["main.o", "kernels.o"]).args(words))?;
    }
    passed()
}

fn gcc_shared() -> Outcome {
    let folder = objects()?;
    let gcc = || {
        let mut link = folder.command("g++");
        link.arg("-B").arg(&made().as_ld);
        link
    };
    run(gcc().args(["-shared", "kernels.o", "-o", "libkernels.so"]))?;
    expect_offloads(&folder, gcc().args(["main.o", "-L.", "-lkernels", "-Wl,-rpath,$ORIGIN"]))?;
    passed()
}

/// GCC's own bitcode, which goes through ld's plugin.
fn gcc_lto() -> Outcome {
    let folder = objects()?;
    folder.run("g++", ["-O1", "-flto", "-c", "main.cpp"])?;
    let mut link = folder.command("g++");
    expect_offloads(&folder, link.arg("-B").arg(&made().as_ld).args(["-O1", "-flto", "main.o", "kernels.o"]))?;
    passed()
}

/// What rustc says: none of clang's libraries or folders, drop what is not needed.
fn rustc_like() -> Outcome {
    let folder = objects()?;
    let mut link = folder.command(llvm("clang"));
    link.arg(format!("--ld-path={}", made().links.join("ld.offld").display()));
    link.args(["-nodefaultlibs", "-Wl,--as-needed", "-Wl,--gc-sections", "-Wl,-z,relro,-z,now", "-Wl,-O1"]);
    expect_offloads(&folder, link.args(["main.o", "kernels.o", "-lstdc++", "-lgcc_s", "-lc"]))?;
    passed()
}

fn clang_as_linker() -> Outcome {
    let folder = objects()?;
    let clang = || {
        let mut link = folder.command(llvm("clang++"));
        link.args(["-fopenmp", "main.o", "kernels.o"]);
        link
    };
    let links = &made().links;
    expect_offloads(&folder, clang().arg(format!("--ld-path={}", links.join("ld.offld").display())))?;
    expect_offloads(&folder, clang().arg("--ld-path=ld.offld").env("PATH", path_with(links)))?;
    expect_offloads(&folder, clang().arg("-fuse-ld=offld").env("PATH", path_with(links)))?;
    expect_offloads(&folder, clang().arg("-fuse-ld=offld").env("COMPILER_PATH", links))?;
    expect_offloads(&folder, clang().arg("-fuse-ld=offld").arg("-B").arg(links))?;
    expect_offloads(&folder, clang().arg("-B").arg(&made().as_ld))?;
    // A symlink of the name anywhere.
    let own = folder.path().join("ld.offld");
    std::os::unix::fs::symlink(crate::support::offld(), &own)?;
    expect_offloads(&folder, clang().arg(format!("-fuse-ld={}", own.display())))?;
    passed()
}

fn clang_as_wrapper() -> Outcome {
    let folder = objects()?;
    let clang = || {
        let mut link = folder.command(llvm("clang++"));
        link.args(OFFLOAD).args(["main.o", "kernels.o"]);
        link
    };
    let links = &made().links;
    expect_offloads(&folder, clang().arg("-B").arg(links))?;
    expect_offloads(&folder, clang().env("COMPILER_PATH", links))?;
    expect_offloads(&folder, clang().arg("-B").arg(links).arg("-fuse-ld=lld"))?;
    // A plain name in PATH does not beat the one beside clang; one with the triple before it does.
    let name = "bin/x86_64-pc-linux-gnu-clang-linker-wrapper";
    std::fs::create_dir(folder.path().join("bin"))?;
    std::os::unix::fs::symlink(crate::support::offld(), folder.path().join(name))?;
    let mut link = clang();
    link.env("PATH", path_with(&folder.path().join("bin"))).args(["-Wl,--wrapper-verbose", "-o", "program"]);
    let done = output(&mut link)?;
    if !done.status.success() {
        return Err(shown(&link, &done).into());
    }
    // Ours is told by its names of temporary files.
    expect_in(&text(&done.stderr), "/offld-")?;
    expect_equal("stdout", EXPECTED, &run_offloaded(&mut folder.command("./program"))?)?;
    passed()
}

/// A link that another wrapper has wrapped already, and one that meets offld twice, register once.
fn wrapped_once() -> Outcome {
    let folder = objects()?;
    let clang = || {
        let mut link = folder.command(llvm("clang++"));
        link.args(OFFLOAD).args(["main.o", "kernels.o"]);
        link
    };
    let links = &made().links;
    let linker = format!("--ld-path={}", links.join("ld.offld").display());
    expect_offloads(&folder, clang().arg("-fuse-ld=offld").env("PATH", path_with(links)))?;
    expect_offloads(&folder, clang().arg(&linker))?;
    expect_offloads(&folder, clang().arg(&linker).env("OFFLD_LINKER", "bfd"))?;
    expect_offloads(&folder, clang().arg("-fuse-ld=offld").arg("-B").arg(links))?;
    expect_offloads(&folder, clang().arg(&linker).arg("-B").arg(links))?;
    expect_offloads(&folder, clang().arg("-B").arg(&made().as_ld))?;
    passed()
}

fn never_itself() -> Outcome {
    let folder = objects()?;
    let as_ld = &made().as_ld;
    let gcc = || {
        let mut link = folder.command("/usr/bin/g++");
        link.arg("-B").arg(as_ld).args(["main.o", "kernels.o"]);
        link
    };
    // First in PATH, by every name: the system's comes after.
    expect_offloads(&folder, gcc().env("PATH", path_with(as_ld)))?;
    expect_offloads(&folder, gcc().env("PATH", path_with(as_ld)).env("OFFLD_LINKER", "ld"))?;
    let mut clang = folder.command(llvm("clang++"));
    clang.args(OFFLOAD).args(["main.o", "kernels.o"]).arg("-B").arg(as_ld).env("PATH", path_with(as_ld));
    expect_offloads(&folder, &mut clang)?;
    // Nothing else there: an error, no endless chain of offlds.
    let alone = run_failing(gcc().env("PATH", as_ld).args(["-o", "program"]))?;
    expect_in(&alone, "cannot find a host linker")?;
    let named = run_failing(gcc().env("OFFLD_LINKER", as_ld.join("ld")).args(["-o", "program"]))?;
    expect_in(&named, "or it is offld itself")?;
    let unknown = run_failing(gcc().env("OFFLD_LINKER", "nothing-of-that-name").args(["-o", "program"]))?;
    expect_in(&unknown, "cannot find the host linker `nothing-of-that-name`")?;
    passed()
}

/// The host linker by its name in the environment and as an option, for both roles.
fn host_linker(name: &'static str) -> Outcome {
    let found =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(format!("ld.{name}")).exists());
    if !found && !llvm(&format!("ld.{name}")).exists() {
        return missing(format!("ld.{name}"));
    }
    let folder = objects()?;
    let linker = format!("--ld-path={}", made().links.join("ld.offld").display());
    let gcc = || {
        let mut link = folder.command("g++");
        link.arg("-B").arg(&made().as_ld).args(["main.o", "kernels.o", "-Wl,--gc-sections"]);
        link
    };
    let clang = || {
        let mut link = folder.command(llvm("clang++"));
        link.args(["main.o", "kernels.o", "-Wl,--gc-sections"]);
        link
    };
    expect_offloads(&folder, gcc().env("OFFLD_LINKER", name))?;
    expect_offloads(&folder, gcc().arg(format!("-Wl,--offld-linker={name}")))?;
    expect_offloads(&folder, clang().args([&linker, "-fopenmp"]).env("OFFLD_LINKER", name))?;
    expect_offloads(&folder, clang().args([&linker, "-fopenmp"]).arg(format!("-Wl,--offld-linker={name}")))?;
    expect_offloads(&folder, clang().args(OFFLOAD).arg("-B").arg(&made().links).arg(format!("-fuse-ld={name}")))?;
    passed()
}

/// The runtime cannot be linked statically, and that is what is said.
fn static_executable() -> Outcome {
    let folder = objects()?;
    let told = "a static executable cannot offload here";
    let mut gcc = folder.command("g++");
    gcc.arg("-B").arg(&made().as_ld).args(["-static", "main.o", "kernels.o", "-o", "program"]);
    expect_in(&run_failing(&mut gcc)?, told)?;
    for linked in [Linked::Wrapper, Linked::Linker] {
        let mut clang = folder.command(llvm("clang++"));
        match linked {
            Linked::Wrapper => clang.args(OFFLOAD).arg("-B").arg(&made().links),
            _ => clang.arg("-fopenmp").arg(format!("--ld-path={}", made().links.join("ld.offld").display())),
        };
        expect_in(&run_failing(clang.args(["-static", "main.o", "kernels.o", "-o", "program"]))?, told)?;
    }
    folder.expect_no_temps()?;
    // Static but for the runtime.
    let mut gcc = folder.command("g++");
    gcc.arg("-B").arg(&made().as_ld).args(["-static-libstdc++", "-static-libgcc", "main.o", "kernels.o"]);
    expect_offloads(&folder, &mut gcc)?;
    passed()
}

/// Told to add no runtime, where nothing else brings it: the linker says what is missing, and offld which step that was.
fn no_runtime() -> Outcome {
    let folder = objects()?;
    let gcc = || {
        let mut link = folder.command("g++");
        link.arg("-B").arg(&made().as_ld).args(["main.o", "kernels.o", "-Wl,--no-offload-runtime"]);
        link
    };
    let said = run_failing(gcc().args(["-L/usr/lib/llvm-22/lib", "-lomp", "-o", "program"]))?;
    expect_in(&said, "undefined reference to `__tgt_register_lib'")?;
    expect_in(&said, "error: host link failed: 'ld' exited with status 1")?;
    folder.expect_no_temps()?;
    expect_offloads(&folder, gcc().arg(format!("-L{}", Release::newest().lib.display())).args(["-lomptarget", "-lomp"]))?;
    passed()
}

/// Without device code the program is, byte for byte, what the linker alone makes of the line.
fn no_device_code() -> Outcome {
    let folder = Work::new();
    folder.file("plain.c", "#include <stdio.h>\nint main(void) { puts(\"plain\"); return 0; }\n");
    folder.run(llvm("clang"), ["-g", "-c", "plain.c"])?;
    folder.archive("libplain.a", &["plain.o"])?;
    let link = |words: &[&str], environment: &[(&str, &str)]| -> Result<Vec<u8>, Failed> {
        let mut link = folder.command(llvm("clang"));
        run(link.args(["-L.", "-lplain", "-o", "program"]).args(words).envs(environment.iter().copied()))?;
        expect_equal("stdout", "plain\n", &folder.run("./program", [] as [&str; 0])?)?;
        Ok(std::fs::read(folder.path().join("program"))?)
    };
    let (links, linker) = (made().links.display().to_string(), made().links.join("ld.offld").display().to_string());
    for name in ["bfd", "lld"] {
        let alone = link(&[&format!("-fuse-ld={name}")], &[])?;
        let by_linker = link(&[&format!("--ld-path={linker}")], &[("OFFLD_LINKER", name)])?;
        let theirs = link(&[OFFLOAD[0], OFFLOAD[1], &format!("-fuse-ld={name}")], &[])?;
        let ours = link(&[OFFLOAD[0], OFFLOAD[1], &format!("-fuse-ld={name}"), "-B", &links], &[])?;
        if alone != by_linker || theirs != ours {
            return Err(format!("with {name}: the program is not what the linker alone makes").into());
        }
    }
    // And no folder for temporary files is ever made.
    let mut nowhere = folder.command(llvm("clang"));
    nowhere.args(["plain.o", "-o", "program", &format!("--ld-path={linker}"), "-Wl,--wrapper-verbose"]);
    expect_not_in(&text(&output(nowhere.env("TMPDIR", "/nowhere"))?.stderr), "error")?;
    passed()
}

/// Entry tables, to which nothing refers by name, stay: with lld's own default, and with the line asking for what drops them.
fn gc_sections() -> Outcome {
    let folder = objects()?;
    let gcc = |linker: &Path| {
        let mut link = folder.command("g++");
        link.arg("-B").arg(&made().as_ld).env("OFFLD_LINKER", linker).args(["main.o", "kernels.o", "-Wl,--gc-sections"]);
        link
    };
    // lld under the name of the system's linker.
    let ld = folder.path().join("bin/ld");
    std::fs::create_dir(folder.path().join("bin"))?;
    std::os::unix::fs::symlink(llvm("ld.lld"), &ld)?;
    for linker in [&ld, &PathBuf::from(format!("{LLVM}/ld.lld")), &PathBuf::from("bfd")] {
        expect_offloads(&folder, &mut gcc(linker))?;
        expect_offloads(&folder, gcc(linker).arg("-Wl,-z,start-stop-gc"))?;
    }
    passed()
}

/// `make run` of an example, in a copy of it.
fn by_makefile(example: &str, right: usize) -> Outcome {
    let folder = Work::new();
    copy(&root().join("examples").join(example), &folder.path().join(example))?;
    let mut make = folder.command("make");
    make.arg("-C").arg(example).arg("run").arg(format!("LINKS={}", made().links.display()));
    // Cargo must not look for anything outside; and what it sets for this suite is not for the example.
    make.env("CARGO_NET_OFFLINE", "true").env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    let printed = run(&mut make)?;
    expect_equal(
        "lines that say `right`",
        &right.to_string(),
        &printed.lines().filter(|line| *line == "right").count().to_string(),
    )?;
    folder.expect_no_temps()?;
    passed()
}

/// A folder without what was built in it.
fn copy(from: &Path, to: &Path) -> Result<(), Failed> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to)?;
        } else if entry.file_name() != "build" {
            copy(&entry.path(), &to)?;
        }
    }
    Ok(())
}
