//! `offld strip-device`: device images lose their debug information, and everything that a runtime
//! loads stays.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use super::{HIP, SOURCE, ran, stdout_of};
use crate::support::{
    OFFLOAD, Outcome, Work, cuda_tools, ensure, expect_equal, expect_in, expect_not_in, llvm, made,
    missing, passed, run, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("edit::strip_device::programs_run_as_before", programs),
        with_llvm(
            "edit::strip_device::bundles_hold_what_objcopy_leaves",
            bundles,
        ),
        with_llvm(
            "edit::strip_device::what_has_no_debug_information_stays",
            nothing_to_do,
        ),
        test("releases::edit::strip_device::cubins", cubins),
    ]
}

/// Extracts the images of `file` to the new directory `folder`.
fn extracted(work: &Work, file: &str, folder: &str) -> Result<Vec<String>, Failed> {
    stdout_of(work, ["inspect", "--extract", folder, file])?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(work.path().join(folder))? {
        found.push(entry?.file_name().to_string_lossy().into_owned());
    }
    found.sort();
    Ok(found)
}

/// A description of an ELF file by readelf: its sections with flags and sizes, or its segments.
fn described(work: &Work, file: &Path, option: &str) -> Result<String, Failed> {
    run(work
        .command(llvm("llvm-readelf"))
        .args([option, "-W"])
        .arg(file))
}

fn size(work: &Work, name: &str) -> Result<u64, Failed> {
    Ok(std::fs::metadata(work.path().join(name))?.len())
}

fn programs() -> Outcome {
    let work = Work::new();
    // A program shrinks by whole pages only. The debug information of some hundred functions is
    // larger than a page.
    let functions: String = (0..300)
        .map(|n| format!("int f{n}(int first) {{ int second = first + {n}; return second; }}\n"))
        .collect();
    work.file(
        "main.c",
        format!("#pragma omp declare target\n{functions}#pragma omp end declare target\n{SOURCE}"),
    );
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-g", "-c", "main.c", "-o", "main.o"]))?;
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-g", "main.o", "-o", "program", "-B"])
        .arg(&made().links))?;
    let stdout = stdout_of(&work, ["strip-device", "program", "-o", "small"])?;
    expect_in(&stdout, "1 of 1 images stripped")?;
    expect_equal("output", &ran(&work, "program")?, &ran(&work, "small")?)?;
    ensure(
        size(&work, "small")? < size(&work, "program")?,
        || "it is not smaller",
    )?;
    // The image has lost its debug information, and the host code has kept it.
    let [image] = &extracted(&work, "small", "images")?[..] else {
        return Err("not one image".into());
    };
    let sections = described(&work, &work.path().join("images").join(image), "-S")?;
    expect_not_in(&sections, ".debug_")?;
    expect_in(
        &described(&work, &work.path().join("small"), "-S")?,
        ".debug_info",
    )?;
    run(work.command("strip").arg("small"))?;
    expect_equal("output", "4950 device\n", &ran(&work, "small")?)?;
    // CPU code is ELF in objects and archives, too. It is linked without its debug information.
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "all.a", "main.o"]))?;
    expect_in(
        &stdout_of(&work, ["strip-device", "--in-place", "all.a"])?,
        "1 of 1 images stripped",
    )?;
    let mut link = work.command(llvm("clang"));
    link.args(OFFLOAD).args([
        "-Wl,--whole-archive",
        "all.a",
        "-Wl,--no-whole-archive",
        "-o",
        "linked",
        "-B",
    ]);
    run(link.arg(&made().links))?;
    expect_equal("output", "4950 device\n", &ran(&work, "linked")?)?;
    work.expect_no_temps()?;
    passed()
}

fn bundles() -> Outcome {
    let work = Work::new();
    work.file("kernels.hip", HIP);
    for (name, words) in [("plain", &[][..]), ("packed", &["--offload-compress"])] {
        let object = format!("{name}.o");
        let mut compile = work.command(llvm("clang++"));
        compile.args([
            "-x",
            "hip",
            "-g",
            "-nogpulib",
            "-nogpuinc",
            "-O1",
            "-cuid=1",
        ]);
        compile
            .args(["--offload-arch=gfx90a", "--offload-arch=gfx1100"])
            .args(words);
        run(compile.args(["-c", "kernels.hip", "-o", &object]))?;
        let new = format!("new-{name}.o");
        let stdout = stdout_of(&work, ["strip-device", &object, "-o", &new])?;
        expect_in(&stdout, "images stripped: gfx1100, gfx90a")?;
        let before = extracted(&work, &object, &format!("{name}-before"))?;
        let after = extracted(&work, &new, &format!("{name}-after"))?;
        let mut count = 0;
        for (old, new) in before
            .iter()
            .zip(&after)
            .filter(|(old, _)| old.contains("gfx"))
        {
            let (old, new) = (
                work.path().join(format!("{name}-before")).join(old),
                work.path().join(format!("{name}-after")).join(new),
            );
            let theirs = work.path().join("theirs");
            run(work
                .command(llvm("llvm-objcopy"))
                .arg("--strip-debug")
                .arg(&old)
                .arg(&theirs))?;
            for option in ["-l", "-n", "--dyn-syms"] {
                let own = described(&work, &new, option)?;
                expect_equal(option, &described(&work, &theirs, option)?, &own)?;
            }
            let sections = described(&work, &new, "-S")?;
            expect_not_in(&sections, ".debug_")?;
            for section in [".text", ".rodata", ".note"] {
                let dump = |file: &Path| -> Result<Vec<u8>, Failed> {
                    let out = work.path().join("section");
                    let word = format!("--dump-section={section}={}", out.display());
                    run(work
                        .command(llvm("llvm-objcopy"))
                        .arg(word)
                        .arg(file)
                        .arg("/dev/null"))?;
                    Ok(std::fs::read(out)?)
                };
                ensure(dump(&new)? == dump(&theirs)?, || {
                    format!("{section} of {}", new.display())
                })?;
            }
            count += 1;
        }
        expect_equal("images", "2", &count.to_string())?;
    }
    passed()
}

fn nothing_to_do() -> Outcome {
    let work = Work::new();
    work.file("main.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["main.c", "-o", "program", "-B"])
        .arg(&made().links))?;
    stdout_of(&work, ["strip-device", "program", "-o", "once"])?;
    let before = std::fs::read(work.path().join("once"))?;
    expect_in(
        &stdout_of(&work, ["strip-device", "--in-place", "once"])?,
        "unchanged",
    )?;
    ensure(
        std::fs::read(work.path().join("once"))? == before,
        || "the file changed",
    )?;
    passed()
}

/// Cubins with line tables, in fatbinaries with compressed and uncompressed entries.
fn cubins() -> Outcome {
    let Some(tools) = cuda_tools(22).map(|cuda| cuda.join("bin")) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let work = Work::new();
    let kernel = ".version 8.0\n.target sm_80\n.address_size 64\n.file 1 \"k.cu\"\n\
        .visible .entry k(.param .u64 p) {\n.reg .b64 %rd<2>;\n.loc 1 1 1\nld.param.u64 %rd1, [p];\n.loc 1 2 1\nst.global.u64 [%rd1], %rd1;\nret;\n}\n";
    work.file("k.ptx", kernel);
    run(work.command(tools.join("ptxas")).args([
        "-lineinfo",
        "-arch=sm_80",
        "k.ptx",
        "-o",
        "k.cubin",
    ]))?;
    for (name, words) in [
        ("packed", &["--compress-all"][..]),
        ("plain", &["--compress=false"]),
    ] {
        let mut make = work.command(tools.join("fatbinary"));
        run(make.args(words).args([
            "-64",
            "--create",
            name,
            "--image3=kind=elf,sm=80,file=k.cubin",
        ]))?;
        let new = format!("{name}.new");
        expect_in(
            &stdout_of(&work, ["strip-device", name, "-o", &new])?,
            "1 of 1 images stripped: sm_80",
        )?;
        let [image] = &extracted(&work, &new, &format!("{name}.images"))?[..] else {
            return Err("not one image".into());
        };
        let image = work.path().join(format!("{name}.images")).join(image);
        let listed = run(work
            .command(tools.join("cuobjdump"))
            .arg("-sass")
            .arg(&image))?;
        expect_equal(
            "code",
            &run(work
                .command(tools.join("cuobjdump"))
                .args(["-sass", "k.cubin"]))?,
            &listed,
        )?;
        // The sections are empty, not removed, because NVIDIA's images refer to sections by number.
        let sections = described(&work, &image, "-S")?;
        for line in sections
            .lines()
            .filter(|line| line.contains(".debug_line") || line.contains(".nv_debug_line_sass"))
        {
            expect_in(line, " 000000 ")?;
        }
    }
    passed()
}
