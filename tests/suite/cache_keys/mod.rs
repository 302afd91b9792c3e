//! The cache key of a device link. After a change that could lead to another image, the program has
//! that image. After any other change, the link is a cache hit. These tests never look into the
//! cache, only at the programs' output and at `--wrapper-verbose`.

pub(crate) mod stale;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, llvm,
    made, passed, run, run_failing, run_offloaded, stderr_of, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm(
            "cache_keys::a_linker_that_is_replaced_in_place",
            replaced_linker,
        ),
        with_llvm(
            "cache_keys::what_a_linker_says_is_said_again",
            warnings_are_repeated,
        ),
        with_llvm("cache_keys::links_that_cannot_be_known", uncacheable),
        with_llvm(
            "cache_keys::images_of_gpus_are_the_same_by_the_linker_itself",
            gpu_images,
        ),
        with_llvm("cache_keys::one_processor_stands_for_another", processors),
        with_llvm("cache_keys::misses_explain_themselves", explained),
        with_llvm(
            "cache_keys::the_random_directory_of_rustc",
            directory_of_rustc,
        ),
        with_llvm(
            "cache_keys::libraries_that_change_during_the_link",
            changes_during_links,
        ),
    ];
    for linker in ["lld", "bfd"] {
        trials.push(with_llvm(
            &format!("cache_keys::a_library_changes_appears_vanishes::{linker}"),
            move || library(linker),
        ));
        trials.push(with_llvm(
            &format!("cache_keys::the_program_changes::{linker}"),
            move || program(linker),
        ));
    }
    trials.extend(stale::trials());
    trials
}

const FOUND: &str = "device link for x86_64-pc-linux-gnu: found in the cache";

/// A program whose kernel calls a library function, and a cache.
struct Case {
    work: Work,
    linker: PathBuf,
}

impl Case {
    fn new(linker: &str) -> Result<Case, Failed> {
        let linker = if linker == "lld" {
            format!("{LLVM}/ld.lld").into()
        } else {
            which::which("ld.bfd").map_err(Failed::from)?
        };
        let case = Case {
            work: Work::new(),
            linker,
        };
        case.kernel(1)?;
        case.main("")?;
        Ok(case)
    }

    fn compile(&self, name: &str, code: &str, flags: &[&str]) -> Result<(), Failed> {
        let source = self.work.file(&format!("{name}.c"), code);
        run(self
            .work
            .command(llvm("clang"))
            .args(flags)
            .args(["-O1", "-fPIC", "-c"])
            .arg(source)
            .args(["-o", &format!("{name}.o")]))?;
        Ok(())
    }

    /// Compiles device code that adds `what` to the result of the library.
    fn kernel(&self, what: u32) -> Result<(), Failed> {
        let code = format!(
            "#pragma omp begin declare target\nint helper(int);\n#pragma omp end declare target\n\
             int kernel(int x) {{\n#pragma omp target map(tofrom: x)\n  x = helper(x) + {what};\n  return x;\n}}\n"
        );
        self.compile("kernel", &code, &OFFLOAD)
    }

    fn main(&self, more: &str) -> Result<(), Failed> {
        let code = format!(
            "#include <stdio.h>\nint kernel(int);\nint main(void) {{ printf(\"%d{more}\\n\", kernel(0)); return 0; }}\n"
        );
        self.compile("main", &code, &[])
    }

    /// Builds the library in `folder`, whose function returns `answer`. Its size and timestamp are
    /// always the same.
    fn library(&self, folder: &str, answer: u32) -> Result<(), Failed> {
        self.compile(
            "helper",
            &format!("int helper(int x) {{ return x + {}; }}\n", answer * 1000),
            &[],
        )?;
        fs::create_dir_all(self.work.path().join(folder))?;
        let archive = format!("{folder}/libhelper.a");
        let _ = fs::remove_file(self.work.path().join(&archive));
        self.work
            .run(llvm("llvm-ar"), ["rcsD", &archive, "helper.o"])?;
        fs::File::options()
            .append(true)
            .open(self.work.path().join(&archive))?
            .set_modified(std::time::UNIX_EPOCH)?;
        let_timestamps_settle();
        Ok(())
    }

    fn link(&self) -> Command {
        let mut command = self.work.command(llvm("clang"));
        command
            .arg("-B")
            .arg(&made().links)
            .arg(format!("--ld-path={}", self.linker.display()))
            .args(OFFLOAD);
        command.args(&Release::newest().link).args([
            "-Lfirst", "-Lsecond", "kernel.o", "main.o", "-lhelper", "-o", "program",
        ]);
        command
            .arg("-Wl,--wrapper-verbose")
            .env("OFFLD_CACHE", self.work.path().join("cache"));
        command
    }

    /// Links with `more` arguments and runs the program, which must print `answer`. Returns stderr.
    fn linked(&self, more: &[&str], answer: &str) -> Result<String, Failed> {
        let stderr = stderr_of(self.link().args(more))?;
        let printed = run_offloaded(&mut self.work.command("./program"))?;
        expect_equal(
            &format!("what the program prints\n{stderr}"),
            answer,
            printed.trim_end(),
        )?;
        Ok(stderr)
    }
}

/// Waits until timestamps can reveal a later change. offld does not cache links that read files
/// written just before.
fn let_timestamps_settle() {
    std::thread::sleep(Duration::from_millis(60));
}

fn directory_of_rustc() -> Outcome {
    let case = Case::new("lld")?;
    case.library("second", 1)?;
    let folders = ["rustcA/raw-dylibs", "rustcB/raw-dylibs"];
    for folder in folders {
        fs::create_dir_all(case.work.path().join(folder))?;
    }
    let with = |folder: &str, answer| case.linked(&[&format!("-L{folder}")], answer);
    expect_not_in(&with(folders[0], "1001")?, FOUND)?;
    expect_in(&with(folders[1], "1001")?, FOUND)?;
    // A directory with a library counts. The linker searches it after the others.
    case.library(folders[1], 2)?;
    expect_not_in(&with(folders[1], "1001")?, FOUND)?;
    fs::remove_file(case.work.path().join("second/libhelper.a"))?;
    with(folders[1], "2001").map(|_| ())?;
    passed()
}

fn library(linker: &str) -> Outcome {
    let case = Case::new(linker)?;
    fs::create_dir(case.work.path().join("first"))?;
    case.library("second", 1)?;
    expect_in(
        &case.linked(&[], "1001")?,
        "device link for x86_64-pc-linux-gnu: not in the cache: no earlier link of this output is recorded on this machine",
    )?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // The library changes without a change of size or timestamp, and changes back. Both versions
    // are then cached.
    case.library("second", 2)?;
    expect_in(&case.linked(&[], "2001")?, "second/libhelper.a has changed")?;
    case.library("second", 1)?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // A library appears earlier in the search path, and disappears.
    case.library("first", 3)?;
    expect_in(&case.linked(&[], "3001")?, "first/libhelper.a has appeared")?;
    expect_in(&case.linked(&[], "3001")?, FOUND)?;
    fs::remove_file(case.work.path().join("first/libhelper.a"))?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // The other form of the library: linkers prefer a shared library to an archive.
    let shared = ["-shared", "-o", "first/libhelper.so", "helper.o"];
    case.library("third", 4)?;
    case.work.run(llvm("clang"), shared)?;
    let_timestamps_settle();
    let stderr = stderr_of(&mut case.link())?;
    expect_in(&stderr, "first/libhelper.so has appeared")?;
    let printed = run_offloaded(
        case.work
            .command("./program")
            .env("LD_LIBRARY_PATH", "first"),
    )?;
    expect_equal("with the shared library", "4001", printed.trim_end())?;
    fs::remove_file(case.work.path().join("first/libhelper.so"))?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // Without the library the link fails, in spite of the cached images.
    fs::remove_file(case.work.path().join("second/libhelper.a"))?;
    let stderr = run_failing(&mut case.link())?;
    expect_not_in(&stderr, FOUND)?;
    // The device linker is not asked for a library that none of its directories contains: the host
    // link reports it.
    expect_in(&stderr, "the linker argument `")?;
    passed()
}

/// The report of `offld cache why` about the last link of `program`.
fn last_link(case: &Case) -> Result<serde_json::Value, Failed> {
    let mut command = case.work.command(crate::support::offld());
    command.args(["cache", "why", "--json", "program"]);
    let report = run(command.env("OFFLD_CACHE", case.work.path().join("cache")))?;
    let report: serde_json::Value = serde_json::from_str(&report)?;
    expect_equal("schema", "1", &report["schema"].to_string())?;
    Ok(report["targets"][0]["links"][0].clone())
}

/// The report of `offld cache why` for people.
fn report(case: &Case) -> Result<String, Failed> {
    let mut command = case.work.command(crate::support::offld());
    command.args(["cache", "why", "program"]);
    run(command.env("OFFLD_CACHE", case.work.path().join("cache")))
}

/// A miss names arguments, variables and kernels with their values, compared with the most similar
/// link. The cache answers afterwards, too, and the log has all changes.
fn explained() -> Outcome {
    let case = Case::new("lld")?;
    case.library("second", 1)?;
    let mut why = case.work.command(crate::support::offld());
    let stderr = run_failing(
        why.args(["cache", "why", "program"])
            .env("OFFLD_CACHE", case.work.path().join("cache")),
    )?;
    expect_in(&stderr, "has no device link of `program`")?;
    case.linked(&[], "1001")?;
    // The names that cargo gives a program in addition to that of the link.
    fs::create_dir(case.work.path().join("deps"))?;
    stderr_of(case.link().args(["-o", "deps/program-1"]))?;
    fs::hard_link(
        case.work.path().join("deps/program-1"),
        case.work.path().join("by_cargo"),
    )?;
    let mut why = case.work.command(crate::support::offld());
    let report_by_cargo = run(why
        .args(["cache", "why", "by_cargo"])
        .env("OFFLD_CACHE", case.work.path().join("cache")))?;
    expect_in(&report_by_cargo, "found in the cache")?;
    expect_equal(
        "first",
        r#""miss""#,
        &last_link(&case)?["outcome"].to_string(),
    )?;
    // An experiment, and back.
    let log = case.work.path().join("log");
    let mut link = case.link();
    link.args(["-Xoffload-linker", "--no-eh-frame-hdr"]);
    stderr_of(
        link.env("LC_ALL", "C.UTF-8")
            .env("LD_RUN_PATH", "/x")
            .env("OFFLD_CACHE_LOG", &log),
    )?;
    let experiment = last_link(&case)?;
    let changes = &experiment["changes"];
    expect_equal(
        "experiment",
        r#""miss""#,
        &experiment["outcome"].to_string(),
    )?;
    let logged: serde_json::Value = serde_json::from_str(&fs::read_to_string(&log)?)?;
    expect_equal(
        "in the log",
        &changes.to_string(),
        &logged["changes"].to_string(),
    )?;
    expect_equal(
        "changes",
        r#"[{"change":"added","kind":"argument","name":"--no-eh-frame-hdr"},{"change":"changed","kind":"variable","name":"LC_ALL","new":"C.UTF-8","old":"C"},{"change":"added","kind":"variable","name":"LD_RUN_PATH","new":"/x"}]"#,
        &changes.to_string(),
    )?;
    // The next change is compared with the most similar link, not with the experiment.
    case.kernel(2)?;
    let stderr = case.linked(&[], "1002")?;
    expect_in(
        &stderr,
        "not in the cache: the device code of kernel.o: .llvm.offloading has changed\n",
    )?;
    // A line above the kernel.
    let source = fs::read_to_string(case.work.path().join("kernel.c"))?;
    case.compile("kernel", &format!("\n{source}"), &OFFLOAD)?;
    let stderr = case.linked(&[], "1002")?;
    expect_in(
        &stderr,
        "the kernel kernel has moved from line 5 to line 6, the device code of kernel.o",
    )?;
    // A hit does not hide the reason of the miss before.
    case.linked(&[], "1002")?;
    let last = last_link(&case)?;
    expect_equal("last", r#""miss""#, &last["outcome"].to_string())?;
    ensure(last["hit_us"].is_u64(), || last.to_string())?;
    expect_in(&report(&case)?, "\n    found in the cache since 2")?;
    // A link that cannot be cached is remembered.
    let mut map = case.link();
    run(map.args(["-Xoffload-linker", "-Map=map"]))?;
    expect_in(
        &report(&case)?,
        "  not cached\n    the cache does not support the linker argument `-Map=map`\n",
    )?;
    // Stable names that were turned off come before the device code that they change.
    let stderr = stderr_of(case.link().env("OFFLD_STABLE_NAMES", "off"))?;
    expect_in(
        &stderr,
        "not in the cache: the kernels no longer have stable names, the device code of kernel.o",
    )?;
    // Contents under another name are the same.
    fs::rename(
        case.work.path().join("kernel.o"),
        case.work.path().join("other.o"),
    )?;
    let mut link = case.link();
    link.args(["-Xoffload-linker", "--no-eh-frame-hdr"]);
    let words: Vec<_> = link.get_args().map(|word| word.to_owned()).collect();
    let words = words.into_iter().map(|word| {
        if word == "kernel.o" {
            "other.o".into()
        } else {
            word
        }
    });
    let mut renamed = case.work.command(llvm("clang"));
    renamed
        .args(words)
        .env("OFFLD_CACHE", case.work.path().join("cache"));
    let stderr = stderr_of(&mut renamed)?;
    expect_in(
        &stderr,
        "not in the cache: the linker argument `--no-eh-frame-hdr` was added\n",
    )?;
    expect_in(
        &report(&case)?,
        "  not in the cache\n    the linker argument `--no-eh-frame-hdr` was added\n",
    )?;
    passed()
}

fn program(linker: &str) -> Outcome {
    let case = Case::new(linker)?;
    case.library("second", 1)?;
    expect_in(&case.linked(&[], "1001")?, "no earlier link of this output")?;
    // Only host code changes; the device code stays the same.
    case.main("!")?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    // The same source, compiled again.
    case.kernel(1)?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    case.kernel(2)?;
    let stderr = case.linked(&[], "1002!")?;
    expect_in(
        &stderr,
        "the device code of kernel.o: .llvm.offloading has changed",
    )?;
    // Registration code does not depend on the contents of the image.
    expect_in(&stderr, "registration code for openmp: found in the cache")?;
    case.kernel(1)?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    // A different command line, and a different environment.
    let option = ["-Xoffload-linker", "--no-eh-frame-hdr"];
    expect_in(
        &case.linked(&option, "1001!")?,
        "the linker argument `--no-eh-frame-hdr` was added",
    )?;
    expect_in(&case.linked(&option, "1001!")?, FOUND)?;
    let stderr = stderr_of(case.link().env("LD_RUN_PATH", "/nowhere"))?;
    expect_in(&stderr, "LD_RUN_PATH was set to `/nowhere`")?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    // The same arguments in another directory refer to other files.
    let elsewhere = case.work.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("second"))?;
    for name in ["kernel.o", "main.o"] {
        fs::copy(case.work.path().join(name), elsewhere.join(name))?;
    }
    case.library("elsewhere/second", 7)?;
    let stderr = stderr_of(case.link().current_dir(&elsewhere))?;
    expect_not_in(&stderr, FOUND)?;
    let printed = run_offloaded(
        case.work
            .command(elsewhere.join("program"))
            .current_dir(&elsewhere),
    )?;
    expect_equal("elsewhere", "7001!", printed.trim_end())?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    passed()
}

fn replaced_linker() -> Outcome {
    let mut case = Case::new("lld")?;
    case.library("second", 1)?;
    let bin = case.work.path().join("llvm/bin");
    fs::create_dir_all(&bin)?;
    std::os::unix::fs::symlink(
        Path::new(LLVM).join("../lib"),
        case.work.path().join("llvm/lib"),
    )?;
    let real = fs::canonicalize(Path::new(LLVM).join("ld.lld"))?;
    let original = fs::read(&real)?;
    let (linker, times) = (bin.join("ld.lld"), fs::metadata(&real)?.modified()?);
    let replace = |bytes: &[u8]| -> Result<(), Failed> {
        fs::write(&linker, bytes)?;
        fs::set_permissions(&linker, fs::metadata(&real)?.permissions())?;
        fs::File::open(&linker)?.set_modified(times)?;
        let_timestamps_settle();
        Ok(())
    };
    replace(&original)?;
    case.linker = linker.clone();
    expect_in(&case.linked(&[], "1001")?, "no earlier link of this output")?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // A different linker of the same size, timestamp and build id.
    let mut other = original.clone();
    *other.last_mut().ok_or("an empty linker")? ^= 1;
    replace(&other)?;
    expect_in(&case.linked(&[], "1001")?, "the linker ")?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // A longer linker.
    replace(&[&original[..], b"more"].concat())?;
    expect_in(&case.linked(&[], "1001")?, "has changed")?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // A third linker that differs from the first only in contents. The image of the first must not
    // be reused.
    let mut third = original.clone();
    *third.last_mut().ok_or("an empty linker")? ^= 2;
    replace(&third)?;
    expect_not_in(&case.linked(&[], "1001")?, FOUND)?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    passed()
}

fn warnings_are_repeated() -> Outcome {
    let case = Case::new("lld")?;
    case.library("second", 1)?;
    let options = ["-Xoffload-linker", "-z", "-Xoffload-linker", "no-such-word"];
    const WARNING: &str = "unknown -z value: no-such-word";
    for expected in ["no earlier link of this output", FOUND] {
        let stderr = case.linked(&options, "1001")?;
        expect_in(&stderr, expected)?;
        expect_in(&stderr, WARNING)?;
        expect_equal(
            "how often it is said",
            "1",
            &stderr.matches(WARNING).count().to_string(),
        )?;
    }
    passed()
}

fn uncacheable() -> Outcome {
    let case = Case::new("lld")?;
    case.library("second", 1)?;
    let reasons: [(&[&str], &str); 4] = [
        (
            &["-Xoffload-linker", "-Map=map"],
            "the cache does not support the linker argument `-Map=map`",
        ),
        (
            &["-Xoffload-linker", "--dependency-file=own.d"],
            "the cache does not support the linker argument `--dependency-file=own.d`",
        ),
        (
            &["-Xoffload-linker", "--reproduce=r.tar"],
            "the cache does not support the linker argument `--reproduce=r.tar`",
        ),
        (&["-Wl,--save-temps"], "device links are not cached"),
    ];
    for (options, reason) in reasons {
        for _ in 0..2 {
            expect_in(&case.linked(options, "1001")?, reason)?;
        }
    }
    ensure(
        case.work.path().join("map").exists(),
        || "the map that the user asked for was not written",
    )?;
    let script = case.work.file(
        "clang",
        format!("#!/bin/sh\nexec {} \"$@\"\n", llvm("clang").display()),
    );
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let stderr = stderr_of(case.link().env("OFFLD_CLANG", &script))?;
    expect_in(&stderr, "clang is a script, which can run any program")?;
    let stderr = stderr_of(case.link().env("OFFLD_CACHE", "off"))?;
    expect_in(&stderr, "device links are not cached: OFFLD_CACHE=off")?;
    passed()
}

/// AMD images for several targets, each from several inputs: linked by the compiler, by its linker
/// directly, and from the cache.
fn gpu_images() -> Outcome {
    let work = Work::new();
    let flags = [
        "-O2",
        "-fopenmp",
        "--offload-arch=gfx90a,gfx1030",
        "-nogpulib",
        "-fPIC",
        "-c",
    ];
    for which in 0..3 {
        let code = format!(
            "void f{which}(int *x) {{\n#pragma omp target map(tofrom: x[0:8])\n  x[{which}] += {which};\n}}\n"
        );
        let source = work.file(&format!("f{which}.c"), code);
        run(work.command(llvm("clang")).args(flags).arg(source))?;
    }
    let link = |cache: &Path| -> Result<(String, Vec<u8>), Failed> {
        let mut command = work.command(made().links.join("clang-linker-wrapper"));
        let linker = format!("--linker-path={LLVM}/ld.lld");
        command.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            &linker,
            "--wrapper-verbose",
            "-shared",
            "-o",
            "out.so",
        ]);
        command.args([
            "--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all",
            "f0.o",
            "f1.o",
            "f2.o",
        ]);
        let stderr = stderr_of(
            command
                .env("OFFLD_CLANG", llvm("clang"))
                .env("OFFLD_CACHE", cache),
        )?;
        Ok((stderr, fs::read(work.path().join("out.so"))?))
    };
    let (stderr, without) = link(Path::new("off"))?;
    expect_in(&stderr, "clang")?;
    let cache = work.path().join("cache");
    for (which, text) in [
        ("kept", "no earlier link of this output"),
        ("found", "found in the cache"),
    ] {
        let (stderr, with) = link(&cache)?;
        let links = stderr
            .lines()
            .filter(|line| line.contains("device link for") && line.contains(text))
            .count();
        expect_equal(
            &format!("how often it is {which}\n{stderr}"),
            "2",
            &links.to_string(),
        )?;
        ensure(with == without, || {
            format!("other images than without the cache, when {which}")
        })?;
    }
    passed()
}

/// clang's commands for two AMD architectures differ only in the name of the architecture. offld
/// therefore asks clang for one of them.
fn processors() -> Outcome {
    let work = Work::new();
    let line = |processor: &str| -> Result<String, Failed> {
        let flags = [
            "-###",
            "--no-default-config",
            "--target=amdgcn-amd-amdhsa",
            "-flto",
            "-Wl,--no-undefined",
            "/dev/null",
        ];
        let stderr = stderr_of(
            work.command(llvm("clang"))
                .args(flags)
                .arg(format!("-mcpu={processor}"))
                .args(["-o", "image"]),
        )?;
        Ok(stderr
            .lines()
            .filter(|line| line.starts_with(" \""))
            .map(|line| format!("{line}\n"))
            .collect())
    };
    let known = line("gfx90a")?;
    expect_in(&known, "ld.lld")?;
    for processor in [
        "gfx700", "gfx803", "gfx900", "gfx906", "gfx908", "gfx942", "gfx950", "gfx1010", "gfx1030",
        "gfx1100", "gfx1201",
    ] {
        expect_equal(
            processor,
            &known.replace("gfx90a", processor),
            &line(processor)?,
        )?;
    }
    for generic in ["gfx9-generic", "gfx9-4-generic", "gfx11-generic"] {
        expect_equal(generic, &known.replace("gfx90a", generic), &line(generic)?)?;
    }
    passed()
}

/// A library that is replaced repeatedly during links. A cached image must never be used for
/// different contents.
fn changes_during_links() -> Outcome {
    const LINKS: u32 = 12;
    let case = Case::new("lld")?;
    let archive = case.work.path().join("second/libhelper.a");
    let mut contents = Vec::new();
    for answer in [5, 6] {
        case.library("second", answer)?;
        contents.push(fs::read(&archive)?);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), Failed> {
        let writer = scope.spawn(|| -> std::io::Result<()> {
            while !done.load(Ordering::SeqCst) {
                for bytes in &contents {
                    fs::write(archive.with_extension("new"), bytes)?;
                    fs::rename(archive.with_extension("new"), &archive)?;
                    std::thread::sleep(Duration::from_millis(30));
                }
            }
            Ok(())
        });
        let links = (0..LINKS).try_for_each(|_| run(&mut case.link()).map(drop));
        done.store(true, Ordering::SeqCst);
        writer.join().map_err(|_| "the writer panicked")??;
        links
    })?;
    for answer in [5, 6, 5] {
        case.library("second", answer)?;
        case.linked(&[], &format!("{answer}001"))?;
    }
    passed()
}
