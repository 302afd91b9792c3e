//! The input of SYCL runtimes: LLVM 22's receives a descriptor, those of LLVM 23 and 24 an
//! OffloadBinary. There is no clang 23 here, so objects of LLVM 22 get another producer string, and
//! clang 22 reports another version.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::kinds::stubs;
use crate::support::{
    LLVM, Outcome, Work, ensure, expect_in, expect_not_in, llvm, made, passed, root, run,
    run_failing, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "registration::the_producer_of_the_inputs_chooses_the_registration",
            by_producer,
        ),
        with_llvm(
            "registration::the_calling_clang_chooses_the_registration",
            by_clang,
        ),
        with_llvm(
            "registration::llvm_24_has_no_destructor",
            without_destructor,
        ),
        with_llvm("registration::inputs_of_both_sorts_are_an_error", mixed),
        with_llvm("registration::an_option_overrides_the_choice", option),
        with_llvm(
            "registration::all_images_of_all_targets_are_in_one_binary",
            several_targets,
        ),
        with_llvm(
            "registration::relocatable_outputs_register_their_own_binary",
            relocatable,
        ),
    ]
}

/// The two objects of a SYCL program.
fn compiled(work: &Work) -> Result<[PathBuf; 2], Failed> {
    let object = |name: &str| {
        let source = root().join(format!("tests/kinds/sycl-{name}.cpp"));
        let object = work.path().join(format!("{name}.o"));
        run(work
            .command(llvm("clang"))
            .args(["-O2", "-fPIC", "-fsycl", "-x", "c++", "-c"])
            .arg(source)
            .arg("-o")
            .arg(&object))?;
        Ok::<_, Failed>(object)
    };
    Ok([object("main")?, object("helper")?])
}

/// The six bits with which bitcode encodes a character of its producer string.
fn six_bits(text: &str) -> Vec<bool> {
    const ORDER: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
    let code = |c: char| ORDER.find(c).expect("a character of six bits");
    text.chars()
        .flat_map(|c| (0..6).map(move |bit| code(c) >> bit & 1 == 1))
        .collect()
}

/// Makes LLVM `major` the producer of the device bitcode in `object`. The producer string can begin
/// at any bit of the file.
fn produced_by(object: &Path, major: u32) -> Result<(), Failed> {
    let mut bytes = std::fs::read(object)?;
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (at % 8) & 1 == 1;
    let (old, new) = (six_bits("LLVM22"), six_bits(&format!("LLVM{major}")));
    let starts: Vec<usize> = (0..bytes.len() * 8 - old.len())
        .filter(|at| {
            bit(&bytes, *at) == old[0]
                && old
                    .iter()
                    .enumerate()
                    .all(|(index, value)| bit(&bytes, at + index) == *value)
        })
        .collect();
    ensure(!starts.is_empty(), || {
        format!("{}: no producer is named", object.display())
    })?;
    for start in starts {
        for (index, value) in new.iter().enumerate() {
            let (byte, mask) = ((start + index) / 8, 1u8 << ((start + index) % 8));
            bytes[byte] = if *value {
                bytes[byte] | mask
            } else {
                bytes[byte] & !mask
            };
        }
    }
    Ok(std::fs::write(object, bytes)?)
}

/// A clang that reports `version`.
fn clang(work: &Work, version: &str) -> PathBuf {
    let real = Path::new(LLVM).join("clang");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && {{ echo {version}.1.0; exit; }}\nexec {} \"$@\"\n",
        real.display()
    );
    work.tool(&format!("clang-of-{version}/clang"), &script)
}

/// A link with clang and offld as its wrapper. `clang` links the device code.
fn link(work: &Work, clang: &Path, words: &[&str]) -> Command {
    let mut command = work.command(llvm("clang++"));
    // offld searches `PATH` for clang-sycl-linker.
    let path = std::env::join_paths([PathBuf::from(LLVM)].into_iter().chain(
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()),
    ));
    command
        .env("PATH", path.expect("folders without colons"))
        .env("OFFLD_CLANG", clang);
    command
        .args(["-O2", "--offload-link", "-B"])
        .arg(&made().links)
        .arg(format!("-L{}", stubs().display()));
    command.args(words);
    if !words.contains(&"-r") {
        command.args(["-lsycl", "-o", "program"]);
    }
    command
}

/// The calls with which the program registers its images.
fn ledger(work: &Work) -> Result<String, Failed> {
    let ledger = work.path().join("ledger");
    let _ = std::fs::remove_file(&ledger);
    run(work
        .command("./program")
        .env("OFFLD_LEDGER", &ledger)
        .env("LD_LIBRARY_PATH", stubs()))?;
    let ledger = std::fs::read_to_string(&ledger)?;
    expect_not_in(&ledger, "BAD:")?;
    expect_in(&ledger, "sycl unregister lib=0")?;
    Ok(ledger)
}

const OLD: &str = "sycl register lib=0 version=1 images=1";
const NEW: &str = "sycl register lib=0 binary=2 images=1";

fn expect_new(ledger: &str) -> Result<(), Failed> {
    expect_in(ledger, NEW)?;
    expect_in(ledger, "target=spirv64-unknown-unknown")?;
    for kernel in ["kernel=_ZTS5First\n", "kernel=_ZTS6Second\n"] {
        expect_in(ledger, kernel)?;
    }
    Ok(())
}

fn by_producer() -> Outcome {
    let work = Work::new();
    let objects = compiled(&work)?;
    let older = clang(&work, "22");
    run(&mut link(&work, &older, &["main.o", "helper.o"]))?;
    expect_in(&ledger(&work)?, OLD)?;
    for major in [23, 24] {
        let objects_of = compiled(&work)?;
        objects_of
            .iter()
            .try_for_each(|object| produced_by(object, major))?;
        // Only the producer string identifies the version. The link's clang reports the same
        // version, or an unknown one.
        run(&mut link(
            &work,
            &clang(&work, &major.to_string()),
            &["main.o", "helper.o"],
        ))?;
        expect_new(&ledger(&work)?)?;
    }
    // The compiler reports no version, so only the producer string identifies it.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && {{ echo trunk; exit; }}\nexec {} \"$@\"\n",
        llvm("clang").display()
    );
    let unknown = work.tool("clang-of-no-release/clang", &script);
    run(&mut link(&work, &unknown, &["main.o", "helper.o"]))?;
    expect_new(&ledger(&work)?)?;
    compiled(&work)?;
    run(&mut link(&work, &unknown, &["main.o", "helper.o"]))?;
    expect_in(&ledger(&work)?, OLD)?;
    ensure(
        objects.iter().all(|object| object.exists()),
        || "objects are gone",
    )?;
    passed()
}

fn by_clang() -> Outcome {
    let work = Work::new();
    compiled(&work)?;
    for (version, wanted) in [("22", OLD), ("23", NEW), ("24", NEW), ("25", NEW)] {
        run(&mut link(
            &work,
            &clang(&work, version),
            &["main.o", "helper.o"],
        ))?;
        expect_in(&ledger(&work)?, wanted)?;
    }
    passed()
}

/// The registration module of a link with `option`.
fn module(work: &Work, option: &str) -> Result<String, Failed> {
    let words = [
        "main.o",
        "helper.o",
        &format!("-Wl,--offld-sycl-registration={option}"),
        "-Wl,--print-wrapped-module",
    ];
    stderr_of(&mut link(work, &clang(work, "22"), &words))
}

fn without_destructor() -> Outcome {
    let work = Work::new();
    compiled(&work)?;
    let text = module(&work, "24")?;
    for part in [
        "{ i32 101, ptr @sycl.descriptor_reg, ptr null }",
        "call i32 @atexit(ptr @sycl.descriptor_unreg)",
        "@.sycl_offloading.binary = internal unnamed_addr constant [",
        "section \".sycl_fatbin\"",
        "call void @__sycl_register_lib(ptr @.sycl_offloading.binary, i64 ",
        "call void @__sycl_unregister_lib(ptr @.sycl_offloading.binary, i64 ",
    ] {
        expect_in(&text, part)?;
    }
    expect_not_in(&text, "llvm.global_dtors")?;
    expect_new(&ledger(&work)?)?;
    let text = module(&work, "23")?;
    expect_in(&text, "{ i32 1, ptr @sycl.descriptor_reg, ptr null }")?;
    expect_in(
        &text,
        "@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 1, ptr @sycl.descriptor_unreg",
    )?;
    expect_not_in(&text, "atexit")?;
    expect_new(&ledger(&work)?)?;
    passed()
}

fn mixed() -> Outcome {
    let work = Work::new();
    let [_, helper] = compiled(&work)?;
    produced_by(&helper, 23)?;
    for order in [["main.o", "helper.o"], ["helper.o", "main.o"]] {
        let stderr = run_failing(&mut link(&work, &clang(&work, "23"), &order))?;
        for part in [
            "main.o",
            "from LLVM 22",
            "helper.o",
            "from LLVM 23",
            "--offld-sycl-registration=",
        ] {
            expect_in(&stderr, part)?;
        }
    }
    // One runtime reads the objects of both later versions.
    let [main, _] = compiled(&work)?;
    produced_by(&main, 24)?;
    produced_by(&work.path().join("helper.o"), 23)?;
    run(&mut link(
        &work,
        &clang(&work, "24"),
        &["main.o", "helper.o"],
    ))?;
    expect_new(&ledger(&work)?)?;
    passed()
}

fn option() -> Outcome {
    let work = Work::new();
    let [_, helper] = compiled(&work)?;
    produced_by(&helper, 23)?;
    for (option, wanted) in [("22", OLD), ("23", NEW), ("24", NEW)] {
        let words = [
            "main.o",
            "helper.o",
            &format!("-Wl,--offld-sycl-registration={option}"),
        ];
        run(&mut link(&work, &clang(&work, "23"), &words))?;
        expect_in(&ledger(&work)?, wanted)?;
    }
    let words = ["main.o", "helper.o", "-Wl,--offld-sycl-registration=21"];
    let stderr = run_failing(&mut link(&work, &clang(&work, "23"), &words))?;
    expect_in(
        &stderr,
        "--offld-sycl-registration=21: expected 22, 23 or 24",
    )?;
    passed()
}

/// An object for which clang-sycl-linker creates images for two targets, as `--override-image`
/// accepts them.
fn several_targets() -> Outcome {
    let work = Work::new();
    let spirv = [&0x0723_0203_u32.to_le_bytes()[..], &[0; 16]].concat();
    let image = |triple, arch, bytes| crate::kit::Image {
        triple,
        arch,
        kind: "sycl",
        bytes,
    };
    work.pack("first", &[image("spirv64-unknown-unknown", "", &spirv)])?;
    work.pack("second", &[image("spirv64_gen", "bmg_g21", &spirv)])?;
    work.file("main.c", "int main(void) { return 0; }");
    run(work.command(llvm("clang")).args(["-c", "main.c"]))?;
    let words = [
        "main.o",
        "-Wl,--override-image=sycl=first",
        "-Wl,--override-image=sycl=second",
        "-Wl,--offld-sycl-registration=23",
        "-Wl,--no-as-needed",
    ];
    run(&mut link(&work, &clang(&work, "22"), &words))?;
    let ledger = ledger(&work)?;
    expect_in(&ledger, "sycl register lib=0 binary=2 images=2")?;
    for part in [
        "target=spirv64-unknown-unknown",
        "target=spirv64_gen arch=bmg_g21 kind=object is=spirv",
    ] {
        expect_in(&ledger, part)?;
    }
    passed()
}

/// Two `-r` outputs in one program, each with a registration. A later link does not treat the
/// linked images as inputs.
fn relocatable() -> Outcome {
    let work = Work::new();
    compiled(&work)?;
    let clang = clang(&work, "23");
    for name in ["main", "helper"] {
        let mut partial = link(&work, &clang, &["-r", "-nostdlib", &format!("{name}.o")]);
        run(partial.args(["-Wl,--no-offload-runtime", "-o", &format!("{name}-r.o")]))?;
    }
    run(&mut link(&work, &clang, &["main-r.o", "helper-r.o"]))?;
    let ledger = ledger(&work)?;
    for part in [
        "sycl register lib=0 binary=2 images=1",
        "sycl register lib=1 binary=2 images=1",
        "sycl unregister lib=1",
    ] {
        expect_in(&ledger, part)?;
    }
    passed()
}
