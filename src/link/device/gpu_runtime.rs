//! The OpenMP runtime of GPUs, which is linked into each image: clang puts it on the wrapper's line, but whoever calls `ld.offld` directly does not.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::DeviceContext;
use super::arg_list::ArgList;
use crate::args::Role;
use crate::link::select::DeviceJob;
use crate::model::OffloadKind;
use crate::target::Target;

/// The libraries that clang passes for an OpenMP image, by their names: the runtime, and C's where they are installed.
const LIBRARIES: [&str; 3] = ["ompdevice", "c", "m"];
/// The first release that has the runtime as a library; before, it is bitcode that the compiler adds.
const FIRST: u32 = 22;

/// The folder of the libraries for `target`, beside those of the compiler.
fn folder(context: &DeviceContext<'_>, target: &Target) -> Option<PathBuf> {
    Some(context.compiler.library_folder()?.join(&target.triple))
}

/// Whether offld has to think of the runtime for `target`: nothing on the line says anything of it.
fn is_ours_to_add(context: &DeviceContext<'_>, target: &Target) -> bool {
    let request = context.request;
    let mut words = request.device_linker.iter().filter_map(|value| value.for_target(target));
    let has_it = context.compiler.major.is_none_or(|major| major >= FIRST);
    request.role == Role::Ld
        && !request.no_offload_runtime
        && (target.is_amdgcn() || target.is_nvptx())
        && has_it
        && !words.any(|word: &OsStr| word.as_bytes().ends_with(b"ompdevice") || word.as_bytes().ends_with(b"libompdevice.a"))
}

/// Adds the libraries that are there.
pub(super) fn arguments(args: &mut ArgList, context: &DeviceContext<'_>, job: &DeviceJob<'_>) {
    if !job.kinds.contains(OffloadKind::OpenMp) || !is_ours_to_add(context, &job.target) {
        return;
    }
    let Some(folder) = folder(context, &job.target).filter(|folder| folder.join("libompdevice.a").is_file()) else { return };
    args.arg("-Xlinker").joined("-L", folder.as_os_str());
    for name in LIBRARIES.iter().filter(|name| folder.join(format!("lib{name}.a")).is_file()) {
        args.arg("-Xlinker").arg(format!("-l{name}"));
    }
}

/// What to say of a failed link for `target` if the runtime is not there.
pub(crate) fn missing_runtime(target: &Target, context: &DeviceContext<'_>) -> Option<String> {
    if !is_ours_to_add(context, target) {
        return None;
    }
    let folder = folder(context, target)?;
    (!folder.join("libompdevice.a").is_file()).then(|| {
        format!(
            "OpenMP device code for {target} needs libompdevice, and there is none in {}: install the OpenMP runtime for this GPU, or name the \
             library with --device-linker={}=FILE",
            folder.display(),
            target.triple
        )
    })
}
