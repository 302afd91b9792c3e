//! The same link lines, as clang 22 writes them, to our `clang-linker-wrapper --dry-run` and to LLVM's. What the two would run
//! must be the same but for the differences in `rules`: each has its reason, and each must show on the very lines that name it.

mod rules;
mod shown;

use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, HOST, Image, NVIDIA};
use crate::support::{OFFLOAD, Outcome, Work, expect_equal, llvm, made, passed, run, stderr_of, with_llvm};
use rules::*;
use shown::Shown;
pub(crate) use shown::shell_words;

/// A link: what clang is told, and the differences between what offld and LLVM's wrapper then do, in the order in which they
/// turn LLVM's commands into ours. The files are those of `objects`.
struct Case {
    name: &'static str,
    clang: &'static str,
    rules: &'static [&'static Rule],
}

const CPU: &str = "-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu";
const GPU: &str = "-fopenmp -nogpulib --offload-arch=gfx908,gfx90a";

/// The cases; `HOST` and `AMD` in a line stand for `CPU` and `GPU`.
#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { name: "plain", clang: "HOST plain.o -o x", rules: &[] },
    Case { name: "one", clang: "HOST p.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "optimised_with_debug_information", clang: "HOST -O2 -g p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "two_units_for_real", clang: "HOST -O2 -g real-p.o real-q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "host_lto", clang: "HOST -flto lto-p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &PLUGIN, &AS_NEEDED] },
    Case { name: "thin_host_lto_with_lld", clang: "HOST -flto=thin -fuse-ld=lld lto-p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED, &LINKER] },
    Case { name: "lld", clang: "HOST -fuse-ld=lld p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED, &LINKER] },
    Case { name: "library", clang: "HOST -L. p.o -lq -o x", rules: &[&MEMBER, &ARCHIVE, &RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "library_twice", clang: "HOST -L. p.o -lq -lm -lq -o x", rules: &[&ONCE, &MEMBER, &ARCHIVE, &RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "archive_by_path", clang: "HOST p.o ./libq.a libhost.a -o x", rules: &[&MEMBER, &ARCHIVE, &RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "whole_archive", clang: "HOST p.o -Wl,--whole-archive libq.a -Wl,--no-whole-archive libhost.a -o x", rules: &[&WHOLE, &ARCHIVE, &RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "static_libstdcxx", clang: "HOST -static-libstdc++ p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED, &STATIC] },
    Case { name: "shared", clang: "HOST -shared p.o q.o -o x.so", rules: &[&RUNTIME, &AS_NEEDED] },
    Case { name: "no_pie_and_run_path", clang: "HOST -no-pie -Wl,-rpath,/opt/lib p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "sysroot", clang: "HOST --sysroot=/ p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED, &SYSROOT] },
    Case { name: "no_libraries", clang: "HOST -nostdlib p.o q.o -o x", rules: &[&LOADER] },
    Case { name: "save_temps", clang: "HOST -save-temps p.o q.o -o sub/x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "offload_linker", clang: "HOST -Xoffload-linker --a -Xoffload-linker-x86_64-pc-linux-gnu b=c p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "mllvm", clang: "HOST -mllvm -inline-threshold=9 -Wl,-mllvm,-unroll-count=2 -Wl,--offload-opt=-unroll-threshold=3 p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "verbose", clang: "HOST -v p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED] },
    Case { name: "two_outputs", clang: "HOST -nostdlib p.o q.o -o x -Wl,-o,y", rules: &[&LAST_OUTPUT, &LOADER] },
    Case { name: "relocatable", clang: "HOST -r p.o q.o -o x.o", rules: &[&UNDEFINED] },
    Case { name: "aarch64", clang: "--target=aarch64-linux-gnu -fuse-ld=lld -fopenmp -fopenmp-targets=aarch64-linux-gnu -nostdlib arm.o -o x", rules: &[&LINKER] },
    Case { name: "windows", clang: "--target=x86_64-pc-windows-msvc -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu win.o -o x.exe", rules: &[] },
    Case { name: "amdgcn", clang: "AMD amd-p.o -o x", rules: &[&ORDER] },
    Case { name: "amdgcn_two_units_for_real", clang: "AMD -O2 real-amd-p.o real-amd-q.o -o x", rules: &[&ORDER] },
    Case { name: "amdgcn_options", clang: "AMD -O3 -g -save-temps -mllvm -inline-threshold=9 -Wl,-mllvm,-unroll-count=2 -Xoffload-linker --a amd-p.o amd-q.o -o x", rules: &[&ORDER] },
    Case { name: "amdgcn_for_run_time_compilation", clang: "AMD -fopenmp-target-jit amd-p.o amd-q.o -o x", rules: &[&ORDER] },
    Case { name: "amdgcn_thin_lto", clang: "AMD -foffload-lto=thin amd-p.o amd-q.o -o x", rules: &[&ORDER] },
    Case { name: "amdgcn_library", clang: "AMD amd-p.o libamd-q.a -o x", rules: &[&ORDER] },
    Case { name: "amdgcn_library_by_target", clang: "AMD plain.o libamd-q.a -o x", rules: &[&ORDER] },
    Case { name: "amdgcn_generic_first", clang: "AMD generic.o amd-p.o -o x", rules: &[&GENERIC, &ORDER] },
    Case { name: "amdgcn_generic_last", clang: "AMD amd-p.o generic.o -o x", rules: &[&GENERIC, &ORDER] },
    Case { name: "nvptx", clang: "-fopenmp -nogpulib --offload-arch=sm_70,sm_80 -O2 -Xcuda-ptxas -v nv-p.o nv-q.o -o x", rules: &[&ORDER] },
    Case { name: "nvptx_cuda_path", clang: "-fopenmp -nogpulib --offload-arch=sm_70 --cuda-path=/c nv-p.o -o x", rules: &[&ORDER] },
    Case { name: "spirv", clang: "-fopenmp -nogpulib -fopenmp-targets=spirv64-intel -O2 spirv.o -o x", rules: &[] },
    Case { name: "gpu_and_host", clang: "-fopenmp -nogpulib -fopenmp-targets=x86_64-pc-linux-gnu,amdgcn-amd-amdhsa -Xopenmp-target=amdgcn-amd-amdhsa -march=gfx90a amd-p.o p.o -o x", rules: &[&ORDER, &RUNTIME, &LOADER, &AS_NEEDED] },
];

pub(crate) fn trials() -> Vec<Trial> {
    CASES.iter().map(|case| with_llvm(&format!("dry_run::{}", case.name), || check(case))).collect()
}

fn check(case: &Case) -> Outcome {
    let work = Work::new();
    for entry in std::fs::read_dir(objects()?.path())? {
        let entry = entry?;
        std::os::unix::fs::symlink(entry.path(), work.path().join(entry.file_name()))?;
    }
    let line = recorded(&work, case)?;
    let shown = |mut wrapper: Command, form| -> Result<Shown, Failed> {
        let printed = stderr_of(wrapper.arg("--dry-run").args(&line).env("OFFLD_CLANG", llvm("clang")))?;
        Shown::read(&printed, form, work.path())
    };
    let ours = shown(work.command(made().links.join("clang-linker-wrapper")), shown::Form::Shell)?;
    let mut theirs = shown(work.command(llvm("clang-linker-wrapper")), shown::Form::Raw)?;
    for rule in case.rules {
        let before = theirs.clone();
        (rule.apply)(&mut theirs);
        if theirs == before {
            return Err(format!("no longer a difference: {} ({})\nours:\n{ours}\nLLVM's:\n{theirs}", rule.what, rule.why).into());
        }
    }
    let reasons: String = case.rules.iter().map(|rule| format!("\n  {}: {}", rule.what, rule.why)).collect();
    expect_equal(
        &format!("{line:?}\nours (actual) and LLVM's (expected), with these differences:{reasons}"),
        &theirs.to_string(),
        &ours.to_string(),
    )?;
    passed()
}

/// The arguments that clang would run its wrapper with.
fn recorded(work: &Work, case: &Case) -> Result<Vec<String>, Failed> {
    let told = case.clang.replace("HOST", CPU).replace("AMD", GPU);
    let commands = stderr_of(work.command(llvm("clang++")).arg("-###").args(told.split(' ')))?;
    let line = commands.lines().find(|line| line.contains("/clang-linker-wrapper\" "));
    let line = line.ok_or_else(|| format!("clang calls no wrapper:\n{commands}"))?;
    Ok(shown::shell_words(line).split_off(1))
}

/// The files that cases name, made once: stand-ins for device code, and some of the real thing.
fn objects() -> Result<&'static Work, Failed> {
    static OBJECTS: OnceLock<Result<Work, String>> = OnceLock::new();
    OBJECTS
        .get_or_init(|| make_objects().map_err(|failed| failed.message().unwrap_or_default().to_owned()))
        .as_ref()
        .map_err(|message| message.as_str().into())
}

fn make_objects() -> Result<Work, Failed> {
    let work = Work::new();
    let image = |triple, arch| Image { triple, arch, kind: "openmp", bytes: b"device code" };
    let host = [image(HOST, "generic")];
    let amd = [image(AMD, "gfx908"), image(AMD, "gfx90a")];
    let nvidia = [image(NVIDIA, "sm_70"), image(NVIDIA, "sm_80")];
    let uses = "int q(void); int main() { return q(); }\n";
    let defines = "int q(void) { return 0; }\n";
    work.fat_with("p.o", &host, uses)?;
    work.fat_with("q.o", &host, defines)?;
    work.fat("unused.o", &host)?;
    work.archive("libq.a", &["q.o", "unused.o"])?;
    work.fat_with("amd-p.o", &amd, uses)?;
    work.fat_with("amd-q.o", &amd, defines)?;
    work.archive("libamd-q.a", &["amd-q.o"])?;
    work.fat("generic.o", &[image(AMD, "generic")])?;
    work.fat_with("nv-p.o", &nvidia, uses)?;
    work.fat_with("nv-q.o", &nvidia, defines)?;
    work.fat("spirv.o", &[image("spirv64-intel", "generic")])?;
    work.fat("plain.o", &[])?;
    work.fat("host.o", &[])?;
    work.archive("libhost.a", &["host.o"])?;
    work.fat_for("aarch64-unknown-linux-gnu", "arm.o", &[image("aarch64-unknown-linux-gnu", "generic")], uses)?;
    work.fat_for("x86_64-pc-windows-msvc", "win.o", &host, uses)?;
    std::fs::create_dir(work.path().join("sub"))?;
    let target = "int f(int x) { int y = 0;\n#pragma omp target map(tofrom: y)\n y = x;\n return y; }\n";
    work.file("real.c", target);
    let compile = |flags: &[&str], name: &str| -> Result<String, Failed> {
        run(work.command(llvm("clang")).args(flags).args(["-c", "real.c", "-o", name]))
    };
    compile(&[&OFFLOAD[..], &["-O2", "-g"]].concat(), "real-p.o")?;
    compile(&[&OFFLOAD[..], &["-O2", "-Df=g"]].concat(), "real-q.o")?;
    compile(&[&OFFLOAD[..], &["-O2", "-flto"]].concat(), "lto-p.o")?;
    let gpu: Vec<&str> = GPU.split(' ').collect();
    compile(&[&gpu[..], &["-O2"]].concat(), "real-amd-p.o")?;
    compile(&[&gpu[..], &["-O2", "-Df=g"]].concat(), "real-amd-q.o")?;
    Ok(work)
}
