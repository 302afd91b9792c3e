//! Finished files of other LLVM releases, linked by their own wrappers and by offld from their
//! objects. They can be edited like those of LLVM 22, and run with the runtimes of their own
//! release.

use libtest_mimic::{Failed, Trial};

use super::{SOURCE, TWO, images, refused, same, stdout_of, targets};
use crate::support::{
    Outcome, Release, Work, ensure, expect_equal, expect_in, expect_not_in, ledger, llvm, made,
    missing, passed, run, run_offloaded, test,
};

/// The releases whose wrappers link OpenMP programs with the host as device.
const WRAPPERS: [u32; 3] = [15, 16, 19];

pub(super) fn trials() -> Vec<Trial> {
    let of = |name: &str, major: u32, check: fn(&Release) -> Outcome| {
        test(
            format!("releases::edit::{name}::{major}"),
            move || match Release::of(major) {
                Some(release) => check(&release),
                None => missing(format!("LLVM {major} (make setup-releases)")),
            },
        )
    };
    let mut trials = Vec::new();
    for major in WRAPPERS {
        trials.push(of("a_pruned_program_runs", major, pruned));
        trials.push(of("a_pruned_library_runs", major, library));
        trials.push(of("what_is_split_is_merged", major, split));
        trials.push(of("programs_are_merged", major, merged));
        trials.push(of("images_are_replaced", major, replaced));
    }
    trials.push(of("bare_images_of_offld", 14, bare));
    for major in [14, 15] {
        trials.push(of("images_among_other_data", major, images_among_constants));
    }
    trials
}

/// The output of a program from this release, run offloaded with the release's own runtime.
fn ran(work: &Work, release: &Release, name: &str) -> Result<String, Failed> {
    run_offloaded(
        work.command(work.path().join(name))
            .env("LD_LIBRARY_PATH", &release.lib),
    )
}

/// The calls with which a program registers its images.
fn registered(work: &Work, release: &Release, name: &str) -> Result<String, Failed> {
    ledger(work, &mut work.command(work.path().join(name)), release)
}

/// Compiles the program and links it with the release's own wrapper.
fn linked(work: &Work, release: &Release, name: &str, words: &[&str]) -> Result<(), Failed> {
    work.file("main.c", SOURCE);
    let mut link = work.command(release.tool("clang"));
    link.args(TWO)
        .args(&release.compile)
        .args(&release.link)
        .args(["main.c", "-o", name])
        .args(words);
    run(link.args(["-Xoffload-linker", "-z", "-Xoffload-linker", "undefs"]))?;
    Ok(())
}

fn pruned(release: &Release) -> Outcome {
    for linker in ["lld", "bfd", "mold", "wild"] {
        for form in ["-pie", "-no-pie"] {
            let work = Work::new();
            let told = |failed: Failed| {
                Failed::from(format!(
                    "{linker} {form}: {}",
                    failed.message().unwrap_or_default()
                ))
            };
            linked(
                &work,
                release,
                "both",
                &[form, &format!("-fuse-ld={linker}")],
            )
            .map_err(told)?;
            run(work.command("strip").args(["both", "-o", "stripped"]))?;
            let before = registered(&work, release, "both").map_err(told)?;
            expect_in(&before, "gfx90a")?;
            for name in ["both", "stripped"] {
                stdout_of(&work, ["prune", "--keep", "cpu", name, "-o", "pruned"]).map_err(told)?;
                expect_equal("devices", "x86_64-pc-linux-gnu", &targets(&work, "pruned")?)
                    .map_err(told)?;
                expect_equal(
                    "output",
                    "4950 device\n",
                    &ran(&work, release, "pruned").map_err(told)?,
                )?;
                expect_not_in(
                    &registered(&work, release, "pruned").map_err(told)?,
                    "gfx90a",
                )?;
                run(work.command("strip").arg("pruned"))?;
                expect_equal(
                    "output",
                    "4950 device\n",
                    &ran(&work, release, "pruned").map_err(told)?,
                )?;
            }
        }
    }
    passed()
}

fn library(release: &Release) -> Outcome {
    let work = Work::new();
    let source = SOURCE.replace("int main(", "int part(");
    work.file("part.c", source);
    work.file(
        "start.c",
        "int part(void);\nint main(void) { return part(); }\n",
    );
    let mut link = work.command(release.tool("clang"));
    link.args(TWO)
        .args(&release.compile)
        .args(&release.link)
        .args(["part.c", "-fPIC", "-shared", "-o", "libpart.so"]);
    run(link.args(["-Xoffload-linker", "-z", "-Xoffload-linker", "undefs"]))?;
    let mut link = work.command(release.tool("clang"));
    link.args([
        "start.c",
        "-L.",
        "-lpart",
        "-Wl,-rpath,$ORIGIN",
        "-o",
        "program",
    ])
    .args(&release.link);
    run(link.arg(format!("-Wl,-rpath-link,{}", release.lib.display())))?;
    expect_equal("output", "4950 device\n", &ran(&work, release, "program")?)?;
    stdout_of(
        &work,
        ["prune", "--keep", "cpu", "--in-place", "libpart.so"],
    )?;
    expect_equal(
        "devices",
        "x86_64-pc-linux-gnu",
        &targets(&work, "libpart.so")?,
    )?;
    expect_equal("output", "4950 device\n", &ran(&work, release, "program")?)?;
    passed()
}

fn split(release: &Release) -> Outcome {
    let work = Work::new();
    linked(&work, release, "both", &[])?;
    stdout_of(&work, ["split", "both", "-d", "parts"])?;
    let parts = [
        "parts/both.host",
        "parts/both.gfx90a.part",
        "parts/both.x86_64-pc-linux-gnu.part",
    ];
    stdout_of(&work, ["merge", "-o", "again"].into_iter().chain(parts))?;
    same(&work.path().join("both"), &work.path().join("again"))?;
    // The file contains no compressed data.
    expect_in(
        &stdout_of(
            &work,
            ["recompress", "--level", "5", "both", "-o", "packed"],
        )?,
        "unchanged",
    )?;
    passed()
}

/// Merges two builds of one source. The result equals a build for both devices: the same images in
/// the order of a link.
fn merged(release: &Release) -> Outcome {
    let work = Work::new();
    work.file("main.c", SOURCE);
    let cpu = ["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu", "-O1"];
    let gpu = [
        "-fopenmp",
        "-fopenmp-targets=amdgcn-amd-amdhsa",
        "-Xopenmp-target=amdgcn-amd-amdhsa",
        "-march=gfx90a",
        "-nogpulib",
        "-O1",
    ];
    for (name, words) in [("cpu", &cpu[..]), ("gpu", &gpu)] {
        let mut link = work.command(release.tool("clang"));
        link.args(words)
            .args(&release.compile)
            .args(&release.link)
            .args(["main.c", "-o", name]);
        run(link.args(["-Xoffload-linker", "-z", "-Xoffload-linker", "undefs"]))?;
    }
    linked(&work, release, "both", &[])?;
    for (first, second) in [("cpu", "gpu"), ("gpu", "cpu")] {
        stdout_of(&work, ["merge", "-o", "merged", first, second])?;
        let ([mut one, mut other], file) =
            ([images(&work, "both")?, images(&work, "merged")?], "merged");
        one.sort();
        other.sort();
        expect_equal("images", &one.join("\n"), &other.join("\n"))?;
        expect_equal("output", "4950 device\n", &ran(&work, release, file)?)?;
        run(work.command("strip").arg(file))?;
        expect_equal("output", "4950 device\n", &ran(&work, release, file)?)?;
        expect_in(&registered(&work, release, file)?, "gfx90a")?;
        stdout_of(&work, ["prune", "--keep", "cpu", "--in-place", file])?;
        expect_equal("output", "4950 device\n", &ran(&work, release, file)?)?;
        expect_equal(
            "images",
            &registered(&work, release, "cpu")?,
            &registered(&work, release, file)?,
        )?;
    }
    passed()
}

/// Replaces the host's image with a larger one. An image for another device does not affect the
/// program.
fn replaced(release: &Release) -> Outcome {
    let work = Work::new();
    linked(&work, release, "both", &[])?;
    let number = if targets(&work, "both")?.starts_with("x86") {
        "0"
    } else {
        "1"
    };
    let listed = stdout_of(&work, ["inspect", "--json", "both"])?;
    let json: serde_json::Value = serde_json::from_str(&listed)?;
    let image = &json["files"][0]["images"][number.parse::<usize>()?];
    let (start, size) = (
        image["offset"].as_u64().unwrap_or_default(),
        image["size"].as_u64().unwrap_or_default(),
    );
    let whole = std::fs::read(work.path().join("both"))?;
    let mut bytes = whole
        .get(start as usize..(start + size) as usize)
        .unwrap_or_default()
        .to_vec();
    bytes.resize(bytes.len() + 9000, 0);
    work.file("larger", bytes);
    stdout_of(
        &work,
        [
            "replace",
            "both",
            "--image",
            &format!("{number}=larger"),
            "-o",
            "other",
        ],
    )?;
    expect_equal("output", "4950 device\n", &ran(&work, release, "other")?)?;
    stdout_of(&work, ["prune", "--keep", "cpu", "--in-place", "other"])?;
    expect_equal("output", "4950 device\n", &ran(&work, release, "other")?)?;
    passed()
}

/// Up to LLVM 14, runtimes get bare images. In a program from such objects, the linker leaves the
/// compiler's sections with device code.
fn bare(release: &Release) -> Outcome {
    let work = Work::new();
    work.file("main.c", SOURCE);
    run(work
        .command(release.tool("clang"))
        .args(TWO)
        .args(&release.compile)
        .args(["-c", "main.c"]))?;
    let linker = format!("--ld-path={}", made().links.join("ld.offld").display());
    for form in ["-pie", "-no-pie"] {
        let mut link = work.command(release.tool("clang"));
        link.args(["-fopenmp", "main.o", form, &linker, "-o", "both"])
            .args(&release.link);
        run(link.args(["-Wl,--device-linker=-z", "-Wl,--device-linker=undefs"]))?;
        run(work.command("strip").args(["both", "-o", "stripped"]))?;
        let all = images(&work, "both")?;
        expect_equal(
            "images of the stripped program",
            &all.join("\n"),
            &images(&work, "stripped")?.join("\n"),
        )?;
        for name in ["both", "stripped"] {
            stdout_of(&work, ["prune", "--keep", "cpu", name, "-o", "pruned"])?;
            expect_not_in(&images(&work, "pruned")?.join("\n"), "amdgcn")?;
            expect_equal("output", "4950 device\n", &ran(&work, release, "pruned")?)?;
            stdout_of(&work, ["split", name, "-d", "parts"])?;
            let folder = std::fs::read_dir(work.path().join("parts"))?;
            let parts =
                folder.map(|entry| Ok(format!("parts/{}", entry?.file_name().to_string_lossy())));
            let parts = parts.collect::<Result<Vec<String>, Failed>>()?;
            stdout_of(
                &work,
                ["merge", "-o", "again"]
                    .into_iter()
                    .chain(parts.iter().map(String::as_str)),
            )?;
            same(&work.path().join(name), &work.path().join("again"))?;
            std::fs::remove_dir_all(work.path().join("parts"))?;
        }
        let stderr = refused(
            &work,
            ["replace", "both", "--image", "2=main.c", "-o", "other"],
        )?;
        expect_in(&stderr, "of a finished program: only linkers read them")?;
    }
    passed()
}

/// `clang-offload-wrapper` of old releases puts images between a program's constants, whose
/// addresses must not change.
fn images_among_constants(release: &Release) -> Outcome {
    let work = Work::new();
    work.file("main.c", SOURCE);
    let clang = |words: &[&str]| -> Result<(), Failed> {
        run(work
            .command(release.tool("clang"))
            .args(words)
            .args(&release.compile))
        .map(drop)
    };
    let cpu = [
        "-fopenmp",
        "-fopenmp-targets=x86_64-pc-linux-gnu",
        "-O1",
        "-c",
    ];
    clang(&[&cpu[..], &["main.c", "-fPIC", "-o", "main.o"]].concat())?;
    if release.major == 14 {
        let section = ".llvm.offloading.x86_64-pc-linux-gnu..main";
        let flags = format!("{section}=alloc");
        run(work.command("objcopy").args([
            "-O",
            "binary",
            "--only-section",
            section,
            "--set-section-flags",
            &flags,
            "main.o",
            "device.o",
        ]))?;
    } else {
        run(work
            .command(llvm("llvm-offload-binary"))
            .args(["main.o", "--image=file=device.o,kind=openmp"]))?;
    }
    run(work
        .command(release.tool("clang"))
        .args(["-shared", "device.o", "-o", "cpu.image"]))?;
    work.file(
        "gpu.c",
        "__attribute__((visibility(\"default\"))) int large[9000] = {1};\n",
    );
    let gpu = [
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx90a",
        "-nogpulib",
        "gpu.c",
        "-o",
        "gpu.image",
    ];
    run(work.command(release.tool("clang")).args(gpu))?;
    let wrap = [
        "-target",
        "x86_64-pc-linux-gnu",
        "-o",
        "images.bc",
        "cpu.image",
        "gpu.image",
    ];
    run(work
        .command(release.tool("clang-offload-wrapper"))
        .args(wrap))?;
    run(work
        .command(release.tool("clang"))
        .args(["-fPIC", "-c", "images.bc", "-o", "images.o"]))?;
    for words in [
        ["-pie", "-fuse-ld=bfd"],
        ["-no-pie", "-fuse-ld=bfd"],
        ["-pie", "-fuse-ld=lld"],
        ["-no-pie", "-fuse-ld=lld"],
    ] {
        let told = |failed: Failed| {
            Failed::from(format!(
                "{words:?}: {}",
                failed.message().unwrap_or_default()
            ))
        };
        let mut link = work.command(release.tool("clang"));
        run(link
            .args(words)
            .args(["main.o", "images.o", "-lomp", "-lomptarget", "-o", "both"])
            .args(&release.link))?;
        run(work.command("strip").args(["both", "-o", "stripped"]))?;
        for name in ["both", "stripped"] {
            stdout_of(&work, ["prune", "--drop", "gfx90a", name, "-o", "pruned"]).map_err(told)?;
            expect_not_in(&targets(&work, "pruned")?, "gfx90a")?;
            let size =
                |name: &str| std::fs::metadata(work.path().join(name)).map(|meta| meta.len());
            let (before, after) = (size(name)?, size("pruned")?);
            ensure(after + 32_000 < before, || {
                format!("{name}: {before} bytes, then {after}")
            })
            .map_err(told)?;
            expect_equal(
                "output",
                "4950 device\n",
                &ran(&work, release, "pruned").map_err(told)?,
            )?;
            run(work.command("strip").arg("pruned"))?;
            expect_equal(
                "output",
                "4950 device\n",
                &ran(&work, release, "pruned").map_err(told)?,
            )?;
            stdout_of(&work, ["split", name, "-d", "parts"]).map_err(told)?;
            let folder = std::fs::read_dir(work.path().join("parts"))?;
            let parts =
                folder.map(|entry| Ok(format!("parts/{}", entry?.file_name().to_string_lossy())));
            let parts = parts.collect::<Result<Vec<String>, Failed>>()?;
            stdout_of(
                &work,
                ["merge", "-o", "again"]
                    .into_iter()
                    .chain(parts.iter().map(String::as_str)),
            )?;
            same(&work.path().join(name), &work.path().join("again"))?;
            std::fs::remove_dir_all(work.path().join("parts"))?;
        }
    }
    passed()
}
