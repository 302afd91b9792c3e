//! An image has the kernels of all objects of the program, or there is no image: for which targets
//! an archive member may start an image.

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, Image};
use crate::support::{
    OFFLOAD, Outcome, Work, expect_equal, expect_in, expect_not_in, llvm, made, passed, run,
    run_offloaded, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "archives::a_member_opens_no_image_that_the_program_lacks",
            no_half_image,
        ),
        with_llvm("archives::each_kind_is_counted_by_itself", kinds),
        with_llvm(
            "archives::all_targets_where_no_regular_input_has_the_kind",
            only_in_archives,
        ),
        with_llvm("archives::should_extract_as_before", should_extract),
        with_llvm("archives::a_member_in_no_image_is_a_warning", warned),
        with_llvm("archives::every_form_of_an_input", forms),
        with_llvm(
            "archives::more_specific_targets_that_all_objects_serve",
            specific,
        ),
        with_llvm(
            "archives::a_plain_function_of_the_same_archive",
            plain_function,
        ),
    ]
}

/// An entry in LLVM 22's entry table: the object has a kernel.
const ENTRY: &str = "
struct entry { unsigned long zero; unsigned short version, kind; unsigned flags; void *address; char *name; unsigned long size, data; void *more; };
__attribute__((weak, section(\"llvm_offload_entries\"))) struct entry";

fn hip<'a>(arch: &'a str, bytes: &'a str) -> Image<'a> {
    Image {
        triple: AMD,
        arch,
        kind: "hip",
        bytes: bytes.as_bytes(),
    }
}

/// A directory with `main.o` and `lib.a`. `main.o` has the images `program` and calls `member`.
/// `lib.a` has the member `member.o` with the images `library`.
fn program(program: &[Image<'_>], library: &[Image<'_>]) -> Result<Work, Failed> {
    let work = Work::new();
    work.fat_with(
        "main.o",
        program,
        &format!("{ENTRY} of_main; int member(void); int main(void) {{ return member(); }}"),
    )?;
    work.fat_with(
        "member.o",
        library,
        &format!("{ENTRY} of_member; int member(void) {{ return 11; }}"),
    )?;
    work.archive("lib.a", &["member.o"])?;
    Ok(work)
}

/// The images that a link with `words` creates, as `target: contents` lines.
fn images(work: &Work, words: &[&str]) -> Result<(String, String), Failed> {
    work.forget();
    let stderr = stderr_of(&mut work.wrapper([&["-o", "x"], words].concat()))?;
    let target = |name: &str| {
        name.trim_start_matches("x.")
            .trim_end_matches(".img")
            .to_owned()
    };
    let lines = work
        .images()?
        .into_iter()
        .map(|(name, contents)| format!("{}: {contents}\n", target(&name)));
    Ok((lines.collect(), stderr))
}

fn no_half_image() -> Outcome {
    let library = [
        Image::amd("gfx90a", " member"),
        Image::amd("gfx906", " member"),
        Image::host(" member"),
    ];
    let work = program(&[Image::amd("gfx90a", "main")], &library)?;
    for (words, expected) in [
        (["main.o", "lib.a"], "main member"),
        (["lib.a", "main.o"], " membermain"),
    ] {
        let (linked, messages) = images(&work, &words)?;
        expect_equal("images", &format!("amdgcn.gfx90a: {expected}\n"), &linked)?;
        expect_equal("nothing to warn of", "", &messages)?;
    }
    // If both sides have several targets, the program's targets apply.
    let work = program(
        &[Image::amd("gfx90a", "main"), Image::host("main")],
        &library,
    )?;
    expect_equal(
        "images",
        "amdgcn.gfx90a: main member\nx86_64.: main member\n",
        &images(&work, &["main.o", "lib.a"])?.0,
    )?;
    passed()
}

fn kinds() -> Outcome {
    let work = program(
        &[Image::amd("gfx90a", "main")],
        &[
            hip("gfx906", "hip"),
            hip("gfx90a", " hip"),
            Image::amd("gfx906", "openmp"),
        ],
    )?;
    let (linked, messages) = images(&work, &["main.o", "lib.a"])?;
    // The OpenMP code for gfx906 does not go into the HIP image.
    expect_equal(
        "images",
        "amdgcn.gfx906: hip\namdgcn.gfx90a: main hip\n",
        &linked,
    )?;
    expect_in(
        &messages,
        "the OpenMP kernels of lib.a(member.o) are in no image",
    )?;
    expect_not_in(&messages, "HIP")?;
    passed()
}

fn only_in_archives() -> Outcome {
    let work = program(&[], &[Image::amd("gfx90a", "a"), Image::host("h")])?;
    let (linked, messages) = images(&work, &["main.o", "lib.a"])?;
    expect_equal("images", "amdgcn.gfx90a: a\nx86_64.: h\n", &linked)?;
    expect_equal("nothing to warn of", "", &messages)?;
    passed()
}

fn should_extract() -> Outcome {
    let work = program(
        &[Image::amd("gfx90a", "main")],
        &[
            Image::amd("gfx90a", " a"),
            Image::amd("gfx908", "b"),
            Image::host("h"),
        ],
    )?;
    let (linked, _) = images(&work, &["main.o", "lib.a", "--should-extract=gfx908"])?;
    expect_equal(
        "images",
        "amdgcn.gfx908: b\namdgcn.gfx90a: main a\n",
        &linked,
    )?;
    passed()
}

fn warned() -> Outcome {
    let work = program(
        &[Image::amd("gfx90a", "main")],
        &[Image::amd("gfx908", "member"), Image::host("member")],
    )?;
    let (linked, messages) = images(&work, &["main.o", "lib.a"])?;
    expect_equal("images", "amdgcn.gfx90a: main\n", &linked)?;
    expect_in(
        &messages,
        "warning: the OpenMP kernels of lib.a(member.o) are in no image and cannot run on a device: the member has code for \
         x86_64-pc-linux-gnu, amdgcn-amd-amdhsa (gfx908), and the program's own objects have OpenMP code for amdgcn-amd-amdhsa (gfx90a) only",
    )?;
    let why = images(&work, &["main.o", "lib.a", "--wrapper-why"])?.1;
    expect_in(
        &why,
        "lib.a(member.o): amdgcn-amd-amdhsa (gfx908): not taken: the program's own objects have no code for this target",
    )?;
    // Without kernels, nothing is lost.
    work.fat_with(
        "member.o",
        &[Image::amd("gfx908", "member")],
        "int member(void) { return 11; }",
    )?;
    work.archive("plain.a", &["member.o"])?;
    expect_equal("no kernels", "", &images(&work, &["main.o", "plain.a"])?.1)?;
    // Members that the host link does not pull do not matter.
    work.file("other.c", "int main(void) { return 0; }");
    run(work
        .command(llvm("clang"))
        .args(["-c", "other.c", "-o", "other.o"]))?;
    expect_equal("not pulled", "", &images(&work, &["other.o", "lib.a"])?.1)?;
    passed()
}

/// Objects and whole archives can start an image. Members of archives, `--start-lib` objects and
/// bitcode members cannot.
fn forms() -> Outcome {
    let work = program(
        &[Image::amd("gfx90a", "main")],
        &[Image::amd("gfx90a", " member"), Image::host("member")],
    )?;
    let both = "amdgcn.gfx90a: main member\nx86_64.: member\n";
    let one = "amdgcn.gfx90a: main member\n";
    let start_lib = ["main.o", "--start-lib", "member.o", "--end-lib"];
    let whole = ["main.o", "--whole-archive", "lib.a", "--no-whole-archive"];
    for (words, expected) in [
        (&["main.o", "member.o"][..], both),
        (&whole, both),
        (&start_lib, one),
        (&["main.o", "lib.a"], one),
    ] {
        expect_equal(&format!("{words:?}"), expected, &images(&work, words)?.0)?;
    }
    let embed = format!(
        "-fembed-offload-object={}",
        work.path().join("member.o.pack").display()
    );
    work.run(
        llvm("clang"),
        [
            "-flto",
            "-c",
            "member.o.c",
            "-o",
            "bitcode.o",
            "-Xclang",
            &embed,
        ],
    )?;
    work.archive("bitcode.a", &["bitcode.o"])?;
    expect_equal("bitcode", one, &images(&work, &["main.o", "bitcode.a"])?.0)?;
    expect_equal(
        "bitcode as an object",
        both,
        &images(&work, &["main.o", "bitcode.o"])?.0,
    )?;
    // Another object already starts the image for this target, so the member does not decide
    // whether the image is complete.
    work.fat_with(
        "second.o",
        &[Image::host("second")],
        &format!("{ENTRY} of_second;"),
    )?;
    let (linked, _) = images(&work, &["main.o", "second.o", "lib.a"])?;
    expect_equal(
        "two objects",
        "amdgcn.gfx90a: main member\nx86_64.: secondmember\n",
        &linked,
    )?;
    passed()
}

/// Code for all settings of a GPU serves each setting, so an image for one setting is complete.
fn specific() -> Outcome {
    let work = program(
        &[Image::amd("gfx90a", "main")],
        &[Image::amd("gfx90a:xnack+", " member")],
    )?;
    let (linked, messages) = images(&work, &["main.o", "lib.a"])?;
    expect_equal(
        "images",
        "amdgcn.gfx90a: main\namdgcn.gfx90a:xnack+: main member\n",
        &linked,
    )?;
    expect_equal("nothing to warn of", "", &messages)?;
    // The reverse: an image for all settings would lack the program's own code.
    let work = program(
        &[Image::amd("gfx90a:xnack+", "main")],
        &[Image::amd("gfx90a", " member")],
    )?;
    let (linked, _) = images(&work, &["main.o", "lib.a"])?;
    expect_equal("images", "amdgcn.gfx90a:xnack+: main member\n", &linked)?;
    passed()
}

/// Kernels of an archive that call a plain function in the same archive. The function's member has
/// no device code, or has its own.
fn plain_function() -> Outcome {
    const MEMBER: &str = "
int helper(int);
int member(void) {
  int x = 0;
#pragma omp target map(tofrom : x)
  x = helper(5);
  return x;
}
";
    const MAIN: &str = "
#include <stdio.h>
int member(void);
int main(void) {
  int device = 0;
#pragma omp target map(from : device)
  device = 1;
  printf(\"device %d, %d\\n\", device, member());
}
";
    let work = Work::new();
    work.file("main.c", MAIN);
    work.file("member.c", MEMBER);
    work.file(
        "helper.c",
        "static int table[3] = {1, 2, 3}; int deeper(void); int helper(int x) { return x * table[1] + deeper(); }",
    );
    work.file("deeper.c", "int deeper(void) { return 1; }");
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-c", "main.c", "member.c", "deeper.c"]))?;
    for offload in [&[][..], &OFFLOAD] {
        run(work
            .command(llvm("clang"))
            .args(offload)
            .args(["-c", "helper.c"]))?;
        work.archive("lib.a", &["member.o", "helper.o", "deeper.o"])?;
        for linker in ["bfd", "lld"] {
            let mut link = work.command(llvm("clang"));
            link.args(OFFLOAD)
                .arg(format!("-fuse-ld={linker}"))
                .arg("-B")
                .arg(&made().links);
            run(link.args(["main.o", "lib.a", "-o", "program"]))?;
            expect_equal(
                "stdout",
                "device 1, 11\n",
                &run_offloaded(&mut work.command("./program"))?,
            )?;
        }
    }
    passed()
}
