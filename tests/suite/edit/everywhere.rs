//! With `OFFLD_TEST_PARTS=1`, as in `make test-long`: when a test's directory is removed, every
//! file with device code in it is split and merged again. The result must equal the original.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Work, offld};

/// The message for a file with recompressed streams.
const ANEW: &str = "cannot be reproduced byte for byte";

/// Splits and merges all files in a test's directory.
pub(crate) fn there_and_back(work: &Work) {
    if std::env::var_os("OFFLD_TEST_PARTS").is_none() || std::thread::panicking() {
        return;
    }
    let folder = tempfile::Builder::new()
        .prefix("offld-parts-")
        .tempdir()
        .expect("a temporary folder");
    let (parts, back) = (folder.path().join("parts"), folder.path().join("back"));
    let run = |words: &[&str], path: &Path, to: &Path| -> Output {
        let ended = Command::new(offld())
            .args(words)
            .arg(path)
            .arg("-d")
            .arg(to)
            .output();
        ended.unwrap_or_else(|error| panic!("offld {words:?}: {error}"))
    };
    let split = run(&["split"], work.path(), &parts);
    let stdout = String::from_utf8_lossy(&split.stdout).into_owned();
    let merged = run(&["merge"], &parts, &back);
    assert!(
        merged.status.success(),
        "merging {}: {}",
        work.path().display(),
        String::from_utf8_lossy(&merged.stderr)
    );
    // The line for a file, and the messages below it.
    let lines: Vec<&str> = stdout.lines().collect();
    for (number, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| !line.starts_with(' '))
    {
        let Some((name, _)) = line.split_once(": host ") else {
            continue;
        };
        let Ok(within) = Path::new(name).strip_prefix(work.path()) else {
            continue;
        };
        let (Ok(old), Ok(new)) = (std::fs::read(name), std::fs::read(back.join(within))) else {
            continue;
        };
        let is_anew = lines
            .get(number + 1)
            .is_some_and(|next| next.contains(ANEW));
        assert!(
            is_anew || old == new,
            "{name}: {} bytes came back as {} others",
            old.len(),
            new.len()
        );
    }
}
