//! Search for the programs and files that links need, in the compiler's search directories.

use std::path::{Path, PathBuf};

use super::compiler::{self, Folders};
use super::needs::{
    AMD_DEVICE_RUNTIME, LIBGCC, LLD, NVIDIA_DEVICE_RUNTIME, NVLINK_WRAPPER_NAME, SYCL_HEADER,
    SYCL_LINKER_NAME, names,
};
use super::report::{Part, Program};
use crate::sys::session::{self, Session};
use crate::sys::toolchain::{self, Compiler};

/// Programs that some links run, found by clang or by offld.
const TOOLS: [&str; 6] = [
    LLD,
    NVLINK_WRAPPER_NAME,
    SYCL_LINKER_NAME,
    "ptxas",
    "nvlink",
    "fatbinary",
];
/// Names of host linkers.
const LINKERS: [&str; 6] = ["ld.lld", "ld", "ld.bfd", "ld.gold", "mold", "wild"];
/// Library directories of vendors. clang gets them from options, or searches them by default.
const VENDOR_LIBRARIES: [&str; 4] = [
    "/opt/rocm/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/lib",
    "/opt/intel/oneapi/compiler/latest/lib",
];

/// Returns the host linkers, each program once, with a mark on the one that `ld.offld` would run.
pub(super) fn linkers(folders: &Folders) -> Vec<Program> {
    let chosen = toolchain::host_linker(None, false).ok();
    let named = LINKERS.iter().flat_map(|name| {
        let on_path = which::which_all(name).into_iter().flatten();
        on_path.chain(folders.programs.iter().map(move |folder| folder.join(name)))
    });
    let mut seen = std::collections::BTreeSet::new();
    let all = chosen
        .iter()
        .cloned()
        .chain(named.filter(|path| path.is_file() && !toolchain::is_ourselves(path)));
    let once = all.filter(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    once.map(|path| Program {
        says: compiler::first_line(&path),
        chosen: chosen.as_ref() == Some(&path),
        path,
    })
    .collect()
}

/// Returns the other programs that links run.
pub(super) fn tools(folders: &Folders) -> Vec<Part> {
    let path = |name: &str| {
        let in_compiler_folders = folders
            .programs
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| path.is_file());
        let found = in_compiler_folders.or_else(|| which::which(name).ok());
        found.or_else(|| {
            ["ptxas", "nvlink", "fatbinary"]
                .contains(&name)
                .then(|| toolchain::cuda_tool(name, None).ok())
                .flatten()
        })
    };
    TOOLS
        .iter()
        .map(|name| Part {
            name,
            path: path(name),
        })
        .collect()
}

/// Returns the files that links need. All are missing without a compiler, because it determines the
/// search directories.
pub(super) fn files(compiler: Option<&Compiler>, folders: &Folders) -> Vec<Part> {
    let own = compiler.and_then(Compiler::library_folder);
    let named: Vec<PathBuf> = Session::env(session::LIBRARY_PATH)
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|folder| folder.is_absolute())
        .collect();
    let vendors = VENDOR_LIBRARIES.iter().map(PathBuf::from);
    let all: Vec<PathBuf> = own
        .iter()
        .chain(&folders.libraries)
        .cloned()
        .chain(named)
        .chain(vendors)
        .collect();
    let library = |name: &str| {
        all.iter()
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    };
    let files = names().filter(|name| !TOOLS.contains(name));
    let mut parts: Vec<Part> = files
        .map(|name| {
            let path = compiler.and_then(|compiler| match name {
                "omp.h" | SYCL_HEADER => header(compiler, name),
                // The file that replaces libgcc if clang has its own runtime.
                LIBGCC => compiler::file(&compiler.path, "-print-libgcc-file-name"),
                _ => library(name),
            });
            Part { name, path }
        })
        .collect();
    let gpus = [
        (
            AMD_DEVICE_RUNTIME,
            "amdgcn-amd-amdhsa",
            ["amdgpu", "amdgcn"],
        ),
        (NVIDIA_DEVICE_RUNTIME, "nvptx64-nvidia-cuda", ["nvptx"; 2]),
    ];
    for (name, triple, bitcode) in gpus {
        let path = compiler.and_then(|compiler| {
            let library = || {
                Some(own.as_ref()?.join(triple).join("libompdevice.a"))
                    .filter(|path| path.is_file())
            };
            if compiler.major.is_some_and(|major| major >= 22) {
                library()
            } else {
                device_bitcode(&all, &bitcode)
            }
        });
        parts.push(Part { name, path });
    }
    parts
}

/// Finds a header of the compiler, of its installation, or of the system.
fn header(compiler: &Compiler, name: &str) -> Option<PathBuf> {
    let of_installation = || {
        Some(
            compiler
                .library_folder()?
                .with_file_name("include")
                .join(name),
        )
    };
    let others = [
        of_installation(),
        Some(Path::new("/usr/include").join(name)),
    ];
    compiler::file(&compiler.path, &format!("-print-file-name=include/{name}"))
        .or_else(|| others.into_iter().flatten().find(|path| path.is_file()))
}

/// Finds OpenMP's device runtime as bitcode: there is one file for each architecture, or one for
/// all of them.
fn device_bitcode(folders: &[PathBuf], devices: &[&str]) -> Option<PathBuf> {
    let is_for_device = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let device = name
            .strip_prefix("libomptarget-")
            .map(|rest| rest.trim_start_matches("new-"));
        name.ends_with(".bc")
            && device.is_some_and(|rest| devices.iter().any(|device| rest.starts_with(device)))
    };
    let mut all: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(is_for_device)
        .collect();
    all.sort();
    all.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_bitcode_is_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().join("none"), folder.path().to_owned()];
        for name in [
            "libomptarget-nvptx-sm_80.bc",
            "libomptarget.so",
            "libomptarget-amdgpu.txt",
            "other-amdgpu.bc",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = |devices: &[&str]| {
            device_bitcode(&folders, devices).map(|path| path.file_name().unwrap().to_owned())
        };
        assert_eq!(found(&["amdgpu", "amdgcn"]), None);
        assert_eq!(
            found(&["nvptx"]),
            Some("libomptarget-nvptx-sm_80.bc".into())
        );
        for name in [
            "libomptarget-new-amdgpu-gfx90a.bc",
            "libomptarget-amdgcn-gfx906.bc",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(
            found(&["amdgpu", "amdgcn"]),
            Some("libomptarget-amdgcn-gfx906.bc".into())
        );
    }
}
