//! Device links for NVIDIA's GPUs with a compiler of LLVM 15 or earlier, whose driver cannot link for them and would run the host's
//! `ld`. The wrappers of those releases ran `nvlink` directly, and so does this.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::DeviceContext;
use super::arg_list::ArgList;
use crate::formats::magic;
use crate::link::select::DeviceJob;
use crate::sys::toolchain;
use crate::target::Target;

/// The last release whose driver cannot link for these devices.
const LAST: u32 = 15;

/// Whether `target` is linked by nvlink.
pub(super) fn serves(target: &Target, context: &DeviceContext<'_>) -> bool {
    target.is_nvptx() && context.compiler.major.is_some_and(|major| major <= LAST)
}

/// The program and its arguments, as LLVM 15's wrapper gives them, for linking `inputs` (the job's, as files) to `output`.
pub(super) fn command(
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
    inputs: &[PathBuf],
    output: &Path,
) -> Result<(PathBuf, Vec<OsString>)> {
    let request = context.request;
    if let Some(bitcode) = job.inputs.iter().find(|input| magic::is_bitcode(&input.bytes)) {
        bail!(
            "device link for {}: {} is bitcode, which {} cannot link for this device: name a clang of version {} or later with \
             --offld-clang= or OFFLD_CLANG",
            job.target,
            bitcode.origin,
            context.compiler.path.display(),
            LAST + 1
        );
    }
    let mut args = ArgList::default();
    args.arg(if job.target.triple.starts_with("nvptx64") { "-m64" } else { "-m32" });
    if request.device_debug {
        args.arg("-g");
    }
    if request.verbose {
        args.arg("-v");
    }
    args.arg("-o").path(output).arg("-arch").arg(&job.target.arch);
    for input in inputs {
        args.path(input);
    }
    for value in request.device_linker.iter().filter_map(|value| value.for_target(&job.target)) {
        args.arg(value);
    }
    Ok((toolchain::cuda_tool("nvlink", request.cuda_path.as_deref())?, args.finish()))
}
