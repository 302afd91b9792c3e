//! Links that offld shows (`--dry-run`) without any LLVM in it: it reads the device code out of the host's objects by itself, and a link
//! that is only shown makes no registration code. `make test-no-llvm` runs these with an offld that was built without LLVM.

use libtest_mimic::Trial;

use super::support::{OFFLOAD, Outcome, Work, ensure, expect_in, llvm, made, passed, stderr_of, with_llvm};
use crate::dry_run::shell_words;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("without_llvm::an_elf_object_of_the_host", || shows_both_links(&[])),
        with_llvm("without_llvm::a_bitcode_object_of_the_host", || shows_both_links(&["-flto"])),
        with_llvm("without_llvm::a_thin_bitcode_object_of_the_host", || shows_both_links(&["-flto=thin"])),
        with_llvm("without_llvm::an_archive_of_bitcode", an_archive),
    ]
}

const REGION: &str = "int kernel(int x) {\n#pragma omp target map(tofrom: x)\n  x += 1;\n  return x;\n}\n";

/// Compiles `source` with device code in it.
fn compile(work: &Work, source: &str, text: &str, flags: &[&str]) -> Result<String, libtest_mimic::Failed> {
    work.file(source, text);
    let object = source.replace(".c", ".o");
    work.run(llvm("clang"), OFFLOAD.iter().chain(flags).copied().chain(["-O1", "-c", source, "-o", &object]))?;
    Ok(object)
}

/// The words of the device link and of the host link, as they are shown.
fn shown(work: &Work, words: &[&str]) -> Result<[Vec<String>; 2], libtest_mimic::Failed> {
    let mut link = work.command(llvm("clang"));
    link.args(OFFLOAD).arg("-fuse-ld=lld").arg("-B").arg(&made().links).arg("-Wl,--dry-run").args(words).args(["-o", "x"]);
    let told = stderr_of(&mut link)?;
    let lines: Vec<Vec<String>> = told.lines().filter(|line| line.starts_with(" \"")).map(shell_words).collect();
    lines.try_into().map_err(|_| format!("not a device link and a host link:\n{told}").into())
}

fn has(line: &[String], word: &str) -> Result<(), libtest_mimic::Failed> {
    ensure(line.iter().any(|own| own == word), || format!("`{word}` is not in {line:?}"))
}

fn is_device_link_of(line: &[String], stem: &str) -> Result<(), libtest_mimic::Failed> {
    has(line, "--target=x86_64-pc-linux-gnu")?;
    has(line, "-shared")?;
    let image = |word: &String| word.rsplit('/').next().is_some_and(|name| name.starts_with(stem) && name.ends_with(".o"));
    ensure(line.iter().any(image), || format!("no device code of {stem} in {line:?}"))
}

fn shows_both_links(flags: &[&str]) -> Outcome {
    let work = Work::new();
    let object = compile(&work, "part.c", &format!("{REGION}int main(void) {{ return kernel(1) - 2; }}\n"), flags)?;
    let [device, host] = shown(&work, &[&object])?;
    is_device_link_of(&device, "part-")?;
    expect_in(&host[0], "ld.lld")?;
    has(&host, "part.o")?;
    has(&host, "-lomptarget")?;
    let registration = |word: &String| word.ends_with(".openmp.image.wrapper.o");
    ensure(host.iter().any(registration), || format!("no registration object in {host:?}"))?;
    ensure(!work.path().join("x").exists(), || "a link that is only shown has made something")?;
    work.expect_no_temps()?;
    passed()
}

/// A member that the host link pulls is pulled for its device code as well: that takes the symbols of bitcode, of either side.
fn an_archive() -> Outcome {
    let work = Work::new();
    compile(&work, "kernel.c", REGION, &["-flto"])?;
    compile(&work, "unused.c", &REGION.replace("kernel", "unused"), &["-flto"])?;
    work.run(llvm("llvm-ar"), ["rcs", "libparts.a", "kernel.o", "unused.o"])?;
    work.file("main.c", "int kernel(int x);\nint main(void) { return kernel(1) - 2; }\n");
    work.run(llvm("clang"), ["-flto", "-c", "main.c", "-o", "main.o"])?;
    let [device, host] = shown(&work, &["main.o", "libparts.a"])?;
    is_device_link_of(&device, "kernel-")?;
    ensure(!device.iter().any(|word| word.contains("unused-")), || format!("an unused member is linked: {device:?}"))?;
    has(&host, "libparts.a")?;
    passed()
}
