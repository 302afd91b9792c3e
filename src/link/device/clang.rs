//! Builds clang's arguments for a device link (docs/spec/link-driver.md 6.3).
//!
//! Comments give the reason for each difference from LLVM 22.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Result, bail};

use super::codegen_options::OptionStyle;
use super::codegen_threads::FIRST_PARTITIONING_RELEASE;
use super::{ArgList, DeviceContext, libraries, nvlink};
use crate::args::joined;
use crate::args::settings::{BitcodeLibrary, LlvmOption};
use crate::link::select::DeviceJob;
use crate::toolchain;
use offld_system::threads;
use offload_formats::magic;
use offload_formats::model::OffloadKind;
use offload_formats::target::Target;

/// Returns the arguments for linking `inputs`, the job's input arguments, to `output`.
pub(super) fn arguments(
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
    inputs: &[OsString],
    output: &Path,
) -> Result<Vec<OsString>> {
    let target = &job.target;
    let settings = context.settings;
    if target.triple.is_empty() {
        let names: Vec<String> = job
            .inputs
            .iter()
            .map(|input| input.origin.to_string())
            .collect();
        bail!(
            "device code without a triple cannot be linked: {}",
            names.join(", ")
        );
    }
    let mut args = ArgList::default();
    output_and_target(&mut args, target, context, output);
    let words = OptionStyle::of(job, context);
    let plugin_options: Vec<OsString> = settings
        .device
        .llvm_options
        .iter()
        .map(|option| joined("--plugin-opt=", option.value()))
        .collect();
    add_linker_args(
        &mut args,
        words,
        plugin_options.iter().map(OsString::as_os_str),
    );
    // A relocatable link has no libraries on its command line, and a sanitizer's runtime belongs to
    // the program. A CPU image resolves their symbols when the program loads it.
    let complete = !(target.is_cpu()
        && (settings.host.relocatable || libraries::leave_symbols_open(context.libraries)));
    if !target.is_nvptx() && !target.is_spirv() && complete {
        args.arg("-Wl,--no-undefined");
    }
    input_files(&mut args, job, context, inputs);
    if target.is_amdgcn() && job.modules.alone && !context.compiles_each(target) {
        // The link of HIP's old driver. No other image calls this code.
        args.arg("-Wl,-plugin-opt=-amdgpu-internalize-symbols");
        // From this release on, HIP's old driver generates code in parts.
        if at_least(context, FIRST_PARTITIONING_RELEASE) {
            args.arg("-Wl,--lto-partitions=8");
        }
    }
    legacy_options(&mut args, context, job);
    if target.is_cpu() {
        if needs_lto(job, context) {
            args.arg("-flto");
        }
        libraries::cpu_arguments(&mut args, context, target);
    }
    let takes_lld =
        || context.host_linker.is_absolute() && toolchain::is_ld_lld(context.host_linker);
    if threads::is_short() && (target.is_amdgcn() || target.is_cpu() && takes_lld()) {
        // ld.lld starts a thread per CPU, and crashes if that fails.
        args.arg("-Wl,--threads=1");
    }
    code_generator(&mut args, context, target, words);
    if job.kinds.contains(OffloadKind::Sycl) {
        args.arg("--sycl-link")
            .arg("-Xlinker")
            .arg(format!("-triple={}", target.triple));
        args.arg("-Xlinker").arg(format!("-arch={}", target.arch));
    }
    let libraries = libraries::gpu_runtime_args(context, job);
    libraries.add_before(&mut args);
    add_user_args(&mut args, words, job, context);
    libraries.add_after(&mut args);
    for value in settings.device.compiler_args(target) {
        args.arg(value);
    }
    cuda_path(&mut args, context, target);
    Ok(args.finish())
}

/// Adds the output file and the target of the image.
fn output_and_target(
    args: &mut ArgList,
    target: &Target,
    context: &DeviceContext<'_>,
    output: &Path,
) {
    if at_least(context, 16) {
        args.arg("--no-default-config");
    }
    args.arg("-o").path(output);
    if at_least(context, 17) {
        // The value is a prefix of file names, so slashes in the architecture must not lead to
        // other directories (docs/spec/faults.md F30).
        let mut folder = context
            .settings
            .output
            .as_deref()
            .unwrap_or(Path::new(&context.out_base))
            .as_os_str()
            .to_owned();
        folder.push(format!(".{}.{}.img.", target.arch_name(), target.arch).replace('/', "_"));
        args.arg("-dumpdir").arg(folder);
    }
    args.arg(format!("--target={}", target.triple));
    if !target.arch.is_empty() {
        args.arg(format!(
            "{}={}",
            if target.is_amdgcn() {
                "-mcpu"
            } else {
                "-march"
            },
            target.arch
        ));
    }
    if target.is_amdgcn() {
        if !context.compiles_each(target) {
            args.arg("-flto");
        }
        if !at_least(context, 17) {
            target_id(args, target);
        }
    }
}

/// Adds the job's input arguments, and the options for their symbols.
fn input_files(
    args: &mut ArgList,
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
    inputs: &[OsString],
) {
    // The option applies to the program's device code, too: an archive may define a symbol twice.
    if context.settings.host.allow_multiple_definition
        && (job.target.is_cpu() || job.target.is_amdgcn())
    {
        args.arg("-Wl,--allow-multiple-definition");
    }
    for (at, word) in inputs.iter().enumerate() {
        // Bitcode files are named like objects, so the compiler would pass them to the linker.
        if context.compiles_each(&job.target)
            && job
                .inputs
                .get(at)
                .is_some_and(|input| magic::is_bitcode(&input.bytes))
        {
            args.arg("-x").arg("ir").arg(word).arg("-x").arg("none");
        } else {
            args.arg(word);
        }
    }
}

/// Passes a target id with features (`gfx90a:xnack-`) to the LTO code generator.
///
/// Drivers before LLVM 17 do not pass `-mcpu` to it. It then rejects functions that have these
/// features.
fn target_id(args: &mut ArgList, target: &Target) {
    let mut parts = target.arch.split(':');
    let processor = parts.next().unwrap_or_default();
    let sign = |part: &str| part.strip_suffix('+').map(|name| format!("+{name}"));
    let sign =
        |part: &str| sign(part).or_else(|| part.strip_suffix('-').map(|name| format!("-{name}")));
    let features: Vec<String> = parts.filter_map(sign).collect();
    if !features.is_empty() {
        args.arg(format!("-Wl,-plugin-opt=mcpu={processor}"));
        args.arg("-Xlinker")
            .arg(format!("-plugin-opt=-mattr={}", features.join(",")));
    }
}

/// Adds the directory of ptxas and nvlink. clang passes it to the wrapper, but to the device
/// compiler only when compiling CUDA sources.
fn cuda_path(args: &mut ArgList, context: &DeviceContext<'_>, target: &Target) {
    let Some(folder) = context
        .settings
        .device
        .cuda_path
        .as_deref()
        .filter(|_| target.is_nvptx())
    else {
        return;
    };
    let is_cuda_path = |value: &OsStr| value.to_string_lossy().starts_with("--cuda-path=");
    if !context
        .settings
        .device
        .compiler_args(target)
        .any(is_cuda_path)
    {
        args.joined("--cuda-path=", folder.as_os_str());
    }
}

/// Adds LLVM options other than `--plugin-opt=`, and those for temporary files and bitcode output.
fn code_generator(
    args: &mut ArgList,
    context: &DeviceContext<'_>,
    target: &Target,
    words: OptionStyle,
) {
    let settings = context.settings;
    // For other linkers, the plugin's options already include these.
    if words == OptionStyle::Lld {
        for option in &settings.device.llvm_options {
            if let LlvmOption::Mllvm(value) = option {
                args.arg("-Xlinker").joined("-mllvm=", value);
            }
        }
    }
    save_temps(args, context, target);
    if settings.device.embed_bitcode {
        match words {
            OptionStyle::Plugin => args.arg("-Wl,-plugin-opt=emit-llvm"),
            OptionStyle::Lld | OptionStyle::Plain => args.arg("-Wl,--lto-emit-llvm"),
        };
    }
}

fn save_temps(args: &mut ArgList, context: &DeviceContext<'_>, target: &Target) {
    let linker_is_lld = context.host_linker.to_string_lossy().ends_with("lld");
    if context.settings.run.save_temps
        && (target.is_nvptx() || target.is_amdgcn() || (target.is_cpu() && linker_is_lld))
    {
        args.arg("-Wl,--save-temps");
    }
}

/// Whether a CPU's inputs are bitcode but the device compiler gets no `-flto`.
///
/// Offloading drivers pass `-flto`, but a linker called directly gets none. GNU ld reads bitcode
/// only through a plugin, which `-flto` adds.
fn needs_lto(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> bool {
    job.inputs
        .iter()
        .any(|input| magic::is_bitcode(&input.bytes))
        && !has_lto_option(job, context)
}

fn has_lto_option(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> bool {
    let is_lto = |value: &OsStr| value.to_string_lossy().starts_with("-flto");
    context
        .settings
        .device
        .compiler_args(&job.target)
        .any(is_lto)
}

/// Whether the compiler makes a CPU linker other than ld.lld load LLVM's plugin.
pub(super) fn links_by_plugin(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> bool {
    needs_lto(job, context) || has_lto_option(job, context)
}

/// Adds the ld.lld arguments `all`, translated for the actual linker.
fn add_linker_args<'w>(
    args: &mut ArgList,
    words: OptionStyle,
    all: impl IntoIterator<Item = &'w OsStr>,
) {
    for word in words.of_lld(all) {
        args.arg("-Xlinker").arg(word);
    }
}

/// Adds the user's arguments for the linker.
fn add_user_args(
    args: &mut ArgList,
    words: OptionStyle,
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
) {
    let of_user = context.settings.device.linker_args(&job.target);
    if job.target.is_nvptx() {
        let own = nvlink::words(of_user, job, context);
        add_linker_args(args, words, own.iter().map(OsString::as_os_str));
    } else {
        add_linker_args(args, words, of_user);
    }
}

/// Adds the arguments for wrapper options that drivers before LLVM 21 pass.
fn legacy_options(args: &mut ArgList, context: &DeviceContext<'_>, job: &DeviceJob<'_>) {
    let target = &job.target;
    let legacy = context.settings;
    let kinds = || job.kinds.iter().map(OffloadKind::name);
    let (triple, arch) = target.device();
    let is_for = |library: &&BitcodeLibrary| {
        kinds().any(|kind| {
            library.is_for(kind, &target.triple, &target.arch)
                || library.is_for(kind, &triple, &arch)
        })
    };
    for library in legacy.device.bitcode_libraries.iter().filter(is_for) {
        // Passed directly to the linker: by the extension, clang would treat bitcode as a source to
        // compile.
        args.arg("-Xlinker").path(&library.path);
    }
    for library in legacy
        .device
        .builtin_bitcode
        .iter()
        .filter_map(|library| library.for_target(target))
    {
        args.arg("-Xlinker").arg(library);
    }
    if let Some(level) = &legacy.device.opt_level {
        args.arg(format!("-{level}"));
    }
    if legacy.device.device_debug {
        args.arg("-g");
    }
    if target.is_nvptx() {
        for option in &legacy.device.ptxas_args {
            args.arg("-Xcuda-ptxas").arg(option);
        }
    }
}

/// Whether the compiler has the options of LLVM `major`. A compiler of unknown version is assumed
/// to be recent.
fn at_least(context: &DeviceContext<'_>, major: u32) -> bool {
    context.compiler.major.is_none_or(|own| own >= major)
}
