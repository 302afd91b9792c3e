//! The libraries that a tool loads: every file that the dynamic loader could take for one of them. Running the loader would tell which it
//! takes, but that takes longer than a whole link whose result is in the cache.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::formats::{dynamic, magic};
use crate::io::bytes::Bytes;
use crate::io::loader::{Loader, RunPaths};

/// What a file needs, each with the run paths by which it is looked for.
type Needed = Vec<(OsString, RunPaths)>;

/// The files that could be loaded for the program at `program` (symbolic links resolved), its libraries and theirs, sorted. An error
/// names the library that is nowhere to be found, or the file that cannot be read.
pub(super) fn of(program: &Path) -> Result<Vec<String>, String> {
    let loader = Loader::new();
    let mut found = BTreeSet::new();
    let mut asked: BTreeSet<(OsString, Vec<String>)> = BTreeSet::new();
    let mut waiting: VecDeque<(OsString, RunPaths)> = needed(program, None)?.into();
    while let Some((name, run_paths)) = waiting.pop_front() {
        let files = loader.every_candidate(&name, &run_paths);
        if files.is_empty() {
            return Err(format!("{}: its library {} is not found", program.display(), name.display()));
        }
        let paths = files.iter().map(|file| file.to_str().map(str::to_owned).ok_or(file));
        let paths = paths.collect::<Result<Vec<String>, _>>().map_err(|file| format!("{} is not in UTF-8", file.display()))?;
        // Another file that needs the same library may look for it elsewhere.
        if asked.insert((name, paths.clone())) {
            for path in paths {
                waiting.extend(needed(Path::new(&path), Some(&run_paths))?);
                found.insert(path);
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// What the file at `path` needs, which was loaded by a file with these run paths; nothing if it is no ELF file.
fn needed(path: &Path, loaded_by: Option<&RunPaths>) -> Result<Needed, String> {
    let wrong = |error: &dyn Display| format!("{}: {error}", path.display());
    let bytes = Bytes::open(path).map_err(|error| wrong(&error))?;
    if !bytes.as_slice().starts_with(&magic::ELF) {
        return Ok(Vec::new());
    }
    let dynamic = dynamic::read(bytes.as_slice()).map_err(|fault| wrong(&fault))?;
    let run_paths = RunPaths::new(&dynamic, path, loaded_by);
    Ok(dynamic.needed.iter().map(|name| (OsStr::from_bytes(name).to_owned(), run_paths.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_the_loader_takes_is_among_them() {
        let own = std::env::current_exe().unwrap();
        let files = of(&own).unwrap();
        let loaded = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libraries = loaded.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        for library in libraries.filter(|path| path.contains(".so")) {
            let real = Path::new(library).canonicalize().unwrap();
            assert!(files.iter().any(|file| Path::new(file).canonicalize().unwrap() == real), "{library} is not in {files:?}");
        }
    }

    #[test]
    fn what_is_no_program_asks_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        std::fs::write(&file, "text").unwrap();
        assert!(of(&file).unwrap().is_empty());
        assert!(of(&dir.path().join("none")).is_err());
    }
}
