//! Bundles of LLVM 14, 15, 16 and 19, whose ids have other forms (docs/spec/containers.md 2.4.3).
//! offld reads them, and they read offld's bundles as far as they read those of LLVM 22.

use libtest_mimic::{Failed, Trial};

use super::{bundler, done, ours, words};
use crate::support::{
    Outcome, Release, Work, ensure, expect_equal, expect_in, llvm, missing, passed, run, stderr_of,
    test,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = [14, 15, 16, 19]
        .map(|major| {
            test(
                format!("releases::bundler::b17_b18_ob_31_bundles_of_{major}"),
                move || read_theirs(major),
            )
        })
        .into();
    trials.push(test(
        "releases::bundler::ob_58_compressed_for_19",
        compressed_for_19,
    ));
    trials
}

/// Ids as users of old releases wrote them, and the ids that offld reports.
const OLD: [(&str, &str); 5] = [
    (
        "host-x86_64-unknown-linux-gnu",
        "host-x86_64-unknown-linux-gnu-",
    ),
    (
        "openmp-amdgcn-amd-amdhsa-gfx906",
        "openmp-amdgcn-amd-amdhsa--gfx906",
    ),
    (
        "openmp-amdgcn-amd-amdhsa--gfx908:xnack+",
        "openmp-amdgcn-amd-amdhsa-gfx908:xnack+",
    ),
    (
        "hip-amdgcn-amd-amdhsa-gfx90a",
        "hip-amdgcn-amd-amdhsa-unknown-gfx90a",
    ),
    (
        "openmp-nvptx64-nvidia-cuda-sm_70",
        "openmp-nvptx64-nvidia-cuda-unknown-sm_70",
    ),
];

fn read_theirs(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let work = Work::new();
    work.file("host.c", "int x;\n");
    run(work.command(release.tool("clang")).args([
        "--target=x86_64-unknown-linux-gnu",
        "-c",
        "host.c",
        "-o",
        "f0",
    ]))?;
    for index in 1..OLD.len() {
        work.file(&format!("f{index}"), format!("code object {index}\n"));
    }
    let files: Vec<String> = (0..OLD.len()).map(|index| format!("f{index}")).collect();
    let ids: Vec<&str> = OLD.iter().map(|(id, _)| *id).collect();
    for kind in ["i", "s", "ll", "bc", "o"] {
        let line = format!(
            "-type={kind} -targets={} -inputs={} -outputs=bundle",
            ids.join(","),
            files.join(",")
        );
        // LLVM 15 and later print a warning.
        stderr_of(&mut bundler(
            &work,
            release.tool("clang-offload-bundler"),
            &words(&line),
        ))?;
        if kind == "o" {
            // Old releases leave symbols in the object when they remove sections. llvm-objcopy 22
            // leaves none.
            let remove = [
                "--regex",
                "--remove-section=__CLANG_OFFLOAD_BUNDLE__.*",
                "bundle",
                "f0",
            ];
            run(work.command(llvm("llvm-objcopy")).args(remove))?;
        }
        let outputs: Vec<String> = files
            .iter()
            .map(|file| format!("-output={file}.out"))
            .collect();
        for ids_of_outputs in [OLD.map(|(id, _)| id), OLD.map(|(_, id)| id)] {
            done(
                &work,
                ours(),
                &format!(
                    "-unbundle -type={kind} -targets={} -input=bundle {}",
                    ids_of_outputs.join(","),
                    outputs.join(" ")
                ),
            )
            .map_err(|failed| {
                Failed::from(format!(
                    "-type={kind}: {}",
                    failed.message().unwrap_or_default()
                ))
            })?;
            for file in &files {
                let read = |name: &str| std::fs::read(work.path().join(name));
                ensure(read(file)? == read(&format!("{file}.out"))?, || {
                    format!("{file} of type {kind} came back changed")
                })?;
            }
        }
        let seen = done(&work, ours(), &format!("-list -type={kind} -input=bundle"))?;
        expect_equal(
            "ids",
            &OLD.len().to_string(),
            &seen.lines().count().to_string(),
        )?;
        // Releases before 19 store ids as typed; 19 always writes four fields.
        if major < 19 {
            expect_equal("ids", &(ids.join("\n") + "\n"), &seen)?;
        }
    }
    passed()
}

/// LLVM 19 reads compression version 2, which the environment variable selects, with the window
/// size that offld uses.
fn compressed_for_19() -> Outcome {
    let Some(release) = Release::of(19) else {
        return missing("LLVM 19 (make setup-releases)");
    };
    let work = Work::new();
    work.file("a", "host\n");
    work.file("b", "device\n".repeat(100_000));
    let line = "-type=bc -compress -targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx906 -input=a -input=b -output=packed";
    run(bundler(&work, ours(), &words(line)).env("COMPRESSED_BUNDLE_FORMAT_VERSION", "2"))?;
    let theirs = release.tool("clang-offload-bundler");
    expect_in(
        &done(&work, &theirs, "-list -type=bc -input=packed")?,
        "hip-amdgcn-amd-amdhsa--gfx906",
    )?;
    done(
        &work,
        &theirs,
        "-unbundle -type=bc -targets=hip-amdgcn-amd-amdhsa--gfx906 -input=packed -output=out",
    )?;
    expect_equal(
        "the code object",
        &"device\n".repeat(100_000),
        &std::fs::read_to_string(work.path().join("out"))?,
    )?;
    // offld reads the compressed bundles of LLVM 19.
    done(&work, &theirs, &line.replace("=packed", "=theirs"))?;
    done(
        &work,
        ours(),
        "-unbundle -type=bc -targets=hip-amdgcn-amd-amdhsa--gfx906 -input=theirs -output=out2",
    )?;
    expect_equal(
        "the code object",
        &"device\n".repeat(100_000),
        &std::fs::read_to_string(work.path().join("out2"))?,
    )?;
    passed()
}
