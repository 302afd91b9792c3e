//! Code that a runtime cannot distinguish forms one image: triples in several spellings, AMD GPUs
//! under their old and new names, and an architecture with and without feature settings. Most tests
//! of this are in `tests/cases/clang-linker-wrapper/`.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made, offld, passed, run,
    run_failing, run_offloaded, stderr_of, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("targets::a_cpu_is_one_device_whatever_its_vendor", vendors),
        with_llvm(
            "targets::one_object_for_two_spellings_counts_once",
            one_object,
        ),
        with_llvm("targets::hip_objects_of_clang_link", hip_objects),
        with_llvm(
            "targets::an_undefined_symbol_that_another_target_has",
            other_target,
        ),
        with_llvm("targets::images_under_new_names_are_kept_and_found", cached),
        with_llvm(
            "targets::one_object_for_a_family_and_a_processor_counts_once",
            family_beside_processor,
        ),
    ]
}

/// Two kernels that call each other's helper, each compiled for its own spelling of the host
/// triple. Both must run on the device.
fn vendors() -> Outcome {
    let work = Work::new();
    work.file(
        "a.c",
        "int printf(const char *, ...);\nint other(int);\n#pragma omp begin declare target\nint helper(int x) { return x * 3; }\n#pragma omp end declare target\n\
         int main(void) {\n  int x = 0;\n#pragma omp target map(from : x)\n  x = helper(4);\n  printf(\"%d %d\\n\", x, other(5));\n}\n",
    );
    work.file(
        "b.c",
        "#pragma omp begin declare target\nint helper(int);\n#pragma omp end declare target\n\
         int other(int y) {\n  int x = 0;\n#pragma omp target map(from : x)\n  x = helper(y) + 1;\n  return x;\n}\n",
    );
    for (a, b) in [
        ("x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu"),
        ("x86_64-redhat-linux", "x86_64-pc-linux-gnu"),
        ("x86_64--linux-gnu", "x86_64-linux-gnu"),
        ("x86_64", "x86_64-pc-linux-gnu"),
        ("x86_64-unknown-linux-gnu", "x86_64"),
    ] {
        for (source, triple) in [("a.c", a), ("b.c", b)] {
            let targets = format!("-fopenmp-targets={triple}");
            run(work
                .command(llvm("clang"))
                .args(["-fopenmp", &targets, "-fPIC", "-c", source]))?;
        }
        for linker in ["bfd", "lld"] {
            let mut link = work.command(llvm("clang"));
            link.args([
                "-fopenmp",
                &format!("-fopenmp-targets={a}"),
                &format!("-fuse-ld={linker}"),
                "-B",
            ])
            .arg(&made().links);
            run(link.args(["a.o", "b.o", "-o", "program"]))?;
            expect_equal(
                &format!("{a} and {b}, {linker}"),
                "12 16\n",
                &run_offloaded(&mut work.command("./program"))?,
            )?;
            let checked = run(work.command(offld()).args(["check", "--for", a, "program"]))?;
            expect_in(&checked, "verdict: yes")?;
        }
    }
    passed()
}

/// An object that clang compiled for two spellings contains the same code twice.
fn one_object() -> Outcome {
    let work = Work::new();
    work.file("d.c", "int helper(int x) { return x * 3; }");
    work.run(llvm("clang"), ["-c", "-fPIC", "d.c", "-o", "d.o"])?;
    let code = std::fs::read(work.path().join("d.o"))?;
    let of = |triple| Image {
        triple,
        arch: "",
        kind: "openmp",
        bytes: &code,
    };
    work.fat(
        "a.o",
        &[
            of("x86_64-pc-linux-gnu"),
            of("x86_64-unknown-linux-gnu"),
            of("x86_64-pc-linux-musl"),
        ],
    )?;
    run(&mut work.wrapper(["a.o", "-o", "x"]))?;
    let images: Vec<usize> = work
        .images()?
        .iter()
        .map(|(_, contents)| contents.matches("helper").count())
        .collect();
    work.fat("once.o", &[of("x86_64-pc-linux-gnu")])?;
    work.forget();
    run(&mut work.wrapper(["once.o", "-o", "x"]))?;
    let once: Vec<usize> = work
        .images()?
        .iter()
        .map(|(_, contents)| contents.matches("helper").count())
        .collect();
    ensure(images == once, || {
        format!("{images:?}, where one image has {once:?}")
    })?;
    passed()
}

const HIP: &str = "
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
struct dim3 { unsigned x, y, z; __host__ __device__ dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
typedef struct hipStream *hipStream_t; typedef enum hipError {} hipError_t; typedef unsigned long size_t;
extern \"C\" hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, size_t, hipStream_t);
extern \"C\" hipError_t __hipPushCallConfiguration(dim3, dim3, size_t = 0, hipStream_t = 0);
extern \"C\" hipError_t __hipPopCallConfiguration(dim3 *, dim3 *, size_t *, hipStream_t *);
";

/// `generic.o`, for gfx90a, defines `gen`. `specific.o`, for the given targets, calls it.
fn hip_sources(work: &Work, targets: &[&str]) -> Result<(), Failed> {
    work.file("hip.h", HIP);
    work.file(
        "generic.hip",
        "#include \"hip.h\"\n__device__ int gen(int x) { return x * 3; }\n__global__ void kgen(int *p) { *p = gen(*p); }\n",
    );
    work.file(
        "specific.hip",
        "#include \"hip.h\"\n__device__ int gen(int x);\n__global__ void kspec(int *p) { *p = gen(*p) + 1; }\n",
    );
    compile_hip(work, "generic", &["gfx90a"])?;
    compile_hip(work, "specific", targets)
}

fn compile_hip(work: &Work, stem: &str, targets: &[&str]) -> Result<(), Failed> {
    let mut compile = work.command(llvm("clang++"));
    compile.args([
        "-x",
        "hip",
        "-nogpuinc",
        "-nogpulib",
        "--offload-new-driver",
        "-fgpu-rdc",
        "-fPIC",
        "-O1",
        "-c",
    ]);
    compile.args(
        targets
            .iter()
            .map(|target| format!("--offload-arch={target}")),
    );
    run(compile
        .arg(format!("{stem}.hip"))
        .args(["-o", &format!("{stem}.o")]))
    .map(drop)
}

/// The link of a shared library from HIP objects.
fn link_hip(work: &Work, inputs: &[&str], targets: &[&str]) -> std::process::Command {
    let mut link = work.command(llvm("clang++"));
    link.args([
        "-shared",
        "-fgpu-rdc",
        "--hip-link",
        "--offload-new-driver",
        "-nogpulib",
        "-nostdlib",
        "--rocm-path=/nonexistent",
    ]);
    link.args(
        targets
            .iter()
            .map(|target| format!("--offload-arch={target}")),
    );
    link.arg("-B")
        .arg(&made().links)
        .args(inputs)
        .args(["-o", "lib.so"]);
    link
}

fn hip_objects() -> Outcome {
    let work = Work::new();
    for targets in [&["gfx90a:xnack+", "gfx90a:xnack-"][..], &["gfx90a:xnack+"]] {
        hip_sources(&work, targets)?;
        run(work
            .command(llvm("llvm-ar"))
            .args(["rcs", "libgeneric.a", "generic.o"]))?;
        for inputs in [
            ["generic.o", "specific.o"],
            ["specific.o", "generic.o"],
            ["specific.o", "libgeneric.a"],
        ] {
            for asked in [targets, &["gfx90a:xnack+"]] {
                run(&mut without_runtime(link_hip(&work, &inputs, asked)))?;
                let kernels = run(work
                    .command(offld())
                    .args(["inspect", "--kernels", "lib.so"]))?;
                let count = |name: &str| kernels.matches(name).count();
                ensure(
                    count("kgen") == targets.len() && count("kspec") == targets.len(),
                    || format!("{targets:?}: {kernels}"),
                )?;
            }
        }
    }
    passed()
}

/// clang adds HIP's runtime library to every such link. The tests have none.
fn without_runtime(mut link: std::process::Command) -> std::process::Command {
    let folder = link
        .get_current_dir()
        .map(std::path::Path::to_path_buf)
        .unwrap_or_default();
    std::fs::write(folder.join("libamdhip64.so"), "INPUT()\n").expect("a file");
    link.arg("-L.");
    link
}

fn other_target() -> Outcome {
    let work = Work::new();
    hip_sources(&work, &["gfx90a"])?;
    compile_hip(&work, "generic", &["gfx90a:xnack-"])?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "lib.a", "generic.o"]))?;
    let stderr = run_failing(&mut without_runtime(link_hip(
        &work,
        &["specific.o", "lib.a"],
        &["gfx90a"],
    )))?;
    expect_in(
        &stderr,
        "lib.a(generic.o) defines `gen(int)` for gfx90a:xnack- only, and this image is for gfx90a",
    )?;
    expect_in(&stderr, "--offload-arch=gfx90a:xnack-")?;
    // For another architecture, no target fits both inputs.
    compile_hip(&work, "generic", &["gfx908"])?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "lib.a", "generic.o"]))?;
    let stderr = run_failing(&mut without_runtime(link_hip(
        &work,
        &["specific.o", "lib.a"],
        &["gfx90a"],
    )))?;
    expect_in(
        &stderr,
        "lib.a(generic.o) defines `gen(int)` for gfx908 only, and this image is for gfx90a",
    )?;
    expect_not_in(&stderr, "--offload-arch=gfx908")?;
    passed()
}

const NEW: &str = "amdgpu9.08-amd-amdhsa";
const ARCH: &str = "gfx908";

/// A clang that accepts the new names: it runs the real one with the old names. It is a compiled
/// program, because offld caches nothing for scripts.
const KNOWS_NEW_NAMES: &str = r#"
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  for (int at = 1; at < count; at++)
    if (!strncmp(words[at], "--target=amdgpu9.0", 18)) words[at] = "--target=amdgcn-amd-amdhsa";
  return execv(words[0] = CLANG, words);
}
"#;

fn cached() -> Outcome {
    let work = Work::new();
    let clang = work.path().join("clang");
    work.file("clang.c", KNOWS_NEW_NAMES);
    run(work
        .command("cc")
        .arg(format!("-DCLANG=\"{}\"", llvm("clang").display()))
        .arg("clang.c")
        .arg("-o")
        .arg(&clang))?;
    let source =
        "__attribute__((amdgpu_kernel, visibility(\"protected\"))) void kernel(int *a) { *a = 1; }";
    work.file("device.c", source);
    let words = [
        "--target=amdgcn-amd-amdhsa",
        "-nogpulib",
        "-O1",
        "-emit-llvm",
        "-c",
        "device.c",
        "-o",
        "device.bc",
    ];
    run(work.command(llvm("clang")).args(words))?;
    let code = std::fs::read(work.path().join("device.bc"))?;
    work.fat(
        "a.o",
        &[Image {
            triple: NEW,
            arch: ARCH,
            kind: "openmp",
            bytes: &code,
        }],
    )?;
    work.fat(
        "b.o",
        &[Image {
            triple: "amdgpu9.06-amd-amdhsa",
            arch: "gfx906",
            kind: "openmp",
            bytes: &code,
        }],
    )?;
    std::thread::sleep(std::time::Duration::from_millis(60));
    let link = |object: &str| -> Result<String, Failed> {
        let mut link = work.command(made().links.join("clang-linker-wrapper"));
        link.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--linker-path=/usr/bin/ld",
            "-shared",
            "-o",
            "out.so",
            object,
        ]);
        link.args(["--wrapper-verbose", "--device-compiler=-nogpulib"]);
        stderr_of(
            link.env("OFFLD_CLANG", &clang)
                .env("OFFLD_CACHE", work.path().join("cache")),
        )
    };
    for (object, target) in [
        ("a.o", "amdgpu9.08-amd-amdhsa (gfx908)"),
        ("b.o", "amdgpu9.06-amd-amdhsa (gfx906)"),
    ] {
        let first = link(object)?;
        // A cached link for one architecture does not serve another.
        expect_in(
            &first,
            &format!("device link for {target}: not in the cache"),
        )?;
        let before = std::fs::read(work.path().join("out.so"))?;
        let messages = link(object)?;
        expect_in(
            &messages,
            &format!("device link for {target}: found in the cache"),
        )?;
        expect_not_in(&messages, "ld.lld\" -")?;
        ensure(
            before == std::fs::read(work.path().join("out.so"))?,
            || "another image is found",
        )?;
    }
    passed()
}

/// Code for gfx9-generic and for gfx900. The image for gfx900 has the kernel once, from either
/// object.
fn family_beside_processor() -> Outcome {
    let work = Work::new();
    let bitcode = |name: &str, source: &str| {
        work.file(&format!("{name}.c"), source);
        let words = [
            "-c",
            "-emit-llvm",
            &format!("{name}.c"),
            "-o",
            &format!("{name}.bc"),
        ];
        work.run(crate::support::llvm("clang"), words)?;
        Ok::<_, Failed>(std::fs::read(work.path().join(format!("{name}.bc")))?)
    };
    let (one, other) = (bitcode("one", "int one;")?, bitcode("other", "int other;")?);
    let image = |triple: &'static str, bytes| Image {
        triple,
        arch: "",
        kind: "openmp",
        bytes,
    };
    let (family, processor) = ("amdgpu9-amd-amdhsa", "amdgpu9.00-amd-amdhsa");
    work.fat("both.o", &[image(family, &one), image(processor, &one)])?;
    work.fat("family.o", &[image(family, &other)])?;
    run(&mut work.wrapper(["both.o", "family.o", "-o", "a.out"]))?;
    for (name, line) in work.device_lines()? {
        let inputs = line.iter().filter(|word| word.ends_with(".o")).count();
        ensure(inputs == 2, || format!("{name}: {inputs} inputs: {line:?}"))?;
    }
    passed()
}
