//! Objects and OpenMP runtimes of releases with different kernel arguments: kernels for CPUs of
//! LLVM 22 and 23, and calls that LLVM 15 compiled.

use libtest_mimic::{Failed, Trial};

use crate::support::{
    OFFLOAD, Outcome, Release, Work, ensure, expect_in, expect_not_in, llvm, made, missing, passed,
    root, run, stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "device_links::a_runtime_that_calls_kernels_otherwise_is_warned_of",
            other_runtime,
        ),
        with_llvm(
            "device_links::a_runtime_that_reads_more_than_llvm_15_writes_is_warned_of",
            calls_of_15,
        ),
        test(
            "releases::device_links::objects_of_llvm_15_and_later_runtimes",
            objects_of_15,
        ),
    ]
}

const SOURCE: &str =
    "int main(void) {\n  int y = 0;\n#pragma omp target map(y)\n  y = 1;\n  return y;\n}\n";

/// Replaces the compiler version that is recorded in the object `name` with that of LLVM `major`.
fn noted(work: &Work, name: &str, major: u32) -> Result<(), Failed> {
    let path = work.path().join(name);
    let mut bytes = std::fs::read(&path)?;
    let (old, new) = (b"clang version 22", format!("clang version {major}"));
    let places: Vec<usize> = (0..bytes.len() - old.len())
        .filter(|at| bytes[*at..].starts_with(old))
        .collect();
    ensure(!places.is_empty(), || "the objects note no compiler")?;
    places
        .into_iter()
        .for_each(|at| bytes[at..at + new.len()].copy_from_slice(new.as_bytes()));
    Ok(std::fs::write(path, bytes)?)
}

/// A runtime library for `release`, in a directory with that name.
fn runtime(work: &Work, release: &str) -> Result<(), Failed> {
    let folder = work.path().join(release);
    std::fs::create_dir(&folder)?;
    let soname = format!("-Wl,-soname,libomptarget.so.{release}");
    let source = root().join("runtime-stubs/openmp.c");
    let library = folder.join("libomptarget.so");
    run(work
        .command("cc")
        .args(["-std=c11", "-shared", "-fPIC", &soname])
        .arg(source)
        .arg("-o")
        .arg(library))
    .map(drop)
}

fn other_runtime() -> Outcome {
    let work = Work::new();
    work.file("old.c", SOURCE);
    for name in ["old.o", "new.o"] {
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(["-c", "old.c", "-o", name]))?;
    }
    noted(&work, "new.o", 23)?;
    for release in ["22.1", "23.1"] {
        runtime(&work, release)?;
    }
    for (object, release, says) in [
        ("old.o", "22.1", None),
        (
            "old.o",
            "23.1",
            Some("is from LLVM 23 and cannot call CPU kernels that LLVM 22 compiled in old.o"),
        ),
        (
            "new.o",
            "22.1",
            Some("is from LLVM 22 and cannot call CPU kernels that LLVM 23 compiled in new.o"),
        ),
        ("new.o", "23.1", None),
    ] {
        let mut link = work.command(llvm("clang"));
        link.args(OFFLOAD)
            .arg("-B")
            .arg(&made().links)
            .arg(format!("-L{}", work.path().join(release).display()));
        let stderr = stderr_of(
            link.args([object, "-o", "program"])
                .env("OFFLD_CLANG", llvm("clang")),
        )?;
        match says {
            Some(text) => expect_in(&stderr, text)?,
            None => expect_not_in(&stderr, "cannot call CPU kernels")?,
        }
    }
    passed()
}

const READS_MORE: &str = "and reads more kernel arguments than LLVM 15 passes in ";

fn calls_of_15() -> Outcome {
    let work = Work::new();
    work.file("old.c", SOURCE);
    // Device code without kernels calls nothing in the runtime.
    work.file(
        "data.c",
        "int x;\n#pragma omp declare target(x)\nint main(void) { return 0; }\n",
    );
    for name in ["old", "data", "new"] {
        let source = if name == "data" { "data.c" } else { "old.c" };
        run(work.command(llvm("clang")).args(OFFLOAD).args([
            "-c",
            source,
            "-o",
            &format!("{name}.o"),
        ]))?;
    }
    noted(&work, "old.o", 15)?;
    noted(&work, "data.o", 15)?;
    noted(&work, "new.o", 16)?;
    work.archive("libold.a", &["old.o"])?;
    runtime(&work, "22.1")?;
    for (objects, says) in [
        (&["old.o"][..], Some("old.o")),
        (
            &["--whole-archive", "libold.a", "--no-whole-archive"],
            Some("libold.a(old.o)"),
        ),
        (&["data.o"], None),
        (&["new.o"], None),
    ] {
        // As clang's wrapper, and as the linker, which adds the compiler's runtime library itself.
        let mut wrapper = work.command(llvm("clang"));
        wrapper
            .args(OFFLOAD)
            .arg("-B")
            .arg(&made().links)
            .arg(format!("-L{}", work.path().join("22.1").display()));
        let mut linker = work.command("gcc");
        linker.arg("-B").arg(&made().as_ld);
        for link in [&mut wrapper, &mut linker] {
            link.args(objects.iter().map(|word| {
                if word.starts_with("--") {
                    format!("-Wl,{word}")
                } else {
                    (*word).to_owned()
                }
            }));
            let stderr = stderr_of(
                link.args(["-o", "program"])
                    .env("OFFLD_CLANG", llvm("clang")),
            )?;
            match says {
                Some(name) => {
                    expect_in(&stderr, &format!(" is from LLVM 22 {READS_MORE}{name}: "))?
                }
                None => expect_not_in(&stderr, READS_MORE)?,
            }
        }
    }
    passed()
}

/// Objects from the real LLVM 15 compiler, with its own runtime and with a later one.
fn objects_of_15() -> Outcome {
    let (Some(old), Some(later)) = (Release::of(15), Release::of(16)) else {
        return missing("LLVM 15 and 16 (make setup-releases)");
    };
    let work = Work::new();
    work.file("old.c", SOURCE);
    run(work
        .command(old.tool("clang"))
        .args(OFFLOAD)
        .args(&old.compile)
        .args(["-c", "old.c", "-o", "old.o"]))?;
    for (release, warns) in [(&old, false), (&later, true)] {
        let mut link = work.command("gcc");
        link.arg("-B")
            .arg(&made().as_ld)
            .arg("-L")
            .arg(&release.lib)
            .args(["old.o", "-lomptarget", "-lomp", "-o", "program"]);
        let stderr = stderr_of(link.env("OFFLD_CLANG", old.tool("clang")))?;
        if warns {
            expect_in(&stderr, &format!("from LLVM 16 {READS_MORE}old.o: "))?;
        } else {
            expect_not_in(&stderr, READS_MORE)?;
        }
    }
    passed()
}
