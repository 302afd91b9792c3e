//! `offld inspect`: which files it opens, how its report fits into a terminal, and its counts.

use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, missing, output, passed,
    run, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("inspect::images_in_bare_zstd_are_opened", bare_zstd),
        with_llvm(
            "inspect::images_in_archives_in_sections_are_opened",
            archives,
        ),
        with_llvm("inspect::a_table_fits_the_terminal", width),
        with_llvm("inspect::kernels_are_named_as_in_the_source", demangled),
        with_llvm("inspect::a_provider_of_a_runtime_is_not_its_user", provider),
    ]
}

const SPIRV: [u8; 20] = [3, 2, 35, 7, 0, 4, 1, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
const SECTION: &str = "__CLANG_OFFLOAD_BUNDLE__sycl-spir64-unknown-unknown";

fn offld(work: &Work, words: &[&str]) -> Command {
    let mut command = work.command(crate::support::offld());
    command.arg("inspect").args(words);
    command
}

fn images(work: &Work, file: &str) -> Result<Vec<Value>, Failed> {
    let report: Value = serde_json::from_str(&run(&mut offld(work, &["--json", file]))?)
        .map_err(|error| error.to_string())?;
    Ok(report["files"][0]["images"]
        .as_array()
        .cloned()
        .unwrap_or_default())
}

/// A library with `contents` in a section for SYCL bundles.
fn with_section(work: &Work, contents: &[u8]) -> Result<(), Failed> {
    work.fat("plain.o", &[])?;
    work.file("contents", contents);
    run(work
        .command(llvm("llvm-objcopy"))
        .arg(format!("--add-section={SECTION}=contents"))
        .args(["plain.o", "sycl.o"]))?;
    Ok(())
}

fn expect_spirv(image: &Value) -> Result<(), Failed> {
    let what = format!(
        "{} {} {}",
        image["kinds"][0], image["format"], image["size"]
    );
    expect_in(&image["triple"].to_string(), "spir64-unknown-unknown")?;
    expect_equal("the image", "\"sycl\" \"spirv\" 20", &what)
}

fn bare_zstd() -> Outcome {
    let work = Work::new();
    let packed = zstd::bulk::compress(&SPIRV, 3)?;
    with_section(&work, &packed)?;
    let found = images(&work, "sycl.o")?;
    expect_equal("images", "1", &found.len().to_string())?;
    expect_spirv(&found[0])?;
    expect_equal(
        "packed",
        &packed.len().to_string(),
        &found[0]["compressed_size"].to_string(),
    )?;
    run(&mut offld(&work, &["--extract", "out", "sycl.o"]))?;
    let file = std::fs::read_dir(work.path().join("out"))?
        .next()
        .ok_or("nothing was extracted")??;
    ensure(
        std::fs::read(file.path())? == SPIRV,
        || "another image was extracted",
    )?;
    // Truncated data, and data with a false size.
    let mut false_size = packed.clone();
    false_size[5] ^= 0xff;
    for damaged in [packed[..packed.len() - 4].to_vec(), false_size] {
        with_section(&work, &damaged)?;
        let ended = output(&mut offld(&work, &["sycl.o"]))?;
        expect_equal(
            &text(&ended.stderr),
            "Some(2)",
            &format!("{:?}", ended.status.code()),
        )?;
        expect_in(&text(&ended.stderr), SECTION)?;
    }
    passed()
}

fn archives() -> Outcome {
    let work = Work::new();
    work.file("one.spv", SPIRV);
    work.file("two.spv", zstd::bulk::compress(&SPIRV, 3)?);
    work.archive("images.a", &["one.spv", "two.spv"])?;
    with_section(&work, &std::fs::read(work.path().join("images.a"))?)?;
    let found = images(&work, "sycl.o")?;
    expect_equal("images", "2", &found.len().to_string())?;
    found.iter().try_for_each(expect_spirv)?;
    expect_equal(
        "members",
        "\"one.spv\" \"two.spv\"",
        &format!("{} {}", found[0]["members"][0], found[1]["members"][0]),
    )?;
    intels_archive(&work)
}

/// An archive as Intel's ocloc creates it: members are named after devices, with padding members
/// between them.
fn intels_archive(work: &Work) -> Outcome {
    std::fs::copy(work.path().join("one.spv"), work.path().join("64.12.60.7"))?;
    std::fs::copy(work.path().join("one.spv"), work.path().join("generic_ir"))?;
    work.file("pad_0", "        ");
    work.archive("devices.a", &["pad_0", "64.12.60.7", "generic_ir"])?;
    work.fat("plain.o", &[])?;
    let section = "__CLANG_OFFLOAD_BUNDLE__sycl-spir64_gen-unknown-unknown";
    run(work.command(llvm("llvm-objcopy")).args([
        &format!("--add-section={section}=devices.a"),
        "plain.o",
        "gen.o",
    ]))?;
    let found = images(work, "gen.o")?;
    let targets: Vec<String> = found
        .iter()
        .map(|image| format!("{} {}", image["members"][0], image["target"]))
        .collect();
    expect_equal(
        "devices",
        "\"64.12.60.7\" \"12.60.7\"\n\"generic_ir\" \"\"",
        &targets.join("\n"),
    )?;
    passed()
}

fn two_kinds(work: &Work, name: &str) -> Result<(), Failed> {
    let amd = |arch, bytes| Image {
        triple: AMD,
        arch,
        kind: "hip",
        bytes,
    };
    let large = vec![1; 2048];
    work.fat(
        name,
        &[
            amd("gfx90a", b"A"),
            amd("gfx90a", &large),
            amd("gfx908:sramecc+:xnack-", b"B"),
            Image::host("C"),
        ],
    )?;
    Ok(())
}

fn width() -> Outcome {
    let work = Work::new();
    two_kinds(&work, "a.o")?;
    let long = "a_member_with_a_name_that_is_longer_than_any_line_of_a_terminal_should_be_and_says_nothing.o";
    std::fs::copy(work.path().join("a.o"), work.path().join(long))?;
    work.archive("lib.a", &[long])?;
    let inspect = format!("{} inspect lib.a", crate::support::offld().display());
    for columns in [72, 80, 120] {
        let mut shell = work.command("script");
        shell
            .args([
                "-qec",
                &format!("stty cols {columns} rows 40 && {inspect}"),
                "/dev/null",
            ])
            .stdin(Stdio::null());
        let shown = run(shell.env("LC_ALL", "C.UTF-8"))?;
        let longest = shown
            .lines()
            .map(|line| line.trim_end().chars().count())
            .max();
        ensure(longest <= Some(columns), || {
            format!("{longest:?} characters where {columns} fit:\n{shown}")
        })?;
        expect_in(&shown, "gfx90a")?;
        expect_in(&shown, "…")?;
    }
    // Output to a file is not truncated.
    expect_in(&run(&mut offld(&work, &["lib.a"]))?, long)?;
    passed()
}

fn provider() -> Outcome {
    let work = Work::new();
    let source = "void __tgt_register_lib(void *d) {}\nvoid __hipRegisterFatBinary(void *d) {}\n";
    work.fat_with("runtime.o", &[], source)?;
    run(work
        .command("cc")
        .args(["-shared", "-o", "libruntime.so", "runtime.o"]))?;
    work.archive("libruntime.a", &["runtime.o"])?;
    for file in ["runtime.o", "libruntime.so", "libruntime.a"] {
        let shown = text(&output(&mut offld(&work, &[file]))?.stdout);
        expect_not_in(&shown, "registers with")?;
    }
    let real = std::path::Path::new("/usr/lib/llvm-22/lib/libomptarget.so");
    if !real.exists() {
        return missing("libomptarget.so of LLVM 22");
    }
    expect_not_in(
        &text(&output(&mut offld(&work, &["/usr/lib/llvm-22/lib/libomptarget.so"]))?.stdout),
        "registers with OpenMP",
    )?;
    passed()
}

fn demangled() -> Outcome {
    let work = Work::new();
    let device = [
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx90a",
        "-nogpulib",
        "-x",
        "c++",
        "-c",
        "-o",
        "k.elf",
    ];
    let kernel = "[[clang::amdgpu_kernel]] void add(int *to, int by) { *to += by; }\n";
    work.file(
        "k.cpp",
        format!(
            "{kernel}extern \"C\" [[clang::amdgpu_kernel]] void plain(int *to) {{ *to = 1; }}\n"
        ),
    );
    run(work.command(llvm("clang")).args(device).arg("k.cpp"))?;
    let shown = run(&mut offld(&work, &["--kernels", "k.elf"]))?;
    expect_in(&shown, " add(int*, int)\n")?;
    expect_in(&shown, " plain\n")?;
    let shown = run(&mut offld(&work, &["--kernels", "--no-demangle", "k.elf"]))?;
    expect_in(&shown, " _Z3addPii\n")?;
    expect_not_in(&shown, "add(int")?;
    for words in [
        &["--kernels", "--json", "k.elf"][..],
        &["--kernels", "--no-demangle", "--json", "k.elf"],
    ] {
        let report: Value = serde_json::from_str(&run(&mut offld(&work, words))?)
            .map_err(|error| error.to_string())?;
        let kernels = report["files"][0]["images"][0]["kernels"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let names = kernels
            .iter()
            .map(|kernel| format!("{} {}", kernel["name"], kernel["demangled"]));
        expect_equal(
            "both names",
            "\"_Z3addPii\" \"add(int*, int)\"\n\"plain\" null",
            &names.collect::<Vec<_>>().join("\n"),
        )?;
    }
    passed()
}
