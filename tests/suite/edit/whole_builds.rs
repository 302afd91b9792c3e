//! `offld merge` of whole builds: wheels, which pip then installs, and directories, whose programs
//! run.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use super::merge::{linked, many_for, objects_for};
use super::wheels::{check, pack, package, pip_install};
use super::{images, ran, refused, same, stdout_of, targets};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, llvm, passed, run,
    run_offloaded, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "edit::whole_builds::wheels_are_merged_and_installed",
            wheels,
        ),
        with_llvm(
            "edit::whole_builds::wheels_that_differ_are_refused",
            other_wheels,
        ),
        with_llvm("edit::whole_builds::folders_are_merged_and_run", folders),
        with_llvm(
            "edit::whole_builds::folders_that_differ_are_refused",
            other_folders,
        ),
        with_llvm("edit::whole_builds::build_trees_are_merged", build_trees),
    ]
}

const CPU: &str = "x86_64-pc-linux-gnu";

/// Creates a wheel for each device from the tree `tree-ARCH`. Returns their names.
fn wheels_for(work: &Work, archs: &[(&str, &str)]) -> Result<Vec<String>, Failed> {
    objects_for(
        work,
        &archs.iter().map(|(arch, _)| *arch).collect::<Vec<_>>(),
    )?;
    let mut names = Vec::new();
    for (arch, tag) in archs {
        let tree = format!("tree-{arch}");
        package(work, &tree, tag)?;
        let object = format!("{arch}.o");
        linked(
            work,
            arch,
            &[&object],
            &format!("{tree}/some/library.so"),
            &["-shared"],
        )?;
        std::fs::copy(
            work.path().join(&object),
            work.path().join(&tree).join("some/zlast.o"),
        )?;
        let name = format!("{arch}/some-1.0-{tag}.whl");
        std::fs::create_dir_all(work.path().join(arch))?;
        pack(work, &tree, &name)?;
        names.push(name);
    }
    Ok(names)
}

fn wheels() -> Outcome {
    let work = Work::new();
    let archs = [
        ("gfx90a", "py3-none-manylinux_2_28_x86_64"),
        ("cpu", "py3-none-linux_x86_64"),
        ("gfx908", "py3-none-any"),
    ];
    let names = wheels_for(&work, &archs)?;
    let out = "some-1.0-py3-none-linux_x86_64.whl";
    let words = ["merge", "-o", out]
        .into_iter()
        .chain(names.iter().map(String::as_str));
    let stdout = stdout_of(&work, words)?;
    expect_in(&stdout, &format!("{out}: 3 builds merged, 6 images: "))?;
    check(&work, out)?;
    pip_install(&work, &["--no-deps", "--target", "site", out])?;
    expect_equal(
        "devices",
        &format!("{CPU} gfx90a gfx908"),
        &targets(&work, "site/some/library.so")?,
    )?;
    let mut devices: Vec<String> = targets(&work, "site/some/zlast.o")?
        .split(' ')
        .map(str::to_owned)
        .collect();
    devices.sort();
    expect_equal(
        "devices",
        &format!("gfx908 gfx90a {CPU}"),
        &devices.join(" "),
    )?;
    let line = "import ctypes, some; assert some.VALUE == 17; ctypes.CDLL(some.__path__[0] + '/library.so').main()";
    let mut python = work.command("python3");
    python
        .args(["-c", line])
        .env("PYTHONPATH", work.path().join("site"))
        .env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib");
    expect_equal("output", "4950 device\n", &run_offloaded(&mut python)?)?;
    // A build that is already merged changes nothing.
    stdout_of(&work, ["merge", "-o", "again.whl", out, out])?;
    same(&work.path().join(out), &work.path().join("again.whl"))?;
    stdout_of(
        &work,
        ["merge", "-d", "to"]
            .into_iter()
            .chain(names.iter().map(String::as_str)),
    )?;
    check(
        &work,
        &format!(
            "to/{}",
            Path::new(&names[0])
                .file_name()
                .ok_or("no name")?
                .to_string_lossy()
        ),
    )?;
    work.expect_no_temps()?;
    passed()
}

fn other_wheels() -> Outcome {
    let work = Work::new();
    let names = wheels_for(
        &work,
        &[("gfx90a", "py3-none-any"), ("gfx908", "py3-none-any")],
    )?;
    let (first, second) = (names[0].as_str(), names[1].as_str());
    let changed: [(&str, &str, &str); 4] = [
        (
            "some/__init__.py",
            "VALUE = 18\n",
            "gfx908/some-1.0-py3-none-any.whl/some/__init__.py differs from gfx90a/",
        ),
        (
            "some/more.py",
            "",
            "gfx90a/some-1.0-py3-none-any.whl: no member some/more.py, which gfx908/",
        ),
        (
            "some-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.1\n",
            "some-1.0.dist-info/WHEEL differs from",
        ),
        (
            "some/library.so",
            "text",
            "gfx908/some-1.0-py3-none-any.whl/some/library.so is",
        ),
    ];
    for (file, text, expected) in changed {
        let path = work.path().join("tree-gfx908").join(file);
        let old = std::fs::read(&path).ok();
        std::fs::write(&path, text)?;
        pack(&work, "tree-gfx908", second)?;
        expect_in(
            &refused(&work, ["merge", "-o", "none.whl", first, second])?,
            expected,
        )?;
        expect_no_file(&work.path().join("none.whl"))?;
        match old {
            Some(old) => std::fs::write(&path, old)?,
            None => std::fs::remove_file(&path)?,
        }
    }
    for arch in ["gfx90a", "gfx908"] {
        work.file(&format!("tree-{arch}/some-1.0.dist-info/RECORD.jws"), "{}");
        pack(
            &work,
            &format!("tree-{arch}"),
            &format!("{arch}/some-1.0-py3-none-any.whl"),
        )?;
    }
    let stderr = refused(&work, ["merge", "-o", "none.whl", first, second])?;
    expect_in(
        &stderr,
        "the wheel is signed by `some-1.0.dist-info/RECORD.jws`",
    )?;
    let stderr = refused(&work, ["merge", "-o", "none.whl", first, "gfx908.o"])?;
    expect_in(
        &stderr,
        "cannot merge a zip file inside another file, or with a file of another type",
    )?;
    expect_no_file(&work.path().join("none.whl"))?;
    passed()
}

/// Creates a directory for each device: a program, an archive, a file without device code, and a
/// symlink.
fn folders_for(work: &Work, archs: &[&str]) -> Result<(), Failed> {
    objects_for(work, archs)?;
    work.file("plain.c", "int plain(void) { return 1; }\n");
    for arch in archs {
        let object = format!("{arch}.o");
        for folder in ["bin", "lib", "empty"] {
            std::fs::create_dir_all(work.path().join(arch).join(folder))?;
        }
        linked(work, arch, &[&object], &format!("{arch}/bin/program"), &[])?;
        // The members of all archives have the same name.
        std::fs::copy(work.path().join(&object), work.path().join("main.o"))?;
        run(work.command(llvm("llvm-ar")).args([
            "rcs",
            &format!("{arch}/lib/libmain.a"),
            "main.o",
        ]))?;
        let id = format!(
            "-Wl,--build-id=0x{:02x}",
            arch.len() + usize::from(arch.as_bytes()[arch.len() - 1])
        );
        let plain = format!("{arch}/lib/libplain.so");
        run(work
            .command(llvm("clang"))
            .args(["-shared", "-fPIC", "plain.c", &id, "-o", &plain]))?;
        work.file(&format!("{arch}/read.me"), "text");
        std::os::unix::fs::symlink("bin/program", work.path().join(arch).join("link"))?;
    }
    Ok(())
}

fn folders() -> Outcome {
    let work = Work::new();
    folders_for(&work, &["gfx90a", "cpu", "gfx908"])?;
    let stdout = stdout_of(&work, ["merge", "-o", "out", "gfx90a", "cpu", "gfx908"])?;
    expect_in(&stdout, "out/bin/program: 3 builds merged, 3 images: ")?;
    expect_in(
        &stdout,
        "out: 3 builds merged, 2 of 4 files have images of several builds\n",
    )?;
    expect_equal("output", "4950 device\n", &ran(&work, "out/bin/program")?)?;
    expect_equal(
        "output through the link",
        "4950 device\n",
        &ran(&work, "out/link")?,
    )?;
    ensure(
        work.path().join("out/link").is_symlink(),
        || "the link is no link",
    )?;
    ensure(
        work.path().join("out/empty").is_dir(),
        || "the empty folder is missing",
    )?;
    expect_equal(
        "devices",
        &format!("{CPU} gfx90a gfx908"),
        &targets(&work, "out/bin/program")?,
    )?;
    ensure(
        images(&work, "out/lib/libmain.a")?.len() == 3,
        || "the library has not all images",
    )?;
    same(
        &work.path().join("gfx90a/lib/libplain.so"),
        &work.path().join("out/lib/libplain.so"),
    )?;
    expect_equal(
        "text",
        "text",
        &std::fs::read_to_string(work.path().join("out/read.me"))?,
    )?;
    // The output directory can be one of the builds.
    stdout_of(&work, ["merge", "-d", "gfx90a", "gfx90a", "cpu"])?;
    expect_equal(
        "output",
        "4950 device\n",
        &ran(&work, "gfx90a/bin/program")?,
    )?;
    work.expect_no_temps()?;
    passed()
}

fn other_folders() -> Outcome {
    let work = Work::new();
    folders_for(&work, &["gfx90a", "gfx908"])?;
    let merge = ["merge", "-o", "out", "gfx90a", "gfx908"];
    let refused_for = |expected: &[&str]| -> Result<(), Failed> {
        let stderr = refused(&work, merge)?;
        expected
            .iter()
            .try_for_each(|expected| expect_in(&stderr, expected))?;
        expect_no_file(&work.path().join("out"))
    };
    work.file("gfx908/read.me", "another text");
    work.file(
        "gfx908/lib/libplain.so",
        std::fs::read(work.path().join("gfx908/bin/program"))?,
    );
    // All problems are reported together, and nothing is written.
    refused_for(&[
        "gfx908/read.me differs from gfx90a/read.me and has no host half to compare; make the file the same",
        "gfx90a/lib/libplain.so",
    ])?;
    std::fs::remove_file(work.path().join("gfx908/read.me"))?;
    work.file("gfx908/more", "text");
    refused_for(&[
        "gfx908: no file read.me, which gfx90a has: every build must have the same",
        "gfx90a: no file more, which gfx908 has",
    ])?;
    std::fs::rename(
        work.path().join("gfx908/more"),
        work.path().join("gfx908/read.me"),
    )?;
    std::fs::remove_file(work.path().join("gfx908/link"))?;
    std::os::unix::fs::symlink("read.me", work.path().join("gfx908/link"))?;
    refused_for(&[
        "gfx908/link is a link to read.me, but gfx90a/link to bin/program: every build must have the same link",
    ])?;
    expect_in(
        &refused(&work, ["merge", "-o", "out", "gfx90a", "gfx908.o"])?,
        "cannot merge the directory gfx90a with the file gfx908.o",
    )?;
    expect_in(
        &refused(&work, ["merge", "-o", "-", "gfx90a", "gfx908"])?,
        "cannot write merged directories to stdout",
    )?;
    expect_in(
        &refused(&work, ["merge", "-o", "out", "gfx90a"])?,
        "or pass several builds",
    )?;
    expect_no_file(&work.path().join("out"))?;
    passed()
}

/// The objects, libraries and program of `examples/many`, as the build left them.
fn build_trees() -> Outcome {
    let (one, other) = (many_for("gfx90a")?, many_for("cpu")?);
    let work = Work::new();
    let [first, second] = [&one, &other].map(|build| build.path().display().to_string());
    let stdout = stdout_of(&work, ["merge", "-o", "all", &first, &second])?;
    expect_in(&stdout, "all/libfilter.so: 2 builds merged, 2 images: ")?;
    expect_in(&ran(&work, "all/many")?, "right\n")?;
    passed()
}
