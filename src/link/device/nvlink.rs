//! Device links for NVIDIA GPUs with LLVM 15 or earlier, by running `nvlink` directly.
//!
//! The driver of those releases cannot link for these devices and would run the host's `ld`. Their
//! wrappers ran `nvlink` directly, too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::DeviceContext;
use super::clang::ArgList;
use crate::formats::magic;
use crate::link::select::DeviceJob;
use crate::sys::toolchain;
use crate::target::Target;

/// Last LLVM release whose driver cannot link for these devices.
const LAST_WITHOUT_LINKS: u32 = 15;

/// First LLVM release whose driver links for these devices with LLVM's wrapper of nvlink.
const FIRST_WRAPPER: u32 = 19;

/// Whether the compiler links for these devices with `clang-nvlink-wrapper`. The wrapper reads
/// archives, but no response files.
pub(super) fn is_wrapped(context: &DeviceContext<'_>) -> bool {
    context
        .compiler
        .major
        .is_none_or(|major| major >= FIRST_WRAPPER)
}

/// Whether offld links `target` by running nvlink.
pub(super) fn serves(target: &Target, context: &DeviceContext<'_>) -> bool {
    target.is_nvptx()
        && context
            .compiler
            .major
            .is_some_and(|major| major <= LAST_WITHOUT_LINKS)
}

/// Returns nvlink and its arguments for linking the files `inputs` to `output`, as in LLVM 15's
/// wrapper.
pub(super) fn command(
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
    inputs: &[OsString],
    output: &Path,
) -> Result<(PathBuf, Vec<OsString>)> {
    let settings = context.settings;
    if let Some(bitcode) = job
        .inputs
        .iter()
        .find(|input| magic::is_bitcode(&input.bytes))
    {
        bail!(
            "device link for {}: {} is bitcode, which {} cannot link for this device: pass clang {} or later with --offld-clang= \
             or OFFLD_CLANG",
            job.target,
            bitcode.origin,
            context.compiler.path.display(),
            LAST_WITHOUT_LINKS + 1
        );
    }
    let mut args = ArgList::default();
    args.arg(if job.target.triple.starts_with("nvptx64") {
        "-m64"
    } else {
        "-m32"
    });
    if settings.device.device_debug {
        args.arg("-g");
    }
    if settings.run.verbose {
        args.arg("-v");
    }
    args.arg("-o")
        .path(output)
        .arg("-arch")
        .arg(&job.target.arch);
    for input in inputs {
        args.arg(input);
    }
    for value in settings.device.linker_args(&job.target) {
        args.arg(value);
    }
    Ok((
        toolchain::cuda_tool("nvlink", settings.device.cuda_path.as_deref())?,
        args.finish(),
    ))
}
