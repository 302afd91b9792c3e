//! Finds programs: this one, those next to it, and those on `PATH`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns the directory of the path that offld was called by, if the call contains a path, and the
/// directory of its executable.
pub fn our_folders() -> impl Iterator<Item = PathBuf> {
    let called = std::env::args_os()
        .next()
        .map(PathBuf::from)
        .filter(|name| name.parent().is_some_and(|dir| dir != Path::new("")));
    let ours = [called, std::env::current_exe().ok()];
    ours.into_iter()
        .flatten()
        .filter_map(|me| me.parent().map(Path::to_path_buf))
}

/// Returns the program `name` in offld's directory (LLVM's tools search there, too), else on
/// `PATH`, else the bare name.
pub fn beside_us_or_on_path(name: &str) -> PathBuf {
    let beside = our_folders()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    beside
        .or_else(|| which::which(name).ok())
        .unwrap_or_else(|| name.into())
}

/// Whether `path` is offld's own executable, through symlinks or hard links.
pub fn is_ourselves(path: &Path) -> bool {
    let same = |a: &Path, b: &Path| {
        let (a, b) = (std::fs::metadata(a).ok()?, std::fs::metadata(b).ok()?);
        Some((a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    std::env::current_exe().is_ok_and(|me| same(&me, path) == Some(true))
}
