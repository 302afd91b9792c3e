//! Objects of HIP's old driver (`-fgpu-rdc --no-offload-new-driver`), linked by offld as the linker of
//! any compiler. Each program must register the same as the program that clang's `--hip-link` makes,
//! and contain the same bundle.

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use super::kinds::{folder, normalized, stubs};
use super::support::{
    Outcome, Release, Work, expect_equal, expect_in, expect_not_in, host_linker, llvm, made,
    missing, offld, passed, root, run, run_failing, stderr_of, test, with_llvm,
};

/// A test with its name.
type Named = (&'static str, fn() -> Outcome);

const OLD: &[&str] = &["-fgpu-rdc", "--no-offload-new-driver"];
const NEW: &[&str] = &["-fgpu-rdc", "--offload-new-driver"];
const UNITS: [&str; 3] = ["main", "other", "archived"];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for linker in ["bfd", "gold", "lld", "mold", "wild"] {
        trials.push(with_llvm(
            &format!("hip_units::objects::{linker}"),
            move || objects(linker),
        ));
        trials.push(with_llvm(
            &format!("hip_units::archive::{linker}"),
            move || archive(linker),
        ));
        trials.push(with_llvm(
            &format!("hip_units::mixed::{linker}"),
            move || mixed(linker),
        ));
    }
    for major in [15, 16, 19] {
        trials.push(test(format!("releases::hip_units::{major}"), move || {
            of_release(major)
        }));
    }
    let all: [Named; 9] = [
        ("library_with_plain_names", library_with_plain_names),
        ("guide", guide),
        ("gcc_as_the_driver", by_gcc),
        ("shared_library", shared_library),
        ("late_images", late),
        ("relocatable_link", relocatable),
        ("linked_by_clang_is_left_alone", by_clang),
        ("second_link_is_cached", cached),
        ("code_without_objects_is_missed", stripped),
    ];
    for (name, check) in all {
        trials.push(with_llvm(&format!("hip_units::{name}"), check));
    }
    trials
}

/// Compiles a unit to `NAME.o`.
fn compile(work: &Work, unit: &str, flags: &[&str]) -> Outcome {
    run(work
        .command(llvm("clang++"))
        .args(["-x", "hip", "-nogpuinc", "-nogpulib", "-O2", "-fPIC"])
        .arg("--offload-arch=gfx90a,gfx942")
        .arg("-isystem")
        .arg(root().join("tests/device-headers"))
        .arg(format!("-B{}", made().links.display()))
        .args(flags)
        .args(["-c", "-o", &format!("{unit}.o")])
        .arg(folder().join(format!("{unit}.cpp"))))?;
    passed()
}

/// Compiles all units with the old driver, each with an ID.
fn compile_all(work: &Work) -> Outcome {
    for unit in UNITS {
        compile(work, unit, &[OLD, &[&format!("-cuid={unit}")]].concat())?;
    }
    passed()
}

/// Links with clang's own link of HIP, which runs LLVM's tools.
fn reference(work: &Work) -> Result<PathBuf, Failed> {
    let theirs = work.path().join("theirs");
    let tools = llvm("clang++")
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default();
    let path = format!(
        "{}:{}",
        tools.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    run(work
        .command(llvm("clang++"))
        .env("PATH", path)
        .args(["--hip-link", "--offload-arch=gfx90a,gfx942"])
        .args(OLD)
        .args(UNITS.map(|unit| format!("{unit}.o")))
        .arg(format!("-L{}", stubs().display()))
        .args(["-lamdhip64", "-o"])
        .arg(&theirs))?;
    Ok(theirs)
}

/// Links with clang and offld.
fn by_offld(work: &Work, linker: &str, line: &[&str]) -> Result<PathBuf, Failed> {
    let ours = work.path().join("ours");
    let linker = host_linker(linker).ok_or("no such linker")?;
    let printed = stderr_of(
        work.command(llvm("clang++"))
            .arg(format!("-B{}", made().as_ld.display()))
            .env("OFFLD_LINKER", linker)
            .args(line)
            .arg(format!("-L{}", stubs().display()))
            .args(["-lamdhip64", "-o"])
            .arg(&ours),
    )?;
    expect_equal("messages", "", &printed)?;
    Ok(ours)
}

/// The calls with which a program registers its images, and its launches.
fn registered(work: &Work, program: &Path) -> Result<String, Failed> {
    let ledger = work.path().join("ledger");
    let path = format!("{}:{}", stubs().display(), work.path().display());
    let printed = run(work
        .command(program)
        .env("OFFLD_LEDGER", &ledger)
        .env("LD_LIBRARY_PATH", path))?;
    expect_equal("output", "other 100\narchived 100\n", &printed)?;
    let text = normalized(work, &ledger)?;
    std::fs::remove_file(ledger)?;
    expect_not_in(&text, "BAD")?;
    Ok(text)
}

/// The bundle in a program.
fn bundle(work: &Work, program: &Path) -> Result<Vec<u8>, Failed> {
    let file = work.path().join("bundle");
    run(work
        .command("objcopy")
        .args(["-O", "binary", "--only-section=.hip_fatbin"])
        .arg(program)
        .arg(&file))?;
    Ok(std::fs::read(file)?)
}

/// Compares the registrations and the bundles of two programs.
fn same(work: &Work, theirs: &Path, ours: &Path) -> Outcome {
    expect_equal(
        "registration",
        &registered(work, theirs)?,
        &registered(work, ours)?,
    )?;
    let (theirs, ours) = (bundle(work, theirs)?, bundle(work, ours)?);
    // wild pads the section to a page.
    let (start, rest) = ours.split_at(theirs.len().min(ours.len()));
    let equal = start == theirs && rest.iter().all(|byte| *byte == 0);
    expect_equal("equal bundles", "true", &equal.to_string())?;
    passed()
}

const OBJECTS: [&str; 3] = ["main.o", "other.o", "archived.o"];

fn objects(linker: &str) -> Outcome {
    if host_linker(linker).is_none() {
        return missing(format!("the linker {linker}"));
    }
    let work = Work::new();
    compile_all(&work)?;
    let theirs = reference(&work)?;
    same(&work, &theirs, &by_offld(&work, linker, &OBJECTS)?)
}

/// A member that the host link does not extract is not linked either.
fn archive(linker: &str) -> Outcome {
    if host_linker(linker).is_none() {
        return missing(format!("the linker {linker}"));
    }
    let work = Work::new();
    compile_all(&work)?;
    let theirs = reference(&work)?;
    work.file(
        "unused.cpp",
        "#include <hip/hip_runtime.h>\n__global__ void unused(int *p) { *p = 1; }\nvoid run_unused() { unused<<<1, 1>>>(nullptr); }\n",
    );
    run(work
        .command(llvm("clang++"))
        .args([
            "-x",
            "hip",
            "-nogpuinc",
            "-nogpulib",
            "-fPIC",
            "--offload-arch=gfx90a,gfx942",
        ])
        .args(OLD)
        .arg("-isystem")
        .arg(root().join("tests/device-headers"))
        .arg(format!("-B{}", made().links.display()))
        .args(["-c", "unused.cpp"]))?;
    run(work
        .command("ar")
        .args(["rcs", "libarchived.a", "unused.o", "archived.o"]))?;
    same(
        &work,
        &theirs,
        &by_offld(&work, linker, &["main.o", "other.o", "libarchived.a"])?,
    )
}

/// One unit of the new driver. Both drivers' units are in one image and share one handle.
fn mixed(linker: &str) -> Outcome {
    if host_linker(linker).is_none() {
        return missing(format!("the linker {linker}"));
    }
    let work = Work::new();
    for new in UNITS {
        for unit in UNITS {
            let flags = if unit == new { NEW } else { OLD };
            compile(&work, unit, &[flags, &[&format!("-cuid={unit}")]].concat())?;
        }
        let ours = by_offld(&work, linker, &OBJECTS)?;
        let ledger = registered(&work, &ours)?;
        expect_not_in(&ledger, "lib=1")?;
        for line in [
            "hip register lib=0 version=1",
            "hip bundle lib=0 entries=3",
            "hip function lib=0 name=_Z4fillPii",
            "hip function lib=0 name=_Z8archivedPi",
            "hip var lib=0 name=elsewhere",
            "hip launch lib=0 name=_Z4fillPii",
            "hip launch lib=0 name=_Z8archivedPi",
            "hip unregister lib=0",
        ] {
            expect_in(&ledger, line)?;
        }
    }
    passed()
}

/// Objects of LLVM 18 and earlier have no IDs, and use the plain names. Those of LLVM 19 have IDs.
fn of_release(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let work = Work::new();
    for unit in UNITS {
        run(work
            .command(release.tool("clang++"))
            .args([
                "-x",
                "hip",
                "-nogpuinc",
                "-nogpulib",
                "-O2",
                "-fPIC",
                "-fgpu-rdc",
            ])
            .args([
                "--offload-arch=gfx90a",
                "--offload-arch=gfx906",
                "--no-offload-new-driver",
            ])
            .arg("-isystem")
            .arg(root().join("tests/device-headers"))
            .args(["-c", "-o", &format!("{unit}.o")])
            .arg(folder().join(format!("{unit}.cpp"))))?;
    }
    let ending = [format!("-L{}", stubs().display()), "-lamdhip64".to_owned()];
    run(work
        .command(release.tool("clang++"))
        .args(["--hip-link", "-fgpu-rdc", "--no-offload-new-driver"])
        .args([
            "--offload-arch=gfx90a",
            "--offload-arch=gfx906",
            "-o",
            "theirs",
        ])
        .args(OBJECTS)
        .args(&ending))?;
    // The compiler of the device links is that of the objects' release.
    run(work
        .command(release.tool("clang++"))
        .arg(format!("-B{}", made().as_ld.display()))
        .env("OFFLD_CLANG", release.tool("clang"))
        .args(["-o", "ours"])
        .args(OBJECTS)
        .args(&ending))?;
    let lines = |name: &str| -> Result<String, Failed> {
        let text = registered(&work, &work.path().join(name))?;
        // The name of the host's empty entry changed.
        let lines = text.lines().filter(|line| !line.contains("id=host-"));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    };
    expect_equal("registration", &lines("theirs")?, &lines("ours")?)?;
    passed()
}

/// The commands of docs/guides/hip-objects.md.
fn guide() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    let page = std::fs::read_to_string(root().join("docs/guides/hip-objects.md"))?;
    let block = |language: &str| {
        let rest = page.split(&format!("```{language}\n")).nth(1)?;
        rest.split("```").next()
    };
    let ending = format!("archived.o -L{} -lamdhip64", stubs().display());
    let script = block("sh")
        .ok_or("no commands")?
        .replace("clang++", &llvm("clang++").display().to_string())
        .replace("DIR", &made().links.display().to_string())
        .replace("-lamdhip64", &ending);
    run(work.command("sh").args(["-ec", &script]))?;
    registered(&work, &work.path().join("program"))?;
    let shown = block("console").ok_or("no output")?;
    let listed = run(work.command(offld()).args(["inspect", "other.o"]))?;
    for line in shown.lines().skip(1).filter(|line| *line != "…") {
        expect_in(&listed, line)?;
    }
    passed()
}

fn by_gcc() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    let theirs = reference(&work)?;
    let ours = work.path().join("ours");
    for more in [&["-pie"][..], &["-no-pie"], &["-Wl,--gc-sections"]] {
        run(work
            .command("g++")
            .arg(format!("-B{}", made().as_ld.display()))
            .args(OBJECTS)
            .args(more)
            .arg(format!("-L{}", stubs().display()))
            .args(["-lamdhip64", "-o"])
            .arg(&ours))?;
        same(&work, &theirs, &ours)?;
    }
    passed()
}

fn shared_library() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    let theirs = reference(&work)?;
    by_offld(
        &work,
        "bfd",
        &["-shared", "main.o", "other.o", "archived.o"],
    )?;
    std::fs::rename(work.path().join("ours"), work.path().join("liball.so"))?;
    run(work
        .command("g++")
        .args(["-o", "ours", "-Wl,--no-as-needed", "./liball.so"])
        .arg(format!("-L{}", stubs().display()))
        .arg("-lamdhip64"))?;
    let ours = work.path().join("ours");
    expect_equal(
        "registration",
        &registered(&work, &theirs)?,
        &registered(&work, &ours)?,
    )?;
    passed()
}

fn late() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    let theirs = reference(&work)?;
    let ours = work.path().join("ours");
    run(work
        .command(llvm("clang++"))
        .arg(format!(
            "--ld-path={}",
            made().links.join("ld.offld").display()
        ))
        .env("OFFLD_LATE_IMAGES", "on")
        .args(OBJECTS)
        .arg(format!("-L{}", stubs().display()))
        .args(["-lamdhip64", "-o"])
        .arg(&ours))?;
    same(&work, &theirs, &ours)
}

/// `-r` leaves the device code to the link of the program.
fn relocatable() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    for linker in ["bfd", "lld"] {
        run(work
            .command(llvm("clang++"))
            .arg(format!("-B{}", made().as_ld.display()))
            .env("OFFLD_LINKER", host_linker(linker).ok_or("no linker")?)
            .args(["-r", "-o", "both.o", "other.o", "archived.o"]))?;
        let ours = by_offld(&work, linker, &["main.o", "both.o"])?;
        let ledger = registered(&work, &ours)?;
        expect_in(&ledger, "hip launch lib=0 name=_Z5twiceIfEvPT_")?;
    }
    passed()
}

/// A shared library with device code of its own exports the names of its bundle. The program has its own.
fn library_with_plain_names() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    work.file(
        "library.c",
        "char __hip_fatbin[4096], __hip_fatbin_other[4096];\n",
    );
    run(work
        .command("cc")
        .args(["-shared", "-fPIC", "-o", "libplain.so", "library.c"]))?;
    let theirs = reference(&work)?;
    let ours = by_offld(
        &work,
        "bfd",
        &[
            "main.o",
            "other.o",
            "archived.o",
            "-Wl,--no-as-needed",
            "./libplain.so",
        ],
    )?;
    same(&work, &theirs, &ours)
}

/// clang's own link of HIP gives its linker objects without device code, and one with the linked code.
fn by_clang() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    let theirs = reference(&work)?;
    let ours = work.path().join("ours");
    run(work
        .command(llvm("clang++"))
        .args(["--hip-link", "--offload-arch=gfx90a,gfx942"])
        .args(OLD)
        .args(OBJECTS)
        .arg(format!("-B{}", made().as_ld.display()))
        .arg(format!("-L{}", stubs().display()))
        .args(["-lamdhip64", "-o"])
        .arg(&ours))?;
    same(&work, &theirs, &ours)
}

fn cached() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    let link = || {
        stderr_of(
            work.command(llvm("clang++"))
                .arg(format!("-B{}", made().as_ld.display()))
                .env("OFFLD_CACHE", work.path().join("cache"))
                .env("OFFLD_VERBOSE", "1")
                .args(OBJECTS)
                .arg(format!("-L{}", stubs().display()))
                .args(["-lamdhip64", "-o", "ours"]),
        )
    };
    expect_in(&link()?, "(gfx90a): not in the cache")?;
    let second = link()?;
    for arch in ["gfx90a", "gfx942"] {
        expect_in(&second, &format!("({arch}): found in the cache"))?;
    }
    passed()
}

/// Objects whose device code was stripped cannot be linked, which a warning says.
fn stripped() -> Outcome {
    let work = Work::new();
    compile_all(&work)?;
    for unit in UNITS {
        run(work.command("objcopy").args([
            "--wildcard",
            "--remove-section=__CLANG_OFFLOAD_BUNDLE__*",
            &format!("{unit}.o"),
        ]))?;
    }
    let said = run_failing(
        work.command(llvm("clang++"))
            .arg(format!("-B{}", made().as_ld.display()))
            .args(OBJECTS)
            .arg(format!("-L{}", stubs().display()))
            .args(["-lamdhip64", "-o", "ours"]),
    )?;
    expect_in(&said, "was compiled by HIP's old driver")?;
    passed()
}
