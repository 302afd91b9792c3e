//! Archives from the bundler of each release, unbundled by the same bundler and by offld.

use libtest_mimic::Trial;

use super::{by_ours, members};
use crate::bundler::{bundler, words};
use crate::support::{Outcome, Release, Work, expect_equal, missing, passed, run, stderr_of, test};

pub(super) fn trials() -> Vec<Trial> {
    [14, 15, 16, 19, 22]
        .map(|major| {
            test(
                format!("releases::archives::b18_ob_43_ob_46_ob_47_of_{major}"),
                move || of(major),
            )
        })
        .into()
}

fn of(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let work = Work::new();
    // As each takes them: with four fields, or as many as LLVM 14's users wrote.
    let ids = if major < 19 {
        [
            "host-x86_64-unknown-linux-gnu",
            "openmp-amdgcn-amd-amdhsa-gfx906",
            "openmp-amdgcn-amd-amdhsa-gfx908:xnack+",
            "openmp-nvptx64-nvidia-cuda-sm_70",
        ]
    } else {
        [
            "host-x86_64-unknown-linux-gnu-",
            "openmp-amdgcn-amd-amdhsa--gfx906",
            "openmp-amdgcn-amd-amdhsa--gfx908:xnack+",
            "openmp-nvptx64-nvidia-cuda--sm_70",
        ]
    };
    let theirs = release.tool("clang-offload-bundler");
    let clang = release.tool("clang");
    for index in 1..4 {
        work.file(
            "d.c",
            format!("int device_{index}(void) {{ return {index}; }}\n"),
        );
        run(work
            .command(&clang)
            .args(["-c", "-emit-llvm", "d.c", "-o", &format!("d{index}")]))?;
    }
    for name in ["func_1.o", "func_2.o"] {
        work.file("h.c", format!("int {};\n", name.replace('.', "_")));
        run(work.command(&clang).args(["-c", "h.c", "-o", "d0"]))?;
        let line = format!(
            "-type=o -targets={} -inputs=d0,d1,d2,d3 -outputs={name}",
            ids.join(",")
        );
        stderr_of(&mut bundler(&work, &theirs, &words(&line)))?;
    }
    stderr_of(&mut bundler(
        &work,
        &theirs,
        &words(&format!(
            "-type=bc -targets={} -inputs=d0,d1,d2,d3 -outputs=func_3.bc",
            ids.join(",")
        )),
    ))?;
    run(work.command(release.tool("llvm-ar")).args([
        "cr",
        "lib.a",
        "func_1.o",
        "func_2.o",
        "func_3.bc",
    ]))?;
    let line = |start: &str| {
        let outputs: Vec<String> = (1..4).map(|index| format!("{start}.{index}")).collect();
        format!(
            "-type=a -unbundle -targets={} -inputs=lib.a -outputs={}",
            ids[1..].join(","),
            outputs.join(",")
        )
    };
    stderr_of(&mut bundler(&work, &theirs, &words(&line("theirs"))))?;
    by_ours(&work, &line("ours"))?;
    for (index, id) in ids.iter().enumerate().skip(1) {
        let [seen, expected] =
            ["ours", "theirs"].map(|start| members(&work, &format!("{start}.{index}")));
        let (seen, expected) = (seen?, expected?);
        let named = |all: &[(String, Vec<u8>)]| {
            all.iter()
                .map(|(name, _)| name.clone() + "\n")
                .collect::<String>()
        };
        expect_equal(
            &format!("members for {id}"),
            &named(&expected),
            &named(&seen),
        )?;
        expect_equal(
            "three members with the same bytes",
            "true true",
            &format!("{} {}", seen.len() == 3, seen == expected),
        )?;
    }
    passed()
}
