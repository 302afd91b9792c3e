//! Every known mistake of compilers, linkers and packagers, applied to a correct file.

use libtest_mimic::{Failed, Trial};

use super::{change, check, find, list, number, object, program};
use crate::kinds::{Case, Tools, Wrapper};
use crate::kit::Image;
use crate::support::{Outcome, Work, expect_equal, llvm, passed, root, run, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "check::sabotage::a_kernel_missing_in_one_image",
            missing_kernel,
        ),
        with_llvm("check::sabotage::wrong_triple", wrong_triple),
        with_llvm(
            "check::sabotage::code_of_intel_that_is_as_it_should_be",
            intel,
        ),
        with_llvm("check::sabotage::damaged_container", damaged_container),
        with_llvm("check::sabotage::shared_table", shared_table),
        with_llvm("check::sabotage::missing_runtime", missing_runtime),
        with_llvm("check::sabotage::duplicate_target", duplicate_target),
        with_llvm("check::sabotage::newer_compression", newer_compression),
        with_llvm("check::sabotage::wrong_feature", wrong_feature),
        with_llvm("check::sabotage::entry_without_image", entry_without_image),
        with_llvm("check::sabotage::wrong_target", wrong_target),
        with_llvm(
            "check::sabotage::images_that_nothing_registers",
            not_registered,
        ),
        with_llvm(
            "check::sabotage::runtime_that_is_not_here",
            runtime_not_here,
        ),
        with_llvm("check::sabotage::the_same_image_twice", identical_images),
    ]
}

/// Builds a correct program of `tests/kinds`.
fn built(case: &str, work: &Work) -> Result<(), Outcome> {
    let case = Case::named(case, 22);
    let tools: Tools = case.tools()?;
    let made = case
        .compile(work, &tools, Wrapper::Ours)
        .and_then(|()| case.link(work, &tools, Wrapper::Ours, &[]));
    made.map_err(Err)?;
    let report = check(work, ["program"]).map_err(Err)?;
    expect_equal("before", "yes\n", &report.lines()).map_err(Err)
}

/// The byte range of the image that contains `with` and has this target in the report of
/// `offld inspect`.
fn image(
    work: &Work,
    file: &str,
    target: &str,
    with: &[u8],
) -> Result<std::ops::Range<usize>, Failed> {
    let report = run(work
        .command(crate::support::offld())
        .args(["inspect", "--json", file]))?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    let images = list(&report["files"][0]["images"]);
    let bytes = std::fs::read(work.path().join(file))?;
    let place = |image: &serde_json::Value| {
        number(&image["offset"])..number(&image["offset"]) + number(&image["size"])
    };
    let of_target = images
        .iter()
        .filter(|image| image["target"] == target)
        .map(place);
    let has_text = |place: &std::ops::Range<usize>| {
        with.is_empty()
            || bytes[place.clone()]
                .windows(with.len())
                .any(|window| window == with)
    };
    of_target
        .into_iter()
        .find(has_text)
        .ok_or_else(|| format!("no {target}: {report:#}").into())
}

/// One HIP image loses a kernel: in a program with an entry table, and in one that registers with
/// code.
fn missing_kernel() -> Outcome {
    for (case, answer, basis) in [
        ("hip-rdc", "no", "is registered and not in"),
        ("hip-plain", "unknown", "and not in"),
    ] {
        let work = Work::new();
        if let Err(ended) = built(case, &work) {
            return ended;
        }
        let place = image(&work, "program", "gfx908", b"_Z4fillPii")?;
        change(&work, "program", "sabotaged", |bytes| {
            // The metadata note contains the kernel names too.
            let name = b"_Z4fillPii";
            let mut at = place.start;
            while let Some(found) = bytes[at..place.end]
                .windows(name.len())
                .position(|window| window == name)
            {
                at += found;
                bytes[at + 4] = b'o';
                at += name.len();
            }
        })?;
        let report = check(&work, ["sabotaged"])?;
        expect_equal("status", "1", &report.status.to_string())?;
        report.expect("missing-kernel", answer, "kernel `fill(int*, int)`")?;
        report.expect("missing-kernel", answer, basis)?;
        report.expect("missing-kernel", answer, "(amdgcn-amd-amdhsa (gfx908))")?;
    }
    passed()
}

/// The container labels the image with a GPU, but its header is for the host.
fn wrong_triple() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "program", &[])?;
    let place = image(&work, "program", "", b"\x7fELF")?;
    change(&work, "program", "sabotaged", |bytes| {
        bytes[place.start + 18..place.start + 20].copy_from_slice(&[224, 0])
    })?;
    expect_no(
        &work,
        "wrong-triple",
        "is labelled as x86_64-pc-linux-gnu, but its own header is for amdgcn-amd-amdhsa",
    )
}

/// Ahead-of-time code for Intel GPUs as Intel's compilers pack it: an archive of ELF files for
/// machine 205, and one for machine 0 with an intermediate form. It is correct, but its kernels
/// cannot be listed. CPU code in the same place is an error.
fn intel() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let elf = |name: &str, machine: u16| -> Result<(), Failed> {
        change(&work, "main.o", name, |bytes| {
            bytes[18..20].copy_from_slice(&machine.to_le_bytes())
        })
    };
    for (members, answer) in [([205, 205, 0], "unknown"), ([205, 0, 62], "no")] {
        for (name, machine) in ["64.12.60.7", "64.12.70.4", "generic_ir"]
            .into_iter()
            .zip(members)
        {
            elf(name, machine)?;
        }
        let _ = std::fs::remove_file(work.path().join("code.a"));
        run(work.command(llvm("llvm-ar")).args([
            "rc",
            "code.a",
            "64.12.60.7",
            "64.12.70.4",
            "generic_ir",
        ]))?;
        let archive = std::fs::read(work.path().join("code.a"))?;
        let code = Image {
            triple: "spir64_gen-unknown-unknown",
            arch: "",
            kind: "sycl",
            bytes: &archive,
        };
        let il = [&0x0723_0203_u32.to_le_bytes()[..], &[0; 60]].concat();
        let il = Image {
            triple: "spir64-unknown-unknown",
            arch: "",
            kind: "sycl",
            bytes: &il,
        };
        work.pack("packed", &[code, il])?;
        let report = check(&work, ["packed"])?;
        expect_equal(
            "answer",
            answer,
            report.json["answer"].as_str().unwrap_or_default(),
        )?;
        if answer == "no" {
            report.expect("wrong-triple", "no", "but its own header is for x86-64")?;
        }
    }
    passed()
}

/// The answer for the sabotaged file is no, with this rule and text.
fn expect_no(work: &Work, rule: &str, text: &str) -> Outcome {
    let report = check(work, ["sabotaged"])?;
    report.expect(rule, "no", text)?;
    expect_equal("status", "1", &report.status.to_string())?;
    passed()
}

fn damaged_container() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-compressed", &work) {
        return ended;
    }
    change(&work, "program", "sabotaged", |bytes| {
        let at = find(bytes, b"CCOB");
        bytes[at + 60..at + 90].fill(0xa5);
    })?;
    let report = check(&work, ["sabotaged"])?;
    expect_equal(
        "answer",
        "\"unreadable\" 2",
        &format!("{} {}", report.json["answer"], report.status),
    )?;
    let error = report.json["files"][0]["errors"][0]
        .as_str()
        .unwrap_or_default();
    assert!(
        error.contains(".hip_fatbin") && error.contains("compressed-bundle"),
        "{error}"
    );
    passed()
}

/// Two registrations of one table, as two independent links create them.
fn shared_table() -> Outcome {
    let work = Work::new();
    object(&work)?;
    // LLVM's tool creates a registration on its own, and its table has the same name in all of
    // them.
    program(&work, "program", &[])?;
    run(work
        .command(llvm("llvm-offload-binary"))
        .args(["program", "--image=file=device.so,kind=openmp"]))?;
    for name in ["one", "two"] {
        let packed = format!("{name}.bin");
        let image = "--image=file=device.so,kind=openmp,triple=x86_64-pc-linux-gnu";
        run(work
            .command(llvm("llvm-offload-binary"))
            .args(["-o", &packed, image]))?;
        run(work.command(llvm("llvm-offload-wrapper")).args([
            "--kind=openmp",
            "--triple=x86_64-unknown-linux-gnu",
            &packed,
            "-o",
            &format!("{name}.bc"),
        ]))?;
        run(work.command(llvm("clang")).args([
            "-fPIC",
            "-c",
            &format!("{name}.bc"),
            "-o",
            &format!("{name}.o"),
        ]))?;
    }
    run(work.command(llvm("llvm-objcopy")).args([
        "--remove-section=.llvm.offloading",
        "main.o",
        "host.o",
    ]))?;
    let link = [
        "host.o",
        "one.o",
        "two.o",
        "-L/usr/lib/llvm-22/lib",
        "-lomptarget",
        "-lomp",
        "-o",
        "sabotaged",
    ];
    run(work.command(llvm("clang")).args(link))?;
    expect_no(&work, "shared-table", "share an entry table")
}

/// Replaces the OpenMP runtime in the needed libraries of a file.
fn with_runtime(work: &Work, file: &str, to: &str, library: &[u8]) -> Result<(), Failed> {
    change(work, file, to, |bytes| {
        let known = b"libomptarget.so.22.1\0";
        let at = find(bytes, known);
        bytes[at..at + known.len()].fill(0);
        bytes[at..at + library.len()].copy_from_slice(library);
    })
}

/// The library of the runtime is not needed any more, or it is too old.
fn missing_runtime() -> Outcome {
    let work = Work::new();
    object(&work)?;
    // A shared library can leave the runtime to the program that loads it.
    for (file, args, answer) in [
        ("program", &[][..], "no"),
        ("library.so", &["-shared"], "unknown"),
    ] {
        program(&work, file, args)?;
        // libm exists but does not contain the runtime.
        with_runtime(&work, file, "sabotaged", b"libm.so.6")?;
        let report = check(&work, ["sabotaged"])?;
        report.expect(
            "missing-runtime",
            answer,
            "none of the needed libraries defines `__tgt_register_lib`",
        )?;
        expect_equal(
            "answer",
            answer,
            report.json["answer"].as_str().unwrap_or_default(),
        )?;
    }
    with_runtime(&work, "program", "old", b"libomptarget.so.19.1")?;
    let report = check(&work, ["old"])?;
    report.expect(
        "old-runtime",
        "no",
        "libomptarget.so.19.1 cannot read the entry table, which has the layout of LLVM 20 or later",
    )?;
    passed()
}

/// Two images for one target: the runtime never loads the second.
fn duplicate_target() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    change(&work, "program", "sabotaged", |bytes| {
        let bundle = find(bytes, b"__CLANG_OFFLOAD_BUNDLE__");
        let at = bundle + find(&bytes[bundle..], b"gfx908");
        bytes[at..at + 6].copy_from_slice(b"gfx90a");
        // The header flags of the image change too: 0x30 is gfx908, 0x3f is gfx90a.
        for place in images(bytes) {
            bytes[place + 48] = 0x3f;
        }
    })?;
    expect_no(
        &work,
        "same-target",
        "a runtime always takes the first of both",
    )
}

/// The offsets of AMD images in a file.
fn images(bytes: &[u8]) -> Vec<usize> {
    let is_image = |at: &usize| {
        bytes[*at..].starts_with(b"\x7fELF\x02\x01\x01\x40") && bytes.get(at + 18) == Some(&224)
    };
    (0..bytes.len() - 64).filter(is_image).collect()
}

/// A compressed bundle of version 3 in a program for the HIP runtime of ROCm 6, and a bundle of an
/// unknown version.
fn newer_compression() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-compressed", &work) {
        return ended;
    }
    change(&work, "program", "unknown", |bytes| {
        let at = find(bytes, b"CCOB");
        bytes[at + 4] = 4;
    })?;
    let report = check(&work, ["unknown"])?;
    expect_equal(
        "answer",
        "\"unreadable\"",
        &report.json["answer"].to_string(),
    )?;
    let error = report.json["files"][0]["errors"][0]
        .as_str()
        .unwrap_or_default();
    assert!(error.contains("version"), "{error}");
    for (release, answer) in [("6", "no"), ("7", "yes")] {
        let soname = format!("-Wl,-soname,libamdhip64.so.{release}");
        let source = root().join("runtime-stubs/hip.c");
        run(work
            .command("cc")
            .args([
                "-std=c11",
                "-shared",
                "-fPIC",
                &soname,
                "-o",
                "libamdhip64.so",
            ])
            .arg(source))?;
        let case = Case::named("hip-compressed", 22);
        let tools = case.tools().map_err(|_| "the tools were there before")?;
        case.link(&work, &tools, Wrapper::Ours, &[])?;
        let report = check(&work, ["program"])?;
        expect_equal(
            &format!("with ROCm {release}"),
            answer,
            report.json["answer"].as_str().unwrap_or_default(),
        )?;
        if answer == "no" {
            report.expect(
                "compression",
                "no",
                "libamdhip64.so.6 cannot read version 3 of compressed bundles",
            )?;
        }
    }
    passed()
}

/// The bundle id and the image have different settings of a feature.
fn wrong_feature() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-features", &work) {
        return ended;
    }
    change(&work, "program", "sabotaged", |bytes| {
        let at = find(bytes, b":xnack+");
        bytes[at + 6] = b'-';
    })?;
    expect_no(&work, "wrong-feature", "xnack+")
}

/// Kernels are registered without an image because the link ran without the wrapper.
fn entry_without_image() -> Outcome {
    let work = Work::new();
    object(&work)?;
    run(work.command(llvm("llvm-objcopy")).args([
        "--remove-section=.llvm.offloading",
        "main.o",
        "host.o",
    ]))?;
    let link = [
        "host.o",
        "-L/usr/lib/llvm-22/lib",
        "-lomptarget",
        "-lomp",
        "-o",
        "sabotaged",
    ];
    run(work.command(llvm("clang")).args(link))?;
    let linked = "2 kernels, but the program was linked without device images: relink with -fopenmp-targets=… and -B DIR, or with --ld-path=";
    for (file, finding) in [
        (
            "host.o",
            "2 kernels in the OpenMP table, but no device image",
        ),
        ("sabotaged", linked),
    ] {
        let report = check(&work, [file])?;
        report.expect("no-image", "no", finding)?;
        expect_equal("status", "1", &report.status.to_string())?;
    }
    passed()
}

/// The container and the header of an image name different architectures.
fn wrong_target() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    let place = image(&work, "program", "gfx908", b"")?;
    // 0x3f in the header's flags is gfx90a.
    change(&work, "program", "sabotaged", |bytes| {
        bytes[place.start + 48] = 0x3f
    })?;
    expect_no(
        &work,
        "wrong-target",
        "is labelled as amdgcn-amd-amdhsa (gfx908), but its own header is for amdgcn-amd-amdhsa (gfx90a)",
    )
}

/// A link without a wrapper, of an object whose section flags keep the images in the program.
fn not_registered() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let flags = "--set-section-flags=.llvm.offloading=alloc,readonly";
    run(work
        .command(llvm("llvm-objcopy"))
        .args([flags, "main.o", "host.o"]))?;
    let link = [
        "host.o",
        "-L/usr/lib/llvm-22/lib",
        "-lomptarget",
        "-lomp",
        "-o",
        "sabotaged",
    ];
    run(work.command(llvm("clang")).args(link))?;
    expect_no(
        &work,
        "not-registered",
        "no descriptor hands them to the runtime",
    )
}

/// A runtime that is missing on this machine is only a note: it may exist where the program will
/// run.
fn runtime_not_here() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "program", &[])?;
    with_runtime(&work, "program", "elsewhere", b"libomptarget.so.88.1")?;
    let report = check(&work, ["elsewhere"])?;
    report.expect(
        "runtime-not-here",
        "yes",
        "libomptarget.so.88.1, which defines `__tgt_register_lib`, is not on this machine",
    )?;
    expect_equal("the answer", "yes\n", &report.lines())?;
    passed()
}

/// Two identical images for one target are only a note.
fn identical_images() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    let place = image(&work, "program", "gfx908", b"")?;
    let bytes = std::fs::read(work.path().join("program"))?;
    let code = Image::hip("gfx908", &bytes[place]);
    work.pack("packed", &[code, code])?;
    let report = check(&work, ["packed"])?;
    report.expect(
        "same-target",
        "yes",
        "image 1 is for amdgcn-amd-amdhsa (gfx908) like image 0, and both are equal",
    )?;
    passed()
}
