//! `offld check --for`: answers for programs with images for several devices, and for the devices
//! of this machine.

use libtest_mimic::{Failed, Trial};

use super::modules::fatbinary;
use super::{check, list, object, program};
use crate::gate;
use crate::kinds::{Case, Wrapper};
use crate::support::{
    Outcome, Work, expect_equal, expect_in, llvm, output, passed, run, test, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("check::devices::amd", amd),
        with_llvm("check::devices::unknown_settings", unknown_settings),
        test("releases::check::devices::nvidia", nvidia),
        with_llvm(
            "check::devices::fatbinaries_for_other_processors_are_not_a_no",
            several_fatbinaries,
        ),
        with_llvm(
            "check::devices::the_driver_may_link_relocatable_code",
            prelinked,
        ),
        with_llvm("check::devices::of_this_machine", native),
    ]
}

/// The results of `--for` for the program, one line per translation unit: the answer and the text.
fn loads(work: &Work, device: &str) -> Result<String, Failed> {
    let report = check(work, ["--for", device, "program"])?;
    let units = list(&report.json["files"])
        .iter()
        .flat_map(|file| list(&file["units"]));
    let loads = units.flat_map(|unit| list(&unit["loads"]));
    let line = |load: &serde_json::Value| {
        format!(
            "{}: {}\n",
            load["answer"].as_str().unwrap_or_default(),
            load["text"].as_str().unwrap_or_default()
        )
    };
    Ok(loads.map(line).collect())
}

fn built(case: &str, work: &Work) -> Result<(), Outcome> {
    let case = Case::named(case, 22);
    let tools = case.tools()?;
    case.compile(work, &tools, Wrapper::Ours)
        .and_then(|()| case.link(work, &tools, Wrapper::Ours, &[]))
        .map_err(Err)
}

fn amd() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    for (device, expected) in [
        ("gfx90a", "yes: code for gfx90a\n"),
        ("gfx90a:xnack+", "yes: code for gfx90a\n"),
        ("hip:gfx908", "yes: code for gfx908\n"),
        (
            "gfx90c",
            "no: the nearest image is for gfx90a; add one with --offload-arch=gfx90c\n",
        ),
    ] {
        expect_equal(device, expected, &loads(&work, device)?)?;
    }
    for (device, status) in [("gfx90a,gfx908", 0), ("gfx90a,gfx1100", 1)] {
        expect_equal(
            device,
            &status.to_string(),
            &check(&work, ["--for", device, "program"])?
                .status
                .to_string(),
        )?;
    }
    // Devices without an image: alone, and together with a device that has one.
    for device in ["sm_90", "x86-64-v3", "openmp:gfx90a"] {
        for devices in [
            device.to_owned(),
            format!("gfx90a,{device}"),
            format!("{device},gfx90a"),
        ] {
            let report = check(&work, ["--for", &devices, "program"])?;
            expect_equal(&devices, "1", &report.status.to_string())?;
            let name = device.trim_start_matches("openmp:");
            report.expect(
                "no-image",
                "no",
                &format!("no image for {name}: the file has only HIP code; build or install a version with"),
            )?;
        }
    }
    passed()
}

/// The user often does not know whether XNACK is on. If the images are for both settings, one fits.
fn unknown_settings() -> Outcome {
    let work = Work::new();
    let one = "unknown: image 1 (gfx90a:xnack-): requires xnack-: specify the device's setting (gfx90a:xnack-)\n";
    for (archs, expected) in [
        (&["gfx90a:xnack-"][..], one),
        (
            &["gfx90a:xnack-", "gfx90a:xnack+"],
            "yes: code for gfx90a:xnack+ and gfx90a:xnack-\n",
        ),
    ] {
        gate::library(&work, "program", archs, &[], "3")?;
        expect_equal("gfx90a", expected, &loads(&work, "gfx90a")?)?;
        expect_equal(
            "gfx90a:xnack-",
            "yes: code for gfx90a:xnack-\n",
            &loads(&work, "gfx90a:xnack-")?,
        )?;
    }
    passed()
}

fn nvidia() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("cuda-ptx", &work) {
        return ended;
    }
    for (device, expected) in [
        ("sm_80", "yes: machine code\n"),
        ("sm_86", "machine code for sm_80, which runs on later 8.x\n"),
        ("sm_70", "no: the nearest image is for "),
        ("sm_120", "PTX for 8.0, compiled by driver "),
    ] {
        expect_in(&loads(&work, device)?, expected)?;
    }
    passed()
}

/// Builds a library that registers PTX fatbinaries: the section and the architectures of each.
fn library(work: &Work, fatbinaries: &[(&str, &[u32])]) -> Result<(), Failed> {
    let mut source = String::from(".section .note.GNU-stack,\"\",@progbits\n");
    for (number, (section, arches)) in fatbinaries.iter().enumerate() {
        work.file(&format!("{number}.fatbin"), fatbinary(arches));
        source += &format!(
            ".section {section},\"a\"\n.p2align 3\nf{number}: .incbin \"{number}.fatbin\"\n\
             .section .nvFatBinSegment,\"aw\"\n.p2align 3\n.long 0x466243b1, 1\n.quad f{number}, 0\n"
        );
    }
    work.file("cuda.s", source);
    run(work
        .command(llvm("clang"))
        .args(["-shared", "-nostdlib", "cuda.s", "-o", "program"]))?;
    Ok(())
}

/// Libraries such as cuSPARSELt have separate fatbinaries with kernels for one architecture, and
/// also run on other devices.
fn several_fatbinaries() -> Outcome {
    let work = Work::new();
    let own: [(&str, &[u32]); 4] = [
        (".nv_fatbin", &[80]),
        (".nv_fatbin", &[90]),
        (".nv_fatbin", &[80]),
        (".nv_fatbin", &[90]),
    ];
    library(&work, &own)?;
    for (device, status, expected) in [
        (
            "sm_90",
            0,
            "sm_90: yes (PTX for 9.0, compiled by driver 525 or later, in 2 fatbinaries)",
        ),
        (
            "sm_86",
            1,
            "sm_86: unknown in .nv_fatbin: fatbinary at 0xa8 and 1 more: the nearest image is for PTX sm_90 (PTX for 9.0 and later); \
             add one with --offload-arch=sm_86 or, for nvcc, -gencode arch=compute_86,code=sm_86; \
             but 2 other fatbinaries fit it, and which ones the program needs is unknown",
        ),
        (
            "sm_75",
            1,
            "sm_75: no: the nearest image is for PTX sm_80 (PTX for 8.0 and later)",
        ),
    ] {
        let ended = output(
            work.command(crate::support::offld())
                .args(["check", "--for", device, "program"]),
        )?;
        expect_in(&text(&ended.stdout), expected)?;
        expect_equal(
            device,
            &status.to_string(),
            &ended.status.code().unwrap_or(-1).to_string(),
        )?;
    }
    passed()
}

/// With `-rdc=true`, nvcc links fatbinaries without PTX and leaves the relocatable inputs in the
/// program.
fn prelinked() -> Outcome {
    let work = Work::new();
    library(
        &work,
        &[
            ("__nv_relfatbin", &[80]),
            ("__nv_relfatbin", &[70, 90]),
            (".nv_fatbin", &[90]),
        ],
    )?;
    for (device, expected) in [
        (
            "sm_90",
            "yes: PTX for 9.0, compiled by driver 525 or later\n",
        ),
        (
            "sm_86",
            "unknown: the nearest image is for PTX sm_90 (PTX for 9.0 and later); \
             add one with --offload-arch=sm_86 or, for nvcc, -gencode arch=compute_86,code=sm_86; \
             but the relocatable code in the file fits it, and the driver may link that\n",
        ),
        (
            "sm_75",
            "no: the nearest image is for PTX sm_90 (PTX for 9.0 and later); \
             add one with --offload-arch=sm_75 or, for nvcc, -gencode arch=compute_75,code=sm_75\n",
        ),
    ] {
        expect_equal(device, expected, &loads(&work, device)?)?;
    }
    passed()
}

/// A simulated machine with GPUs, built from files, and the CPU of this machine.
fn native() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    let check_on = |root: &str, args: &[&str]| {
        let mut command = work.command(crate::support::offld());
        output(
            command
                .env("OFFLD_NATIVE_ROOT", work.path().join(root))
                .arg("check")
                .args(args),
        )
    };
    work.file("empty/sys/none", "");
    work.file(
        "mi250/sys/class/kfd/kfd/topology/nodes/0/properties",
        "gfx_target_version 0\n",
    );
    work.file(
        "mi250/sys/class/kfd/kfd/topology/nodes/1/properties",
        "simd_count 440\ngfx_target_version 90010\n",
    );
    work.file(
        "mi300/sys/class/kfd/kfd/topology/nodes/1/properties",
        "gfx_target_version 90402\n",
    );
    let found = check_on("mi250", &["--for", "native", "program"])?;
    expect_in(&text(&found.stdout), "gfx90a: yes (code for gfx90a)")?;
    expect_equal(
        "status",
        "0",
        &found.status.code().unwrap_or(-1).to_string(),
    )?;
    let other = check_on("mi300", &["--for", "native", "program"])?;
    expect_in(
        &text(&other.stdout),
        "gfx942: no: the nearest image is for ",
    )?;
    let none = check_on("empty", &["--for", "native", "program"])?;
    expect_in(
        &text(&none.stdout),
        "no: this machine has no device for HIP",
    )?;
    expect_equal("status", "1", &none.status.code().unwrap_or(-1).to_string())?;
    let no_hip_device = check_on("empty", &["--for", "hip:native", "program"])?;
    expect_in(
        &text(&no_hip_device.stderr),
        "`hip:native`: no matching GPU on this machine",
    )?;
    expect_equal(
        "status",
        "2",
        &no_hip_device.status.code().unwrap_or(-1).to_string(),
    )?;
    object(&work)?;
    program(&work, "cpu", &[])?;
    expect_equal(
        "the processor",
        "0",
        &check(&work, ["--for", "native", "cpu"])?.status.to_string(),
    )?;
    // A program for a runtime without devices does not affect the answer for the others.
    std::fs::create_dir(work.path().join("both"))?;
    for name in ["cpu", "program"] {
        std::fs::copy(work.path().join(name), work.path().join("both").join(name))?;
    }
    let both = check_on("empty", &["--for", "native", "both"])?;
    let shown = text(&both.stdout);
    expect_in(&shown, "program: not applicable")?;
    expect_in(&shown, "verdict: yes (1 not applicable of 2 files)")?;
    expect_equal("status", "0", &both.status.code().unwrap_or(-1).to_string())?;
    passed()
}
