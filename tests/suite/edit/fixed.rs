//! Static programs at fixed addresses, as LLVM's own wrapper links them with GNU ld and gold.
//! Nothing in them can move to make room for more segments, so larger images get a page at the
//! front.

use libtest_mimic::{Failed, Trial};

use super::{SOURCE, images, stdout_of, targets};
use crate::support::{Outcome, Work, expect_equal, expect_in, llvm, passed, run, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    let of = |linker: &'static str| {
        let name = format!("edit::fixed::static_programs_of_{linker}_become_larger");
        with_llvm(&name, move || larger(linker))
    };
    ["bfd", "gold"].map(of).into()
}

/// A static replacement for OpenMP's shared runtime library. It counts the bytes of each image.
const RUNTIME: &str = r#"#include <stdio.h>
struct image { unsigned char *start, *end; void *first, *last; };
struct descriptor { int count; struct image *images; void *first, *last; };
void __tgt_register_lib(struct descriptor *all) {
  for (int at = 0; at < all->count; at++) {
    unsigned long sum = 0;
    for (unsigned char *byte = all->images[at].start; byte < all->images[at].end; byte++) sum = sum * 31 + *byte;
    printf("%ld %lx\n", (long)(all->images[at].end - all->images[at].start), sum);
  }
}
void __tgt_unregister_lib(struct descriptor *all) {}
int __tgt_target_kernel(void) { return 1; }
int omp_is_initial_device(void) { return 1; }
int __kmpc_global_thread_num(void *at) { return 0; }
"#;

/// Links the program for a device to `ARCH` with LLVM's wrapper.
fn linked(work: &Work, linker: &str, arch: &str) -> Result<(), Failed> {
    let words = match arch {
        "cpu" => vec!["-fopenmp-targets=x86_64-pc-linux-gnu".to_owned()],
        _ => ["--offload-arch=ARCH", "-nogpulib"]
            .map(|word| word.replace("ARCH", arch))
            .into(),
    };
    let mut compile = work.command(llvm("clang"));
    run(compile
        .args(["-fopenmp", "-O1", "-fPIC"])
        .args(&words)
        .args(["-c", "main.c", "-o", "main.o"]))?;
    let mut link = work.command(llvm("clang"));
    link.args(["-fopenmp", "-static", "-L.", &format!("-fuse-ld={linker}")])
        .args(&words)
        .args(["main.o", "runtime.o", "-o", arch]);
    if arch != "cpu" {
        let device = "-Wl,--device-linker=amdgcn-amd-amdhsa=";
        link.args([format!("{device}-z"), format!("{device}undefs")]);
    }
    run(&mut link)?;
    Ok(())
}

/// The output of the program. It must be the same after other tools rewrote the file.
fn expect_same_after_tools(work: &Work, name: &str) -> Result<String, Failed> {
    let printed = run(&mut work.command(work.path().join(name)))?;
    let other = format!("{name}.other");
    for (tool, words) in [
        ("strip", &[][..]),
        ("objcopy", &["--strip-debug"]),
        ("objcopy", &["--strip-unneeded"]),
    ] {
        let out: &[&str] = if tool == "strip" {
            &[name, "-o", &other]
        } else {
            &[name, &other]
        };
        run(work.command(tool).args(words).args(out))?;
        expect_equal(
            &format!("{tool} {words:?}"),
            &printed,
            &run(&mut work.command(work.path().join(&other)))?,
        )?;
    }
    Ok(printed)
}

fn larger(linker: &str) -> Outcome {
    let work = Work::new();
    work.file("main.c", SOURCE.replace("return sum != 4950", "return 0"));
    work.file("runtime.c", RUNTIME);
    work.file("large", vec![7; 70_000]);
    run(work.command("cc").args(["-c", "runtime.c"]))?;
    for library in ["libomp.a", "libomptarget.a"] {
        run(work.command(llvm("llvm-ar")).args(["rcs", library]))?;
    }
    for arch in ["cpu", "gfx90a", "gfx908"] {
        linked(&work, linker, arch)?;
    }
    // The build ID has not moved.
    stdout_of(
        &work,
        [
            "replace", "cpu", "--force", "--image", "0=large", "-o", "replaced",
        ],
    )?;
    expect_in(&expect_same_after_tools(&work, "replaced")?, "70000 ")?;
    let id = |name: &str| {
        run(work.command(llvm("llvm-readelf")).args(["-n", name]))
            .map(|text| text.replace(name, ""))
    };
    expect_equal("notes", &id("cpu")?, &id("replaced")?)?;
    stdout_of(&work, ["merge", "-o", "merged", "cpu", "gfx90a", "gfx908"])?;
    expect_equal(
        "devices",
        "x86_64-pc-linux-gnu gfx90a gfx908",
        &targets(&work, "merged")?,
    )?;
    let printed = expect_same_after_tools(&work, "merged")?;
    for arch in ["cpu", "gfx90a", "gfx908"] {
        let alone = run(&mut work.command(work.path().join(arch)))?;
        expect_in(&printed, alone.lines().next().unwrap_or("nothing"))?;
        stdout_of(&work, ["prune", "--keep", arch, "merged", "-o", "one"])?;
        expect_equal(
            "images",
            &images(&work, arch)?.join("\n"),
            &images(&work, "one")?.join("\n"),
        )?;
        expect_equal("output", &alone, &expect_same_after_tools(&work, "one")?)?;
    }
    passed()
}
