//! What a device link is known by. After every change that could make another image of it, the program has that image; after every
//! change that cannot, the image is found. Nothing here looks into the cache: only at what programs do and what `--wrapper-verbose` says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

use crate::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made, passed, run, run_failing,
    run_offloaded, stderr_of, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("cache_keys::a_linker_that_is_replaced_in_place", replaced_linker),
        with_llvm("cache_keys::what_a_linker_says_is_said_again", said_again),
        with_llvm("cache_keys::links_that_cannot_be_known", unknown),
        with_llvm("cache_keys::images_of_gpus_are_the_same_by_the_linker_itself", gpu_images),
        with_llvm("cache_keys::one_processor_stands_for_another", processors),
        with_llvm("cache_keys::libraries_that_change_during_the_link", changes_meanwhile),
    ];
    for linker in ["lld", "bfd"] {
        trials.push(with_llvm(&format!("cache_keys::a_library_changes_appears_vanishes::{linker}"), move || library(linker)));
        trials.push(with_llvm(&format!("cache_keys::the_program_changes::{linker}"), move || program(linker)));
    }
    trials
}

const FOUND: &str = "device link for x86_64-pc-linux-gnu: found in the cache";

/// A program whose kernel calls a function of a library, and a cache.
struct Case {
    work: Work,
    linker: PathBuf,
}

impl Case {
    fn new(linker: &str) -> Result<Case, Failed> {
        let linker =
            if linker == "lld" { format!("{LLVM}/ld.lld").into() } else { which::which("ld.bfd").map_err(Failed::from)? };
        let case = Case { work: Work::new(), linker };
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

    /// The device code: adds `what` to what the library says.
    fn kernel(&self, what: u32) -> Result<(), Failed> {
        let code = format!(
            "#pragma omp begin declare target\nint helper(int);\n#pragma omp end declare target\n\
             int kernel(int x) {{\n#pragma omp target map(tofrom: x)\n  x = helper(x) + {what};\n  return x;\n}}\n"
        );
        self.compile("kernel", &code, &OFFLOAD)
    }

    fn main(&self, more: &str) -> Result<(), Failed> {
        let code =
            format!("#include <stdio.h>\nint kernel(int);\nint main(void) {{ printf(\"%d{more}\\n\", kernel(0)); return 0; }}\n");
        self.compile("main", &code, &[])
    }

    /// The library in `folder`, which says `answer`; always of one size, and dated the same.
    fn library(&self, folder: &str, answer: u32) -> Result<(), Failed> {
        self.compile("helper", &format!("int helper(int x) {{ return x + {}; }}\n", answer * 1000), &[])?;
        fs::create_dir_all(self.work.path().join(folder))?;
        let archive = format!("{folder}/libhelper.a");
        let _ = fs::remove_file(self.work.path().join(&archive));
        self.work.run(llvm("llvm-ar"), ["rcsD", &archive, "helper.o"])?;
        fs::File::options().append(true).open(self.work.path().join(&archive))?.set_modified(std::time::UNIX_EPOCH)?;
        rest();
        Ok(())
    }

    fn link(&self) -> Command {
        let mut command = self.work.command(llvm("clang"));
        command.arg("-B").arg(&made().links).arg(format!("--ld-path={}", self.linker.display())).args(OFFLOAD);
        command.args(&Release::newest().link).args(["-Lfirst", "-Lsecond", "kernel.o", "main.o", "-lhelper", "-o", "program"]);
        command.arg("-Wl,--wrapper-verbose").env("OFFLD_CACHE", self.work.path().join("cache"));
        command
    }

    /// Links with `more` on the line; what was said, and the program must print `answer`.
    fn linked(&self, more: &[&str], answer: &str) -> Result<String, Failed> {
        let said = stderr_of(self.link().args(more))?;
        let printed = run_offloaded(&mut self.work.command("./program"))?;
        expect_equal(&format!("what the program prints\n{said}"), answer, printed.trim_end())?;
        Ok(said)
    }
}

/// Files that were written a moment ago may be written again without a trace: links that read them are not kept.
fn rest() {
    std::thread::sleep(Duration::from_millis(60));
}

fn library(linker: &str) -> Outcome {
    let case = Case::new(linker)?;
    fs::create_dir(case.work.path().join("first"))?;
    case.library("second", 1)?;
    expect_in(
        &case.linked(&[], "1001")?,
        "device link for x86_64-pc-linux-gnu: not in the cache: it is linked here for the first time",
    )?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // It changes, without its size and date, and changes back: both are known.
    case.library("second", 2)?;
    expect_in(&case.linked(&[], "2001")?, "second/libhelper.a has changed")?;
    case.library("second", 1)?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // Another appears earlier in the search path, and goes again.
    case.library("first", 3)?;
    expect_in(&case.linked(&[], "3001")?, "first/libhelper.a has appeared")?;
    expect_in(&case.linked(&[], "3001")?, FOUND)?;
    fs::remove_file(case.work.path().join("first/libhelper.a"))?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // The other form of the library, which is preferred.
    let shared = ["-shared", "-o", "first/libhelper.so", "helper.o"];
    case.library("third", 4)?;
    case.work.run(llvm("clang"), shared)?;
    rest();
    let said = stderr_of(&mut case.link())?;
    expect_in(&said, "first/libhelper.so has appeared")?;
    let printed = run_offloaded(case.work.command("./program").env("LD_LIBRARY_PATH", "first"))?;
    expect_equal("with the shared library", "4001", printed.trim_end())?;
    fs::remove_file(case.work.path().join("first/libhelper.so"))?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // Without any there is nothing to link, whatever is in the cache.
    fs::remove_file(case.work.path().join("second/libhelper.a"))?;
    let said = run_failing(&mut case.link())?;
    expect_not_in(&said, FOUND)?;
    // The device's linker is not asked for a library that is in none of its folders: the host link reports it.
    expect_in(&said, "the command has changed")?;
    passed()
}

fn program(linker: &str) -> Outcome {
    let case = Case::new(linker)?;
    case.library("second", 1)?;
    expect_in(&case.linked(&[], "1001")?, "for the first time")?;
    // Host code only: the device code is what it was.
    case.main("!")?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    // The same again, compiled anew.
    case.kernel(1)?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    case.kernel(2)?;
    let said = case.linked(&[], "1002!")?;
    expect_in(&said, "the device code of kernel.o: .llvm.offloading has changed")?;
    // The registration does not depend on what the image holds.
    expect_in(&said, "registration code for openmp: found in the cache")?;
    case.kernel(1)?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    // Another command, another environment.
    let option = ["-Xoffload-linker", "--no-eh-frame-hdr"];
    expect_in(&case.linked(&option, "1001!")?, "the command has changed")?;
    expect_in(&case.linked(&option, "1001!")?, FOUND)?;
    let said = stderr_of(case.link().env("LD_RUN_PATH", "/nowhere"))?;
    expect_in(&said, "the environment has changed")?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    // The same words elsewhere mean other files.
    let elsewhere = case.work.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("second"))?;
    for name in ["kernel.o", "main.o"] {
        fs::copy(case.work.path().join(name), elsewhere.join(name))?;
    }
    case.library("elsewhere/second", 7)?;
    let said = stderr_of(case.link().current_dir(&elsewhere))?;
    expect_not_in(&said, FOUND)?;
    let printed = run_offloaded(case.work.command(elsewhere.join("program")).current_dir(&elsewhere))?;
    expect_equal("elsewhere", "7001!", printed.trim_end())?;
    expect_in(&case.linked(&[], "1001!")?, FOUND)?;
    passed()
}

fn replaced_linker() -> Outcome {
    let mut case = Case::new("lld")?;
    case.library("second", 1)?;
    let bin = case.work.path().join("llvm/bin");
    fs::create_dir_all(&bin)?;
    std::os::unix::fs::symlink(Path::new(LLVM).join("../lib"), case.work.path().join("llvm/lib"))?;
    let real = fs::canonicalize(Path::new(LLVM).join("ld.lld"))?;
    let original = fs::read(&real)?;
    let (linker, times) = (bin.join("ld.lld"), fs::metadata(&real)?.modified()?);
    let replace = |bytes: &[u8]| -> Result<(), Failed> {
        fs::write(&linker, bytes)?;
        fs::set_permissions(&linker, fs::metadata(&real)?.permissions())?;
        fs::File::open(&linker)?.set_modified(times)?;
        rest();
        Ok(())
    };
    replace(&original)?;
    case.linker = linker.clone();
    expect_in(&case.linked(&[], "1001")?, "for the first time")?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // Another build of the same size, the same date and even the same build id.
    let mut other = original.clone();
    *other.last_mut().ok_or("an empty linker")? ^= 1;
    replace(&other)?;
    expect_in(&case.linked(&[], "1001")?, "the linker ")?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    // A longer one.
    replace(&[&original[..], b"more"].concat())?;
    expect_in(&case.linked(&[], "1001")?, "has changed")?;
    expect_in(&case.linked(&[], "1001")?, FOUND)?;
    passed()
}

fn said_again() -> Outcome {
    let case = Case::new("lld")?;
    case.library("second", 1)?;
    let options = ["-Xoffload-linker", "-z", "-Xoffload-linker", "no-such-word"];
    const SAID: &str = "unknown -z value: no-such-word";
    for expected in ["for the first time", FOUND] {
        let said = case.linked(&options, "1001")?;
        expect_in(&said, expected)?;
        expect_in(&said, SAID)?;
        expect_equal("how often it is said", "1", &said.matches(SAID).count().to_string())?;
    }
    passed()
}

fn unknown() -> Outcome {
    let case = Case::new("lld")?;
    case.library("second", 1)?;
    let reasons: [(&[&str], &str); 4] = [
        (&["-Xoffload-linker", "-Map=map"], "the linker is given `-Map=map`"),
        (&["-Xoffload-linker", "--dependency-file=own.d"], "the linker is given `--dependency-file=own.d`"),
        (&["-Xoffload-linker", "--reproduce=r.tar"], "the linker is given `--reproduce=r.tar`"),
        (&["-Wl,--save-temps"], "device links are not cached"),
    ];
    for (options, reason) in reasons {
        for _ in 0..2 {
            expect_in(&case.linked(options, "1001")?, reason)?;
        }
    }
    ensure(case.work.path().join("map").exists(), || "the map that the user asked for was not written")?;
    let script = case.work.file("clang", format!("#!/bin/sh\nexec {} \"$@\"\n", llvm("clang").display()));
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let said = stderr_of(case.link().env("OFFLD_CLANG", &script))?;
    expect_in(&said, "clang is a script: what it runs is not known")?;
    let said = stderr_of(case.link().env("OFFLD_CACHE", "off"))?;
    expect_in(&said, "device links are not cached: OFFLD_CACHE=off")?;
    passed()
}

/// AMD's images, of several targets and of several inputs each, by the compiler, by its linker called directly, and found.
fn gpu_images() -> Outcome {
    let work = Work::new();
    let flags = ["-O2", "-fopenmp", "--offload-arch=gfx90a,gfx1030", "-nogpulib", "-fPIC", "-c"];
    for which in 0..3 {
        let code = format!("void f{which}(int *x) {{\n#pragma omp target map(tofrom: x[0:8])\n  x[{which}] += {which};\n}}\n");
        let source = work.file(&format!("f{which}.c"), code);
        run(work.command(llvm("clang")).args(flags).arg(source))?;
    }
    let link = |cache: &Path| -> Result<(String, Vec<u8>), Failed> {
        let mut command = work.command(made().links.join("clang-linker-wrapper"));
        let linker = format!("--linker-path={LLVM}/ld.lld");
        command.args(["--host-triple=x86_64-unknown-linux-gnu", &linker, "--wrapper-verbose", "-shared", "-o", "out.so"]);
        command.args(["--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all", "f0.o", "f1.o", "f2.o"]);
        let said = stderr_of(command.env("OFFLD_CLANG", llvm("clang")).env("OFFLD_CACHE", cache))?;
        Ok((said, fs::read(work.path().join("out.so"))?))
    };
    let (said, without) = link(Path::new("off"))?;
    expect_in(&said, "clang")?;
    let cache = work.path().join("cache");
    for (which, text) in [("kept", "for the first time"), ("found", "found in the cache")] {
        let (said, with) = link(&cache)?;
        let links = said.lines().filter(|line| line.contains("device link for") && line.contains(text)).count();
        expect_equal(&format!("how often it is {which}\n{said}"), "2", &links.to_string())?;
        ensure(with == without, || format!("other images than without the cache, when {which}"))?;
    }
    passed()
}

/// What clang would run for one of AMD's processors differs from what it would run for another in the processor's name alone: so it is
/// asked for one of them.
fn processors() -> Outcome {
    let work = Work::new();
    let line = |processor: &str| -> Result<String, Failed> {
        let flags = ["-###", "--no-default-config", "--target=amdgcn-amd-amdhsa", "-flto", "-Wl,--no-undefined", "/dev/null"];
        let said = stderr_of(work.command(llvm("clang")).args(flags).arg(format!("-mcpu={processor}")).args(["-o", "image"]))?;
        Ok(said.lines().filter(|line| line.starts_with(" \"")).map(|line| format!("{line}\n")).collect())
    };
    let known = line("gfx90a")?;
    expect_in(&known, "ld.lld")?;
    for processor in
        ["gfx700", "gfx803", "gfx900", "gfx906", "gfx908", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1100", "gfx1201"]
    {
        expect_equal(processor, &known.replace("gfx90a", processor), &line(processor)?)?;
    }
    for generic in ["gfx9-generic", "gfx9-4-generic", "gfx11-generic"] {
        expect_equal(generic, &known.replace("gfx90a", generic), &line(generic)?)?;
    }
    passed()
}

/// A library that is written over and over while it is linked: whatever was kept of that, it is not taken for the image of another.
fn changes_meanwhile() -> Outcome {
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
