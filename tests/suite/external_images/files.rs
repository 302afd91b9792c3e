//! The files of a link: they appear with the program, stay until the next program is complete, and
//! vanish with a failed link.

use std::fs;

use libtest_mimic::Trial;

use super::{files_in, link, object, only_file};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, llvm, made, passed, run,
    run_failing, run_offloaded, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "external_images::files::a_new_build_replaces_the_files_of_the_old_one",
            replaced,
        ),
        with_llvm(
            "external_images::files::a_failed_link_leaves_no_files",
            failed,
        ),
        with_llvm("external_images::files::other_outputs_are_refused", refused),
    ]
}

fn replaced() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let images = work.path().join("program.images");
    run(&mut link(&work, "program", &[]))?;
    let first = only_file(&images)?;
    let written = fs::metadata(&first)?.modified()?;
    // The same image is not written again.
    run(&mut link(&work, "program", &[]))?;
    ensure(
        fs::metadata(only_file(&images)?)?.modified()? == written,
        || "the file was written again".to_owned(),
    )?;
    // A file of somebody else stays.
    fs::write(images.join("notes.txt"), "mine")?;
    let source = fs::read_to_string(work.path().join("main.c"))?;
    work.file(
        "main.c",
        source
            .replace("sum += i", "sum += i + 0 * sum")
            .replace("i < 100", "i < 101 - 1"),
    );
    let mut compile = work.command(llvm("clang"));
    compile
        .args(crate::support::OFFLOAD)
        .args(["-O0", "-fPIC", "-c", "main.c", "-o", "main.o"]);
    run(&mut compile)?;
    run(&mut link(&work, "program", &[]))?;
    ensure(!first.exists(), || "the old file is still there".to_owned())?;
    let names: Vec<_> = files_in(&images);
    ensure(names.len() == 2, || format!("{names:?}"))?;
    let printed = run_offloaded(&mut work.command("./program"))?;
    expect_equal("stdout", "4950 device\n", &printed)?;
    // A damaged file is written again.
    let image = names
        .iter()
        .find(|name| name.extension().is_some_and(|end| end == "img"));
    let image = image.ok_or("no image")?;
    fs::write(image, "damaged")?;
    run(&mut link(&work, "program", &[]))?;
    let printed = run_offloaded(&mut work.command("./program"))?;
    expect_equal("stdout", "4950 device\n", &printed)?;
    passed()
}

fn failed() -> Outcome {
    let work = Work::new();
    object(&work)?;
    run_failing(&mut link(&work, "program", &["-Wl,--no-such-option"]))?;
    run_failing(&mut link(&work, "program", &["-lno_such_library"]))?;
    expect_no_file(&work.path().join("program.images"))?;
    // The program and the files of the last link stay as they are.
    run(&mut link(&work, "program", &[]))?;
    let image = only_file(&work.path().join("program.images"))?;
    run_failing(&mut link(&work, "program", &["-lno_such_library"]))?;
    ensure(
        only_file(&work.path().join("program.images"))? == image,
        || "another file".to_owned(),
    )?;
    // Other programs may use the files in a directory that the user names.
    let shared = format!("{}=shared", super::OPTION);
    run_failing(&mut link(&work, "bad", &[&shared, "-lno_such_library"]))?;
    only_file(&work.path().join("shared"))?;
    // A program that was renamed keeps its files.
    run(&mut link(&work, "program", &[]))?;
    fs::rename(work.path().join("program"), work.path().join("renamed"))?;
    run(work
        .command(llvm("clang"))
        .args(crate::support::OFFLOAD)
        .args(["-O0", "-fPIC", "-c", "main.c", "-o", "main.o"]))?;
    run(&mut link(&work, "program", &[]))?;
    let printed = run_offloaded(&mut work.command("./renamed"))?;
    expect_equal("stdout", "4950 device\n", &printed)?;
    // The directory cannot be made.
    fs::write(work.path().join("blocked.images"), "")?;
    let error = run_failing(&mut link(&work, "blocked", &[]))?;
    expect_in(&error, "blocked.images")?;
    expect_no_file(&work.path().join("blocked"))?;
    work.expect_no_temps()?;
    passed()
}

fn refused() -> Outcome {
    let work = Work::new();
    object(&work)?;
    // Linkers do not create the directory of the output.
    let error = run_failing(&mut link(&work, "none/program", &[]))?;
    expect_in(
        &error,
        "cannot write `none/program`: `none`: No such file or directory",
    )?;
    expect_no_file(&work.path().join("none"))?;
    let error = run_failing(&mut link(&work, "part.o", &["-r"]))?;
    expect_in(
        &error,
        "--wrapper-external-images is for programs and libraries, and -r writes an object",
    )?;
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.args([
        "--linker-path=ld.lld",
        "--wrapper-external-images",
        "--compress",
        "main.o",
        "-o",
        "program",
    ]);
    let error = run_failing(&mut link)?;
    expect_in(&error, "omit --compress")?;
    std::os::unix::fs::symlink("elsewhere/program", work.path().join("alias"))?;
    let error = run_failing(&mut super::link(&work, "alias", &[]))?;
    expect_in(&error, "the output `alias` is a symlink")?;
    // Configuration scripts link to this file.
    run(&mut super::link(&work, "/dev/null", &[]))?;
    expect_no_file(std::path::Path::new("/dev/null.images"))?;
    passed()
}
