//! The wrapper modules and notes compared with those of LLVM's wrappers.

use libtest_mimic::{Failed, Trial};

use super::HOST;
use crate::kit::Image;
use crate::support::{
    Outcome, Release, Work, expect_equal, expect_in, llvm, made, missing, passed, run, test,
    with_llvm,
};

/// One test per release with a wrapper.
pub(super) fn trials() -> Vec<Trial> {
    let mut all = vec![with_llvm(
        "wrapper::w1_w2_w3_modules_beside_llvm_22",
        openmp_modules,
    )];
    for major in [14, 15] {
        let name =
            format!("releases::wrapper::wr_01_wr_13_wr_14_od_01_od_09_od_10_beside::{major}");
        all.push(test(name, move || older_modules(major)));
        all.push(test(
            format!("releases::wrapper::notes_beside::{major}"),
            move || image_notes(major),
        ));
    }
    all
}

/// The text of a module from llvm-dis 22, without its source name and data layout, which the older
/// wrappers do not set.
fn printed(work: &Work, bitcode: &str) -> Result<String, Failed> {
    let text = work.run(llvm("llvm-dis"), [bitcode, "-o", "-"])?;
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("; ModuleID") && !line.starts_with("target datalayout"));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// OpenMP modules equal LLVM's, for hosts whose sizes LLVM gets right and inputs that it reads
/// completely.
fn openmp_modules() -> Outcome {
    let work = Work::new();
    work.file("raw", "RAW\0");
    work.file("empty", "");
    work.file("zeros", [0; 5000]);
    work.file("mixed", (0..=255).cycle().take(70_000).collect::<Vec<u8>>());
    work.pack("packed", &[Image::amd("gfx90a", "PACKED")])?;
    for host in [HOST, "aarch64-unknown-linux-gnu", "x86_64-pc-windows-msvc"] {
        for inputs in [
            &["raw"][..],
            &["packed"],
            &["empty", "zeros", "raw", "mixed", "packed"],
        ] {
            let common = ["--kind=openmp", "--triple", host, "-o"];
            work.run(
                llvm("llvm-offload-wrapper"),
                [&common[..], &["theirs.bc"], inputs].concat(),
            )?;
            work.run(
                made().links.join("llvm-offload-wrapper"),
                [&common[..], &["ours.bc"], inputs].concat(),
            )?;
            expect_equal(
                &format!("{host} {inputs:?}"),
                &printed(&work, "theirs.bc")?,
                &printed(&work, "ours.bc")?,
            )?;
        }
    }
    passed()
}

/// Modules of `clang-offload-wrapper` equal those of the releases that contain it.
fn older_modules(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let work = Work::new();
    work.file("raw", "RAW\0");
    work.file("mixed", (0..=255).cycle().take(70_000).collect::<Vec<u8>>());
    for host in [HOST, "aarch64-unknown-linux-gnu"] {
        for inputs in [&["raw"][..], &["mixed", "raw", "raw"]] {
            let common = ["-target", host, "-o"];
            work.run(
                release.tool("clang-offload-wrapper"),
                [&common[..], &["theirs.bc"], inputs].concat(),
            )?;
            work.run(
                made().links.join("clang-offload-wrapper"),
                [&common[..], &["ours.bc"], inputs].concat(),
            )?;
            // Two modules of LLVM's wrapper cannot be in one program.
            let (strong, weak) = (
                "@__dummy.omp_offloading.entry = hidden",
                "@__dummy.omp_offloading.entry = weak hidden",
            );
            let theirs = untyped(&printed(&work, "theirs.bc")?).replace(strong, weak);
            expect_equal(
                &format!("{host} {inputs:?}"),
                &theirs,
                &printed(&work, "ours.bc")?,
            )?;
        }
    }
    passed()
}

/// For typed pointers, llvm-dis 22 prints constant expressions with zero offsets instead of casts.
/// This removes them.
fn untyped(module: &str) -> String {
    let mut text = String::new();
    let mut rest = module;
    while let Some((before, after)) = rest.split_once("getelementptr inbounds (") {
        text.push_str(before);
        let whole = after
            .split_once(')')
            .map(|(inside, after)| (inside, after, inside.strip_suffix(", i64 0, i64 0")));
        match whole {
            Some((inside, after, Some(_))) => {
                // The type of the array, the pointer, the offsets.
                let pointer = inside
                    .split(", ptr ")
                    .nth(1)
                    .unwrap_or_default()
                    .split(',')
                    .next()
                    .unwrap_or_default();
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

/// The notes in an ELF image equal those that the older wrapper adds with objcopy, except for the
/// version.
fn image_notes(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    for target in [HOST, "i386-pc-linux-gnu", "s390x-ibm-linux-gnu"] {
        let work = Work::new();
        work.fat_for(target, "image.o", &[], "int in_the_image;\n")?;
        let options = [
            "-target",
            HOST,
            "-add-omp-offload-notes",
            "-save-temps",
            "-o",
            "wrapped.bc",
            "image.o",
        ];
        work.run(made().links.join("clang-offload-wrapper"), options)?;
        let ours = work.run(llvm("llvm-readelf"), ["-n", "image.o.elfwithnotes.tmp"])?;
        run(work
            .command(release.tool("clang-offload-wrapper"))
            .args(options)
            .env("PATH", &release.bin))?;
        let is_image_with_notes =
            |name: &String| name.contains(".elfwithnotes.") && name != "image.o.elfwithnotes.tmp";
        let mut names = std::fs::read_dir(work.path())?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let theirs = names
            .find(is_image_with_notes)
            .ok_or("no image with notes")?;
        let theirs = work.run(llvm("llvm-readelf"), ["-n", &theirs])?;
        let without_version = |text: &str| {
            text.lines()
                .filter(|line| !line.contains("version:"))
                .collect::<Vec<_>>()
                .join("\n")
        };
        expect_equal(target, &without_version(&theirs), &without_version(&ours))?;
        expect_in(&ours, "Producer: LLVM")?;
    }
    passed()
}
