//! Tar archives, compressed files and Debian packages in `offld inspect`: their contents as their
//! writers packed them, damage, and cost.

mod costs;

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::inspect;
use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, missing, offld, output, passed,
    root, run, test, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("inspect::packages::tar_archives_of_every_form", tar_formats),
        with_llvm("inspect::packages::sparse_files_of_every_form", sparse),
        with_llvm("inspect::packages::compressed_by_every_program", compressed),
        with_llvm("inspect::packages::one_in_the_other", nested),
        with_llvm("inspect::packages::debian_packages", packages),
        test("inspect::packages::a_package_of_debian", debian_package),
        test(
            "inspect::packages::a_wheel_of_pypi_in_a_tar_archive",
            pypi_wheel,
        ),
        with_llvm(
            "inspect::packages::names_links_and_devices_lead_nowhere",
            names,
        ),
        with_llvm(
            "inspect::packages::what_is_damaged_is_told_and_the_rest_is_shown",
            damaged,
        ),
        with_llvm("inspect::packages::what_grows_without_end", costs::bombs),
        with_llvm("inspect::packages::memory_does_not_grow", costs::memory),
        with_llvm(
            "inspect::packages::progress_is_shown_on_a_terminal_alone",
            costs::progress,
        ),
        with_llvm("inspect::packages::each_byte_is_counted_once", costs::sizes),
    ]
}

/// A directory with `pkg/k.o`, an object with an image.
fn with_object() -> Result<Work, Failed> {
    let work = Work::new();
    work.fat("k.o", &[Image::amd("gfx90a", "DEVICE-A")])?;
    work.file("pkg/text", "text");
    std::fs::copy(work.path().join("k.o"), work.path().join("pkg/k.o"))?;
    Ok(work)
}

fn shell(work: &Work, line: &str) -> Result<String, Failed> {
    run(work.command("bash").args(["-euc", line]))
}

/// The images of a single file: their members, target and hash.
fn images(work: &Work, args: &[&str]) -> Result<Vec<String>, Failed> {
    let report = inspect(work, args.iter().copied())?;
    expect_equal("errors", "", &report.stderr)?;
    let each = report.images(0).iter().map(|image| {
        format!(
            "{} {} {}",
            image["members"], image["target"], image["sha256"]
        )
    });
    Ok(each.collect())
}

/// Fails unless the report for `args` has the images of the file `plain`, each inside `members`.
fn expect_images(work: &Work, args: &[&str], plain: &str, members: &[&str]) -> Result<(), Failed> {
    let within = members
        .iter()
        .map(|member| format!("\"{member}\","))
        .collect::<String>();
    let expected = images(work, &[plain])?
        .join("\n")
        .replace("[]", &format!("[{}]", within.trim_end_matches(',')));
    ensure(!expected.is_empty(), || format!("nothing is in {plain}"))?;
    expect_equal(&args.join(" "), &expected, &images(work, args)?.join("\n"))
}

fn tar_formats() -> Outcome {
    let work = with_object()?;
    let long = format!("{}k.o", "long-folder/".repeat(20));
    work.file(&long, std::fs::read(work.path().join("k.o"))?);
    shell(
        &work,
        "ln -s /etc/passwd pkg/symbolic; ln pkg/k.o pkg/z-hard",
    )?;
    for form in ["v7", "oldgnu", "gnu", "ustar", "posix"] {
        let file = format!("{form}.tar");
        run(work
            .command("tar")
            .args(["-c", "--sort=name", "--format", form, "-f", &file, "pkg"]))?;
        expect_images(&work, &[&file], "k.o", &["pkg/k.o"])?;
        // The image is at the reported offset.
        let report = inspect(&work, [file.as_str()])?;
        let image = &report.images(0)[0];
        let at = image["offset"]
            .as_u64()
            .ok_or("an image without an offset")? as usize;
        ensure(
            std::fs::read(work.path().join(&file))?[at..].starts_with(b"DEVICE-A"),
            || format!("{file}: not at {at}"),
        )?;
        expect_equal(
            "type",
            "\"tar\"",
            &report.json["files"][0]["type"].to_string(),
        )?;
        if form != "v7" && form != "ustar" {
            run(work
                .command("tar")
                .args(["-c", "--format", form, "-f", &file, "long-folder"]))?;
            expect_images(&work, &[&file], "k.o", &[&long])?;
        }
    }
    // Archives written by Python, as for source distributions on PyPI.
    let python = "import sys, tarfile\nfor form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):\n    \
        with tarfile.open(f'python{form}.tar.gz', 'w:gz', format=form) as out: out.add(sys.argv[1]); out.add('pkg/text')";
    run(work.command("python3").args(["-c", python, &long]))?;
    expect_images(&work, &["python1.tar.gz"], "k.o", &[&long])?;
    expect_images(&work, &["python2.tar.gz"], "k.o", &[&long])?;
    // Like tar, offld stops at the end of the first of several concatenated archives.
    shell(&work, "cat v7.tar posix.tar > two.tar")?;
    ensure(
        images(&work, &["two.tar"])?.len() == 1,
        || "more than the first archive",
    )?;
    passed()
}

fn sparse() -> Outcome {
    let work = Work::new();
    let mut image = b"DEVICE-A".to_vec();
    for at in 1..5 {
        image.resize(at * 1_000_000, 0);
        image.extend(b"more");
    }
    work.fat(
        "k.o",
        &[Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "openmp",
            bytes: &image,
        }],
    )?;
    shell(&work, "cp --sparse=always k.o holes.o")?;
    for options in [
        "--format=gnu",
        "--format=posix --sparse-version=0.0",
        "--format=posix --sparse-version=0.1",
        "--format=posix",
    ] {
        shell(
            &work,
            &format!(
                "tar -c --sparse {options} -f x.tar holes.o; tar -czf x.tgz --sparse {options} holes.o"
            ),
        )?;
        ensure(
            std::fs::metadata(work.path().join("x.tar"))?.len() < 1_000_000,
            || format!("{options}: not sparse"),
        )?;
        for file in ["x.tar", "x.tgz"] {
            expect_images(&work, &[file], "k.o", &["holes.o"])?;
        }
        let report = inspect(&work, ["x.tar"])?;
        let step = &report.images(0)[0]["path"][0];
        let size = std::fs::metadata(work.path().join("k.o"))?.len();
        expect_equal(
            "step",
            &format!("\"sparse\" {size}"),
            &format!("{} {}", step["compression"], step["plain_size"]),
        )?;
    }
    passed()
}

/// Compression programs, whose names are also those in the report.
const PROGRAMS: [&str; 4] = ["gzip", "xz", "zstd", "bzip2"];

fn compressed() -> Outcome {
    let work = with_object()?;
    shell(
        &work,
        "tar -cf x.tar pkg; head -c 300000 /dev/zero | tr '\\0' x >> pkg/text; tar -cf large.tar pkg",
    )?;
    for program in PROGRAMS {
        shell(
            &work,
            &format!("for file in k.o x.tar large.tar; do {program} -c $file > $file.packed; done"),
        )?;
        expect_images(&work, &["k.o.packed"], "k.o", &[])?;
        expect_images(&work, &["x.tar.packed"], "k.o", &["pkg/k.o"])?;
        expect_images(&work, &["large.tar.packed"], "k.o", &["pkg/k.o"])?;
        let report = inspect(&work, ["k.o.packed"])?;
        let step = &report.images(0)[0]["path"][0];
        let sizes = ["k.o.packed", "k.o"]
            .map(|name| std::fs::metadata(work.path().join(name)).map_or(0, |meta| meta.len()));
        expect_equal(
            "step",
            &format!("\"compressed\" \"{program}\" 0 {} {}", sizes[0], sizes[1]),
            &format!(
                "{} {} {} {} {}",
                step["in"], step["name"], step["offset"], step["size"], step["plain_size"]
            ),
        )?;
        expect_equal(
            "type",
            &format!("\"{program}\""),
            &report.json["files"][0]["type"].to_string(),
        )?;
        let pipe = shell(
            &work,
            &format!("cat x.tar.packed | {} inspect -", offld().display()),
        )?;
        expect_in(&pipe, "(pkg/k.o)")?;
        // Two concatenated files decompress to one.
        shell(
            &work,
            &format!(
                "(head -c 700 k.o | {program} -c; tail -c +701 k.o | {program} -c) > two.packed"
            ),
        )?;
        expect_images(&work, &["two.packed"], "k.o", &[])?;
        // Text contains no device code. This is not an error.
        shell(&work, &format!("echo text | {program} -c > text.packed"))?;
        let ended = output(work.command(offld()).args(["inspect", "text.packed"]))?;
        expect_equal(
            "status and stderr",
            "Some(1) ",
            &format!("{:?} {}", ended.status.code(), text(&ended.stderr)),
        )?;
    }
    // pzstd is part of zstd. Its files start with a skippable frame.
    shell(&work, "pzstd -q -c large.tar > large.packed")?;
    expect_images(&work, &["large.packed"], "k.o", &["pkg/k.o"])?;
    let extract = "tar -cJf x.txz pkg; OFFLD inspect --extract out x.txz"
        .replace("OFFLD", &offld().display().to_string());
    shell(&work, &extract)?;
    let file = std::fs::read_dir(work.path().join("out"))?
        .flatten()
        .next()
        .ok_or("nothing is extracted")?;
    ensure(
        std::fs::read(file.path())? == b"DEVICE-A",
        || "another image",
    )?;
    work.expect_no_temps()?;
    passed()
}

fn nested() -> Outcome {
    let work = with_object()?;
    let line = "python3 -c 'import zipfile; zipfile.ZipFile(\"x.whl\", \"w\", 8).write(\"pkg/k.o\")'
        tar -czf wheels.tgz x.whl; tar -cf all.tar wheels.tgz; xz all.tar; zstd -q all.tar.xz
        python3 -c 'import zipfile; zipfile.ZipFile(\"all.zip\", \"w\", 8).write(\"all.tar.xz.zst\")'";
    shell(&work, line)?;
    expect_images(
        &work,
        &["all.zip"],
        "k.o",
        &["all.tar.xz.zst", "wheels.tgz", "x.whl", "pkg/k.o"],
    )?;
    // Compressed files have the same nesting limit as archives.
    shell(
        &work,
        "cp k.o deep; for at in {1..20}; do gzip deep; mv deep.gz deep; done",
    )?;
    expect_in(
        &inspect(&work, ["deep"])?.stderr,
        "nested more than 16 deep",
    )?;
    passed()
}

fn packages() -> Outcome {
    let work = with_object()?;
    work.file(
        "package/DEBIAN/control",
        "Package: k\nVersion: 1\nArchitecture: all\nMaintainer: k <k@k>\nDescription: k\n",
    );
    work.file(
        "package/usr/lib/k.o",
        std::fs::read(work.path().join("k.o"))?,
    );
    // dpkg-deb refuses directories that a strict umask has closed.
    shell(&work, "chmod -R go=rX package")?;
    for (compression, ending) in [
        ("xz", ".xz"),
        ("gzip", ".gz"),
        ("zstd", ".zst"),
        ("none", ""),
    ] {
        let packed =
            output(
                work.command("dpkg-deb")
                    .args(["-b", "-Z", compression, "package", "k.deb"]),
            )?;
        // dpkg-deb before 1.21.18 does not support zstd.
        if compression == "zstd" && !packed.status.success() {
            continue;
        }
        expect_images(
            &work,
            &["k.deb"],
            "k.o",
            &[&format!("data.tar{ending}"), "./usr/lib/k.o"],
        )?;
    }
    shell(&work, "tar -cf debs.tar k.deb")?;
    expect_images(
        &work,
        &["debs.tar"],
        "k.o",
        &["k.deb", "data.tar", "./usr/lib/k.o"],
    )?;
    passed()
}

/// The first file in `folder` of `target` with this extension.
fn fetched(folder: &str, ending: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(root().join("target").join(folder)).ok()?;
    files
        .flatten()
        .map(|file| file.path())
        .find(|path| path.extension().is_some_and(|end| end == ending))
}

/// The hashes of all images, sorted.
fn hashes(report: &Value) -> Vec<String> {
    let files = report["files"].as_array().into_iter().flatten();
    let images = files.flat_map(|file| file["images"].as_array().cloned().unwrap_or_default());
    let mut hashes: Vec<String> = images.map(|image| image["sha256"].to_string()).collect();
    hashes.sort();
    hashes
}

fn debian_package() -> Outcome {
    let Some(package) = fetched("debs", "deb") else {
        return missing("a package in target/debs (scripts/setup.sh)");
    };
    let work = Work::new();
    let unpack = [Path::new("-x"), &package, Path::new("unpacked")];
    run(work.command("dpkg-deb").args(unpack))?;
    let [packed, plain] =
        [&*package.display().to_string(), "unpacked"].map(|input| inspect(&work, [input]));
    let (packed, plain) = (packed?, plain?);
    expect_equal("errors", "", &packed.stderr)?;
    ensure(hashes(&plain.json).len() > 3, || {
        format!("too few images in {}", package.display())
    })?;
    expect_equal(
        "images",
        &hashes(&plain.json).join("\n"),
        &hashes(&packed.json).join("\n"),
    )?;
    passed()
}

fn pypi_wheel() -> Outcome {
    let Some(wheel) = fetched("wheels", "whl") else {
        return missing("a wheel in target/wheels (scripts/setup.sh)");
    };
    let work = Work::new();
    let wheel = wheel.display().to_string();
    shell(
        &work,
        &format!(
            "cp '{wheel}' x.whl; mkdir x; cd x; python3 -m zipfile -e ../x.whl .; tar -cJf ../x.tar.xz ."
        ),
    )?;
    shell(&work, "tar -czf wheel.tgz x.whl")?;
    let expected = hashes(&inspect(&work, ["x.whl"])?.json);
    ensure(expected.len() >= 16, || {
        format!("too few images: {expected:?}")
    })?;
    for input in ["x.tar.xz", "wheel.tgz"] {
        expect_equal(
            input,
            &expected.join("\n"),
            &hashes(&inspect(&work, [input])?.json).join("\n"),
        )?;
    }
    passed()
}

/// Runs `offld inspect` with these arguments: status, stdout and stderr.
fn inspected(work: &Work, args: &[&str]) -> Result<(Option<i32>, String, String), Failed> {
    let ended = output(work.command(offld()).arg("inspect").args(args))?;
    Ok((
        ended.status.code(),
        text(&ended.stdout),
        text(&ended.stderr),
    ))
}

fn names() -> Outcome {
    let work = with_object()?;
    work.file("secret.o", std::fs::read(work.path().join("k.o"))?);
    let python = "import io, tarfile\nout = tarfile.open('x.tar', 'w')\n\
        data = open('k.o', 'rb').read()\n\
        def add(name, kind=tarfile.REGTYPE, link='', data=b''):\n    \
            info = tarfile.TarInfo(name); info.type = kind; info.linkname = link; info.size = len(data); info.devmajor = 1; info.devminor = 5\n    \
            out.addfile(info, io.BytesIO(data))\n\
        add('../up.o', data=data)\nadd('/etc/up.o', data=data)\nadd('x\\x1b[2J.o', data=data)\n\
        add('symbolic', tarfile.SYMTYPE, 'secret.o')\nadd('absolute', tarfile.SYMTYPE, '/etc/passwd')\nadd('hard', tarfile.LNKTYPE, 'secret.o')\n\
        add('self', tarfile.SYMTYPE, 'self')\nadd('zero', tarfile.CHRTYPE)\nadd('disk', tarfile.BLKTYPE)\nadd('pipe', tarfile.FIFOTYPE)\n\
        add('good.o', data=data)\nout.close()";
    run(work.command("python3").args(["-c", python]))?;
    shell(&work, "gzip -k x.tar")?;
    for file in ["x.tar", "x.tar.gz"] {
        let (status, stdout, stderr) = inspected(&work, &[file])?;
        expect_equal("status", "Some(2)", &format!("{status:?}"))?;
        expect_in(&stdout, "4 device images")?;
        expect_in(&stdout, "(good.o)")?;
        expect_not_in(&stdout, "secret")?;
        expect_not_in(&format!("{stdout}{stderr}"), "\x1b")?;
        let leads = "the name leads out of the target directory, at offset 0x";
        for line in [
            format!("{file}(../up.o): {leads}0"),
            format!("{file}(/etc/up.o): {leads}"),
        ] {
            expect_in(&stderr, &line)?;
        }
        expect_in(&stderr, "[2J.o): the name has control characters")?;
        expect_equal("lines", "3", &stderr.lines().count().to_string())?;
    }
    // Member names are not used as output paths.
    run(work
        .command(offld())
        .args(["inspect", "--extract", "sub/out", "x.tar"]))
    .ok();
    ensure(
        !work.path().join("sub/up.o").exists() && !work.path().join("up.o").exists(),
        || "a name was used as a path",
    )?;
    passed()
}

fn damaged() -> Outcome {
    let work = with_object()?;
    shell(
        &work,
        "cp k.o one.o; cp k.o two.o; tar -cf x.tar one.o two.o",
    )?;
    let whole = std::fs::read(work.path().join("x.tar"))?;
    let second = (0..whole.len())
        .step_by(512)
        .rfind(|at| whole[*at..].starts_with(b"two.o"))
        .ok_or("no second member")?;
    let mut header = whole.clone();
    header[3] ^= 1; // `.` becomes `/`
    work.file("header.tar", header);
    work.file("cut.tar", &whole[..second + 600]);
    work.file("cut-header.tar", &whole[..second + 100]);
    let rows = [
        (
            "header.tar",
            "(one/o): the header does not match its checksum, at offset 0x0".to_owned(),
            "(two.o)",
        ),
        (
            "cut.tar",
            format!(
                "(two.o): the archive ends {} bytes before the end of the member",
                whole_size(&work)? - 88
            ),
            "(one.o)",
        ),
        (
            "cut-header.tar",
            format!(": the archive ends within a header, at offset {second:#x}"),
            "(one.o)",
        ),
    ];
    let expect = |file: &str, message: &str, shown: &str| {
        let (status, stdout, stderr) = inspected(&work, &[file])?;
        expect_equal(file, "Some(2)", &format!("{status:?}"))?;
        expect_in(&stderr, &format!("{file}{message}"))?;
        expect_equal("one line", "1", &stderr.lines().count().to_string())?;
        expect_in(&stdout, shown)
    };
    for (file, message, shown) in rows {
        expect(file, &message, shown)?;
    }
    // Data that was decompressed before the damage is shown.
    shell(
        &work,
        "head -c 2000000 /dev/urandom > noise; tar -cf noise.tar one.o noise two.o",
    )?;
    for program in PROGRAMS {
        let extra = if program == "zstd" { "--check" } else { "-k" };
        shell(
            &work,
            &format!(
                "{program} {extra} -c noise.tar > packed; {program} -c {extra} k.o > k.packed"
            ),
        )?;
        let packed = std::fs::read(work.path().join("packed"))?;
        work.file("cut", &packed[..packed.len() - 5000]);
        expect(
            "cut",
            &format!(
                ": {program}+{:#x}: the compressed data ends too early",
                packed.len() - 5000
            ),
            "(one.o)",
        )?;
        let mut sum = std::fs::read(work.path().join("k.packed"))?;
        let at = match program {
            "gzip" => sum.len() - 8,
            "zstd" => sum.len() - 1,
            "bzip2" => 10,
            // After the data block come an index of 8 bytes, its checksum, and a footer of 12
            // bytes.
            _ => sum.len() - 12 - 4 - 8 - 1,
        };
        sum[at] ^= 1;
        work.file("sum", sum);
        let what = if program == "bzip2" {
            "is damaged"
        } else {
            "does not match its checksum"
        };
        expect("sum", &format!(": {program}+"), "nothing readable")?;
        expect_in(&inspected(&work, &["sum"])?.2, what)?;
    }
    passed()
}

/// The size of `two.o`.
fn whole_size(work: &Work) -> Result<u64, Failed> {
    Ok(std::fs::metadata(work.path().join("two.o"))?.len())
}
