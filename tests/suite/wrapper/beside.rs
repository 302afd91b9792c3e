//! The wrappers' modules and notes beside those that LLVM's own make.

use libtest_mimic::{Failed, Trial};

use super::HOST;
use crate::kit::Image;
use crate::support::{Outcome, Release, Work, expect_equal, expect_in, llvm, made, missing, passed, run, test, with_llvm};

/// A test for each release that has a wrapper.
pub(super) fn trials() -> Vec<Trial> {
    let mut all = vec![with_llvm("wrapper::w1_w2_w3_modules_beside_llvm_22", beside_22)];
    for major in [14, 15] {
        let name = format!("releases::wrapper::wr_01_wr_13_wr_14_od_01_od_09_od_10_beside::{major}");
        all.push(test(name, move || beside_older(major)));
        all.push(test(format!("releases::wrapper::notes_beside::{major}"), move || notes_beside(major)));
    }
    all
}

/// A module as LLVM 22 prints it, without what it was read from and without the data layout, which the older wrappers forget.
fn printed(work: &Work, bitcode: &str) -> Result<String, Failed> {
    let text = work.run(llvm("llvm-dis"), [bitcode, "-o", "-"])?;
    let kept = text.lines().filter(|line| !line.starts_with("; ModuleID") && !line.starts_with("target datalayout"));
    Ok(kept.collect::<Vec<_>>().join("\n"))
}

/// OpenMP's modules are LLVM's, on hosts whose sizes it gets right, for every input in which it finds all there is.
fn beside_22() -> Outcome {
    let work = Work::new();
    work.file("raw", "RAW\0");
    work.file("empty", "");
    work.file("zeros", [0; 5000]);
    work.file("mixed", (0..=255).cycle().take(70_000).collect::<Vec<u8>>());
    work.pack("packed", &[Image::amd("gfx90a", "PACKED")])?;
    for host in [HOST, "aarch64-unknown-linux-gnu", "x86_64-pc-windows-msvc"] {
        for inputs in [&["raw"][..], &["packed"], &["empty", "zeros", "raw", "mixed", "packed"]] {
            let common = ["--kind=openmp", "--triple", host, "-o"];
            work.run(llvm("llvm-offload-wrapper"), [&common[..], &["theirs.bc"], inputs].concat())?;
            work.run(made().links.join("llvm-offload-wrapper"), [&common[..], &["ours.bc"], inputs].concat())?;
            expect_equal(&format!("{host} {inputs:?}"), &printed(&work, "theirs.bc")?, &printed(&work, "ours.bc")?)?;
        }
    }
    passed()
}

/// `clang-offload-wrapper`'s modules are those of the releases that had it.
fn beside_older(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else { return missing(format!("LLVM {major} (make setup-releases)")) };
    let work = Work::new();
    work.file("raw", "RAW\0");
    work.file("mixed", (0..=255).cycle().take(70_000).collect::<Vec<u8>>());
    for host in [HOST, "aarch64-unknown-linux-gnu"] {
        for inputs in [&["raw"][..], &["mixed", "raw", "raw"]] {
            let common = ["-target", host, "-o"];
            work.run(release.tool("clang-offload-wrapper"), [&common[..], &["theirs.bc"], inputs].concat())?;
            work.run(made().links.join("clang-offload-wrapper"), [&common[..], &["ours.bc"], inputs].concat())?;
            // Two modules of theirs cannot be in one program.
            let (strong, weak) = ("@__dummy.omp_offloading.entry = hidden", "@__dummy.omp_offloading.entry = weak hidden");
            let theirs = untyped(&printed(&work, "theirs.bc")?).replace(strong, weak);
            expect_equal(&format!("{host} {inputs:?}"), &theirs, &printed(&work, "ours.bc")?)?;
        }
    }
    passed()
}

/// What LLVM 22 makes of a module with typed pointers has offsets of nothing where there was a cast.
fn untyped(module: &str) -> String {
    let mut text = String::new();
    let mut rest = module;
    while let Some((before, after)) = rest.split_once("getelementptr inbounds (") {
        text.push_str(before);
        let whole = after.split_once(')').map(|(inside, after)| (inside, after, inside.strip_suffix(", i64 0, i64 0")));
        match whole {
            Some((inside, after, Some(_))) => {
                // The array's type, the pointer, the offsets.
                let pointer = inside.split(", ptr ").nth(1).unwrap_or_default().split(',').next().unwrap_or_default();
                let pointer = format!("ptr {pointer}");
                text.truncate(text.trim_end_matches("ptr ").len());
                text.push_str(&pointer);
                rest = after;
            }
            _ => {
                text.push_str("getelementptr inbounds (");
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

/// The notes in an ELF image are those that the older wrapper has an objcopy add, but for the version.
fn notes_beside(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else { return missing(format!("LLVM {major} (make setup-releases)")) };
    for target in [HOST, "i386-pc-linux-gnu", "s390x-ibm-linux-gnu"] {
        let work = Work::new();
        work.fat_for(target, "image.o", &[], "int in_the_image;\n")?;
        let options = ["-target", HOST, "-add-omp-offload-notes", "-save-temps", "-o", "wrapped.bc", "image.o"];
        work.run(made().links.join("clang-offload-wrapper"), options)?;
        let ours = work.run(llvm("llvm-readelf"), ["-n", "image.o.elfwithnotes.tmp"])?;
        run(work.command(release.tool("clang-offload-wrapper")).args(options).env("PATH", &release.bin))?;
        let kept = |name: &String| name.contains(".elfwithnotes.") && name != "image.o.elfwithnotes.tmp";
        let mut names = std::fs::read_dir(work.path())?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let theirs = names.find(kept).ok_or("no image with notes")?;
        let theirs = work.run(llvm("llvm-readelf"), ["-n", &theirs])?;
        let without_version = |text: &str| text.lines().filter(|line| !line.contains("version:")).collect::<Vec<_>>().join("\n");
        expect_equal(target, &without_version(&theirs), &without_version(&ours))?;
        expect_in(&ours, "Producer: LLVM")?;
    }
    passed()
}
