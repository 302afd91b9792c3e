//! CUDA's own tools: which of them offld runs for a device link and what they are told, and that they can read what it has linked.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use super::kinds::{Case, Tools, Wrapper};
use super::kit::{Image, NVIDIA};
use super::support::{
    Outcome, Work, cuda_tools, ensure, expect_equal, expect_in, expect_not_in, llvm, made, missing, output, passed, run,
    run_failing, shown, test, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("cuda::the_device_link_is_told_of_cuda_path", told),
        with_llvm("cuda::llvm_15_has_nvlink_run_for_it", nvlink),
        with_llvm("cuda::a_fatbinary_is_kept_when_the_tool_says_nothing", kept),
        test("releases::cuda::tools_are_found_by_cuda_path", found),
        test("releases::cuda::images_can_be_listed_and_disassembled", images),
    ]
}

/// A `fatbinary` that writes its arguments to the file it is to make.
const FATBINARY: &str = "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$3\"\n";

/// The same as a program, because what a script runs is not known: after what it says.
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

/// A warning is said by each link, so what the tool warned of is made by each.
fn kept() -> Outcome {
    const FOUND: &str = "bundling of CUDA images: found in the cache";
    let work = Work::new();
    work.fat("a.o", &[Image::cuda("sm_80", b"A")])?;
    std::fs::create_dir_all(work.path().join("sdk/bin"))?;
    for says in ["", "fputs(\"it warns\\n\", stderr);", "puts(\"it warns\");"] {
        work.file("fatbinary.c", FATBINARY_PROGRAM.replace("SAYS", says));
        run(work.command(llvm("clang")).args(["-O1", "fatbinary.c", "-o", "sdk/bin/fatbinary"]))?;
        let link = || {
            // What was written a moment ago may be written again without a trace.
            std::thread::sleep(Duration::from_millis(60));
            let mut link = work.wrapper(["--cuda-path=sdk", "--emit-fatbin-only", "--wrapper-verbose", "-o", "x.fatbin", "a.o"]);
            let told = output(link.env("OFFLD_CACHE", "cache"))?;
            ensure(told.status.success(), || shown(&link, &told))?;
            Ok::<_, Failed>(text(&told.stderr) + &text(&told.stdout))
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

fn told() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::cuda("sm_80", b"A"), Image::amd("gfx90a", "AMD")])?;
    work.tool("sdk/bin/fatbinary", FATBINARY);
    let words = |work: &Work, extra: &[&str]| -> Result<Vec<String>, Failed> {
        work.forget();
        run(&mut work.wrapper([&["--cuda-path=sdk", "-o", "x", "a.o"], extra].concat()))?;
        Ok(work.device_lines()?.into_iter().map(|(name, words)| format!("{name}: {}\n", words.join(" "))).collect())
    };
    for line in words(&work, &[])? {
        expect_equal(&line, &line.starts_with("x.nvptx64").to_string(), &line.contains(" --cuda-path=sdk\n").to_string())?;
    }
    // Once is enough, and what the line says for this device alone counts.
    let own = format!("--device-compiler={NVIDIA}=--cuda-path=own");
    let line = words(&work, &[&own])?.into_iter().find(|line| line.starts_with("x.nvptx64")).unwrap_or_default();
    expect_in(&line, " --cuda-path=own")?;
    expect_not_in(&line, "sdk")?;
    passed()
}

/// A link that needs NVIDIA's `tool`, which no path leads to, fails and says where it has looked, `looked` among that; true. Where CUDA is
/// installed, the link, which shows its commands, takes the tool from there; false.
pub(crate) fn expect_no_cuda_tool(link: &mut Command, tool: &str, looked: &str) -> Result<bool, Failed> {
    // What stand-ins for tools call, and nothing else: Debian's own package of CUDA is in /usr/bin.
    let path = made().shared("posix");
    std::fs::create_dir_all(&path)?;
    for name in ["sh", "cat", "sleep", "cp", "mv", "rm", "sed"] {
        let _ = std::os::unix::fs::symlink(Path::new("/bin").join(name), path.join(name));
    }
    let told = output(link.env("PATH", path).env_remove("VIRTUAL_ENV"))?;
    let stderr = text(&told.stderr);
    let installed = Path::new("/usr/local/cuda/bin").join(tool);
    if installed.is_file() {
        expect_in(&stderr, &format!(" \"{}\" ", installed.display()))?;
        return Ok(false);
    }
    ensure(!told.status.success(), || format!("should have failed: {}", shown(link, &told)))?;
    expect_in(&stderr, &format!("Unable to find '{tool}'{looked} in path: CUDA device code needs it; install"))?;
    expect_in(&stderr, "nvidia-cuda-nvcc")?;
    Ok(true)
}

fn nvlink() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::cuda("sm_80", b"A")])?;
    work.fat("b.o", &[Image::cuda("sm_80", b"B")])?;
    let compiler = work.tool("tools/clang", "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 15.0.7; exit; }\nexit 9\n");
    work.tool("sdk/bin/fatbinary", FATBINARY);
    let nvlink =
        "#!/bin/sh\nprintf '%s\\n' \"${0##*/}\" \"$@\" | sed 's:=.*/:=:; s:^/.*/::' > nvlink-line\necho image > \"$4\"\n";
    work.tool("sdk/bin/nvlink", nvlink);
    let line = ["--cuda-path=sdk", "--device-debug", "--device-linker=foo", "--ptxas-arg=bar", "-o", "x", "a.o", "b.o"];
    run(&mut work.wrapper(line))?;
    let words = std::fs::read_to_string(work.path().join("nvlink-line"))?.replace('\n', " ");
    let inputs = ["a", "b"].map(|name| format!("{name}-{NVIDIA}-sm_80.cubin"));
    let expected = format!("nvlink -m64 -g -o x.nvptx64.sm_80.img -arch sm_80 {} {} foo ", inputs[0], inputs[1]);
    expect_equal("the arguments of nvlink", &expected, &words)?;
    work.expect_no_temps()?;

    work.fat("bitcode.o", &[Image::cuda("sm_80", b"BC\xc0\xde and more")])?;
    let error = run_failing(&mut work.wrapper(["--cuda-path=sdk", "-o", "x", "bitcode.o"]))?;
    expect_in(&error, "device link for nvptx64-nvidia-cuda (sm_80): bitcode.o: .llvm.offloading is bitcode, which ")?;
    expect_in(&error, &format!("{} cannot link for this device: name a clang of version 16 or later", compiler.display()))?;

    std::fs::remove_file(work.path().join("sdk/bin/nvlink"))?;
    expect_no_cuda_tool(
        &mut work.wrapper(["--cuda-path=sdk", "--wrapper-verbose", "-o", "x", "a.o"]),
        "nvlink",
        " in sdk/bin or",
    )?;
    work.expect_no_temps()?;
    passed()
}

/// A program of CUDA with images for two GPUs, in `work`.
fn program(work: &Work) -> Result<Tools, Outcome> {
    let case = Case::named("cuda-rdc", 22);
    let tools = case.tools()?;
    case.compile(work, &tools, Wrapper::Ours).and_then(|()| case.link(work, &tools, Wrapper::Ours, &[])).map_err(Err)?;
    Ok(tools)
}

fn found() -> Outcome {
    let work = Work::new();
    if let Err(outcome) = program(&work) {
        return outcome;
    }
    let Some(cuda) = cuda_tools(22) else { return missing("NVIDIA's tools (make setup-cuda)") };
    // No PATH to them: nvlink and fatbinary are where the option says, and nowhere else.
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.env("PATH", "/usr/bin:/bin").env("OFFLD_CLANG", llvm("clang"));
    link.arg(format!("--linker-path={}", llvm("ld.lld").display())).arg(format!("--cuda-path={}", cuda.display()));
    run(link.args(["-shared", "-o", "again.so", "main.o", "other.o", "archived.o"]))?;
    let listed = run(work.command(cuda.join("bin/cuobjdump")).args(["--list-elf", "again.so"]))?;
    expect_equal("images", "2", &listed.lines().count().to_string())?;
    passed()
}

fn images() -> Outcome {
    let work = Work::new();
    if let Err(outcome) = program(&work) {
        return outcome;
    }
    let Some(cuda) = cuda_tools(22) else { return missing("NVIDIA's tools (make setup-cuda)") };
    work.run(llvm("llvm-objcopy"), ["--dump-section", ".nv_fatbin=images.fatbin", "program", "/dev/null"])?;
    for file in ["program", "images.fatbin"] {
        let listed = run(work.command(cuda.join("bin/cuobjdump")).args(["--list-elf", file]))?;
        for arch in ["sm_80", "sm_90"] {
            expect_in(&listed, &format!(".{arch}.cubin\n"))?;
        }
        expect_equal("images", "2", &listed.lines().count().to_string())?;
    }
    run(work.command(cuda.join("bin/cuobjdump")).args(["-xelf", "all", "images.fatbin"]))?;
    for cubin in ["images.1.sm_90.cubin", "images.2.sm_80.cubin"] {
        let text = run(work.command(cuda.join("bin/nvdisasm")).arg(cubin))?;
        // Of both sources and of the static library.
        for wanted in ["ET_EXEC", ".text._Z4fillPii:", ".text._Z8archivedPi:"] {
            expect_in(&text, wanted)?;
        }
    }
    passed()
}
