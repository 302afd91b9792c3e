//! How compiler drivers start offld: each driver by each of its ways to select a linker, and how
//! offld names itself then. Also the examples, through their Makefiles.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::programs::Linked;
use super::support::{
    self, LLVM, OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, expect_not_in, ledger,
    llvm, made, missing, output, passed, root, run, run_failing, run_offloaded, shown, test, text,
    with_llvm,
};

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
        with_llvm("drivers::flang", || fortran(flang)),
        with_llvm("drivers::flang::gpu", || fortran(flang_gpu)),
        with_llvm("drivers::flang::cpu-device", || fortran(flang_cpu_device)),
    ];
    for linker in ["bfd", "gold", "mold", "lld", "wild"] {
        trials.push(test(format!("drivers::host-linker::{linker}"), move || {
            host_linker(linker)
        }));
    }
    for (example, expected) in [("zaxpy", 3), ("many", 1), ("cargo-app", 1)] {
        trials.push(with_llvm(
            &format!("drivers::examples::{example}"),
            move || by_makefile(example, expected),
        ));
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

/// `main.o` without offloading, and `kernels.o`.
fn objects() -> Result<Work, Failed> {
    let folder = Work::new();
    folder.file("main.cpp", MAIN);
    folder.file("kernels.cpp", KERNELS);
    folder.run("g++", ["-O1", "-c", "main.cpp"])?;
    let kernels = [
        "-O1",
        "-fPIC",
        "-ffunction-sections",
        "-fdata-sections",
        "-c",
        "kernels.cpp",
    ];
    run(folder.command(llvm("clang++")).args(OFFLOAD).args(kernels))?;
    Ok(folder)
}

/// Runs `link`, whose program must run offloaded and register one image once. No other file may be
/// left.
fn expect_offloads(folder: &Work, link: &mut Command) -> Result<(), Failed> {
    run(link.args(["-o", "program"]))?;
    expect_equal(
        "stdout",
        EXPECTED,
        &run_offloaded(&mut folder.command("./program"))?,
    )?;
    let ledger = ledger(folder, &mut folder.command("./program"), &Release::newest())?;
    let registered: Vec<&str> = ledger
        .lines()
        .filter(|line| line.contains(" register "))
        .collect();
    expect_equal(
        "registrations",
        "openmp register lib=0 images=1 entries=1 layout=56",
        &registered.join("\n"),
    )?;
    folder.expect_no_temps()?;
    std::fs::remove_file(folder.path().join("program"))?;
    Ok(())
}

/// `PATH` with `folder` first.
fn path_with(folder: &Path) -> std::ffi::OsString {
    let before = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(
        std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&before)),
    )
    .expect("folders")
}

/// gcc accepts only a few linker names, but it takes the `ld` of a `-B` directory. Some links
/// mention OpenMP in no argument, others in some of them.
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
    for args in lines {
        let mut link = folder.command("g++");
        expect_offloads(
            &folder,
            link.arg("-B")
                .arg(&made().as_ld)
                .args(["main.o", "kernels.o"])
                .args(args),
        )?;
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
    expect_offloads(
        &folder,
        gcc().args(["main.o", "-L.", "-lkernels", "-Wl,-rpath,$ORIGIN"]),
    )?;
    passed()
}

/// GCC bitcode, which the linker compiles through GCC's plugin.
fn gcc_lto() -> Outcome {
    let folder = objects()?;
    folder.run("g++", ["-O1", "-flto", "-c", "main.cpp"])?;
    let mut link = folder.command("g++");
    expect_offloads(
        &folder,
        link.arg("-B")
            .arg(&made().as_ld)
            .args(["-O1", "-flto", "main.o", "kernels.o"]),
    )?;
    passed()
}

/// Arguments like rustc's: without clang's default libraries and directories, and with --as-needed
/// and --gc-sections.
fn rustc_like() -> Outcome {
    let folder = objects()?;
    let mut link = folder.command(llvm("clang"));
    link.arg(format!(
        "--ld-path={}",
        made().links.join("ld.offld").display()
    ));
    link.args([
        "-nodefaultlibs",
        "-Wl,--as-needed",
        "-Wl,--gc-sections",
        "-Wl,-z,relro,-z,now",
        "-Wl,-O1",
    ]);
    expect_offloads(
        &folder,
        link.args(["main.o", "kernels.o", "-lstdc++", "-lgcc_s", "-lc"]),
    )?;
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
    expect_offloads(
        &folder,
        clang().arg(format!("--ld-path={}", links.join("ld.offld").display())),
    )?;
    expect_offloads(
        &folder,
        clang()
            .arg("--ld-path=ld.offld")
            .env("PATH", path_with(links)),
    )?;
    expect_offloads(
        &folder,
        clang().arg("-fuse-ld=offld").env("PATH", path_with(links)),
    )?;
    expect_offloads(
        &folder,
        clang().arg("-fuse-ld=offld").env("COMPILER_PATH", links),
    )?;
    expect_offloads(&folder, clang().arg("-fuse-ld=offld").arg("-B").arg(links))?;
    expect_offloads(&folder, clang().arg("-B").arg(&made().as_ld))?;
    // A symlink with that name in any directory.
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
    // clang prefers the wrapper in its own directory to a plain name in `PATH`, but not to a name
    // with the triple as its prefix.
    let name = "bin/x86_64-pc-linux-gnu-clang-linker-wrapper";
    std::fs::create_dir(folder.path().join("bin"))?;
    std::os::unix::fs::symlink(crate::support::offld(), folder.path().join(name))?;
    let mut link = clang();
    link.env("PATH", path_with(&folder.path().join("bin")))
        .args(["-Wl,--wrapper-verbose", "-o", "program"]);
    let done = output(&mut link)?;
    if !done.status.success() {
        return Err(shown(&link, &done).into());
    }
    // The names of temporary files show that offld ran.
    expect_in(&text(&done.stderr), "/offld-")?;
    expect_equal(
        "stdout",
        EXPECTED,
        &run_offloaded(&mut folder.command("./program"))?,
    )?;
    passed()
}

/// A link that another wrapper has already processed, and a link that runs offld twice, register
/// once.
fn wrapped_once() -> Outcome {
    let folder = objects()?;
    let clang = || {
        let mut link = folder.command(llvm("clang++"));
        link.args(OFFLOAD).args(["main.o", "kernels.o"]);
        link
    };
    let links = &made().links;
    let linker = format!("--ld-path={}", links.join("ld.offld").display());
    expect_offloads(
        &folder,
        clang().arg("-fuse-ld=offld").env("PATH", path_with(links)),
    )?;
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
    // offld is first in PATH under every linker name. The system's linkers come later.
    expect_offloads(&folder, gcc().env("PATH", path_with(as_ld)))?;
    expect_offloads(
        &folder,
        gcc()
            .env("PATH", path_with(as_ld))
            .env("OFFLD_LINKER", "ld"),
    )?;
    let mut clang = folder.command(llvm("clang++"));
    clang
        .args(OFFLOAD)
        .args(["main.o", "kernels.o"])
        .arg("-B")
        .arg(as_ld)
        .env("PATH", path_with(as_ld));
    expect_offloads(&folder, &mut clang)?;
    // Without another linker in PATH, offld reports an error instead of running itself endlessly.
    let alone = run_failing(gcc().env("PATH", as_ld).args(["-o", "program"]))?;
    expect_in(&alone, "cannot find a host linker")?;
    let named = run_failing(
        gcc()
            .env("OFFLD_LINKER", as_ld.join("ld"))
            .args(["-o", "program"]),
    )?;
    expect_in(&named, "offld itself does not count")?;
    let unknown = run_failing(
        gcc()
            .env("OFFLD_LINKER", "nothing-of-that-name")
            .args(["-o", "program"]),
    )?;
    expect_in(
        &unknown,
        "cannot find the host linker `nothing-of-that-name`",
    )?;
    passed()
}

/// Selects the host linker by name, through the environment and as an option, for the wrapper and
/// for the linker.
fn host_linker(name: &'static str) -> Outcome {
    if support::host_linker(name).is_none() {
        return missing(format!("ld.{name}"));
    }
    let folder = objects()?;
    let linker = format!("--ld-path={}", made().links.join("ld.offld").display());
    let gcc = || {
        let mut link = folder.command("g++");
        link.arg("-B")
            .arg(&made().as_ld)
            .args(["main.o", "kernels.o", "-Wl,--gc-sections"]);
        link
    };
    let clang = || {
        let mut link = folder.command(llvm("clang++"));
        link.args(["main.o", "kernels.o", "-Wl,--gc-sections"]);
        link
    };
    expect_offloads(&folder, gcc().env("OFFLD_LINKER", name))?;
    expect_offloads(&folder, gcc().arg(format!("-Wl,--offld-linker={name}")))?;
    expect_offloads(
        &folder,
        clang()
            .args([&linker, "-fopenmp"])
            .env("OFFLD_LINKER", name),
    )?;
    expect_offloads(
        &folder,
        clang()
            .args([&linker, "-fopenmp"])
            .arg(format!("-Wl,--offld-linker={name}")),
    )?;
    expect_offloads(
        &folder,
        clang()
            .args(OFFLOAD)
            .arg("-B")
            .arg(&made().links)
            .arg(format!("-fuse-ld={name}")),
    )?;
    passed()
}

/// The OpenMP runtime cannot be linked statically; the error says so.
fn static_executable() -> Outcome {
    let folder = objects()?;
    let message = "a static executable cannot offload";
    let mut gcc = folder.command("g++");
    gcc.arg("-B")
        .arg(&made().as_ld)
        .args(["-static", "main.o", "kernels.o", "-o", "program"]);
    expect_in(&run_failing(&mut gcc)?, message)?;
    for linked in [Linked::Wrapper, Linked::Linker] {
        let mut clang = folder.command(llvm("clang++"));
        match linked {
            Linked::Wrapper => clang.args(OFFLOAD).arg("-B").arg(&made().links),
            _ => clang.arg("-fopenmp").arg(format!(
                "--ld-path={}",
                made().links.join("ld.offld").display()
            )),
        };
        expect_in(
            &run_failing(clang.args(["-static", "main.o", "kernels.o", "-o", "program"]))?,
            message,
        )?;
    }
    folder.expect_no_temps()?;
    // Static except for the OpenMP runtime.
    let mut gcc = folder.command("g++");
    gcc.arg("-B").arg(&made().as_ld).args([
        "-static-libstdc++",
        "-static-libgcc",
        "main.o",
        "kernels.o",
    ]);
    expect_offloads(&folder, &mut gcc)?;
    passed()
}

/// With --no-offload-runtime and no other runtime, the linker reports missing symbols, and offld
/// reports the step.
fn no_runtime() -> Outcome {
    let folder = objects()?;
    let gcc = || {
        let mut link = folder.command("g++");
        link.arg("-B")
            .arg(&made().as_ld)
            .args(["main.o", "kernels.o", "-Wl,--no-offload-runtime"]);
        link
    };
    let stderr = run_failing(gcc().args(["-L/usr/lib/llvm-22/lib", "-lomp", "-o", "program"]))?;
    expect_in(&stderr, "undefined reference to `__tgt_register_lib'")?;
    expect_in(
        &stderr,
        "error: host link failed: 'ld' exited with status 1",
    )?;
    folder.expect_no_temps()?;
    expect_offloads(
        &folder,
        gcc()
            .arg(format!("-L{}", Release::newest().lib.display()))
            .args(["-lomptarget", "-lomp"]),
    )?;
    passed()
}

/// Without device code, the program is byte-identical to the output of the linker alone.
fn no_device_code() -> Outcome {
    let folder = Work::new();
    folder.file(
        "plain.c",
        "#include <stdio.h>\nint main(void) { puts(\"plain\"); return 0; }\n",
    );
    folder.run(llvm("clang"), ["-g", "-c", "plain.c"])?;
    folder.archive("libplain.a", &["plain.o"])?;
    let link = |args: &[&str], environment: &[(&str, &str)]| -> Result<Vec<u8>, Failed> {
        let mut link = folder.command(llvm("clang"));
        run(link
            .args(["-L.", "-lplain", "-o", "program"])
            .args(args)
            .envs(environment.iter().copied()))?;
        expect_equal(
            "stdout",
            "plain\n",
            &folder.run("./program", [] as [&str; 0])?,
        )?;
        Ok(std::fs::read(folder.path().join("program"))?)
    };
    let (links, linker) = (
        made().links.display().to_string(),
        made().links.join("ld.offld").display().to_string(),
    );
    for name in ["bfd", "lld"] {
        let alone = link(&[&format!("-fuse-ld={name}")], &[])?;
        let by_linker = link(&[&format!("--ld-path={linker}")], &[("OFFLD_LINKER", name)])?;
        let theirs = link(&[OFFLOAD[0], OFFLOAD[1], &format!("-fuse-ld={name}")], &[])?;
        let ours = link(
            &[
                OFFLOAD[0],
                OFFLOAD[1],
                &format!("-fuse-ld={name}"),
                "-B",
                &links,
            ],
            &[],
        )?;
        if alone != by_linker || theirs != ours {
            return Err(
                format!("with {name}: the program is not what the linker alone makes").into(),
            );
        }
    }
    // offld creates no temporary directory either.
    let mut nowhere = folder.command(llvm("clang"));
    nowhere.args([
        "plain.o",
        "-o",
        "program",
        &format!("--ld-path={linker}"),
        "-Wl,--wrapper-verbose",
    ]);
    expect_not_in(
        &text(&output(nowhere.env("TMPDIR", "/nowhere"))?.stderr),
        "error",
    )?;
    passed()
}

/// No symbol refers to entry tables by name, but they survive --gc-sections: with lld's default,
/// and with -z start-stop-gc.
fn gc_sections() -> Outcome {
    let folder = objects()?;
    let gcc = |linker: &Path| {
        let mut link = folder.command("g++");
        link.arg("-B")
            .arg(&made().as_ld)
            .env("OFFLD_LINKER", linker)
            .args(["main.o", "kernels.o", "-Wl,--gc-sections"]);
        link
    };
    // lld under the name of the system linker.
    let ld = folder.path().join("bin/ld");
    std::fs::create_dir(folder.path().join("bin"))?;
    std::os::unix::fs::symlink(llvm("ld.lld"), &ld)?;
    for linker in [
        &ld,
        &PathBuf::from(format!("{LLVM}/ld.lld")),
        &PathBuf::from("bfd"),
    ] {
        expect_offloads(&folder, &mut gcc(linker))?;
        expect_offloads(&folder, gcc(linker).arg("-Wl,-z,start-stop-gc"))?;
    }
    passed()
}

/// Runs a test of flang, which selects a linker only by `-fuse-ld=` or from a `-B` directory.
fn fortran(test: fn() -> Outcome) -> Outcome {
    if llvm("flang").is_file() {
        test()
    } else {
        missing("flang-22")
    }
}

/// A Fortran program with C++ kernels, linked through clang's wrapper and as `ld`.
fn flang() -> Outcome {
    let folder = objects()?;
    folder.file("main.f90", FORTRAN_MAIN);
    folder.file(
        "value.cpp",
        "int on_device(int, int *);\nextern \"C\" int value(int x) { int y = 0; return on_device(x, &y) ? y : -1; }\n",
    );
    folder.run("g++", ["-O1", "-fPIC", "-c", "value.cpp"])?;
    folder.run(llvm("flang"), ["-O1", "-fPIC", "-c", "main.f90"])?;
    let inputs = ["main.o", "value.o", "kernels.o"];
    let (links, as_ld) = (
        made().links.display().to_string(),
        made().as_ld.display().to_string(),
    );
    let lib = format!("-L{}", Release::newest().lib.display());
    let lines: [&[&str]; 5] = [
        &["-B", &links, OFFLOAD[0], OFFLOAD[1]],
        &["-B", &links, OFFLOAD[0], OFFLOAD[1], "-fuse-ld=lld"],
        &[
            "-B",
            &links,
            OFFLOAD[0],
            OFFLOAD[1],
            "-fuse-ld=lld",
            "-Wl,--gc-sections",
        ],
        &["-B", &as_ld],
        &["-B", &as_ld, "-fopenmp"],
    ];
    for args in lines {
        for late in ["off", "on"] {
            let mut link = folder.command(llvm("flang"));
            run(link
                .args(args)
                .args(inputs)
                .args([&lib, "-o", "program"])
                .env("OFFLD_LATE_IMAGES", late))?;
            expect_equal(
                &format!("{args:?}"),
                " answer 42\n",
                &run_offloaded(&mut folder.command("./program"))?,
            )?;
            folder.expect_no_temps()?;
        }
    }
    passed()
}

const FORTRAN_MAIN: &str = "program main
  use iso_c_binding
  implicit none
  interface
    integer(c_int) function value_of(x) bind(c, name='value')
      import c_int
      integer(c_int), value :: x
    end function
  end interface
  print '(A,I0)', ' answer ', value_of(14_c_int)
end program
";

const FORTRAN_KERNEL: &str = "module kern
contains
  subroutine saxpy(n, a, x, y)
    integer :: n, i
    real :: a, x(n), y(n)
    !$omp target teams distribute parallel do map(to:x) map(tofrom:y)
    do i = 1, n
      y(i) = a*x(i) + y(i)
    end do
  end subroutine
end module
program main
  use kern
  real :: x(10), y(10)
  x = 1; y = 2
  call saxpy(10, 2.0, x, y)
  print *, y(1)
end program
";

/// Fortran kernels for a GPU. The GPU OpenMP runtime is not installed here.
fn flang_gpu() -> Outcome {
    let folder = Work::new();
    folder.file("kern.f90", FORTRAN_KERNEL);
    let mut link = folder.command(llvm("flang"));
    link.arg("-B").arg(&made().links).args([
        "-fopenmp",
        "--offload-arch=gfx90a",
        "-nogpulib",
        "kern.f90",
        "-o",
        "program",
    ]);
    run(link.args(["-Xoffload-linker", "--unresolved-symbols=ignore-all"]))?;
    let shown = folder.run(super::support::offld(), ["inspect", "--kernels", "program"])?;
    expect_in(&shown, "gfx90a")?;
    expect_in(&shown, "saxpy of module kern, line 6")?;
    passed()
}

/// Fortran kernels for the CPU call functions that no runtime provides; the error says so.
fn flang_cpu_device() -> Outcome {
    let folder = Work::new();
    folder.file("kern.f90", FORTRAN_KERNEL);
    folder.run(llvm("flang"), [OFFLOAD[0], OFFLOAD[1], "-c", "kern.f90"])?;
    for linker in ["-fuse-ld=lld", "-fuse-ld=bfd"] {
        let mut link = folder.command(llvm("flang"));
        let stderr = run_failing(
            link.args(OFFLOAD)
                .arg("-B")
                .arg(&made().links)
                .args([linker, "kern.o", "-o", "program"]),
        )?;
        expect_in(&stderr, "kern.o")?;
        expect_in(
            &stderr,
            "with calls to the OpenMP runtime for GPUs, as flang always does: that runtime does not exist for CPUs",
        )?;
    }
    folder.expect_no_temps()?;
    passed()
}

/// Runs `make run` in a copy of an example.
fn by_makefile(example: &str, right: usize) -> Outcome {
    let folder = Work::new();
    copy(
        &root().join("examples").join(example),
        &folder.path().join(example),
    )?;
    let mut make = folder.command("make");
    make.arg("-C")
        .arg(example)
        .arg("run")
        .arg(format!("LINKS={}", made().links.display()));
    // Cargo must work offline. Settings for this suite must not apply to the example.
    make.env("CARGO_NET_OFFLINE", "true")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS");
    let printed = run(&mut make)?;
    expect_equal(
        "lines that say `right`",
        &right.to_string(),
        &printed
            .lines()
            .filter(|line| *line == "right")
            .count()
            .to_string(),
    )?;
    folder.expect_no_temps()?;
    passed()
}

/// Copies a directory without its build results.
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
