//! `offld split --kpack` of wheels: pip installs the wheel with the code for some GPUs, the library
//! registers the same code objects as before, and merging gives every byte back.

use libtest_mimic::{Failed, Trial};

use super::split::{build, code_objects, ledger_of, names};
use crate::edit::wheels::{check, pack, package, pip_install};
use crate::kinds::stubs;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, offld, output,
    passed, run, run_failing, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("kpack::wheels::code_is_installed_for_some_gpus", installed),
        with_llvm("kpack::wheels::directories_with_wheels", directory),
        with_llvm("kpack::wheels::what_has_no_place_is_refused", refused),
    ]
}

const WHEEL: &str = "some-1.0-py3-none-linux_x86_64.whl";
const DEVICE: &str = "some_device_gfx90a-1.0-py3-none-linux_x86_64.whl";

/// Builds a wheel with a library in each of two packages, one of them below `NAME.data`.
fn wheel(work: &Work) -> Outcome {
    build(work, "--no-offload-new-driver", "-shared")?;
    package(work, "tree", "py3-none-linux_x86_64")?;
    for place in ["tree/some/lib/sub", "tree/some-1.0.data/platlib/extra"] {
        std::fs::create_dir_all(work.path().join(place))?;
        std::fs::copy(
            work.path().join("install/lib/libother.so"),
            work.path().join(place).join("libother.so"),
        )?;
    }
    // With this file, one of the libraries is stored, and the other is compressed.
    work.file("tree/some/data", "text");
    pack(work, "tree", WHEEL)?;
    passed()
}

/// The names of the archives in a directory of site-packages.
fn archives(work: &Work, site: &str) -> Result<String, Failed> {
    let entries = std::fs::read_dir(work.path().join(site).join("some/.kpack"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names.join(" "))
}

/// What a library registers when Python loads it.
fn loaded(work: &Work, library: &str) -> Result<String, Failed> {
    let line = format!("import ctypes; ctypes.CDLL('{library}')");
    let mut python = work.command("python3");
    python.args(["-c", &line]);
    Ok(ledger_of(work, &mut python)?.1)
}

fn installed() -> Outcome {
    let work = Work::new();
    wheel(&work)?;
    let before = loaded(&work, "./install/lib/libother.so")?;
    let told = run(work
        .command(offld())
        .args(["split", "--kpack", WHEEL, "-d", "out"]))?;
    expect_in(&told, &format!("{WHEEL}: "))?;
    expect_in(&told, &format!("out/{DEVICE}: "))?;
    check(&work, &format!("out/{WHEEL}"))?;
    check(&work, &format!("out/{DEVICE}"))?;
    pip_install(
        &work,
        &[
            "--find-links",
            "out",
            "--target",
            "site",
            "some[device-gfx90a]",
        ],
    )?;
    pip_install(
        &work,
        &["--find-links", "out", "--target", "all", "some[device-all]"],
    )?;
    pip_install(&work, &["--find-links", "out", "--target", "none", "some"])?;
    expect_equal("archives", "some_gfx90a.kpack", &archives(&work, "site")?)?;
    let all = "some_gfx908:xnack+.kpack some_gfx90a.kpack";
    expect_equal("archives", all, &archives(&work, "all")?)?;
    expect_no_file(&work.path().join("none/some/.kpack"))?;
    // Other tools read the new wheels.
    let report = run(work
        .command(offld())
        .args(["inspect", &format!("out/{DEVICE}")]))?;
    expect_in(&report, "gfx90a")?;
    for library in ["some/lib/sub/libother.so", "extra/libother.so"] {
        for site in ["site", "all"] {
            let after = loaded(&work, &format!("./{site}/{library}"))?;
            expect_in(&after, "hip kpack lib=0 of=")?;
            expect_equal("names", &names(&before), &names(&after))?;
            let (old, new) = (code_objects(&before), code_objects(&after));
            if site == "all" {
                expect_equal("code objects", &old, &new)?;
            } else {
                // The build has two architectures.
                new.lines().try_for_each(|line| expect_in(&old, line))?;
                let counts = [2 * new.lines().count(), old.lines().count()];
                ensure(counts[0] == counts[1], || format!("{counts:?}"))?;
            }
            let check_for = |arch: &str| {
                let mut check = work.command(offld());
                check.args(["check", "--for", arch, &format!("{site}/{library}")]);
                check.env("LD_LIBRARY_PATH", stubs());
                check
            };
            run(&mut check_for("gfx90a"))?;
            if site == "site" {
                let answer = output(&mut check_for("gfx908:xnack+"))?;
                expect_in(&text(&answer.stdout), "verdict: no")?;
            }
        }
    }
    // The wheel without code has the rest of the libraries.
    let size = |name: &str| std::fs::metadata(work.path().join(name)).map(|meta| meta.len());
    ensure(
        size(&format!("out/{WHEEL}"))? < size(WHEEL)?,
        || "not smaller",
    )?;
    run(work
        .command(offld())
        .args(["merge", &format!("out/{WHEEL}"), "-o", "merged.whl"]))?;
    run(work.command("cmp").args([WHEEL, "merged.whl"]))?;
    // The recipe has only the members of which offld cannot reproduce the compressed bytes.
    std::fs::remove_file(work.path().join("out").join(DEVICE))?;
    let told = run_failing(work.command(offld()).args([
        "merge",
        &format!("out/{WHEEL}"),
        "-o",
        "damaged.whl",
    ]))?;
    expect_in(&told, "a code object for gfx90a is in no archive")?;
    expect_no_file(&work.path().join("damaged.whl"))?;
    work.expect_no_temps()?;
    passed()
}

fn directory() -> Outcome {
    let work = Work::new();
    wheel(&work)?;
    std::fs::create_dir(work.path().join("install/wheels"))?;
    std::fs::rename(
        work.path().join(WHEEL),
        work.path().join("install/wheels").join(WHEEL),
    )?;
    run(work.command(offld()).args([
        "split",
        "--kpack",
        "--kpack-name",
        "test",
        "install",
        "-d",
        "out",
    ]))?;
    for name in [
        "out/.kpack/test_gfx90a.kpack".to_owned(),
        format!("out/wheels/{DEVICE}"),
        format!("out/.kpack/test/wheels/{WHEEL}.recipe"),
    ] {
        ensure(work.path().join(&name).is_file(), || format!("no {name}"))?;
    }
    let listed = run(work.command("python3").args([
        "-m",
        "zipfile",
        "-l",
        &format!("out/wheels/{DEVICE}"),
    ]))?;
    expect_in(&listed, "some/.kpack/some_gfx90a.kpack")?;
    let data = "some_device_gfx90a-1.0.data/platlib/extra/.kpack/some_gfx90a.kpack";
    expect_in(&listed, data)?;
    let told = run(work.command(offld()).args(["merge", "out", "-d", "merged"]))?;
    expect_in(&told, "merged with 2 device wheels")?;
    run(work.command("diff").args(["-r", "install", "merged"]))?;
    passed()
}

fn refused() -> Outcome {
    let work = Work::new();
    wheel(&work)?;
    let split = |name: &str| {
        let mut command = work.command(offld());
        command.args(["split", "--kpack", name, "-d", "out"]);
        command
    };
    let copy = |name: &str| std::fs::copy(work.path().join(WHEEL), work.path().join(name));
    // Other zip files are copied.
    copy("some.zip")?;
    expect_in(&run(&mut split("some.zip"))?, "no HIP code")?;
    std::fs::remove_dir_all(work.path().join("out"))?;
    // A wheel with the name of a device wheel.
    std::fs::create_dir(work.path().join("both"))?;
    for name in [WHEEL, DEVICE] {
        copy(&format!("both/{name}"))?;
    }
    expect_in(
        &run_failing(&mut split("both"))?,
        "has the name of a wheel with the HIP code of",
    )?;
    expect_no_file(&work.path().join("out"))?;
    // Without metadata.
    run(work.command("python3").args([
        "-c",
        "import sys, zipfile\n\
         old, new = (zipfile.ZipFile(name, mode) for name, mode in zip(sys.argv[1:], 'rw'))\n\
         [new.writestr(item, old.read(item)) for item in old.infolist() if not item.filename.endswith('METADATA')]\n\
         new.close()",
        WHEEL,
        "other-1.0-py3-none-any.whl",
    ]))?;
    expect_in(
        &run_failing(&mut split("other-1.0-py3-none-any.whl"))?,
        "not a wheel: no METADATA",
    )?;
    expect_no_file(&work.path().join("out"))?;
    // A script is not beside the libraries, so its code stays.
    package(&work, "scripts", "py3-none-linux_x86_64")?;
    std::fs::create_dir_all(work.path().join("scripts/some-1.0.data/scripts"))?;
    std::fs::copy(
        work.path().join("install/bin/program"),
        work.path().join("scripts/some-1.0.data/scripts/program"),
    )?;
    std::fs::create_dir(work.path().join("s"))?;
    pack(&work, "scripts", &format!("s/{WHEEL}"))?;
    let told = run(&mut split(&format!("s/{WHEEL}")))?;
    expect_in(&told, "no HIP code")?;
    expect_not_in(&told, DEVICE)?;
    run(work
        .command("cmp")
        .args([format!("s/{WHEEL}"), format!("out/{WHEEL}")]))?;
    passed()
}
