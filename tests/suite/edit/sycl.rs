//! Programs for the SYCL runtime of LLVM 22: its descriptor has a row per image, and the rows of
//! the remaining images move with them.

use libtest_mimic::{Failed, Trial};

use super::stdout_of;
use crate::kinds::stubs;
use crate::kit::Image;
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_not_in, llvm, made, passed, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![with_llvm(
        "edit::sycl::rows_of_the_descriptor_move_with_their_images",
        rows,
    )]
}

/// Links a program with these images. Returns the calls with which it registers them.
fn program(work: &Work, name: &str, images: &[&str], words: &[&str]) -> Result<(), Failed> {
    let mut link = work.command(llvm("clang++"));
    link.args(["-O2", "--offload-link", "main.o", "-B"])
        .arg(&made().links)
        .arg(format!("-L{}", stubs().display()));
    link.args(
        images
            .iter()
            .map(|image| format!("-Wl,--override-image=sycl={image}")),
    );
    link.args([
        "-Wl,--offld-sycl-registration=22",
        "-Wl,--no-as-needed",
        "-lsycl",
        "-o",
        name,
    ])
    .args(words);
    run(&mut link)?;
    Ok(())
}

fn ledger(work: &Work, name: &str) -> Result<String, Failed> {
    let ledger = work.path().join("ledger");
    let _ = std::fs::remove_file(&ledger);
    run(work
        .command(work.path().join(name))
        .env("OFFLD_LEDGER", &ledger)
        .env("LD_LIBRARY_PATH", stubs()))?;
    let text = std::fs::read_to_string(&ledger)?;
    expect_not_in(&text, "BAD:")?;
    Ok(text)
}

fn rows() -> Outcome {
    let work = Work::new();
    let spirv = |size: usize| [&0x0723_0203_u32.to_le_bytes()[..], &vec![0; size]].concat();
    // The descriptor has triples and no architectures.
    let triples = [
        ("first", "spirv64", 16),
        ("second", "spirv64_gen", 20_000),
        ("third", "spirv64_x86_64", 4_000),
    ];
    for (name, triple, size) in triples {
        let triple = format!("{triple}-unknown-unknown");
        work.pack(
            name,
            &[Image {
                triple: &triple,
                arch: "",
                kind: "sycl",
                bytes: &spirv(size),
            }],
        )?;
    }
    work.file("main.c", "int main(void) { return 0; }");
    run(work.command(llvm("clang")).args(["-c", "main.c"]))?;
    for words in [&[][..], &["-no-pie"], &["-fuse-ld=bfd"]] {
        program(&work, "all", &["first", "second", "third"], words)?;
        for (drop, kept) in [
            ("spirv64_x86_64", ["first", "second"]),
            ("spirv64_gen", ["first", "third"]),
        ] {
            program(&work, "some", &kept, words)?;
            let stdout = stdout_of(
                &work,
                [
                    "prune",
                    "--drop",
                    &format!("{drop}-unknown-unknown"),
                    "all",
                    "-o",
                    "pruned",
                ],
            )?;
            expect_in(&stdout, &format!("1 of 3 images dropped: {drop}"))?;
            run(work.command("strip").arg("pruned"))?;
            expect_equal("ledger", &ledger(&work, "some")?, &ledger(&work, "pruned")?)?;
        }
        stdout_of(&work, ["split", "all", "-d", "parts"])?;
        let devices = ["spirv64", "spirv64_gen", "spirv64_x86_64"]
            .map(|triple| format!("parts/all.{triple}-unknown-unknown.part"));
        let parts: Vec<String> = devices
            .into_iter()
            .chain(["parts/all.host".to_owned()])
            .collect();
        stdout_of(
            &work,
            ["merge", "-o", "back"]
                .into_iter()
                .chain(parts.iter().map(String::as_str)),
        )?;
        super::same(&work.path().join("all"), &work.path().join("back"))?;
    }
    passed()
}
