//! Fat objects, bitcode, archives and programs of LLVM 14, 15, 16, 19 and 22.

use libtest_mimic::{Failed, Trial};

use super::{Report, field, inspect_well, line, lines, objdump, section, sha256};
use crate::support::{
    OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, llvm, missing, passed, root, run,
    test,
};

pub(super) fn trials() -> Vec<Trial> {
    let each = [14, 15, 16, 19, 22].map(|major| {
        test(
            format!("releases::inspect::openmp::{major}"),
            move || match Release::of(major) {
                Some(release) => openmp(&release),
                None => missing(format!("LLVM {major} (make setup-releases)")),
            },
        )
    });
    let bundles = [14, 15, 16, 19, 22].map(|major| {
        test(
            format!("releases::inspect::bundles::{major}"),
            move || match Release::of(major) {
                Some(release) => bundles(&release),
                None => missing(format!("LLVM {major} (make setup-releases)")),
            },
        )
    });
    each.into_iter().chain(bundles).collect()
}

const FACTS: [&str; 3] = ["kinds", "triple", "target"];

/// An object, the same as bitcode, an archive of both, and a program linked by the release's own
/// wrapper.
fn openmp(release: &Release) -> Outcome {
    let work = Work::new();
    let source = root().join("tests/programs/reduction.c");
    let clang = |args: &[&str]| {
        let mut command = work.command(release.tool("clang"));
        run(command
            .args(OFFLOAD)
            .args(&release.compile)
            .arg("-O1")
            .arg(&source)
            .args(args))
    };
    clang(&["-c", "-o", "fat.o"])?;
    // With -flto, clang up to 14 runs the linker.
    clang(&["-c", "-flto", "-o", "lto.o"])?;
    let mut link = work.command(release.tool("clang"));
    // In LLVM 14, only the old driver links for the host as the device. It calls
    // clang-offload-wrapper.
    let args = release
        .compile
        .iter()
        .chain(&release.link)
        .filter(|word| *word != "-fopenmp-new-driver");
    run(link
        .args(OFFLOAD)
        .args(args)
        .arg(&source)
        .args(["-o", "program"]))?;
    work.archive("lib.a", &["fat.o", "lto.o"])?;

    let report = inspect_well(&work, ["fat.o", "lto.o", "lib.a", "program"])?;
    let image = if release.major == 14 {
        named_section(&work, &report)?
    } else {
        offload_binary(&work, &report)?
    };
    expect_equal(
        "hash",
        &sha256(&work, image)?,
        &field(&report.images(0)[0], "sha256"),
    )?;
    expect_equal(
        "bitcode",
        &lines(report.images(0), &FACTS),
        &lines(report.images(1), &FACTS),
    )?;
    let members = lines(report.images(2), &["members", "kinds", "format"]);
    expect_equal(
        "members",
        "fat.o|openmp|elf\nlto.o|openmp|elf\n",
        &members.replace("bitcode", "elf"),
    )?;
    program(&work, &report, release)?;
    passed()
}

/// LLVM 14: the image is in a section named after the target.
fn named_section(work: &Work, report: &Report) -> Result<std::path::PathBuf, Failed> {
    let image = &report.images(0)[0];
    let name = field(image, "section");
    let sections = work.run(llvm("llvm-readelf"), ["-SW", "fat.o"])?;
    expect_in(&sections, &format!("{name} "))?;
    let wanted = format!(
        ".llvm.offloading.{}.{}",
        field(image, "triple"),
        field(image, "target")
    );
    expect_equal(
        "section",
        &wanted,
        name.get(..wanted.len()).unwrap_or_default(),
    )?;
    section(work, "fat.o", &name, "image")
}

/// Later releases: OffloadBinaries, which LLVM 22 lists and extracts.
fn offload_binary(work: &Work, report: &Report) -> Result<std::path::PathBuf, Failed> {
    expect_equal(
        "images",
        &objdump(work, "fat.o")?,
        &lines(report.images(0), &FACTS),
    )?;
    work.run(
        llvm("llvm-offload-binary"),
        ["fat.o", "--image=file=image,kind=openmp"],
    )?;
    Ok(work.path().join("image"))
}

/// A program of the release's own wrapper: up to 14 it has bare images among its constants, later
/// OffloadBinaries.
fn program(work: &Work, report: &Report, release: &Release) -> Result<(), Failed> {
    let [image] = report.images(3) else {
        return Err(format!("one image: {}", report.json["files"][3]).into());
    };
    let registered = line(&report.registrations(3)[0], &["runtime", "symbol", "found"]);
    expect_equal(
        "registers",
        "openmp|__tgt_register_lib|library",
        &registered,
    )?;
    expect_equal(
        "kind",
        "openmp|elf|x86-64",
        &line(image, &["kinds", "format", "machine"]),
    )?;
    if release.major > 14 {
        return expect_equal(
            "program",
            &objdump(work, "program")?,
            &lines(report.images(3), &FACTS),
        );
    }
    let symbols = work.run(llvm("llvm-readelf"), ["-sW", "program"])?;
    let symbol = symbols
        .lines()
        .find(|line| line.ends_with(" .omp_offloading.device_image"))
        .ok_or("no variable")?;
    let size = symbol.split_whitespace().nth(2).unwrap_or_default();
    let size = size.strip_prefix("0x").map_or_else(
        || size.parse().ok(),
        |hex| u64::from_str_radix(hex, 16).ok(),
    );
    expect_equal(
        "size",
        &format!("{size:?}"),
        &format!("{:?}", image["size"].as_u64()),
    )
}

/// Bundles as each release writes them: binary, text, and object sections. Also OffloadBinaries of
/// releases with a packager.
fn bundles(release: &Release) -> Outcome {
    let work = Work::new();
    for (name, text) in [
        ("host.txt", "int host;\n"),
        ("one.txt", "ONE"),
        ("two.txt", "TWO and more"),
    ] {
        work.file(name, text);
    }
    work.run(
        llvm("clang"),
        [
            "--target=x86_64-unknown-linux-gnu",
            "-c",
            "-x",
            "c",
            "host.txt",
            "-o",
            "host.o",
        ],
    )?;
    // All releases accept this spelling, and each writes its own form.
    let targets = "host-x86_64-unknown-linux-gnu,hip-amdgcn-amd-amdhsa--gfx906,openmp-nvptx64-nvidia-cuda--sm_70";
    for (kind, host, container) in [
        ("bc", "host.txt", "bundle"),
        ("i", "host.txt", "text-bundle"),
        ("o", "host.o", ""),
    ] {
        let bundler = release.tool("clang-offload-bundler");
        let named = if release.major < 15 {
            vec![
                format!("-inputs={host},one.txt,two.txt"),
                "-outputs=bundle".to_owned(),
            ]
        } else {
            [host, "one.txt", "two.txt"]
                .map(|input| format!("-input={input}"))
                .into_iter()
                .chain(["-output=bundle".to_owned()])
                .collect()
        };
        // Old releases look for llvm-objcopy in PATH.
        let mut command = work.command(bundler);
        command.env("PATH", format!("{}:/usr/bin:/bin", release.bin.display()));
        run(command
            .arg(format!("-type={kind}"))
            .arg(format!("-targets={targets}"))
            .args(&named))?;
        let listed = run(work
            .command(release.tool("clang-offload-bundler"))
            .arg(format!("-type={kind}"))
            .args(list(release)))?;
        let report = inspect_well(&work, ["bundle"])?;
        let mut ids: Vec<String> = listed.lines().map(|id| format!("{id}\n")).collect();
        ids.sort();
        expect_equal(
            &format!("{kind}: ids"),
            &ids.concat(),
            &lines(report.images(0), &["id"]),
        )?;
        expect_equal(kind, container, &field(&report.images(0)[1], "container"))?;
        let facts = lines(report.device(0), &["kinds", "triple", "target", "sha256"]);
        let (one, two) = (sha256(&work, "one.txt")?, sha256(&work, "two.txt")?);
        let wanted = format!(
            "hip|amdgcn-amd-amdhsa|gfx906|{one}\nopenmp|nvptx64-nvidia-cuda-unknown|sm_70|{two}\n"
        );
        expect_equal(&format!("{kind}: images"), &wanted, &facts)?;
    }
    passed()
}

fn list(release: &Release) -> [&'static str; 2] {
    if release.major < 15 {
        ["-list", "-inputs=bundle"]
    } else {
        ["-list", "-input=bundle"]
    }
}
