//! Device links for NVIDIA GPUs: by `nvlink` itself, or by clang and `clang-nvlink-wrapper`.
//!
//! The driver of LLVM 15 and earlier cannot link for these devices and would run the host's `ld`.
//! Its wrapper ran `nvlink` directly, and so does offld. offld also runs `nvlink` directly, without
//! a compiler, if a link has code of nvcc and no bitcode.
//!
//! clang-nvlink-wrapper treats hidden symbols as unused in LTO, and so drops kernels that host code
//! registers and launches (llvm/llvm-project#216891). It passes `-u` on to nvlink, which has no
//! such option.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::{ArgList, DeviceContext};
use crate::args::settings::LinkSettings;
use crate::link::scan::{DeviceImage, Form};
use crate::link::select::DeviceJob;
use crate::toolchain;
use offld_system::session::Session;
use offload_formats::model::OffloadKind;
use offload_formats::nvcc::DEVICE_RUNTIME;
use offload_formats::target::Target;
use offload_formats::{bitcode, magic};

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

/// Whether offld runs nvlink for `job`.
pub(super) fn serves(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> bool {
    needs_no_compiler(job)
        || job.target.is_nvptx()
            && context
                .compiler
                .major
                .is_some_and(|major| major <= LAST_WITHOUT_LINKS)
}

/// Fails if `job` has code of nvcc that only nvlink reads, and also code that only a compiler can
/// link.
pub(super) fn check_inputs(job: &DeviceJob<'_>) -> Result<()> {
    let is_of_nvlink = |input: &&&DeviceImage<'_>| input.form != Form::Code;
    let needs_compiler = |input: &&&DeviceImage<'_>| {
        magic::is_bitcode(&input.bytes) || input.kinds.contains(OffloadKind::OpenMp)
    };
    if !job.target.is_nvptx() {
        return Ok(());
    }
    let found = (
        job.inputs.iter().find(is_of_nvlink),
        job.inputs.iter().find(needs_compiler),
    );
    let (Some(own), Some(other)) = found else {
        return Ok(());
    };
    bail!(
        "device link for {}: {} has {} of nvcc, which cannot be linked with the code of clang in {}: compile one of them to machine \
         code for {}",
        job.target,
        own.origin,
        if own.form == Form::Ptx {
            "PTX"
        } else {
            "code for link-time optimization"
        },
        other.origin,
        job.target.arch
    )
}

/// Whether nvlink can link `job` without a compiler: it has code of nvcc, and all inputs are CUDA
/// code other than bitcode.
pub(crate) fn needs_no_compiler(job: &DeviceJob<'_>) -> bool {
    let is_cuda = |input: &&&DeviceImage<'_>| {
        let mut kinds = input.kinds.iter();
        kinds.all(|kind| kind == OffloadKind::Cuda) && !magic::is_bitcode(&input.bytes)
    };
    let all_cuda = || job.inputs.iter().filter(is_cuda).count() == job.inputs.len();
    job.target.is_nvptx() && !job.modules.is_empty() && all_cuda()
}

/// Returns nvlink and its arguments for linking the files `inputs` to `output`, as in LLVM 15's
/// wrapper.
pub(super) fn command(
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
    inputs: &[OsString],
    output: &Path,
    session: &Session,
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
    if settings.run.verbose && !needs_no_compiler(job) {
        args.arg("-v");
    }
    let nvlink = session.runner.program(
        toolchain::cuda_tool("nvlink", settings.device.cuda_path.as_deref()),
        "nvlink",
    )?;
    let has_lto = job.inputs.iter().any(|input| input.form == Form::LtoObject);
    if has_lto {
        let nvvm = toolkit(&nvlink).join("nvvm");
        check_library(&nvvm, job)?;
        args.arg("-dlto");
        if let Some((name, _)) = host_arch(context.host_triple) {
            args.arg(format!("{CPU_ARCH}{name}"));
        }
        if job.is_open {
            args.arg("-ignore-host-info");
        }
        args.joined(NVVM_PATH, nvvm.as_os_str());
    }
    args.arg("-o")
        .path(output)
        .arg("-arch")
        .arg(&job.target.arch);
    for input in inputs {
        args.arg(input);
    }
    // A link for LTO requires the library, and PTX may need it.
    let may_need_runtime = job.inputs.iter().any(|input| input.form != Form::Code);
    if let Some(library) = device_runtime(&nvlink, context.host_triple).filter(|_| may_need_runtime)
    {
        args.path(&library);
    }
    for value in settings.device.linker_args(&job.target) {
        args.arg(value);
    }
    Ok((nvlink, args.finish()))
}

/// The option for the directory of NVVM, which compiles code for link-time optimization.
pub(super) const NVVM_PATH: &str = "-nvvmpath=";

/// The option for the host's architecture.
pub(super) const CPU_ARCH: &str = "-cpu-arch=";

/// NVVM's library, in that directory.
pub(super) const NVVM_LIBRARY: &str = "lib64/libnvvm.so";

/// Fails if nvlink would not find NVVM in the directory `nvvm`. nvlink's own message does not name
/// the file.
fn check_library(nvvm: &Path, job: &DeviceJob<'_>) -> Result<()> {
    let library = nvvm.join(NVVM_LIBRARY);
    if library.is_file() {
        return Ok(());
    }
    let input = job.inputs.first().map(|input| input.origin.to_string());
    bail!(
        "device link for {}: nvlink needs `{}` for the link-time optimization of {}, and the file is missing. NVIDIA's packages on PyPI \
         install the library as `lib/libnvvm.so.4`: create a symlink to it",
        job.target,
        library.display(),
        input.unwrap_or_default()
    )
}

/// The name of the host's architecture for nvlink, and the name of its directory in a toolkit.
fn host_arch(host_triple: &str) -> Option<(&'static str, &'static str)> {
    match host_triple.split('-').next() {
        Some("x86_64") => Some(("X86_64", "x86_64-linux")),
        Some("aarch64") => Some(("AARCH64", "sbsa-linux")),
        _ => None,
    }
}

/// The CUDA device runtime for this host in the toolkit with `nvlink`, which links only the needed
/// parts of it.
fn device_runtime(nvlink: &Path, host_triple: &str) -> Option<PathBuf> {
    let toolkit = toolkit(nvlink);
    // The directories without an architecture are for the toolkit's own host.
    let own = host_arch(host_triple).map(|(_, folder)| toolkit.join("targets").join(folder));
    let own = own.map(|folder| folder.join("lib"));
    let folders = own
        .into_iter()
        .chain(["lib64", "lib"].map(|folder| toolkit.join(folder)));
    let mut libraries = folders.map(|folder| folder.join(DEVICE_RUNTIME));
    libraries.find(|library| library.is_file())
}

/// The directory of the toolkit with the tool at `path`.
fn toolkit(path: &Path) -> PathBuf {
    // The tool may be a link in a directory like /usr/local/bin.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = real.parent().and_then(Path::parent);
    folder.unwrap_or(Path::new("/usr/local/cuda")).to_owned()
}

/// Options that make LTO treat no symbol as dead and internalize none.
pub(super) const KEEP_ALL: [&str; 2] = [
    "-mllvm=-compute-dead=false",
    "-mllvm=-enable-lto-internalization=false",
];

/// Returns the symbols that the user requires with `-u` in the device link for `target`.
pub(crate) fn required_symbols(settings: &LinkSettings, target: &Target) -> BTreeSet<String> {
    split_required(settings.device.linker_args(target)).0
}

/// Adapts `words`, the arguments of `job` for nvlink's wrapper.
///
/// Removes the options for required symbols. If LTO would drop a required or registered symbol,
/// adds the options that prevent it.
pub(super) fn words<'w>(
    words: impl Iterator<Item = &'w OsStr>,
    job: &DeviceJob<'_>,
    context: &DeviceContext<'_>,
) -> Vec<OsString> {
    let (required, words) = split_required(words);
    let mut words: Vec<OsString> = words.into_iter().map(OsStr::to_owned).collect();
    let is_wanted = |name: &str| required.contains(name) || job.registered.contains(name);
    if is_wrapped(context)
        && job
            .inputs
            .iter()
            .any(|input| defines_hidden(input.bytes.to_link(), &is_wanted))
    {
        // No option protects a single symbol. Unused functions stay in the image, which costs only
        // size.
        words.extend(KEEP_ALL.map(OsString::from));
    }
    words
}

/// Whether `input` is bitcode that defines a wanted symbol as hidden, so that LTO would drop it.
fn defines_hidden(input: &[u8], is_wanted: &dyn Fn(&str) -> bool) -> bool {
    if !magic::is_bitcode(input) {
        return false;
    }
    // The linker reports damaged modules.
    let Ok(symbols) = bitcode::symbols(input) else {
        return false;
    };
    let mut hidden = symbols.defined.iter().filter(|symbol| symbol.hidden);
    hidden.any(|symbol| std::str::from_utf8(&symbol.name).is_ok_and(is_wanted))
}

/// Splits `words` into the required symbols and the other arguments.
fn split_required<'w>(
    words: impl Iterator<Item = &'w OsStr>,
) -> (BTreeSet<String>, Vec<&'w OsStr>) {
    let (mut required, mut others) = (BTreeSet::new(), Vec::new());
    let mut words = words;
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let name = match text
            .strip_prefix("--")
            .or_else(|| text.strip_prefix('-'))
            .unwrap_or_default()
        {
            "u" | "undefined" => words.next().map(|next| next.to_string_lossy().into_owned()),
            option => {
                let short = || {
                    text.strip_prefix("-u").filter(|_| {
                        !option.starts_with("undefined") && !option.starts_with("unresolved")
                    })
                };
                option
                    .strip_prefix("undefined=")
                    .or_else(short)
                    .map(str::to_owned)
            }
        };
        match name {
            Some(name) => drop(required.insert(name)),
            None => others.push(word),
        }
    }
    (required, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_runtime_is_for_the_host() {
        let toolkit = tempfile::tempdir().unwrap();
        let folders = [
            "lib64",
            "targets/x86_64-linux/lib",
            "targets/sbsa-linux/lib",
        ];
        for folder in folders.iter().copied().chain(["bin"]) {
            let folder = toolkit.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(DEVICE_RUNTIME), "").unwrap();
        }
        for (triple, folder) in [
            ("x86_64-unknown-linux-gnu", folders[1]),
            ("aarch64-unknown-linux-gnu", folders[2]),
            ("riscv64-unknown-linux-gnu", folders[0]),
        ] {
            let found = device_runtime(&toolkit.path().join("bin/nvlink"), triple).unwrap();
            assert_eq!(found, toolkit.path().join(folder).join(DEVICE_RUNTIME));
        }
    }

    #[test]
    fn every_spelling_of_a_required_symbol() {
        let line: Vec<&OsStr> = [
            "-ua",
            "-u",
            "b",
            "--undefined=c",
            "-undefined",
            "d",
            "-lu",
            "--unresolved-symbols=x",
            "--undefined-version",
            "-v",
        ]
        .map(OsStr::new)
        .to_vec();
        let (required, others) = split_required(line.into_iter());
        assert_eq!(
            required.into_iter().collect::<Vec<_>>().join(" "),
            "a b c d"
        );
        assert_eq!(
            others,
            ["-lu", "--unresolved-symbols=x", "--undefined-version", "-v"].map(OsStr::new)
        );
    }
}
