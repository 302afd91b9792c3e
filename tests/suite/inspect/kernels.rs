//! Kernels and their resources: AMD ones compared with `llvm-readelf --notes`, NVIDIA ones with
//! `cuobjdump -res-usage`, CPU ones with their symbols.

use std::collections::BTreeMap;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::{Report, field, inspect_well, line};
use crate::support::{
    OFFLOAD, Outcome, Release, Work, cuda_tools, ensure, expect_equal, llvm, missing, passed, root,
    run, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("inspect::kernels::amdgpu", amdgpu),
        with_llvm("inspect::kernels::of_the_host_as_device", host),
        test("releases::inspect::kernels::code_object_2", code_object_2),
        test("releases::inspect::kernels::cubin", cubin),
    ]
}

/// Kernels with shared memory, private arrays, a call with a stack, launch bounds and spills.
const SOURCE: &str = r#"
#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE __attribute__((device))
#define SHARED __attribute__((shared))
DEVICE int table[100];
KERNEL shares(int *a, int n) {
  SHARED int s[64];
  s[n & 63] = a[n];
  a[n + 1] = s[(n * 7) & 63] + table[n];
}
KERNEL owns(double *a, int n) {
  double l[50];
  for (int i = 0; i < 50; i++) l[i] = a[i * n];
  for (int i = 0; i < n; i++) a[i] = l[(i * n) % 50];
}
DEVICE __attribute__((noinline)) int deep(int *a, int n) {
  volatile int l[20];
  for (int i = 0; i < 20; i++) l[i] = a[i + n];
  return l[n % 20] + (n > 0 ? deep(a, n - 1) : 0);
}
KERNEL calls(int *a, int n, char c) { a[0] = deep(a, n) + c; }
KERNEL __attribute__((launch_bounds(128, 16))) bounded(float *a) {
  float l[96];
#pragma unroll
  for (int i = 0; i < 96; i++) l[i] = a[i] * a[i + 1];
  float s = 0;
#pragma unroll
  for (int i = 0; i < 96; i++) for (int j = 0; j < 4; j++) s += l[i] * l[(i * 7 + j) % 96];
  a[0] = s;
}
"#;

fn device_code(work: &Work, release: &Release, args: &[&str]) -> Result<String, Failed> {
    work.file("k.hip", SOURCE);
    let mut command = work.command(release.tool("clang"));
    command
        .args(["-O2", "-nogpuinc", "-nogpulib", "--cuda-device-only"])
        .args(args);
    run(&mut command)
}

fn kernels(report: &Report) -> Result<BTreeMap<String, Value>, Failed> {
    let [image] = report.images(0) else {
        return Err(format!("one image: {}", report.json).into());
    };
    let kernels = image["kernels"].as_array().ok_or("no kernels")?;
    Ok(kernels
        .iter()
        .map(|kernel| (field(kernel, "name"), kernel.clone()))
        .collect())
}

/// The sizes of the functions in an ELF file, by name.
fn sizes(work: &Work, file: &str) -> Result<BTreeMap<String, String>, Failed> {
    let listed = work.run(llvm("llvm-readelf"), ["-sW", file])?;
    let functions = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    // For NVIDIA symbols, llvm-readelf prints an additional column with flags.
    let functions = functions.filter(|columns| {
        columns.len() >= 8 && ["FUNC", "AMDGPU_HSA_KERNEL"].contains(&columns[3])
    });
    Ok(functions
        .map(|columns| {
            (
                columns.last().copied().unwrap_or_default().to_owned(),
                columns[2].to_owned(),
            )
        })
        .collect())
}

fn amdgpu() -> Outcome {
    let work = Work::new();
    for (arch, version) in [
        ("gfx90a", 5),
        ("gfx1100", 5),
        ("gfx906:xnack+", 4),
        ("gfx9-generic", 6),
    ] {
        let (arch, version) = (
            format!("--offload-arch={arch}"),
            format!("-mcode-object-version={version}"),
        );
        let args = [
            "-x",
            "hip",
            "--no-gpu-bundle-output",
            &arch,
            &version,
            "-c",
            "k.hip",
            "-o",
            "k.co",
        ];
        device_code(&work, &Release::newest(), &args)?;
        let report = kernels(&inspect_well(&work, ["--kernels", "k.co"])?)?;
        let notes = work.run(llvm("llvm-readelf"), ["--notes", "k.co"])?;
        let sizes = sizes(&work, "k.co")?;
        let blocks: Vec<&str> = notes.split("\n  - .").skip(1).collect();
        expect_equal("kernels", "4", &blocks.len().to_string())?;
        for block in blocks {
            // A block of a kernel without agprs starts with another field.
            let value = |name: &str| {
                let found = block
                    .lines()
                    .map(|line| line.trim_start().trim_start_matches('.'))
                    .find_map(|line| line.strip_prefix(name));
                found
                    .and_then(|rest| rest.strip_prefix(':'))
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            };
            let name = value("name");
            let kernel = report.get(&name).ok_or_else(|| format!("no {name}"))?;
            let fields = [
                "vgprs",
                "agprs",
                "sgprs",
                "spilled_vgprs",
                "spilled_sgprs",
                "shared",
                "scratch",
                "arguments",
                "max_workgroup",
            ];
            let wanted = [
                "vgpr_count",
                "agpr_count",
                "sgpr_count",
                "vgpr_spill_count",
                "sgpr_spill_count",
                "group_segment_fixed_size",
                "private_segment_fixed_size",
                "kernarg_segment_size",
                "max_flat_workgroup_size",
            ];
            expect_equal(
                &format!("{arch}: {name}"),
                &wanted.map(value).join("|"),
                &line(kernel, &fields),
            )?;
            expect_equal(
                &name,
                sizes.get(&name).map_or("", String::as_str),
                &field(kernel, "code_size"),
            )?;
        }
        // Reported values must differ between kernels, so that a constant cannot pass.
        expect_equal("LDS", "256", &field(&report["shares"], "shared"))?;
    }
    passed()
}

/// Code object version 2 has no msgpack metadata. Its kernels are in the symbol table.
fn code_object_2() -> Outcome {
    let Some(release) = Release::of(14) else {
        return missing("LLVM 14 (make setup-releases)");
    };
    let work = Work::new();
    let args = [
        "-x",
        "hip",
        "--no-gpu-bundle-output",
        "--offload-arch=gfx906",
        "-mcode-object-version=2",
        "-c",
        "k.hip",
        "-o",
        "k.co",
    ];
    device_code(&work, &release, &args)?;
    let report = kernels(&inspect_well(&work, ["--kernels", "k.co"])?)?;
    let sizes = sizes(&work, "k.co")?;
    let names: Vec<&str> = report.keys().map(String::as_str).collect();
    expect_equal("kernels", "bounded calls owns shares", &names.join(" "))?;
    for (name, kernel) in &report {
        expect_equal(name, &sizes[name], &field(kernel, "code_size"))?;
    }
    passed()
}

fn cubin() -> Outcome {
    let Some(tools) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let work = Work::new();
    let cuda = format!("--cuda-path={}", tools.display());
    device_code(
        &work,
        &Release::newest(),
        &[
            "-x",
            "cuda",
            "-nocudainc",
            "-nocudalib",
            &cuda,
            "--offload-arch=sm_80",
            "-S",
            "k.hip",
            "-o",
            "k.ptx",
        ],
    )?;
    let ptx = std::fs::read_to_string(work.path().join("k.ptx"))?;
    for (arch, version) in [
        ("sm_80", "7.8"),
        ("sm_90", "7.8"),
        ("sm_100", "8.6"),
        ("sm_120", "8.7"),
    ] {
        work.file(
            "now.ptx",
            ptx.replace(".target sm_80", &format!(".target {arch}"))
                .replace(".version 7.8", &format!(".version {version}")),
        );
        run(work.command(tools.join("bin/ptxas")).args([
            &format!("-arch={arch}"),
            "now.ptx",
            "-o",
            "k.cubin",
        ]))?;
        let inspected = inspect_well(&work, ["--kernels", "k.cubin"])?;
        expect_equal("target", arch, &field(&inspected.images(0)[0], "target"))?;
        let report = kernels(&inspected)?;
        let used = run(work
            .command(tools.join("bin/cuobjdump"))
            .args(["-res-usage", "k.cubin"]))?;
        let (sizes, mut count) = (sizes(&work, "k.cubin")?, 0);
        for function in used.split(" Function ").skip(1) {
            let (name, rest) = function.split_once(':').ok_or("no name")?;
            let Some(kernel) = report.get(name) else {
                continue;
            };
            count += 1;
            let value = |name: &str| {
                rest.split_whitespace()
                    .find_map(|word| word.strip_prefix(name)?.strip_prefix(':'))
                    .unwrap_or_default()
            };
            let wanted = ["REG", "STACK", "SHARED"]
                .map(value)
                .join("|")
                .replace("UNKNOWN", "");
            expect_equal(
                &format!("{arch}: {name}: {function}"),
                &wanted,
                &line(kernel, &["registers", "scratch", "shared"]),
            )?;
            expect_equal(name, &sizes[name], &field(kernel, "code_size"))?;
        }
        expect_equal("kernels", "4 4", &format!("{count} {}", report.len()))?;
        expect_equal(
            "bounded",
            "8|128",
            &line(&report["bounded"], &["arguments", "max_workgroup"]),
        )?;
        expect_equal("calls", "13", &field(&report["calls"], "arguments"))?;
    }
    passed()
}

fn host() -> Outcome {
    let work = Work::new();
    let source = root().join("tests/programs/reduction.c");
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .arg("-O1")
        .arg(source)
        .args(["-o", "program"]))?;
    let report = inspect_well(&work, ["--kernels", "--extract", "out", "program"])?;
    let image = field(&report.images(0)[0], "extracted");
    let listed = work.run(
        llvm("llvm-nm"),
        ["-D", "--defined-only", "--print-size", "--radix=d", &image],
    )?;
    let columns = listed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let functions =
        columns.filter(|columns| columns.len() == 4 && columns[3].starts_with("__omp_offloading_"));
    let wanted: BTreeMap<String, String> = functions
        .map(|columns| {
            (
                columns[3].to_owned(),
                columns[1].trim_start_matches('0').to_owned(),
            )
        })
        .collect();
    let report: BTreeMap<String, String> = kernels(&report)?
        .iter()
        .map(|(name, kernel)| (name.clone(), field(kernel, "code_size")))
        .collect();
    expect_equal("kernels", &format!("{wanted:#?}"), &format!("{report:#?}"))?;
    ensure(!report.is_empty(), || "no kernel was shown")?;
    passed()
}
