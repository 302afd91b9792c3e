//! What a device link for a CPU takes over from the host link: library folders, sysroot, host linker, and libraries, except for the
//! dynamic loader, libomptarget, and archives whose device code is linked already.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::DeviceContext;
use super::arg_list::ArgList;
use super::memo;
use crate::args::request::{InputName, LinkRequest};
use crate::formats::magic::Magic;
use crate::link::inputs::Inputs;
use crate::link::scan::DeviceImage;
use crate::sys::toolchain::{self, LinkerFamily};
use crate::target::Target;

/// A library of the host link that device code may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostLibrary {
    name: HostLibraryName,
    prefer_static: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostLibraryName {
    /// `-l<name>`.
    Name(OsString),
    /// `-L<folder>`, for those that follow.
    Folder(OsString),
    /// A file given by its path.
    File(PathBuf),
}

/// The libraries among the arguments that offld adds to the host link for OpenMP, as far as device code for a CPU needs them:
/// `-lomp` and its folder.
pub(crate) fn added_libraries(runtime_args: &[OsString]) -> Vec<HostLibrary> {
    if !runtime_args.iter().any(|arg| arg == "-lomp") {
        return Vec::new();
    }
    let folders = runtime_args.iter().filter_map(|arg| arg.as_bytes().strip_prefix(b"-L"));
    let folders = folders.map(|folder| HostLibraryName::Folder(OsStr::from_bytes(folder).to_owned()));
    let names = folders.chain([HostLibraryName::Name("omp".into())]);
    names.map(|name| HostLibrary { name, prefer_static: false }).collect()
}

/// The libraries among the inputs, in order, each once. Archives with device code for a CPU are left out: their device code is an
/// input already, and host code in them must not resolve symbols of device code.
/// A library that is not there is left to the host linker `linker` to report, where it is known in which folders that searches.
pub(crate) fn host_libraries(
    request: &LinkRequest,
    inputs: &Inputs,
    found: &[DeviceImage<'_>],
    linker: &Path,
) -> Vec<HostLibrary> {
    let own_folders = OnceCell::new();
    let is_nowhere = |name: &OsStr| {
        let folders = own_folders.get_or_init(|| folders_of(linker, request));
        folders.as_ref().is_some_and(|folders| !folders.iter().any(|folder| holds(folder, name)))
    };
    let mut with_device_code = vec![false; inputs.files.len()];
    for image in found.iter().filter(|image| Target::new(&image.triple, &image.arch).is_cpu()) {
        with_device_code[inputs.objects[image.input_object].file] = true;
    }
    let mut libraries: Vec<HostLibrary> = Vec::new();
    for (index, (spec, file)) in request.inputs.iter().zip(&inputs.named).enumerate() {
        let kind = file.map(|file| inputs.files[file].kind);
        if file.is_some_and(|file| with_device_code[file]) {
            continue;
        }
        let name = match &spec.name {
            InputName::Library(name) if is_runtime(name.as_bytes()) => continue,
            InputName::Library(name) if inputs.missing.contains(&index) && is_nowhere(name) => continue,
            InputName::Library(name) => HostLibraryName::Name(name.clone()),
            InputName::File(path) if matches!(kind, Some(Magic::Archive | Magic::ElfShared)) => {
                let name = path.file_name().unwrap_or_default().as_bytes();
                if is_loader(name) || name.strip_prefix(b"lib").is_some_and(is_runtime) {
                    continue;
                }
                HostLibraryName::File(path.clone())
            }
            InputName::File(_) => continue,
        };
        let library = HostLibrary { name, prefer_static: spec.prefer_static };
        if !libraries.contains(&library) {
            libraries.push(library);
        }
    }
    libraries
}

/// The folders that `linker` searches besides those of its command line, as far as that is known: ld.lld none, GNU's those that it
/// tells.
fn folders_of(linker: &Path, request: &LinkRequest) -> Option<Vec<PathBuf>> {
    if toolchain::is_ld_lld(linker) {
        return Some(Vec::new());
    }
    let told = match toolchain::linker_family(linker) {
        LinkerFamily::Gnu | LinkerFamily::Gold => memo::builtin_folders(linker, request.emulation.as_deref()),
        LinkerFamily::Lld | LinkerFamily::Mold | LinkerFamily::Other => Vec::new(),
    };
    let root = request.sysroot.as_deref().unwrap_or(Path::new("/"));
    // The sysroot stands for `=`.
    let rooted = |folder: PathBuf| match folder.as_os_str().as_bytes().strip_prefix(b"=/") {
        Some(below) => root.join(OsStr::from_bytes(below)),
        None => folder,
    };
    (!told.is_empty()).then(|| told.into_iter().map(rooted).collect())
}

/// Whether the library `name`, as `-l` names it, is in `folder`.
fn holds(folder: &Path, name: &OsStr) -> bool {
    let is_there = |file: &[u8]| folder.join(OsStr::from_bytes(file)).exists();
    match name.as_bytes().strip_prefix(b":") {
        Some(file) => is_there(file),
        None => [&b".so"[..], b".a"].iter().any(|end| is_there(&[b"lib", name.as_bytes(), end].concat())),
    }
}

/// Whether this is the offload runtime, which only host code uses.
fn is_runtime(name: &[u8]) -> bool {
    let name = name.strip_prefix(b":lib").unwrap_or(name);
    name.starts_with(b"omptarget") || name.starts_with(b"LLVMOffload")
}

fn is_loader(name: &[u8]) -> bool {
    [&b"ld-linux"[..], b"ld-musl", b"ld64.so", b"ld.so"].iter().any(|prefix| name.starts_with(prefix))
}

/// Adds what a link for the CPU `target` needs beyond its inputs.
pub(super) fn cpu_arguments(args: &mut ArgList, context: &DeviceContext<'_>, target: &Target) {
    let request = context.request;
    args.arg("-Wl,-Bsymbolic").arg("-shared");
    let host = Target::new(context.host_triple, "");
    let windows = |triple: &str| triple.contains("-windows");
    let same_machine = host.arch_name() == target.arch_name() && windows(&host.triple) == windows(&target.triple);
    if same_machine {
        if let Some(sysroot) = &request.sysroot {
            args.joined("--sysroot=", sysroot.as_os_str());
        }
        // The compiler calls plain `ld` by default.
        if context.host_linker.file_name().is_some_and(|name| name != "ld") && context.host_linker.is_absolute() {
            args.joined("--ld-path=", context.host_linker.as_os_str());
        }
    } else if context.host_linker.to_string_lossy().ends_with("ld.lld") {
        // lld links for every machine.
        args.joined("--ld-path=", context.host_linker.as_os_str());
    }
    if !same_machine {
        // Folders and libraries of the host contain code for the host only.
        return;
    }
    for folder in &request.library_dirs {
        args.joined("-L", folder.as_os_str());
    }
    for folder in &request.rpaths {
        // Not `-Wl,-rpath,…`, which splits folder names at commas.
        args.arg("-Xlinker").arg("-rpath").arg("-Xlinker").arg(folder);
    }
    if context.libraries.is_empty() {
        return;
    }
    args.arg("-Wl,--as-needed");
    let mut is_static = false;
    for library in context.libraries {
        let wants_static = library.prefer_static && !request.static_link;
        if wants_static != is_static {
            args.arg(if wants_static { "-Wl,-Bstatic" } else { "-Wl,-Bdynamic" });
            is_static = wants_static;
        }
        match &library.name {
            HostLibraryName::Folder(folder) => args.joined("-L", folder),
            HostLibraryName::Name(name) => args.joined("-l", name),
            HostLibraryName::File(path) => args.path(path),
        };
    }
    if is_static {
        args.arg("-Wl,-Bdynamic");
    }
    args.arg("-Wl,--no-as-needed");
}
