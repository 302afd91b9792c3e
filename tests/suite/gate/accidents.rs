//! Accidents of released wheels, each built again as a small wheel. One short policy finds all of
//! them, and accepts the correct wheel.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::{TAG, gate, library, ptx, wheel};
use crate::support::{Outcome, Work, ensure, expect_equal, llvm, offld, passed, run, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![with_llvm("gate::accidents::one_policy_finds_all", all)]
}

const POLICY: &str = r#"version = 1

[[rule]]
files = "*.whl"
checks = ["device-code", "registered", "compressed", "no-debug-info", "no-duplicates", "wheel-tags"]
forbid = "gfx906"
runs-on = "sm_86"
ptx-floor = "compute_80"
max-driver = 550
max-rocm = "6.4"
max-size = { total = "100K" }

[[rule]]
files = "*.so"
checks = "device-code"
require = ["gfx90a:xnack+", "gfx90a:xnack-", "gfx1100"]

[[rule]]
checks = "no-lost-kernels"
max-growth = { registers = 4, spills = 0 }
"#;

/// A wheel to build: what differs from the correct one.
struct Build {
    archs: &'static [&'static str],
    args: &'static [&'static str],
    /// The version of compressed bundles.
    bundles: &'static str,
    ptx: (&'static str, &'static str),
    /// Whether the second library has device code.
    rccl: bool,
    /// More members, which exist.
    more: &'static [(&'static str, &'static str)],
    name: &'static str,
    tag: &'static str,
}

const GOOD: Build = Build {
    archs: &["gfx90a:xnack+", "gfx90a:xnack-", "gfx1100"],
    args: &["--offload-compress"],
    bundles: "2",
    ptx: ("sm_80", "84"),
    rccl: true,
    more: &[],
    name: "some-1.0-py3-none-linux_x86_64.whl",
    tag: TAG,
};

/// The accidents: where each was published, the wheel, and the requirement that finds it.
const ACCIDENTS: [(&str, Build, &str); 15] = [
    (
        "flashinfer-ai/flashinfer#4757: larger than the limit of the index",
        Build {
            more: &[("noise", "some/noise.bin")],
            ..GOOD
        },
        "max-size.total",
    ),
    (
        "ROCm/rocm-systems#10516, flashinfer-ai/flashinfer#2949: compression lost",
        Build {
            args: &["--no-offload-compress"],
            ..GOOD
        },
        "compressed",
    ),
    (
        "flashinfer-ai/flashinfer#4648: the same code twice",
        Build {
            more: &[("kernels.so", "some/copy.so")],
            ..GOOD
        },
        "no-duplicates",
    ),
    (
        "ROCm/TheRock#5446: a library without its device code",
        Build {
            rccl: false,
            ..GOOD
        },
        "device-code",
    ),
    (
        "openvdb/fvdb-core#789: code for 8.9, a GPU with 8.6",
        Build {
            ptx: ("sm_89", "84"),
            ..GOOD
        },
        "runs-on",
    ),
    (
        "Comfy-Org/ComfyUI#16438: PTX for later GPUs only",
        Build {
            ptx: ("sm_90", "84"),
            ..GOOD
        },
        "ptx-floor",
    ),
    (
        "pytorch/executorch#21567: claimed and not contained",
        Build {
            name: "some-1.0-py3-none-linux_x86_64-rocm.whl",
            more: &[("variant.json", "some-1.0.dist-info/variant.json")],
            ..GOOD
        },
        "wheel-tags",
    ),
    (
        "pytorch/pytorch#180641: an architecture dropped",
        Build {
            archs: &["gfx90a:xnack+", "gfx90a:xnack-"],
            ..GOOD
        },
        "require",
    ),
    (
        "ROCm/rocm-systems#7645: code for XNACK dropped",
        Build {
            archs: &["gfx90a:xnack-", "gfx1100"],
            ..GOOD
        },
        "require",
    ),
    (
        "ROCm/rocm-libraries#8660: an image without kernels of the host",
        Build {
            args: &["--offload-compress", "-Xarch_gfx1100", "-DLOST"],
            ..GOOD
        },
        "registered",
    ),
    (
        "ggml-org/llama.cpp#20430: more registers",
        Build {
            args: &[
                "--offload-compress",
                "-DBODY=int a[40];for(int i=0;i<40;i++)a[i]=out[i*at];__builtin_amdgcn_s_barrier();for(int i=0;i<40;i++)out[i+at]=a[i]*a[39-i];",
            ],
            ..GOOD
        },
        "max-growth.registers",
    ),
    (
        "ROCm/rocm-systems#7645: kernels dropped",
        Build {
            args: &["--offload-compress", "-DLOST"],
            ..GOOD
        },
        "no-lost-kernels",
    ),
    (
        "ROCm/rocm-systems#6943: an invalid image for the installed ROCm",
        Build {
            bundles: "3",
            ..GOOD
        },
        "max-rocm",
    ),
    (
        "debug information in a release",
        Build {
            args: &["--offload-compress", "-g"],
            ..GOOD
        },
        "no-debug-info",
    ),
    (
        "PTX of a compiler that is newer than the driver",
        Build {
            ptx: ("sm_80", "86"),
            ..GOOD
        },
        "max-driver",
    ),
];

/// Builds a wheel in a directory of its own.
fn built(build: &Build) -> Result<Work, Failed> {
    let work = Work::new();
    library(&work, "kernels.so", build.archs, build.args, build.bundles)?;
    if build.rccl {
        let names = ["--offload-compress", "-Dfirst=send", "-Dsecond=receive"];
        library(&work, "librccl.so", GOOD.archs, &names, GOOD.bundles)?;
    } else {
        work.file("host.c", "int host;\n");
        run(work.command(llvm("clang")).args([
            "-shared",
            "-nostdlib",
            "host.c",
            "-o",
            "librccl.so",
        ]))?;
    }
    ptx(&work, "kernel.ptx", build.ptx.0, build.ptx.1)?;
    let mut state = 7_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_le_bytes()[6]
    };
    work.file("noise", (0..400_000).map(|_| next()).collect::<Vec<u8>>());
    work.file(
        "variant.json",
        r#"{"variants": {"rocm": {"amd": {"gfx_arch": ["gfx90a", "gfx942"]}}}}"#,
    );
    let mut files = vec![
        ("kernels.so", "some/kernels.so"),
        ("librccl.so", "some/librccl.so"),
        ("kernel.ptx", "some/kernel.ptx"),
    ];
    files.extend(build.more);
    wheel(&work, build.name, &files, build.tag)?;
    Ok(work)
}

fn all() -> Outcome {
    ensure(
        POLICY.lines().filter(|line| !line.is_empty()).count() <= 20,
        || "the policy has more than 20 lines",
    )?;
    let good = built(&GOOD)?;
    run(good
        .command(offld())
        .args(["diff", "--save", "kernels.json", GOOD.name]))?;
    let baseline = good.path().join("kernels.json");
    let baseline = format!("--baseline={}", baseline.display());
    let (stdout, _) = gate(&good, POLICY, &[&baseline, "policy.toml", GOOD.name], 0)?;
    expect_equal("stdout", "policy.toml: 3 rules met\n", &stdout)?;
    for (accident, build, requirement) in &ACCIDENTS {
        let work = built(build)?;
        let args = ["--json", &baseline, "policy.toml", build.name];
        let (json, _) = gate(&work, POLICY, &args, 3)
            .map_err(|failed| format!("{accident}: {}", failed.message().unwrap_or_default()))?;
        let report: Value = serde_json::from_str(&json)?;
        let found = report["violations"].as_array().ok_or("no violations")?;
        ensure(
            found.iter().any(|one| one["requirement"] == *requirement),
            || format!("{accident}: no {requirement} in {json}"),
        )?;
    }
    passed()
}
