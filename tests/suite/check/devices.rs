//! `offld check --for`: what is said of programs with images for several devices, and of this machine.

use libtest_mimic::{Failed, Trial};

use super::{check, list, object, program};
use crate::kinds::{Case, Wrapper};
use crate::support::{Outcome, Work, expect_equal, expect_in, output, passed, test, text, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("check::devices::amd", amd),
        test("releases::check::devices::nvidia", nvidia),
        with_llvm("check::devices::of_this_machine", native),
        with_llvm("check::devices::what_is_no_device", usage),
    ]
}

/// What `--for` says of the program, a line for each unit: the answer and the text.
fn loads(work: &Work, device: &str) -> Result<String, Failed> {
    let told = check(work, ["--for", device, "program"])?;
    let units = list(&told.json["files"]).iter().flat_map(|file| list(&file["units"]));
    let loads = units.flat_map(|unit| list(&unit["loads"]));
    let line = |load: &serde_json::Value| {
        format!("{}: {}\n", load["answer"].as_str().unwrap_or_default(), load["text"].as_str().unwrap_or_default())
    };
    Ok(loads.map(line).collect())
}

fn built(case: &str, work: &Work) -> Result<(), Outcome> {
    let case = Case::named(case, 22);
    let tools = case.tools()?;
    case.compile(work, &tools, Wrapper::Ours).and_then(|()| case.link(work, &tools, Wrapper::Ours, &[])).map_err(Err)
}

fn amd() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    for (device, expected) in [
        ("gfx90a", "yes: amdgcn-amd-amdhsa (gfx90a): the same processor\n"),
        ("gfx90a:xnack+", "yes: amdgcn-amd-amdhsa (gfx90a): the same processor\n"),
        ("hip:gfx908", "yes: amdgcn-amd-amdhsa (gfx908): the same processor\n"),
        ("gfx90c", "no: no image; the nearest is amdgcn-amd-amdhsa (gfx90a): it is for gfx90a; --offload-arch=gfx90c adds one\n"),
    ] {
        expect_equal(device, expected, &loads(&work, device)?)?;
    }
    for (device, status) in [("gfx90a,gfx908", 0), ("gfx90a,gfx1100", 1)] {
        expect_equal(device, &status.to_string(), &check(&work, ["--for", device, "program"])?.status.to_string())?;
    }
    // What nothing in the program is for, alone and beside a device that has its image.
    for device in ["sm_90", "x86-64-v3", "openmp:gfx90a"] {
        for asked in [device.to_owned(), format!("gfx90a,{device}"), format!("{device},gfx90a")] {
            let told = check(&work, ["--for", &asked, "program"])?;
            expect_equal(&asked, "1", &told.status.to_string())?;
            let name = device.trim_start_matches("openmp:");
            told.expect("no-image", "no", &format!("no image for {name}, and no registration with a runtime that drives it"))?;
        }
    }
    passed()
}

fn nvidia() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("cuda-ptx", &work) {
        return ended;
    }
    for (device, expected) in [
        ("sm_80", "yes: nvptx64-nvidia-cuda (sm_80): machine code for it\n"),
        ("sm_86", "machine code for sm_80, which later processors 8.x run\n"),
        ("sm_70", "no: no image; the nearest is "),
        ("sm_120", "PTX for 8.0, which the driver compiles when it is loaded"),
    ] {
        expect_in(&loads(&work, device)?, expected)?;
    }
    passed()
}

/// A machine with GPUs that is made of files, and this one's processor.
fn native() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    let told = |root: &str, words: &[&str]| {
        let mut command = work.command(crate::support::offld());
        output(command.env("OFFLD_NATIVE_ROOT", work.path().join(root)).arg("check").args(words))
    };
    work.file("empty/sys/none", "");
    work.file("mi250/sys/class/kfd/kfd/topology/nodes/0/properties", "gfx_target_version 0\n");
    work.file("mi250/sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 440\ngfx_target_version 90010\n");
    work.file("mi300/sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 90402\n");
    let found = told("mi250", &["--for", "native", "program"])?;
    expect_in(&text(&found.stdout), "gfx90a: yes: amdgcn-amd-amdhsa (gfx90a): the same processor (hip)")?;
    expect_equal("status", "0", &found.status.code().unwrap_or(-1).to_string())?;
    let other = told("mi300", &["--for", "native", "program"])?;
    expect_in(&text(&other.stdout), "gfx942: no: no image; the nearest is ")?;
    let none = told("empty", &["--for", "native", "program"])?;
    expect_in(&text(&none.stdout), "native: no: this machine has no device for HIP")?;
    expect_equal("status", "1", &none.status.code().unwrap_or(-1).to_string())?;
    let meant = told("empty", &["--for", "hip:native", "program"])?;
    expect_in(&text(&meant.stderr), "`hip:native`: no GPU for it is found on this machine")?;
    expect_equal("status", "2", &meant.status.code().unwrap_or(-1).to_string())?;
    object(&work)?;
    program(&work, "cpu", &[])?;
    expect_equal("the processor", "0", &check(&work, ["--for", "native", "cpu"])?.status.to_string())?;
    passed()
}

fn usage() -> Outcome {
    let work = Work::new();
    work.file("file", "");
    for device in ["gfx", "nonsense", "gfx1100:xnack+", "x86-64-v9"] {
        let stderr = text(&output(work.command(crate::support::offld()).args(["check", "--for", device, "file"]))?.stderr);
        expect_in(&stderr, &format!("`{device}` is no device; examples are gfx90a:xnack+"))?;
    }
    passed()
}
