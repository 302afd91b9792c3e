//! Device links for NVIDIA's GPUs where the compiler is of LLVM 15 or earlier: its driver knows of no link for them and would run the
//! host's `ld`. Those releases' wrappers ran `nvlink` themselves, and so does this.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::DeviceContext;
use super::arg_list::Args;
use crate::formats::magic;
use crate::link::select::DeviceJob;
use crate::sys::toolchain;
use crate::target::Target;

/// The last release whose driver links nothing for these devices.
const LAST: u32 = 15;

/// Whether `target` is linked here.
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
    let mut args = Args::default();
    args.word(if job.target.triple.starts_with("nvptx64") { "-m64" } else { "-m32" });
    if request.device_debug {
        args.word("-g");
    }
    if request.verbose {
        args.word("-v");
    }
    args.word("-o").path(output).word("-arch").word(&job.target.arch);
    for input in inputs {
        args.path(input);
    }
    for value in request.device_linker.iter().filter_map(|value| value.for_triple(&job.target.triple)) {
        args.word(value);
    }
    Ok((toolchain::cuda_tool("nvlink", request.cuda_path.as_deref())?, args.words()))
}
