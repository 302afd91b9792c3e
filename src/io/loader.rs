//! Where a dynamic loader looks for the libraries that a program or library needs: the run paths in the file, `LD_LIBRARY_PATH`,
//! the loader's own list `/etc/ld.so.cache`, the folders of `/etc/ld.so.conf`, the default ones; in glibc's order (ld.so(8)).
//! Nothing is run.

use std::collections::{BTreeSet, HashMap};
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
const CONF: &str = "/etc/ld.so.conf";
/// Where loaders look when nothing else says: glibc's folders, then musl's. Debian's multiarch folders are in its ld.so.conf.
const DEFAULT: [&str; 6] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"];
/// The subfolder in which glibc looks first, in a folder for each level of processors that this one reaches.
const FOR_PROCESSORS: &str = "glibc-hwcaps";

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

/// A folder in which libraries have been looked for.
#[derive(Debug)]
struct SearchedFolder {
    /// The folder and its variants for processors; none if there is no such folder.
    places: Vec<PathBuf>,
    /// The files of each name that has been looked for.
    files: HashMap<OsString, Vec<PathBuf>>,
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

    /// Every file that a loader could take for the library `name`, on any processor. A folder is looked into once for each name: what
    /// changes there later is not seen by this [`Loader`].
    pub(crate) fn every_candidate(&self, name: &OsStr, run_paths: &RunPaths) -> BTreeSet<PathBuf> {
        let mut paths: BTreeSet<PathBuf> = BTreeSet::new();
        if is_path(name) {
            paths.extend(Some(PathBuf::from(name)).filter(|path| path.is_file()));
        } else {
            let [first, then] = self.before_system(run_paths);
            first.iter().chain(then).chain(&self.system).for_each(|folder| paths.extend(self.in_folder(folder, name)));
            let unseen = self.listed(name).into_iter().filter(|path| !paths.contains(path) && path.is_file());
            paths.extend(unseen.collect::<Vec<_>>());
        }
        paths
    }

    /// The files called `name` in `folder` and in its variants for processors.
    fn in_folder(&self, folder: &Path, name: &OsStr) -> Vec<PathBuf> {
        let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
        if !searched.contains_key(folder) {
            searched.insert(folder.to_owned(), SearchedFolder::new(folder));
        }
        searched.get_mut(folder).map(|searched| searched.files(name)).unwrap_or_default()
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

impl SearchedFolder {
    fn new(folder: &Path) -> SearchedFolder {
        let mut places = Vec::new();
        if folder.is_dir() {
            places.push(folder.to_owned());
            let variants = fs::read_dir(folder.join(FOR_PROCESSORS)).into_iter().flatten().flatten();
            places.extend(variants.map(|variant| variant.path()));
        }
        SearchedFolder { places, files: HashMap::new() }
    }

    fn files(&mut self, name: &OsStr) -> Vec<PathBuf> {
        if let Some(known) = self.files.get(name) {
            return known.clone();
        }
        let files: Vec<PathBuf> = self.places.iter().map(|place| place.join(name)).filter(|path| path.is_file()).collect();
        self.files.insert(name.to_owned(), files.clone());
        files
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
