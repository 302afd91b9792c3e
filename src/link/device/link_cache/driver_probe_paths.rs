//! Paths that a compiler driver probes to choose the linker's arguments.
//!
//! The driver looks for start files, libraries, GCC installations and toolkits in directories of
//! its installation, the system and the user. It does not report which files it finds, so the state
//! of every such directory is part of the key of its cached answer. An unneeded directory only
//! makes offld query the compiler more often.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::file_snapshot::{self, FileStat};
use super::linker_command::INPUT;
use super::nvidia;
use crate::store::{Digest, KeyBuilder};

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
pub(super) fn of(compiler: &Path, args: &[OsString], now: SystemTime) -> DriverProbePaths {
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
        folders(Path::new("/opt/rh"))
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
        for triple in folders(&folder) {
            places.extend(folders(&triple));
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
        places.extend(folders(&lib).into_iter().filter(|path| is_triple(path)));
    }
    for version in folders(&root.join("lib/clang")) {
        places.extend(folders(&version.join("lib")));
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

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_file()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_installation_shows() {
        let dir = tempfile::tempdir().unwrap();
        let compiler = dir.path().join("bin/clang");
        std::fs::create_dir_all(dir.path().join("lib/gcc/x86_64-linux-gnu/12")).unwrap();
        let digest = || of(&compiler, &[], SystemTime::now()).digest;
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
            let before = of(Path::new("/nowhere/bin/clang"), &args, SystemTime::now()).digest;
            let new = tempfile::Builder::new().tempfile_in(dir.path()).unwrap();
            let after = of(Path::new("/nowhere/bin/clang"), &args, SystemTime::now()).digest;
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
