//! Questions to a clang: its version, its search directories, and its errors for code of a kind.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::report::Kind;
use crate::sys::run::{self, Probe};

/// The search directories of a clang.
#[derive(Debug, Default)]
pub(super) struct Folders {
    pub programs: Vec<PathBuf>,
    pub libraries: Vec<PathBuf>,
}

/// Returns the first line of `program`'s output for `--version`; `None` if it does not run or
/// prints nothing.
pub(super) fn first_line(program: &Path) -> Option<String> {
    let text = run::stdout_of(program, &["--version"])?;
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}

/// Returns the directories in which `clang` searches for programs and libraries.
pub(super) fn folders(clang: &Path) -> Folders {
    folders_in(&run::stdout_of(clang, &["-print-search-dirs"]).unwrap_or_default())
}

fn folders_in(text: &str) -> Folders {
    let list = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default();
        std::env::split_paths(line.trim().trim_start_matches('='))
            .filter(|folder| !folder.as_os_str().is_empty())
            .collect()
    };
    Folders {
        programs: list("programs:"),
        libraries: list("libraries:"),
    }
}

/// Returns the file that `clang` prints for the option `question`, if it exists.
pub(super) fn file(clang: &Path, question: &str) -> Option<PathBuf> {
    Some(PathBuf::from(run::stdout_of(clang, &[question])?))
        .filter(|path| path.is_absolute() && path.is_file())
}

/// Returns the errors that `clang` would report when compiling code of `kind`.
pub(super) fn complaints(clang: &Path, kind: Kind) -> Vec<String> {
    let words: &[&str] = match kind {
        Kind::OpenMpHost | Kind::Sycl => return Vec::new(),
        Kind::OpenMpAmd => &[
            "-x",
            "c",
            "-fopenmp",
            "-fopenmp-targets=amdgcn-amd-amdhsa",
            "-Xopenmp-target=amdgcn-amd-amdhsa",
            "-march=gfx90a",
        ],
        Kind::OpenMpNvidia => &[
            "-x",
            "c",
            "-fopenmp",
            "-fopenmp-targets=nvptx64-nvidia-cuda",
            "-Xopenmp-target=nvptx64-nvidia-cuda",
            "-march=sm_80",
        ],
        Kind::Hip => &["-x", "hip", "--offload-arch=gfx90a"],
        Kind::Cuda => &["-x", "cuda", "--offload-arch=sm_80"],
    };
    let args: Vec<OsString> = ["-###", "-c", "-o", "/dev/null"]
        .iter()
        .chain(words)
        .chain(&["/dev/null"])
        .map(OsString::from)
        .collect();
    let output = Probe::start(clang, &args).and_then(Probe::finish);
    output
        .map(|output| errors_in(&String::from_utf8_lossy(&output.stderr)))
        .unwrap_or_default()
}

/// Returns the errors in a driver's output, each once, without the commands that the driver would
/// run.
fn errors_in(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    // Lines that begin with a space are commands.
    for line in text.lines().filter(|line| !line.starts_with(' ')) {
        let error = line
            .split_once("error: ")
            .map(|(_, error)| error.trim().to_owned());
        all.extend(error.filter(|error| !all.contains(error)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_a_clang() {
        let folders = folders_in(
            "programs: =/usr/lib/llvm-22/bin:/usr/bin\nlibraries: =/usr/lib/llvm-22/lib/clang/22::/lib\n",
        );
        assert_eq!(
            folders.programs,
            [Path::new("/usr/lib/llvm-22/bin"), Path::new("/usr/bin")]
        );
        assert_eq!(
            folders.libraries,
            [
                Path::new("/usr/lib/llvm-22/lib/clang/22"),
                Path::new("/lib")
            ]
        );
        let none = folders_in("");
        assert!(none.programs.is_empty() && none.libraries.is_empty());
    }

    #[test]
    fn the_errors_of_a_driver() {
        let output = "clang version 22\nclang: error: cannot find HIP runtime; x\nclang: error: cannot find HIP runtime; x\n \
                    \"/usr/bin/clang\" \"-DX=error: no\"\nclang: warning: y\n";
        assert_eq!(errors_in(output), ["cannot find HIP runtime; x"]);
    }
}
