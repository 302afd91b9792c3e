//! The files by which a compiler driver comes to its answer, each with its contents: those that it expands arguments from (`@file`,
//! also in one another, and configuration files, with what they include), and the paths at which it would have found another
//! linker.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::nvidia;
use super::reads::{Collector, Reads};
use crate::args::response::{self, Style};
use crate::sys::session::{self, Session};

/// How the driver says, for `-###`, which configuration file it has read, and where it looks for those that are named without a
/// folder.
const CONFIGURATION_FILE: &str = "Configuration file: ";
const CONFIGURATION_FOLDERS: [&str; 2] = ["System configuration file directory: ", "User configuration file directory: "];
/// The driver's own name for what it links for, which it puts before the names of tools.
const TARGET: &str = "Target: ";
/// How many files are followed; more are no configuration.
const MOST_FILES: usize = 1000;

/// What the driver at `compiler` has read to answer the query `args` with `answer`, its stderr, which names the linker `linker`.
/// `begun`: when it was started.
pub(super) fn of(compiler: &Path, args: &[OsString], answer: &str, linker: &Path, begun: SystemTime) -> Result<Reads, String> {
    let mut expansion = Expansion { collector: Collector::new(begun), seen: BTreeSet::new(), words: Vec::new() };
    let named = args.iter().filter_map(|arg| at_file(arg)).map(|file| vec![file.to_owned()]).collect();
    expansion.follow(named)?;
    expansion.words.extend(args.iter().cloned());
    let used = answer.lines().filter_map(|line| line.strip_prefix(CONFIGURATION_FILE));
    expansion.follow(used.map(|path| vec![PathBuf::from(path)]).collect())?;
    for path in configuration_paths(compiler, &expansion.words, answer) {
        expansion.collector.looked_for(&path)?;
    }
    for path in nvidia::toolkit_files(&expansion.words) {
        expansion.collector.looked_for(&path)?;
    }
    let mut collector = expansion.collector;
    for path in linker_paths(compiler, &expansion.words, answer, linker) {
        if path.metadata().is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 == 0) {
            // Passed over because nobody may run it, and a change of that would not show in its contents.
            return Err(format!("{} cannot be run", path.display()));
        }
        collector.looked_for(&path)?;
    }
    Ok(collector.finish())
}

/// The file that an argument is to be replaced by.
fn at_file(arg: &OsStr) -> Option<&Path> {
    arg.as_bytes().strip_prefix(b"@").filter(|name| !name.is_empty()).map(|name| Path::new(OsStr::from_bytes(name)))
}

/// Follows files of arguments to those that they name.
struct Expansion {
    collector: Collector,
    seen: BTreeSet<PathBuf>,
    /// Every argument in them.
    words: Vec<OsString>,
}

impl Expansion {
    /// Takes down the files of `named` and all that they name. Each is a list of the paths that one name may stand for.
    fn follow(&mut self, named: VecDeque<Vec<PathBuf>>) -> Result<(), String> {
        let mut waiting = named;
        while let Some(paths) = waiting.pop_front() {
            for path in paths {
                self.collector.looked_for(&path)?;
                if !path.is_file() || !self.seen.insert(path.clone()) {
                    continue;
                }
                if self.seen.len() > MOST_FILES {
                    return Err("too many files of arguments".to_owned());
                }
                let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let words = response::tokenize(&text, Style::Gnu);
                waiting.extend(words.iter().filter_map(|word| at_file(word)).map(|name| places(name, &path)));
                self.words.extend(words);
            }
        }
        Ok(())
    }
}

/// Where the file `name` in the file `outer` may be: in response files it is relative to the current folder, in configuration files
/// to the folder of `outer`, for which `<CFGDIR>` stands, too.
fn places(name: &Path, outer: &Path) -> Vec<PathBuf> {
    let folder = outer.parent().unwrap_or(Path::new(""));
    let text = name.to_string_lossy();
    match text.strip_prefix("<CFGDIR>") {
        Some(rest) => vec![folder.join(rest.trim_start_matches('/'))],
        None => vec![name.to_owned(), folder.join(name)],
    }
}

/// The values of the option `name` among `words`: `name=value` or, if it may be apart, `name value`.
fn values<'w>(words: &'w [OsString], name: &str) -> Vec<&'w OsStr> {
    let mut found = Vec::new();
    let mut before: &[u8] = b"";
    for word in words.iter().map(|word| word.as_bytes()) {
        if let Some(value) = word.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
            found.push(OsStr::from_bytes(value));
        } else if before == name.as_bytes() {
            found.push(OsStr::from_bytes(word));
        }
        before = word;
    }
    found
}

/// The folders of the driver: as it was called, and with symbolic links resolved.
fn own_folders(compiler: &Path) -> BTreeSet<PathBuf> {
    let real = compiler.canonicalize().ok();
    [Some(compiler.to_owned()), real].into_iter().flatten().filter_map(|path| Some(path.parent()?.to_owned())).collect()
}

/// The paths at which the driver may look for configuration files: those that are named, and those for the name it is called by.
fn configuration_paths(compiler: &Path, words: &[OsString], answer: &str) -> BTreeSet<PathBuf> {
    let mut folders = own_folders(compiler);
    for option in ["--config-user-dir", "--config-system-dir"] {
        folders.extend(values(words, option).into_iter().map(PathBuf::from));
    }
    for line in answer.lines() {
        folders.extend(CONFIGURATION_FOLDERS.iter().filter_map(|start| line.strip_prefix(start)).map(PathBuf::from));
    }
    let mut names: BTreeSet<OsString> = values(words, "--config").into_iter().map(OsStr::to_owned).collect();
    if !words.iter().any(|word| word == "--no-default-config") {
        // `x86_64-linux-gnu-clang-15`: of releases before 16, which have no such option.
        let called = compiler.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let prefix = called.rfind("-clang").and_then(|at| called.get(..at));
        names.extend(
            prefix.into_iter().flat_map(|prefix| [format!("{prefix}-clang.cfg"), format!("{prefix}.cfg")]).map(OsString::from),
        );
    }
    let mut paths = BTreeSet::new();
    for name in &names {
        if name.as_bytes().contains(&b'/') {
            paths.insert(PathBuf::from(name));
        } else {
            paths.extend(folders.iter().map(|folder| folder.join(name)));
        }
    }
    paths
}

/// The paths at which the driver would have found a linker before it found the one at `linker`: in the folders of `-B` and
/// `COMPILER_PATH`, in its own, on `PATH`. (GCC's folders are watched as a whole, see `driver_probe_paths`.)
fn linker_paths(compiler: &Path, words: &[OsString], answer: &str, linker: &Path) -> Vec<PathBuf> {
    let Some(name) = linker.file_name() else { return Vec::new() };
    if values(words, "--ld-path").last().is_some_and(|path| Path::new(path) == linker) {
        return Vec::new();
    }
    let triples = values(words, "--target").into_iter().map(|triple| triple.to_string_lossy().into_owned());
    let said = answer.lines().find_map(|line| line.strip_prefix(TARGET)).map(|triple| triple.trim().to_owned());
    let prefixes: BTreeSet<String> = triples.chain(said).map(|triple| format!("{triple}-")).collect();
    let name = name.to_string_lossy();
    let bare = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix.as_str())).unwrap_or(&name);
    let names: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}{bare}")).chain([bare.to_owned()]).collect();
    let mut paths = Vec::new();
    let listed = |variable| -> Vec<PathBuf> {
        let folders = Session::env(variable).unwrap_or_default();
        std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()).collect()
    };
    let attached = words.iter().filter_map(|word| word.as_bytes().strip_prefix(b"-B")).filter(|value| !value.is_empty());
    let attached = attached.map(|value| PathBuf::from(OsStr::from_bytes(value)));
    let apart = values(words, "-B").into_iter().map(PathBuf::from);
    for prefix in attached.chain(apart).chain(listed(session::COMPILER_PATH)) {
        for name in &names {
            // It is a folder, or what the whole path begins with.
            let mut whole = prefix.clone().into_os_string();
            whole.push(name);
            paths.extend([prefix.join(name), PathBuf::from(whole)]);
        }
    }
    let folders = own_folders(compiler).into_iter().chain(listed(session::PATH));
    paths.extend(folders.flat_map(|folder| names.iter().map(move |name| folder.join(name))));
    // Names with the target's come first in all folders together.
    let found = paths.iter().position(|path| path == linker).unwrap_or(paths.len());
    let later = |path: &PathBuf| path.file_name() != Some(OsStr::new(bare));
    let (before, after) = paths.split_at(found);
    before.iter().chain(after.iter().filter(|path| bare == name && later(path))).filter(|path| *path != linker).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_secs(3600)
    }

    const LINKER: &str = "/nowhere/bin/ld.lld";

    fn read(args: &[&str], answer: &str) -> Reads {
        of(Path::new("/nowhere/bin/clang"), &words(args), answer, Path::new(LINKER), later()).unwrap()
    }

    #[test]
    fn files_of_arguments_are_followed_into_one_another() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("one"), format!("-O2 \"@{}\"", at("two"))).unwrap();
        std::fs::write(at("two"), format!("-O3 @{} @beside", at("one"))).unwrap();
        std::fs::write(at("beside"), "-O1").unwrap();
        let mut reads = read(&[&format!("@{}", at("one")), "@none"], "");
        for name in ["one", "two", "beside"] {
            assert!(reads.has_file(&at(name)), "{name}: {reads:?}");
        }
        assert!(reads.absent_paths().contains(Path::new("none")));
        assert!(reads.revalidate(later()).is_ok());
        std::fs::write(at("beside"), "-O0").unwrap();
        assert_eq!(reads.revalidate(later()), Err(format!("{} has changed", at("beside"))));
    }

    #[test]
    fn configuration_files_are_those_that_the_driver_names_and_those_it_would_find_first() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("x.cfg"), "@<CFGDIR>/more @other").unwrap();
        std::fs::write(at("more"), "-O1").unwrap();
        std::fs::write(at("other"), "-O2").unwrap();
        let answer = format!("clang version 22\nTarget: x86_64-linux\nConfiguration file: {}\n", at("x.cfg"));
        let reads = read(&["--config=x.cfg", "--config-user-dir=/u", "--config-system-dir=/s"], &answer);
        for name in ["x.cfg", "more", "other"] {
            assert!(reads.has_file(&at(name)), "{name}: {reads:?}");
        }
        let absent = reads.absent_paths();
        for path in ["/u/x.cfg", "/s/x.cfg", "/nowhere/bin/x.cfg"] {
            assert!(absent.contains(Path::new(path)), "{path}: {absent:?}");
        }
    }

    #[test]
    fn a_linker_may_be_found_earlier() {
        let compiler = Path::new("/nowhere/bin/clang");
        let answer = "Target: x86_64-pc-linux-gnu\n";
        let found = linker_paths(compiler, &words(&["-B", "/b", "-B/c/p-"]), answer, Path::new(LINKER));
        for path in ["/b/ld.lld", "/c/p-ld.lld", "/b/x86_64-pc-linux-gnu-ld.lld", "/nowhere/bin/x86_64-pc-linux-gnu-ld.lld"] {
            assert!(found.contains(&PathBuf::from(path)), "{path}: {found:?}");
        }
        assert!(!found.contains(&PathBuf::from(LINKER)));
        let by_path = linker_paths(compiler, &words(&["--ld-path=/nowhere/bin/ld.lld"]), answer, Path::new(LINKER));
        assert!(by_path.is_empty(), "{by_path:?}");
    }
}
