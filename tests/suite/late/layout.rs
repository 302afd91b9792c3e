//! A late-linked program looks like any other, to tools as well.

use std::os::unix::fs::PermissionsExt;

use libtest_mimic::{Failed, Trial};

use super::{LINKERS, link, object, ran};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, offld, passed, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for linker in LINKERS {
        for kind in ["pie", "fixed", "relr", "stripped"] {
            // gold has no relative relocations, and glibc does not start such programs of mold
            // 1.10.
            if kind == "relr" && ["gold", "mold"].contains(&linker) {
                continue;
            }
            trials.push(with_llvm(
                &format!("late::layout::{linker}_{kind}"),
                move || programs(linker, kind),
            ));
        }
    }
    trials
}

/// The reports of `llvm-objdump` and `readelf` about images, of `addr2line` about `main`, and of
/// gdb about the first line.
fn tool_reports(work: &Work, name: &str) -> Result<[String; 3], Failed> {
    let listed = work.run(crate::support::llvm("llvm-objdump"), ["--offloading", name])?;
    let images: Vec<&str> = listed
        .lines()
        .filter(|line| line.contains("arch") || line.contains("triple"))
        .collect();
    let symbols = work.run("nm", [name])?;
    let at = symbols
        .lines()
        .find_map(|line| line.strip_suffix(" main")?.split(' ').next())
        .ok_or("no main")?
        .to_owned();
    let line = work.run("addr2line", ["-f", "-e", name, at.as_str()])?;
    let gdb = work.run(
        "gdb",
        [
            "-batch",
            "-ex",
            "info line main",
            "-ex",
            "info address main",
            name,
        ],
    )?;
    Ok([
        images.join("\n"),
        line,
        gdb.lines()
            .next()
            .unwrap_or_default()
            .split(" starts at")
            .next()
            .unwrap_or_default()
            .to_owned(),
    ])
}

fn programs(linker: &str, kind: &str) -> Outcome {
    let work = Work::new();
    object(&work)?;
    let args: &[&str] = match kind {
        "fixed" => &["-no-pie"],
        "relr" => &["-Wl,-z,pack-relative-relocs"],
        "stripped" => &["-s"],
        _ => &[],
    };
    run(link(&work, "late", linker).args(args))?;
    run(link(&work, "early", linker)
        .args(args)
        .env("OFFLD_LATE_IMAGES", "off"))?;
    let modes = ["late", "early"].map(|name| {
        std::fs::metadata(work.path().join(name)).map_or(0, |meta| meta.permissions().mode())
    });
    expect_equal(
        "mode",
        &format!("{:o}", modes[1]),
        &format!("{:o}", modes[0]),
    )?;
    let expected = "4950 device\n";
    expect_equal("late", expected, &ran(&work, work.path().join("late"))?)?;
    expect_equal("early", expected, &ran(&work, work.path().join("early"))?)?;
    if kind != "stripped" {
        let (late, early) = (tool_reports(&work, "late")?, tool_reports(&work, "early")?);
        for (late, early) in late.iter().zip(&early) {
            expect_equal(
                "what tools see",
                &early.replace("early", "NAME"),
                &late.replace("late", "NAME"),
            )?;
        }
    }
    let headers = work.run("readelf", ["-SW", "late"])?;
    expect_in(&headers, ".llvm.offloading")?;
    let lint = work.run("sh", ["-c", "eu-elflint --gnu-ld late 2>&1 || true"])?;
    let of_early = work.run("sh", ["-c", "eu-elflint --gnu-ld early 2>&1 || true"])?;
    let count = |text: &str| text.lines().filter(|line| *line != "No errors").count();
    ensure(count(&lint) <= count(&of_early), || {
        format!("eu-elflint of the late one:\n{lint}\nof the early one:\n{of_early}")
    })?;
    // Tools must handle images in the last loaded segment, or a last segment that ends the file.
    for (name, change) in [
        ("strip", "strip late -o strip"),
        (
            "llvm-strip",
            "/usr/lib/llvm-22/bin/llvm-strip late -o llvm-strip",
        ),
        ("objcopy", "objcopy --strip-debug late objcopy"),
        (
            "patchelf",
            "cp late patchelf && patchelf --set-rpath /a/much/longer/path/than/there/was/before/of/libraries patchelf",
        ),
        (
            "both",
            "cp late both && patchelf --set-rpath /a/much/longer/path/than/there/was/before/of/libraries both && strip both",
        ),
    ] {
        // patchelf 0.14 damages every program of wild.
        if linker == "wild" && change.contains("patchelf") {
            continue;
        }
        run(work.command("sh").args(["-c", change]))?;
        expect_equal(name, expected, &ran(&work, work.path().join(name))?)?;
    }
    if kind != "stripped" {
        run(work
            .command("objcopy")
            .args(["--only-keep-debug", "late", "late.debug"]))?;
        run(work.command("objcopy").args([
            "--strip-debug",
            "--add-gnu-debuglink=late.debug",
            "late",
            "linked",
        ]))?;
        expect_equal(
            "with a link to its debug information",
            expected,
            &ran(&work, work.path().join("linked"))?,
        )?;
    }
    run(work
        .command(offld())
        .args(["prune", "--keep", "cpu", "late", "-o", "pruned"]))?;
    expect_equal("pruned", expected, &ran(&work, work.path().join("pruned"))?)?;
    let sizes = ["late", "pruned"]
        .map(|name| std::fs::metadata(work.path().join(name)).map_or(0, |meta| meta.len()));
    ensure(sizes[1] < sizes[0], || {
        format!("{} bytes, and {} when it is pruned", sizes[0], sizes[1])
    })?;
    passed()
}
