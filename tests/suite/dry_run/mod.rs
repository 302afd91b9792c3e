//! The same link commands, as clang 22 writes them, for offld's and LLVM's
//! `clang-linker-wrapper --dry-run`. The commands that both print must be equal except for the
//! differences in `rules`. Each difference has a reason, and must occur in exactly the cases that
//! name it.

mod rules;
mod shown;
mod steps;

use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, HOST, Image, NVIDIA};
use crate::support::{
    OFFLOAD, Outcome, Work, expect_equal, expect_in, llvm, made, output, passed, run, stderr_of,
    text, with_llvm,
};
use rules::*;
use shown::Shown;
pub(crate) use shown::shell_words;

/// A link: clang's arguments, and the differences between offld and LLVM's wrapper. The differences
/// are in the order in which they turn LLVM's commands into offld's. `objects` provides the input
/// files.
struct Case {
    name: &'static str,
    clang: &'static str,
    rules: &'static [&'static Rule],
}

const CPU: &str = "-fopenmp -fopenmp-targets=x86_64-pc-linux-gnu";
const GPU: &str = "-fopenmp -nogpulib --offload-arch=gfx908,gfx90a";

/// The cases. `HOST` and `AMD` stand for `CPU` and `GPU`.
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
    Case { name: "mllvm", clang: "HOST -mllvm -inline-threshold=9 -Wl,-mllvm,-unroll-count=2 -Wl,--offload-opt=-unroll-threshold=3 p.o q.o -o x", rules: &[&RUNTIME, &LOADER, &AS_NEEDED, &PLAIN_WORDS] },
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
    let mut trials: Vec<Trial> = CASES
        .iter()
        .map(|case| with_llvm(&format!("dry_run::{}", case.name), || check(case)))
        .collect();
    trials.push(with_llvm(
        "dry_run::missing_inputs_are_errors_as_in_a_real_link",
        missing_inputs,
    ));
    trials.extend(steps::trials());
    trials
}

/// If an input is missing or unreadable, a dry run fails like a real link. LLVM's wrapper reports
/// only missing libraries, in both.
fn missing_inputs() -> Outcome {
    let work = Work::new();
    work.fat_with(
        "a.o",
        &[Image::amd("gfx90a", "A")],
        "int main(void) { return 0; }",
    )?;
    work.file("plain.c", "int main(void) { return 0; }");
    work.run(llvm("clang"), ["-c", "plain.c", "-o", "plain.o"])?;
    work.file("cut.ld", "SECTIONS {}");
    work.archive("libhere.a", &["plain.o"])?;
    std::fs::create_dir(work.path().join("folder"))?;
    std::fs::create_dir(work.path().join("scripts"))?;
    work.file("scripts/extra.ld", "EXTERN(main)");
    std::os::unix::fs::symlink("gone", work.path().join("dangling.o"))?;
    work.tool(
        "tools/clang",
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && echo image > \"$2\"; shift; done\n",
    );
    let says: [(&[&str], &[&str]); 12] = [
        (&["-lnope"], &["unable to find library -lnope"]),
        (
            &["-l:nope.a", "-lnope"],
            &[
                "unable to find library -l:nope.a",
                "unable to find library -lnope",
            ],
        ),
        (
            &["-lnope", "gone.o", "-lnope"],
            &[
                "unable to find library -lnope",
                "cannot open the input 'gone.o': No such file or directory",
            ],
        ),
        (
            &["gone/libx.a"],
            &["cannot open the input 'gone/libx.a': No such file or directory"],
        ),
        (
            &["dangling.o"],
            &["cannot open the input 'dangling.o': No such file or directory"],
        ),
        (
            &["folder"],
            &["cannot open the input 'folder': Is a directory"],
        ),
        (
            &["@gone.rsp"],
            &["cannot open the input '@gone.rsp': No such file or directory"],
        ),
        (
            &["-T", "gone.ld"],
            &["cannot open the input 'gone.ld': No such file or directory"],
        ),
        (&["-L.", "-Bstatic", "-lhere"], &[]),
        (&["-Lscripts", "-T", "extra.ld"], &[]),
        // In a directory that GNU ld searches by default.
        (&["-lm"], &[]),
        (&["--start-group", "-L.", "-lhere", "--end-group"], &[]),
    ];
    for linker in [
        "/usr/bin/ld.bfd",
        "/usr/bin/ld.gold",
        "/usr/lib/llvm-22/bin/ld.lld",
    ] {
        for object in ["a.o", "plain.o"] {
            for (args, expected) in says {
                // ld.lld searches no default directories. gold does not accept a script without
                // sections as an addition to its own.
                if linker.ends_with("lld") && args == ["-lm"]
                    || linker.ends_with("gold") && args.contains(&"extra.ld")
                {
                    continue;
                }
                let host = [
                    "--host-triple=x86_64-unknown-linux-gnu",
                    "-m",
                    "elf_x86_64",
                    "-shared",
                    "-o",
                    "x",
                ];
                let path = format!("--linker-path={linker}");
                let line = |dry: &[&str]| {
                    let mut link = work.command(made().links.join("clang-linker-wrapper"));
                    link.args(host)
                        .arg(&path)
                        .args(dry)
                        .arg(object)
                        .args(args)
                        .env("OFFLD_CLANG", work.path().join("tools/clang"));
                    link
                };
                let shown = output(&mut line(&["--dry-run"]))?;
                let what = format!("{linker} {object} {args:?}: {}", text(&shown.stderr));
                expect_equal(
                    &what,
                    &expected.is_empty().to_string(),
                    &shown.status.success().to_string(),
                )?;
                expected
                    .iter()
                    .try_for_each(|says| expect_in(&text(&shown.stderr), says))?;
                let real = output(&mut line(&[]))?;
                let what = format!("really: {what}: {}", text(&real.stderr));
                expect_equal(
                    &what,
                    &expected.is_empty().to_string(),
                    &real.status.success().to_string(),
                )?;
            }
        }
    }
    passed()
}

fn check(case: &Case) -> Outcome {
    let work = Work::new();
    for entry in std::fs::read_dir(objects()?.path())? {
        let entry = entry?;
        std::os::unix::fs::symlink(entry.path(), work.path().join(entry.file_name()))?;
    }
    let line = recorded(&work, case)?;
    let shown = |mut wrapper: Command, form| -> Result<Shown, Failed> {
        let printed = stderr_of(
            wrapper
                .arg("--dry-run")
                .args(&line)
                .env("OFFLD_CLANG", llvm("clang")),
        )?;
        Shown::read(&printed, form, work.path())
    };
    let ours = shown(
        work.command(made().links.join("clang-linker-wrapper")),
        shown::Form::Shell,
    )?;
    let mut theirs = shown(work.command(llvm("clang-linker-wrapper")), shown::Form::Raw)?;
    for rule in case.rules {
        let before = theirs.clone();
        (rule.apply)(&mut theirs);
        if theirs == before {
            return Err(format!(
                "no longer a difference: {} ({})\nours:\n{ours}\nLLVM's:\n{theirs}",
                rule.what, rule.why
            )
            .into());
        }
    }
    let reasons: String = case
        .rules
        .iter()
        .map(|rule| format!("\n  {}: {}", rule.what, rule.why))
        .collect();
    expect_equal(
        &format!("{line:?}\nours (actual) and LLVM's (expected), with these differences:{reasons}"),
        &theirs.to_string(),
        &ours.to_string(),
    )?;
    passed()
}

/// The arguments with which clang would run its wrapper.
fn recorded(work: &Work, case: &Case) -> Result<Vec<String>, Failed> {
    let arguments = case.clang.replace("HOST", CPU).replace("AMD", GPU);
    let commands = stderr_of(
        work.command(llvm("clang++"))
            .arg("-###")
            .args(arguments.split(' ')),
    )?;
    let line = commands
        .lines()
        .find(|line| line.contains("/clang-linker-wrapper\" "));
    let line = line.ok_or_else(|| format!("clang calls no wrapper:\n{commands}"))?;
    Ok(shown::shell_words(line).split_off(1))
}

/// The input files of the cases, created once. Most contain stand-ins for device code.
fn objects() -> Result<&'static Work, Failed> {
    static OBJECTS: OnceLock<Result<Work, String>> = OnceLock::new();
    OBJECTS
        .get_or_init(|| {
            make_objects().map_err(|failed| failed.message().unwrap_or_default().to_owned())
        })
        .as_ref()
        .map_err(|message| message.as_str().into())
}

fn make_objects() -> Result<Work, Failed> {
    let work = Work::new();
    let image = |triple, arch| Image {
        triple,
        arch,
        kind: "openmp",
        bytes: b"device code",
    };
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
    work.fat_for(
        "aarch64-unknown-linux-gnu",
        "arm.o",
        &[image("aarch64-unknown-linux-gnu", "generic")],
        uses,
    )?;
    work.fat_for("x86_64-pc-windows-msvc", "win.o", &host, uses)?;
    std::fs::create_dir(work.path().join("sub"))?;
    let target =
        "int f(int x) { int y = 0;\n#pragma omp target map(tofrom: y)\n y = x;\n return y; }\n";
    work.file("real.c", target);
    let compile = |flags: &[&str], name: &str| -> Result<String, Failed> {
        run(work
            .command(llvm("clang"))
            .args(flags)
            .args(["-c", "real.c", "-o", name]))
    };
    compile(&[&OFFLOAD[..], &["-O2", "-g"]].concat(), "real-p.o")?;
    compile(&[&OFFLOAD[..], &["-O2", "-Df=g"]].concat(), "real-q.o")?;
    compile(&[&OFFLOAD[..], &["-O2", "-flto"]].concat(), "lto-p.o")?;
    let gpu: Vec<&str> = GPU.split(' ').collect();
    compile(&[&gpu[..], &["-O2"]].concat(), "real-amd-p.o")?;
    compile(&[&gpu[..], &["-O2", "-Df=g"]].concat(), "real-amd-q.o")?;
    Ok(work)
}
