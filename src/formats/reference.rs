//! For tests: finds and runs LLVM's own tools, to compare their output with that of the writers here, and linkers.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// How a test ends.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

const LLVM: &str = "/usr/lib/llvm-22/bin";

/// The paths of the tools with these names, preferably of LLVM 22. None if one is missing: the test is then skipped, or fails with
/// `REQUIRE_TOOLS=1`.
pub(crate) fn tools<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let mut found = Vec::new();
    for name in names {
        let Ok(path) = which::which_in(name, Some(LLVM), "/").or_else(|_| which::which(name)) else {
            missing(name);
            return None;
        };
        found.push(path);
    }
    found.try_into().ok()
}

/// Reports that a test, or a part of it, is skipped because `what` is missing. With `REQUIRE_TOOLS=1` this fails.
pub(crate) fn missing(what: &str) {
    assert!(std::env::var_os("REQUIRE_TOOLS").is_none_or(|value| value != "1"), "missing: {what} (REQUIRE_TOOLS=1)");
    eprintln!("skipped: {what} is missing");
}

/// Runs a command and returns its stdout. An exit status other than 0 and any output to stderr are errors.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &Path,
    folder: &Path,
    args: impl IntoIterator<Item = S>,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let output = output(Command::new(program).args(args).current_dir(folder))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !stderr.is_empty() {
        return Err(format!("{}: {}: {stderr}", program.display(), output.status).into());
    }
    Ok(output.stdout)
}

/// What `command` says and how it ends. Its program may have been written a moment ago: where another test was just starting one, what
/// it forked has the file open for writing until it is that program.
pub(crate) fn output(command: &mut Command) -> std::io::Result<Output> {
    loop {
        match command.output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            ended => return ended,
        }
    }
}
