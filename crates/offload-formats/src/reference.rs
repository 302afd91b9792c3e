//! Test helper: finds and runs LLVM's tools and linkers, to compare their output with that of the
//! writers here.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The result of a test.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

const LLVM: &str = "/usr/lib/llvm-22/bin";

/// The paths of these tools, preferably those of LLVM 22. `None` if one is missing: then the test
/// is skipped, or fails with `REQUIRE_TOOLS=1`.
pub(crate) fn tools<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    let mut found = Vec::new();
    for name in names {
        let Ok(path) = which::which_in(name, Some(LLVM), "/").or_else(|_| which::which(name))
        else {
            missing(name);
            return None;
        };
        found.push(path);
    }
    found.try_into().ok()
}

/// Reports that a test, or a part of it, is skipped because `what` is missing. Panics with
/// `REQUIRE_TOOLS=1`.
pub(crate) fn missing(what: &str) {
    assert!(
        std::env::var_os("REQUIRE_TOOLS").is_none_or(|value| value != "1"),
        "missing: {what} (REQUIRE_TOOLS=1)"
    );
    eprintln!("skipped: {what} is missing");
}

/// Runs a command and returns its stdout. An exit status other than 0 or any output on stderr is an
/// error.
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

/// Returns the output and exit status of `command`. Retries while the program is busy: a process
/// that another test has just forked may still have the new executable open for writing.
pub(crate) fn output(command: &mut Command) -> std::io::Result<Output> {
    loop {
        match command.output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            ended => return ended,
        }
    }
}
