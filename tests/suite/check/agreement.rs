//! Registrations as `offld check` reads them equal those that runtimes receive, which the runtime
//! stubs record. And LLVM's own runtime runs the images that `offld check` says will run.

use std::collections::BTreeSet;

use libtest_mimic::{Failed, Trial};

use super::{Report, change, check, elf_files, find, list, number, object, program};
use crate::kinds::{Case, Wrapper};
use crate::programs::{Linked, Program, Way};
use crate::support::{
    Outcome, Release, Work, expect_equal, expect_in, ledger, llvm, output, passed, run,
    run_offloaded, test, with_llvm,
};

/// Programs with variables, several tables, their own libraries, and relocatable links.
const PROGRAMS: [&str; 9] = [
    "globals",
    "globals-link",
    "constructors",
    "indirect",
    "requires-usm",
    "reduction",
    "shared-and-main",
    "partial",
    "archive-twice",
];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = PROGRAMS
        .iter()
        .map(|name| with_llvm(&format!("check::agreement::{name}"), move || openmp(name)))
        .collect();
    for case in ["hip-rdc", "hip-plain", "hip-compressed", "hip-shared"] {
        trials.push(kinds(case, "check"));
    }
    for case in ["cuda-rdc", "cuda-plain", "mixed"] {
        trials.push(kinds(case, "releases::check"));
    }
    for release in [14, 15, 16, 19] {
        trials.push(test(
            format!("releases::check::agreement::{release}"),
            move || openmp_of_release(release),
        ));
    }
    trials.push(with_llvm(
        "check::agreement::every_form_of_a_program",
        linked_forms,
    ));
    trials.push(with_llvm(
        "check::agreement::what_the_runtime_refuses",
        refused,
    ));
    trials
}

fn kinds(case: &'static str, prefix: &str) -> Trial {
    test(format!("{prefix}::agreement::{case}"), move || {
        hip_and_cuda(case)
    })
}

/// The entries of all files, as `name size`.
fn entries(report: &Report) -> BTreeSet<String> {
    let registered = list(&report.json["files"])
        .iter()
        .flat_map(|file| list(&file["registered"]));
    let entries = registered
        .flat_map(|one| list(&one["tables"]))
        .flat_map(|table| list(&table["entries"]));
    entries
        .map(|entry| {
            format!(
                "{} {}",
                without_file(entry["name"].as_str().unwrap_or("?")),
                entry["size"]
            )
        })
        .collect()
}

/// The kernel name without the device and file numbers of its source, as in the registration log.
fn without_file(name: &str) -> String {
    let Some(rest) = name.strip_prefix("__omp_offloading_") else {
        return name.to_owned();
    };
    let mut parts = rest.splitn(3, '_');
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (parts.next(), parts.next(), parts.next()) {
        (Some(device), Some(file), Some(function)) if is_hex(device) && is_hex(file) => {
            format!("__omp_offloading_*_{function}")
        }
        _ => name.to_owned(),
    }
}

/// The entries in a registration log, as `name size`.
fn ledger_entries(ledger: &str) -> BTreeSet<String> {
    let word = |line: &str, name: &str| {
        line.split(' ')
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_default()
            .to_owned()
    };
    let lines = ledger
        .lines()
        .filter(|line| line.starts_with("openmp entry "));
    lines
        .map(|line| format!("{} {}", word(line, "name"), word(line, "size")))
        .collect()
}

fn same_entries(report: &Report, ledger: &str) -> Result<(), Failed> {
    let (read, handed) = (entries(report), ledger_entries(ledger));
    // Entries without a name only state requirements of the program.
    let named = |all: BTreeSet<String>| {
        all.into_iter()
            .filter(|one| !one.starts_with(' '))
            .collect::<Vec<_>>()
            .join("\n")
    };
    expect_equal("entries", &named(handed), &named(read))
}

fn openmp(name: &str) -> Outcome {
    let work = Work::new();
    let program = Program::named(name);
    let release = Release::newest();
    program.compile(&work, &release)?;
    for linked in [Linked::Wrapper, Linked::Reference] {
        for linker in ["bfd", "lld"] {
            if linked == Linked::Reference && program.fails_with_reference(linker) {
                continue;
            }
            program.build(
                &work,
                &Way {
                    linked,
                    linker: linker.to_owned(),
                    release: release.clone(),
                },
            )?;
            run_offloaded(&mut program.start(&work))?;
            let ledger = program.ledger(&work, &release)?;
            let linked: Vec<String> = elf_files(work.path())
                .into_iter()
                .filter(|name| name == "program" || name.ends_with(".so"))
                .collect();
            let report = check(&work, linked.iter().map(String::as_str))?;
            same_entries(&report, &ledger)?;
            expect_equal(&format!("{linker}: the answer"), "yes\n", &report.lines())?;
        }
    }
    passed()
}

/// Compares the entries of an older release. Its images are constants without their own section.
fn openmp_of_release(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return crate::support::missing(format!("LLVM {major} (make setup-releases)"));
    };
    let work = Work::new();
    let program = Program::named("globals");
    program.compile(&work, &release)?;
    for linked in [Linked::Wrapper, Linked::Reference] {
        // The wrapper of LLVM 14 cannot link for a CPU.
        if major == 14 && linked == Linked::Reference {
            continue;
        }
        program.build(
            &work,
            &Way {
                linked,
                linker: "bfd".to_owned(),
                release: release.clone(),
            },
        )?;
        let ledger = program.ledger(&work, &release)?;
        let report = check(&work, ["program"])?;
        same_entries(&report, &ledger)?;
        expect_equal(
            "kernels by entries",
            "\"entries\"",
            &report.json["files"][0]["units"][0]["basis"].to_string(),
        )?;
        expect_equal(&format!("{linked:?}: the answer"), "yes\n", &report.lines())?;
    }
    passed()
}

/// HIP and CUDA kernels equal the kernels in the registration log, and every image contains each of
/// them.
fn hip_and_cuda(name: &str) -> Outcome {
    let work = Work::new();
    let case = Case::named(name, 22);
    let tools = match case.tools() {
        Ok(tools) => tools,
        Err(missing) => return missing,
    };
    case.compile(&work, &tools, Wrapper::Ours)?;
    case.link(&work, &tools, Wrapper::Ours, &[])?;
    let (_, ledger) = case.run(&work)?;
    let linked: Vec<String> = elf_files(work.path())
        .into_iter()
        .filter(|name| name == "program" || name.ends_with(".so"))
        .collect();
    let report = check(&work, linked.iter().map(String::as_str))?;
    let functions = |line: &&str| {
        [" function ", " var ", " managed ", " surface ", " texture "]
            .iter()
            .any(|sort| line.contains(sort))
    };
    let handed: BTreeSet<String> = ledger
        .lines()
        .filter(functions)
        .filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("name=")))
        .map(str::to_owned)
        .collect();
    let by_entries = entries(&report)
        .iter()
        .filter_map(|one| one.split(' ').next())
        .map(str::to_owned)
        .collect::<BTreeSet<_>>();
    let units: Vec<_> = list(&report.json["files"])
        .iter()
        .flat_map(|file| list(&file["units"]))
        .collect();
    if by_entries.is_empty() {
        // Registration is code, so the report takes the kernels from the images, which agree.
        assert!(
            units.iter().all(|unit| unit["basis"] == "images"),
            "{units:?}"
        );
    } else {
        let plain = |name: &str| name.split('*').next().unwrap_or_default().to_owned();
        for name in handed.iter().map(|name| plain(name)) {
            assert!(
                by_entries.iter().any(|entry| entry.starts_with(&name)),
                "{name} of the ledger is not in {by_entries:?}"
            );
        }
    }
    let wrappers = list(&report.json["files"])
        .iter()
        .flat_map(|file| list(&file["registered"]))
        .flat_map(|one| list(&one["wrappers"]));
    let registers = ledger
        .lines()
        .filter(|line| line.contains("hip register ") || line.contains("cuda register "))
        .count();
    expect_equal(
        "structs that are handed to runtimes",
        &registers.to_string(),
        &wrappers.count().to_string(),
    )?;
    let sycl = name == "mixed";
    expect_equal(
        "the answer",
        if sycl { "unknown" } else { "yes" },
        report.json["answer"].as_str().unwrap_or_default(),
    )?;
    passed()
}

/// One program in all forms that linkers and strippers produce, and its object. The reported
/// offsets point to the reported data.
fn linked_forms() -> Outcome {
    let work = Work::new();
    object(&work)?;
    type Form = (&'static str, &'static [&'static str]);
    let forms: [Form; 8] = [
        ("pie", &[]),
        ("fixed", &["-no-pie"]),
        ("relr", &["-Wl,-z,pack-relative-relocs"]),
        ("lld-fixed", &["-fuse-ld=lld", "-no-pie"]),
        ("gold", &["-fuse-ld=gold"]),
        ("collected", &["-Wl,--gc-sections"]),
        ("symbolic", &["-Wl,-Bsymbolic", "-rdynamic"]),
        ("library.so", &["-shared"]),
    ];
    let report = check(&work, ["main.o"])?;
    expect_equal("object", "yes\n", &report.lines())?;
    let expected = entries(&report);
    assert_eq!(expected.len(), 3, "{expected:?}");
    for (name, args) in forms {
        program(&work, name, args)?;
        let stripped = format!("{name}.stripped");
        run(work.command("strip").args(["-o", &stripped, name]))?;
        run(work
            .command(llvm("llvm-strip"))
            .args(["-o", "llvm.stripped", name]))?;
        for file in [name, &stripped, "llvm.stripped"] {
            let report = check(&work, [file])?;
            assert_eq!(entries(&report), expected, "{file}");
            let unit = &report.json["files"][0]["units"][0];
            expect_equal(
                file,
                "\"entries\" 2",
                &format!("{} {}", unit["basis"], unit["kernels"]),
            )?;
            expect_equal(file, "yes\n", &report.lines())?;
            expect_offsets(&work, file, &report)?;
        }
        if !name.ends_with(".so") {
            run_offloaded(&mut work.command(work.path().join(&stripped)))?;
        }
    }
    passed()
}

/// Checks that the reported file offsets point to the reported data.
fn expect_offsets(work: &Work, file: &str, report: &Report) -> Result<(), Failed> {
    let bytes = std::fs::read(work.path().join(file))?;
    let registered = &report.json["files"][0]["registered"][0];
    let descriptor = &registered["descriptors"][0];
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(
        bytes[number(&descriptor["offset"])],
        1,
        "{file}: the number of images"
    );
    let image = &descriptor["images"][0];
    assert!(
        bytes[number(&image["start"])..].starts_with(b"\x7fELF"),
        "{file}: the image"
    );
    let [start, end] = [0, 1].map(|which| word(number(&image["pointers"][which]["value"])));
    assert_eq!(
        end - start,
        (number(&image["end"]) - number(&image["start"])) as u64,
        "{file}: the pointers to the image"
    );
    for entry in list(&registered["tables"][0]["entries"]) {
        let name = entry["name"].as_str().unwrap_or_default();
        assert!(
            bytes[number(&entry["name_offset"])..].starts_with(format!("{name}\0").as_bytes()),
            "{file}: {name}"
        );
    }
    Ok(())
}

/// LLVM's runtime refuses three programs: one with an image for another machine, one whose kernel
/// has another name, and one without images. `check` answers no for each of them, and yes for the
/// program that runs.
fn refused() -> Outcome {
    let work = Work::new();
    object(&work)?;
    program(&work, "program", &[])?;
    let report = check(&work, ["program"])?;
    let image =
        number(&report.json["files"][0]["registered"][0]["descriptors"][0]["images"][0]["start"]);
    change(&work, "program", "machine", |bytes| bytes[image + 18] = 183)?;
    let kernel = "__omp_offloading_";
    change(&work, "program", "kernel", |bytes| {
        let at = image + find(&bytes[image..], kernel.as_bytes());
        bytes[at + kernel.len()] ^= 1;
    })?;
    for (name, runs) in [("program", true), ("machine", false), ("kernel", false)] {
        let mut start = work.command(work.path().join(name));
        let ran = output(start.env("OMP_TARGET_OFFLOAD", "mandatory"))?
            .status
            .success();
        expect_equal(
            &format!("{name}: whether the runtime takes it"),
            &runs.to_string(),
            &ran.to_string(),
        )?;
        let report = check(&work, [name])?;
        expect_equal(
            name,
            if runs { "yes" } else { "no" },
            report.json["answer"].as_str().unwrap_or_default(),
        )?;
        let report = check(&work, ["--for", "x86_64-pc-linux-gnu", name])?;
        expect_equal(
            name,
            if runs { "yes" } else { "no" },
            report.json["answer"].as_str().unwrap_or_default(),
        )?;
    }
    // The registration still passes the entry to the runtime, as the runtime stub shows.
    let release = Release::newest();
    expect_in(
        &ledger(&work, &mut work.command("./kernel"), &release)?,
        "openmp entry lib=0 name=__omp_offloading_",
    )?;
    passed()
}
