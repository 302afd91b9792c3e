//! More inputs for NVIDIA's linker than fit on a command line: LLVM's nvlink wrapper reads no
//! response files.

use std::fs;

use libtest_mimic::Trial;

use super::Site;
use crate::kit::Image;
use crate::support::{Outcome, ensure, llvm, passed, run, test};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (major, bitcode) in [(22, true), (22, false), (19, true)] {
        let what = if bitcode { "bitcode" } else { "machine_code" };
        trials.push(test(
            format!("releases::nvidia::g66a_two_thousand_inputs::{major}::{what}"),
            move || many(major, bitcode),
        ));
    }
    trials
}

fn many(major: u32, bitcode: bool) -> Outcome {
    const COUNT: usize = 2000;
    let site = match Site::new(major, bitcode) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let work = &site.work;
    work.file("w.cu", "extern \"C\" __attribute__((device)) __attribute__((weak)) int weak(int x) { return x * 5; }\n");
    let mut compile = work.command(site.release_compiler().join("clang++"));
    compile.args([
        "-x",
        "cuda",
        "-O1",
        "-nocudainc",
        "-nocudalib",
        "--offload-arch=sm_80",
        "-fgpu-rdc",
        "--cuda-device-only",
    ]);
    compile.args(["-Wno-unknown-cuda-version", "-c", "w.cu", "-o", "w.device"]);
    compile.arg(format!(
        "--cuda-path={}",
        work.path().join("toolkit").display()
    ));
    run(if bitcode {
        compile.arg("-emit-llvm")
    } else {
        &mut compile
    })?;
    work.fat(
        "w.o",
        &[Image::cuda(
            "sm_80",
            &fs::read(work.path().join("w.device"))?,
        )],
    )?;
    let names: Vec<String> = (0..COUNT)
        .map(|at| format!("{}_{at}.o", "a_long_name_of_a_source_".repeat(6)))
        .collect();
    for name in &names {
        fs::hard_link(work.path().join("w.o"), work.path().join(name))?;
    }
    let list = work.file("members", names.join("\n"));
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "libmany.a", &format!("@{}", list.display())]))?;
    let toolkit = format!("--cuda-path={}", work.path().join("toolkit").display());
    let args = [
        &toolkit,
        "b.o",
        "--whole-archive",
        "libmany.a",
        "--no-whole-archive",
    ];
    let (plain, _) = site.link(&args, &[], false)?;
    let long = work.path().join("tmp/a_folder_with_a_long_name".repeat(8));
    fs::create_dir_all(&long)?;
    let long = long.display().to_string();
    let (in_long, _) = site.link(&args, &[("TMPDIR", &long)], false)?;
    let (first, outcome) = site.link(&args, &[], true)?;
    ensure(outcome.0 == "miss", || format!("{outcome:?}"))?;
    let (second, outcome) = site.link(&args, &[("TMPDIR", &long)], true)?;
    ensure(outcome.0 == "hit", || format!("{outcome:?}"))?;
    ensure(
        plain == in_long && first == plain && second == plain,
        || "the images differ",
    )?;
    ensure(!plain.is_empty(), || "there is no image")?;
    passed()
}
