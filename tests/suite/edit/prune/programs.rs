//! Programs to prune: from every linker, of every kind, by offld's wrapper and LLVM's, with images
//! for four devices or for one. Their inputs are compiled once per run of the suite.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::Failed;

use crate::support::{LLVM, Work, llvm, made, root, run};

/// The minimum size of each of the two AMD GPU images, in bytes. No other difference between the
/// programs is as large.
pub(super) const LARGE: u64 = 2_000_000;
/// The source includes no header, because those of Debian 13's C library do not compile for AMD
/// GPUs.
const SOURCE: &str = concat!(
    include_str!("../../on_host.h"),
    r#"#ifdef __AMDGCN__
#pragma omp begin declare target device_type(nohost)
__attribute__((used)) unsigned char large[2000000] = {1, 2, 3};
#pragma omp end declare target
#endif
int check(void) {
  int numbers[100], on_host = 1, sum = 0;
#pragma omp target teams distribute parallel for map(from: numbers)
  for (int at = 0; at < 100; at++) numbers[at] = at * 2;
#pragma omp target map(from: on_host)
  on_host = is_on_host();
  for (int at = 0; at < 100; at++) sum += numbers[at];
  printf("%d %d\n", sum, on_host);
  return sum != 9900;
}
#ifndef LIBRARY
int main(void) { return check(); }
#endif
"#
);

/// The functions of LLVM's OpenMP runtime that the program calls on the host, as an archive for
/// static programs, which cannot use shared libraries. One thread does everything.
const HOST_RUNTIME: &str = r#"
#include <stdarg.h>
typedef void task(int *, int *, ...);
static void call(task *one, int count, va_list from) {
  void *words[8] = {0};
  int zero = 0;
  for (int at = 0; at < count && at < 8; at++) words[at] = va_arg(from, void *);
  one(&zero, &zero, words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]);
}
void __kmpc_fork_call(void *place, int count, task *one, ...) {
  va_list from;
  va_start(from, one);
  call(one, count, from);
  va_end(from);
}
void __kmpc_fork_teams(void *place, int count, task *one, ...) {
  va_list from;
  va_start(from, one);
  call(one, count, from);
  va_end(from);
}
void __kmpc_for_static_init_4() {}
void __kmpc_for_static_fini() {}
"#;

/// The device compiler: LLVM's, except for SPIR-V, whose linker is not available everywhere. For
/// SPIR-V, this script writes a module without code.
const DEVICE: &str = r#"#!/bin/sh
case " $* " in
  *" --target=spirv64-intel "*) ;;
  *) exec LLVM/clang "$@" ;;
esac
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then { printf '\003\002\043\007'; head -c 50000 /dev/zero; } > "$2"; fi
  shift
done
"#;

/// The device whose image remains.
const ONE: &str = "x86_64-pc-linux-gnu";
/// All devices. The AMD images are for gfx90a and gfx908.
const ALL: &str = "x86_64-pc-linux-gnu,amdgcn-amd-amdhsa,spirv64-intel";

/// The kind of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Position-independent.
    Pie,
    /// At fixed addresses.
    Fixed,
    /// A shared library, and a program that calls it.
    Library,
    /// Position-independent without shared libraries. Its only offload runtime is the stub that
    /// logs registrations.
    StaticPie,
    /// The same at fixed addresses, for gold, which cannot link static position-independent
    /// programs.
    Static,
}

impl Kind {
    /// The kinds that a linker can link.
    pub(super) fn of(linker: &str) -> [Kind; 4] {
        [
            Kind::Pie,
            Kind::Fixed,
            Kind::Library,
            if linker == "gold" {
                Kind::Static
            } else {
                Kind::StaticPie
            },
        ]
    }

    /// Whether the program uses no shared library.
    pub(super) fn is_static(self) -> bool {
        matches!(self, Kind::StaticPie | Kind::Static)
    }

    /// The part of test names for this kind.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Pie => "pie",
            Kind::Fixed => "fixed",
            Kind::Library => "library",
            Kind::StaticPie => "static_pie",
            Kind::Static => "static",
        }
    }

    fn compiled(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Kind::Pie | Kind::StaticPie => ("pie", &["-fPIE"]),
            Kind::Fixed | Kind::Static => ("fixed", &["-fno-pie"]),
            Kind::Library => ("library", &["-fPIC", "-DLIBRARY"]),
        }
    }

    fn linked(self) -> &'static str {
        match self {
            Kind::Pie => "-pie",
            Kind::Fixed => "-no-pie",
            Kind::Library => "-shared",
            Kind::StaticPie => "-static-pie",
            Kind::Static => "-static",
        }
    }

    /// The file with the images.
    pub(super) fn file(self) -> &'static str {
        if self == Kind::Library {
            "libcheck.so"
        } else {
            "check"
        }
    }

    /// The file that is run.
    pub(super) fn run(self) -> &'static str {
        if self == Kind::Library {
            "main"
        } else {
            "check"
        }
    }
}

/// The wrapper that links the device code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrapper {
    Offld,
    Llvm,
}

/// Links the file with images for one device or for all four, and the other files needed to run it.
pub(super) fn link(
    work: &Work,
    linker: &str,
    kind: Kind,
    wrapper: Wrapper,
    is_one: bool,
) -> Result<(), Failed> {
    let inputs = inputs()?;
    // mold 2.37 does not write all relocations of a static program. The bytes of an existing
    // output stay there.
    let _ = std::fs::remove_file(work.path().join(kind.file()));
    let linker = match linker {
        "ld.lld" => llvm(linker).display().to_string(),
        named => named.to_owned(),
    };
    let mut command = work.command(llvm("clang"));
    command
        .args(targets(is_one))
        .arg(inputs.join(object(kind, is_one)))
        .args(["-o", kind.file(), kind.linked()]);
    command
        .arg("-Wl,--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all")
        .arg(format!("-fuse-ld={linker}"));
    // Device links are the same for every host linker, so all tests share a cache.
    command
        .env("OFFLD_CLANG", inputs.join("bin/clang"))
        .env("OFFLD_CACHE", &made().cache);
    command.arg("-B").arg(if wrapper == Wrapper::Offld {
        made().links.clone()
    } else {
        inputs.join("bin")
    });
    if kind.is_static() {
        command.arg("-L").arg(inputs);
    }
    run(&mut command)?;
    if kind == Kind::Library {
        work.file(
            "main.c",
            "int check(void); int main(void) { return check(); }",
        );
        work.run(
            llvm("clang"),
            ["main.c", "-L.", "-lcheck", "-o", kind.run()],
        )?;
    }
    Ok(())
}

fn targets(is_one: bool) -> Vec<String> {
    let devices = format!("-fopenmp-targets={}", if is_one { ONE } else { ALL });
    let mut words = vec![
        "-fopenmp".to_owned(),
        devices,
        "-nogpulib".to_owned(),
        "-O1".to_owned(),
    ];
    if !is_one {
        words.extend([
            "-Xopenmp-target=amdgcn-amd-amdhsa".to_owned(),
            "--offload-arch=gfx90a,gfx908".to_owned(),
        ]);
    }
    words
}

fn object(kind: Kind, is_one: bool) -> String {
    format!(
        "{}-{}.o",
        if is_one { "one" } else { "all" },
        kind.compiled().0
    )
}

/// The directory with objects, static libraries and device compilers.
fn inputs() -> Result<&'static Path, Failed> {
    static INPUTS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let inputs = INPUTS.get_or_init(|| {
        compile().map_err(|failed| failed.message().unwrap_or_default().to_owned())
    });
    inputs.as_deref().map_err(Failed::from)
}

fn compile() -> Result<PathBuf, Failed> {
    let folder = made().shared("prune");
    let work = Work::new();
    let run = |command: &mut Command| run(command.current_dir(&folder));
    std::fs::create_dir_all(folder.join("bin"))?;
    std::fs::write(folder.join("check.c"), SOURCE)?;
    for kind in [Kind::Pie, Kind::Fixed, Kind::Library] {
        for is_one in [true, false] {
            let mut compile = work.command(llvm("clang"));
            compile.args(targets(is_one)).args(kind.compiled().1).args([
                "-c",
                "check.c",
                "-o",
                &object(kind, is_one),
            ]);
            run(&mut compile)?;
        }
    }
    std::fs::write(folder.join("host.c"), HOST_RUNTIME)?;
    let stub = root().join("runtime-stubs/openmp.c");
    for (archive, source) in [
        ("libomp.a", folder.join("host.c")),
        ("libomptarget.a", stub),
    ] {
        run(work
            .command("cc")
            .args(["-std=c11", "-fPIE", "-c", "-o", "library.o"])
            .arg(source))?;
        run(work
            .command(llvm("llvm-ar"))
            .args(["rcs", archive, "library.o"]))?;
    }
    std::fs::write(folder.join("bin/clang"), DEVICE.replace("LLVM", LLVM))?;
    run(Command::new("chmod").args(["755", "bin/clang"]))?;
    // LLVM's wrapper searches its own directory for clang, and `../lib` for its libraries.
    std::fs::copy(
        llvm("clang-linker-wrapper"),
        folder.join("bin/clang-linker-wrapper"),
    )?;
    std::os::unix::fs::symlink(Path::new(LLVM).with_file_name("lib"), folder.join("lib"))?;
    Ok(folder)
}
