//! The library as other programs use it: `examples/library` lists and extracts the device images of
//! a fat object and of a program.

use std::path::{Path, PathBuf};

use libtest_mimic::Trial;

use super::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, llvm, missing, output, passed, text,
    with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![with_llvm(
        "library::the_example_lists_and_extracts_images",
        lists_and_extracts,
    )]
}

/// The path of the example, which `cargo test` builds next to the program.
fn example() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_offld"))
        .with_file_name("examples")
        .join("library")
}

fn lists_and_extracts() -> Outcome {
    if !example().exists() {
        return missing("examples/library (cargo build --example library)");
    }
    let work = Work::new();
    work.file(
        "part.c",
        "int f(int x) {\n#pragma omp target map(tofrom: x)\n  x += 1;\n  return x;\n}\n",
    );
    work.run(
        llvm("clang"),
        OFFLOAD
            .iter()
            .copied()
            .chain(["-O1", "-c", "part.c", "-o", "part.o"]),
    )?;
    let listed = work.run(example(), ["part.o", "images"])?;
    let [line] = &listed.lines().collect::<Vec<_>>()[..] else {
        return Err(format!("not one image:\n{listed}").into());
    };
    let start = "0 openmp x86_64-pc-linux-gnu ";
    ensure(
        line.starts_with(start) && line.contains(" .llvm.offloading "),
        || format!("{line} is not {start}…"),
    )?;

    // The extracted bytes equal those of LLVM's own tool.
    work.run(
        llvm("llvm-offload-binary"),
        ["part.o", "--image=file=theirs,triple=x86_64-pc-linux-gnu"],
    )?;
    let name = std::fs::read_dir(work.path().join("images"))?
        .next()
        .ok_or("nothing is extracted")??;
    let (ours, theirs) = (
        std::fs::read(name.path())?,
        std::fs::read(work.path().join("theirs"))?,
    );
    expect_equal("size", &theirs.len().to_string(), &ours.len().to_string())?;
    ensure(
        ours == theirs,
        || "other bytes than llvm-offload-binary extracts",
    )?;

    let mut nothing = work.command(example());
    let ended = output(nothing.arg("none.o"))?;
    ensure(
        !ended.status.success(),
        || "a file that is not there is no error",
    )?;
    expect_in(&text(&ended.stderr), "'none.o': No such file or directory")?;
    passed()
}
