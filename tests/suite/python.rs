//! The Python module (packaging/python), built for development: its own tests, the examples of
//! docs/reference/python.md, the script of examples/python, and type checks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use super::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, llvm, made, missing, offld, output,
    passed, root, run, run_failing, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("python::the_module_says_what_the_program_says", || {
            in_work(the_tests)
        }),
        with_llvm("python::the_examples_of_the_document", || {
            in_work(the_document)
        }),
        with_llvm("python::the_script_of_the_example", || in_work(the_script)),
        with_llvm("python::the_types_hold", || in_work(the_types)),
    ]
}

/// Runs `test` in a directory with its input files, if Python and the module are available.
fn in_work(test: impl FnOnce(&Work) -> Outcome) -> Outcome {
    let is_recent = ["-c", "import sys; sys.exit(sys.version_info < (3, 9))"];
    if !Command::new("python3")
        .args(is_recent)
        .status()
        .is_ok_and(|ended| ended.success())
    {
        return missing("Python 3.9 or later (python3)");
    }
    if !root().join("packaging/python").is_dir() {
        return missing(
            "packaging/python, which the repository has and the published crate has not",
        );
    }
    let Some(wheel) = wheel() else {
        return missing("a wheel in target/wheels (scripts/setup.sh)");
    };
    site()?;
    let work = Work::new();
    std::fs::copy(wheel, work.path().join("package.whl"))?;
    test(&work)
}

fn wheel() -> Option<PathBuf> {
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|end| end == "whl");
    std::fs::read_dir(root().join("target/wheels"))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .find(is_wheel)
}

/// The directory from which Python imports the module, built once for all tests. If the build
/// fails, each of these tests fails.
fn site() -> Result<PathBuf, Failed> {
    static SITE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = SITE
        .get_or_init(|| build().map_err(|failed| failed.message().unwrap_or_default().to_owned()));
    built.clone().map_err(Failed::from)
}

/// Builds in the target directory of this test, which already has the dependencies.
fn build() -> Result<PathBuf, Failed> {
    let target = Path::new(env!("CARGO_BIN_EXE_offld"))
        .ancestors()
        .nth(2)
        .ok_or("the program is in no target folder")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args([
            "build",
            "-q",
            "--locked",
            "-p",
            "offld-python",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(root());
    // Variables that cargo sets for this package must not reach another cargo.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_"))
    {
        cargo.env_remove(name);
    }
    run(&mut cargo)?;
    let site = made().shared("python");
    let package = site.join("offld");
    std::fs::create_dir_all(&package)?;
    for file in std::fs::read_dir(root().join("packaging/python/offld"))?
        .flatten()
        .filter(|file| file.path().is_file())
    {
        std::fs::copy(file.path(), package.join(file.file_name()))?;
    }
    std::fs::copy(
        target.join("debug/lib_offld.so"),
        package.join("_offld.abi3.so"),
    )?;
    Ok(site)
}

/// Python with the module, in `work`.
fn python(work: &Work) -> Result<Command, Failed> {
    let mut python = work.command("python3");
    python
        .env("PYTHONPATH", site()?)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OFFLD_PROGRAM", offld());
    // File names may be UTF-8.
    python.env("LC_ALL", "C.UTF-8");
    Ok(python)
}

fn the_tests(work: &Work) -> Outcome {
    work.file(
        "part.c",
        "int f(int x) {\n#pragma omp target map(tofrom: x)\n  x += 1;\n  return x;\n}\n",
    );
    work.run(
        llvm("clang"),
        OFFLOAD
            .iter()
            .copied()
            .chain(["-O1", "-g", "-c", "part.c", "-o", "fat.o"]),
    )?;
    // Linked by LLVM's own wrapper, which needs nothing from offld.
    work.run(
        llvm("clang"),
        OFFLOAD
            .iter()
            .copied()
            .chain(["-O1", "-fPIC", "-shared", "part.c", "-o", "libfat.so"]),
    )?;
    // The magic of an OffloadBinary without the rest.
    work.file(
        "damaged.bin",
        b"\x10\xff\x10\xad\x01\x00\x00\x00\xff\xff\xff\xff",
    );
    let ended = output(python(work)?.arg(root().join("tests/python/test_offld.py")))?;
    let stderr = text(&ended.stderr);
    ensure(ended.status.success(), || {
        format!("tests/python/test_offld.py:\n{stderr}")
    })?;
    expect_in(&stderr, "Ran 1")?;
    ensure(!stderr.contains("skipped"), || stderr.clone())?;
    passed()
}

fn the_document(work: &Work) -> Outcome {
    let count = "import doctest, sys\n\
        failed, tried = doctest.testfile(sys.argv[1], module_relative=False, optionflags=doctest.ELLIPSIS)\n\
        print(tried)\nsys.exit(failed > 0)";
    let printed = run(python(work)?
        .args(["-c", count])
        .arg(root().join("docs/reference/python.md")))?;
    ensure(
        printed.trim().parse().is_ok_and(|tried: u32| tried >= 12),
        || format!("that many examples are run: {printed}"),
    )?;
    passed()
}

fn the_script(work: &Work) -> Outcome {
    let script = root().join("examples/python/without_image.py");
    let run_script = |args: &[&str]| output(python(work)?.arg(&script).arg(".").args(args));
    let has = run_script(&["sm_90"])?;
    expect_equal(
        "for a GPU that there are images for",
        "package.whl: yes\n",
        &text(&has.stdout),
    )?;
    ensure(has.status.success(), || text(&has.stderr))?;
    let has_none = run_script(&["sm_90", "sm_35"])?;
    expect_in(
        &text(&has_none.stdout),
        "package.whl: no\n  nvidia/cuda_runtime/lib/libcudadevrt.a: sm_35: no: the nearest image is for",
    )?;
    expect_equal(
        "the number of wheels",
        "Some(1)",
        &format!("{:?}", has_none.status.code()),
    )?;
    let stderr = run_failing(python(work)?.arg(&script).args([".", "toaster"]))?;
    expect_in(&stderr, "without_image.py: invalid device `toaster`")?;
    passed()
}

/// mypy checks the annotations. Its stubtest compares them with the compiled module.
fn the_types(work: &Work) -> Outcome {
    let mypy = root().join("target/mypy");
    if !mypy.join("mypy").is_dir() {
        return missing("mypy in target/mypy (scripts/setup.sh)");
    }
    let site = site()?;
    let paths = std::env::join_paths([&site, &mypy]).map_err(|error| error.to_string())?;
    let module = || -> Result<Command, Failed> {
        let mut python = python(work)?;
        python
            .env("PYTHONPATH", &paths)
            .env("MYPYPATH", &site)
            .arg("-m");
        Ok(python)
    };
    let users = [
        "tests/python/test_offld.py",
        "examples/python/without_image.py",
    ]
    .map(|path| root().join(path));
    let strict = [
        "mypy",
        "--strict",
        "--python-version",
        "3.10",
        "--cache-dir",
        "cache",
    ];
    run(module()?.args(strict).arg(site.join("offld")).args(users))?;
    run(module()?.args(["mypy.stubtest", "offld._offld"]))?;
    passed()
}
