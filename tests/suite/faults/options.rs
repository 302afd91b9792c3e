//! Faults of options that change the linked images or the output: F12 (`--override-image`), F28
//! (`--emit-fatbin-only`), and `--compress`.

use libtest_mimic::{Failed, Trial};

use crate::cuda::expect_no_cuda_tool;
use crate::kinds::stubs;
use crate::kit::{AMD, HOST, Image, NVIDIA};
use crate::support::{
    LLVM, Outcome, Work, cuda_tools, ensure, expect_equal, expect_in, expect_no_file, llvm, made,
    missing, output, passed, run, run_failing, shown, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f12_an_override_of_each_kind", f12_good),
        test("releases::faults::f12_an_override_for_cuda", f12_cuda),
        with_llvm("faults::f28_fat_binaries_are_llvms_byte_for_byte", f28_good),
        with_llvm("faults::f28_a_fat_binary_of_cuda", f28_cuda),
        with_llvm("faults::compressed_bundles_can_be_read_by_llvm", compressed),
    ]
}

/// Creates `name`, a real image for an AMD GPU.
fn amd_image(work: &Work, name: &str, arch: &str) -> Result<(), Failed> {
    work.file(
        "device.c",
        "__attribute__((visibility(\"default\"))) int on_device;\n",
    );
    let cpu = format!("-mcpu={arch}");
    run(work.command(llvm("clang")).args([
        "--target=amdgcn-amd-amdhsa",
        "-nogpulib",
        &cpu,
        "device.c",
        "-o",
        name,
    ]))
    .map(drop)
}

/// The registration log of `./program` in `work`, linked from `main.o` with `words`.
fn ledger(work: &Work, words: &[String], libraries: &[&str], path: &str) -> Result<String, Failed> {
    let main = work.file("main.c", "int main(void) { return 0; }\n");
    run(work.command(llvm("clang")).arg("-c").arg(main))?;
    let mut link = work.command(llvm("clang"));
    let before = std::env::var("PATH").unwrap_or_default();
    link.env("PATH", format!("{path}:{before}"))
        .arg("--offload-link")
        .arg("-B")
        .arg(&made().links);
    link.arg(format!("-L{}", stubs().display()))
        .args(["-o", "program", "main.o"]);
    run(link
        .args(
            words
                .iter()
                .map(|word| format!("-Wl,--override-image={word}")),
        )
        .args(libraries))?;
    work.expect_no_temps()?;
    let file = work.path().join("ledger");
    run(work
        .command("./program")
        .env("OFFLD_LEDGER", &file)
        .env("LD_LIBRARY_PATH", stubs()))?;
    Ok(std::fs::read_to_string(&file)?)
}

fn f12_good() -> Outcome {
    let work = Work::new();
    work.file("host.c", "int on_device;\n");
    work.run(
        llvm("clang"),
        ["-shared", "-fPIC", "-nostdlib", "host.c", "-o", "host.so"],
    )?;
    amd_image(&work, "amd.so", "gfx90a")?;
    amd_image(&work, "old.so", "gfx908")?;
    work.pack(
        "sycl.pack",
        &[Image {
            triple: "spirv64-unknown-unknown",
            arch: "",
            kind: "sycl",
            bytes: b"SPIR-V",
        }],
    )?;
    let words = [
        "openmp=host.so",
        "openmp=amd.so",
        "hip=amd.so",
        "hip=old.so",
        "sycl=sycl.pack",
    ]
    .map(str::to_owned);
    let ledger = ledger(&work, &words, &["-lomptarget", "-lamdhip64", "-lsycl"], "")?;
    for wanted in [
        "openmp register lib=0 images=2 ",
        "in=offloadbinary(kind=openmp,image=object,triple=amdgcn-amd-amdhsa,arch=gfx90a)",
        "in=offloadbinary(kind=openmp,image=object,triple=x86_64--",
        "hip bundle lib=0 entries=3\n",
        " id=hip-amdgcn-amd-amdhsa--gfx908 ",
        " id=hip-amdgcn-amd-amdhsa--gfx90a ",
        "sycl image lib=0 index=0 target=spirv64-unknown-unknown ",
    ] {
        expect_in(&ledger, wanted)?;
    }
    // The files belong to the user, so they must remain.
    for name in ["host.so", "amd.so", "sycl.pack"] {
        ensure(work.path().join(name).is_file(), || {
            format!("{name} is not there any more")
        })?;
    }
    passed()
}

fn f12_cuda() -> Outcome {
    let Some(cuda) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let path = cuda.join("bin").display().to_string();
    // `sm_90a` code runs on no later architecture. A cubin of CUDA 13 states that in a section.
    for (arch, ptx) in [("sm_80", "7.8"), ("sm_90a", "8.0")] {
        let work = Work::new();
        let source = format!(
            ".version {ptx}\n.target {arch}\n.address_size 64\n.visible .entry kernel() {{ ret; }}\n"
        );
        work.file("device.ptx", &source);
        let option = format!("-arch={arch}");
        run(work.command(cuda.join("bin/ptxas")).args([
            &option,
            "device.ptx",
            "-o",
            "device.cubin",
        ]))?;
        let ledger = ledger(
            &work,
            &["cuda=device.cubin".to_owned()],
            &["-lcudart"],
            &path,
        )?;
        let sm = arch.trim_start_matches("sm_");
        expect_in(
            &ledger,
            &format!(
                "cuda image lib=0 index=0 kind=elf sm={}",
                sm.trim_end_matches('a')
            ),
        )?;
        let stdout = run(work
            .command(crate::support::offld())
            .args(["inspect", "device.cubin"]))?;
        expect_in(&stdout, arch)?;
        let packed = run(work
            .command(cuda.join("bin/cuobjdump"))
            .args(["-lelf", "program"]))?;
        expect_in(&packed, &format!(".{arch}.cubin"))?;
    }
    passed()
}

/// The outputs of offld and LLVM's wrapper for the same arguments, with the real device compiler.
fn by_both(work: &Work, words: &[&str]) -> Result<(Vec<u8>, Vec<u8>), Failed> {
    for (program, name) in [
        (made().links.join("clang-linker-wrapper"), "ours"),
        (llvm("clang-linker-wrapper"), "theirs"),
    ] {
        let mut link = work.command(program);
        link.env("OFFLD_CLANG", llvm("clang")).args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--emit-fatbin-only",
        ]);
        run(link.args(words).args(["-o", name]))?;
    }
    Ok((
        std::fs::read(work.path().join("ours"))?,
        std::fs::read(work.path().join("theirs"))?,
    ))
}

/// Creates an object with device code of `kind` as bitcode.
fn real(work: &Work, object: &str, kind: &str, archs: &[&str]) -> Result<(), Failed> {
    work.file(
        "device.c",
        "__attribute__((visibility(\"default\"))) int on_device = 7;\n",
    );
    let mut images = Vec::new();
    for arch in archs {
        let (name, cpu) = (format!("{arch}.bc"), format!("-mcpu={arch}"));
        let flags = [
            "--target=amdgcn-amd-amdhsa",
            "-nogpulib",
            &cpu,
            "-O1",
            "-emit-llvm",
            "-c",
            "device.c",
            "-o",
            &name,
        ];
        work.run(llvm("clang"), flags)?;
        images.push(std::fs::read(work.path().join(&name))?);
    }
    let images: Vec<Image<'_>> = archs
        .iter()
        .zip(&images)
        .map(|(arch, bytes)| Image {
            triple: AMD,
            arch,
            kind,
            bytes,
        })
        .collect();
    work.fat(object, &images).map(drop)
}

fn f28_good() -> Outcome {
    let work = Work::new();
    real(&work, "hip.o", "hip", &["gfx90a", "gfx908"])?;
    real(&work, "openmp.o", "openmp", &["gfx90a"])?;
    for object in ["hip.o", "openmp.o"] {
        let (ours, theirs) = by_both(&work, &[object])?;
        if ours != theirs {
            return Err(format!(
                "{object}: {} bytes, LLVM's {} bytes, or others",
                ours.len(),
                theirs.len()
            )
            .into());
        }
    }
    // A raw OffloadBinary as input, as clang passes it for HIP without -fgpu-rdc.
    let bytes = std::fs::read(work.path().join("gfx90a.bc"))?;
    work.pack(
        "k.out",
        &[Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "hip",
            bytes: &bytes,
        }],
    )?;
    let (ours, theirs) = by_both(&work, &["k.out"])?;
    ensure(ours == theirs, || {
        format!(
            "LLVM writes {} bytes, we {} or others",
            theirs.len(),
            ours.len()
        )
    })?;
    work.fat("cpu.o", &[Image::host("cpu")])?;
    run(&mut work.wrapper(["--emit-fatbin-only", "-o", "cpu", "cpu.o"]))?;
    let listed = work.run(
        llvm("llvm-offload-binary"),
        [
            "cpu",
            &format!("--image=file=image,triple={HOST},kind=openmp"),
        ],
    );
    listed.and_then(|_| {
        expect_equal(
            "the image",
            "cpu",
            &std::fs::read_to_string(work.path().join("image"))?,
        )
    })?;
    passed()
}

fn f28_cuda() -> Outcome {
    let work = Work::new();
    let image = |arch| Image {
        triple: NVIDIA,
        arch,
        kind: "cuda",
        bytes: b"CUDA",
    };
    work.fat("a.o", &[image("sm_80"), image("sm_90")])?;
    work.tool(
        "sdk/bin/fatbinary",
        "#!/bin/sh\nprintf '%s\\n' \"$@\" | sed 's:/.*/::' > \"$3\"\n",
    );
    run(&mut work.wrapper([
        "--cuda-path=sdk",
        "--emit-fatbin-only",
        "-o",
        "x.fatbin",
        "a.o",
    ]))?;
    let expected = "-64\n--create\nx.fatbin.fatbin\n--image3=kind=elf,sm=90,file=x.fatbin.nvptx64.sm_90.img\n\
                    --image3=kind=elf,sm=80,file=x.fatbin.nvptx64.sm_80.img\n";
    expect_equal(
        "what fatbinary wrote",
        expected,
        &std::fs::read_to_string(work.path().join("x.fatbin"))?,
    )?;
    work.expect_no_temps()?;
    let mut without = work.wrapper([
        "--emit-fatbin-only",
        "--wrapper-verbose",
        "-o",
        "y.fatbin",
        "a.o",
    ]);
    if expect_no_cuda_tool(&mut without, "fatbinary", "")? {
        expect_no_file(&work.path().join("y.fatbin"))?;
    }
    passed()
}

/// With an explicit compression level, and with LLVM's default.
fn compressed() -> Outcome {
    let work = Work::new();
    // Data that compresses better at higher levels.
    let words: String = (0..20_000)
        .map(|n: u32| format!("{} ", n.wrapping_mul(2_654_435_761) % 1000))
        .collect();
    let image = |arch| Image {
        triple: AMD,
        arch,
        kind: "hip",
        bytes: words.as_bytes(),
    };
    work.fat("a.o", &[image("gfx90a"), image("gfx908")])?;
    let mut sizes = Vec::new();
    for options in [
        &[][..],
        &["--compress"],
        &["--compress", "--compression-level=1"],
        &["--compress", "--compression-level=19"],
    ] {
        run(&mut work.wrapper([&["--emit-fatbin-only", "-o", "x.hipfb", "a.o"], options].concat()))?;
        let listed = work.run(
            llvm("clang-offload-bundler"),
            ["--list", "--type=o", "--input=x.hipfb"],
        )?;
        let expected = "hip-amdgcn-amd-amdhsa--gfx908\nhip-amdgcn-amd-amdhsa--gfx90a\nhost-x86_64-unknown-linux-gnu-\n";
        expect_equal(&format!("{options:?}"), expected, &listed)?;
        let target = "--targets=hip-amdgcn-amd-amdhsa--gfx90a";
        work.run(
            llvm("clang-offload-bundler"),
            [
                "--unbundle",
                "--type=o",
                target,
                "--input=x.hipfb",
                "--output=image",
            ],
        )?;
        let image = std::fs::read_to_string(work.path().join("image"))?;
        ensure(image == words, || {
            format!(
                "the image came out with {} bytes, of {}, or with others",
                image.len(),
                words.len()
            )
        })?;
        sizes.push(std::fs::metadata(work.path().join("x.hipfb"))?.len());
    }
    if !(sizes[0] > sizes[2] && sizes[2] > sizes[3]) {
        return Err(format!(
            "sizes without compression, at the default, least and most: {sizes:?}"
        )
        .into());
    }
    let options = [
        "--compress",
        "--compression-level=many",
        "--emit-fatbin-only",
        "-o",
        "x.hipfb",
        "a.o",
    ];
    expect_in(
        &run_failing(&mut work.wrapper(options))?,
        "--compression-level=many: expected a number",
    )?;
    // The same in a program, where one compressed bundle fills the section.
    let lld = format!("--linker-path={LLVM}/ld.lld");
    let mut link = work.wrapper([&lld, "--compress", "-shared", "-o", "x.so", "a.o"]);
    let linked = output(&mut link)?;
    ensure(linked.status.success(), || shown(&link, &linked))?;
    work.run(
        llvm("llvm-objcopy"),
        ["--dump-section", ".hip_fatbin=dumped", "x.so", "/dev/null"],
    )?;
    work.run(
        llvm("clang-offload-bundler"),
        ["--list", "--type=o", "--input=dumped"],
    )?;
    passed()
}
