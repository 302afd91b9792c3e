//! Fault F17: a relocatable link links and registers its images completely; no later link finds
//! them again.

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::kinds::{Case, Wrapper, stubs};
use crate::kit::{AMD, Image};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, expect_not_in, ledger, llvm,
    made, passed, run, run_offloaded, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f17_relocatable_links_of_openmp", openmp),
        with_llvm("faults::f17_relocatable_links_of_hip", hip),
        with_llvm("faults::f17_relocatable_links_with_large_images", large),
        with_llvm(
            "faults::f17_relocatable_links_under_gc_sections",
            under_gc_sections,
        ),
        with_llvm(
            "faults::f17_relocatable_links_of_hip_under_gc_sections",
            || of_kind_under_gc_sections("hip-partial-again"),
        ),
        with_llvm(
            "releases::faults::f17_relocatable_links_of_cuda_under_gc_sections",
            || of_kind_under_gc_sections("cuda-partial"),
        ),
    ]
}

/// NAME(x) is x times N, computed on the device.
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

/// A link by offld or LLVM's wrapper.
fn link(work: &Work, wrapper: Wrapper, words: &[&str]) -> Result<String, Failed> {
    let mut link = work.command(llvm("clang"));
    if wrapper == Wrapper::Ours {
        link.arg("-B").arg(&made().links);
    }
    run(link.args(OFFLOAD).args(words))
}

/// The number of sections with device code to be linked in an object.
fn fat_sections(work: &Work, object: &str) -> Result<usize, Failed> {
    let listing = work.run(llvm("llvm-readelf"), ["-S", "-W", object])?;
    Ok(listing
        .lines()
        .filter(|line| line.contains("LLVM_OFFLOADING"))
        .count())
}

fn openmp() -> Outcome {
    let work = Work::new();
    work.file("part.c", PART);
    for (name, factor) in [
        ("first", "1"),
        ("second", "10"),
        ("third", "100"),
        ("last", "1000"),
    ] {
        let (object, defines) = (
            format!("{name}.o"),
            [format!("-DNAME={name}"), format!("-DN={factor}")],
        );
        let main = (name == "last").then_some("-DMAIN");
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(["-O1", "-c", "part.c", "-o", &object])
            .args(defines)
            .args(main))?;
    }
    let ours = |words: &[&str]| link(&work, Wrapper::Ours, words);
    ours(&["-r", "first.o", "-o", "once.o"])?;
    ours(&["-r", "once.o", "second.o", "-o", "twice.o"])?;
    ours(&["-r", "third.o", "-o", "other.o"])?;
    // Another link of linked objects changes nothing for the device.
    ours(&["-r", "other.o", "-o", "other-again.o"])?;
    for object in ["once.o", "twice.o", "other.o", "other-again.o"] {
        expect_equal(
            &format!("fat sections of {object}"),
            "0",
            &fat_sections(&work, object)?.to_string(),
        )?;
    }
    let shown = run(work.command(llvm("llvm-nm")).arg("twice.o"))?;
    expect_not_in(&shown, "__start_llvm_offload_entries\n")?;
    ours(&["twice.o", "other-again.o", "last.o", "-o", "program"])?;
    work.expect_no_temps()?;
    expect_equal(
        "stdout",
        "1111 on the device\n",
        &run_offloaded(&mut work.command("./program"))?,
    )?;
    let registered = ledger(&work, &mut work.command("./program"), &Release::newest())?;
    for lib in 0..4 {
        expect_in(&registered, &format!("openmp register lib={lib} images=1 "))?;
    }
    expect_not_in(&registered, "lib=4")?;

    link(&work, Wrapper::Theirs, &["-r", "first.o", "-o", "theirs.o"])?;
    expect_equal(
        "fat sections after LLVM's -r",
        "1",
        &fat_sections(&work, "theirs.o")?.to_string(),
    )?;
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
        expect_equal(
            &format!("fat sections of {object}"),
            "0",
            &fat_sections(&work, object)?.to_string(),
        )?;
    }
    let (printed, ledger) = case.run(&work)?;
    expect_equal("stdout", &case.text("expect"), &printed)?;
    for name in ["first", "second", "third", "main"] {
        let lines = ledger.lines().filter(|line| {
            line.contains(" function ") && line.contains(&format!("kernel_part_{name}Pi"))
        });
        expect_equal(
            &format!("registrations of {name}'s kernel"),
            "1",
            &lines.count().to_string(),
        )?;
    }
    expect_equal(
        "bundles",
        "4",
        &ledger.matches("hip bundle ").count().to_string(),
    )?;
    passed()
}

/// The entry tables of each part survive `--gc-sections` with any linker, although nothing refers
/// to an entry by name.
fn under_gc_sections() -> Outcome {
    let work = Work::new();
    work.file("part.c", PART);
    for (name, factor) in [
        ("first", "1"),
        ("second", "10"),
        ("third", "100"),
        ("last", "1000"),
    ] {
        let (object, defines) = (
            format!("{name}.o"),
            [format!("-DNAME={name}"), format!("-DN={factor}")],
        );
        let main = (name == "last").then_some("-DMAIN");
        let compile = [
            "-O1",
            "-fPIE",
            "-ffunction-sections",
            "-c",
            "part.c",
            "-o",
            &object,
        ];
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(compile)
            .args(defines)
            .args(main))?;
    }
    let lib = format!("-L{}", Release::newest().lib.display());
    let here = |linker: &&&str| {
        llvm(&format!("ld.{linker}")).exists()
            || Path::new("/usr/bin").join(format!("ld.{linker}")).exists()
    };
    for first in ["lld", "bfd"] {
        let by = format!("-fuse-ld={first}");
        link(
            &work,
            Wrapper::Ours,
            &[&by, "-r", "first.o", "-o", "once.o"],
        )?;
        link(
            &work,
            Wrapper::Ours,
            &[&by, "-r", "once.o", "second.o", "-o", "twice.o"],
        )?;
        link(
            &work,
            Wrapper::Ours,
            &[&by, "-r", "third.o", "-o", "other.o"],
        )?;
        link(&work, Wrapper::Ours, &[&by, "-r", "last.o", "-o", "main.o"])?;
        // A linker without offld joins two of the outputs.
        let alone = if first == "lld" {
            llvm("ld.lld")
        } else {
            "ld.bfd".into()
        };
        work.run(alone, ["-r", "twice.o", "other.o", "-o", "joined.o"])?;
        let expect_all = |command: &mut Command, what: &str| -> Result<(), Failed> {
            run(command.args(["-o", "program"]))?;
            expect_equal(
                what,
                "1111 on the device\n",
                &run_offloaded(&mut work.command("./program"))?,
            )
        };
        for linker in ["lld", "bfd", "gold", "mold"].iter().filter(here) {
            let mut collecting = vec![vec!["-Wl,--gc-sections"]];
            if matches!(*linker, "lld" | "bfd") {
                collecting.extend(
                    ["start-stop-gc", "nostart-stop-gc"]
                        .map(|how| vec!["-Wl,--gc-sections", "-z", how]),
                );
            }
            for words in collecting {
                let what = format!("-r by {first}, then {linker} {words:?}");
                let with = format!("-fuse-ld={linker}");
                let mut plain = work.command(llvm("clang"));
                plain
                    .args(["-fopenmp", &with, "joined.o", "main.o", "-lomptarget", &lib])
                    .args(&words);
                expect_all(&mut plain, &what)?;
                let mut ours = work.command(llvm("clang"));
                ours.args(OFFLOAD)
                    .arg("-B")
                    .arg(&made().links)
                    .args([&with, "twice.o", "other.o", "last.o"])
                    .args(&words);
                expect_all(&mut ours, &format!("{what}, by offld"))?;
            }
        }
        let headers = work.run(llvm("llvm-readelf"), ["-hSW", "twice.o"])?;
        expect_in(&headers, "UNIX - GNU")?;
    }
    work.expect_no_temps()?;
    passed()
}

/// The last link of a case, by ld.lld alone with `--gc-sections`.
fn of_kind_under_gc_sections(name: &str) -> Outcome {
    let case = Case::named(name, 22);
    let tools = match case.tools() {
        Ok(tools) => tools,
        Err(missing) => return missing,
    };
    let work = Work::new();
    case.compile(&work, &tools, Wrapper::Ours)?;
    case.link(&work, &tools, Wrapper::Ours, &[])?;
    let expected = case.run(&work)?;
    let line = case.text("link");
    let (objects, libraries): (Vec<&str>, Vec<&str>) = line
        .split_whitespace()
        .partition(|word| word.ends_with(".o"));
    let mut parts = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let part = format!("part{index}.o");
        let mut partial = tools.command(&work, "clang++");
        run(partial
            .args(["--offload-link", "-r", object, "-o", &part, "-B"])
            .arg(&made().links))?;
        parts.push(part);
    }
    for collecting in [
        &["-Wl,--gc-sections"][..],
        &["-Wl,--gc-sections", "-z", "start-stop-gc"],
    ] {
        let mut linker = tools.command(&work, "clang++");
        linker
            .args(["-fuse-ld=lld", "-o", "program"])
            .args(&parts)
            .args(collecting);
        run(linker
            .arg(format!("-L{}", stubs().display()))
            .args(&libraries))?;
        let (printed, ledger) = case.run(&work)?;
        expect_equal("stdout", &expected.0, &printed)?;
        let registered = |ledger: &str| {
            let mut names: Vec<String> = ledger
                .lines()
                .filter_map(|line| Some(line.split_once(" name=")?.1.to_owned()))
                .collect();
            names.sort_unstable();
            names.join("\n")
        };
        expect_equal(
            &format!("what {collecting:?} leaves"),
            &registered(&expected.1),
            &registered(&ledger),
        )?;
    }
    passed()
}

/// Images above 1 MiB are in a separate object.
fn large() -> Outcome {
    let work = Work::new();
    let linker = format!("--linker-path={LLVM}/ld.lld");
    for (kind, section) in [
        ("openmp", ".llvm.offloading.relocatable"),
        ("hip", ".hip_fatbin"),
    ] {
        let bytes = format!("{kind} image ").repeat(200_000);
        work.fat(
            "a.o",
            &[Image {
                triple: AMD,
                arch: "gfx90a",
                kind,
                bytes: bytes.as_bytes(),
            }],
        )?;
        run(&mut work.wrapper([&linker, "-r", "-o", "once.o", "a.o"]))?;
        run(&mut work.wrapper([&linker, "-r", "-o", "twice.o", "once.o"]))?;
        expect_equal(
            "fat sections",
            "0",
            &fat_sections(&work, "twice.o")?.to_string(),
        )?;
        let dump = format!("{section}=dumped");
        work.run(
            llvm("llvm-objcopy"),
            ["--dump-section", &dump, "twice.o", "/dev/null"],
        )?;
        let dumped = text(&std::fs::read(work.path().join("dumped"))?);
        expect_equal("images", "1", &dumped.matches(&bytes).count().to_string())?;
        work.expect_no_temps()?;
    }
    passed()
}
