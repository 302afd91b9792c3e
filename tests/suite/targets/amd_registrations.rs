//! AMD device code under its old and new names: one code object in HIP's bundle, the registered
//! triple, and the remaining images.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made, passed, run,
    stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "targets::old_and_new_names_are_one_code_object_for_hip",
            one_code_object,
        ),
        with_llvm(
            "targets::the_triple_that_is_registered_follows_the_inputs",
            registered_triple,
        ),
        with_llvm("targets::images_under_new_names_are_kept_and_found", cached),
    ]
}

const OLD: &str = "amdgcn-amd-amdhsa";
const NEW: &str = "amdgpu9.08-amd-amdhsa";
const ARCH: &str = "gfx908";

fn image<'a>(triple: &'a str, kind: &'a str, bytes: &'a [u8]) -> Image<'a> {
    Image {
        triple,
        arch: ARCH,
        kind,
        bytes,
    }
}

fn one_code_object() -> Outcome {
    let work = Work::new();
    work.fat("old.o", &[image(OLD, "hip", b"A")])?;
    work.fat("new.o", &[image(NEW, "hip", b"B")])?;
    for (order, code) in [(["old.o", "new.o"], "AB"), (["new.o", "old.o"], "BA")] {
        work.forget();
        run(&mut work.wrapper(order.into_iter().chain(["--emit-fatbin-only", "-o", "fat"])))?;
        let images: Vec<String> = work.images()?.into_iter().map(|(_, code)| code).collect();
        expect_equal("device links", code, &images.join(" "))?;
        let mut list = work.command(made().links.join("clang-offload-bundler"));
        let listed = run(list.args(["-type=bc", "-list", "-input=fat"]))?;
        let ids: Vec<&str> = listed
            .lines()
            .filter(|line| line.starts_with("hip"))
            .collect();
        expect_equal("entries", "hip-amdgcn-amd-amdhsa--gfx908", &ids.join(" "))?;
    }
    passed()
}

/// The triples of the images in the registration object for `objects`, as LLVM's tool prints them.
fn triples(work: &Work, objects: &[&str]) -> Result<String, Failed> {
    work.forget();
    run(&mut work.wrapper(objects.iter().copied().chain(["-o", "a.out"])))?;
    let object = work.image_object()?;
    let stdout = run(work
        .command(llvm("llvm-objdump"))
        .arg("--offloading")
        .arg(object))?;
    let triples = stdout
        .lines()
        .filter(|line| line.starts_with("triple"))
        .filter_map(|line| line.split_whitespace().last());
    Ok(triples.collect::<Vec<_>>().join(" "))
}

fn registered_triple() -> Outcome {
    let work = Work::new();
    for (name, triple) in [
        ("old.o", OLD),
        ("unversioned.o", "amdgpu-amd-amdhsa"),
        ("new.o", NEW),
    ] {
        work.fat(name, &[image(triple, "openmp", b"code")])?;
    }
    for (objects, triple) in [
        (&["old.o"][..], OLD),
        (&["unversioned.o"], "amdgpu-amd-amdhsa"),
        (&["new.o"], NEW),
        // Of several triples, the most specific one.
        (&["old.o", "new.o"], NEW),
        (&["new.o", "unversioned.o", "old.o"], NEW),
    ] {
        expect_equal(&format!("{objects:?}"), triple, &triples(&work, objects)?)?;
    }
    passed()
}

/// A clang that accepts the new names: it runs the real one with the old names. It is a compiled
/// program, because offld caches nothing for scripts.
const KNOWS_NEW_NAMES: &str = r#"
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  for (int at = 1; at < count; at++)
    if (!strncmp(words[at], "--target=amdgpu9.0", 18)) words[at] = "--target=amdgcn-amd-amdhsa";
  return execv(words[0] = CLANG, words);
}
"#;

fn cached() -> Outcome {
    let work = Work::new();
    let clang = work.path().join("clang");
    work.file("clang.c", KNOWS_NEW_NAMES);
    run(work
        .command("cc")
        .arg(format!("-DCLANG=\"{}\"", llvm("clang").display()))
        .arg("clang.c")
        .arg("-o")
        .arg(&clang))?;
    let source =
        "__attribute__((amdgpu_kernel, visibility(\"protected\"))) void kernel(int *a) { *a = 1; }";
    work.file("device.c", source);
    let words = [
        "--target=amdgcn-amd-amdhsa",
        "-nogpulib",
        "-O1",
        "-emit-llvm",
        "-c",
        "device.c",
        "-o",
        "device.bc",
    ];
    run(work.command(llvm("clang")).args(words))?;
    let code = std::fs::read(work.path().join("device.bc"))?;
    work.fat(
        "a.o",
        &[Image {
            triple: NEW,
            arch: ARCH,
            kind: "openmp",
            bytes: &code,
        }],
    )?;
    work.fat(
        "b.o",
        &[Image {
            triple: "amdgpu9.06-amd-amdhsa",
            arch: "gfx906",
            kind: "openmp",
            bytes: &code,
        }],
    )?;
    std::thread::sleep(std::time::Duration::from_millis(60));
    let link = |object: &str| -> Result<String, Failed> {
        let mut link = work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--linker-path=/usr/bin/ld",
            "-shared",
            "-o",
            "out.so",
            object,
        ]);
        link.args(["--wrapper-verbose", "--device-compiler=-nogpulib"]);
        stderr_of(
            link.env("OFFLD_CLANG", &clang)
                .env("OFFLD_CACHE", work.path().join("cache")),
        )
    };
    for (object, target) in [
        ("a.o", "amdgpu9.08-amd-amdhsa (gfx908)"),
        ("b.o", "amdgpu9.06-amd-amdhsa (gfx906)"),
    ] {
        let first = link(object)?;
        // A cached link for one architecture does not serve another.
        expect_in(
            &first,
            &format!("device link for {target}: not in the cache"),
        )?;
        let before = std::fs::read(work.path().join("out.so"))?;
        let messages = link(object)?;
        expect_in(
            &messages,
            &format!("device link for {target}: found in the cache"),
        )?;
        expect_not_in(&messages, "ld.lld\" -")?;
        ensure(
            before == std::fs::read(work.path().join("out.so"))?,
            || "another image is found",
        )?;
    }
    passed()
}
