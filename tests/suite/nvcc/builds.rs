//! Builds of nvcc's objects with libraries, relocatable links, other drivers, and the cache.

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use super::{
    Inputs, LIBRARY, Named, PLAIN, Program, Toolkit, architectures, by_offld, device_linked,
    endings, libraries, offld_command, registered, same_cubins, without_device_runtime,
};
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_not_in, llvm, made, missing, output, passed,
    root, run, test, text,
};

pub(super) fn trials() -> Vec<Trial> {
    let all: [Named; 24] = [
        ("substitutes_for_a_missing_architecture", substitutes),
        ("machine_code_needs_unreadable_members", unreadable_members),
        ("lto_code_needs_machine_code", lto_code_needs_machine_code),
        ("ptx_needs_the_device_runtime", ptx_needs_device_runtime),
        ("sections_that_were_not_joined", unique_sections),
        ("library_with_the_same_modules", same_modules),
        ("library_with_the_same_members", same_members),
        ("cmake", cmake),
        ("meson", meson),
        ("guide", guide),
        ("shared_library_links_its_own_modules", shared_library),
        (
            "shared_library_of_nvcc_is_left_alone",
            shared_library_of_nvcc,
        ),
        ("object_of_dlink_is_left_alone", object_of_dlink),
        ("archive_with_dlink_is_left_alone", archive_with_dlink),
        ("archive_with_dlink_is_linked_again", archive_linked_again),
        ("relocatable_link", relocatable_link),
        ("plain_relocatable_link", plain_relocatable_link),
        ("thin_archive_response_file_and_script", other_inputs),
        ("whole_archive", whole_archive),
        ("clang_as_the_driver", clang_as_the_driver),
        ("ld_offld_by_hand", ld_offld_by_hand),
        ("late_images", late_images),
        ("code_for_the_own_unit_needs_nothing", whole_units),
        ("second_link_runs_no_nvlink", cached),
    ];
    all.into_iter()
        .map(|(name, check)| {
            test(
                format!("releases::nvcc::{name}"),
                move || match Toolkit::find() {
                    Some(toolkit) => check(&toolkit, &Work::new()),
                    None => missing("NVIDIA's tools and nvcc (make setup-cuda)"),
                },
            )
        })
        .collect()
}

/// Returns the code block of docs/guides/nvcc.md in a language, with the directory of the tool links.
/// Copies the sources that it names.
fn block(work: &Work, language: &str) -> Result<String, Failed> {
    let page = std::fs::read_to_string(root().join("docs/guides/nvcc.md"))?;
    let block = page
        .split(&format!("```{language}\n"))
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .ok_or("no such block")?;
    for file in ["main.cu", "other.cu", "check.h"] {
        std::fs::copy(root().join("tests/nvcc").join(file), work.path().join(file))?;
    }
    Ok(block.replace("DIR", &made().as_ld.display().to_string()))
}

fn guide(toolkit: &Toolkit, work: &Work) -> Outcome {
    let libraries = endings(toolkit)?;
    let script = block(work, "sh")?.replace("-lcudart", &format!("{} -lcudart", libraries[0]));
    run(toolkit.command(work, "sh").args(["-ec", &script]))?;
    let ledger = registered(work, &work.path().join("program"))?;
    expect_in(&ledger, "cuda function lib=0 name=_Z5otherPi")?;
    passed()
}

/// A build without a device-link step. After an edit of host code, only the host link runs.
fn cmake(toolkit: &Toolkit, work: &Work) -> Outcome {
    if which::which("cmake").is_err() {
        return missing("cmake");
    }
    work.file("CMakeLists.txt", block(work, "cmake")?);
    let log = work.path().join("log");
    let build = |words: &[&str]| -> Result<String, Failed> {
        let mut command = toolkit.command(work, "cmake");
        command
            .env("OFFLD_CACHE", work.path().join("cache"))
            .env("OFFLD_CACHE_LOG", &log);
        run(command.args(words))
    };
    build(&[
        "-B",
        "build",
        "-DCMAKE_CUDA_ARCHITECTURES=80-real;90-real",
        "-DCMAKE_CUDA_RUNTIME_LIBRARY=Shared",
        &format!(
            "-DCMAKE_EXE_LINKER_FLAGS=-L{}",
            libraries(toolkit)?.display()
        ),
    ])?;
    let built = build(&["--build", "build", "--verbose"])?;
    expect_not_in(&built, "dlink")?;
    expect_not_in(&built, "device_link")?;
    let ledger = registered(work, &work.path().join("build/app"))?;
    expect_in(&ledger, "cuda function lib=0 name=_Z5otherPi")?;
    let misses = std::fs::read_to_string(&log)?;
    std::fs::remove_file(&log)?;
    expect_equal(
        "device links",
        "2",
        &misses.matches("\"miss\"").count().to_string(),
    )?;
    let source = std::fs::read_to_string(work.path().join("main.cu"))?;
    work.file(
        "main.cu",
        source.replace("return finish();", "puts(\"edited\");\n  return finish();"),
    );
    build(&["--build", "build"])?;
    let hits = std::fs::read_to_string(&log)?;
    expect_equal(
        "found in the cache",
        "2",
        &hits.matches("\"hit\"").count().to_string(),
    )?;
    expect_not_in(&hits, "\"miss\"")?;
    passed()
}

fn meson(toolkit: &Toolkit, work: &Work) -> Outcome {
    if which::which("meson").is_err() || which::which("ninja").is_err() {
        return missing("meson and ninja");
    }
    let libraries = libraries(toolkit)?;
    let project = block(work, "meson")?.replace(
        "'-lcudart'",
        &format!("'-L{}', '-lcudart'", libraries.display()),
    );
    work.file("meson.build", project);
    let build = |program: &str, words: &[&str]| -> Result<String, Failed> {
        let mut command = toolkit.command(work, program);
        run(command.env("CUDA_PATH", &toolkit.nvcc).args(words))
    };
    build("meson", &["setup", "--buildtype=release", "build"])?;
    build("ninja", &["-C", "build"])?;
    let ledger = registered(work, &work.path().join("build/app"))?;
    expect_in(&ledger, "cuda function lib=0 name=_Z5otherPi")?;
    passed()
}

/// Compiles a unit for these `-gencode` values.
fn compiled(toolkit: &Toolkit, work: &Work, unit: &str, codes: &[&str]) -> Result<PathBuf, Failed> {
    let object = work.path().join(format!("{unit}.o"));
    let mut words = vec![
        "-rdc=true".to_owned(),
        "-c".to_owned(),
        "-Xcompiler=-fPIC".to_owned(),
    ];
    words.extend(
        codes
            .iter()
            .map(|code| format!("-gencode=arch=compute_{code}")),
    );
    words.extend(["-o".to_owned(), object.display().to_string()]);
    let source = root().join(format!("tests/nvcc/{unit}.cu"));
    words.push(source.display().to_string());
    toolkit.nvcc(work, &words)?;
    Ok(object)
}

/// nvlink takes PTX and cubins for earlier GPUs in place of machine code for the GPU itself.
fn substitutes(toolkit: &Toolkit, work: &Work) -> Outcome {
    let program = |arch| -> Result<Program, Failed> {
        Ok(Program {
            archs: arch,
            ..PLAIN
        })
    };
    let cases: [(&'static [&'static str], &[&str]); 5] = [
        (&["90"], &["80,code=[sm_80,compute_80]"]),
        (&["90"], &["80,code=compute_80"]),
        (&["86"], &["80,code=sm_80"]),
        (&["90a"], &["90,code=sm_90"]),
        (&["80", "90"], &["80,code=[sm_80,compute_80]"]),
    ];
    for (archs, codes) in cases {
        let program = program(archs)?;
        let main = toolkit.object("main", archs, &[])?;
        let other = compiled(toolkit, work, "other", codes)?;
        let inputs = Inputs {
            line: vec![main.display().to_string(), other.display().to_string()],
            modules: vec![main, other],
        };
        let theirs = reference(toolkit, work, &program, &inputs)?;
        let ours = work.path().join("ours");
        by_offld(toolkit, work, "bfd", &inputs.line, &ours)?;
        same(toolkit, work, &theirs, &ours)?;
        // The same code in an archive, whose member only device code needs.
        run(work.command("ar").args(["rcs", "libother.a", "other.o"]))?;
        by_offld(
            toolkit,
            work,
            "bfd",
            &[inputs.line[0].clone(), "libother.a".to_owned()],
            &ours,
        )?;
        same(toolkit, work, &theirs, &ours)?;
    }
    passed()
}

/// Machine code needs members of an archive whose symbols only nvlink can read: code for link-time
/// optimization, and PTX.
fn unreadable_members(toolkit: &Toolkit, work: &Work) -> Outcome {
    for (code, flags) in [
        ("90,code=lto_90", &["-dlto"][..]),
        ("80,code=compute_80", &[]),
    ] {
        let program = Program {
            archs: &["90"],
            flags,
            ..PLAIN
        };
        let host = toolkit.object("host", program.archs, &[])?;
        let mut modules = vec![host, toolkit.object("library", program.archs, &[])?];
        for unit in ["square", "device"] {
            modules.push(compiled(toolkit, work, unit, &[code])?);
        }
        let archive = work.path().join("libparts.a");
        run(work
            .command("ar")
            .arg("rcs")
            .arg(&archive)
            .args(&modules[1..]))?;
        let line = [&modules[0], &archive].map(|path| path.display().to_string());
        let inputs = Inputs {
            line: modules
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            modules: modules[1..].to_vec(),
        };
        let theirs = reference(toolkit, work, &program, &inputs)?;
        let ours = work.path().join("ours");
        by_offld(toolkit, work, "bfd", &line, &ours)?;
        same(toolkit, work, &theirs, &ours)?;
        std::fs::remove_file(archive)?;
    }
    passed()
}

/// Code for link-time optimization, whose symbols only nvlink can read, needs members of an archive
/// with machine code. nvlink takes all members.
fn lto_code_needs_machine_code(toolkit: &Toolkit, work: &Work) -> Outcome {
    let program = Program {
        archs: &["90"],
        flags: &["-dlto"],
        ..PLAIN
    };
    let host = toolkit.object("host", program.archs, &[])?;
    let unit = toolkit.object("library", program.archs, program.flags)?;
    let archive = work.path().join("libparts.a");
    let members = ["unused", "square", "device"];
    let members = members.map(|member| toolkit.object(member, program.archs, &[]));
    let members = members.into_iter().collect::<Result<Vec<_>, _>>()?;
    run(work.command("ar").arg("rcs").arg(&archive).args(members))?;
    let line = [&host, &unit, &archive].map(|path| path.display().to_string());
    let inputs = Inputs {
        line: line.to_vec(),
        modules: vec![unit, archive],
    };
    let theirs = reference(toolkit, work, &program, &inputs)?;
    let ours = work.path().join("ours");
    by_offld(toolkit, work, "bfd", &line, &ours)?;
    same(toolkit, work, &theirs, &ours)
}

/// A kernel of a unit with PTX alone launches kernels.
fn ptx_needs_device_runtime(toolkit: &Toolkit, work: &Work) -> Outcome {
    let program = Program {
        archs: &["90"],
        ..PLAIN
    };
    let unit = compiled(toolkit, work, "dynamic", &["80,code=compute_80"])?;
    let other = toolkit.object("other", program.archs, &[])?;
    let inputs = Inputs {
        line: [&unit, &other]
            .map(|path| path.display().to_string())
            .to_vec(),
        modules: vec![unit, other],
    };
    let theirs = reference(toolkit, work, &program, &inputs)?;
    let ours = work.path().join("ours");
    by_offld(toolkit, work, "bfd", &inputs.line, &ours)?;
    // `nvcc -dlink` registers the module of the device runtime.
    let without_modules = |ledger: &str| -> String {
        let lines = ledger.lines().filter(|line| !line.contains("prelinked="));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let expected = without_device_runtime(&registered(work, &theirs)?);
    let own = registered(work, &ours)?;
    expect_in(&own, "cuda launch lib=0 name=_Z6parentPi")?;
    expect_equal(
        "registration",
        &without_modules(&expected),
        &without_modules(&own),
    )?;
    passed()
}

fn unique_sections(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    run(work
        .command("ld")
        .args(["-r", "--unique", "-o", "both.o"])
        .args(&inputs.line))?;
    let ours = work.path().join("ours");
    by_offld(toolkit, work, "bfd", &["both.o".to_owned()], &ours)?;
    let ledger = registered(work, &ours)?;
    expect_in(&ledger, "cuda function lib=0 name=_Z5otherPi")?;
    passed()
}

/// A static library is in the program and in a shared library. Each registers its own copy.
fn same_modules(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let modules = &inputs.modules[1..];
    let object = device_linked(toolkit, work, &PLAIN, modules)?;
    run(work
        .command("g++")
        .args(["-shared", "-o", "libcopy.so"])
        .args(modules)
        .arg(object)
        .args(endings(toolkit)?))?;
    let ours = work.path().join("ours");
    let mut line = inputs.line.clone();
    line.extend(["-Wl,--no-as-needed".to_owned(), "./libcopy.so".to_owned()]);
    by_offld(toolkit, work, "bfd", &line, &ours)?;
    let ledger = registered(work, &ours)?;
    expect_in(&ledger, "cuda register lib=1 version=2")?;
    expect_in(&ledger, "name=_Z4fillPi")?;
    passed()
}

/// Device code alone needs members of a static library that is also in a shared library, which
/// exports their symbols. The program gets its own copy of the members.
fn same_members(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&LIBRARY, toolkit, work)?;
    work.file(
        "inner.cu",
        "extern __device__ int of_device(int);\n\
         __global__ void inner(int *p) { *p = of_device(1); }\n\
         void run_inner() { inner<<<1, 1>>>(nullptr); }\n",
    );
    let mut words = vec!["-rdc=true".to_owned(), "-c".to_owned()];
    words.extend(architectures(LIBRARY.archs, &[]));
    words.extend(["-Xcompiler=-fPIC", "-o", "inner.o", "inner.cu"].map(str::to_owned));
    toolkit.nvcc(work, &words)?;
    let mut modules = vec![work.path().join("inner.o")];
    for unit in ["square", "device"] {
        modules.push(toolkit.object(unit, LIBRARY.archs, &[])?);
    }
    let library = work.path().join("libinner.so");
    let objects: Vec<String> = modules
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let shared = [vec!["-shared".to_owned()], objects.clone()].concat();
    for by_nvcc in [true, false] {
        if by_nvcc {
            let object = device_linked(toolkit, work, &LIBRARY, &modules)?;
            let mut command = work.command("g++");
            command.args(&shared).arg("-o").arg(&library).arg(object);
            run(command.args(endings(toolkit)?))?;
        } else {
            by_offld(toolkit, work, "bfd", &shared, &library)?;
        }
        let mut line = vec![inputs.line[0].clone(), "-Wl,--no-as-needed".to_owned()];
        line.extend(["./libinner.so".to_owned(), inputs.line[1].clone()]);
        for linker in ["bfd", "gold", "lld", "mold", "wild"] {
            let ours = work.path().join("ours");
            let mut line = line.clone();
            if linker == "lld" {
                line.push("-Wl,--dependency-file=ours.d".to_owned());
            }
            line.push("-Wl,--wrapper-why".to_owned());
            let linked = output(&mut offld_command(toolkit, work, linker, &line, &ours)?)?;
            let printed = text(&linked.stderr);
            expect_in(&printed, "libparts.a(device-80-90.o): ")?;
            expect_in(&printed, "needs the device symbol `_Z9of_devicei`")?;
            let ledger = registered(work, &ours)?;
            expect_in(&ledger, "cuda function lib=0 name=_Z5innerPi")?;
            expect_in(&ledger, "cuda function lib=1 name=_Z7libraryPi")?;
            expect_in(&ledger, "cuda managed lib=1 name=one")?;
        }
        let dependencies = std::fs::read_to_string(work.path().join("ours.d"))?;
        expect_in(&dependencies, "libparts.a")?;
        expect_not_in(&dependencies, "member")?;
    }
    passed()
}

/// Links the program of `nvcc -dlink` for comparison.
fn reference(
    toolkit: &Toolkit,
    work: &Work,
    program: &Program,
    inputs: &Inputs,
) -> Result<PathBuf, Failed> {
    let theirs = work.path().join("theirs");
    let object = device_linked(toolkit, work, program, &inputs.modules)?;
    run(work
        .command("g++")
        .arg("-o")
        .arg(&theirs)
        .arg(object)
        .args(&inputs.line)
        .args(endings(toolkit)?))?;
    Ok(theirs)
}

/// Compares the registrations and images of two programs.
fn same(toolkit: &Toolkit, work: &Work, theirs: &Path, ours: &Path) -> Outcome {
    expect_equal(
        "registration",
        &registered(work, theirs)?,
        &registered(work, ours)?,
    )?;
    same_cubins(toolkit, work, theirs, ours)
}

fn shared_library(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&LIBRARY, toolkit, work)?;
    let library = work.path().join("libparts.so");
    let line = [
        "-shared",
        "-Wl,--whole-archive",
        &inputs.line[1],
        "-Wl,--no-whole-archive",
    ];
    by_offld(toolkit, work, "bfd", &line.map(str::to_owned), &library)?;
    let ours = work.path().join("ours");
    let line = [&inputs.line[0], "-L.", "-lparts"].map(ToString::to_string);
    std::fs::rename(&library, work.path().join("libparts.so.tmp"))?;
    std::fs::remove_file(work.path().join("libparts.a"))?;
    std::fs::rename(work.path().join("libparts.so.tmp"), &library)?;
    by_offld(toolkit, work, "bfd", &line, &ours)?;
    let ledger = registered(work, &ours)?;
    for line in [
        "cuda register lib=0 version=2",
        "prelinked=3",
        "name=_Z7libraryPi",
        "name=_Z6unusedPi",
        "cuda launch lib=0 name=_Z7libraryPi",
    ] {
        expect_in(&ledger, line)?;
    }
    // The functions for the modules are the library's own.
    let symbols = run(work
        .command("nm")
        .args(["-D", "--defined-only", "libparts.so"]))?;
    expect_not_in(&symbols, "__cudaRegisterLinkedBinary")?;
    passed()
}

/// nvcc links the library. A unit of the program itself is linked by offld.
fn shared_library_of_nvcc(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&LIBRARY, toolkit, work)?;
    let modules = &inputs.modules[1..];
    let object = device_linked(toolkit, work, &LIBRARY, modules)?;
    run(work
        .command("g++")
        .args(["-shared", "-o", "libparts.so"])
        .args(modules)
        .arg(object)
        .args(endings(toolkit)?))?;
    let ours = work.path().join("ours");
    let unused = toolkit
        .object("unused", LIBRARY.archs, &[])?
        .display()
        .to_string();
    let line = [inputs.line[0].clone(), unused, "./libparts.so".to_owned()];
    by_offld(toolkit, work, "bfd", &line, &ours)?;
    let ledger = registered(work, &ours)?;
    expect_in(&ledger, "cuda register lib=1 version=2")?;
    expect_in(&ledger, "name=_Z6unusedPi")?;
    expect_in(&ledger, "cuda launch lib=0 name=_Z7libraryPi")?;
    passed()
}

fn object_of_dlink(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let theirs = reference(toolkit, work, &PLAIN, &inputs)?;
    let mut line = inputs.line.clone();
    line.push("dlink.o".to_owned());
    let ours = work.path().join("ours");
    by_offld(toolkit, work, "bfd", &line, &ours)?;
    same(toolkit, work, &theirs, &ours)
}

fn archive_with_dlink(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let theirs = reference(toolkit, work, &PLAIN, &inputs)?;
    run(work
        .command("ar")
        .args(["rcs", "liball.a", "dlink.o"])
        .args(&inputs.line))?;
    let ours = work.path().join("ours");
    for linker in ["bfd", "lld", "mold"] {
        by_offld(
            toolkit,
            work,
            linker,
            &["-Wl,-umain".to_owned(), "liball.a".to_owned()],
            &ours,
        )?;
        same(toolkit, work, &theirs, &ours)?;
    }
    passed()
}

/// A unit calls a device function of an archive that has its own device link.
fn archive_linked_again(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let own = device_linked(toolkit, work, &PLAIN, &inputs.modules[1..])?;
    std::fs::rename(own, work.path().join("own.o"))?;
    run(work
        .command("ar")
        .args(["rcs", "libother.a", &inputs.line[1], "own.o"]))?;
    let theirs = reference(toolkit, work, &PLAIN, &inputs)?;
    let line = [inputs.line[0].clone(), "libother.a".to_owned()];
    let ours = work.path().join("ours");
    for linker in ["bfd", "gold", "lld", "mold", "wild"] {
        by_offld(toolkit, work, linker, &line, &ours)?;
        same(toolkit, work, &theirs, &ours)?;
    }
    passed()
}

/// `-r` by offld leaves the modules to the link of the program.
fn relocatable_link(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let theirs = reference(toolkit, work, &PLAIN, &inputs)?;
    for linker in ["bfd", "lld", "gold"] {
        let mut command = toolkit.command(work, "g++");
        command
            .arg(format!("-B{}", made().as_ld.display()))
            .env(
                "OFFLD_LINKER",
                crate::support::host_linker(linker).ok_or("no linker")?,
            )
            .args(["-r", "-o", "both.o"])
            .args(&inputs.line);
        run(&mut command)?;
        let ours = work.path().join("ours");
        by_offld(toolkit, work, linker, &["both.o".to_owned()], &ours)?;
        same(toolkit, work, &theirs, &ours)?;
    }
    passed()
}

fn plain_relocatable_link(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let theirs = reference(toolkit, work, &PLAIN, &inputs)?;
    run(work
        .command("ld")
        .args(["-r", "-o", "both.o"])
        .args(&inputs.line))?;
    let ours = work.path().join("ours");
    by_offld(toolkit, work, "bfd", &["both.o".to_owned()], &ours)?;
    same(toolkit, work, &theirs, &ours)
}

fn other_inputs(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let theirs = reference(toolkit, work, &PLAIN, &inputs)?;
    let ours = work.path().join("ours");
    work.file("response", inputs.line.join("\n"));
    work.file("script", format!("INPUT({})\n", inputs.line.join(" ")));
    run(work
        .command("ar")
        .args(["rcsT", "libthin.a", &inputs.line[1]]))?;
    for line in [
        vec!["@response".to_owned()],
        vec!["script".to_owned()],
        vec![inputs.line[0].clone(), "libthin.a".to_owned()],
    ] {
        by_offld(toolkit, work, "bfd", &line, &ours)?;
        same(toolkit, work, &theirs, &ours)?;
    }
    passed()
}

fn whole_archive(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&LIBRARY, toolkit, work)?;
    let ours = work.path().join("ours");
    let line = [
        &inputs.line[0],
        "-Wl,--whole-archive",
        &inputs.line[1],
        "-Wl,--no-whole-archive",
    ];
    by_offld(toolkit, work, "bfd", &line.map(ToString::to_string), &ours)?;
    let ledger = registered(work, &ours)?;
    for kernel in ["_Z7libraryPi", "_Z6unusedPi"] {
        expect_in(&ledger, &format!("cuda function lib=0 name={kernel}"))?;
    }
    expect_in(&ledger, "prelinked=3")?;
    expect_not_in(&ledger, "prelinked=4")?;
    passed()
}

fn clang_as_the_driver(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let theirs = reference(toolkit, work, &PLAIN, &inputs)?;
    let ours = work.path().join("ours");
    let clang = llvm("clang++");
    for option in [
        format!("--ld-path={}", made().links.join("ld.offld").display()),
        format!("-B{}", made().as_ld.display()),
    ] {
        run(toolkit
            .command(work, &clang)
            .arg(option)
            .arg("-o")
            .arg(&ours)
            .args(&inputs.line)
            .args(endings(toolkit)?))?;
        same(toolkit, work, &theirs, &ours)?;
    }
    passed()
}

/// Without g++ between, also with the output at the end of the line. Device code alone needs
/// members of the archive, and linkers search it only for symbols of objects before it.
fn ld_offld_by_hand(toolkit: &Toolkit, work: &Work) -> Outcome {
    for program in [&PLAIN, &LIBRARY] {
        let inputs = Inputs::of(program, toolkit, work)?;
        let theirs = reference(toolkit, work, program, &inputs)?;
        let ours = work.path().join("ours");
        // The line that g++ gives its linker.
        let shown = output(
            toolkit
                .command(work, "g++")
                .args(["-###", "-o"])
                .arg(&ours)
                .args(&inputs.line)
                .args(endings(toolkit)?),
        )?;
        let shown = text(&shown.stderr);
        let line = shown
            .lines()
            .find(|line| line.contains("collect2"))
            .ok_or("no linker command")?;
        let words = line
            .split_whitespace()
            .skip(1)
            .map(|word| word.trim_matches('"'));
        let is_plugin = |word: &&str| {
            word.starts_with("-plugin")
                || word.contains("lto_plugin")
                || word.contains("lto-wrapper")
        };
        let first: Vec<&str> = words.filter(|word| !is_plugin(word)).collect();
        let mut last = first.clone();
        let at = last.iter().position(|word| *word == "-o").ok_or("no -o")?;
        let output: Vec<&str> = last.drain(at..at + 2).collect();
        last.extend(output);
        for words in [first, last] {
            run(toolkit
                .command(work, made().links.join("ld.offld"))
                .args(words))?;
            same(toolkit, work, &theirs, &ours)?;
        }
    }
    passed()
}

fn late_images(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let theirs = reference(toolkit, work, &PLAIN, &inputs)?;
    let ours = work.path().join("ours");
    let linked = run(toolkit
        .command(work, "g++")
        .arg(format!("-B{}", made().as_ld.display()))
        .env("OFFLD_LATE_IMAGES", "on")
        .env("OFFLD_LINKER", llvm("ld.lld"))
        .arg("-o")
        .arg(&ours)
        .args(&inputs.line)
        .args(endings(toolkit)?))?;
    expect_equal("output", "", &linked)?;
    same(toolkit, work, &theirs, &ours)
}

/// Code of nvcc without `-rdc` registers itself, also next to relocatable code.
fn whole_units(toolkit: &Toolkit, work: &Work) -> Outcome {
    work.file(
        "own.cu",
        "__global__ void own() {}\nstruct Launch { Launch() { own<<<1, 1>>>(); } } launch;\n",
    );
    toolkit.nvcc(
        work,
        &["-c", "own.cu", "-Xcompiler=-fPIC"].map(str::to_owned),
    )?;
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let mut line = inputs.line.clone();
    line.push("own.o".to_owned());
    let ours = work.path().join("ours");
    by_offld(toolkit, work, "bfd", &line, &ours)?;
    let ledger = registered(work, &ours)?;
    for line in [
        "cuda register lib=0 version=1",
        "cuda register lib=1 version=2",
        "cuda launch lib=0 name=_Z3ownv",
        "cuda launch lib=1 name=_Z4fillPi",
    ] {
        expect_in(&ledger, line).or_else(|_| {
            expect_in(
                &ledger,
                &line
                    .replace("lib=0", "lib=2")
                    .replace("lib=1", "lib=0")
                    .replace("lib=2", "lib=1"),
            )
        })?;
    }
    passed()
}

fn cached(toolkit: &Toolkit, work: &Work) -> Outcome {
    let inputs = Inputs::of(&PLAIN, toolkit, work)?;
    let link = |more: &[&str]| -> Result<String, Failed> {
        let mut command = toolkit.command(work, "g++");
        command
            .arg(format!("-B{}", made().as_ld.display()))
            .env("OFFLD_CACHE", work.path().join("cache"))
            .env("OFFLD_CACHE_LOG", work.path().join("log"))
            .env("OFFLD_VERBOSE", "1")
            .args(["-o", "ours"])
            .args(&inputs.line)
            .args(more)
            .args(endings(toolkit)?);
        let linked = output(&mut command)?;
        Ok(text(&linked.stdout) + &text(&linked.stderr))
    };
    let first = link(&[])?;
    expect_in(&first, "not in the cache")?;
    expect_not_in(&first, "not cached")?;
    let one = std::fs::read(work.path().join("ours"))?;
    work.file("more.c", "int more;\n");
    run(work.command("cc").args(["-c", "more.c"]))?;
    let second = link(&["more.o"])?;
    for arch in PLAIN.archs {
        expect_in(&second, &format!("(sm_{arch}): found in the cache"))?;
    }
    expect_not_in(&second, "bin/nvlink -m64")?;
    link(&[])?;
    expect_equal(
        "the same program",
        "true",
        &(one == std::fs::read(work.path().join("ours"))?).to_string(),
    )?;
    passed()
}
