//! What a link reads that its line does not name: the libraries that its shared libraries need, which GNU ld opens to see that every
//! symbol is somewhere, and the files that the device compiler adds to a link for a CPU.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

use crate::args::request::{InputName, InputSpec};
use crate::io::bytes::Bytes;
use crate::link::inputs;
use crate::link::inputs::search::{Naming, Search};
use crate::sys::run;
use crate::sys::session::{self, Session};
use crate::sys::toolchain::Compiler;

/// What clang looks for where it links a shared object, and `crtbegin.o`, by which it knows the folder of a GCC.
const START_FILES: [&str; 5] = [":crti.o", ":crtn.o", ":crtbegin.o", ":crtbeginS.o", ":crtendS.o"];
/// The libraries it adds.
const COMPILER_LIBRARIES: [&str; 4] = ["gcc", "gcc_s", "c", "m"];

/// The libraries that `libraries` need, and those need, by name; looked for as GNU ld does: in `folders` (`-rpath-link`, then
/// `-rpath`), in `LD_LIBRARY_PATH`, where the library that needs it says, and where linkers look for everything.
pub(super) fn libraries(libraries: Vec<PathBuf>, folders: &[PathBuf], search: &Search) -> BTreeMap<OsString, PathBuf> {
    let mut folders = folders.to_vec();
    let environment = Session::env(session::LD_LIBRARY_PATH).unwrap_or_default();
    folders.extend(split(&environment).filter(|folder| !folder.as_os_str().is_empty()));
    let mut found = BTreeMap::new();
    let mut todo = libraries;
    while let Some(library) = todo.pop() {
        let Ok(bytes) = Bytes::open(&library) else { continue };
        let Ok(elf) = Elf::parse(bytes.as_slice()) else { continue };
        let own: Vec<PathBuf> = elf.runpaths.iter().chain(&elf.rpaths).flat_map(|path| origin(path, &library)).collect();
        for name in elf.libraries {
            if found.contains_key(OsStr::new(name)) {
                continue;
            }
            let there = folders.iter().chain(&own).map(|folder| folder.join(name)).find(|path| path.is_file());
            if let Some(path) = there.or_else(|| search.library(OsStr::new(&format!(":{name}")), false)) {
                todo.push(path.clone());
                found.insert(name.into(), path);
            }
        }
    }
    found
}

/// The folders of a colon-separated list.
pub(super) fn split(folders: &OsStr) -> impl Iterator<Item = PathBuf> {
    folders.as_bytes().split(|byte| *byte == b':').map(|folder| OsStr::from_bytes(folder).into())
}

/// The folders of a library's run path.
fn origin(path: &str, library: &Path) -> Vec<PathBuf> {
    let folder = library.parent().unwrap_or(Path::new("")).to_string_lossy();
    split(OsStr::new(&path.replace("$ORIGIN", &folder).replace("${ORIGIN}", &folder))).collect()
}

/// What `compiler` adds to a link for `triple`: start files, and the libraries of the compiler and of C.
pub(super) fn of_compiler(compiler: &Compiler, triple: &str, sysroot: Option<&Path>) -> Vec<PathBuf> {
    let mut words = vec![format!("--target={triple}"), "-print-search-dirs".to_owned()];
    words.extend(sysroot.map(|sysroot| format!("--sysroot={}", sysroot.display())));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer = run::answer(&compiler.path, &words).unwrap_or_default();
    let Some(folders) = answer.lines().find_map(|line| line.strip_prefix("libraries: =")) else { return Vec::new() };
    let folders: Vec<PathBuf> = split(OsStr::new(folders)).collect();
    let search = Search::new(&folders, sysroot, Naming::Unix, "");
    let names = START_FILES.iter().chain(&COMPILER_LIBRARIES);
    opened(names.map(|name| InputName::Library(OsString::from(name))), &search)
}

/// The files that are opened for inputs of these names.
pub(super) fn opened(names: impl Iterator<Item = InputName>, search: &Search) -> Vec<PathBuf> {
    let specs: Vec<InputSpec> = names.map(spec).collect();
    inputs::files(&specs, search).opened.into_iter().map(|file| file.path).collect()
}

fn spec(name: InputName) -> InputSpec {
    InputSpec {
        name,
        whole_archive: false,
        lazy: false,
        prefer_static: false,
        as_needed: false,
        binary: false,
        group: None,
        token: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_path_may_begin_beside_its_library() {
        let folders = origin("$ORIGIN/../x:/y", Path::new("/l/a.so"));
        assert_eq!(folders, [PathBuf::from("/l/../x"), PathBuf::from("/y")]);
    }
}
