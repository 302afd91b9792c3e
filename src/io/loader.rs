//! Where a dynamic loader looks for the libraries that a program or library needs: the run paths in the file, `LD_LIBRARY_PATH`,
//! the loader's own list `/etc/ld.so.cache`, the folders of `/etc/ld.so.conf`, the default ones; in glibc's order (ld.so(8)).
//! Nothing is run.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::formats::dynamic::Dynamic;
use crate::sys::session::{self, Session};

#[cfg(test)]
mod tests;

/// The list that ldconfig makes of the libraries in the configured folders.
pub(crate) const CACHE: &str = "/etc/ld.so.cache";
/// The list of libraries that the loader loads before all others.
pub(crate) const PRELOAD: &str = "/etc/ld.so.preload";
const CONF: &str = "/etc/ld.so.conf";
/// Where loaders look when nothing else says: glibc's folders, then musl's. Debian's multiarch folders are in its ld.so.conf.
const DEFAULT: [&str; 6] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"];
/// The subfolder in which glibc looks first, in a folder for each level of processors that this one reaches.
const FOR_PROCESSORS: &str = "glibc-hwcaps";
/// The folders in it, for every processor that has any.
const LEVELS: [&str; 11] =
    ["x86-64-v2", "x86-64-v3", "x86-64-v4", "power9", "power10", "z13", "z14", "z15", "z16", "z17", "loongarch64-v1"];
/// The subfolders in which glibc before 2.37 looks first, also in one another, and which exist almost nowhere.
const OLD: [&str; 7] = ["tls", "haswell", "xeon_phi", "avx512_1", "x86_64", "atomics", "aarch64"];
/// How deep those are in one another.
const DEEPEST_OLD: usize = 4;

/// The folders that a file names for the libraries that it needs, `$ORIGIN` replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunPaths {
    /// `DT_RPATH` of the file, then of what loaded it, and so on up to the program. Of a file with `DT_RUNPATH` it does not count.
    rpaths: Vec<PathBuf>,
    /// `DT_RUNPATH`; none where the file has no such entry, which decides about the `DT_RPATH` of others, too.
    runpath: Option<Vec<PathBuf>>,
}

impl RunPaths {
    /// Those of the file at `path`, which `dynamic` was read from and which the file with `loaded_by` has loaded. `$ORIGIN` is the
    /// folder of `path` as it stands: loaders do not follow a library's symbolic links. For a program, resolve them first.
    pub(crate) fn new(dynamic: &Dynamic<'_>, path: &Path, loaded_by: Option<&RunPaths>) -> RunPaths {
        let folders = |lists: &[&[u8]]| lists.iter().flat_map(|list| expand(list, path)).collect::<Vec<_>>();
        let runpath = (!dynamic.runpath.is_empty()).then(|| folders(&dynamic.runpath));
        let mut rpaths = if runpath.is_none() { folders(&dynamic.rpath) } else { Vec::new() };
        for inherited in loaded_by.iter().flat_map(|loader| &loader.rpaths) {
            if !rpaths.contains(inherited) {
                rpaths.push(inherited.clone());
            }
        }
        RunPaths { rpaths, runpath }
    }

    /// The folders in the file's own entries, or those that it inherits if it has none: all that linkers look into for what it
    /// needs.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        self.runpath.as_ref().unwrap_or(&self.rpaths)
    }
}

/// What a loader knows beside the files: the environment's folders, its list, and the system's folders.
#[derive(Debug)]
pub(crate) struct Loader {
    environment: Vec<PathBuf>,
    cache: Vec<u8>,
    system: Vec<PathBuf>,
    /// What [`Loader::every_candidate`] has found out about folders: many libraries are looked for in the same ones.
    searched: Mutex<HashMap<PathBuf, SearchedFolder>>,
}

/// Where a loader looks for a library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// Every file that it could take.
    pub(crate) files: BTreeSet<PathBuf>,
    /// The paths at which it would have taken a file if there were one. There are thousands, and comparing paths part by part takes long.
    pub(crate) missing: HashSet<OsString>,
}

/// A folder in which libraries have been looked for.
#[derive(Debug)]
struct SearchedFolder {
    /// The folder and its variants for processors.
    places: Vec<PathBuf>,
    /// The variants that do not exist.
    missing: Vec<PathBuf>,
    /// What has been found for each name that has been looked for.
    found: HashMap<OsString, Candidates>,
}

impl Loader {
    /// The loader as it would be started now.
    pub(crate) fn new() -> Loader {
        let mut system = configured(Path::new(CONF), 0);
        system.extend(DEFAULT.map(PathBuf::from));
        // Without the list the folders are looked into, as loaders do.
        let cache = fs::read(CACHE).unwrap_or_default();
        Loader { environment: environment(), cache, system, searched: Mutex::default() }
    }

    /// The paths at which the library `name` may be that a file with `run_paths` needs, in the order in which they are tried; most
    /// are no files. Variants for processors of a higher level are left out: they have the same interface.
    pub(crate) fn candidates(&self, name: &OsStr, run_paths: &RunPaths) -> impl Iterator<Item = PathBuf> {
        let paths = if is_path(name) {
            vec![PathBuf::from(name)]
        } else {
            let [first, then] = self.before_system(run_paths);
            let listed = self.listed(name).into_iter().filter(|path| !is_variant(path));
            let folders = first.iter().chain(then).map(|folder| folder.join(name));
            folders.chain(listed).chain(self.system.iter().map(|folder| folder.join(name))).collect()
        };
        paths.into_iter()
    }

    /// Every file that a loader could take for the library `name`, on any processor, and every place at which it could take another.
    /// A folder is looked into once for each name: what changes there later is not seen by this [`Loader`].
    pub(crate) fn every_candidate(&self, name: &OsStr, run_paths: &RunPaths) -> Candidates {
        let mut candidates = Candidates::default();
        if is_path(name) {
            candidates.look_at(PathBuf::from(name));
        } else {
            let [first, then] = self.before_system(run_paths);
            first.iter().chain(then).chain(&self.system).for_each(|folder| candidates.add(self.in_folder(folder, name)));
            self.listed(name).into_iter().for_each(|path| candidates.look_at(path));
        }
        candidates
    }

    /// Where [`Loader::every_candidate`] would have looked, too, if there were a folder.
    pub(crate) fn missing_folders(&self) -> Vec<PathBuf> {
        let searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
        searched.values().flat_map(|folder| folder.missing.iter().cloned()).collect()
    }

    /// The name or folder that leads to the library `name` which a file with `run_paths` needs, if it has a word of the loader's in it
    /// (`$LIB`, `$PLATFORM`, `$ORIGIN` but in run paths): what that stands for depends on how the loader was built, on the processor
    /// and on which file asks, so which library it is cannot be told from here.
    pub(crate) fn word(&self, name: &OsStr, run_paths: &RunPaths) -> Option<OsString> {
        let has_word = |name: &OsStr| name.as_bytes().contains(&b'$');
        if has_word(name) {
            return Some(name.to_owned());
        }
        let searched = if is_path(name) { [&[][..]; 2] } else { self.before_system(run_paths) };
        let mut folders = searched.into_iter().flatten().map(|folder| folder.as_os_str());
        folders.find(|folder| has_word(folder)).map(OsStr::to_owned)
    }

    /// What is called `name` in `folder` and in its variants for processors.
    fn in_folder(&self, folder: &Path, name: &OsStr) -> Candidates {
        let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
        if !searched.contains_key(folder) {
            searched.insert(folder.to_owned(), SearchedFolder::new(folder));
        }
        searched.get_mut(folder).map(|searched| searched.find(name)).unwrap_or_default()
    }

    /// The folders that come before the system's.
    fn before_system<'a>(&'a self, run_paths: &'a RunPaths) -> [&'a [PathBuf]; 2] {
        match &run_paths.runpath {
            Some(runpath) => [&self.environment, runpath],
            None => [&run_paths.rpaths, &self.environment],
        }
    }

    /// The paths in the loader's list that end in `name`. They are strings with a zero at their ends; of what stands between them
    /// (which ABI and processors they are for) nothing is needed here.
    fn listed(&self, name: &OsStr) -> Vec<PathBuf> {
        let ending = [b"/", name.as_bytes(), b"\0"].concat();
        let path = |at: usize| {
            let before = self.cache.get(..at)?;
            let start = before.iter().rposition(|byte| *byte == 0).map_or(0, |zero| zero + 1);
            let path = self.cache.get(start..at + ending.len() - 1)?;
            path.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(path)))
        };
        memchr::memmem::find_iter(&self.cache, &ending).filter_map(path).collect()
    }
}

impl Candidates {
    /// Adds the file at `path`, or that there is none.
    fn look_at(&mut self, path: PathBuf) {
        if path.is_file() {
            self.files.insert(path);
        } else {
            self.missing.insert(path.into_os_string());
        }
    }

    fn add(&mut self, other: Candidates) {
        self.files.extend(other.files);
        self.missing.extend(other.missing);
    }
}

impl SearchedFolder {
    fn new(folder: &Path) -> SearchedFolder {
        let mut searched = SearchedFolder { places: vec![folder.to_owned()], missing: Vec::new(), found: HashMap::new() };
        searched.add_levels(&folder.join(FOR_PROCESSORS));
        searched.add_old(folder, DEEPEST_OLD);
        searched
    }

    fn add_levels(&mut self, folder: &Path) {
        if !folder.is_dir() {
            return self.missing.push(folder.to_owned());
        }
        let there = fs::read_dir(folder).into_iter().flatten().flatten().map(|level| level.path());
        self.places.extend(there);
        let missing = LEVELS.iter().map(|level| folder.join(level)).filter(|level| !self.places.contains(level));
        self.missing.extend(missing.collect::<Vec<_>>());
    }

    fn add_old(&mut self, folder: &Path, deepest: usize) {
        for path in OLD.iter().map(|name| folder.join(name)) {
            if !path.is_dir() {
                self.missing.push(path);
            } else if deepest > 0 {
                self.add_old(&path, deepest - 1);
                self.places.push(path);
            }
        }
    }

    fn find(&mut self, name: &OsStr) -> Candidates {
        if let Some(known) = self.found.get(name) {
            return known.clone();
        }
        let mut found = Candidates::default();
        self.places.iter().for_each(|place| found.look_at(place.join(name)));
        self.found.insert(name.to_owned(), found.clone());
        found
    }
}

impl Default for Loader {
    fn default() -> Self {
        Loader::new()
    }
}

/// The folders of `LD_LIBRARY_PATH`, which may be separated by semicolons, too.
pub(crate) fn environment() -> Vec<PathBuf> {
    let folders = Session::env(session::LD_LIBRARY_PATH).unwrap_or_default();
    let folders: Vec<u8> = folders.into_vec().into_iter().map(|byte| if byte == b';' { b':' } else { byte }).collect();
    split(&OsString::from_vec(folders)).collect()
}

/// The folders of a colon-separated list. An empty one between others is the current folder, as for every loader and linker.
pub(crate) fn split(folders: &OsStr) -> impl Iterator<Item = PathBuf> {
    let parts = (!folders.is_empty()).then(|| folders.as_bytes().split(|byte| *byte == b':'));
    let folder = |part: &[u8]| PathBuf::from(OsStr::from_bytes(if part.is_empty() { b"." } else { part }));
    parts.into_iter().flatten().map(folder)
}

/// Whether a needed library is named by its path: then nothing is searched.
fn is_path(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

fn is_variant(path: &Path) -> bool {
    path.iter().any(|part| part == FOR_PROCESSORS)
}

/// The folders of a run path in the file at `path`.
fn expand(list: &[u8], path: &Path) -> Vec<PathBuf> {
    let origin = path.parent().map_or(&b"/"[..], |folder| folder.as_os_str().as_bytes());
    let origin = if origin.is_empty() { b"." } else { origin };
    let replaced = replace(&replace(list, b"${ORIGIN}", origin), b"$ORIGIN", origin);
    split(&OsString::from_vec(replaced)).collect()
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = memchr::memmem::find(rest, from).and_then(|at| rest.split_at_checked(at)) {
        replaced.extend_from_slice(before);
        replaced.extend_from_slice(to);
        rest = after.get(from.len()..).unwrap_or_default();
    }
    replaced.extend_from_slice(rest);
    replaced
}

/// The folders that a file like /etc/ld.so.conf lists, and those it includes.
fn configured(conf: &Path, depth: usize) -> Vec<PathBuf> {
    const DEEPEST: usize = 4;
    let Ok(text) = fs::read_to_string(conf) else { return Vec::new() };
    let mut folders = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        match line.strip_prefix("include").filter(|rest| rest.starts_with(char::is_whitespace)) {
            Some(pattern) if depth < DEEPEST => {
                folders.extend(included(conf, pattern.trim()).iter().flat_map(|conf| configured(conf, depth + 1)));
            }
            None if !line.is_empty() => folders.push(PathBuf::from(line)),
            _ => {}
        }
    }
    folders
}

/// The files of an include line: `ld.so.conf.d/*.conf`, where a star in the last part stands for anything.
fn included(conf: &Path, pattern: &str) -> Vec<PathBuf> {
    let pattern = conf.with_file_name("").join(pattern);
    let name = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern] };
    let folder = fs::read_dir(pattern.with_file_name("")).into_iter().flatten().flatten();
    let matches = |name: &str| name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end);
    let fits = folder.filter(|entry| matches(&entry.file_name().to_string_lossy()));
    let mut files: Vec<PathBuf> = fits.map(|entry| entry.path()).collect();
    files.sort();
    files
}
