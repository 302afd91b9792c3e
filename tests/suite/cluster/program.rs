//! Programs and libraries of a few translation units for the links on the cluster, compiled by real
//! compilers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;

use super::fixture::Lent;
use crate::support::{
    LLVM, OFFLOAD, Release, Work, ensure, llvm, made, run, run_offloaded, stderr_of,
};

pub(super) const SIX: [&str; 6] = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100"];
const UNITS: usize = 3;
/// The arguments that clang passes to the wrapper for `-foffload-lto=thin`.
const THIN: [&str; 4] = [
    "--device-compiler=amdgcn-amd-amdhsa=-flto=thin",
    "--device-linker=amdgcn-amd-amdhsa=-plugin-opt=-force-import-all",
    "--device-linker=amdgcn-amd-amdhsa=-plugin-opt=-avail-extern-to-local",
    "--device-linker=amdgcn-amd-amdhsa=-plugin-opt=-avail-extern-gv-in-addrspace-to-local=3",
];

/// The device of the code.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// AMD GPUs: a library, which cannot run here.
    Amd(&'static [&'static str]),
    /// The host as a device: a program that runs.
    Host,
}

/// Several translation units in a directory.
pub(super) struct Program {
    pub(super) folder: PathBuf,
    code_for: For,
    thin: bool,
}

impl Program {
    /// Creates `folder` with the compiled translation units. `lto` is `full` or `thin`.
    pub(super) fn new(
        folder: PathBuf,
        code_for: For,
        lto: &'static str,
    ) -> Result<Program, Failed> {
        let device = if let For::Amd(archs) = code_for {
            archs.join("-")
        } else {
            "host".to_owned()
        };
        // Compiled once for all tests. Only one test runs at a time.
        let compiled = made().shared("cluster").join(format!("{device}-{lto}"));
        if !compiled.is_dir() {
            let work = Work::new();
            (0..UNITS).try_for_each(|unit| compile(&work, unit, code_for, lto))?;
            fs::create_dir_all(&compiled)?;
            copy_objects(work.path(), &compiled)?;
        }
        fs::create_dir_all(&folder)?;
        copy_objects(&compiled, &folder)?;
        Ok(Program {
            folder,
            code_for,
            thin: lto == "thin",
        })
    }

    /// The link, with the launcher `launcher` unless it is empty, and with the additional wrapper
    /// arguments `more`.
    pub(super) fn link(&self, lent: &Lent, work: &Work, launcher: &str, more: &[&str]) -> Command {
        let mut link = match self.code_for {
            For::Amd(_) => self.library(work, more),
            For::Host => self.program(work, more),
        };
        link.current_dir(&self.folder);
        lent.with(&mut link);
        if !launcher.is_empty() {
            link.env("OFFLD_LAUNCHER", launcher);
        }
        link
    }

    fn library(&self, work: &Work, more: &[&str]) -> Command {
        let mut link = work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--wrapper-verbose",
            "-shared",
            "-o",
            "out",
        ]);
        link.arg(format!("--linker-path={LLVM}/ld.lld"));
        link.arg("--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all");
        if self.thin {
            link.args(THIN);
        }
        link.args((0..UNITS).map(|unit| format!("f{unit}.o")))
            .args(more)
            .env("OFFLD_CLANG", llvm("clang"));
        link
    }

    fn program(&self, work: &Work, more: &[&str]) -> Command {
        let mut link = work.command(llvm("clang"));
        link.arg("-B")
            .arg(&made().links)
            .arg("-fuse-ld=lld")
            .args(OFFLOAD)
            .args(&Release::newest().link);
        link.arg(if self.thin {
            "-foffload-lto=thin"
        } else {
            "-foffload-lto=full"
        });
        link.args((0..UNITS).map(|unit| format!("f{unit}.o")))
            .args(["main.o", "-o", "out", "-Wl,--wrapper-verbose"]);
        link.args(more.iter().map(|word| format!("-Wl,{word}")));
        link
    }

    /// Runs a link, and the program if it makes one. Returns the messages and the output file's
    /// bytes.
    pub(super) fn linked(
        &self,
        work: &Work,
        link: &mut Command,
    ) -> Result<(String, Vec<u8>), Failed> {
        let _ = fs::remove_file(self.output());
        let said = stderr_of(link)?;
        if self.code_for == For::Host {
            let printed = run_offloaded(&mut work.command(self.output()))?;
            ensure(printed.trim() == "20", || {
                format!("the program prints {printed}\n{said}")
            })?;
        }
        self.expect_no_temps(&said)?;
        Ok((said, fs::read(self.output())?))
    }

    /// The path of the linked file.
    pub(super) fn output(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// Fails if a job left files next to the output.
    pub(super) fn expect_no_temps(&self, said: &str) -> Result<(), Failed> {
        let left = temps(&self.folder)?;
        ensure(left.is_empty(), || {
            format!("left in {}: {left:?}\n{said}", self.folder.display())
        })
    }
}

/// offld's temporary directories in `folder`.
pub(super) fn temps(folder: &Path) -> Result<Vec<PathBuf>, Failed> {
    let all = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(all
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("offld-"))
        })
        .collect())
}

fn copy_objects(from: &Path, to: &Path) -> Result<(), Failed> {
    for path in fs::read_dir(from)?.filter_map(|entry| Some(entry.ok()?.path())) {
        if let (Some(name), Some("o")) = (
            path.file_name(),
            path.extension().and_then(|end| end.to_str()),
        ) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn compile(work: &Work, unit: usize, code_for: For, lto: &str) -> Result<(), Failed> {
    let code = match code_for {
        For::Amd(_) => format!(
            "void f{unit}(int *x) {{\n#pragma omp target map(tofrom: x[0:64])\n  for (int i = 1; i < 64; ++i)\n    \
             x[i] = x[i - 1] * 3 + x[i] / (i + {unit}) - {unit};\n}}\n"
        ),
        For::Host => {
            format!(
                "int f{unit}(int x) {{\n#pragma omp target map(tofrom: x)\n  x = x * 2 + {unit};\n  return x;\n}}\n"
            )
        }
    };
    let source = work.file(&format!("f{unit}.c"), code);
    let mut compile = work.command(llvm("clang"));
    compile
        .args(["-O2", "-fopenmp", "-fPIC", "-c"])
        .arg(format!("-foffload-lto={lto}"))
        .arg(source);
    match code_for {
        For::Amd(archs) => compile
            .arg("-nogpulib")
            .arg(format!("--offload-arch={}", archs.join(","))),
        For::Host => compile.arg(OFFLOAD[1]),
    };
    run(&mut compile)?;
    if code_for == For::Host && unit == 0 {
        let main = "#include <stdio.h>\nint f0(int), f1(int), f2(int);\nint main(void) { printf(\"%d\\n\", f2(f1(f0(2)))); }\n";
        run(work
            .command(llvm("clang"))
            .args(["-O1", "-c"])
            .arg(work.file("main.c", main)))?;
    }
    Ok(())
}
