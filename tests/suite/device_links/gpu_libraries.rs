//! Which libraries `ld.offld` links into OpenMP images for GPUs: those that clang itself names for
//! each target, depending on the libraries installed with it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, Image, NVIDIA};
use crate::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made, passed, run,
    run_failing, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "device_links::libraries_of_gpus_as_clang_names_them",
            as_clang,
        ),
        with_llvm(
            "device_links::libraries_of_gpus_under_other_drivers",
            other_driver,
        ),
        with_llvm(
            "device_links::what_a_kernel_calls_is_taken_from_the_library_that_is_there",
            linked_really,
        ),
        with_llvm(
            "device_links::the_library_of_a_gpu_that_is_missing_is_named",
            missing,
        ),
    ]
}

const ARCHIVE: &str = "!<arch>\n";
const TARGETS: [(&str, &str); 2] = [(AMD, "gfx90a"), (NVIDIA, "sm_70")];

/// An LLVM 22 installation in which a test can add files. clang finds its installation from the
/// path of its executable.
struct Tree<'w> {
    work: &'w Work,
    clang: PathBuf,
}

impl<'w> Tree<'w> {
    fn new(work: &'w Work) -> Result<Tree<'w>, Failed> {
        let root = work.path().join("llvm");
        for folder in ["bin", "lib/clang"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        let clang = root.join("bin/clang");
        std::fs::copy(llvm("clang").canonicalize()?, &clang)?;
        let theirs = Path::new(LLVM).join("../lib");
        // The shared libraries of clang, which it loads from the `lib` directory next to its own.
        for file in std::fs::read_dir(&theirs)?
            .map_while(Result::ok)
            .filter(|file| file.file_name().to_string_lossy().contains(".so"))
        {
            symlink(file.path(), root.join("lib").join(file.file_name()))?;
        }
        for tool in [
            "clang-linker-wrapper",
            "llvm-offload-binary",
            "ld.lld",
            "clang-nvlink-wrapper",
        ] {
            symlink(llvm(tool), root.join("bin").join(tool))?;
        }
        Ok(Tree { work, clang })
    }

    /// Creates files, or directories for names that end in a slash.
    fn install(&self, names: &[&str]) {
        for (triple, _) in TARGETS {
            for name in names {
                let name = format!("llvm/{}", name.replace("TRIPLE", triple));
                if name.ends_with('/') {
                    self.work.file(&format!("{name}stddef.h"), "");
                } else {
                    self.work.file(&name, ARCHIVE);
                }
            }
        }
    }

    /// The libraries that clang's own device link names.
    fn by_clang(&self, triple: &str, arch: &str, words: &[&str]) -> Result<String, Failed> {
        let mut clang = self.work.command(&self.clang);
        clang.args([
            "-###",
            "-fopenmp",
            &format!("-fopenmp-targets={triple}"),
            "-Xopenmp-target",
            &format!("--offload-arch={arch}"),
        ]);
        let stderr = stderr_of(clang.args(words).arg(object(arch)).args(["-o", "program"]))?;
        Ok(libraries(&stderr, |_, word| {
            word.strip_prefix("--device-linker=")?.rsplit('=').next()
        }))
    }

    /// The libraries that offld names as the linker.
    fn by_us(&self, arch: &str, words: &[&str]) -> Result<String, Failed> {
        let mut link = self.work.command(made().links.join("ld.offld"));
        link.env("OFFLD_CLANG", &self.clang)
            .args(["--dry-run", "-o", "x"])
            .arg(object(arch));
        link.args(["-L/usr/lib/llvm-22/lib", "-lomptarget"])
            .args(words);
        Ok(linked(&stderr_of(&mut link)?))
    }
}

fn object(arch: &str) -> String {
    format!("{arch}.o")
}

/// The names of the libraries that `is_it` selects from the arguments of a command.
fn libraries<'t>(text: &'t str, is_it: impl Fn(&'t str, &'t str) -> Option<&'t str>) -> String {
    let words: Vec<&str> = text
        .split_whitespace()
        .map(|word| word.trim_matches('"'))
        .collect();
    let names = words
        .windows(2)
        .filter_map(|pair| is_it(pair[0], pair[1])?.strip_prefix("-l"));
    names.collect::<Vec<_>>().join(" ")
}

/// The libraries in a device compiler's command line.
fn linked(text: &str) -> String {
    libraries(text, |before, word| (before == "-Xlinker").then_some(word))
}

fn objects(work: &Work) -> Outcome {
    for (triple, arch) in TARGETS {
        work.fat(
            &object(arch),
            &[Image {
                triple,
                arch,
                kind: "openmp",
                bytes: b"A",
            }],
        )?;
    }
    passed()
}

/// With more and more libraries installed, offld names the same libraries as clang.
fn as_clang() -> Outcome {
    let work = Work::new();
    objects(&work)?;
    let tree = Tree::new(&work)?;
    let steps: [(&[&str], &str); 4] = [
        (&["lib/TRIPLE/libompdevice.a"], "ompdevice"),
        // clang adds libc if the headers of libc are installed.
        (&["lib/TRIPLE/libc.a", "lib/TRIPLE/libm.a"], "ompdevice"),
        (&["include/TRIPLE/"], "ompdevice c m"),
        (
            &["lib/clang/22/lib/TRIPLE/libclang_rt.builtins.a"],
            "ompdevice c m clang_rt.builtins",
        ),
    ];
    for (files, expected) in steps {
        tree.install(files);
        for (triple, arch) in TARGETS {
            expect_equal(
                &format!("clang: {arch}"),
                expected,
                &tree.by_clang(triple, arch, &[])?,
            )?;
            expect_equal(&format!("offld: {arch}"), expected, &tree.by_us(arch, &[])?)?;
        }
    }
    // A relocatable link, and the order relative to user arguments.
    for (triple, arch) in TARGETS {
        expect_equal(
            "clang -r",
            "ompdevice",
            &tree.by_clang(triple, arch, &["-r"])?,
        )?;
        expect_equal("offld -r", "ompdevice", &tree.by_us(arch, &["-r"])?)?;
        let expected = "ompdevice mine c m clang_rt.builtins";
        expect_equal(
            "clang",
            expected,
            &tree.by_clang(triple, arch, &["-Xoffload-linker", "-lmine"])?,
        )?;
        expect_equal(
            "offld",
            expected,
            &tree.by_us(arch, &["--device-linker=-lmine"])?,
        )?;
        // A library that the user names is not added again.
        let own = format!("--device-linker={triple}=-lc");
        expect_equal(
            "offld",
            "ompdevice c m clang_rt.builtins",
            &tree.by_us(arch, &[&own])?,
        )?;
        expect_equal("offld", "", &tree.by_us(arch, &["--no-offload-runtime"])?)?;
    }
    // Fortran's runtime, which only its own driver adds.
    tree.install(&["lib/clang/22/lib/TRIPLE/libflang_rt.runtime.a"]);
    for (_, arch) in TARGETS {
        expect_equal(
            "offld",
            "ompdevice c m clang_rt.builtins flang_rt.runtime",
            &tree.by_us(arch, &[])?,
        )?;
    }
    passed()
}

/// The same with gcc as the driver.
fn other_driver() -> Outcome {
    let work = Work::new();
    objects(&work)?;
    let tree = Tree::new(&work)?;
    tree.install(&[
        "lib/TRIPLE/libompdevice.a",
        "lib/TRIPLE/libc.a",
        "include/TRIPLE/",
    ]);
    tree.install(&["lib/clang/22/lib/TRIPLE/libclang_rt.builtins.a"]);
    for (_, arch) in TARGETS {
        let mut gcc = work.command("gcc");
        gcc.env("OFFLD_CLANG", &tree.clang)
            .arg("-B")
            .arg(&made().as_ld)
            .arg("-Wl,--dry-run")
            .arg(object(arch));
        let stderr = stderr_of(gcc.args(["-lomptarget", "-o", "x"]))?;
        expect_equal(arch, "ompdevice c clang_rt.builtins", &linked(&stderr))?;
    }
    passed()
}

/// If a library is missing, clang's link fails. offld names the missing library if the link fails
/// without it.
fn missing() -> Outcome {
    let work = Work::new();
    objects(&work)?;
    let tree = Tree::new(&work)?;
    tree.install(&[
        "lib/TRIPLE/libompdevice.a",
        "lib/TRIPLE/libm.a",
        "include/TRIPLE/",
    ]);
    let (triple, arch) = TARGETS[0];
    let link = |words: &[&str]| {
        let mut link = work.command(made().links.join("ld.offld"));
        link.env("OFFLD_CLANG", &tree.clang)
            .args(["-o", "x"])
            .arg(object(arch))
            .arg("-lomptarget")
            .args(words);
        link
    };
    // The image is not valid device code, so the link fails.
    let stderr = run_failing(&mut link(&[]))?;
    expect_in(
        &stderr,
        &format!("OpenMP device code for {triple} ({arch}) needs libc, which is missing in "),
    )?;
    expect_in(&stderr, &format!("llvm/lib/{triple}: install "))?;
    work.file("mine/libc.a", ARCHIVE);
    for word in [
        format!("--device-linker={triple}=-Lmine"),
        format!("--device-linker={triple}=mine/libc.a"),
    ] {
        expect_not_in(&run_failing(&mut link(&[&word]))?, "needs libc")?;
    }
    passed()
}

/// Bitcode for gfx90a.
fn bitcode(work: &Work, name: &str, source: &str) -> Result<Vec<u8>, Failed> {
    work.file(&format!("{name}.c"), source);
    let words = [
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx90a",
        "-nogpulib",
        "-O1",
        "-emit-llvm",
        "-c",
    ];
    run(work
        .command(llvm("clang"))
        .args(words)
        .arg(format!("{name}.c"))
        .args(["-o", &format!("{name}.o")]))?;
    Ok(std::fs::read(work.path().join(format!("{name}.o")))?)
}

/// With the real compiler and linker, the image contains the library's code, and another library
/// produces another image.
fn linked_really() -> Outcome {
    let work = Work::new();
    let kernel = "int helper(int); __attribute__((amdgpu_kernel, visibility(\"protected\"))) void kernel(int *a) { *a = helper(*a); }";
    let kernel = bitcode(&work, "kernel", kernel)?;
    work.fat(
        "a.o",
        &[Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "openmp",
            bytes: &kernel,
        }],
    )?;
    let tree = Tree::new(&work)?;
    let install = |answer: u32| -> Outcome {
        bitcode(
            &work,
            "helper",
            &format!("int helper(int x) {{ return x + {answer}; }}"),
        )?;
        std::fs::create_dir_all(work.path().join("llvm/lib").join(AMD))?;
        work.run(
            llvm("llvm-ar"),
            [
                "rcsD",
                &format!("llvm/lib/{AMD}/libompdevice.a"),
                "helper.o",
            ],
        )?;
        // A file that was written recently can change again without a new timestamp.
        std::thread::sleep(std::time::Duration::from_millis(60));
        passed()
    };
    let link = || -> Result<(String, Vec<u8>), Failed> {
        let mut link = work.command(made().links.join("ld.offld"));
        link.env("OFFLD_CLANG", &tree.clang)
            .env("OFFLD_CACHE", work.path().join("cache"));
        let messages = stderr_of(link.args([
            "--wrapper-verbose",
            "-shared",
            "-o",
            "x.so",
            "a.o",
            "-lomptarget",
        ]))?;
        Ok((messages, std::fs::read(work.path().join("x.so"))?))
    };
    install(1000)?;
    let (_, first) = link()?;
    let (messages, again) = link()?;
    expect_in(
        &messages,
        "device link for amdgcn-amd-amdhsa (gfx90a): found in the cache",
    )?;
    ensure(first == again, || "another image is found")?;
    install(2000)?;
    let (messages, other) = link()?;
    expect_in(&messages, "libompdevice.a has changed")?;
    ensure(first != other, || "a stale image")?;
    std::fs::remove_file(work.path().join(format!("llvm/lib/{AMD}/libompdevice.a")))?;
    let mut failing = work.command(made().links.join("ld.offld"));
    failing
        .env("OFFLD_CLANG", &tree.clang)
        .args(["-shared", "-o", "x.so", "a.o", "-lomptarget"]);
    let messages = run_failing(&mut failing)?;
    for part in [
        "undefined hidden symbol: helper",
        "needs libompdevice, which is missing in ",
    ] {
        expect_in(&messages, part)?;
    }
    passed()
}
