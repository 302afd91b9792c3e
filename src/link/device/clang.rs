//! The arguments of clang for a device link (docs/spec/link-driver.md 6.3). Where they differ from LLVM 22's, a comment says why.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::arg_list::ArgList;
use super::{DeviceContext, gpu_runtime, libraries, partitions};
use crate::args::request::{BitcodeLibrary, LlvmOption};
use crate::formats::magic;
use crate::link::select::DeviceJob;
use crate::model::OffloadKind;
use crate::sys::{threads, toolchain};
use crate::target::Target;

/// The arguments for linking `inputs` (the job's, as files) to `output`.
pub(super) fn arguments(
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
    inputs: &[PathBuf],
    output: &Path,
) -> Result<Vec<OsString>> {
    let target = &job.target;
    let request = context.request;
    if target.triple.is_empty() {
        let names: Vec<String> = job.inputs.iter().map(|input| input.origin.to_string()).collect();
        bail!("device code without a triple cannot be linked: {}", names.join(", "));
    }
    let mut args = ArgList::default();
    if at_least(context, 16) {
        args.arg("--no-default-config");
    }
    args.arg("-o").path(output);
    if at_least(context, 17) {
        // It is a prefix of file names, so slashes in the architecture must not lead to other folders (docs/spec/faults.md F30).
        let mut folder = request.output.as_deref().unwrap_or(Path::new(&context.out_base)).as_os_str().to_owned();
        folder.push(format!(".{}.{}.img.", target.arch_name(), target.arch).replace('/', "_"));
        args.arg("-dumpdir").arg(folder);
    }
    args.arg(format!("--target={}", target.triple));
    if !target.arch.is_empty() {
        args.arg(format!("{}={}", if target.is_amdgcn() { "-mcpu" } else { "-march" }, target.arch));
    }
    if target.is_amdgcn() {
        if !compiles_each(target, context) {
            args.arg("-flto");
        }
        if !at_least(context, 17) {
            target_id(&mut args, target);
        }
    }
    for option in &request.llvm_options {
        args.arg("-Xlinker").joined("--plugin-opt=", option.value());
    }
    // A relocatable link has no libraries on its command line; a CPU's image resolves their symbols when the program loads it.
    let complete = !(target.is_cpu() && request.relocatable);
    if !target.is_nvptx() && !target.is_spirv() && complete {
        args.arg("-Wl,--no-undefined");
    }
    input_files(&mut args, job, context, inputs);
    legacy_options(&mut args, context, job);
    if target.is_cpu() {
        if needs_lto(job, context) {
            args.arg("-flto");
        }
        libraries::cpu_arguments(&mut args, context, target);
    }
    let takes_lld = || context.host_linker.is_absolute() && toolchain::is_ld_lld(context.host_linker);
    if threads::is_short() && (target.is_amdgcn() || target.is_cpu() && takes_lld()) {
        // It starts a thread for each processor, and dies where it cannot.
        args.arg("-Wl,--threads=1");
    }
    for option in &request.llvm_options {
        if let LlvmOption::Mllvm(value) = option {
            args.arg("-Xlinker").joined("-mllvm=", value);
        }
    }
    save_temps_and_bitcode(&mut args, context, target);
    if job.kinds.contains(OffloadKind::Sycl) {
        args.arg("--sycl-link").arg("-Xlinker").arg(format!("-triple={}", target.triple));
        args.arg("-Xlinker").arg(format!("-arch={}", target.arch));
    }
    let libraries = gpu_runtime::words(context, job);
    libraries.add_before(&mut args);
    for value in request.device_linker.iter().filter_map(|value| value.for_target(target)) {
        args.arg("-Xlinker").arg(value);
    }
    libraries.add_after(&mut args);
    for value in request.device_compiler.iter().filter_map(|value| value.for_target(target)) {
        args.arg(value);
    }
    partitions::add(&mut args, job, context)?;
    cuda_path(&mut args, context, target);
    Ok(args.finish())
}

/// The job's inputs, as the files that they are in, and what the user says of their symbols.
fn input_files(args: &mut ArgList, job: &DeviceJob<'_>, context: &DeviceContext<'_>, inputs: &[PathBuf]) {
    // It is meant for the device code of the program, too: an archive may define a symbol twice.
    if context.request.allow_multiple_definition && (job.target.is_cpu() || job.target.is_amdgcn()) {
        args.arg("-Wl,--allow-multiple-definition");
    }
    for (at, path) in inputs.iter().enumerate() {
        // By its name, bitcode in a file is an object, which only a linker would read.
        if compiles_each(&job.target, context) && job.inputs.get(at).is_some_and(|input| magic::is_bitcode(&input.bytes)) {
            args.arg("-x").arg("ir").path(path).arg("-x").arg("none");
        } else {
            args.path(path);
        }
    }
}

/// Whether bitcode for `target` is compiled, each input by itself, and only then linked (`--no-lto`, llvm/llvm-project#201135).
pub(super) fn compiles_each(target: &Target, context: &DeviceContext<'_>) -> bool {
    context.request.no_lto && target.is_amdgcn()
}

/// Passes a target id with features (`gfx90a:xnack-`) to the link-time code generator. Drivers before LLVM 17 do not pass `-mcpu`
/// on to it, and it then rejects functions that have these features.
fn target_id(args: &mut ArgList, target: &Target) {
    let mut parts = target.arch.split(':');
    let processor = parts.next().unwrap_or_default();
    let sign = |part: &str| part.strip_suffix('+').map(|name| format!("+{name}"));
    let sign = |part: &str| sign(part).or_else(|| part.strip_suffix('-').map(|name| format!("-{name}")));
    let features: Vec<String> = parts.filter_map(sign).collect();
    if !features.is_empty() {
        args.arg(format!("-Wl,-plugin-opt=mcpu={processor}"));
        args.arg("-Xlinker").arg(format!("-plugin-opt=-mattr={}", features.join(",")));
    }
}

/// The folder of ptxas and nvlink. clang passes it to the wrapper, but to the device compiler only when it compiles CUDA sources.
fn cuda_path(args: &mut ArgList, context: &DeviceContext<'_>, target: &Target) {
    let Some(folder) = context.request.cuda_path.as_deref().filter(|_| target.is_nvptx()) else { return };
    let names_cuda = |value: &OsStr| value.to_string_lossy().starts_with("--cuda-path=");
    if !context.request.device_compiler.iter().filter_map(|value| value.for_target(target)).any(names_cuda) {
        args.joined("--cuda-path=", folder.as_os_str());
    }
}

fn save_temps_and_bitcode(args: &mut ArgList, context: &DeviceContext<'_>, target: &Target) {
    let linker_is_lld = context.host_linker.to_string_lossy().ends_with("lld");
    if context.request.save_temps && (target.is_nvptx() || target.is_amdgcn() || (target.is_cpu() && linker_is_lld)) {
        args.arg("-Wl,--save-temps");
    }
    if context.request.embed_bitcode {
        args.arg("-Wl,--lto-emit-llvm");
    }
}

/// Whether a CPU's inputs are bitcode but `-flto` was not passed for the device. An offloading driver passes it, a linker called
/// directly gets none, and GNU ld reads bitcode only through a plugin, which `-flto` adds.
fn needs_lto(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> bool {
    let is_lto = |value: &OsStr| value.to_string_lossy().starts_with("-flto");
    let mut values = context.request.device_compiler.iter().filter_map(|value| value.for_target(&job.target));
    job.inputs.iter().any(|input| magic::is_bitcode(&input.bytes)) && !values.any(is_lto)
}

/// The arguments for options of the wrapper that drivers before LLVM 21 pass.
fn legacy_options(args: &mut ArgList, context: &DeviceContext<'_>, job: &DeviceJob<'_>) {
    let target = &job.target;
    let legacy = context.request;
    let kinds = || job.kinds.iter().map(OffloadKind::name);
    let (triple, arch) = target.device();
    let is_for = |library: &&BitcodeLibrary| {
        kinds().any(|kind| library.is_for(kind, &target.triple, &target.arch) || library.is_for(kind, &triple, &arch))
    };
    for library in legacy.bitcode_libraries.iter().filter(is_for) {
        // Passed directly to the linker: by its extension, clang would take bitcode for a source to compile.
        args.arg("-Xlinker").path(&library.path);
    }
    for library in legacy.builtin_bitcode.iter().filter_map(|library| library.for_target(target)) {
        args.arg("-Xlinker").arg(library);
    }
    if let Some(level) = &legacy.opt_level {
        args.arg(format!("-{level}"));
    }
    if legacy.device_debug {
        args.arg("-g");
    }
    if target.is_nvptx() {
        for option in &legacy.ptxas_args {
            args.arg("-Xcuda-ptxas").arg(option);
        }
    }
}

/// Whether the compiler has the options of LLVM `major`. A compiler of unknown version is assumed to be recent.
fn at_least(context: &DeviceContext<'_>, major: u32) -> bool {
    context.compiler.major.is_none_or(|own| own >= major)
}
