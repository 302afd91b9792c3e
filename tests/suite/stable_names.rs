//! Stable names of OpenMP kernels: checkouts at other places find their device links in the cache,
//! and programs do the same as with the names of clang.

mod attacks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, cuda_tools, ensure, expect_equal, expect_in,
    expect_not_in, host_linker, llvm, made, missing, nvcc, offld, passed, run, run_offloaded,
    stderr_of, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let shared = CHECKOUTS.into_iter().map(|(name, flags)| {
        with_llvm(&format!("stable_names::checkouts::{name}"), move || {
            checkouts(flags, None)
        })
    });
    let behaves = FORMS.into_iter().map(|(name, compile, link)| {
        with_llvm(&format!("stable_names::programs::{name}"), move || {
            programs(compile, link)
        })
    });
    let units = [
        with_llvm("stable_names::units", || {
            units("-Wl,--wrapper-distribute=off", false)
        }),
        with_llvm("stable_names::distributed_units", || {
            units("-Wl,--wrapper-distribute", true)
        }),
    ];
    let nvidia = NVIDIA.into_iter().map(|(name, gpu, form)| {
        with_llvm(
            &format!("releases::stable_names::nvidia::{name}"),
            move || nvidia(gpu, form, None),
        )
    });
    shared
        .chain(behaves)
        .chain(nvidia)
        .chain(units)
        .chain(attacks::trials())
        .chain([
            with_llvm("stable_names::same_bytes", || same_bytes(&[], false)),
            with_llvm("stable_names::same_bytes_with_debug_information", || {
                same_bytes(&["-g"], true)
            }),
            with_llvm("stable_names::same_bytes_of_libraries", same_libraries),
            with_llvm("stable_names::copies_that_cannot_be_made", no_copies),
            with_llvm("stable_names::files_with_equal_names", equal_names),
            with_llvm("stable_names::kernels_in_a_header", header),
            with_llvm(
                "stable_names::a_program_that_uses_its_file_numbers",
                numbers,
            ),
            with_llvm("stable_names::the_meaning_of_bitcode_stays", meaning),
            with_llvm("stable_names::objects_that_are_registered", registered),
            with_llvm("stable_names::edits_of_host_code", edits),
            with_llvm("stable_names::a_variable_whose_name_ends_a_kernels", joined),
        ])
        .collect()
}

/// Compilations whose device link two checkouts share.
const CHECKOUTS: [(&str, &[&str]); 5] = [
    ("cpu", &["-O2"]),
    ("cpu_debug", &["-O1", "-g"]),
    ("amd", &["-O2", "--offload-arch=gfx90a", "-nogpulib"]),
    (
        "amd_debug",
        &["-O1", "-g", "--offload-arch=gfx90a", "-nogpulib"],
    ),
    (
        "amd_thin",
        &[
            "-O2",
            "--offload-arch=gfx90a",
            "-nogpulib",
            "-foffload-lto=thin",
        ],
    ),
];

/// Device code for NVIDIA GPUs: an architecture, and options for its form. Objects for these
/// architectures differ in relocations and sections.
const NVIDIA: [(&str, &str, &[&str]); 4] = [
    ("sm_75", "sm_75", &[]),
    ("sm_90", "sm_90", &[]),
    ("sm_120", "sm_120", &[]),
    ("bitcode", "sm_90", &["-foffload-lto"]),
];

/// Forms of programs: options for compiling, and options for the link.
const FORMS: [(&str, &[&str], &[&str]); 12] = [
    ("lld", &[], &["-fuse-ld=lld"]),
    ("bfd", &[], &["-fuse-ld=bfd"]),
    ("gold", &[], &["-fuse-ld=gold"]),
    ("mold", &[], &["-fuse-ld=mold"]),
    ("wild", &[], &["-fuse-ld=wild"]),
    ("tail_merging", &[], &["-fuse-ld=lld", "-Wl,-O2"]),
    ("no_pie", &["-fno-pie"], &["-fuse-ld=lld", "-no-pie"]),
    (
        "gc",
        &["-ffunction-sections", "-fdata-sections"],
        &["-fuse-ld=lld", "-Wl,--gc-sections"],
    ),
    ("stripped", &["-g"], &["-fuse-ld=bfd", "-Wl,-s"]),
    (
        "late",
        &[],
        &["-fuse-ld=lld", "-Wl,--wrapper-late-images=on"],
    ),
    (
        "late_bfd",
        &[],
        &["-fuse-ld=bfd", "-Wl,--wrapper-late-images=on"],
    ),
    ("host_lto", &["-flto"], &["-fuse-ld=lld", "-flto"]),
];

/// Lets a device link leave symbols undefined.
const ANY_SYMBOL: [&str; 2] = ["-Xoffload-linker", "--unresolved-symbols=ignore-all"];

const MAIN: &str = r#"#include <cstdio>
#include "shared.h"
int other(int);
struct S { int a; float b; };
#pragma omp begin declare target
int table[4] = {1, 2, 3, 4};
static int counter;
__attribute__((noinline)) static int helper(int v, S *s) {
  counter += v;
  switch (v) { case 47: return 1; case 1000: return 2; case 12: return 9; default: return s->a + v; }
}
#pragma omp end declare target
int main() {
  int x = 0; S s{1, 2.5f};
#pragma omp target map(tofrom: x, s)
  { x = helper(3, &s); }
  double d[32] = {1};
#pragma omp target map(tofrom: d)
  for (int i = 0; i < 32; ++i) d[i] = d[i] * 2 + table[i & 3];
  std::printf("%d %g %d %d %s\n", x, d[0] + d[31], other(5), shared(1), "main_l15");
}
"#;

const OTHER: &str = r#"#include "shared.h"
static int local(int v) {
#pragma omp target map(tofrom: v)
  v = v * 3;
  return v;
}
int other(int v) { return local(v) + shared(v); }
"#;

const SHARED: &str = r#"#pragma once
inline int shared(int v) {
#pragma omp target map(tofrom: v)
  v = v + 100;
  return v;
}
"#;

const OUTPUT: &str = "4 7 120 101 main_l15\n";

/// Writes the sources into the directory `tree`.
fn sources(work: &Work, tree: &str) {
    work.file(&format!("{tree}/main.cpp"), MAIN);
    work.file(&format!("{tree}/other.cpp"), OTHER);
    work.file(&format!("{tree}/shared.h"), SHARED);
}

/// A command of clang++ in the directory `tree`.
fn clang(work: &Work, tree: &str) -> Command {
    let mut command = work.command(llvm("clang++"));
    command
        .current_dir(work.path().join(tree))
        .arg("-fopenmp")
        .env("OFFLD_CACHE", work.path().join("cache"));
    command
}

/// Compiles the files `names` in `tree`.
fn compile(work: &Work, tree: &str, names: &[&str], flags: &[&str]) -> Result<(), Failed> {
    let from = work.path().join(tree);
    for name in names {
        let map = format!("-ffile-prefix-map={}=.", from.display());
        run(clang(work, tree)
            .args(flags)
            .args(["-fPIC", &map, "-c"])
            .arg(format!("{name}.cpp")))?;
    }
    Ok(())
}

/// The link of `inputs` in `tree` to `program`.
fn link(work: &Work, tree: &str, inputs: &[&str], flags: &[&str]) -> Command {
    let mut command = clang(work, tree);
    command
        .arg("-B")
        .arg(&made().links)
        .args(&Release::newest().link)
        .args(inputs)
        .args(flags)
        .args(["-o", "program", "-Wl,--wrapper-verbose"]);
    command
}

/// Lets `command` use the cache of a machine: the only one, or, with the URL of a remote cache, the one
/// of the checkout `tree`.
fn with_cache<'c>(
    command: &'c mut Command,
    work: &Work,
    tree: &str,
    remote: Option<&str>,
) -> &'c mut Command {
    let Some(remote) = remote else {
        return command.env("OFFLD_CACHE", work.path().join("cache"));
    };
    command
        .env("OFFLD_CACHE", work.path().join(format!("cache of {tree}")))
        .env("OFFLD_CACHE_REMOTE", remote)
        .env("OFFLD_CACHE_REMOTE_TIMEOUT", "30")
}

/// Two checkouts on two machines that share the cache at `remote`.
pub(crate) fn machines(remote: &str) -> Outcome {
    for (_, flags) in CHECKOUTS {
        checkouts(flags, Some(remote))?;
    }
    // `make test` runs without NVIDIA's tools.
    for (_, gpu, form) in NVIDIA.into_iter().filter(|_| nvcc().is_some()) {
        nvidia(gpu, form, Some(remote))?;
    }
    passed()
}

/// Whether all device links of a verbose link were found in the cache.
fn all_found(stderr: &str) -> bool {
    let lines = || {
        stderr
            .lines()
            .filter(|line| line.contains("note: device link for"))
    };
    lines().next().is_some() && lines().all(|line| line.contains("found in the"))
}

fn checkouts(flags: &'static [&'static str], remote: Option<&str>) -> Outcome {
    let work = Work::new();
    // Another file system has other numbers, with fewer digits.
    let memory = Path::new("/dev/shm");
    let elsewhere = memory.is_dir().then(|| Work::within(memory));
    let is_cpu = !flags.contains(&"-nogpulib");
    let target: &[&str] = if is_cpu { &OFFLOAD[1..] } else { &[] };
    let compile_flags = [flags, target].concat();
    // There are no device libraries for AMD GPUs here.
    let open: &[&str] = if is_cpu { &[] } else { &ANY_SYMBOL };
    let link_flags = [&compile_flags, open].concat();
    let mut first = true;
    let trees = [(&work, "one"), (&work, "two/deeper")];
    // Source locations in debug information keep their length.
    let has_debug = flags.contains(&"-g");
    let more = elsewhere
        .iter()
        .filter(|_| !has_debug)
        .map(|work| (work, "three"));
    for (place, tree) in trees.into_iter().chain(more) {
        sources(place, tree);
        compile(place, tree, &["main", "other"], &compile_flags)?;
        let mut command = link(place, tree, &["main.o", "other.o"], &link_flags);
        let stderr = stderr_of(with_cache(&mut command, &work, tree, remote))?;
        ensure(first != all_found(&stderr), || format!("{tree}: {stderr}"))?;
        first = false;
        if is_cpu {
            let program = place.path().join(tree).join("program");
            expect_equal(
                "output",
                OUTPUT,
                &run_offloaded(&mut place.command(program))?,
            )?;
        }
    }
    passed()
}

/// ThinLTO: after a change of one unit in another checkout, only that unit is compiled. `remote`:
/// whether the checkouts are on two machines.
fn units(option: &'static str, remote: bool) -> Outcome {
    let work = Work::new();
    let url = format!("file://{}/remote", work.path().display());
    let (_, thin) = CHECKOUTS[4];
    // The compiler of distributed units has no equivalent of `-O2` at the link.
    let link_flags = [&thin[1..], &ANY_SYMBOL, &[option]].concat();
    for (tree, other, counts) in [
        (
            "one",
            OTHER.to_owned(),
            "0 units found in the cache, 2 compiled",
        ),
        (
            "two/deeper",
            OTHER.replace("v * 3", "v * 7"),
            if remote {
                "1 units found in the cache (1 of them in the remote cache), 1 compiled"
            } else {
                "1 units found in the cache, 1 compiled"
            },
        ),
    ] {
        sources(&work, tree);
        work.file(&format!("{tree}/other.cpp"), &other);
        compile(&work, tree, &["main", "other"], thin)?;
        let mut command = link(&work, tree, &["main.o", "other.o"], &link_flags);
        let stderr = stderr_of(with_cache(
            &mut command,
            &work,
            tree,
            remote.then_some(url.as_str()),
        ))?;
        expect_in(&stderr, counts)?;
    }
    passed()
}

/// Device code for NVIDIA GPUs. Two checkouts have the same image, and its machine code is that of
/// the link with clang's names.
fn nvidia(gpu: &'static str, form: &'static [&'static str], remote: Option<&str>) -> Outcome {
    let (Some(toolkit), Some(tools)) = (nvcc(), cuda_tools(22)) else {
        return missing("nvcc");
    };
    let work = Work::new();
    let cuda = format!("--cuda-path={}", toolkit.display());
    let arch = format!("--offload-arch={gpu}");
    let flags = [
        "-O1",
        &arch,
        &cuda,
        "-nogpulib",
        "-Wno-unknown-cuda-version",
    ];
    for tree in ["one", "two/deeper"] {
        sources(&work, tree);
        compile(&work, tree, &["main", "other"], &[&flags, form].concat())?;
    }
    let runtime = stubs_of_runtime(&work, gpu, &flags, &toolkit)?;
    let runtime = runtime.to_str().ok_or("a path in UTF-8")?;
    let mut code = Vec::new();
    for (tree, stable) in [("one", "off"), ("one", "on"), ("two/deeper", "on")] {
        let option = format!("-Wl,--wrapper-stable-names={stable}");
        let flags = [&flags[..], form, &[&option]].concat();
        let inputs = ["main.o", "other.o", runtime];
        let mut command = link(&work, tree, &inputs, &flags);
        let stderr = stderr_of(with_cache(&mut command, &work, tree, remote))?;
        expect_not_in(&stderr, "warning")?;
        ensure((tree != "one") == all_found(&stderr), || {
            format!("{tree}, {stable}: {stderr}")
        })?;
        let images = format!("{tree}/images.{stable}");
        run(work
            .command(offld())
            .args(["inspect", "--extract", &images])
            .arg(work.path().join(tree).join("program")))?;
        let found = std::fs::read_dir(work.path().join(&images))?;
        let found: Vec<_> = found.collect::<Result<_, _>>()?;
        let [image] = &found[..] else {
            return Err(format!("{} images", found.len()).into());
        };
        let listing = run(work
            .command(tools.join("bin/cuobjdump"))
            .arg("-sass")
            .arg(image.path()))?;
        code.push(blank(&listing));
    }
    expect_in(&code[0], "Function : *")?;
    expect_equal("machine code", &code[0], &code[1])?;
    expect_equal("machine code", &code[1], &code[2])?;
    work.expect_no_temps()?;
    passed()
}

/// An object with functions that do nothing, in place of the OpenMP runtime for NVIDIA GPUs, which
/// clang's packages do not have.
fn stubs_of_runtime(
    work: &Work,
    gpu: &str,
    flags: &[&str],
    toolkit: &Path,
) -> Result<PathBuf, Failed> {
    let declaration = regex::Regex::new(r"\.extern \.func\s+(\([^)]*\))?\s*(\w+)\s*(\([^)]*\))")?;
    let mut functions = BTreeMap::new();
    let mut head = String::new();
    for name in ["main", "other"] {
        let assembly = format!("{name}.ptx");
        run(clang(work, "one")
            .args(flags)
            .args(["--offload-device-only", "-S", "-o", &assembly])
            .arg(format!("{name}.cpp")))?;
        let assembly = std::fs::read_to_string(work.path().join("one").join(assembly))?;
        let end = ".address_size 64";
        let (before, _) = assembly.split_once(end).ok_or("a size of addresses")?;
        head = before.to_owned() + end;
        for found in declaration.captures_iter(&assembly) {
            let result = found.get(1).map_or("", |result| result.as_str());
            let function = format!(
                "\n.visible .func {result} {} {} {{ ret; }}",
                &found[2], &found[3]
            );
            functions.insert(found[2].to_owned(), function);
        }
    }
    let functions: String = functions.into_values().collect();
    work.file("runtime.ptx", head + &functions);
    work.file("runtime.cpp", "");
    run(work.command(toolkit.join("bin/ptxas")).args([
        "-c",
        "-arch",
        gpu,
        "runtime.ptx",
        "-o",
        "runtime.cubin",
    ]))?;
    run(work
        .command(llvm("llvm-offload-binary"))
        .args(["-o", "runtime.bin", "--image"])
        .arg(format!(
            "file=runtime.cubin,triple=nvptx64-nvidia-cuda,arch={gpu},kind=openmp"
        )))?;
    run(work.command(llvm("clang++")).args([
        "-c",
        "runtime.cpp",
        "-Xclang",
        "-fembed-offload-object=runtime.bin",
    ]))?;
    Ok(work.path().join("runtime.o"))
}

/// Renames also the objects of the host link.
const IN_OBJECTS: &str = "-Wl,--wrapper-stable-names=objects";

/// Programs of two places are the same bytes, of objects and of an archive.
fn same_bytes(flags: &'static [&'static str], has_debug: bool) -> Outcome {
    let work = Work::new();
    let memory = Path::new("/dev/shm");
    let elsewhere = memory.is_dir().then(|| Work::within(memory));
    let trees = [(&work, "one"), (&work, "two/deeper")];
    // Source locations in debug information keep their length.
    let more = elsewhere.iter().filter(|_| !has_debug);
    let trees: Vec<_> = trees
        .into_iter()
        .chain(more.map(|work| (work, "three")))
        .collect();
    let compile_flags = [flags, &["-O1", OFFLOAD[1]]].concat();
    for (place, tree) in &trees {
        sources(place, tree);
        compile(place, tree, &["main", "other"], &compile_flags)?;
        run(place
            .command(llvm("llvm-ar"))
            .current_dir(place.path().join(tree))
            .args(["rcsD", "libother.a", "other.o"]))?;
    }
    // gold writes the temporary path of a CPU image into it.
    for linker in ["lld", "bfd", "mold", "wild"] {
        if host_linker(linker).is_none() {
            missing(linker)?;
            continue;
        }
        for inputs in [["main.o", "other.o"], ["main.o", "-lother"]] {
            let mut programs = Vec::new();
            for (place, tree) in &trees {
                let linker = format!("-fuse-ld={linker}");
                let flags = [flags, &[OFFLOAD[1], &linker, IN_OBJECTS, "-L."]].concat();
                let stderr = stderr_of(&mut link(place, tree, &inputs, &flags))?;
                expect_not_in(&stderr, "warning")?;
                let program = place.path().join(tree).join("program");
                expect_equal(
                    linker.as_str(),
                    OUTPUT,
                    &run_offloaded(&mut place.command(&program))?,
                )?;
                programs.push(std::fs::read(program)?);
            }
            let (first, others) = programs.split_first().ok_or("no program")?;
            for (program, (_, tree)) in others.iter().zip(&trees[1..]) {
                ensure(program == first, || {
                    format!("{linker}, {inputs:?}: the program of {tree} differs")
                })?;
            }
        }
        work.expect_no_temps()?;
    }
    passed()
}

/// Shared libraries of two checkouts are the same bytes, with their dynamic symbols.
fn same_libraries() -> Outcome {
    let work = Work::new();
    let mut libraries = Vec::new();
    for tree in ["one", "two/deeper"] {
        sources(&work, tree);
        compile(&work, tree, &["other"], &["-O1", OFFLOAD[1]])?;
        let flags = [OFFLOAD[1], "-fuse-ld=lld", "-shared", IN_OBJECTS];
        run(&mut link(&work, tree, &["other.o"], &flags))?;
        libraries.push(std::fs::read(work.path().join(tree).join("program"))?);
    }
    ensure(libraries[0] == libraries[1], || "the libraries differ")?;
    passed()
}

/// If an input cannot be copied, a warning names it, and the program works.
fn no_copies() -> Outcome {
    let work = Work::new();
    sources(&work, "tree");
    compile(&work, "tree", &["main", "other"], &["-O1", OFFLOAD[1]])?;
    run(work
        .command(llvm("llvm-ar"))
        .current_dir(work.path().join("tree"))
        .args(["rcSDT", "libthin.a", "other.o"]))?;
    run(clang(&work, "tree").args(["-O1", OFFLOAD[1], "-flto", "-c", "other.cpp", "-o", "lto.o"]))?;
    work.file("tree/script.so", "INPUT(other.o)");
    for (input, why) in [
        (
            "libthin.a",
            "`libthin.a`: a thin archive: create it without `--thin`",
        ),
        (
            "script.so",
            "`other.o` is named by a linker script or an object: name it on the command line instead",
        ),
        ("lto.o", "`lto.o`: host bitcode: compile it without `-flto`"),
    ] {
        let flags = [OFFLOAD[1], "-fuse-ld=lld", IN_OBJECTS];
        let stderr = stderr_of(&mut link(&work, "tree", &["main.o", input], &flags))?;
        expect_in(
            &stderr,
            &format!(
                "warning: the output depends on the location of its source files, because an input cannot be copied (--wrapper-stable-names=objects): {why}"
            ),
        )?;
        let program = work.path().join("tree/program");
        expect_equal(input, OUTPUT, &run_offloaded(&mut work.command(program))?)?;
    }
    passed()
}

fn programs(
    compile_flags: &'static [&'static str],
    link_flags: &'static [&'static str],
) -> Outcome {
    let work = Work::new();
    if let Some(linker) = link_flags[0].strip_prefix("-fuse-ld=")
        && host_linker(linker).is_none()
    {
        return missing(linker);
    }
    sources(&work, "tree");
    let flags = [&["-O1", OFFLOAD[1]], compile_flags].concat();
    compile(&work, "tree", &["main", "other"], &flags)?;
    let program = work.path().join("tree/program");
    let mut names = Vec::new();
    for stable in ["off", "on"] {
        let option = format!("-Wl,--wrapper-stable-names={stable}");
        let flags = [link_flags, &[OFFLOAD[1], &option]].concat();
        let stderr = stderr_of(&mut link(&work, "tree", &["main.o", "other.o"], &flags))?;
        expect_not_in(&stderr, "warning")?;
        expect_equal(stable, OUTPUT, &run_offloaded(&mut work.command(&program))?)?;
        // Every registered kernel is in the image.
        let mut inspect = work.command(offld());
        let report = run(inspect
            .args(["inspect", "--kernels", "--json"])
            .arg(&program))?;
        names.push(report.matches("__omp_offloading_0_").count());
    }
    ensure(names[0] == 0 && names[1] > 0, || format!("{names:?}"))?;
    work.expect_no_temps()?;
    passed()
}

/// Two files with static functions of one name, with kernels in the same line.
fn equal_names() -> Outcome {
    let work = Work::new();
    equal_sources(&work);
    compile(&work, "tree", &["one", "two", "main"], &["-O1", OFFLOAD[1]])?;
    for inputs in [["one.o", "two.o", "main.o"], ["two.o", "main.o", "one.o"]] {
        run(&mut link(&work, "tree", &inputs, &[OFFLOAD[1]]))?;
        let program = work.path().join("tree/program");
        let output = run_offloaded(&mut work.command(program))?;
        expect_equal("output", "101 120\n", &output)?;
    }
    passed()
}

/// The sources `one`, `two` and `main`. The first two have kernels of the same name.
fn equal_sources(work: &Work) {
    let source = |name: &str, number: u32| {
        let text = format!(
            "static int f(int v) {{\n#pragma omp target map(tofrom: v)\n  v = v + {number};\n  return v;\n}}\nint {name}(int v) {{ return f(v); }}\n"
        );
        work.file(&format!("tree/{name}.cpp"), text);
    };
    source("one", 1);
    source("two", 20);
    work.file(
        "tree/main.cpp",
        "#include <cstdio>\nint one(int), two(int);\nint main() { std::printf(\"%d %d\\n\", one(100), two(100)); }\n",
    );
}

/// A target region in a header has one name in all units, which linkers merge.
fn header() -> Outcome {
    let work = Work::new();
    sources(&work, "tree");
    compile(&work, "tree", &["main", "other"], &["-O1", OFFLOAD[1]])?;
    run(&mut link(
        &work,
        "tree",
        &["main.o", "other.o"],
        &[OFFLOAD[1]],
    ))?;
    let names = work.run(llvm("llvm-nm"), ["tree/program"])?;
    let ids: std::collections::BTreeSet<&str> = names
        .lines()
        .filter_map(|line| line.split("__omp_offloading_").nth(1)?.split("_Z").next())
        .collect();
    expect_equal(
        "names of the header's kernel",
        "1",
        &names
            .lines()
            .filter(|line| line.contains("__Z6sharedi_l") && line.ends_with(".region_id"))
            .count()
            .to_string(),
    )?;
    ensure(ids.iter().all(|id| id.starts_with("0_")), || names.clone())?;
    passed()
}

/// The numbers of the source file are also constants of its code.
fn numbers() -> Outcome {
    use std::os::unix::fs::MetadataExt;
    let work = Work::new();
    let file = work.file("tree/main.cpp", "");
    let meta = std::fs::metadata(&file)?;
    let (device, inode) = (meta.dev() as u32 as i32, meta.ino() as u32 as i32);
    let code = format!(
        "#include <cstdio>\nint main() {{ int x[4] = {{1, 1, 1, 1}};\n#pragma omp target map(tofrom: x)\n  {{ x[0] = x[1] + {inode}; x[2] = {device}; for (int i = 0; i < x[3]; ++i) if (x[0] == {inode}) x[1] = 7; }}\n  std::printf(\"%d %d %d\\n\", x[0], x[1], x[2]); }}\n"
    );
    std::fs::write(&file, code)?;
    ensure(
        std::fs::metadata(&file)?.ino() == meta.ino(),
        || "another inode",
    )?;
    let expected = format!("{} 1 {device}\n", inode.wrapping_add(1));
    for flags in [
        &["-O0", OFFLOAD[1]][..],
        &["-O2", OFFLOAD[1], "-foffload-lto"],
    ] {
        compile(&work, "tree", &["main"], flags)?;
        run(&mut link(&work, "tree", &["main.o"], flags))?;
        let program = work.path().join("tree/program");
        expect_equal(
            "output",
            &expected,
            &run_offloaded(&mut work.command(program))?,
        )?;
    }
    passed()
}

/// Renamed bitcode is the old text with other names.
fn meaning() -> Outcome {
    let work = Work::new();
    sources(&work, "tree");
    let amd = ["--offload-arch=gfx90a", "-nogpulib"];
    // A device compiler that prints its inputs as text.
    let script = format!(
        "#!/bin/sh\nfor word; do case \"$word\" in *.o) {LLVM}/llvm-dis -o - \"$word\";; esac; done >> \"$SEEN\"\n\
         exec {LLVM}/clang \"$@\"\n"
    );
    let compiler = work.tool("clang", &script);
    for flags in [&["-O2"][..], &["-O0", "-g"], &["-O2", "-foffload-lto=thin"]] {
        compile(&work, "tree", &["main", "other"], &[flags, &amd].concat())?;
        let seen = |stable: &str| -> Result<Vec<String>, Failed> {
            let seen = work
                .path()
                .join(format!("seen-{}-{stable}", flags.concat()));
            let stable = format!("-Wl,--wrapper-stable-names={stable}");
            let flags = [&amd[..], &ANY_SYMBOL, &[&stable]].concat();
            let mut command = link(&work, "tree", &["main.o", "other.o"], &flags);
            run(command
                .arg(format!("-Wl,--offld-clang={}", compiler.display()))
                .env("OFFLD_CACHE", "off")
                .env("SEEN", &seen))?;
            Ok(std::fs::read_to_string(seen)?.lines().map(blank).collect())
        };
        let (mut old, mut new) = (seen("off")?, seen("on")?);
        // The summary of ThinLTO is sorted by hashes of names.
        for text in [&mut old, &mut new] {
            let summary = text.iter().filter(|line| line.starts_with('^')).count();
            text.retain(|line| !line.starts_with('^'));
            text.push(summary.to_string());
        }
        ensure(old.len() > 200, || old.join("\n"))?;
        for (one, other) in old.iter().zip(&new) {
            expect_equal("line", one, other)?;
        }
        expect_equal("lines", &old.len().to_string(), &new.len().to_string())?;
    }
    passed()
}

/// A line of LLVM IR without the numbers of files, in names and in `omp_offload.info`, and without
/// the hashes that depend on them.
fn blank(line: &str) -> String {
    let patterns = [
        ("__omp_offloading_[0-9a-f]+_[0-9a-f]+", "*"),
        ("anon\\.[0-9a-f]{32}", "*"),
        ("= !\\{i32 0, i32 [0-9]+, i32 [0-9]+,", "*"),
        ("^\\^.*hash: \\(.*\\)", "*"),
        ("guid = [0-9]+", "*"),
        ("^; ModuleID.*", "*"),
        // A string constant and its length.
        ("x i8\\] c\";.*", "*"),
    ];
    patterns
        .iter()
        .fold(line.to_owned(), |line, (pattern, new)| {
            let pattern = regex::Regex::new(pattern).expect("a pattern");
            pattern.replace_all(&line, *new).into_owned()
        })
}

/// An object of a relocatable link has registered its images. A unit with the same header has the
/// same kernel.
fn registered() -> Outcome {
    for stable in ["on", "off"] {
        let work = Work::new();
        sources(&work, "tree");
        compile(&work, "tree", &["main", "other"], &["-O1", OFFLOAD[1]])?;
        let option = format!("-Wl,--wrapper-stable-names={stable}");
        let mut first = link(
            &work,
            "tree",
            &["other.o", "-r", "-fuse-ld=lld"],
            &[OFFLOAD[1], &option],
        );
        run(first.args(["-o", "joined.o", "-nostdlib"]))?;
        run(&mut link(
            &work,
            "tree",
            &["main.o", "joined.o", "-fuse-ld=lld"],
            &[OFFLOAD[1]],
        ))?;
        let program = work.path().join("tree/program");
        expect_equal(stable, OUTPUT, &run_offloaded(&mut work.command(program))?)?;
    }
    passed()
}

/// GNU ld stores a name once if another one ends with it, so the kernel keeps its name.
fn joined() -> Outcome {
    for (flag, linkers) in [
        ("-fno-lto", &["-fuse-ld=bfd", "-fuse-ld=lld"][..]),
        ("-flto", &["-fuse-ld=lld"]),
    ] {
        joined_with(flag, linkers)?;
    }
    passed()
}

fn joined_with(flag: &str, linkers: &[&str]) -> Result<(), Failed> {
    let work = Work::new();
    work.file(
        "tree/main.cpp",
        "#include <cstdio>\n#pragma omp begin declare target\nextern \"C\" { int l8 = 40; }\n#pragma omp end declare target\n\
         int main() {\n  int x = 2;\n\n#pragma omp target map(tofrom: x)\n  x += l8;\n  l8 = 1;\n\
         #pragma omp target update to(l8)\n#pragma omp target map(tofrom: x)\n  x += l8;\n  std::printf(\"%d\\n\", x);\n}\n",
    );
    compile(&work, "tree", &["main"], &["-O1", OFFLOAD[1], flag])?;
    for linker in linkers {
        let flags = [OFFLOAD[1], flag, linker, "-Wl,-O2"];
        run(&mut link(&work, "tree", &["main.o"], &flags))?;
        let program = work.path().join("tree/program");
        expect_equal(
            "output",
            "43\n",
            &run_offloaded(&mut work.command(&program))?,
        )?;
        let names = work.run(llvm("llvm-strings"), ["-a", "tree/program"])?;
        expect_not_in(&names, "__omp_offloading_0_")?;
    }
    Ok(())
}

/// Edits that create a new file, as editors and git do.
fn edits() -> Outcome {
    let work = Work::new();
    sources(&work, "tree");
    let build = || -> Result<String, Failed> {
        compile(&work, "tree", &["main", "other"], &["-O1", OFFLOAD[1]])?;
        stderr_of(&mut link(
            &work,
            "tree",
            &["main.o", "other.o"],
            &[OFFLOAD[1]],
        ))
    };
    ensure(!all_found(&build()?), || "found at once")?;
    work.run("sed", ["-i", "s/%d %g/%d, %g/", "tree/main.cpp"])?;
    let stderr = build()?;
    ensure(all_found(&stderr), || stderr.clone())?;
    // The file is saved by a rename.
    work.file("tree/new.cpp", OTHER);
    std::fs::rename(
        work.path().join("tree/new.cpp"),
        work.path().join("tree/other.cpp"),
    )?;
    let stderr = build()?;
    ensure(all_found(&stderr), || stderr.clone())?;
    let program = work.path().join("tree/program");
    expect_in(&run_offloaded(&mut work.command(program))?, "4, 7")?;
    passed()
}
