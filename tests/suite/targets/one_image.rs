//! Code that a runtime cannot distinguish forms one image: triples in several spellings, and an
//! architecture with and without feature settings.

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made, offld, passed, run,
    run_failing, run_offloaded, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("targets::a_cpu_is_one_device_whatever_its_vendor", vendors),
        with_llvm(
            "targets::every_spelling_of_a_triple_is_one_image",
            spellings,
        ),
        with_llvm("targets::code_for_two_platforms_is_an_error", platforms),
        with_llvm(
            "targets::kernels_in_an_image_that_is_never_taken_are_a_warning",
            never_taken,
        ),
        with_llvm(
            "targets::one_object_for_two_spellings_counts_once",
            one_object,
        ),
        with_llvm("targets::commands_take_any_spelling", commands),
        with_llvm(
            "targets::a_processor_beside_both_settings_of_a_feature",
            settings,
        ),
        with_llvm("targets::one_setting_alone", one_setting),
        with_llvm("targets::hip_objects_of_clang_link", hip_objects),
        with_llvm(
            "targets::an_undefined_symbol_that_another_target_has",
            other_target,
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

fn image<'a>(triple: &'a str, arch: &'a str, bytes: &'a str) -> Image<'a> {
    Image {
        triple,
        arch,
        kind: "openmp",
        bytes: bytes.as_bytes(),
    }
}

/// Links one object for each image, in this order. Returns the linked images as `target: contents`
/// lines, and the messages.
fn linked(work: &Work, images: &[Image<'_>], words: &[&str]) -> Result<(String, String), Failed> {
    work.forget();
    let names: Vec<String> = (0..images.len()).map(|at| format!("o{at}.o")).collect();
    for (name, image) in names.iter().zip(images) {
        work.fat(name, &[*image])?;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stderr = stderr_of(&mut work.wrapper([&names[..], &["-o", "x"], words].concat()))?;
    let target = |name: &str| {
        name.trim_start_matches("x.")
            .trim_end_matches(".img")
            .to_owned()
    };
    let lines = work
        .images()?
        .into_iter()
        .map(|(name, contents)| format!("{}: {contents}\n", target(&name)));
    Ok((lines.collect(), stderr))
}

fn spellings() -> Outcome {
    let work = Work::new();
    for (triples, arch, name) in [
        (
            [
                "x86_64-pc-linux-gnu",
                "x86_64-suse-linux",
                "x86_64-unknown-linux-gnu",
            ],
            "",
            "x86_64.",
        ),
        (
            [
                "aarch64-linux-gnu",
                "aarch64-unknown-linux-gnu",
                "aarch64-redhat-linux",
            ],
            "",
            "aarch64.",
        ),
        (
            [
                "nvptx64-nvidia-cuda",
                "nvptx64",
                "nvptx64-nvidia-cuda-unknown",
            ],
            "sm_80",
            "nvptx64.sm_80",
        ),
        (
            ["amdgcn-amd-amdhsa", "amdgcn-amd-amdhsa-unknown", "amdgcn"],
            "gfx90a",
            "amdgcn.gfx90a",
        ),
        (
            [
                "spirv64-intel",
                "spirv64-intel-unknown",
                "spirv64-intel-unknown-unknown",
            ],
            "",
            "spirv64.",
        ),
    ] {
        let [first, second, third] = triples.map(|triple| image(triple, arch, "."));
        for images in [[first, second, third], [third, second, first]] {
            // Only the output of Intel's own linker fits the container for Intel's SPIR-V, so this
            // is a dry run.
            if first.triple == "spirv64-intel" {
                work.forget();
                let words = ["--dry-run", "-o", "x", "o0.o", "o1.o", "o2.o"];
                for (at, image) in images.iter().enumerate() {
                    work.fat(&format!("o{at}.o"), &[*image])?;
                }
                let shown = stderr_of(&mut work.wrapper(words))?;
                let links = shown
                    .lines()
                    .filter(|line| line.contains("--target=spirv64"))
                    .count();
                expect_equal(&shown, "1", &links.to_string())?;
                continue;
            }
            let (linked, messages) = linked(&work, &images, &[])?;
            expect_equal(first.triple, &format!("{name}: ...\n"), &linked)?;
            expect_equal("nothing to warn of", "", &messages)?;
        }
    }
    // The device link gets the code for all spellings of its triple. `--target` gets the spelling
    // with an operating system.
    work.forget();
    work.fat("a.o", &[image("x86_64", "", "a")])?;
    work.fat("b.o", &[image("x86_64-unknown-linux-gnu", "", "b")])?;
    run(&mut work.wrapper([
        "a.o",
        "b.o",
        "-o",
        "x",
        "--device-compiler=x86_64-pc-linux-gnu=-fthis",
    ]))?;
    let lines = work.device_lines()?;
    let [(_, line)] = &lines[..] else {
        return Err(format!("not one device link: {lines:?}").into());
    };
    for word in ["--target=x86_64-unknown-linux-gnu", "-fthis"] {
        ensure(line.iter().any(|own| own == word), || {
            format!("`{word}` is not in {line:?}")
        })?;
    }
    // Other architectures, word sizes and object formats are separate devices.
    let others = [
        "x86_64-pc-linux-gnu",
        "x86_64-pc-linux-gnux32",
        "i686-pc-linux-gnu",
    ]
    .map(|triple| image(triple, "", "."));
    expect_equal(
        "three devices",
        "2",
        &linked(&work, &others, &[])?
            .0
            .matches("x86_64.")
            .count()
            .to_string(),
    )?;
    passed()
}

fn platforms() -> Outcome {
    let work = Work::new();
    for (one, other) in [
        ("x86_64-pc-linux-gnu", "x86_64-pc-linux-musl"),
        ("aarch64-linux-gnu", "aarch64-unknown-linux-android30"),
        ("x86_64-unknown-freebsd14", "x86_64-pc-linux-gnu"),
    ] {
        work.fat("a.o", &[image(one, "", "a")])?;
        work.fat("b.o", &[image(other, "", "b")])?;
        let stderr = run_failing(&mut work.wrapper(["a.o", "b.o", "-o", "x"]))?;
        for part in [
            "a.o has device code for",
            "b.o for",
            one,
            other,
            "Compile both with the same -fopenmp-targets=",
        ] {
            expect_in(
                &stderr
                    .replace("b.o has", "a.o has")
                    .replace("a.o for", "b.o for"),
                part,
            )?;
        }
        work.expect_no_host_link()?;
    }
    passed()
}

fn never_taken() -> Outcome {
    let work = Work::new();
    let host = |arch, bytes| image("x86_64-pc-linux-gnu", arch, bytes);
    let (images, messages) = linked(
        &work,
        &[host("x86-64-v2", "a"), host("x86-64-v3", "b")],
        &[],
    )?;
    expect_equal(
        "images",
        "x86_64.x86-64-v2: a\nx86_64.x86-64-v3: b\n",
        &images,
    )?;
    expect_in(&messages, "the OpenMP kernels of o0.o")?;
    expect_in(
        &messages,
        "the OpenMP runtime loads the first image for this kind of CPU, which is for x86_64-pc-linux-gnu (x86-64-v3)",
    )?;
    // The image for an x86-64 level includes generic code, and the runtime finds it.
    let (images, messages) = linked(&work, &[host("", "a"), host("x86-64-v3", "b")], &[])?;
    expect_equal("images", "x86_64.x86-64-v3: ab\n", &images)?;
    expect_equal("nothing to warn of", "", &messages)?;
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

fn commands() -> Outcome {
    let work = Work::new();
    work.pack(
        "p",
        &[
            image("x86_64-unknown-linux-gnu", "", "one"),
            image("x86_64-redhat-linux", "", "two"),
        ],
    )?;
    let extracted = run(work.command(offld()).args(["inspect", "--json", "p"]))?;
    expect_in(&extracted, "x86_64-redhat-linux")?;
    work.fat(
        "f.o",
        &[
            image("x86_64-unknown-linux-gnu", "", "one"),
            Image::amd("gfx90a", "two"),
        ],
    )?;
    for spelled in [
        "x86_64-pc-linux-gnu",
        "x86_64-linux-gnu",
        "x86_64-unknown-linux-gnu",
    ] {
        run(work
            .command(offld())
            .args(["prune", "--drop", spelled, "f.o", "-o", "pruned.o"]))?;
        let left = run(work.command(offld()).args(["inspect", "pruned.o"]))?;
        expect_in(&left, "gfx90a")?;
        expect_not_in(&left, "x86_64-unknown-linux-gnu")?;
    }
    passed()
}

fn settings() -> Outcome {
    let work = Work::new();
    for kind in ["openmp", "hip"] {
        let of = |arch, bytes: &'static str| Image {
            triple: AMD,
            arch,
            kind,
            bytes: bytes.as_bytes(),
        };
        let images = [
            of("gfx90a", "g"),
            of("gfx90a:xnack+", "p"),
            of("gfx90a:xnack-", "m"),
        ];
        let [generic, on, off] = images;
        for order in [images, [off, generic, on], [on, off, generic]] {
            for asked in [
                &[][..],
                &[
                    "--should-extract=gfx90a:xnack+",
                    "--should-extract=gfx90a:xnack-",
                ],
            ] {
                let (linked, messages) = linked(&work, &order, asked)?;
                let with = |at: &str| {
                    if linked.contains(&format!(": g{at}")) {
                        format!("g{at}")
                    } else {
                        format!("{at}g")
                    }
                };
                let expected = format!(
                    "amdgcn.gfx90a:xnack+: {}\namdgcn.gfx90a:xnack-: {}\n",
                    with("p"),
                    with("m")
                );
                expect_equal(&format!("{kind}, {asked:?}"), &expected, &linked)?;
                expect_equal("nothing to warn of", "", &messages)?;
            }
        }
        // With another feature, and with code for any architecture.
        let images = [
            of("gfx90a:sramecc+", "s"),
            of("gfx90a:sramecc+:xnack+", "p"),
            of("gfx90a:sramecc+:xnack-", "m"),
            of("generic", "g"),
        ];
        let expected = "amdgcn.gfx90a:sramecc+:xnack+: spg\namdgcn.gfx90a:sramecc+:xnack-: smg\n";
        expect_equal("sramecc", expected, &linked(&work, &images, &[])?.0)?;
        // A family keeps its own image, because it serves other architectures, too.
        let images = [of("gfx9-generic", "g"), of("gfx906", "p")];
        expect_equal(
            "family",
            "amdgcn.gfx9-generic: g\namdgcn.gfx906: gp\n",
            &sorted(&linked(&work, &images, &[])?.0),
        )?;
    }
    passed()
}

/// Lines in the order of their contents, the shorter first.
fn sorted(lines: &str) -> String {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_by_key(|line| line.rsplit(": ").next().map(str::len));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn one_setting() -> Outcome {
    let work = Work::new();
    let hip = |arch, bytes: &'static str| Image::hip(arch, bytes.as_bytes());
    let images = [hip("gfx90a", "g"), hip("gfx90a:xnack+", "p")];
    let (asked, messages) = linked(&work, &images, &["--should-extract=gfx90a:xnack+"])?;
    expect_equal("asked", "amdgcn.gfx90a:xnack+: gp\n", &asked)?;
    expect_equal("nothing to warn of", "", &messages)?;
    // Without the option, offld chooses one image, because the bundle cannot hold both. The chosen
    // image has all code.
    let (chosen, messages) = linked(&work, &images, &[])?;
    expect_equal("not asked", "amdgcn.gfx90a:xnack+: gp\n", &chosen)?;
    expect_in(
        &messages,
        "no image is linked for amdgcn-amd-amdhsa (gfx90a)",
    )?;
    // OpenMP's runtime accepts both images, so devices with other settings keep their image.
    let images = [Image::amd("gfx90a", "g"), Image::amd("gfx90a:xnack+", "p")];
    expect_equal(
        "OpenMP",
        "amdgcn.gfx90a: g\namdgcn.gfx90a:xnack+: gp\n",
        &linked(&work, &images, &[])?.0,
    )?;
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
        for inputs in [["generic.o", "specific.o"], ["specific.o", "generic.o"]] {
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
