//! Which LLVM releases are here beside 22: what `make setup-releases` wrote down.

use std::path::PathBuf;

use super::support::{Outcome, missing, root};

/// One release.
pub struct Release {
    /// Its C compiler.
    pub clang: PathBuf,
    /// The folder of `omp.h`.
    pub include: PathBuf,
    /// The folder of its OpenMP runtimes.
    pub lib: PathBuf,
}

/// The release of this number, if it is complete.
pub fn of(major: u32) -> Option<Release> {
    let folder = std::env::var_os("OFFLD_RELEASES").map_or_else(|| root().join("target/releases"), PathBuf::from);
    let text = std::fs::read_to_string(folder.join("releases.txt")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{major} ")))?;
    let value = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).map(PathBuf::from);
    Some(Release { clang: value("clang")?, include: value("include")?, lib: value("lib")? })
}

/// How a test ends whose release is not here.
pub fn missing_release(major: u32) -> Outcome {
    missing(format!("LLVM {major} (make setup-releases)"))
}
