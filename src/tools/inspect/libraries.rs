//! The libraries that a program needs, found as its dynamic loader would find them: by its run paths, `LD_LIBRARY_PATH`, the folders of
//! `/etc/ld.so.conf`, the default ones. Which of them defines a function is asked breadth first, which is the loader's order.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

use super::report::Library;
use crate::io::bytes::Bytes;
use crate::sys::session::{self, Session};

/// Where loaders look when nothing else says; the multiarch folders of Debian are in its ld.so.conf.
const DEFAULT: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const CONF: &str = "/etc/ld.so.conf";
/// No program needs more.
const MOST: usize = 1000;

/// The library by which the program `data` in `file` gets `symbol`: the first needed one that defines it; where none is found, those that
/// are not there and are named like `names`.
pub(super) fn that_define(data: &[u8], file: &Path, symbol: &str, names: &[&str]) -> Vec<Library> {
    let Ok(program) = Elf::parse(data) else { return Vec::new() };
    let machine = (program.header.e_machine, program.is_64);
    let mut queue: VecDeque<(Library, Vec<PathBuf>)> = needed(&program, file, &[], &[]).into();
    let mut seen = BTreeSet::new();
    let mut missing = Vec::new();
    while let Some((library, folders)) = queue.pop_front() {
        if !seen.insert(library.name.clone()) || seen.len() > MOST {
            continue;
        }
        let opened = candidates(&library.name, &folders).find_map(|path| open(&path, machine).map(|bytes| (path, bytes)));
        let Some((path, bytes)) = opened else {
            if names.iter().any(|name| library.name.starts_with(name)) {
                missing.push(library);
            }
            continue;
        };
        let Ok(elf) = Elf::parse(bytes.as_slice()) else { continue };
        if defines(&elf, symbol) {
            return vec![Library { path: Some(path.display().to_string()), ..library }];
        }
        let through: Vec<String> = library.through.iter().cloned().chain([library.name]).collect();
        // The run path (not the newer RUNPATH) of whoever loads counts for what it loads, too.
        let inherited = if program.runpaths.is_empty() { own_folders(&program.rpaths, file) } else { Vec::new() };
        queue.extend(needed(&elf, &path, &through, &inherited));
    }
    missing
}

/// What `elf` needs, with the folders that are looked into for it.
fn needed(elf: &Elf<'_>, file: &Path, through: &[String], inherited: &[PathBuf]) -> Vec<(Library, Vec<PathBuf>)> {
    let environment = Session::env(session::LD_LIBRARY_PATH).unwrap_or_default();
    let mut folders = Vec::new();
    if elf.runpaths.is_empty() {
        folders.extend(own_folders(&elf.rpaths, file));
        folders.extend_from_slice(inherited);
    }
    folders.extend(split(&environment));
    folders.extend(own_folders(&elf.runpaths, file));
    let library = |name: &&str| Library { name: (*name).to_owned(), path: None, through: through.to_vec() };
    elf.libraries.iter().map(|name| (library(name), folders.clone())).collect()
}

fn candidates(name: &str, folders: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    // A name with a slash is a path.
    let direct = name.contains('/').then(|| PathBuf::from(name));
    let system = configured(Path::new(CONF), 0).into_iter().chain(DEFAULT.map(PathBuf::from));
    let all: Vec<PathBuf> = folders.iter().cloned().chain(system).map(|folder| folder.join(name)).collect();
    direct.into_iter().chain(all)
}

fn open(path: &Path, machine: (u16, bool)) -> Option<Bytes> {
    // Neither a pipe nor a folder.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let bytes = Bytes::open(path).ok()?;
    let header = Elf::parse_header(bytes.as_slice()).ok()?;
    let wide = header.e_ident.get(4) == Some(&2);
    ((header.e_machine, wide) == machine).then_some(bytes)
}

fn defines(elf: &Elf<'_>, symbol: &str) -> bool {
    let defined = elf.dynsyms.iter().filter(|own| !own.is_import() && own.st_bind() != goblin::elf::sym::STB_LOCAL);
    defined.into_iter().any(|own| elf.dynstrtab.get_at(own.st_name) == Some(symbol))
}

/// The folders of run paths.
fn own_folders(paths: &[&str], file: &Path) -> Vec<PathBuf> {
    let own = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = own.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let said = paths.iter().map(|path| path.replace("${ORIGIN}", &folder).replace("$ORIGIN", &folder));
    said.flat_map(|path| split(OsStr::new(&path)).collect::<Vec<_>>()).collect()
}

/// The folders of a colon-separated list.
fn split(folders: &OsStr) -> impl Iterator<Item = PathBuf> {
    let each = folders.as_bytes().split(|byte| *byte == b':').filter(|folder| !folder.is_empty());
    each.map(|folder| PathBuf::from(OsStr::from_bytes(folder)))
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

/// The files of an include line: `ld.so.conf.d/*.conf`, a star standing for anything in the last part.
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
