//! Shared libraries of a tool: each file that the dynamic loader could load, and each path where it
//! could find another.
//!
//! Running the loader would return the exact list, but takes longer than a whole link whose image
//! is cached.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::file_snapshot::FileStat;
use offld_system::environment;
use offld_system::io::bytes::Bytes;
use offld_system::io::loader::{self, Candidates, Loader, RunPaths};
use offld_system::store::Digest;
use offload_formats::{dynamic, magic};

/// The libraries that a file needs, each with the run paths to search for it.
type Needed = Vec<(OsString, RunPaths)>;

/// Open files. Most libraries have several paths, and opening them takes most of the time.
#[derive(Default)]
pub(super) struct OpenFiles {
    files: HashMap<FileStat, Bytes>,
}

impl OpenFiles {
    /// Returns the file at `path`, and its stat from before it was opened.
    pub(super) fn open(&mut self, path: &Path) -> io::Result<(FileStat, Bytes)> {
        let stat = FileStat::of(path)?;
        if let Some(bytes) = self.files.get(&stat).filter(|_| stat.believed()) {
            return Ok((stat, bytes.clone()));
        }
        let bytes = Bytes::open(path)?;
        self.files.insert(stat, bytes.clone());
        Ok((stat, bytes))
    }
}

/// The libraries of a program.
#[derive(Debug)]
pub(super) struct Libraries {
    /// Sorted paths of the files that could be loaded, directly or by another library.
    pub(super) files: BTreeSet<String>,
    /// Paths where the loader would find other libraries.
    pub(super) missing: HashSet<OsString>,
    pub(super) missing_folders: Vec<PathBuf>,
    /// The digest of the entries of [`loader::CACHE`] for all names that were searched.
    pub(super) listed: Digest,
}

/// Finds the libraries of `program`, a path without symlinks.
///
/// Fails if a library is not found, cannot be located in advance, or if a file cannot be read.
pub(super) fn of(program: &Path, open: &mut OpenFiles) -> Result<Libraries, String> {
    let loader = Loader::new();
    let (mut all, mut all_missing) = (BTreeSet::new(), HashSet::new());
    let mut visited: BTreeSet<(OsString, Vec<String>)> = BTreeSet::new();
    let mut searched: BTreeSet<(OsString, RunPaths)> = BTreeSet::new();
    let preloaded = preloaded();
    let (own, run_paths) = needed(program, None, open)?;
    let preloading = preloaded
        .iter()
        .map(|name| (name.clone(), run_paths.clone()));
    let mut queue: VecDeque<(OsString, RunPaths)> = preloading.chain(own).collect();
    while let Some((name, run_paths)) = queue.pop_front() {
        // Almost every file needs the C library, and a search for it looks into dozens of
        // directories.
        if !searched.insert((name.clone(), run_paths.clone())) {
            continue;
        }
        if let Some(word) = loader.word(&name, &run_paths) {
            let (program, word) = (program.display(), word.display());
            return Err(format!("{program}: only the loader can expand `{word}`"));
        }
        let Candidates { files, missing } = loader.every_candidate(&name, &run_paths);
        all_missing.extend(missing);
        // The loader ignores a missing library from a preload list.
        if files.is_empty() && !preloaded.contains(&name) {
            return Err(format!(
                "{}: library {} not found",
                program.display(),
                name.display()
            ));
        }
        let paths = files
            .iter()
            .map(|file| file.to_str().map(str::to_owned).ok_or(file));
        let paths = paths
            .collect::<Result<Vec<String>, _>>()
            .map_err(|file| format!("{} is not in UTF-8", file.display()))?;
        // For another file, which has other run paths, the same library may be found elsewhere.
        if visited.insert((name, paths.clone())) {
            for path in paths {
                queue.extend(needed(Path::new(&path), Some(&run_paths), open)?.0);
                all.insert(path);
            }
        }
    }
    let names = searched.iter().map(|(name, _)| name.as_os_str());
    Ok(Libraries {
        files: all,
        missing: all_missing,
        missing_folders: loader.missing_folders(),
        listed: loader.listed_digest(names),
    })
}

/// Libraries to preload or audit with: from the environment, and from the system's list.
fn preloaded() -> BTreeSet<OsString> {
    let listed = std::fs::read(loader::PRELOAD).unwrap_or_default();
    let variables = [environment::LD_PRELOAD, environment::LD_AUDIT]
        .map(|name| environment::get(name).unwrap_or_default().into_vec());
    let lists = variables.into_iter().chain([listed]);
    let names = lists.flat_map(|list| {
        let names = list
            .split(|byte| *byte == b':' || byte.is_ascii_whitespace())
            .filter(|name| !name.is_empty());
        names
            .map(|name| OsStr::from_bytes(name).to_owned())
            .collect::<Vec<_>>()
    });
    names.collect()
}

/// Returns the libraries that the file at `path` needs, and its run paths. Both are empty unless it
/// is an ELF file.
///
/// `loaded_by`: the run paths of the file that loads it.
fn needed(
    path: &Path,
    loaded_by: Option<&RunPaths>,
    open: &mut OpenFiles,
) -> Result<(Needed, RunPaths), String> {
    let in_file = |error: &dyn Display| format!("{}: {error}", path.display());
    let (_, bytes) = open.open(path).map_err(|error| in_file(&error))?;
    if !bytes.as_slice().starts_with(&magic::ELF) {
        return Ok((Vec::new(), RunPaths::default()));
    }
    let dynamic = dynamic::read(bytes.as_slice()).map_err(|fault| in_file(&fault))?;
    let run_paths = RunPaths::new(&dynamic, path, loaded_by);
    let each = dynamic
        .needed
        .iter()
        .map(|name| (OsStr::from_bytes(name).to_owned(), run_paths.clone()))
        .collect();
    Ok((each, run_paths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_loaded_libraries_are_found() {
        let own = std::env::current_exe().unwrap();
        let files = of(&own, &mut OpenFiles::default()).unwrap().files;
        let loaded = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libraries = loaded
            .lines()
            .filter_map(|line| line.split_ascii_whitespace().nth(5));
        for library in libraries.filter(|path| path.contains(".so")) {
            let real = Path::new(library).canonicalize().unwrap();
            assert!(
                files
                    .iter()
                    .any(|file| Path::new(file).canonicalize().unwrap() == real),
                "{library} is not in {files:?}"
            );
        }
    }

    #[test]
    fn a_text_file_needs_no_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        std::fs::write(&file, "text").unwrap();
        let open = &mut OpenFiles::default();
        assert!(needed(&file, None, open).unwrap().0.is_empty());
        assert!(of(&dir.path().join("none"), open).is_err());
    }
}
