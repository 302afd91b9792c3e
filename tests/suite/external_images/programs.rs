//! OpenMP programs and libraries of clang 22 and 19: they run on the device wherever they are, and
//! say which file is missing, damaged or of another build.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use libtest_mimic::{Failed, Trial};

use super::{files_in, link, object, only_file};
use crate::kinds::{Case, Wrapper};
use crate::kit::{HOLES, Image};
use crate::support::{
    OFFLOAD, Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made,
    missing, output, passed, root, run, run_offloaded, stderr_of, test, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let linkers = ["lld", "bfd", "gold", "mold", "wild"];
    let forms = [
        ("position_independent", &[][..]),
        ("fixed_address", &["-no-pie"][..]),
        ("gc_sections", &["-Wl,--gc-sections"][..]),
        ("protected", &["-fcf-protection"][..]),
        ("stripped", &["-s"][..]),
    ];
    let mut all = Vec::new();
    for linker in linkers {
        all.push(with_llvm(
            &format!("external_images::programs::{linker}"),
            move || runs(&[&format!("-fuse-ld={linker}")]),
        ));
    }
    for (name, words) in forms {
        all.push(with_llvm(
            &format!("external_images::programs::{name}"),
            move || runs(words),
        ));
    }
    all.extend([
        with_llvm("external_images::programs::any_directory", any_directory),
        with_llvm("external_images::programs::no_device_code", no_device_code),
        with_llvm("external_images::programs::bad_files_are_named", bad_files),
        with_llvm(
            "external_images::programs::a_library_finds_its_own_files",
            library,
        ),
        with_llvm(
            "external_images::programs::a_setuid_program_loads_nothing",
            setuid,
        ),
        with_llvm(
            "external_images::programs::unloading_a_library_unmaps_its_images",
            unloaded,
        ),
    ]);
    for kind in ["-static", "-static-pie"] {
        all.push(with_llvm(
            &format!("external_images::programs::linked_with{kind}"),
            move || static_program(kind),
        ));
    }
    all.push(test(
        "releases::external_images::programs::libomptarget_19",
        || release(19),
    ));
    all.extend(kinds());
    all
}

/// CUDA and HIP programs of `tests/kinds` register the same from files.
fn kinds() -> Vec<Trial> {
    let cases = [
        ("cuda-rdc", 22),
        ("cuda-rdc", 19),
        ("cuda-rdc", 15),
        ("cuda-shared", 22),
        ("hip-rdc", 22),
        ("hip-rdc", 19),
        ("hip-rdc", 15),
        ("hip-features", 22),
        ("hip-managed", 22),
        ("hip-shared", 22),
        ("hip-spirv", 22),
    ];
    let one = |(name, release): (&'static str, u32)| {
        let run = move || kind(&Case::named(name, release));
        test(
            format!("releases::external_images::kinds::{name}::{release}"),
            run,
        )
    };
    cases.into_iter().map(one).collect()
}

fn kind(case: &Case) -> Outcome {
    let tools = match case.tools() {
        Ok(tools) => tools,
        Err(missing) => return missing,
    };
    let work = Work::new();
    case.compile(&work, &tools, Wrapper::External)?;
    case.link(&work, &tools, Wrapper::External, &[])?;
    work.expect_no_temps()?;
    ensure(
        !files_in(&work.path().join("program.images")).is_empty(),
        || "no files".to_owned(),
    )?;
    let (printed, ledger) = case.run(&work)?;
    expect_equal("stdout of the program", &case.text("expect"), &printed)?;
    expect_equal("the ledger", &case.text("ledger"), &ledger)?;
    passed()
}

/// The program without its image is small, and runs on the device.
fn runs(words: &[&str]) -> Outcome {
    let work = Work::new();
    object(&work)?;
    run(&mut link(&work, "program", words))?;
    work.expect_no_temps()?;
    let image = only_file(&work.path().join("program.images"))?;
    let name = image
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    expect_in(&name, "x86_64-")?;
    let printed = run_offloaded(&mut work.command(work.path().join("program")))?;
    expect_equal("stdout", "4950 device\n", &printed)?;
    // Nothing of the image is in the program.
    let program = fs::read(work.path().join("program"))?;
    let files = program
        .windows(4)
        .filter(|part| *part == b"\x7fELF")
        .count();
    expect_equal("ELF files in the program", "1", &files.to_string())?;
    passed()
}

/// The program finds its files by its own path: relocated, through links, from any directory, by a
/// name in PATH, with an absolute directory and with one elsewhere in the tree.
fn any_directory() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let root = work.path();
    fs::create_dir_all(root.join("tree/bin"))?;
    run(&mut link(&work, "tree/bin/program", &[]))?;
    fs::rename(root.join("tree"), root.join("moved tree"))?;
    let device = |command: &mut std::process::Command| -> Result<(), Failed> {
        expect_equal("stdout", "4950 device\n", &run_offloaded(command)?)
    };
    let program = root.join("moved tree/bin/program");
    device(&mut work.command(&program))?;
    device(
        work.command("./program")
            .current_dir(root.join("moved tree/bin")),
    )?;
    // Started by the dynamic loader, as bundled programs are.
    device(work.command("/lib64/ld-linux-x86-64.so.2").arg(&program))?;
    std::os::unix::fs::symlink(&program, root.join("alias"))?;
    device(&mut work.command(root.join("alias")))?;
    let path = std::env::join_paths([root.join("moved tree/bin")])?;
    device(
        work.command("sh")
            .args(["-c", "PATH=$DIR program"])
            .env("DIR", path),
    )?;
    // Renamed programs keep the name of the directory.
    fs::rename(&program, root.join("moved tree/bin/other"))?;
    device(&mut work.command(root.join("moved tree/bin/other")))?;

    let elsewhere = format!("{}=../share/images", super::OPTION);
    fs::create_dir_all(root.join("two/bin"))?;
    run(link(&work, "two/bin/program", &[]).arg(&elsewhere))?;
    only_file(&root.join("two/share/images"))?;
    device(&mut work.command(root.join("two/bin/program")))?;
    let absolute = format!("{}={}", super::OPTION, root.join("absolute").display());
    run(link(&work, "three", &[]).arg(&absolute))?;
    only_file(&root.join("absolute"))?;
    device(&mut work.command(root.join("three")))?;
    passed()
}

/// A program without its file runs on the host, and says why.
fn bad_files() -> Outcome {
    let work = Work::new();
    object(&work)?;
    run(&mut link(&work, "program", &[]))?;
    let program = work.path().join("program");
    let image = only_file(&work.path().join("program.images"))?;
    let bytes = fs::read(&image)?;
    let run_without = |what: &str, file: &str| -> Result<(), Failed> {
        let ended = output(&mut work.command(&program))?;
        expect_equal("stdout", "4950 host\n", &text(&ended.stdout))?;
        let expected = format!(
            "offld: {}: cannot load the device code for x86_64: `{file}`: {what}\n",
            program.canonicalize()?.display()
        );
        expect_in(&text(&ended.stderr), &expected)?;
        let mandatory = output(
            work.command(&program)
                .env("OMP_TARGET_OFFLOAD", "mandatory"),
        )?;
        ensure(!mandatory.status.success(), || "it runs".to_owned())?;
        expect_in(&text(&mandatory.stderr), &expected)
    };
    let image_text = image.canonicalize()?.display().to_string();
    let digest = "the file is damaged or belongs to another build: its digest differs";
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 3] ^= 1;
    fs::write(&image, &damaged)?;
    run_without(digest, &image_text)?;
    fs::write(&image, &bytes[..bytes.len() - 1])?;
    run_without(
        "the file belongs to another build: its size differs",
        &image_text,
    )?;
    fs::remove_file(&image)?;
    run_without("No such file or directory", &image_text)?;
    run(work.command("mkfifo").arg(&image))?;
    run_without("Illegal seek", &image_text)?;
    fs::remove_file(&image)?;
    fs::create_dir(&image)?;
    let ended = output(&mut work.command(&program))?;
    expect_in(
        &text(&ended.stderr),
        "cannot load the device code for x86_64",
    )?;
    expect_equal("stdout", "4950 host\n", &text(&ended.stdout))?;
    fs::remove_dir(&image)?;
    fs::write(&image, &bytes)?;
    let printed = run_offloaded(&mut work.command(&program))?;
    expect_equal("stdout", "4950 device\n", &printed)?;
    passed()
}

const LIBRARY: &str = "#include <stdio.h>\nint on_host(void);\nint sum(void) { int s = 0;\n\
    #pragma omp target map(tofrom : s)\n for (int i = 0; i < 100; i++) s += i;\n return s; }\n";

/// Builds `lib/libsum.so` with its image in a file.
fn make_library(work: &Work) -> Result<(), Failed> {
    fs::create_dir_all(work.path().join("lib"))?;
    work.file("sum.c", LIBRARY);
    let mut library = work.command(llvm("clang"));
    library
        .args(OFFLOAD)
        .args(["-O1", "-fPIC", "-shared", "sum.c", "-o", "lib/libsum.so"]);
    run(library.arg(super::OPTION).arg("-B").arg(&made().links))?;
    only_file(&work.path().join("lib/libsum.so.images"))?;
    Ok(())
}

fn library() -> Outcome {
    let work = Work::new();
    make_library(&work)?;
    work.file(
        "main.c",
        "#include <stdio.h>\nint sum(void);\nint main(void) { printf(\"%d\\n\", sum()); }\n",
    );
    run(work.command(llvm("clang")).args([
        "main.c",
        "-Llib",
        "-lsum",
        "-Wl,-rpath,$ORIGIN/lib",
        "-o",
        "program",
    ]))?;
    let printed = run_offloaded(&mut work.command("./program"))?;
    expect_equal("stdout", "4950\n", &printed)?;
    // A relative path, which is how the loader then names the library.
    let printed = run_offloaded(
        work.command("../program")
            .current_dir(work.path().join("lib"))
            .env("LD_LIBRARY_PATH", "."),
    )?;
    expect_equal("stdout", "4950\n", &printed)?;
    passed()
}

/// After `dlclose`, the map of the process has no image.
fn unloaded() -> Outcome {
    let work = Work::new();
    make_library(&work)?;
    work.file(
        "main.c",
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <string.h>\n\
         static int mapped(void) { char line[4096]; int n = 0; FILE *f = fopen(\"/proc/self/maps\", \"r\");\n\
         while (fgets(line, sizeof line, f)) n += !!strstr(line, \"libsum.so.images\"); fclose(f); return n; }\n\
         int main(void) { for (int i = 0; i < 3; i++) { void *l = dlopen(\"lib/libsum.so\", RTLD_NOW);\n\
         if (!l) { puts(dlerror()); return 1; }\n\
         int (*sum)(void) = (int (*)(void))dlsym(l, \"sum\"); int s = sum(), before = mapped(); dlclose(l);\n\
         printf(\"%d %d %d\\n\", s, before, mapped()); } }\n",
    );
    run(work
        .command(llvm("clang"))
        .args(["main.c", "-ldl", "-o", "program"]))?;
    let printed = run_offloaded(work.command("./program").current_dir(work.path()))?;
    expect_equal("stdout", "4950 1 0\n4950 1 0\n4950 1 0\n", &printed)?;
    passed()
}

/// A program with the rights of another user loads no file.
fn setuid() -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return missing("root");
    }
    let work = Work::new();
    object(&work)?;
    run(&mut link(&work, "program", &[]))?;
    let program = work.path().join("program");
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755))?;
    let mut command = work.command("setpriv");
    command
        .args(["--reuid=65534", "--clear-groups"])
        .arg(&program);
    let ended = output(&mut command)?;
    expect_in(
        &text(&ended.stderr),
        "cannot load device code from files: the program runs with the rights of another user",
    )?;
    expect_not_in(&text(&ended.stdout), "device")?;
    passed()
}

/// A static program has no dynamic loader that knows its path. The stub of the runtime is part of it.
fn static_program(kind: &str) -> Outcome {
    let work = Work::new();
    let host = "int main(void) { return 0; }\n";
    work.fat_with("a.o", &[Image::amd("gfx90a", "A")], host)?;
    let compiler = work.tool("tools/clang", &HOLES.replace("SIZE", "4096"));
    run(work
        .command("cc")
        .args(["-fPIE", "-c", "-o", "stub.o"])
        .arg(root().join("runtime-stubs/openmp.c")))?;
    let mut linking = work.command(llvm("clang"));
    linking.env("OFFLD_CLANG", compiler);
    linking
        .args(["--offload-link", kind, "-B"])
        .arg(&made().links);
    run(linking.args(["a.o", "stub.o", "-o", "program", super::OPTION]))?;
    only_file(&work.path().join("program.images"))?;
    let mut start = work.command("./program");
    start.env("HSA_OVERRIDE_GFX_VERSION", "9.0.10");
    let registered = run(start.env_remove("OFFLD_LEDGER"))?;
    expect_in(&registered, "openmp register lib=0 images=1 ")?;
    passed()
}

/// A link without device code says that it writes no files, for example for HIP code that was linked
/// when it was compiled.
fn no_device_code() -> Outcome {
    let work = Work::new();
    work.file("main.c", "int main(void) { return 0; }\n");
    run(work.command("cc").args(["-c", "main.c"]))?;
    let mut linking = work.command(llvm("clang"));
    linking.args(["--offload-link", "-B"]).arg(&made().links);
    let printed = stderr_of(linking.args(["main.o", "-o", "program", super::OPTION]))?;
    expect_in(
        &printed,
        "warning: --wrapper-external-images has no effect: this link has no device code",
    )?;
    run(&mut work.command("./program"))?;
    passed()
}

/// A program of another release, with the libomptarget of that release.
fn release(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let work = Work::new();
    work.file("main.c", crate::edit::SOURCE);
    let mut build = work.command(release.tool("clang"));
    build
        .args(OFFLOAD)
        .args(["-O1", "main.c", "-o", "program", super::OPTION]);
    build
        .arg("-B")
        .arg(&made().links)
        .arg(format!("-L{}", release.lib.display()));
    run(&mut build)?;
    only_file(&work.path().join("program.images"))?;
    let printed = run_offloaded(
        work.command("./program")
            .env("LD_LIBRARY_PATH", &release.lib),
    )?;
    expect_equal("stdout", "4950 device\n", &printed)?;
    passed()
}
