//! Each of the things that go wrong between compilers, linkers and packagers, done to a file that was right before.

use libtest_mimic::{Failed, Trial};

use super::{change, check, find, list, number, object, program};
use crate::kinds::{Case, Tools, Wrapper};
use crate::kit::Image;
use crate::support::{Outcome, Work, expect_equal, llvm, passed, root, run, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("check::sabotage::a_kernel_missing_in_one_image", missing_kernel),
        with_llvm("check::sabotage::wrong_triple", wrong_triple),
        with_llvm("check::sabotage::damaged_container", damaged_container),
        with_llvm("check::sabotage::shared_table", shared_table),
        with_llvm("check::sabotage::missing_runtime", missing_runtime),
        with_llvm("check::sabotage::duplicate_target", duplicate_target),
        with_llvm("check::sabotage::newer_compression", newer_compression),
        with_llvm("check::sabotage::wrong_feature", wrong_feature),
        with_llvm("check::sabotage::entry_without_image", entry_without_image),
        with_llvm("check::sabotage::wrong_target", wrong_target),
        with_llvm("check::sabotage::images_that_nothing_registers", not_registered),
        with_llvm("check::sabotage::runtime_that_is_not_here", runtime_not_here),
        with_llvm("check::sabotage::the_same_image_twice", twice),
    ]
}

/// A program of `tests/kinds`, of which nothing is wrong.
fn built(case: &str, work: &Work) -> Result<(), Outcome> {
    let case = Case::named(case, 22);
    let tools: Tools = case.tools()?;
    let made = case.compile(work, &tools, Wrapper::Ours).and_then(|()| case.link(work, &tools, Wrapper::Ours, &[]));
    made.map_err(Err)?;
    let told = check(work, ["program"]).map_err(Err)?;
    expect_equal("before", "yes\n", &told.lines()).map_err(Err)
}

/// The place in the program of the image with a text in it, by the target that `offld inspect` has it for.
fn image(work: &Work, file: &str, target: &str, with: &[u8]) -> Result<std::ops::Range<usize>, Failed> {
    let told = run(work.command(crate::support::offld()).args(["inspect", "--json", file]))?;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let images = list(&told["files"][0]["images"]);
    let bytes = std::fs::read(work.path().join(file))?;
    let place = |image: &serde_json::Value| number(&image["offset"])..number(&image["offset"]) + number(&image["size"]);
    let of_target = images.iter().filter(|image| image["target"] == target).map(place);
    let has_text =
        |place: &std::ops::Range<usize>| with.is_empty() || bytes[place.clone()].windows(with.len()).any(|window| window == with);
    of_target.into_iter().find(has_text).ok_or_else(|| format!("no {target}: {told:#}").into())
}

/// One image of HIP's, by its entries and by code, loses a kernel.
fn missing_kernel() -> Outcome {
    for (case, answer, basis) in [("hip-rdc", "no", "is registered and not in"), ("hip-plain", "unknown", "and not in")] {
        let work = Work::new();
        if let Err(ended) = built(case, &work) {
            return ended;
        }
        let place = image(&work, "program", "gfx908", b"_Z4fillPii")?;
        change(&work, "program", "sabotaged", |bytes| {
            // The metadata note lists the kernels.
            let name = b"_Z4fillPii";
            let mut at = place.start;
            while let Some(found) = bytes[at..place.end].windows(name.len()).position(|window| window == name) {
                at += found;
                bytes[at + 4] = b'o';
                at += name.len();
            }
        })?;
        let told = check(&work, ["sabotaged"])?;
        expect_equal("status", "1", &told.status.to_string())?;
        told.expect("missing-kernel", answer, "kernel `_Z4fillPii`")?;
        told.expect("missing-kernel", answer, basis)?;
        told.expect("missing-kernel", answer, "(amdgcn-amd-amdhsa (gfx908))")?;
    }
    passed()
}

/// An image is for a GPU by its container, and for the host by its header.
fn wrong_triple() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "program", &[])?;
    let place = image(&work, "program", "", b"\x7fELF")?;
    change(&work, "program", "sabotaged", |bytes| bytes[place.start + 18..place.start + 20].copy_from_slice(&[224, 0]))?;
    says_no(&work, "wrong-triple", "is said to be for x86_64-pc-linux-gnu, and its own header is of amdgcn-amd-amdhsa")
}

/// That the sabotaged file is no: by this rule, in these words.
fn says_no(work: &Work, rule: &str, said: &str) -> Outcome {
    let told = check(work, ["sabotaged"])?;
    told.expect(rule, "no", said)?;
    expect_equal("status", "1", &told.status.to_string())?;
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
    let told = check(&work, ["sabotaged"])?;
    expect_equal("answer", "\"unreadable\" 2", &format!("{} {}", told.json["answer"], told.status))?;
    let error = told.json["files"][0]["errors"][0].as_str().unwrap_or_default();
    assert!(error.contains(".hip_fatbin") && error.contains("compressed-bundle"), "{error}");
    passed()
}

/// Two registrations of one table, as two links make that do not know of each other.
fn shared_table() -> Outcome {
    let work = Work::new();
    object(&work)?;
    // LLVM's tool makes a registration by itself, and the table has one name in all of them.
    program(&work, "program", &[])?;
    run(work.command(llvm("llvm-offload-binary")).args(["program", "--image=file=device.so,kind=openmp"]))?;
    for name in ["one", "two"] {
        let packed = format!("{name}.bin");
        let image = "--image=file=device.so,kind=openmp,triple=x86_64-pc-linux-gnu";
        run(work.command(llvm("llvm-offload-binary")).args(["-o", &packed, image]))?;
        run(work.command(llvm("llvm-offload-wrapper")).args([
            "--kind=openmp",
            "--triple=x86_64-unknown-linux-gnu",
            &packed,
            "-o",
            &format!("{name}.bc"),
        ]))?;
        run(work.command(llvm("clang")).args(["-fPIC", "-c", &format!("{name}.bc"), "-o", &format!("{name}.o")]))?;
    }
    run(work.command(llvm("llvm-objcopy")).args(["--remove-section=.llvm.offloading", "main.o", "host.o"]))?;
    let link = ["host.o", "one.o", "two.o", "-L/usr/lib/llvm-22/lib", "-lomptarget", "-lomp", "-o", "sabotaged"];
    run(work.command(llvm("clang")).args(link))?;
    says_no(&work, "shared-table", "name the same table of entries")
}

/// Has a file need another library in the place of its OpenMP runtime.
fn with_runtime(work: &Work, file: &str, to: &str, library: &[u8]) -> Result<(), Failed> {
    change(work, file, to, |bytes| {
        let known = b"libomptarget.so.22.1\0";
        let at = find(bytes, known);
        bytes[at..at + known.len()].fill(0);
        bytes[at..at + library.len()].copy_from_slice(library);
    })
}

/// The library of the runtime is no longer needed, or is an old one.
fn missing_runtime() -> Outcome {
    let work = Work::new();
    object(&work)?;
    // A shared library may leave its runtime to the program that loads it.
    for (file, words, answer) in [("program", &[][..], "no"), ("library.so", &["-shared"], "unknown")] {
        program(&work, file, words)?;
        // This one is there, and has no runtime in it.
        with_runtime(&work, file, "sabotaged", b"libm.so.6")?;
        let told = check(&work, ["sabotaged"])?;
        told.expect("missing-runtime", answer, "none of the needed libraries defines `__tgt_register_lib`")?;
        expect_equal("answer", answer, told.json["answer"].as_str().unwrap_or_default())?;
    }
    with_runtime(&work, "program", "old", b"libomptarget.so.19.1")?;
    let told = check(&work, ["old"])?;
    told.expect("old-runtime", "no", "libomptarget.so.19.1 cannot read its entries, which LLVM 20 or later made")?;
    passed()
}

/// Two images for one target: the second is never taken.
fn duplicate_target() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    change(&work, "program", "sabotaged", |bytes| {
        let bundle = find(bytes, b"__CLANG_OFFLOAD_BUNDLE__");
        let at = bundle + find(&bytes[bundle..], b"gfx908");
        bytes[at..at + 6].copy_from_slice(b"gfx90a");
        // The image itself is of that processor, too: 0x30 and 0x3f are theirs in its header's flags.
        for place in images(bytes) {
            bytes[place + 48] = 0x3f;
        }
    })?;
    says_no(&work, "same-target", "a runtime takes the first one of both")
}

/// Where AMD's images begin in a file.
fn images(bytes: &[u8]) -> Vec<usize> {
    let is_image = |at: &usize| bytes[*at..].starts_with(b"\x7fELF\x02\x01\x01\x40") && bytes.get(at + 18) == Some(&224);
    (0..bytes.len() - 64).filter(is_image).collect()
}

/// A compressed bundle of version 3 in a program for HIP's runtime of ROCm 6, and one of a version that nobody knows.
fn newer_compression() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-compressed", &work) {
        return ended;
    }
    change(&work, "program", "unknown", |bytes| {
        let at = find(bytes, b"CCOB");
        bytes[at + 4] = 4;
    })?;
    let told = check(&work, ["unknown"])?;
    expect_equal("answer", "\"unreadable\"", &told.json["answer"].to_string())?;
    let error = told.json["files"][0]["errors"][0].as_str().unwrap_or_default();
    assert!(error.contains("version"), "{error}");
    for (release, answer) in [("6", "no"), ("7", "yes")] {
        let soname = format!("-Wl,-soname,libamdhip64.so.{release}");
        let source = root().join("runtime-stubs/hip.c");
        run(work.command("cc").args(["-std=c11", "-shared", "-fPIC", &soname, "-o", "libamdhip64.so"]).arg(source))?;
        let case = Case::named("hip-compressed", 22);
        let tools = case.tools().map_err(|_| "the tools were there before")?;
        case.link(&work, &tools, Wrapper::Ours, &[])?;
        let told = check(&work, ["program"])?;
        expect_equal(&format!("with ROCm {release}"), answer, told.json["answer"].as_str().unwrap_or_default())?;
        if answer == "no" {
            told.expect("compression", "no", "libamdhip64.so.6 cannot read version 3 of compressed bundles")?;
        }
    }
    passed()
}

/// The bundle's id has another setting of a feature than the image.
fn wrong_feature() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-features", &work) {
        return ended;
    }
    change(&work, "program", "sabotaged", |bytes| {
        let at = find(bytes, b":xnack+");
        bytes[at + 6] = b'-';
    })?;
    says_no(&work, "wrong-feature", "xnack+")
}

/// Kernels are registered, and no image with them: the wrapper was forgotten.
fn entry_without_image() -> Outcome {
    let work = Work::new();
    object(&work)?;
    run(work.command(llvm("llvm-objcopy")).args(["--remove-section=.llvm.offloading", "main.o", "host.o"]))?;
    let link = ["host.o", "-L/usr/lib/llvm-22/lib", "-lomptarget", "-lomp", "-o", "sabotaged"];
    run(work.command(llvm("clang")).args(link))?;
    for file in ["host.o", "sabotaged"] {
        let told = check(&work, [file])?;
        told.expect("no-image", "no", "2 kernels are registered with OpenMP, and there is no image for them")?;
        expect_equal("status", "1", &told.status.to_string())?;
    }
    passed()
}

/// An image is for one processor by its container, and for another one by its header.
fn wrong_target() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    let place = image(&work, "program", "gfx908", b"")?;
    // 0x3f in the header's flags is gfx90a.
    change(&work, "program", "sabotaged", |bytes| bytes[place.start + 48] = 0x3f)?;
    says_no(
        &work,
        "wrong-target",
        "is said to be for amdgcn-amd-amdhsa (gfx908), and its own header is of amdgcn-amd-amdhsa (gfx90a)",
    )
}

/// A link without a wrapper, of an object whose images a linker does not leave out.
fn not_registered() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let flags = "--set-section-flags=.llvm.offloading=alloc,readonly";
    run(work.command(llvm("llvm-objcopy")).args([flags, "main.o", "host.o"]))?;
    let link = ["host.o", "-L/usr/lib/llvm-22/lib", "-lomptarget", "-lomp", "-o", "sabotaged"];
    run(work.command(llvm("clang")).args(link))?;
    says_no(&work, "not-registered", "no descriptor hands them to the runtime")
}

/// A runtime that is only where the program will run is a note.
fn runtime_not_here() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "program", &[])?;
    with_runtime(&work, "program", "elsewhere", b"libomptarget.so.88.1")?;
    let told = check(&work, ["elsewhere"])?;
    told.expect("runtime-not-here", "yes", "libomptarget.so.88.1, which defines `__tgt_register_lib`, is not on this machine")?;
    expect_equal("the answer", "yes\n", &told.lines())?;
    passed()
}

/// Two images for one target that are the same are a note.
fn twice() -> Outcome {
    let work = Work::new();
    if let Err(ended) = built("hip-rdc", &work) {
        return ended;
    }
    let place = image(&work, "program", "gfx908", b"")?;
    let bytes = std::fs::read(work.path().join("program"))?;
    let code = Image::hip("gfx908", &bytes[place]);
    work.pack("packed", &[code, code])?;
    let told = check(&work, ["packed"])?;
    told.expect("same-target", "yes", "image 1 is for amdgcn-amd-amdhsa (gfx908) like image 0, and both are the same")?;
    passed()
}
