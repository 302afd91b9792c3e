//! Files that determine a compiler driver's answer, each with its contents, and the paths that the
//! driver probes.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::file_snapshot::{self, FileStat};
use super::reads::{self, Collector, Reads};
use super::{INPUT, nvidia};
use offld_system::environment;
use offld_system::response::{self, Style};
use offld_system::store::{Digest, KeyBuilder};
use offload_formats::model::printable_name;

// Files whose contents determine the answer: response files (`@file`, also nested), configuration
// files with their includes, and paths where the driver would have found another linker.

/// Prefixes of the lines in which the driver reports, for `-###`, its configuration file and the
/// directories that it searches for such files.
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

/// Prefixes of the option and of the variables with which the driver writes about each command that
/// it runs, usually to a file (source: clang's `Driver.cpp` and `driver.cpp`).
const REPORTING_OPTION: &str = "-fproc-stat-report";
const REPORTING_VARIABLES: &str = "CC_PRINT_";

/// Fails if the driver would report on its commands. A cached link runs none, so its report would
/// be missing.
pub(super) fn check_reports(args: &[OsString]) -> Result<(), String> {
    let starts = |name: &OsStr, prefix: &str| name.as_bytes().starts_with(prefix.as_bytes());
    let option = args.iter().find(|arg| starts(arg, REPORTING_OPTION));
    let variable = || environment::names().find(|name| starts(name, REPORTING_VARIABLES));
    match option.cloned().or_else(variable) {
        Some(name) => Err(format!(
            "{} makes the compiler report on its commands",
            printable_name(name.as_bytes())
        )),
        None => Ok(()),
    }
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
/// GCC directories are tracked as a whole, see [`probe_paths`].
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
        let folders = environment::get(variable).unwrap_or_default();
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
    for prefix in attached
        .chain(apart)
        .chain(listed(environment::COMPILER_PATH))
    {
        for name in &names {
            // The value is a directory, or a prefix of the whole path.
            let mut whole = prefix.clone().into_os_string();
            whole.push(name);
            paths.extend([prefix.join(name), PathBuf::from(whole)]);
        }
    }
    let folders = own_folders(compiler)
        .into_iter()
        .chain(listed(environment::PATH));
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

// Paths that a compiler driver probes to choose the linker's arguments.
//
// The driver looks for start files, libraries, GCC installations and toolkits in directories of
// its installation, the system and the user. It does not report which files it finds, so the state
// of every such directory is part of the key of its cached answer. An unneeded directory only
// makes offld query the compiler more often.

/// Directories that are probed below each root: the system's root, a sysroot, a toolchain's
/// directory.
const PROBED_DIRECTORIES: [&str; 18] = [
    "",
    "bin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "opt",
    "opt/rh",
    "usr",
    "usr/bin",
    "usr/lib",
    "usr/lib32",
    "usr/lib64",
    "usr/libx32",
    "usr/local",
    "usr/local/lib",
    "usr/local/bin",
    "share",
];
/// Directories of GCC installations. Each has a directory per triple, with one directory per
/// version.
const GCC: [&str; 6] = [
    "lib/gcc",
    "lib64/gcc",
    "lib/gcc-cross",
    "usr/lib/gcc",
    "usr/lib64/gcc",
    "usr/lib/gcc-cross",
];
/// Files that identify the distribution, which affects the compiler's defaults, and Gentoo's
/// directory for the selected GCC.
const RELEASE: [&str; 7] = [
    "/etc/env.d/gcc",
    "/etc/os-release",
    "/etc/lsb-release",
    "/etc/debian_version",
    "/etc/redhat-release",
    "/etc/SuSE-release",
    "/etc/alpine-release",
];

/// The state of the probed directories and files.
#[derive(Clone)]
pub(super) struct DriverProbePaths {
    /// The digest of their paths and stats.
    pub(super) digest: Digest,
    /// Whether any later change of one will show in its timestamps.
    pub(super) settled: bool,
}

/// Determines the state of everything that the compiler at `compiler` probes for `args`. `now`: a
/// time before it starts.
pub(super) fn probe_paths(compiler: &Path, args: &[OsString], now: SystemTime) -> DriverProbePaths {
    let mut places = BTreeSet::new();
    for folder in roots(compiler, args) {
        add_probed(&folder, &mut places);
    }
    places.extend(RELEASE.map(PathBuf::from));
    places.extend(named_paths(args));
    places.extend(nvidia::toolkit_folders(args));
    let mut key = KeyBuilder::default();
    let mut settled = true;
    for place in &places {
        let Ok(stat) = FileStat::of(place) else {
            continue;
        };
        key.add(place.as_os_str().as_bytes()).add(stat.identity());
        if !stat.believed() {
            // Untrusted timestamps may belong to other contents, so the contents are added.
            let contents = Some(place)
                .filter(|place| place.is_file())
                .and_then(|file| file_snapshot::digest(file).ok());
            key.add(contents.map_or([0; 32], |digest| *digest.bytes()));
            for name in entries(place) {
                key.add(name.as_bytes());
            }
        }
        settled &= stat.settled(now);
    }
    DriverProbePaths {
        digest: key.digest(),
        settled,
    }
}

/// Returns the system's root, Red Hat's additional toolsets, the compiler's installation, and the
/// directories in `args`. The installation is found by the path as given, and with symlinks
/// resolved.
fn roots(compiler: &Path, args: &[OsString]) -> BTreeSet<PathBuf> {
    let mut roots = BTreeSet::from([PathBuf::from("/")]);
    roots.extend(
        folders_in(Path::new("/opt/rh"))
            .into_iter()
            .map(|toolset| toolset.join("root/usr")),
    );
    let real = compiler.canonicalize().ok();
    for path in [Some(compiler.to_path_buf()), real].into_iter().flatten() {
        roots.extend(path.parent().and_then(Path::parent).map(Path::to_path_buf));
    }
    roots.extend(named_paths(args).into_iter().filter(|path| path.is_dir()));
    roots
}

/// Returns the paths in the arguments, except those that the compiler only passes on to the linker.
/// The compiler does not look there itself, and they change with every build.
fn named_paths(args: &[OsString]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut before: &[u8] = b"";
    for arg in args.iter().map(|arg| arg.as_bytes()) {
        let passed_on = [&b"-Xlinker"[..], b"-L", b"-o", b"-l", b"-dumpdir"].contains(&before);
        let option = arg.starts_with(b"-");
        let for_linker = [&b"-L"[..], b"-Wl,", b"-l"]
            .iter()
            .any(|prefix| arg.starts_with(prefix));
        // The placeholder for the inputs is /dev/null, whose timestamps change on every write to
        // it.
        if !passed_on
            && !for_linker
            && arg != INPUT.as_bytes()
            && (option || before.starts_with(b"-"))
        {
            paths.extend(paths_in(OsStr::from_bytes(arg)));
        }
        before = arg;
    }
    paths
}

/// The existing paths in an argument: the whole argument, the parts around `=`, and the part after
/// an option letter (`-B`).
fn paths_in(arg: &OsStr) -> Vec<PathBuf> {
    let bytes = arg.as_bytes();
    let mut parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'=').collect();
    if bytes.starts_with(b"-") && bytes.len() > 2 {
        parts.push(&bytes[2..]);
    }
    let named = parts
        .into_iter()
        .filter(|part| part.contains(&b'/') || *part == b"." || *part == b"..");
    named
        .map(|part| PathBuf::from(OsStr::from_bytes(part)))
        .filter(|path| path.exists())
        .collect()
}

fn add_probed(root: &Path, places: &mut BTreeSet<PathBuf>) {
    places.extend(PROBED_DIRECTORIES.iter().map(|part| root.join(part)));
    for folder in GCC.iter().map(|part| root.join(part)) {
        for triple in folders_in(&folder) {
            places.extend(folders_in(&triple));
            // GCC's own tools: `usr/x86_64-linux-gnu/bin`, relative to
            // `usr/lib/gcc/x86_64-linux-gnu/12`.
            let beside = folder
                .parent()
                .and_then(Path::parent)
                .map(|above| above.join(triple.file_name().unwrap_or_default()));
            places.extend(
                beside
                    .into_iter()
                    .flat_map(|beside| [beside.join("bin"), beside]),
            );
            places.insert(triple);
        }
        places.insert(folder);
    }
    // Libraries by triple, and the compiler's own resource directories: `lib/x86_64-linux-gnu`,
    // `lib/clang/22/lib/linux`.
    for lib in ["lib", "usr/lib"].map(|part| root.join(part)) {
        places.extend(folders_in(&lib).into_iter().filter(|path| is_triple(path)));
    }
    for version in folders_in(&root.join("lib/clang")) {
        places.extend(folders_in(&version.join("lib")));
        places.extend([version.join("lib"), version]);
    }
    places.insert(root.join("lib/clang"));
}

fn is_triple(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_bytes().iter().filter(|byte| **byte == b'-').count() >= 2)
}

/// The names in a directory, sorted. Empty for a file.
fn entries(folder: &Path) -> BTreeSet<OsString> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect()
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_file()))
        .map(|entry| entry.path())
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
    fn reports_on_commands_are_refused() {
        for option in ["-fproc-stat-report", "-fproc-stat-report=file"] {
            assert_eq!(
                check_reports(&words(&["-O2", option])),
                Err(format!(
                    "{option} makes the compiler report on its commands"
                ))
            );
        }
        assert_eq!(check_reports(&words(&["-O2", "-Wl,--time-trace"])), Ok(()));
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

    #[test]
    fn a_new_installation_shows() {
        let dir = tempfile::tempdir().unwrap();
        let compiler = dir.path().join("bin/clang");
        std::fs::create_dir_all(dir.path().join("lib/gcc/x86_64-linux-gnu/12")).unwrap();
        let digest = || probe_paths(&compiler, &[], SystemTime::now()).digest;
        let before = digest();
        assert_eq!(digest(), before);
        std::fs::create_dir(dir.path().join("lib/gcc/x86_64-linux-gnu/13")).unwrap();
        let with_another = digest();
        assert_ne!(with_another, before);
        std::fs::write(
            dir.path().join("lib/gcc/x86_64-linux-gnu/13/crtbeginS.o"),
            "",
        )
        .unwrap();
        assert_ne!(digest(), with_another);
    }

    #[test]
    fn directories_in_arguments_are_tracked() {
        let dir = tempfile::tempdir().unwrap();
        let sysroot = dir.path().to_str().unwrap();
        let watched = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            let before =
                probe_paths(Path::new("/nowhere/bin/clang"), &args, SystemTime::now()).digest;
            let new = tempfile::Builder::new().tempfile_in(dir.path()).unwrap();
            let after =
                probe_paths(Path::new("/nowhere/bin/clang"), &args, SystemTime::now()).digest;
            drop(new);
            after != before
        };
        assert!(
            watched(&[&format!("--sysroot={sysroot}")])
                && watched(&[&format!("-B{sysroot}")])
                && watched(&["-B", sysroot])
        );
        assert!(
            !watched(&["-shared", &format!("-L{sysroot}")])
                && !watched(&[&format!("-L{sysroot}")])
                && !watched(&["-L", sysroot])
                && !watched(&["-Xlinker", sysroot])
        );
    }
}
