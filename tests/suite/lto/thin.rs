//! Which ThinLTO units are cache hits, and which are not, also with the linkers of earlier
//! releases.

use std::path::Path;
use std::process::Stdio;

use libtest_mimic::Trial;

use super::{COUNT, Units, files};
use crate::support::{
    OFFLOAD, Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made,
    missing, passed, run, run_offloaded, stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("lto::only_the_changed_unit_is_compiled", one_changed),
        with_llvm("lto::the_image_is_the_same_with_any_number_of_jobs", jobs),
        with_llvm("lto::what_units_depend_on", depends),
        with_llvm("lto::a_cache_of_the_users_own_is_left_alone", own_cache),
        with_llvm("lto::units_count_as_what_is_in_the_cache", counted),
        with_llvm("lto::links_at_once", at_once),
        with_llvm("lto::a_program_for_the_cpu_runs", cpu),
        with_llvm("lto::full_lto_and_single_units_have_no_units", none),
    ];
    trials.extend({
        let mut trials: Vec<Trial> = [15, 16, 19]
            .map(|major| {
                test(format!("releases::lto::units_of_{major}"), move || {
                    release_links(major)
                })
            })
            .into();
        trials.push(test("releases::lto::full_bitcode_in_spite_of_thin", of_14));
        trials
    });
    trials
}

fn one_changed() -> Outcome {
    let units = Units::new("thin")?;
    let messages = units.expect(0, COUNT, &[])?;
    expect_in(&messages, "no earlier link of this output")?;
    expect_in(
        &units.linked(&units.cache(), &[])?.0,
        "found in the cache\n",
    )?;
    for (unit, what) in [(0, 7), (3, 8)] {
        units.compile(unit, what)?;
        units.expect(COUNT - 1, 1, &[])?;
    }
    // Back to the first version of unit 0. All units are still cached, although no earlier link
    // made this image.
    units.compile(0, 1)?;
    units.expect(COUNT, 0, &[])?;
    units.work.expect_no_temps()?;
    passed()
}

fn jobs() -> Outcome {
    let units = Units::new("thin")?;
    let right = units.right(&[])?;
    for jobs in ["1", "2", "8"] {
        let ours = format!("--wrapper-jobs={jobs}");
        let own = format!("--device-linker=amdgcn-amd-amdhsa=--thinlto-jobs={jobs}");
        for word in [&*ours, &*own] {
            let cache = units
                .work
                .path()
                .join(format!("cache.{word}").replace('/', "_"));
            let (said, cold) = units.linked(&cache, &[word])?;
            ensure(cold == right, || {
                format!("another library with {word}\n{said}")
            })?;
            let numbers: Vec<&str> = said
                .split_whitespace()
                .filter(|word| word.starts_with("--thinlto-jobs="))
                .collect();
            let expected = format!("--thinlto-jobs={jobs}");
            // With more jobs than cores, the limit of the system can apply.
            let as_told =
                numbers == [&expected] || (word == ours && numbers.len() == 1 && jobs == "8");
            ensure(as_told, || format!("{word}: {numbers:?}\n{said}"))?;
            ensure(units.right(&[word])? == right, || {
                format!("another library with {word}, without a cache")
            })?;
        }
    }
    passed()
}

/// Every property that ld.lld's own cache keys do not cover.
fn depends() -> Outcome {
    let units = Units::new("thin")?;
    units.work.file("order", "f0\n");
    let order = "--device-linker=amdgcn-amd-amdhsa=--symbol-ordering-file=order";
    let lines: [&[&str]; 4] = [
        &[],
        &["--device-linker=amdgcn-amd-amdhsa=--lto-O1"],
        &["--offload-opt=-amdgpu-early-inline-all"],
        &[order],
    ];
    for line in lines {
        units.expect(0, COUNT, line)?;
    }
    units.compile(0, 2)?;
    units.expect(COUNT - 1, 1, &[order])?;
    units.work.file("order", "f1\n");
    units.expect(0, COUNT, &[order])?;
    let mut other = units.link(&units.cache(), &[]);
    let stderr = stderr_of(other.env("LLVM_OTHER_ENVIRONMENT", "1"))?;
    expect_in(
        &stderr,
        &format!("ThinLTO: 0 units found in the cache, {COUNT} compiled"),
    )?;
    passed()
}

fn own_cache() -> Outcome {
    let units = Units::new("thin")?;
    let right = units.right(&[])?;
    for _ in 0..2 {
        let (said, made) = units.linked(
            &units.cache(),
            &["--device-linker=amdgcn-amd-amdhsa=--thinlto-cache-dir=own"],
        )?;
        expect_in(
            &said,
            "not cached: the cache does not support the linker argument `--thinlto-cache-dir=own`",
        )?;
        expect_not_in(&said, ".units")?;
        ensure(made == right, || format!("another library\n{said}"))?;
    }
    let own = files(&units.work.path().join("own"));
    ensure(own.len() >= COUNT, || format!("it was not used: {own:?}"))?;
    let (said, _) = units.linked(Path::new("off"), &[])?;
    expect_not_in(&said, "--thinlto-cache-dir")?;
    passed()
}

fn counted() -> Outcome {
    let units = Units::new("thin")?;
    units.expect(0, COUNT, &[])?;
    let all = units.stat("blobs")?;
    ensure(all > COUNT as u64, || {
        format!("{all} blobs for {COUNT} units and their image")
    })?;
    let size = units.stat("size")?;
    units.compile(0, 5)?;
    units.expect(COUNT - 1, 1, &[])?;
    expect_equal(
        "a unit more and an image",
        &(all + 2).to_string(),
        &units.stat("blobs")?.to_string(),
    )?;
    ensure(units.stat("size")? > size, || "they take no room")?;
    units.tool(&["gc", "--max-size=0"])?;
    expect_equal("what is left", "0", &units.stat("blobs")?.to_string())?;
    units.compile(0, 6)?;
    units.expect(0, COUNT, &[])?;
    units.tool(&["clear"])?;
    expect_equal("what is left", "0", &units.stat("blobs")?.to_string())?;
    units.compile(0, 7)?;
    units.expect(0, COUNT, &[])?;
    // A limit that is too small for any entry.
    units.tool(&["clear"])?;
    stderr_of(
        units
            .link(&units.cache(), &[])
            .env("OFFLD_CACHE_SIZE", "12K"),
    )?;
    ensure(units.stat("size")? <= 12 << 10, || "more than the limit")?;
    passed()
}

fn at_once() -> Outcome {
    let units = Units::new("thin")?;
    units.expect(0, COUNT, &[])?;
    let rounds: Vec<u32> = (2..4).collect();
    for round in rounds {
        units.compile(1, round)?;
        let spawned = (0..4).map(|which| {
            let mut link = units.link(&units.cache(), &["-o", &format!("{which}/out.so")]);
            std::fs::create_dir_all(units.work.path().join(which.to_string()))?;
            link.stderr(Stdio::null()).spawn()
        });
        let spawned = spawned.collect::<Result<Vec<_>, std::io::Error>>()?;
        for (which, mut link) in spawned.into_iter().enumerate() {
            ensure(link.wait()?.success(), || "a link has failed")?;
            let made = std::fs::read(units.work.path().join(format!("{which}/out.so")))?;
            let words = ["-o", &format!("{which}/out.so")];
            stderr_of(&mut units.link(Path::new("off"), &words))?;
            let right = std::fs::read(units.work.path().join(format!("{which}/out.so")))?;
            ensure(made == right, || format!("another library of link {which}"))?;
        }
        units.compile(2, round)?;
        units.expect(COUNT - 1, 1, &[])?;
    }
    passed()
}

/// The host as device: compiled and cached units give the correct numbers.
fn cpu() -> Outcome {
    let work = Work::new();
    let compile = |unit: u32, factor: u32| {
        let code = format!(
            "int f{unit}(int x) {{\n#pragma omp target map(tofrom: x)\n  x = x * {factor} + {unit};\n  return x;\n}}\n"
        );
        let source = work.file(&format!("f{unit}.c"), code);
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(["-foffload-lto=thin", "-O1", "-c"])
            .arg(source))
    };
    (0..3).try_for_each(|unit| compile(unit, 2).map(drop))?;
    let main = "#include <stdio.h>\nint f0(int), f1(int), f2(int);\nint main(void) { printf(\"%d\\n\", f2(f1(f0(5)))); return 0; }\n";
    run(work
        .command(llvm("clang"))
        .args(["-O1", "-c"])
        .arg(work.file("main.c", main)))?;
    let link = |expected: &str, answer: u32| {
        let mut link = work.command(llvm("clang"));
        link.arg("-B")
            .arg(&made().links)
            .arg("-fuse-ld=lld")
            .args(OFFLOAD)
            .args(&Release::newest().link);
        link.args([
            "-foffload-lto=thin",
            "f0.o",
            "f1.o",
            "f2.o",
            "main.o",
            "-o",
            "program",
            "-Wl,--wrapper-verbose",
        ]);
        expect_in(
            &stderr_of(link.env("OFFLD_CACHE", work.path().join("cache")))?,
            expected,
        )?;
        let printed = run_offloaded(&mut work.command("./program"))?;
        expect_equal(
            "what the program prints",
            &answer.to_string(),
            printed.trim(),
        )
    };
    link(
        "ThinLTO: 0 units found in the cache, 3 compiled",
        ((5 * 2) * 2 + 1) * 2 + 2,
    )?;
    link("found in the cache\n", 44)?;
    compile(1, 10)?;
    link(
        "ThinLTO: 2 units found in the cache, 1 compiled",
        ((5 * 2) * 10 + 1) * 2 + 2,
    )?;
    passed()
}

fn none() -> Outcome {
    let units = Units::new("full")?;
    expect_not_in(&units.linked(&units.cache(), &[])?.0, "thinlto")?;
    // A single unit is cached as an image.
    let units = Units::new("thin")?;
    let mut link = units
        .work
        .command(made().links.join("clang-linker-wrapper"));
    link.args([
        "--host-triple=x86_64-unknown-linux-gnu",
        "--wrapper-verbose",
        "-shared",
        "-o",
        "one.so",
        "f0.o",
    ]);
    link.arg(format!("--linker-path={}", llvm("ld.lld").display()))
        .args(super::THIN);
    link.arg("--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all");
    let stderr = stderr_of(
        link.env("OFFLD_CLANG", llvm("clang"))
            .env("OFFLD_CACHE", units.cache()),
    )?;
    expect_in(&stderr, "no earlier link of this output")?;
    expect_not_in(&stderr, "--thinlto-cache-dir")?;
    passed()
}

/// The compiler of LLVM 14 writes bitcode for full LTO even if ThinLTO is requested. offld goes by
/// the bitcode.
fn of_14() -> Outcome {
    let Some(release) = Release::of(14) else {
        return missing("LLVM 14 (make setup-releases)");
    };
    let units = Units::with_release(release, "thin")?;
    let right = units.right(&[])?;
    for _ in 0..2 {
        let (said, made) = units.linked(&units.cache(), &[])?;
        expect_not_in(&said, "--thinlto-")?;
        ensure(made == right, || {
            format!("another library than without the cache\n{said}")
        })?;
    }
    passed()
}

fn release_links(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let units = Units::with_release(release, "thin")?;
    units.expect(0, COUNT, &[])?;
    units.compile(0, 2)?;
    units.expect(COUNT - 1, 1, &[])?;
    let right = units.right(&[])?;
    for jobs in ["1", "8"] {
        let (said, made) = units.linked(
            &units.work.path().join(format!("cache.{jobs}")),
            &[&format!("--wrapper-jobs={jobs}")],
        )?;
        ensure(made == right, || {
            format!("another library with {jobs} jobs\n{said}")
        })?;
        expect_in(&said, "--thinlto-jobs=")?;
    }
    passed()
}
