//! The commands about files with device code follow a program to its images.

use std::fs;

use libtest_mimic::{Failed, Trial};

use super::{SOURCE, files_in};
use crate::kit::Image;
use crate::late::TWO;
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, made as suite,
    offld, output, passed, run, run_failing, run_offloaded, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("external_images::tools::reports_include_the_files", reports),
        with_llvm("external_images::tools::bad_files_are_reported", bad_files),
        with_llvm(
            "external_images::tools::edits_of_directories_include_the_files",
            edits,
        ),
    ]
}

/// A program for the CPU and for gfx90a, and the path of its file for gfx90a.
fn made() -> Result<(Work, String), Failed> {
    let work = Work::new();
    work.file("main.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(TWO)
        .args(["-c", "main.c", "-o", "main.o"]))?;
    fs::create_dir(work.path().join("bin"))?;
    link_to(&work, "bin/program")?;
    let files = files_in(&work.path().join("bin/program.images"));
    let [gpu, _cpu] = files.as_slice() else {
        return Err(format!("{files:?}").into());
    };
    let name = gpu.strip_prefix(work.path())?.display().to_string();
    Ok((work, name))
}

fn link_to(work: &Work, name: &str) -> Result<(), Failed> {
    let mut link = work.command(llvm("clang"));
    link.args(TWO).args(["main.o", "-o", name, super::OPTION]);
    run(link.arg("-B").arg(&suite().links))?;
    Ok(())
}

/// The output of `offld` and its exit status.
fn tool(work: &Work, args: &[&str]) -> Result<(String, Option<i32>), Failed> {
    let ended = output(work.command(offld()).args(args))?;
    let all = text(&ended.stdout) + &text(&ended.stderr);
    Ok((all, ended.status.code()))
}

fn reports() -> Outcome {
    let (work, file) = made()?;
    let name = file.rsplit('/').next().unwrap_or_default();
    let (report, _) = tool(&work, &["inspect", "bin/program"])?;
    expect_in(&report, "bin/program: elf-executable, 2 device images\n")?;
    expect_in(
        &report,
        &format!("{name}  external-images  openmp  amdgcn-amd-amdhsa"),
    )?;
    expect_in(&report, &format!("{name} (gfx90a)"))?;
    let (report, status) = tool(&work, &["check", "bin/program"])?;
    expect_equal(
        "check",
        "bin/program: yes\n  OpenMP: yes (1 kernel in 2 images: x86_64, gfx90a)\nverdict: yes\n",
        &report,
    )?;
    assert_eq!(status, Some(0));
    let (report, _) = tool(&work, &["check", "bin/program", "--for", "x86-64-v2"])?;
    expect_in(&report, "x86-64-v2: yes (code for x86-64)")?;
    let (report, _) = tool(&work, &["check", "bin/program", "--for", "gfx90a"])?;
    expect_in(&report, "gfx90a: yes (code for gfx90a)")?;
    let (report, _) = tool(&work, &["check", "bin/program", "--for", "gfx908"])?;
    expect_in(&report, "verdict: no")?;
    // The file counts once, whether the program or the directory is named.
    for what in ["bin/program", "bin"] {
        let (report, _) = tool(&work, &["size", what])?;
        expect_in(&report, "  gfx90a       1        1")?;
    }
    let (report, _) = tool(&work, &["diff", "bin/program", "bin/program"])?;
    expect_not_in(&report, "architecture")?;
    passed()
}

fn bad_files() -> Outcome {
    let (work, file) = made()?;
    let path = work.path().join(&file);
    let mut bytes = fs::read(&path)?;
    let half = bytes.len() / 2;
    bytes[half] ^= 1;
    fs::write(&path, &bytes)?;
    let (report, status) = tool(&work, &["check", "bin/program"])?;
    expect_in(
        &report,
        "is damaged or belongs to another build: the program does not load it",
    )?;
    assert_eq!(status, Some(1));
    fs::remove_file(&path)?;
    // A package without the file of a device answers for the others.
    let (report, status) = tool(&work, &["check", "bin/program", "--for", "x86-64-v2"])?;
    expect_in(&report, "verdict: yes")?;
    assert_eq!(status, Some(0));
    let (report, status) = tool(&work, &["check", "bin/program", "--for", "gfx90a"])?;
    expect_in(&report, "verdict: no")?;
    assert_eq!(status, Some(1));
    fs::remove_dir_all(work.path().join("bin/program.images"))?;
    let (report, status) = tool(&work, &["check", "bin/program", "--for", "x86-64-v2"])?;
    expect_in(&report, "none of the files with the code for openmp is in ")?;
    assert_eq!(status, Some(1));
    let (report, status) = tool(&work, &["check", "bin/program"])?;
    expect_in(&report, "none of the files with the code for openmp is in ")?;
    // The program was linked with images.
    expect_not_in(&report, "relink")?;
    assert_eq!(status, Some(1));
    let (report, _) = tool(&work, &["inspect", "bin/program"])?;
    expect_in(
        &report,
        "bin/program: elf-executable, device code in other files\n",
    )?;
    expect_in(&report, "(gfx90a, not there)")?;
    // Damage to the table is an error with its place.
    let program = work.path().join("bin/program");
    let mut bytes = fs::read(&program)?;
    let at = bytes
        .windows(8)
        .position(|part| part == b"OFFLDIMG")
        .ok_or("no table")?;
    bytes[at + 20] = 0xff;
    fs::write(&program, &bytes)?;
    let (report, status) = tool(&work, &["inspect", "bin/program"])?;
    let expected = format!(
        "bin/program: .offld_images+{:#x}: images past the end of their table",
        at + 20
    );
    expect_in(&report, &expected)?;
    assert_eq!(status, Some(2));
    passed()
}

fn edits() -> Outcome {
    let (work, file) = made()?;
    let (report, _) = tool(&work, &["strip-device", "bin/program", "-o", "stripped"])?;
    expect_in(
        &report,
        "unchanged; images in `program.images` stay: edit them there",
    )?;
    // The same for a program with other images, which the edit changes.
    work.pack("pack", &[Image::hip("gfx90a", b"AMD")])?;
    work.run(
        llvm("llvm-objcopy"),
        [
            "--add-section=.llvm.offloading=pack",
            "bin/program",
            "with-images",
        ],
    )?;
    let drop = ["prune", "--drop", "gfx90a", "--allow-empty"];
    let (report, _) = tool(
        &work,
        &[&drop[..], &["with-images", "-o", "pruned"]].concat(),
    )?;
    expect_in(&report, "dropped: gfx90a; images in `program.images` stay")?;
    run(work
        .command(offld())
        .args(["prune", "--keep", "gfx90a", "bin", "-d", "kept"]))?;
    expect_equal(
        "stdout",
        "4950 device\n",
        &run_offloaded(&mut work.command(work.path().join("kept/program")))?,
    )?;
    run(work.command(offld()).args([
        "prune",
        "--drop",
        "gfx90a",
        "bin",
        "-d",
        "none",
        "--allow-empty",
    ]))?;
    expect_no_file(&work.path().join(file.replace("bin/", "none/")))?;
    let ended = output(&mut work.command(work.path().join("none/program")))?;
    expect_equal("stdout", "4950 device\n", &text(&ended.stdout))?;
    fs::create_dir(work.path().join("other"))?;
    link_to(&work, "other/program")?;
    let error = run_failing(work.command(offld()).args([
        "merge",
        "bin/program",
        "other/program",
        "-o",
        "both",
    ]))?;
    expect_in(
        &error,
        "its images are in files, which its other builds do not name",
    )?;
    passed()
}
