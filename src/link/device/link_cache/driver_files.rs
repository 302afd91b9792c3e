//! Files that determine a compiler driver's answer, each with its contents.
//!
//! These are response files (`@file`, also nested), configuration files with their includes, and
//! paths where the driver would have found another linker.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::nvidia;
use super::reads::{self, Collector, Reads};
use crate::args::response::{self, Style};
use crate::sys::session::{self, Session};

/// Prefixes of the lines in which the driver reports its configuration file for `-###`, and the
/// directories that it searches for them.
const CONFIGURATION_FILE: &str = "Configuration file: ";
const CONFIGURATION_FOLDERS: [&str; 2] = [
    "System configuration file directory: ",
    "User configuration file directory: ",
];
/// Prefix of the line with the driver's target, which it also uses as a prefix of tool names.
const TARGET: &str = "Target: ";
/// Maximum number of files to follow.
const MAX_FILES: usize = 1000;

/// Collects the files that the driver at `compiler` read for the query `args`.
///
/// `answer`: the driver's stderr. `linker`: the linker that it names. `begun`: the driver's start
/// time.
pub(super) fn of(
    compiler: &Path,
    args: &[OsString],
    answer: &str,
    linker: &Path,
    begun: SystemTime,
) -> Result<Reads, String> {
    let mut expansion = Expansion {
        collector: Collector::new(begun),
        seen: BTreeSet::new(),
        words: Vec::new(),
    };
    let named = args
        .iter()
        .filter_map(|arg| at_file(arg))
        .map(|file| vec![file.to_owned()])
        .collect();
    expansion.follow(named)?;
    expansion.words.extend(args.iter().cloned());
    let used = answer
        .lines()
        .filter_map(|line| line.strip_prefix(CONFIGURATION_FILE));
    expansion.follow(used.map(|path| vec![PathBuf::from(path)]).collect())?;
    for path in configuration_paths(compiler, &expansion.words, answer) {
        expansion.collector.looked_for(&path)?;
    }
    for path in nvidia::toolkit_files(&expansion.words) {
        expansion.collector.looked_for(&path)?;
    }
    let mut collector = expansion.collector;
    for path in linker_paths(compiler, &expansion.words, answer, linker) {
        if path
            .metadata()
            .is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 == 0)
        {
            // The driver skipped the file because it is not executable. A change of that would not
            // show in the contents.
            return Err(format!("{} is not executable", path.display()));
        }
        collector.looked_for(&path)?;
    }
    Ok(collector.finish())
}

/// The response file that an argument stands for.
fn at_file(arg: &OsStr) -> Option<&Path> {
    arg.as_bytes()
        .strip_prefix(b"@")
        .filter(|name| !name.is_empty())
        .map(|name| Path::new(OsStr::from_bytes(name)))
}

/// Fails if the driver would expand `args` from a pipe or the like. The query would consume its
/// contents, and the link would get none.
pub(super) fn check_read_once(args: &[OsString]) -> Result<(), String> {
    let configurations = values(args, "--config").into_iter().map(Path::new);
    let mut files = args
        .iter()
        .filter_map(|arg| at_file(arg))
        .chain(configurations);
    let read_once = |path: &&Path| {
        path.metadata()
            .is_ok_and(|meta| reads::is_read_once(path, &meta))
    };
    files
        .find(read_once)
        .map_or(Ok(()), |path| Err(reads::read_once(path)))
}

/// Follows response files and configuration files to the files that they name.
struct Expansion {
    collector: Collector,
    seen: BTreeSet<PathBuf>,
    /// All arguments in the files.
    words: Vec<OsString>,
}

impl Expansion {
    /// Records the files in `named` and all files that they name. Each element lists the possible
    /// paths of one file.
    fn follow(&mut self, named: VecDeque<Vec<PathBuf>>) -> Result<(), String> {
        let mut waiting = named;
        while let Some(paths) = waiting.pop_front() {
            for path in paths {
                self.collector.looked_for(&path)?;
                if !path.is_file() || !self.seen.insert(path.clone()) {
                    continue;
                }
                if self.seen.len() > MAX_FILES {
                    return Err("too many response files and configuration files".to_owned());
                }
                let text =
                    std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                let words = response::tokenize(&text, Style::Gnu);
                waiting.extend(
                    words
                        .iter()
                        .filter_map(|word| at_file(word))
                        .map(|name| possible_paths(name, &path)),
                );
                self.words.extend(words);
            }
        }
        Ok(())
    }
}

/// Possible paths of the file `name`, which the file `outer` includes. Response files are relative
/// to the current directory.
///
/// Configuration files are relative to the directory of `outer`, which `<CFGDIR>` also stands for.
fn possible_paths(name: &Path, outer: &Path) -> Vec<PathBuf> {
    let folder = outer.parent().unwrap_or(Path::new(""));
    let text = name.to_string_lossy();
    match text.strip_prefix("<CFGDIR>") {
        Some(rest) => vec![folder.join(rest.trim_start_matches('/'))],
        None => vec![name.to_owned(), folder.join(name)],
    }
}

/// Returns the values of the option `name` among `words`, as `name=value` or `name value`.
fn values<'w>(words: &'w [OsString], name: &str) -> Vec<&'w OsStr> {
    let mut found = Vec::new();
    let mut before: &[u8] = b"";
    for word in words.iter().map(|word| word.as_bytes()) {
        if let Some(value) = word
            .strip_prefix(name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
        {
            found.push(OsStr::from_bytes(value));
        } else if before == name.as_bytes() {
            found.push(OsStr::from_bytes(word));
        }
        before = word;
    }
    found
}

/// The driver's directories, with and without symlinks resolved.
fn own_folders(compiler: &Path) -> BTreeSet<PathBuf> {
    let real = compiler.canonicalize().ok();
    [Some(compiler.to_owned()), real]
        .into_iter()
        .flatten()
        .filter_map(|path| Some(path.parent()?.to_owned()))
        .collect()
}

/// Paths where the driver may look for configuration files: named ones, and those for the name that
/// it is called by.
fn configuration_paths(compiler: &Path, words: &[OsString], answer: &str) -> BTreeSet<PathBuf> {
    let mut folders = own_folders(compiler);
    for option in ["--config-user-dir", "--config-system-dir"] {
        folders.extend(values(words, option).into_iter().map(PathBuf::from));
    }
    for line in answer.lines() {
        folders.extend(
            CONFIGURATION_FOLDERS
                .iter()
                .filter_map(|start| line.strip_prefix(start))
                .map(PathBuf::from),
        );
    }
    let mut names: BTreeSet<OsString> = values(words, "--config")
        .into_iter()
        .map(OsStr::to_owned)
        .collect();
    if !words.iter().any(|word| word == "--no-default-config") {
        // `x86_64-linux-gnu-clang-15`: releases before 16 do not have the option.
        let called = compiler
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let prefix = called.rfind("-clang").and_then(|at| called.get(..at));
        names.extend(
            prefix
                .into_iter()
                .flat_map(|prefix| [format!("{prefix}-clang.cfg"), format!("{prefix}.cfg")])
                .map(OsString::from),
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

/// Paths where the driver would have found another linker before `linker`: below `-B`,
/// `COMPILER_PATH`, its own directories and `PATH`.
///
/// GCC directories are tracked as a whole, see `driver_probe_paths`.
fn linker_paths(compiler: &Path, words: &[OsString], answer: &str, linker: &Path) -> Vec<PathBuf> {
    let Some(name) = linker.file_name() else {
        return Vec::new();
    };
    if values(words, "--ld-path")
        .last()
        .is_some_and(|path| Path::new(path) == linker)
    {
        return Vec::new();
    }
    let triples = values(words, "--target")
        .into_iter()
        .map(|triple| triple.to_string_lossy().into_owned());
    let reported = answer
        .lines()
        .find_map(|line| line.strip_prefix(TARGET))
        .map(|triple| triple.trim().to_owned());
    let prefixes: BTreeSet<String> = triples
        .chain(reported)
        .map(|triple| format!("{triple}-"))
        .collect();
    let name = name.to_string_lossy();
    let bare = prefixes
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix.as_str()))
        .unwrap_or(&name);
    let names: Vec<String> = prefixes
        .iter()
        .map(|prefix| format!("{prefix}{bare}"))
        .chain([bare.to_owned()])
        .collect();
    let mut paths = Vec::new();
    let listed = |variable| -> Vec<PathBuf> {
        let folders = Session::env(variable).unwrap_or_default();
        std::env::split_paths(&folders)
            .filter(|folder| !folder.as_os_str().is_empty())
            .collect()
    };
    let attached = words
        .iter()
        .filter_map(|word| word.as_bytes().strip_prefix(b"-B"))
        .filter(|value| !value.is_empty());
    let attached = attached.map(|value| PathBuf::from(OsStr::from_bytes(value)));
    let apart = values(words, "-B").into_iter().map(PathBuf::from);
    for prefix in attached.chain(apart).chain(listed(session::COMPILER_PATH)) {
        for name in &names {
            // The value is a directory, or a prefix of the whole path.
            let mut whole = prefix.clone().into_os_string();
            whole.push(name);
            paths.extend([prefix.join(name), PathBuf::from(whole)]);
        }
    }
    let folders = own_folders(compiler)
        .into_iter()
        .chain(listed(session::PATH));
    paths.extend(folders.flat_map(|folder| names.iter().map(move |name| folder.join(name))));
    // Names with the target's prefix take precedence in all directories together.
    let found = paths
        .iter()
        .position(|path| path == linker)
        .unwrap_or(paths.len());
    let later = |path: &PathBuf| path.file_name() != Some(OsStr::new(bare));
    let (before, after) = paths.split_at(found);
    before
        .iter()
        .chain(after.iter().filter(|path| bare == name && later(path)))
        .filter(|path| *path != linker)
        .cloned()
        .collect()
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
        of(
            Path::new("/nowhere/bin/clang"),
            &words(args),
            answer,
            Path::new(LINKER),
            later(),
        )
        .unwrap()
    }

    #[test]
    fn response_files_are_followed_recursively() {
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
        assert_eq!(
            reads.revalidate(later()),
            Err(format!("{} has changed", at("beside")))
        );
    }

    #[test]
    fn configuration_files_are_recorded_with_the_paths_searched_first() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("x.cfg"), "@<CFGDIR>/more @other").unwrap();
        std::fs::write(at("more"), "-O1").unwrap();
        std::fs::write(at("other"), "-O2").unwrap();
        let answer = format!(
            "clang version 22\nTarget: x86_64-linux\nConfiguration file: {}\n",
            at("x.cfg")
        );
        let reads = read(
            &[
                "--config=x.cfg",
                "--config-user-dir=/u",
                "--config-system-dir=/s",
            ],
            &answer,
        );
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
        let found = linker_paths(
            compiler,
            &words(&["-B", "/b", "-B/c/p-"]),
            answer,
            Path::new(LINKER),
        );
        for path in [
            "/b/ld.lld",
            "/c/p-ld.lld",
            "/b/x86_64-pc-linux-gnu-ld.lld",
            "/nowhere/bin/x86_64-pc-linux-gnu-ld.lld",
        ] {
            assert!(found.contains(&PathBuf::from(path)), "{path}: {found:?}");
        }
        assert!(!found.contains(&PathBuf::from(LINKER)));
        let by_path = linker_paths(
            compiler,
            &words(&["--ld-path=/nowhere/bin/ld.lld"]),
            answer,
            Path::new(LINKER),
        );
        assert!(by_path.is_empty(), "{by_path:?}");
    }
}
