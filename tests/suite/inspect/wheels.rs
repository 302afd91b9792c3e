//! Python wheels and other zip files in `offld inspect`: their contents, damage, and cost.

use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, at_most_memory, ensure, expect_equal, expect_in, expect_not_in, missing, offld,
    output, passed, root, run, test, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("inspect::device_code_in_a_wheel_of_pypi", wheel_of_pypi),
        with_llvm(
            "inspect::members_of_zip_files_however_they_are_stored",
            stored_and_deflated,
        ),
        with_llvm("inspect::wheels_in_zip_files_in_folders", nested),
        with_llvm(
            "inspect::a_damaged_member_is_told_and_the_rest_is_shown",
            damaged,
        ),
        with_llvm("inspect::zip_files_that_grow_without_end", bombs),
        with_llvm("inspect::a_large_member_is_not_in_memory", memory),
        with_llvm("inspect::more_files_than_can_be_open", many),
        with_llvm(
            "inspect::nothing_beside_a_wheel_is_taken_for_its_own",
            beside,
        ),
        with_llvm("inspect::the_report_has_all_that_it_had", old_form),
    ]
}

fn inspect(work: &Work, words: &[&str]) -> Command {
    let mut command = work.command(offld());
    command.arg("inspect").args(words);
    command
}

fn report(work: &Work, words: &[&str]) -> Result<Value, Failed> {
    let shown = text(&output(inspect(work, &["--json"]).args(words))?.stdout);
    serde_json::from_str(&shown).map_err(|error| format!("{error}: {shown}").into())
}

/// The images of the only file in a report: their members, target and hash.
fn images(report: &Value) -> Vec<String> {
    let images = report["files"][0]["images"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    images
        .iter()
        .map(|image| {
            format!(
                "{} {} {}",
                image["members"], image["target"], image["sha256"]
            )
        })
        .collect()
}

/// Runs a Python script with `z`, the zip file `name`, open for writing.
fn zip(work: &Work, name: &str, script: &str) -> Result<(), Failed> {
    let start =
        format!("import zipfile\nz = zipfile.ZipFile('{name}', 'w', zipfile.ZIP_DEFLATED)\n");
    run(work
        .command("python3")
        .args(["-c", &format!("{start}{script}\nz.close()\n")]))?;
    Ok(())
}

/// Overwrites the bytes at offset `field` of `member`'s entry in the central directory of a zip
/// file.
fn patch(work: &Work, name: &str, member: &str, field: usize, bytes: &[u8]) -> Result<(), Failed> {
    let mut data = std::fs::read(work.path().join(name))?;
    let wanted = |at: &usize| {
        data[*at..].starts_with(b"PK\x01\x02") && data[at + 46..].starts_with(member.as_bytes())
    };
    let entry = (0..data.len())
        .find(wanted)
        .ok_or_else(|| format!("{name} has no entry {member}"))?;
    data[entry + field..entry + field + bytes.len()].copy_from_slice(bytes);
    work.file(name, data);
    Ok(())
}

fn wheel_of_pypi() -> Outcome {
    let folder = root().join("target/wheels");
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|end| end == "whl");
    let found = std::fs::read_dir(&folder)
        .ok()
        .and_then(|files| files.flatten().map(|file| file.path()).find(is_wheel));
    let Some(wheel) = found else {
        return missing("a wheel in target/wheels (scripts/setup.sh)");
    };
    let work = Work::new();
    let wheel = wheel.display().to_string();
    let found = report(&work, &[&wheel])?;
    expect_equal("type", "\"zip\"", &found["files"][0]["type"].to_string())?;
    expect_equal("errors", "[]", &found["files"][0]["errors"].to_string())?;
    let unzip = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall('out')";
    run(work.command("python3").args(["-c", unzip, &wheel]))?;
    let unpacked = report(&work, &["out/nvidia/cuda_runtime/lib/libcudadevrt.a"])?;
    let expected: Vec<String> = images(&unpacked)
        .iter()
        .map(|image| image.replacen('[', "[\"nvidia/cuda_runtime/lib/libcudadevrt.a\",", 1))
        .collect();
    ensure(expected.len() >= 16, || {
        format!("too few images: {expected:?}")
    })?;
    expect_equal("images", &expected.join("\n"), &images(&found).join("\n"))?;
    expect_in(&run(&mut inspect(&work, &["--summary", &wheel]))?, "sm_90")?;
    passed()
}

fn stored_and_deflated() -> Outcome {
    let work = Work::new();
    work.fat("k.o", &[Image::amd("gfx90a", "DEVICE-A")])?;
    work.fat("m.o", &[Image::amd("gfx908", "DEVICE-B")])?;
    work.archive("lib.a", &["m.o"])?;
    let object = std::fs::read(work.path().join("k.o"))?;
    work.file("k.zst", zstd::bulk::compress(&object, 3)?);
    let mut crc = flate2::Crc::new();
    crc.update(&object);
    let members = "z.write('k.o', 'pkg/deflated.so')\nz.write('k.o', 'pkg/stored.so', zipfile.ZIP_STORED)\n\
        z.write('lib.a', 'pkg/lib.a')\nz.writestr('pkg/__init__.py', 'x = 1')\nz.writestr('pkg/', '')\n\
        z.write('k.zst', 'pkg/zstd.so', zipfile.ZIP_STORED)\n\
        with z.open('pkg/zip64.so', 'w', force_zip64=True) as out: out.write(open('k.o', 'rb').read())\n";
    zip(&work, "x.whl", members)?;
    patch(&work, "x.whl", "pkg/zstd.so", 10, &93_u16.to_le_bytes())?;
    patch(&work, "x.whl", "pkg/zstd.so", 16, &crc.sum().to_le_bytes())?;
    patch(
        &work,
        "x.whl",
        "pkg/zstd.so",
        24,
        &(object.len() as u32).to_le_bytes(),
    )?;
    let found = report(&work, &["x.whl"])?;
    expect_equal("errors", "[]", &found["files"][0]["errors"].to_string())?;
    let names: Vec<String> = found["files"][0]["images"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|image| {
            format!(
                "{} {} {}",
                image["members"], image["path"][0]["compression"], image["target"]
            )
            .replace('"', "")
        })
        .collect();
    let expected = "[pkg/deflated.so] deflate gfx90a\n[pkg/stored.so] null gfx90a\n[pkg/lib.a,m.o] deflate gfx908\n\
        [pkg/zstd.so] zstd gfx90a\n[pkg/zip64.so] deflate gfx90a";
    expect_equal("members", expected, &names.join("\n"))?;
    // A stored image has an offset in the file, a decompressed image has none.
    let [deflated, stored] = [0, 1].map(|index| &found["files"][0]["images"][index]);
    expect_equal(
        "an inflated image's offset",
        "null",
        &deflated["offset"].to_string(),
    )?;
    let at = stored["offset"]
        .as_u64()
        .ok_or("a stored image without an offset")? as usize;
    ensure(
        std::fs::read(work.path().join("x.whl"))?[at..].starts_with(b"DEVICE-A"),
        || format!("not at {at}"),
    )?;
    let sizes = format!(
        "{} {}",
        deflated["path"][0]["plain_size"], stored["path"][0]["size"]
    );
    expect_equal("sizes", &format!("{0} {0}", object.len()), &sizes)?;
    expect_in(&run(&mut inspect(&work, &["x.whl"]))?, "(pkg/lib.a)(m.o)")?;
    run(&mut inspect(&work, &["--extract", "out", "x.whl"]))?;
    let files: Vec<PathBuf> = std::fs::read_dir(work.path().join("out"))?
        .flatten()
        .map(|file| file.path())
        .collect();
    expect_equal("extracted", "5", &files.len().to_string())?;
    for file in files {
        let wanted: &[u8] = if file.display().to_string().contains("gfx908") {
            b"DEVICE-B"
        } else {
            b"DEVICE-A"
        };
        ensure(std::fs::read(&file)? == wanted, || {
            format!("{} is another image", file.display())
        })?;
    }
    expect_in(
        &run(&mut inspect(&work, &["--headers-only", "x.whl"]))?,
        "5 device images",
    )?;
    // The same through a pipe: a spooled copy has a size.
    let pipe = run(work.command("sh").args([
        "-c",
        &format!("cat x.whl | {} inspect -", offld().display()),
    ]))?;
    expect_in(&pipe, "5 device images")?;
    passed()
}

fn nested() -> Outcome {
    let work = Work::new();
    work.fat("k.o", &[Image::amd("gfx90a", "DEVICE-A")])?;
    zip(&work, "x.whl", "z.write('k.o', 'pkg/k.so')")?;
    zip(&work, "deflated.zip", "z.write('x.whl', 'wheels/x.whl')")?;
    zip(&work, "none.zip", "z.writestr('text', 'text')")?;
    zip(&work, "empty.zip", "")?;
    expect_in(
        &run(&mut inspect(&work, &["deflated.zip"]))?,
        "(wheels/x.whl)(pkg/k.so)",
    )?;
    std::fs::create_dir(work.path().join("top"))?;
    for name in ["deflated.zip", "none.zip", "empty.zip", "x.whl"] {
        std::fs::rename(work.path().join(name), work.path().join("top").join(name))?;
    }
    let found = report(&work, &["top"])?;
    let files: Vec<&str> = found["files"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|file| file["file"].as_str())
        .collect();
    expect_equal(
        "files with device code",
        "top/deflated.zip top/x.whl",
        &files.join(" "),
    )?;
    for name in ["top/none.zip", "top/empty.zip"] {
        let ended = output(&mut inspect(&work, &[name]))?;
        expect_equal("status", "Some(1)", &format!("{:?}", ended.status.code()))?;
        expect_in(&text(&ended.stdout), "zip, no device code")?;
    }
    // Nested zip files have the same depth limit as archives.
    let wrap = "import zipfile\nname = 'top/x.whl'\nfor depth in range(20):\n    inner, name = name, f'deep{depth}.zip'\n    \
        z = zipfile.ZipFile(name, 'w'); z.write(inner, 'inner.zip'); z.close()\n";
    run(work.command("python3").args(["-c", wrap]))?;
    expect_in(
        &text(&output(&mut inspect(&work, &["deep19.zip"]))?.stderr),
        "nested more than 16 deep",
    )?;
    passed()
}

fn damaged() -> Outcome {
    let work = Work::new();
    work.fat("k.o", &[Image::amd("gfx90a", "DEVICE-A")])?;
    let object = std::fs::read(work.path().join("k.o"))?;
    let write = |name: &str| {
        zip(
            &work,
            name,
            "z.write('k.o', 'one.so')\nz.write('k.o', 'two.so')",
        )
    };
    let sum = [0, 0, 0, 0];
    let faults: [(&str, usize, &[u8], &str); 7] = [
        ("encrypted", 8, &[1, 0], "encrypted members"),
        ("method", 10, &[14, 0], "method 14 (LZMA)"),
        ("checksum", 16, &sum, "does not match its checksum"),
        (
            "shorter",
            24,
            &(object.len() as u32 - 1).to_le_bytes(),
            "more data than the directory states",
        ),
        (
            "longer",
            24,
            &(object.len() as u32 + 1).to_le_bytes(),
            "less data than the directory states",
        ),
        (
            "past",
            20,
            &0x7fff_ffff_u32.to_le_bytes(),
            "past the end of the zip file",
        ),
        (
            "renamed",
            46,
            b"six.so",
            "the names in the header and in the directory differ",
        ),
    ];
    for (name, field, bytes, expected) in faults {
        let file = format!("{name}.whl");
        write(&file)?;
        patch(&work, &file, "one.so", field, bytes)?;
        let ended = output(&mut inspect(&work, &[&file]))?;
        let stderr = text(&ended.stderr);
        let member = if name == "renamed" {
            "six.so"
        } else {
            "one.so"
        };
        expect_in(&stderr, &format!("{file}({member}): "))?;
        expect_in(&stderr, expected)?;
        expect_in(&stderr, ", at offset 0x0")?;
        expect_equal("one line", "1", &stderr.lines().count().to_string())?;
        expect_equal("status", "Some(2)", &format!("{:?}", ended.status.code()))?;
        expect_in(&text(&ended.stdout), "(two.so)")?;
        expect_in(&text(&ended.stdout), "1 device image")?;
    }
    write("cut.whl")?;
    let whole = std::fs::read(work.path().join("cut.whl"))?;
    work.file("cut.whl", &whole[..whole.len() - 30]);
    let shown = text(&output(&mut inspect(&work, &["cut.whl"]))?.stderr);
    expect_in(
        &shown,
        &format!(
            "cut.whl: a zip file without an end record: no directory in the last MiB, at offset {:#x}",
            whole.len() - 30
        ),
    )?;
    for (name, fault) in [
        ("../up.so", "leads out of the target directory"),
        ("/etc/up.so", "leads out of the target directory"),
        ("x\\x1b[2J.so", "control"),
    ] {
        zip(
            &work,
            "names.whl",
            &format!(
                "z.write('k.o', 'good.so')\ni = zipfile.ZipInfo('x')\ni.filename = '{name}'\n\
                 z.writestr(i, open('k.o', 'rb').read())"
            ),
        )?;
        let ended = output(&mut inspect(&work, &["names.whl"]))?;
        expect_in(&text(&ended.stderr), fault)?;
        expect_in(&text(&ended.stdout), "2 device images")?;
        expect_not_in(
            &format!("{}{}", text(&ended.stdout), text(&ended.stderr)),
            "\x1b[2J",
        )?;
    }
    passed()
}

fn bombs() -> Outcome {
    let work = Work::new();
    work.fat("k.o", &[Image::amd("gfx90a", "DEVICE-A")])?;
    // A member that would decompress to 4 GB, according to the directory. The size of the
    // compressed data permits that.
    let start = "object = open('k.o', 'rb').read()\n";
    zip(
        &work,
        "large.whl",
        &format!(
            "{start}import random\nz.writestr('a.so', object + random.randbytes(4000000))\nz.writestr('b.so', object)"
        ),
    )?;
    let claimed = 1015 * std::fs::metadata(work.path().join("large.whl"))?.len() as u32;
    patch(&work, "large.whl", "a.so", 24, &claimed.to_le_bytes())?;
    let ended = output(&mut inspect(&work, &["large.whl"]))?;
    expect_in(
        &text(&ended.stderr),
        "large.whl(a.so): not unpacked: the file would unpack to more than 1000 times its size",
    )?;
    expect_in(&text(&ended.stdout), "(b.so)")?;
    let ended = output(&mut inspect(&work, &["--max-unpacked", "2G", "large.whl"]))?;
    expect_in(
        &text(&ended.stderr),
        "not unpacked: the file would unpack to more than the 2147483648 bytes of --max-unpacked",
    )?;
    // A large member without device code. Only its start is decompressed.
    zip(
        &work,
        "text.whl",
        "z.writestr('zeros', bytes(100000000))\nz.write('k.o', 'k.so')",
    )?;
    expect_in(&run(&mut inspect(&work, &["text.whl"]))?, "1 device image")?;
    // Many directory entries for the same data.
    let shared = "import struct\nz.writestr('k.so', open('k.o', 'rb').read() + bytes(100000))\nz.close()\n\
        data = open('shared.whl', 'rb').read()\nat = data.rindex(b'PK\\1\\2')\nend = len(data) - 22\nentry = data[at:end]\n\
        tail = struct.pack('<4sHHHHLLH', b'PK\\5\\6', 0, 0, 1000, 1000, 1000 * len(entry), at, 0)\n\
        open('shared.whl', 'wb').write(data[:at] + 1000 * entry + tail)";
    zip(&work, "shared.whl", shared)?;
    let ended = output(&mut inspect(&work, &["--summary", "shared.whl"]))?;
    expect_in(
        &text(&ended.stderr),
        "the contents overlap other members or the directory",
    )?;
    let total = text(&ended.stdout);
    let count = total
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(3)?.parse::<u32>().ok());
    ensure(count.is_some_and(|count| count < 200), || {
        format!("{count:?} images:\n{total}")
    })?;
    passed()
}

fn memory() -> Outcome {
    const LARGE: usize = 32 << 20;
    let work = Work::new();
    let mut image = Vec::with_capacity(LARGE);
    (0..LARGE as u32 / 4).for_each(|number| {
        image.extend((number.wrapping_mul(2_654_435_761) & 0xffff).to_le_bytes())
    });
    work.fat(
        "k.o",
        &[Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "hip",
            bytes: &image,
        }],
    )?;
    drop(image);
    zip(
        &work,
        "x.whl",
        "z.compresslevel = 1\nz.write('k.o', 'deflated.so')\nz.write('k.o', 'stored.so', zipfile.ZIP_STORED)",
    )?;
    at_most_memory(&mut inspect(&work, &["x.whl"]), 40)?;
    at_most_memory(&mut inspect(&work, &["--extract", "out", "x.whl"]), 40)?;
    work.expect_no_temps()?;
    passed()
}

/// All images are extracted at the end, from many decompressed members and from many files.
fn many() -> Outcome {
    const MANY: usize = 150;
    let work = Work::new();
    work.fat("k.o", &[Image::amd("gfx90a", "DEVICE-A")])?;
    zip(
        &work,
        "x.whl",
        &format!("for at in range({MANY}): z.write('k.o', f'{{at}}.so')"),
    )?;
    // Small files are read, larger ones mapped.
    let large = "object = open('k.o', 'rb').read() + bytes(100000)\n";
    zip(
        &work,
        "large.whl",
        &format!("{large}for at in range({MANY}): z.writestr(f'{{at}}.so', object)"),
    )?;
    std::fs::create_dir(work.path().join("top"))?;
    for at in 0..MANY {
        std::fs::copy(
            work.path().join("k.o"),
            work.path().join(format!("top/{at}.o")),
        )?;
    }
    for input in ["x.whl", "large.whl", "top"] {
        let line = format!(
            "ulimit -n 64 && exec {} inspect --summary --extract out-{input} {input}",
            offld().display()
        );
        expect_in(
            &run(work.command("sh").args(["-c", &line]))?,
            &format!("  {MANY}  "),
        )?;
        let extracted = std::fs::read_dir(work.path().join(format!("out-{input}")))?.count();
        expect_equal(input, &MANY.to_string(), &extracted.to_string())?;
    }
    passed()
}

fn beside() -> Outcome {
    let work = Work::new();
    let host = "void __tgt_register_lib(void *d); void init(void *d) { __tgt_register_lib(d); }\n";
    work.fat_with("k.o", &[Image::amd("gfx90a", "DEVICE-A")], host)?;
    work.file("runtime.c", "void __tgt_register_lib(void *d) {}\n");
    run(work
        .command("cc")
        .args(["-shared", "-fPIC", "-o", "libomptarget-x.so", "runtime.c"]))?;
    run(work.command("cc").args([
        "-shared",
        "-o",
        "k.so",
        "k.o",
        "-L.",
        "-lomptarget-x",
        "-Wl,-rpath,$ORIGIN",
    ]))?;
    let shown = |file: &str| Ok::<_, Failed>(text(&output(&mut inspect(&work, &[file]))?.stdout));
    expect_in(&shown("k.so")?, "from libomptarget-x.so => /")?;
    zip(&work, "x.whl", "z.write('k.so')")?;
    expect_in(&shown("x.whl")?, "from libomptarget-x.so => not found")?;
    // A thin archive in a zip file refers to files that are not in the zip file.
    run(work.command("ar").args(["rcT", "thin.a", "k.o"]))?;
    zip(&work, "thin.whl", "z.write('thin.a')")?;
    let ended = output(&mut inspect(&work, &["thin.whl"]))?;
    expect_in(
        &text(&ended.stderr),
        "thin.whl(thin.a): cannot read the thin archive's member",
    )?;
    expect_in(&text(&ended.stdout), "nothing readable")?;
    passed()
}

/// The values that programs written for version 0.2 read from the report.
fn old_form() -> Outcome {
    let work = Work::new();
    work.fat("k.o", &[Image::amd("gfx90a", "DEVICE-A")])?;
    work.archive("lib.a", &["k.o"])?;
    let found = report(&work, &["lib.a"])?;
    expect_equal("schema", "1", &found["schema"].to_string())?;
    let keys = |value: &Value| {
        value
            .as_object()
            .map(|object| object.keys().cloned().collect::<Vec<_>>())
            .unwrap_or_default()
    };
    let has = |value: &Value, wanted: &str| {
        let keys = keys(value);
        ensure(
            wanted
                .split(' ')
                .all(|key| keys.iter().any(|have| have == key)),
            || format!("not all of {wanted} in {keys:?}"),
        )
    };
    let file = &found["files"][0];
    has(&found, "schema generator files")?;
    has(file, "file type images registrations errors")?;
    let image = &file["images"][0];
    has(
        image,
        "index path members section container id offset kinds triple target stored_as format machine size compressed_size sha256",
    )?;
    has(image, "flags strings kernels extracted")?;
    has(&image["path"][0], "in name file offset size")?;
    has(&image["path"][1], "in name offset size")?;
    has(
        &image["path"][2],
        "in name offset size version compression plain_size",
    )?;
    let steps: Vec<String> = image["path"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|step| format!("{}", step["in"]))
        .collect();
    expect_equal(
        "steps",
        "\"member\" \"section\" \"container\"",
        &steps.join(" "),
    )?;
    passed()
}
