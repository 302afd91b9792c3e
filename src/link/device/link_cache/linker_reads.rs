//! Determines the files that a linker read in one run, and the paths where other files would have
//! taken precedence.
//!
//! The dependency file lists the files that the linker opened by name. It omits the members of thin
//! archives, which are separate files, and the other places that the linker searched.
//!
//! Names that a linker searches for:
//! * `-lNAME` and `-l:NAME`: in the search directories.
//! * A name in a script: in the current directory, the script's own directory and the search
//!   directories.
//! * The value of `-T` and the like: in the current directory and the search directories.
//! * With GNU ld, libraries needed by a shared library: in its run paths, the environment's
//!   directories and the system's.
//! * With ld.lld, libraries named by an object (`#pragma comment(lib, …)`): as for `-l`, then by
//!   name in the search directories, then by the name itself.
//!
//! ld.lld removes `.` and `..` from the names in its dependency file. If a symlink precedes `..`,
//! the resulting name is a different file. wild resolves a script's symlinks before it searches the
//! script's directory, and resolves those of the sysroot, too. It lists the members of thin
//! archives instead of the archives.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use super::linker_args::{Linker, LinkerArgs};
use super::reads::{Collector, Reads};
use crate::link::device::libraries::script_words;
use offld_system::io::bytes::Bytes;
use offld_system::io::loader::{Loader, RunPaths};
use offload_formats::archive::{self, MemberContents};
use offload_formats::containers::MAX_NESTING;
use offload_formats::{dynamic, magic};

/// Size limit of linker scripts in bytes. Larger text files are not linker scripts.
const LONGEST_SCRIPT: usize = 4 << 20;

/// Collects the files that a link read.
///
/// `prerequisites`: the files in the linker's dependency file. `temporary_files`: offld's own
/// files, to be left out. `builtin_folders`: the linker's default search directories. `begun`: the
/// linker's start time.
pub(super) fn gather(
    line: &LinkerArgs,
    prerequisites: &[String],
    temporary_files: &[PathBuf],
    builtin_folders: &[PathBuf],
    begun: SystemTime,
) -> Result<Reads, String> {
    let mut names: BTreeSet<&str> = prerequisites.iter().map(String::as_str).collect();
    names.retain(|name| !temporary_files.iter().any(|file| file == Path::new(name)));
    names.extend(line.files.iter().map(String::as_str));
    let mut search = Search::new(line, builtin_folders);
    let mut files: BTreeSet<PathBuf> = BTreeSet::new();
    let mut opened: BTreeSet<PathBuf> = names.iter().map(PathBuf::from).collect();
    for name in &names {
        let other_spellings = search.other_spellings(Path::new(name));
        // After removal of the dots, a name may lead to no file.
        if !other_spellings.is_empty() && !Path::new(name).is_file() {
            opened.remove(Path::new(name));
        }
        opened.extend(other_spellings);
    }
    for name in opened.iter().map(PathBuf::as_path) {
        files.insert(name.to_owned());
        let bytes = Bytes::open(name).map_err(|error| format!("{}: {error}", name.display()))?;
        thin_members(name, bytes.as_slice(), 0, &mut files)?;
        search.extract_names(name, bytes.as_slice())?;
    }
    for archive in search.unlisted_archives() {
        let bytes =
            Bytes::open(&archive).map_err(|error| format!("{}: {error}", archive.display()))?;
        if archive::is_thin(bytes.as_slice()) {
            thin_members(&archive, bytes.as_slice(), 0, &mut files)?;
            files.insert(archive.clone());
            opened.insert(archive);
        }
    }
    for name in &names {
        // Now the names in all scripts are known.
        let other_spellings = search.other_spellings(Path::new(name));
        files.extend(other_spellings.iter().cloned());
        opened.extend(other_spellings);
    }
    let mut collector = Collector::new(begun);
    for file in &files {
        collector.read(file)?;
    }
    for name in &opened {
        // The linker does not search for a file that an argument names by its path.
        if line.files.iter().any(|file| Path::new(file) == name) {
            continue;
        }
        search.add_alternatives(name);
    }
    for path in search
        .candidates
        .iter()
        .chain(&line.absent)
        .filter(|path| !files.contains(*path))
    {
        collector.looked_for(path)?;
    }
    Ok(collector.finish())
}

/// Adds the member files of the archive at `path` if it is thin. The archive only has their names,
/// so it does not change when they do.
pub(super) fn thin_members(
    path: &Path,
    bytes: &[u8],
    depth: usize,
    files: &mut BTreeSet<PathBuf>,
) -> Result<(), String> {
    if !archive::is_thin(bytes) {
        return Ok(());
    }
    if depth > MAX_NESTING {
        return Err(format!(
            "{}: thin archives are nested more than {MAX_NESTING} deep",
            path.display()
        ));
    }
    let unreadable = |fault: archive::ArchiveFault| fault.in_archive(&path.display()).to_string();
    for member in archive::members(bytes).map_err(unreadable)? {
        let member = member.map_err(unreadable)?;
        if matches!(member.contents, MemberContents::Within { .. }) {
            continue;
        }
        let file = member.file(path);
        // A thin archive of GNU ar can have members of other archives. A missing member is an
        // error, because it may appear later.
        let contents = Bytes::open(&file).map_err(|error| {
            format!(
                "{}({}), a member of a thin archive: {error}",
                path.display(),
                member.shown_name()
            )
        })?;
        if files.insert(file.clone()) {
            thin_members(&file, contents.as_slice(), depth + 1, files)?;
        }
    }
    Ok(())
}

/// The places where a linker searches for names that are not paths.
struct Search<'a> {
    line: &'a LinkerArgs,
    folders: Vec<PathBuf>,
    /// The directories that contain the scripts.
    script_folders: BTreeSet<PathBuf>,
    /// Relative paths in scripts and arguments.
    called: BTreeSet<PathBuf>,
    /// Absolute paths in scripts.
    absolute: BTreeSet<PathBuf>,
    loader: Option<Loader>,
    candidates: BTreeSet<PathBuf>,
}

impl<'a> Search<'a> {
    fn new(line: &'a LinkerArgs, builtin_folders: &[PathBuf]) -> Search<'a> {
        Search {
            line,
            folders: line
                .folders
                .iter()
                .cloned()
                .chain(builtin_folders.iter().map(|folder| line.rooted(folder)))
                .collect(),
            script_folders: BTreeSet::new(),
            called: both_spellings(line.called.iter().cloned()),
            absolute: BTreeSet::new(),
            loader: None,
            candidates: BTreeSet::new(),
        }
    }

    /// Extracts further names and search directories from a file that the linker read.
    fn extract_names(&mut self, path: &Path, bytes: &[u8]) -> Result<(), String> {
        if bytes.starts_with(&magic::ELF) {
            if self.line.linker == Linker::Gnu {
                self.needed(path, bytes);
            }
        } else if bytes.len() <= LONGEST_SCRIPT && !bytes.contains(&0) && !bytes.starts_with(b"!<")
        {
            self.script_folders
                .extend(path.parent().map(Path::to_owned));
            if self.line.linker == Linker::Wild {
                self.script_folders.insert(real_script_folder(path)?);
            }
            let (called, folders) = script_words(bytes);
            let (absolute, called): (Vec<_>, Vec<_>) =
                called.into_iter().partition(|name| name.is_absolute());
            self.absolute.extend(absolute);
            self.called.extend(both_spellings(called));
            self.folders
                .extend(folders.iter().map(|folder| self.line.rooted(folder)));
        }
        Ok(())
    }

    /// Adds the libraries that a shared library needs. GNU ld reads them for their symbols.
    fn needed(&mut self, path: &Path, bytes: &[u8]) {
        let Ok(dynamic) = dynamic::read(bytes) else {
            return;
        };
        let run_paths = RunPaths::new(&dynamic, path, None);
        self.folders.extend(
            run_paths
                .folders()
                .iter()
                .map(|folder| self.line.rooted(folder)),
        );
        let loader = self.loader.get_or_insert_default();
        for name in dynamic.needed.iter().map(|name| OsStr::from_bytes(name)) {
            self.candidates.extend(loader.candidates(name, &run_paths));
        }
    }

    /// Returns the archives that arguments and scripts lead to, because wild does not list thin
    /// ones.
    fn unlisted_archives(&self) -> BTreeSet<PathBuf> {
        if self.line.linker != Linker::Wild {
            return BTreeSet::new();
        }
        let library = |word: &str| {
            word.strip_prefix("-l")
                .map(|name| ["so", "a"].map(|ending| format!("lib{name}.{ending}")))
        };
        let called = self
            .called
            .iter()
            .filter_map(|word| library(word.to_str()?));
        let libraries = self
            .line
            .libraries
            .iter()
            .filter_map(|word| library(word))
            .chain(called)
            .flatten()
            .map(PathBuf::from);
        let current = PathBuf::new();
        let folders = || {
            self.folders
                .iter()
                .chain(&self.script_folders)
                .chain([&current])
        };
        let names = libraries
            .chain(self.called.iter().cloned())
            .chain(self.absolute.iter().cloned());
        names
            .flat_map(|name| folders().map(move |folder| folder.join(&name)))
            .filter(|path| path.is_file())
            .collect()
    }

    /// Returns other spellings of the listed `name` by which ld.lld or wild may have opened the
    /// file.
    fn other_spellings(&self, name: &Path) -> BTreeSet<PathBuf> {
        let folders = || self.folders.iter().chain(&self.script_folders);
        match self.line.linker {
            Linker::Lld => {}
            Linker::Wild => {
                let through_links = folders().filter_map(|folder| {
                    let real = folder.canonicalize().ok().filter(|real| real != folder)?;
                    Some(folder.join(name.strip_prefix(real).ok()?))
                });
                return through_links.filter(|path| path.is_file()).collect();
            }
            Linker::Gnu | Linker::Nvidia => return BTreeSet::new(),
        }
        let dotted = |path: &Path| without_dots(path).as_os_str() != path.as_os_str();
        let in_folders = folders()
            .filter(|folder| dotted(folder))
            .filter_map(|folder| {
                let rest = name.strip_prefix(without_dots(folder)).ok()?;
                Some(folder.join(rest))
            });
        let called = self.called.iter().filter(|called| dotted(called));
        let called = called.flat_map(|called| {
            folders()
                .map(move |folder| folder.join(called))
                .chain([called.clone()])
        });
        let named = self
            .line
            .files
            .iter()
            .map(PathBuf::from)
            .chain(self.absolute.iter().cloned())
            .filter(|file| dotted(file));
        let all = in_folders.chain(
            called
                .chain(named)
                .filter(|path| without_dots(path) == name),
        );
        all.filter(|path| path.as_os_str() != name.as_os_str() && path.is_file())
            .collect()
    }

    /// Whether an argument or a script names the file at `path`.
    fn is_called(&self, path: &Path) -> bool {
        let Some(file) = path.file_name().and_then(OsStr::to_str) else {
            return true;
        };
        let stem = file
            .strip_prefix("lib")
            .and_then(|stem| stem.strip_suffix(".so").or_else(|| stem.strip_suffix(".a")));
        let library = stem
            .map(|stem| format!("-l{stem}"))
            .into_iter()
            .chain([format!("-l:{file}")]);
        let called = |name: &Path| self.called.contains(name) || self.absolute.contains(name);
        called(path)
            || called(Path::new(file))
            || library
                .into_iter()
                .any(|word| self.line.libraries.contains(&word) || called(Path::new(&word)))
    }

    /// Adds the paths where an existing file would be read instead of `path`, or searched before
    /// it.
    ///
    /// These are the same name, and the library's other form (shared or archive), in every search
    /// directory.
    fn add_alternatives(&mut self, path: &Path) {
        let near = self.script_folders.iter();
        let mut names: BTreeSet<PathBuf> =
            path.file_name().map(PathBuf::from).into_iter().collect();
        let below = |folder: &PathBuf| path.strip_prefix(folder).ok().map(Path::to_owned);
        names.extend(
            self.folders
                .iter()
                .chain(near)
                .filter(|folder| !folder.as_os_str().is_empty())
                .filter_map(below),
        );
        names.extend(self.called.get(path).cloned());
        let mut found = BTreeSet::new();
        if self.line.linker == Linker::Lld && !self.is_called(path) {
            // Nothing else names the file, so an object does.
            names.insert(path.to_owned());
            for (name, folder) in names
                .iter()
                .flat_map(|name| self.folders.iter().map(move |folder| (name, folder)))
            {
                let library = |ending: &str| folder.join(format!("lib{}{ending}", name.display()));
                found.extend([".so", ".a"].map(library));
            }
        }
        for name in names.iter().filter(|name| !name.as_os_str().is_empty()) {
            for folder in self
                .folders
                .iter()
                .map(PathBuf::as_path)
                .chain(path.parent())
            {
                found.extend(
                    library_forms(name)
                        .into_iter()
                        .map(|form| folder.join(form)),
                );
            }
            if self.called.contains(name) {
                found.extend(self.script_folders.iter().map(|folder| folder.join(name)));
                found.insert(name.clone());
            }
        }
        if let (Some(root), Ok(rest)) = (&self.line.sysroot, path.strip_prefix("/")) {
            found.insert(root.join(rest));
        }
        found.remove(path);
        self.candidates.extend(found);
    }
}

/// Returns the directory of the linker script at `path`, with symlinks resolved.
///
/// Fails if the script itself is a symlink into another directory, because no recorded file would
/// show a change of that link.
fn real_script_folder(path: &Path) -> Result<PathBuf, String> {
    let absolute =
        std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let real = |path: Option<&Path>| path.and_then(|path| path.canonicalize().ok());
    match (
        real(absolute.parent()),
        real(Some(path)).as_deref().and_then(Path::parent),
    ) {
        (Some(folder), Some(around)) if folder == around => Ok(folder),
        _ => Err(format!(
            "{} is a symbolic link to a linker script in another directory",
            path.display()
        )),
    }
}

/// Returns each of `names`, and its form without dots that ld.lld writes.
fn both_spellings(names: impl IntoIterator<Item = PathBuf>) -> BTreeSet<PathBuf> {
    names
        .into_iter()
        .flat_map(|name| [without_dots(&name), name])
        .filter(|name| !name.as_os_str().is_empty())
        .collect()
}

/// Normalizes `path` like ld.lld: removes `.`, and resolves `..` by removing the component before
/// it.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => drop(plain.pop()),
            Component::ParentDir if plain.is_absolute() => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Names of libraries that a linker would use instead of `name`.
fn library_forms(name: &Path) -> Vec<PathBuf> {
    let mut forms = vec![name.to_owned()];
    let Some(file) = name.file_name().and_then(OsStr::to_str) else {
        return forms;
    };
    let stem = file
        .split_once(".so")
        .map(|(stem, _)| stem)
        .or_else(|| file.strip_suffix(".a"));
    if let Some(stem) = stem {
        forms.extend(
            [format!("{stem}.so"), format!("{stem}.a")].map(|form| name.with_file_name(form)),
        );
    }
    forms
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(3600)
    }

    /// Returns the missing paths for `listed`, with a linker that searches `a` and `/b`.
    fn missing(
        linker: Linker,
        sysroot: Option<&str>,
        called: &[&str],
        listed: &str,
    ) -> BTreeSet<PathBuf> {
        let mut line = LinkerArgs::for_tests(linker, vec!["a".into(), "/b".into()]);
        line.sysroot = sysroot.map(PathBuf::from);
        line.called = called.iter().map(PathBuf::from).collect();
        let mut search = Search::new(&line, &[PathBuf::from("=/own")]);
        search.add_alternatives(Path::new(listed));
        search.candidates
    }

    fn paths(paths: &[&str]) -> BTreeSet<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn every_searched_directory_may_have_another_library() {
        let expected = [
            "/b/libx.so",
            "a/libx.a",
            "a/libx.so",
            "/own/libx.a",
            "/own/libx.so",
        ]
        .map(PathBuf::from)
        .into_iter()
        .collect();
        assert_eq!(missing(Linker::Lld, None, &["-lx"], "/b/libx.a"), expected);
        assert!(
            missing(Linker::Lld, Some("/root"), &[], "/lib/libc.so.6")
                .is_superset(&paths(&["/root/lib/libc.so.6"]))
        );
        assert!(
            missing(Linker::Gnu, Some("/root"), &[], "/b/libx.a")
                .contains(Path::new("/root/own/libx.a"))
        );
    }

    #[test]
    fn a_relative_path_is_searched_for_as_a_whole() {
        assert!(
            missing(Linker::Lld, None, &[], "/b/sub/libx.a")
                .is_superset(&paths(&["a/sub/libx.a", "a/sub/libx.so"]))
        );
        let called = missing(Linker::Gnu, None, &["sub/libx.a"], "/b/sub/libx.a");
        assert!(
            called.is_superset(&paths(&["sub/libx.a", "a/sub/libx.a"])),
            "{called:?}"
        );
        assert!(
            !missing(Linker::Gnu, None, &[], "/b/sub/libx.a").contains(Path::new("sub/libx.a"))
        );
    }

    #[test]
    fn ld_lld_leaves_dots_out_of_names() {
        for (path, plain) in [
            ("./a", "a"),
            ("a/./b/../c", "a/c"),
            ("../a", "../a"),
            ("a/../../b", "../b"),
            ("/../a", "/a"),
            ("/usr/lib/gcc/x/12/../../../../lib64", "/usr/lib64"),
            (".", ""),
        ] {
            assert_eq!(
                without_dots(Path::new(path)),
                PathBuf::from(plain),
                "{path}"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("other/lib")).unwrap();
        std::fs::create_dir_all(at("other/inner")).unwrap();
        std::fs::write(at("other/lib/libx.a"), "").unwrap();
        std::os::unix::fs::symlink(at("other/inner"), at("link")).unwrap();
        let line = LinkerArgs::for_tests(Linker::Lld, vec![at("link/../lib")]);
        let listed = at("lib/libx.a").to_str().unwrap().to_owned();
        let reads = gather(&line, &[listed], &[], &[], later()).unwrap();
        assert_eq!(
            reads.file_names(),
            [at("link/../lib/libx.a").to_str().unwrap()]
        );
    }

    #[test]
    fn libraries_that_objects_name_are_looked_for_in_three_ways() {
        let named_by_an_object = missing(Linker::Lld, None, &[], "sub/x.a");
        assert!(
            named_by_an_object.is_superset(&paths(&[
                "a/sub/x.a",
                "/b/libsub/x.a.so",
                "/b/libx.a.a"
            ])),
            "{named_by_an_object:?}"
        );
        let named_by_a_script = missing(Linker::Lld, None, &["sub/x.a"], "sub/x.a");
        assert!(!named_by_a_script.contains(Path::new("/b/libsub/x.a.so")));
        assert!(
            !missing(Linker::Gnu, None, &[], "sub/x.a").contains(Path::new("/b/libsub/x.a.so"))
        );
    }

    #[test]
    fn members_of_thin_archives_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (archive, member) = (dir.path().join("libx.a"), dir.path().join("x.o"));
        std::fs::write(&member, "contents").unwrap();
        let header = format!(
            "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
            "x.o/", 0, 0, 0, 644, 8
        );
        std::fs::write(
            &archive,
            [&magic::THIN_ARCHIVE[..], header.as_bytes()].concat(),
        )
        .unwrap();
        let line = LinkerArgs::for_tests(Linker::Lld, Vec::new());
        let name = archive.to_str().unwrap().to_owned();
        let mut reads = gather(&line, std::slice::from_ref(&name), &[], &[], later()).unwrap();
        assert_eq!(
            reads.file_names(),
            [name.as_str(), member.to_str().unwrap()]
        );
        std::fs::write(&member, "conTents").unwrap();
        assert_eq!(
            reads.revalidate(later()),
            Err(format!("{} has changed", member.display()))
        );
        std::fs::remove_file(&member).unwrap();
        assert!(
            gather(&line, &[name], &[], &[], later())
                .unwrap_err()
                .contains("(x.o), a member of a thin archive")
        );
    }
}
