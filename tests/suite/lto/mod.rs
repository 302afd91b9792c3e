//! Link-time optimization of device code: cached ThinLTO units, and the partitions of full LTO.
//! With cached, damaged, changed or killed parts, the image equals that of a link without a cache.

mod distributed;
mod parts;
mod thin;
mod trouble;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::support::{LLVM, Release, Work, ensure, made, run, stderr_of};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { thin trouble distributed parts }
}

/// The number of translation units of a program.
const COUNT: usize = 4;
/// The arguments that clang passes to the wrapper for `-foffload-lto=thin`, for LLVM 22's linker.
const THIN: [&str; 4] = [
    "--device-compiler=amdgcn-amd-amdhsa=-flto=thin",
    "--device-linker=amdgcn-amd-amdhsa=-plugin-opt=-force-import-all",
    "--device-linker=amdgcn-amd-amdhsa=-plugin-opt=-avail-extern-to-local",
    "--device-linker=amdgcn-amd-amdhsa=-plugin-opt=-avail-extern-gv-in-addrspace-to-local=3",
];

/// A library from translation units with kernels for one AMD GPU.
struct Units {
    work: Work,
    release: Release,
    lto: &'static str,
}

impl Units {
    /// Compiles with `-foffload-lto=LTO`.
    fn new(lto: &'static str) -> Result<Units, Failed> {
        Units::with_release(Release::newest(), lto)
    }

    /// The same with the compiler of `release`.
    fn with_release(release: Release, lto: &'static str) -> Result<Units, Failed> {
        let units = Units {
            work: Work::new(),
            release,
            lto,
        };
        (0..COUNT).try_for_each(|unit| units.compile(unit, 1))?;
        Ok(units)
    }

    /// Compiles the unit with this number. `what` changes its kernel.
    fn compile(&self, unit: usize, what: u32) -> Result<(), Failed> {
        let code = format!(
            "void f{unit}(int *x) {{\n#pragma omp target map(tofrom: x[0:64])\n  for (int i = 1; i < 64; ++i)\n    \
             x[i] = x[i - 1] * {what} + x[i] / (i + {unit}) - {what}{unit};\n}}\n"
        );
        let source = self.work.file(&format!("f{unit}.c"), code);
        let mut compile = self.work.command(self.release.tool("clang"));
        compile.args(["-O2", "-fopenmp", "-nogpulib", "-fPIC", "-c"]);
        compile
            .args(gpu(&self.release))
            .arg(format!("-foffload-lto={}", self.lto))
            .arg(source);
        run(&mut compile).map(drop)
    }

    /// The wrapper's command for these units, with the additional arguments `more`. Every link has
    /// the same output path, by which offld finds the units of the previous link.
    fn link(&self, cache: &Path, more: &[&str]) -> Command {
        let mut link = self.work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--wrapper-verbose",
            "-shared",
            "-o",
            "out.so",
        ]);
        link.arg(format!("--linker-path={LLVM}/ld.lld"));
        link.arg("--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all");
        if self.lto == "thin" {
            link.args(if self.release.major >= 22 {
                &THIN
            } else {
                &THIN[..1]
            });
        }
        link.args((0..COUNT).map(|unit| format!("f{unit}.o")))
            .args(more);
        link.env("OFFLD_CLANG", self.release.tool("clang"))
            .env("OFFLD_CACHE", cache);
        link
    }

    /// Runs a link. Returns its messages and the library.
    fn linked(&self, cache: &Path, more: &[&str]) -> Result<(String, Vec<u8>), Failed> {
        let stderr = stderr_of(&mut self.link(cache, more))?;
        Ok((stderr, fs::read(self.work.path().join("out.so"))?))
    }

    /// The library from a link without a cache.
    fn right(&self, more: &[&str]) -> Result<Vec<u8>, Failed> {
        Ok(self.linked(Path::new("off"), more)?.1)
    }

    /// A link with the cache, which must make the correct library and report these numbers of
    /// units.
    fn expect(&self, found: usize, compiled: usize, more: &[&str]) -> Result<String, Failed> {
        let (said, made) = self.linked(&self.cache(), more)?;
        let told = format!("ThinLTO: {found} units found in the cache, {compiled} compiled");
        ensure(said.contains(&told), || format!("not said: {told}\n{said}"))?;
        ensure(made == self.right(more)?, || {
            format!("another library than without the cache\n{said}")
        })?;
        Ok(said)
    }

    fn cache(&self) -> PathBuf {
        self.work.path().join("cache")
    }

    /// Runs `offld cache WORDS` on the cache.
    fn tool(&self, words: &[&str]) -> Result<String, Failed> {
        run(self
            .work
            .command(crate::support::offld())
            .arg("cache")
            .args(words)
            .env("OFFLD_CACHE", self.cache()))
    }

    /// A number from the output of `offld cache stats --json`.
    fn stat(&self, name: &str) -> Result<u64, Failed> {
        let text = self.tool(&["stats", "--json"])?;
        let stats: serde_json::Value = serde_json::from_str(&text)?;
        stats[name]
            .as_u64()
            .ok_or_else(|| format!("no {name} in {text}").into())
    }
}

/// The clang arguments that compile for a GPU.
fn gpu(release: &Release) -> Vec<&'static str> {
    if release.major >= 15 {
        return vec!["--offload-arch=gfx90a"];
    }
    vec![
        "-fopenmp-targets=amdgcn-amd-amdhsa",
        "-Xopenmp-target=amdgcn-amd-amdhsa",
        "-march=gfx90a",
        "-fopenmp-new-driver",
    ]
}

/// All files below a directory.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| {
            if entry.path().is_dir() {
                files(&entry.path())
            } else {
                vec![entry.path()]
            }
        })
        .collect()
}
