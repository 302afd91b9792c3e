//! Builds by NVIDIA's own compiler for one architecture each, merged and pruned. Linked programs run
//! with the runtime stub.

use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};

use super::{images, stdout_of, targets};
use crate::kinds::{normalized, stubs};
use crate::support::{
    Outcome, Work, cuda_tools, expect_equal, expect_in, expect_not_in, missing, nvcc, passed, run,
    test,
};

pub(super) fn trials() -> Vec<Trial> {
    let of = |name: &str, is_relocatable| {
        test(format!("releases::edit::nvcc::{name}"), move || {
            builds(is_relocatable)
        })
    };
    vec![
        of("builds_are_merged", false),
        of("relocatable_builds_are_merged", true),
    ]
}

const SOURCE: &str = "#include <cstdio>\n__constant__ int table[4] = {1, 2, 3, 4};\n__device__ float counter;\n\
    __global__ void scale(float *p, float by) { p[threadIdx.x] *= by + counter + table[threadIdx.x & 3]; }\n\
    template <class T> __global__ void add(T *p, T x) { p[blockIdx.x] += x; }\n\
    int main() { scale<<<1, 1>>>(nullptr, 2); add<int><<<1, 1>>>(nullptr, 1); printf(\"ran\\n\"); }\n";

const ARCHS: [&str; 3] = ["80", "90", "100"];

struct Nvcc {
    nvcc: PathBuf,
    is_relocatable: bool,
}

impl Nvcc {
    /// Runs nvcc with these arguments for some architectures.
    fn run(&self, work: &Work, archs: &[&str], words: &[&str]) -> Result<(), Failed> {
        let mut command = work.command(&self.nvcc);
        command.args(
            archs
                .iter()
                .map(|arch| format!("-gencode=arch=compute_{arch},code=sm_{arch}")),
        );
        command
            .arg(format!("-rdc={}", self.is_relocatable))
            .args(["-Xcompiler=-fPIC", "-cudart=shared"]);
        run(command.arg(format!("-L{}", stubs().display())).args(words))?;
        Ok(())
    }
}

/// The calls with which a program registers its images. The linked code for one architecture
/// differs between two builds.
fn registered(work: &Work, name: &str) -> Result<String, Failed> {
    let ledger = work.path().join("ledger");
    let printed = run(work
        .command(work.path().join(name))
        .env("OFFLD_LEDGER", &ledger)
        .env("LD_LIBRARY_PATH", stubs()))?;
    expect_equal("output", "ran\n", &printed)?;
    let text = normalized(work, &ledger)?;
    std::fs::remove_file(ledger)?;
    expect_not_in(&text, "BAD")?;
    Ok(text)
}

fn builds(is_relocatable: bool) -> Outcome {
    let (Some(nvcc), Some(cuda)) = (nvcc(), cuda_tools(22)) else {
        return missing("NVIDIA's tools and nvcc (make setup-cuda)");
    };
    let nvcc = Nvcc {
        nvcc: nvcc.join("bin/nvcc"),
        is_relocatable,
    };
    let work = Work::new();
    work.file("main.cu", SOURCE);
    let kinds = [
        ("program", &["main.cu"][..]),
        ("lib.so", &["-shared", "main.cu"]),
        ("main.o", &["-c", "main.cu"]),
    ];
    for (name, words) in kinds {
        for archs in [&ARCHS[..], &ARCHS[..1], &ARCHS[1..2], &ARCHS[2..]] {
            nvcc.run(
                &work,
                archs,
                &[words, &["-o", &format!("{}-{name}", archs.join("-"))]].concat(),
            )?;
        }
        let one = ARCHS.map(|arch| format!("{arch}-{name}"));
        stdout_of(
            &work,
            ["merge", "-o", name]
                .into_iter()
                .chain(one.iter().map(String::as_str)),
        )?;
        let listed = run(work
            .command(cuda.join("bin/cuobjdump"))
            .args(["-lelf", name]))?;
        for (arch, one) in ARCHS.iter().zip(&one) {
            expect_in(&listed, &format!(".sm_{arch}.cubin"))?;
            stdout_of(
                &work,
                [
                    "prune",
                    "--keep",
                    &format!("sm_{arch}"),
                    name,
                    "-o",
                    "pruned",
                ],
            )?;
            expect_equal(
                "images",
                &images(&work, one)?.join("\n"),
                &images(&work, "pruned")?.join("\n"),
            )?;
            if name == "program" {
                expect_equal(
                    "ledger of the pruned one",
                    &registered(&work, one)?,
                    &registered(&work, "pruned")?,
                )?;
            }
        }
        let all = format!("80-90-100-{name}");
        let sorted = |file: &str| -> Result<Vec<String>, Failed> {
            let mut names: Vec<String> = targets(&work, file)?
                .split(' ')
                .map(str::to_owned)
                .collect();
            names.sort();
            Ok(names)
        };
        expect_equal(
            "devices",
            &sorted(&all)?.join(" "),
            &sorted(name)?.join(" "),
        )?;
    }
    nvcc.run(&work, &ARCHS, &["main.o", "-o", "of_merged"])?;
    let expected = registered(&work, "80-90-100-program")?;
    for name in ["program", "of_merged"] {
        expect_equal(name, &expected, &registered(&work, name)?)?;
    }
    passed()
}
