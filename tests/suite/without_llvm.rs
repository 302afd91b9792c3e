//! Dry-run links (`--dry-run`) without LLVM: offld reads the device code from the host objects by
//! itself, and a dry run creates no registration code. `make test-no-llvm` runs these tests with an
//! offld that was built without LLVM.

use libtest_mimic::Trial;

use super::support::{
    OFFLOAD, Outcome, Work, ensure, expect_in, llvm, made, passed, stderr_of, with_llvm,
};
use crate::dry_run::shell_words;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("without_llvm::an_elf_object_of_the_host", || {
            shows_both_links(&[])
        }),
        with_llvm("without_llvm::a_bitcode_object_of_the_host", || {
            shows_both_links(&["-flto"])
        }),
        with_llvm("without_llvm::a_thin_bitcode_object_of_the_host", || {
            shows_both_links(&["-flto=thin"])
        }),
        with_llvm("without_llvm::an_archive_of_bitcode", an_archive),
    ]
}

const REGION: &str =
    "int kernel(int x) {\n#pragma omp target map(tofrom: x)\n  x += 1;\n  return x;\n}\n";

/// Compiles `source`, which contains device code.
fn compile(
    work: &Work,
    source: &str,
    text: &str,
    flags: &[&str],
) -> Result<String, libtest_mimic::Failed> {
    work.file(source, text);
    let object = source.replace(".c", ".o");
    work.run(
        llvm("clang"),
        OFFLOAD
            .iter()
            .chain(flags)
            .copied()
            .chain(["-O1", "-c", source, "-o", &object]),
    )?;
    Ok(object)
}

/// The printed arguments of the device link and of the host link.
fn dry_run_arguments(
    work: &Work,
    args: &[&str],
) -> Result<[Vec<String>; 2], libtest_mimic::Failed> {
    let mut link = work.command(llvm("clang"));
    link.args(OFFLOAD)
        .arg("-fuse-ld=lld")
        .arg("-B")
        .arg(&made().links)
        .arg("-Wl,--dry-run")
        .args(args)
        .args(["-o", "x"]);
    let printed = stderr_of(&mut link)?;
    let lines: Vec<Vec<String>> = printed
        .lines()
        .filter(|line| line.starts_with(" \""))
        .map(shell_words)
        .collect();
    lines
        .try_into()
        .map_err(|_| format!("not a device link and a host link:\n{printed}").into())
}

fn has(line: &[String], word: &str) -> Result<(), libtest_mimic::Failed> {
    ensure(line.iter().any(|own| own == word), || {
        format!("`{word}` is not in {line:?}")
    })
}

fn is_device_link_of(line: &[String], stem: &str) -> Result<(), libtest_mimic::Failed> {
    has(line, "--target=x86_64-pc-linux-gnu")?;
    has(line, "-shared")?;
    let image = |word: &String| {
        word.rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with(stem) && name.ends_with(".o"))
    };
    ensure(line.iter().any(image), || {
        format!("no device code of {stem} in {line:?}")
    })
}

fn shows_both_links(flags: &[&str]) -> Outcome {
    let work = Work::new();
    let object = compile(
        &work,
        "part.c",
        &format!("{REGION}int main(void) {{ return kernel(1) - 2; }}\n"),
        flags,
    )?;
    let [device, host] = dry_run_arguments(&work, &[&object])?;
    is_device_link_of(&device, "part-")?;
    expect_in(&host[0], "ld.lld")?;
    has(&host, "part.o")?;
    has(&host, "-lomptarget")?;
    let registration = |word: &String| word.ends_with(".openmp.image.wrapper.o");
    ensure(host.iter().any(registration), || {
        format!("no registration object in {host:?}")
    })?;
    ensure(
        !work.path().join("x").exists(),
        || "a link that is only shown has made something",
    )?;
    work.expect_no_temps()?;
    passed()
}

/// If the host link needs an archive member, the device link gets it too. That requires the symbols
/// of host and device bitcode.
fn an_archive() -> Outcome {
    let work = Work::new();
    compile(&work, "kernel.c", REGION, &["-flto"])?;
    compile(
        &work,
        "unused.c",
        &REGION.replace("kernel", "unused"),
        &["-flto"],
    )?;
    work.run(
        llvm("llvm-ar"),
        ["rcs", "libparts.a", "kernel.o", "unused.o"],
    )?;
    work.file(
        "main.c",
        "int kernel(int x);\nint main(void) { return kernel(1) - 2; }\n",
    );
    work.run(llvm("clang"), ["-flto", "-c", "main.c", "-o", "main.o"])?;
    let [device, host] = dry_run_arguments(&work, &["main.o", "libparts.a"])?;
    is_device_link_of(&device, "kernel-")?;
    ensure(!device.iter().any(|word| word.contains("unused-")), || {
        format!("an unused member is linked: {device:?}")
    })?;
    has(&host, "libparts.a")?;
    passed()
}
