//! Images that no host code registers: separate files, directories and wheels of them, device
//! libraries, and code in plain data.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::{Report, check, list};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, made, missing, nvcc, offld, output,
    passed, run, test, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("check::modules::files_of_one_image", files),
        with_llvm(
            "check::modules::one_that_fits_is_enough_in_folders_and_wheels",
            several_modules,
        ),
        with_llvm(
            "check::modules::device_libraries_decide_nothing_beside_programs",
            libraries,
        ),
        with_llvm("check::modules::data_of_a_program_is_unknown", data),
        test(
            "releases::check::modules::cubins_without_code_fit_every_gpu",
            cubins_without_code,
        ),
    ]
}

/// nvcc adds a cubin to sources without device code, as in `libnppc.so`. No GPU needs another one, and
/// prune leaves it.
fn cubins_without_code() -> Outcome {
    let Some(nvcc) = nvcc() else {
        return missing("nvcc (make setup-cuda)");
    };
    let work = Work::new();
    let build = |name: &str, source: &str| -> Result<(), Failed> {
        work.file("unit.cu", source);
        let mut command = work.command(nvcc.join("bin/nvcc"));
        command.args(["-gencode", "arch=compute_75,code=sm_75", "-shared"]);
        command.args(["-Xcompiler", "-fPIC", "unit.cu", "-o", name]);
        run(&mut command)?;
        Ok(())
    };
    let answer = |name: &str| -> Result<String, Failed> {
        let report = output(
            work.command(offld())
                .args(["check", "--for", "sm_90", name]),
        )?;
        Ok(text(&report.stdout))
    };
    build("libhost.so", "int host() { return 1; }\n")?;
    let report = answer("libhost.so")?;
    expect_in(&report, "sm_90: yes (the images have no code")?;
    build("libdata.so", "__device__ int data = 1;\n")?;
    expect_in(&answer("libdata.so")?, "sm_90: no in .nv_fatbin: ")?;
    let mut prune = work.command(offld());
    run(prune.args(["prune", "--keep", "sm_90", "libhost.so", "-o", "pruned.so"]))?;
    let [old, new] = ["libhost.so", "pruned.so"].map(|name| std::fs::read(work.path().join(name)));
    ensure(old? == new?, || "the library changed")?;
    passed()
}

/// Compiles a code object for an AMD GPU.
pub(crate) fn code_object(work: &Work, arch: &str, name: &str) -> Result<(), Failed> {
    work.file(
        "k.c",
        "__attribute__((amdgpu_kernel)) void k(int *p) { *p = 1; }\n",
    );
    let mut compile = work.command(llvm("clang"));
    compile.args([
        "-x",
        "c",
        "--target=amdgcn-amd-amdhsa",
        &format!("-mcpu={arch}"),
        "-nogpulib",
        "k.c",
        "-o",
        name,
    ]);
    run(&mut compile)?;
    Ok(())
}

/// PTX with one kernel.
pub(crate) fn ptx(arch: &str) -> String {
    format!(
        "// made by hand\n.version 8.0\n.target {arch}\n.address_size 64\n.visible .entry k(){{ret;}}\n"
    )
}

/// A fatbinary with PTX for these architectures.
pub(crate) fn fatbinary(arches: &[u32]) -> Vec<u8> {
    let mut entries = Vec::new();
    for arch in arches {
        let mut text = ptx(&format!("sm_{arch}")).into_bytes();
        text.push(0);
        text.resize(text.len().next_multiple_of(8), 0);
        let mut header = [1u16.to_le_bytes(), 0x101u16.to_le_bytes()].concat();
        header.extend(64u32.to_le_bytes());
        header.extend((text.len() as u64).to_le_bytes());
        header.extend([0; 8]);
        header.extend([0u16.to_le_bytes(), 8u16.to_le_bytes()].concat());
        header.extend(arch.to_le_bytes());
        header.resize(40, 0);
        header.extend(0x11u64.to_le_bytes());
        header.resize(64, 0);
        entries.extend([header, text].concat());
    }
    let head = [
        &[0x50, 0xed, 0x55, 0xba][..],
        &1u16.to_le_bytes(),
        &16u16.to_le_bytes(),
        &(entries.len() as u64).to_le_bytes(),
    ];
    [head.concat(), entries].concat()
}

/// Builds a library that contains these bytes as plain data, without a registration.
pub(crate) fn library_with_data(work: &Work, bytes: &[u8], name: &str) -> Result<(), Failed> {
    work.file("data.bin", bytes);
    work.file(
        "data.s",
        ".section .ldata,\"awl\",@progbits\n.quad 1,2,3\n.p2align 3\n.incbin \"data.bin\"\n.quad 7\n.section .note.GNU-stack,\"\",@progbits\n",
    );
    run(work
        .command(llvm("clang"))
        .args(["-shared", "-nostdlib", "data.s", "-o", name]))?;
    Ok(())
}

/// Builds a library with a HIP bundle for these architectures.
pub(crate) fn hip_library(work: &Work, arches: &[&str], name: &str) -> Result<(), Failed> {
    let mut bundle = work.command(made().links.join("clang-offload-bundler"));
    let mut targets = "-targets=host-x86_64-unknown-linux-gnu".to_owned();
    bundle.args([
        "-type=o",
        "-bundle-align=4096",
        "-input=/dev/null",
        "-output=x.hipfb",
    ]);
    for arch in arches {
        code_object(work, arch, &format!("{arch}.image"))?;
        targets.push_str(&format!(",hipv4-amdgcn-amd-amdhsa--{arch}"));
        bundle.arg(format!("-input={arch}.image"));
    }
    run(bundle.arg(targets))?;
    work.file(
        "hip.s",
        ".section .hip_fatbin,\"a\",@progbits\n.p2align 12\n__hip_fatbin: .incbin \"x.hipfb\"\n\
         .section .hipFatBinSegment,\"aw\",@progbits\n.long 0x48495046, 1\n.quad __hip_fatbin, 0\n.section .note.GNU-stack,\"\",@progbits\n",
    );
    run(work
        .command(llvm("clang"))
        .args(["-shared", "-nostdlib", "hip.s", "-o", name]))?;
    Ok(())
}

/// Device libraries as in CUDA and ROCm: bitcode without an architecture.
pub(crate) fn device_libraries(work: &Work, folder: &str) -> Result<(), Failed> {
    for (triple, name) in [
        ("nvptx64-nvidia-gpulibs", "libdevice.10.bc"),
        ("amdgcn-amd-amdhsa", "ocml.bc"),
    ] {
        let text = format!(
            "target triple = \"{triple}\"\ndefine double @__lib_sin(double %x) {{\n  ret double %x\n}}\n"
        );
        work.file("library.ll", text);
        run(work
            .command(llvm("llvm-as"))
            .args(["library.ll", "-o", &format!("{folder}/{name}")]))?;
    }
    Ok(())
}

/// Packs the files of a directory into a zip file.
pub(crate) fn zip(work: &Work, folder: &str, name: &str) -> Result<(), Failed> {
    let script = "import os, sys, zipfile\nfolder, name = sys.argv[1:]\nwith zipfile.ZipFile(name, 'w') as z:\n    \
        for file in sorted(os.listdir(folder)): z.write(os.path.join(folder, file), 'x/' + file)\n";
    work.file("zip.py", script);
    run(work.command("python3").args(["zip.py", folder, name]))?;
    Ok(())
}

/// The overall answer, and for each file its answer and the answers for its translation units.
fn answers(report: &Report) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = vec![text(&report.json["answer"])];
    for file in list(&report.json["files"]) {
        let name = list(&file["members"])
            .first()
            .map_or_else(|| text(&file["file"]), text);
        let loads = list(&file["units"])
            .iter()
            .flat_map(|unit| list(&unit["loads"]))
            .map(|load| text(&load["answer"]));
        lines.push(format!(
            "{name}: {} ({})",
            text(&file["answer"]),
            loads.collect::<Vec<_>>().join(", ")
        ));
    }
    lines.join("\n")
}

fn files() -> Outcome {
    let work = Work::new();
    code_object(&work, "gfx942", "k.co")?;
    let object = [
        "-x",
        "c",
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx942",
        "-nogpulib",
        "-c",
        "k.c",
        "-o",
        "k.o",
    ];
    run(work.command(llvm("clang")).args(object))?;
    work.file("k.ptx", ptx("sm_80"));
    work.file("k.fatbin", fatbinary(&[80, 90]));
    work.file(
        "k.spv",
        [0x0723_0203u32, 0x10400, 0, 8, 0]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>(),
    );
    for (file, device, expected) in [
        ("k.co", "gfx942", "yes\nk.co: yes (yes)"),
        ("k.co", "gfx90a", "no\nk.co: no (no)"),
        ("k.co", "sm_90", "no\nk.co: no ()"),
        ("k.co", "gfx942,gfx90a", "no\nk.co: no (yes, no)"),
        ("k.ptx", "sm_90", "yes\nk.ptx: yes (yes)"),
        ("k.ptx", "sm_70", "no\nk.ptx: no (no)"),
        ("k.fatbin", "sm_90", "yes\nk.fatbin: yes (yes)"),
        ("k.fatbin", "sm_75", "no\nk.fatbin: no (no)"),
        ("k.o", "gfx942", "unknown\nk.o: unknown (unknown)"),
        ("k.o", "gfx90a", "unknown\nk.o: unknown (unknown)"),
        // SPIR-V does not record the architecture for which it was compiled.
        ("k.spv", "gfx942", "unknown\nk.spv: unknown (unknown)"),
    ] {
        expect_equal(
            &format!("{file} for {device}"),
            expected,
            &answers(&check(&work, ["--for", device, file])?),
        )?;
    }
    let report = check(&work, ["--for", "gfx90a", "k.co"])?;
    expect_in(&report.json.to_string(), "the nearest image is for gfx942")?;
    let report = check(&work, ["--for", "sm_90", "k.co"])?;
    expect_in(&report.json.to_string(), "the file has only HIP code")?;
    let report = check(&work, ["k.co"])?;
    expect_equal(
        "without a device",
        "unknown\nnot-registered unknown\n",
        &report.lines(),
    )?;
    passed()
}

fn several_modules() -> Outcome {
    let work = Work::new();
    std::fs::create_dir(work.path().join("d"))?;
    code_object(&work, "gfx942", "d/k_gfx942.co")?;
    code_object(&work, "gfx950", "d/k_gfx950.co")?;
    work.file("d/k.ptx", ptx("sm_80"));
    zip(&work, "d", "x.whl")?;
    for (device, expected) in [
        (
            "gfx942",
            "yes\nk.ptx: not-applicable ()\nk_gfx942.co: yes (yes)\nk_gfx950.co: not-applicable (not-applicable)",
        ),
        (
            "gfx90a",
            "no\nk.ptx: not-applicable ()\nk_gfx942.co: no (no)\nk_gfx950.co: no (no)",
        ),
        (
            "gfx942,gfx950",
            "yes\nk.ptx: not-applicable ()\nk_gfx942.co: yes (yes, not-applicable)\nk_gfx950.co: yes (not-applicable, yes)",
        ),
        (
            "sm_90",
            "yes\nk.ptx: yes (yes)\nk_gfx942.co: not-applicable ()\nk_gfx950.co: not-applicable ()",
        ),
    ] {
        let folder = answers(&check(&work, ["--for", device, "d"])?).replace("d/", "");
        expect_equal(&format!("folder for {device}"), expected, &folder)?;
        let wheel = answers(&check(&work, ["--for", device, "x.whl"])?).replace("x/", "");
        expect_equal(&format!("wheel for {device}"), expected, &wheel)?;
    }
    // Files that are named individually are checked individually.
    let report = answers(&check(
        &work,
        ["--for", "gfx942", "d/k_gfx942.co", "d/k_gfx950.co"],
    )?);
    expect_equal(
        "named",
        "no\nd/k_gfx942.co: yes (yes)\nd/k_gfx950.co: no (no)",
        &report,
    )?;
    passed()
}

fn libraries() -> Outcome {
    let work = Work::new();
    std::fs::create_dir(work.path().join("d"))?;
    device_libraries(&work, "d")?;
    let alone = answers(&check(&work, ["--for", "gfx90a", "d/ocml.bc"])?);
    expect_equal("alone", "unknown\nd/ocml.bc: unknown (unknown)", &alone)?;
    hip_library(&work, &["gfx90a", "gfx942"], "d/lib.so")?;
    // A Vulkan shader, as in Open3D: OpCapability Shader.
    let shader = [
        0x0723_0203u32,
        0x10300,
        0,
        8,
        0,
        0x2_0011,
        1,
        0x3_000e,
        0,
        1,
    ];
    work.file(
        "d/shade.spv",
        shader
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>(),
    );
    zip(&work, "d", "x.whl")?;
    let expected = "yes\nlib.so: yes (yes)\nlibdevice.10.bc: not-applicable ()\nocml.bc: not-applicable (not-applicable)\n\
        shade.spv: not-applicable (not-applicable)";
    for (files, prefix) in [("d", "d/"), ("x.whl", "x/")] {
        let report = answers(&check(&work, ["--for", "gfx90a", files])?).replace(prefix, "");
        expect_equal(files, expected, &report)?;
    }
    // Shaders do not turn the no of a program for another vendor into unknown.
    std::fs::create_dir(work.path().join("e"))?;
    for file in ["lib.so", "shade.spv"] {
        std::fs::copy(
            work.path().join("d").join(file),
            work.path().join("e").join(file),
        )?;
    }
    let report = answers(&check(&work, ["--for", "sm_90", "e"])?);
    expect_equal(
        "shaders",
        "no\ne/lib.so: no ()\ne/shade.spv: unknown (unknown)",
        &report,
    )?;
    // A module for another architecture does not cause a no if a program has its own images for the
    // device.
    code_object(&work, "gfx950", "d/some.co")?;
    let report = answers(&check(&work, ["--for", "gfx90a", "d"])?);
    expect_in(&report, "unknown\n")?;
    expect_in(&report, "d/some.co: unknown (unknown)")?;
    passed()
}

fn data() -> Outcome {
    let work = Work::new();
    library_with_data(
        &work,
        &[fatbinary(&[80]), fatbinary(&[90])].concat(),
        "lib.so",
    )?;
    for (device, expected) in [
        ("sm_90", "unknown\nlib.so: unknown (unknown)"),
        ("sm_52", "unknown\nlib.so: unknown (unknown)"),
        ("gfx942", "no\nlib.so: no ()"),
    ] {
        expect_equal(
            device,
            expected,
            &answers(&check(&work, ["--for", device, "lib.so"])?),
        )?;
    }
    let report = check(&work, ["--for", "gfx942", "lib.so"])?;
    report.expect(
        "no-image",
        "no",
        "no image for gfx942; add one with --offload-arch=gfx942",
    )?;
    let report = check(&work, ["--for", "sm_90", "lib.so"])?;
    expect_in(
        &report.json.to_string(),
        "2 images in data sections, which the program loads itself; 2 fit the device",
    )?;
    expect_equal(
        "without a device",
        "unknown\nnot-registered unknown\n",
        &check(&work, ["lib.so"])?.lines(),
    )?;
    code_object(&work, "gfx942", "k.co")?;
    let code = std::fs::read(work.path().join("k.co"))?;
    library_with_data(&work, &code, "amd.so")?;
    expect_equal(
        "code",
        "unknown\namd.so: unknown (unknown)",
        &answers(&check(&work, ["--for", "gfx942", "amd.so"])?),
    )?;
    passed()
}
