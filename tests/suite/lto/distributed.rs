//! `--wrapper-distribute` and `offld thinlto-distributor`: translation units that are compiled and
//! cached one by one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use super::{COUNT, THIN, Units, files};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, llvm,
    made, offld, passed, run, run_failing, run_offloaded, stderr_of, with_llvm,
};

const DISTRIBUTE: &str = "--wrapper-distribute";

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("lto::distributed_units_make_the_same_image", same_image),
        with_llvm(
            "lto::a_changed_unit_and_those_that_import_it_are_compiled",
            importers,
        ),
        with_llvm(
            "lto::distributed_units_come_from_another_machine",
            another_machine,
        ),
        with_llvm("lto::full_and_thin_units_are_distributed_together", mixed),
        with_llvm("lto::a_distributed_program_for_the_cpu_runs", cpu),
        with_llvm(
            "lto::what_cannot_be_distributed_is_linked_as_ever",
            not_distributed,
        ),
        with_llvm("lto::a_distributed_unit_that_fails_is_named", failing),
        with_llvm("lto::damaged_objects_of_distributed_units", damaged),
        with_llvm("lto::a_stopped_distributor_leaves_nothing", stopped),
        with_llvm("lto::the_distributor_by_hand", by_hand),
    ]
}

/// A shared library of translation units for one AMD GPU. Unit n calls unit n + 1.
struct Chain {
    work: Work,
    /// The directory with its units.
    folder: PathBuf,
}

impl Chain {
    fn new(folder: &str, lto: [&str; COUNT]) -> Result<Chain, Failed> {
        let work = Work::new();
        let folder = work.path().join(folder);
        fs::create_dir_all(&folder)?;
        let chain = Chain { work, folder };
        (0..COUNT).try_for_each(|unit| chain.compile(unit, 1, lto[unit]))?;
        Ok(chain)
    }

    fn compile(&self, unit: usize, what: u32, lto: &str) -> Result<(), Failed> {
        let next = unit + 1;
        let call = if next < COUNT {
            format!("g{next}(x)")
        } else {
            "x".to_owned()
        };
        let declared = if next < COUNT {
            format!("int g{next}(int);\n")
        } else {
            String::new()
        };
        let code = format!(
            "#pragma omp begin declare target\n{declared}int g{unit}(int x) {{ return {call} * {what} + \
             {unit}; }}\n#pragma omp end declare target\nint f{unit}(int x) {{\n  int y = 0;\n#pragma omp target map(tofrom: x, \
             y)\n  y = g{unit}(x) / {what};\n  return y;\n}}\n"
        );
        let source = self.folder.join(format!("f{unit}.c"));
        fs::write(&source, code)?;
        let mut compile = self.work.command(llvm("clang"));
        compile
            .args([
                "-O2",
                "-fopenmp",
                "-nogpulib",
                "-fPIC",
                "-c",
                "--offload-arch=gfx90a",
            ])
            .arg(format!("-foffload-lto={lto}"));
        run(compile.arg(source).current_dir(&self.folder)).map(drop)
    }

    /// The wrapper's command for these units, with the additional arguments `more`.
    fn link(&self, cache: &Path, more: &[&str]) -> Command {
        let mut link = self.work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--wrapper-verbose",
            "-shared",
            "-o",
            "out.so",
        ]);
        link.arg(format!("--linker-path={LLVM}/ld.lld"));
        link.arg("--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all")
            .args(&THIN[..1]);
        link.args((0..COUNT).map(|unit| format!("f{unit}.o")))
            .args(more)
            .current_dir(&self.folder);
        link.env("OFFLD_CLANG", llvm("clang"))
            .env("OFFLD_CACHE", cache);
        link
    }

    fn linked(&self, cache: &Path, more: &[&str]) -> Result<(String, Vec<u8>), Failed> {
        let stderr = stderr_of(&mut self.link(cache, more))?;
        Ok((stderr, fs::read(self.folder.join("out.so"))?))
    }

    /// A distributed link, which must make the correct library and report these numbers of units.
    fn expect(&self, found: usize, compiled: usize) -> Result<String, Failed> {
        let (said, made) = self.linked(&self.cache(), &[DISTRIBUTE])?;
        expect_in(&said, &unit_counts(found, compiled))?;
        let (_, right) = self.linked(Path::new("off"), &[])?;
        ensure(made == right, || {
            format!("another library than by the linker alone\n{said}")
        })?;
        Ok(said)
    }

    fn cache(&self) -> PathBuf {
        self.work.path().join("cache")
    }
}

fn unit_counts(found: usize, compiled: usize) -> String {
    format!("ThinLTO: {found} units found in the cache, {compiled} compiled")
}

fn same_image() -> Outcome {
    let units = Units::new("thin")?;
    let right = units.right(&[])?;
    for jobs in 1..=8 {
        let cache = units.work.path().join(format!("cache.{jobs}"));
        let (said, cold) =
            units.linked(&cache, &[DISTRIBUTE, &format!("--wrapper-jobs={jobs}")])?;
        expect_in(&said, &unit_counts(0, COUNT))?;
        expect_in(&said, "--thinlto-distributor=")?;
        ensure(cold == right, || {
            format!("another library with {jobs} jobs\n{said}")
        })?;
    }
    let mut by_variable = units.link(&units.cache(), &[]);
    expect_in(
        &stderr_of(by_variable.env("OFFLD_DISTRIBUTE", "on"))?,
        &unit_counts(0, COUNT),
    )?;
    expect_in(
        &units.linked(&units.cache(), &[DISTRIBUTE])?.0,
        "found in the cache\n",
    )?;
    let mut option_wins = units.link(
        &units.cache(),
        &[
            "--wrapper-distribute=off",
            "--wrapper-jobs=1",
            "--no-offld-note",
        ],
    );
    expect_not_in(
        &stderr_of(option_wins.env("OFFLD_DISTRIBUTE", "on"))?,
        "--thinlto-distributor=",
    )?;
    let said = run_failing(
        units
            .link(&units.cache(), &[])
            .env("OFFLD_DISTRIBUTE", "some"),
    )?;
    expect_in(&said, "OFFLD_DISTRIBUTE=some: expected auto, on or off")?;
    units.work.expect_no_temps()?;
    passed()
}

fn importers() -> Outcome {
    let chain = Chain::new("one", ["thin"; COUNT])?;
    chain.expect(0, COUNT)?;
    // Unit 1 imports code from unit 2, and unit 0 does so through unit 1.
    chain.compile(2, 7, "thin")?;
    chain.expect(1, 3)?;
    chain.compile(0, 7, "thin")?;
    chain.expect(3, 1)?;
    // Another image of the same units. Options for the linker alone do not invalidate units.
    let word = "--device-linker=amdgcn-amd-amdhsa=--build-id";
    let (said, made) = chain.linked(&chain.cache(), &[DISTRIBUTE, word])?;
    expect_in(&said, &unit_counts(COUNT, 0))?;
    ensure(made == chain.linked(Path::new("off"), &[word])?.1, || {
        format!("another library\n{said}")
    })?;
    chain.work.expect_no_temps()?;
    passed()
}

/// Two directories that share only the cache and the objects. The names of OpenMP kernels depend on
/// files, so the objects must be the same.
fn another_machine() -> Outcome {
    let here = Chain::new("one", ["thin"; COUNT])?;
    let there = Chain {
        work: Work::new(),
        folder: PathBuf::new(),
    };
    let there = Chain {
        folder: there.work.path().join("another/folder"),
        ..there
    };
    fs::create_dir_all(&there.folder)?;
    let copy = || {
        let copied = |unit| {
            fs::copy(
                here.folder.join(format!("f{unit}.o")),
                there.folder.join(format!("f{unit}.o")),
            )
        };
        (0..COUNT).try_for_each(|unit| copied(unit).map(drop))
    };
    let remote = format!("file://{}", here.work.path().join("remote").display());
    let link = |chain: &Chain, cache: &str| {
        let cache = chain.work.path().join(cache);
        let said = stderr_of(
            chain
                .link(&cache, &[DISTRIBUTE])
                .env("OFFLD_CACHE_REMOTE", &remote),
        )?;
        Ok::<_, Failed>((said, fs::read(chain.folder.join("out.so"))?))
    };
    let (said, first) = link(&here, "cache")?;
    expect_in(&said, &unit_counts(0, COUNT))?;
    copy()?;
    let (said, second) = link(&there, "cache")?;
    expect_in(&said, "found in the remote cache")?;
    expect_not_in(&said, "--thinlto-distributor=")?;
    ensure(first == second, || "two folders make two libraries")?;
    // The image changes, but most of its units do not.
    here.compile(0, 5, "thin")?;
    copy()?;
    let (said, changed) = link(&there, "new cache")?;
    expect_in(
        &said,
        "ThinLTO: 3 units found in the cache (3 of them in the remote cache), 1 compiled",
    )?;
    ensure(changed == there.linked(Path::new("off"), &[])?.1, || {
        format!("another library\n{said}")
    })?;
    passed()
}

fn mixed() -> Outcome {
    let chain = Chain::new("one", ["thin", "full", "thin", "full"])?;
    chain.expect(0, 2)?;
    chain.compile(0, 3, "thin")?;
    chain.expect(1, 1)?;
    passed()
}

/// The host as device, in a directory whose name contains shell syntax.
fn cpu() -> Outcome {
    let work = Work::new();
    let folder = work.path().join("a folder with 'quotes' and $HOME");
    fs::create_dir_all(&folder)?;
    let compile = |name: &str, code: &str, words: &[&str]| {
        fs::write(folder.join(name), code)?;
        run(work
            .command(llvm("clang"))
            .args(words)
            .args(["-O1", "-c", name])
            .current_dir(&folder))
    };
    let of_units: Vec<&str> = OFFLOAD
        .iter()
        .copied()
        .chain(["-foffload-lto=thin"])
        .collect();
    let unit = |unit: u32, factor: u32| {
        let code = format!(
            "int f{unit}(int x) {{\n#pragma omp target map(tofrom: x)\n  x = x * {factor} + {unit};\n  return x;\n}}\n"
        );
        compile(&format!("f{unit}.c"), &code, &of_units)
    };
    (0..3).try_for_each(|at| unit(at, 2).map(drop))?;
    let main = "#include <stdio.h>\nint f0(int), f1(int), f2(int);\nint main(void) { printf(\"%d\\n\", f2(f1(f0(5)))); return 0; }\n";
    compile("main.c", main, &[])?;
    let temp = folder.join("tmp");
    fs::create_dir_all(&temp)?;
    let link = |more: &[&str], cache: &str| {
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
        ])
        .args(more);
        let cache = if cache == "off" {
            cache.into()
        } else {
            work.path().join(cache).into_os_string()
        };
        let said = stderr_of(
            link.env("OFFLD_CACHE", cache)
                .env("TMPDIR", &temp)
                .current_dir(&folder),
        )?;
        Ok::<_, Failed>((said, fs::read(folder.join("program"))?))
    };
    let distribute: &[&str] = &["-Wl,--wrapper-distribute"];
    for (factor, found, answer) in [(2, 0, 44), (10, 2, 204)] {
        unit(1, factor)?;
        let (said, program) = link(distribute, "cache")?;
        expect_in(&said, &unit_counts(found, 3 - found))?;
        let printed = run_offloaded(work.command(folder.join("program")).current_dir(&folder))?;
        expect_equal(
            "what the program prints",
            &answer.to_string(),
            printed.trim(),
        )?;
        ensure(program == link(&[], "off")?.1, || {
            format!("another program\n{said}")
        })?;
    }
    passed()
}

fn not_distributed() -> Outcome {
    let units = Units::new("thin")?;
    let why = "ThinLTO units are compiled in the linker's own process: ";
    for (word, reason) in [
        (
            "--device-linker=amdgcn-amd-amdhsa=--lto-O1",
            "the compiler has no equivalent of the linker argument `--lto-O1`",
        ),
        (
            "--offload-opt=-code-model=large",
            "does not support all of the linker's LLVM options",
        ),
    ] {
        let (said, made) = units.linked(&units.cache(), &[DISTRIBUTE, word])?;
        expect_in(&said, why)?;
        expect_in(&said, reason)?;
        ensure(made == units.right(&[word])?, || {
            format!("another library with {word}\n{said}")
        })?;
    }
    let full = Units::new("full")?;
    let (said, made) = full.linked(&full.cache(), &[DISTRIBUTE])?;
    expect_not_in(&said, "thinlto")?;
    ensure(made == full.right(&[])?, || {
        format!("another library\n{said}")
    })?;
    // An LLVM option that both the compiler and the linker accept goes to both.
    let (said, made) = units.linked(
        &units.cache(),
        &[DISTRIBUTE, "--offload-opt=-amdgpu-early-inline-all"],
    )?;
    expect_in(
        &said,
        "--thinlto-remote-compiler-arg=-amdgpu-early-inline-all",
    )?;
    ensure(
        made == units.right(&["--offload-opt=-amdgpu-early-inline-all"])?,
        || format!("another library\n{said}"),
    )?;
    passed()
}

fn failing() -> Outcome {
    let work = Work::new();
    work.file("a.o", "no bitcode");
    work.file("a.bc", "no index");
    let list = |program: &str| {
        format!(
            r#"{{"common":{{"linker_output":"x","args":["{program}","-c"],"inputs":[]}},"jobs":[{{"args":["a.o","-fthinlto-index=a.bc","-o","a.native.o"],
               "inputs":["a.o","a.bc"],"outputs":["a.native.o"]}}]}}"#
        )
    };
    let distribute = |program: &str, more: &[&str]| {
        let jobs = work.file("jobs.json", list(program));
        let mut command = work.command(offld());
        command.arg("thinlto-distributor").args(more).arg(jobs);
        run_failing(command.env("OFFLD_CACHE", work.path().join("cache")))
    };
    let clang = llvm("clang");
    let messages = distribute(&clang.to_string_lossy(), &[])?;
    expect_equal(
        "errors",
        "1",
        &messages.matches("offld: error: ").count().to_string(),
    )?;
    expect_in(
        &messages,
        "offld: error: ThinLTO code generation for `a.o` failed: 'clang' exited with status 1",
    )?;
    expect_in(
        &distribute("/nowhere/clang", &[])?,
        "cannot run `/nowhere/clang`",
    )?;
    // With `--report`, the report contains the error.
    let messages = distribute("/bin/false", &["--report=report", "--jobs=1"])?;
    expect_not_in(&messages, "error:")?;
    expect_in(
        &fs::read_to_string(work.path().join("report"))?,
        "for `a.o` failed: 'false' exited with status 1",
    )?;
    let mut none = work.command(offld());
    let messages = run_failing(none.args(["thinlto-distributor", "nothing.json"]))?;
    expect_in(&messages, "cannot read the list of jobs `nothing.json`")?;
    // In a device link, the error names the input and not the temporary file.
    let units = Units::new("thin")?;
    let mut link = units.link(&units.cache(), &[DISTRIBUTE]);
    let messages = run_failing(link.env(
        "CCC_OVERRIDE_OPTIONS",
        "s/^-fthinlto-index=.*$/--no-such-option/",
    ))?;
    expect_in(&messages, "unknown argument: '--no-such-option'")?;
    for unit in 0..COUNT {
        expect_in(
            &messages,
            &format!(
                "ThinLTO code generation for `f{unit}.o: .llvm.offloading` failed: 'clang' exited with status 1"
            ),
        )?;
    }
    expect_equal(
        "errors of ours",
        "1",
        &messages
            .matches("clang-linker-wrapper: error: ")
            .count()
            .to_string(),
    )?;
    units.work.expect_no_temps()?;
    passed()
}

fn damaged() -> Outcome {
    let chain = Chain::new("one", ["thin"; COUNT])?;
    chain.expect(0, COUNT)?;
    for file in files(&chain.cache()) {
        use std::os::unix::fs::PermissionsExt;
        let bytes = fs::read(&file)?;
        if bytes.starts_with(b"\x7fELF") {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
            fs::write(&file, &bytes[..bytes.len() / 2])?;
        }
    }
    chain.compile(0, 9, "thin")?;
    chain.expect(0, COUNT)?;
    chain.compile(0, 10, "thin")?;
    chain.expect(3, 1)?;
    passed()
}

fn stopped() -> Outcome {
    let units = Units::new("thin")?;
    let begun = Instant::now();
    let mut stopped = 0;
    for pause in [50, 100, 150, 200, 250, 300, 400, 500] {
        let cache = units.work.path().join(format!("cache.{pause}"));
        let mut link = units
            .link(&cache, &[DISTRIBUTE, "--wrapper-jobs=1"])
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(pause));
        if link.try_wait()?.is_some() || begun.elapsed() > Duration::from_secs(30) {
            link.wait()?;
            break;
        }
        run(Command::new("kill").arg("-TERM").arg(link.id().to_string()))?;
        // The link may have finished before the signal.
        if link.wait()?.success() {
            break;
        }
        units.work.expect_no_temps()?;
        stopped += 1;
        // The entries that were cached until then are correct.
        let (said, made) = units.linked(&cache, &[DISTRIBUTE])?;
        ensure(made == units.right(&[])?, || {
            format!("another library\n{said}")
        })?;
    }
    ensure(stopped > 0, || "no link was stopped")?;
    passed()
}

/// Any ThinLTO link with ld.lld, here one of host code.
fn by_hand() -> Outcome {
    let work = Work::new();
    for (name, code) in [
        ("a", "int b(int);\nint a(int x) { return b(x) + 1; }\n"),
        ("b", "int b(int x) { return x * 3; }\n"),
    ] {
        let source = work.file(&format!("{name}.c"), code);
        run(work
            .command(llvm("clang"))
            .args(["-O2", "-fPIC", "-flto=thin", "-c"])
            .arg(source))?;
    }
    let link = |output: &str, more: &[String], cache: &Path| {
        let mut link = work.command(llvm("ld.lld"));
        stderr_of(
            link.args(["-shared", "a.o", "b.o", "-o", output])
                .args(more)
                .env("OFFLD_CACHE", cache),
        )
    };
    link("right.so", &[], Path::new("off"))?;
    let right = fs::read(work.path().join("right.so"))?;
    let distributor = [
        format!("--thinlto-distributor={}", offld().display()),
        "--thinlto-distributor-arg=thinlto-distributor".to_owned(),
        "--thinlto-distributor-arg=--verbose".to_owned(),
        format!("--thinlto-remote-compiler={}", llvm("clang").display()),
    ];
    let cache = work.path().join("cache");
    for (cache, found) in [
        (cache.as_path(), 0),
        (cache.as_path(), 2),
        (Path::new("off"), 0),
    ] {
        let said = link("out.so", &distributor, cache)?;
        expect_in(&said, &unit_counts(found, 2 - found))?;
        ensure(fs::read(work.path().join("out.so"))? == right, || {
            format!("another library\n{said}")
        })?;
        if cache == Path::new("off") {
            expect_in(&said, "ThinLTO units are not cached: OFFLD_CACHE=off")?;
        }
    }
    work.expect_no_temps()?;
    passed()
}
