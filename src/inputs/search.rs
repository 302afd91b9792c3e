//! Where `-lfoo` and the names in linker scripts are found: the `-L` folders of the whole line, then the folders that linkers
//! have built in; a library that is nowhere is left to the host linker to report. `-Bstatic` is obeyed (fault F18).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The folders of one link line.
#[derive(Debug, Default, Clone)]
pub struct Search {
    folders: Vec<PathBuf>,
    sysroot: PathBuf,
}

/// What GNU ld has built in besides a multiarch folder (`ld --verbose`).
const BUILT_IN: [&str; 8] = [
    "usr/local/lib/{multiarch}",
    "lib/{multiarch}",
    "usr/lib/{multiarch}",
    "usr/local/lib64",
    "usr/lib64",
    "usr/local/lib",
    "lib",
    "usr/lib",
];

impl Search {
    /// The search of a line with these `-L` values (`=` and `$SYSROOT` mean the sysroot).
    pub fn new(folders: &[PathBuf], sysroot: Option<&Path>, multiarch: &str) -> Self {
        let sysroot = sysroot.unwrap_or(Path::new("/")).to_path_buf();
        let named = folders.iter().map(|folder| rooted(folder, &sysroot)).collect::<Vec<_>>();
        let built_in = BUILT_IN.iter().map(|folder| sysroot.join(folder.replace("{multiarch}", multiarch)));
        Search { folders: named.into_iter().chain(built_in).collect(), sysroot }
    }

    /// The same search with one more folder of its own (`SEARCH_DIR` of a script).
    pub fn with_folder(&self, folder: &Path) -> Self {
        let mut more = self.clone();
        more.folders.insert(0, self.rooted(folder));
        more
    }

    /// A folder as given on a line or in a script, with the sysroot in the place of `=` and `$SYSROOT`.
    pub fn rooted(&self, folder: &Path) -> PathBuf {
        rooted(folder, &self.sysroot)
    }

    /// The file that `-l<name>` stands for. `:name` is that very name; otherwise `lib<name>.so` before `lib<name>.a` in each
    /// folder, only the archive when `prefer_static`.
    pub fn library(&self, name: &OsStr, prefer_static: bool) -> Option<PathBuf> {
        if let Some(exact) = name.as_bytes().strip_prefix(b":") {
            return self.first(&[OsStr::from_bytes(exact).to_owned()]);
        }
        let named = |end: &str| {
            let mut file = std::ffi::OsString::from("lib");
            file.push(name);
            file.push(end);
            file
        };
        let names = if prefer_static { vec![named(".a")] } else { vec![named(".so"), named(".a")] };
        self.first(&names)
    }

    /// The file a linker script names: as it stands, below the sysroot when it is absolute and the script is, beside the script,
    /// or in a library folder.
    pub fn script_entry(&self, name: &Path, script: &Path) -> Option<PathBuf> {
        let in_sysroot = self.sysroot != Path::new("/") && script.starts_with(&self.sysroot);
        if name.is_absolute() && in_sysroot {
            let below = self.sysroot.join(name.strip_prefix("/").unwrap_or(name));
            if below.is_file() {
                return Some(below);
            }
        }
        let beside = script.with_file_name(name);
        let rooted = self.rooted(name);
        let near = [rooted, beside].into_iter().find(|path| path.is_file());
        near.or_else(|| self.first(&[name.as_os_str().to_owned()]))
    }

    fn first(&self, names: &[std::ffi::OsString]) -> Option<PathBuf> {
        let candidates = self.folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
        candidates.into_iter().find(|path| path.is_file())
    }
}

/// `=dir` and `$SYSROOT/dir` below the sysroot; anything else as it is.
fn rooted(folder: &Path, sysroot: &Path) -> PathBuf {
    let bytes = folder.as_os_str().as_bytes();
    match bytes.strip_prefix(b"=").or_else(|| bytes.strip_prefix(b"$SYSROOT")) {
        Some(rest) => {
            let rest = Path::new(OsStr::from_bytes(rest));
            sysroot.join(rest.strip_prefix("/").unwrap_or(rest))
        }
        None => folder.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f18_static_libraries_are_found_when_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["libh.so", "libh.a"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let search = Search::new(&[dir.path().to_path_buf()], None, "none");
        assert_eq!(search.library(OsStr::new("h"), false).unwrap(), dir.path().join("libh.so"));
        assert_eq!(search.library(OsStr::new("h"), true).unwrap(), dir.path().join("libh.a"));
        assert_eq!(search.library(OsStr::new(":libh.a"), false).unwrap(), dir.path().join("libh.a"));
        assert_eq!(search.library(OsStr::new("nothere"), false), None);
    }

    #[test]
    fn the_sysroot_stands_for_the_equals_sign() {
        assert_eq!(rooted(Path::new("=/usr/lib"), Path::new("/sys")), Path::new("/sys/usr/lib"));
        assert_eq!(rooted(Path::new("$SYSROOT/lib"), Path::new("/sys")), Path::new("/sys/lib"));
        assert_eq!(rooted(Path::new("lib"), Path::new("/sys")), Path::new("lib"));
    }
}
