//! With `OFFLD_TEST_SIZES=1`, as in `make test-long`: when a test's directory is removed,
//! `offld size` counts every file with device code in it. If a sum does not match the file's size,
//! that test fails.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Work, offld};

impl Drop for Work {
    fn drop(&mut self) {
        crate::edit::everywhere::there_and_back(self);
        if std::env::var_os("OFFLD_TEST_SIZES").is_none() || std::thread::panicking() {
            return;
        }
        let ended = Command::new(offld())
            .args(["size", "--json", "--by", "file,arch,part,section"])
            .arg(self.path())
            .output();
        let json = ended
            .ok()
            .and_then(|ended| serde_json::from_slice::<Value>(&ended.stdout).ok());
        let Some(json) = json else {
            panic!("offld size fails on {}", self.path().display())
        };
        for file in json["files"].as_array().into_iter().flatten() {
            let name = file["file"].as_str().unwrap_or_default();
            // Unreadable files belong to tests of such files.
            if file["type"] == "unreadable" {
                continue;
            }
            let rows = json["total"]["rows"].as_array().into_iter().flatten();
            let counted: u64 = rows
                .filter(|row| row["name"] == name)
                .map(|row| super::leaves(row).0)
                .sum();
            // A tool that was stopped can remove its temporary files later than the test ends.
            let Ok(size) = std::fs::metadata(name).map(|meta| meta.len()) else {
                continue;
            };
            assert!(
                counted == size || holds_thin_archive(Path::new(name)),
                "{name}: {counted} bytes were counted of {size}"
            );
        }
    }
}

/// Whether a file is or contains a thin archive, whose members are separate files but counted with
/// it.
fn holds_thin_archive(path: &Path) -> bool {
    std::fs::read(path)
        .unwrap_or_default()
        .windows(8)
        .any(|part| part == b"!<thin>\n")
}
