//! Programs of OpenMP, CUDA, HIP and SYCL, and of all of them at once.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::{field, inspect_well, line, lines, objdump, section, sha256};
use crate::kinds::{Case, Tools, Wrapper, stubs};
use crate::support::{
    OFFLOAD, Outcome, Work, cuda_tools, expect_equal, expect_in, llvm, made, missing, passed, root,
    run, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("inspect::program::openmp", openmp),
        with_llvm("inspect::program::hip", || hip("hip-rdc", 3)),
        with_llvm("inspect::program::hip_compressed", || {
            hip("hip-compressed", 3)
        }),
        test("inspect::program::sycl", sycl),
        test("releases::inspect::program::cuda", cuda),
        test("releases::inspect::program::of_four_kinds", mixed),
    ]
}

/// The program of `tests/programs`, linked by offld and by LLVM's wrapper.
fn openmp() -> Outcome {
    let work = Work::new();
    let source = root().join("tests/programs/reduction.c");
    for ours in [true, false] {
        let mut compile = work.command(llvm("clang"));
        compile.args(OFFLOAD).arg("-O1").arg(&source).args([
            "-o",
            "program",
            "-Wl,-rpath,/usr/lib/llvm-22/lib",
        ]);
        if ours {
            compile.arg("-B").arg(&made().links);
        }
        run(&mut compile)?;
        let report = inspect_well(&work, ["program"])?;
        expect_equal(
            "images",
            &objdump(&work, "program")?,
            &lines(report.images(0), &["kinds", "triple", "target"]),
        )?;
        run(work
            .command(llvm("llvm-offload-binary"))
            .args(["program", "--image=file=image,kind=openmp"]))?;
        expect_equal(
            "hash",
            &sha256(&work, "image")?,
            &field(&report.images(0)[0], "sha256"),
        )?;
        let place = line(
            &report.images(0)[0],
            &["container", "section", "format", "machine", "stored_as"],
        );
        expect_equal(
            "place",
            "offload-binary|.llvm.offloading|elf|x86-64|object",
            &place,
        )?;
        expect_image_at_offset(&work, "program", &report.images(0)[0])?;
        let registered = &report.registrations(0)[0];
        expect_equal(
            "registers",
            "openmp|__tgt_register_lib|library",
            &line(registered, &["runtime", "symbol", "found"]),
        )?;
        let loaded = run(work
            .command("./program")
            .env("LD_TRACE_LOADED_OBJECTS", "1"))?;
        let library = &registered["libraries"][0];
        expect_in(
            &loaded,
            &format!("{} => {} (", field(library, "name"), field(library, "path")),
        )?;
        expect_needed_library(&work, &field(library, "name"))?;
    }
    passed()
}

/// goblin must find `library` among the needed libraries.
fn expect_needed_library(work: &Work, library: &str) -> Result<(), Failed> {
    let bytes = std::fs::read(work.path().join("program"))?;
    let elf = goblin::elf::Elf::parse(&bytes).map_err(|error| error.to_string())?;
    expect_in(&format!("{:?}", elf.libraries), library)
}

/// The bytes at the offset of an image must be the image.
fn expect_image_at_offset(work: &Work, file: &str, image: &Value) -> Result<(), Failed> {
    let bytes = std::fs::read(work.path().join(file))?;
    let number =
        |name: &str| usize::try_from(image[name].as_u64().unwrap_or_default()).unwrap_or_default();
    let (offset, size) = (number("offset"), number("size"));
    std::fs::write(work.path().join("at-offset"), &bytes[offset..offset + size])?;
    expect_equal(
        "bytes at the offset",
        &field(image, "sha256"),
        &sha256(work, "at-offset")?,
    )
}

/// The report for the bundle in a HIP program equals that of clang-offload-bundler.
fn hip(name: &str, entries: usize) -> Outcome {
    let work = Work::new();
    let case = Case::named(name, 22);
    if let Err(missing) = built(&case, &work) {
        return missing;
    }
    let report = inspect_well(&work, ["--extract", "out", "program"])?;
    section(&work, "program", ".hip_fatbin", "fatbin")?;
    let bundler = |args: &[&str]| {
        let mut command = work.command(llvm("clang-offload-bundler"));
        run(command.args(["-type=o", "-input=fatbin"]).args(args))
    };
    let listed = bundler(&["-list"])?;
    let mut ids: Vec<String> = listed.lines().map(|id| format!("{id}\n")).collect();
    ids.sort();
    expect_equal("ids", &ids.concat(), &lines(report.images(0), &["id"]))?;
    expect_equal(
        "entries",
        &entries.to_string(),
        &report.images(0).len().to_string(),
    )?;
    for image in report.device(0) {
        let id = field(image, "id");
        bundler(&["-unbundle", &format!("-targets={id}"), "-output=image"])?;
        expect_equal(&id, &sha256(&work, "image")?, &field(image, "sha256"))?;
        expect_equal(
            "extracted",
            &sha256(&work, "image")?,
            &sha256(&work, field(image, "extracted"))?,
        )?;
        expect_equal(
            "of",
            "hip|amdgcn-amd-amdhsa|elf|amdgpu",
            &line(image, &["kinds", "triple", "format", "machine"]),
        )?;
        expect_equal(
            "bundle",
            "bundle|.hip_fatbin",
            &line(image, &["container", "section"]),
        )?;
    }
    let registered = line(&report.registrations(0)[0], &["runtime", "symbol", "found"]);
    expect_equal(
        "registers",
        "hip|__hipRegisterFatBinary|library",
        &registered,
    )?;
    passed()
}

/// Builds a case. Returns the outcome of the test if tools are missing or the build fails.
pub(crate) fn built(case: &Case, work: &Work) -> Result<Tools, Outcome> {
    let tools = case.tools()?;
    let done = case
        .compile(work, &tools, Wrapper::Ours)
        .and_then(|()| case.link(work, &tools, Wrapper::Ours, &[]));
    done.map_err(Err)?;
    Ok(tools)
}

fn sycl() -> Outcome {
    if !crate::support::have_llvm() {
        return missing("LLVM 22");
    }
    let work = Work::new();
    if let Err(missing) = built(&Case::named("sycl", 22), &work) {
        return missing;
    }
    let report = inspect_well(&work, ["program"])?;
    let [image] = report.images(0) else {
        return Err(format!("one image: {}", report.json).into());
    };
    let facts = line(image, &["kinds", "triple", "format", "section"]);
    expect_equal(
        "image",
        "sycl|spirv64-unknown-unknown|spirv|.sycl_offloading",
        &facts,
    )?;
    section(&work, "program", ".sycl_offloading", "image")?;
    let whole = std::fs::read(work.path().join("image"))?;
    std::fs::write(
        work.path().join("image"),
        &whole[..image["size"].as_u64().unwrap_or_default() as usize],
    )?;
    expect_equal("hash", &sha256(&work, "image")?, &field(image, "sha256"))?;
    // Only alignment padding of the linker follows the image.
    expect_equal(
        "rest",
        "0",
        &whole[image["size"].as_u64().unwrap_or_default() as usize..]
            .iter()
            .max()
            .unwrap_or(&0)
            .to_string(),
    )?;
    expect_equal(
        "registers",
        "sycl|library",
        &line(&report.registrations(0)[0], &["runtime", "found"]),
    )?;
    // Without symbols, image bounds are unknown, so the whole section counts as one image.
    work.run(llvm("llvm-strip"), ["program"])?;
    let stripped = inspect_well(&work, ["program"])?;
    expect_equal(
        "stripped",
        "sycl|spirv",
        lines(stripped.images(0), &["kinds", "format"]).trim(),
    )?;
    passed()
}

fn cuda() -> Outcome {
    let work = Work::new();
    if let Err(missing) = built(&Case::named("cuda-rdc", 22), &work) {
        return missing;
    }
    let Some(tools) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let report = inspect_well(&work, ["program"])?;
    let cuobjdump = |args: &[&str]| run(work.command(tools.join("bin/cuobjdump")).args(args));
    let listed = cuobjdump(&["-lelf", "program"])?;
    let mut archs: Vec<String> = listed
        .lines()
        .filter_map(|line| line.rsplit('.').nth(1))
        .map(|arch| format!("cuda|cubin|{arch}\n"))
        .collect();
    archs.sort();
    expect_equal(
        "images",
        &archs.concat(),
        &lines(report.images(0), &["kinds", "format", "target"]),
    )?;
    cuobjdump(&["-xelf", "all", "program"])?;
    for image in report.images(0) {
        let name = std::fs::read_dir(work.path())?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        let wanted = format!(".{}.cubin", field(image, "target"));
        let file = name
            .into_iter()
            .find(|name| name.ends_with(&wanted))
            .ok_or(format!("no {wanted}"))?;
        expect_equal(&file, &sha256(&work, &file)?, &field(image, "sha256"))?;
    }
    expect_equal(
        "registers",
        "cuda|library",
        &line(&report.registrations(0)[0], &["runtime", "found"]),
    )?;
    passed()
}

/// A program of all kinds, whose libraries are found through LD_LIBRARY_PATH.
fn mixed() -> Outcome {
    let work = Work::new();
    if let Err(missing) = built(&Case::named("mixed", 22), &work) {
        return missing;
    }
    let mut command = work.command(crate::support::offld());
    let printed = run(command
        .args(["inspect", "--json", "program"])
        .env("LD_LIBRARY_PATH", stubs()))?;
    let json: Value = serde_json::from_str(&printed).map_err(|error| error.to_string())?;
    let file = &json["files"][0];
    let images = file["images"].as_array().cloned().unwrap_or_default();
    let kinds = "cuda|sm_80|cubin\ncuda|sm_90|cubin\nhip|gfx908|elf\nhip|gfx90a|elf\nhost||empty\nopenmp||elf\nsycl||spirv\n";
    expect_equal(
        "images",
        kinds,
        &lines(&images, &["kinds", "target", "format"]),
    )?;
    let registered = file["registrations"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut found: Vec<String> = Vec::new();
    for registration in &registered {
        let library = &registration["libraries"][0];
        found.push(format!(
            "{} {}\n",
            field(registration, "runtime"),
            field(library, "path")
        ));
    }
    found.sort();
    let library = |name: &str| stubs().join(format!("lib{name}.so")).display().to_string();
    let wanted = [
        ("cuda", "cudart"),
        ("hip", "amdhip64"),
        ("openmp", "omptarget"),
        ("sycl", "sycl"),
    ];
    let wanted: String = wanted
        .iter()
        .map(|(runtime, name)| format!("{runtime} {}\n", library(name)))
        .collect();
    expect_equal("runtimes", &wanted, &found.concat())?;
    // Without it, the libraries may be missing, or belong to an installed ROCm or CUDA. Their names
    // are still reported.
    let report = inspect_well(&work, ["program"])?;
    let names = report
        .registrations(0)
        .iter()
        .map(|registration| field(&registration["libraries"][0], "name") + "\n");
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.retain(|name| !name.contains("omptarget"));
    expect_equal(
        "names",
        "libamdhip64.so\nlibcudart.so\nlibsycl.so\n",
        &names.concat(),
    )?;
    passed()
}
