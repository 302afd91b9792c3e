//! Sizes compared with other tools: sections with `llvm-size` and `readelf`, images with
//! `llvm-objdump`, kernels with their symbol tables.

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::{adds_up, bytes, row, size};
use crate::inspect::programs::built;
use crate::kinds::Case;
use crate::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, llvm, made, passed, root, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("size::against::openmp_program", openmp),
        with_llvm("size::against::hip_program", || hip("hip-rdc")),
        with_llvm("size::against::compressed_hip_program", || {
            hip("hip-compressed")
        }),
    ]
}

/// The section names and sizes in the file, as reported by readelf.
fn sections(work: &Work, file: &str) -> Result<Vec<(String, u64)>, Failed> {
    let yaml: Value = serde_json::from_str(&run(work.command(llvm("llvm-readelf")).args([
        "--sections",
        "--elf-output-style=JSON",
        file,
    ]))?)?;
    let sections = yaml[0]["Sections"].as_array().ok_or("no sections")?;
    let all = sections
        .iter()
        .map(|section| &section["Section"])
        .filter(|section| section["Type"]["Name"] != "SHT_NOBITS" && section["Type"]["Value"] != 0);
    Ok(all
        .map(|section| {
            (
                section["Name"]["Name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                section["Size"].as_u64().unwrap_or_default(),
            )
        })
        .collect())
}

/// Fails unless each section of the host file has the size that readelf reports. Sections with
/// containers are left out.
fn same_sections(work: &Work, file: &str) -> Result<(), Failed> {
    let json = size(work, ["--by", "arch,section", file])?;
    let host = row(&json["total"], "host")?;
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    for (name, size) in sections(work, file)? {
        *wanted.entry(name).or_default() += size;
    }
    let holds_images = |name: &str| {
        name.starts_with(".hip_fatbin") && name != ".hipFatBinSegment" || name == ".llvm.offloading"
    };
    for (name, size) in wanted
        .iter()
        .filter(|(name, size)| **size > 0 && !holds_images(name))
    {
        expect_equal(
            &format!("{file}: {name}"),
            &size.to_string(),
            &bytes(row(host, name)?).to_string(),
        )?;
    }
    // llvm-size reports the same. Its list also has sections that exist only in memory.
    let listed = run(work
        .command(llvm("llvm-size"))
        .args(["--format=sysv", file]))?;
    let fields = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() == 3);
    for fields in fields.filter(|fields| {
        wanted.contains_key(fields[0]) && !holds_images(fields[0]) && fields[1] != "0"
    }) {
        expect_equal(
            &format!("{file}: {} by llvm-size", fields[0]),
            fields[1],
            &bytes(row(host, fields[0])?).to_string(),
        )?;
    }
    ensure(wanted.len() > 15, || {
        format!("only {} sections", wanted.len())
    })
}

/// An OpenMP program: the image has the size of the one that LLVM's tool extracts, and its sections
/// have the sizes that `llvm-size` reports.
fn openmp() -> Outcome {
    let work = Work::new();
    let source = root().join("tests/programs/reduction.c");
    let mut compile = work.command(llvm("clang"));
    run(compile
        .args(OFFLOAD)
        .args(["-O1", "-g"])
        .arg(&source)
        .args(["-o", "program", "-B"])
        .arg(&made().links))?;
    adds_up(&work, "program")?;
    same_sections(&work, "program")?;
    run(work
        .command(llvm("llvm-offload-binary"))
        .args(["program", "--image=file=image,kind=openmp"]))?;
    let json = size(&work, ["--by", "arch,section,kernel", "program"])?;
    let arch = row(&json["total"], "x86_64-pc-linux-gnu")?;
    expect_equal(
        "the image",
        &std::fs::metadata(work.path().join("image"))?
            .len()
            .to_string(),
        &bytes(arch).to_string(),
    )?;
    for (name, wanted) in sections(&work, "image")? {
        expect_equal(
            &format!("the image's {name}"),
            &wanted.to_string(),
            &bytes(row(arch, &name)?).to_string(),
        )?;
    }
    // The size of the kernel's code equals the size of its symbol.
    let symbols =
        run(work
            .command(llvm("llvm-nm"))
            .args(["--print-size", "--defined-only", "image"]))?;
    let kernel = symbols
        .lines()
        .find(|line| line.contains(" W __omp_offloading"))
        .ok_or("no kernel")?;
    let fields: Vec<&str> = kernel.split_whitespace().collect();
    let code = u64::from_str_radix(fields[1], 16)?;
    let templates = row(arch, ".text")?["rows"].as_array().ok_or("no kernels")?;
    let all = templates
        .iter()
        .flat_map(|template| template["rows"].as_array().into_iter().flatten());
    let found = all
        .clone()
        .find(|row| row["name"] == fields[3] || row["mangled"] == fields[3])
        .ok_or("the kernel has no row")?;
    expect_equal(
        "the kernel's code",
        &code.to_string(),
        &bytes(found).to_string(),
    )?;
    passed()
}

/// A HIP program: the uncompressed size of each architecture equals the size of the image that
/// LLVM's bundler extracts.
fn hip(name: &str) -> Outcome {
    let work = Work::new();
    let case = Case::named(name, 22);
    if let Err(missing) = built(&case, &work) {
        return missing;
    }
    adds_up(&work, "program")?;
    same_sections(&work, "program")?;
    run(work.command(llvm("llvm-objcopy")).args([
        "--dump-section",
        ".hip_fatbin=fatbin",
        "program",
    ]))?;
    let json = size(&work, ["--by", "arch", "program"])?;
    let mut compared = 0;
    let bundler = |args: &[&str]| {
        run(work
            .command(llvm("clang-offload-bundler"))
            .args(["-type=o", "-input=fatbin"])
            .args(args))
    };
    for id in bundler(&["-list"])?
        .lines()
        .filter(|id| id.contains("amdgcn"))
    {
        bundler(&["-unbundle", &format!("-targets={id}"), "-output=image"])?;
        let arch = id.rsplit_once("--").map_or("", |(_, arch)| arch);
        let found = row(&json["total"], arch)?;
        let image = std::fs::metadata(work.path().join("image"))?.len();
        expect_equal(id, &image.to_string(), &found["inflated"].to_string())?;
        ensure(bytes(found) <= image, || {
            format!("{id}: more bytes of the file than it has")
        })?;
        compared += 1;
    }
    ensure(compared > 1, || "no images".to_owned())?;
    passed()
}
