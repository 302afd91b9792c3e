//! What clang-linker-wrapper of LLVM 23 and of AMD's tree take and LLVM 22's does not, or takes otherwise.

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, Image};
use crate::support::{Outcome, Work, ensure, expect_in, expect_not_in, llvm, made, passed, run, stderr_of, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("regressions::g03a_no_lto_compiles_each_input_for_amd", no_lto),
        with_llvm("regressions::g03b_elf_device_objects_for_amd_are_linked", elf_objects),
    ]
}

/// A device source compiled for gfx908: bitcode, or an ELF object.
fn device(work: &Work, name: &str, source: &str, flags: &[&str]) -> Result<Vec<u8>, Failed> {
    work.file(&format!("{name}.c"), source);
    let words = ["--target=amdgcn-amd-amdhsa", "-mcpu=gfx908", "-nogpulib", "-O1", "-c"];
    run(work.command(llvm("clang")).args(words).args(flags).arg(format!("{name}.c")).args(["-o", name]))?;
    Ok(std::fs::read(work.path().join(name))?)
}

const CALLS: &str =
    "int twice(int); __attribute__((amdgpu_kernel, visibility(\"protected\"))) void kernel(int *a) { *a = twice(*a); }";
const IS_CALLED: &str = "int twice(int x) { return 2 * x; }";

fn image(bytes: &[u8]) -> Image<'_> {
    Image { triple: AMD, arch: "gfx908", kind: "openmp", bytes }
}

/// A link by offld, with the real compiler, of the objects; the symbols of the image for gfx908.
fn image_of(work: &Work, objects: &[&str], words: &[&str]) -> Result<String, Failed> {
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.args(["--host-triple=x86_64-unknown-linux-gnu", "--linker-path=/usr/bin/ld", "-shared", "-o", "out.so"]);
    // The compiler would look for AMD's libraries, which no code here calls.
    link.arg("--device-compiler=-nogpulib");
    run(link.env("OFFLD_CLANG", llvm("clang")).args(objects).args(words))?;
    run(work.command(llvm("llvm-offload-binary")).args(["out.so", "--image=file=image,triple=amdgcn-amd-amdhsa,arch=gfx908"]))?;
    run(work.command(llvm("llvm-nm")).arg("image"))
}

fn no_lto() -> Outcome {
    let work = Work::new();
    let bitcode = device(&work, "one", CALLS, &["-emit-llvm"])?;
    let object = device(&work, "two", IS_CALLED, &[])?;
    let host = Image { triple: crate::kit::HOST, arch: "", ..image(&bitcode) };
    work.fat("a.o", &[image(&bitcode), host])?;
    work.fat("b.o", &[image(&object)])?;
    run(&mut work.wrapper(["a.o", "b.o", "--no-lto", "-o", "a.out"]))?;
    for (name, line) in work.device_lines()? {
        let line = line.join(" ");
        if name.contains("amdgcn") {
            expect_not_in(&line, "-flto")?;
            // The bitcode by its language, the object as it is.
            ensure(line.matches("-x ir ").count() == 1 && line.matches(" -x none").count() == 1, || line.clone())?;
        } else {
            // For CPUs nothing changes.
            expect_in(&line, "-flto")?;
            expect_not_in(&line, "-x ir")?;
        }
    }
    ensure(!work.host_line()?.iter().any(|word| word == "--no-lto"), || "--no-lto reached the host linker")?;
    run(&mut work.wrapper(["a.o", "-o", "a.out"]))?;
    expect_in(&work.device_lines()?.iter().map(|(_, line)| line.join(" ")).collect::<String>(), "-flto")?;
    // Really compiled, and linked with the object; never by the cache, which is for links that one program does.
    work.fat("c.o", &[image(&bitcode)])?;
    for option in ["--no-lto", "--wrapper-verbose"] {
        let symbols = image_of(&work, &["c.o", "b.o"], &[option])?;
        expect_in(&symbols, " T kernel")?;
        expect_not_in(&symbols, " U ")?;
    }
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.args(["--host-triple=x86_64-unknown-linux-gnu", "--linker-path=/usr/bin/ld", "-shared", "-o", "out.so", "c.o", "b.o"]);
    let said = stderr_of(
        link.args(["--no-lto", "--wrapper-verbose", "--device-compiler=-nogpulib"])
            .env("OFFLD_CLANG", llvm("clang"))
            .env("OFFLD_CACHE", "cache"),
    )?;
    expect_in(&said, "-x ir")?;
    passed()
}

/// LLVM 23 obeys `-fno-offload-lto` for AMD, so device code may be native. One object, and several, which a linker run directly takes in one
/// archive; by the compiler and by the cache's way, twice.
fn elf_objects() -> Outcome {
    let work = Work::new();
    let (calls, is_called) = (device(&work, "one", CALLS, &[])?, device(&work, "two", IS_CALLED, &[])?);
    work.fat("a.o", &[image(&calls)])?;
    work.fat("b.o", &[image(&is_called)])?;
    for cache in ["off", "cache", "cache"] {
        let symbols = image_of(&work, &["a.o", "b.o"], &[&format!("--wrapper-cache={cache}")])?;
        expect_in(&symbols, " T kernel")?;
        expect_not_in(&symbols, " U ")?;
    }
    passed()
}
