//! The occupancy of kernels, compared with the remarks of clang.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::support::{
    Outcome, Random, Work, ensure, llvm, offld, output, passed, run, shown, text, with_llvm,
};

/// One processor for each row of the limits.
const PROCESSORS: [&str; 14] = [
    "gfx700", "gfx803", "gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010",
    "gfx1030", "gfx1100", "gfx1102", "gfx1151", "gfx1201",
];

pub(super) fn trials() -> Vec<Trial> {
    let trial = |processor: &'static str| {
        with_llvm(&format!("diff::occupancy::{processor}"), move || {
            as_clang_says(processor)
        })
    };
    PROCESSORS.into_iter().map(trial).collect()
}

/// Kernels with different numbers of registers, local memory and workgroups.
const KERNELS: usize = 24;

fn source(random: &mut Random) -> String {
    let mut text = String::from(
        "#define KERNEL __attribute__((amdgpu_kernel)) void\n\
         #define LOCAL __attribute__((address_space(3)))\n",
    );
    for kernel in 0..KERNELS {
        let values = 1 + random.below(100);
        let local = match random.below(3) {
            0 => 0,
            _ => 1 + random.below(15_000),
        };
        let largest = 64 * (1 + random.below(16));
        let attribute = match random.below(3) {
            0 => String::new(),
            _ => format!("__attribute__((amdgpu_flat_work_group_size(1, {largest}))) "),
        };
        if local > 0 {
            let _ = writeln!(
                text,
                "static LOCAL int local{kernel}[{local}] __attribute__((loader_uninitialized));"
            );
        }
        let _ = write!(
            text,
            "{attribute}KERNEL kernel{kernel}(int *p, int n) {{\n  int t = __builtin_amdgcn_workitem_id_x(), v[{values}];\n"
        );
        for value in 0..values {
            let _ = writeln!(text, "  v[{value}] = p[t * {} + {value}];", values + 3);
        }
        text.push_str("  __builtin_amdgcn_s_barrier();\n  int sum = n;\n");
        for value in 0..values {
            let _ = writeln!(
                text,
                "  sum = sum * v[{value}] + v[{}];",
                values - 1 - value
            );
        }
        if local > 0 {
            let _ = writeln!(
                text,
                "  local{kernel}[t] = sum; __builtin_amdgcn_s_barrier(); sum += local{kernel}[t ^ 1];"
            );
        }
        text.push_str("  p[t] = sum;\n}\n");
    }
    text
}

fn as_clang_says(processor: &str) -> Outcome {
    let work = Work::new();
    let mut random = Random(0xacc0_ffee);
    work.file("kernels.c", source(&mut random));
    let mut command = work.command(llvm("clang"));
    let ended = output(
        command
            .args(["-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O2"])
            .arg(format!("-mcpu={processor}"))
            .args(["-Rpass-analysis=kernel-resource-usage"])
            .args(["kernels.c", "-o", "kernels.co"]),
    )?;
    ensure(ended.status.success(), || shown(&command, &ended))?;
    let expected = remarks(&text(&ended.stderr));
    ensure(expected.len() == KERNELS, || {
        format!("{} remarks", expected.len())
    })?;
    run(work
        .command(offld())
        .args(["diff", "--save", "kernels.json", "kernels.co"]))?;
    let found = saved(&work)?;
    let wrong: Vec<String> = expected
        .iter()
        .filter(|(kernel, waves)| found.get(*kernel) != Some(waves))
        .map(|(kernel, waves)| format!("{kernel}: {waves} waves, not {:?}", found.get(kernel)))
        .collect();
    ensure(wrong.is_empty(), || wrong.join("\n"))?;
    passed()
}

/// The occupancy of each kernel in clang's remarks.
fn remarks(text: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut kernel = String::new();
    for line in text.lines() {
        let value = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            Some(
                rest.split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        };
        if let Some(name) = value("Function Name: ") {
            kernel = name;
        }
        if let Some(waves) = value("Occupancy [waves/SIMD]: ") {
            found.insert(kernel.clone(), waves.parse().unwrap_or(u64::MAX));
        }
    }
    found
}

/// The occupancy of each kernel in the saved list.
fn saved(work: &Work) -> Result<BTreeMap<String, u64>, Failed> {
    let text = std::fs::read(work.path().join("kernels.json"))?;
    let json: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let kernels = json["list"].as_array().into_iter().flatten();
    Ok(kernels
        .map(|kernel| {
            (
                kernel["name"].as_str().unwrap_or_default().to_owned(),
                kernel["facts"]["occupancy"].as_u64().unwrap_or_default(),
            )
        })
        .collect())
}
