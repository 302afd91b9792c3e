//! `offld check` on wheels, folders and archives: a line for each file, then the verdict.

use libtest_mimic::Trial;

use super::{change, check, find, list, object, program};
use crate::support::{OFFLOAD, Outcome, Work, expect_equal, expect_in, llvm, output, passed, run, text, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("check::output::wheels_folders_and_archives", many),
        with_llvm("check::output::members_of_one_name", same_names),
        with_llvm("check::output::a_report_that_cannot_be_written", full),
    ]
}

fn many() -> Outcome {
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
    run(work.command(llvm("llvm-ar")).args(["rcs", "lib.a", "main.o"]))?;
    let told = |words: &[&str]| -> Result<(String, i32), libtest_mimic::Failed> {
        let ended = output(work.command(crate::support::offld()).arg("check").args(words))?;
        // The name of a kernel has the device and the number of its source's file.
        let lines: Vec<String> = text(&ended.stdout)
            .lines()
            .map(|line| match line.split_once("`__omp_offloading_") {
                Some((before, after)) => format!("{before}`KERNEL{}", &after[after.find('`').unwrap_or(0)..]),
                None => line.to_owned(),
            })
            .collect();
        Ok((lines.iter().map(|line| format!("{line}\n")).collect(), ended.status.code().unwrap_or(-1)))
    };
    let good = "  openmp: yes (by entries): 2 kernels, 1 image: x86_64-pc-linux-gnu\n";
    let worse = "  openmp: no (by entries): 2 kernels, 1 image: x86_64-pc-linux-gnu\n  \
        no: openmp: kernel `KERNEL` is registered and not in image 0 (x86_64-pc-linux-gnu)\n";
    let (folder, status) = told(&["build"])?;
    let expected = format!("build/lib/good.so: yes\n{good}build/lib/worse.so: no\n{worse}verdict: no (1 no of 2 files)\n");
    expect_equal("folder", &expected, &folder)?;
    expect_equal("status", "1", &status.to_string())?;
    let (wheel, status) = told(&["package.whl"])?;
    let worse = worse.replace("image 0", "image 1");
    let expected = format!("package.whl(good.so): yes\n{good}package.whl(worse.so): no\n{worse}verdict: no (1 no of 2 files)\n");
    expect_equal("wheel", &expected, &wheel)?;
    expect_equal("status", "1", &status.to_string())?;
    let (archive, status) = told(&["lib.a", "build/lib/good.so"])?;
    expect_equal("archive", &format!("lib.a: yes\n{good}build/lib/good.so: yes\n{good}verdict: yes\n"), &archive)?;
    expect_equal("status", "0", &status.to_string())?;
    let (none, status) = told(&["build/readme.txt", "build/lib/good.so"])?;
    let expected = format!(
        "build/readme.txt: no\n  no: there is no device code in it\nbuild/lib/good.so: yes\n{good}verdict: no (1 no of 2 files)\n"
    );
    expect_equal("none", &expected, &none)?;
    expect_equal("status", "1", &status.to_string())?;
    let (missing, status) = told(&["nothing"])?;
    let expected = "nothing: unreadable\n  unreadable: nothing: No such file or directory (os error 2)\nverdict: unreadable\n";
    expect_equal("missing", expected, &missing)?;
    expect_equal("status", "2", &status.to_string())?;
    passed()
}

/// Two members of an archive may have the same name: each is an object by itself, in a compressed archive as well.
fn same_names() -> Outcome {
    let work = Work::new();
    for folder in ["one", "two", "three"] {
        std::fs::create_dir_all(work.path().join(folder))?;
        work.file(
            &format!("{folder}/unit.c"),
            format!("void {folder}(int *p) {{\n#pragma omp target map(tofrom : p[0])\n  p[0]++;\n}}\n"),
        );
        let mut compile = work.command(llvm("clang"));
        let (source, object) = (format!("{folder}/unit.c"), format!("{folder}/unit.o"));
        run(compile.args(OFFLOAD).args(["-O1", "-c", &source, "-o", &object]))?;
    }
    // Without its image.
    run(work.command(llvm("llvm-objcopy")).args(["--remove-section=.llvm.offloading", "three/unit.o"]))?;
    run(work.command(llvm("llvm-ar")).args(["qc", "good.a", "one/unit.o", "two/unit.o"]))?;
    run(work.command(llvm("llvm-ar")).args(["qc", "bad.a", "one/unit.o", "three/unit.o"]))?;
    for (archive, answer, findings) in [("good.a", "yes", 0), ("bad.a", "no", 1)] {
        run(work.command("gzip").args(["-k", archive]))?;
        for file in [archive.to_owned(), format!("{archive}.gz")] {
            let told = check(&work, [file.as_str()])?;
            let checked = &told.json["files"][0];
            expect_equal(&file, answer, checked["answer"].as_str().unwrap_or_default())?;
            expect_equal(&file, "2", &list(&checked["units"]).len().to_string())?;
            expect_equal(&file, &findings.to_string(), &list(&checked["findings"]).len().to_string())?;
        }
    }
    check(&work, ["bad.a"])?.expect("no-image", "no", "1 kernel is registered with OpenMP, and there is no image for it")?;
    passed()
}

/// A report that does not fit onto the disk is an error of all commands that write one; a reader that has left is none.
fn full() -> Outcome {
    let work = Work::new();
    object(&work)?;
    for command in ["check", "inspect", "size"] {
        let mut line = work.command("sh");
        line.args(["-c", "\"$0\" \"$1\" main.o > /dev/full"]).arg(crate::support::offld()).arg(command);
        let ended = output(&mut line)?;
        expect_equal(command, "2", &ended.status.code().unwrap_or(-1).to_string())?;
        expect_in(&text(&ended.stderr), "error: cannot write to stdout: No space left on device")?;
        let mut line = work.command("bash");
        line.args(["-c", "\"$0\" \"$1\" main.o | true; exit ${PIPESTATUS[0]}"]).arg(crate::support::offld()).arg(command);
        let ended = output(&mut line)?;
        expect_equal(&format!("{command} into a closed pipe"), "0", &ended.status.code().unwrap_or(-1).to_string())?;
    }
    passed()
}
