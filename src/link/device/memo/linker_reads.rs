//! What a linker has read in one run, and what it would have read in place of that. Its dependency file lists the files that it has
//! opened by a name; it lists neither the members of thin archives, which are files of their own, nor where else it has looked.
//!
//! How a linker comes to look in several places: `-lNAME` and `-l:NAME` (the search folders), a name in a script (the current
//! folder, the script's own, the search folders), the value of `-T` and the like (the current folder, the search folders), and for
//! GNU's linker the libraries that a shared library needs (its run paths, the environment's folders, the system's).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::linker_args::{Linker, LinkerArgs};
use super::reads::{Collector, Reads};
use crate::formats::archive::{self, MAX_NESTING, MemberContents};
use crate::formats::{dynamic, magic};
use crate::io::bytes::Bytes;
use crate::io::loader::{Loader, RunPaths};

/// How a thin archive begins.
const THIN: &[u8] = b"!<thin>\n";
/// Text files that are larger are no linker scripts.
const LONGEST_SCRIPT: usize = 4 << 20;

/// Collects what a link read. `prerequisites`: the files of the linker's dependency file; `temporary_files`: those of offld, which
/// are left out; `builtin_folders`: folders that the linker searches by default; `begun`: when it was started.
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
    for name in names.iter().map(Path::new) {
        files.insert(name.to_owned());
        let bytes = Bytes::open(name).map_err(|error| format!("{}: {error}", name.display()))?;
        thin_members(name, bytes.as_slice(), 0, &mut files)?;
        search.look_into(name, bytes.as_slice());
    }
    let mut collector = Collector::new(begun);
    for file in &files {
        collector.read(file)?;
    }
    for name in &names {
        // A file that an argument names by its path is not searched for.
        if line.files.iter().any(|file| file == name) {
            continue;
        }
        search.also(Path::new(name));
    }
    for path in search.candidates.iter().chain(&line.absent).filter(|path| !files.contains(*path)) {
        collector.looked_for(path)?;
    }
    Ok(collector.finish())
}

/// Adds the files that the members of the archive at `path` are, if it is a thin one: their names say nothing of their contents, so
/// the archive stays the same when they change.
pub(super) fn thin_members(path: &Path, bytes: &[u8], depth: usize, files: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    if !bytes.starts_with(THIN) {
        return Ok(());
    }
    if depth > MAX_NESTING {
        return Err(format!("{}: thin archives are nested more than {MAX_NESTING} deep", path.display()));
    }
    let unreadable = |fault: archive::ArchiveFault| fault.in_archive(&path.display()).to_string();
    for member in archive::members(bytes).map_err(unreadable)? {
        let member = member.map_err(unreadable)?;
        if matches!(member.contents, MemberContents::Within { .. }) {
            continue;
        }
        let file = member.file(path);
        // GNU's archiver also has members of other archives in a thin one; and a member that is missing may come into being.
        let contents = Bytes::open(&file)
            .map_err(|error| format!("{}({}), a member of a thin archive: {error}", path.display(), member.shown_name()))?;
        if files.insert(file.clone()) {
            thin_members(&file, contents.as_slice(), depth + 1, files)?;
        }
    }
    Ok(())
}

/// Where a linker looks for what is not named by its path.
struct Search<'a> {
    line: &'a LinkerArgs,
    folders: Vec<PathBuf>,
    /// The folders that the scripts are in.
    script_folders: BTreeSet<PathBuf>,
    /// What scripts and arguments call files by: relative paths.
    called: BTreeSet<PathBuf>,
    loader: Option<Loader>,
    candidates: BTreeSet<PathBuf>,
}

impl<'a> Search<'a> {
    fn new(line: &'a LinkerArgs, builtin_folders: &[PathBuf]) -> Search<'a> {
        Search {
            line,
            folders: line.folders.iter().cloned().chain(builtin_folders.iter().map(|folder| line.rooted(folder))).collect(),
            script_folders: BTreeSet::new(),
            called: line.called.iter().cloned().collect(),
            loader: None,
            candidates: BTreeSet::new(),
        }
    }

    /// Takes from a file that was read what makes the linker look for others.
    fn look_into(&mut self, path: &Path, bytes: &[u8]) {
        if bytes.starts_with(&magic::ELF) {
            if self.line.linker == Linker::Gnu {
                self.needed(path, bytes);
            }
        } else if bytes.len() <= LONGEST_SCRIPT && !bytes.contains(&0) && !bytes.starts_with(b"!<") {
            self.script_folders.extend(path.parent().map(Path::to_owned));
            let (called, folders) = script_words(bytes);
            self.called.extend(called);
            self.folders.extend(folders.iter().map(|folder| self.line.rooted(folder)));
        }
    }

    /// The libraries that a shared library needs: GNU's linker reads them, to see what they define.
    fn needed(&mut self, path: &Path, bytes: &[u8]) {
        let Ok(dynamic) = dynamic::read(bytes) else { return };
        let run_paths = RunPaths::new(&dynamic, path, None);
        self.folders.extend(run_paths.folders().iter().map(|folder| self.line.rooted(folder)));
        let loader = self.loader.get_or_insert_default();
        for name in dynamic.needed.iter().map(|name| OsStr::from_bytes(name)) {
            self.candidates.extend(loader.candidates(name, &run_paths));
        }
    }

    /// Adds the paths at which a file would be read in place of `path`, or searched before it, if it existed: the same name, and
    /// the library's other form (shared or archive), in every folder that is searched.
    fn also(&mut self, path: &Path) {
        let near = self.script_folders.iter();
        let mut names: BTreeSet<PathBuf> = path.file_name().map(PathBuf::from).into_iter().collect();
        let below = |folder: &PathBuf| path.strip_prefix(folder).ok().map(Path::to_owned);
        names.extend(self.folders.iter().chain(near).filter(|folder| !folder.as_os_str().is_empty()).filter_map(below));
        names.extend(self.called.get(path).cloned());
        let mut found = BTreeSet::new();
        for name in names.iter().filter(|name| !name.as_os_str().is_empty()) {
            for folder in self.folders.iter().map(PathBuf::as_path).chain(path.parent()) {
                found.extend(forms(name).into_iter().map(|form| folder.join(form)));
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

/// The names under which a linker would take a library in place of the one called `name`.
fn forms(name: &Path) -> Vec<PathBuf> {
    let mut forms = vec![name.to_owned()];
    let Some(file) = name.file_name().and_then(OsStr::to_str) else { return forms };
    let stem = file.split_once(".so").map(|(stem, _)| stem).or_else(|| file.strip_suffix(".a"));
    if let Some(stem) = stem {
        forms.extend([format!("{stem}.so"), format!("{stem}.a")].map(|form| name.with_file_name(form)));
    }
    forms
}

/// The relative names in the linker script `text`, and the folders that it has searched (`SEARCH_DIR`).
pub(super) fn script_words(text: &[u8]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let path = |word: &[u8]| PathBuf::from(OsStr::from_bytes(word));
    let quoted = text.split(|byte| *byte == b'"').skip(1).step_by(2);
    let words = text.split(|byte| byte.is_ascii_whitespace() || b"(){},;\"".contains(byte));
    let called = words.chain(quoted).filter(|word| !word.is_empty() && !word.starts_with(b"/")).map(path).collect();
    let folder = |at: usize| {
        let after = text.get(at + b"SEARCH_DIR".len()..)?.trim_ascii_start().strip_prefix(b"(")?.trim_ascii_start();
        let (after, end) = match after.strip_prefix(b"\"") {
            Some(quoted) => (quoted, b'"'),
            None => (after, b')'),
        };
        Some(path(after.split(|byte| *byte == end).next()?.trim_ascii()))
    };
    let folders = memchr::memmem::find_iter(text, b"SEARCH_DIR").filter_map(folder).collect();
    (called, folders)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(3600)
    }

    /// What is looked for in vain when `listed` are read, by a linker that searches `a` and `/b`.
    fn missed(linker: Linker, sysroot: Option<&str>, called: &[&str], listed: &str) -> BTreeSet<PathBuf> {
        let mut line = LinkerArgs::for_tests(linker, vec!["a".into(), "/b".into()]);
        line.sysroot = sysroot.map(PathBuf::from);
        line.called = called.iter().map(PathBuf::from).collect();
        let mut search = Search::new(&line, &[PathBuf::from("=/own")]);
        search.also(Path::new(listed));
        search.candidates
    }

    fn paths(paths: &[&str]) -> BTreeSet<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn every_searched_folder_may_have_another_library() {
        let expected =
            ["/b/libx.so", "a/libx.a", "a/libx.so", "/own/libx.a", "/own/libx.so"].map(PathBuf::from).into_iter().collect();
        assert_eq!(missed(Linker::Lld, None, &[], "/b/libx.a"), expected);
        assert!(missed(Linker::Lld, Some("/root"), &[], "/lib/libc.so.6").is_superset(&paths(&["/root/lib/libc.so.6"])));
        assert!(missed(Linker::Gnu, Some("/root"), &[], "/b/libx.a").contains(Path::new("/root/own/libx.a")));
    }

    #[test]
    fn a_name_with_folders_is_looked_for_with_its_folders() {
        assert!(missed(Linker::Lld, None, &[], "/b/sub/libx.a").is_superset(&paths(&["a/sub/libx.a", "a/sub/libx.so"])));
        let called = missed(Linker::Gnu, None, &["sub/libx.a"], "/b/sub/libx.a");
        assert!(called.is_superset(&paths(&["sub/libx.a", "a/sub/libx.a"])), "{called:?}");
        assert!(!missed(Linker::Gnu, None, &[], "/b/sub/libx.a").contains(Path::new("sub/libx.a")));
    }

    #[test]
    fn scripts_name_files_and_folders() {
        let text = b"/* x */ INPUT(sub/libx.a AS_NEEDED(\"my lib.a\", /abs.a)) SEARCH_DIR(\"=/usr/lib\"); SEARCH_DIR( one )";
        let (called, folders) = script_words(text);
        for name in ["sub/libx.a", "my lib.a"] {
            assert!(called.contains(&PathBuf::from(name)), "{called:?}");
        }
        assert!(!called.contains(&PathBuf::from("/abs.a")));
        assert_eq!(folders, [PathBuf::from("=/usr/lib"), PathBuf::from("one")]);
    }

    #[test]
    fn members_of_thin_archives_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (archive, member) = (dir.path().join("libx.a"), dir.path().join("x.o"));
        std::fs::write(&member, "contents").unwrap();
        let header = format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "x.o/", 0, 0, 0, 644, 8);
        std::fs::write(&archive, [THIN, header.as_bytes()].concat()).unwrap();
        let line = LinkerArgs::for_tests(Linker::Lld, Vec::new());
        let name = archive.to_str().unwrap().to_owned();
        let mut reads = gather(&line, std::slice::from_ref(&name), &[], &[], later()).unwrap();
        assert_eq!(reads.file_names(), [name.as_str(), member.to_str().unwrap()]);
        std::fs::write(&member, "conTents").unwrap();
        assert_eq!(reads.revalidate(later()), Err(format!("{} has changed", member.display())));
        std::fs::remove_file(&member).unwrap();
        assert!(gather(&line, &[name], &[], &[], later()).unwrap_err().contains("(x.o), a member of a thin archive"));
    }
}
