//! Options that the clang-linker-wrapper of LLVM 23 or of AMD's fork accepts, and LLVM 22's rejects
//! or treats differently.

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, ensure, expect_in, expect_not_in, llvm, made, passed, run, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("device_links::no_lto_compiles_each_input_for_amd", no_lto),
        with_llvm(
            "device_links::elf_device_objects_for_amd_are_linked",
            elf_objects,
        ),
        with_llvm(
            "device_links::emit_fatbin_only_writes_one_sycl_binary",
            sycl_fatbin,
        ),
        with_llvm(
            "device_links::a_profile_for_device_code_is_an_input_of_the_cache",
            profile,
        ),
        with_llvm(
            "device_links::allow_multiple_definition_reaches_device_links",
            multiple,
        ),
    ]
}

/// A device source compiled for gfx908, as bitcode or as an ELF object.
fn device(work: &Work, name: &str, source: &str, flags: &[&str]) -> Result<Vec<u8>, Failed> {
    work.file(&format!("{name}.c"), source);
    let words = [
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx908",
        "-nogpulib",
        "-O1",
        "-c",
    ];
    run(work
        .command(llvm("clang"))
        .args(words)
        .args(flags)
        .arg(format!("{name}.c"))
        .args(["-o", name]))?;
    Ok(std::fs::read(work.path().join(name))?)
}

const CALLS: &str = "int twice(int); __attribute__((amdgpu_kernel, visibility(\"protected\"))) void kernel(int *a) { *a = twice(*a); }";
const IS_CALLED: &str = "int twice(int x) { return 2 * x; }";

fn image(bytes: &[u8]) -> Image<'_> {
    Image {
        triple: AMD,
        arch: "gfx908",
        kind: "openmp",
        bytes,
    }
}

/// Links the objects with offld and the real compiler. Returns the symbols of the image for gfx908.
fn image_of(work: &Work, objects: &[&str], words: &[&str]) -> Result<String, Failed> {
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.args([
        "--host-triple=x86_64-unknown-linux-gnu",
        "--linker-path=/usr/bin/ld",
        "-shared",
        "-o",
        "out.so",
    ]);
    // Without this option, the compiler searches for AMD's libraries, which this code does not
    // need.
    link.arg("--device-compiler=-nogpulib");
    run(link
        .env("OFFLD_CLANG", llvm("clang"))
        .args(objects)
        .args(words))?;
    run(work.command(llvm("llvm-offload-binary")).args([
        "out.so",
        "--image=file=image,triple=amdgcn-amd-amdhsa,arch=gfx908",
    ]))?;
    run(work.command(llvm("llvm-nm")).arg("image"))
}

fn no_lto() -> Outcome {
    let work = Work::new();
    let bitcode = device(&work, "one", CALLS, &["-emit-llvm"])?;
    let object = device(&work, "two", IS_CALLED, &[])?;
    let host = Image {
        triple: crate::kit::HOST,
        arch: "",
        ..image(&bitcode)
    };
    work.fat("a.o", &[image(&bitcode), host])?;
    work.fat("b.o", &[image(&object)])?;
    run(&mut work.wrapper(["a.o", "b.o", "--no-lto", "-o", "a.out"]))?;
    for (name, line) in work.device_lines()? {
        let line = line.join(" ");
        if name.contains("amdgcn") {
            expect_not_in(&line, "-flto")?;
            // `-x ir` applies to the bitcode only.
            ensure(
                line.matches("-x ir ").count() == 1 && line.matches(" -x none").count() == 1,
                || line.clone(),
            )?;
        } else {
            // CPU links do not change.
            expect_in(&line, "-flto")?;
            expect_not_in(&line, "-x ir")?;
        }
    }
    ensure(
        !work.host_line()?.iter().any(|word| word == "--no-lto"),
        || "--no-lto reached the host linker",
    )?;
    run(&mut work.wrapper(["a.o", "-o", "a.out"]))?;
    expect_in(
        &work
            .device_lines()?
            .iter()
            .map(|(_, line)| line.join(" "))
            .collect::<String>(),
        "-flto",
    )?;
    // A real link of bitcode with an object. The cached form does not apply, because it is for
    // links that one program does.
    work.fat("c.o", &[image(&bitcode)])?;
    for option in ["--no-lto", "--wrapper-verbose"] {
        let symbols = image_of(&work, &["c.o", "b.o"], &[option])?;
        expect_in(&symbols, " T kernel")?;
        expect_not_in(&symbols, " U ")?;
    }
    let mut link = work.command(made().links.join("clang-linker-wrapper"));
    link.args([
        "--host-triple=x86_64-unknown-linux-gnu",
        "--linker-path=/usr/bin/ld",
        "-shared",
        "-o",
        "out.so",
        "c.o",
        "b.o",
    ]);
    let stderr = stderr_of(
        link.args([
            "--no-lto",
            "--wrapper-verbose",
            "--device-compiler=-nogpulib",
        ])
        .env("OFFLD_CLANG", llvm("clang"))
        .env("OFFLD_CACHE", "cache"),
    )?;
    expect_in(&stderr, "-x ir")?;
    passed()
}

/// LLVM 23 obeys `-fno-offload-lto` for AMD, so device code may be native. Links one object, then
/// several, which a directly run linker gets in one archive. Each link runs with the compiler and
/// twice with the cache.
fn elf_objects() -> Outcome {
    let work = Work::new();
    let (calls, is_called) = (
        device(&work, "one", CALLS, &[])?,
        device(&work, "two", IS_CALLED, &[])?,
    );
    work.fat("a.o", &[image(&calls)])?;
    work.fat("b.o", &[image(&is_called)])?;
    for cache in ["off", "cache", "cache"] {
        let symbols = image_of(
            &work,
            &["a.o", "b.o"],
            &[&format!("--wrapper-cache={cache}")],
        )?;
        expect_in(&symbols, " T kernel")?;
        expect_not_in(&symbols, " U ")?;
    }
    passed()
}

/// The call that clang 24 makes to its wrapper for `-fno-sycl-rdc`, for two targets. The object
/// made from that file is not an input of a link.
fn sycl_fatbin() -> Outcome {
    let work = Work::new();
    let spirv = [&0x0723_0203_u32.to_le_bytes()[..], &[0; 16]].concat();
    let sycl = |triple, arch| Image {
        triple,
        arch,
        kind: "sycl",
        bytes: &spirv,
    };
    work.pack("first", &[sycl("spirv64-unknown-unknown", "")])?;
    work.pack("second", &[sycl("spirv64_gen", "bmg_g21")])?;
    run(&mut work.wrapper([
        "--override-image=sycl=first",
        "--override-image=sycl=second",
        "--emit-fatbin-only",
        "-o",
        "fat",
    ]))?;
    let bytes = std::fs::read(work.path().join("fat"))?;
    ensure(bytes.starts_with(&[0x10, 0xff, 0x10, 0xad, 2]), || {
        format!("{:?}", &bytes[..8])
    })?;
    let stdout = run(work
        .command(crate::support::offld())
        .args(["inspect", "fat"]))?;
    expect_in(&stdout, "spirv64_gen")?;
    let assembly = ".section .sycl_fatbin,\"a\",@progbits\n.p2align 3\nbinary: .incbin \"fat\"\n.text\n.globl main\nmain: ret\n";
    work.file("host.s", assembly);
    run(work.command(llvm("clang")).args(["-c", "host.s"]))?;
    for object in ["host.o", "program"] {
        let stdout = run(work
            .command(crate::support::offld())
            .args(["inspect", "--json", object]))?;
        for part in [
            ".sycl_fatbin",
            "spirv64-unknown-unknown",
            "bmg_g21",
            "\"sycl\"",
        ] {
            expect_in(&stdout, part)?;
        }
        if object == "host.o" {
            run(&mut work.wrapper(["host.o", "-o", "a.out"]))?;
            ensure(
                work.device_lines()?.is_empty(),
                || "what is linked was linked again",
            )?;
            run(work
                .command(llvm("clang"))
                .args(["host.o", "-o", "program"]))?;
        }
    }
    passed()
}

/// A changed profile invalidates the cached link.
fn profile() -> Outcome {
    let work = Work::new();
    let bitcode = {
        work.file("one.c", "int twice(int x) { return 2 * x; }");
        run(work.command(llvm("clang")).args([
            "--target=x86_64-pc-linux-gnu",
            "-fPIC",
            "-O1",
            "-emit-llvm",
            "-c",
            "one.c",
            "-o",
            "one",
        ]))?;
        std::fs::read(work.path().join("one"))?
    };
    work.fat(
        "a.o",
        &[Image {
            triple: crate::kit::HOST,
            arch: "",
            kind: "openmp",
            bytes: &bitcode,
        }],
    )?;
    let make = |count: u32| {
        work.file("text", format!("twice\n0\n1\n{count}\n"));
        run(work
            .command(llvm("llvm-profdata"))
            .args(["merge", "text", "-o", "device.profdata"]))
    };
    let link = || {
        let mut link = work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "-shared",
            "-o",
            "out.so",
            "a.o",
            "--wrapper-verbose",
        ]);
        link.arg(format!("--linker-path={}", llvm("ld.lld").display()))
            .args(["--wrapper-cache=cache", "--device-compiler=-flto"]);
        stderr_of(
            link.arg("--device-compiler=-fprofile-use=device.profdata")
                .env("OFFLD_CLANG", llvm("clang")),
        )
    };
    make(1)?;
    std::thread::sleep(std::time::Duration::from_millis(50));
    link()?;
    let again = link()?;
    let hit = |messages: &str| {
        messages
            .lines()
            .any(|line| line.contains("device link") && line.contains("found in the cache"))
    };
    ensure(hit(&again), || {
        format!("the same link again is done again:\n{again}")
    })?;
    make(1000)?;
    std::thread::sleep(std::time::Duration::from_millis(50));
    let changed = link()?;
    ensure(!hit(&changed), || {
        format!("with another profile:\n{changed}")
    })?;
    passed()
}

fn multiple() -> Outcome {
    let work = Work::new();
    let object = |name: &str| {
        work.file(&format!("{name}.c"), "int twice(int x) { return 2 * x; }");
        run(work
            .command(llvm("clang"))
            .args(["-fPIC", "-c", &format!("{name}.c"), "-o", name]))?;
        Ok::<_, Failed>(std::fs::read(work.path().join(name))?)
    };
    let (one, other) = (object("one")?, object("other")?);
    let host = |bytes| Image {
        triple: crate::kit::HOST,
        arch: "",
        kind: "openmp",
        bytes,
    };
    work.fat("a.o", &[host(&one)])?;
    work.fat("b.o", &[host(&other)])?;
    for words in [&["--allow-multiple-definition"][..], &["-z", "muldefs"]] {
        let mut link = work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--linker-path=/usr/bin/ld",
            "-shared",
            "-o",
            "out.so",
            "a.o",
            "b.o",
        ]);
        run(link.args(words).env("OFFLD_CLANG", llvm("clang")))?;
    }
    let amd = |bytes| Image {
        triple: AMD,
        arch: "gfx908",
        kind: "openmp",
        bytes,
    };
    let nvidia = |bytes| Image {
        triple: crate::kit::NVIDIA,
        arch: "sm_80",
        kind: "openmp",
        bytes,
    };
    work.fat("c.o", &[amd(b"amd"), nvidia(b"nvidia")])?;
    run(&mut work.wrapper(["c.o", "-z", "muldefs", "-o", "a.out"]))?;
    for (name, line) in work.device_lines()? {
        let has = line
            .iter()
            .any(|word| word == "-Wl,--allow-multiple-definition");
        // nvlink does not have this option.
        ensure(has == name.contains("amdgcn"), || {
            format!("{name}: {line:?}")
        })?;
    }
    passed()
}
