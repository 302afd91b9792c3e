//! Tests in the form of LLVM's own (`tests/lit`; see its README): `RUN:` lines, with output that
//! LLVM's FileCheck compares.

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use crate::support::{LLVM, Outcome, Work, ensure, llvm, made, passed, root, run, with_llvm};

/// The minimum number of `RUN:` lines.
const LEAST: usize = 40;

/// One test per file.
pub(crate) fn trials() -> Vec<Trial> {
    let entries = std::fs::read_dir(root().join("tests/lit"))
        .expect("tests/lit")
        .flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "test"))
        .collect();
    files.sort();
    let name = |file: &Path| {
        format!(
            "lit::{}",
            file.file_stem().unwrap_or_default().to_string_lossy()
        )
    };
    let all = files.clone();
    let mut trials: Vec<Trial> = files
        .into_iter()
        .map(|file| with_llvm(&name(&file), move || check(&file)))
        .collect();
    trials.push(with_llvm("lit::there_are_enough_of_them", move || {
        enough(&all)
    }));
    trials
}

/// A `RUN:` line: its command, and the LLVM test that it resembles.
struct Run {
    command: String,
    like: Option<String>,
}

/// The `RUN:` lines of a file, with continuation lines joined. A command with `# like TEST` at its
/// end is a check.
fn runs(file: &Path) -> Result<Vec<Run>, Failed> {
    let mut all = Vec::new();
    let mut open = String::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let Some((_, command)) = line.split_once("RUN:") else {
            continue;
        };
        let command = command.trim();
        if let Some(more) = command.strip_suffix('\\') {
            open.push_str(more);
            continue;
        }
        let whole = format!("{}{command}", std::mem::take(&mut open));
        let (command, like) = match whole.split_once(" # like ") {
            Some((command, like)) => (command.to_owned(), Some(like.trim().to_owned())),
            None => (whole, None),
        };
        all.push(Run { command, like });
    }
    ensure(open.is_empty(), || {
        format!("{}: the last RUN line goes on in nothing", file.display())
    })?;
    Ok(all)
}

fn check(file: &Path) -> Outcome {
    let work = Work::new();
    let path = std::env::join_paths([
        made().links.as_path(),
        Path::new(LLVM),
        Path::new("/usr/bin"),
        Path::new("/bin"),
    ])
    .expect("folders without colons");
    let t = work.path().join("t").display().to_string();
    for line in runs(file)? {
        let command = line
            .command
            .replace("%s", &file.display().to_string())
            .replace("%t", &t);
        let mut shell = work.command("bash");
        shell
            .args(["-euo", "pipefail", "-c", &command])
            .env("PATH", &path)
            .env("OFFLD_CLANG", llvm("clang"))
            .env("OFFLD_CACHE", "off");
        run(&mut shell)?;
    }
    passed()
}

fn enough(files: &[PathBuf]) -> Outcome {
    let mut like = 0;
    for file in files {
        for line in runs(file)? {
            ensure(
                line.like.is_some() || !line.command.contains("FileCheck"),
                || {
                    format!(
                        "{}: no test of LLVM's is named: {}",
                        file.display(),
                        line.command
                    )
                },
            )?;
            like += usize::from(line.like.is_some());
        }
    }
    ensure(like >= LEAST, || {
        format!("{like} RUN lines that check something, and {LEAST} are wanted")
    })?;
    passed()
}
