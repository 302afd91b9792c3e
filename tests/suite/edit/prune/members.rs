//! `offld prune` and `recompress` on wheels: which members change, and the messages about members
//! that cannot change.

use std::io::Write;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::edit::wheels::check;
use crate::edit::{refused, stdout_of, targets};
use crate::kit::{HOST, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, passed,
    run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("edit::prune::only_some_are_pruned", selected),
        with_llvm(
            "edit::prune::images_that_cannot_be_removed_are_named_with_the_way_out",
            fixed,
        ),
        with_llvm(
            "edit::prune::images_are_counted_as_inspect_counts_them",
            counted,
        ),
        with_llvm(
            "edit::prune::an_archive_of_several_devices_goes_as_a_whole",
            archive,
        ),
        with_llvm(
            "edit::prune::what_does_not_become_smaller_stays",
            recompressed,
        ),
        with_llvm(
            "edit::prune::only_streams_that_cannot_be_made_again_are_recompressed",
            split,
        ),
        with_llvm(
            "edit::prune::a_dry_run_reports_the_digest_of_the_new_file",
            digests,
        ),
    ]
}

/// The code for several Intel GPUs in one archive, as ocloc creates it.
fn ocloc(work: &Work) -> Result<Vec<u8>, Failed> {
    // ELF files for the machine EM_INTELGT.
    let image = |byte: u8| {
        let mut elf = vec![0; 64];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        elf[16..20].copy_from_slice(&[1, 0, 205, 0]);
        elf[20] = 1;
        elf[52] = 64;
        elf.extend([byte; 200]);
        elf
    };
    for (name, byte) in [("64.12.60.7", 1), ("64.12.70.4", 2), ("pad_0", b' ')] {
        work.file(
            name,
            if byte == b' ' {
                vec![b' '; 10]
            } else {
                image(byte)
            },
        );
    }
    let _ = std::fs::remove_file(work.path().join("ocloc"));
    run(work
        .command(llvm("llvm-ar"))
        .args(["qc", "ocloc", "64.12.60.7", "pad_0", "64.12.70.4"]))?;
    Ok(std::fs::read(work.path().join("ocloc"))?)
}

/// A library as Intel's compiler links it: one section with SPIR-V, and one with an archive of code
/// for two GPUs. The archive is compressed with zstd if `packed`.
fn sycl_library(work: &Work, name: &str, packed: bool) -> Result<(), Failed> {
    let archive = ocloc(work)?;
    work.file(
        "gen",
        if packed {
            zstd::bulk::compress(&archive, 3)?
        } else {
            archive
        },
    );
    work.file(
        "spirv",
        [&0x0723_0203_u32.to_le_bytes()[..], &[0; 60]].concat(),
    );
    let section = |name: &str, file: &str| {
        format!(
            ".section \"__CLANG_OFFLOAD_BUNDLE__sycl-{name}\",\"a\",@progbits\n.p2align 4\n.incbin \"{file}\"\n"
        )
    };
    work.file(
        "sycl.s",
        section("spir64_gen-unknown-unknown-unknown", "gen")
            + &section("spir64-unknown-unknown-unknown", "spirv"),
    );
    run(work.command(llvm("clang")).args([
        "-shared",
        "-nostdlib",
        "-fuse-ld=lld",
        "sycl.s",
        "-o",
        name,
    ]))?;
    Ok(())
}

/// Packs the files `members` as the wheel `name`, with their digests in its `RECORD`.
fn zip(work: &Work, name: &str, members: &[&str]) -> Result<(), Failed> {
    let names = members
        .iter()
        .map(|member| format!("'{member}'"))
        .collect::<Vec<_>>()
        .join(", ");
    work.file(
        "zip.py",
        format!(
            "import base64, hashlib, zipfile\n\
             of = lambda data: 'sha256=' + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()\n\
             with zipfile.ZipFile('{name}', 'w', zipfile.ZIP_DEFLATED) as wheel:\n\
             \x20   record = ''\n\
             \x20   for name in [{names}]:\n\
             \x20       wheel.write(name, 'some/' + name)\n\
             \x20       data = open(name, 'rb').read()\n\
             \x20       record += f'some/{{name}},{{of(data)}},{{len(data)}}\\n'\n\
             \x20   wheel.writestr('some-1.0.dist-info/RECORD', record + 'some-1.0.dist-info/RECORD,,\\n')\n"
        ),
    );
    run(work.command("python3").arg("zip.py"))?;
    Ok(())
}

/// The report that `offld WORDS --json` prints for its first file.
fn report(work: &Work, words: &[&str]) -> Result<Value, Failed> {
    let json: Value =
        serde_json::from_str(&stdout_of(work, words.iter().copied().chain(["--json"]))?)?;
    Ok(json["files"][0].clone())
}

fn selected() -> Outcome {
    let work = Work::new();
    for name in ["first.o", "second.o"] {
        work.fat(
            name,
            &[
                Image::hip("gfx90a", &[1; 3000]),
                Image {
                    triple: HOST,
                    arch: "",
                    kind: "openmp",
                    bytes: b"host",
                },
            ],
        )?;
    }
    zip(&work, "a.whl", &["first.o", "second.o"])?;
    for words in [["--only", "first*"], ["--exclude", "some/second.o"]] {
        let messages = stdout_of(
            &work,
            [
                &["prune", "--drop", "gfx90a", "a.whl", "-o", "b.whl"][..],
                &words,
            ]
            .concat(),
        )?;
        expect_in(&messages, "1 of 2 images dropped: gfx90a")?;
        check(&work, "b.whl")?;
        expect_equal(
            "images",
            &format!("{HOST} gfx90a {HOST}"),
            &targets(&work, "b.whl")?,
        )?;
    }
    // A file that is not selected does not change.
    let messages = stdout_of(
        &work,
        [
            "prune",
            "--drop",
            "gfx90a",
            "--exclude",
            "*.o",
            "first.o",
            "-o",
            "same.o",
        ],
    )?;
    expect_in(&messages, "unchanged")?;
    crate::edit::same(&work.path().join("first.o"), &work.path().join("same.o"))?;
    let messages = refused(
        &work,
        [
            "prune",
            "--drop",
            "gfx90a",
            "--only",
            "third.o",
            "a.whl",
            "--dry-run",
        ],
    )?;
    expect_in(&messages, "no file or member matches `third.o` of --only")?;
    passed()
}

fn digests() -> Outcome {
    let work = Work::new();
    work.fat(
        "main.o",
        &[
            Image::hip("gfx90a", &[1; 3000]),
            Image::hip("gfx942", &[2; 3000]),
        ],
    )?;
    zip(&work, "a.whl", &["main.o"])?;
    for (file, new) in [("main.o", "new.o"), ("a.whl", "new.whl")] {
        let dry = report(&work, &["prune", "--drop", "gfx942", file, "--dry-run"])?;
        let written = report(&work, &["prune", "--drop", "gfx942", file, "-o", new])?;
        expect_equal("changed", "true", &dry["changed"].to_string())?;
        ensure(
            dry["sha256_after"].is_string() && dry["sha256_after"] != dry["sha256_before"],
            || format!("{dry}"),
        )?;
        for member in ["sha256_before", "sha256_after", "after"] {
            expect_equal(
                member,
                &written[member].to_string(),
                &dry[member].to_string(),
            )?;
        }
        let again = report(&work, &["prune", "--drop", "gfx942", new, "--dry-run"])?;
        expect_equal(
            "unchanged",
            &again["sha256_before"].to_string(),
            &again["sha256_after"].to_string(),
        )?;
        expect_equal(
            "the digest of the file",
            &written["sha256_after"].to_string(),
            &again["sha256_before"].to_string(),
        )?;
        let unknown = report(
            &work,
            &[
                "prune",
                "--drop",
                "gfx942",
                file,
                "--dry-run",
                "--new-build-id",
            ],
        )?;
        expect_equal(
            "with a new build id",
            "null",
            &unknown["sha256_after"].to_string(),
        )?;
    }
    passed()
}

fn fixed() -> Outcome {
    let work = Work::new();
    sycl_library(&work, "libxpu.so", true)?;
    work.fat(
        "cuda.o",
        &[
            Image::cuda("sm_80", &[1; 3000]),
            Image::cuda("sm_90", &[2; 3000]),
        ],
    )?;
    zip(&work, "a.whl", &["cuda.o", "libxpu.so"])?;
    let stderr = refused(&work, ["prune", "--keep", "sm_90", "a.whl", "-o", "b.whl"])?;
    expect_in(
        &stderr,
        "error: cannot remove SYCL images from a.whl(some/libxpu.so): they are in the section \
         __CLANG_OFFLOAD_BUNDLE__sycl-spir64_gen-unknown-unknown-unknown of a finished program; to leave them in, add sycl:* to --keep",
    )?;
    expect_equal(
        "named once",
        "1",
        &stderr.matches("libxpu.so").count().to_string(),
    )?;
    expect_no_file(&work.path().join("b.whl"))?;
    // Both suggestions in the message work.
    for words in [["--keep", "sm_90,sycl:*"], ["--exclude", "*xpu*"]] {
        let words = if words[0] == "--keep" {
            words.to_vec()
        } else {
            [&["--keep", "sm_90"][..], &words].concat()
        };
        stdout_of(
            &work,
            [&["prune", "a.whl", "-o", "b.whl"][..], &words].concat(),
        )?;
        check(&work, "b.whl")?;
        expect_not_in(&targets(&work, "b.whl")?, "sm_80")?;
        expect_in(&targets(&work, "b.whl")?, "12.60.7")?;
    }
    let stderr = refused(
        &work,
        ["prune", "--drop", "sycl:*", "libxpu.so", "--dry-run"],
    )?;
    expect_in(
        &stderr,
        "to leave them in, pass --exclude with the name of the file or member",
    )?;
    // The report has the size of a file even if the command failed for it.
    let mut command = work.command(crate::support::offld());
    let ended = crate::support::output(command.args([
        "prune",
        "--drop",
        "sycl:*",
        "libxpu.so",
        "--dry-run",
        "--json",
    ]))?;
    let json: Value = serde_json::from_slice(&ended.stdout)?;
    let size = std::fs::metadata(work.path().join("libxpu.so"))?.len();
    expect_equal(
        "before",
        &size.to_string(),
        &json["files"][0]["before"].to_string(),
    )?;
    passed()
}

fn counted() -> Outcome {
    let work = Work::new();
    for packed in [true, false] {
        sycl_library(&work, "libxpu.so", packed)?;
        let inspected = targets(&work, "libxpu.so")?;
        expect_equal(
            "inspect",
            "12.60.7 12.70.4 spir64-unknown-unknown-unknown",
            &inspected,
        )?;
        let summary = stdout_of(&work, ["inspect", "--headers-only", "--json", "libxpu.so"])?;
        let headers: Value = serde_json::from_str(&summary)?;
        expect_equal(
            "headers only",
            "3",
            &headers["files"][0]["images"]
                .as_array()
                .map_or(0, Vec::len)
                .to_string(),
        )?;
        let sizes: Value =
            serde_json::from_str(&stdout_of(&work, ["size", "--json", "libxpu.so"])?)?;
        expect_equal(
            "size",
            "3",
            &sizes["images"].as_array().map_or(0, Vec::len).to_string(),
        )?;
        let pruned = report(
            &work,
            &["prune", "--keep", "sycl:*", "--dry-run", "libxpu.so"],
        )?;
        let names = |report: &Value| -> Vec<String> {
            report["images"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|image| image["target"].to_string())
                .collect()
        };
        expect_equal(
            "prune",
            &names(&headers["files"][0]).join(" "),
            &names(&pruned).join(" "),
        )?;
        // Patterns select these images by the triple alone.
        let mut command = work.command(crate::support::offld());
        let ended = crate::support::output(command.args([
            "prune",
            "--drop",
            "spir64_gen",
            "libxpu.so",
            "--dry-run",
        ]))?;
        expect_not_in(&crate::support::text(&ended.stderr), "selects no image")?;
        // The archive is one part, which has the archive's name.
        stdout_of(&work, ["split", "libxpu.so", "-d", "parts"])?;
        let part = "parts/libxpu.so.spir64_gen-unknown-unknown-unknown.part";
        stdout_of(
            &work,
            [
                "merge",
                "-o",
                "back.so",
                "parts/libxpu.so.host",
                part,
                "parts/libxpu.so.spir64-unknown-unknown-unknown.part",
            ],
        )?;
        crate::edit::same(&work.path().join("libxpu.so"), &work.path().join("back.so"))?;
        std::fs::remove_dir_all(work.path().join("parts"))?;
    }
    // Entries for the host in a bundle are not device images.
    work.file("host", "code of the host");
    work.file("one", "code of the device");
    let mut bundle = work.command(llvm("clang-offload-bundler"));
    bundle.args([
        "-type=o",
        "-output=some.hipfb",
        "-input=host",
        "-input=one",
        "-input=one",
    ]);
    run(bundle.arg("-targets=host-x86_64-unknown-linux-gnu,hip-amdgcn-amd-amdhsa--gfx90a,hip-amdgcn-amd-amdhsa--gfx942"))?;
    expect_in(
        &stdout_of(&work, ["inspect", "some.hipfb"])?,
        "2 device images",
    )?;
    expect_in(
        &stdout_of(
            &work,
            ["prune", "--drop", "gfx942", "some.hipfb", "--dry-run"],
        )?,
        "1 of 2 images dropped: gfx942",
    )?;
    let sizes: Value = serde_json::from_str(&stdout_of(&work, ["size", "--json", "some.hipfb"])?)?;
    expect_equal("size", "2", &sizes["total"]["images"].to_string())?;
    passed()
}

fn archive() -> Outcome {
    let work = Work::new();
    let archive = ocloc(&work)?;
    let gen_image = |bytes| Image {
        triple: "spir64_gen-unknown-unknown",
        arch: "",
        kind: "sycl",
        bytes,
    };
    let packed = zstd::bulk::compress(&archive, 3)?;
    for bytes in [&archive, &packed] {
        work.pack("both", &[gen_image(bytes), Image::hip("gfx90a", b"hip")])?;
        expect_equal(
            "inspect",
            "12.60.7 12.70.4 gfx90a",
            &targets(&work, "both")?,
        )?;
        stdout_of(&work, ["prune", "--keep", "gfx90a", "both", "-o", "one"])?;
        expect_equal("without the archive", "gfx90a", &targets(&work, "one")?)?;
        stdout_of(&work, ["prune", "--drop", "gfx90a", "both", "-o", "one"])?;
        expect_equal(
            "without the other image",
            "12.60.7 12.70.4",
            &targets(&work, "one")?,
        )?;
        let stderr = refused(&work, ["prune", "--drop", "12.60.7", "both", "-o", "none"])?;
        expect_in(
            &stderr,
            "cannot remove SYCL images from both: they share an archive of Intel's ocloc with images for other",
        )?;
        expect_no_file(&work.path().join("none"))?;
    }
    passed()
}

/// A HIP bundle, compressed with zstd at this level.
fn bundle(work: &Work, name: &str, level: &str) -> Result<(), Failed> {
    let text: String = (0..20_000)
        .map(|number| format!("{} ", number * 7919 % 10_007))
        .collect();
    work.file("one", &text);
    work.file("host", "");
    let mut command = work.command(llvm("clang-offload-bundler"));
    command.args([
        "-type=bc",
        "-targets=host-x86_64-unknown-linux-gnu,hip-amdgcn-amd-amdhsa--gfx90a",
        "-input=host",
        "-input=one",
    ]);
    run(command.args([
        "-compress",
        &format!("-compression-level={level}"),
        &format!("-output={name}"),
    ]))?;
    Ok(())
}

fn recompressed() -> Outcome {
    let work = Work::new();
    bundle(&work, "fast.hipfb", "1")?;
    bundle(&work, "best.hipfb", "19")?;
    zip(&work, "a.whl", &["fast.hipfb", "best.hipfb"])?;
    let stdout = stdout_of(
        &work,
        [
            "recompress",
            "--level",
            "19",
            "best.hipfb",
            "-o",
            "same.hipfb",
        ],
    )?;
    expect_in(
        &stdout,
        "unchanged; 0 of 1 compressed container recompressed, 1 would not become smaller",
    )?;
    crate::edit::same(
        &work.path().join("best.hipfb"),
        &work.path().join("same.hipfb"),
    )?;
    let stdout = stdout_of(
        &work,
        ["recompress", "--level", "19", "a.whl", "-o", "b.whl"],
    )?;
    expect_in(
        &stdout,
        "; 1 of 2 compressed containers recompressed, 1 would not become smaller",
    )?;
    check(&work, "b.whl")?;
    let size = |name: &str| std::fs::metadata(work.path().join(name)).map(|meta| meta.len());
    ensure(
        size("b.whl")? < size("a.whl")?,
        || "the wheel is not smaller",
    )?;
    // A member without changes keeps its bytes, also its compressed ones.
    work.file(
        "same.py",
        "import zipfile\n\
         def packed(name):\n\
         \x20   wheel = zipfile.ZipFile(name)\n\
         \x20   member = wheel.getinfo('some/best.hipfb')\n\
         \x20   data = open(name, 'rb').read()\n\
         \x20   start = member.header_offset + 30 + len(member.filename)\n\
         \x20   return data[start:start + member.compress_size]\n\
         assert packed('a.whl') == packed('b.whl')\n",
    );
    run(work.command("python3").arg("same.py"))?;
    // A second run changes nothing.
    let report = report(
        &work,
        &["recompress", "--level", "19", "b.whl", "--dry-run"],
    )?;
    expect_equal("again", "false", &report["changed"].to_string())?;
    expect_equal(
        "again",
        "{\"all\":2,\"lz4\":0,\"smaller\":0}",
        &report["recompressed"].to_string(),
    )?;
    // A member without compressed device code is not deflated again.
    let mut noise = std::fs::File::create(work.path().join("plain.bin"))?;
    noise.write_all(&std::fs::read(
        work.pack("packed", &[Image::hip("gfx90a", &[1; 9000])])?,
    )?)?;
    zip(&work, "plain.whl", &["plain.bin"])?;
    expect_in(
        &stdout_of(
            &work,
            [
                "recompress",
                "--level",
                "19",
                "plain.whl",
                "-o",
                "again.whl",
            ],
        )?,
        "unchanged",
    )?;
    crate::edit::same(
        &work.path().join("plain.whl"),
        &work.path().join("again.whl"),
    )?;
    passed()
}

/// `split` recompresses members of a wheel only if necessary.
fn split() -> Outcome {
    let work = Work::new();
    for name in ["first.o", "second.o"] {
        work.fat(
            name,
            &[
                Image::hip("gfx90a", &[1; 3000]),
                Image::hip("gfx942", &[2; 3000]),
            ],
        )?;
    }
    // offld can reproduce streams from `recompress` and `prune`, but not those from a compressor
    // with a small memory level.
    zip(&work, "a.whl", &["first.o"])?;
    stdout_of(
        &work,
        ["prune", "--drop", "gfx942", "a.whl", "-o", "own.whl"],
    )?;
    work.file(
        "add.py",
        "import zipfile, zlib\n\
         zipfile._get_compressor = lambda *_: zlib.compressobj(6, zlib.DEFLATED, -15, 1)\n\
         with zipfile.ZipFile('own.whl', 'a', zipfile.ZIP_DEFLATED) as wheel:\n\
         \x20   wheel.write('second.o', 'some/second.o')\n",
    );
    run(work.command("python3").arg("add.py"))?;
    let stdout = stdout_of(&work, ["split", "own.whl", "-d", "parts"])?;
    expect_in(
        &stdout,
        "1 compressed stream cannot be reproduced byte for byte",
    )?;
    let parts = ["host", "gfx90a.part", "gfx942.part"].map(|part| format!("parts/own.whl.{part}"));
    stdout_of(
        &work,
        ["merge", "-o", "back.whl"]
            .into_iter()
            .chain(parts.iter().map(String::as_str)),
    )?;
    work.file(
        "same.py",
        "import zipfile\n\
         def packed(name, member):\n\
         \x20   wheel = zipfile.ZipFile(name)\n\
         \x20   found = wheel.getinfo(member)\n\
         \x20   data = open(name, 'rb').read()\n\
         \x20   start = found.header_offset + 30 + len(found.filename)\n\
         \x20   return data[start:start + found.compress_size], wheel.read(member)\n\
         first, second = [(packed('own.whl', name), packed('back.whl', name)) for name in ['some/first.o', 'some/second.o']]\n\
         assert first[0] == first[1]\n\
         assert second[0][0] != second[1][0] and second[0][1] == second[1][1]\n",
    );
    run(work.command("python3").arg("same.py"))?;
    passed()
}
