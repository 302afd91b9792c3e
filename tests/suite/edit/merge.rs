//! `offld merge` of whole builds for different devices: the result equals one build for all of
//! them, and builds that do not belong together are rejected.

use libtest_mimic::{Failed, Trial};
use object::{Object as _, ObjectSection as _};
use offload_formats::elf::raw::FileHeader;

use super::{HIP, SOURCE, images, ran, refused, stdout_of, targets};
use crate::support::{
    OFFLOAD, Outcome, Release, Work, ensure, expect_equal, expect_in, expect_no_file, llvm, made,
    missing, passed, root, run, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("edit::merge::objects_link_as_one_for_all_devices", objects),
        with_llvm(
            "edit::merge::archives_are_merged_member_by_member",
            archives,
        ),
        with_llvm("edit::merge::hip_objects_with_one_cuid", hip),
        with_llvm("edit::merge::hip_libraries", hip_libraries),
        with_llvm("edit::merge::wrong_alignments_are_errors", alignments),
        with_llvm("edit::merge::bundles_and_offload_binaries", containers),
        with_llvm("edit::merge::programs_run_offloaded", programs),
        with_llvm("edit::merge::pruned_programs_get_their_images_back", pruned),
        with_llvm("edit::merge::six_builds_are_the_build_for_six", many),
        with_llvm("edit::merge::missing_kernels_are_named", missing_kernel),
        with_llvm("edit::merge::other_kinds_are_refused", wrong_kind),
        with_llvm("edit::merge::other_features_are_refused", wrong_feature),
        with_llvm("edit::merge::other_host_code_is_named", other_host),
        with_llvm("edit::merge::programs_of_two_source_trees", two_trees),
        with_llvm("edit::merge::two_images_for_one_device_are_refused", twice),
        with_llvm("edit::merge::what_cannot_be_merged_is_named", no_builds),
        test(
            "releases::edit::merge::older_entry_tables_are_refused",
            older_table,
        ),
    ]
}

const CPU: &str = "x86_64-pc-linux-gnu";
/// Allows undefined symbols that only GPU libraries define.
const UNRESOLVED: [&str; 4] = ["-Xoffload-linker", "-z", "-Xoffload-linker", "undefs"];

/// The clang arguments that compile for a device: an architecture, or `cpu`.
fn device(arch: &str) -> Vec<String> {
    if arch == "cpu" {
        return OFFLOAD.map(str::to_owned).to_vec();
    }
    ["-fopenmp", "-nogpulib"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("--offload-arch={arch}")])
        .collect()
}

/// Compiles `source` to `out` for one device, with the additional arguments `words`.
pub(super) fn compiled(
    work: &Work,
    source: &str,
    arch: &str,
    out: &str,
    words: &[&str],
) -> Result<(), Failed> {
    let mut compile = work.command(llvm("clang++"));
    run(compile
        .args(device(arch))
        .args(["-O1", "-fPIC", "-c", source, "-o", out])
        .args(words))?;
    Ok(())
}

/// Compiles the single-file program for each device, to `ARCH.o`.
pub(super) fn objects_for(work: &Work, archs: &[&str]) -> Result<(), Failed> {
    work.file("main.cpp", SOURCE);
    archs
        .iter()
        .try_for_each(|arch| compiled(work, "main.cpp", arch, &format!("{arch}.o"), &[]))
}

pub(super) fn linked(
    work: &Work,
    arch: &str,
    inputs: &[&str],
    out: &str,
    words: &[&str],
) -> Result<(), Failed> {
    let mut link = work.command(llvm("clang++"));
    link.args(device(arch))
        .args(inputs)
        .args(words)
        .arg("-B")
        .arg(&made().links);
    if arch != "cpu" {
        link.args(UNRESOLVED);
    }
    run(link.args(["-o", out]))?;
    Ok(())
}

/// The devices of a file, sorted.
fn sorted(work: &Work, file: &str) -> Result<String, Failed> {
    let mut images = images(work, file)?;
    images.sort();
    Ok(images.join("\n"))
}

fn objects() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["cpu", "gfx90a", "gfx908"])?;
    compiled(&work, "main.cpp", "gfx90a,gfx908", "all.o", &[])?;
    let stdout = stdout_of(&work, ["merge", "-o", "both.o", "gfx908.o", "gfx90a.o"])?;
    expect_equal(
        "told",
        "both.o: 2 builds merged, 2 images: gfx90a, gfx908\n",
        &stdout,
    )?;
    linked(&work, "gfx90a", &["both.o"], "of_merged", &[])?;
    linked(&work, "gfx90a", &["all.o"], "of_all", &[])?;
    expect_equal(
        "images",
        &images(&work, "of_all")?.join("\n"),
        &images(&work, "of_merged")?.join("\n"),
    )?;
    // A merged object can be merged again. A merge with nothing new changes nothing.
    stdout_of(
        &work,
        ["merge", "-o", "three.o", "both.o", "cpu.o", "gfx90a.o"],
    )?;
    expect_equal(
        "devices",
        &format!("{CPU} gfx90a gfx908"),
        &targets(&work, "three.o")?,
    )?;
    stdout_of(&work, ["merge", "-o", "again.o", "three.o", "gfx908.o"])?;
    super::same(&work.path().join("three.o"), &work.path().join("again.o"))?;
    linked(&work, "cpu", &["three.o"], "three", &UNRESOLVED)?;
    expect_equal("output", "4950 device\n", &ran(&work, "three")?)?;
    work.expect_no_temps()?;
    passed()
}

fn archives() -> Outcome {
    let work = Work::new();
    work.file("main.cpp", SOURCE);
    work.file("plain.cpp", "int plain() { return 1; }\n");
    run(work.command(llvm("clang++")).args(["-c", "plain.cpp"]))?;
    for arch in ["cpu", "gfx90a"] {
        compiled(&work, "main.cpp", arch, "main.o", &[])?;
        run(work.command(llvm("llvm-ar")).args([
            "rcs",
            &format!("{arch}.a"),
            "plain.o",
            "main.o",
        ]))?;
    }
    stdout_of(&work, ["merge", "-o", "both.a", "cpu.a", "gfx90a.a"])?;
    expect_equal(
        "devices",
        &format!("{CPU} gfx90a"),
        &targets(&work, "both.a")?,
    )?;
    linked(
        &work,
        "cpu",
        &["-Wl,--whole-archive", "both.a", "-Wl,--no-whole-archive"],
        "both",
        &UNRESOLVED,
    )?;
    expect_equal("output", "4950 device\n", &ran(&work, "both")?)?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "other.a", "main.o", "plain.o"]))?;
    let stderr = refused(&work, ["merge", "-o", "none.a", "cpu.a", "other.a"])?;
    expect_in(
        &stderr,
        "cpu.a has the member plain.o, but other.a has main.o in its place",
    )?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcs", "short.a", "plain.o"]))?;
    expect_in(
        &refused(&work, ["merge", "-o", "none.a", "cpu.a", "short.a"])?,
        "cpu.a has 2 members, but short.a has 1",
    )?;
    passed()
}

/// Compiles HIP kernels for an architecture to `out`.
fn hip_for(work: &Work, arch: &str, out: &str, words: &[&str]) -> Result<(), Failed> {
    work.file("kernels.hip", HIP);
    let mut compile = work.command(llvm("clang++"));
    compile
        .args(["-x", "hip", "-nogpulib", "-nogpuinc", "-O1", "-fPIC"])
        .arg(format!("--offload-arch={arch}"))
        .args(words);
    run(compile.args(["kernels.hip", "-o", out]))?;
    Ok(())
}

fn hip() -> Outcome {
    let work = Work::new();
    for words in [
        &["-c", "-cuid=1"][..],
        &["-c", "-cuid=1", "--offload-compress"],
    ] {
        for arch in ["gfx90a", "gfx908", "gfx1100", "gfx90a,gfx908,gfx1100"] {
            hip_for(&work, arch, &format!("{arch}.o"), words)?;
        }
        stdout_of(
            &work,
            ["merge", "-o", "all.o", "gfx908.o", "gfx90a.o", "gfx1100.o"],
        )?;
        expect_equal(
            "images",
            &sorted(&work, "gfx90a,gfx908,gfx1100.o")?,
            &sorted(&work, "all.o")?,
        )?;
        expect_equal(
            "devices",
            "gfx90a gfx908 gfx1100",
            &targets(&work, "all.o")?,
        )?;
    }
    for arch in ["gfx90a", "gfx908"] {
        hip_for(&work, arch, &format!("{arch}.o"), &["-c"])?;
    }
    let stderr = refused(&work, ["merge", "-o", "none.o", "gfx908.o", "gfx90a.o"])?;
    expect_in(&stderr, "compile every build with the same `-cuid=TEXT`")?;
    expect_no_file(&work.path().join("none.o"))?;
    passed()
}

/// With the alignment in a damaged section header, the new file would have gaps of terabytes.
fn alignments() -> Outcome {
    let work = Work::new();
    for arch in ["gfx90a", "gfx908"] {
        hip_for(&work, arch, &format!("{arch}.o"), &["-c", "-cuid=1"])?;
        let path = work.path().join(format!("{arch}.o"));
        let mut bytes = std::fs::read(&path)?;
        let section = object::File::parse(&*bytes)?
            .section_by_name(".hip_fatbin")
            .ok_or("no .hip_fatbin")?
            .index();
        // The field is at 48 in the header of 64 bytes. The headers are at the end of the file.
        let (_, head) = FileHeader::read(&bytes)?;
        let at = usize::try_from(head.shoff)? + 64 * section.0 + 48;
        bytes[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        std::fs::write(path, bytes)?;
    }
    let wanted = ".hip_fatbin: the section's alignment 0x10000000000 is not a power of two up to";
    let merge = ["merge", "-o", "new.o", "gfx90a.o", "gfx908.o"];
    let prune = [
        "prune",
        "--drop",
        "gfx908",
        "--allow-empty",
        "gfx908.o",
        "-o",
        "new.o",
    ];
    for words in [&merge[..], &prune] {
        expect_in(&refused(&work, words.iter().copied())?, wanted)?;
        expect_no_file(&work.path().join("new.o"))?;
    }
    passed()
}

fn hip_libraries() -> Outcome {
    let work = Work::new();
    for linker in ["lld", "bfd"] {
        let words = [
            "-cuid=1",
            "-shared",
            "-nostdlib",
            &format!("-fuse-ld={linker}"),
            "-Wl,--build-id",
        ];
        for arch in ["gfx90a", "gfx908", "gfx1100"] {
            hip_for(&work, arch, &format!("{arch}.so"), &words)?;
        }
        stdout_of(
            &work,
            [
                "merge",
                "-o",
                "all.so",
                "gfx90a.so",
                "gfx908.so",
                "gfx1100.so",
            ],
        )?;
        let mut expected = Vec::new();
        for arch in ["gfx90a", "gfx908", "gfx1100"] {
            expected.extend(
                images(&work, &format!("{arch}.so"))?
                    .into_iter()
                    .filter(|image| !image.starts_with("[\"host\"]")),
            );
        }
        let merged = images(&work, "all.so")?;
        let merged = merged
            .into_iter()
            .filter(|image| !image.starts_with("[\"host\"]"))
            .collect::<Vec<_>>();
        expect_equal("images", &expected.join("\n"), &merged.join("\n"))?;
        // The program registers the merged bundle.
        expect_in(
            &stdout_of(&work, ["check", "all.so", "--for", "gfx1100"])?,
            "gfx1100",
        )?;
        run(work.command("strip").arg("all.so"))?;
        expect_equal(
            "devices",
            "gfx90a gfx908 gfx1100",
            &targets(&work, "all.so")?,
        )?;
    }
    passed()
}

fn containers() -> Outcome {
    let work = Work::new();
    for arch in ["gfx90a", "gfx908"] {
        hip_for(
            &work,
            arch,
            &format!("{arch}.bundle"),
            &["-cuid=1", "--offload-device-only"],
        )?;
    }
    stdout_of(
        &work,
        [
            "merge",
            "-o",
            "both.bundle",
            "gfx90a.bundle",
            "gfx908.bundle",
        ],
    )?;
    expect_equal("devices", "gfx90a gfx908", &targets(&work, "both.bundle")?)?;
    let list = run(work.command(llvm("clang-offload-bundler")).args([
        "--list",
        "--type=o",
        "--input=both.bundle",
    ]))?;
    expect_in(&list, "gfx908")?;
    objects_for(&work, &["gfx90a", "gfx908"])?;
    for arch in ["gfx90a", "gfx908"] {
        let section = format!("--dump-section=.llvm.offloading={arch}.bin");
        run(work
            .command(llvm("llvm-objcopy"))
            .arg(section)
            .args([format!("{arch}.o"), "/dev/null".to_owned()]))?;
    }
    stdout_of(
        &work,
        ["merge", "-o", "both.bin", "gfx908.bin", "gfx90a.bin"],
    )?;
    expect_equal("devices", "gfx90a gfx908", &targets(&work, "both.bin")?)?;
    passed()
}

fn programs() -> Outcome {
    let work = Work::new();
    let archs = ["cpu", "gfx90a", "gfx908"];
    objects_for(&work, &archs)?;
    for words in [
        &["-pie"][..],
        &["-no-pie"],
        &["-fuse-ld=bfd"],
        &["-fuse-ld=bfd", "-no-pie"],
        &["-Wl,-z,pack-relative-relocs"],
    ] {
        for arch in archs {
            linked(&work, arch, &[&format!("{arch}.o")], arch, words)?;
        }
        // In any order of the builds, a machine without GPUs uses the CPU image.
        for order in [["cpu", "gfx90a", "gfx908"], ["gfx908", "cpu", "gfx90a"]] {
            stdout_of(&work, ["merge", "-o", "merged"].into_iter().chain(order))?;
            expect_equal(
                "devices",
                &format!("{CPU} gfx90a gfx908"),
                &targets(&work, "merged")?,
            )?;
            expect_equal("output", "4950 device\n", &ran(&work, "merged")?)?;
        }
        run(work.command("strip").arg("merged"))?;
        expect_equal(
            "output of the stripped one",
            "4950 device\n",
            &ran(&work, "merged")?,
        )?;
        // The result can be pruned and merged again like any other program.
        stdout_of(&work, ["prune", "--keep", "cpu", "--in-place", "merged"])?;
        expect_equal(
            "output of the pruned one",
            "4950 device\n",
            &ran(&work, "merged")?,
        )?;
    }
    work.expect_no_temps()?;
    passed()
}

fn pruned() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["cpu", "gfx90a", "gfx908"])?;
    stdout_of(
        &work,
        ["merge", "-o", "all.o", "cpu.o", "gfx90a.o", "gfx908.o"],
    )?;
    linked(&work, "cpu", &["all.o"], "all", &UNRESOLVED)?;
    for (part, keep) in [("first", "cpu"), ("second", "gfx90a"), ("third", "gfx908")] {
        stdout_of(&work, ["prune", "--keep", keep, "all", "-o", part])?;
    }
    stdout_of(&work, ["merge", "-o", "back", "third", "first", "second"])?;
    expect_equal(
        "images",
        &images(&work, "all")?.join("\n"),
        &images(&work, "back")?.join("\n"),
    )?;
    expect_equal("output", "4950 device\n", &ran(&work, "back")?)?;
    passed()
}

/// The program of `examples/many` for these devices: objects, `libstats.a`, `libfilter.so` and
/// `many` in a directory.
pub(super) fn many_for(archs: &str) -> Result<Work, Failed> {
    let work = Work::new();
    let source = root().join("examples/many");
    for name in [
        "main",
        "grid",
        "step",
        "stats/sum",
        "stats/clamp",
        "stats/histogram",
        "filter/smooth",
    ] {
        let mut compile = work.command(llvm("clang++"));
        compile
            .args(device(archs))
            .args(["-O1", "-fPIC", "-c"])
            .arg(source.join(name).with_extension("cpp"));
        run(&mut compile)?;
    }
    work.archive("libstats.a", &["sum.o", "clamp.o", "histogram.o"])?;
    linked(&work, archs, &["smooth.o"], "libfilter.so", &["-shared"])?;
    let libraries = ["-L.", "-lstats", "-lfilter", "-Wl,-rpath,$ORIGIN"];
    linked(
        &work,
        archs,
        &["main.o", "grid.o", "step.o"],
        "many",
        &libraries,
    )?;
    Ok(work)
}

/// Merges `file` from several builds into a directory.
fn merge_to(work: &Work, builds: &[Work], file: &str) -> Result<(), Failed> {
    let files: Vec<String> = builds
        .iter()
        .map(|build| build.path().join(file).display().to_string())
        .collect();
    stdout_of(
        work,
        ["merge", "-o", file]
            .into_iter()
            .chain(files.iter().map(String::as_str)),
    )?;
    Ok(())
}

fn many() -> Outcome {
    let archs = ["gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030", "gfx1100"];
    let mut builds = archs
        .iter()
        .map(|arch| many_for(arch))
        .collect::<Result<Vec<_>, _>>()?;
    let all = many_for(&archs.join(","))?;
    let work = Work::new();
    for file in ["main.o", "libstats.a"] {
        merge_to(&work, &builds, file)?;
        // In objects, the order has no meaning.
        expect_equal(
            &format!("images of {file}"),
            &sorted(&all, file)?,
            &sorted(&work, file)?,
        )?;
    }
    for file in ["libfilter.so", "many"] {
        merge_to(&work, &builds, file)?;
        expect_equal(
            &format!("images of {file}"),
            &images(&all, file)?.join("\n"),
            &images(&work, file)?.join("\n"),
        )?;
    }
    // Together with the build for the CPU, the program runs.
    builds.push(many_for("cpu")?);
    for file in ["libfilter.so", "many"] {
        merge_to(&work, &builds, file)?;
    }
    expect_in(&ran(&work, "many")?, "right\n")?;
    work.expect_no_temps()?;
    passed()
}

/// Creates an object for gfx908 whose image is replaced with the image of `source`.
fn with_image_of(work: &Work, source: &str, words: &[&str]) -> Result<(), Failed> {
    work.file("other.cpp", source);
    compiled(work, "other.cpp", "gfx908", "other.o", words)?;
    stdout_of(work, ["inspect", "--extract", "images", "other.o"])?;
    let image = std::fs::read_dir(work.path().join("images"))?
        .next()
        .ok_or("no image")??
        .path();
    let image = format!("0={}", image.display());
    stdout_of(
        work,
        [
            "replace",
            "--force",
            "gfx908.o",
            "--image",
            &image,
            "-o",
            "replaced.o",
        ],
    )?;
    Ok(())
}

fn missing_kernel() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["gfx90a", "gfx908"])?;
    with_image_of(
        &work,
        "void other(int *p) {\n#pragma omp target map(tofrom : p[0])\n  p[0] = 1;\n}\n",
        &[],
    )?;
    let stderr = refused(&work, ["merge", "-o", "none.o", "gfx90a.o", "replaced.o"])?;
    expect_in(&stderr, "replaced.o: kernel `main, line 14` is registered")?;
    expect_in(
        &stderr,
        "is registered and not in image 0 (amdgcn-amd-amdhsa (gfx908), bitcode)",
    )?;
    expect_no_file(&work.path().join("none.o"))?;
    passed()
}

fn twice() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["gfx908", "gfx90a"])?;
    // The same kernels at another optimization level.
    compiled(
        &work,
        "main.cpp",
        "gfx908",
        "other.o",
        &["-O3", "-Xarch_device", "-g"],
    )?;
    stdout_of(&work, ["inspect", "--extract", "images", "other.o"])?;
    let image = std::fs::read_dir(work.path().join("images"))?
        .next()
        .ok_or("no image")??
        .path();
    stdout_of(
        &work,
        [
            "replace",
            "gfx908.o",
            "--image",
            &format!("0={}", image.display()),
            "-o",
            "replaced.o",
        ],
    )?;
    let stderr = refused(
        &work,
        [
            "merge",
            "-o",
            "none.o",
            "gfx908.o",
            "gfx90a.o",
            "replaced.o",
        ],
    )?;
    expect_in(
        &stderr,
        "gfx908.o and replaced.o have different images for amdgcn-amd-amdhsa (gfx908), bitcode: a runtime",
    )?;
    expect_no_file(&work.path().join("none.o"))?;
    passed()
}

fn wrong_kind() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["gfx90a"])?;
    hip_for(&work, "gfx908", "hip.o", &["-c", "-cuid=1"])?;
    let stderr = refused(&work, ["merge", "-o", "none.o", "gfx90a.o", "hip.o"])?;
    expect_in(
        &stderr,
        "gfx90a.o has device code for OpenMP, but hip.o has device code for HIP in its place",
    )?;
    passed()
}

fn wrong_feature() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["gfx90a", "gfx90a:xnack+", "gfx90a:xnack-"])?;
    let stderr = refused(
        &work,
        ["merge", "-o", "none.o", "gfx90a.o", "gfx90a:xnack+.o"],
    )?;
    expect_in(
        &stderr,
        "has an image for amdgcn-amd-amdhsa (gfx90a:xnack+), and",
    )?;
    expect_in(
        &stderr,
        "a runtime takes the first on a device that runs both",
    )?;
    stdout_of(
        &work,
        [
            "merge",
            "-o",
            "both.o",
            "gfx90a:xnack-.o",
            "gfx90a:xnack+.o",
        ],
    )?;
    passed()
}

fn other_host() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["gfx90a"])?;
    work.file("main.cpp", SOURCE.replace("sum != 4950", "sum != 4951"));
    compiled(&work, "main.cpp", "gfx908", "gfx908.o", &[])?;
    let stderr = refused(&work, ["merge", "-o", "none.o", "gfx90a.o", "gfx908.o"])?;
    expect_in(&stderr, "gfx908.o differs from gfx90a.o: .text: main+0x")?;
    for arch in ["gfx90a", "gfx908"] {
        linked(&work, arch, &[&format!("{arch}.o")], arch, &[])?;
    }
    let stderr = refused(&work, ["merge", "-o", "none", "gfx90a", "gfx908"])?;
    expect_in(&stderr, "gfx908 differs from gfx90a: .text: main+0x")?;
    expect_no_file(&work.path().join("none"))?;
    passed()
}

fn two_trees() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["gfx90a"])?;
    std::fs::create_dir(work.path().join("copy"))?;
    std::fs::copy(
        work.path().join("main.cpp"),
        work.path().join("copy/main.cpp"),
    )?;
    compiled(&work, "copy/main.cpp", "gfx908", "gfx908.o", &[])?;
    for arch in ["gfx90a", "gfx908"] {
        let input = format!("{arch}.o");
        linked(&work, arch, &[&input], arch, &[])?;
        let clang = format!("{arch}.clang");
        linked(
            &work,
            arch,
            &[&input],
            &clang,
            &["-Wl,--wrapper-stable-names=off"],
        )?;
    }
    for files in [
        ["gfx90a.o", "gfx908.o"],
        ["gfx90a.clang", "gfx908.clang"],
        ["gfx90a.clang", "gfx908"],
    ] {
        let stderr = refused(&work, ["merge", "-o", "none"].into_iter().chain(files))?;
        expect_in(&stderr, "compile every build from the same source files")?;
        expect_no_file(&work.path().join("none"))?;
    }
    let merged = stdout_of(&work, ["merge", "-o", "merged", "gfx90a", "gfx908"])?;
    expect_in(&merged, "2 builds merged, 2 images: gfx90a, gfx908")?;
    passed()
}

fn no_builds() -> Outcome {
    let work = Work::new();
    objects_for(&work, &["gfx90a"])?;
    expect_in(
        &refused(&work, ["merge", "-o", "none", "gfx90a.o"])?,
        "pass a host half with its parts, or several builds",
    )?;
    work.file("text", "some text");
    expect_in(
        &refused(&work, ["merge", "-o", "none", "gfx90a.o", "text"])?,
        "gfx90a.o is a host ELF file, but text is",
    )?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcsT", "thin.a", "gfx90a.o"]))?;
    compiled(&work, "main.cpp", "gfx908", "gfx908.o", &[])?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcsT", "other.a", "gfx908.o"]))?;
    expect_in(
        &refused(&work, ["merge", "-o", "none", "thin.a", "other.a"])?,
        "thin archives cannot be merged",
    )?;
    stdout_of(&work, ["split", "gfx90a.o", "-d", "parts"])?;
    let stderr = refused(
        &work,
        [
            "merge",
            "-o",
            "none",
            "parts/gfx90a.o.gfx90a.part",
            "gfx908.o",
        ],
    )?;
    expect_in(
        &stderr,
        "is a part of `offld split`: pass its host half (NAME.host) as well",
    )?;
    ensure(!work.path().join("none").exists(), || "a file was written")?;
    passed()
}

fn older_table() -> Outcome {
    let Some(old) = Release::of(19) else {
        return missing("LLVM 19");
    };
    let work = Work::new();
    objects_for(&work, &["gfx90a"])?;
    let mut compile = work.command(old.tool("clang++"));
    compile.args([
        "-fopenmp",
        "-nogpulib",
        "--offload-arch=gfx908",
        "-O1",
        "-fPIC",
        "-c",
        "main.cpp",
        "-o",
        "gfx908.o",
    ]);
    run(compile.args(&old.compile))?;
    let stderr = refused(&work, ["merge", "-o", "none.o", "gfx90a.o", "gfx908.o"])?;
    expect_in(
        &stderr,
        "older entry table: gfx90a.o has `llvm_offload_entries` with entries of 56 bytes",
    )?;
    expect_in(&stderr, "compile every build with the same LLVM version")?;
    passed()
}
