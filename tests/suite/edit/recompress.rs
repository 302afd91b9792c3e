//! `offld recompress`: other compressed streams around the same images.

use std::collections::BTreeSet;

use libtest_mimic::{Failed, Trial};

use super::{HIP, hip_object, images, stdout_of, targets};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, passed, run, with_llvm,
};
use crate::terminal::on_terminal_in;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("edit::recompress::the_images_stay", recompress),
        with_llvm("edit::recompress::what_is_alike_stands_together", together),
        with_llvm("edit::recompress::the_bar_moves_within_a_wheel", bar),
    ]
}

fn recompress() -> Outcome {
    let work = Work::new();
    hip_object(&work, &["--offload-compress"])?;
    let before = images(&work, "kernels.o")?;
    for level in ["1", "19", "22"] {
        stdout_of(
            &work,
            ["recompress", "--level", level, "kernels.o", "-o", "new.o"],
        )?;
        let mut after = images(&work, "new.o")?;
        after.sort();
        let mut sorted = before.clone();
        sorted.sort();
        expect_equal("images", &sorted.join("\n"), &after.join("\n"))?;
        // LLVM's own tool reads the bundles.
        let section = ["--dump-section=.hip_fatbin=bundle", "new.o", "copy.o"];
        run(work.command(llvm("llvm-objcopy")).args(section))?;
        let listed = run(work.command(llvm("clang-offload-bundler")).args([
            "-type=o",
            "-list",
            "-input=bundle",
        ]))?;
        expect_in(&listed, "gfx1100")?;
    }
    passed()
}

fn together() -> Outcome {
    let work = Work::new();
    work.file("kernels.hip", HIP);
    let archs = ["gfx906", "gfx1030", "gfx90a", "gfx1100"];
    let mut compile = work.command(llvm("clang++"));
    compile.args(["-x", "hip", "-nogpulib", "-nogpuinc", "-O1", "-cuid=1"]);
    compile.args(archs.map(|arch| format!("--offload-arch={arch}")));
    run(compile.args(["-c", "kernels.hip", "-o", "all.o"]))?;
    // clang sorts by name, so generations are adjacent. This bundle, in which they are not, is
    // built directly.
    stdout_of(&work, ["inspect", "--extract", "images", "all.o"])?;
    let image = |arch: &str| -> Result<String, Failed> {
        let mut all = std::fs::read_dir(work.path().join("images"))?
            .filter_map(Result::ok)
            .map(|entry| entry.path());
        let found = all
            .find(|path| path.to_string_lossy().contains(arch))
            .ok_or("no image")?;
        Ok(found.display().to_string())
    };
    let ids = archs
        .map(|arch| format!("hipv4-amdgcn-amd-amdhsa--{arch}"))
        .join(",");
    let mut bundle = work.command(llvm("clang-offload-bundler"));
    bundle.args([
        "-type=o",
        "-compress",
        "-bundle-align=4096",
        "-output=apart.hipfb",
        "-input=/dev/null",
    ]);
    bundle.arg(format!("-targets=host-x86_64-unknown-linux-gnu-,{ids}"));
    for arch in archs {
        bundle.arg(format!("-input={}", image(arch)?));
    }
    run(&mut bundle)?;
    expect_equal(
        "before",
        "gfx906 gfx1030 gfx90a gfx1100",
        &targets(&work, "apart.hipfb")?,
    )?;
    stdout_of(
        &work,
        [
            "recompress",
            "--level",
            "19",
            "apart.hipfb",
            "-o",
            "new.hipfb",
        ],
    )?;
    expect_equal(
        "after",
        "gfx906 gfx90a gfx1030 gfx1100",
        &targets(&work, "new.hipfb")?,
    )?;
    let (mut before, mut after) = (images(&work, "apart.hipfb")?, images(&work, "new.hipfb")?);
    ensure(
        after.first().is_some_and(|first| first.contains("host")),
        || format!("the host is not first: {after:?}"),
    )?;
    before.sort();
    after.sort();
    expect_equal("images", &before.join("\n"), &after.join("\n"))?;
    // Split and merge preserve the order.
    stdout_of(&work, ["split", "apart.hipfb", "-d", "parts"])?;
    let mut parts: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(work.path().join("parts"))? {
        parts.push(format!("parts/{}", entry?.file_name().to_string_lossy()));
    }
    stdout_of(
        &work,
        ["merge", "-o", "back.hipfb"]
            .into_iter()
            .chain(parts.iter().map(String::as_str)),
    )?;
    expect_equal(
        "split and merged",
        "gfx906 gfx1030 gfx90a gfx1100",
        &targets(&work, "back.hipfb")?,
    )?;
    passed()
}

/// A wheel with two large bundles. The bar advances while a bundle is compressed, and names it.
fn bar() -> Outcome {
    let work = Work::new();
    let line = "recompress --level 19 --dry-run all.whl";
    let (mut shown, mut counts) = (String::new(), BTreeSet::new());
    // The bar appears after a second. Fast machines need more data.
    for mebibytes in [12, 24, 96] {
        large_wheel(&work, mebibytes)?;
        shown = on_terminal_in("C.UTF-8", &work, 100, line)?;
        // The byte counts of the bars. Without progress within members there would be two.
        counts = shown
            .split("iB of ")
            .filter_map(|before| Some(before.rsplit(' ').nth(1)?.to_owned()))
            .collect();
        if counts.len() > 4 {
            break;
        }
    }
    ensure(counts.len() > 4, || format!("{counts:?} in {shown}"))?;
    ensure(shown.contains('█') && !shown.contains('#'), || {
        shown.clone()
    })?;
    let ascii = on_terminal_in("C", &work, 100, line)?;
    ensure(ascii.contains('#') && !ascii.contains('█'), || {
        ascii.clone()
    })?;
    for shown in [shown, ascii] {
        let is_named = |name: &&str| shown.contains(&format!("s) {name}"));
        ensure(["one.hipfb", "two.hipfb"].iter().any(is_named), || {
            format!("no bar names a member: {shown}")
        })?;
    }
    passed()
}

/// Writes `all.whl` with two bundles of noise, of `mebibytes` each.
fn large_wheel(work: &Work, mebibytes: usize) -> Result<(), Failed> {
    for (name, seed) in [("one", "1"), ("two", "2")] {
        let noise = format!(
            "import random\nopen('noise', 'wb').write(random.Random({seed}).randbytes({mebibytes} << 20))\n"
        );
        run(work.command("python3").args(["-c", &noise]))?;
        run(work.command(llvm("clang-offload-bundler")).args([
            "-type=o",
            "-compress",
            "-compression-level=1",
            "-targets=host-x86_64-unknown-linux-gnu-,hipv4-amdgcn-amd-amdhsa--gfx90a",
            "-input=/dev/null",
            "-input=noise",
            &format!("-output={name}.hipfb"),
        ]))?;
    }
    let zip = ["-m", "zipfile", "-c", "all.whl", "one.hipfb", "two.hipfb"];
    run(work.command("python3").args(zip)).map(|_| ())
}
