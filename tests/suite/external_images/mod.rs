//! `--wrapper-external-images`: programs load their images from files beside them. `kinds` runs
//! CUDA and HIP programs of all releases so; here are OpenMP programs, the files and the devices.

mod devices;
mod files;
mod programs;
mod stopped;
mod tools;

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::edit::SOURCE;
use super::support::{OFFLOAD, Work, llvm, made, run};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { devices files programs stopped tools }
}

/// The option, as the compiler driver takes it.
const OPTION: &str = "-Wl,--wrapper-external-images";

/// Compiles `main.o` for the CPU.
fn object(work: &Work) -> Result<(), Failed> {
    work.file("main.c", SOURCE);
    let mut compile = work.command(llvm("clang"));
    compile.args(OFFLOAD).args(["-O1", "-fPIC", "-c", "main.c"]);
    run(compile.args(["-o", "main.o"]))?;
    Ok(())
}

/// The link of `main.o` to `name`, with images in files and the arguments `words`.
fn link(work: &Work, name: &str, words: &[&str]) -> Command {
    let mut link = work.command(llvm("clang"));
    link.args(OFFLOAD).args(["main.o", "-o", name, OPTION]);
    link.arg("-B").arg(&made().links).args(words);
    link
}

/// The files in a directory, sorted; none if it does not exist.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.sort();
    all
}

/// The only file in a directory.
fn only_file(folder: &Path) -> Result<PathBuf, Failed> {
    match files_in(folder).as_slice() {
        [file] => Ok(file.clone()),
        other => Err(format!("{}: {other:?}", folder.display()).into()),
    }
}
