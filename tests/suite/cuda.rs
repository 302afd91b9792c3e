//! NVIDIA's CUDA tools: which of them offld runs for a device link, with which arguments, and
//! whether they can read the linked image.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use super::kinds::{Case, Tools, Wrapper};
use super::kit::{Image, NVIDIA};
use super::support::{
    Outcome, Work, cuda_tools, ensure, expect_equal, expect_in, expect_not_in, llvm, made, missing,
    output, passed, run, run_failing, shown, test, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "cuda::the_device_link_is_told_of_cuda_path",
            cuda_path_is_added_once,
        ),
        with_llvm("cuda::llvm_15_has_nvlink_run_for_it", nvlink),
        with_llvm(
            "cuda::a_fatbinary_is_kept_when_the_tool_says_nothing",
            bundling_is_cached,
        ),
        test(
            "releases::cuda::tools_are_found_by_cuda_path",
            tools_of_cuda_path,
        ),
        test(
            "releases::cuda::images_can_be_listed_and_disassembled",
            images,
        ),
    ]
}

/// A `fatbinary` that writes its arguments to its output file.
const FATBINARY: &str = "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$3\"\n";

/// The same as a compiled program, because links that run scripts are not cached. It first prints
/// `SAYS`.
const FATBINARY_PROGRAM: &str = r#"
#include <stdio.h>
int main(int argc, char **argv) {
  SAYS
  FILE *file = fopen(argv[3], "w");
  for (int at = 1; at < argc; at++)
    fprintf(file, "%s\n", argv[at]);
  return fclose(file);
}
"#;

/// If `fatbinary` prints a warning, its result is not cached, so every link prints the warning.
fn bundling_is_cached() -> Outcome {
    const FOUND: &str = "bundling of CUDA images: found in the cache";
    let work = Work::new();
    work.fat("a.o", &[Image::cuda("sm_80", b"A")])?;
    std::fs::create_dir_all(work.path().join("sdk/bin"))?;
    for says in ["", "fputs(\"it warns\\n\", stderr);", "puts(\"it warns\");"] {
        work.file("fatbinary.c", FATBINARY_PROGRAM.replace("SAYS", says));
        run(work
            .command(llvm("clang"))
            .args(["-O1", "fatbinary.c", "-o", "sdk/bin/fatbinary"]))?;
        let link = || {
            // offld does not cache links that read files written just before.
            std::thread::sleep(Duration::from_millis(60));
            let mut link = work.wrapper([
                "--cuda-path=sdk",
                "--emit-fatbin-only",
                "--wrapper-verbose",
                "-o",
                "x.fatbin",
                "a.o",
            ]);
            let ended = output(link.env("OFFLD_CACHE", "cache"))?;
            ensure(ended.status.success(), || shown(&link, &ended))?;
            Ok::<_, Failed>(text(&ended.stderr) + &text(&ended.stdout))
        };
        expect_not_in(&link()?, FOUND)?;
        let again = link()?;
        if says.is_empty() {
            expect_in(&again, FOUND)?;
        } else {
            expect_in(&again, "it warns\n")?;
        }
    }
    passed()
}

fn cuda_path_is_added_once() -> Outcome {
    let work = Work::new();
    work.fat(
        "a.o",
        &[Image::cuda("sm_80", b"A"), Image::amd("gfx90a", "AMD")],
    )?;
    work.tool("sdk/bin/fatbinary", FATBINARY);
    let device_lines = |work: &Work, extra: &[&str]| -> Result<Vec<String>, Failed> {
        work.forget();
        run(&mut work.wrapper([&["--cuda-path=sdk", "-o", "x", "a.o"], extra].concat()))?;
        Ok(work
            .device_lines()?
            .into_iter()
            .map(|(name, args)| format!("{name}: {}\n", args.join(" ")))
            .collect())
    };
    for line in device_lines(&work, &[])? {
        expect_equal(
            &line,
            &line.starts_with("x.nvptx64").to_string(),
            &line.contains(" --cuda-path=sdk\n").to_string(),
        )?;
    }
    // An argument that is already present is not added again. An argument for this device alone
    // takes precedence.
    let own = format!("--device-compiler={NVIDIA}=--cuda-path=own");
    let line = device_lines(&work, &[&own])?
        .into_iter()
        .find(|line| line.starts_with("x.nvptx64"))
        .unwrap_or_default();
    expect_in(&line, " --cuda-path=own")?;
    expect_not_in(&line, "sdk")?;
    passed()
}

/// Runs a link that needs NVIDIA's `tool`, which is not in `PATH`. It must fail and list `looked`
/// among the searched directories. Returns true. If CUDA is installed, the link must take the tool
/// from there, as its printed commands show. Returns false.
pub(crate) fn expect_no_cuda_tool(
    link: &mut Command,
    tool: &str,
    looked: &str,
) -> Result<bool, Failed> {
    // Debian's CUDA package is in /usr/bin, so `PATH` has only the programs that stand-in scripts
    // call.
    let path = made().shared("posix");
    std::fs::create_dir_all(&path)?;
    for name in ["sh", "cat", "sleep", "cp", "mv", "rm", "sed"] {
        let _ = std::os::unix::fs::symlink(Path::new("/bin").join(name), path.join(name));
    }
    let ended = output(link.env("PATH", path).env_remove("VIRTUAL_ENV"))?;
    let stderr = text(&ended.stderr);
    let installed = Path::new("/usr/local/cuda/bin").join(tool);
    if installed.is_file() {
        expect_in(&stderr, &format!(" \"{}\" ", installed.display()))?;
        return Ok(false);
    }
    ensure(!ended.status.success(), || {
        format!("should have failed: {}", shown(link, &ended))
    })?;
    expect_in(
        &stderr,
        &format!("Unable to find '{tool}'{looked} in path, which CUDA device code needs; install"),
    )?;
    expect_in(&stderr, "nvidia-cuda-nvcc")?;
    Ok(true)
}

fn nvlink() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::cuda("sm_80", b"A")])?;
    work.fat("b.o", &[Image::cuda("sm_80", b"B")])?;
    let compiler = work.tool(
        "tools/clang",
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 15.0.7; exit; }\nexit 9\n",
    );
    work.tool("sdk/bin/fatbinary", FATBINARY);
    let nvlink = "#!/bin/sh\nprintf '%s\\n' \"${0##*/}\" \"$@\" | sed 's:=.*/:=:; s:^/.*/::' > nvlink-line\necho image > \"$4\"\n";
    work.tool("sdk/bin/nvlink", nvlink);
    let line = [
        "--cuda-path=sdk",
        "--device-debug",
        "--device-linker=foo",
        "--ptxas-arg=bar",
        "-o",
        "x",
        "a.o",
        "b.o",
    ];
    run(&mut work.wrapper(line))?;
    let arguments = std::fs::read_to_string(work.path().join("nvlink-line"))?.replace('\n', " ");
    let inputs = ["a", "b"].map(|name| format!("{name}-{NVIDIA}-sm_80.cubin"));
    let expected = format!(
        "nvlink -m64 -g -o x.nvptx64.sm_80.img -arch sm_80 {} {} foo ",
        inputs[0], inputs[1]
    );
    expect_equal("the arguments of nvlink", &expected, &arguments)?;
    work.expect_no_temps()?;

    work.fat("bitcode.o", &[Image::cuda("sm_80", b"BC\xc0\xde and more")])?;
    let error = run_failing(&mut work.wrapper(["--cuda-path=sdk", "-o", "x", "bitcode.o"]))?;
    expect_in(
        &error,
        "device link for nvptx64-nvidia-cuda (sm_80): bitcode.o: .llvm.offloading is bitcode, which ",
    )?;
    expect_in(
        &error,
        &format!(
            "{} cannot link for this device: pass clang 16 or later",
            compiler.display()
        ),
    )?;

    std::fs::remove_file(work.path().join("sdk/bin/nvlink"))?;
    expect_no_cuda_tool(
        &mut work.wrapper(["--cuda-path=sdk", "--wrapper-verbose", "-o", "x", "a.o"]),
        "nvlink",
        " in sdk/bin or",
    )?;
    work.expect_no_temps()?;
    passed()
}

/// A CUDA program with images for two GPUs, in `work`.
fn program(work: &Work) -> Result<Tools, Outcome> {
    let case = Case::named("cuda-rdc", 22);
    let tools = case.tools()?;
    case.compile(work, &tools, Wrapper::Ours)
        .and_then(|()| case.link(work, &tools, Wrapper::Ours, &[]))
        .map_err(Err)?;
    Ok(tools)
}

fn tools_of_cuda_path() -> Outcome {
    let work = Work::new();
    if let Err(outcome) = program(&work) {
        return outcome;
    }
    let Some(cuda) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    // The tools are not in `PATH`: offld must find nvlink and fatbinary through --cuda-path.
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.env("PATH", "/usr/bin:/bin")
        .env("OFFLD_CLANG", llvm("clang"));
    link.arg(format!("--linker-path={}", llvm("ld.lld").display()))
        .arg(format!("--cuda-path={}", cuda.display()));
    run(link.args([
        "-shared",
        "-o",
        "again.so",
        "main.o",
        "other.o",
        "archived.o",
    ]))?;
    let listed = run(work
        .command(cuda.join("bin/cuobjdump"))
        .args(["--list-elf", "again.so"]))?;
    expect_equal("images", "2", &listed.lines().count().to_string())?;
    passed()
}

fn images() -> Outcome {
    let work = Work::new();
    if let Err(outcome) = program(&work) {
        return outcome;
    }
    let Some(cuda) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    work.run(
        llvm("llvm-objcopy"),
        [
            "--dump-section",
            ".nv_fatbin=images.fatbin",
            "program",
            "/dev/null",
        ],
    )?;
    for file in ["program", "images.fatbin"] {
        let listed = run(work
            .command(cuda.join("bin/cuobjdump"))
            .args(["--list-elf", file]))?;
        for arch in ["sm_80", "sm_90"] {
            expect_in(&listed, &format!(".{arch}.cubin\n"))?;
        }
        expect_equal("images", "2", &listed.lines().count().to_string())?;
    }
    run(work
        .command(cuda.join("bin/cuobjdump"))
        .args(["-xelf", "all", "images.fatbin"]))?;
    for cubin in ["images.1.sm_90.cubin", "images.2.sm_80.cubin"] {
        let text = run(work.command(cuda.join("bin/nvdisasm")).arg(cubin))?;
        // The image contains code from both sources and the static library.
        for wanted in ["ET_EXEC", ".text._Z4fillPii:", ".text._Z8archivedPi:"] {
            expect_in(&text, wanted)?;
        }
    }
    passed()
}
