//! The arguments of a device link (docs/spec/link-driver.md 6.3). Where ours differ from LLVM 22's, the line says why.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::arg_list::Args;
use super::{DeviceContext, libraries};
use crate::args::request::LlvmOption;
use crate::formats::magic;
use crate::link::select::DeviceJob;
use crate::model::OffloadKind;
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
    let mut args = Args::default();
    if at_least(context, 16) {
        args.word("--no-default-config");
    }
    args.word("-o").path(output);
    if at_least(context, 17) {
        // Names of files begin with it, so the architecture must not lead elsewhere (docs/spec/faults.md F30).
        let mut folder = request.output.as_deref().unwrap_or(Path::new(&context.out_base)).as_os_str().to_owned();
        folder.push(format!(".{}.{}.img.", target.arch_name(), target.arch).replace('/', "_"));
        args.word("-dumpdir").word(folder);
    }
    args.word(format!("--target={}", target.triple));
    if !target.arch.is_empty() {
        args.word(format!("{}={}", if target.is_amdgcn() { "-mcpu" } else { "-march" }, target.arch));
    }
    if target.is_amdgcn() {
        args.word("-flto");
        if !at_least(context, 17) {
            target_id(&mut args, target);
        }
    }
    for option in &request.llvm_options {
        args.word("-Xlinker").joined("--plugin-opt=", option.value());
    }
    // A relocatable link has no libraries on its line: a CPU's image finds what it needs in the program, when it is loaded.
    let complete = !(target.is_cpu() && request.relocatable);
    if !target.is_nvptx() && !target.is_spirv() && complete {
        args.word("-Wl,--no-undefined");
    }
    for input in inputs {
        args.path(input);
    }
    legacy_options(&mut args, context, job);
    if target.is_cpu() {
        if needs_lto(job, context) {
            args.word("-flto");
        }
        libraries::cpu_arguments(&mut args, context, target);
    }
    for option in &request.llvm_options {
        if let LlvmOption::Mllvm(value) = option {
            args.word("-Xlinker").joined("-mllvm=", value);
        }
    }
    save_temps_and_bitcode(&mut args, context, target);
    if job.kinds.contains(OffloadKind::Sycl) {
        args.word("--sycl-link").word("-Xlinker").word(format!("-triple={}", target.triple));
        args.word("-Xlinker").word(format!("-arch={}", target.arch));
    }
    for value in request.device_linker.iter().filter_map(|value| value.for_triple(&target.triple)) {
        args.word("-Xlinker").word(value);
    }
    for value in request.device_compiler.iter().filter_map(|value| value.for_triple(&target.triple)) {
        args.word(value);
    }
    cuda_path(&mut args, context, target);
    Ok(args.words())
}

/// A target id with features (`gfx90a:xnack-`), for the link-time code generator: drivers before 17 tell it nothing of `-mcpu`, and it
/// then takes the functions' features for a contradiction.
fn target_id(args: &mut Args, target: &Target) {
    let mut parts = target.arch.split(':');
    let processor = parts.next().unwrap_or_default();
    let sign = |part: &str| part.strip_suffix('+').map(|name| format!("+{name}"));
    let sign = |part: &str| sign(part).or_else(|| part.strip_suffix('-').map(|name| format!("-{name}")));
    let features: Vec<String> = parts.filter_map(sign).collect();
    if !features.is_empty() {
        args.word(format!("-Wl,-plugin-opt=mcpu={processor}"));
        args.word("-Xlinker").word(format!("-plugin-opt=-mattr={}", features.join(",")));
    }
}

/// Where ptxas and nvlink are: clang tells the wrapper, and the device's compiler only where a source of CUDA is on the line.
fn cuda_path(args: &mut Args, context: &DeviceContext<'_>, target: &Target) {
    let Some(folder) = context.request.cuda_path.as_deref().filter(|_| target.is_nvptx()) else { return };
    let told = |value: &OsStr| value.to_string_lossy().starts_with("--cuda-path=");
    if !context.request.device_compiler.iter().filter_map(|value| value.for_triple(&target.triple)).any(told) {
        args.joined("--cuda-path=", folder.as_os_str());
    }
}

fn save_temps_and_bitcode(args: &mut Args, context: &DeviceContext<'_>, target: &Target) {
    let linker_is_lld = context.host_linker.to_string_lossy().ends_with("lld");
    if context.request.save_temps && (target.is_nvptx() || target.is_amdgcn() || (target.is_cpu() && linker_is_lld)) {
        args.word("-Wl,--save-temps");
    }
    if context.request.embed_bitcode {
        args.word("-Wl,--lto-emit-llvm");
    }
}

/// Whether a CPU's inputs are bitcode that nobody told the compiler of: a driver that knows of the offloading says `-flto` itself, a
/// raw linker line does not, and GNU ld reads bitcode through a plugin only.
fn needs_lto(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> bool {
    let told = |value: &OsStr| value.to_string_lossy().starts_with("-flto");
    let mut values = context.request.device_compiler.iter().filter_map(|value| value.for_triple(&job.target.triple));
    job.inputs.iter().any(|input| magic::is_bitcode(&input.bytes)) && !values.any(told)
}

/// What drivers before LLVM 21 said with options of the wrapper's own.
fn legacy_options(args: &mut Args, context: &DeviceContext<'_>, job: &DeviceJob<'_>) {
    let target = &job.target;
    let legacy = context.request;
    let kinds = || job.kinds.iter().map(OffloadKind::name);
    for library in
        legacy.bitcode_libraries.iter().filter(|library| kinds().any(|kind| library.is_for(kind, &target.triple, &target.arch)))
    {
        // Straight to the linker: clang would take bitcode by its name for a source to compile.
        args.word("-Xlinker").path(&library.path);
    }
    for library in legacy.builtin_bitcode.iter().filter_map(|library| library.for_triple(&target.triple)) {
        args.word("-Xlinker").word(library);
    }
    if let Some(level) = &legacy.opt_level {
        args.word(format!("-{level}"));
    }
    if legacy.device_debug {
        args.word("-g");
    }
    if target.is_nvptx() {
        for option in &legacy.ptxas_args {
            args.word("-Xcuda-ptxas").word(option);
        }
    }
}

/// Whether the compiler knows the options of release `major`; one whose version cannot be told is taken for a new one.
fn at_least(context: &DeviceContext<'_>, major: u32) -> bool {
    context.compiler.major.is_none_or(|own| own >= major)
}
