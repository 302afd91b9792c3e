//! HIP translation units of clang 22, whose driver calls the wrapper once per unit. Unchanged parts
//! of a unit are not linked again, and a cache hit starts no program.

use std::fs;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use super::log::outcomes;
use super::support::{
    Outcome, Work, ensure, expect_equal, llvm, made, missing, passed, run, with_llvm,
};

const GPUS: &str = "gfx900,gfx906,gfx90a,gfx942,gfx1030,gfx1100";

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![with_llvm(
        "units::a_host_edit_keeps_the_images_of_six_architectures",
        host_edit,
    )];
    trials.push(with_llvm(
        "units::an_edit_for_one_architecture_makes_one_image_anew",
        device_edit,
    ));
    trials.push(with_llvm("units::a_hit_starts_nothing", starts_nothing));
    trials
}

/// A translation unit with a kernel. `host` is host code; `device` is added to the kernel for
/// gfx90a only.
fn unit(host: &str, device: &str) -> String {
    format!(
        "#define __global__ __attribute__((global))
typedef struct hipStream *hipStream_t;
struct dim3 {{ unsigned x, y, z; }};
typedef int hipError_t;
extern \"C\" hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, hipStream_t);
extern \"C\" hipError_t __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, hipStream_t *);
__global__ void kernel(int *data) {{
#ifdef __gfx90a__
  {device}
#endif
  *data = *data * 3;
}}
{host}
"
    )
}

/// Compiles `unit.hip`. Returns the output and the outcomes of the device links.
fn compile(work: &Work, args: &[&str], cached: bool) -> Result<(Vec<u8>, Vec<String>), Failed> {
    std::thread::sleep(Duration::from_millis(60));
    let log = work.path().join("log");
    let _ = fs::remove_file(&log);
    let mut command = work.command(llvm("clang++"));
    command.args([
        "-x",
        "hip",
        "-O2",
        "-nogpuinc",
        "-nogpulib",
        "--offload-new-driver",
        "-cuid=unit",
    ]);
    command
        .arg(format!("--offload-arch={GPUS}"))
        .arg("-B")
        .arg(&made().links)
        .args(args)
        .args(["unit.hip", "-o", "unit.o"]);
    let cache = if cached {
        work.path().join("cache")
    } else {
        "off".into()
    };
    run(command
        .env("OFFLD_CACHE", cache)
        .env("OFFLD_CACHE_LOG", &log))?;
    let outcomes = outcomes(&log)?
        .into_iter()
        .map(|(outcome, _)| outcome)
        .collect();
    Ok((fs::read(work.path().join("unit.o"))?, outcomes))
}

fn expect_outcomes(outcomes: &[String], hits: usize, misses: usize) -> Result<(), Failed> {
    let count = |wanted: &str| outcomes.iter().filter(|outcome| *outcome == wanted).count();
    expect_equal(
        "hits and misses",
        &format!("{hits} {misses}"),
        &format!("{} {}", count("hit"), count("miss")),
    )?;
    expect_equal(
        "device links",
        &(hits + misses).to_string(),
        &outcomes.len().to_string(),
    )
}

fn host_edit() -> Outcome {
    let (work, args) = (Work::new(), &["-c"]);
    work.file("unit.hip", unit("int host(int x) { return x + 1; }", ""));
    let (first, outcomes) = compile(&work, args, true)?;
    expect_outcomes(&outcomes, 0, 6)?;
    work.file(
        "unit.hip",
        unit(
            "int host(int x) { return x * 7; }\nint more(int x) { return x - 1; }",
            "",
        ),
    );
    let (edited, outcomes) = compile(&work, args, true)?;
    expect_outcomes(&outcomes, 6, 0)?;
    let (right, outcomes) = compile(&work, args, false)?;
    expect_equal(
        "without a cache",
        "6",
        &outcomes
            .iter()
            .filter(|outcome| *outcome == "uncached")
            .count()
            .to_string(),
    )?;
    ensure(
        edited == right,
        || "the object is not what it is without a cache",
    )?;
    ensure(edited != first, || "the edit changes nothing")?;
    passed()
}

fn device_edit() -> Outcome {
    let work = Work::new();
    work.file("unit.hip", unit("", ""));
    compile(&work, &["-c"], true)?;
    work.file("unit.hip", unit("", "*data = *data + 5;"));
    let (edited, outcomes) = compile(&work, &["-c"], true)?;
    expect_outcomes(&outcomes, 5, 1)?;
    ensure(
        edited == compile(&work, &["-c"], false)?.0,
        || "a stale image",
    )?;
    passed()
}

/// A wrapper that saves its arguments and its input, and runs offld.
const KEEPER: &str = "#!/bin/sh\nfor word; do last=$word; done\ncp \"$last\" kept.out\nprintf '%s\\n' \"$@\" > kept.words\nexec LINKS/clang-linker-wrapper \"$@\"\n";

fn starts_nothing() -> Outcome {
    let Ok(strace) = which::which("strace") else {
        return missing("strace");
    };
    let work = Work::new();
    work.file("unit.hip", unit("", ""));
    work.tool(
        "keeper/clang-linker-wrapper",
        &KEEPER.replace("LINKS", &made().links.display().to_string()),
    );
    let mut command = work.command(llvm("clang++"));
    command.args([
        "-x",
        "hip",
        "-O2",
        "-nogpuinc",
        "-nogpulib",
        "--offload-new-driver",
        "-cuid=unit",
        "-B",
        "keeper",
    ]);
    run(command
        .arg(format!("--offload-arch={GPUS}"))
        .args(["-c", "unit.hip", "-o", "unit.o"])
        .env("OFFLD_CACHE", "off"))?;
    let args = fs::read_to_string(work.path().join("kept.words"))?;
    let mut args: Vec<&str> = args.lines().collect();
    let output = args.iter().position(|word| *word == "-o").ok_or("no -o")? + 1;
    args[output] = "out.hipfb";
    *args.last_mut().ok_or("no words")? = "kept.out";
    let calls = |name: &str| -> Result<usize, Failed> {
        std::thread::sleep(Duration::from_millis(60));
        let mut command = work.command(&strace);
        command
            .args(["-f", "-e", "trace=execve", "-o", name])
            .arg(made().links.join("clang-linker-wrapper"))
            .args(&args);
        run(command
            .env("OFFLD_CACHE", work.path().join("counted"))
            .env("OFFLD_CLANG", llvm("clang")))?;
        let trace = fs::read_to_string(work.path().join(name))?;
        Ok(trace
            .lines()
            .filter(|line| line.contains("execve(") && !line.contains("= -1"))
            .count())
    };
    let cold = calls("cold")?;
    ensure(cold > 6, || {
        format!("{cold} programs were started for six images")
    })?;
    let image = fs::read(work.path().join("out.hipfb"))?;
    // The second call may still have to identify these programs; the third does not.
    calls("second")?;
    expect_equal(
        "programs that a hit starts, the wrapper itself included",
        "1",
        &calls("warm")?.to_string(),
    )?;
    ensure(
        image == fs::read(work.path().join("out.hipfb"))?,
        || "what was found is not what was kept",
    )?;
    passed()
}
