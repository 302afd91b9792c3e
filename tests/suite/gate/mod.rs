//! `offld gate`: policies, and wheels with the accidents that projects have published.

mod accidents;
mod ci;
mod rules;

use libtest_mimic::{Failed, Trial};

use crate::support::{Work, ensure, llvm, offld, output, run, shown, text};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { accidents ci rules }
}

/// Writes the policy `policy.toml` and checks files with the exit status `status`. Returns stdout and
/// stderr.
fn gate(work: &Work, policy: &str, args: &[&str], status: i32) -> Result<(String, String), Failed> {
    work.file("policy.toml", policy);
    let mut command = work.command(offld());
    command.arg("gate").args(args);
    let ended = output(&mut command)?;
    ensure(ended.status.code() == Some(status), || {
        shown(&command, &ended)
    })?;
    Ok((text(&ended.stdout), text(&ended.stderr)))
}

/// Packs files under their names as the wheel `name`, with a `WHEEL` file for `tag`.
fn wheel(work: &Work, name: &str, files: &[(&str, &str)], tag: &str) -> Result<(), Failed> {
    work.file(
        "make.py",
        "import sys, zipfile\n\
         name, tag, *files = sys.argv[1:]\n\
         with zipfile.ZipFile(name, 'w', zipfile.ZIP_DEFLATED) as wheel:\n\
         \x20   for one in files:\n\
         \x20       path, _, member = one.partition('=')\n\
         \x20       wheel.write(path, member)\n\
         \x20   wheel.writestr('some-1.0.dist-info/WHEEL', f'Wheel-Version: 1.0\\nTag: {tag}\\n')\n",
    );
    let files = files
        .iter()
        .map(|(path, member)| format!("{path}={member}"));
    run(work
        .command("python3")
        .args(["make.py", name, tag])
        .args(files))?;
    Ok(())
}

/// The tag of the wheels here.
const TAG: &str = "py3-none-linux_x86_64";

/// HIP kernels without headers. `BODY` is what the first one does.
const KERNELS: &str = "\
struct dim3 { unsigned x, y, z; };\n\
extern \"C\" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *);\n\
#define KERNEL extern \"C\" __attribute__((global)) void\n\
__attribute__((device)) const char table[200000] = {1, 2, 3};\n\
#ifndef BODY\n\
#define BODY out[0] = table[at];\n\
#endif\n\
KERNEL first(int *out, int at) { BODY }\n\
#ifndef LOST\n\
KERNEL second(int *out) { *out = 2; }\n\
#endif\n";

/// Compiles a HIP library for GPUs. `args` are further arguments of clang, and `bundles` is the
/// version of compressed bundles.
pub(crate) fn library(
    work: &Work,
    name: &str,
    archs: &[&str],
    args: &[&str],
    bundles: &str,
) -> Result<(), Failed> {
    work.file("kernels.hip", KERNELS);
    let archs = archs.iter().map(|arch| format!("--offload-arch={arch}"));
    run(work
        .command(llvm("clang++"))
        .args(["-x", "hip", "kernels.hip", "-nogpulib", "-nogpuinc", "-O2"])
        .args(["-fPIC", "-shared", "-nostdlib", "--no-offload-new-driver"])
        .env("COMPRESSED_BUNDLE_FORMAT_VERSION", bundles)
        .args(archs)
        .args(args)
        .args(["-o", name]))?;
    Ok(())
}

/// PTX for a processor with this version of the language.
fn ptx(work: &Work, name: &str, arch: &str, version: &str) -> Result<(), Failed> {
    work.file(
        "kernel.c",
        "__attribute__((nvptx_kernel)) void kernel(int *p) { *p = 1; }\n",
    );
    run(work
        .command(llvm("clang"))
        .args(["-target", "nvptx64-nvidia-cuda", "-nogpulib", "-O2", "-S"])
        .arg(format!("-march={arch}"))
        .args(["-Xclang", "-target-feature", "-Xclang"])
        .arg(format!("+ptx{version}"))
        .args(["kernel.c", "-o", name]))?;
    Ok(())
}
