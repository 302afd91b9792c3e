//! `offld prune`: the remaining images run as before, and the removed ones are no longer in the
//! file.

mod linkers;
mod members;
mod modules;
mod programs;

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use libtest_mimic::{Failed, Trial};

use super::{TWO, hip_object, images, object, program, ran, refused, stdout_of, targets};
use crate::check::modules::hip_library;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, made,
    output, passed, run, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm(
            "edit::prune::objects_and_archives_link_and_run",
            objects_and_archives,
        ),
        with_llvm("edit::prune::a_pruned_program_runs", programs),
        with_llvm(
            "edit::prune::a_pruned_program_is_as_large_as_one_that_never_had_more",
            sizes,
        ),
        with_llvm("edit::prune::hip_bundles_lose_entries", hip),
        with_llvm(
            "edit::prune::a_pointer_by_an_exported_symbol_follows_its_bundle",
            exported_symbol,
        ),
        with_llvm("edit::prune::the_last_image_stays", last_image),
        with_llvm(
            "edit::prune::attributes_stay_and_links_are_followed",
            attributes,
        ),
        with_llvm("edit::prune::hard_links_and_signatures_need_force", force),
        with_llvm("edit::prune::a_dry_run_writes_nothing", dry_run),
        with_llvm("edit::prune::a_new_build_id_is_another", build_id),
        with_llvm("edit::prune::folders_are_copied_whole", folders),
        with_llvm("edit::prune::zip_files_keep_their_records", wheels),
        with_llvm("edit::prune::what_cannot_be_changed_is_said", unchangeable),
    ];
    trials.extend(trials_of! { linkers members modules });
    trials
}

const CPU: &str = "x86_64-pc-linux-gnu";

fn objects_and_archives() -> Outcome {
    let work = Work::new();
    object(&work)?;
    stdout_of(&work, ["prune", "--keep", "cpu", "main.o", "-o", "small.o"])?;
    expect_equal("images", CPU, &targets(&work, "small.o")?)?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "both.a", "main.o"]))?;
    let stdout = stdout_of(
        &work,
        ["prune", "--drop", "gfx*", "both.a", "-o", "small.a"],
    )?;
    expect_in(&stdout, "1 of 2 images dropped: gfx90a")?;
    expect_equal("images", CPU, &targets(&work, "small.a")?)?;
    for (input, name) in [("small.o", "of_object"), ("small.a", "of_archive")] {
        let mut link = work.command(llvm("clang"));
        link.args(["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu", "-B"])
            .arg(&made().links);
        run(link.args([
            "-Wl,--whole-archive",
            input,
            "-Wl,--no-whole-archive",
            "-o",
            name,
        ]))?;
        expect_equal("output", "4950 device\n", &ran(&work, name)?)?;
    }
    passed()
}

fn unchangeable() -> Outcome {
    let work = Work::new();
    object(&work)?;
    run(work
        .command(llvm("clang"))
        .args(TWO)
        .args(["-flto", "-c", "main.c", "-o", "lto.o"]))?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "lto.a", "lto.o"]))?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcsT", "thin.a", "main.o"]))?;
    run(work.command("tar").args(["-cf", "main.tar", "main.o"]))?;
    run(work.command("gzip").args(["-k", "main.o"]))?;
    for (file, why) in [
        ("lto.o", "host bitcode"),
        ("lto.a", "host bitcode"),
        ("thin.a", "a thin archive"),
        ("main.tar", "a tar archive"),
        ("main.o.gz", "a compressed file"),
    ] {
        let stderr = refused(&work, ["prune", "--keep", "cpu", file, "-o", "pruned"])?;
        expect_in(&stderr, file)?;
        expect_in(&stderr, &format!("they are in {why}"))?;
        expect_no_file(&work.path().join("pruned"))?;
        // A pattern that removes nothing is not an error.
        stdout_of(&work, ["prune", "--drop", "gfx1200", file, "-o", "kept"])?;
    }
    passed()
}

fn programs() -> Outcome {
    let work = Work::new();
    object(&work)?;
    for (name, words) in [
        ("pie", &["-pie"][..]),
        ("fixed", &["-no-pie"]),
        ("bfd", &["-fuse-ld=bfd"]),
        ("relr", &["-Wl,-z,pack-relative-relocs"]),
    ] {
        program(&work, name, words)?;
        stdout_of(&work, ["prune", "--keep", "cpu", name, "--in-place"])?;
        expect_equal("images", CPU, &targets(&work, name)?)?;
        expect_equal(name, "4950 device\n", &ran(&work, name)?)?;
        run(work.command("strip").arg(name))?;
        expect_equal(name, "4950 device\n", &ran(&work, name)?)?;
        // A second run, on a file without symbols, has nothing to remove.
        expect_in(
            &stdout_of(&work, ["prune", "--keep", "cpu", name, "--in-place"])?,
            "unchanged",
        )?;
    }
    work.expect_no_temps()?;
    passed()
}

fn sizes() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "both", &[])?;
    stdout_of(&work, ["prune", "--keep", "cpu", "both", "-o", "pruned"])?;
    stdout_of(&work, ["prune", "--keep", "cpu", "main.o", "-o", "small.o"])?;
    let mut link = work.command(llvm("clang"));
    link.args(["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu", "-B"])
        .arg(&made().links);
    run(link.args(["small.o", "-o", "one"]))?;
    let size = |name: &str| std::fs::metadata(work.path().join(name)).map(|meta| meta.len());
    let (pruned, one) = (size("pruned")?, size("one")?);
    ensure(pruned.abs_diff(one) <= 4 * 4096, || {
        format!("{pruned} bytes, and a build without the image has {one}")
    })?;
    passed()
}

fn hip() -> Outcome {
    let work = Work::new();
    for words in [&[][..], &["--offload-compress"]] {
        hip_object(&work, words)?;
        let all = images(&work, "kernels.o")?;
        stdout_of(
            &work,
            [
                "prune",
                "--keep",
                "gfx90a,gfx1100",
                "kernels.o",
                "-o",
                "small.o",
            ],
        )?;
        let kept: Vec<String> = all
            .into_iter()
            .filter(|image| !image.contains("gfx908"))
            .collect();
        expect_equal(
            "images",
            &kept.join("\n"),
            &images(&work, "small.o")?.join("\n"),
        )?;
        if words.is_empty() {
            let stdout = run(work
                .command(llvm("llvm-objdump"))
                .args(["--offloading", "small.o"]))?;
            expect_in(&stdout, "gfx90a")?;
            expect_in(&stdout, "gfx1100")?;
            expect_not_in(&stdout, "gfx908")?;
        }
    }
    passed()
}

/// If HIP bundles are exported, as in Debian's librccl, the dynamic loader reads the pointers to
/// them from their symbols.
fn exported_symbol() -> Outcome {
    let work = Work::new();
    let mut source = String::from(".section .note.GNU-stack,\"\",@progbits\n");
    for (number, arches) in [["gfx900", "gfx90a"], ["gfx900", "gfx90a"]]
        .iter()
        .enumerate()
    {
        hip_library(&work, arches, "one.so")?;
        run(work
            .command("cp")
            .args(["x.hipfb", &format!("{number}.hipfb")]))?;
        source += &format!(
            ".section .hip_fatbin,\"a\",@progbits\n.p2align 12\n.globl bundle{number}\nbundle{number}: .incbin \"{number}.hipfb\"\n\
             .section .hipFatBinSegment,\"aw\",@progbits\n.globl wrapper{number}\nwrapper{number}: .long 0x48495046, 1\n.quad bundle{number}, 0\n"
        );
    }
    work.file("two.s", source);
    run(work
        .command(llvm("clang"))
        .args(["-shared", "-nostdlib", "two.s", "-o", "two.so"]))?;
    work.file(
        "load.c",
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(int count, char **words) {\n\
         void *library = dlopen(words[1], RTLD_NOW);\n\
         char **wrapper = dlsym(library, \"wrapper1\");\n\
         printf(\"%.24s %d\\n\", wrapper[1], wrapper[1] == dlsym(library, \"bundle1\"));\n}\n",
    );
    run(work.command(llvm("clang")).args(["load.c", "-o", "load"]))?;
    let stdout = stdout_of(
        &work,
        ["prune", "--keep", "gfx90a", "two.so", "-o", "small.so"],
    )?;
    expect_in(&stdout, "2 of 4 images dropped: gfx900")?;
    for name in ["./two.so", "./small.so"] {
        expect_equal(
            name,
            "__CLANG_OFFLOAD_BUNDLE__ 1\n",
            &text(&output(work.command(work.path().join("load")).arg(name))?.stdout),
        )?;
    }
    expect_equal("images", "gfx90a gfx90a", &targets(&work, "small.so")?)?;
    passed()
}

fn last_image() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "both", &[])?;
    let before = std::fs::read(work.path().join("both"))?;
    for file in ["main.o", "both"] {
        let stderr = refused(&work, ["prune", "--keep", "gfx1201", file, "-o", "none"])?;
        expect_in(&stderr, "removing these images would leave ")?;
        expect_in(&stderr, "pattern `gfx1201` selects no image")?;
        expect_no_file(&work.path().join("none"))?;
    }
    stdout_of(
        &work,
        [
            "prune",
            "--keep",
            "gfx1201",
            "--allow-empty",
            "both",
            "-o",
            "none",
        ],
    )?;
    let ended = output(
        work.command(work.path().join("none"))
            .env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib"),
    )?;
    expect_equal(
        "output",
        "4950 host\n",
        &String::from_utf8_lossy(&ended.stdout),
    )?;
    ensure(
        std::fs::read(work.path().join("both"))? == before,
        || "the old file changed",
    )?;
    passed()
}

fn attributes() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "both", &[])?;
    let path = work.path().join("both");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750))?;
    std::os::unix::fs::symlink("both", work.path().join("link"))?;
    let has = run(work
        .command("setfattr")
        .args(["-n", "user.note", "-v", "text", "both"]))
    .is_ok();
    stdout_of(&work, ["prune", "--keep", "cpu", "--in-place", "link"])?;
    let meta = std::fs::metadata(&path)?;
    expect_equal("mode", "750", &format!("{:o}", meta.mode() & 0o7777))?;
    ensure(
        work.path().join("link").is_symlink(),
        || "the link is a file now",
    )?;
    if has {
        let note =
            run(work
                .command("getfattr")
                .args(["-n", "user.note", "--only-values", "both"]))?;
        expect_equal("attribute", "text", &note)?;
    }
    expect_equal("output", "4950 device\n", &ran(&work, "both")?)?;
    stdout_of(
        &work,
        [
            "prune",
            "--drop",
            "cpu",
            "--allow-empty",
            "both",
            "-o",
            "other",
        ],
    )?;
    expect_equal(
        "mode",
        "750",
        &format!(
            "{:o}",
            std::fs::metadata(work.path().join("other"))?.mode() & 0o7777
        ),
    )?;
    passed()
}

fn force() -> Outcome {
    let work = Work::new();
    object(&work)?;
    std::fs::hard_link(work.path().join("main.o"), work.path().join("again.o"))?;
    let stderr = refused(&work, ["prune", "--keep", "cpu", "--in-place", "main.o"])?;
    expect_in(&stderr, "2 hard links")?;
    stdout_of(
        &work,
        ["prune", "--keep", "cpu", "--in-place", "--force", "main.o"],
    )?;
    expect_equal("images", CPU, &targets(&work, "main.o")?)?;
    let mut signed = std::fs::read(work.path().join("again.o"))?;
    signed.extend(b"~Module signature appended~\n");
    work.file("signed.o", signed);
    expect_in(
        &refused(&work, ["prune", "--keep", "cpu", "signed.o", "-o", "out.o"])?,
        "is signed",
    )?;
    stdout_of(
        &work,
        [
            "prune", "--keep", "cpu", "--force", "signed.o", "-o", "out.o",
        ],
    )?;
    passed()
}

fn dry_run() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let before = std::fs::read(work.path().join("main.o"))?;
    let stdout = stdout_of(&work, ["prune", "--keep", "cpu", "--dry-run", "main.o"])?;
    expect_in(&stdout, "1 of 2 images dropped: gfx90a")?;
    ensure(
        std::fs::read(work.path().join("main.o"))? == before,
        || "the file changed",
    )?;
    passed()
}

fn build_id() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "both", &["-Wl,--build-id"])?;
    let id = |name: &str| -> Result<String, Failed> {
        let notes = run(work.command(llvm("llvm-readelf")).args(["-n", name]))?;
        Ok(notes
            .lines()
            .find(|line| line.contains("Build ID"))
            .unwrap_or_default()
            .trim()
            .to_owned())
    };
    stdout_of(&work, ["prune", "--keep", "cpu", "both", "-o", "same"])?;
    stdout_of(
        &work,
        [
            "prune",
            "--keep",
            "cpu",
            "--new-build-id",
            "both",
            "-o",
            "other",
        ],
    )?;
    let (old, same, other) = (id("both")?, id("same")?, id("other")?);
    expect_equal("build id", &old, &same)?;
    ensure(
        !old.is_empty() && other.len() == old.len() && other != old,
        || format!("`{old}` and `{other}`"),
    )?;
    expect_equal("output", "4950 device\n", &ran(&work, "other")?)?;
    passed()
}

fn folders() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "in/bin/program", &[]).or_else(|_| {
        std::fs::create_dir_all(work.path().join("in/bin"))?;
        program(&work, "in/bin/program", &[])
    })?;
    work.file("in/share/read.me", "text");
    std::os::unix::fs::symlink("../bin/program", work.path().join("in/share/link"))?;
    stdout_of(&work, ["prune", "--keep", "cpu", "in", "-d", "out"])?;
    expect_equal("output", "4950 device\n", &ran(&work, "out/bin/program")?)?;
    expect_equal("images", CPU, &targets(&work, "out/bin/program")?)?;
    expect_equal(
        "text",
        "text",
        &std::fs::read_to_string(work.path().join("out/share/read.me"))?,
    )?;
    ensure(
        work.path().join("out/share/link").is_symlink(),
        || "the link is no link",
    )?;
    passed()
}

fn wheels() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "library.so", &["-shared", "-fPIC"])?;
    work.file(
        "make.py",
        "import base64, hashlib, zipfile\n\
         data = open('library.so', 'rb').read()\n\
         of = lambda data: 'sha256=' + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()\n\
         with zipfile.ZipFile('some-1.0-py3-none-any.whl', 'w') as wheel:\n\
         \x20   wheel.writestr('some/__init__.py', 'x = 1\\n', zipfile.ZIP_DEFLATED)\n\
         \x20   wheel.writestr('some/library.so', data, zipfile.ZIP_DEFLATED)\n\
         \x20   wheel.writestr('some/stored.so', data, zipfile.ZIP_STORED)\n\
         \x20   record = ''.join(f'some/{name},{of(data)},{len(data)}\\n' for name in ['library.so', 'stored.so'])\n\
         \x20   wheel.writestr('some-1.0.dist-info/RECORD', record + 'some-1.0.dist-info/RECORD,,\\n')\n",
    );
    run(work.command("python3").arg("make.py"))?;
    stdout_of(
        &work,
        [
            "prune",
            "--keep",
            "cpu",
            "some-1.0-py3-none-any.whl",
            "-d",
            "out",
        ],
    )?;
    expect_equal(
        "images",
        &[CPU; 2].join(" "),
        &targets(&work, "out/some-1.0-py3-none-any.whl")?,
    )?;
    work.file(
        "check.py",
        "import base64, csv, hashlib, io, zipfile\n\
         wheel = zipfile.ZipFile('out/some-1.0-py3-none-any.whl')\n\
         assert wheel.testzip() is None\n\
         for path, digest, size in csv.reader(io.StringIO(wheel.read('some-1.0.dist-info/RECORD').decode())):\n\
         \x20   if digest:\n\
         \x20       data = wheel.read(path)\n\
         \x20       own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()\n\
         \x20       assert digest == 'sha256=' + own and len(data) == int(size), path\n\
         \x20       print(path)\n",
    );
    expect_equal(
        "members",
        "some/library.so\nsome/stored.so\n",
        &run(work.command("python3").arg("check.py"))?,
    )?;
    passed()
}
