//! Search order of a dynamic loader for the libraries that a program or library needs. It searches
//! the run paths in the file, `LD_LIBRARY_PATH`, its own list `/etc/ld.so.cache`, the directories
//! of `/etc/ld.so.conf`, and the default ones. The order is glibc's (ld.so(8)). Nothing is run.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::environment;
use crate::store::{Digest, KeyBuilder};
use crate::threads::lock;
use offload_formats::bytes;
use offload_formats::dynamic::Dynamic;

#[cfg(test)]
mod tests;

/// The list of the libraries in the configured directories, which ldconfig writes.
pub const CACHE: &str = "/etc/ld.so.cache";
/// The list of libraries that the loader loads before all others.
pub const PRELOAD: &str = "/etc/ld.so.preload";
/// The first bytes of the list.
const LIST_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// The size of its header in bytes. The number of entries follows the magic.
const LIST_HEADER: usize = 48;
const CONF: &str = "/etc/ld.so.conf";
/// Default directories of loaders: glibc's, then musl's. Debian's multiarch directories are in its
/// ld.so.conf.
const DEFAULT: [&str; 6] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
];
/// Subdirectory that glibc searches first. It has a directory for each level of CPUs.
const HWCAPS: &str = "glibc-hwcaps";
/// The directories in [`HWCAPS`], for all architectures.
const LEVELS: [&str; 11] = [
    "x86-64-v2",
    "x86-64-v3",
    "x86-64-v4",
    "power9",
    "power10",
    "z13",
    "z14",
    "z15",
    "z16",
    "z17",
    "loongarch64-v1",
];
/// Subdirectories that glibc before 2.37 searches first, also nested. They exist almost nowhere.
const LEGACY: [&str; 7] = [
    "tls", "haswell", "xeon_phi", "avx512_1", "x86_64", "atomics", "aarch64",
];
/// Maximum nesting depth of [`LEGACY`] directories.
const DEEPEST_LEGACY: usize = 4;

/// The directories that a file names for the libraries that it needs, with `$ORIGIN` replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPaths {
    /// `DT_RPATH` of the file, then of the file that loaded it, and so on up to the program. In a
    /// file with `DT_RUNPATH`, `DT_RPATH` does not count.
    rpaths: Vec<PathBuf>,
    /// `DT_RUNPATH`; `None` if the file has no such entry. If it has one, no `DT_RPATH` counts for
    /// the libraries that it needs.
    runpath: Option<Vec<PathBuf>>,
}

impl RunPaths {
    /// Returns the run paths of the file at `path`. `dynamic` was read from that file, and
    /// `loaded_by` are the run paths of the file that loaded it. `$ORIGIN` is the directory of
    /// `path` as written: loaders do not follow a library's symbolic links. For a program, resolve
    /// them first.
    pub fn new(dynamic: &Dynamic<'_>, path: &Path, loaded_by: Option<&RunPaths>) -> RunPaths {
        let folders = |lists: &[&[u8]]| {
            lists
                .iter()
                .flat_map(|list| expand(list, path))
                .collect::<Vec<_>>()
        };
        let runpath = (!dynamic.runpath.is_empty()).then(|| folders(&dynamic.runpath));
        let mut rpaths = if runpath.is_none() {
            folders(&dynamic.rpath)
        } else {
            Vec::new()
        };
        for inherited in loaded_by.iter().flat_map(|loader| &loader.rpaths) {
            if !rpaths.contains(inherited) {
                rpaths.push(inherited.clone());
            }
        }
        RunPaths { rpaths, runpath }
    }

    /// The directories in `DT_RUNPATH`, or, without that entry, in `DT_RPATH` of the file and of
    /// the files that loaded it. Of all run paths, linkers search only these for the file's
    /// libraries.
    pub fn folders(&self) -> &[PathBuf] {
        self.runpath.as_ref().unwrap_or(&self.rpaths)
    }
}

/// The search locations of a loader apart from run paths: the directories of `LD_LIBRARY_PATH`, the
/// list [`CACHE`], and the system's directories.
#[derive(Debug)]
pub struct Loader {
    environment: Vec<PathBuf>,
    cache: Vec<u8>,
    system: Vec<PathBuf>,
    /// Results of [`Loader::every_candidate`] for each directory: many libraries are searched in
    /// the same ones.
    searched: Mutex<HashMap<PathBuf, SearchedFolder>>,
}

/// The places where a loader searches for a library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Every file that the loader could choose.
    pub files: BTreeSet<PathBuf>,
    /// Paths at which it would choose a file if there were one. Not `PathBuf`: there are thousands,
    /// and comparing paths component by component is slow.
    pub missing: HashSet<OsString>,
}

#[derive(Debug)]
struct SearchedFolder {
    /// The directory and its variants for CPU levels.
    places: Vec<PathBuf>,
    missing: Vec<PathBuf>,
    /// Results for each name that has been searched.
    found: HashMap<OsString, Candidates>,
}

impl Loader {
    /// The loader in its current environment.
    pub fn new() -> Loader {
        let mut system = configured(Path::new(CONF), 0);
        system.extend(DEFAULT.map(PathBuf::from));
        // Without the list, the directories are searched, as loaders do.
        let cache = fs::read(CACHE).unwrap_or_default();
        Loader {
            environment: environment(),
            cache,
            system,
            searched: Mutex::default(),
        }
    }

    /// Returns the possible paths of the library `name`, which a file with `run_paths` needs, in
    /// search order. Most are not files. Variants for higher CPU levels are omitted: they have the
    /// same interface.
    pub fn candidates(&self, name: &OsStr, run_paths: &RunPaths) -> impl Iterator<Item = PathBuf> {
        let paths = if is_path(name) {
            vec![PathBuf::from(name)]
        } else {
            let [first, then] = self.before_system(run_paths);
            let listed = self
                .listed(name)
                .into_iter()
                .filter(|path| !is_variant(path));
            let folders = first.iter().chain(then).map(|folder| folder.join(name));
            folders
                .chain(listed)
                .chain(self.system.iter().map(|folder| folder.join(name)))
                .collect()
        };
        paths.into_iter()
    }

    /// Returns every file that a loader could choose for the library `name`, on any CPU. Also
    /// returns the paths at which it would choose a file if there were one. A directory is searched
    /// once for each name: this [`Loader`] does not see later changes.
    pub fn every_candidate(&self, name: &OsStr, run_paths: &RunPaths) -> Candidates {
        let mut candidates = Candidates::default();
        if is_path(name) {
            candidates.look_at(PathBuf::from(name));
        } else {
            let [first, then] = self.before_system(run_paths);
            first
                .iter()
                .chain(then)
                .chain(&self.system)
                .for_each(|folder| candidates.add(self.in_folder(folder, name)));
            self.listed(name)
                .into_iter()
                .for_each(|path| candidates.look_at(path));
        }
        candidates
    }

    /// The directories that [`Loader::every_candidate`] would have searched as well if they
    /// existed.
    pub fn missing_folders(&self) -> Vec<PathBuf> {
        let searched = lock(&self.searched);
        searched
            .values()
            .flat_map(|folder| folder.missing.iter().cloned())
            .collect()
    }

    /// Returns `name` if it contains a placeholder of the loader, else the first searched directory
    /// that contains one. `run_paths` are those of the file that needs the library. Placeholders
    /// are `$LIB`, `$PLATFORM`, and `$ORIGIN` outside run paths. Their values depend on the build
    /// of the loader, the CPU and the requesting file, so the library cannot be determined here.
    pub fn word(&self, name: &OsStr, run_paths: &RunPaths) -> Option<OsString> {
        let has_placeholder = |name: &OsStr| name.as_bytes().contains(&b'$');
        if has_placeholder(name) {
            return Some(name.to_owned());
        }
        let searched = if is_path(name) {
            [&[][..]; 2]
        } else {
            self.before_system(run_paths)
        };
        let mut folders = searched
            .into_iter()
            .flatten()
            .map(|folder| folder.as_os_str());
        folders
            .find(|folder| has_placeholder(folder))
            .map(OsStr::to_owned)
    }

    /// The digest of the entries of the list [`CACHE`] for libraries with these names, in the order
    /// of the list. If the format is unknown, it is the digest of the whole list.
    pub fn listed_digest<'n>(&self, names: impl IntoIterator<Item = &'n OsStr>) -> Digest {
        let names = names.into_iter().map(|name| without_zeros(name.as_bytes()));
        let names: HashSet<Vec<u8>> = names.collect();
        let mut key = KeyBuilder::default();
        match entries(&self.cache) {
            Some(entries) => {
                for entry in entries
                    .iter()
                    .filter(|entry| names.contains(&without_zeros(entry.name)))
                {
                    let [flags, machine] = entry.conditions;
                    key.add(entry.name).add(entry.path).add(flags).add(machine);
                }
            }
            None => {
                key.add(&self.cache);
            }
        }
        key.digest()
    }

    /// Files called `name` in `folder` and in its variants for CPU levels.
    fn in_folder(&self, folder: &Path, name: &OsStr) -> Candidates {
        let mut searched = lock(&self.searched);
        if !searched.contains_key(folder) {
            searched.insert(folder.to_owned(), SearchedFolder::new(folder));
        }
        searched
            .get_mut(folder)
            .map(|searched| searched.find(name))
            .unwrap_or_default()
    }

    /// The directories that precede the system's.
    fn before_system<'a>(&'a self, run_paths: &'a RunPaths) -> [&'a [PathBuf]; 2] {
        match &run_paths.runpath {
            Some(runpath) => [&self.environment, runpath],
            None => [&run_paths.rpaths, &self.environment],
        }
    }

    /// The paths in the loader's list that end in `name`. They are zero-terminated strings. The
    /// data between them (ABI and CPUs) is not needed here.
    fn listed(&self, name: &OsStr) -> Vec<PathBuf> {
        let ending = [b"/", name.as_bytes(), b"\0"].concat();
        let path = |at: usize| {
            let before = self.cache.get(..at)?;
            let start = before
                .iter()
                .rposition(|byte| *byte == 0)
                .map_or(0, |zero| zero + 1);
            let path = self.cache.get(start..at + ending.len() - 1)?;
            path.starts_with(b"/")
                .then(|| PathBuf::from(OsStr::from_bytes(path)))
        };
        memchr::memmem::find_iter(&self.cache, &ending)
            .filter_map(path)
            .collect()
    }
}

/// An entry of the list [`CACHE`].
struct ListEntry<'l> {
    name: &'l [u8],
    path: &'l [u8],
    /// The ABI, the oldest kernel, and the CPUs that the library is for, as stored.
    conditions: [&'l [u8]; 2],
}

/// The entries of the list [`CACHE`]. `None` if its format is not the one that glibc's ldconfig has
/// written by default since 2.32 (`struct cache_file_new` in glibc's sysdeps/generic/dl-cache.h).
fn entries(list: &[u8]) -> Option<Vec<ListEntry<'_>>> {
    /// The size of an entry in bytes: flags (4), offset of the name (4), offset of the path (4),
    /// kernel (4), CPUs (8).
    const ENTRY: usize = 24;
    let count = bytes::u32_at(list, LIST_MAGIC.len()) as usize;
    let table = list.starts_with(LIST_MAGIC).then_some(LIST_HEADER)?;
    let table = list.get(table..)?.get(..count.checked_mul(ENTRY)?)?;
    let text =
        |entry: &[u8], at: usize| bytes::c_string(list.get(bytes::u32_at(entry, at) as usize..)?);
    table
        .chunks_exact(ENTRY)
        .map(|entry| {
            Some(ListEntry {
                name: text(entry, 4)?,
                path: text(entry, 8)?,
                conditions: [&entry[..4], &entry[12..]],
            })
        })
        .collect()
}

/// `name` without leading zeros of numbers. In the list, glibc compares numbers in names by value
/// (`_dl_cache_libcmp`).
fn without_zeros(name: &[u8]) -> Vec<u8> {
    let mut text: Vec<u8> = Vec::with_capacity(name.len());
    for (at, byte) in name.iter().enumerate() {
        let in_number = text.last().is_some_and(u8::is_ascii_digit);
        let has_more = name.get(at + 1).is_some_and(u8::is_ascii_digit);
        if *byte != b'0' || in_number || !has_more {
            text.push(*byte);
        }
    }
    text
}

impl Candidates {
    /// Adds `path` as a file or as missing.
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
        let mut searched = SearchedFolder {
            places: vec![folder.to_owned()],
            missing: Vec::new(),
            found: HashMap::new(),
        };
        searched.add_levels(&folder.join(HWCAPS));
        searched.add_legacy(folder, DEEPEST_LEGACY);
        searched
    }

    fn add_levels(&mut self, folder: &Path) {
        if !folder.is_dir() {
            return self.missing.push(folder.to_owned());
        }
        let existing = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|level| level.path());
        self.places.extend(existing);
        let missing = LEVELS
            .iter()
            .map(|level| folder.join(level))
            .filter(|level| !self.places.contains(level));
        self.missing.extend(missing.collect::<Vec<_>>());
    }

    fn add_legacy(&mut self, folder: &Path, deepest: usize) {
        for path in LEGACY.iter().map(|name| folder.join(name)) {
            if !path.is_dir() {
                self.missing.push(path);
            } else if deepest > 0 {
                self.add_legacy(&path, deepest - 1);
                self.places.push(path);
            }
        }
    }

    fn find(&mut self, name: &OsStr) -> Candidates {
        if let Some(known) = self.found.get(name) {
            return known.clone();
        }
        let mut found = Candidates::default();
        self.places
            .iter()
            .for_each(|place| found.look_at(place.join(name)));
        self.found.insert(name.to_owned(), found.clone());
        found
    }
}

impl Default for Loader {
    fn default() -> Self {
        Loader::new()
    }
}

/// The directories of `LD_LIBRARY_PATH`, which may also be separated by semicolons.
pub fn environment() -> Vec<PathBuf> {
    let folders = environment::get(environment::LD_LIBRARY_PATH).unwrap_or_default();
    let folders: Vec<u8> = folders
        .into_vec()
        .into_iter()
        .map(|byte| if byte == b';' { b':' } else { byte })
        .collect();
    split(&OsString::from_vec(folders)).collect()
}

/// The directories of a colon-separated list. An empty element is the current directory, as for
/// every loader and linker; an empty list has no directories.
pub fn split(folders: &OsStr) -> impl Iterator<Item = PathBuf> {
    let parts = (!folders.is_empty()).then(|| folders.as_bytes().split(|byte| *byte == b':'));
    let folder =
        |part: &[u8]| PathBuf::from(OsStr::from_bytes(if part.is_empty() { b"." } else { part }));
    parts.into_iter().flatten().map(folder)
}

/// Whether a needed library is given as a path: then no directory is searched.
fn is_path(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

fn is_variant(path: &Path) -> bool {
    path.iter().any(|part| part == HWCAPS)
}

/// The directories of a run path in the file at `path`.
fn expand(list: &[u8], path: &Path) -> Vec<PathBuf> {
    let origin = path
        .parent()
        .map_or(&b"/"[..], |folder| folder.as_os_str().as_bytes());
    let origin = if origin.is_empty() { b"." } else { origin };
    let replaced = replace(&replace(list, b"${ORIGIN}", origin), b"$ORIGIN", origin);
    split(&OsString::from_vec(replaced)).collect()
}

fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut rest = text;
    while let Some((before, after)) =
        memchr::memmem::find(rest, from).and_then(|at| rest.split_at_checked(at))
    {
        replaced.extend_from_slice(before);
        replaced.extend_from_slice(to);
        rest = after.get(from.len()..).unwrap_or_default();
    }
    replaced.extend_from_slice(rest);
    replaced
}

/// The directories that a file like /etc/ld.so.conf lists, including those of included files.
fn configured(conf: &Path, depth: usize) -> Vec<PathBuf> {
    const DEEPEST: usize = 4;
    let Ok(text) = fs::read_to_string(conf) else {
        return Vec::new();
    };
    let mut folders = Vec::new();
    for line in text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
    {
        match line
            .strip_prefix("include")
            .filter(|rest| rest.starts_with(char::is_whitespace))
        {
            Some(pattern) if depth < DEEPEST => {
                folders.extend(
                    included(conf, pattern.trim())
                        .iter()
                        .flat_map(|conf| configured(conf, depth + 1)),
                );
            }
            None if !line.is_empty() => folders.push(PathBuf::from(line)),
            _ => {}
        }
    }
    folders
}

/// The files of an include line: `ld.so.conf.d/*.conf`. A star in the last component matches any
/// text.
fn included(conf: &Path, pattern: &str) -> Vec<PathBuf> {
    let pattern = conf.with_file_name("").join(pattern);
    let name = pattern
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let Some((start, end)) = name.split_once('*') else {
        return vec![pattern];
    };
    let folder = fs::read_dir(pattern.with_file_name(""))
        .into_iter()
        .flatten()
        .flatten();
    let matches = |name: &str| {
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    };
    let fits = folder.filter(|entry| matches(&entry.file_name().to_string_lossy()));
    let mut files: Vec<PathBuf> = fits.map(|entry| entry.path()).collect();
    files.sort();
    files
}
