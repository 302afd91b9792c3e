//! Examines this machine: the programs and files that links need, in the compiler's search
//! directories, the state of the caches, and the answers of clang.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::Access;

use super::needs::{
    AMD_DEVICE_RUNTIME, LIBGCC, LLD, NVIDIA_DEVICE_RUNTIME, NVLINK_WRAPPER_NAME, SYCL_HEADER,
    SYCL_LINKER_NAME, names,
};
use super::{Cache, Kind, Part, Program, Remote};
use crate::toolchain::{self, Compiler};
use offld_system::environment;
use offld_system::run::{self, Probe, is_ourselves};
use offld_system::store::local::Store;
use offld_system::store::settings::{self, Setting};
use offld_system::store::{self, Key, RemoteSettings, SecretKey};
use offld_system::threads::lock;
use offload_formats::error;

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
        .chain(named.filter(|path| path.is_file() && !is_ourselves(path)));
    let once = all.filter(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    once.map(|path| Program {
        says: first_line(&path),
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
    let named: Vec<PathBuf> = environment::get(environment::LIBRARY_PATH)
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
                LIBGCC => printed_file(&compiler.path, "-print-libgcc-file-name"),
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
    printed_file(&compiler.path, &format!("-print-file-name=include/{name}"))
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

// The state of the cache of device links, and of the remote cache.

/// Examines the cache that a link in this environment would use.
pub(super) fn own_cache() -> Cache {
    let setting = settings::resolve(settings::named_by_environment(&environment::get));
    let Setting {
        root,
        limit,
        why_off,
        ..
    } = &setting;
    let Some(root) = root else {
        return Cache {
            error: why_off.clone(),
            ..Cache::default()
        };
    };
    let mut cache = Cache {
        folder: Some(root.clone()),
        limit: Some(*limit),
        writable: is_writable(root),
        ..Cache::default()
    };
    match Store::of(&setting, root) {
        Ok(store) => {
            let contents = store.contents();
            (cache.size, cache.images) = (Some(contents.size), Some(contents.blobs));
            cache.error =
                (!cache.writable).then(|| format!("cannot write to `{}`", root.display()));
        }
        Err(error) => cache.error = Some(error::chain(&error)),
    }
    cache
}

/// The reason why every link with device code fails: a cache with an unusable key.
pub(super) fn key_error() -> Option<String> {
    settings::resolve(settings::named_by_environment(&environment::get)).root?;
    SecretKey::of_environment()
        .err()
        .map(|error| error::chain(&error))
}

/// Whether files can be created in `folder`, or `folder` itself can be created.
fn is_writable(folder: &Path) -> bool {
    let there = folder.ancestors().find(|path| path.exists());
    there.is_some_and(|path| {
        path.is_dir() && rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    })
}

/// Examines the remote cache by a request for a key that it does not have. It needs the local
/// cache, `own`.
pub(super) fn shared_cache(own: &Cache) -> Option<Remote> {
    let settings = RemoteSettings::from_environment()?;
    let mut problems: Vec<String> = settings.doubt.clone().into_iter().collect();
    if own.folder.is_none() {
        problems.push("not used, because the local cache is off".to_owned());
    }
    let key = SecretKey::of_environment().unwrap_or_else(|error| {
        problems.push(error::chain(&error));
        None
    });
    let (url, read_only, signed) = (settings.shown(), settings.read_only, key.is_some());
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let tell = {
        let messages = Arc::clone(&messages);
        Arc::new(move |text: &str| lock(&messages).push(text.to_owned()))
    };
    let answers = match store::Remote::open(&RemoteSettings { key, ..settings }, tell) {
        Ok(remote) => {
            remote.record(Key::of("offld doctor"));
            !remote.troubled()
        }
        Err(error) => {
            problems.push(error::chain(&error));
            false
        }
    };
    problems.append(&mut lock(&messages));
    Some(Remote {
        url,
        read_only,
        signed,
        answers,
        problems,
    })
}

// Questions to a clang: its version, its search directories, and its errors for code of a kind.

/// The search directories of a clang.
#[derive(Debug, Default)]
pub(super) struct Folders {
    pub programs: Vec<PathBuf>,
    pub libraries: Vec<PathBuf>,
}

/// Returns the first line of `program`'s output for `--version`; `None` if it does not run or
/// prints nothing.
pub(super) fn first_line(program: &Path) -> Option<String> {
    let text = run::stdout_of(program, &["--version"])?;
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}

/// Returns the directories in which `clang` searches for programs and libraries.
pub(super) fn search_folders(clang: &Path) -> Folders {
    folders_in(&run::stdout_of(clang, &["-print-search-dirs"]).unwrap_or_default())
}

fn folders_in(text: &str) -> Folders {
    let list = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default();
        std::env::split_paths(line.trim().trim_start_matches('='))
            .filter(|folder| !folder.as_os_str().is_empty())
            .collect()
    };
    Folders {
        programs: list("programs:"),
        libraries: list("libraries:"),
    }
}

/// Returns the file that `clang` prints for the option `question`, if it exists.
pub(super) fn printed_file(clang: &Path, question: &str) -> Option<PathBuf> {
    Some(PathBuf::from(run::stdout_of(clang, &[question])?))
        .filter(|path| path.is_absolute() && path.is_file())
}

/// Returns the errors that `clang` would report when compiling code of `kind`.
pub(super) fn complaints(clang: &Path, kind: Kind) -> Vec<String> {
    let words: &[&str] = match kind {
        Kind::OpenMpHost | Kind::Sycl => return Vec::new(),
        Kind::OpenMpAmd => &[
            "-x",
            "c",
            "-fopenmp",
            "-fopenmp-targets=amdgcn-amd-amdhsa",
            "-Xopenmp-target=amdgcn-amd-amdhsa",
            "-march=gfx90a",
        ],
        Kind::OpenMpNvidia => &[
            "-x",
            "c",
            "-fopenmp",
            "-fopenmp-targets=nvptx64-nvidia-cuda",
            "-Xopenmp-target=nvptx64-nvidia-cuda",
            "-march=sm_80",
        ],
        Kind::Hip => &["-x", "hip", "--offload-arch=gfx90a"],
        Kind::Cuda => &["-x", "cuda", "--offload-arch=sm_80"],
    };
    let args: Vec<OsString> = ["-###", "-c", "-o", "/dev/null"]
        .iter()
        .chain(words)
        .chain(&["/dev/null"])
        .map(OsString::from)
        .collect();
    let output = Probe::start(clang, &args).and_then(Probe::finish);
    output
        .map(|output| errors_in(&String::from_utf8_lossy(&output.stderr)))
        .unwrap_or_default()
}

/// Returns the errors in a driver's output, each once, without the commands that the driver would
/// run.
fn errors_in(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    // Lines that begin with a space are commands.
    for line in text.lines().filter(|line| !line.starts_with(' ')) {
        let error = line
            .split_once("error: ")
            .map(|(_, error)| error.trim().to_owned());
        all.extend(error.filter(|error| !all.contains(error)));
    }
    all
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

    #[test]
    fn the_folders_of_a_clang() {
        let folders = folders_in(
            "programs: =/usr/lib/llvm-22/bin:/usr/bin\nlibraries: =/usr/lib/llvm-22/lib/clang/22::/lib\n",
        );
        assert_eq!(
            folders.programs,
            [Path::new("/usr/lib/llvm-22/bin"), Path::new("/usr/bin")]
        );
        assert_eq!(
            folders.libraries,
            [
                Path::new("/usr/lib/llvm-22/lib/clang/22"),
                Path::new("/lib")
            ]
        );
        let none = folders_in("");
        assert!(none.programs.is_empty() && none.libraries.is_empty());
    }

    #[test]
    fn the_errors_of_a_driver() {
        let output = "clang version 22\nclang: error: cannot find HIP runtime; x\nclang: error: cannot find HIP runtime; x\n \
                    \"/usr/bin/clang\" \"-DX=error: no\"\nclang: warning: y\n";
        assert_eq!(errors_in(output), ["cannot find HIP runtime; x"]);
    }
}
