//! `--wrapper-lto-partitions=`: the code generation of full LTO, split into partitions.

use std::path::Path;

use libtest_mimic::Trial;

use super::Units;
use crate::support::{
    Outcome, ensure, expect_equal, expect_in, expect_not_in, llvm, missing, passed, run_failing,
    stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("lto::parts_are_made_and_known_by_their_number", number),
        with_llvm(
            "lto::the_number_of_parts_by_size_is_that_of_every_machine",
            by_size,
        ),
        with_llvm(
            "lto::our_number_of_parts_is_the_one_that_counts",
            ours_counts,
        ),
        with_llvm("lto::where_parts_are_not_made_it_is_said", ignored),
        with_llvm("lto::a_long_link_tells_of_thin_lto", hint),
        test("releases::lto::parts_are_for_lld_21_and_later", old),
    ]
}

/// The numbers of partitions that the device linker is asked for.
fn partition_counts(messages: &str) -> Vec<String> {
    let linked = messages
        .lines()
        .filter(|line| line.contains("amdgcn.gfx90a.img"));
    let words = linked
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.split_once("--lto-partitions="));
    words.map(|(_, number)| number.to_owned()).collect()
}

fn number() -> Outcome {
    let units = Units::new("full")?;
    let (said, whole) = units.linked(&units.cache(), &[])?;
    ensure(partition_counts(&said).is_empty(), || {
        format!("in parts, though nobody has asked\n{said}")
    })?;
    let (said, two) = units.linked(&units.cache(), &["--wrapper-lto-partitions=2"])?;
    expect_in(&said, "not in the cache: the linker argument `")?;
    expect_equal(&said, "2", &partition_counts(&said).join(" "))?;
    ensure(
        two != whole,
        || "two parts are no different: too little code for this test",
    )?;
    let (said, again) = units.linked(&units.cache(), &["--wrapper-lto-partitions=2"])?;
    expect_in(&said, "gfx90a): found in the cache")?;
    ensure(again == two, || "another library out of the cache")?;
    for jobs in ["1", "8"] {
        let (_, made) = units.linked(
            Path::new("off"),
            &[
                "--wrapper-lto-partitions=2",
                &format!("--wrapper-jobs={jobs}"),
            ],
        )?;
        ensure(made == two, || format!("another library with {jobs} jobs"))?;
    }
    let said = stderr_of(
        units
            .link(&units.cache(), &[])
            .env("OFFLD_LTO_PARTITIONS", "2"),
    )?;
    expect_in(&said, "gfx90a): found in the cache")?;
    let mut option_wins = units.link(Path::new("off"), &["--wrapper-lto-partitions=3"]);
    expect_equal(
        "the option wins",
        "3",
        &partition_counts(&stderr_of(option_wins.env("OFFLD_LTO_PARTITIONS", "2"))?).join(" "),
    )?;
    let said = run_failing(
        units
            .link(&units.cache(), &[])
            .env("OFFLD_LTO_PARTITIONS", "some"),
    )?;
    expect_in(
        &said,
        "OFFLD_LTO_PARTITIONS=some: expected auto or a number from 1 to 256, got 'some'",
    )?;
    let said = run_failing(&mut units.link(&units.cache(), &["--wrapper-lto-partitions=0"]))?;
    expect_in(
        &said,
        "--wrapper-lto-partitions=0: expected auto or a number from 1 to 256, got '0'",
    )?;
    passed()
}

fn by_size() -> Outcome {
    let units = Units::new("full")?;
    let auto = "--wrapper-lto-partitions=auto";
    let (said, made) = units.linked(Path::new("off"), &[auto])?;
    expect_equal("little bitcode", "1", &partition_counts(&said).join(" "))?;
    // A global variable that is large enough for three partitions, with the same size as debug
    // information or as code.
    let data: String = (0..400_000u32)
        .map(|at| format!("{},", at.wrapping_mul(2_654_435_761)))
        .collect();
    let code = format!(
        "#pragma omp begin declare target\nunsigned table[] = {{{data}}};\n#pragma omp end declare target\n\
         unsigned f0(unsigned at) {{\n#pragma omp target map(tofrom: at)\n  at = table[at];\n  return at;\n}}\n"
    );
    let source = units.work.file("f0.c", code);
    let mut compile = units.work.command(llvm("clang"));
    compile
        .args([
            "-O2",
            "-fopenmp",
            "--offload-arch=gfx90a",
            "-nogpulib",
            "-fPIC",
            "-foffload-lto=full",
            "-c",
        ])
        .arg(source);
    crate::support::run(&mut compile)?;
    let (said, large) = units.linked(Path::new("off"), &[auto])?;
    let number = partition_counts(&said).join(" ");
    ensure(
        number
            .parse::<u32>()
            .is_ok_and(|number| (2..=8).contains(&number)),
        || format!("{number} parts\n{said}"),
    )?;
    ensure(large != made, || "the same library of other code")?;
    for words in [
        &["--wrapper-jobs=1", auto][..],
        &["--wrapper-jobs=16", auto],
    ] {
        let (said, made) = units.linked(Path::new("off"), words)?;
        expect_equal("parts", &number, &partition_counts(&said).join(" "))?;
        ensure(made == large, || format!("another library with {words:?}"))?;
    }
    // As on a machine with one CPU, as far as a program can detect.
    let link = units.link(Path::new("off"), &[auto]);
    let mut alone = units.work.command("taskset");
    alone
        .args(["-c", "0"])
        .arg(link.get_program())
        .args(link.get_args());
    alone
        .env("OFFLD_CLANG", llvm("clang"))
        .env("MAKEFLAGS", "-j1");
    expect_equal(
        "parts",
        &number,
        &partition_counts(&stderr_of(&mut alone)?).join(" "),
    )?;
    ensure(
        std::fs::read(units.work.path().join("out.so"))? == large,
        || "another library on one processor",
    )?;
    passed()
}

/// clang passes eight partitions for HIP, and users can pass their own number to the linker. ld.lld
/// uses the last one.
fn ours_counts() -> Outcome {
    let units = Units::new("full")?;
    let right = |number: u32| units.right(&[&format!("--wrapper-lto-partitions={number}")]);
    let (one, two) = (right(1)?, right(2)?);
    ensure(
        one != two,
        || "two parts are no different: too little code for this test",
    )?;
    let hip = "--device-compiler=amdgcn-amd-amdhsa=-flto-partitions=8";
    let own = "--device-linker=amdgcn-amd-amdhsa=--lto-partitions=4";
    for cache in [Path::new("off"), &units.cache()] {
        for words in [&[hip][..], &[own], &[own, hip], &[hip, own]] {
            for (number, right) in [(1, &one), (2, &two)] {
                let ours = format!("--wrapper-lto-partitions={number}");
                let (said, made) = units.linked(cache, &[&[&*ours], words].concat())?;
                ensure(made == *right, || {
                    format!("not {number} parts with {words:?}\n{said}")
                })?;
                // Two command lines that differ in their order only can be a cache hit for each
                // other.
                let last = partition_counts(&said).pop();
                let is_ours = last
                    .as_deref()
                    .map_or(said.contains("found in the cache"), |last| {
                        last == number.to_string()
                    });
                ensure(is_ours, || {
                    format!("the linker is told {last:?} last, not {number}\n{said}")
                })?;
            }
        }
    }
    // Without offld's option, the arguments of clang and of the user apply.
    let said = units.linked(Path::new("off"), &[own])?.0;
    expect_equal(
        "what the user says",
        "4",
        &partition_counts(&said).join(" "),
    )?;
    // Checks that clang still passes this option for HIP, which is the reason for the test above.
    let work = &units.work;
    work.file(
        "k.hip",
        "__attribute__((global)) void kernel(int *x) { *x = 1; }\n",
    );
    let mut ask = work.command(llvm("clang"));
    ask.args([
        "-###",
        "--offload-new-driver",
        "-fgpu-rdc",
        "-nogpulib",
        "-nogpuinc",
        "--offload-arch=gfx90a",
        "-x",
        "hip",
        "k.hip",
    ]);
    expect_in(&stderr_of(&mut ask)?, &format!("\"{hip}\""))?;
    passed()
}

fn ignored() -> Outcome {
    let two = "--wrapper-lto-partitions=2";
    let thin = Units::new("thin")?;
    let right = thin.right(&[])?;
    let (messages, made) = thin.linked(&thin.cache(), &[two])?;
    expect_in(
        &messages,
        "device link for amdgcn-amd-amdhsa (gfx90a): --wrapper-lto-partitions= is ignored: no input is bitcode for full LTO",
    )?;
    ensure(
        partition_counts(&messages).is_empty() && made == right,
        || messages.clone(),
    )?;
    let full = Units::new("full")?;
    let messages = full
        .linked(
            Path::new("off"),
            &[
                two,
                "--no-lto",
                "--device-compiler=amdgcn-amd-amdhsa=-nogpulib",
            ],
        )?
        .0;
    expect_in(
        &messages,
        "--wrapper-lto-partitions= is ignored: the link generates no code",
    )?;
    let work = &full.work;
    let source = work.file(
        "cpu.c",
        "int f(int x) {\n#pragma omp target map(tofrom: x)\n  ++x;\n  return x;\n}\n",
    );
    let mut compile = work.command(llvm("clang"));
    compile
        .args(crate::support::OFFLOAD)
        .args(["-fPIC", "-c"])
        .arg(source);
    crate::support::run(&mut compile)?;
    let mut link = work.command(crate::support::made().links.join("clang-linker-wrapper"));
    link.args([
        "--host-triple=x86_64-pc-linux-gnu",
        "--wrapper-verbose",
        "-shared",
        "-o",
        "cpu.so",
        "cpu.o",
        two,
    ]);
    link.arg(format!("--linker-path={}", llvm("ld.lld").display()))
        .env("OFFLD_CLANG", llvm("clang"));
    let messages = stderr_of(&mut link)?;
    expect_in(
        &messages,
        "--wrapper-lto-partitions= is ignored: only AMD GPU code can be generated in parts",
    )?;
    expect_not_in(&messages, "--lto-partitions=2 ")?;
    passed()
}

/// The compiler pauses for a while.
fn hint() -> Outcome {
    const TOLD: &str = "If its objects are compiled with -foffload-lto=thin";
    for (lto, expected) in [("full", 1), ("thin", 0)] {
        let units = Units::new(lto)?;
        let slow = units.work.tool(
            "slow-clang",
            &format!(
                "#!/bin/sh\n[ \"$1\" = -dumpversion ] || sleep 3.1\nexec {} \"$@\"\n",
                llvm("clang").display()
            ),
        );
        let said = stderr_of(units.link(Path::new("off"), &[]).env("OFFLD_CLANG", &slow))?;
        expect_equal(
            &format!("how often it is told\n{said}"),
            &expected.to_string(),
            &said.matches(TOLD).count().to_string(),
        )?;
    }
    // No hint for a quick link.
    let units = Units::new("full")?;
    expect_not_in(&units.linked(Path::new("off"), &[])?.0, TOLD)?;
    passed()
}

/// Linkers that do not split modules for GPUs do not get the option.
fn old() -> Outcome {
    let Some(release) = crate::support::Release::of(19) else {
        return missing("LLVM 19 (make setup-releases)");
    };
    let units = Units::with_release(release, "full")?;
    let right = units.right(&[])?;
    let (messages, made) = units.linked(Path::new("off"), &["--wrapper-lto-partitions=2"])?;
    expect_in(
        &messages,
        "--wrapper-lto-partitions= is ignored: the linker is from LLVM 19, and partitions need LLVM 21 or later",
    )?;
    ensure(
        partition_counts(&messages).is_empty() && made == right,
        || messages.clone(),
    )?;
    passed()
}
