//! GPU programs that check their own results (`tests/gpu`): linked by offld in each of its ways,
//! pruned, merged. Their images are checked on every machine. The programs run if there is a GPU;
//! otherwise the test prints why they did not (docs/dev/gpu-tests.md).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

use super::support::{
    LLVM, Outcome, Work, cuda_tools, expect_equal, have_llvm, made, missing, nvcc, offld, output,
    passed, root, run, test, text,
};

/// The programs that `tests/gpu/build.sh` builds.
const PROGRAMS: [&str; 32] = [
    "cuda-plain",
    "cuda-rdc",
    "cuda-late",
    "cuda-lto",
    "cuda-pruned-sm_80",
    "cuda-pruned-sm_90",
    "cuda-merged",
    "cuda-ptx",
    "nvcc-rdc",
    "nvcc-late",
    "nvcc-library",
    "nvcc-shared",
    "nvcc-dynamic",
    "nvcc-texture",
    "nvcc-virtual",
    "nvcc-mixed",
    "nvcc-mixed-lto",
    "nvcc-lto",
    "nvcc-lto-library",
    "nvcc-lto-dynamic",
    "nvcc-pruned-sm_80",
    "nvcc-pruned-sm_90",
    "hip-plain",
    "hip-rdc",
    "hip-late",
    "hip-lto",
    "hip-pruned-gfx90a",
    "hip-pruned-gfx942",
    "hip-merged",
    "hip-compressed",
    "openmp-nvptx",
    "openmp-amdgcn",
];

/// CUDA programs need NVIDIA's tools, and the build takes a minute. All of them therefore run with
/// the other releases' tests.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = PROGRAMS
        .into_iter()
        .map(|name| test(format!("releases::gpu_device::{name}"), move || check(name)))
        .collect();
    trials.push(test(
        "gpu_device::run_sh_holds_programs_to_their_status",
        by_status,
    ));
    trials
}

/// Runs `run.sh` with scripts as programs and a file as the device. The expected status depends on
/// the images and the device.
fn by_status() -> Outcome {
    let work = Work::new();
    std::fs::copy(root().join("tests/gpu/run.sh"), work.path().join("run.sh"))?;
    work.file("dev/nvidia0", "");
    work.file("not-built.txt", "openmp-nvptx: no device runtime\n");
    let cases = [
        (
            "own",
            "cuda sm_80 sm_90",
            "sm_90",
            0,
            "passed on sm_90: right",
        ),
        (
            "earlier",
            "cuda sm_80",
            "sm_86",
            0,
            "passed on sm_86: right",
        ),
        ("other", "cuda sm_80", "sm_90", 78, "passed on sm_90: right"),
        (
            "ptx",
            "cuda sm_70 ptx:sm_80",
            "sm_120",
            0,
            "passed on sm_120: right",
        ),
        (
            "wrong",
            "cuda sm_90",
            "sm_90",
            1,
            "FAILED: status 1 on sm_90, expected 0: right",
        ),
        (
            "ran",
            "cuda sm_80",
            "sm_90",
            0,
            "FAILED: status 0 on sm_90, expected 78: right",
        ),
        (
            "none",
            "cuda sm_80",
            "sm_90",
            77,
            "FAILED: status 77 on sm_90, expected 78: right",
        ),
        (
            "amd",
            "hip gfx90a",
            "",
            0,
            "skipped: no AMD GPU (no /dev/kfd)",
        ),
    ];
    let rows: String = cases
        .iter()
        .map(|(name, row, ..)| format!("{name} {row}\n"))
        .collect();
    work.file("programs.txt", rows);
    for (name, _, device, status, _) in cases {
        work.tool(
            name,
            &format!("#!/bin/sh\necho 'device: {device}'\necho right\nexit {status}\n"),
        );
    }
    let mut all = work.command("./run.sh");
    let ended = output(all.env("GPU_DEV", work.path().join("dev")))?;
    let expected: String = cases
        .iter()
        .map(|(name, .., result)| format!("{name}: {result}\n"))
        .collect();
    let end =
        "openmp-nvptx: skipped: not built: no device runtime\n4 passed, 3 failed, 2 skipped\n";
    expect_equal("stdout", &format!("{expected}{end}"), &text(&ended.stdout))?;
    expect_equal("status", "Some(1)", &format!("{:?}", ended.status.code()))?;
    let mut two = work.command("./run.sh");
    let printed = run(two
        .args(["own", "ptx"])
        .env("GPU_DEV", work.path().join("dev")))?;
    expect_equal(
        "stdout",
        "own: passed on sm_90: right\nptx: passed on sm_120: right\n2 passed, 0 failed, 0 skipped\n",
        &printed,
    )?;
    passed()
}

/// The directory with the programs, built once per run of the suite.
fn built() -> Result<&'static Path, Failed> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = made().shared("gpu");
        let mut build = Command::new(root().join("tests/gpu/build.sh"));
        build.arg(&folder).env("OFFLD", offld()).env("LLVM", LLVM);
        run(&mut build)
            .map(|_| folder)
            .map_err(|failed| failed.message().unwrap_or_default().to_owned())
    });
    built
        .as_deref()
        .map_err(|message| Failed::from(message.clone()))
}

/// The rest of the line for `name` in a list that the build wrote.
fn row(folder: &Path, list: &str, name: &str) -> Result<Option<String>, Failed> {
    let text = std::fs::read_to_string(folder.join(list))?;
    Ok(text.lines().find_map(|line| {
        Some(
            line.strip_prefix(name)?
                .strip_prefix([' ', ':'])?
                .trim()
                .to_owned(),
        )
    }))
}

fn check(name: &'static str) -> Outcome {
    if !have_llvm() {
        return missing("LLVM 22");
    }
    if !name.starts_with("hip") && (cuda_tools(22).is_none() || nvcc().is_none()) {
        return missing("NVIDIA's tools (make setup-cuda)");
    }
    let folder = built()?;
    // No Debian package contains a device runtime for OpenMP on GPUs, so its absence is not an
    // error of this machine.
    if let Some(why) = row(folder, "not-built.txt", name)? {
        return Ok(Completion::ignored_with(format!("not built: {why}")));
    }
    let row = row(folder, "programs.txt", name)?
        .ok_or_else(|| format!("build.sh has not made {name}"))?;
    let (kind, archs) = row.split_once(' ').unwrap_or((&row, ""));
    // The device code of this program is in its library.
    let holder = if name == "nvcc-shared" {
        "libparts.so"
    } else {
        name
    };
    expect_equal(
        "images",
        &sorted(archs.split(' ')),
        &images(&folder.join(holder), kind)?,
    )?;

    let mut runs = Command::new(folder.join("run.sh"));
    let ended = output(runs.arg(name))?;
    let stdout = text(&ended.stdout);
    let first = stdout.lines().next().unwrap_or_default();
    let result = first
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or_default();
    match (ended.status.success(), result.strip_prefix("skipped: ")) {
        (true, Some(why)) if std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1") => {
            Ok(Completion::ignored_with(format!(
                "built and looked at, not run: {why}"
            )))
        }
        (true, None) if result.starts_with("passed") => passed(),
        _ => Err(format!("{stdout}{}", text(&ended.stderr)).into()),
    }
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.join(" ")
}

/// The architectures of a program's device images in order, with the prefix `ptx:` for PTX. Fails
/// if an image is not of `kind`.
fn images(program: &Path, kind: &str) -> Result<String, Failed> {
    let work = Work::new();
    let json: Value = serde_json::from_str(&run(work
        .command(offld())
        .args(["inspect", "--json"])
        .arg(program))?)?;
    let images = json["files"][0]["images"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut names = Vec::new();
    // Linked programs of nvcc keep the code of each module as well.
    let is_linked =
        |image: &&Value| image["kinds"][0] != "host" && image["section"] != "__nv_relfatbin";
    for image in images.iter().filter(is_linked) {
        let of_kind = image["kinds"][0].as_str().unwrap_or_default();
        expect_equal("kind", kind.split('-').next().unwrap_or_default(), of_kind)?;
        let is_ptx = image["format"]
            .as_str()
            .is_some_and(|format| format.eq_ignore_ascii_case("ptx"));
        names.push(format!(
            "{}{}",
            if is_ptx { "ptx:" } else { "" },
            image["target"].as_str().unwrap_or_default()
        ));
    }
    Ok(sorted(names.iter().map(String::as_str)))
}
