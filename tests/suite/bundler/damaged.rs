//! Files that LLVM's bundler misreads, or reads although they are damaged, by fault number
//! (docs/spec/faults.md).

use libtest_mimic::{Failed, Trial};

use super::{GFX90A, GFX906, HOST, bundle, bundler, done, fails, files, ours, read, theirs, words};
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_no_file, llvm, passed, run, run_failing,
    stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("bundler::b5_no_alignment_is_refused", b5),
        with_llvm("bundler::b6_b8_damaged_bundles_are_errors", b6),
        with_llvm("bundler::b7_a_text_bundle_without_its_end_is_an_error", b7),
        with_llvm("bundler::b9_bundles_in_a_row", b9),
        with_llvm("bundler::b10_ob_29_bundles_in_programs", b10),
        with_llvm("bundler::b11_ob_60_damaged_data_is_an_error", b11),
        with_llvm("bundler::b12_a_size_that_lies_is_an_error", b12),
        test("bundler::b23_ob_20_line_ends_of_windows", b23),
    ]
}

/// Copies a file and replaces 8 bytes at `at`.
fn patched(work: &Work, from: &str, to: &str, at: usize, value: u64) -> Result<(), Failed> {
    let mut bytes = std::fs::read(work.path().join(from))?;
    bytes
        .get_mut(at..at + 8)
        .ok_or("a short file")?
        .copy_from_slice(&value.to_le_bytes());
    work.file(to, bytes);
    Ok(())
}

fn b5() -> Outcome {
    let work = Work::new();
    files(&work);
    fails(
        &work,
        &format!("-type=bc -bundle-align=0 -targets={HOST} -input=host -output=made"),
        "alignment",
    )?;
    expect_no_file(&work.path().join("made"))?;
    passed()
}

fn b6() -> Outcome {
    let work = Work::new();
    files(&work);
    bundle(&work, "bc", [HOST, GFX906, GFX90A], "made")?;
    let list = |name: &str| format!("-list -type=bc -input={name}");
    let unbundle =
        |name: &str| format!("-unbundle -type=bc -targets={GFX906} -input={name} -output=out");
    let second = 32 + 24 + HOST.len();
    for (at, value, what) in [
        (24, u64::MAX, "bundle"),
        (24, 1 << 40, "bundle"),
        (second, u64::MAX - 3, "code object past the end"),
        (second + 8, u64::MAX, "code object past the end"),
        (second + 16, u64::MAX, "bundle id past the end"),
        (second, 3, "code object inside the header"),
    ] {
        patched(&work, "made", "bad", at, value)?;
        fails(&work, &list("bad"), "error: bad+0x")?;
        fails(&work, &list("bad"), what)?;
        fails(&work, &unbundle("bad"), what)?;
        expect_no_file(&work.path().join("out"))?;
    }
    // B8: truncated files. LLVM's bundler lists the ids before the end, or crashes.
    let whole = std::fs::read(work.path().join("made"))?;
    for len in [24, 31, 40, 100, whole.len() - 1] {
        work.file("cut", &whole[..len]);
        fails(&work, &list("cut"), "error: cut+")?;
    }
    // A file that is not a bundle has no ids.
    expect_equal("no bundle", "", &done(&work, ours(), &list("host"))?)?;
    passed()
}

fn b7() -> Outcome {
    let work = Work::new();
    files(&work);
    bundle(&work, "i", [HOST, GFX906, GFX90A], "made")?;
    let whole = read(&work, "made")?;
    let end = whole
        .rfind("// __CLANG_OFFLOAD_BUNDLE____END__")
        .ok_or("no end")?;
    work.file("cut", &whole[..end]);
    for line in [
        "-list -type=i -input=cut".to_owned(),
        format!("-unbundle -type=i -targets={GFX90A} -input=cut -output=out"),
    ] {
        fails(&work, &line, "has no end marker")?;
    }
    expect_no_file(&work.path().join("out"))?;
    passed()
}

/// B9: linkers concatenate the compressed bundles of several objects, with padding.
fn b9() -> Outcome {
    let work = Work::new();
    files(&work);
    let mut all = Vec::new();
    for (index, (id, file)) in [
        (GFX906, "one"),
        (GFX90A, "two"),
        ("hip-amdgcn-amd-amdhsa--gfx1100", "host"),
    ]
    .into_iter()
    .enumerate()
    {
        let packed = if index == 1 { "" } else { "-compress" };
        let tool = if index == 2 { theirs() } else { ours() };
        done(
            &work,
            tool,
            &format!(
                "-type=o {packed} -targets={HOST},{id} -input=/dev/null -input={file} -output=part"
            ),
        )?;
        all.extend(std::fs::read(work.path().join("part"))?);
        all.resize(all.len().next_multiple_of(4096), 0);
    }
    work.file("all", &all);
    let ids = [
        HOST,
        GFX906,
        HOST,
        GFX90A,
        HOST,
        "hip-amdgcn-amd-amdhsa--gfx1100",
    ];
    expect_equal(
        "all",
        &(ids.join("\n") + "\n"),
        &done(&work, ours(), "-list -type=o -input=all")?,
    )?;
    let targets = [ids[1], ids[3], ids[5]].join(",");
    done(
        &work,
        ours(),
        &format!("-unbundle -type=o -targets={targets} -input=all -output=a -output=b -output=c"),
    )?;
    for (out, file) in [("a", "one"), ("b", "two"), ("c", "host")] {
        expect_equal(out, &read(&work, file)?, &read(&work, out)?)?;
    }
    // Only the first of several code objects for a target is written; a warning counts the others.
    let stderr = stderr_of(&mut bundler(
        &work,
        ours(),
        &words(&format!(
            "-unbundle -type=o -targets={HOST} -input=all -output=h"
        )),
    ))?;
    expect_in(
        &stderr,
        "warning: 'all' has 2 more code objects for host-x86_64-unknown-linux-gnu-: the first is written",
    )?;
    // LLVM's bundler treats the rest of the file as the data of the first header.
    expect_in(
        &run_failing(&mut bundler(
            &work,
            theirs(),
            &["-list", "-type=o", "-input=all"],
        ))?,
        "Src size is incorrect",
    )?;
    passed()
}

fn b10() -> Outcome {
    let work = Work::new();
    files(&work);
    let clang = |words: &[&str]| run(work.command(llvm("clang")).args(words)).map(drop);
    for (packed, name) in [("", "plain"), ("-compress", "packed")] {
        done(
            &work,
            ours(),
            &format!(
                "-type=o {packed} -bundle-align=4096 -targets={HOST},{GFX906} -input=/dev/null -input=one -output={name}.hipfb"
            ),
        )?;
        work.file(
            "fat.s",
            format!(
                ".section .hip_fatbin,\"a\",@progbits\n.p2align 12\n.incbin \"{name}.hipfb\"\n.globl main\n.text\nmain: ret\n"
            ),
        );
        clang(&[
            "--target=x86_64-unknown-linux-gnu",
            "-c",
            "fat.s",
            "-o",
            &format!("{name}.o"),
        ])?;
        clang(&["-shared", &format!("{name}.o"), "-o", &format!("{name}.so")])?;
        for file in [format!("{name}.o"), format!("{name}.so")] {
            expect_equal(
                &file,
                &format!("{HOST}\n{GFX906}\n"),
                &done(&work, ours(), &format!("-list -type=o -input={file}"))?,
            )?;
            done(
                &work,
                ours(),
                &format!("-unbundle -type=o -targets={GFX906} -input={file} -output=out"),
            )?;
            expect_equal(&file, &read(&work, "one")?, &read(&work, "out")?)?;
            expect_equal(
                "LLVM's",
                "",
                &done(&work, theirs(), &format!("-list -type=o -input={file}"))?,
            )?;
        }
    }
    passed()
}

fn b11() -> Outcome {
    let work = Work::new();
    files(&work);
    let line =
        format!("-type=bc -compress -targets={HOST},{GFX906} -input=host -input=one -output=made");
    done(&work, ours(), &line)?;
    patched(&work, "made", "bad", 24, 7)?;
    let unbundle =
        format!("-unbundle -type=bc -targets={HOST},{GFX906} -input=bad -output=a -output=b");
    fails(
        &work,
        &unbundle,
        "error: Failed to decompress input: bad+0x20: the data does not match its hash",
    )?;
    expect_no_file(&work.path().join("a"))?;
    done(&work, theirs(), &unbundle)?;
    // Listing reads only the first bytes, so it still works.
    expect_equal(
        "ids",
        &format!("{HOST}\n{GFX906}\n"),
        &done(&work, ours(), "-list -type=bc -input=bad")?,
    )?;
    passed()
}

fn b12() -> Outcome {
    let work = Work::new();
    files(&work);
    let line =
        format!("-type=bc -compress -targets={HOST},{GFX906} -input=host -input=one -output=made");
    done(&work, ours(), &line)?;
    for (at, value, what) in [
        (
            16,
            1 << 40,
            "uncompressed size is more than the compressed data can hold",
        ),
        (16, 500, "less data than the header states"),
        (16, 50, "more data than the header states"),
        (8, 1 << 40, "size field past the end"),
        (8, 8, "size field too small"),
    ] {
        patched(&work, "made", "bad", at, value)?;
        let unbundle = format!("-unbundle -type=bc -targets={HOST} -input=bad -output=out");
        fails(&work, &unbundle, "error: Failed to decompress input: bad+")?;
        fails(&work, &unbundle, what)?;
        expect_no_file(&work.path().join("out"))?;
    }
    work.expect_no_temps()?;
    passed()
}

fn b23() -> Outcome {
    let work = Work::new();
    files(&work);
    bundle(&work, "i", [HOST, GFX906, GFX90A], "made")?;
    let text = read(&work, "made")?;
    work.file("dos", text.replace('\n', "\r\n"));
    // LLVM's bundler writes a newline first, and finds no marker without it.
    work.file("start", text.trim_start());
    for name in ["dos", "start"] {
        expect_equal(
            name,
            &format!("{HOST}\n{GFX906}\n{GFX90A}\n"),
            &done(&work, ours(), &format!("-list -type=i -input={name}"))?,
        )?;
        done(
            &work,
            ours(),
            &format!(
                "-unbundle -type=i -targets={HOST},{GFX90A} -input={name} -output=a -output=b"
            ),
        )?;
        expect_equal(
            name,
            "the host the second",
            &format!("{} {}", read(&work, "a")?, read(&work, "b")?),
        )?;
    }
    passed()
}
