//! Device links for NVIDIA GPUs in the cache: every file that the tools read, and searches for
//! stale images.

mod kept;
mod reads;
mod stale;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::log::outcomes;
use crate::support::{Outcome, Release, Work, cuda_tools, llvm, made, missing, run};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { kept reads stale }
}

/// A program with device code for an NVIDIA GPU, and its own toolkit.
struct Site {
    work: Work,
    release: Release,
    /// The directory of the real tools.
    real: PathBuf,
}

impl Site {
    /// Creates `toolkit`, with symlinks to the real tools. Objects: `a.o`, whose kernel `k` needs
    /// `helper` from `b.o`; both have machine code, or bitcode if `bitcode`. `libb1.a` and
    /// `libb2.a` are libraries with two other helpers.
    fn new(major: u32, bitcode: bool) -> Result<Site, Outcome> {
        let release = Release::of(major)
            .ok_or_else(|| missing(format!("LLVM {major} (make setup-releases)")))?;
        let real = cuda_tools(22).ok_or_else(|| missing("NVIDIA's tools (make setup-cuda)"))?;
        let site = Site {
            work: Work::new(),
            release,
            real,
        };
        site.create_files(bitcode).map_err(Err)?;
        Ok(site)
    }

    fn create_files(&self, bitcode: bool) -> Result<(), Failed> {
        self.toolkit("toolkit")?;
        let prelude = "#define __device__ __attribute__((device))\n#define __global__ __attribute__((global))\n";
        let helper = "extern \"C\" __device__ int helper(int);\n";
        let mut images = Vec::new();
        let caller =
            format!("{helper}extern \"C\" __global__ void k(int *x) {{ *x = helper(*x) * 7; }}\n");
        let answer = |factor: u32| {
            format!("extern \"C\" __device__ int helper(int x) {{ return x + {factor}; }}\n")
        };
        for (name, body) in [
            ("a", caller),
            ("b", answer(1000)),
            ("b1", answer(1000)),
            ("b2", answer(2000)),
        ] {
            self.work
                .file(&format!("{name}.cu"), format!("{prelude}{body}"));
            let object = format!("{name}.device");
            let mut compile = self.work.command(self.release_compiler().join("clang++"));
            compile.args([
                "-x",
                "cuda",
                "-O1",
                "-nocudainc",
                "-nocudalib",
                "--offload-arch=sm_80",
                "-fgpu-rdc",
            ]);
            compile.args([
                "--cuda-device-only",
                "-Wno-unknown-cuda-version",
                "-c",
                &format!("{name}.cu"),
                "-o",
                &object,
            ]);
            compile.arg(format!(
                "--cuda-path={}",
                self.work.path().join("toolkit").display()
            ));
            run(if bitcode {
                compile.arg("-emit-llvm")
            } else {
                &mut compile
            })?;
            images.push((name, object));
        }
        for (name, object) in &images {
            let bytes = fs::read(self.work.path().join(object))?;
            self.work
                .fat(&format!("{name}.o"), &[Image::cuda("sm_80", &bytes)])?;
            self.work
                .run(llvm("llvm-ar"), ["rcsD", &format!("lib{name}.a"), object])?;
        }
        Ok(())
    }

    /// Compilers up to 18 cannot compile for this toolkit. Machine code does not depend on the
    /// compiler.
    fn release_compiler(&self) -> PathBuf {
        if self.release.major < 19 {
            Release::newest().bin
        } else {
            self.release.bin.clone()
        }
    }

    /// Creates a toolkit in the directory `name`.
    fn toolkit(&self, name: &str) -> Result<(), Failed> {
        let folder = self.work.path().join(name);
        fs::create_dir_all(folder.join("bin"))?;
        for tool in ["ptxas", "nvlink", "fatbinary"] {
            symlink(
                self.real.join("bin").join(tool),
                folder.join("bin").join(tool),
            )?;
        }
        self.work.file(
            &format!("{name}/include/cuda.h"),
            "#define CUDA_VERSION 11080\n",
        );
        self.work
            .file(&format!("{name}/nvvm/libdevice/libdevice.10.bc"), "BC");
        Ok(())
    }

    /// Replaces a tool by a program that runs the real one, with `extra` before its arguments, and
    /// appends `tail` to its output.
    fn replace(&self, tool: &str, extra: &str, tail: &str) -> Result<(), Failed> {
        let program = self
            .real
            .join("bin")
            .join(Path::new(tool).file_name().unwrap_or_default());
        let source = include_str!("tool.c");
        let source = source
            .replace("PROGRAM", &program.display().to_string())
            .replace("EXTRA", extra)
            .replace("TAIL", tail);
        self.work.file("tool.c", source);
        let _ = fs::remove_file(self.work.path().join(tool));
        run(self
            .work
            .command(llvm("clang"))
            .args(["-O1", "tool.c", "-o", tool]))?;
        fs::set_permissions(
            self.work.path().join(tool),
            fs::Permissions::from_mode(0o755),
        )?;
        Ok(())
    }

    /// Links with `args`. Returns the fatbinary, and the outcome of the device link with its
    /// reason.
    fn link(
        &self,
        args: &[&str],
        environment: &[(&str, &str)],
        cached: bool,
    ) -> Result<(Vec<u8>, (String, String)), Failed> {
        self.link_through(self.work.command("env"), args, environment, cached)
    }

    /// Like `link`, with `command` in front of the wrapper.
    fn link_through(
        &self,
        mut command: Command,
        args: &[&str],
        environment: &[(&str, &str)],
        cached: bool,
    ) -> Result<(Vec<u8>, (String, String)), Failed> {
        // offld does not cache links that read files written just before.
        std::thread::sleep(Duration::from_millis(60));
        let log = self.work.path().join("log");
        let _ = fs::remove_file(&log);
        command.arg(made().links.join("clang-linker-wrapper"));
        command.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--emit-fatbin-only",
            "-o",
            "out.fatbin",
            "a.o",
        ]);
        command
            .args(args)
            .env("OFFLD_CLANG", self.release.tool("clang"))
            .env("OFFLD_CACHE_LOG", &log);
        command
            .env_remove("LIBRARY_PATH")
            .envs(environment.iter().copied());
        let cache = if cached {
            self.work.path().join("cache")
        } else {
            "off".into()
        };
        run(command.env("OFFLD_CACHE", cache))?;
        let outcome = outcomes(&log)?.pop().ok_or("no line in the log")?;
        Ok((fs::read(self.work.path().join("out.fatbin"))?, outcome))
    }
}
