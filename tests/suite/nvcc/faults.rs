//! Errors of links with nvcc's code: each names the object, the module and what to do. Also damaged
//! modules.

use std::process::Command;

use libtest_mimic::{Failed, Trial};
use object::{Object, ObjectSection};

use super::{Inputs, Named, PLAIN, Program, Toolkit, endings};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, made, missing, passed, run,
    run_failing, stderr_of, test,
};

pub(super) fn trials() -> Vec<Trial> {
    let all: [Named; 11] = [
        ("no_machine_code_at_all", no_machine_code),
        ("code_for_lto_beside_bitcode", lto_and_bitcode),
        ("missing_architecture", missing_architecture),
        ("only_ptx", only_ptx),
        ("missing_nvlink", missing_nvlink),
        ("missing_fatbinary", missing_fatbinary),
        ("undefined_device_symbol", undefined_symbol),
        ("two_modules_of_one_id", same_id),
        ("damaged_modules", damaged),
        ("clang_lacks_an_architecture", clang_lacks_architecture),
        ("kernels_of_lto_code_launched_elsewhere", lto_kernel),
    ];
    all.into_iter()
        .map(|(name, check)| {
            test(
                format!("releases::nvcc::faults::{name}"),
                move || match Toolkit::find() {
                    Some(toolkit) => check(&toolkit, &Work::new()),
                    None => missing("NVIDIA's tools and nvcc (make setup-cuda)"),
                },
            )
        })
        .collect()
}

/// A link of `line` with offld.
fn link(toolkit: &Toolkit, work: &Work, line: &[String]) -> Result<Command, Failed> {
    let mut command = toolkit.command(work, "g++");
    command
        .arg(format!("-B{}", made().as_ld.display()))
        .args(["-o", "program"])
        .args(line)
        .args(endings(toolkit)?);
    Ok(command)
}

fn object(toolkit: &Toolkit, unit: &str, archs: &[&str]) -> Result<String, Failed> {
    Ok(toolkit.object(unit, archs, &[])?.display().to_string())
}

fn missing_architecture(toolkit: &Toolkit, work: &Work) -> Outcome {
    let line = [
        object(toolkit, "main", &["80"])?,
        object(toolkit, "other", &["90"])?,
    ];
    let said = run_failing(&mut link(toolkit, work, &line)?)?;
    expect_in(&said, &format!("error: {}: the CUDA module _", line[0]))?;
    expect_in(
        &said,
        &format!(
            "has code for sm_80 only, and {} has code for sm_90:",
            line[1]
        ),
    )?;
    expect_in(&said, "nvcc -gencode arch=compute_90,code=sm_90")?;
    // An image that has all modules is linked, and a warning names the one that is not.
    let line = [
        object(toolkit, "main", &["80", "90"])?,
        object(toolkit, "other", &["90"])?,
    ];
    let said = stderr_of(&mut link(toolkit, work, &line)?)?;
    let words = "warning: no image is linked for nvptx64-nvidia-cuda (sm_80):";
    expect_in(&said, words)?;
    expect_in(&said, "nvcc -gencode arch=compute_80,code=sm_80")?;
    let linked = super::cubins(toolkit, work, &work.path().join("program"))?;
    let archs: Vec<&str> = linked.iter().map(|(arch, _)| arch.as_str()).collect();
    expect_equal("architectures", &archs.join(" "), "sm_90")?;
    // A member of an archive may have more architectures.
    run(work.command("ar").args([
        "rcs",
        "libother.a",
        &object(toolkit, "other", &["80", "90"])?,
    ]))?;
    let line = [object(toolkit, "main", &["90"])?, "libother.a".to_owned()];
    run(&mut link(toolkit, work, &line)?)?;
    passed()
}

/// The device code of a clang object is in each image, or a warning says for which GPU it is missing.
fn clang_lacks_architecture(toolkit: &Toolkit, work: &Work) -> Outcome {
    let archs = &["80", "90"];
    let clang = super::mixed::by_clang(toolkit, work, "clang.o", &["--no-offload-arch=sm_90"])?;
    let line = [
        object(toolkit, "mixed", archs)?,
        clang,
        object(toolkit, "other", archs)?,
    ];
    let said = stderr_of(&mut link(toolkit, work, &line)?)?;
    expect_in(
        &said,
        "warning: no image is linked for nvptx64-nvidia-cuda (sm_90): ",
    )?;
    expect_in(
        &said,
        "clang.o: no code for sm_90, but objects of nvcc have",
    )?;
    expect_in(&said, "--offload-arch=sm_90 as well")?;
    passed()
}

/// nvlink drops kernels of code for link-time optimization that no host code of these objects
/// launches. Host code of an object with machine code may.
fn lto_kernel(toolkit: &Toolkit, work: &Work) -> Outcome {
    work.file("one.cu", "__global__ void k(int *p) { *p = 1; }\n");
    work.file(
        "two.cu",
        "extern __global__ void k(int *);\nint main() { k<<<1, 1>>>(nullptr); }\n",
    );
    for (name, code) in [("one", "lto_90"), ("two", "sm_90")] {
        let path = |ending: &str| {
            let file = work.path().join(format!("{name}.{ending}"));
            file.display().to_string()
        };
        let code = format!("-gencode=arch=compute_90,code={code}");
        let words = ["-rdc=true", "-c", &code, "-o", &path("o"), &path("cu")];
        toolkit.nvcc(work, &words.map(str::to_owned))?;
    }
    run(&mut link(
        toolkit,
        work,
        &["one.o", "two.o"].map(str::to_owned),
    )?)?;
    let images = super::cubins(toolkit, work, &work.path().join("program"))?;
    let has_kernel = images.iter().any(|(_, text)| text.contains("_Z1kPi"));
    ensure(has_kernel, || format!("{images:?}")).and(passed())
}

fn only_ptx(toolkit: &Toolkit, work: &Work) -> Outcome {
    let ptx = work.path().join("ptx.o").display().to_string();
    // PTX for a later GPU than the program's.
    let source = crate::support::root()
        .join("tests/nvcc/other.cu")
        .display()
        .to_string();
    let words = [
        "-rdc=true",
        "-c",
        "-gencode=arch=compute_90,code=compute_90",
        "-o",
        &ptx,
        &source,
    ];
    toolkit.nvcc(work, &words.map(str::to_owned))?;
    let line = [object(toolkit, "main", &["80"])?, ptx];
    let said = run_failing(&mut link(toolkit, work, &line)?)?;
    expect_in(
        &said,
        "no machine code, and its PTX is for later GPUs than sm_80",
    )?;
    expect_in(&said, "ptx.o: the CUDA module _")?;
    expect_in(&said, "nvcc -gencode arch=compute_80,code=sm_80")?;
    passed()
}

fn no_machine_code(toolkit: &Toolkit, work: &Work) -> Outcome {
    let mut line = Vec::new();
    for unit in ["main", "other"] {
        let object = work.path().join(format!("{unit}.o")).display().to_string();
        let source = crate::support::root().join(format!("tests/nvcc/{unit}.cu"));
        let source = source.display().to_string();
        let code = "-gencode=arch=compute_90,code=compute_90";
        let words = ["-rdc=true", "-c", code, "-o", &object, &source];
        toolkit.nvcc(work, &words.map(str::to_owned))?;
        line.push(object);
    }
    let said = run_failing(&mut link(toolkit, work, &line)?)?;
    expect_in(
        &said,
        "has PTX but no machine code, so the GPU to link for is unknown",
    )?;
    passed()
}

fn lto_and_bitcode(toolkit: &Toolkit, work: &Work) -> Outcome {
    let clang = super::mixed::by_clang(toolkit, work, "clang.o", &["-foffload-lto"])?;
    let lto = |unit| -> Result<String, Failed> {
        Ok(toolkit
            .object(unit, &["80", "90"], &["-dlto"])?
            .display()
            .to_string())
    };
    let said = run_failing(&mut link(
        toolkit,
        work,
        &[lto("main")?, clang, lto("other")?],
    )?)?;
    expect_in(
        &said,
        "code for link-time optimization of nvcc, which cannot be linked with the code of clang",
    )?;
    passed()
}

fn without_tools(command: &mut Command) -> &mut Command {
    command
        .env("PATH", "/usr/bin:/bin")
        .env_remove("VIRTUAL_ENV")
}

fn missing_nvlink(toolkit: &Toolkit, work: &Work) -> Outcome {
    let line = [
        object(toolkit, "main", &["90"])?,
        object(toolkit, "other", &["90"])?,
    ];
    let said = run_failing(without_tools(&mut link(toolkit, work, &line)?))?;
    expect_in(&said, "Unable to find 'nvlink'")?;
    expect_in(&said, "nvidia-cuda-nvcc")?;
    passed()
}

fn missing_fatbinary(toolkit: &Toolkit, work: &Work) -> Outcome {
    std::fs::create_dir(work.path().join("only"))?;
    std::os::unix::fs::symlink(
        toolkit.nvcc.join("bin/nvlink"),
        work.path().join("only/nvlink"),
    )?;
    let line = [
        object(toolkit, "main", &["90"])?,
        object(toolkit, "other", &["90"])?,
    ];
    let mut command = link(toolkit, work, &line)?;
    let path = format!("{}:/usr/bin:/bin", work.path().join("only").display());
    let said = run_failing(command.env("PATH", path).env_remove("VIRTUAL_ENV"))?;
    expect_in(&said, "Unable to find 'fatbinary'")?;
    passed()
}

fn undefined_symbol(toolkit: &Toolkit, work: &Work) -> Outcome {
    // The host code of main.cu needs a function of other.cu as well.
    work.file("host.cpp", "void run_other() {}\nint counter;\n");
    run(work.command("g++").args(["-c", "host.cpp"]))?;
    let line = [object(toolkit, "main", &["90"])?, "host.o".to_owned()];
    let said = run_failing(&mut link(toolkit, work, &line)?)?;
    expect_in(&said, "device link for nvptx64-nvidia-cuda (sm_90)")?;
    expect_in(&said, "twice(int)")?;
    expect_in(&said, &line[0])?;
    passed()
}

fn same_id(toolkit: &Toolkit, work: &Work) -> Outcome {
    let main = object(toolkit, "main", &["90"])?;
    let other = object(toolkit, "other", &["90"])?;
    std::fs::copy(&other, work.path().join("copy.o"))?;
    run(work.command("objcopy").args(["--weaken", "copy.o"]))?;
    let said = run_failing(&mut link(
        toolkit,
        work,
        &[main, other.clone(), "copy.o".to_owned()],
    )?)?;
    expect_in(&said, "the same CUDA module")?;
    expect_in(&said, &other)?;
    expect_in(&said, "copy.o")?;
    passed()
}

/// Damages the code of a module in several ways. Each gives one error with its place, or a link that
/// the linker of the device code refuses.
fn damaged(toolkit: &Toolkit, work: &Work) -> Outcome {
    const WRAPPER: &str = "the wrapper of a CUDA module has an unknown version";
    let program = Program {
        archs: &["90"],
        ..PLAIN
    };
    let inputs = Inputs::of(&program, toolkit, work)?;
    let whole = std::fs::read(&inputs.line[1])?;
    let file = object::File::parse(&*whole)?;
    let section = file.section_by_name("__nv_relfatbin").ok_or("no code")?;
    let (at, size) = section.file_range().ok_or("no bytes")?;
    let (at, size) = (at as usize, size as usize);
    let wrapper = file
        .section_by_name(".nvFatBinSegment")
        .ok_or("no wrapper")?;
    let (wrapper, _) = wrapper.file_range().ok_or("no bytes")?;
    let cases: [(&str, usize, u8); 6] = [
        ("not a fatbinary", at, 0),
        ("fatbinary header size too small", at + 6, 1),
        ("fatbinary size past the end", at + 14, 0xff),
        ("header size of a fatbinary entry too small", at + 20, 1),
        ("compressed", at + 16 + 16 + 2, 0x7f),
        (WRAPPER, wrapper as usize + 4, 9),
    ];
    for (what, place, byte) in cases {
        let mut data = whole.clone();
        if !(at..at + size).contains(&place) && what != WRAPPER {
            return Err("a place outside of the code".into());
        }
        data[place] = byte;
        work.file("damaged.o", data);
        let line = [inputs.line[0].clone(), "damaged.o".to_owned()];
        let said = run_failing(&mut link(toolkit, work, &line)?)?;
        expect_in(&said, "damaged.o")?;
        expect_in(&said, what)?;
        expect_not_in(&said, "panicked")?;
    }
    passed()
}
