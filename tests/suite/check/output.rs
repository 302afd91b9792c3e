//! `offld check` on wheels, directories and archives: one line per file, then the verdict.

use libtest_mimic::Trial;

use super::{change, check, find, list, object, program};
use crate::support::{
    OFFLOAD, Outcome, Work, expect_equal, llvm, output, passed, run, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "check::output::wheels_folders_and_archives",
            wheels_and_archives,
        ),
        with_llvm("check::output::members_of_one_name", same_names),
    ]
}

fn wheels_and_archives() -> Outcome {
    let work = Work::new();
    object(&work)?;
    std::fs::create_dir_all(work.path().join("build/lib"))?;
    program(&work, "build/lib/good.so", &["-shared"])?;
    change(&work, "build/lib/good.so", "build/lib/worse.so", |bytes| {
        let image = find(bytes, b"\x10\xff\x10\xad");
        let at = image + find(&bytes[image..], b"__omp_offloading_");
        bytes[at] = b'-';
    })?;
    work.file("build/readme.txt", "no device code");
    run(work.command("python3").args([
        "-m",
        "zipfile",
        "-c",
        "package.whl",
        "build/lib/good.so",
        "build/lib/worse.so",
        "build/readme.txt",
    ]))?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "lib.a", "main.o"]))?;
    let report = |args: &[&str]| -> Result<(String, i32), libtest_mimic::Failed> {
        let ended = output(
            work.command(crate::support::offld())
                .arg("check")
                .args(args),
        )?;
        Ok((text(&ended.stdout), ended.status.code().unwrap_or(-1)))
    };
    let good = "  OpenMP: yes (2 kernels in 1 image: x86_64)\n";
    let worse = "  OpenMP: no (2 kernels in 1 image: x86_64)\n  \
        no: OpenMP: kernel `main, line 7` is registered and not in image 0 (x86_64-pc-linux-gnu)\n";
    let (folder, status) = report(&["build"])?;
    let expected = format!(
        "build/lib/good.so: yes\n{good}build/lib/worse.so: no\n{worse}verdict: no (1 no of 2 files)\n"
    );
    expect_equal("folder", &expected, &folder)?;
    expect_equal("status", "1", &status.to_string())?;
    let (wheel, status) = report(&["package.whl"])?;
    let worse = worse.replace("image 0", "image 1");
    let expected = format!(
        "package.whl(good.so): yes\n{good}package.whl(worse.so): no\n{worse}verdict: no (1 no of 2 files)\n"
    );
    expect_equal("wheel", &expected, &wheel)?;
    expect_equal("status", "1", &status.to_string())?;
    let (archive, status) = report(&["lib.a", "build/lib/good.so"])?;
    expect_equal(
        "archive",
        &format!("lib.a: yes\n{good}build/lib/good.so: yes\n{good}verdict: yes\n"),
        &archive,
    )?;
    expect_equal("status", "0", &status.to_string())?;
    let (none, status) = report(&["build/readme.txt", "build/lib/good.so"])?;
    let expected = format!(
        "build/readme.txt: no\n  no: no device code\nbuild/lib/good.so: yes\n{good}verdict: no (1 no of 2 files)\n"
    );
    expect_equal("none", &expected, &none)?;
    expect_equal("status", "1", &status.to_string())?;
    let (missing, status) = report(&["nothing"])?;
    let expected = "nothing: unreadable\n  unreadable: nothing: No such file or directory\nverdict: unreadable\n";
    expect_equal("missing", expected, &missing)?;
    expect_equal("status", "2", &status.to_string())?;
    passed()
}

/// Two members of an archive with the same name are separate objects, also in a compressed archive.
fn same_names() -> Outcome {
    let work = Work::new();
    for folder in ["one", "two", "three"] {
        std::fs::create_dir_all(work.path().join(folder))?;
        work.file(
            &format!("{folder}/unit.c"),
            format!(
                "void {folder}(int *p) {{\n#pragma omp target map(tofrom : p[0])\n  p[0]++;\n}}\n"
            ),
        );
        let mut compile = work.command(llvm("clang"));
        let (source, object) = (format!("{folder}/unit.c"), format!("{folder}/unit.o"));
        run(compile
            .args(OFFLOAD)
            .args(["-O1", "-c", &source, "-o", &object]))?;
    }
    // An object without its image.
    run(work
        .command(llvm("llvm-objcopy"))
        .args(["--remove-section=.llvm.offloading", "three/unit.o"]))?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["qc", "good.a", "one/unit.o", "two/unit.o"]))?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["qc", "bad.a", "one/unit.o", "three/unit.o"]))?;
    for (archive, answer, findings) in [("good.a", "yes", 0), ("bad.a", "no", 1)] {
        run(work.command("gzip").args(["-k", archive]))?;
        for file in [archive.to_owned(), format!("{archive}.gz")] {
            let report = check(&work, [file.as_str()])?;
            let checked = &report.json["files"][0];
            expect_equal(
                &file,
                answer,
                checked["answer"].as_str().unwrap_or_default(),
            )?;
            expect_equal(&file, "2", &list(&checked["units"]).len().to_string())?;
            expect_equal(
                &file,
                &findings.to_string(),
                &list(&checked["findings"]).len().to_string(),
            )?;
        }
    }
    check(&work, ["bad.a"])?.expect(
        "no-image",
        "no",
        "1 kernel in the OpenMP table, but no device image: compile with -fopenmp-targets=",
    )?;
    passed()
}
