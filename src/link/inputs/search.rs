//! Search for `-lfoo`, `foo.lib` and names in linker scripts: in the `-L` directories of the whole
//! command line, then in the default directories of linkers. Respects `-Bstatic`. The host linker
//! reports libraries that are not found.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::args::joined;

/// The naming scheme of libraries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// `libfoo.so`, `libfoo.a`.
    #[default]
    Unix,
    /// The scheme of GNU ld and ld.lld for Windows: import libraries, archives, and libraries of
    /// Microsoft's tools.
    MinGw,
    /// The scheme of link.exe and lld-link: `foo.lib`, with a search for every name without a
    /// directory.
    LinkExe,
}

/// The search path of one command line.
#[derive(Debug, Default, Clone)]
pub(crate) struct Search {
    folders: Vec<PathBuf>,
    /// How many of the directories are named explicitly: by the command line, then by scripts.
    named: usize,
    sysroot: PathBuf,
    naming: Naming,
}

/// The directories that GNU ld searches by default (`ld --verbose`).
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

/// The default directories of the MinGW cross linkers of Debian and others.
const BUILT_IN_MINGW: [&str; 2] = ["usr/{multiarch}/lib", "usr/{multiarch}/mingw/lib"];

impl Search {
    /// Returns the search path for these `-L` values, in which `=` and `$SYSROOT` stand for the
    /// sysroot.
    pub(crate) fn new(
        folders: &[PathBuf],
        sysroot: Option<&Path>,
        naming: Naming,
        multiarch: &str,
    ) -> Self {
        let sysroot = sysroot.unwrap_or(Path::new("/")).to_path_buf();
        let named = folders
            .iter()
            .map(|folder| rooted(folder, &sysroot))
            .collect::<Vec<_>>();
        let built_in: &[&str] = match naming {
            Naming::Unix => &BUILT_IN,
            Naming::MinGw => &BUILT_IN_MINGW,
            Naming::LinkExe => &[],
        };
        let built_in = built_in
            .iter()
            .map(|folder| sysroot.join(folder.replace("{multiarch}", multiarch)));
        Search {
            named: named.len(),
            folders: named.into_iter().chain(built_in).collect(),
            sysroot,
            naming,
        }
    }

    /// Returns the path of the file that an input names. That is the name itself, but link.exe
    /// searches for names without a directory.
    pub(crate) fn file(&self, name: &Path) -> PathBuf {
        let bytes = name.as_os_str().as_bytes();
        if self.naming != Naming::LinkExe
            || bytes.iter().any(|byte| b"/\\".contains(byte))
            || name.is_file()
        {
            return name.to_path_buf();
        }
        let mut names = vec![name.as_os_str().to_owned()];
        if !bytes.contains(&b'.') {
            names.push(with_end(name.as_os_str(), ".obj"));
        }
        let here = names.iter().map(PathBuf::from).find(|path| path.is_file());
        here.or_else(|| self.first(&names))
            .unwrap_or_else(|| name.to_path_buf())
    }

    /// Returns the same search path with another directory after those of the command line
    /// (`SEARCH_DIR` of a script).
    pub(crate) fn with_folder(&self, folder: &Path) -> Self {
        let mut more = self.clone();
        more.folders.insert(self.named, self.rooted(folder));
        more.named += 1;
        more
    }

    /// Returns a directory of the command line or of a script, with `=` and `$SYSROOT` replaced by
    /// the sysroot.
    pub(crate) fn rooted(&self, folder: &Path) -> PathBuf {
        rooted(folder, &self.sysroot)
    }

    /// Finds the file for `-l<name>`. `:name` is an exact file name. For other names, each
    /// directory is searched for the shared library, then for the archive; with `prefer_static`,
    /// only for the archive. With link.exe, finds the file for `-defaultlib:<name>`.
    pub(crate) fn library(&self, name: &OsStr, prefer_static: bool) -> Option<PathBuf> {
        if self.naming == Naming::LinkExe {
            let name = if Path::new(name).extension().is_some() {
                name.to_owned()
            } else {
                with_end(name, ".lib")
            };
            return Some(self.file(Path::new(&name))).filter(|path| path.is_file());
        }
        if let Some(exact) = name.as_bytes().strip_prefix(b":") {
            return self.first(&[OsStr::from_bytes(exact).to_owned()]);
        }
        let (shared, archives): (&[_], &[_]) = match self.naming {
            Naming::MinGw => (
                &[("lib", ".dll.a"), ("", ".dll.a")],
                &[("lib", ".a"), ("", ".lib"), ("lib", ".lib")],
            ),
            _ => (&[("lib", ".so")], &[("lib", ".a")]),
        };
        // Objects may name a default library in Microsoft's spelling, with `.lib`.
        let name = name
            .as_bytes()
            .strip_suffix(b".lib")
            .filter(|_| self.naming == Naming::MinGw)
            .map_or(name, OsStr::from_bytes);
        let ends = shared.iter().filter(|_| !prefer_static).chain(archives);
        let named = |(start, end): &(&str, &str)| with_end(&joined(start, name), end);
        self.first(&ends.map(named).collect::<Vec<_>>())
    }

    /// Finds the file for `-l:<name>`.
    pub(crate) fn exact(&self, name: impl AsRef<OsStr>) -> Option<PathBuf> {
        self.library(&joined(":", name), false)
    }

    /// Finds the script that an option names: linkers look in the current directory and in the
    /// library directories.
    pub(crate) fn script(&self, name: &Path) -> Option<PathBuf> {
        if name.is_file() {
            Some(name.to_path_buf())
        } else {
            self.exact(name)
        }
    }

    /// Finds the file that a linker script names. If the name is absolute and the script is in the
    /// sysroot, the sysroot comes first. Then follow the script's directory, the name itself, and
    /// the library directories.
    pub(crate) fn script_entry(&self, name: &Path, script: &Path) -> Option<PathBuf> {
        let in_sysroot = self.sysroot != Path::new("/") && script.starts_with(&self.sysroot);
        if name.is_absolute() && in_sysroot {
            let below = self.sysroot.join(name.strip_prefix("/").unwrap_or(name));
            if below.is_file() {
                return Some(below);
            }
        }
        let beside = script.with_file_name(name);
        let rooted = self.rooted(name);
        let near = [beside, rooted].into_iter().find(|path| path.is_file());
        near.or_else(|| self.first(&[name.as_os_str().to_owned()]))
    }

    fn first(&self, names: &[OsString]) -> Option<PathBuf> {
        let candidates = self
            .folders
            .iter()
            .flat_map(|folder| names.iter().map(|name| folder.join(name)));
        candidates.into_iter().find(|path| path.is_file())
    }
}

fn with_end(name: &OsStr, end: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(end);
    name
}

/// Returns `=dir` and `$SYSROOT/dir` below the sysroot, and anything else unchanged.
fn rooted(folder: &Path, sysroot: &Path) -> PathBuf {
    let bytes = folder.as_os_str().as_bytes();
    match bytes
        .strip_prefix(b"=")
        .or_else(|| bytes.strip_prefix(b"$SYSROOT"))
    {
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
        let search = Search::new(&[dir.path().to_path_buf()], None, Naming::Unix, "none");
        assert_eq!(
            search.library(OsStr::new("h"), false).unwrap(),
            dir.path().join("libh.so")
        );
        assert_eq!(
            search.library(OsStr::new("h"), true).unwrap(),
            dir.path().join("libh.a")
        );
        assert_eq!(
            search.library(OsStr::new(":libh.a"), false).unwrap(),
            dir.path().join("libh.a")
        );
        assert_eq!(search.library(OsStr::new("nothere"), false), None);
    }

    #[test]
    fn libraries_for_windows_have_the_names_their_linkers_look_for() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["a.lib", "libb.a", "libb.dll.a", "c.obj", "libd.lib", "e.x"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        std::fs::write(other.path().join("libb.lib"), "x").unwrap();
        let folders = [other.path().to_path_buf(), dir.path().to_path_buf()];
        let (at, in_other) = (
            |name: &str| Some(dir.path().join(name)),
            Some(other.path().join("libb.lib")),
        );
        let mingw = Search::new(&folders, None, Naming::MinGw, "none");
        let library = |name: &str, prefer_static| mingw.library(OsStr::new(name), prefer_static);
        assert_eq!(
            (library("a", false), library("d", true)),
            (at("a.lib"), at("libd.lib"))
        );
        // The search uses the first directory that has any of the names.
        assert_eq!(library("b", false), in_other);
        let mingw = Search::new(&folders[1..], None, Naming::MinGw, "none");
        assert_eq!(mingw.library(OsStr::new("b"), false), at("libb.dll.a"));
        assert_eq!(mingw.library(OsStr::new("b"), true), at("libb.a"));

        let link = Search::new(&folders, None, Naming::LinkExe, "none");
        assert_eq!(
            (
                link.library(OsStr::new("a"), false),
                link.library(OsStr::new("e.x"), false)
            ),
            (at("a.lib"), at("e.x"))
        );
        assert_eq!(link.library(OsStr::new("b"), false), None);
        assert_eq!(Some(link.file(Path::new("a.lib"))), at("a.lib"));
        assert_eq!(Some(link.file(Path::new("c"))), at("c.obj"));
        assert_eq!(
            link.file(Path::new("folder/a.lib")),
            Path::new("folder/a.lib")
        );
        assert_eq!(mingw.file(Path::new("a.lib")), Path::new("a.lib"));
    }

    #[test]
    fn scripts_add_folders_after_those_of_the_line_and_name_files_beside_themselves() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["line/libh.a", "script/libh.a", "script/libs.a"] {
            std::fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let search = Search::new(&[dir.path().join("line")], None, Naming::Unix, "none")
            .with_folder(&dir.path().join("script"));
        assert_eq!(
            search.library(OsStr::new("h"), false),
            Some(dir.path().join("line/libh.a"))
        );
        assert_eq!(
            search.library(OsStr::new("s"), false),
            Some(dir.path().join("script/libs.a"))
        );
        // Cargo.toml is in the current directory as well.
        let beside = dir.path().join("script/Cargo.toml");
        std::fs::write(&beside, "x").unwrap();
        assert_eq!(
            search.script_entry(Path::new("Cargo.toml"), &dir.path().join("script/s.ld")),
            Some(beside)
        );
    }

    #[test]
    fn the_sysroot_stands_for_the_equals_sign() {
        assert_eq!(
            rooted(Path::new("=/usr/lib"), Path::new("/sys")),
            Path::new("/sys/usr/lib")
        );
        assert_eq!(
            rooted(Path::new("$SYSROOT/lib"), Path::new("/sys")),
            Path::new("/sys/lib")
        );
        assert_eq!(
            rooted(Path::new("lib"), Path::new("/sys")),
            Path::new("lib")
        );
    }
}
