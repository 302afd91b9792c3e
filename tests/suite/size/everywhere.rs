//! With `OFFLD_TEST_SIZES=1`, as in `make test-long`: every byte of every file with device code that any test has made is counted once
//! when its folder goes, and what does not add up is a failure of that test.

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
        let ended = Command::new(offld()).args(["size", "--json", "--by", "file,arch,part,section"]).arg(self.path()).output();
        let json = ended.ok().and_then(|ended| serde_json::from_slice::<Value>(&ended.stdout).ok());
        let Some(json) = json else { panic!("offld size fails on {}", self.path().display()) };
        for file in json["files"].as_array().into_iter().flatten() {
            let name = file["file"].as_str().unwrap_or_default();
            // What cannot be read is that of tests of such files.
            if file["type"] == "unreadable" {
                continue;
            }
            let rows = json["total"]["rows"].as_array().into_iter().flatten();
            let counted: u64 = rows.filter(|row| row["name"] == name).map(|row| super::leaves(row).0).sum();
            // A tool that was stopped can remove its temporary files later than the test ends.
            let Ok(size) = std::fs::metadata(name).map(|meta| meta.len()) else { continue };
            assert!(counted == size || holds_thin_archive(Path::new(name)), "{name}: {counted} bytes were counted of {size}");
        }
    }
}

/// Whether a file is or has in it a thin archive, which is counted with the files that it names.
fn holds_thin_archive(path: &Path) -> bool {
    std::fs::read(path).unwrap_or_default().windows(8).any(|part| part == b"!<thin>\n")
}
