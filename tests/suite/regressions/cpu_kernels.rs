//! Kernels for CPUs of LLVM 22 and 23, and the runtimes that call them.

use libtest_mimic::{Failed, Trial};

use crate::support::{
    OFFLOAD, Outcome, Work, ensure, expect_in, expect_not_in, llvm, made, passed, root, run, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![with_llvm("regressions::g03h_a_runtime_that_calls_kernels_otherwise_is_warned_of", other_runtime)]
}

const SOURCE: &str = "int main(void) {\n  int y = 0;\n#pragma omp target map(y)\n  y = 1;\n  return y;\n}\n";

/// The object in `name` as a clang of LLVM 23 would have noted it.
fn of_23(work: &Work, name: &str) -> Result<(), Failed> {
    let path = work.path().join(name);
    let mut bytes = std::fs::read(&path)?;
    let (old, new) = (b"clang version 22", b"clang version 23");
    let places: Vec<usize> = (0..bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
    ensure(!places.is_empty(), || "the objects note no compiler")?;
    places.into_iter().for_each(|at| bytes[at..at + new.len()].copy_from_slice(new));
    Ok(std::fs::write(path, bytes)?)
}

fn other_runtime() -> Outcome {
    let work = Work::new();
    work.file("old.c", SOURCE);
    for name in ["old.o", "new.o"] {
        run(work.command(llvm("clang")).args(OFFLOAD).args(["-c", "old.c", "-o", name]))?;
    }
    of_23(&work, "new.o")?;
    for release in ["22.1", "23.1"] {
        let folder = work.path().join(release);
        std::fs::create_dir(&folder)?;
        let soname = format!("-Wl,-soname,libomptarget.so.{release}");
        let source = root().join("runtime-stubs/openmp.c");
        let library = folder.join("libomptarget.so");
        run(work.command("cc").args(["-std=c11", "-shared", "-fPIC", &soname]).arg(source).arg("-o").arg(library))?;
    }
    for (object, release, says) in [
        ("old.o", "22.1", None),
        ("old.o", "23.1", Some("is of LLVM 23 and does not call kernels for CPUs as LLVM 22 made them in old.o")),
        ("new.o", "22.1", Some("is of LLVM 22 and does not call kernels for CPUs as LLVM 23 made them in new.o")),
        ("new.o", "23.1", None),
    ] {
        let mut link = work.command(llvm("clang"));
        link.args(OFFLOAD).arg("-B").arg(&made().links).arg(format!("-L{}", work.path().join(release).display()));
        let said = stderr_of(link.args([object, "-o", "program"]).env("OFFLD_CLANG", llvm("clang")))?;
        match says {
            Some(text) => expect_in(&said, text)?,
            None => expect_not_in(&said, "does not call kernels")?,
        }
    }
    passed()
}
