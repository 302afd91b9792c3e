//! What a device link for a CPU gets from the host line: the library folders, the sysroot, the host linker, and the
//! libraries, each only as far as device code needs it. Never the dynamic loader, never libomptarget, never an archive whose
//! device code was taken apart already.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::DeviceContext;
use super::arg_list::Args;
use crate::args::request::{InputName, InputSpec};
use crate::formats::magic::Magic;
use crate::link::inputs::Inputs;
use crate::link::scan::DeviceImage;
use crate::target::Target;

/// A library of the host line that device code may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostLibrary {
    what: HostLibraryName,
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

/// What the host line gets for OpenMP beyond what stands on it, where device code for a CPU needs that as well: `-lomp` and its folder.
pub(crate) fn added_libraries(words: &[OsString]) -> Vec<HostLibrary> {
    if !words.iter().any(|word| word == "-lomp") {
        return Vec::new();
    }
    let folders = words.iter().filter_map(|word| word.as_bytes().strip_prefix(b"-L"));
    let folders = folders.map(|folder| HostLibraryName::Folder(OsStr::from_bytes(folder).to_owned()));
    let what = folders.chain([HostLibraryName::Name("omp".into())]);
    what.map(|what| HostLibrary { what, prefer_static: false }).collect()
}

/// The libraries among the inputs, in order, each once. An archive with device code for a CPU is left out: its device code is
/// an input already, and its host code must not stand in for device code.
pub(crate) fn host_libraries(specs: &[InputSpec], inputs: &Inputs, found: &[DeviceImage<'_>]) -> Vec<HostLibrary> {
    let mut with_device_code = vec![false; inputs.files.len()];
    for image in found.iter().filter(|image| Target::new(&image.triple, &image.arch).is_cpu()) {
        with_device_code[inputs.objects[image.input_object].file] = true;
    }
    let mut libraries: Vec<HostLibrary> = Vec::new();
    for (spec, file) in specs.iter().zip(&inputs.named) {
        let kind = file.map(|file| inputs.files[file].kind);
        if file.is_some_and(|file| with_device_code[file]) {
            continue;
        }
        let what = match &spec.name {
            InputName::Library(name) if is_runtime(name.as_bytes()) => continue,
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
        let library = HostLibrary { what, prefer_static: spec.prefer_static };
        if !libraries.contains(&library) {
            libraries.push(library);
        }
    }
    libraries
}

/// The offload runtime serves the host side only.
fn is_runtime(name: &[u8]) -> bool {
    let name = name.strip_prefix(b":lib").unwrap_or(name);
    name.starts_with(b"omptarget") || name.starts_with(b"LLVMOffload")
}

fn is_loader(name: &[u8]) -> bool {
    [&b"ld-linux"[..], b"ld-musl", b"ld64.so", b"ld.so"].iter().any(|prefix| name.starts_with(prefix))
}

/// Adds what a link for the CPU `target` needs beyond its inputs.
pub(super) fn cpu_arguments(args: &mut Args, context: &DeviceContext<'_>, target: &Target) {
    let request = context.request;
    args.word("-Wl,-Bsymbolic").word("-shared");
    let host = Target::new(context.host_triple, "");
    let windows = |triple: &str| triple.contains("-windows");
    let same_machine = host.arch_name() == target.arch_name() && windows(&host.triple) == windows(&target.triple);
    if same_machine {
        if let Some(sysroot) = &request.sysroot {
            args.joined("--sysroot=", sysroot.as_os_str());
        }
        // Plain `ld` is what the compiler calls by itself.
        if context.host_linker.file_name().is_some_and(|name| name != "ld") && context.host_linker.is_absolute() {
            args.joined("--ld-path=", context.host_linker.as_os_str());
        }
    } else if context.host_linker.to_string_lossy().ends_with("ld.lld") {
        // The one linker that serves every machine.
        args.joined("--ld-path=", context.host_linker.as_os_str());
    }
    if !same_machine {
        // Folders and libraries of the host are of no use to another machine.
        return;
    }
    for folder in &request.library_dirs {
        args.joined("-L", folder.as_os_str());
    }
    for folder in &request.rpaths {
        // Not `-Wl,-rpath,…`, which a comma in the folder's name would cut.
        args.word("-Xlinker").word("-rpath").word("-Xlinker").word(folder);
    }
    if context.libraries.is_empty() {
        return;
    }
    args.word("-Wl,--as-needed");
    let mut is_static = false;
    for library in context.libraries {
        let wants_static = library.prefer_static && !request.static_link;
        if wants_static != is_static {
            args.word(if wants_static { "-Wl,-Bstatic" } else { "-Wl,-Bdynamic" });
            is_static = wants_static;
        }
        match &library.what {
            HostLibraryName::Folder(folder) => args.joined("-L", folder),
            HostLibraryName::Name(name) => args.joined("-l", name),
            HostLibraryName::File(path) => args.path(path),
        };
    }
    if is_static {
        args.word("-Wl,-Bdynamic");
    }
    args.word("-Wl,--no-as-needed");
}
