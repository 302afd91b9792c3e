//! `offld split` and `merge`: the merged file equals the original, and parts of another file are
//! rejected.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};

use super::{hip_object, images, object, program, ran, refused, same, stdout_of};
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_no_file, llvm, offld, passed, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "edit::split::programs_objects_and_archives_come_back",
            comes_back,
        ),
        with_llvm(
            "edit::split::large_images_stand_in_parts_as_in_the_file",
            large,
        ),
        with_llvm("edit::split::compressed_bundles_come_back", compressed),
        with_llvm(
            "edit::split::streams_of_others_are_kept_if_asked",
            keep_original,
        ),
        with_llvm(
            "edit::split::streams_of_one_device_stay_in_what_is_compressed_anew",
            one_device,
        ),
        with_llvm("edit::split::what_cannot_be_taken_apart_is_copied", copied),
        with_llvm("edit::split::folders_come_back", folders),
        with_llvm(
            "edit::split::parts_of_another_build_are_refused",
            another_build,
        ),
        with_llvm("edit::split::two_parts_for_one_device_are_refused", twice),
        with_llvm(
            "edit::split::a_device_without_a_part_is_named",
            missing_part,
        ),
        with_llvm("edit::split::damaged_parts_are_refused", damaged),
        with_llvm("edit::split::what_is_no_part_is_refused", no_part),
        with_llvm(
            "edit::split::parts_of_another_version_are_refused",
            another_version,
        ),
    ]
}

/// Merges the parts of `name` in `folder` to `out`.
fn merge(work: &Work, folder: &str, name: &str, out: &str) -> Result<String, Failed> {
    let parts = parts(work, folder, name)?;
    stdout_of(
        work,
        ["merge", "-o", out]
            .into_iter()
            .chain(parts.iter().map(String::as_str)),
    )
}

/// The host half of `name` and all parts.
fn parts(work: &Work, folder: &str, name: &str) -> Result<Vec<String>, Failed> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(work.path().join(folder))? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        let is_device = |rest: &str| {
            [
                "host",
                "gfx90a.part",
                "gfx908.part",
                "gfx1100.part",
                "x86_64-pc-linux-gnu.part",
            ]
            .contains(&rest)
        };
        if file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('.'))
            .is_some_and(is_device)
        {
            parts.push(format!("{folder}/{file}"));
        }
    }
    parts.sort();
    Ok(parts)
}

fn comes_back() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "both", &[])?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "both.a", "main.o"]))?;
    for file in ["main.o", "both", "both.a"] {
        let stdout = stdout_of(&work, ["split", file, "-d", "parts"])?;
        expect_in(
            &refused(
                &work,
                ["split", &format!("parts/{file}.host"), "-d", "again"],
            )?,
            "already a part from `offld split`",
        )?;
        expect_in(&stdout, "gfx90a")?;
        merge(&work, "parts", file, "back")?;
        same(&work.path().join(file), &work.path().join("back"))?;
    }
    merge(&work, "parts", "both", "back")?;
    expect_equal("output", "4950 device\n", &ran(&work, "back")?)?;
    work.expect_no_temps()?;
    passed()
}

/// An image at a different offset within a page takes a third longer to copy, and no file system
/// can share its blocks.
fn large() -> Outcome {
    let work = Work::new();
    let begin = b"the first bytes of a large image";
    std::fs::write(
        work.path().join("image"),
        [&begin[..], &[7; 5 << 20]].concat(),
    )?;
    let described = "--image=file=image,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=openmp";
    run(work
        .command(llvm("llvm-offload-binary"))
        .args(["-o", "images", described]))?;
    work.file("host.c", "int host;\n");
    run(work.command(llvm("clang")).args([
        "-c",
        "host.c",
        "-Xclang",
        "-fembed-offload-object=images",
        "-o",
        "file.o",
    ]))?;
    stdout_of(&work, ["split", "file.o", "-d", "parts"])?;
    let place = |name: &str| -> Result<usize, Failed> {
        let bytes = std::fs::read(work.path().join(name))?;
        Ok(bytes
            .windows(begin.len())
            .position(|part| part == begin)
            .ok_or("the image is not there")?)
    };
    let (in_file, in_part) = (place("file.o")?, place("parts/file.o.gfx90a.part")?);
    expect_equal(
        "place within 64 KiB",
        &(in_file % 65536).to_string(),
        &(in_part % 65536).to_string(),
    )?;
    stdout_of(
        &work,
        [
            "merge",
            "-o",
            "back",
            "parts/file.o.host",
            "parts/file.o.gfx90a.part",
        ],
    )?;
    same(&work.path().join("file.o"), &work.path().join("back"))?;
    passed()
}

fn compressed() -> Outcome {
    let work = Work::new();
    hip_object(&work, &["--offload-compress"])?;
    // offld can reproduce streams from its own compressor.
    stdout_of(
        &work,
        ["recompress", "--level", "19", "kernels.o", "-o", "own.o"],
    )?;
    stdout_of(&work, ["split", "own.o", "-d", "parts"])?;
    merge(&work, "parts", "own.o", "back.o")?;
    same(&work.path().join("own.o"), &work.path().join("back.o"))?;
    // offld may not be able to reproduce a stream from another zstd version. The contents are the
    // same in any case.
    stdout_of(&work, ["split", "kernels.o", "-d", "parts"])?;
    merge(&work, "parts", "kernels.o", "back.o")?;
    expect_equal(
        "images",
        &images(&work, "kernels.o")?.join("\n"),
        &images(&work, "back.o")?.join("\n"),
    )?;
    passed()
}

fn keep_original() -> Outcome {
    let work = Work::new();
    hip_object(&work, &["--offload-compress"])?;
    object(&work)?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "both.a", "main.o", "kernels.o"]))?;
    stdout_of(&work, ["split", "--keep-original", "both.a", "-d", "parts"])?;
    merge(&work, "parts", "both.a", "back.a")?;
    same(&work.path().join("both.a"), &work.path().join("back.a"))?;
    passed()
}

fn one_device() -> Outcome {
    let work = Work::new();
    hip_object(
        &work,
        &[
            "--offload-compress",
            "--no-offload-arch=gfx908",
            "--no-offload-arch=gfx1100",
        ],
    )?;
    // The zstd stream has a level other than the default of `split`. offld can reproduce it, but
    // not the zip file's deflate stream.
    stdout_of(
        &work,
        ["recompress", "--level", "19", "kernels.o", "-o", "one.o"],
    )?;
    work.file(
        "make.py",
        "import zipfile, zlib\n\
         zipfile._get_compressor = lambda *_: zlib.compressobj(6, zlib.DEFLATED, -15, 1)\n\
         with zipfile.ZipFile('both.zip', 'w', zipfile.ZIP_DEFLATED) as both:\n\
         \x20   both.write('one.o')\n",
    );
    run(work.command("python3").arg("make.py"))?;
    expect_in(
        &stdout_of(&work, ["split", "both.zip", "-d", "parts"])?,
        "1 compressed stream cannot be reproduced byte for byte: the merged file has the same contents, recompressed",
    )?;
    expect_in(
        &merge(&work, "parts", "both.zip", "back.zip")?,
        "parts merged; 1 compressed stream differs from the original, because `offld split` recompressed the images\n",
    )?;
    work.run("python3", ["-m", "zipfile", "-e", "back.zip", "back"])?;
    same(&work.path().join("one.o"), &work.path().join("back/one.o"))?;
    passed()
}

fn copied() -> Outcome {
    let work = Work::new();
    hip_object(&work, &["--offload-compress"])?;
    work.file("plain.txt", "text");
    stdout_of(&work, ["split", "plain.txt", "-d", "first/parts"])?;
    same(
        &work.path().join("plain.txt"),
        &work.path().join("first/parts/plain.txt"),
    )?;
    // All device code is in streams that offld cannot reproduce.
    let again = "import zipfile, zlib\nzipfile._get_compressor = lambda *_: zlib.compressobj(6, zlib.DEFLATED, -15, 1)\n\
        with zipfile.ZipFile('one.zip', 'w', zipfile.ZIP_DEFLATED) as one:\n    one.write('kernels.o')\n";
    run(work.command("python3").args(["-c", again]))?;
    stdout_of(
        &work,
        ["split", "--keep-original", "one.zip", "-d", "second/parts"],
    )?;
    same(
        &work.path().join("one.zip"),
        &work.path().join("second/parts/one.zip"),
    )?;
    passed()
}

fn folders() -> Outcome {
    let work = Work::new();
    object(&work)?;
    std::fs::create_dir_all(work.path().join("in/bin"))?;
    program(&work, "in/bin/program", &[])?;
    work.file("in/lib/read.me", "text");
    // Files with the names of parts that are not parts.
    work.file("in/lib/main.o.notes.part", "text");
    work.file("in/lib/some.host", "text");
    work.file("in/lib/some.other.part", "text");
    std::fs::copy(
        work.path().join("main.o"),
        work.path().join("in/lib/main.o"),
    )?;
    std::os::unix::fs::symlink("main.o", work.path().join("in/lib/link.o"))?;
    std::fs::set_permissions(
        work.path().join("in/bin"),
        std::fs::Permissions::from_mode(0o750),
    )?;
    stdout_of(&work, ["split", "in", "-d", "parts"])?;
    expect_no_file(&work.path().join("parts/lib/main.o"))?;
    stdout_of(&work, ["merge", "parts", "-d", "out"])?;
    run(work
        .command("diff")
        .args(["-r", "--no-dereference", "in", "out"]))?;
    let mode = std::fs::metadata(work.path().join("out/bin"))?
        .permissions()
        .mode();
    expect_equal("mode of a folder", "750", &format!("{:o}", mode & 0o7777))?;
    passed()
}

/// Two builds, `one` and `other`, split into parts.
fn two_builds(work: &Work) -> Result<(), Failed> {
    object(work)?;
    program(work, "one", &[])?;
    stdout_of(work, ["split", "one", "-d", "first"])?;
    program(work, "one", &["-no-pie"])?;
    stdout_of(work, ["split", "one", "-d", "second"])?;
    program(work, "other", &[])?;
    stdout_of(work, ["split", "other", "-d", "third"])?;
    Ok(())
}

fn another_build() -> Outcome {
    let work = Work::new();
    two_builds(&work)?;
    let cpu = "x86_64-pc-linux-gnu.part";
    let own = format!("first/one.{cpu}");
    for (part, why) in [
        ("second/one.gfx90a.part", "another build of `one`"),
        ("third/other.gfx90a.part", "`other`, not of `one`"),
    ] {
        let stderr = refused(&work, ["merge", "first/one.host", &own, part, "-o", "out"])?;
        expect_in(&stderr, part)?;
        expect_in(&stderr, why)?;
        expect_no_file(&work.path().join("out"))?;
    }
    let stderr = refused(
        &work,
        ["merge", "first/one.host", "second/one.host", "-o", "out"],
    )?;
    expect_in(&stderr, "a host half, like")?;
    passed()
}

fn twice() -> Outcome {
    let work = Work::new();
    object(&work)?;
    stdout_of(&work, ["split", "main.o", "-d", "parts"])?;
    std::fs::copy(
        work.path().join("parts/main.o.gfx90a.part"),
        work.path().join("again.part"),
    )?;
    let all = parts(&work, "parts", "main.o")?;
    let stderr = refused(
        &work,
        ["merge", "-o", "out", "again.part"]
            .into_iter()
            .chain(all.iter().map(String::as_str)),
    )?;
    expect_in(&stderr, "are both for gfx90a")?;
    passed()
}

fn missing_part() -> Outcome {
    let work = Work::new();
    object(&work)?;
    stdout_of(&work, ["split", "main.o", "-d", "parts"])?;
    let stderr = refused(&work, ["merge", "parts/main.o.host", "-o", "out"])?;
    expect_in(&stderr, "parts are missing: also pass those for")?;
    expect_in(&stderr, "gfx90a")?;
    passed()
}

fn damaged() -> Outcome {
    let work = Work::new();
    object(&work)?;
    stdout_of(&work, ["split", "main.o", "-d", "parts"])?;
    let all = parts(&work, "parts", "main.o")?;
    for part in &all {
        let path = work.path().join(part);
        let old = std::fs::read(&path)?;
        let mut new = old.clone();
        let last = new.len() - 200;
        new[last] ^= 1;
        std::fs::write(&path, &new)?;
        let stderr = refused(
            &work,
            ["merge", "-o", "out"]
                .into_iter()
                .chain(all.iter().map(String::as_str)),
        )?;
        expect_in(&stderr, part)?;
        expect_in(&stderr, "damaged")?;
        expect_no_file(&work.path().join("out"))?;
        std::fs::write(&path, old)?;
    }
    passed()
}

fn no_part() -> Outcome {
    let work = Work::new();
    object(&work)?;
    stdout_of(&work, ["split", "main.o", "-d", "parts"])?;
    let stderr = refused(&work, ["merge", "parts/main.o.host", "main.o", "-o", "out"])?;
    expect_in(&stderr, "main.o: not a part from `offld split`")?;
    passed()
}

fn another_version() -> Outcome {
    let work = Work::new();
    object(&work)?;
    stdout_of(&work, ["split", "main.o", "-d", "parts"])?;
    // LLVM's own tool rewrites the part, with metadata from a hypothetical later offld.
    let image = "file=main.o,triple=amdgcn-amd-amdhsa,arch=gfx90a,offld=split-part,schema=9,host=0";
    let out = ["-o", "parts/main.o.gfx90a.part"];
    run(work
        .command(llvm("llvm-offload-binary"))
        .args(out)
        .arg(format!("--image={image}")))?;
    let all = parts(&work, "parts", "main.o")?;
    let stderr = refused(
        &work,
        ["merge", "-o", "out"]
            .into_iter()
            .chain(all.iter().map(String::as_str)),
    )?;
    expect_in(
        &stderr,
        "main.o.gfx90a.part: the part has version 9, but this offld reads version 1",
    )?;
    passed()
}

/// The message for a file with recompressed streams.
const ANEW: &str = "cannot be reproduced byte for byte";

/// With `OFFLD_TEST_PARTS=1`, as in `make test-long`: when a test's directory is removed, every
/// file with device code in it is split and merged again. The result must equal the original.
pub(crate) fn there_and_back(work: &Work) {
    if std::env::var_os("OFFLD_TEST_PARTS").is_none() || std::thread::panicking() {
        return;
    }
    let folder = tempfile::Builder::new()
        .prefix("offld-parts-")
        .tempdir()
        .expect("a temporary folder");
    let (parts, back) = (folder.path().join("parts"), folder.path().join("back"));
    let run = |words: &[&str], path: &Path, to: &Path| -> Output {
        let ended = Command::new(offld())
            .args(words)
            .arg(path)
            .arg("-d")
            .arg(to)
            .output();
        ended.unwrap_or_else(|error| panic!("offld {words:?}: {error}"))
    };
    let split = run(&["split"], work.path(), &parts);
    let stdout = String::from_utf8_lossy(&split.stdout).into_owned();
    let merged = run(&["merge"], &parts, &back);
    assert!(
        merged.status.success(),
        "merging {}: {}",
        work.path().display(),
        String::from_utf8_lossy(&merged.stderr)
    );
    // The line for a file, and the messages below it.
    let lines: Vec<&str> = stdout.lines().collect();
    for (number, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.starts_with(' '))
    {
        let Some((name, _)) = line.split_once(": host ") else {
            continue;
        };
        let Ok(within) = Path::new(name).strip_prefix(work.path()) else {
            continue;
        };
        let (Ok(old), Ok(new)) = (std::fs::read(name), std::fs::read(back.join(within))) else {
            continue;
        };
        let is_anew = lines
            .get(number + 1)
            .is_some_and(|next| next.contains(ANEW));
        assert!(
            is_anew || old == new,
            "{name}: {} bytes came back as {} others",
            old.len(),
            new.len()
        );
    }
}
