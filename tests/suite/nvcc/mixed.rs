//! Programs of nvcc's relocatable code and other device code: clang's CUDA, OpenMP and HIP.

use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};

use super::{Named, Toolkit, by_offld, endings, libraries, registered};
use crate::kinds::stubs;
use crate::support::{
    Outcome, Work, cuda_tools, expect_equal, expect_in, expect_not_in, host_linker, llvm, made,
    missing, passed, root, run, test,
};

pub(super) fn trials() -> Vec<Trial> {
    let all: [Named; 9] = [
        ("clang_and_nvcc_call_each_other", both_compilers),
        ("clang_and_nvcc_by_the_wrapper", by_the_wrapper),
        ("bitcode_of_clang_and_nvcc", bitcode),
        ("archives_of_both", archives),
        ("relocatable_link_of_both", relocatable_link),
        ("shared_library_of_both", shared_library),
        ("clang_whole_units_and_nvcc", whole_units),
        ("openmp_and_nvcc", openmp),
        ("hip_and_nvcc", hip),
    ];
    all.into_iter()
        .map(|(name, check)| {
            test(
                format!("releases::nvcc::mixed::{name}"),
                move || match Toolkit::find() {
                    Some(toolkit) => check(&toolkit, &Work::new()),
                    None => missing("NVIDIA's tools and nvcc (make setup-cuda)"),
                },
            )
        })
        .collect()
}

const ARCHS: &[&str] = &["80", "90"];

/// Compiles the unit of clang, with relocatable code unless `more` says otherwise.
pub(super) fn by_clang(
    toolkit: &Toolkit,
    work: &Work,
    name: &str,
    more: &[&str],
) -> Result<String, Failed> {
    let cuda = cuda_tools(22).ok_or("no tools")?;
    run(toolkit
        .command(work, llvm("clang++"))
        .args([
            "-x",
            "cuda",
            "-nocudainc",
            "-nocudalib",
            "--offload-new-driver",
            "-O2",
            "-fPIC",
        ])
        .arg(format!("--cuda-path={}", cuda.display()))
        .arg("-isystem")
        .arg(root().join("tests/device-headers"))
        .arg(format!("-B{}", made().links.display()))
        .args(["--offload-arch=sm_80,sm_90", "-fgpu-rdc"])
        .args(more)
        .args(["-c", "-o", name])
        .arg(root().join("tests/nvcc/clang_kernels.cpp")))?;
    Ok(work.path().join(name).display().to_string())
}

/// The objects of nvcc for the mixed program.
fn by_nvcc(toolkit: &Toolkit) -> Result<[String; 2], Failed> {
    let object =
        |unit| Ok::<String, Failed>(toolkit.object(unit, ARCHS, &[])?.display().to_string());
    Ok([object("mixed")?, object("other")?])
}

/// Checks the registration of the mixed program: one image for each architecture, for both compilers.
fn check(work: &Work, program: PathBuf) -> Outcome {
    let ledger = registered(work, &program)?;
    for line in [
        "cuda register lib=0 version=2",
        "cuda image lib=0 kind=elf sm=80",
        "cuda image lib=0 kind=elf sm=90",
        "cuda image lib=0 prelinked=1",
        "cuda function lib=0 name=_Z8by_clangPi threads=-1",
        "cuda function lib=0 name=_Z7by_nvccPi threads=-1",
        "cuda function lib=0 name=_Z5otherPi threads=-1",
        "cuda var lib=0 name=clang_counter size=4 extern=0 constant=0",
        "cuda launch lib=0 name=_Z8by_clangPi",
        "cuda launch lib=0 name=_Z8at_starti",
        "cuda launch lib=0 name=_Z7by_nvccPi",
        "cuda unregister lib=0",
    ] {
        expect_in(&ledger, line)?;
    }
    expect_not_in(&ledger, "lib=1")?;
    passed()
}

fn both_compilers(toolkit: &Toolkit, work: &Work) -> Outcome {
    let [mixed, other] = by_nvcc(toolkit)?;
    let clang = by_clang(toolkit, work, "clang.o", &[])?;
    let ours = work.path().join("ours");
    for linker in ["bfd", "lld"] {
        by_offld(
            toolkit,
            work,
            linker,
            &[mixed.clone(), clang.clone(), other.clone()],
            &ours,
        )?;
        check(work, ours.clone())?;
    }
    passed()
}

fn by_the_wrapper(toolkit: &Toolkit, work: &Work) -> Outcome {
    let [mixed, other] = by_nvcc(toolkit)?;
    let clang = by_clang(toolkit, work, "clang.o", &[])?;
    let ours = work.path().join("ours");
    run(toolkit
        .command(work, llvm("clang++"))
        .args(["--offload-link", "-o"])
        .arg(&ours)
        .arg(format!("-B{}", made().links.display()))
        .args([&clang, &mixed, &other])
        .args(endings(toolkit)?))?;
    check(work, ours)
}

fn bitcode(toolkit: &Toolkit, work: &Work) -> Outcome {
    let [mixed, other] = by_nvcc(toolkit)?;
    let clang = by_clang(toolkit, work, "clang.o", &["-foffload-lto"])?;
    let ours = work.path().join("ours");
    let cuda = cuda_tools(22).ok_or("no tools")?;
    run(toolkit
        .command(work, llvm("clang++"))
        .args(["--offload-link", "-o"])
        .arg(&ours)
        .arg(format!("-B{}", made().links.display()))
        .arg(format!("--cuda-path={}", cuda.display()))
        .arg("-Wl,--device-compiler=nvptx64-nvidia-cuda=-nogpulib")
        .args([&clang, &mixed, &other])
        .args(endings(toolkit)?))?;
    check(work, ours)
}

fn archives(toolkit: &Toolkit, work: &Work) -> Outcome {
    let [mixed, other] = by_nvcc(toolkit)?;
    let clang = by_clang(toolkit, work, "clang.o", &[])?;
    run(work
        .command("ar")
        .args(["rcs", "libboth.a", &other, &clang]))?;
    let ours = work.path().join("ours");
    for linker in ["bfd", "lld", "mold"] {
        by_offld(
            toolkit,
            work,
            linker,
            &[mixed.clone(), "libboth.a".to_owned()],
            &ours,
        )?;
        check(work, ours.clone())?;
    }
    passed()
}

/// A relocatable link leaves the code of both compilers to the link of the program.
fn relocatable_link(toolkit: &Toolkit, work: &Work) -> Outcome {
    let [mixed, other] = by_nvcc(toolkit)?;
    let clang = by_clang(toolkit, work, "clang.o", &[])?;
    let ours = work.path().join("ours");
    for linker in ["bfd", "lld", "gold"] {
        run(toolkit
            .command(work, "g++")
            .arg(format!("-B{}", made().as_ld.display()))
            .env("OFFLD_LINKER", host_linker(linker).ok_or("no linker")?)
            .args(["-r", "-o", "both.o", &clang, &mixed]))?;
        let line = ["both.o".to_owned(), other.clone()];
        by_offld(toolkit, work, linker, &line, &ours)?;
        check(work, ours.clone())?;
    }
    passed()
}

fn shared_library(toolkit: &Toolkit, work: &Work) -> Outcome {
    let [mixed, other] = by_nvcc(toolkit)?;
    let clang = by_clang(toolkit, work, "clang.o", &[])?;
    let library = work.path().join("libboth.so");
    by_offld(
        toolkit,
        work,
        "bfd",
        &["-shared".to_owned(), clang, mixed, other],
        &library,
    )?;
    work.file("start.c", "int main(void);\n");
    let ours = work.path().join("ours");
    run(work
        .command("g++")
        .args([
            "-o",
            "ours",
            "-x",
            "c",
            "/dev/null",
            "-x",
            "none",
            "-Wl,--no-as-needed",
            "libboth.so",
        ])
        .arg(format!("-Wl,-rpath-link,{}", libraries(toolkit)?.display()))
        .args(endings(toolkit)?))?;
    check(work, ours)
}

/// Code of clang without `-fgpu-rdc` registers itself.
fn whole_units(toolkit: &Toolkit, work: &Work) -> Outcome {
    let object =
        |unit| Ok::<String, Failed>(toolkit.object(unit, ARCHS, &[])?.display().to_string());
    let cuda = cuda_tools(22).ok_or("no tools")?;
    work.file(
        "own.cpp",
        "#include <cuda_runtime.h>\n__global__ void own() {}\nvoid launch() { own<<<1, 1>>>(); }\n",
    );
    run(toolkit
        .command(work, llvm("clang++"))
        .args([
            "-x",
            "cuda",
            "-nocudainc",
            "-nocudalib",
            "-fPIC",
            "--offload-arch=sm_90",
            "-c",
            "own.cpp",
        ])
        .arg(format!("--cuda-path={}", cuda.display()))
        .arg(format!("-B{}", made().links.display()))
        .arg("-isystem")
        .arg(root().join("tests/device-headers")))?;
    let ours = work.path().join("ours");
    by_offld(
        toolkit,
        work,
        "bfd",
        &[object("main")?, object("other")?, "own.o".to_owned()],
        &ours,
    )?;
    let ledger = registered(work, &ours)?;
    expect_in(&ledger, "name=_Z3ownv")?;
    expect_in(&ledger, "name=_Z4fillPi")?;
    expect_in(&ledger, "lib=1 version=")?;
    passed()
}

/// OpenMP for the CPU and CUDA in one program. Both runtimes are stubs.
fn openmp(toolkit: &Toolkit, work: &Work) -> Outcome {
    let object =
        |unit| Ok::<String, Failed>(toolkit.object(unit, ARCHS, &[])?.display().to_string());
    work.file(
        "omp.c",
        "int region(void) { int x = 0;\n#pragma omp target map(tofrom: x)\n x = 1;\n return x; }\n\
         __attribute__((constructor)) static void start(void) { region(); }\n",
    );
    run(work
        .command(llvm("clang"))
        .args([
            "-fopenmp",
            "-fopenmp-targets=x86_64-pc-linux-gnu",
            "-fPIC",
            "-c",
            "omp.c",
        ])
        .arg(format!("-B{}", made().links.display())))?;
    let ours = work.path().join("ours");
    run(toolkit
        .command(work, llvm("clang++"))
        .args(["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu", "-o"])
        .arg(&ours)
        .arg(format!("-B{}", made().links.display()))
        .args([object("main")?, object("other")?, "omp.o".to_owned()])
        .arg(format!("-L{}", stubs().display()))
        .arg(format!("-Wl,-rpath,{}", stubs().display()))
        .args(endings(toolkit)?))?;
    let ledger = work.path().join("ledger");
    let ran = work
        .command(&ours)
        .env("OFFLD_LEDGER", &ledger)
        .env("LD_PRELOAD", stubs().join("libomptarget.so"))
        .env(
            "LD_LIBRARY_PATH",
            format!(
                "{}:{}",
                libraries(toolkit)?.display(),
                "/usr/lib/llvm-22/lib"
            ),
        )
        .output()?;
    expect_equal("status", "Some(77)", &format!("{:?}", ran.status.code()))?;
    let ledger = std::fs::read_to_string(ledger)?;
    expect_not_in(&ledger, "BAD")?;
    expect_in(&ledger, "openmp register lib=0 images=1")?;
    expect_in(&ledger, "cuda register lib=0 version=2")?;
    expect_in(&ledger, "cuda function lib=0 name=_Z4fillPi")?;
    passed()
}

/// HIP of clang and CUDA of nvcc in one program.
fn hip(toolkit: &Toolkit, work: &Work) -> Outcome {
    let object =
        |unit| Ok::<String, Failed>(toolkit.object(unit, ARCHS, &[])?.display().to_string());
    work.file(
        "hip.cpp",
        "#include <hip/hip_runtime.h>\n__global__ void by_hip(int *p) { *p = 1; }\n\
         struct L { L() { by_hip<<<1, 1>>>(nullptr); } } launch;\n",
    );
    run(toolkit
        .command(work, llvm("clang++"))
        .args([
            "-x",
            "hip",
            "-nogpuinc",
            "-nogpulib",
            "-fPIC",
            "-fgpu-rdc",
            "--offload-new-driver",
        ])
        .args(["--offload-arch=gfx90a", "-c", "hip.cpp"])
        .arg(format!("-B{}", made().links.display()))
        .arg("-isystem")
        .arg(root().join("tests/device-headers")))?;
    let ours = work.path().join("ours");
    by_offld(
        toolkit,
        work,
        "bfd",
        &[
            object("main")?,
            object("other")?,
            "hip.o".to_owned(),
            format!("-L{}", stubs().display()),
            "-lamdhip64".to_owned(),
            format!("-Wl,-rpath,{}", stubs().display()),
        ],
        &ours,
    )?;
    let ledger = registered(work, &ours)?;
    expect_in(&ledger, "hip function lib=0 name=_Z6by_hipPi")?;
    expect_in(&ledger, "cuda register lib=0 version=2")?;
    expect_in(&ledger, "cuda function lib=0 name=_Z4fillPi")?;
    passed()
}
