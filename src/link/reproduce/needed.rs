//! Files that a link reads but its command line does not name. These are the files that the device
//! compiler adds to a link for a CPU, and the libraries that shared libraries need. GNU ld opens
//! the latter to check that every symbol is defined.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::args::settings::{InputName, InputSpec, InputState};
use crate::formats::dynamic;
use crate::io::bytes::Bytes;
use crate::io::loader::{self, RunPaths};
use crate::link::inputs;
use crate::link::inputs::search::{Naming, Search};
use crate::sys::run;
use crate::sys::toolchain::Compiler;

/// The start files of a shared object, and `crtbegin.o`, by which clang recognises the directory of
/// a GCC.
const START_FILES: [&str; 5] = [
    ":crti.o",
    ":crtn.o",
    ":crtbegin.o",
    ":crtbeginS.o",
    ":crtendS.o",
];
/// The libraries that clang adds.
const COMPILER_LIBRARIES: [&str; 4] = ["gcc", "gcc_s", "c", "m"];

/// Returns the libraries that `libraries` need, directly or indirectly, by name. The search order
/// is GNU ld's: `folders` (`-rpath-link`, then `-rpath`), `LD_LIBRARY_PATH`, the run path of the
/// library that needs them, and the directories for all libraries.
pub(super) fn libraries(
    libraries: Vec<PathBuf>,
    folders: &[PathBuf],
    search: &Search,
) -> BTreeMap<OsString, PathBuf> {
    let folders = [folders, &loader::environment()].concat();
    let mut found = BTreeMap::new();
    let mut todo = libraries;
    while let Some(library) = todo.pop() {
        let Ok(bytes) = Bytes::open(&library) else {
            continue;
        };
        let Ok(dynamic) = dynamic::read(bytes.as_slice()) else {
            continue;
        };
        let run_paths = RunPaths::new(&dynamic, &library, None);
        for name in dynamic.needed.into_iter().map(OsStr::from_bytes) {
            if found.contains_key(name) {
                continue;
            }
            let there = folders
                .iter()
                .chain(run_paths.folders())
                .map(|folder| folder.join(name))
                .find(|path| path.is_file());
            let exact_name: OsString = [OsStr::new(":"), name].into_iter().collect();
            if let Some(path) = there.or_else(|| search.library(&exact_name, false)) {
                todo.push(path.clone());
                found.insert(name.to_owned(), path);
            }
        }
    }
    found
}

/// Returns the files that `compiler` adds to a link for `triple`: start files, and the compiler's
/// and C's libraries.
pub(super) fn of_compiler(
    compiler: &Compiler,
    triple: &str,
    sysroot: Option<&Path>,
) -> Vec<PathBuf> {
    let mut args = vec![
        format!("--target={triple}"),
        "-print-search-dirs".to_owned(),
    ];
    args.extend(sysroot.map(|sysroot| format!("--sysroot={}", sysroot.display())));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let answer = run::stdout_of(&compiler.path, &args).unwrap_or_default();
    let Some(folders) = answer
        .lines()
        .find_map(|line| line.strip_prefix("libraries: ="))
    else {
        return Vec::new();
    };
    let folders: Vec<PathBuf> = loader::split(OsStr::new(folders)).collect();
    let search = Search::new(&folders, sysroot, Naming::Unix, "");
    let names = START_FILES.iter().chain(&COMPILER_LIBRARIES);
    opened(
        names.map(|name| InputName::Library(OsString::from(name))),
        &search,
    )
}

/// Returns the files that are opened for inputs with these names.
pub(super) fn opened(names: impl Iterator<Item = InputName>, search: &Search) -> Vec<PathBuf> {
    let specs: Vec<InputSpec> = names.map(spec).collect();
    inputs::files(&specs, search)
        .opened
        .into_iter()
        .map(|file| file.path)
        .collect()
}

fn spec(name: InputName) -> InputSpec {
    InputSpec {
        name,
        state: InputState::default(),
        token: 0,
    }
}
