//! Fault F17: the images of a relocatable link are linked and registered, once and for all; no later link finds them again.

use libtest_mimic::{Failed, Trial};

use crate::kinds::{Case, Wrapper};
use crate::kit::{AMD, Image};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, expect_not_in, ledger, llvm, made, passed, run,
    run_offloaded, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f17_relocatable_links_of_openmp", openmp),
        with_llvm("faults::f17_relocatable_links_of_hip", hip),
        with_llvm("faults::f17_relocatable_links_with_large_images", large),
    ]
}

/// NAME(x) is x times N, on the device.
const PART: &str = "#include <omp.h>
int NAME(int x, int *host) {
  int y = 0, h = 1;
#pragma omp target map(from : y, h)
  {
    h = omp_is_initial_device();
    y = x * N;
  }
  *host |= h;
  return y;
}
#ifdef MAIN
#include <stdio.h>
int first(int, int *), second(int, int *), third(int, int *);
int main(void) {
  int host = 0;
  int sum = first(1, &host) + second(1, &host) + third(1, &host) + NAME(1, &host);
  printf(\"%d on %s\\n\", sum, host ? \"the host\" : \"the device\");
}
#endif
";

/// A link by offld or by LLVM's wrapper.
fn link(work: &Work, wrapper: Wrapper, words: &[&str]) -> Result<String, Failed> {
    let mut link = work.command(llvm("clang"));
    if wrapper == Wrapper::Ours {
        link.arg("-B").arg(&made().links);
    }
    run(link.args(OFFLOAD).args(words))
}

/// The sections of an object that hold device code to be linked.
fn fat_sections(work: &Work, object: &str) -> Result<usize, Failed> {
    let listing = work.run(llvm("llvm-readelf"), ["-S", "-W", object])?;
    Ok(listing.lines().filter(|line| line.contains("LLVM_OFFLOADING")).count())
}

fn openmp() -> Outcome {
    let work = Work::new();
    work.file("part.c", PART);
    for (name, factor) in [("first", "1"), ("second", "10"), ("third", "100"), ("last", "1000")] {
        let (object, defines) = (format!("{name}.o"), [format!("-DNAME={name}"), format!("-DN={factor}")]);
        let main = (name == "last").then_some("-DMAIN");
        run(work.command(llvm("clang")).args(OFFLOAD).args(["-O1", "-c", "part.c", "-o", &object]).args(defines).args(main))?;
    }
    let ours = |words: &[&str]| link(&work, Wrapper::Ours, words);
    ours(&["-r", "first.o", "-o", "once.o"])?;
    ours(&["-r", "once.o", "second.o", "-o", "twice.o"])?;
    ours(&["-r", "third.o", "-o", "other.o"])?;
    // One more link of what is linked already changes nothing for the device.
    ours(&["-r", "other.o", "-o", "other-again.o"])?;
    for object in ["once.o", "twice.o", "other.o", "other-again.o"] {
        expect_equal(&format!("fat sections of {object}"), "0", &fat_sections(&work, object)?.to_string())?;
    }
    let shown = run(work.command(llvm("llvm-nm")).arg("twice.o"))?;
    expect_not_in(&shown, "__start_llvm_offload_entries\n")?;
    ours(&["twice.o", "other-again.o", "last.o", "-o", "program"])?;
    work.expect_no_temps()?;
    expect_equal("stdout", "1111 on the device\n", &run_offloaded(&mut work.command("./program"))?)?;
    let registered = ledger(&work, &mut work.command("./program"), &Release::newest())?;
    for lib in 0..4 {
        expect_in(&registered, &format!("openmp register lib={lib} images=1 "))?;
    }
    expect_not_in(&registered, "lib=4")?;

    link(&work, Wrapper::Theirs, &["-r", "first.o", "-o", "theirs.o"])?;
    expect_equal("fat sections after LLVM's -r", "1", &fat_sections(&work, "theirs.o")?.to_string())?;
    passed()
}

fn hip() -> Outcome {
    let case = Case::named("hip-partial-again", 22);
    let tools = match case.tools() {
        Ok(tools) => tools,
        Err(missing) => return missing,
    };
    let work = Work::new();
    case.compile(&work, &tools, Wrapper::Ours)?;
    case.link(&work, &tools, Wrapper::Ours, &[])?;
    work.expect_no_temps()?;
    for object in ["once.o", "twice.o", "other.o"] {
        expect_equal(&format!("fat sections of {object}"), "0", &fat_sections(&work, object)?.to_string())?;
    }
    let (printed, ledger) = case.run(&work)?;
    expect_equal("stdout", &case.text("expect"), &printed)?;
    for name in ["first", "second", "third", "main"] {
        let lines = ledger.lines().filter(|line| line.contains(" function ") && line.contains(&format!("kernel_part_{name}Pi")));
        expect_equal(&format!("registrations of {name}'s kernel"), "1", &lines.count().to_string())?;
    }
    expect_equal("bundles", "4", &ledger.matches("hip bundle ").count().to_string())?;
    passed()
}

/// Images of more than a megabyte are in an object of their own.
fn large() -> Outcome {
    let work = Work::new();
    let linker = format!("--linker-path={LLVM}/ld.lld");
    for (kind, section) in [("openmp", ".llvm.offloading.relocatable"), ("hip", ".hip_fatbin")] {
        let bytes = format!("{kind} image ").repeat(200_000);
        work.fat("a.o", &[Image { triple: AMD, arch: "gfx90a", kind, bytes: bytes.as_bytes() }])?;
        run(&mut work.wrapper([&linker, "-r", "-o", "once.o", "a.o"]))?;
        run(&mut work.wrapper([&linker, "-r", "-o", "twice.o", "once.o"]))?;
        expect_equal("fat sections", "0", &fat_sections(&work, "twice.o")?.to_string())?;
        let dump = format!("{section}=dumped");
        work.run(llvm("llvm-objcopy"), ["--dump-section", &dump, "twice.o", "/dev/null"])?;
        let dumped = text(&std::fs::read(work.path().join("dumped"))?);
        expect_equal("images", "1", &dumped.matches(&bytes).count().to_string())?;
        work.expect_no_temps()?;
    }
    passed()
}
