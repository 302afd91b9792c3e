//! OpenMP runtime of a host link: adds it if the command line lacks it, and reports a runtime that
//! lacks a feature which the device code needs.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::args::settings::{InputName, LinkSettings};
use crate::args::{Role, joined};
use crate::link::inputs::Inputs;
use crate::link::inputs::search::{Naming, Search};
use crate::link::scan::{DeviceImage, HostFacts};
use crate::toolchain::{self, Compiler};
use offld_system::io::bytes::Bytes;
use offload_formats::dynamic;
use offload_formats::magic::Magic;
use offload_formats::model::{Generation, OffloadKind, llvm_major};
use offload_formats::producer::llvm_release;
use offload_formats::registration::openmp;
use offload_formats::target::Target;

/// The additions to a host link for the OpenMP runtime.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Runtime {
    /// Arguments for the end of the command line.
    pub args: Vec<OsString>,
    /// A warning for the user.
    pub warning: Option<String>,
}

/// Returns the arguments that a command line lacks for the OpenMP code among `images`:
/// `-lomptarget`, and `-lomp` if host code calls it, with their directory. clang passes both
/// itself. gcc, rustc and users that call `ld.offld` directly do not. Fails if no runtime can be
/// linked.
pub(crate) fn openmp_runtime(
    settings: &LinkSettings,
    inputs: &Inputs,
    facts: &[HostFacts<'_>],
    images: &[&DeviceImage<'_>],
    search: &Search,
    compiler: &Compiler,
) -> Result<Runtime> {
    let ours: Vec<&DeviceImage<'_>> = images
        .iter()
        .copied()
        .filter(|image| image.kinds.contains(OffloadKind::OpenMp))
        .collect();
    // Windows runtimes are not installed where offld looks, so those links must name their runtime.
    let elsewhere = super::naming(settings) != Naming::Unix;
    let need = need(&ours, inputs, facts);
    if need == Need::None
        || settings.device.no_offload_runtime
        || settings.host.relocatable
        || elsewhere
    {
        return Ok(Runtime::default());
    }
    let is_ld = settings.role == Role::Ld;
    let (target, omp) = (
        mention_of(settings, inputs, b"omptarget"),
        mention_of(settings, inputs, b"omp"),
    );
    let wants_target =
        is_ld && target == Mention::Absent && !provided(inputs, facts, openmp::REGISTER_LIB);
    let folder = toolchain::openmp_runtime_folder(compiler).filter(|_| is_ld);
    let is_there = || {
        folder.is_some()
            || search
                .library(OsStr::new("omptarget"), settings.host.static_link)
                .is_some()
    };
    if need == Need::IfPulled && (settings.host.static_link || !is_there()) {
        return Ok(Runtime::default());
    }
    let missing = match target {
        Mention::Missing if settings.host.static_link => {
            missing_runtime(settings, search, folder.as_deref(), compiler)?
        }
        Mention::Absent if wants_target => {
            missing_runtime(settings, search, folder.as_deref(), compiler)?
        }
        _ => None,
    };
    let added = || folder.as_ref().map(|folder| folder.join("libomptarget.so"));
    let library = match target {
        Mention::Named(file) => {
            file.and_then(|file| Library::read(&inputs.files[file].path, inputs.files[file].data()))
        }
        Mention::Absent if !wants_target => None,
        Mention::Absent | Mention::Missing => {
            added().and_then(|path| Library::read(&path, Bytes::open(&path).ok()?.as_slice()))
        }
    };
    let unfit = || {
        let library = library.as_ref()?;
        let others = || {
            other_kernel_calls(library, &ours).or_else(|| short_kernel_calls(library, &ours, facts))
        };
        too_old(library, &ours, facts).or_else(others)
    };
    let warning = missing.or_else(unfit);
    let wants_omp = is_ld
        && omp == Mention::Absent
        && mention_of(settings, inputs, b"iomp5") == Mention::Absent
        && (calls(facts, b"__kmpc_") && !provided(inputs, facts, "__kmpc_global_thread_num")
            || calls_unprovided(inputs, facts, b"omp_"));
    let unfound = target == Mention::Missing || omp == Mention::Missing;
    let folder = folder
        .filter(|_| wants_target || wants_omp || unfound)
        .map(|folder| joined("-L", folder));
    if !wants_target && !wants_omp {
        return Ok(Runtime {
            args: folder.into_iter().collect(),
            warning,
        });
    }
    let mut args: Vec<OsString> = vec!["--push-state".into()];
    args.extend((need == Need::IfPulled).then(|| "--as-needed".into()));
    args.extend((!settings.host.static_link).then(|| "-Bdynamic".into()));
    args.extend(folder);
    args.extend(wants_omp.then(|| "-lomp".into()));
    args.extend(wants_target.then(|| "-lomptarget".into()));
    args.push("--pop-state".into());
    Ok(Runtime { args, warning })
}

/// Whether [`openmp_runtime`] may add the directory of the library `name` to the command line.
pub(crate) fn may_add_directory_of(settings: &LinkSettings, name: &OsStr) -> bool {
    settings.role == Role::Ld
        && !settings.device.no_offload_runtime
        && (name == "omptarget" || name == "omp")
}

/// Whether a link needs libomptarget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    None,
    /// If the host link extracts an archive member that registers images. Only the linker knows
    /// whether that happens, so the library is added with `--as-needed`.
    IfPulled,
    Surely,
}

fn need(images: &[&DeviceImage<'_>], inputs: &Inputs, facts: &[HostFacts<'_>]) -> Need {
    let registers = |lazy: bool| {
        let mut of_these = facts
            .iter()
            .zip(&inputs.objects)
            .filter(|(_, object)| object.lazy == lazy);
        of_these
            .any(|(facts, _)| calls(std::slice::from_ref(facts), openmp::REGISTER_LIB.as_bytes()))
    };
    if !images.is_empty() || registers(false) {
        Need::Surely
    } else if registers(true) {
        Need::IfPulled
    } else {
        Need::None
    }
}

/// Returns the warning if neither `folder` nor a directory of the command line has libomptarget.
/// This is only a warning, because the linker may search more directories. For a static executable
/// it is an error: it needs a libomptarget archive, and LLVM builds none.
fn missing_runtime(
    settings: &LinkSettings,
    search: &Search,
    folder: Option<&Path>,
    compiler: &Compiler,
) -> Result<Option<String>> {
    let is_static = settings.host.static_link && !settings.host.shared;
    let in_folder = |folder: &Path| !is_static || folder.join("libomptarget.a").exists();
    if search.library(OsStr::new("omptarget"), is_static).is_some() || folder.is_some_and(in_folder)
    {
        return Ok(None);
    }
    if is_static {
        bail!(
            "a static executable cannot offload: libomptarget, which loads the images, exists only as a shared library. Link without \
             -static (-static-libstdc++ and -static-libgcc still work)"
        );
    }
    Ok(Some(format!(
        "OpenMP device code needs libomptarget, which is missing in the library directories of {} and of the command line: install \
         libomptarget (Debian: liboffload-22-dev), or pass its directory with -L",
        compiler.path.display()
    )))
}

/// How the command line mentions a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mention {
    /// Not at all.
    Absent,
    /// With `-l`, but no directory contains the library.
    Missing,
    /// By `-l` or a path, with the index of the file in `Inputs::files` if it was found.
    Named(Option<usize>),
}

/// How the command line mentions the library `name`.
fn mention_of(settings: &LinkSettings, inputs: &Inputs, name: &[u8]) -> Mention {
    let is_it = |file: &[u8]| {
        file.strip_prefix(b"lib")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with(b"."))
    };
    let mentions =
        settings
            .inputs
            .iter()
            .zip(&inputs.named)
            .filter_map(|(spec, &file)| match &spec.name {
                InputName::Library(library) => {
                    let is_it = library.as_bytes() == name
                        || library.as_bytes().strip_prefix(b":").is_some_and(is_it);
                    is_it.then_some(if file.is_some() {
                        Mention::Named(file)
                    } else {
                        Mention::Missing
                    })
                }
                InputName::File(path) => path
                    .file_name()
                    .is_some_and(|file| is_it(file.as_bytes()))
                    .then_some(Mention::Named(file)),
                InputName::Script(_) => None,
            });
    mentions.fold(Mention::Absent, |best, next| {
        if matches!(best, Mention::Named(_)) {
            best
        } else {
            next
        }
    })
}

fn calls(facts: &[HostFacts<'_>], prefix: &[u8]) -> bool {
    facts.iter().any(|facts| {
        facts
            .undefined
            .iter()
            .any(|symbol| !symbol.weak && symbol.name.starts_with(prefix))
    })
}

/// Whether an object calls a function whose name begins with `prefix` and that no input defines.
fn calls_unprovided(inputs: &Inputs, facts: &[HostFacts<'_>], prefix: &[u8]) -> bool {
    let called = facts
        .iter()
        .flat_map(|facts| &facts.undefined)
        .filter(|symbol| !symbol.weak && symbol.name.starts_with(prefix));
    let names: BTreeSet<&[u8]> = called.map(|symbol| symbol.name.as_ref()).collect();
    names
        .into_iter()
        .any(|name| std::str::from_utf8(name).is_ok_and(|name| !provided(inputs, facts, name)))
}

/// Whether an object, archive member or shared library among the inputs defines `symbol`.
fn provided(inputs: &Inputs, facts: &[HostFacts<'_>], symbol: &str) -> bool {
    let defines = |facts: &HostFacts<'_>| {
        facts
            .defined
            .iter()
            .any(|definition| *definition.name == *symbol.as_bytes())
    };
    let exports = |data: &[u8]| {
        // Errors are ignored here, because the host linker reports a damaged library.
        dynamic::exports(data, symbol.as_bytes()).unwrap_or(false)
    };
    facts.iter().any(defines)
        || inputs
            .files
            .iter()
            .any(|file| file.kind == Magic::ElfShared && exports(file.data()))
}

/// The libomptarget that a link finds.
struct Library {
    path: PathBuf,
    /// The LLVM release of the library.
    release: u32,
}

impl Library {
    /// Reads the library with the contents `data`. Its soname contains the release. The soname of
    /// LLVM 14 has no release; that library lacks functions that later compilers call.
    fn read(path: &Path, data: &[u8]) -> Option<Library> {
        let soname = std::str::from_utf8(dynamic::read(data).ok()?.soname?).ok()?;
        let release = llvm_major(soname.strip_prefix("libomptarget.so.")?)?;
        Some(Library {
            path: path.to_owned(),
            release,
        })
    }
}

/// Returns the warning if the runtime is from LLVM 19 or earlier, which crashes on the entries of
/// later compilers.
fn too_old(
    runtime: &Library,
    images: &[&DeviceImage<'_>],
    facts: &[HostFacts<'_>],
) -> Option<String> {
    let is_later = |image: &&&DeviceImage<'_>| {
        facts
            .get(image.input_object)
            .and_then(|facts| facts.generation)
            .is_some_and(Generation::wide_entries)
    };
    let later = images.iter().find(is_later)?;
    (runtime.release < 20).then(|| {
        format!(
            "{} is from LLVM 19 or earlier and cannot read the entries of {}, which a later LLVM compiled: the program will crash \
             unless it runs with a later libomptarget",
            runtime.path.display(),
            later.origin
        )
    })
}

/// The first LLVM release whose CPU kernels take one pointer to all their arguments.
const ONE_POINTER: u32 = 23;

/// Returns the warning if `runtime` does not call a kernel in one of `images` in the way that its
/// compiler expects. Such a runtime refuses the kernel with a fatal error when the program runs
/// (llvm/llvm-project#186261).
fn other_kernel_calls(runtime: &Library, images: &[&DeviceImage<'_>]) -> Option<String> {
    let release = runtime.release;
    let is_other = |(_, producer): &(&DeviceImage<'_>, u32)| {
        (*producer < ONE_POINTER) != (release < ONE_POINTER)
    };
    let cpu = images
        .iter()
        .filter(|image| Target::new(&image.triple, &image.arch).is_cpu());
    let (image, producer) = cpu
        .filter_map(|image| Some((*image, llvm_release(&image.bytes)?)))
        .find(is_other)?;
    Some(format!(
        "{} is from LLVM {release} and cannot call CPU kernels that LLVM {producer} compiled in {}: the program will fail at its \
         first kernel. Compile the object with the LLVM version of the runtime",
        runtime.path.display(),
        image.origin
    ))
}

/// The LLVM release whose kernel calls are described by 64 bytes.
const SHORT_CALLS: u32 = 15;

/// Returns the warning if `runtime` reads more of a kernel call than the host code of one of
/// `images` has written. LLVM 15 describes a call by a struct of 64 bytes. The runtimes of LLVM 16
/// and later also read the flags behind it, whatever the struct's version is. These flags are then
/// arbitrary stack contents, and programs crash.
fn short_kernel_calls(
    runtime: &Library,
    images: &[&DeviceImage<'_>],
    facts: &[HostFacts<'_>],
) -> Option<String> {
    if runtime.release <= SHORT_CALLS {
        return None;
    }
    let calls = |image: &DeviceImage<'_>| {
        let host = facts.get(image.input_object);
        host.is_some_and(|host| {
            host.undefined
                .iter()
                .any(|symbol| symbol.name.starts_with(b"__tgt_target_kernel"))
        })
    };
    let image = images
        .iter()
        .find(|image| calls(image) && llvm_release(&image.bytes) == Some(SHORT_CALLS))?;
    Some(format!(
        "{} is from LLVM {} and reads more kernel arguments than LLVM 15 passes in {}: the program can crash when it starts a \
         kernel. Compile the object with LLVM 16 or later, or link the libomptarget of LLVM 15",
        runtime.path.display(),
        runtime.release,
        image.origin
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_runtime_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let search = Search::new(&[], Some(folder.path()), Naming::Unix, "none");
        let compiler = Compiler {
            path: "/c/clang".into(),
            major: Some(22),
        };
        let dynamic = LinkSettings::default();
        let message = missing_runtime(&dynamic, &search, None, &compiler).unwrap();
        assert!(
            message
                .unwrap()
                .contains("missing in the library directories of /c/clang")
        );
        assert_eq!(
            missing_runtime(&dynamic, &search, Some(folder.path()), &compiler).unwrap(),
            None
        );
        let mut fixed = LinkSettings::default();
        fixed.host.static_link = true;
        let message = missing_runtime(&fixed, &search, Some(folder.path()), &compiler)
            .unwrap_err()
            .to_string();
        assert!(message.starts_with("a static executable cannot offload"));
        std::fs::write(folder.path().join("libomptarget.a"), "").unwrap();
        assert_eq!(
            missing_runtime(&fixed, &search, Some(folder.path()), &compiler).unwrap(),
            None
        );
    }
}
