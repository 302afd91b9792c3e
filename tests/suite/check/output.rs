//! `offld check` on wheels, directories and archives: one line per file, then the verdict.

use libtest_mimic::{Failed, Trial};

use super::{change, check, find, list, object, program};
use crate::kit::Image;
use crate::support::{
    OFFLOAD, Outcome, Work, expect_equal, expect_in, llvm, output, passed, run, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "check::output::wheels_folders_and_archives",
            wheels_and_archives,
        ),
        with_llvm("check::output::members_of_one_name", same_names),
        with_llvm(
            "check::output::members_for_other_runtimes_do_not_decide",
            several_runtimes,
        ),
        with_llvm("check::output::a_report_that_cannot_be_written", full_disk),
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

/// For all commands that print reports, a full disk is an error. A closed pipe is not.
fn full_disk() -> Outcome {
    let work = Work::new();
    object(&work)?;
    for command in ["check", "inspect", "size"] {
        let mut line = work.command("sh");
        line.args(["-c", "\"$0\" \"$1\" main.o > /dev/full"])
            .arg(crate::support::offld())
            .arg(command);
        let ended = output(&mut line)?;
        expect_equal(command, "2", &ended.status.code().unwrap_or(-1).to_string())?;
        expect_in(
            &text(&ended.stderr),
            "error: cannot write to stdout: No space left on device",
        )?;
        let mut line = work.command("bash");
        line.args(["-c", "\"$0\" \"$1\" main.o | true; exit ${PIPESTATUS[0]}"])
            .arg(crate::support::offld())
            .arg(command);
        let ended = output(&mut line)?;
        expect_equal(
            &format!("{command} into a closed pipe"),
            "0",
            &ended.status.code().unwrap_or(-1).to_string(),
        )?;
    }
    passed()
}

/// Wheels and directories with libraries for several runtimes. A library for another runtime does
/// not cause a no.
fn several_runtimes() -> Outcome {
    let work = Work::new();
    let ptx = b".version 8.0\n.target sm_80\n.address_size 64\n";
    work.pack("libcuda.so", &[Image::cuda("sm_80", ptx)])?;
    work.pack("libhip.so", &[Image::hip("gfx90a", b"code")])?;
    work.pack(
        "libxpu.so",
        &[Image {
            triple: "spirv64-unknown-unknown",
            arch: "",
            kind: "sycl",
            bytes: b"\x03\x02\x23\x07",
        }],
    )?;
    std::fs::create_dir_all(work.path().join("tree"))?;
    work.file(
        "make.py",
        "import shutil, zipfile\n\
         with zipfile.ZipFile('all.whl', 'w') as wheel:\n\
         \x20   for name in ['libcuda.so', 'libhip.so', 'libxpu.so']:\n\
         \x20       wheel.write(name, 'some/' + name)\n\
         \x20       shutil.copy(name, 'tree')\n",
    );
    run(work.command("python3").arg("make.py"))?;
    let answers = |args: &[&str]| -> Result<String, Failed> {
        let report = check(&work, args.iter().copied())?;
        let files = list(&report.json["files"])
            .iter()
            .map(|file| file["answer"].as_str().unwrap_or_default().to_owned());
        let all: Vec<String> = files.collect();
        Ok(format!(
            "{}: {}",
            report.json["answer"].as_str().unwrap_or_default(),
            all.join(", ")
        ))
    };
    for file in ["all.whl", "tree"] {
        expect_equal(
            file,
            "yes: yes, not-applicable, not-applicable",
            &answers(&["--for", "sm_86", file])?,
        )?;
        // A library for the right runtime without an image for the device gives no.
        expect_equal(
            file,
            "no: no, not-applicable, not-applicable",
            &answers(&["--for", "sm_70", file])?,
        )?;
        // Each device needs a library.
        expect_equal(
            file,
            "no: no, yes, not-applicable",
            &answers(&["--for", "sm_70,gfx90a", file])?.replace("unknown", "yes"),
        )?;
    }
    // Without a library for the runtime nothing can run. Files that are named individually are
    // checked individually.
    let none = answers(&["--for", "sm_86", "--exclude", "*cuda*", "all.whl"])?;
    expect_equal("without CUDA", "no: no, no", &none)?;
    expect_equal(
        "alone",
        "no: no",
        &answers(&["--for", "sm_86", "libhip.so"])?,
    )?;
    expect_equal(
        "two files",
        "no: yes, no",
        &answers(&["--for", "sm_86", "libcuda.so", "libhip.so"])?,
    )?;
    // Only selected members count.
    expect_equal(
        "only",
        "yes: yes",
        &answers(&["--for", "sm_86", "--only", "libcuda*", "all.whl"])?,
    )?;
    let mut command = work.command(crate::support::offld());
    let ended = output(command.args(["check", "--for", "sm_86", "all.whl"]))?;
    expect_in(
        &text(&ended.stdout),
        "all.whl(some/libxpu.so): not applicable\n",
    )?;
    expect_in(
        &text(&ended.stdout),
        "verdict: yes (2 not applicable of 3 files)\n",
    )?;
    let mut command = work.command(crate::support::offld());
    let ended = output(command.args(["check", "--for", "sm_86", "--only", "*.dll", "all.whl"]))?;
    expect_equal(
        "nothing is selected",
        "Some(2)",
        &format!("{:?}", ended.status.code()),
    )?;
    expect_in(
        &text(&ended.stderr),
        "no file or member matches `*.dll` of --only",
    )?;
    passed()
}
