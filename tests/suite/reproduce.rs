//! `--reproduce`: programs are linked, their tar archives unpacked elsewhere after the originals
//! are removed, and linked again from there, by offld and by LLVM's wrapper. They run offloaded and
//! print the same output. With the stand-ins: the contents of a tar archive, and when offld writes
//! one.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::kit::{AMD, Image};
use super::programs::{Linked, Program, Way};
use super::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, llvm,
    made, missing, passed, run, run_failing, run_offloaded, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for program in ["archive-members", "shared-and-main", "thin-archive"] {
        for linker in ["bfd", "lld"] {
            for linked in [Linked::Wrapper, Linked::Linker] {
                let name = format!("reproduce::{program}::{linker}::{linked:?}").to_lowercase();
                trials.push(with_llvm(&name, move || repeated(program, linker, linked)));
            }
        }
    }
    trials.push(with_llvm("reproduce::gcc::runtime_added", || {
        through_gcc(&[])
    }));
    trials.push(with_llvm("reproduce::gcc::runtime_named", || {
        through_gcc(&["-lomp", "-lomptarget"])
    }));
    trials.push(with_llvm("reproduce::contents", contents));
    trials.push(with_llvm(
        "reproduce::equal_links_give_equal_tars",
        equal_tars,
    ));
    trials.push(with_llvm("reproduce::a_link_that_fails", a_link_that_fails));
    trials.push(with_llvm("reproduce::a_dry_run", a_dry_run));
    trials.push(with_llvm("reproduce::every_link_of_a_build", every_link));
    trials.push(with_llvm(
        "reproduce::whole_or_not_at_all",
        whole_or_not_at_all,
    ));
    trials
}

/// An unpacked tar archive: the working directory, and the only directory in the archive.
struct Unpacked(Work, PathBuf);

impl Unpacked {
    fn unpack(tar: &Path) -> Result<Unpacked, Failed> {
        let folder = Work::new();
        tar::Archive::new(std::fs::File::open(tar)?).unpack(folder.path())?;
        let mut entries = std::fs::read_dir(folder.path())?;
        let (Some(top), None) = (entries.next(), entries.next()) else {
            return Err("more than one entry in the tar".into());
        };
        let top = top?;
        expect_equal(
            "the folder in the tar",
            &tar.file_stem().unwrap_or_default().to_string_lossy(),
            &top.file_name().to_string_lossy(),
        )?;
        let top = top.path();
        Ok(Unpacked(folder, top))
    }

    fn read(&self, name: &str) -> Result<String, Failed> {
        let path = self.1.join(name);
        Ok(text(
            &std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?,
        ))
    }

    /// The path of the copy of an original file.
    fn copy_of(&self, original: &Path) -> PathBuf {
        let original = original
            .canonicalize()
            .unwrap_or_else(|_| original.to_path_buf());
        self.1
            .join("root")
            .join(original.strip_prefix("/").unwrap_or(&original))
    }

    /// Every file below `root`, relative to the unpacked directory.
    fn files(&self) -> Result<Vec<String>, Failed> {
        let listed = run(self
            .0
            .command("find")
            .args(["root", "-type", "f"])
            .current_dir(&self.1))?;
        let mut files: Vec<String> = listed.lines().map(str::to_owned).collect();
        files.sort();
        Ok(files)
    }

    /// Repeats the link and runs the program offloaded. Returns stdout. `libraries` is the
    /// directory of the original's own libraries.
    fn repeat_link(&self, tool: &Path, linker: &str, libraries: &Path) -> Result<String, Failed> {
        let _ = std::fs::remove_dir_all(self.1.join("out"));
        // Run it from another directory by a relative path: the script must find its own files.
        let folder = self.1.file_name().unwrap_or_default();
        let script = Path::new(folder).join("run.sh");
        let mut command = self.0.command(script);
        command
            .env("PATH", path_with_llvm())
            .args([tool.as_os_str(), linker.as_ref()]);
        run(&mut command)?;
        let mut program = self.0.command("out/program");
        program.current_dir(&self.1);
        program.env(
            "LD_LIBRARY_PATH",
            std::env::join_paths([libraries, &Release::newest().lib]).expect("no colons"),
        );
        run_offloaded(&mut program)
    }
}

fn path_with_llvm() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":");
    path.push(LLVM);
    path
}

/// The tools that can repeat a link: offld under its own name and as clang's wrapper, and LLVM's
/// wrapper.
fn tools() -> [PathBuf; 3] {
    [
        crate::support::offld(),
        made().links.join("clang-linker-wrapper"),
        llvm("clang-linker-wrapper"),
    ]
}

/// The archive repeats the link with every tool after all original files are removed.
fn expect_repeats(tar: &Path, linker: &str, original: &Work, expected: &str) -> Result<(), Failed> {
    let folder = original.path().canonicalize()?;
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.is_dir() {
            std::fs::remove_dir_all(path)?
        } else {
            std::fs::remove_file(path)?
        }
    }
    let unpacked = Unpacked::unpack(tar)?;
    for tool in tools() {
        let with_context = |failed: Failed| {
            Failed::from(format!(
                "{}: {}",
                tool.display(),
                failed.message().unwrap_or_default()
            ))
        };
        let printed = unpacked
            .repeat_link(&tool, &format!("ld.{linker}"), &unpacked.copy_of(&folder))
            .map_err(with_context)?;
        expect_equal(
            &format!("stdout, linked again by {}", tool.display()),
            expected,
            &printed,
        )?;
    }
    Ok(())
}

fn repeated(name: &str, linker: &str, linked: Linked) -> Outcome {
    let program = Program::named(name);
    let (original, elsewhere) = (Work::new(), Work::new());
    let way = Way {
        linked,
        linker: linker.to_owned(),
        release: Release::newest(),
    };
    program.compile(&original, &way.release)?;
    program.build(&original, &way)?;
    let tar = elsewhere.path().join("link.tar");
    run(program
        .link(&original, &way)
        .arg(format!("-Wl,--reproduce={}", tar.display())))?;
    let printed = run_offloaded(&mut program.start(&original))?;
    expect_equal("stdout of the original", &program.expected(), &printed)?;
    expect_repeats(&tar, linker, &original, &printed)?;
    passed()
}

/// gcc runs offld as `ld` with a plugin, and does not know LLVM's directories. offld adds the
/// runtime, or the directory that contains it.
fn through_gcc(libraries: &[&str]) -> Outcome {
    if Command::new("gcc").arg("--version").output().is_err() {
        return missing("gcc");
    }
    let (original, elsewhere) = (Work::new(), Work::new());
    let source = "#include <stdio.h>\nint main(void) {\n  int out = 0;\n#pragma omp target map(from : out)\n  out = 7;\n  printf(\"%d\\n\", out);\n}\n";
    let source = original.file("main.c", source);
    run(original
        .command(llvm("clang"))
        .args(OFFLOAD)
        .arg("-c")
        .arg(source)
        .args(["-o", "main.o"]))?;
    let tar = elsewhere.path().join("link.tar");
    let mut link = original.command("gcc");
    link.arg("-B")
        .arg(&made().as_ld)
        .arg("main.o")
        .args(libraries)
        .args(["-o", "program"]);
    run(link.arg(format!("-Wl,--reproduce={}", tar.display())))?;
    expect_repeats(&tar, "bfd", &original, "7\n")?;
    passed()
}

/// A link between the stand-ins, with every kind of argument that can name a file.
fn link_with_all_inputs(work: &Work) -> Result<Command, Failed> {
    for name in ["plain.o", "member.o", "library.o", "scripted.o"] {
        work.fat(name, &[Image::amd("gfx90a", name)])?;
    }
    work.run(llvm("llvm-ar"), ["rcsT", "libthin.a", "member.o"])?;
    work.run("mkdir", ["-p", "lib dir", "scripts"])?;
    work.run(llvm("llvm-ar"), ["rcs", "lib dir/libone.a", "library.o"])?;
    work.file("scripts/input.ld", "INPUT ( scripted.o )");
    work.file("scripts/layout.ld", "INCLUDE inner.ld\nSECTIONS { }");
    work.file("scripts/inner.ld", "/* nothing */");
    for name in [
        "versions.map",
        "library.so",
        "data.bin",
        "link.map",
        "tool.txt",
        "needless.o",
    ] {
        work.file(name, name);
    }
    work.file("line.rsp", "plain.o 'libthin.a' scripts/input.ld");
    let options = "-T layout.ld --version-script=versions.map -soname library.so -Map=link.map -dynamic-linker /lib64/ld.so \
                   --format=binary data.bin --format=default --wrapper-why --wrapper-late-images=off --wrapper-distribute=off \
                   --wrapper-remote-jobs=2 --wrapper-launcher-wait=5 --device-linker=amdgcn-amd-amdhsa=tool.txt";
    let mut link = work.wrapper([
        "@line.rsp",
        "-o",
        "sub/program",
        "-Llib dir",
        "-Lscripts",
        "-lone",
        "-lnowhere",
        "not-there.o",
    ]);
    link.args(options.split_whitespace())
        .arg("--reproduce=link.tar");
    Ok(link)
}

fn contents() -> Outcome {
    let work = Work::new();
    run(&mut link_with_all_inputs(&work)?)?;
    let unpacked = Unpacked::unpack(&work.path().join("link.tar"))?;
    let root = format!("root{}", work.path().canonicalize()?.display());
    let own: Vec<String> = unpacked
        .files()?
        .iter()
        .filter_map(|file| Some(file.strip_prefix(&root)?.get(1..)?.to_owned()))
        .collect();
    let expected = [
        "data.bin",
        "lib dir/libone.a",
        "libthin.a",
        "line.rsp",
        "member.o",
        "plain.o",
        "scripted.o",
        "scripts/inner.ld",
        "scripts/input.ld",
        "scripts/layout.ld",
        "tool.txt",
        "versions.map",
    ];
    expect_equal(
        "the files of the link's own folder",
        &expected.join("\n"),
        &own.join("\n"),
    )?;

    let response = unpacked.read("response.txt")?;
    let expected = [
        &format!("{root}/plain.o"),
        &format!("{root}/libthin.a"),
        &format!("{root}/scripts/input.ld"),
        "-o",
        "out/program",
        &format!("-L{root}/lib dir"),
        &format!("-L{root}/scripts"),
        "-lone",
        "-lnowhere",
        &format!("{root}/not-there.o"),
        "-T",
        &format!("{root}/scripts/layout.ld"),
        &format!("--version-script={root}/versions.map"),
        "-soname",
        "library.so",
        "-Map=out/link.map",
        "-dynamic-linker",
        "/lib64/ld.so",
        "--format=binary",
        &format!("{root}/data.bin"),
        "--format=default",
        &format!("--device-linker={AMD}={root}/tool.txt"),
        &format!("-L{root}"),
        "-rpath-link=needed",
        "--sysroot=root",
    ];
    let expected: String = expected
        .iter()
        .map(|word| format!("\"{word}\"\n"))
        .collect();
    expect_equal("response.txt", &expected, &response)?;
    // LLVM's wrapper does not know these options. Settings for other machines are left out.
    let script = unpacked.read("run.sh")?;
    let only_offld = "--wrapper-why --wrapper-late-images=off --wrapper-distribute=off";
    for option in only_offld.split(' ') {
        expect_in(&script, option)?;
    }
    ensure(
        !script.contains("--wrapper-remote-jobs") && !script.contains("--wrapper-launcher-wait"),
        || script.clone(),
    )?;
    expect_in(
        &unpacked.read("original.txt")?,
        "@line.rsp -o sub/program '-Llib dir'",
    )?;
    expect_in(&unpacked.read("versions.txt")?, "tools/linker")?;
    work.expect_no_temps()?;
    passed()
}

fn equal_tars() -> Outcome {
    let work = Work::new();
    let mut link = link_with_all_inputs(&work)?;
    let tar = work.path().join("link.tar");
    run(&mut link)?;
    let first = std::fs::read(&tar)?;
    // Timestamps and outputs of an earlier link do not affect the archive.
    run(work
        .command("touch")
        .args(["-d", "2001-02-03", "plain.o", "libthin.a"]))?;
    run(&mut link)?;
    if first != std::fs::read(&tar)? {
        return Err("two equal links, two different tars".into());
    }
    passed()
}

fn a_link_that_fails() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "a")])?;
    work.tool(
        "tools/clang",
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\nexit 7\n",
    );
    run_failing(&mut work.wrapper(["a.o", "--reproduce=failed.tar"]))?;
    let unpacked = Unpacked::unpack(&work.path().join("failed.tar"))?;
    expect_in(&unpacked.files()?.join("\n"), "/a.o")?;
    // Unreadable inputs are included too.
    work.file(
        "broken.a",
        "!<arch>\nnot a header of a member, but long enough to be taken for one by a reader\n",
    );
    run_failing(&mut work.wrapper(["a.o", "broken.a", "--reproduce=broken.tar"]))?;
    let unpacked = Unpacked::unpack(&work.path().join("broken.tar"))?;
    expect_in(&unpacked.files()?.join("\n"), "/broken.a")?;
    passed()
}

fn a_dry_run() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "a")])?;
    run(&mut work.wrapper(["a.o", "-o", "x", "--dry-run", "--reproduce=dry.tar"]))?;
    let unpacked = Unpacked::unpack(&work.path().join("dry.tar"))?;
    // Repeating it does a real link.
    expect_not_in(&unpacked.read("response.txt")?, "--dry-run")?;
    passed()
}

fn every_link() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "a")])?;
    work.fat("plain.o", &[])?;
    let tars = || -> Result<Vec<String>, Failed> {
        let listed = work.run("find", ["tars", "-type", "f"]).unwrap_or_default();
        Ok(listed
            .lines()
            .map(|line| line.trim_start_matches("tars/").to_owned())
            .collect())
    };
    run(work
        .wrapper(["plain.o", "-o", "x"])
        .env("OFFLD_REPRODUCE", "tars"))?;
    expect_equal("tars of a link without device code", "", &tars()?.join(" "))?;
    for _ in 0..2 {
        run(work
            .wrapper(["a.o", "-o", "x"])
            .env("OFFLD_REPRODUCE", "tars"))?;
    }
    run(work
        .wrapper(["a.o", "-o", "sub/x"])
        .env("OFFLD_REPRODUCE", "tars"))?;
    let all = tars()?;
    let well_named = all
        .iter()
        .all(|name| name.starts_with("x-") && name.ends_with(".tar"));
    if all.len() != 2 || !well_named {
        return Err(format!("two links that differ should have given a tar each: {all:?}").into());
    }
    passed()
}

fn whole_or_not_at_all() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "a")])?;
    let stderr = run_failing(&mut work.wrapper(["a.o", "--reproduce=no/such/folder/x.tar"]))?;
    expect_in(&stderr, "cannot write the reproduction of this link")?;
    work.run("mkdir", ["taken"])?;
    let stderr = run_failing(&mut work.wrapper(["a.o", "--reproduce=taken"]))?;
    expect_in(&stderr, "`taken` is not a regular file")?;
    let left = work.run("find", [".", "-name", ".offld-*"])?;
    expect_equal("temporary files", "", &left)?;
    passed()
}
