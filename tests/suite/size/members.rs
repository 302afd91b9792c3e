//! Members of wheels: a row for each, and the sizes of some of them.

use libtest_mimic::{Failed, Trial};

use super::{bytes, row, size};
use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, offld, output, passed, run,
    text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("size::members::each_has_a_row", rows),
        with_llvm("size::members::some_are_counted", selected),
        with_llvm("size::members::savings_are_of_bytes_in_the_file", savings),
        with_llvm(
            "size::members::copies_in_compressed_members_waste_compressed_bytes",
            copies,
        ),
    ]
}

/// Packs a CUDA library, a HIP library and a text as `NAME.whl` and `NAME.tar.gz`.
fn wheel(work: &Work, name: &str, cuda: usize) -> Result<(), Failed> {
    // Incompressible bytes, so that each member has a distinct size in the wheel.
    let noise = |size: usize, seed: u64| -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..size).map(|_| next()).collect()
    };
    work.pack(
        "libcuda.so",
        &[
            Image::cuda("sm_80", &noise(cuda, 7)),
            Image::cuda("sm_90", &noise(5_000, 8)),
        ],
    )?;
    work.pack("libhip.so", &[Image::hip("gfx90a", &noise(9_000, 9))])?;
    work.file("read.me", "no device code");
    work.file(
        "make.py",
        "import sys, tarfile, zipfile\n\
         with zipfile.ZipFile(sys.argv[1] + '.whl', 'w', zipfile.ZIP_DEFLATED) as wheel, tarfile.open(sys.argv[1] + '.tar.gz', 'w:gz') as tar:\n\
         \x20   for name in ['libcuda.so', 'libhip.so', 'read.me']:\n\
         \x20       wheel.write(name, 'some/' + name)\n\
         \x20       tar.add(name, 'some/' + name)\n",
    );
    run(work.command("python3").args(["make.py", name]))?;
    Ok(())
}

fn rows() -> Outcome {
    let work = Work::new();
    wheel(&work, "new", 20_000)?;
    for file in ["new.whl", "new.tar.gz"] {
        let json = size(&work, ["--by", "member,arch", file])?;
        let total = std::fs::metadata(work.path().join(file))?.len();
        expect_equal(file, &total.to_string(), &bytes(&json["total"]).to_string())?;
        let cuda = row(&json["total"], "some/libcuda.so")?;
        expect_equal("level", "\"member\"", &cuda["level"].to_string())?;
        // In a compressed tar archive, zeros also get a share of the compressed bytes.
        ensure(
            bytes(cuda) > 20_000 && bytes(row(cuda, "sm_80")?) > 16_000,
            || format!("{file}: {cuda}"),
        )?;
        ensure(
            bytes(row(&json["total"], "some/libhip.so")?) > 7_000,
            || file.to_owned(),
        )?;
        ensure(bytes(row(&json["total"], "some/read.me")?) > 0, || {
            file.to_owned()
        })?;
    }
    // A saved report contains members, unless it was written by a version without them.
    run(work
        .command(offld())
        .args(["size", "--save", "new.json", "new.whl"]))?;
    let same = size(&work, ["--by", "member", "--diff", "new.json", "new.whl"])?;
    for row in same["total"]["rows"].as_array().into_iter().flatten() {
        expect_equal(
            "the same",
            &row["file"].to_string(),
            &row["old_file"].to_string(),
        )?;
    }
    let saved = std::fs::read_to_string(work.path().join("new.json"))?;
    let mut json: serde_json::Value = serde_json::from_str(&saved)?;
    for item in json["items"].as_array_mut().into_iter().flatten() {
        item[0].as_array_mut().ok_or("no names")?.pop();
    }
    let first = json.to_string().replacen("\"schema\":2", "\"schema\":1", 1);
    // A report is recognized by its first bytes.
    let rest = first.replacen("\"format\":\"offld-size\",", "", 1);
    work.file(
        "first.json",
        format!(
            "{{\"format\":\"offld-size\",{}",
            rest.trim_start_matches('{')
        ),
    );
    let old = size(&work, ["--by", "arch", "--diff", "first.json", "new.whl"])?;
    expect_equal(
        "of version 1",
        &old["total"]["file"].to_string(),
        &old["total"]["old_file"].to_string(),
    )?;
    passed()
}

fn selected() -> Outcome {
    let work = Work::new();
    wheel(&work, "old", 10_000)?;
    wheel(&work, "new", 20_000)?;
    run(work
        .command(offld())
        .args(["size", "--save", "old.json", "old.whl"]))?;
    for file in ["new.whl", "new.tar.gz"] {
        let all = size(&work, ["--by", "member", file])?;
        let hip = bytes(row(&all["total"], "some/libhip.so")?);
        let json = size(&work, ["--by", "member", "--only", "libhip*", file])?;
        // In a compressed tar archive, each part of a file gets a rounded share of the bytes.
        let rounding = if file == "new.whl" { 0 } else { 8 };
        let alone = bytes(row(&json["total"], "some/libhip.so")?);
        ensure(hip.abs_diff(alone) <= rounding, || {
            format!("{file}: {hip} and {alone}")
        })?;
        ensure(bytes(&json["total"]) < hip + 6_000, || {
            json["total"].to_string()
        })?;
        expect_equal(
            "images",
            "1",
            &json["images"].as_array().map_or(0, Vec::len).to_string(),
        )?;
        let json = size(&work, ["--by", "member", "--exclude", "some/*cuda*", file])?;
        expect_not_in(&json["total"].to_string(), "libcuda")?;
        expect_in(&json["total"].to_string(), "read.me")?;
        // A budget applies only to the selected members.
        let mut limited = work.command(offld());
        run(limited.args(["size", "--only", "*hip*", "--budget", "total<14K", file]))?;
    }
    for old in ["old.whl", "old.json"] {
        let json = size(
            &work,
            [
                "--by", "member", "--only", "*cuda*", "--diff", old, "new.whl",
            ],
        )?;
        let cuda = row(&json["total"], "some/libcuda.so")?;
        let grew = bytes(cuda).saturating_sub(cuda["old_file"].as_u64().unwrap_or_default());
        ensure((9_000..11_000).contains(&grew), || format!("{old}: {cuda}"))?;
        expect_not_in(&json["total"].to_string(), "libhip")?;
    }
    // An excluded file is not opened.
    size(&work, ["--exclude", "gone*", "gone.whl", "new.whl"])?;
    let mut none = work.command(offld());
    let ended = output(none.args(["size", "--only", "*.dll", "new.whl"]))?;
    expect_equal(
        "nothing is selected",
        "Some(2)",
        &format!("{:?}", ended.status.code()),
    )?;
    expect_in(
        &text(&ended.stderr),
        "no file or member matches `*.dll` of --only",
    )?;
    let mut useless = work.command(offld());
    let ended = output(useless.args(["size", "--exclude", "*.dll", "new.whl"]))?;
    expect_equal(
        "nothing is excluded",
        "Some(0)",
        &format!("{:?}", ended.status.code()),
    )?;
    expect_in(
        &text(&ended.stderr),
        "no file or member matches `*.dll` of --exclude",
    )?;
    passed()
}

/// Compression is recommended only for containers that are not inside compressed data.
fn savings() -> Outcome {
    let work = Work::new();
    let numbers: String = (0..60_000)
        .map(|number| format!("{} ", number * 7919 % 10_007))
        .collect();
    work.pack("plain", &[Image::hip("gfx90a", numbers.as_bytes())])?;
    work.file(
        "make.py",
        "import gzip, tarfile, zipfile\n\
         for name, method in [('stored.whl', zipfile.ZIP_STORED), ('deflated.whl', zipfile.ZIP_DEFLATED)]:\n\
         \x20   with zipfile.ZipFile(name, 'w', method) as wheel:\n\
         \x20       wheel.write('plain')\n\
         with tarfile.open('plain.tar.gz', 'w:gz') as tar:\n\
         \x20   tar.add('plain')\n\
         with gzip.open('plain.gz', 'wb') as packed:\n\
         \x20   packed.write(open('plain', 'rb').read())\n",
    );
    run(work.command("python3").arg("make.py"))?;
    for (file, expected) in [
        ("plain", 1),
        ("stored.whl", 1),
        ("deflated.whl", 0),
        ("plain.tar.gz", 0),
        ("plain.gz", 0),
    ] {
        let json = size(&work, [file])?;
        let found = json["duplicates"]["not_compressed"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        expect_equal(file, &expected.to_string(), &found.len().to_string())?;
        for one in &found {
            let total = std::fs::metadata(work.path().join(file))?.len();
            ensure(
                one["estimated_saving"]
                    .as_u64()
                    .is_some_and(|saved| saved < total),
                || one.to_string(),
            )?;
        }
    }
    passed()
}

/// A deflated member with two copies of an image.
fn copies() -> Outcome {
    let work = Work::new();
    let numbers: String = (0..60_000)
        .map(|number| format!("{} ", number * 7919 % 10_007))
        .collect();
    work.pack("plain", &[Image::hip("gfx90a", numbers.as_bytes())])?;
    let plain = std::fs::read(work.path().join("plain"))?;
    work.file("twice", plain.repeat(2));
    work.file(
        "make.py",
        "import zipfile\n\
         with zipfile.ZipFile('twice.whl', 'w', zipfile.ZIP_DEFLATED) as wheel:\n\
         \x20   wheel.write('twice')\n",
    );
    run(work.command("python3").arg("make.py"))?;
    let json = size(&work, ["twice.whl"])?;
    let copies = &json["duplicates"]["images"][0];
    let total = std::fs::metadata(work.path().join("twice.whl"))?.len();
    let wasted = |key: &str| copies[key].as_u64().unwrap_or_default();
    let (in_file, inflated) = (wasted("wasted_file"), wasted("wasted_inflated"));
    ensure(0 < in_file && in_file < total && inflated > in_file, || {
        format!("{total} bytes: {copies}")
    })?;
    expect_equal(
        "uncompressed",
        &numbers.len().to_string(),
        &inflated.to_string(),
    )?;
    passed()
}
