//! The shared libraries of a tool: every file that the dynamic loader could load as one of them. Running the loader would tell
//! exactly which ones, but takes longer than a whole link whose image is in the cache.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::file_snapshot::FileStat;
use crate::formats::{dynamic, magic};
use crate::io::bytes::Bytes;
use crate::io::loader::{Loader, RunPaths};

/// The libraries that a file needs, each with the run paths that it is searched by.
type Needed = Vec<(OsString, RunPaths)>;

/// Open files: most libraries have several paths, and opening them is what takes time.
#[derive(Default)]
pub(super) struct OpenFiles {
    files: HashMap<FileStat, Bytes>,
}

impl OpenFiles {
    /// The file at `path`, and its stat a moment before it was opened.
    pub(super) fn open(&mut self, path: &Path) -> io::Result<(FileStat, Bytes)> {
        let stat = FileStat::of(path)?;
        if let Some(bytes) = self.files.get(&stat) {
            return Ok((stat, bytes.clone()));
        }
        let bytes = Bytes::open(path)?;
        self.files.insert(stat, bytes.clone());
        Ok((stat, bytes))
    }
}

/// The files that could be loaded for the program at `program` (symbolic links resolved), directly or for its libraries, sorted. An
/// error names the library that is not found, or the file that cannot be read.
pub(super) fn of(program: &Path, open: &mut OpenFiles) -> Result<Vec<String>, String> {
    let loader = Loader::new();
    let mut found = BTreeSet::new();
    let mut visited: BTreeSet<(OsString, Vec<String>)> = BTreeSet::new();
    let mut searched: BTreeSet<(OsString, RunPaths)> = BTreeSet::new();
    let mut queue: VecDeque<(OsString, RunPaths)> = needed(program, None, open)?.into();
    while let Some((name, run_paths)) = queue.pop_front() {
        // Almost every file needs the C library, and a search for it looks into dozens of folders.
        if !searched.insert((name.clone(), run_paths.clone())) {
            continue;
        }
        let files = loader.every_candidate(&name, &run_paths);
        if files.is_empty() {
            return Err(format!("{}: its library {} is not found", program.display(), name.display()));
        }
        let paths = files.iter().map(|file| file.to_str().map(str::to_owned).ok_or(file));
        let paths = paths.collect::<Result<Vec<String>, _>>().map_err(|file| format!("{} is not in UTF-8", file.display()))?;
        // The same library may be found elsewhere for another file, which has other run paths.
        if visited.insert((name, paths.clone())) {
            for path in paths {
                queue.extend(needed(Path::new(&path), Some(&run_paths), open)?);
                found.insert(path);
            }
        }
    }
    Ok(found.into_iter().collect())
}

/// The libraries that the file at `path` needs; none if it is not an ELF file. `loaded_by`: the run paths of the file that loads
/// it.
fn needed(path: &Path, loaded_by: Option<&RunPaths>, open: &mut OpenFiles) -> Result<Needed, String> {
    let in_file = |error: &dyn Display| format!("{}: {error}", path.display());
    let (_, bytes) = open.open(path).map_err(|error| in_file(&error))?;
    if !bytes.as_slice().starts_with(&magic::ELF) {
        return Ok(Vec::new());
    }
    let dynamic = dynamic::read(bytes.as_slice()).map_err(|fault| in_file(&fault))?;
    let run_paths = RunPaths::new(&dynamic, path, loaded_by);
    Ok(dynamic.needed.iter().map(|name| (OsStr::from_bytes(name).to_owned(), run_paths.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_loaded_libraries_are_found() {
        let own = std::env::current_exe().unwrap();
        let files = of(&own, &mut OpenFiles::default()).unwrap();
        let loaded = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libraries = loaded.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        for library in libraries.filter(|path| path.contains(".so")) {
            let real = Path::new(library).canonicalize().unwrap();
            assert!(files.iter().any(|file| Path::new(file).canonicalize().unwrap() == real), "{library} is not in {files:?}");
        }
    }

    #[test]
    fn a_text_file_needs_no_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        std::fs::write(&file, "text").unwrap();
        let open = &mut OpenFiles::default();
        assert!(of(&file, open).unwrap().is_empty());
        assert!(of(&dir.path().join("none"), open).is_err());
    }
}
