//! Python wheels and directories in `offld replace`: wheels from Python's own packer, and Python's
//! checks of the new ones.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::{hip_object, images, refused, same, stdout_of};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, passed, run,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "edit::wheels::images_are_replaced_by_their_numbers_in_the_wheel",
            replaced_in_wheel,
        ),
        with_llvm(
            "edit::wheels::images_of_folders_are_replaced_by_file_and_number",
            replaced_in_folder,
        ),
        with_llvm(
            "edit::wheels::patterns_with_a_kind_select_modules",
            modules_of_a_kind,
        ),
    ]
}

/// Packs the directory `folder` as the wheel `name`. Every second file is stored, the others are
/// deflated.
pub(crate) fn pack(work: &Work, folder: &str, name: &str) -> Result<(), Failed> {
    work.file(
        "pack.py",
        "import base64, hashlib, os, sys, zipfile\n\
         folder, name = sys.argv[1:]\n\
         files = sorted(os.path.relpath(os.path.join(at, file), folder) for at, _, all in os.walk(folder) for file in all)\n\
         info = next(file for file in files if file.endswith('.dist-info/WHEEL')).removesuffix('WHEEL')\n\
         record = ''\n\
         with zipfile.ZipFile(name, 'w') as wheel:\n\
         \x20   for number, file in enumerate(files):\n\
         \x20       data = open(os.path.join(folder, file), 'rb').read()\n\
         \x20       wheel.writestr(file, data, zipfile.ZIP_STORED if number % 2 else zipfile.ZIP_DEFLATED)\n\
         \x20       digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()\n\
         \x20       record += f'{file},sha256={digest},{len(data)}\\n'\n\
         \x20   wheel.writestr(info + 'RECORD', record + info + 'RECORD,,\\n', zipfile.ZIP_DEFLATED)\n",
    );
    run(work.command("python3").args(["pack.py", folder, name]))?;
    Ok(())
}

/// Installs with pip, without an index.
pub(crate) fn pip_install(work: &Work, args: &[&str]) -> Result<(), Failed> {
    let mut pip = work.command("python3");
    pip.args(["-m", "pip", "install", "-q", "--no-index"]);
    run(pip.args(args))?;
    Ok(())
}

/// Checks the members of a wheel against their checksums and against the wheel's `RECORD`.
pub(crate) fn check(work: &Work, name: &str) -> Result<(), Failed> {
    work.file(
        "check.py",
        "import base64, csv, hashlib, io, sys, zipfile\n\
         wheel = zipfile.ZipFile(sys.argv[1])\n\
         assert wheel.testzip() is None\n\
         record = next(name for name in wheel.namelist() if name.endswith('.dist-info/RECORD'))\n\
         rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(wheel.read(record).decode()))}\n\
         assert sorted(rows) == sorted(wheel.namelist()), rows\n\
         for path, (digest, size) in rows.items():\n\
         \x20   if digest:\n\
         \x20       data = wheel.read(path)\n\
         \x20       own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()\n\
         \x20       assert digest == 'sha256=' + own and len(data) == int(size), path\n",
    );
    run(work.command("python3").args(["check.py", name]))?;
    Ok(())
}

/// Writes the files of the package `some`, without its libraries, to `folder`. The wheel is for
/// `tag`.
pub(crate) fn package(work: &Work, folder: &str, tag: &str) -> Result<(), Failed> {
    for place in ["some", "some-1.0.dist-info"] {
        std::fs::create_dir_all(work.path().join(folder).join(place))?;
    }
    let name = |name: &str| format!("{folder}/{name}");
    work.file(&name("some/__init__.py"), "VALUE = 17\n");
    work.file(
        &name("some-1.0.dist-info/METADATA"),
        "Metadata-Version: 2.1\nName: some\nVersion: 1.0\n",
    );
    let wheel =
        format!("Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n");
    work.file(&name("some-1.0.dist-info/WHEEL"), wheel);
    Ok(())
}

/// Creates `kernels.o` for three GPUs, and `larger.hsaco`, its image for gfx908 followed by zeros.
/// Returns the number of that image.
fn kernels(work: &Work) -> Result<usize, Failed> {
    hip_object(work, &[])?;
    stdout_of(work, ["inspect", "--extract", "images", "kernels.o"])?;
    let all = std::fs::read_dir(work.path().join("images"))?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    let image = all
        .into_iter()
        .find(|path| path.display().to_string().contains("gfx908"))
        .ok_or("no image")?;
    let mut bytes = std::fs::read(&image)?;
    bytes.resize(bytes.len() + 9999, 0);
    work.file("larger.hsaco", bytes);
    images(work, "kernels.o")?
        .iter()
        .position(|image| image.contains("gfx908"))
        .ok_or_else(|| "no image".into())
}

/// Checks that the file `new` has the images of `old`, except for this one.
fn expect_other_image(work: &Work, old: &str, new: &str, number: usize) -> Result<(), Failed> {
    let (before, after) = (images(work, old)?, images(work, new)?);
    expect_equal(
        "images",
        &before.len().to_string(),
        &after.len().to_string(),
    )?;
    for (at, (one, other)) in before.iter().zip(&after).enumerate() {
        ensure((one == other) != (at == number), || {
            format!("image {at}: {one}, {other}")
        })?;
    }
    Ok(())
}

/// No registration gives a module a kind, so `hip` selects it by its vendor.
fn modules_of_a_kind() -> Outcome {
    let work = Work::new();
    kernels(&work)?;
    package(&work, "tree", "py3-none-any")?;
    let images = std::fs::read_dir(work.path().join("images"))?.filter_map(Result::ok);
    for image in images.map(|entry| entry.path()) {
        let name = image.display().to_string();
        if let Some(arch) = ["gfx908", "gfx90a"]
            .into_iter()
            .find(|arch| name.contains(arch))
        {
            std::fs::copy(&image, work.path().join(format!("tree/some/{arch}.hsaco")))?;
        }
    }
    let object = work.path().join("kernels.o");
    std::fs::copy(object, work.path().join("tree/some/kernels.o"))?;
    let wheel = "some-1.0-py3-none-any.whl";
    pack(&work, "tree", wheel)?;
    stdout_of(
        &work,
        ["prune", "--keep", "hip:gfx908", "-d", "kept", wheel],
    )?;
    let kept = run(work
        .command("python3")
        .args(["-m", "zipfile", "-l"])
        .arg(format!("kept/{wheel}")))?;
    expect_in(&kept, "some/gfx908.hsaco")?;
    expect_not_in(&kept, "some/gfx90a.hsaco")?;
    let listed = stdout_of(&work, ["inspect", &format!("kept/{wheel}")])?;
    expect_in(&listed, "gfx908")?;
    expect_not_in(&listed, "gfx90a")?;
    passed()
}

fn replaced_in_wheel() -> Outcome {
    let work = Work::new();
    let of_object = kernels(&work)?;
    let count = images(&work, "kernels.o")?.len();
    package(&work, "tree", "py3-none-any")?;
    for name in ["a.o", "b.o", "c.o"] {
        std::fs::copy(
            work.path().join("kernels.o"),
            work.path().join("tree/some").join(name),
        )?;
    }
    let wheel = "some-1.0-py3-none-any.whl";
    pack(&work, "tree", wheel)?;
    expect_equal(
        "images",
        &(3 * count).to_string(),
        &images(&work, wheel)?.len().to_string(),
    )?;
    let number = count + of_object;
    let word = format!("{number}=larger.hsaco");
    let messages = stdout_of(&work, ["replace", wheel, "--image", &word, "-d", "new"])?;
    expect_in(
        &messages,
        &format!("1 of {} images replaced: gfx908", 3 * (count - 1)),
    )?;
    let new = format!("new/{wheel}");
    expect_other_image(&work, wheel, &new, number)?;
    check(&work, &new)?;
    // The report numbers the images as `inspect` does.
    let report: Value = serde_json::from_str(&stdout_of(
        &work,
        ["replace", wheel, "--image", &word, "--dry-run", "--json"],
    )?)?;
    let all = report["files"][0]["images"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for (at, image) in all.iter().enumerate() {
        let fate = if at == number { "replace" } else { "keep" };
        expect_equal(
            "image",
            &format!("{at} \"{fate}\""),
            &format!("{} {}", image["index"], image["fate"]),
        )?;
    }
    let messages = refused(
        &work,
        ["replace", wheel, "--image", "77=larger.hsaco", "-d", "none"],
    )?;
    expect_in(
        &messages,
        &format!("{wheel}: no image 77; the file has {}", 3 * count),
    )?;
    expect_no_file(&work.path().join("none").join(wheel))?;
    let wrong = format!("{}=larger.hsaco", number + 1);
    expect_in(
        &refused(&work, ["replace", wheel, "--image", &wrong, "-d", "none"])?,
        "an image for gfx908, but image",
    )?;
    let without = format!("{number}=/bin/ls");
    let messages = refused(&work, ["replace", wheel, "--image", &without, "-d", "none"])?;
    expect_in(
        &messages,
        "/bin/ls: lacks kernel `first(int*)` and 1 more, which the host code needs from image",
    )?;
    let messages = refused(
        &work,
        [
            "replace",
            wheel,
            "--image",
            "some/b.o:1=larger.hsaco",
            "-d",
            "none",
        ],
    )?;
    expect_in(
        &messages,
        "some/b.o: not the file some-1.0-py3-none-any.whl: use the image numbers of `offld inspect",
    )?;
    work.expect_no_temps()?;
    passed()
}

fn replaced_in_folder() -> Outcome {
    let work = Work::new();
    let number = kernels(&work)?;
    std::fs::create_dir_all(work.path().join("tree/lib"))?;
    for name in ["tree/a.o", "tree/lib/b=c.o"] {
        std::fs::copy(work.path().join("kernels.o"), work.path().join(name))?;
    }
    work.file("tree/read.me", "text");
    std::os::unix::fs::symlink("lib/b=c.o", work.path().join("tree/link.o"))?;
    let (below, whole) = (
        format!("lib/b=c.o:{number}=larger.hsaco"),
        format!("tree/lib/b=c.o:{number}=larger.hsaco"),
    );
    let link = format!("link.o:{number}=larger.hsaco");
    for word in [&below, &whole, &link] {
        stdout_of(&work, ["replace", "tree", "--image", word, "-d", "new"])?;
        expect_other_image(&work, "tree/lib/b=c.o", "new/lib/b=c.o", number)?;
        same(&work.path().join("tree/a.o"), &work.path().join("new/a.o"))?;
        expect_equal(
            "text",
            "text",
            &std::fs::read_to_string(work.path().join("new/read.me"))?,
        )?;
        std::fs::remove_dir_all(work.path().join("new"))?;
    }
    // In place, offld reads no other file in the directory.
    work.file("tree/damaged.o", "\x7fELF");
    let stdout = stdout_of(&work, ["replace", "tree", "--image", &below, "--in-place"])?;
    expect_in(&stdout, "tree/lib/b=c.o: ")?;
    expect_equal("lines", "1", &stdout.lines().count().to_string())?;
    expect_other_image(&work, "kernels.o", "tree/lib/b=c.o", number)?;
    same(
        &work.path().join("kernels.o"),
        &work.path().join("tree/a.o"),
    )?;
    for (words, expected) in [
        (["0=larger.hsaco", "--in-place"], "--image FILE:0=IMAGE"),
        (
            ["none.o:0=larger.hsaco", "--in-place"],
            "none.o: no such file in tree",
        ),
        (["a.o:99=larger.hsaco", "--in-place"], "a.o: no image 99"),
        (
            ["kernels.o:0=larger.hsaco", "--dir=out"],
            "kernels.o: not in tree, so -d would not write the file",
        ),
    ] {
        expect_in(
            &refused(
                &work,
                ["replace", "tree", "--image"].into_iter().chain(words),
            )?,
            expected,
        )?;
    }
    let twice = [
        "replace",
        "tree",
        "--image",
        &below,
        "--image",
        &whole,
        "--in-place",
    ];
    expect_in(&refused(&work, twice)?, "is given twice")?;
    expect_no_file(&work.path().join("out"))?;
    passed()
}
