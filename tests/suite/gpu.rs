//! Device links for GPUs, without running on one: tests check which images the program has, and the
//! images' contents.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use super::kit::Image;
use super::support::{
    Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, have_llvm,
    have_spirv_link, ledger, llvm, made, missing, offld, output, passed, rocm_bitcode, run, shown,
    test, text, with_llvm,
};

/// Tests that need compilers of other releases or packages have these in their names.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("gpu::amdgcn-without-libraries", amdgcn_22),
        with_llvm("gpu::amdgcn-generic-input", generic_22),
        with_llvm("gpu::amdgcn-beside-the-host", two_triples),
        with_llvm("gpu::amdgcn-objects", amd_objects),
        test("releases::gpu::spirv", spirv),
        test("releases::gpu::amdgcn-19", amdgcn_19),
        test("releases::gpu::amdgcn-19-generic-input", generic_19),
    ];
    trials.extend([14, 15, 16].map(|major| {
        test(format!("releases::gpu::amdgcn-{major}"), move || {
            amdgcn_of_release(major)
        })
    }));
    trials
}

const AMD: &str = "amdgcn-amd-amdhsa";

/// A kernel that calls a function whose register use callers cannot know, and a kernel without
/// calls.
const CALLING: &str = "
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#ifdef KERNEL
extern \"C\" __device__ int callee(int x);
extern \"C\" __device__ int variable;
extern \"C\" __global__ void kern(int *p) { p[0] = WHAT; }
#else
extern \"C\" __device__ int variable = 3;
extern \"C\" __device__ __attribute__((noinline)) int callee(int x) {
  volatile int a[64];
  for (int i = 0; i < 64; i++) a[i] = x * i;
  asm volatile(\"; clobber\" ::: \"v120\");
  return a[x & 63];
}
extern \"C\" __global__ void other(int *p) { p[0] = 3; }
#endif
";

/// Compiles HIP device code as an ELF object or bitcode, inside a host object.
fn hip_object(work: &Work, name: &str, as_object: bool, args: &[&str]) -> Result<(), Failed> {
    work.file("calling.hip", CALLING);
    let flags = [
        "-x",
        "hip",
        "--cuda-device-only",
        "--offload-arch=gfx90a",
        "-nogpuinc",
        "-nogpulib",
        "-O1",
        "-fgpu-rdc",
    ];
    run(work.command(llvm("clang")).args(flags).args(args).args([
        "-emit-llvm",
        "-c",
        "calling.hip",
        "-o",
        "code.bc",
    ]))?;
    let mut file = "code.bc";
    if as_object {
        let target = [
            "-x",
            "ir",
            "--target=amdgcn-amd-amdhsa",
            "-mcpu=gfx90a",
            "-nogpulib",
            "-O1",
            "-c",
            "code.bc",
        ];
        run(work
            .command(llvm("clang"))
            .args(target)
            .args(["-o", "code.o"]))?;
        file = "code.o";
    }
    let bytes = std::fs::read(work.path().join(file))?;
    let image = Image {
        triple: AMD,
        arch: "gfx90a",
        kind: "hip",
        bytes: &bytes,
    };
    work.fat_with(
        name,
        &[image],
        &format!("int of_{};\n", name.replace('.', "_")),
    )
    .map(drop)
}

/// A link of objects that call each other does not count the resources of the called functions. It
/// warns once, and `check` does not answer yes.
fn amd_objects() -> Outcome {
    // Whether the kernel and the function are in object files, the called expression, options,
    // and whether code that is compiled by itself calls another input.
    const CALL: &str = "callee(p[1])";
    const EACH: &[&str] = &[
        "-Wl,--no-lto",
        "-Wl,--device-compiler=amdgcn-amd-amdhsa=-nogpulib",
    ];
    const NONE: &[&str] = &[];
    let cases = [
        (true, true, CALL, NONE, true),
        (true, false, CALL, NONE, true),
        (false, false, CALL, NONE, false),
        (false, false, CALL, EACH, true),
        (false, true, CALL, EACH, true),
        (true, true, "variable", NONE, false),
        (true, true, "p[1]", NONE, false),
        (false, false, "p[1]", EACH, false),
    ];
    for (kernel, function, what, options, warns) in cases {
        let work = Work::new();
        hip_object(
            &work,
            "kernel.o",
            kernel,
            &["-DKERNEL", &format!("-DWHAT={what}")],
        )?;
        hip_object(&work, "function.o", function, &[])?;
        let mut link = work.command(llvm("clang"));
        link.args([
            "--offload-link",
            "-shared",
            "-fuse-ld=lld",
            "-nogpulib",
            "kernel.o",
            "function.o",
            "-o",
            "both.so",
            "-B",
        ]);
        let linked = output(link.arg(&made().links).args(options))?;
        ensure(linked.status.success(), || shown(&link, &linked))?;
        let stderr = text(&linked.stderr);
        // The calls of bitcode are not known by their callers.
        let caller = if kernel { "kernel `kern`" } else { "the code" };
        let warning = format!(
            "{caller} in kernel.o: .llvm.offloading calls `callee` in function.o: .llvm.offloading"
        );
        let named = format!("objects {kernel} {function}, {what}, {options:?}: {stderr}");
        ensure(stderr.contains(&warning) == warns, || named.clone())?;
        ensure(
            stderr.matches("too few registers").count() == usize::from(warns),
            || named.clone(),
        )?;
        let remedy = if kernel {
            "with -foffload-lto"
        } else {
            "without --no-lto"
        };
        ensure(!warns || stderr.contains(remedy), || named.clone())?;
        for args in [
            &["check", "both.so"][..],
            &["check", "--for", "gfx90a", "both.so"],
        ] {
            let checked = output(work.command(offld()).args(args))?;
            let printed = text(&checked.stdout) + &text(&checked.stderr);
            let is_open = printed.contains("calls separately compiled functions");
            ensure(is_open == warns, || format!("{args:?} {named}: {printed}"))?;
            ensure(
                !is_open || printed.contains("unknown") && !checked.status.success(),
                || printed.clone(),
            )?;
        }
    }
    passed()
}
const HOST: &str = "x86_64-pc-linux-gnu";

/// A kernel, device data, and a function that calls the math library.
const PROGRAM: &str = "
#include <cmath>
#include <cstdio>
#pragma omp begin declare target
int counter = 3;
double scale(double x) { return MATH(x) * counter; }
#pragma omp end declare target
int main() {
  double y = 2;
#pragma omp target teams distribute parallel for map(tofrom : y)
  for (int i = 0; i < 100; ++i)
    if (i == 0)
      y = scale(y);
  std::printf(\"%f\\n\", y);
}
";

/// A kernel whose function is in a generic image, which serves every architecture.
const CALLS_GENERIC: &str = "
#pragma omp begin declare target
extern \"C\" int thrice(int x);
#pragma omp end declare target
int main() {
  int y = 2;
#pragma omp target map(tofrom : y)
  y = thrice(y);
  return y != 6;
}
";

/// The images of a program in order, as `triple arch` lines.
fn images(folder: &Work, program: &str) -> Result<String, Failed> {
    let listed = folder.run(llvm("llvm-objdump"), ["--offloading", program])?;
    let value = |line: &str, key: &str| line.strip_prefix(key).map(|value| value.trim().to_owned());
    let mut images = String::new();
    let mut arch = String::new();
    for line in listed.lines() {
        arch = value(line, "arch ").unwrap_or(arch);
        if let Some(triple) = value(line, "triple ") {
            images += &format!("{triple} {arch}\n");
        }
    }
    Ok(images)
}

/// The symbols of the image for `arch`.
fn symbols(folder: &Work, program: &str, arch: &str) -> Result<String, Failed> {
    folder.run(
        llvm("llvm-offload-binary"),
        [
            program,
            &format!("--image=file=image,triple={AMD},arch={arch}"),
        ],
    )?;
    folder.run(llvm("llvm-nm"), ["image"])
}

/// Fails unless the program has both images in order, each with the kernel.
fn expect_both(folder: &Work, program: &str) -> Result<(), Failed> {
    expect_equal(
        "images",
        &format!("{AMD} gfx90a\n{AMD} gfx908\n"),
        &images(folder, program)?,
    )?;
    for arch in ["gfx908", "gfx90a"] {
        expect_in(&symbols(folder, program, arch)?, "_main_l")?;
    }
    Ok(())
}

const ARCHS: [&str; 4] = [
    "-O2",
    "-fopenmp",
    "--offload-arch=gfx90a,gfx908",
    "-nogpulib",
];
const ANY_SYMBOL: [&str; 2] = ["-Xoffload-linker", "--unresolved-symbols=ignore-all"];

/// The packages of clang 22 contain no device libraries, so calls to them stay undefined.
fn amdgcn_22() -> Outcome {
    let folder = Work::new();
    folder.file("p.cpp", PROGRAM);
    let flags = [&ARCHS[..], &["-DMATH=", "p.cpp", "-c"]].concat();
    folder.run(llvm("clang++"), flags)?;
    run(folder
        .command(llvm("clang++"))
        .args(ARCHS)
        .args(ANY_SYMBOL)
        .arg("-B")
        .arg(&made().links)
        .args(["p.o", "-o", "p"]))?;
    expect_both(&folder, "p")?;
    folder.expect_no_temps()?;
    // Linked by ld.offld: the compiler driver knows no device, so its device options are on the
    // command line.
    let linker = format!("--ld-path={}", made().links.join("ld.offld").display());
    let option = "-Wl,--device-linker=--unresolved-symbols=ignore-all";
    folder.run(
        llvm("clang++"),
        ["-fopenmp", &linker, option, "p.o", "-o", "by-ld"],
    )?;
    expect_both(&folder, "by-ld")?;
    passed()
}

/// A generic object is part of every image, whatever its position, and does not become an image
/// itself.
fn generic_input(
    folder: &Work,
    release: &Release,
    flags: &[String],
    more: &[&str],
) -> Result<(), Failed> {
    folder.file("dev.c", "int thrice(int x) { return 3 * x; }");
    folder.file("call.cpp", CALLS_GENERIC);
    let bitcode = [
        "--target=amdgcn-amd-amdhsa",
        "-nogpulib",
        "-emit-llvm",
        "-O2",
        "-c",
        "dev.c",
        "-o",
        "dev.bc",
    ];
    folder.run(release.tool("clang"), bitcode)?;
    let image = format!("--image=file=dev.bc,triple={AMD},arch=generic,kind=openmp");
    folder.run(llvm("llvm-offload-binary"), ["-o", "dev.pack", &image])?;
    folder.run(
        release.tool("clang"),
        [
            "-c",
            "dev.c",
            "-Xclang",
            "-fembed-offload-object=dev.pack",
            "-o",
            "generic.o",
        ],
    )?;
    folder.run(llvm("llvm-ar"), ["rcs", "libgeneric.a", "generic.o"])?;
    run(folder
        .command(release.tool("clang++"))
        .args(flags)
        .args(["-c", "call.cpp"]))?;
    for inputs in [
        &["call.o", "generic.o"][..],
        &["generic.o", "call.o"],
        &["call.o", "-L.", "-lgeneric"],
    ] {
        run(folder
            .command(release.tool("clang++"))
            .args(flags)
            .arg("-B")
            .arg(&made().links)
            .args(inputs)
            .args(more)
            .args(["-o", "p"]))?;
        expect_both(folder, "p")?;
        for arch in ["gfx908", "gfx90a"] {
            expect_not_in(&symbols(folder, "p", arch)?, "U thrice")?;
        }
    }
    folder.expect_no_temps()
}

fn generic_22() -> Outcome {
    generic_input(
        &Work::new(),
        &Release::newest(),
        &ARCHS.map(str::to_owned),
        &ANY_SYMBOL,
    )?;
    passed()
}

/// Images of two triples are sorted by triple, then by architecture, both in descending order. The
/// order of the objects does not matter.
fn two_triples() -> Outcome {
    let folder = Work::new();
    folder.file("p.cpp", PROGRAM);
    folder.file(
        "q.cpp",
        "int more(int x) {\n#pragma omp target map(tofrom : x)\n  x += 1;\n  return x;\n}\n",
    );
    folder.run(
        llvm("clang++"),
        [&ARCHS[..], &["-DMATH=", "-c", "p.cpp"]].concat(),
    )?;
    folder.run(
        llvm("clang++"),
        [
            "-O2",
            "-fopenmp",
            &format!("-fopenmp-targets={HOST}"),
            "-c",
            "q.cpp",
        ],
    )?;
    let mut programs = Vec::new();
    for inputs in [["p.o", "q.o"], ["q.o", "p.o"]] {
        let mut link = folder.command(llvm("clang++"));
        link.args(ARCHS).arg("-B").arg(&made().links).arg(format!(
            "-Wl,--device-linker={AMD}=--unresolved-symbols=ignore-all"
        ));
        run(link.args(inputs).args(["-o", "p"]))?;
        expect_equal(
            "images",
            &format!("{HOST} \n{AMD} gfx90a\n{AMD} gfx908\n"),
            &images(&folder, "p")?,
        )?;
        programs.push(
            folder
                .run(
                    "objcopy",
                    [
                        "-O",
                        "binary",
                        "--only-section=.llvm.offloading",
                        "p",
                        "images",
                    ],
                )
                .and_then(|_| {
                    std::fs::read(folder.path().join("images"))
                        .map_err(|error| Failed::from(error.to_string()))
                })?,
        );
    }
    if programs[0] != programs[1] {
        return Err("the order of the objects changes the images".into());
    }
    passed()
}

fn spirv() -> Outcome {
    if !have_llvm() || !have_spirv_link() {
        return missing("LLVM 22 or spirv-link (make setup-releases)");
    }
    let folder = Work::new();
    folder.file("p.cpp", PROGRAM);
    let flags = [
        "-O2",
        "-fopenmp",
        "-fopenmp-targets=spirv64-intel",
        "-nogpulib",
    ];
    folder.run(
        llvm("clang++"),
        [&flags[..], &["-DMATH=", "-c", "p.cpp"]].concat(),
    )?;
    let mut link = folder.command(llvm("clang++"));
    link.args(flags)
        .args(["-Xoffload-linker", "--allow-partial-linkage"])
        .arg("-B")
        .arg(&made().links);
    run(link.args(["p.o", "-o", "p"]))?;
    expect_equal("images", "spirv64-intel \n", &images(&folder, "p")?)?;
    // Intel's runtime expects the module inside an ELF file of its own format.
    folder.run(
        llvm("llvm-offload-binary"),
        ["p", "--image=file=image,triple=spirv64-intel"],
    )?;
    expect_in(
        &folder.run(llvm("llvm-readelf"), ["-S", "image"])?,
        "__openmp_offload_spirv_0",
    )?;
    let mut by_ld = folder.command(llvm("clang++"));
    by_ld.arg("-fopenmp").arg(format!(
        "--ld-path={}",
        made().links.join("ld.offld").display()
    ));
    run(by_ld.args([
        "-Wl,--device-linker=--allow-partial-linkage",
        "p.o",
        "-o",
        "by-ld",
    ]))?;
    expect_equal("images", "spirv64-intel \n", &images(&folder, "by-ld")?)?;
    folder.expect_no_temps()?;
    passed()
}

/// Options that give AMD's libraries to a compiler of `release`.
fn amd_flags(release: &Release, bitcode: &Path, arch: &[&str]) -> Vec<String> {
    let arch = arch.iter().map(|word| (*word).to_owned());
    let flags = [
        "-O2".to_owned(),
        "-fopenmp".to_owned(),
        format!("--rocm-device-lib-path={}", bitcode.display()),
    ];
    flags
        .into_iter()
        .chain(arch)
        .chain(release.compile.iter().cloned())
        .chain(release.link.iter().cloned())
        .collect()
}

/// With the device runtime and the math library, no symbol is undefined.
fn amdgcn_19() -> Outcome {
    let (Some(release), Some(bitcode)) = (Release::of(19), rocm_bitcode()) else {
        return missing("LLVM 19 or rocm-device-libs (make setup-releases)");
    };
    let folder = Work::new();
    folder.file("p.cpp", PROGRAM);
    let flags = amd_flags(&release, &bitcode, &["--offload-arch=gfx90a,gfx908"]);
    run(folder.command(release.tool("clang++")).args(&flags).args([
        "-DMATH=std::sin",
        "-c",
        "p.cpp",
    ]))?;
    run(folder
        .command(release.tool("clang++"))
        .args(&flags)
        .arg("-B")
        .arg(&made().links)
        .args(["p.o", "-o", "p"]))?;
    expect_both(&folder, "p")?;
    for arch in ["gfx908", "gfx90a"] {
        let symbols = symbols(&folder, "p", arch)?;
        expect_not_in(&symbols, " U ")?;
        expect_in(&symbols, " counter")?;
    }
    folder.expect_no_temps()?;
    passed()
}

fn generic_19() -> Outcome {
    let (Some(release), Some(bitcode)) = (Release::of(19), rocm_bitcode()) else {
        return missing("LLVM 19 or rocm-device-libs (make setup-releases)");
    };
    let flags = amd_flags(&release, &bitcode, &["--offload-arch=gfx90a,gfx908"]);
    generic_input(&Work::new(), &release, &flags, &[])?;
    passed()
}

/// Earlier releases link the device runtime during compilation. Releases 15 and 16 link the math
/// library through options of the wrapper.
fn amdgcn_of_release(major: u32) -> Outcome {
    let (Some(release), Some(bitcode)) = (Release::of(major), rocm_bitcode()) else {
        return missing(format!(
            "LLVM {major} or rocm-device-libs (make setup-releases)"
        ));
    };
    let lib = release.lib.display();
    let runtime = match major {
        14 => format!("--libomptarget-amdgcn-bc-path={lib}"),
        15 => format!("--libomptarget-amdgpu-bc-path={lib}"),
        _ => "-O2".to_owned(),
    };
    let targets = format!("-fopenmp-targets={AMD}");
    let flags = amd_flags(
        &release,
        &bitcode,
        &[
            &targets,
            &format!("-Xopenmp-target={AMD}"),
            "-march=gfx90a",
            &runtime,
        ],
    );
    // The wrapper of LLVM 14 does not link a math library.
    let math = if major == 14 {
        "-DMATH="
    } else {
        "-DMATH=std::sin"
    };
    let folder = Work::new();
    folder.file("p.cpp", PROGRAM);
    run(folder
        .command(release.tool("clang++"))
        .args(&flags)
        .args([math, "-c", "p.cpp"]))?;
    run(folder
        .command(release.tool("clang++"))
        .args(&flags)
        .arg("-B")
        .arg(&made().links)
        .args(["p.o", "-o", "p"]))?;
    if major == 14 {
        // The runtime of LLVM 14 receives the bare image.
        let ledger = ledger(&folder, &mut folder.command("./p"), &release)?;
        expect_in(&ledger, "openmp register lib=0 images=1")?;
        expect_in(&ledger, "is=elf64-amdgpu-dyn in=none")?;
    } else {
        expect_equal("images", &format!("{AMD} gfx90a\n"), &images(&folder, "p")?)?;
        let symbols = symbols(&folder, "p", "gfx90a")?;
        expect_in(&symbols, "_main_l")?;
        // The device runtime of LLVM 16 never defines `__keep_alive`.
        expect_not_in(&symbols.replace(" U __keep_alive", ""), " U ")?;
    }
    folder.expect_no_temps()?;
    passed()
}
